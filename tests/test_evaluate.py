import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sbert_beam
from pipelines.cli import main
from pipelines.evaluate_options import TASKS, EvaluateOptions
from sbert_core.errors import DataError
from sbert_core.evaluation.render import read_json
from sbert_core.evaluation.request import Task
from sbert_core.evaluation.run_tasks import evaluate
from tests.tiny_models import make_transformer

WORDS = ["fox", "dog", "man", "flute"]
PAIRS = [(f"the {a} is playing {b}", f"my {a}{' over' * len(b)}", f"where is {b}") for a in WORDS for b in WORDS]


class Letters:
    """Counts letters: an encoder that needs no model."""

    def encode(self, texts) -> np.ndarray:
        return np.array([[1 + text.count(letter) for letter in "aeioux"] for text in texts], np.float32)


LETTERS = {"letters": Letters()}


@pytest.fixture
def model(tmp_path) -> str:
    return str(make_transformer(tmp_path / "model"))


@pytest.fixture
def rows(tmp_path) -> str:
    path = tmp_path / "rows.parquet"
    a, b, c = (list(column) for column in zip(*PAIRS, strict=True))
    n = len(PAIRS)
    columns = {"id": list(range(n)), "a": a, "b": b, "c": c, "score": np.linspace(0, 5, n), "same": [0, 1] * (n // 2)}
    pq.write_table(
        pa.table({**columns, "year": [2012, 2013] * (n // 2), "split": ["train"] * 12 + ["test"] * (n - 12)}), path
    )
    return str(path)


def write(path, *lines) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    return str(path)


@pytest.fixture
def folder(tmp_path) -> str:
    folder = tmp_path / "retrieval"
    folder.mkdir()
    write(folder / "queries.csv", ("id", "text"), ("1", "aaa"), ("2", "xxx"))
    write(folder / "corpus.csv", ("id", "text"), ("10", "aaaa"), ("11", "eee"), ("12", "xxxx"))
    lines = [("1", "10", "1"), ("2", "12", "2"), ("2", "11", "0")]
    write(folder / "relevant.csv", ("query_id", "document_id", "score"), *lines)
    return str(folder)


class TestFunction:
    def test_it_is_public(self):
        assert sbert_beam.evaluate is evaluate
        assert Task.__args__ == TASKS

    def test_sts_by_group(self, rows):
        (evaluation,) = evaluate("sts", LETTERS, rows, columns=["a", "b"], label="score", group_column="year")
        assert [part.data for part in evaluation.parts] == ["2012", "2013"]
        assert [part.counts["rows"] for part in evaluation.parts] == [8, 8]
        assert evaluation.score == pytest.approx(np.mean([part.score for part in evaluation.parts]))
        (ranged,) = evaluate("sts", LETTERS, rows, columns=["a", "b"], label="score", label_range=(0, 5))
        assert ranged.scores["cosine_spearman"] == pytest.approx(evaluation.scores["cosine_spearman_pooled"])
        (year,) = evaluate("sts", LETTERS, rows, columns=["a", "b"], label="score", where={"year": 2013})
        assert year.scores == evaluation.parts[1].scores
        assert year.data == f"{rows} (year=2013)"

    def test_limit_keeps_groups_with_their_rows(self, rows):
        settings = {"columns": ["a", "b"], "label": "score", "group_column": "year", "limit": 10}
        (evaluation,) = evaluate("sts", LETTERS, rows, **settings)
        assert sum(part.counts["rows"] for part in evaluation.parts) == evaluation.counts["rows"] == 10
        assert evaluate("sts", LETTERS, rows, **settings) == [evaluation]
        assert evaluate("sts", LETTERS, rows, **settings, seed=1) != [evaluation]

    def test_tasks_on_rows(self, rows):
        (pairs,) = evaluate("pairs", LETTERS, rows, columns=["a", "b"], label="same")
        assert pairs.counts["positives"] == 8
        (triplets,) = evaluate("triplets", LETTERS, rows, columns=["a", "b", "c"])
        assert triplets.counts["rows"] == 16
        (clustering,) = evaluate("clustering", LETTERS, rows, columns=["a"], label="year")
        assert clustering.counts["classes"] == 2
        (health,) = evaluate("health", LETTERS, rows, columns=["a", "b"], label="score", label_range=(0, 5))
        assert health.counts["positive_pairs"] == 3
        (probes,) = evaluate("probes", LETTERS, rows, columns=["a", "c"])
        assert probes.counts["sentences"] == 20

    def test_nli_trains_on_one_split_and_is_scored_on_another(self, rows):
        (nli,) = evaluate("nli", LETTERS, rows, columns=["a", "b"], label="same")
        assert (nli.counts["train_rows"], nli.counts["rows"]) == (12, 4)
        assert nli.data == f"{rows} (split=test)"
        with pytest.raises(DataError, match="rarest class"):
            evaluate("transfer", LETTERS, rows, columns=["a"], label="same")
        with pytest.raises(DataError, match="has no train and test rows, which nli needs"):
            evaluate("nli", LETTERS, rows, columns=["a", "b"], label="same", where={"split": "train"})

    def test_nli_leaves_out_rows_without_a_gold_label(self, tmp_path):
        kinds = ["yes", "no", "-", "yes", "no"]
        lines = [(f"{'a' * n} x", "e", kind, split) for split in ("train", "test") for n, kind in enumerate(kinds)]
        header = ("premise", "hypothesis", "label", "split")
        (evaluation,) = evaluate("nli", LETTERS, write(tmp_path / "nli.csv", header, *lines), label="label")
        assert evaluation.counts == {"train_rows": 4, "rows": 4, "classes": 2, "undecided_rows_left_out": 2}
        assert evaluation.data == f"{tmp_path}/nli.csv (label=no|yes, split=test)"
        decided = [line for line in lines if line[2] != "-"]
        (plain,) = evaluate("nli", LETTERS, write(tmp_path / "decided.csv", header, *decided), label="label")
        assert plain.scores == evaluation.scores
        assert plain.counts == {**evaluation.counts, "undecided_rows_left_out": 0}

    @pytest.mark.slow
    def test_transfer_with_a_dev_split_and_without_splits(self, tmp_path):
        parts = ["train"] * 40 + ["validation"] * 10 + ["test"] * 10
        lines = [(f"{'a' if n % 2 else 'e'} {n}", n % 2, part) for n, part in enumerate(parts)]
        path = write(tmp_path / "t.csv", ("text", "label", "part"), *lines)
        (evaluation,) = evaluate("transfer", LETTERS, path, label="label", split_column="part")
        assert (evaluation.counts["train_rows"], evaluation.counts["dev_rows"], evaluation.counts["rows"]) == (
            40,
            10,
            10,
        )
        assert evaluation.score == 1
        (crossed,) = evaluate("transfer", LETTERS, path, label="label")
        assert (crossed.counts["rows"], crossed.counts["folds"]) == (60, 10)

    def test_retrieval(self, folder):
        (evaluation,) = evaluate("retrieval", LETTERS, folder)
        assert evaluation.scores["accuracy@1"] == 1
        assert evaluation.counts["relevant"] == 2
        assert evaluation.data == folder

    def test_mining(self, rows, tmp_path):
        gold = write(tmp_path / "gold.csv", ("id_a", "id_b"), ("0", "1"), ("3", "2"))
        (evaluation,) = evaluate("mining", LETTERS, rows, columns=["id", "a"], pairs=gold)
        assert evaluation.counts == {"rows": 16, "gold_pairs": 2, "mined_pairs": 120}

    def test_efficiency_with_a_derived_and_a_given_cross_encoder(self, model, rows):
        settings = {"columns": ["a"], "device": "cpu"}
        (evaluation,) = evaluate("efficiency", model, rows, **settings, sentences=6)
        assert evaluation.counts == {"sentences": 6, "pairs": 15, "sampled_pairs": 15}
        assert "smart_batching" in evaluation.scores
        sbert_beam.CrossEncoder.begin(model).save(f"{model}-cross")
        (given,) = evaluate("efficiency", LETTERS, rows, **settings, cross_encoder=f"{model}-cross")
        assert given.counts["sentences"] == 16

    BAD = {
        "task": (("guess", "rows"), {}, "there is no task 'guess'"),
        "label": (("sts", "rows"), {}, "sts needs labels: name the label column of .* which has id, a, b"),
        "other task's option": (("triplets", "rows"), {"label": "same"}, "label is not for triplets but for sts"),
        "gold pairs": (("mining", "rows"), {}, "give pairs, a file with the columns id_a and id_b"),
        "mining columns": (("mining", "rows"), {"columns": ["a"], "pairs": "x"}, "a column of ids and one of texts"),
        "cross-encoder": (("efficiency", "rows"), {}, "give cross_encoder, or models by name"),
        "folder": (("retrieval", "rows"), {}, "there is no data at .*queries"),
        "split": (("nli", "rows"), {"label": "same", "split_column": "half"}, "has no column 'half'"),
    }

    @pytest.mark.parametrize(("asked", "options", "message"), BAD.values(), ids=BAD)
    def test_bad_input_is_refused(self, rows, asked, options, message):
        columns = {"columns": ["a", "b"]} if asked[0] not in ("mining", "retrieval") else {}
        with pytest.raises(DataError, match=message):
            evaluate(asked[0], LETTERS, rows, **{**columns, **options})

    def test_no_model_is_refused(self, rows):
        with pytest.raises(DataError, match="no model"):
            evaluate("probes", [], rows, columns=["a"])

    @pytest.mark.parametrize(
        ("file", "lines", "message"),
        [
            ("queries.csv", [("id", "text"), ("1", "a"), ("1", "b")], "row 1 .*the id '1' occurs twice"),
            ("queries.csv", [("id", "text"), ("", "a")], "row 0 .*column 'id' is '', expected an id"),
            ("queries.csv", [("id", "text"), ("1", " ")], "row 0 .*column 'text'"),
            ("corpus.csv", [("id", "body"), ("1", "a")], "has no column 'text'"),
            ("relevant.csv", [("query_id", "document_id", "score"), ("1", "10", "x")], "column 'score' is 'x'"),
            ("relevant.csv", [("query_id", "document_id"), ("1", "99")], "'99'"),
        ],
    )
    def test_a_bad_folder_is_refused(self, folder, tmp_path, file, lines, message):
        write(tmp_path / "retrieval" / file, *lines)
        with pytest.raises(DataError, match=message):
            evaluate("retrieval", LETTERS, folder)


class TestCommand:
    def test_models_side_by_side_and_three_files(self, model, rows, tmp_path, capsys):
        out = tmp_path / "out"
        flags = ["--task", "sts", "--data", rows, "--columns", "a,b", "--label", "score", "--label_range", "0,5"]
        flags += ["--where", "split=test", "--group_column", "year", "--output", str(out), "--device", "cpu"]
        assert main(["evaluate", "--model", f"{model}, {model}/", *flags]) == 0
        output = capsys.readouterr().out
        assert "cosine_spearman" in output
        assert "by part" in output
        assert f"evaluation.html  {out}/evaluation.html" in output
        evaluations = read_json((out / "evaluation.json").read_text())
        assert [evaluation.model for evaluation in evaluations] == [model, f"{model}/"]
        assert evaluations[0].scores == evaluations[1].scores
        assert evaluations[0].counts == {"rows": 4, "groups": 2}
        assert f"{evaluations[0].score:.4f}" in (out / "evaluation.md").read_text()
        assert "<svg" in (out / "evaluation.html").read_text()
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        assert sorted(before) == ["evaluation.html", "evaluation.json", "evaluation.md"]
        assert main(["evaluate", "--model", f"{model}, {model}/", *flags]) == 0
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before

    def test_without_output_nothing_is_written(self, model, rows, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        assert main(["evaluate", "--model", model, "--task", "probes", "--data", rows, "--columns", "a"]) == 0
        assert "typo_nearer" in capsys.readouterr().out
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_text_of_the_data_is_not_markup_in_the_page(self, model, tmp_path):
        path = tmp_path / "rows.jsonl"
        lines = [
            {"a": f"the {WORDS[n % 4]} is", "b": "the dog", "score": n / 9, "g": "<script>x</script>"} for n in range(9)
        ]
        path.write_text("\n".join(map(json.dumps, lines)))
        flags = ["--columns", "a,b", "--label", "score", "--group_column", "g", "--output", str(tmp_path / "out")]
        assert main(["evaluate", "--model", model, "--task", "sts", "--data", str(path), *flags]) == 0
        page = (tmp_path / "out" / "evaluation.html").read_text()
        assert "<script" not in page
        assert "&lt;script&gt;x" in page

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--task", "sts", "--data", "no.tsv", "--label", "x"], "there is no data at 'no.tsv'"),
            (["--task", "stss", "--data", "no.tsv"], "--task is one of sts, pairs"),
            (["--task", "probes", "--data", "a", "--model", "x,,y"], "--model is a model, or several"),
            (["--task", "sts", "--data", "a", "--label_range", "5"], "--label_range is two numbers, as 0,5, got '5'"),
            (["--task", "sts", "--data", "a", "--where", "split"], "as split=train, got 'split'"),
            (["--task", "probes", "--data", "a", "--pairs", "b"], "pairs is not for probes but for mining"),
            (["--task", "probes", "--data", "a", "--runner", "FnApiRunner"], "evaluate runs no pipeline"),
            (["--task", "probes", "--data", "a.txt", "--output", "a.txt"], "--output a.txt is a file"),
            (["--task", "probes", "--data", "a.csv", "--model", "nowhere"], "nowhere"),
        ],
    )
    def test_a_mistake_is_one_line(self, flags, message, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a.txt").write_text("x")
        (tmp_path / "a.csv").write_text("text\nThis is good.\n")
        model = [] if "--model" in flags else ["--model", "default"]
        assert main(["evaluate", *model, *flags]) == 2
        output = capsys.readouterr().err
        assert message in output
        assert output.count("\n") == 1

    def test_flags_are_settings_of_the_function(self):
        settings = EvaluateOptions(model="a", task="sts", data="b", columns="x, y", label_range="1,5").settings()
        assert (settings["columns"], settings["label_range"]) == (["x", "y"], (1.0, 5.0))
        assert settings.keys() <= evaluate.__kwdefaults__.keys()
