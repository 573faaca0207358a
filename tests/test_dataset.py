"""Datasets as users meet them: nothing is lost, damaged data is noticed and repaired, readers see whole results."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import embed, mine, report
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.report_options import ReportOptions
from sbert_core.errors import DataError, FormatWarning, JobError
from tests.corpora import clustered, make_table, read_output, run_fake, run_mine, write_shards, write_vectors
from tests.damage import contents, flip_bit
from tests.fake_encoder import load_fake
from transforms.dataset import lock
from transforms.dataset.lock import lock_output
from transforms.dataset.published import check_content, publish, read_dataset, read_manifest


@pytest.fixture(autouse=True)
def _forget_what_was_checked():
    """Jobs of one test run in one process, and a part is checked once per process."""
    check_content.cache_clear()


# Rows and files


def write_days(folder: Path, days=("mon", "tue")) -> list[Path]:
    """A shard of one name in a folder per day, each with its own ids."""
    for number, day in enumerate(days):
        (folder / day).mkdir(parents=True)
        rows = range(10 * number, 10 * number + 10)
        table = pa.table({"id": [f"r{row}" for row in rows], "text": [f"ticket {row}" for row in rows]})
        pq.write_table(table, folder / day / "part-0.parquet")
    return [folder / day for day in days]


@pytest.mark.parametrize("glob", ["", "/*.parquet"])
def test_files_of_one_name_in_two_folders(tmp_path, glob):
    options = {"input": [f"{day}{glob}" for day in write_days(tmp_path / "in")], "output": str(tmp_path / "out")}
    settings = EmbedOptions(**options)
    figures = embed.run(settings, encode=embed.make_encode(settings, load=load_fake))
    assert figures["rows in"] == figures["embedded"] == 20
    assert sorted(read_output(tmp_path / "out")["id"].to_pylist()) == sorted(f"r{row}" for row in range(20))
    assert len(list((tmp_path / "out/embeddings").glob("*.parquet"))) == 2
    shutil.move(tmp_path / "in", tmp_path / "moved")
    moved = EmbedOptions(**{**options, "input": [f"{tmp_path}/moved/{day}{glob}" for day in ("mon", "tue")]})
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


def test_lost_rows_fail_the_job_and_keep_the_old_result(tmp_path, monkeypatch):
    pattern = write_shards(tmp_path / "in", make_table(20), 2)
    run_fake(pattern, tmp_path / "out")
    before = contents(tmp_path / "out")
    original = embed.WriteEmbeddings

    def write_half(**options):
        transform = original(**options)
        expand = transform.expand
        transform.expand = lambda batches: expand(batches | "Lose" >> embed.beam.Filter(lambda batch: False))
        return transform

    monkeypatch.setattr(embed, "WriteEmbeddings", write_half)
    with pytest.raises(JobError, match=r"20 rows went in, 0 embedded and 0 rejected came out.*Nothing was published"):
        run_fake(pattern, tmp_path / "out", stored="float16")
    assert {name: content for name, content in contents(tmp_path / "out").items() if name in before} == before


# Damage


def test_a_flipped_bit_in_a_vector_is_noticed_by_every_job(tmp_path, capsys):
    run_fake(write_shards(tmp_path / "in", make_table(60), 2), tmp_path / "out")
    out = str(tmp_path / "out")
    mine.run(MineOptions(input=f"{out}/embeddings", output=out))
    path = next((tmp_path / "out/embeddings").glob("*.parquet"))
    whole = path.read_bytes()
    vector = np.array([1, 0], np.float32).tobytes()  # the last two values of each
    flip_bit(path, whole.index(vector) + 2)
    commands = [
        ["mine", "--input", f"{out}/embeddings", "--output", f"{out}-2"],
        ["cluster", "--input", out, "--output", f"{out}-2", "--algorithm", "components"],
        ["report", "--input", out],
    ]
    for command in commands:
        check_content.cache_clear()
        assert main(command) == (2 if command[0] == "report" else 1)
        errors = capsys.readouterr().err
        assert f"{path.name} has changed since it was written" in errors
        assert len(errors.splitlines()) == 1


def test_page_checksums_notice_it_where_hashes_are_not_checked(tmp_path, monkeypatch):
    """As of parts in an object store."""
    run_fake(write_shards(tmp_path / "in", make_table(60), 2), tmp_path / "out")
    path = next((tmp_path / "out/embeddings").glob("*.parquet"))
    flip_bit(path, path.read_bytes().index(np.array([1, 0], np.float32).tobytes()) + 2)
    monkeypatch.setattr("transforms.dataset.published.is_local", lambda path: False)
    with pytest.raises((DataError, JobError), match="could not verify page integrity"):
        run_mine(str(tmp_path / "out/embeddings"), tmp_path / "mined")


@pytest.mark.parametrize("fault", ["flipped", "cut", "shortened", "gone"])
@pytest.mark.parametrize("folder", ["embeddings", "rejected"])
def test_embed_repairs_what_is_damaged(tmp_path, fault, folder):
    table = make_table(100)
    texts = table["text"].to_pylist()
    texts[7] = None
    pattern = write_shards(tmp_path / "in", table.set_column(1, "text", pa.array(texts)), 2)
    run_fake(pattern, tmp_path / "out")
    before = contents(tmp_path / "out")
    path = sorted((tmp_path / "out" / folder).glob("*.parquet"))[0]
    if fault == "flipped":
        flip_bit(path)
    elif fault == "cut":
        path.write_bytes(path.read_bytes()[:300])
    elif fault == "shortened":
        whole = pq.read_table(path)
        pq.write_table(whole.slice(0, len(whole) // 2), path)
    else:
        path.unlink()
    figures = run_fake(pattern, tmp_path / "out")
    assert figures["parts"] - figures["parts kept"] == 1
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["neighbors", "pairs", "duplicates"])
def test_mine_repairs_what_is_damaged(tmp_path, name):
    pattern = write_vectors(tmp_path / "in", clustered(60))
    run_mine(pattern, tmp_path / "out")
    before = contents(tmp_path / "out")
    flip_bit(next((tmp_path / "out" / name).glob("*.parquet")))
    assert run_mine(pattern, tmp_path / "out")["kept from before"] == "no"
    assert contents(tmp_path / "out") == before


def test_a_damaged_manifest_is_repaired_by_overwrite(tmp_path, capsys):
    pattern = write_shards(tmp_path / "in", make_table(20), 2)
    run_fake(pattern, tmp_path / "out")
    before = contents(tmp_path / "out")
    for path in (tmp_path / "out").glob("*/_manifest.json"):
        path.write_text(path.read_text().replace('"rows"', '"rowz"'))
        with pytest.raises(DataError, match=r"_manifest.json is damaged.*--overwrite"):
            run_fake(pattern, tmp_path / "out")
        run_fake(pattern, tmp_path / "out", overwrite=True)
        assert contents(tmp_path / "out") == before


def test_an_output_of_an_older_release_is_read_with_a_warning(tmp_path, capsys):
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "out")
    path = tmp_path / "out/embeddings/_manifest.json"
    manifest = json.loads(path.read_text())
    for name in ("format", "digest", "kind", "source"):
        del manifest[name]
    for part in manifest["parts"]:
        del part["bytes"], part["n_tokens"], part["truncated"], part["rejected"]
    path.write_text(json.dumps(manifest))
    with pytest.warns(FormatWarning, match="older release"):
        assert run_mine(str(tmp_path / "out/embeddings"), tmp_path / "mined")["rows"] == 20
    command = ["mine", "--input", str(tmp_path / "out/embeddings"), "--output", str(tmp_path / "again")]
    assert main(command) == 0
    errors = capsys.readouterr().err
    assert errors.count("sbert-beam mine: warning: ") == 1
    assert "FormatWarning" not in errors


# Replacing a result


def make_other_table(rows: int) -> pa.Table:
    table = make_table(rows)
    texts = [f"quite another text {row}" for row in range(rows)]
    return table.set_column(1, "text", pa.array(texts))


def test_another_corpus_is_not_written_over_the_first(tmp_path):
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "out")
    before = contents(tmp_path / "out")
    (tmp_path / "other").mkdir()
    pq.write_table(make_other_table(20), tmp_path / "other/others.parquet")
    with pytest.raises(DataError, match=r"holds another corpus.*--overwrite"):
        run_fake(str(tmp_path / "other"), tmp_path / "out")
    assert contents(tmp_path / "out") == before
    run_fake(str(tmp_path / "other"), tmp_path / "out", overwrite=True)
    assert read_output(tmp_path / "out")["text"].to_pylist()[0].startswith("quite another")


@pytest.mark.parametrize("shared", [0, 1, 20])
def test_a_changed_corpus_is_not_another_one(tmp_path, shared):
    """A file of another name that shares texts, or that is empty."""
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "out")
    (tmp_path / "other").mkdir()
    new = make_other_table(5)[: 5 if shared else 0]
    new = new.set_column(0, "id", pa.array([f"new{row}" for row in range(len(new))], pa.string()))
    pq.write_table(pa.concat_tables([new, make_table(20)[:shared]]), tmp_path / "other/x.parquet")
    assert run_fake(str(tmp_path / "other"), tmp_path / "out")["embedded"] == len(new) + shared


def test_a_file_of_the_same_name_is_the_same_corpus(tmp_path):
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "out")
    run_fake(write_shards(tmp_path / "in2", make_other_table(20), 2), tmp_path / "out")


def test_readers_of_the_old_result_see_it_whole_until_the_switch(tmp_path):
    """A reader goes on reading while the corpus is embedded anew in another type."""
    pattern = write_shards(tmp_path / "in", make_table(100), 3)
    run_fake(pattern, tmp_path / "out", slice_rows=10)
    seen, stop = [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            manifest = read_manifest(str(tmp_path / "out/embeddings"))
            try:
                table = read_dataset(str(tmp_path / "out/embeddings"))
            except (DataError, FileNotFoundError):
                # Between reading the manifest and a part the switch may happen: then there is a new manifest.
                assert read_manifest(str(tmp_path / "out/embeddings")) != manifest
                continue
            seen.append((len(table), str(table.schema.field("embedding").type.value_type)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        run_fake(pattern, tmp_path / "out", slice_rows=10, stored="float16")
    finally:
        stop.set()
        reader.join()
    assert set(seen) <= {(100, "float"), (100, "halffloat")}
    assert seen[0] == (100, "float")


def test_a_failed_run_leaves_the_old_result(tmp_path):
    pattern = write_shards(tmp_path / "in", make_table(20), 2)
    run_fake(pattern, tmp_path / "out")
    before = contents(tmp_path / "out")
    table = make_table(20).set_column(0, "id", pa.array(["same"] * 20))
    pq.write_table(table, tmp_path / "in/part-000.parquet")
    with pytest.raises(JobError, match="ids are not unique"):
        run_fake(pattern, tmp_path / "out")
    now = contents(tmp_path / "out")
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
        lock._held.clear()  # as another process sees it
        assert main(["mine", "--input", pattern, "--output", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert "is being written by embed on" in errors
    assert len(errors.splitlines()) == 1


def test_the_report_reads_what_is_whole(tmp_path):
    run_fake(write_shards(tmp_path / "in", make_table(20), 2), tmp_path / "out")
    report.run(ReportOptions(input=str(tmp_path / "out")))
    flip_bit(next((tmp_path / "out/embeddings").glob("*.parquet")))
    with pytest.raises(DataError, match="has changed since it was written"):
        report.run(ReportOptions(input=str(tmp_path / "out")))
