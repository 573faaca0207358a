import math
import pickle
import threading

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import torch
from apache_beam.metrics import MetricsFilter
from apache_beam.ml.inference.base import KeyedModelHandler, KeyModelMapping, RunInference
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that

from sbert_beam import ModelError, SentenceEncoder
from tests.fake_encoder import FakeEncoder, FaultyEncoder, load_counted, load_fake
from tests.tiny_models import make_transformer
from transforms.encode.encode_sentences import EncodeSentences, _EncodeFn
from transforms.encode.model_handler import SentenceEmbeddings, SentenceEncoderHandler

pytestmark = pytest.mark.slow  # seconds in all


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(make_transformer(tmp_path_factory.mktemp("tiny")))


def load_tiny(tiny: str) -> SentenceEncoder:
    return SentenceEncoder.load(tiny, "cpu")


def infer(elements, handler, **options) -> None:
    """Runs RunInference and hands its results to `check`, a list in no order."""
    check = options.pop("check")
    with beam.Pipeline("FnApiRunner") as root:
        assert_that(root | beam.Create(elements, reshuffle=False) | RunInference(handler, **options), check)


def fake_vector(text: str) -> np.ndarray:
    return FakeEncoder().encode([text], details=True).embeddings[0]


def check_vectors(expected: dict):
    """Checks keyed vectors: every key once, each vector the expected one."""

    def check(results) -> None:
        assert sorted(key for key, _ in results) == sorted(expected)
        for key, vector in results:
            assert vector.dtype == np.float32
            np.testing.assert_allclose(vector, expected[key], atol=1e-6)

    return check


@pytest.mark.slow
def test_vectors_are_the_encoders(tiny, sentences):
    expected = load_tiny(tiny).encode(sentences)

    def check(results) -> None:
        assert sorted(result.example for result in results) == sorted(sentences)
        for result in results:
            assert result.inference.dtype == np.float32
            assert result.model_id == tiny
            np.testing.assert_allclose(result.inference, expected[sentences.index(result.example)], atol=1e-6)

    handler = SentenceEncoderHandler(model=tiny, load_options={"device": "cpu"}, min_batch_size=1, max_batch_size=3)
    infer(sentences, handler, check=check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "inference_args", "prompt"),
    [
        ({"prompt": "query: "}, None, "query: "),
        ({"prompt": "query: "}, {"prompt": "the "}, "the "),
        ({"prompt_name": "not used"}, {"prompt": ""}, ""),
    ],
)
def test_prompts(tiny, settings, inference_args, prompt):
    encoder = load_tiny(tiny)
    expected = encoder.encode(["a man"], prompt=prompt)[0]
    assert prompt == "" or not np.allclose(expected, encoder.encode(["a man"])[0], atol=1e-3)
    handler = SentenceEncoderHandler(model=tiny, load_options={"device": "cpu"}, **settings)

    def check(results) -> None:
        np.testing.assert_allclose(results[0].inference, expected, atol=1e-6)

    infer(["a man"], handler, inference_args=inference_args, check=check)


def test_load_options_reach_the_encoder(tiny):
    def check(results) -> None:
        assert results[0].inference.shape == (8,)

    infer(["a man"], SentenceEncoderHandler(model=tiny, load_options={"truncate_dim": 8}), check=check)


def test_loaded_once_and_counted(tmp_path):
    handler = SentenceEncoderHandler(model=str(tmp_path), load=load_counted, min_batch_size=2, max_batch_size=2)
    root = beam.Pipeline("FnApiRunner")
    texts = [f"text {number}é" for number in range(9)]
    _ = root | beam.Create(texts) | RunInference(handler) | beam.Reshuffle()
    result = root.run()
    result.wait_until_finish()
    assert len(list(tmp_path.iterdir())) == 1
    found = result.metrics().query(MetricsFilter().with_namespace("BeamML_SentenceEncoder"))
    assert {counter.key.metric.name: counter.committed for counter in found["counters"]}["num_inferences"] == 9
    sizes = {item.key.metric.name: item.committed for item in found["distributions"]}
    assert sizes["inference_request_batch_size"].max == 2
    assert sizes["inference_request_batch_byte_size"].sum == sum(len(text.encode()) for text in texts)


