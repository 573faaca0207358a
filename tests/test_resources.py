"""The resource hints of encoding, and how a process shares its encoder."""

import threading
import time

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import torch
from apache_beam.options.pipeline_options import DebugOptions
from apache_beam.portability.common_urns import resource_hints

from pipelines import embed
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from sbert_beam import SentenceEncoder
from sbert_core.errors import DataError, ModelError
from tests.corpora import make_table, read_output, run_fake, write_shards
from tests.fake_encoder import FakeEncoder, load_fake
from tests.tiny_models import make_transformer
from transforms.encode.encode_resources import EncodeResources
from transforms.encode.encode_sentences import EncodeSentences, _EncodeFn

GPU = "type:nvidia-tesla-t4;count:1;install-nvidia-driver"
WISHES = {"accelerator": GPU, "encode_ram": "16GB", "encode_cpus": 4}
HINTS = {
    resource_hints.ACCELERATOR.urn: GPU.encode(),
    resource_hints.MIN_RAM_BYTES.urn: b"16000000000",
    resource_hints.CPU_COUNT.urn: b"4",
}
DATAFLOW = [
    *("--runner=DataflowRunner", "--dry_run=True", "--project=my-project", "--region=us-central1"),
    *("--temp_location=gs://my-bucket/temp", "--staging_location=gs://my-bucket/staging"),
    *("--sdk_container_image=worker:1", "--sdk_location=container"),
]


def make_options(**wishes) -> EmbedOptions:
    return EmbedOptions(input=["gs://my-bucket/in/*.parquet"], output="gs://my-bucket/out", **wishes)


def hints_by_step(components) -> dict[str, dict[str, bytes]]:
    """The hints of every step that runs our code and has any."""
    found = {}
    for step in components.transforms.values():
        hints = dict(components.environments[step.environment_id].resource_hints) if step.environment_id else {}
        if hints and not step.subtransforms:
            found[step.unique_name] = hints
    return found


def local_graph(options: EmbedOptions):
    root = beam.Pipeline("FnApiRunner")
    embed.build(root, options, embed.make_encode(options, load=load_fake))
    return root.to_runner_api().components


def dataflow_pipeline(options: EmbedOptions, *flags: str) -> beam.Pipeline:
    encode = embed.make_encode(options, load=load_fake)
    root = embed.EmbedJob(options, [*DATAFLOW, *flags], encode).new_pipeline()
    embed.build(root, options, encode)
    return root


def experiments_of(root: beam.Pipeline) -> set[str]:
    return set(root.options.view_as(DebugOptions).experiments or [])


@pytest.mark.slow
def test_hints_are_on_the_encoding_step_alone():
    assert hints_by_step(local_graph(make_options(**WISHES))) == {"EncodeSentences/Encode/ParDo(_EncodeFn)": HINTS}
    assert hints_by_step(local_graph(make_options())) == {}


@pytest.mark.slow
def test_dataflow_gets_the_hints():
    """The GPU is for one process, and experiments of the user are kept."""
    job = dataflow_pipeline(make_options(**WISHES), "--experiments=enable_data_sampling").run().job
    assert hints_by_step(job.proto_pipeline.components) == {"EncodeSentences/Encode/ParDo(_EncodeFn)": HINTS}
    experiments = job.options.view_as(DebugOptions).experiments
    assert {"enable_data_sampling", "no_use_multiple_sdk_containers"} <= set(experiments)


@pytest.mark.slow
@pytest.mark.parametrize("name", WISHES)
def test_each_hint_alone(name):
    ((_, hints),) = hints_by_step(local_graph(make_options(**{name: WISHES[name]}))).items()
    assert hints.items() <= HINTS.items()
    assert len(hints) == 1


@pytest.mark.slow
def test_only_a_gpu_is_for_one_process():
    assert "no_use_multiple_sdk_containers" in experiments_of(dataflow_pipeline(make_options(accelerator=GPU)))
    assert "no_use_multiple_sdk_containers" not in experiments_of(dataflow_pipeline(make_options(encode_ram="16GB")))


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"accelerator": "nvidia-tesla-t4"}, "--accelerator is one GPU per worker, e.g. type:nvidia"),
        ({"accelerator": "type:nvidia-l4;count:2"}, "--accelerator is one GPU per worker"),
        ({"accelerator": "type:nvidia-l4;count:1;bad option"}, "--accelerator is one GPU per worker"),
        ({"accelerator": GPU, "device": "cuda"}, "leave out --device"),
        ({"accelerator": GPU, "precision": "int8"}, "--precision int8 is for CPU"),
        ({"encode_ram": "16"}, "--encode_ram is a size with a unit, e.g. 16GB, got '16'"),
        ({"encode_ram": "lots"}, "--encode_ram is a size with a unit"),
        ({"encode_ram": "0GB"}, "--encode_ram is a size with a unit"),
        ({"encode_cpus": -1}, "--encode_cpus must be at least 1"),
    ],
)
def test_bad_wishes(wishes, message):
    with pytest.raises(DataError, match=message):
        make_options(**wishes)


