import dataclasses
import json
import math

import pytest

from sbert_core.errors import DataError
from sbert_core.evaluation.result import Evaluation

PART = Evaluation("sts", "2012", "m", "spearman", {"spearman": 0.5}, {"rows": 2})
WHOLE = Evaluation(
    "sts", "all", "m", "spearman", {"spearman": 0.25, "pearson": 0.5}, {"rows": 4}, {"scores": [[0.0, 3.0]]}, [PART]
)


def test_the_main_figure_is_the_score():
    assert WHOLE.score == 0.25
    assert (PART.curves, PART.parts) == ({}, [])


def test_it_comes_back_from_json():
    assert Evaluation.from_dict(json.loads(json.dumps(WHOLE.to_dict()))) == WHOLE


def test_what_is_not_defined_is_null_in_json():
    values = dataclasses.replace(PART, scores={"spearman": math.nan}).to_dict()
    assert values["scores"] == {"spearman": None}
    assert math.isnan(Evaluation.from_dict(values).score)


def test_curves_and_parts_may_be_left_out():
    values = PART.to_dict()
    del values["curves"], values["parts"]
    assert Evaluation.from_dict(values) == PART


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "'counts' is missing"),
        ({**PART.to_dict(), "scoress": {}}, "'scoress' is not known"),
        ({**PART.to_dict(), "main": "accuracy"}, "'accuracy' is not in"),
        ([1], "a mapping, got list"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        Evaluation.from_dict(values)
