"""Every key of a plan with bad values: an error of one line, nothing left behind, never a traceback."""

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.cli import main
from sbert_beam import SentenceEncoder
from sbert_core.errors import SbertBeamError
from sbert_core.training.losses.objectives import OBJECTIVES, option_names
from sbert_core.training.plan import DataSpec, DevSpec, TrainPlan
from sbert_core.training.prepared_data import prepare
from tests.tiny_models import make_transformer

pytestmark = pytest.mark.slow  # seconds in all

BAD_VALUES = {
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
# Keys whose large values would make a run long, not wrong.
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


class Sweep:
    """Checks plans: each is refused in one line, or the command can run it.

    `test_refused_plans` shows that the command refuses in the same way and leaves nothing behind. Many values of many
    keys give the same plan, which is run once.
    """

    def __init__(self, place) -> None:
        self.place = place
        self.encoder = SentenceEncoder.load(place / "model", device="cpu")
        self.done: list[TrainPlan] = []

    def check(self, tmp_path, plan, capsys) -> None:
        try:
            parsed = TrainPlan.from_dict(yaml.safe_load(yaml.safe_dump(plan)))
            if parsed in self.done:
                return
            for spec in parsed.data:
                prepare(spec, self.encoder, parsed.batch_size, parsed.seed, False)
        except SbertBeamError as error:
            problem = str(error)
        else:
            problem = ""
            check(self.place, tmp_path, plan, capsys)
            self.done.append(parsed)
        assert "\n" not in problem


@pytest.fixture(scope="module")
def sweep(place) -> Sweep:
    return Sweep(place)


def plan_of(place) -> dict:
    data = {"file": str(place / "pairs.parquet"), "columns": ["a", "b"]}
    dev = {"file": str(place / "pairs.parquet"), "columns": ["a", "b"], "label": "score"}
    return {"model": str(place / "model"), "output": str(place / "out"), "data": data, "dev": dev, **RUN}


def run(place, tmp_path, plan, capsys) -> tuple[int, str]:
    """Trains as planned, through the command, and returns its exit code and the line it ended with."""
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    code = main(["train", "--config", str(tmp_path / "plan.yaml"), "--output", str(tmp_path / "out")])
    output = capsys.readouterr().err
    if code:
        lines = [line for line in output.splitlines() if line.startswith("sbert-beam train: ")]
        assert len(lines) == 1, output
        assert "Traceback" not in output
        return code, lines[0]
    return code, output


def check(place, tmp_path, plan, capsys) -> tuple[int, str]:
    """Trains as planned, and checks that a refused run leaves nothing behind."""
    code, output = run(place, tmp_path, plan, capsys)
    assert code in (0, 2), output
    if code == 2:
        assert not (tmp_path / "out").exists(), "a refused run leaves nothing behind"
    return code, output


RUN_KEYS = [name for name in TrainPlan.model_fields if name not in ("output", "tensorboard")]
DATA_KEYS = list(DataSpec.model_fields)
DEV_KEYS = list(DevSpec.model_fields)


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
@pytest.mark.parametrize("key", RUN_KEYS)
def test_keys_of_a_run(place, sweep, tmp_path, capsys, key, value):
    plan = plan_of(place)
    if key in ("attack_steps", "epsilon"):
        plan["adversarial"] = "pgd"
    sweep.check(tmp_path, {**plan, key: value}, capsys)


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
@pytest.mark.parametrize("key", DATA_KEYS)
def test_keys_of_a_data_set(place, sweep, tmp_path, capsys, key, value):
    plan = plan_of(place)
    sweep.check(tmp_path, {**plan, "data": {**plan["data"], key: value}}, capsys)


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
@pytest.mark.parametrize("key", DEV_KEYS)
def test_keys_of_dev(place, sweep, tmp_path, capsys, key, value):
    plan = plan_of(place)
    sweep.check(tmp_path, {**plan, "dev": {**plan["dev"], key: value}}, capsys)


NESTED = [("hard_negatives", key) for key in ("from", "ranks", "margin", "per_pair")]
NESTED += [("augment", key) for key in ("delete", "swap", "synonyms", "probability", "columns")]
NESTED += [("where", key) for key in ("a", "score", "kind")]


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
@pytest.mark.parametrize(("key", "inner"), NESTED)
def test_keys_within_a_key(place, sweep, tmp_path, capsys, key, inner, value):
    plan = plan_of(place)
    needed = {"swap": 1} if inner in ("probability", "columns") else {}
    plan["data"] |= {key: {**needed, inner: value}}
    sweep.check(tmp_path, plan, capsys)


# Each option once: objectives that have one in common check it in one place.
OPTIONS = {option: name for name in OBJECTIVES for option in option_names(name) if name != "distillation"}
COLUMNS = {1: ["a"], 2: ["a", "b"], 3: ["a", "b", "c"]}
LABELS = {"class": "kind", "binary": "kind", "score": "score"}


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
@pytest.mark.parametrize(("option", "objective"), OPTIONS.items())
def test_options_of_objectives(place, sweep, tmp_path, capsys, objective, option, value):
    kind = OBJECTIVES[objective]
    plan = plan_of(place)
    plan["data"] |= {"objective": objective, "columns": COLUMNS[kind.columns[0]], "options": {option: value}}
    plan["data"] |= {"label": LABELS[kind.labels]} if kind.labels != "none" else {}
    plan.pop("dev")
    sweep.check(tmp_path, {**plan, "batch_size": 8}, capsys)


REFUSED = {
    "augment": ({"data": {"augment": {"delete": "a lot"}}}, "augment (delete): p must be from 0 to 1, got 'a lot'"),
    "ranks": ({"data": {"hard_negatives": {"ranks": 5}}}, "ranks must be the first and the last rank, from 1"),
    "epsilon": ({"adversarial": "fgm", "epsilon": -1}, "epsilon must be greater than 0, got -1"),
    "epsilon of nothing": ({"epsilon": 0.1}, "epsilon is 0.1, but there is no attack"),
    "no dev": ({"dev": None, "evaluate_every": 3}, "evaluate_every is 3, but there is no dev set: add dev"),
    "one row": ({"batch_size": 1}, "batch_size is 1, but multiple_negatives uses the other rows of a batch"),
    "one row of a data set": ({"data": {"batch_size": 1, "objective": "e5"}}, "batch_size is 1, but e5 uses"),
    "freeze": ({"freeze": 9}, "freeze is 9, but the model has 2 layers"),
    "layers": ({"keep_layers": 9}, "keep_layers is 9, but the encoder has 2 layers"),
    "dev of one score": ({"dev": {"where": {"score": "0.0"}}}, "gold"),
    "groups": (
        {"data": {"objective": "batch_all_triplet", "columns": ["a"], "label": "kind"}},
        "a batch of 4 with 4 rows per class",
    ),
    "data": ({"data": 5}, "data must be a data set or a list of them, got 5"),
    "prompts": ({"data": {"prompts": [1, 2]}}, "prompts[0] must be a valid string, got 1"),
    "a date": ({"data": {"where": {"kind": datetime.date(2024, 1, 1)}}}, "kind"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_plans(place, tmp_path, capsys, changes, message):
    plan = plan_of(place)
    merged = {key: {**plan[key], **value} if isinstance(value, dict) else value for key, value in changes.items()}
    code, output = check(place, tmp_path, {**plan, **merged}, capsys)
    assert code == 2
    assert message in output


def test_an_output_that_cannot_be_created(place, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan_of(place)))
    code = main(["train", "--config", str(tmp_path / "plan.yaml"), "--output", str(tmp_path / "file" / "out")])
    assert code == 2
    assert "cannot write to" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", "{}", "{", "\0"])
def test_a_damaged_folder_of_a_run_is_refused(place, tmp_path, capsys, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "training.json").write_text(content)
    code, output = run(place, tmp_path, plan_of(place), capsys)
    assert code == 2
    assert "training.json" in output


def test_a_refused_run_writes_no_tensorboard(place, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    code, _ = check(place, tmp_path, {**plan_of(place), "tensorboard": True, "freeze": 9}, capsys)
    assert code == 2


def test_a_bad_seed_of_a_cross_encoder(place, tmp_path, capsys):
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
    code, output = run(place, tmp_path, plan, capsys)
    assert code == 0, output
    assert json.loads((tmp_path / "out" / "training.json").read_text())["plan"]["data"][0]["where"]["day"]
