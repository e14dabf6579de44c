"""CSV files: separated by what their header is separated by, values in double quotes where they need them.

Nothing is guessed but the separator, so that a row with too many values is an error with its line, and 007 stays a text
where the schema says so.  An empty value is NULL, and ``""`` an empty text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from mgmt.errors import DataError, DuplicateNameError
from mgmt.state.schema import literal
from mgmt.state.sources.files import MARK, Splice, TextFile, spliced
from mgmt.state.sources.source import Cell, Rows, single_file

_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
_STRICT = "quote='\"', escape='\"', comment='', nullstr='', allow_quoted_nulls=false"


class CsvFile(TextFile):
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

    def edited(self, text: str, column: str, cells: Sequence[Cell]) -> str:
        names, separator = self._header()
        return Records(text, separator, len(names)).edited(names, column, cells)

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


class Records:
    """The records of a CSV text, the header first.  A blank line is none, unless there is one column only."""

    def __init__(self, text: str, separator: str, width: int) -> None:
        self._text, self._separator = text, separator
        between = re.escape(separator)
        value = rf'(?: *+"(?:[^"]++|"")*+"[^{between}\r\n]*+|[^{between}\r\n]*+)'
        self._value = re.compile(value)
        record = re.compile(rf"({value}(?:{between}{value})*+)(?:\r\n|\r|\n|\Z)")
        spans = (found.span(1) for found in record.finditer(text, 1 if text.startswith(MARK) else 0))
        self._spans = [
            (start, end)
            for start, end in spans
            if start < len(text) and (width == 1 or text[start:end].strip(" "))
        ]

    def edited(self, names: Sequence[str], column: str, cells: Sequence[Cell]) -> str:
        """The text with these values; places are numbers of records, without the header."""
        if column in names:
            changes = list(self._replaced(names.index(column), cells))
        else:
            added = {0: column, **{cell.place + 1: cell.text for cell in cells}}
            changes = [
                (end, end, self._separator + self._spelt(added.get(number)))
                for number, (_, end) in enumerate(self._spans)
            ]
        return spliced(self._text, changes)

    def _replaced(self, at: int, cells: Sequence[Cell]) -> Iterator[Splice]:
        """Values as other records have them; else in quotes where the one before is, or the first of the column."""
        others = (self._shown(record, at) for record in range(1, len(self._spans)))
        first = next(filter(None, others), "")
        for cell in cells:
            start, end = self._values(cell.place + 1)[at]
            before = (self._text[start:end] or first).strip()
            spelt = self._spelt(cell.spelt(before.strip('"')), quoted=before.startswith('"'))
            yield start, end, spelt if cell.like is None else self._shown(cell.like + 1, at)

    def _values(self, record: int) -> list[tuple[int, int]]:
        """Where the values of a record are."""
        (start, end), found = self._spans[record], list[tuple[int, int]]()
        while start <= end and (value := self._value.match(self._text, start, end)) is not None:
            found.append(value.span())
            start = value.end() + 1
        return found

    def _shown(self, record: int, at: int) -> str:
        start, end = self._values(record)[at]
        return self._text[start:end]

    def _spelt(self, text: str | None, *, quoted: bool = False) -> str:
        if text is None:
            return ""
        special = {self._separator, '"', "\r", "\n"} & set(text)
        if quoted or special or not text or text != text.strip():
            return '"' + text.replace('"', '""') + '"'
        return text
