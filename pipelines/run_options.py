"""The options of `run`: the most important ones of embed, mine, cluster and report; fast to import, for `--help`."""

import dataclasses
from collections.abc import Sequence

from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.flags import WORKERS, JobOptions, flag, same_flag
from pipelines.mine_options import MineOptions
from sbert_core.data.schema import TEXT

EXAMPLE = "sbert-beam run --input 'sentences/*.parquet' --output out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(JobOptions):
    """The options of `run`; each job alone has more."""

    input: Sequence[str] = same_flag(EmbedOptions, "input")
    output: str = flag("folder for the results of all jobs and report.html")
    model: str = flag("default, a folder, a URI (gs://, s3://) or a hub name", "default")
    text_column: str = flag("the column to encode", TEXT)
    id_column: str | None = flag(
        "the column of unique row ids (default: `id`, which is generated if it does not exist)", None
    )
    csv_delimiter: str = same_flag(EmbedOptions, "csv_delimiter")
    encoding: str = same_flag(EmbedOptions, "encoding")
    skip_bad_files: bool = same_flag(EmbedOptions, "skip_bad_files")
    top_k: int = same_flag(MineOptions, "top_k")
    min_score: float = same_flag(MineOptions, "min_score")
    index: str = same_flag(MineOptions, "index")
    cross_encoder: str | None = same_flag(MineOptions, "cross_encoder")
    duplicate_score: float = same_flag(MineOptions, "duplicate_score")
    keep: str = same_flag(MineOptions, "keep")
    newest_column: str | None = same_flag(MineOptions, "newest_column")
    algorithm: str = same_flag(ClusterOptions, "algorithm")
    labels_column: str | None = flag("a column of true labels to score the clusters against", None)
    time_column: str | None = flag("a column of times: also writes the terms of each cluster over time", None)
    title: str = flag("the title of the report", "Corpus report", may_be_empty=True)
    device: str = flag("auto, cpu, cuda or mps", "auto")
    workers: int = flag(WORKERS, 1, at_least=1)
    accelerator: str | None = same_flag(EmbedOptions, "accelerator")
    encode_ram: str | None = same_flag(EmbedOptions, "encode_ram")
    encode_cpus: int = same_flag(EmbedOptions, "encode_cpus")
    overwrite: bool = flag(
        "replace the results of another model or corpus in the output folder", False, action="store_true"
    )
