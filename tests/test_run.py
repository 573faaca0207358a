"""All jobs in one command."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from tests.corpora import WORDS

pytestmark = pytest.mark.slow


def test_run_does_all_jobs(tmp_path, capsys):
    texts = [f"where is the {WORDS[row % 3]} {row}" for row in range(60)] + ["<script>alert(1)</script>"]
    pq.write_table(pa.table({"text": [*texts, texts[0], texts[0], None, None]}), tmp_path / "in.parquet")
    flags = ["run", "--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out")]
    flags += ["--title", "Tickets & co"]
    assert main(flags) == 0
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if line.startswith("[")] == [
        "[1/4] embed",
        "[2/4] mine",
        "[3/4] cluster",
        "[4/4] report",
    ]
    assert str(tmp_path / "out/report.html") in printed.out
    page = (tmp_path / "out/report.html").read_text()
    assert "Tickets &amp; co" in page
    assert "<script>alert(1)" not in page
    assert "Of <b>65</b> rows, <b>2</b> were rejected" in page  # rows of the input, not rows that are left
    assert "rows are near-duplicates of a kept row" in page
    assert main(flags) == 0
    assert "parts kept  1" in capsys.readouterr().out
