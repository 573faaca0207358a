"""Every key of a plan with values that make no sense: one line, nothing left behind, never a traceback."""

import dataclasses
import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.cli import main
from sbert_core.training.losses.objectives import OBJECTIVES, option_names
from sbert_core.training.plan import Dev, Source, TrainPlan
from tests.tiny_models import make_transformer

STRANGE = {
    "text": "a lot",
    "negative": -3,
    "zero": 0,
    "nan": float("nan"),
    "inf": float("inf"),
    "list": [1, "two", None],
    "none": None,
    "huge": 10**400,
    "large": 10**15,
    "mapping": {"a": {"b": 1}, 2: 3},
    "null byte": "a\0b",
}
WORDS = ["fox", "dog", "man", "flute", "parcel", "lazy"]
# Keys whose strange values would make a run long, not wrong.
RUN = {"max_steps": 1, "batch_size": 4, "checkpoint_every": 0}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    make_transformer(folder / "model")
    pairs = [(f"the {a} is {b}", f"my {a} {b} jumps") for a in WORDS for b in WORDS if a != b]
    columns = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "c": [b for _, b in pairs[::-1]]}
    labels = {"score": [row / len(pairs) for row in range(len(pairs))], "kind": [row % 2 for row in range(len(pairs))]}
    pq.write_table(pa.table({**columns, **labels}), folder / "pairs.parquet")
    return folder


def plan_of(place) -> dict:
    source = {"file": str(place / "pairs.parquet"), "columns": ["a", "b"]}
    dev = {"file": str(place / "pairs.parquet"), "columns": ["a", "b"], "label": "score"}
    return {"model": str(place / "model"), "output": str(place / "out"), "data": source, "dev": dev, **RUN}


def run(place, tmp_path, plan, capsys) -> tuple[int, str]:
    """Trains as planned, through the command, and returns its exit code and the line it ended with."""
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    code = main(["train", "--config", str(tmp_path / "plan.yaml"), "--output", str(tmp_path / "out")])
    told = capsys.readouterr().err
    if code:
        lines = [line for line in told.splitlines() if line.startswith("sbert-beam train: ")]
        assert len(lines) == 1, told
        assert "Traceback" not in told
        return code, lines[0]
    return code, told


def check(place, tmp_path, plan, capsys) -> tuple[int, str]:
    code, told = run(place, tmp_path, plan, capsys)
    assert code in (0, 2), told
    if code == 2:
        assert not (tmp_path / "out").exists(), "a refused run leaves nothing behind"
    return code, told


RUN_KEYS = [field.name for field in dataclasses.fields(TrainPlan) if field.name not in ("output", "tensorboard")]
SOURCE_KEYS = [field.name for field in dataclasses.fields(Source)]
DEV_KEYS = [field.name for field in dataclasses.fields(Dev)]


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("key", RUN_KEYS)
def test_keys_of_a_run(place, tmp_path, capsys, key, value):
    plan = plan_of(place)
    if key in ("attack_steps", "epsilon"):
        plan["adversarial"] = "pgd"
    check(place, tmp_path, {**plan, key: value}, capsys)


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("key", SOURCE_KEYS)
def test_keys_of_a_data_set(place, tmp_path, capsys, key, value):
    plan = plan_of(place)
    check(place, tmp_path, {**plan, "data": {**plan["data"], key: value}}, capsys)


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("key", DEV_KEYS)
def test_keys_of_dev(place, tmp_path, capsys, key, value):
    plan = plan_of(place)
    check(place, tmp_path, {**plan, "dev": {**plan["dev"], key: value}}, capsys)


NESTED = [("hard_negatives", key) for key in ("from", "ranks", "margin", "per_pair")]
NESTED += [("augment", key) for key in ("delete", "swap", "synonyms", "probability", "columns")]
NESTED += [("where", key) for key in ("a", "score", "kind")]


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize(("key", "inner"), NESTED)
def test_keys_within_a_key(place, tmp_path, capsys, key, inner, value):
    plan = plan_of(place)
    needed = {"swap": 1} if inner in ("probability", "columns") else {}
    plan["data"] |= {key: {**needed, inner: value}}
    check(place, tmp_path, plan, capsys)


