import math
import re
from html.parser import HTMLParser

import pytest

from sbert_core.errors import DataError
from sbert_core.evaluation.evaluation_page import render_page
from sbert_core.evaluation.render import make_tables, read_json, render_json, render_markdown, render_text
from sbert_core.evaluation.result import Evaluation

EVIL = "<script>alert('x')</script> | *a* \"q\"\n&amp; \u202e\x1b[31m"
CURVES = {
    "scores of positives": [[-1.0, 0.0], [0.0, 3.0]],
    "scores of negatives": [[-1.0, 4.0], [0.0, 1.0]],
    "calibration": [[0.2, 0.1], [0.9, 1.0]],
}


def make(model="one", data="pairs.tsv", score=0.5, **changes) -> Evaluation:
    values = {"scores": {"f1": 0.25, "accuracy": score}, "counts": {"rows": 1234}, **changes}
    return Evaluation("pairs", data, model, "accuracy", **values)


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, source) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def test_text_has_models_side_by_side_and_the_main_figure_first():
    assert render_text([make(), make("zwei 猫", score=123.456, scores={"accuracy": math.nan, "new": 2000.5})]) == (
        "pairs: pairs.tsv\n"
        "figure       one  zwei 猫\n"
        "--------  ------  -------\n"
        "accuracy  0.5000        -\n"
        "f1        0.2500        -\n"
        "new            -  2,000.5\n"
        "rows       1,234    1,234\n"
    )


def test_other_data_is_another_table():
    tables = make_tables([make(), make(data="b"), make("two")])
    assert [(table.title, table.header) for table in tables] == [
        ("pairs: pairs.tsv", ["figure", "one", "two"]),
        ("pairs: b", ["figure", "one"]),
    ]
    assert make_tables([]) == []


def test_parts_have_a_table_of_their_own():
    parts = [make(data="2012", score=0.75), make(data="2013", score=1.0)]
    few = make_tables([make(parts=parts), make("two")])[1]
    assert few.title == "pairs: pairs.tsv, by part"
    assert few.rows[:2] == [["2012: f1", "0.2500", "-"], ["2012: accuracy", "0.7500", "-"]]
    many = [make(data="2012", scores={"accuracy": 0.75, "a": 0.0, "b": 0.0, "c": 0.0})]
    assert make_tables([make(parts=many)])[1].rows == [["2012: accuracy", "0.7500"]]


def test_markdown():
    assert render_markdown([make()]) == (
        "### pairs: pairs.tsv\n\n| figure | one |\n| --- | ---: |\n| accuracy | 0.5000 |\n| f1 | 0.2500 |\n"
        "| rows | 1,234 |\n"
    )


def test_names_are_no_markup_in_markdown():
    rendered = render_markdown([make("a_b|c", data="_x_ <b> `y` [z](w)")])
    assert "| a_b\\|c |" in rendered
    assert "\\_x\\_ &lt;b\\> \\`y\\` \\[z\\](w)" in rendered
    assert len({line.count("|") - line.count("\\|") for line in rendered.splitlines() if line.startswith("|")}) == 1
    evil = render_markdown([make(EVIL)])
    assert "<" not in evil
    assert "\x1b" not in evil


def test_no_name_commands_the_terminal():
    rendered = render_text([make(EVIL)])
    assert "\x1b" not in rendered
    assert "\u202e" not in rendered
    assert len(rendered.splitlines()) == 6


def test_json_comes_back():
    evaluations = [make(curves=CURVES, parts=[make(data="2012")]), make(EVIL)]
    assert read_json(render_json(evaluations)) == evaluations
    assert '"accuracy": null' in render_json([make(score=math.nan)])


@pytest.mark.parametrize("text", ["", "[]", "{}", "1"])
def test_other_json_is_refused(text):
    with pytest.raises(DataError, match='expected an object with "evaluations"'):
        read_json(text)


def test_the_page_needs_nothing_else_and_runs_nothing():
    source = render_page([make(curves=CURVES), make("two", curves=CURVES)])
    page = Page(source)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [value for name, value in page.attributes if name in ("href", "src") or name.startswith("on")]
    assert not re.search(r"https?:|url\(|@import", source)
    assert "default-src 'none'" in source
    assert "prefers-color-scheme: dark" in source
    assert source == render_page([make(curves=CURVES), make("two", curves=CURVES)])
    assert page.tags.count("svg") == 4
    assert "0.5000" in page.text


def test_every_text_is_text():
    evil = make(EVIL, EVIL, scores={EVIL: 1.0, "accuracy": 0.5}, counts={EVIL: 1}, curves={EVIL: [[0, 1], [1, 2]]})
    source = render_page([evil, make(parts=[evil])], title=EVIL)
    page = Page(source)
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert page.text.count("<script>alert('x')</script>") > 5
    assert page.attributes.count(("aria-label", f"{EVIL}, pairs, {EVIL}: distribution")) == 2


def test_histograms_are_shares_and_calibration_has_dots():
    source = render_page([make(curves=CURVES)])
    paths = re.findall(r'class="s s\d" d="([^"]+)"', source)
    # All of the positives are in one bin, which reaches the top; 172 is the bottom.
    assert paths[0] == "M44.0 172.0 L44.0 172.0 L197.0 172.0 L197.0 10.0 L350.0 10.0 L350.0 172.0"
    assert paths[1] == "M44.0 172.0 L44.0 42.4 L197.0 42.4 L197.0 139.6 L350.0 139.6 L350.0 172.0"
    assert source.count("<circle") == 2
    assert source.count('class="diagonal"') == 1


@pytest.mark.parametrize(
    "curves",
    [
        {},
        {"scores": []},
        {"scores": [[0.0, 0.0], [1.0, 0.0]]},
        {"calibration": [[0.5, 0.5]]},
        {"calibration": [[math.nan, 0.5]]},
    ],
)
def test_curves_of_little_are_drawn_or_left_out(curves):
    source = render_page([make(curves=curves)])
    assert "nan" not in source
    assert source.count("<svg") == (
        len(curves) if curves and "nan" not in str(curves) and [] not in curves.values() else 0
    )


def test_a_page_of_nothing_is_a_page():
    assert "<h1>Evaluation</h1>" in render_page([])
    render_page([make("\ud800")]).encode()
