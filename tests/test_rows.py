from typing import NamedTuple, Optional

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
from apache_beam import window
from apache_beam.testing.util import assert_that
from apache_beam.utils.timestamp import Timestamp

from sbert_core import ModelError, SentenceEncoder, TextError
from tests.fake_encoder import FakeEncoder, load_counted, load_fake
from tests.tiny_models import make_transformer
from transforms.rows import EncodeRows


class Ticket(NamedTuple):
    id: int
    text: Optional[str]  # noqa: UP045 - Beam reads `str | None` as Any
    opened: Timestamp  # a logical type, which has no Arrow counterpart in Beam
    tags: list[str]


TICKETS = [Ticket(number, f"text {number}", Timestamp(number), ["a", "b"]) for number in range(10)]


def create(root, tickets):
    return root | beam.Create(tickets, reshuffle=False).with_output_types(Ticket)


@pytest.mark.parametrize("batch_rows", [1, 3, 1024])
def test_rows_keep_their_fields(batch_rows):
    def check(rows) -> None:
        rows = sorted(rows, key=lambda row: row.id)
        assert [Ticket(row.id, row.text, row.opened, row.tags) for row in rows] == TICKETS
        expected = FakeEncoder().encode([row.text for row in rows], details=True)
        assert [row.embedding for row in rows] == expected.embeddings.tolist()
        assert [row.n_tokens for row in rows] == expected.n_tokens.tolist()
        assert [row.truncated for row in rows] == expected.truncated.tolist()

    with beam.Pipeline("FnApiRunner") as root:
        encoded = create(root, TICKETS) | EncodeRows(load=load_fake, batch_rows=batch_rows) | beam.Reshuffle()
        assert_that(encoded, check)


def test_timestamps_and_windows_are_kept():
    """Each element is in two windows, and comes out once in each."""

    def check(found) -> None:
        assert sorted(found) == sorted((n, n, start) for n in range(10) for start in (n // 5 * 5 - 5, n // 5 * 5))

    def reveal(row, time=beam.DoFn.TimestampParam, span=beam.DoFn.WindowParam):
        return row.id, int(time), int(span.start)

    with beam.Pipeline("FnApiRunner") as root:
        stamped = create(root, TICKETS) | beam.Map(stamp).with_output_types(Ticket)
        windowed = stamped | beam.WindowInto(window.SlidingWindows(10, 5))
        found = windowed | EncodeRows(load=load_fake, batch_rows=4) | "Reveal" >> beam.Map(reveal)
        assert_that(found | "Unwindow" >> beam.WindowInto(window.GlobalWindows()), check)


def stamp(ticket):
    return window.TimestampedValue(ticket, ticket.id)


def test_loaded_once(tmp_path):
    with beam.Pipeline("FnApiRunner") as root:
        _ = create(root, TICKETS) | EncodeRows(model=str(tmp_path), load=load_counted, batch_rows=2)
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_lost_before_a_batched_write(tmp_path):
    with beam.Pipeline("FnApiRunner") as root:
        rows = root | beam.Create([beam.Row(id=number, text="x" * number) for number in range(10)])
        _ = rows | EncodeRows(load=load_fake, batch_rows=4) | beam.io.WriteToParquet(str(tmp_path / "part"))
    found = sorted(read_rows(tmp_path, "part"), key=lambda row: row["id"])
    assert [(row["id"], row["embedding"][0]) for row in found] == [(number, number) for number in range(10)]


def test_no_rows():
    def check(rows) -> None:
        assert rows == []

    with beam.Pipeline("FnApiRunner") as root:
        assert_that(create(root, []) | EncodeRows(load=load_fake), check)


@pytest.mark.parametrize(("text", "message"), [(None, "text is null"), ("poison", "RuntimeError: poisoned")])
def test_rows_that_cannot_be_encoded(text, message):
    tickets = [*TICKETS, Ticket(10, text, Timestamp(0), [])]
    with pytest.raises(Exception, match=rf"{message}, in .*id=10.*: filter"), beam.Pipeline("FnApiRunner") as root:
        _ = create(root, tickets) | EncodeRows(load=load_fake)

    def check_failed(rows) -> None:
        assert [(row.element.id, row.msg) for row in rows] == [(10, message)]

    def check_good(rows) -> None:
        assert sorted((row.id, row.embedding[0]) for row in rows) == [(number, 6) for number in range(10)]

    with beam.Pipeline("FnApiRunner") as root:
        outputs = create(root, tickets) | EncodeRows(load=load_fake, error_handling={"output": "failed"})
        assert outputs.keys() == {"good", "failed"}
        assert_that(outputs["good"] | "A" >> beam.Reshuffle(), check_good)
        assert_that(outputs["failed"] | "B" >> beam.Reshuffle(), check_failed, label="failed")


class Untyped(NamedTuple):
    text: str | None  # Any, to Beam


def test_text_of_unknown_type():
    def check(rows) -> None:
        assert [(row.text, row.embedding[0]) for row in rows] == [("one", 3)]

    with beam.Pipeline("FnApiRunner") as root:
        rows = root | beam.Create([Untyped("one")]).with_output_types(Untyped)
        assert_that(rows | EncodeRows(load=load_fake), check)
    with pytest.raises(Exception, match="field 'text' is bytes, expected str"), beam.Pipeline("FnApiRunner") as root:
        _ = root | beam.Create([Untyped(b"one")]).with_output_types(Untyped) | EncodeRows(load=load_fake)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, "model must be"),
        ({"load_options": {"devise": "cpu"}}, "devise"),
        ({"load_options": {"precision": "float8"}}, "float8"),
        ({"prompt": "a", "prompt_name": "b"}, "not both"),
        ({"batch_rows": 0}, "batch_rows must be at least 1"),
        ({"error_handling": {"ouput": "x"}}, "ouput"),
        ({"error_handling": {"output": "good"}}, "good"),
        ({"load": "a string, from YAML"}, "load"),
    ],
)
def test_bad_configuration(settings, message):
    with pytest.raises(ModelError, match=message):
        EncodeRows(**settings)


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([beam.Row(body="x")], "field 'text' is not among body"),
        ([beam.Row(text=1)], "field 'text' is .*int.*, expected text"),
        ([beam.Row(text="x", n_tokens=1)], "already have a field n_tokens"),
        (["x"], "needs rows with a schema"),
    ],
)
def test_bad_rows_are_told_before_work_begins(elements, message):
    with pytest.raises(TextError, match=message):
        _ = beam.Pipeline("FnApiRunner") | beam.Create(elements) | EncodeRows(load=load_fake)


