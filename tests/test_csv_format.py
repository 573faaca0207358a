"""CSV files as exports write them: quotes, line breaks in cells, other delimiters and encodings."""

import bz2
import csv
import gzip
import io
import random

import pyarrow as pa
import pytest

from pipelines.cli import main
from sbert_core.data.csv_format import read_csv
from sbert_core.data.text_stream import BadFileError, TextFormat
from sbert_core.errors import DataError
from tests.corpora import run_fake
from transforms.dataset.slices import inspect_files, read_slice, split_file

PIECES = [
    "",
    "a",
    "ü",
    "日本",
    '"',
    '""',
    ",",
    ";",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    " ",
    "x" * 9,
    "'",
    "\\",
    "\ufeff",
    "🙂",
]


def read(content: bytes, block_bytes: int = 1 << 20, tabs: bool = False, **text_format) -> list[list[str]]:
    """All rows of a CSV file, the names first."""
    batches = list(read_csv(lambda: io.BytesIO(content), TextFormat(**text_format), tabs=tabs, block_bytes=block_bytes))
    rows = [
        list(row) for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    return [batches[0].schema.names, *rows] if batches else []


def write(rows, encoding="utf-8", **dialect) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, **dialect).writerows(rows)
    return text.getvalue().encode(encoding)


def make_rows(rng: random.Random, columns: int, rows: int, breaks: str) -> list[list[str]]:
    pieces = [piece for piece in PIECES if not set(piece) & (set("\r\n") - set(breaks))]

    def cell() -> str:
        return "".join(rng.choices(pieces, k=rng.randint(0, 5)))

    names = [f"{number}{cell()}" for number in range(columns)]
    return [names, *([cell() for _ in range(columns)] for _ in range(rows))]


@pytest.mark.parametrize("block_bytes", [40, 65, 66, 1 << 20])
@pytest.mark.parametrize("columns", [1, 2, 3, 7])
def test_what_csv_writes_is_read_back(columns, block_bytes):
    rng = random.Random(columns * block_bytes)
    for delimiter in ",;\t|":
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
            for end in ("\r\n", "\n", "\r"):
                # Unless it quotes all, Python's writer leaves breaks of other kinds than its own unquoted.
                rows = make_rows(rng, columns, 30, "\r\n" if quoting == csv.QUOTE_ALL else end)
                for encoding in ("utf-8", "utf-8-sig", "utf-16"):
                    content = write(rows, encoding, delimiter=delimiter, quoting=quoting, lineterminator=end)
                    got = read(content, block_bytes, csv_delimiter=delimiter, encoding=encoding)
                    assert got == rows, (delimiter, quoting, end, encoding)


def test_every_place_of_a_block_boundary():
    rows = [["id", "text"], *([f"{number}", 'a\r\nb "c", d\n\n'] for number in range(6))]
    content = write(rows)
    for block_bytes in range(30, len(content) + 60):
        assert read(content, block_bytes) == rows


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress])
def test_exported_tickets(tmp_path, compress):
    """More than one block, with line breaks in a third of the cells: rows, ids and texts stay what they were."""
    rng = random.Random(5)
    words = [f"word{number}" for number in range(500)]
    rows = [
        [f"T{number}", rng.choice(["\n", "\r\n", "\n\n", " "]).join(rng.choices(words, k=rng.randint(1, 60)))]
        for number in range(6000)
    ]
    suffix = {bytes: "", gzip.compress: ".gz", bz2.compress: ".bz2"}[compress]
    path = tmp_path / f"tickets.csv{suffix}"
    path.write_bytes(compress(write([["id", "text"], *rows])))
    (file,) = inspect_files([str(path)])
    batches = [read_slice(each) for each in split_file(file, 2000)]
    assert [list(row.values()) for batch in batches for row in batch.to_pylist()] == rows


def test_compressed_file_of_several_members(tmp_path):
    first, second = write([["id", "text"], ["1", "a\nb"]]), write([["2", "c"]])
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(first) + gzip.compress(second))
    (tmp_path / "b.csv.bz2").write_bytes(bz2.compress(first) + bz2.compress(second))
    for file in inspect_files([str(tmp_path)]):
        (input_slice,) = split_file(file)
        assert read_slice(input_slice)["text"].to_pylist() == ["a\nb", "c"]


def test_a_row_longer_than_a_block(tmp_path):
    rows = [["id", "text"], ["1", "short"], ["2", "line\n" * 1_000_000], ["3", "last"]]
    assert read(write(rows)) == rows


def test_empty_cells_are_empty_strings_and_blank_lines_are_no_rows():
    assert read(b'a,b\n,""\n\n"",\n\r\n,x\n') == [["a", "b"], ["", ""], ["", ""], ["", "x"]]
    assert read(b'a\n""\n\nx\n') == [["a"], [""], ["x"]]


def test_null_words_are_text():
    words = ["NULL", "null", "NA", "N/A", "nan", "None", "true", "007", "1e5", "2024-01-01"]
    assert read(write([["a", "b"], *([word, word] for word in words)])) == [["a", "b"], *([w, w] for w in words)]


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n\r\n\n"])
def test_nothing_in_a_file(content):
    assert read(content) == []


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_only_names(names):
    assert read(write([names])) == [names]
    assert read(write([names]).strip()) == [names]


