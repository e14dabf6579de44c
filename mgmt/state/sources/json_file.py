"""JSON files: a list of objects, or an object per line.

Python reads and writes them, so that what a plan does not change stays as it is, nested values too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgmt.errors import DataError
from mgmt.state.duckdb_access.values import stored
from mgmt.state.sources.files import File
from mgmt.state.sources.python_data import rows_of
from mgmt.state.sources.source import Change, Rows


class JsonFile(File):
    """A JSON file of one table."""

    def rows(self, name: str) -> Rows:
        return rows_of(self._objects()[0], self.place, self.loader)

    def write_to(self, path: Path, changes: Sequence[Change]) -> None:
        rows, as_list = self._objects()
        for change in changes:
            _change(rows, change, self.place)
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        text = "[" + ",\n ".join(lines) + "]\n" if as_list else "\n".join(lines) + "\n"
        path.write_text(text, encoding="utf-8")

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


def _change(rows: list[dict[str, Any]], change: Change, place: str) -> None:
    spelt = {name.lower(): name for name in dict.fromkeys(name for row in rows for name in row)}
    if not any(name.lower() in spelt for name in change.columns):
        spelt[change.columns[-1].lower()] = change.columns[-1]
    targets = change.targets(spelt.values(), place)
    keys = [(spelt[name.lower()], change.table.column(name).type) for name in change.table.primary_key]
    for row in rows:
        value = change.values[tuple(stored(row[name], kind) for name, kind in keys)]
        row.update(dict.fromkeys(targets, value))
