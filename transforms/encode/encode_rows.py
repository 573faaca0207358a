"""The sentence encoder for collections of rows, and for Beam YAML.

In a YAML pipeline:

    providers:
      - type: python
        config: {}
        transforms:
          EncodeSentences: transforms.encode.encode_rows.EncodeRows
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Optional, Sequence  # noqa: UP035  Beam's schemas need those of typing

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import named_fields_from_element_type
from apache_beam.utils.shared import Shared
from apache_beam.utils.windowed_value import WindowedValue

from sbert_core.data.schema import TEXT, AddedColumns
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import ModelError, TextError
from transforms.encode.encode_sentences import ONE_AT_A_TIME, encode_batch, load_encoder
from transforms.encode.model_handler import check_loading, check_prompts

_COLUMNS = AddedColumns()
_ADDED = {_COLUMNS.embedding: Sequence[np.float32], _COLUMNS.n_tokens: np.int32, _COLUMNS.truncated: bool}


@dataclasses.dataclass(kw_only=True, eq=False)
class EncodeRows(beam.PTransform):
    """Adds embedding, n_tokens and truncated to rows with a text field.

    Input is rows with a schema. Output is the same rows with three more fields: a list of float32, an int32 and a bool.
    Other fields, timestamps and windows are unchanged; order is not kept. A row that cannot be encoded (its text is
    null, or transforms.encode.isolate_failures rejects it) fails the pipeline, unless error_handling names an output
    for such rows. The encoder is loaded once per process and encodes one batch at a time.
    Counters: encode/sentences, encode/rejected, encode/failed_calls.

    Args:
        model: default (all-MiniLM-L6-v2), a folder, a URI (gs://, s3://, file://) or a hub name.
        text_column: the field that holds the text.
        load_options: more arguments of SentenceEncoder.load: device, precision, max_tokens ...
        prompt: a text put before each text.
        prompt_name: the name of one of the model's own prompts.
        batch_rows: maximum number of rows that are encoded together.
        error_handling: as in Beam's own YAML transforms, {output: name of the collection of failed rows}.
        load: replaces SentenceEncoder.load in tests; not for YAML.
    """

    model: str = "default"
    text_column: str = TEXT
    load_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    prompt: Optional[str] = None  # noqa: UP045  Beam's schemas read `str | None` as Any
    prompt_name: Optional[str] = None  # noqa: UP045
    batch_rows: int = 1024
    error_handling: Optional[dict[str, str]] = None  # noqa: UP045
    load: Callable[..., Any] = SentenceEncoder.load

    def __post_init__(self) -> None:
        super().__init__()
        check_loading(self.model, self.load_options, self.load)
        check_prompts({"prompt": self.prompt, "prompt_name": self.prompt_name})
        if self.batch_rows < 1:
            raise ModelError(f"batch_rows must be at least 1, got {self.batch_rows}")
        handling = self.error_handling
        if handling is not None and (handling.keys() != {"output"} or handling["output"] == "good"):
            raise ModelError(f"error_handling must be {{output: a name other than good}}, got {handling}")

    def expand(self, rows: beam.PCollection[Any]) -> Any:
        """Encodes; with error_handling, returns a dictionary of `good` and the error output."""
        fields = _check_fields(rows.element_type, self.text_column)
        row_type = RowTypeConstraint.from_fields([*fields, *_ADDED.items()])
        error_type = RowTypeConstraint.from_fields([("element", rows.element_type), ("msg", str), ("stack", str)])
        size = {"min_batch_size": self.batch_rows, "max_batch_size": self.batch_rows}
        batches = rows | "Stamp" >> beam.Map(_stamp) | "Gather" >> beam.BatchElements(**size)
        # Rows are emitted by `process`: those that `finish_bundle` emits are lost if a batched DoFn, such as that of
        # WriteToParquet, comes next (Beam 2.77).
        encode = beam.ParDo(_EncodeRowsFn(self, [name for name, _ in fields]))
        if self.error_handling is None:
            return batches | "Encode" >> encode.with_output_types(row_type)
        typed = encode.with_output_types(row_type, errors=error_type)
        outputs = batches | "Encode" >> typed.with_outputs("errors", main="good")
        return {"good": outputs.good, self.error_handling["output"]: outputs.errors}


def _check_fields(element_type: Any, text_column: str) -> list[tuple[str, Any]]:
    try:
        fields: list[tuple[str, Any]] = named_fields_from_element_type(element_type)
    except (TypeError, ValueError) as error:
        raise TextError(f"EncodeRows needs rows with a schema, got {element_type}") from error
    types = dict(fields)
    if types.get(text_column) not in (str, Optional[str], Any):  # noqa: UP045
        problem = f"is {types[text_column]}" if text_column in types else f"is not among {', '.join(types)}"
        raise TextError(f"field {text_column!r} {problem}, expected text: set text_column")
    taken = [name for name in _ADDED if name in types]
    if taken:
        raise TextError(f"the rows already have a field {', '.join(taken)}: rename or drop it")
    return fields


def _stamp(row: Any, time: Any = beam.DoFn.TimestampParam) -> tuple[Any, Any]:
    return row, time  # BatchElements keeps windows but not timestamps


class _EncodeRowsFn(beam.DoFn):
    def __init__(self, settings: EncodeRows, names: list[str]) -> None:
        self._settings = settings
        self._names = names
        self._shared = Shared()
        self._sentences = Metrics.counter("encode", "sentences")
        self._rejected = Metrics.counter("encode", "rejected")

    def setup(self) -> None:
        settings = self._settings
        prompts = {"prompt": settings.prompt, "prompt_name": settings.prompt_name}
        self._encoder = self._shared.acquire(
            lambda: load_encoder(settings.load, settings.model, settings.load_options, **prompts)
        )

    def process(self, stamped: list[tuple[Any, Any]], window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        settings = self._settings
        texts = pa.array([self._text(row) for row, _ in stamped], pa.string())
        with ONE_AT_A_TIME:
            encoded, reasons = encode_batch(
                pa.record_batch([texts], [settings.text_column]),
                self._encoder,
                text_column=settings.text_column,
                prompt=settings.prompt,
                prompt_name=settings.prompt_name,
            )
        self._sentences.inc(len(encoded))
        self._rejected.inc(len(reasons))
        added = iter(encoded.select(list(_ADDED)).to_pylist())
        for position, (row, time) in enumerate(stamped):
            if position not in reasons:
                kept = {name: getattr(row, name) for name in self._names}
                yield WindowedValue(beam.Row(**kept, **next(added)), time, (window,))
            elif settings.error_handling is None:
                raise TextError(f"{reasons[position]}, in {str(row)[:200]}: filter such rows, or set error_handling")
            else:
                error = beam.Row(element=row, msg=reasons[position], stack="")
                yield beam.pvalue.TaggedOutput("errors", WindowedValue(error, time, (window,)))

    def _text(self, row: Any) -> str | None:
        text = getattr(row, self._settings.text_column)
        if not isinstance(text, str | None):
            raise TextError(f"field {self._settings.text_column!r} is {type(text).__name__}, expected str")
        return text
