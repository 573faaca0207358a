"""A job that died is run again: finished parts are kept, and the result is that of an undisturbed run."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.testing.util import assert_that

import transforms.dataset.published
import transforms.dataset.write_parts
from pipelines import embed
from pipelines.embed_options import EmbedOptions
from sbert_core.data.schema import FINGERPRINT_KEY
from sbert_core.errors import DataError, JobError
from tests.corpora import make_table, read_output, run_fake, write_shards
from tests.damage import contents
from tests.fake_encoder import FakeEncoder
from transforms.dataset.read_sentences import ReadSentences
from transforms.dataset.skip_finished import SkipFinished
from transforms.encode.encode_sentences import EncodeSentences

pytestmark = pytest.mark.slow

N_PARTS = 6


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A corpus of 40 rows in `in`, two of which are rejected, and the output of a run on it in `out`."""
    folder = tmp_path_factory.mktemp("finished")
    table = make_table(40)
    texts = table["text"].to_pylist()
    texts[7], texts[37] = None, "poison"
    run_fake(
        write_shards(folder / "in", table.set_column(1, "text", pa.array(texts)), 3), folder / "out", slice_rows=10
    )
    return folder


@pytest.fixture(scope="module")
def undisturbed(finished) -> dict[str, bytes]:
    return contents(finished / "out")


@pytest.fixture
def corpus(finished, tmp_path) -> str:
    shutil.copytree(finished / "in", tmp_path / "in")
    return f"{tmp_path}/in/*.parquet"


@pytest.fixture
def out(finished, tmp_path) -> Path:
    """A copy of the output, to be changed."""
    return shutil.copytree(finished / "out", tmp_path / "finished")


def test_a_second_run_only_cleans_up(corpus, out, undisturbed):
    """Finished parts and files of the user are left alone, temporary files are deleted."""
    others = [out / "embeddings" / name for name in ("mine.parquet", "notes.txt", ".hidden.tmp")]
    for path in others:
        path.write_text("mine")
    leftover = out / "embeddings" / f".part.parquet.{'0' * 32}.tmp"
    leftover.write_text("half")
    figures = run_fake(corpus, out, slice_rows=10)
    assert figures["parts kept"] == figures["parts"] == N_PARTS
    assert all(path.read_text() == "mine" for path in others)
    for path in others:
        path.unlink()
    assert contents(out) == undisturbed


class CrashError(Exception):
    pass


def crash_on(monkeypatch, target, name, condition) -> None:
    """Makes a function raise from the first call on for which the condition holds."""
    original = getattr(target, name)

    def crashing(first, *rest, **options):
        if condition(first):
            raise CrashError("the machine is gone")
        return original(first, *rest, **options)

    monkeypatch.setattr(target, name, crashing)


STAGES = {
    "before a part is written": ("commit", transforms.dataset.write_parts, lambda path: "part-001" in path),
    "between write and rename": ("rename", FileSystems, lambda paths: "part-002" in paths[0]),
    "before the manifest": ("commit", transforms.dataset.published, lambda path: path.endswith("_manifest.json")),
    "between the manifests": (
        "commit",
        transforms.dataset.published,
        lambda path: path.endswith("rejected/_manifest.json"),
    ),
    "rejected rows": ("commit", transforms.dataset.write_parts, lambda path: "/rejected/" in path),
}


@pytest.mark.parametrize("stage", STAGES)
def test_crash(tmp_path, corpus, undisturbed, monkeypatch, stage):
    name, target, condition = STAGES[stage]
    with monkeypatch.context() as patch:
        crash_on(patch, target, name, condition)
        with pytest.raises(JobError, match="the machine is gone"):
            run_fake(corpus, tmp_path / "out", slice_rows=10)
    published = (tmp_path / "out" / "embeddings" / "_manifest.json").exists()
    assert published == (stage == "between the manifests")
    figures = run_fake(corpus, tmp_path / "out", slice_rows=10)
    assert contents(tmp_path / "out") == undisturbed
    assert figures["parts kept"] < figures["parts"] or "manifest" in stage


