"""Source texts and positions in them: files, lines and columns.

Every token keeps the offset of its first character, so that each error can point at its cause.  What people write is
read here, by ``read_text`` or ``decoded``: packed or not, with a byte order mark or without.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

# A text longer than this is refused anyway, so no table of its lines is made.
_LONG = 1_000_000
# By their byte order marks; that of UTF-32 begins with that of UTF-16.
MARK = "\ufeff"
_ENCODINGS = {
    BOM_UTF32_LE: "utf-32-le",
    BOM_UTF32_BE: "utf-32-be",
    BOM_UTF16_LE: "utf-16-le",
    BOM_UTF16_BE: "utf-16-be",
}
# Modules that unpack a file, by what it begins with.
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\0": "lzma",
    **{b"BZh%d1AY&SY" % level: "bz2" for level in range(1, 10)},
}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a policy text.  Line and column count from 1, as editors do."""

    source: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class SourceText:
    """One named text (a file of a policy pack, or a string given by a caller)."""

    name: str
    text: str
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.removeprefix(MARK))  # of who has read it as UTF-8
        starts = [0]
        if len(self.text) <= _LONG:
            starts.extend(match.end() for match in re.finditer("\n", self.text))
        object.__setattr__(self, "_line_starts", tuple(starts))

    def offset(self, position: Position) -> int:
        """The character offset of a line and a column."""
        if len(self.text) > _LONG:
            return 0
        return self._line_starts[position.line - 1] + position.column - 1

    def position(self, offset: int) -> Position:
        """The line and column of a character offset."""
        offset = max(0, min(offset, len(self.text)))
        if len(self.text) > _LONG:
            before = self.text[:offset]
            return Position(self.name, before.count("\n") + 1, offset - before.rfind("\n"))
        line = bisect_right(self._line_starts, offset)
        return Position(self.name, line, offset - self._line_starts[line - 1] + 1)


class UnreadableTextError(ValueError):
    """A file is no text, or is packed and damaged.  The message says where, and with the hint what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} ({hint})")
        self.message, self.hint = message, hint


def read_text(path: Path, most: int = -1) -> str:
    """The text of a file; of a longer one so many bytes, which may end within a character.

    Raises OSError, and UnreadableTextError for what is no text.
    """
    return decoded(read_bytes(path, most))


def read_bytes(path: Path, most: int = -1) -> bytes:
    """What a file holds, unpacked; at most so many bytes.  Raises OSError, and UnreadableTextError."""
    with path.open("rb") as file:
        head = file.peek(len(_ZSTANDARD))
        if head.startswith(_ZSTANDARD):
            raise UnreadableTextError("it is packed by zstd, which is not read", "unpack it: zstd -d")
        packed = next((module for mark, module in _PACKED.items() if head.startswith(mark)), None)
        if packed is None:
            return file.read(most)
        unpacking: Any = import_module(packed)
        try:
            content: bytes = unpacking.open(file).read(most)
        except Exception as error:  # each of the modules has classes of its own
            raise UnreadableTextError(f"it cannot be unpacked: {error}", "pack it again") from error
        return content


def encoding_of(content: bytes) -> str:
    """UTF-8, or what the byte order mark says; the mark is a character of the text then."""
    return next((name for mark, name in _ENCODINGS.items() if content.startswith(mark)), "utf-8")


def decoded(content: bytes) -> str:
    """The text that bytes are: in UTF-8, or in what their byte order mark says.  Raises UnreadableTextError."""
    wrong = ""
    try:
        text = content.decode(encoding_of(content)).removeprefix(MARK)
    except UnicodeDecodeError as error:
        text = error.object[: error.start].decode(error.encoding).removeprefix(MARK)
        wrong = f"byte {error.object[error.start : error.end].hex(' ')} is no {error.encoding.upper()}"
    if "\0" in text:
        text, wrong = text.partition("\0")[0], "a NUL is in no text"
    if wrong:
        place = f"line {text.count(chr(10)) + 1}, column {len(text) - text.rfind(chr(10))}"
        raise UnreadableTextError(f"{place}: {wrong}", "save it as UTF-8")
    return text
