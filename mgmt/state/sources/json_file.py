"""JSON files: a list of objects, a list as Kubernetes writes it, or objects one after another, one per line, say.

Python reads and writes them, so that what a plan does not change stays as it is, nested values too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgmt.errors import DataError
from mgmt.source_text import read_text
from mgmt.state.duckdb_access.values import stored
from mgmt.state.sources.files import File
from mgmt.state.sources.python_data import rows_of
from mgmt.state.sources.source import Change, Rows

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


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


class JsonFile(File):
    """A JSON file of one table."""

    def rows(self, name: str) -> Rows:
        return rows_of(self._objects()[0], self.place, self.loader)

    def write_to(self, path: Path, changes: Sequence[Change]) -> None:
        rows, whole = self._objects()
        for change in changes:
            _change(rows, change, self.place)
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        if isinstance(whole, dict):
            text = json.dumps(whole, ensure_ascii=False, indent=4) + "\n"
        else:
            text = "[" + ",\n ".join(lines) + "]\n" if whole is not None else "\n".join(lines) + "\n"
        path.write_text(text, encoding="utf-8")

    def _objects(self) -> tuple[list[dict[str, Any]], object]:
        """The objects, and what they are in if they are in anything."""
        found = json_values(read_text(self.path), self.place)
        if are_tables(found) and found[0]:
            raise DataError(
                f"{self.place} holds the rows of several tables: {', '.join(found[0])}",
                hint="write those of one, or for `rota policy` call it FILE.json",
            )
        rows, whole = rows_in(found)
        if not _are_rows(rows):
            raise DataError(
                f"{self.place} holds no rows", hint='write [{"column": value}], or an object per line'
            )
        return rows, whole


def _change(rows: list[dict[str, Any]], change: Change, place: str) -> None:
    spelt = {name.lower(): name for name in dict.fromkeys(name for row in rows for name in row)}
    if not any(name.lower() in spelt for name in change.columns):
        spelt[change.columns[-1].lower()] = change.columns[-1]
    targets = change.targets(spelt.values(), place)
    keys = [(spelt[name.lower()], change.table.column(name).type) for name in change.table.primary_key]
    for row in rows:
        value = change.values[tuple(stored(row[name], kind) for name, kind in keys)]
        row.update(dict.fromkeys(targets, value))