PIPELINE = """
pipeline:
  transforms:
    - type: Create
      config:
        elements:
          - {{id: 1, question: the dog, score: 0.5}}
          - {{id: 2, question: where is my parcel, score: 0.5}}
          - {{id: 3, question: null, score: 0.5}}
    - type: EncodeSentences
      input: Create
      config:
        model: {model}
        text_column: question
        load_options: {{device: cpu}}
        prompt: "query: "
        error_handling: {{output: failed}}
    - type: WriteToParquet
      name: WriteEncoded
      input: EncodeSentences
      config: {{path: {folder}/encoded}}
    - type: WriteToParquet
      name: WriteFailed
      input: EncodeSentences.failed
      config: {{path: {folder}/failed}}
providers:
  - type: python
    config: {{}}
    transforms:
      EncodeSentences: transforms.rows.EncodeRows
"""


def read_rows(folder, name) -> list[dict]:
    return [row for path in folder.glob(f"{name}*") for row in pq.read_table(path).to_pylist()]


def test_yaml_pipeline(tmp_path):
    pytest.importorskip("docstring_parser", reason="Beam YAML needs it: pip install '.[yaml]'")
    from apache_beam.yaml.yaml_transform import expand_pipeline

    model = make_transformer(tmp_path / "tiny")
    with beam.Pipeline("FnApiRunner") as root:
        expand_pipeline(root, PIPELINE.format(model=model, folder=tmp_path))
    rows = sorted(read_rows(tmp_path, "encoded"), key=lambda row: row["id"])
    texts = ["the dog", "where is my parcel"]
    expected = SentenceEncoder.load(model, "cpu").encode(texts, prompt="query: ", details=True)
    assert [row["question"] for row in rows] == texts
    assert [row["score"] for row in rows] == [0.5, 0.5]
    np.testing.assert_allclose([row["embedding"] for row in rows], expected.embeddings, atol=1e-6)
    assert [row["n_tokens"] for row in rows] == expected.n_tokens.tolist()
    assert [row["truncated"] for row in rows] == expected.truncated.tolist()
    (failed,) = read_rows(tmp_path, "failed")
    assert failed["element"]["id"] == 3
    assert failed["msg"] == "text is null"


def test_yaml_names_a_bad_setting():
    pytest.importorskip("docstring_parser", reason="Beam YAML needs it: pip install '.[yaml]'")
    from apache_beam.yaml.yaml_transform import expand_pipeline

    spec = PIPELINE.format(model="default", folder="unused").replace("prompt:", "promt:")
    with pytest.raises(ValueError, match="promt"):
        expand_pipeline(beam.Pipeline("FnApiRunner"), spec)