def test_killed(tmp_path, corpus, undisturbed):
    command = [sys.executable, "-m", "tests.slow_job", corpus, str(tmp_path / "out")]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "out").glob("embeddings/*.parquet"))) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not (tmp_path / "out" / "embeddings" / "_manifest.json").exists()
    figures = run_fake(corpus, tmp_path / "out", slice_rows=10)
    assert 2 <= figures["parts kept"] < N_PARTS
    assert contents(tmp_path / "out") == undisturbed


def test_changed_and_removed_files(tmp_path, corpus, out):
    path = tmp_path / "in" / "part-001.parquet"
    table = pq.read_table(path)
    texts = table["text"].to_pylist()
    texts[0] = "something else"
    pq.write_table(table.set_column(1, "text", pa.array(texts)), path, row_group_size=40)
    (tmp_path / "in" / "part-002.parquet").unlink()
    figures = run_fake(corpus, out, slice_rows=10)
    assert (figures["parts"], figures["parts kept"]) == (4, 3)
    assert "something else" in read_output(out)["text"].to_pylist()
    assert len(list((out / "embeddings").glob("*.parquet"))) == 4  # no stale part for a glob


def test_other_slices(corpus, out):
    figures = run_fake(corpus, out, slice_rows=20)
    assert figures["parts kept"] == 0
    assert len(list((out / "embeddings").glob("*.parquet"))) == figures["parts"] == 3


class OtherEncoder(FakeEncoder):
    fingerprint = "other"


def load_other(model, **options) -> OtherEncoder:
    return OtherEncoder()


def test_another_model(corpus, out, undisturbed):
    options = {"input": [corpus], "output": str(out), "slice_rows": 10}
    with pytest.raises(DataError, match=r"holds vectors of another model \(fake, this is other\).*--overwrite"):
        embed.run(EmbedOptions(**options), encode=EncodeSentences(load=load_other))
    assert contents(out) == undisturbed
    figures = embed.run(EmbedOptions(**options, overwrite=True), encode=EncodeSentences(load=load_other))
    assert figures["parts kept"] == 0


def test_another_option(corpus, out):
    figures = run_fake(corpus, out, slice_rows=10, stored="float16")
    assert figures["parts kept"] == 0
    assert read_output(out).schema.field("embedding").type.value_type == pa.float16()


def load_never(model, **options) -> FakeEncoder:
    raise AssertionError("this step does not need the encoder")


@pytest.mark.parametrize(("fingerprint", "kept"), [("fake", N_PARTS), ("other", 0)])
def test_lookup_with_a_fingerprint_does_not_load_the_encoder(corpus, finished, fingerprint, kept):
    def check(parts) -> None:
        assert len(parts) == kept

    skip = SkipFinished(
        encode=EncodeSentences(load=load_never),
        encoded_folder=f"{finished}/out/embeddings",
        rejected_folder=f"{finished}/out/rejected",
        fingerprint=fingerprint,
    )
    with beam.Pipeline("FnApiRunner") as root:
        batches = root | ReadSentences(patterns=[corpus], slice_rows=10) | skip
        assert_that(batches["finished"], check)


def test_the_job_passes_the_fingerprint(tmp_path, corpus, monkeypatch):
    passed = []

    def skip_finished(**options) -> SkipFinished:
        passed.append(options["fingerprint"])
        return SkipFinished(**options)

    monkeypatch.setattr(embed, "SkipFinished", skip_finished)
    run_fake(corpus, tmp_path / "out")
    assert passed == ["fake"]


def test_a_part_of_another_encoder_is_made_again(corpus, out, undisturbed):
    """A worker whose encoder is not the one that the job was started with: another precision, say."""
    path = next((out / "embeddings").glob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, FINGERPRINT_KEY: b"other"}), path)
    figures = run_fake(corpus, out, slice_rows=10)
    assert figures["parts"] - figures["parts kept"] == 1
    assert contents(out) == undisturbed
