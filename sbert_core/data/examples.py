"""Training and evaluation examples: rows of texts, with or without a label."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.tables import Table, column_names, read_table, short
from sbert_core.errors import DataError

LabelKind = Literal["none", "class", "binary", "score", "margin", "vector"]

_CONVENTIONS = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "passage"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("text_a", "text_b"),
    ("text",),
    ("sentence",),
)
_TRUTH = {"0": 0, "1": 1, "false": 0, "true": 1}


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Text columns of equal length, with or without a label per row."""

    texts: tuple[list[str], ...]  # one list per text column
    labels: np.ndarray | None = None  # (n,) int64 classes, (n,) float32 scores, or (n, dim) float32 vectors
    classes: tuple[str, ...] = ()  # the name of each class; labels are indices into it
    name: str = "data"  # where they come from, for messages
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)  # rows of the data that were dropped, by reason

    def __post_init__(self) -> None:
        lengths = [len(column) for column in self.texts]
        if not lengths:
            raise DataError(f"{self.name} has no text column")
        if self.labels is not None:
            lengths.append(len(self.labels))
        if len(set(lengths)) > 1:
            raise DataError(f"the columns of {self.name} differ in length: {', '.join(map(str, lengths))}")

    def __len__(self) -> int:
        return len(self.texts[0])

    def take(self, rows: np.ndarray) -> "Examples":
        """These rows, in this order."""
        chosen = np.asarray(rows, np.int64).tolist()
        texts = tuple([column[row] for row in chosen] for column in self.texts)
        return dataclasses.replace(self, texts=texts, labels=None if self.labels is None else self.labels[chosen])


def read_examples(
    path: str,
    columns: Sequence[str] = (),
    label: str | None = None,
    kind: LabelKind = "none",
    *,
    where: Mapping[str, Any] | None = None,
    limit: int | None = None,
    label_range: tuple[float, float] | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> Examples:
    """Reads examples; a missing text or an invalid label is an error that names the row.

    Args:
        path: a file, a folder or a glob of any format that `read_table` reads.
        columns: the text columns, in the order of the objective. By default the first of these that the file has:
            anchor and positive; query and positive (both with every column whose name begins with negative);
            query and passage; sentence1 and sentence2; premise and hypothesis; text_a and text_b; text; sentence.
        label: the column of labels; required unless `kind` is none.
        kind: the kind of the labels. `class`: text or integers, returned as indices into the sorted `classes`;
            `binary`: 0 and 1, or false and true; `score`: numbers from -1 to 1, or from `label_range`, which is scaled
            to 0 to 1; `margin`: any finite numbers; `vector`: lists of numbers of one length.
        where: keeps the rows whose column has this value, or one of these values.
        limit: keeps a random sample of at most this many rows, in the order of the file.
        label_range: the minimum and the maximum score.
        classes: all classes in the order of their indices, for data that must be numbered like the training data.
        seed: the seed of the sample.
    """
    if kind not in get_args(LabelKind):
        raise DataError(f"there is no kind of label {kind!r}: use {', '.join(get_args(LabelKind))}")
    if (label is None) != (kind == "none"):
        problem = f"labels of kind {kind!r} need the name of their column" if label is None else "labels need a kind"
        raise DataError(f"{path}: {problem}; its columns are {', '.join(column_names(path))}")
    if limit is not None and limit < 1:
        raise DataError(f"limit must be at least 1, got {limit}")
    _check_range(label_range)
    texts = list(columns) or _conventional_columns(path)
    conditions = {name: _listed(wanted) for name, wanted in (where or {}).items()}
    table = read_table(path, list(dict.fromkeys([*texts, *([label] if label else []), *conditions])))
    rows = np.flatnonzero(_matching(table, conditions))
    if not len(rows):
        shown = " and ".join(f"{name} = {' or '.join(map(str, wanted))}" for name, wanted in conditions.items())
        raise DataError(f"{path} has no rows" + (f" with {shown}: it has {len(table)} others" if len(table) else ""))
    read = [read_texts(table, name, rows) for name in texts]
    labels, names = None, tuple[str, ...]()
    if label:
        labels, names = _Labels(table, label, rows, label_range, tuple(classes)).read(kind)
    if limit is not None and limit < len(rows):
        sample = np.sort(np.random.default_rng(seed).choice(len(rows), limit, replace=False))
        return Examples(tuple(read), labels, names, path).take(sample)
    return Examples(tuple(read), labels, names, path)


def _check_range(label_range: tuple[float, float] | None) -> None:
    if label_range is not None and not (np.isfinite(label_range).all() and label_range[0] < label_range[1]):
        raise DataError(f"label_range must be two numbers, the lower first, got {label_range}")


def _conventional_columns(path: str) -> list[str]:
    names = column_names(path)
    found = next((list(group) for group in _CONVENTIONS if set(group) <= set(names)), None)
    if found is None:
        raise DataError(f"name the text columns of {path}: its columns are {', '.join(names) or 'none'}")
    return found + [name for name in names if "positive" in found and name.startswith("negative")]


def _listed(wanted: Any) -> list[Any]:
    return list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]