def test_nothing_to_encode():
    def check(results) -> None:
        assert results == []

    infer([], SentenceEncoderHandler(load=load_fake), check=check)


def test_keyed():
    texts = {"a": "one", "b": "two two", "c": "one"}
    handler = KeyedModelHandler(SentenceEncoderHandler(load=load_fake))
    expected = {key: fake_vector(text) for key, text in texts.items()}
    infer(list(texts.items()), handler.with_postprocess_fn(take_keyed_vector), check=check_vectors(expected))


def take_keyed_vector(keyed):
    return keyed[0], keyed[1].inference


@pytest.mark.slow
def test_a_model_for_each_key(tiny):
    """Beam hands out proxies of the models here: nothing but their methods can be used."""
    options = [{"device": "cpu"}, {"device": "cpu", "truncate_dim": 8}]
    mappings = [
        KeyModelMapping([key], SentenceEncoderHandler(model=tiny, load_options=chosen))
        for key, chosen in zip("ab", options, strict=True)
    ]
    expected = {
        key: SentenceEncoder.load(tiny, **chosen).encode(["the dog"])[0]
        for key, chosen in zip("ab", options, strict=True)
    }
    with beam.Pipeline("FnApiRunner") as root:
        results = root | beam.Create([("a", "the dog"), ("b", "the dog")]) | RunInference(KeyedModelHandler(mappings))
        assert_that(results | beam.Map(take_keyed_vector), check_vectors(expected))


def test_rows():
    handler = (
        KeyedModelHandler(SentenceEncoderHandler(load=load_fake))
        .with_preprocess_fn(lambda row: (row.id, row.text))
        .with_postprocess_fn(take_keyed_vector)
    )
    rows = [beam.Row(id=1, text="one"), beam.Row(id=2, text="two two")]
    infer(rows, handler, check=check_vectors({1: fake_vector("one"), 2: fake_vector("two two")}))


@pytest.mark.slow
def test_streaming():
    stream = test_stream.TestStream().add_elements(["one"]).advance_watermark_to(10).add_elements(["two"])
    handler = SentenceEncoderHandler(load=load_fake)

    def check(results) -> None:
        assert sorted(result.example for result in results) == ["one", "two"]
        assert all((result.inference == fake_vector(result.example)).all() for result in results)

    with beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])) as root:
        results = root | stream.advance_watermark_to_infinity() | RunInference(handler)
        assert_that(results, check)


@pytest.mark.parametrize("bad", [None, b"bytes", 7])
def test_an_element_that_is_not_text(tiny, bad):
    expected = rf"texts\[1\] is {type(bad).__name__}, expected str"
    with pytest.raises(Exception, match=expected):
        infer(["good", bad], SentenceEncoderHandler(model=tiny), check=len)


def test_failures_are_set_aside():
    handler = SentenceEncoderHandler(load=load_fake, min_batch_size=1, max_batch_size=1)

    def check(results) -> None:
        assert [result.example for result in results] == ["good"]

    def check_failed(failed) -> None:
        ((batch, (_, message, _)),) = failed
        assert batch == ["poison"]
        assert "poisoned" in message

    with beam.Pipeline("FnApiRunner") as root:
        encode = RunInference(handler).with_exception_handling()
        results, failed = root | beam.Create(["good", "poison"]) | encode
        assert_that(results, check)
        assert_that(failed.failed_inferences, check_failed, label="failed")


def test_vectors_that_are_not_finite(tmp_path):
    def load(model):
        return FaultyEncoder(lambda texts, call: {"bad": math.inf})

    message = r"texts\[1\]: the vector is not finite \(1 of the 2 of a batch\)"
    with pytest.raises(Exception, match=message):
        infer(["one", "bad"], SentenceEncoderHandler(load=load, min_batch_size=2), check=len)


