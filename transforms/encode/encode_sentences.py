"""Batches of sentences to batches with an embedding column."""

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import apache_beam as beam
import numpy as np
import pyarrow as pa
import torch
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from sbert_core.cores import share_of_cores
from sbert_core.data.columns import ids_as_text
from sbert_core.data.schema import FINGERPRINT_KEY, ID, REJECTED, TEXT, TOTALS_KEY, AddedColumns
from sbert_core.encoder.quantization import quantize
from sbert_core.encoder.sentence_encoder import Encoded, SentenceEncoder
from sbert_core.errors import JobError, ModelError, SbertBeamError
from transforms.dataset.batch_coder import typed_batches
from transforms.dataset.slices import has_slice, slice_of
from transforms.encode.encode_resources import EncodeResources
from transforms.encode.isolate_failures import KNOWN_GOOD_TEXT, Failures, describe_error, encode_each, is_machine_fault

DEFAULT_COLUMNS = AddedColumns()
NO_RESOURCES = EncodeResources()
NOT_FINITE = "the vector is not finite"

# The bundle threads of a process share an encoder: a GPU allows one caller at a time, and on CPU one call uses every
# core. Other threads read and write meanwhile.
ONE_AT_A_TIME = threading.Lock()


class Encoder(Protocol):
    """The interface of an encoder in this module; tests have their own."""

    dim: int
    fingerprint: str

    def encode(
        self, texts: list[str], *, details: Literal[True], prompt: str | None, prompt_name: str | None
    ) -> Encoded:
        """Encodes texts; see `SentenceEncoder.encode`."""


def int8_ranges(dim: int) -> np.ndarray:
    """The value ranges (2, dim) of int8 columns: four standard deviations of a random unit vector."""
    limit = np.full(dim, 4 / np.sqrt(dim), dtype=np.float32)
    return np.stack([-limit, limit])


