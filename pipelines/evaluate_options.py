"""The options of the evaluate job; fast to import, for `--help`."""

import dataclasses
from typing import Any

from pipelines.flags import JobOptions, flag, parse_condition, parse_range
from sbert_core.errors import DataError

EXAMPLE = "sbert-beam evaluate --model default --task sts --data sts.tsv --label score --where split=test"
TASKS = (
    *("sts", "pairs", "triplets", "nli", "retrieval", "clustering", "transfer", "mining"),
    *("efficiency", "health", "probes"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(JobOptions):
    """The options of the evaluate job."""

    model: str = flag("the encoder: a folder, a hub name or `default`; several are separated by commas")
    task: str = flag(f"the evaluation task: {', '.join(TASKS)}", one_of=TASKS)
    data: str = flag(
        "evaluation rows: Parquet, JSONL, TSV or CSV; for retrieval a folder with queries and corpus (id, text) and "
        "relevant (query_id, document_id); for mining texts with ids (id, text)"
    )
    columns: str | None = flag("text columns, separated by commas", None)
    label: str | None = flag("label column: gold scores (sts, health), 0 or 1 (pairs), or classes", None)
    label_range: str | None = flag("minimum and maximum gold score, e.g. 0,5", None)
    where: str | None = flag("only rows with this value, e.g. split=test", None)
    limit: int | None = flag("size of a random sample of the rows", None, at_least=1, type=int)
    group_column: str | None = flag("also score each value of this column, and their mean (sts)", None)
    split_column: str | None = flag(
        "column that says which rows are train, dev and test (nli, transfer; default: split)", None
    )
    pairs: str | None = flag("mining: a file of gold pairs, with id_a and id_b", None)
    cross_encoder: str | None = flag(
        "efficiency: the cross-encoder to compare with (default: an untrained one on the same transformer)", None
    )
    sentences: int | None = flag("efficiency: number of sentences (default: 10,000)", None, at_least=1, type=int)
    output: str | None = flag("folder for evaluation.json, evaluation.md and evaluation.html", None)
    device: str = flag("auto, cpu, cuda ...", "auto")
    seed: int = flag("random seed of samples", 0, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(self.models):
            raise DataError(f"--model is a model, or several separated by commas, got {self.model!r}")
        self.settings()

    @property
    def models(self) -> list[str]:
        """The names of the models."""
        return [name.strip() for name in self.model.split(",")]

    def settings(self) -> dict[str, Any]:
        """The arguments of `evaluate` besides task, models and data."""
        plain = ("label", "limit", "group_column", "split_column", "pairs", "cross_encoder", "sentences", "device")
        return {
            **{name: getattr(self, name) for name in (*plain, "seed")},
            "columns": [column.strip() for column in self.columns.split(",")] if self.columns else [],
            "label_range": parse_range("label_range", self.label_range),
            "where": parse_condition("where", self.where),
        }