# Each option once: objectives that have one in common check it in one place.
OPTIONS = {option: name for name in OBJECTIVES for option in option_names(name) if name != "distillation"}
COLUMNS = {1: ["a"], 2: ["a", "b"], 3: ["a", "b", "c"]}
LABELS = {"class": "kind", "binary": "kind", "score": "score"}


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize(("option", "objective"), OPTIONS.items())
def test_options_of_objectives(place, tmp_path, capsys, objective, option, value):
    kind = OBJECTIVES[objective]
    plan = plan_of(place)
    plan["data"] |= {"objective": objective, "columns": COLUMNS[kind.columns[0]], "options": {option: value}}
    plan["data"] |= {"label": LABELS[kind.labels]} if kind.labels != "none" else {}
    plan.pop("dev")
    check(place, tmp_path, {**plan, "batch_size": 8}, capsys)


REFUSED = {
    "augment": ({"data": {"augment": {"delete": "a lot"}}}, "augment (delete): p must be from 0 to 1, got 'a lot'"),
    "ranks": ({"data": {"hard_negatives": {"ranks": 5}}}, "ranks must be the first and the last to take, from 1"),
    "epsilon": ({"adversarial": "fgm", "epsilon": -1}, "epsilon must be a finite number above 0, got -1"),
    "epsilon of nothing": ({"epsilon": 0.1}, "epsilon is 0.1, and there is no attack"),
    "no dev": ({"dev": None, "evaluate_every": 3}, "evaluate_every is 3, and there are no rows to score: add dev"),
    "one row": ({"batch_size": 1}, "batch_size is 1, and multiple_negatives takes the other rows of a batch"),
    "one row of a data set": ({"data": {"batch_size": 1, "objective": "e5"}}, "batch_size is 1, and e5 takes"),
    "freeze": ({"freeze": 9}, "freeze is 9, and the model has 2 layers"),
    "layers": ({"keep_layers": 9}, "9 layers cannot be kept of the 2"),
    "dev of one score": ({"dev": {"where": {"score": "0.0"}}}, "gold"),
    "groups": ({"data": {"objective": "batch_all_triplet", "columns": ["a"], "label": "kind"}}, "a batch of 4"),
    "data": ({"data": 5}, "data must be a data set or a list of them, got 5"),
    "prompts": ({"data": {"prompts": [1, 2]}}, "prompts must be text"),
    "a date": ({"data": {"where": {"kind": datetime.date(2024, 1, 1)}}}, "kind"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_told_in_one_line_and_leaves_nothing(place, tmp_path, capsys, changes, message):
    plan = plan_of(place)
    merged = {key: {**plan[key], **value} if isinstance(value, dict) else value for key, value in changes.items()}
    code, told = check(place, tmp_path, {**plan, **merged}, capsys)
    assert code == 2
    assert message in told


def test_an_output_that_cannot_be_made_is_told(place, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan_of(place)))
    code = main(["train", "--config", str(tmp_path / "plan.yaml"), "--output", str(tmp_path / "file" / "out")])
    assert code == 2
    assert "cannot write to" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", "{}", "{", "\0"])
def test_a_damaged_folder_of_a_run_is_told(place, tmp_path, capsys, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "training.json").write_text(content)
    code, told = run(place, tmp_path, plan_of(place), capsys)
    assert code == 2
    assert "training.json" in told


def test_a_tensorboard_of_a_refused_run_is_not_begun(place, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    code, _ = check(place, tmp_path, {**plan_of(place), "tensorboard": True, "freeze": 9}, capsys)
    assert code == 2


def test_a_seed_of_a_cross_encoder(place, tmp_path, capsys):
    flags = ["--model", str(place / "model"), "--data", str(place / "pairs.parquet"), "--columns", "a,b"]
    flags += ["--label", "score", "--cross_encoder", "score", "--output", str(tmp_path / "out"), "--seed", "-1"]
    assert main(["train", *flags]) == 2
    assert "--seed must be at least 0, got -1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_plan_with_a_date_is_kept_as_json(place, tmp_path, capsys):
    table = pq.read_table(place / "pairs.parquet")
    days = pa.array([datetime.date(2024, 1, 1)] * table.num_rows)
    pq.write_table(table.append_column("day", days), tmp_path / "dated.parquet")
    plan = plan_of(place)
    plan["data"] |= {"file": str(tmp_path / "dated.parquet"), "where": {"day": datetime.date(2024, 1, 1)}}
    code, told = run(place, tmp_path, plan, capsys)
    assert code == 0, told
    assert json.loads((tmp_path / "out" / "training.json").read_text())["plan"]["data"][0]["where"]["day"]