def test_model_refresh_and_threads(tmp_path):
    handler = SentenceEncoderHandler(model="old", load=load_counted, threads=1)
    before = torch.get_num_threads()
    handler.update_model_path(str(tmp_path))
    handler.update_model_path(None)
    try:
        handler.load_model()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert len(list(tmp_path.iterdir())) == 1
    assert str(tmp_path) in repr(pickle.loads(pickle.dumps(handler)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, "model must be"),
        ({"load_options": {"devise": "cpu"}}, "devise"),
        ({"load_options": {"precision": "float8"}}, "precision 'float8' is not known"),
        ({"prompt": "a", "prompt_name": "b"}, "not both"),
        ({"min_batch_size": 0}, "expected 1 <= min"),
        ({"min_batch_size": 9, "max_batch_size": 8}, "9, .max_batch_size.: 8"),
        ({"threads": 0}, "got .* threads 0"),
    ],
)
def test_bad_configuration(settings, message):
    with pytest.raises(ModelError, match=message):
        SentenceEncoderHandler(**settings)
    with pytest.raises(ModelError, match=message):
        SentenceEmbeddings(columns=["text"], **settings)


@pytest.mark.parametrize(
    ("inference_args", "message"),
    [({"promt": "x"}, "not promt"), ({"prompt": "a", "prompt_name": "b"}, "not both")],
)
def test_bad_inference_args(inference_args, message):
    with pytest.raises(ModelError, match=message):
        infer(["x"], SentenceEncoderHandler(load=load_fake), inference_args=inference_args, check=len)


@pytest.mark.parametrize("columns", [[], "text", [1]])
def test_bad_columns(columns):
    with pytest.raises(ModelError, match="columns must be a list"):
        SentenceEmbeddings(columns=columns)


@pytest.mark.slow
@pytest.mark.parametrize("make", [dict, beam.Row])
def test_ml_transform(tiny, tmp_path, make):
    """The second pipeline knows the model from the first one's artifacts only."""
    encoder = load_tiny(tiny)
    expected = [encoder.encode(["man", text], prompt="a ") for text in ("one", "the dog")]
    embeddings = SentenceEmbeddings(columns=["title", "text"], model=tiny, load_options={"device": "cpu"}, prompt="a ")
    artifacts = str(tmp_path / "artifacts")

    def check(results) -> None:
        found = [result if isinstance(result, dict) else result._asdict() for result in results]
        for row, vectors in zip(sorted(found, key=lambda row: row["id"]), expected, strict=True):
            assert isinstance(row["text"], list)
            np.testing.assert_allclose([row["title"], row["text"]], vectors, atol=1e-6)

    for location in ({"write_artifact_location": artifacts}, {"read_artifact_location": artifacts}):
        transform = MLTransform(**location)
        if "write_artifact_location" in location:
            transform = transform.with_transform(embeddings)
        rows = [make(id=1, title="man", text="one"), make(id=2, title="man", text="the dog")]
        with beam.Pipeline("FnApiRunner") as root:
            assert_that(root | beam.Create(rows) | transform, check)


def test_ml_transform_on_a_null_in_a_later_row(tiny, tmp_path):
    embeddings = SentenceEmbeddings(columns=["text"], model=tiny)
    transform = MLTransform(write_artifact_location=str(tmp_path / "artifacts")).with_transform(embeddings)
    with pytest.raises(Exception, match="is NoneType, expected str"), beam.Pipeline("FnApiRunner") as root:
        _ = root | beam.Create([{"text": "one"}, {"text": None}], reshuffle=False) | transform


def test_run_inference_and_the_encoding_step_take_turns():
    batch = pa.record_batch({"text": ["one"]})
    step = _EncodeFn(EncodeSentences(load=load_fake))
    step.setup()
    handler = SentenceEncoderHandler(load=load_fake)
    inside, leave, done = threading.Event(), threading.Event(), []

    class Waiting(FakeEncoder):
        def encode(self, texts, **options):
            inside.set()
            assert leave.wait(60)
            return super().encode(texts, **options)

    threads = [
        threading.Thread(target=lambda: done.append(("handler", handler.run_inference(["one"], Waiting())))),
        threading.Thread(target=lambda: done.append(("step", list(step.process(batch))))),
    ]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    threads[1].join(0.5)
    assert done == []
    leave.set()
    for thread in threads:
        thread.join(60)
    assert [who for who, _ in done] == ["handler", "step"]