def encode_batch(
    batch: pa.RecordBatch,
    encoder: Encoder,
    text_column: str = TEXT,
    prompt: str | None = None,
    prompt_name: str | None = None,
    columns: AddedColumns = DEFAULT_COLUMNS,
    stored: str = "float32",
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Adds `embedding`, `n_tokens` and `truncated` to the rows that can be encoded; other columns are kept.

    Returns those rows, and the reason for each other row by its position in `batch`. The module
    `transforms.encode.isolate_failures` defines what is the fault of a row, and what raises.
    """
    texts, reasons = _read_texts(batch.column(text_column))
    rows = [row for row in range(len(batch)) if row not in reasons]
    ranges = int8_ranges(encoder.dim)

    def encode(chosen: list[str]) -> tuple[Encoded, Failures]:
        found = encoder.encode(chosen, details=True, prompt=prompt, prompt_name=prompt_name)
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            vectors = quantize(found.embeddings, stored, ranges)  # type: ignore[arg-type]
        failures = find_not_finite(found.embeddings)
        if stored == "float16":
            failures = dict.fromkeys(find_not_finite(vectors), f"{NOT_FINITE} in float16") | failures
        return dataclasses.replace(found, embeddings=vectors), failures

    found, failures = encode_each(
        [texts[row] for row in rows], encode, lambda places: _locate(batch, [rows[place] for place in places])
    )
    reasons |= {rows[place]: reason for place, reason in failures.items()}
    encoded = found or _encode_nothing(encoder.dim, stored)
    fields = columns.fields(encoder.dim, stored)
    added = [
        pa.FixedSizeListArray.from_arrays(pa.array(encoded.embeddings.reshape(-1)), type=fields[0].type),
        pa.array(encoded.n_tokens, fields[1].type),
        pa.array(encoded.truncated, fields[2].type),
    ]
    kept = batch
    if reasons:
        kept = batch.filter(pa.array([row not in reasons for row in range(len(batch))]))
    totals = {
        "rows": len(kept),
        "n_tokens": int(encoded.n_tokens.sum()),
        "truncated": int(encoded.truncated.sum()),
        "rejected": len(reasons),
    }
    metadata = {
        **(batch.schema.metadata or {}),
        FINGERPRINT_KEY: encoder.fingerprint.encode(),
        TOTALS_KEY: json.dumps(totals).encode(),
    }
    return pa.record_batch([*kept.columns, *added], schema=pa.schema([*batch.schema, *fields], metadata)), reasons


def find_not_finite(vectors: np.ndarray) -> Failures:
    """The rows of `vectors` (n, dim) that hold NaN or infinity."""
    return {int(row): NOT_FINITE for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1))}


def _read_texts(column: pa.Array) -> tuple[list[Any], Failures]:
    """The texts of a column, and the reasons for rows without one. Arrow and Parquet do not check UTF-8."""
    reasons = {int(row): "text is null" for row in np.flatnonzero(column.is_null())}
    try:
        return column.to_pylist(), reasons
    except UnicodeDecodeError:
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        values = plain.cast(pa.large_binary()).to_pylist()
    for row, value in enumerate(values):
        try:
            values[row] = value if value is None else value.decode()
        except UnicodeDecodeError as error:
            reasons[row] = f"text is not valid UTF-8: {error.reason} at byte {error.start}"
    return values, reasons


def _locate(batch: pa.RecordBatch, rows: Sequence[int]) -> str:
    """Describes where rows of a batch come from."""
    first, last = min(rows), max(rows)
    if not has_slice(batch):
        return f"row {first} of a batch" if first == last else f"rows {first} to {last} of a batch"
    name, first_row = slice_of(batch).name, slice_of(batch).first_row
    first, last = first + first_row, last + first_row
    return f"{name} row {first}" if first == last else f"{name} rows {first} to {last}"


def _encode_nothing(dim: int, stored: str) -> Encoded:
    vectors = quantize(np.empty((0, dim), np.float32), stored, int8_ranges(dim))  # type: ignore[arg-type]
    return Encoded(vectors, np.empty(0, np.int64), np.empty(0, bool))


def load_encoder(
    load: Callable[..., Any],
    model: str,
    load_options: Mapping[str, Any],
    prompt: str | None = None,
    prompt_name: str | None = None,
) -> Encoder:
    """Loads an encoder and tries it with the prompt on one text.

    A prompt that the model does not have, or weights that give no finite vectors, are then an error before any work,
    and not a reason to reject every row. `SentenceEncoder.load` has encoded a text already: only the prompt is checked.
    """
    encoder: Encoder = load(model, **load_options)
    texts = [] if isinstance(encoder, SentenceEncoder) else [KNOWN_GOOD_TEXT]
    try:
        with ONE_AT_A_TIME:
            found = encoder.encode(texts, details=True, prompt=prompt, prompt_name=prompt_name)
    except SbertBeamError:
        raise
    except Exception as error:
        kind = JobError if is_machine_fault(error) else ModelError
        raise kind(f"the model {model} was loaded but cannot encode a text: {describe_error(error)}") from error
    if find_not_finite(found.embeddings):
        raise ModelError(
            f"the model {model} gives vectors that are not finite: check its weights, or use precision float32"
        )
    return encoder


@dataclasses.dataclass(kw_only=True, eq=False)
class EncodeSentences(beam.PTransform):
    """Adds `embedding`, `n_tokens` and `truncated` to batches of sentences.

    Input is `pa.RecordBatch` with a text column; output is a dictionary of two collections of `pa.RecordBatch`:
    `encoded`, and `rejected` for the rows without a vector (for batches that are not from ReadSentences the file is ""
    and the row is the position in the batch). Row order inside a batch is kept, order of batches is not. The encoder is
    loaded once per worker process and encodes one batch at a time. `resources` are hints on this step alone; a worker
    without the GPU of `resources` fails.
    Counters: `encode/sentences`, `encode/tokens`, `encode/truncated`, `encode/rejected`, `encode/failed_calls` (of the
    encoder, for any reason); distribution: `encode/batch_latency_ms`.
    """

    model: str = "default"
    text_column: str = TEXT
    id_column: str = ID  # copied to the rejected rows
    prompt: str | None = None
    prompt_name: str | None = None
    columns: AddedColumns = DEFAULT_COLUMNS
    stored: str = "float32"  # or float16, or int8 within int8_ranges()
    workers: int = 1  # processes on a worker's machine: they share its cores
    resources: EncodeResources = NO_RESOURCES
    load_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    load: Callable[..., Any] = SentenceEncoder.load  # returns an Encoder; the seam for tests

    def __post_init__(self) -> None:
        super().__init__()
        self.columns.fields(1, self.stored)
        self._shared = Shared()

    def acquire(self) -> Encoder:
        """Loads the encoder with `load_encoder`, or returns the one that this process already has.

        A process has it as long as it is referenced.
        """

        def load() -> Encoder:
            return load_encoder(self.load, self.model, self.load_options, self.prompt, self.prompt_name)

        acquired: Encoder = self._shared.acquire(load)
        return acquired

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that change the result, besides the encoder."""
        names = ("text_column", "prompt", "prompt_name", "stored")
        return {name: getattr(self, name) for name in names} | dataclasses.asdict(self.columns)

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> Any:
        """Encodes in one step, on the worker that read the batch unless `resources` ask for another machine."""
        encode = beam.ParDo(_EncodeFn(self)).with_resource_hints(**self.resources.hints)
        outputs = batches | "Encode" >> encode.with_outputs("rejected", main="encoded")
        return {"encoded": typed_batches(outputs.encoded), "rejected": typed_batches(outputs.rejected)}


class _EncodeFn(beam.DoFn):
    def __init__(self, transform: EncodeSentences) -> None:
        self._transform = transform
        self._counters = {
            "rows": Metrics.counter("encode", "sentences"),
            "n_tokens": Metrics.counter("encode", "tokens"),
            "truncated": Metrics.counter("encode", "truncated"),
            "rejected": Metrics.counter("encode", "rejected"),
        }
        self._latency = Metrics.distribution("encode", "batch_latency_ms")

    def setup(self) -> None:
        accelerator = self._transform.resources.accelerator
        if accelerator and not torch.cuda.is_available():
            raise ModelError(
                f"torch finds no GPU on this worker, although --accelerator is {accelerator}: check that the runner "
                "supports it and installs the driver, and that torch is a CUDA build"
            )
        torch.set_num_threads(share_of_cores(self._transform.workers))
        self._encoder = self._transform.acquire()

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        with ONE_AT_A_TIME:
            start = time.perf_counter()
            encoded, reasons = encode_batch(batch, self._encoder, **_arguments(self._transform))
            self._latency.update(int(1000 * (time.perf_counter() - start)))
        for name, total in json.loads(encoded.schema.metadata[TOTALS_KEY]).items():
            self._counters[name].inc(total)
        if reasons:
            yield beam.pvalue.TaggedOutput("rejected", rejected_batch(batch, reasons, self._transform.id_column))
        yield encoded


def _arguments(transform: EncodeSentences) -> dict[str, Any]:
    names = ("text_column", "prompt", "prompt_name", "columns", "stored")
    return {name: getattr(transform, name) for name in names}


def rejected_batch(batch: pa.RecordBatch, reasons: dict[int, str], id_column: str = ID) -> pa.RecordBatch:
    """The rows of a batch without a vector: file, row, id and reason."""
    rows = sorted(reasons)
    name, first_row = (slice_of(batch).name, slice_of(batch).first_row) if has_slice(batch) else ("", 0)
    ids = pa.nulls(len(rows), pa.string())
    if id_column in batch.schema.names:
        ids = ids_as_text(batch.column(id_column).take(pa.array(rows)))
    columns = [
        pa.array([name] * len(rows)),
        pa.array([first_row + row for row in rows]),
        ids,
        pa.array([reasons[row] for row in rows]),
    ]
    return pa.record_batch(columns, schema=REJECTED.with_metadata(batch.schema.metadata))