@pytest.mark.parametrize("job", ["embed", "run"])
def test_bad_wishes_are_one_line(job, capsys):
    assert main([job, "--input", "x", "--output", "y", "--encode_ram", "lots"]) == 2
    assert "--encode_ram is a size with a unit" in capsys.readouterr().err
    assert main([job, "--input", "x", "--output", "y", "--accelerator", "gpu"]) == 2
    assert "--accelerator is one GPU per worker" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1.5TB", "16GiB"])
def test_sizes_that_beam_understands(size):
    assert hints_by_step(local_graph(make_options(encode_ram=size)))


@pytest.mark.slow
def test_a_local_run_ignores_memory(tmp_path):
    pattern = write_shards(tmp_path / "in", make_table(20), 2)
    assert run_fake(pattern, tmp_path / "out", encode_ram="16GB", encode_cpus=2)["embedded"] == 20
    assert len(read_output(tmp_path / "out")) == 20


def test_a_worker_without_the_gpu_fails(monkeypatch):
    step = _EncodeFn(EncodeSentences(load=load_fake, resources=EncodeResources(accelerator=GPU)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="torch finds no GPU on this worker, although --accelerator is type:nvid"):
        step.setup()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    step.setup()


def test_machines_with_and_without_the_gpu_mean_the_same_encoder(tmp_path):
    folder = str(make_transformer(tmp_path / "model"))
    launcher = embed.make_encode(make_options(model=folder, accelerator=GPU)).acquire()
    on_gpu = SentenceEncoder.load(folder, device="cpu", precision="float16")  # what auto means there
    assert launcher.fingerprint == on_gpu.fingerprint
    assert launcher.fingerprint != embed.make_encode(make_options(model=folder)).acquire().fingerprint


class _OneCaller(FakeEncoder):
    """Fails where two threads meet in it, as an encoder on a GPU may."""

    def __init__(self) -> None:
        self._inside = threading.Lock()

    def encode(self, texts, **options):
        assert self._inside.acquire(blocking=False), "two threads at once"
        try:
            time.sleep(0.01)
            return super().encode(texts, **options)
        finally:
            self._inside.release()


def encode_in_threads(transform: EncodeSentences, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Each batch by a thread and an instance of its own, as a worker does with bundles."""
    results: list = [None] * len(batches)
    begin = threading.Barrier(len(batches))

    def work(number: int) -> None:
        step = _EncodeFn(transform)
        step.setup()
        begin.wait()
        results[number] = list(step.process(batches[number]))

    threads = [threading.Thread(target=work, args=[number]) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [encoded for (encoded,) in results]


def make_batches(number: int, rows: int) -> list[pa.RecordBatch]:
    return [make_table(rows, first=rows * at).select(["id", "text"]).to_batches()[0] for at in range(number)]


def test_one_thread_at_a_time_is_in_the_encoder():
    batches = make_batches(6, 10)
    encoded = encode_in_threads(EncodeSentences(load=lambda model: _OneCaller()), batches)
    for batch, result in zip(batches, encoded, strict=True):  # a failure would have left every row rejected
        expected = FakeEncoder().encode(batch["text"].to_pylist(), details=True).embeddings
        np.testing.assert_array_equal(np.stack(result["embedding"].to_numpy(zero_copy_only=False)), expected)


@pytest.mark.slow
def test_threads_get_the_right_vectors_of_a_real_encoder(tmp_path):
    folder = str(make_transformer(tmp_path / "model"))
    batches = make_batches(6, 30)
    encoded = encode_in_threads(EncodeSentences(model=folder, load_options={"device": "cpu"}), batches)
    alone = SentenceEncoder.load(folder, device="cpu")
    for batch, result in zip(batches, encoded, strict=True):
        vectors = np.stack(result["embedding"].to_numpy(zero_copy_only=False))
        np.testing.assert_allclose(vectors, alone.encode(batch["text"]), atol=1e-6)


def test_the_cores_are_those_of_the_worker(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr("sbert_core.cores.usable_cores", lambda: 2)
    step = _EncodeFn(EncodeSentences(load=load_fake, workers=4))  # on the driver
    monkeypatch.setattr("sbert_core.cores.usable_cores", lambda: 16)
    step.setup()  # on a worker
    assert chosen == [4]
