"""Published datasets: no row is lost, damage is detected and repaired, readers always see a complete dataset."""

import dataclasses
import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from pipelines import embed
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from sbert_core.errors import DataError, FormatWarning, JobError
from sbert_core.process_cache import clear_process_caches
from tests.corpora import clustered, make_table, read_output, run_fake, run_mine, write_shards, write_vectors
from tests.damage import contents, flip_bit
from tests.fake_encoder import load_fake
from transforms.dataset import lock, published
from transforms.dataset.files import BeamStorage
from transforms.dataset.lock import lock_output
from transforms.dataset.published import Draft, publish, read_dataset, read_manifest

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _new_process():
    """A part is checked once per process: each test begins as a new process would."""
    clear_process_caches()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory) -> Path:
    """40 rows in two shards in `in`, and the embed job's output in `out`: four parts, each with a rejected row."""
    folder = tmp_path_factory.mktemp("embedded")
    table = make_table(40)
    texts = [None if row % 10 == 7 else text for row, text in enumerate(table["text"].to_pylist())]
    run_fake(
        write_shards(folder / "in", table.set_column(1, "text", pa.array(texts)), 2), folder / "out", slice_rows=10
    )
    return folder


@pytest.fixture
def job(embedded, tmp_path) -> Path:
    """A copy of that input and output, to be changed."""
    shutil.copytree(embedded, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run_again(folder: Path, **options) -> dict:
    """Runs the embed job on `in` into `out` once more."""
    return run_fake(f"{folder}/in/*.parquet", folder / "out", **{"slice_rows": 10, **options})


# Rows and files


def write_days(folder: Path, days=("mon", "tue")) -> list[Path]:
    """A shard of one name in a folder per day, each with its own ids."""
    for number, day in enumerate(days):
        (folder / day).mkdir(parents=True)
        rows = range(10 * number, 10 * number + 10)
        table = pa.table({"id": [f"r{row}" for row in rows], "text": [f"ticket {row}" for row in rows]})
        pq.write_table(table, folder / day / "part-0.parquet")
    return [folder / day for day in days]


def test_files_of_one_name_in_two_folders(tmp_path):
    options = {"input": [str(day) for day in write_days(tmp_path / "in")], "output": str(tmp_path / "out")}
    settings = EmbedOptions(**options)
    figures = embed.run(settings, encode=embed.make_encode(settings, load=load_fake))
    assert figures["rows in"] == figures["embedded"] == 20
    assert sorted(read_output(tmp_path / "out")["id"].to_pylist()) == sorted(f"r{row}" for row in range(20))
    assert len(list((tmp_path / "out/embeddings").glob("*.parquet"))) == 2
    shutil.move(tmp_path / "in", tmp_path / "moved")
    moved = EmbedOptions(**{**options, "input": [f"{tmp_path}/moved/{day}/*.parquet" for day in ("mon", "tue")]})
    assert embed.run(moved, encode=embed.make_encode(moved, load=load_fake))["parts kept"] == 2


def test_what_is_on_disk_is_counted(tmp_path, monkeypatch):
    """A part that got lost between writing and publishing: the job fails, and there is no result."""
    pattern = write_shards(tmp_path / "in", make_table(20), 2)

    def lose_a_part(drafts) -> None:
        next((tmp_path / "out/embeddings").glob("*.parquet")).unlink()
        publish(drafts)

    monkeypatch.setattr("transforms.dataset.published.publish", lose_a_part)
    with pytest.raises(JobError, match="is missing"):
        run_fake(pattern, tmp_path / "out")
    assert not (tmp_path / "out/embeddings/_manifest.json").exists()


def test_lost_rows_fail_the_job_and_keep_the_old_result(job, monkeypatch):
    before = contents(job / "out")
    original = embed.WriteEmbeddings

    def write_half(**options):
        transform = original(**options)
        expand = transform.expand
        transform.expand = lambda batches: expand(batches | "Lose" >> embed.beam.Filter(lambda batch: False))
        return transform

    monkeypatch.setattr(embed, "WriteEmbeddings", write_half)
    with pytest.raises(JobError, match=r"40 rows went in, 0 embedded and 0 rejected came out.*Nothing was published"):
        run_again(job, stored="float16")
    assert {name: content for name, content in contents(job / "out").items() if name in before} == before


# Damage


VECTOR_END = np.array([1, 0], np.float32).tobytes()  # the last two values of each vector


def test_every_job_detects_a_flipped_bit_in_a_vector(job, capsys):
    out = str(job / "out")
    run_mine(f"{out}/embeddings", job / "out")
    path = next((job / "out/embeddings").glob("*.parquet"))
    flip_bit(path, path.read_bytes().index(VECTOR_END) + 2)
    commands = [
        ["mine", "--input", f"{out}/embeddings", "--output", f"{out}-2"],
        ["cluster", "--input", out, "--output", f"{out}-2", "--algorithm", "components"],
        ["report", "--input", out],
    ]
    for command in commands:
        clear_process_caches()
        assert main(command) == (2 if command[0] == "report" else 1)
        errors = capsys.readouterr().err
        assert f"{path.name} has changed since it was written" in errors
        assert len(errors.splitlines()) == 1


def test_page_checksums_detect_it_where_hashes_are_not_checked(job, monkeypatch):
    """Parts in an object store are not hashed."""
    path = next((job / "out/embeddings").glob("*.parquet"))
    flip_bit(path, path.read_bytes().index(VECTOR_END) + 2)
    monkeypatch.setattr(BeamStorage, "is_local", lambda self, path: False)
    with pytest.raises((DataError, JobError), match="could not verify page integrity"):
        run_mine(f"{job}/out/embeddings", job / "mined")


@pytest.mark.parametrize("folder", ["embeddings", "rejected"])
def test_embed_repairs_damaged_parts(job, folder):
    before = contents(job / "out")
    flipped, cut, shortened, deleted = sorted((job / "out" / folder).glob("*.parquet"))
    flip_bit(flipped)
    cut.write_bytes(cut.read_bytes()[:300])
    rows = pq.read_table(shortened)
    pq.write_table(rows.slice(0, len(rows) // 2), shortened)
    deleted.unlink()
    assert run_again(job)["parts kept"] == 0
    assert contents(job / "out") == before


def test_mine_repairs_damaged_parts(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(60))
    run_mine(pattern, tmp_path / "out")
    before = contents(tmp_path / "out")
    for name in ("neighbors", "pairs", "duplicates"):
        flip_bit(next((tmp_path / "out" / name).glob("*.parquet")))
        assert run_mine(pattern, tmp_path / "out")["kept from before"] == "no"
        assert contents(tmp_path / "out") == before


def test_a_damaged_manifest_is_repaired_by_overwrite(job):
    before = contents(job / "out")
    for path in (job / "out").glob("*/_manifest.json"):
        path.write_text(path.read_text().replace('"rows"', '"rowz"'))
        with pytest.raises(DataError, match=r"_manifest.json is damaged.*--overwrite"):
            run_again(job)
    run_again(job, overwrite=True)
    assert contents(job / "out") == before


def test_an_output_of_an_older_release_is_read_with_a_warning(job, capsys):
    path = job / "out/embeddings/_manifest.json"
    manifest = json.loads(path.read_text())
    for name in ("format", "digest", "kind", "source"):
        del manifest[name]
    for part in manifest["parts"]:
        del part["bytes"], part["n_tokens"], part["truncated"], part["rejected"]
    path.write_text(json.dumps(manifest))
    with pytest.warns(FormatWarning, match="older release"):
        read_manifest(f"{job}/out/embeddings")
    assert main(["mine", "--input", f"{job}/out/embeddings", "--output", f"{job}/mined"]) == 0
    errors = capsys.readouterr().err
    assert errors.count("sbert-beam mine: warning: ") == 1
    assert "FormatWarning" not in errors
    assert len(read_dataset(f"{job}/mined/neighbors")) > 0


# Replacing a result


def make_other_table(rows: int) -> pa.Table:
    table = make_table(rows)
    texts = [f"quite another text {row}" for row in range(rows)]
    return table.set_column(1, "text", pa.array(texts))


def test_another_corpus_is_not_written_over_the_first(job):
    before = contents(job / "out")
    (job / "other").mkdir()
    pq.write_table(make_other_table(20), job / "other/others.parquet")
    with pytest.raises(DataError, match=r"holds another corpus.*--overwrite"):
        run_fake(str(job / "other"), job / "out")
    assert contents(job / "out") == before
    run_fake(str(job / "other"), job / "out", overwrite=True)
    assert read_output(job / "out")["text"].to_pylist()[0].startswith("quite another")


@pytest.mark.parametrize("shared", [0, 1])
def test_a_changed_corpus_is_not_another_one(job, shared):
    """A file of another name that shares a text, or that is empty."""
    (job / "other").mkdir()
    new = make_other_table(5)[: 5 if shared else 0]
    new = new.set_column(0, "id", pa.array([f"new{row}" for row in range(len(new))], pa.string()))
    pq.write_table(pa.concat_tables([new, make_table(20)[:shared]]), job / "other/x.parquet")
    assert run_fake(str(job / "other"), job / "out")["embedded"] == len(new) + shared


def test_a_file_of_the_same_name_is_the_same_corpus(job):
    run_fake(write_shards(job / "in2", make_other_table(20), 2), job / "out")


def test_readers_see_a_complete_dataset_while_it_is_replaced(job):
    """A reader goes on reading while the corpus is embedded again in another type."""
    folder = str(job / "out/embeddings")
    seen, stop = [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            manifest = read_manifest(folder)
            try:
                table = read_dataset(folder)
            except (DataError, FileNotFoundError):
                # The dataset was replaced after the manifest was read: then there is a new manifest.
                assert read_manifest(folder) != manifest
                continue
            seen.append((len(table), str(table.schema.field("embedding").type.value_type)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        run_again(job, stored="float16")
    finally:
        stop.set()
        reader.join()
    assert set(seen) <= {(36, "float"), (36, "halffloat")}
    assert seen[0] == (36, "float")


def drafts_of(folder: Path) -> list[Draft]:
    """What the embed job published last, ready to be published again."""
    return [
        Draft(str(folder / "out" / name), read_manifest(f"{folder}/out/{name}")) for name in ("embeddings", "rejected")
    ]


@pytest.mark.parametrize("moment", ["while a manifest is written", "when leftovers are listed"])
def test_publishing_twice_at_once(job, monkeypatch, moment):
    """Another attempt of the same step runs from its start to its end in the middle of this one."""
    drafts, before = drafts_of(job), contents(job / "out")
    for draft in drafts:
        Path(draft.folder, f".part.{'0' * 32}.tmp").write_bytes(b"left over")
    owner, name = (FileSystems, "rename") if "manifest" in moment else (published, "list_folder")
    original, calls = getattr(owner, name), []

    def interrupted(*arguments):
        result = original(*arguments) if "leftovers" in moment else None
        calls.append(arguments)
        if len(calls) == 1:
            publish(drafts)
        return original(*arguments) if result is None else result

    monkeypatch.setattr(owner, name, interrupted)
    publish(drafts)
    assert len(calls) > 1
    assert contents(job / "out") == before


def test_a_manifest_that_cannot_be_written_is_an_error(job, monkeypatch):
    first, *_ = drafts_of(job)
    other = dataclasses.replace(first, manifest=dataclasses.replace(first.manifest, model="another"))

    def refuse(*_):
        raise BeamIOError("the disk is full")

    monkeypatch.setattr(FileSystems, "rename", refuse)
    with pytest.raises(BeamIOError, match="the disk is full"):
        publish([other])


def test_leftovers_that_cannot_be_deleted_are_an_error(job, monkeypatch):
    drafts = drafts_of(job)
    Path(drafts[0].folder, f".part.{'0' * 32}.tmp").write_bytes(b"left over")

    def refuse(*_):
        raise BeamIOError("read-only file system")

    monkeypatch.setattr(FileSystems, "delete", refuse)
    with pytest.raises(BeamIOError, match="read-only"):
        publish(drafts)


def test_a_failed_run_leaves_the_old_result(job):
    before = contents(job / "out")
    table = make_table(20).set_column(0, "id", pa.array(["same"] * 20))
    pq.write_table(table, job / "in/part-000.parquet")
    with pytest.raises(JobError, match="ids are not unique"):
        run_again(job)
    now = contents(job / "out")
    assert {name: now[name] for name in before} == before


def test_a_folder_of_ones_own_called_mine_is_left_alone(tmp_path):
    pattern = write_vectors(tmp_path / "in", clustered(30))
    own = tmp_path / "out/_mine/notes.txt"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    run_mine(pattern, tmp_path / "out")
    assert own.read_text() == "mine"
    assert [path.name for path in own.parent.iterdir()] == ["notes.txt"]


def test_a_second_run_into_one_output_is_refused(tmp_path, capsys):
    pattern = write_vectors(tmp_path / "in", clustered(30))
    with lock_output(str(tmp_path / "out"), "embed"):
        lock._held_folders.clear()  # as another process sees it
        assert main(["mine", "--input", pattern, "--output", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert "is being written by embed on" in errors
    assert len(errors.splitlines()) == 1
