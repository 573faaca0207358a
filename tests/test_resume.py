"""A job that died is run again, and the result is as if nothing had happened."""

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


@pytest.fixture
def corpus(tmp_path) -> str:
    table = make_table(100)
    texts = table["text"].to_pylist()
    texts[7], texts[77] = None, "poison"
    return write_shards(tmp_path / "in", table.set_column(1, "text", pa.array(texts)), 3)


@pytest.fixture
def undisturbed(tmp_path, corpus) -> dict[str, bytes]:
    run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    return contents(tmp_path / "undisturbed")


def test_second_run_does_nothing(tmp_path, corpus, undisturbed):
    figures = run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    assert figures["parts kept"] == figures["parts"] == 12
    assert contents(tmp_path / "undisturbed") == undisturbed


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
    while len(list((tmp_path / "out").glob("embeddings/*.parquet"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not (tmp_path / "out" / "embeddings" / "_manifest.json").exists()
    figures = run_fake(corpus, tmp_path / "out", slice_rows=10)
    assert 3 <= figures["parts kept"] < 12
    assert contents(tmp_path / "out") == undisturbed


def test_changed_file(tmp_path, corpus, undisturbed):
    path = tmp_path / "in" / "part-001.parquet"
    table = pq.read_table(path)
    texts = table["text"].to_pylist()
    texts[0] = "something else"
    pq.write_table(table.set_column(1, "text", pa.array(texts)), path, row_group_size=40)
    figures = run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    assert figures["parts"] - figures["parts kept"] == 1
    assert "something else" in read_output(tmp_path / "undisturbed")["text"].to_pylist()


def test_removed_file(tmp_path, corpus, undisturbed):
    (tmp_path / "in" / "part-002.parquet").unlink()
    figures = run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    assert figures["parts kept"] == figures["parts"] == 8
    assert len(list((tmp_path / "undisturbed" / "embeddings").glob("*.parquet"))) == 8  # no stale part for a glob


def test_files_of_others_are_left_alone(tmp_path, corpus, undisturbed):
    others = [tmp_path / "undisturbed" / "embeddings" / name for name in ("mine.parquet", "notes.txt", ".hidden.tmp")]
    for path in others:
        path.write_text("mine")
    run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    assert all(path.read_text() == "mine" for path in others)


def test_temporary_files_are_cleared(tmp_path, corpus, undisturbed):
    leftover = tmp_path / "undisturbed" / "embeddings" / f".part.parquet.{'0' * 32}.tmp"
    leftover.write_text("half")
    run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    assert contents(tmp_path / "undisturbed") == undisturbed


def test_other_slices(tmp_path, corpus, undisturbed):
    figures = run_fake(corpus, tmp_path / "undisturbed", slice_rows=20)
    assert figures["parts kept"] == 0
    assert len(list((tmp_path / "undisturbed" / "embeddings").glob("*.parquet"))) == figures["parts"] == 6


def test_damaged_part(tmp_path, corpus, undisturbed):
    damaged = next((tmp_path / "undisturbed" / "embeddings").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:200])
    figures = run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    assert figures["parts"] - figures["parts kept"] == 1
    assert contents(tmp_path / "undisturbed") == undisturbed


class OtherEncoder(FakeEncoder):
    fingerprint = "other"


def load_other(model, **options) -> OtherEncoder:
    return OtherEncoder()


def test_another_model(tmp_path, corpus, undisturbed):
    options = {"input": [corpus], "output": str(tmp_path / "undisturbed"), "slice_rows": 10}
    with pytest.raises(DataError, match=r"holds vectors of another model \(fake, this is other\).*--overwrite"):
        embed.run(EmbedOptions(**options), encode=EncodeSentences(load=load_other))
    assert contents(tmp_path / "undisturbed") == undisturbed
    figures = embed.run(EmbedOptions(**options, overwrite=True), encode=EncodeSentences(load=load_other))
    assert figures["parts kept"] == 0


def test_another_option(tmp_path, corpus, undisturbed):
    figures = run_fake(corpus, tmp_path / "undisturbed", slice_rows=10, stored="float16")
    assert figures["parts kept"] == 0
    assert read_output(tmp_path / "undisturbed").schema.field("embedding").type.value_type == pa.float16()


def load_never(model, **options) -> FakeEncoder:
    raise AssertionError("nobody needs the encoder here")


@pytest.mark.parametrize(("fingerprint", "kept"), [("fake", 12), ("other", 0)])
def test_looking_up_with_a_fingerprint_needs_no_encoder(tmp_path, corpus, undisturbed, fingerprint, kept):
    def check(parts) -> None:
        assert len(parts) == kept

    skip = SkipFinished(
        encode=EncodeSentences(load=load_never),
        encoded_folder=str(tmp_path / "undisturbed/embeddings"),
        rejected_folder=str(tmp_path / "undisturbed/rejected"),
        fingerprint=fingerprint,
    )
    with beam.Pipeline("FnApiRunner") as root:
        known = root | ReadSentences(patterns=[corpus], slice_rows=10) | skip
        assert_that(known["finished"], check)


def test_the_job_tells_the_fingerprint(tmp_path, corpus, monkeypatch):
    told = []

    def skip_finished(**options) -> SkipFinished:
        told.append(options["fingerprint"])
        return SkipFinished(**options)

    monkeypatch.setattr(embed, "SkipFinished", skip_finished)
    run_fake(corpus, tmp_path / "out")
    assert told == ["fake"]


def test_a_part_of_another_encoder_is_made_again(tmp_path, corpus, undisturbed):
    """A worker whose encoder is not the one that the job was started with: another precision, say."""
    path = next((tmp_path / "undisturbed" / "embeddings").glob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, FINGERPRINT_KEY: b"other"}), path)
    figures = run_fake(corpus, tmp_path / "undisturbed", slice_rows=10)
    assert figures["parts"] - figures["parts kept"] == 1
    assert contents(tmp_path / "undisturbed") == undisturbed