def test_stray_quotes_are_characters():
    assert read(b'a,b\n5" screen,x\n"q"tail,y\n') == [["a", "b"], ['5" screen', "x"], ["qtail", "y"]]


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 5000])
def test_a_quote_that_is_never_closed(columns, rows):
    lines = [",".join(["x"] * columns)] * rows
    content = "\n".join([*lines, ",".join(["x"] * (columns - 1) + ['"open']), *lines]).encode()
    with pytest.raises(BadFileError, match="a quoted cell is not closed at the end of the file"):
        read(content, 1 << 12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,text\n1,a\n2\n3,c\n", r"row 1 \(ends in line 3\) has 1 cells, expected 2, one for each column$"),
        (b'id,text\n1,"a\nb"\n2,b,c\n', r"row 1 \(ends in line 4\) has 3 cells, expected 2, one for each column$"),
        (b"id;text\n1;a, b\n", r"row 0 .* has 2 cells, expected 1, one for each column\. See --csv_delimiter$"),
        (b"id,text\n1,a\n2,\xff\xfe\n", r"row 1 \(ends in line 3\) is not valid UTF-8: see --encoding$"),
        (b"id,t\xe4xt\n1,a\n", r"the line of column names is not valid UTF-8: see --encoding$"),
        ("id,text\n1,a\n".encode("utf-16"), "it is UTF-16, not UTF-8: see --encoding utf-16$"),
        (b'id,text\n1,"a\n', "a quoted cell is not closed at the end of the file$"),
    ],
)
def test_bad_files_are_named_with_their_row(tmp_path, capsys, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"a.csv cannot be read: {message}"):
        run_fake(str(path), tmp_path / "out")
    assert main(["embed", "--input", str(path), "--output", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_bad_row_after_many_blocks():
    rows = [["a", "b"], *([str(number), "x\ny"] for number in range(3000)), ["odd"]]
    with pytest.raises(BadFileError, match=r"row 3000 \(ends in line 6002\) has 1 cells"):
        read(write(rows), 256)


def test_tabs_have_no_quotes(tmp_path):
    assert read(b'id\ttext\n1\t"5 inch, he said\n2\t""\n', tabs=True) == [
        ["id", "text"],
        ["1", '"5 inch, he said'],
        ["2", '""'],
    ]
    (tmp_path / "a.tsv").write_text('id\ttext\n1\t"a\nb"\n')
    with pytest.raises(DataError, match=r"row 1 .* has 1 cells, expected 2.*name it \.csv and see --csv_delimiter$"):
        run_fake(str(tmp_path / "a.tsv"), tmp_path / "out")
    (tmp_path / "b.TSV").write_text("id\ttext\n1\ta\n")
    (file,) = inspect_files([str(tmp_path / "b.TSV")])
    (input_slice,) = split_file(file)
    assert read_slice(input_slice).to_pylist() == [{"id": "1", "text": "a"}]


@pytest.mark.parametrize(("encoding", "delimiter"), [("utf-16", "tab"), ("latin-1", ";"), ("cp1252", "\\t")])
def test_flags_for_other_dialects(tmp_path, encoding, delimiter):
    rows = [["id", "text"], ["1", "größer; 5 Zoll\nund mehr"]]
    character = "\t" if delimiter != ";" else ";"
    (tmp_path / "a.csv").write_bytes(write(rows, encoding, delimiter=character))
    (file,) = inspect_files([str(tmp_path / "a.csv")], TextFormat(encoding, delimiter))
    (input_slice,) = split_file(file)
    assert read_slice(input_slice)["text"].to_pylist() == [rows[1][1]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--encoding", "utf-99"], "--encoding: Python has no text encoding 'utf-99'"),
        (["--encoding", "base64"], "--encoding: Python has no text encoding 'base64'"),
        (["--csv_delimiter", "||"], "--csv_delimiter must be one character, such as ';' or 'tab', got '||'"),
        (["--csv_delimiter", '"'], "--csv_delimiter must be one character"),
        (["--csv_delimiter", ""], "--csv_delimiter is empty"),
    ],
)
def test_bad_flags(capsys, flags, message):
    assert main(["embed", "--input", "x", "--output", "y", *flags]) == 2
    assert message in capsys.readouterr().err


def test_an_encoding_that_does_not_fit(tmp_path):
    (tmp_path / "a.csv").write_bytes("id,text\n1,ü\n".encode())
    with pytest.raises(DataError, match=r"a\.csv cannot be read: it is not valid ascii .*: see --encoding"):
        run_fake(str(tmp_path / "a.csv"), tmp_path / "out", encoding="ascii")


def test_two_columns_of_one_name(tmp_path):
    (tmp_path / "a.csv").write_text("id,text,text\n1,a,b\n")
    with pytest.raises(DataError, match="has two columns 'text': rename one of them"):
        run_fake(str(tmp_path / "a.csv"), tmp_path / "out")


def test_batches_are_text():
    (batch,) = read_csv(lambda: io.BytesIO(b"a,b\n1,2\n"), TextFormat())
    assert batch.schema.types == [pa.string(), pa.string()]
