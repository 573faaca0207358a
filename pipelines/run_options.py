"""What `run` can be told: the options of embed, mine, cluster and report that matter most; light to import."""

import dataclasses
from collections.abc import Sequence

from pipelines.embed_options import EmbedOptions
from pipelines.flags import WORKERS, flag, same_flag
from sbert_core.schema import TEXT

EXAMPLE = "sbert-beam run --input 'sentences/*.parquet' --output out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `run` can be told; the jobs one by one can be told more."""

    input: Sequence[str] = flag("globs, folders or manifests of .parquet, .jsonl, .csv or .txt files", nargs="+")
    output: str = flag("folder for the results of all jobs and report.html")
    model: str = flag("default, a folder, a URI (gs://, s3://) or a hub name", "default")
    text_column: str = flag("the column to encode", TEXT)
    id_column: str | None = flag("the column that names a row; without it `id`, made up if it is not there", None)
    top_k: int = flag("neighbours per row", 32)
    min_score: float = flag("least cosine of a pair", 0.75)
    index: str = flag("exact or routed", "exact")
    algorithm: str = flag("how to cluster: see sbert-beam cluster --help", "leiden")
    labels_column: str | None = flag("a column of true labels to measure clusters against", None)
    time_column: str | None = flag("a column of times: also tell terms over time", None)
    title: str = flag("the heading of the report", "Corpus report")
    device: str = flag("auto, cpu, cuda or mps", "auto")
    workers: int = flag(WORKERS, 1)
    accelerator: str | None = same_flag(EmbedOptions, "accelerator")
    encode_ram: str | None = same_flag(EmbedOptions, "encode_ram")
    encode_cpus: int = same_flag(EmbedOptions, "encode_cpus")
    overwrite: bool = flag("replace vectors of another model in the output folder", False, action="store_true")
