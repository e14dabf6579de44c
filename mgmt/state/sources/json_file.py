"""JSON files: a list of objects, or an object per line.

Python reads them, nested values too.  A plan is spliced into the text, so that all else stays as it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from mgmt.errors import DataError
from mgmt.state.sources.files import Splice, TextFile, spliced
from mgmt.state.sources.python_data import rows_of
from mgmt.state.sources.source import Cell, Rows

_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\n\r\ufeff]*")
_BARE = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false")


class JsonFile(TextFile):
    """A JSON file of one table."""

    def rows(self, name: str) -> Rows:
        return rows_of(self._objects()[0], self.place, self.loader)

    def edited(self, text: str, column: str, cells: Sequence[Cell]) -> str:
        return Objects(text).edited(column, cells)

    def _objects(self) -> tuple[list[dict[str, Any]], bool]:
        """The objects, and whether they are a list."""
        text = self.path.read_text(encoding="utf-8")
        as_list = text.lstrip().startswith("[")
        try:
            lines = [line for line in text.splitlines() if line.strip()]
            found = json.loads(text) if as_list else [json.loads(line) for line in lines]
        except ValueError as error:
            raise DataError(f"{self.place} is no JSON: {error}", hint="mend it there") from error
        if not all(isinstance(row, dict) for row in found):
            raise DataError(
                f"{self.place} holds no rows", hint='write [{"column": value}], or an object per line'
            )
        return found, as_list


class Objects:
    """The objects of a JSON text, in a list or one after another."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = list[int]()
        at = self._after(0, "")
        at = self._after(at + 1, "") if text.startswith("[", at) else at
        while text.startswith("{", at):
            self._starts.append(at)
            at = self._after(self._end(at), ",")

    def edited(self, name: str, cells: Sequence[Cell]) -> str:
        """The text with these values of a member; places are numbers of objects."""
        others = (self._shown(number, name) for number in range(len(self._starts)))
        first = next((value for value in others if value not in {"", "null"}), "")
        return spliced(self._text, [self._change(cell, name, first) for cell in cells])

    def _change(self, cell: Cell, name: str, first: str) -> Splice:
        """A new value, as another object has it, if one does; a new member comes last, set apart as the one before."""
        value = self._spelt(cell, first) if cell.like is None else self._shown(cell.like, name)
        begin, members = self._starts[cell.place], list(self._members(cell.place))
        known = [(start, end) for each, _, start, end in members if each == name]
        if known:
            return *known[-1], value
        own = json.dumps(name, ensure_ascii=self._text.isascii())
        if not members:
            return begin + 1, begin + 1, f"{own}: {value}"
        *before, (_, at, start, end) = members
        colon = self._text[self._end(at) : start]
        comma = (
            self._text[before[-1][3] : at]
            if before
            else "," + (self._text[begin + 1 : at] or colon.partition(":")[2])
        )
        return end, end, comma + own + colon + value

    def _spelt(self, cell: Cell, first: str) -> str:
        """A value of the type that the column has, where it can be of that."""
        text = cell.spelt(first)
        if text is None:
            return "null"
        bare = not first.startswith('"') if first else not isinstance(cell.value, str)
        is_text = not bare or _BARE.fullmatch(text) is None
        return json.dumps(text, ensure_ascii=self._text.isascii()) if is_text else text

    def _shown(self, number: int, name: str) -> str:
        """What stands as the value of a member; of several of one name the last one counts."""
        found = [self._text[start:end] for each, _, start, end in self._members(number) if each == name]
        return found[-1] if found else ""

    def _members(self, number: int) -> Iterator[tuple[str, int, int, int]]:
        """The members of an object: a name and where it begins, and where its value begins and ends."""
        at = self._after(self._starts[number] + 1, "")
        while self._text.startswith('"', at):
            name, end = _DECODER.raw_decode(self._text, at)
            start = self._after(end, ":")
            end = self._end(start)
            yield name, at, start, end
            at = self._after(end, ",")

    def _end(self, at: int) -> int:
        """Where the value ends that begins here."""
        return _DECODER.raw_decode(self._text, at)[1]

    def _after(self, at: int, sign: str) -> int:
        """Where the next thing begins, after blanks and a sign."""
        blanks = _BLANKS.match(self._text, at)
        assert blanks is not None  # it matches nothing, too
        at = blanks.end()
        return self._after(at + 1, "") if sign and self._text.startswith(sign, at) else at
