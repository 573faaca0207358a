"""The options of the search job; fast to import, for `--help`."""

import dataclasses
from typing import Any

from pipelines.embed_options import PRECISIONS
from pipelines.flags import WORKERS, JobOptions, flag
from sbert_core.errors import DataError

EXAMPLE = "sbert-beam search --queries 'where is my parcel' --corpus out/embeddings"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(JobOptions):
    """The options of the search job."""

    queries: str = flag("a text, or files of queries in the formats of the embed job")
    corpus: str = flag("the result of an embed job")
    output: str | None = flag("folder for the result of files of queries: search/ goes below it", None)
    top_k: int = flag("rows to find for each query", 10, at_least=1)
    model: str | None = flag("the model of the corpus, if it has moved since", None)
    prompt_name: str | None = flag(
        "one of the model's prompts for the queries (default: `query`, if the model has it)", None
    )
    prompt: str | None = flag("a text put before each query", None, may_be_empty=True)
    text_column: str = flag("the column of the queries", "text")
    id_column: str | None = flag(
        "the column of unique query ids (default: `id`, which is generated if it does not exist)", None
    )
    cross_encoder: str | None = flag("a sequence-classification model that reorders the hits", None)
    device: str = flag("auto, cpu, cuda or mps", "auto")
    precision: str = flag(
        "number format for computing, the same as for the corpus: auto, float32, float16, bfloat16 or int8",
        "auto",
        one_of=PRECISIONS,
    )
    block_rows: int = flag("rows compared at once", 8192, at_least=1)
    workers: int = flag(WORKERS, 1, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_files and self.output is None:
            raise DataError("files of queries need a folder for the result: give --output")

    @property
    def is_files(self) -> bool:
        """Whether `queries` names files; a text has a space more often than a slash, and no such suffix."""
        from sbert_core.data.formats import suffix_of

        return bool(suffix_of(self.queries)) or "*" in self.queries or self.queries.endswith("/")

    @property
    def load_options(self) -> dict[str, Any]:
        """The arguments for loading the encoder."""
        return {"device": self.device, "precision": self.precision}

    @property
    def folder(self) -> str:
        """Where the result goes."""
        return f"{(self.output or '').rstrip('/')}/search"
