"""JSON files: a list of objects, a list as Kubernetes writes it, or objects one after another, one per line, say.

Python reads them, nested values too.  A plan is spliced into the text, so that all else stays as it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from math import isinf
from typing import Any

from mgmt.errors import DataError
from mgmt.source_text import MARK, read_text
from mgmt.state.sources.files import Splice, TextFile, spliced
from mgmt.state.sources.python_data import rows_of
from mgmt.state.sources.source import Cell, Rows

_BARE = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false")

_BLANK = re.compile(r"[ \t\r\n]*")
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")


def _fraction(text: str) -> float | str:
    """A number with a point or an exponent; its text where a double would be another whole number, or infinite."""
    value, whole = float(text), _WHOLE.fullmatch(text)
    return text if isinf(value) or (whole is not None and int(whole[1]) != value) else value


# NaN stays a text, too, as in CSV: as a float it would be no value.
_DECODER = json.JSONDecoder(parse_float=_fraction, parse_constant=str)


def json_values(text: str, place: str) -> list[Any]:
    """The JSON values of a text, one after another.  DataError with line and column where it is none."""
    values: list[Any] = []
    end = 0
    try:
        while (start := _end_of_blank(text, end)) < len(text):
            value, end = _DECODER.raw_decode(text, start)
            values.append(value)
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
        if (line := _line(text, start)) != error.lineno:
            reason += f", in what begins in line {line}"
    except (ValueError, RecursionError):
        line = _line(text, start)
        reason = f"what begins in line {line} is nested too deeply, or has a number of thousands of digits"
    else:
        return values
    raise DataError(f"{place} is no JSON: {reason}", hint="mend it there")


def are_tables(values: Sequence[Any]) -> bool:
    """Whether it is one object, ``{"table": [{"column": value}]}``: the rows of several tables."""
    return len(values) == 1 and isinstance(values[0], dict) and all(map(_are_rows, values[0].values()))


def rows_in(values: list[Any]) -> tuple[list[Any], object]:
    """The rows among JSON values, and the list they are in, or the object around that, or None."""
    match values:
        case [list() as rows]:
            return rows, rows
        case [{"kind": str(), "items": list() as rows} as whole]:  # as ``kubectl get -o json`` has it
            return rows, whole
    return values, None


def _are_rows(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _end_of_blank(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    assert found is not None, "it matches nothing, too"
    return found.end()


class JsonFile(TextFile):
    """A JSON file of one table."""

    def rows(self, name: str) -> Rows:
        return rows_of(self._objects()[0], self.place, self.loader)

    def edited(self, text: str, column: str, cells: Sequence[Cell]) -> str:
        _, whole = self._objects()
        return Objects(text, "items" if isinstance(whole, dict) else "").edited(column, cells)

    def _objects(self) -> tuple[list[dict[str, Any]], object]:
        """The objects, and what they are in if they are in anything."""
        found = json_values(read_text(self.path), self.place)
        if are_tables(found) and found[0]:
            raise DataError(
                f"{self.place} holds the rows of several tables: {', '.join(found[0])}",
                hint="write those of one, or for `rota policy` call it FILE.json",
            )
        rows, whole = rows_in(found)
        for number, row in enumerate(rows, 1):
            if not isinstance(row, dict):
                raise DataError(
                    f"{self.place} holds no rows: value {number} is no object",
                    hint='write [{"column": value}], or an object per line',
                )
        return rows, whole


class Objects:
    """The objects of a JSON text, in a list or one after another."""

    def __init__(self, text: str, member: str = "") -> None:
        """``member``: of the one object that the text is, the one that holds the list."""
        self._text = text
        self._starts = list[int]()
        at = self._after(int(text.startswith(MARK)), "")
        if member:
            at = max(start for name, _, start, _ in self._members(at) if name == member)
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
        begin = self._starts[cell.place]
        members = list(self._members(begin))
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
        found = [
            self._text[start:end]
            for each, _, start, end in self._members(self._starts[number])
            if each == name
        ]
        return found[-1] if found else ""

    def _members(self, begin: int) -> Iterator[tuple[str, int, int, int]]:
        """The members of the object there: a name and where it begins, and where its value begins and ends."""
        at = self._after(begin + 1, "")
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
        at = _end_of_blank(self._text, at)
        return self._after(at + 1, "") if sign and self._text.startswith(sign, at) else at
