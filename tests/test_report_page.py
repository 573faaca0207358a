"""The page of the report: its content, and texts that look like markup."""

import dataclasses
import html
import json
import math
import re

import pytest

from sbert_core.errors import DataError
from sbert_core.report.report_page import GRID_SIZE, MAX_TEXT_CHARS, render_report
from tests.report_data import EMPTY, HOSTILE, make_data, make_hostile


def read_blob(page: str) -> dict:
    (blob,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(blob)


def test_blob_holds_the_data():
    blob = read_blob(render_report(make_data()))
    assert len(blob["clusters"]) == 6
    assert blob["clusters"][1] == {
        "n": 0,
        "size": 1000,
        "name": "name 0",
        "terms": ["term0", "shared"],
        "exemplars": ["example 0 a", "example 0 b"],
        "cohesion": 0.0,
        "separation": None,
        "nearest": 1,
        "parent": None,
    }
    assert blob["clusters"][0]["name"] == "No cluster"
    assert blob["points"]["cluster"][:7] == [-1, 0, 1, 2, 3, 4, -1]
    assert blob["points"]["text"][99] == "text of row 99"
    texts = {"text_a": "left 3", "text_b": "right 3"}
    assert blob["pairs"][3] == {"score": 0.9, "id_a": "a3", "id_b": "b3", **texts, "marks": []}


def test_points_keep_their_aspect():
    places = {"x": [5.0, 7.0, 9.0], "y": [-1.0, 0.0, 1.0]}
    points = {**places, "cluster": [0, 0, 0], "id": "abc", "text": "abc"}
    blob = read_blob(render_report(dataclasses.replace(EMPTY, points=points)))
    assert blob["points"]["x"] == [0, GRID_SIZE // 2, GRID_SIZE]
    assert blob["points"]["y"] == [0, GRID_SIZE // 4, GRID_SIZE // 2]


def test_texts_are_not_markup():
    page = render_report(make_hostile())
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert "\u2028" not in page.split('id="data">')[1].split("</script>")[0]
    blob = read_blob(page)
    assert [cluster["exemplars"] for cluster in blob["clusters"]] == [[text] for text in HOSTILE]
    assert [pair["text_a"] for pair in blob["pairs"]] == HOSTILE
    assert len(HOSTILE[-1]) == MAX_TEXT_CHARS
    assert html.escape("{{ 7 * 7 }}") in page


def test_the_page_loads_nothing():
    page = render_report(make_data())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    policy = html.unescape(policy)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http:" not in page
    assert "https:" not in page
    assert not re.search(r"<[^>]+\s(src|style|on\w+)=", page.split("<script")[0])


def test_long_texts_are_cut_in_points():
    texts = ["x" * 300, "y" * 301]
    points = {"x": [0, 1], "y": [0, 1], "cluster": [0, 0], "id": "ab", "text": texts}
    blob = read_blob(render_report(dataclasses.replace(EMPTY, points=points)))
    assert blob["points"]["text"] == [texts[0], "y" * 299 + "…"]


@pytest.mark.slow
@pytest.mark.parametrize("character", ["語", "<"])
def test_twenty_thousand_long_texts_stay_small(character):
    data = make_data(n_clusters=2000, n_points=20_000)
    data = dataclasses.replace(data, points={**data.points, "text": [character * 5000] * 20_000})
    assert len(render_report(data).encode()) < 14_000_000


@pytest.mark.slow
def test_long_exemplars_and_pairs_stay_small():
    data = make_data(n_clusters=2000)
    text = "語" * 9000
    clusters = [{**cluster, "exemplars": [text] * 5} for cluster in data.clusters]
    pairs = [{**data.pairs[0], "text_a": text, "text_b": text}] * 500
    page = render_report(dataclasses.replace(data, clusters=clusters, pairs=pairs))
    assert len(page.encode()) < 4_000_000
    blob = read_blob(page)
    assert len(blob["clusters"]) == 2001
    assert 50 < len(blob["clusters"][1]["exemplars"][0]) < 500
    assert blob["pairs"][0]["text_a"] == blob["clusters"][1]["exemplars"][0]


def test_same_data_same_page():
    assert render_report(make_data()) == render_report(make_data())


def test_lone_surrogates_can_be_written():
    page = render_report(make_data(title="broken \ud83d", manifests={"m": "\udc00"}))
    assert "broken \ufffd" in page.encode().decode()


def test_bad_points_are_named():
    points = {"x": [0.0, math.nan], "y": [0.0, 1.0], "cluster": [0, 0], "id": "ab", "text": "ab"}
    with pytest.raises(DataError, match="point 1 of the report has x = nan"):
        render_report(dataclasses.replace(EMPTY, points=points))
    with pytest.raises(DataError, match="differ in length"):
        render_report(dataclasses.replace(EMPTY, points={**points, "id": "abc"}))


def test_duplicates_and_marks():
    pair = {"id_a": "a", "id_b": "b", "score": 0.96, "text_a": "always", "text_b": "never"}
    differ = {"numbers_differ": False, "negation_differs": True}
    page = render_report(make_data(pairs=[{**pair, **differ}, {**pair, "numbers_differ": True}, pair]))
    marks = [pair["marks"] for pair in read_blob(page)["pairs"]]
    assert marks == [["negation differs"], ["numbers differ"], []]
    section = page.split('<section id="duplicates"')[1].split("</section>")[0]
    for words in (
        "<b>2</b> rows are near-duplicates",
        "port 8080",
        "port 8081",
        "0.975",
        "numbers differ",
        "and 1 more",
    ):
        assert words in section


def test_empty_report_names_what_is_missing():
    page = render_report(EMPTY)
    for words in (
        "no row is a near-duplicate",
        "No clusters",
        "No map",
        "No pairs",
        "No rows were rejected",
        "No manifests",
    ):
        assert words in page
    assert read_blob(page)["clusters"] == []


def test_rows_are_accounted_for():
    rejected = [{"file": "f", "row": row, "id": "i", "reason": f"reason {row}."} for row in range(150)]
    page = render_report(make_data(rejected=rejected, rejected_rows=1234, truncated_rows=1, rows=5000))
    assert "<b>5,000</b> rows, <b>1,234</b> were rejected and <b>1</b> was truncated" in page
    assert "reason 99." in page
    assert "reason 100." not in page
    assert "The first 100 of 1,234" in page
    assert "A sample: 100 of 5,000 rows" in page
