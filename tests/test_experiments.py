"""The experiments: steps that are done once, plans that can be made, a page that says what was measured."""

import json
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from benchmarks import recipes
from benchmarks.experiment_tables import PAGE, render, spread
from benchmarks.experiments import RESULTS, Columns, Places, Remembering, Step, all_steps, collect
from benchmarks.recipes import file_name
from sbert_beam import TrainPlan

PLACES = Places(Path("data"), Path("models"), Path("work"))


def make_step(calls: list[str], name: str = "a", value: float = 0.5) -> Step:
    def measure():
        calls.append(name)
        return {name: {"score": value}}

    return Step("sts", name, "STS-B", measure)


def test_a_step_is_done_once(tmp_path):
    calls: list[str] = []
    for _ in range(2):
        make_step(calls).run(tmp_path)
    assert calls == ["a"]
    assert collect(tmp_path) == {"sts": {"a": {"STS-B": {"score": 0.5}}}}


def test_a_step_of_another_process_is_left_to_it(tmp_path):
    calls: list[str] = []
    path = tmp_path / f"{file_name('sts a STS-B')}.json"
    with FileLock(f"{path}.lock"):
        make_step(calls).run(tmp_path)
    assert calls == []
    make_step(calls).run(tmp_path)
    assert calls == ["a"]


def test_a_step_that_fails_leaves_nothing(tmp_path):
    def fail():
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        Step("sts", "a", "STS-B", fail).run(tmp_path)
    assert collect(tmp_path) == {}


def test_no_two_steps_share_a_file():
    names = [file_name(f"{step.experiment} {step.name} {step.column}") for step in all_steps(PLACES)]
    assert len(names) == len(set(names)) > 100


def test_every_recipe_is_a_plan(tmp_path, monkeypatch):
    plans: list[TrainPlan] = []
    monkeypatch.setattr(recipes, "train", lambda plan, progress: plans.append(plan))
    monkeypatch.setattr(recipes, "prepare", lambda places: None)
    places = Places(Path("data"), Path("models"), tmp_path)
    for recipe in recipes.recipes(places):
        folder = recipes.trained(recipe, 7, places)
        assert plans[-1].output == folder
        assert plans[-1].seed == 7
    student = next(plan for plan in plans if "student" in plan.output)
    assert student.data[0].teacher == student.model
    assert student.model.endswith("-7")


def test_an_encoder_with_several_poolings_passes_once():
    class Counting:
        seen: list[str] = []

        def encode(self, texts):
            self.seen += texts
            return np.array([[len(text), 2 * len(text)] for text in texts], np.float32)

    shared = Remembering(Counting())
    first, second = Columns(shared, 0, 1), Columns(shared, 1, 2)
    assert first.encode(["abc", "a", "abc"]).tolist() == [[3], [1], [3]]
    assert second.encode(["a", "abcd"]).tolist() == [[2], [8]]
    assert sorted(Counting.seen) == ["a", "abc", "abcd"]


def test_spread_tells_the_deviation_of_several_seeds_only():
    assert spread([]) == ""
    assert spread([0.5]) == "50.0"
    assert spread([0.5, 0.6]) == "55.0 ± 7.1"


def test_the_page_says_what_was_measured():
    results = json.loads((RESULTS / "experiments.json").read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == render(results)
