"""Finds the texts that an encoder cannot encode, and distinguishes them from faults of the encoder or the machine.

Engines retry a failed bundle, but a row that was rejected by mistake is lost. So a text is rejected only if

1. it fails alone, a known-good text then succeeds in the same process, it fails alone again, and the known-good text
   succeeds again; and
2. another text of its batch succeeds, or the batch has no other distinct text.

A text fails if the encoder raises, or if its vector is not finite. Everything else fails the bundle: a fault of the
machine (out of memory, a GPU error, a failed read) at once, a known-good text that fails (`JobError`), and a batch of
two or more distinct texts that all fail although the known-good text succeeds (`ModelError`). A text that succeeds at
the second try is encoded. With b bad texts among n the encoder is called O(b log n) times.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from apache_beam.metrics import Metrics

from sbert_core.encoder.sentence_encoder import Encoded
from sbert_core.errors import JobError, ModelError, SbertBeamError, TextError

KNOWN_GOOD_TEXT = "a text"
MAX_REASON_CHARACTERS = 300

# Torch reports many faults of a machine as a plain RuntimeError, which only its message identifies.
_MACHINE_MESSAGE = re.compile(
    r"\b(CUDA|HIP|XPU|MPS|cuDNN) (driver |backend )?error|\b(CUDNN|CUBLAS|CUSPARSE|CUSOLVER)_STATUS|no CUDA GPUs"
    r"|out of memory|can't allocate memory|not enough memory",
    re.IGNORECASE,
)
_MACHINE_TYPES: tuple[type[BaseException], ...] = (MemoryError, OSError, torch.OutOfMemoryError)
if hasattr(torch, "AcceleratorError"):  # since torch 2.8; before, the message identifies GPU errors
    _MACHINE_TYPES += (torch.AcceleratorError,)
_ADVICE = "If it happens again, use a machine with more memory, or another --device"
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
_FOLDERS = re.compile(r"(?<![\w:/.])(?:/[^\s/:;,'\"()<>]+)+/(?=[^\s/])|\b[A-Za-z]:\\(?:[^\s\\:;,'\"()<>]+\\)*")
_FAILED_CALLS = Metrics.counter("encode", "failed_calls")

Failures = dict[int, str]  # positions in a list of texts, and why each of them has no vector


def encode_each(
    texts: Sequence[str],
    encode: Callable[[list[str]], tuple[Encoded, Failures]],
    locate: Callable[[Sequence[int]], str],
) -> tuple[Encoded | None, Failures]:
    """Encodes the texts that can be encoded, in their order; returns the reason for each of the others.

    `encode` encodes texts together; it raises, or returns which vectors are not valid. `locate` describes where the
    texts at some positions come from. If no text can be encoded, the first result is None.
    """
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(text, []).append(row)
    search = _Search(list(rows), encode, lambda found: locate([rows[text][0] for text in found]))
    reasons = {row: reason for text, reason in search.run().items() for row in rows[text]}
    kept = [text for row, text in enumerate(texts) if row not in reasons]
    return search.join(kept), reasons


class _Search:
    """Encodes distinct texts; a list of texts that fails is halved until each bad text has failed alone."""

    def __init__(
        self,
        texts: list[str],
        encode: Callable[[list[str]], tuple[Encoded, Failures]],
        locate: Callable[[Sequence[str]], str],
    ) -> None:
        self._texts = texts
        self._encode = encode
        self._locate = locate
        self._parts: list[tuple[list[str], Encoded]] = []  # encoded texts and their vectors

    def run(self) -> dict[str, str]:
        """The texts to reject, with the reasons."""
        suspects = dict(self._find(self._texts)) if self._texts else {}
        if len(suspects) == len(self._texts) > 1:
            raise self._no_text_succeeds(next(iter(suspects.values())))
        return {text: reason for text in suspects for reason in self._fail_alone(text)}

    def join(self, texts: Sequence[str]) -> Encoded | None:
        """The encoded vectors of `texts`, in their order."""
        if not self._parts:
            return None
        (first_texts, first), *others = self._parts
        if not others and len(first_texts) == len(texts):  # all are distinct, and encoded in one call
            return first
        encoded_texts = [text for part_texts, _ in self._parts for text in part_texts]
        positions = {text: position for position, text in enumerate(encoded_texts)}
        order = np.array([positions[text] for text in texts], np.int64)
        names = ("embeddings", "n_tokens", "truncated")
        return Encoded(*(np.concatenate([getattr(part, name) for _, part in self._parts])[order] for name in names))

    def _find(self, texts: list[str]) -> Iterator[tuple[str, str]]:
        """The texts that failed alone once, with the reasons."""
        if len(texts) == 1:
            yield from ((texts[0], reason) for reason in self._fail_alone(texts[0]))
            return
        failures, raised = self._try(texts)
        if raised:
            middle = len(texts) // 2
            yield from self._find(texts[:middle])
            yield from self._find(texts[middle:])
        elif len(failures) == len(self._texts):  # none succeeded, so there is no need to try each alone
            self._check_encoder(texts, failures[0])
            raise self._no_text_succeeds(failures[0])
        else:
            for row in failures:
                yield from self._find([texts[row]])

    def _fail_alone(self, text: str) -> Iterator[str]:
        """The reason, if a text fails alone and the known-good text succeeds."""
        failures, _ = self._try([text])
        if failures:
            self._check_encoder([text], failures[0])
            yield failures[0]

    def _try(self, texts: list[str]) -> tuple[Failures, bool]:
        """Encodes texts together and keeps the valid vectors; returns the failures, and whether the encoder raised."""
        try:
            encoded, failures = self._encode(texts)
        except Exception as error:
            _FAILED_CALLS.inc()
            reason = describe_error(error)
            if isinstance(error, SbertBeamError) and not isinstance(error, TextError):
                raise type(error)(f"{error} (at {self._locate(texts)})") from error
            if is_machine_fault(error):
                where = self._locate(texts)
                raise JobError(f"the machine failed, not a text, at {where}: {reason}. {_ADVICE}") from error
            return dict.fromkeys(range(len(texts)), reason), True
        if not failures:
            self._parts.append((texts, encoded))
            return {}, False
        _FAILED_CALLS.inc()
        valid = [row for row in range(len(texts)) if row not in failures]
        if valid:
            arrays = (encoded.embeddings[valid], encoded.n_tokens[valid], encoded.truncated[valid])
            self._parts.append(([texts[row] for row in valid], Encoded(*arrays)))
        return failures, False

    def _check_encoder(self, texts: list[str], reason: str) -> None:
        """Fails the bundle if the known-good text fails too."""
        cause: Exception | None = None
        try:
            _, failures = self._encode([KNOWN_GOOD_TEXT])
        except Exception as error:
            failures, cause = {0: describe_error(error)}, error
        if failures:
            raise JobError(
                f"the encoder of this worker is broken: it failed at {self._locate(texts)} ({reason}), "
                f"and then on a known-good text ({failures[0]}). {_ADVICE}"
            ) from cause

    def _no_text_succeeds(self, reason: str) -> ModelError:
        return ModelError(
            f"the model cannot encode any of the {len(self._texts)} texts at {self._locate(self._texts)}, although it "
            f"encodes others: {reason}. Use another model or --precision, or remove these rows"
        )


def is_machine_fault(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a fault of the machine and so never of a text."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _MACHINE_TYPES):
            return True
        if isinstance(cause, RuntimeError) and _MACHINE_MESSAGE.search(str(cause)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def describe_error(error: BaseException) -> str:
    """An error in one short line that is the same in every run: no memory addresses, no folders of a machine."""
    message = _FOLDERS.sub("", _ADDRESS.sub("0x...", str(error)[: 10 * MAX_REASON_CHARACTERS]))
    printable = "".join(sign if sign.isprintable() else " " for sign in message)
    line = " ".join(f"{type(error).__name__}: {printable}".split()).removesuffix(":")
    return line if len(line) <= MAX_REASON_CHARACTERS else line[: MAX_REASON_CHARACTERS - 3] + "..."
