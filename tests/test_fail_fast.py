"""Mistakes that a command finds before any pipeline runs."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import job as job_module
from pipelines.cli import main
from sbert_core.errors import DataError
from tests.corpora import blobs, clustered, make_corpus, write_vectors
from tests.tiny_models import make_transformer
from transforms.dataset.files import check_target, commit


@pytest.fixture(autouse=True)
def no_pipeline(monkeypatch):
    """No job runs a pipeline."""

    def refuse(*_):
        raise AssertionError("a pipeline was run")

    monkeypatch.setattr(job_module, "execute", refuse)


@pytest.fixture
def sentences(tmp_path) -> Path:
    path = tmp_path / "in.parquet"
    table = {"text": ["one", "two"], "when": ["2024-01-02", "2024-02-03"], "number": [3, 4], "tags": [["a"], ["b"]]}
    pq.write_table(pa.table(table), path)
    return path


def refusal(arguments: list[str], capsys) -> str:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


COLUMNS = [
    (["--time_column", "nope"], "has no column 'nope'; it has: text, when, number, tags"),
    (["--time_column", "text"], "column 'text' cannot be read as times: "),
    (["--time_column", "number"], "column 'number' is int64, expected times, dates or texts. See --time_column"),
    (["--labels_column", "nope"], "See --labels_column"),
    (["--keep", "newest", "--newest_column", "nope"], "See --newest_column"),
    (["--keep", "newest", "--newest_column", "tags"], "column 'tags' is list<element: string>, whose values have no"),
    (["--keep", "newest"], "--keep newest and --newest_column belong together"),
    (["--newest_column", "when"], "--keep newest and --newest_column belong together"),
    (["--algorithm", "nope"], "--algorithm is one of leiden"),
    (["--cross_encoder", "/no/such/model"], "/no/such/model"),
]


@pytest.mark.parametrize(("flags", "message"), COLUMNS)
def test_run_checks_everything_before_the_first_job(tmp_path, sentences, flags, message, capsys):
    line = refusal(["run", "--input", str(sentences), "--output", str(tmp_path / "out"), *flags], capsys)
    assert message in line
    assert not (tmp_path / "out").exists()


def test_run_refuses_a_folder_that_is_no_cross_encoder(tmp_path, sentences, capsys):
    (tmp_path / "judge").mkdir()
    flags = ["--output", str(tmp_path / "out"), "--cross_encoder", str(tmp_path / "judge")]
    assert str(tmp_path / "judge") in refusal(["run", "--input", str(sentences), *flags], capsys)


@pytest.mark.slow
def test_what_is_good_is_not_refused(tmp_path, sentences):
    """The checks of `run` let the embed job begin."""
    flags = ["--time_column", "when", "--labels_column", "number", "--keep", "newest", "--newest_column", "when"]
    model = make_transformer(tmp_path / "model")
    with pytest.raises(AssertionError, match="a pipeline was run"):
        main(["run", "--input", str(sentences), "--output", str(tmp_path / "out"), "--model", str(model), *flags])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--keep", "newest", "--newest_column", "nope"], "has no column 'nope'"),
        (["--cross_encoder", "/no/such/model"], "/no/such/model"),
        (["--index", "routed", "--other", "x"], "within one corpus"),
    ],
)
def test_mine(tmp_path, flags, message, capsys):
    pattern = write_vectors(tmp_path / "in", clustered(5))
    assert message in refusal(["mine", "--input", pattern, "--output", str(tmp_path / "out"), *flags], capsys)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--time_column", "text", "--algorithm", "kmeans"], "column 'text' cannot be read as times: "),
        (["--time_column", "truncated", "--algorithm", "kmeans"], "column 'truncated' is bool, expected times"),
        (["--labels_column", "nope", "--algorithm", "kmeans"], "has no column 'nope'"),
        (["--algorithm", "kmeans", "--k", "1000000"], "--k is 1000000, but there are only 20 rows"),
    ],
)
def test_cluster(tmp_path, flags, message, capsys):
    corpus = make_corpus(tmp_path / "in", *blobs(2, 10), mined=False)
    assert message in refusal(["cluster", "--input", str(corpus), "--output", str(tmp_path / "out"), *flags], capsys)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """What the commands read."""
    root = tmp_path_factory.mktemp("inputs")
    make_corpus(root / "corpus", *blobs(2, 10), mined=False)
    (root / "in.txt").write_text("one\ntwo\n")
    (root / "pairs.tsv").write_text("a\tb\tscore\none\ttwo\t1\nthree\tfour\t2\n")
    make_transformer(root / "model")
    return root


def jobs(inputs: Path, output: Path) -> dict[str, list[str]]:
    """Commands that would write to a folder."""
    folder, model = inputs / "corpus", str(inputs / "model")
    pairs = ["--data", str(inputs / "pairs.tsv"), "--columns", "a,b", "--model", model]
    commands = {
        "run": ["--input", str(inputs / "in.txt"), "--model", model],
        "embed": ["--input", str(inputs / "in.txt"), "--model", model],
        "mine": ["--input", str(folder / "embeddings")],
        "cluster": ["--input", str(folder), "--algorithm", "kmeans"],
        "report": ["--input", str(folder)],
        "train": pairs,
        "evaluate": [*pairs, "--task", "sts", "--label", "score"],
    }
    outputs = {job: str(output / "report.html") if job == "report" else str(output) for job in commands}
    return {job: [job, *flags, "--output", outputs[job]] for job, flags in commands.items()}


def test_a_target_that_cannot_be_written(tmp_path, inputs, capsys):
    (tmp_path / "file").touch()
    commands = jobs(inputs, tmp_path / "file" / "out")
    capsys.readouterr()
    for job, command in commands.items():
        line = refusal(command, capsys)
        assert line.startswith(f"sbert-beam {job}: cannot write to {tmp_path}/file/out"), line


def test_a_target_without_room(tmp_path, inputs, capsys, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3))
    commands = jobs(inputs, tmp_path / "out")
    capsys.readouterr()
    for job in ("embed", "mine", "cluster", "report", "train"):
        line = refusal(commands[job], capsys)
        assert line.startswith(f"sbert-beam {job}: {tmp_path}/out has 0.00 GB free, and the result takes about"), line
    assert not (tmp_path / "out").exists()


def test_check_target(tmp_path, monkeypatch):
    check_target(str(tmp_path / "a" / "b"), 10)
    assert not list(tmp_path.iterdir())
    check_target(str(tmp_path), 10)
    assert not list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    check_target("out")
    for folder in ("nosuch://bucket/out", "/dev/null/out"):
        with pytest.raises(DataError, match=f"cannot write to {folder}: .*See --output"):
            check_target(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2_000_000_000))
    check_target(str(tmp_path), 2_000_000_000)
    with pytest.raises(DataError, match=r"has 2.00 GB free, and the result takes about 3.00 GB"):
        check_target(str(tmp_path), 3_000_000_000)


def test_a_file_without_a_folder_is_written_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commit("report.html", b"page")
    assert (tmp_path / "report.html").read_bytes() == b"page"
