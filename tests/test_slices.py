"""Input files and their slices: files that cannot be read, that change, or that have other columns."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import embed
from pipelines.cli import main
from pipelines.cluster import ClusterJob
from pipelines.embed import EmbedJob
from pipelines.mine import MineJob
from pipelines.report import ReportJob
from sbert_core.data.text_stream import TextFormat
from sbert_core.errors import DataError
from tests.corpora import make_table, read_output, run_fake, write_shards
from tests.fake_encoder import load_fake
from transforms.dataset.slices import inspect_files, inspect_readable_files, read_slice, split_file


@pytest.fixture(autouse=True)
def without_model(monkeypatch):
    """Commands use the fake encoder."""
    real = embed.make_encode
    monkeypatch.setattr(embed, "make_encode", lambda options, **seams: real(options, **{"load": load_fake, **seams}))


def write_page_damage(path, checksum: bool) -> None:
    """A Parquet file whose footer is right and whose page is not."""
    table = make_table(10, first=10).select(["id", "text"])
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=checksum)
    content = path.read_bytes()
    place = content.index(b"sentence number 13")
    # Another text of the same length is only seen by the checksum; a length that is wrong is seen by all readers.
    damage = b"SENTENCE" if checksum else b"\xff" * 8
    place = place if checksum else place - 4
    path.write_bytes(content[:place] + damage + content[place + 8 :])


def make_corpus(folder, bad: str) -> None:
    write_shards(folder, make_table(10).select(["id", "text"]), 1)
    path = folder / "part-001.parquet"
    match bad:
        case "no parquet":
            path.write_bytes(b"PAR1 no")
        case "empty":
            path.touch()
        case "cut":
            pq.write_table(make_table(10), path)
            path.write_bytes(path.read_bytes()[:-100])
        case "page":
            write_page_damage(path, checksum=True)
        case "page without checksum":
            write_page_damage(path, checksum=False)
        case "link":
            path.symlink_to("nowhere")
        case "csv":
            (folder / "part-001.csv").write_text("id,text\n1\n")
        case "encoding":
            (folder / "part-001.csv").write_bytes(b"id,text\n1,\xff\n")
        case "json":
            (folder / "part-001.jsonl").write_text('{"id": "1", "text": }\n')
        case "gzip":
            content = gzip.compress(b"id,text\n" + b"".join(b"%d,a\n" % number for number in range(10_000)))
            (folder / "part-001.csv.gz").write_bytes(content[: len(content) // 2])


BAD = ["no parquet", "empty", "cut", "page", "page without checksum", "link", "csv", "encoding", "json", "gzip"]


def embed_main(folder, output, *flags) -> int:
    return main(["embed", "--input", str(folder), "--output", str(output), *flags])


@pytest.mark.parametrize("bad", BAD)
def test_bad_files_are_skipped_with_a_reason(tmp_path, bad):
    make_corpus(tmp_path / "in", bad)
    files, (skipped,) = inspect_readable_files([str(tmp_path / "in")])
    assert [file.name for file in files] == ["part-000.parquet"]
    assert skipped.name.startswith("part-001.")
    assert skipped.reason
    assert "\n" not in skipped.reason


def read_all(folder) -> list[pa.RecordBatch]:
    return [read_slice(each) for file in inspect_files([str(folder)]) for each in split_file(file)]


@pytest.mark.parametrize("bad", BAD)
def test_bad_files_are_errors_without_the_flag(tmp_path, bad):
    """Damage to a page shows only when it is read."""
    make_corpus(tmp_path / "in", bad)
    with pytest.raises(DataError, match=r"part-001\..*cannot be read: ") as error:
        read_all(tmp_path / "in")
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_job_lists_skipped_files(tmp_path, capsys):
    make_corpus(tmp_path / "in", "page")
    assert embed_main(tmp_path / "in", tmp_path / "out", "--skip_bad_files") == 3
    summary = capsys.readouterr().out
    assert "files skipped  1" in summary
    assert "first skipped  part-001." in summary
    assert len(read_output(tmp_path / "out")) == 10
    manifest = json.loads((tmp_path / "out/embeddings/_manifest.json").read_text())
    (skipped,) = manifest["skipped_files"]
    assert skipped["name"] == "part-001.parquet"
    assert [file["name"] for file in manifest["inputs"]] == ["part-000.parquet"]


@pytest.mark.parametrize(("bad", "code"), [("csv", 2), pytest.param("page", 1, marks=pytest.mark.slow)])
def test_the_job_refuses_bad_files(tmp_path, capsys, bad, code):
    make_corpus(tmp_path / "in", bad)
    assert embed_main(tmp_path / "in", tmp_path / "out") == code
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "part-001." in line
    assert "cannot be read: " in line
    assert not list(tmp_path.rglob("_manifest.json"))


@pytest.mark.parametrize("change", ["vanish", "shrink", "replace", "damage"])
def test_files_that_change_after_inspection(tmp_path, change):
    pattern = write_shards(tmp_path / "in", make_table(20), 1)
    path = tmp_path / "in" / "part-000.parquet"
    (file,) = inspect_files([pattern])
    match change:
        case "vanish":
            path.unlink()
        case "shrink":
            pq.write_table(make_table(3), path)
        case "replace":
            pq.write_table(make_table(20, first=5), path)
            os.utime(path, (1, 1))
        case "damage":
            path.write_bytes(b"PAR1 and no more")
    (input_slice,) = split_file(file.for_workers())
    message = r"part-000\.parquet (cannot be read: |was changed while the job ran: run it again when)"
    with pytest.raises(DataError, match=message) as error:
        read_slice(input_slice)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.csv", "a.txt"])
def test_slices_without_the_schema_are_read_alike(tmp_path, name):
    """What workers receive has no schema, except of JSON."""
    content = {"a.jsonl": '{"text": "a"}\n{"text": "b"}\n', "a.csv": "text\na\nb\n", "a.txt": "a\nb\n"}
    if name in content:
        (tmp_path / name).write_text(content[name])
    else:
        pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / name)
    (file,) = inspect_files([str(tmp_path)])
    assert list(split_file(file, 1)) == list(split_file(file.for_workers(), 1))
    texts = [read_slice(each)["text"].to_pylist() for each in split_file(file.for_workers(), 1)]
    assert texts == [["a"], ["b"]]


@pytest.mark.slow
def test_nothing_is_skipped_where_all_is_well(tmp_path, capsys):
    write_shards(tmp_path / "in", make_table(10), 2)
    assert embed_main(tmp_path / "in", tmp_path / "out", "--skip_bad_files") == 0
    assert "files skipped" not in capsys.readouterr().out
    assert "skipped_files" not in json.loads((tmp_path / "out/embeddings/_manifest.json").read_text())


def test_a_corpus_of_bad_files_only(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"no")
    assert embed_main(tmp_path / "in", tmp_path / "out", "--skip_bad_files") == 2
    assert "none of the 1 input files can be read; the first is a.parquet: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["text"]), r"part-001\.parquet has no column 'text'"),
        (lambda table: table.append_column("more", [["x"] * len(table)]), "differ in their columns"),
        (lambda table: table.set_column(0, "id", [[0.5] * len(table)]), "cannot identify rows"),
    ],
)
def test_other_columns_stay_an_error(tmp_path, change, message):
    write_shards(tmp_path / "in", make_table(10), 1)
    pq.write_table(change(make_table(10, first=10)), tmp_path / "in" / "part-001.parquet")
    with pytest.raises(DataError, match=message):
        run_fake(str(tmp_path / "in"), tmp_path / "out", skip_bad_files=True)


def test_names_of_skipped_files_are_those_of_the_listing(tmp_path):
    for folder in ("mon", "tue"):
        write_shards(tmp_path / folder, make_table(3), 1)
    (tmp_path / "tue" / "part-000.parquet").write_bytes(b"no")
    files, skipped = inspect_readable_files([str(tmp_path / "mon"), str(tmp_path / "tue")])
    assert [file.name for file in files] == ["mon/part-000.parquet"]
    assert [file.name for file in skipped] == ["tue/part-000.parquet"]


def test_a_damaged_page_is_not_read_as_another_text(tmp_path):
    write_page_damage(tmp_path / "a.parquet", checksum=True)
    assert "SENTENCE number 13" in str(pq.read_table(tmp_path / "a.parquet")["text"].to_pylist())
    (file,) = inspect_files([str(tmp_path / "a.parquet")])
    (input_slice,) = split_file(file)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read: .*(CRC|checksum)"):
        read_slice(input_slice)


def test_run_passes_its_flags_to_embed(tmp_path, monkeypatch):
    """And ends with the exit code of files that were skipped."""
    seen = []
    for job in (EmbedJob, MineJob, ClusterJob, ReportJob):
        figures = {"files skipped": 2} if job is EmbedJob else {}
        monkeypatch.setattr(job, "run", lambda self, figures=figures: seen.append(self.options) or figures)
    flags = ["--skip_bad_files", "--csv_delimiter", ";", "--encoding", "latin-1"]
    assert main(["run", "--input", "x", "y", "--output", str(tmp_path), *flags]) == 3
    assert seen[0].skip_bad_files
    assert seen[0].text_format == TextFormat("latin-1", ";")
