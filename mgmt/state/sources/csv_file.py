"""CSV files: separated by what their header is separated by, values in double quotes where they need them.

Nothing is guessed but the separator, so that a row with too many values is an error with its line, and 007 stays a text
where the schema says so.  An empty value is NULL, and ``""`` an empty text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from mgmt.errors import DataError, DuplicateNameError
from mgmt.state.schema import literal
from mgmt.state.sources.files import File
from mgmt.state.sources.source import Change, Rows, single_file

_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
_STRICT = "quote='\"', escape='\"', comment='', nullstr='', allow_quoted_nulls=false"


class CsvFile(File):
    """A CSV file with a header."""

    def rows(self, name: str) -> Rows:
        names, separator = self._header()
        listed = ", ".join(map(literal, names))
        typed = f"{single_file(str(self.path))}, skip=0, header=true, {_STRICT}, delim={literal(separator)}"
        return Rows(
            self.loader,
            csv_texts(str(self.path), names, separator),
            self.place,
            f"SELECT * FROM read_csv({typed}, names=[{listed}])",
        )

    def write_to(self, path: Path, changes: Sequence[Change]) -> None:
        names, separator = self._header()
        form = f"FORMAT csv, HEADER, DELIMITER {literal(separator)}, QUOTE '\"', ESCAPE '\"', NULLSTR ''"
        self.rewrite(csv_texts(str(self.path), names, separator), changes, path, form)

    def _header(self) -> tuple[Sequence[str], str]:
        """The names of the columns, and what separates them."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                bare = _QUOTED.sub("", file.readline())
                separator = max(_SEPARATORS, key=bare.count)
                file.seek(0)
                names = next(csv.reader(file, delimiter=separator), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(
                f"{self.place} is no CSV file: {error}", hint="save it as CSV, in UTF-8"
            ) from error
        if not names:
            raise DataError(f"{self.place} has no header", hint="name the columns in its first line")
        if len({name.lower() for name in names}) < len(names):
            raise DuplicateNameError(
                f"{self.place} has two columns of one name",
                hint="case does not tell columns apart: rename one",
            )
        return names, separator


def csv_texts(path: str, names: Sequence[str], separator: str = ",", *, header: bool = True) -> str:
    """A query for all values of a CSV file, as texts."""
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return (
        f"SELECT * FROM read_csv({single_file(path)}, auto_detect=false, header={header}, {_STRICT},"
        f" delim={literal(separator)}, columns={{{columns}}})"
    )
