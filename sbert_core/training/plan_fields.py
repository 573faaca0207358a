"""What all parts of a plan share: the types of their fields, and one-line errors. The checks are pydantic's."""

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, ValidationError

from sbert_core.data.tables import short
from sbert_core.errors import DataError

MAX_COUNT = 1_000_000_000
"""No run has as many steps or rows; a larger number would only exhaust memory or time."""
MAX_WEIGHT = 1e9

_PYDANTIC_DETAIL = re.compile(", (got|unable to) .*")  # "... integer, got a number with a fractional part"


class PlanPart(BaseModel):
    """A frozen part of a plan. A value that does not fit its field raises a `DataError` of one line.

    Types are converted where nothing is lost, since YAML and flags give text: 2e-5 is a string to YAML.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise DataError(_first_problem(error, list(type(self).model_fields))) from error


def _first_problem(error: ValidationError, known_names: list[str]) -> str:
    problem = error.errors(include_url=False)[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"]).removeprefix(".")
    match problem["type"]:
        case "missing":
            return f"{path} is missing"
        case "extra_forbidden":
            close = difflib.get_close_matches(path, known_names, 1)
            hint = f"did you mean {close[0]}?" if close else f"use {', '.join(known_names)}"
            return f"{path!r} is not known: {hint}"
        case "value_error":  # of a validator of ours, or of a nested part
            message = str(problem["ctx"]["error"])
            separator = "" if not path else " " if message.startswith("must ") else ": "
            return f"{path}{separator}{message}"
    expected = _PYDANTIC_DETAIL.sub("", problem["msg"]).replace("Input should", "must")
    return f"{path} {expected}, got {short(problem['input'])}"


def check_keys(values: Any) -> Any:
    """Refuses a mapping with a key that is not text, which YAML allows."""
    wrong = [name for name in values if not isinstance(name, str)] if isinstance(values, Mapping) else []
    if wrong:
        raise DataError(f"{short(wrong[0])} is not known: a key must be text")
    return values


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise DataError(f"must be a number, got {value}")
    return value


def _as_list(value: Any) -> Any:
    """One text or one mapping needs no list around it."""
    return [value] if isinstance(value, str | Mapping) else value


def _check_range(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] < bounds[1]:
        raise DataError(f"must be two numbers, the lower first, got {list(bounds)}")
    return bounds


TextKeys = BeforeValidator(check_keys)
OneOrMore = BeforeValidator(_as_list)

Flag = StrictBool
Integer = Annotated[int, BeforeValidator(_refuse_bool)]
Number = Annotated[float, BeforeValidator(_refuse_bool)]
Count = Annotated[Integer, Field(ge=0, le=MAX_COUNT)]
PositiveCount = Annotated[Integer, Field(ge=1, le=MAX_COUNT)]
Share = Annotated[Number, Field(ge=0, le=1)]
Weight = Annotated[Number, Field(ge=0, le=MAX_WEIGHT)]
Finite = Annotated[Number, Field(allow_inf_nan=False)]
Texts = Annotated[tuple[str, ...], OneOrMore]
Range = Annotated[tuple[Finite, Finite], AfterValidator(_check_range)]
