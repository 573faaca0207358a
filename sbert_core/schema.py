"""Every column name and Parquet schema of the outputs, in one place."""

import pyarrow as pa

ID = "id"
TEXT = "text"
EMBEDDING = "embedding"
N_TOKENS = "n_tokens"
TRUNCATED = "truncated"

REJECTED = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)


def added_fields(dim: int) -> list[pa.Field]:
    """The columns that encoding adds to a corpus."""
    item = pa.field("item", pa.float32(), nullable=False)
    return [
        pa.field(EMBEDDING, pa.list_(item, dim), nullable=False),
        pa.field(N_TOKENS, pa.int32(), nullable=False),
        pa.field(TRUNCATED, pa.bool_(), nullable=False),
    ]
