"""The files that patterns match, and the names they get."""

import gzip
import os
import shutil
import socket

import pyarrow as pa
import pytest
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata, FileSystem

from pipelines import embed
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from sbert_core.errors import DataError
from tests.corpora import make_table, read_output, run_fake, write_shards
from tests.fake_encoder import load_fake
from transforms.dataset.listing import list_inputs
from transforms.dataset.slices import InputSlice, check_files, inspect_files, read_rows, read_slice, split_file
from transforms.dataset.write_parts import slice_part_name


def run_inputs(patterns, output) -> dict:
    options = EmbedOptions(input=[str(pattern) for pattern in patterns], output=str(output))
    return embed.run(options, encode=embed.make_encode(options, load=load_fake))


def touch(root, *names) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def names(*patterns) -> list[str]:
    return [name for _, name in list_inputs([str(pattern) for pattern in patterns])]


@pytest.mark.slow
def test_one_file_name_in_two_folders(tmp_path):
    for number, folder in enumerate(("mon", "tue")):
        write_shards(tmp_path / "in" / folder, make_table(10, first=10 * number), 1)
    expected = ["mon/part-000.parquet", "tue/part-000.parquet"]
    for patterns in (("mon", "tue"), ("mon/*.parquet", "tue/part-*"), ("mon/part-000.parquet", "tue")):
        assert names(*(tmp_path / "in" / pattern for pattern in patterns)) == expected
    figures = run_inputs([tmp_path / "in/mon/*.parquet", tmp_path / "in/tue"], tmp_path / "out")
    assert (figures["rows in"], figures["embedded"], figures["parts"]) == (20, 20, 2)
    assert read_output(tmp_path / "out")["id"].to_pylist() == [f"r{number:04}" for number in range(20)]


def test_made_ids_of_two_folders(tmp_path):
    for folder in ("mon", "tue"):
        write_shards(tmp_path / "in" / folder, make_table(2).drop_columns(["id"]), 1)
    files = inspect_files([str(tmp_path / "in/mon"), str(tmp_path / "in/tue")])
    ids = [each for file in files for part in split_file(file, 1) for each in read_slice(part)["id"].to_pylist()]
    assert ids == [f"{folder}/part-000.parquet#{row}" for folder in ("mon", "tue") for row in range(2)]


def test_names_do_not_change_with_the_place_of_the_corpus(tmp_path, monkeypatch):
    touch(tmp_path, "one/in/mon/a.parquet", "one/in/tue/a.parquet", "one/in/a.parquet")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for patterns in (["in/mon"], ["in/mon", "in/tue"], ["in/*/*.parquet"], ["in/mon/a.parquet", "in"], ["in/**"]):
        first, second = (names(*(tmp_path / place / pattern for pattern in patterns)) for place in ("one", "two"))
        assert first == second
        monkeypatch.chdir(tmp_path / "one")
        assert names(*patterns) == first
    assert names("in/mon") == ["a.parquet"]
    assert names("in/mon", "in/tue") == ["mon/a.parquet", "tue/a.parquet"]
    assert names("in/**") == ["a.parquet", "mon/a.parquet", "tue/a.parquet"]


def test_a_file_that_several_patterns_find_counts_once(tmp_path, monkeypatch):
    touch(tmp_path, "in/a.parquet", "in/b.parquet")
    monkeypatch.chdir(tmp_path)
    ways = ["in", "./in", "in/", "in//", "in/../in", f"{tmp_path}/in", f"{tmp_path}//in/./", "in/*", "in/a.parquet"]
    expected = [(f"{tmp_path}/in/{name}", name) for name in ("a.parquet", "b.parquet")]
    assert list_inputs(ways) == expected
    for way in ways[:-1]:
        assert list_inputs([way]) == expected
    assert list_inputs([f"file://{tmp_path}/in"]) == expected


