"""The embed job: Parquet shards in, the same rows with an embedding column out."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.flags import flag
from sbert_core.schema import TEXT
from transforms.encode import EncodeSentences
from transforms.read import SLICE_ROWS, DataError, ReadSentences, check_input
from transforms.write import WriteManifest, WriteParts, read_manifest

EXAMPLE = "sbert-beam embed --input 'sentences/*.parquet' --output out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """What the embed job can be told."""

    input: Sequence[str] = flag("Parquet files: globs or folders, on any filesystem Beam knows", nargs="+")
    output: str = flag("folder for the results: embeddings/ and rejected/ go below it")
    model: str = flag("default, a folder, a URI (gs://, s3://) or a hub name", "default")
    text_column: str = flag("the column to encode", TEXT)
    slice_rows: int = flag("rows per task and per output file", SLICE_ROWS)
    device: str = flag("auto, cpu, cuda or mps", "auto")
    precision: str = flag("what to compute in: auto, float32, float16, bfloat16 or int8", "auto")
    workers: int = flag("local processes", 1)

    @property
    def embeddings(self) -> str:
        """Where the result goes."""
        return f"{self.output.rstrip('/')}/embeddings"

    @property
    def rejected(self) -> str:
        """Where the rows without a vector go."""
        return f"{self.output.rstrip('/')}/rejected"


def make_encode(options: EmbedOptions) -> EncodeSentences:
    """The encoding step these options ask for."""
    load_options = {"device": options.device, "precision": options.precision}
    return EncodeSentences(
        model=options.model, text_column=options.text_column, workers=options.workers, load_options=load_options
    )


def build(root: beam.Pipeline, options: EmbedOptions, encode: EncodeSentences | None = None) -> None:
    """Wires the job into a pipeline, for any runner."""
    sentences = root | "ReadSentences" >> ReadSentences(patterns=options.input, slice_rows=options.slice_rows)
    results = sentences | "EncodeSentences" >> (encode or make_encode(options))
    facts = {"options": dataclasses.asdict(options) | {"workers": None}}
    for name, folder in (("encoded", options.embeddings), ("rejected", options.rejected)):
        parts = results[name] | f"Write{name.title()}" >> WriteParts(folder=folder)
        _ = parts | f"Manifest{name.title()}" >> WriteManifest(folder=folder, facts=facts)


def run(options: EmbedOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None) -> dict[str, Any]:
    """Checks the input, runs the job and returns its figures; rows that got lost are an error."""
    start = time.perf_counter()
    rows = check_input(options.input, options.text_column)
    settings = PipelineOptions(list(beam_flags))
    local = settings.get_all_options(drop_default=True).get("runner") is None
    if local:
        flags = ["--runner=FnApiRunner", f"--direct_num_workers={options.workers}"]
        flags += ["--direct_running_mode=multi_processing"] * (options.workers > 1)
        settings = PipelineOptions([*beam_flags, *flags])
    encode = encode or make_encode(options)
    if local:
        encoder = encode.acquire()  # a model that cannot be loaded is told here; workers in this process share it
    with beam.Pipeline(options=settings) as root:
        build(root, options, encode)
    embeddings, rejected = read_manifest(options.embeddings), read_manifest(options.rejected)
    if embeddings["rows"] + rejected["rows"] != rows:
        raise DataError(f"{rows} rows went in, {embeddings['rows']} embedded and {rejected['rows']} rejected came out")
    return {
        "rows in": rows,
        "embedded": embeddings["rows"],
        "rejected": rejected["rows"],
        "truncated": embeddings["truncated"],
        "tokens": embeddings["n_tokens"],
        "dimensions": encoder.dim if local else None,
        "seconds": round(time.perf_counter() - start, 1),
        "embeddings": options.embeddings,
    }
