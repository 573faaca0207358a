"""Text files as streams of UTF-8, whatever their encoding is."""

import codecs
import dataclasses
import io
from collections.abc import Callable
from typing import BinaryIO

from sbert_core.errors import DataError

OpenStream = Callable[[], BinaryIO]
"""Opens a file from its beginning; a file may be read more than once."""

_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t"}


class BadFileError(ValueError):
    """The content of a file cannot be read; the message has the reason, but not the name of the file."""


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """The encoding and the delimiter of text files, which their names do not show."""

    encoding: str = "utf-8"
    csv_delimiter: str = ","

    def __post_init__(self) -> None:
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            raise DataError(
                f"--encoding: Python has no text encoding {self.encoding!r}: use utf-8, latin-1 ..."
            ) from error
        object.__setattr__(self, "csv_delimiter", _DELIMITER_NAMES.get(self.csv_delimiter, self.csv_delimiter))
        delimiter = self.csv_delimiter
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0' or delimiter.isalnum():
            raise DataError(f"--csv_delimiter must be one character, such as ';' or 'tab', got {delimiter!r}")

    @property
    def is_utf8(self) -> bool:
        """Whether bytes need no decoding."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")


DEFAULT_FORMAT = TextFormat()


class _Utf8Stream(io.RawIOBase):
    """Reads a file of any encoding as UTF-8, without its byte order mark, followed by `tail`.

    The bytes of a UTF-8 file are not checked.
    """

    def __init__(self, file: BinaryIO, text_format: TextFormat, tail: bytes) -> None:
        self._file = file
        self._encoding = text_format.encoding
        self._decoder = None if text_format.is_utf8 else codecs.getincrementaldecoder(text_format.encoding)()
        self._tail: bytes | None = tail
        self._pending = b""
        self._is_start = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._pending and self._tail is not None:
            self._pending = self._next(len(buffer))
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _next(self, size: int) -> bytes:
        block = self._file.read(size)
        if self._is_start:
            while block and len(block) < 3 and (more := self._file.read(3 - len(block))):
                block += more
            if self._decoder is None and block.startswith(_UTF_16_MARKS):
                raise BadFileError("it is UTF-16, not UTF-8: see --encoding utf-16")
            if self._decoder is None:
                block = block.removeprefix(codecs.BOM_UTF8)
        is_end = not block and not self._is_start
        self._is_start = False
        if self._decoder is not None:
            try:
                block = self._decoder.decode(block, is_end).encode()
            except UnicodeError as error:
                raise BadFileError(f"it is not valid {self._encoding} ({error}): see --encoding") from error
        if is_end:
            block, self._tail = block + (self._tail or b""), None
        return block


def utf8_stream(file: BinaryIO, text_format: TextFormat, tail: bytes = b"") -> io.BufferedReader:
    """A file as UTF-8 without a byte order mark, followed by `tail`. Reads return all the bytes that are asked for."""
    return io.BufferedReader(_Utf8Stream(file, text_format, tail), 1 << 16)
