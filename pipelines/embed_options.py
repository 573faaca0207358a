"""The options of the embed job; fast to import, for `--help`."""

import dataclasses
from collections.abc import Sequence

from pipelines.flags import WORKERS, JobOptions, flag
from sbert_core.data.formats import BATCH_ROWS
from sbert_core.data.schema import TEXT, AddedColumns
from sbert_core.data.text_stream import TextFormat
from sbert_core.errors import DataError
from transforms.encode.encode_resources import EncodeResources

STORED = ("float32", "float16", "int8")
PRECISIONS = ("auto", "float32", "float16", "bfloat16", "int8")
EXAMPLE = "sbert-beam embed --input 'sentences/*.parquet' --output out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedOptions(JobOptions):
    """The options of the embed job."""

    input: Sequence[str] = flag(
        "globs, folders or manifests of .parquet, .jsonl, .json, .csv, .tsv or .txt files (also .gz)", nargs="+"
    )
    output: str = flag("folder for the results: embeddings/ and rejected/ go below it")
    model: str = flag("default, a folder, a URI (gs://, s3://) or a hub name", "default")
    text_column: str = flag("the column to encode", TEXT)
    id_column: str | None = flag(
        "the column of unique row ids (default: `id`, which is generated if it does not exist)", None
    )
    csv_delimiter: str = flag("the separator of .csv files: one character, or tab", ",")
    encoding: str = flag("encoding of text files: utf-8, utf-16, latin-1 or another one of Python", "utf-8")
    skip_bad_files: bool = flag(
        "leave out unreadable files, list them in the manifest and end with exit code 3 (reads the input twice)",
        False,
        action="store_true",
    )
    prompt_name: str | None = flag("one of the model's prompts, put before each text", None)
    prompt: str | None = flag("a text put before each text", None, may_be_empty=True)
    stored: str = flag("type of the embedding column: float32, float16 or int8", "float32", one_of=STORED)
    embedding_column: str = flag("name of the embedding column", "embedding")
    n_tokens_column: str = flag("name of the column of token counts", "n_tokens")
    truncated_column: str = flag("name of the column that marks truncated texts", "truncated")
    slice_rows: int = flag("maximum rows per output file", BATCH_ROWS, at_least=1)
    device: str = flag("auto, cpu, cuda or mps", "auto")
    precision: str = flag(
        "number format for computing: auto, float32, float16, bfloat16 or int8", "auto", one_of=PRECISIONS
    )
    workers: int = flag(WORKERS, 1, at_least=1)
    accelerator: str | None = flag(
        "remote runners: the GPU for encoding, e.g. type:nvidia-tesla-t4;count:1;install-nvidia-driver", None
    )
    encode_ram: str | None = flag("remote runners: minimum memory of a machine that encodes, e.g. 16GB", None)
    encode_cpus: int = flag("remote runners: minimum number of CPUs of a machine that encodes (0: any)", 0)
    overwrite: bool = flag(
        "replace the results of another model or corpus in the output folder", False, action="store_true"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.resources  # both check themselves
        _ = self.text_format
        if not all(pattern.strip() for pattern in self.input):
            raise DataError("an input is empty: give a file, a folder or a glob. See --input")
        if self.accelerator and self.device != "auto":
            raise DataError("--accelerator gives a GPU only to the workers that encode: leave out --device")
        if self.accelerator and self.precision == "int8":
            raise DataError("--precision int8 is for CPU: leave out --accelerator, or choose another precision")

    @property
    def resources(self) -> EncodeResources:
        """The resource hints of the encoding step."""
        return EncodeResources(accelerator=self.accelerator, encode_ram=self.encode_ram, encode_cpus=self.encode_cpus)

    @property
    def text_format(self) -> TextFormat:
        """The format of text files."""
        return TextFormat(encoding=self.encoding, csv_delimiter=self.csv_delimiter)

    @property
    def load_options(self) -> dict[str, str]:
        """The arguments for loading the encoder.

        Precision is part of an encoder's fingerprint. If only some machines have a GPU, `auto` would give two different
        encoders, so all of them use the precision of the GPU.
        """
        precision = "float16" if self.accelerator and self.precision == "auto" else self.precision
        return {"device": self.device, "precision": precision}

    @property
    def embeddings(self) -> str:
        """Where the result goes."""
        return f"{self.output.rstrip('/')}/embeddings"

    @property
    def rejected(self) -> str:
        """Where rows that cannot be encoded go."""
        return f"{self.output.rstrip('/')}/rejected"

    @property
    def columns(self) -> AddedColumns:
        """The columns to add."""
        return AddedColumns(self.embedding_column, self.n_tokens_column, self.truncated_column)
