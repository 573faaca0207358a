import pytest

from sbert_beam import TrainPlan
from sbert_core.errors import DataError

MINIMAL = {"model": "default", "output": "out", "data": [{"file": "pairs.tsv"}]}


def test_defaults_are_those_of_the_paper():
    plan = TrainPlan.from_dict(MINIMAL)
    assert (plan.batch_size, plan.learning_rate, plan.warmup, plan.epochs, plan.schedule) == (
        16,
        2e-5,
        0.1,
        1,
        "linear",
    )


def test_yaml(tmp_path):
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
    assert TrainPlan.from_dict({**MINIMAL, "data": {"file": "a"}}).data[0].file == "a"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rat": 1}, "'learning_rat' is not known: did you mean learning_rate"),
        ({"data": []}, "nothing to train on"),
        ({"data": [{}]}, r"data\[0\]: file is missing"),
        ({"data": [{"file": "a", "objective": "tripled"}]}, "did you mean triplet"),
        ({"data": ["a.tsv"]}, r"data\[0\] must be a valid dictionary or instance of DataSpec, got 'a.tsv'"),
        ({"dev": {"file": "a", "task": "nli"}}, "dev: task must be 'sts', 'triplets' or 'pairs', got 'nli'"),
        ({"epochs": 0}, "epochs must be greater than or equal to 1, got 0"),
        ({"epochs": 1.5}, "epochs must be a valid integer, got 1.5"),
        ({"batch_size": "many"}, "batch_size must be a valid integer, got 'many'"),
        ({"checkpointing": "yes"}, "checkpointing must be a valid boolean, got 'yes'"),
        ({"rdrop": -1}, "rdrop must be greater than or equal to 0, got -1"),
        ({"warmup": 2}, "warmup must be less than or equal to 1, got 2"),
        ({"schedule": "steep"}, "schedule must be 'linear', 'cosine' or 'constant', got 'steep'"),
        ({"adversarial": "gan"}, "adversarial must be 'none', 'fgsm', 'fgm' or 'pgd', got 'gan'"),
        ({"rdrop": 1, "chunk_rows": 8}, "leave chunk_rows out"),
        ({"epochs": True}, "epochs must be a number, got True"),
        ({3: 4}, "3 is not known: a key must be text"),
        ({"data": [{"file": "a", 3: 4}]}, r"data\[0\]: 3 is not known: a key must be text"),
        ({"model": None}, "model must be a valid string, got None"),
    ],
)
def test_bad_values_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        TrainPlan.from_dict({**MINIMAL, **changes})


@pytest.mark.parametrize(
    ("content", "message"), [("- 1", "holds no plan"), ("a: [", "is not YAML"), ("model: default", "output is missing")]
)
def test_errors_name_a_bad_file(tmp_path, content, message):
    path = tmp_path / "plan.yaml"
    path.write_text(content)
    with pytest.raises(DataError, match=f"plan.yaml.*{message}"):
        TrainPlan.read(str(path))


def test_errors_name_a_missing_file():
    with pytest.raises(DataError, match=r"nowhere\.yaml cannot be read"):
        TrainPlan.read("nowhere.yaml")


def test_a_plan_made_directly_is_checked_too():
    with pytest.raises(DataError, match=r"^learning_rate must be greater than 0, got -1$"):
        TrainPlan(**MINIMAL, learning_rate=-1)
