"""Readers of texts with ids, and of files of relevant or duplicate ids."""

import pyarrow as pa

from sbert_core.data.examples import read_texts
from sbert_core.data.tables import Table, column_names, read_table, short
from sbert_core.errors import DataError


def read_text_ids(path: str, id_column: str, text_column: str) -> dict[str, str]:
    """Texts by id, in the order of the file; ids may be text or whole numbers, and they are unique."""
    table = read_table(path, [id_column, text_column])
    ids = _ids(table, id_column)
    texts: dict[str, str] = {}
    for row, (identity, text) in enumerate(zip(ids, read_texts(table, text_column, _rows(table)), strict=True)):
        if identity in texts:
            raise DataError(f"{table.place(row)}: the id {short(identity)} occurs twice: expected one row per id")
        texts[identity] = text
    return texts


def read_relevant(path: str) -> dict[str, set[str]]:
    """The ids of relevant documents by the id of their query, from the columns query_id and document_id.

    If there is a column score, a row with a score of 0 or less marks a document that is not relevant.
    """
    scored = "score" in column_names(path)
    table = read_table(path, ["query_id", "document_id", *(["score"] if scored else [])])
    scores = table.columns["score"].to_pylist() if scored else [1] * len(table)
    relevant: dict[str, set[str]] = {}
    for row, (query, document) in enumerate(zip(_ids(table, "query_id"), _ids(table, "document_id"), strict=True)):
        try:
            counts = float(scores[row]) > 0
        except (TypeError, ValueError):
            raise _refuse(table, row, "score", "a number") from None
        if counts:
            relevant.setdefault(query, set()).add(document)
    return relevant


def read_gold_pairs(path: str) -> list[tuple[str, str]]:
    """Pairs of ids, from the columns id_a and id_b."""
    table = read_table(path, ["id_a", "id_b"])
    return list(zip(_ids(table, "id_a"), _ids(table, "id_b"), strict=True))


def _rows(table: Table) -> pa.Array:
    return pa.array(range(len(table)), pa.int64())


def _ids(table: Table, name: str) -> list[str]:
    values = table.columns[name].to_pylist()
    for row, value in enumerate(values):
        if not isinstance(value, str | int) or value == "":
            raise _refuse(table, row, name, "an id: text or a whole number")
    return [str(value) for value in values]


def _refuse(table: Table, row: int, name: str, expected: str) -> DataError:
    value = table.columns[name][row].as_py()
    return DataError(f"{table.place(row)}: column {name!r} is {short(value)}, expected {expected}")