def test_a_relative_input_on_workers_elsewhere(tmp_path, monkeypatch):
    write_shards(tmp_path / "in", make_table(4), 1)
    monkeypatch.chdir(tmp_path)
    (file,) = inspect_files(["in"])
    monkeypatch.chdir("/")
    (input_slice,) = split_file(file)
    assert len(read_rows(input_slice)) == 4


ODD_NAMES = [
    *("[2024] tickets", "a*b", "what?", "with space", 'it\'s "quoted"', "日本語 ümlaut", "a#b", "50%20", "back\\slash"),
    *("a{b}", "!x", "a,b", "new\nline"),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_by_folder_path_and_glob(tmp_path, name):
    touch(tmp_path, f"{name}/{name}.parquet", "other/not this.parquet")
    for pattern in (name, f"{name}/{name}.parquet", f"{name}/*.parquet"):
        assert names(tmp_path / pattern) == [f"{name}.parquet"]


@pytest.mark.slow
def test_a_corpus_of_odd_names(tmp_path):
    for name in ODD_NAMES:
        write_shards(tmp_path / "[in] *" / f"{name}.parquet", make_table(1).drop_columns(["id"]), 1)
    pattern = str(tmp_path / "[in] *")
    assert run_fake(pattern, tmp_path / "out")["embedded"] == len(ODD_NAMES)
    result = read_output(tmp_path / "out")
    assert set(result["id"].to_pylist()) == {f"{name}.parquet/part-000.parquet#0" for name in ODD_NAMES}
    run_fake(pattern, tmp_path / "out")  # finds its own parts again
    assert read_output(tmp_path / "out").equals(result)


def test_part_names_are_plain():
    first, second = (
        slice_part_name(InputSlice("x", f"{'日[*]?#%' * 40}{end}.parquet", 0, 0, 0, 1), "0" * 64) for end in ("", "x")
    )
    assert len(first.encode()) < 220
    assert not set(first) & set("[]*?#% ")
    assert first != second


@pytest.mark.parametrize("pattern", ["in", "in/x.parquet", "in/*.parquet", "in/x.parquet/", "in/*"])
def test_folders_that_spark_writes(tmp_path, pattern):
    folder = tmp_path / "in" / "x.parquet"
    files = ["part-000-c000.snappy.parquet", "part-001-c000.snappy.parquet"]
    touch(folder, *files, "_SUCCESS", "._SUCCESS.crc", ".part-000.snappy.parquet.crc", "_temporary/x.parquet")
    assert [path for path, _ in list_inputs([str(tmp_path / pattern)])] == [f"{folder}/{name}" for name in files]


def test_globs(tmp_path):
    touch(
        tmp_path,
        "a1.parquet",
        "a2.parquet",
        "b1.parquet",
        ".a3.parquet",
        "_a4.parquet",
        "deep/er/a5.parquet",
        "sub/a6.csv",
    )
    assert names(tmp_path / "a?.parquet") == ["a1.parquet", "a2.parquet"]
    assert names(tmp_path / "[ab]1.parquet") == ["a1.parquet", "b1.parquet"]
    assert names(tmp_path / "[!a]1.parquet") == ["b1.parquet"]
    assert names(tmp_path / "*" / "*" / "*.parquet") == ["deep/er/a5.parquet"]
    assert names(tmp_path / "**.parquet") == ["a1.parquet", "a2.parquet", "b1.parquet", "deep/er/a5.parquet"]
    assert names(tmp_path / "_a4.parquet") == ["_a4.parquet"]  # named in full


def test_json_files_beside_data(tmp_path):
    touch(tmp_path, "in/a.parquet", "in/dataset_info.json", "only/a.json", "only/b.json")
    assert names(tmp_path / "in") == ["a.parquet"]
    assert names(tmp_path / "only") == ["a.json", "b.json"]


def test_links_to_folders(tmp_path):
    touch(tmp_path, "data/x.parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "latest").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    assert names(tmp_path / "in" / "latest") == ["x.parquet"]
    assert names(tmp_path / "in" / "*" / "*.parquet") == ["latest/x.parquet"]
    assert names(tmp_path / "in" / "**.parquet") == ["latest/x.parquet"]


def refuse(capsys, tmp_path, *patterns) -> str:
    arguments = ["embed", "--input", *map(str, patterns), "--output", str(tmp_path / "out")]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert not (tmp_path / "out").exists()
    return line


@pytest.mark.parametrize("pattern", ["", " ", "\n"])
def test_an_empty_input_is_refused(tmp_path, capsys, pattern):
    assert "--input has an empty value: give the name of a file or folder" in refuse(capsys, tmp_path, pattern)
    with pytest.raises(DataError, match="an input is empty"):
        list_inputs([pattern])


def test_what_is_there_is_named_if_nothing_can_be_read(tmp_path, capsys):
    touch(tmp_path, "in/a.docx", "in/sub/x.parquet")
    for pattern in ("in", "in/*"):
        line = refuse(capsys, tmp_path, tmp_path / pattern)
        assert "a.docx" in line
    assert "files of other formats are ignored: " in refuse(capsys, tmp_path, tmp_path / "in")
    assert f"no input files: no .parquet, .jsonl, .json, .csv, .tsv, .txt at '{tmp_path}/no'" in refuse(
        capsys, tmp_path, tmp_path / "no"
    )


def test_one_of_several_inputs_is_missing(tmp_path, capsys):
    write_shards(tmp_path / "mon", make_table(4), 1)
    assert f"at '{tmp_path}/tue'" in refuse(capsys, tmp_path, tmp_path / "mon", tmp_path / "tue")


@pytest.mark.parametrize("pattern", ["in", "in/z.parquet"])
@pytest.mark.parametrize("kind", ["named pipe", "socket", "link", "folder that may not be read"])
def test_what_is_no_file(tmp_path, capsys, monkeypatch, kind, pattern):
    write_shards(tmp_path / "in", make_table(4), 1)
    odd = tmp_path / "in" / "z.parquet"
    match kind:
        case "named pipe":
            os.mkfifo(odd)
            message = "it is a named pipe, expected a file"
        case "socket":
            monkeypatch.chdir(tmp_path / "in")  # the path of a socket must be short
            with socket.socket(socket.AF_UNIX) as server:
                server.bind("z.parquet")
            message = "it is a socket, expected a file"
        case "link":
            odd.symlink_to(tmp_path / "nowhere.parquet")
            message = "which does not exist"
        case _:
            if os.geteuid() == 0:
                pytest.skip("nothing is closed to this user")
            odd.mkdir(mode=0)
            message = "cannot list the input"
    line = refuse(capsys, tmp_path, tmp_path / pattern)
    assert "z.parquet" in line
    assert message in line


def test_a_device(tmp_path, capsys):
    (tmp_path / "null.csv").symlink_to("/dev/null")
    assert "null.csv cannot be read: it is a device, expected a file" in refuse(capsys, tmp_path, tmp_path / "null.csv")


def test_an_unknown_scheme(tmp_path, capsys):
    assert "cannot list the input nope://bucket/x" in refuse(capsys, tmp_path, "nope://bucket/x")


def test_a_name_that_is_not_utf8(tmp_path, capsys):
    write_shards(tmp_path / "in", make_table(2), 1)
    os.rename(tmp_path / "in/part-000.parquet", os.fsencode(tmp_path / "in") + b"/\xff.parquet")  # noqa: PTH104
    assert "is not valid UTF-8: rename the file" in refuse(capsys, tmp_path, tmp_path / "in")


@pytest.mark.parametrize("content", ["", "\n"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "json"])
def test_empty_shards(tmp_path, kind, content):
    filled = {"csv": "id,text\n1,a\n", "tsv": "id\ttext\n1\ta\n"}.get(kind, '{"id": "1", "text": "a"}\n')
    (tmp_path / f"b.{kind}").write_text(filled)
    (tmp_path / f"a.{kind}").write_text(content)
    (tmp_path / f"c.{kind}.gz").write_bytes(gzip.compress(content.encode()))
    files = inspect_files([str(tmp_path)])
    assert [file.rows for file in files] == [0, 1, 0]
    check_files(files, "text", "id", [])


@pytest.mark.slow
def test_a_corpus_without_rows(tmp_path):
    (tmp_path / "empty.csv").touch()
    assert run_fake(str(tmp_path / "empty.csv"), tmp_path / "out")["rows in"] == 0


def test_shards_that_have_only_names(tmp_path):
    for name, content in (("a.csv", "id,text\n"), ("b.csv", "id,text\n1,a\n"), ("c.csv", "")):
        (tmp_path / name).write_text(content)
    files = inspect_files([str(tmp_path / "*.csv")])
    assert [file.rows for file in files] == [0, 1, 0]
    check_files(files, "text", None, [])
    (tmp_path / "a.csv").write_text("id,body\n")
    with pytest.raises(DataError, match=r"a\.csv has no column 'text'"):
        check_files(inspect_files([str(tmp_path / "*.csv")]), "text", None, [])


class Memory(FileSystem):
    """An object store: it knows files by their whole names and has no folders."""

    files: dict[str, bytes] = {}

    @classmethod
    def scheme(cls) -> str:
        return "mem"

    def join(self, basepath, *paths):
        return "/".join([basepath, *paths])

    def split(self, path):
        return tuple(path.rsplit("/", 1))

    def mkdirs(self, path):
        pass

    def has_dirs(self):
        return False

    def _list(self, dir_or_prefix):
        yield from (self.metadata(path) for path in sorted(self.files) if path.startswith(dir_or_prefix))

    def create(self, path, mime_type="", compression_type=CompressionTypes.AUTO):
        raise NotImplementedError

    def open(self, path, mime_type="", compression_type=CompressionTypes.AUTO):
        return pa.BufferReader(self.files[path])

    def copy(self, source_file_names, destination_file_names):
        raise NotImplementedError

    def rename(self, source_file_names, destination_file_names):
        raise NotImplementedError

    def exists(self, path):
        return path in self.files

    def size(self, path):
        return len(self.files[path])

    def last_updated(self, path):
        return 0.0

    def metadata(self, path):
        if path not in self.files:
            raise BeamIOError("not there")
        return FileMetadata(path, len(self.files[path]), 0.0)

    def delete(self, paths):
        raise NotImplementedError


@pytest.fixture
def store(monkeypatch):
    files = ("one/in/a.parquet", "one/in/b.csv", "one/in/_x.csv", "one/in/notes.md", "one/in/s.parquet/part-0.parquet")
    more = ("one/in/sub/c.parquet", "two/in/a.parquet", "one/[x]/a.parquet", "one/x/a.parquet")
    monkeypatch.setattr(Memory, "files", {f"mem://{name}": b"" for name in (*files, *more)})


def test_object_stores(store):
    assert names("mem://one/in") == ["a.parquet", "b.csv", "s.parquet/part-0.parquet"]
    assert names("mem://one/in/") == names("mem://one/in")
    assert names("mem://one/in/a.parquet") == ["a.parquet"]
    assert names("mem://one/in/*.parquet") == ["a.parquet", "s.parquet/part-0.parquet"]
    assert names("mem://one/in/s.parquet") == ["part-0.parquet"]
    assert names("mem://one/[x]") == ["a.parquet"]
    assert [path for path, _ in list_inputs(["mem://one/[x]"])] == ["mem://one/[x]/a.parquet"]
    assert [path for path, _ in list_inputs(["mem://one/[x]/a.parquet"])] == ["mem://one/[x]/a.parquet"]
    with pytest.raises(DataError, match=r"no input files: .* at 'mem://one/nothing'"):
        names("mem://one/nothing")


def test_names_in_two_buckets(store, tmp_path):
    assert names("mem://one/in/*.csv", "mem://two/in") == ["one/in/b.csv", "two/in/a.parquet"]
    touch(tmp_path, "a.parquet")
    assert names("mem://two/in", tmp_path) == [f"file{tmp_path}/a.parquet", "mem/two/in/a.parquet"]