def _matching(table: Table, conditions: Mapping[str, list[Any]]) -> np.ndarray:
    """A mask (n,) of the rows that meet all conditions."""
    is_matching = np.ones(len(table), bool)
    for name, wanted in conditions.items():
        column = table.columns[name]
        try:
            values = pa.array([str(value) for value in wanted]).cast(column.type)
        except pa.ArrowException as error:
            raise DataError(f"{table.files[0]}: column {name!r} holds {column.type}, not {wanted}: {error}") from error
        is_matching &= pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
    return is_matching


def _refuse(table: Table, row: int, name: str, expected: str) -> DataError:
    value = table.columns[name][row].as_py()
    return DataError(f"{table.place(row)}: column {name!r} is {short(value)}, expected {expected}")


def read_texts(table: Table, name: str, rows: np.ndarray) -> list[str]:
    """The texts of a column at these rows; a text that is missing or blank is an error."""
    chosen = table.columns[name].take(pa.array(rows))
    if len(rows) and not (pa.types.is_string(chosen.type) or pa.types.is_large_string(chosen.type)):
        raise _refuse(table, int(rows[0]), name, "text")
    texts: list[str | None] = chosen.to_pylist()
    bad = next((row for row, text in zip(rows.tolist(), texts, strict=True) if not text or text.isspace()), None)
    if bad is not None:
        raise _refuse(table, bad, name, "text (filter such rows out, or give them one)")
    return texts  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True, eq=False)
class _Labels:
    """A column of labels, converted to one of the kinds."""

    table: Table
    name: str
    rows: np.ndarray
    range: tuple[float, float] | None
    classes: tuple[str, ...]

    def read(self, kind: LabelKind) -> tuple[np.ndarray, tuple[str, ...]]:
        column = self.table.columns[self.name].take(pa.array(self.rows))
        self._check(pc.is_valid(column).to_numpy(zero_copy_only=False), "a label")
        match kind:
            case "class":
                return self._numbered(column)
            case "binary":
                truth = [_TRUTH.get(_plain(value)) for value in column.to_pylist()]
                self._check([value is not None for value in truth], "0 or 1, or false or true")
                return np.array(truth, np.int64), ()
            case "vector":
                return self._vectors(column), ()
            case _:
                return self._scores(column, kind), ()

    def _check(self, is_valid: Any, expected: str) -> None:
        bad = np.flatnonzero(~np.asarray(is_valid, bool))
        if len(bad):
            raise _refuse(self.table, int(self.rows[bad[0]]), self.name, expected)

    def _numbered(self, column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
        values = column.to_pylist()
        is_class = [bool(value.strip()) if isinstance(value, str) else isinstance(value, int) for value in values]
        self._check(is_class, "a class: text or a whole number")
        found = [str(value) for value in values]
        names = self.classes or _sorted_names(set(found))
        numbers = {name: number for number, name in enumerate(names)}
        self._check([name in numbers for name in found], f"one of the classes {short(', '.join(names))}")
        return np.array([numbers[name] for name in found], np.int64), names

    def _scores(self, column: pa.ChunkedArray, kind: LabelKind) -> np.ndarray:
        numbers = np.array([_number(value) for value in column.to_pylist()])
        self._check(np.isfinite(numbers), "a finite number")
        if kind == "margin":
            return numbers.astype(np.float32)
        low, high = self.range or (-1, 1)
        hint = "" if self.range else "; for other scores set label_range, such as (0, 5)"
        self._check((numbers >= low) & (numbers <= high), f"a score from {low:g} to {high:g}{hint}")
        return ((numbers - low) / (high - low) if self.range else numbers).astype(np.float32)

    def _vectors(self, column: pa.ChunkedArray) -> np.ndarray:
        kind = column.type
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        if not lists or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
            raise _refuse(self.table, int(self.rows[0]), self.name, "a list of numbers")
        lengths = pc.list_value_length(column).to_numpy()
        self._check((lengths == lengths[0]) & (lengths > 0), f"a vector of {max(lengths[0], 1)} numbers")
        # Nulls become nan, which the next check refuses.
        vectors = pc.list_flatten(column).to_numpy().astype(np.float32).reshape(len(column), -1)
        self._check(np.isfinite(vectors).all(axis=1), "a vector of finite numbers")
        return vectors


def _plain(value: Any) -> str:
    """A binary label as text: 1.0 is "1", True is "true"."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip().casefold()


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _sorted_names(found: set[str]) -> tuple[str, ...]:
    """Names in numeric order if all are integers, else in alphabetic order."""
    try:
        return tuple(sorted(found, key=int))
    except ValueError:
        return tuple(sorted(found))
