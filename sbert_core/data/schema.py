"""Every column name and Parquet schema of the outputs, in one place."""

import dataclasses

import pyarrow as pa

from sbert_core.errors import ModelError

ID = "id"
TEXT = "text"

# Keys of the Parquet metadata of a part.
FINGERPRINT_KEY = b"sbert_beam.fingerprint"
"""The fingerprint of the encoder of its vectors."""
SOURCE_KEY = b"sbert_beam.source"
"""A hash of its input rows, the encoder and the options."""
TOTALS_KEY = b"sbert_beam.totals"
"""The numbers of rows, tokens, truncated and rejected texts of its slice of the input, as JSON."""

STORED_TYPES = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}
"""The types of the values of an embedding column."""

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
    """The names of the columns that encoding adds to a corpus, which must not have columns of these names."""

    embedding: str = "embedding"
    n_tokens: str = "n_tokens"
    truncated: str = "truncated"

    def fields(self, dim: int, stored: str = "float32") -> list[pa.Field]:
        """The names and types of the columns."""
        if stored not in STORED_TYPES:
            raise ModelError(f"embeddings cannot be stored as {stored!r}: use {', '.join(STORED_TYPES)}")
        item = pa.field("item", STORED_TYPES[stored], nullable=False)
        return [
            pa.field(self.embedding, pa.list_(item, dim), nullable=False),
            pa.field(self.n_tokens, pa.int32(), nullable=False),
            pa.field(self.truncated, pa.bool_(), nullable=False),
        ]


def neighbors_schema(id_type: pa.DataType, neighbor_type: pa.DataType) -> pa.Schema:
    """The nearest rows of each row, nearest first."""
    return pa.schema(
        [
            pa.field("id", id_type, nullable=False),
            pa.field("neighbor_id", neighbor_type, nullable=False),
            pa.field("rank", pa.int32(), nullable=False),  # from 1
            pa.field("score", pa.float32(), nullable=False),
            # The positions of the two rows in the order of all ids of their corpus, from 0: smaller keys than the ids.
            pa.field("ordinal", pa.uint32(), nullable=False),
            pa.field("neighbor_ordinal", pa.uint32(), nullable=False),
        ]
    )


def pairs_schema(first_type: pa.DataType, second_type: pa.DataType) -> pa.Schema:
    """Paraphrases, sorted by `score`: the cosine, or another score that was asked for."""
    return pa.schema(
        [
            pa.field("id_a", first_type, nullable=False),
            pa.field("id_b", second_type, nullable=False),
            pa.field("score", pa.float32(), nullable=False),
            pa.field("cosine", pa.float32(), nullable=False),
            pa.field("lexical_overlap", pa.float32(), nullable=False),
            pa.field("numbers_differ", pa.bool_(), nullable=False),
            pa.field("negation_differs", pa.bool_()),  # null: not known to be English
            pa.field("text_a", pa.string()),
            pa.field("text_b", pa.string()),
        ]
    )


def duplicates_schema(id_type: pa.DataType) -> pa.Schema:
    """Groups of near-identical rows: one row of each group is kept, and the others are compared with it.

    The kept row is compared with itself: its `score` is 1, and nothing differs.
    """
    return pa.schema(
        [
            pa.field("group", pa.int64(), nullable=False),  # from 0, the largest first
            pa.field("size", pa.int64(), nullable=False),
            pa.field("id", id_type, nullable=False),
            pa.field("keep", pa.bool_(), nullable=False),
            pa.field("kept_id", id_type, nullable=False),  # for the kept row, its own id
            pa.field("score", pa.float32(), nullable=False),  # cosine to the kept row
            pa.field("numbers_differ", pa.bool_(), nullable=False),
            pa.field("negation_differs", pa.bool_()),  # null: not known to be English
            pa.field("text", pa.string()),
        ]
    )


def search_schema(query_type: pa.DataType, id_type: pa.DataType) -> pa.Schema:
    """The rows that were found for each query, best first."""
    return pa.schema(
        [
            pa.field("query_id", query_type, nullable=False),
            pa.field("query", pa.string()),
            pa.field("rank", pa.int32(), nullable=False),  # from 1
            pa.field("id", id_type, nullable=False),
            pa.field("score", pa.float32(), nullable=False),
            pa.field("cosine", pa.float32(), nullable=False),
            pa.field("text", pa.string()),
        ]
    )


def assignments_schema(id_type: pa.DataType) -> pa.Schema:
    """The cluster of every row."""
    return pa.schema(
        [
            pa.field("id", id_type, nullable=False),
            pa.field("cluster", pa.int64(), nullable=False),  # -1 is noise
            pa.field("strength", pa.float32(), nullable=False),  # 0 to 1
            pa.field("is_noise", pa.bool_(), nullable=False),
            pa.field("outlier_score", pa.float32()),  # of hdbscan, 0 to 1
            pa.field("distance", pa.float32()),  # 1 - cosine to the centre
        ]
    )


def clusters_schema(id_type: pa.DataType, dim: int) -> pa.Schema:
    """What each cluster is about."""
    return pa.schema(
        [
            pa.field("cluster", pa.int64(), nullable=False),  # -1 is noise
            pa.field("size", pa.int64(), nullable=False),
            pa.field("name", pa.string(), nullable=False),
            pa.field("terms", pa.list_(pa.string()), nullable=False),
            pa.field("exemplar_ids", pa.list_(id_type), nullable=False),
            pa.field("exemplar_texts", pa.list_(pa.string()), nullable=False),
            pa.field("cohesion", pa.float32()),  # mean cosine to the centre
            pa.field("separation", pa.float32()),  # 1 - cosine to the nearest other centre
            pa.field("nearest_cluster", pa.int64()),
            pa.field("radius", pa.float32()),  # cosine to the centre that all but 1 % of the rows have
            # Zeros for noise: Parquet readers trip over null vectors.
            pa.field("center", pa.list_(pa.field("item", pa.float32(), nullable=False), dim), nullable=False),
        ]
    )


def over_time_schema() -> pa.Schema:
    """What each cluster was about in each period."""
    return pa.schema(
        [
            pa.field("cluster", pa.int64(), nullable=False),
            pa.field("period", pa.string(), nullable=False),
            pa.field("terms", pa.list_(pa.string()), nullable=False),
        ]
    )
