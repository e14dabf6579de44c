"""CSV files: separated by what their header is separated by, values in double quotes where they need them.

Nothing is guessed but the separator, so that a row with too many values is an error with its line, and 007 stays a text
where the schema says so.  An empty value is NULL, and ``""`` an empty text.

Spreadsheets and libraries leave things at the edges: a line ``sep=;``, columns without a name, separators behind the
last value, line ends of two kinds.  None of that is a value, and none is refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgmt.errors import DataError
from mgmt.source_text import MARK, decoded, read_bytes
from mgmt.state.schema import literal, quote
from mgmt.state.sources.files import Splice, TextFile, spliced
from mgmt.state.sources.source import Cell, Rows, require_distinct, single_file

_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
_END = re.compile(r"\r\n?|\n")
_SAID = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_BEFORE = re.compile(rf"{MARK}?(?:{_SAID.pattern})?[\r\n]*", re.IGNORECASE)
_LONGEST = 64 << 20
"""Bytes of a row."""
_STRICT = "quote='\"', escape='\"', comment='', nullstr='', allow_quoted_nulls=false"


@dataclass(frozen=True, slots=True)
class _Header:
    """What a CSV file begins with."""

    names: Sequence[str]
    """Of all columns; empty where one has none."""
    separator: str
    records: int
    """So many rows, the names among them, stand before the first row of values."""


class CsvFile(TextFile):
    """A CSV file with a header."""

    def rows(self, name: str) -> Rows:
        content = read_bytes(self.path)
        text = decoded(content)
        header = _header(text, self.place)
        path = self.plain(_with_one_line_end(text, header.separator).encode())
        return Rows(
            self.loader,
            csv_texts(path, header.names, header.separator, header.records),
            self.place,
            are_texts=True,
            fault=lambda: _fault(decoded(read_bytes(self.path)), header),
        )

    def edited(self, text: str, column: str, cells: Sequence[Cell]) -> str:
        header = _header(text.removeprefix(MARK), self.place)
        return Records(text, header.separator, len(header.names)).edited(header.names, column, cells)


def _header(text: str, place: str) -> _Header:
    lines = (match[0] for match in _LINE.finditer(text))
    first = next(lines)
    said = _SAID.fullmatch(first)
    if said is not None:
        first = next(lines, "")
    blank = 0
    while first and not first.strip("\r\n"):
        blank += 1
        first = next(lines, "")
    bare = _QUOTED.sub("", first)
    separator = said[1] if said is not None else max(_SEPARATORS, key=bare.count)
    try:
        cells = next(csv.reader(_after(first, lines), delimiter=separator), [])
    except csv.Error as error:
        raise DataError(f"{place}: the header is none: {error}", hint="save it as CSV, in UTF-8") from error
    names = [name.strip() for name in cells]
    require_distinct(names, place)
    if not any(names):
        raise DataError(f"{place} has no header", hint="name the columns in its first line")
    return _Header(names, separator, blank + 1 + (said is not None))


def _after(first: str, others: Iterator[str]) -> Iterator[str]:
    yield first
    yield from others


def _with_one_line_end(text: str, separator: str) -> str:
    """The same, in which rows end as DuckDB wants it: all in the same way."""
    ends = {text.count(end) for end in ("\r\n", "\r", "\n")}
    if len(ends) == 1 or "\r" not in text or "\n" not in text:
        return text
    quoted_or_end = re.compile(rf'(?<![^{re.escape(separator)}\r\n])"(?:[^"]|"")*"|\r\n?')
    return quoted_or_end.sub(lambda found: found[0] if found[0].startswith('"') else "\n", text)


def _fault(text: str, header: _Header) -> str | None:
    """Which row is no row of these columns, and why: DuckDB says it in words of its own, and counts rows as lines."""
    other = f"[^{re.escape(header.separator)}\r\n]*"
    cell = re.compile(f' *"(?:[^"]|"")*+"(?P<after>{other})|(?P<open> *"){other}|{other}')
    width, place, records, line = len(header.names), 0, 0, 1
    while place < len(text):
        begin, where, cells = place, f"line {line}", list[re.Match[str]]()
        while not cells or text.startswith(header.separator, place):
            found = cell.match(text, place + bool(cells))
            assert found is not None, "it matches nothing, too"
            cells.append(found)
            place = found.end()
        end = _END.match(text, place)
        place = len(text) if end is None else end.end()
        line += len(_END.findall(text, begin, place))
        records += 1
        if records <= header.records or (len(cells) == 1 and not cells[0][0]):
            continue
        for name, found in zip(header.names, cells, strict=False):
            if found["open"]:
                return f"{where}, column {name!r}: the double quote that begins the value has no end"
            if (found["after"] or "").strip(" "):
                return f"{where}, column {name!r}: {found['after']!r} stands behind the quote that ends the value"
        while len(cells) > width and not cells[-1][0]:
            cells.pop()
        if len(text[begin:place].encode()) > _LONGEST:
            return f"{where}: the row is longer than {_LONGEST >> 20} MiB"
        if len(cells) != width:
            return f"{where}: {len(cells)} value(s) for {width} column(s)"
    return None


def csv_texts(path: str, names: Sequence[str], separator: str = ",", skipped: int = 0) -> str:
    """A query for all values of a CSV file, as texts; columns without a name are left out."""
    columns = ", ".join(f"c{place}: 'VARCHAR'" for place in range(len(names)))
    named = ", ".join(f"c{place} AS {quote(name)}" for place, name in enumerate(names) if name)
    return (
        f"SELECT {named} FROM read_csv({single_file(path)}, auto_detect=false, compression='none', header=false,"
        f" skip={skipped}, max_line_size={_LONGEST}, buffer_size={_LONGEST}, {_STRICT},"
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
        before = _BEFORE.match(text)
        assert before is not None, "it matches nothing, too"
        spans = (found.span(1) for found in record.finditer(text, before.end()))
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
