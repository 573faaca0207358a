import math
from typing import NamedTuple, Optional

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam import window
from apache_beam.ml.inference.base import RunInference
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from apache_beam.utils.timestamp import Timestamp

from sbert_beam import ModelError, SentenceEncoder, TextError
from tests.fake_encoder import CrowdedEncoder, FakeEncoder, FaultyEncoder, load_counted, load_fake
from tests.tiny_models import make_transformer
from transforms.encode.encode_rows import EncodeRows
from transforms.encode.encode_sentences import EncodeSentences
from transforms.encode.model_handler import SentenceEmbeddings, SentenceEncoderHandler


class Ticket(NamedTuple):
    id: int
    text: Optional[str]  # noqa: UP045 - Beam reads `str | None` as Any
    opened: Timestamp  # a logical type, which has no Arrow counterpart in Beam
    tags: list[str]


TICKETS = [Ticket(number, f"text {number}", Timestamp(number), ["a", "b"]) for number in range(10)]


def create(root, tickets):
    return root | beam.Create(tickets, reshuffle=False).with_output_types(Ticket)


@pytest.mark.slow
@pytest.mark.parametrize("batch_rows", [3, 1024])
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_loaded_once(tmp_path):
    with beam.Pipeline("FnApiRunner") as root:
        _ = create(root, TICKETS) | EncodeRows(model=str(tmp_path), load=load_counted, batch_rows=2)
    assert len(list(tmp_path.iterdir())) == 1


def encode_tables(rows):
    tables = rows | "ToTables" >> beam.Map(lambda row: pa.record_batch({"text": [row.text]}))
    return tables | EncodeSentences(load=CrowdedEncoder.load)


def infer(rows):
    texts = rows | "ToTexts" >> beam.Map(lambda row: row.text)
    return texts | RunInference(SentenceEncoderHandler(load=CrowdedEncoder.load))


def transform_columns(rows, folder):
    embeddings = SentenceEmbeddings(columns=["text"], load=CrowdedEncoder.load, max_batch_size=32)
    dictionaries = rows | "ToDictionaries" >> beam.Map(lambda row: {"text": row.text})
    return dictionaries | MLTransform(write_artifact_location=str(folder)).with_transform(embeddings)


@pytest.mark.slow
def test_one_thread_encodes_at_a_time(tmp_path, monkeypatch):
    """Four bundle threads of one process, in all steps that encode."""
    monkeypatch.setattr(CrowdedEncoder, "max_inside", 0)
    options = PipelineOptions(["--direct_num_workers=4", "--direct_running_mode=multi_threading"])
    with beam.Pipeline("FnApiRunner", options=options) as root:
        rows = create(root, TICKETS) | beam.Reshuffle()
        _ = rows | EncodeRows(load=CrowdedEncoder.load, batch_rows=1)
        _ = encode_tables(rows)
        _ = infer(rows)
        _ = transform_columns(rows, tmp_path)
    assert CrowdedEncoder.max_inside == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


def spoil_seventh(texts, call):
    return {"text 7": math.nan}


@pytest.mark.slow
def test_vectors_that_are_not_finite():
    def check_failed(rows) -> None:
        assert [(row.element.id, row.msg) for row in rows] == [(7, "the vector is not finite")]

    def check_good(rows) -> None:
        assert sorted(row.id for row in rows) == [0, 1, 2, 3, 4, 5, 6, 8, 9]

    with beam.Pipeline("FnApiRunner") as root:
        encode = EncodeRows(load=lambda model: FaultyEncoder(spoil_seventh), error_handling={"output": "failed"})
        outputs = create(root, TICKETS) | encode
        assert_that(outputs["good"] | "A" >> beam.Reshuffle(), check_good)
        assert_that(outputs["failed"] | "B" >> beam.Reshuffle(), check_failed, label="failed")


def lose_gpu(texts, call):
    if call >= 2:
        raise RuntimeError("CUDA error: unspecified launch failure")


@pytest.mark.slow
def test_a_fault_of_the_machine_is_not_an_error_of_rows():
    message = "the machine failed, not a text, at rows 0 to 9 of a batch: RuntimeError: CUDA error"
    encode = EncodeRows(load=lambda model: FaultyEncoder(lose_gpu), error_handling={"output": "failed"})
    with pytest.raises(Exception, match=message), beam.Pipeline("FnApiRunner") as root:
        _ = create(root, TICKETS) | encode


@pytest.mark.slow
def test_a_prompt_the_model_does_not_have(tmp_path):
    model = str(make_transformer(tmp_path / "tiny"))
    with pytest.raises(Exception, match="the model has no prompt 'x'"), beam.Pipeline("FnApiRunner") as root:
        _ = create(root, TICKETS) | EncodeRows(model=model, prompt_name="x", error_handling={"output": "failed"})


class Untyped(NamedTuple):
    text: str | None  # Any, to Beam


@pytest.mark.slow
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
def test_bad_rows_fail_fast(elements, message):
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
      EncodeSentences: transforms.encode.encode_rows.EncodeRows
"""


def read_rows(folder, name) -> list[dict]:
    return [row for path in folder.glob(f"{name}*") for row in pq.read_table(path).to_pylist()]


@pytest.mark.slow
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


@pytest.mark.slow
def test_yaml_names_a_bad_setting():
    pytest.importorskip("docstring_parser", reason="Beam YAML needs it: pip install '.[yaml]'")
    from apache_beam.yaml.yaml_transform import expand_pipeline

    spec = PIPELINE.format(model="default", folder="unused").replace("prompt:", "promt:")
    with pytest.raises(ValueError, match="promt"):
        expand_pipeline(beam.Pipeline("FnApiRunner"), spec)
