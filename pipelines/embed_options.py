"""What the embed job can be told; light to import, so that `--help` answers at once."""

import dataclasses
from collections.abc import Sequence

from pipelines.flags import WORKERS, flag
from sbert_core.errors import DataError
from sbert_core.schema import TEXT, AddedColumns
from transforms.formats import BATCH_ROWS
from transforms.resources import EncodeResources

EXAMPLE = "sbert-beam embed --input 'sentences/*.parquet' --output out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """What the embed job can be told."""

    input: Sequence[str] = flag(
        "globs, folders or manifests of .parquet, .jsonl, .csv or .txt files (also .gz)", nargs="+"
    )
    output: str = flag("folder for the results: embeddings/ and rejected/ go below it")
    model: str = flag("default, a folder, a URI (gs://, s3://) or a hub name", "default")
    text_column: str = flag("the column to encode", TEXT)
    id_column: str | None = flag("the column that names a row; without it `id`, made up if it is not there", None)
    prompt_name: str | None = flag("one of the model's prompts, put before each text", None)
    prompt: str | None = flag("a text put before each text", None)
    stored: str = flag("type of the embedding column: float32, float16 or int8", "float32")
    embedding_column: str = flag("name of the embedding column", "embedding")
    n_tokens_column: str = flag("name of the column of token counts", "n_tokens")
    truncated_column: str = flag("name of the column that tells truncated texts", "truncated")
    slice_rows: int = flag("rows per task and per output file", BATCH_ROWS)
    device: str = flag("auto, cpu, cuda or mps", "auto")
    precision: str = flag("what to compute in: auto, float32, float16, bfloat16 or int8", "auto")
    workers: int = flag(WORKERS, 1)
    accelerator: str | None = flag(
        "remote runners: the GPU to encode on, as type:nvidia-tesla-t4;count:1;install-nvidia-driver", None
    )
    encode_ram: str | None = flag("remote runners: least memory of a machine that encodes, as 16GB", None)
    encode_cpus: int = flag("remote runners: least processors of a machine that encodes (0: any)", 0)
    overwrite: bool = flag("replace vectors of another model in the output folder", False, action="store_true")

    def __post_init__(self) -> None:
        for name in ("slice_rows", "workers"):
            if getattr(self, name) < 1:
                raise DataError(f"--{name} must be at least 1, got {getattr(self, name)}")
        _ = self.resources  # checks itself
        if self.accelerator and self.device != "auto":
            raise DataError(
                "--accelerator gives a GPU to the workers that encode, and other machines have none: leave --device out"
            )
        if self.accelerator and self.precision == "int8":
            raise DataError("--precision int8 is for CPU: leave out --accelerator, or choose another precision")

    @property
    def resources(self) -> EncodeResources:
        """What the encoding step asks of its machines."""
        return EncodeResources(accelerator=self.accelerator, encode_ram=self.encode_ram, encode_cpus=self.encode_cpus)

    @property
    def load_options(self) -> dict[str, str]:
        """How to load the encoder.

        Precision is part of what an encoder is. Where only some machines have a GPU `auto` would mean two encoders,
        so it means what it means on a GPU on all of them.
        """
        precision = "float16" if self.accelerator and self.precision == "auto" else self.precision
        return {"device": self.device, "precision": precision}

    @property
    def embeddings(self) -> str:
        """Where the result goes."""
        return f"{self.output.rstrip('/')}/embeddings"

    @property
    def rejected(self) -> str:
        """Where the rows without a vector go."""
        return f"{self.output.rstrip('/')}/rejected"

    @property
    def columns(self) -> AddedColumns:
        """The columns to add."""
        return AddedColumns(self.embedding_column, self.n_tokens_column, self.truncated_column)
