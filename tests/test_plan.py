import pytest

from sbert_beam import TrainPlan
from sbert_core.errors import DataError

LEAST = {"model": "default", "output": "out", "data": [{"file": "pairs.tsv"}]}


def test_defaults_are_those_of_the_paper():
    plan = TrainPlan.from_dict(LEAST)
    assert (plan.batch_size, plan.learning_rate, plan.warmup, plan.epochs, plan.schedule) == (
        16,
        2e-5,
        0.1,
        1,
        "linear",
    )


def test_yaml_says_all_there_is(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        """
model: default
output: out
learning_rate: 3e-5        # text to YAML
epochs: 2.0
dev: {file: dev.tsv, label: score, label_range: [0, 5]}
data:
  - {file: a.tsv, columns: question, where: {split: train}, options: {scale: 10}}
  - {file: b.tsv, objective: triplet, prompts: ["query: ", ""]}
"""
    )
    plan = TrainPlan.read(str(path), seed=3)
    assert (plan.learning_rate, plan.epochs, plan.seed) == (3e-5, 2, 3)
    assert plan.data[0].columns == ("question",)
    assert plan.data[0].where == {"split": "train"}
    assert plan.data[1].prompts == ("query: ", "")
    assert plan.dev is not None
    assert plan.dev.label_range == (0.0, 5.0)
    assert TrainPlan.from_dict(plan.to_dict()) == plan


def test_a_single_data_set_needs_no_list():
    assert TrainPlan.from_dict({**LEAST, "data": {"file": "a"}}).data[0].file == "a"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rat": 1}, "'learning_rat' is not known: did you mean learning_rate"),
        ({"data": []}, "nothing to learn from"),
        ({"data": [{}]}, "data: file is missing"),
        ({"data": [{"file": "a", "objective": "tripled"}]}, "did you mean triplet"),
        ({"data": ["a.tsv"]}, "expected names with values"),
        ({"dev": {"file": "a", "task": "nli"}}, "task must be one of sts"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": 1.5}, "epochs must be a whole number, got 1.5"),
        ({"batch_size": "many"}, "batch_size must be a whole number"),
        ({"checkpointing": "yes"}, "checkpointing must be true or false"),
        ({"rdrop": -1}, "rdrop must not be negative"),
        ({"warmup": 2}, "warmup must be from 0 to 1"),
        ({"schedule": "steep"}, "schedule must be one of linear"),
        ({"adversarial": "gan"}, "adversarial must be one of none, fgsm, fgm, pgd"),
        ({"rdrop": 1, "chunk_rows": 8}, "leave chunk_rows out"),
        ({"model": None}, "model must be text"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        TrainPlan.from_dict({**LEAST, **changes})


@pytest.mark.parametrize(
    ("content", "message"), [("- 1", "holds no plan"), ("a: [", "is not YAML"), ("model: default", "output is missing")]
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "plan.yaml"
    path.write_text(content)
    with pytest.raises(DataError, match=f"plan.yaml.*{message}"):
        TrainPlan.read(str(path))


def test_a_missing_file_is_named():
    with pytest.raises(DataError, match=r"nowhere\.yaml cannot be read"):
        TrainPlan.read("nowhere.yaml")
