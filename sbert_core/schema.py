"""Every column name and Parquet schema of the outputs, in one place."""

import dataclasses

import pyarrow as pa

from sbert_core.errors import ModelError

ID = "id"
TEXT = "text"

# What a part says of itself, in its Parquet metadata.
FINGERPRINT_KEY = b"sbert_beam.fingerprint"
"""The encoder that made its vectors."""
SOURCE_KEY = b"sbert_beam.source"
"""What it was made of: a hash of its input rows, the encoder and the options."""
TOTALS_KEY = b"sbert_beam.totals"
"""How many rows, tokens, truncated and rejected texts its slice of the input had, as JSON."""

STORED_TYPES = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}
"""What an embedding column may hold."""

REJECTED = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)


@dataclasses.dataclass(frozen=True)
class AddedColumns:
    """The columns that encoding adds to a corpus; a corpus that has one of that name needs another here."""

    embedding: str = "embedding"
    n_tokens: str = "n_tokens"
    truncated: str = "truncated"

    def fields(self, dim: int, stored: str = "float32") -> list[pa.Field]:
        """Their names and types."""
        if stored not in STORED_TYPES:
            raise ModelError(f"embeddings cannot be stored as {stored!r}: use {', '.join(STORED_TYPES)}")
        item = pa.field("item", STORED_TYPES[stored], nullable=False)
        return [
            pa.field(self.embedding, pa.list_(item, dim), nullable=False),
            pa.field(self.n_tokens, pa.int32(), nullable=False),
            pa.field(self.truncated, pa.bool_(), nullable=False),
        ]
