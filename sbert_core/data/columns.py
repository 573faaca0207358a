"""The column types that a corpus may have, and the form in which ids are compared and shown."""

import io
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.errors import DataError

_types = pa.types


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without views (`string_view` ...): same values, in a layout that Arrow can filter and sort."""
    if _types.is_string_view(kind):
        return pa.string()
    if _types.is_binary_view(kind):
        return pa.binary()
    if _types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if _types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if _types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    if _types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if _types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if _types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without views."""
    return pa.schema([_plain_field(field) for field in schema], schema.metadata)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without views."""
    schema = plain_schema(batch.schema)
    if schema.equals(batch.schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_has_columns(path: str, names: Sequence[str], wanted: Sequence[str], hint: str = "") -> None:
    """Checks that a file has each of the wanted columns, and only once."""
    missing = next((column for column in wanted if column not in names), None)
    if missing is not None:
        raise DataError(f"{path} has no column {missing!r}; it has: {', '.join(names) or 'none'}{hint}")
    repeated = next((column for column in wanted if names.count(column) > 1), None)
    if repeated is not None:
        raise DataError(f"{path} has two columns {repeated!r}: rename one of them")


def check_columns(path: str, schema: pa.Schema, text_column: str, id_column: str) -> None:
    """Checks that the job can encode the text column, identify rows by the id column, and write all columns.

    The id column may be missing.
    """
    repeated = [name for name, times in Counter(schema.names).items() if times > 1]
    if repeated:
        raise DataError(f"{path} has two columns {repeated[0]!r}: rename one of them")
    kind = schema.field(text_column).type
    kind = kind.value_type if _types.is_dictionary(kind) else kind
    if not _is_text(kind):
        hint = ": cast it to a string column" if _is_binary(kind) else ""
        raise DataError(f"{path}: column {text_column!r} is {kind}, expected text{hint}. See --text_column")
    if id_column in schema.names and not is_id_type(schema.field(id_column).type):
        raise DataError(
            f"{path}: column {id_column!r} is {schema.field(id_column).type}, which cannot identify rows: expected "
            "text, integers, decimals, dates, times, binary or UUIDs. See --id_column"
        )
    for field in schema:
        try:
            pq.write_metadata(pa.schema([field]), io.BytesIO())
        except pa.ArrowException as error:
            raise DataError(
                f"{path}: column {field.name!r} is {field.type}, which Parquet cannot store: remove it"
            ) from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(_types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        _types.is_binary(kind)
        or _types.is_large_binary(kind)
        or _types.is_binary_view(kind)
        or _types.is_fixed_size_binary(kind)
    )


def is_id_type(kind: pa.DataType) -> bool:
    """Whether values of a type can identify rows: they compare exactly and can be sorted. Floats do not: 0.1 + 0.2."""
    if _types.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(kind, pa.UuidType):
        return True
    return bool(
        _is_text(kind)
        or _is_binary(kind)
        or _types.is_integer(kind)
        or _types.is_boolean(kind)
        or _types.is_decimal(kind)
        or (_types.is_temporal(kind) and not _types.is_interval(kind))
    )


def comparable_ids(ids: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Ids in a type that Arrow can sort and compare."""
    kind = ids.type
    if _types.is_dictionary(kind):
        return ids.cast(kind.value_type)
    if isinstance(kind, pa.UuidType):
        return ids.cast(kind.storage_type)
    if _types.is_decimal32(kind) or _types.is_decimal64(kind):
        return ids.cast(pa.decimal128(38, kind.scale))
    return ids


def ids_as_text(ids: pa.Array) -> pa.Array:
    """Ids as strings, distinct for distinct ids: binary as hexadecimal, UUIDs in their usual form."""
    kind = ids.type
    if isinstance(kind, pa.UuidType):
        return pa.array([None if each is None else str(each) for each in ids.to_pylist()], pa.string())
    ids = comparable_ids(ids)
    if _is_binary(ids.type):
        return pa.array([None if each is None else each.hex() for each in ids.to_pylist()], pa.string())
    if _types.is_duration(ids.type):
        ids = ids.cast(pa.int64())
    return ids.cast(pa.string())
