"""Policy files: schema, rows and policies in one file or several, sorted, and a database made of them.

``CREATE TABLE`` and ``CREATE INDEX`` are the schema, ``INSERT``, ``UPDATE`` and ``DELETE`` are rows, everything else is
policies; positions in errors stay those of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mgmt.errors import DataError, PolicyError
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import split_statements
from mgmt.state.database import Database

_SCHEMA = {"TABLE", "INDEX", "UNIQUE"}
_ROWS = {"INSERT", "UPDATE", "DELETE"}


@dataclass(frozen=True, slots=True)
class SourceStatement:
    """One statement of a text, from its first character to before its semicolon."""

    text: str
    position: Position
    words: tuple[str, ...]
    """The first two words, in upper case."""
    start: int
    end: int

    @property
    def is_schema(self) -> bool:
        return self.words[:1] == ("CREATE",) and self.words[1:2] != () and self.words[1] in _SCHEMA

    @property
    def is_rows(self) -> bool:
        return self.words[:1] != () and self.words[0] in _ROWS


@dataclass(frozen=True, slots=True)
class Sources:
    """Texts sorted by what their statements are for."""

    schema: tuple[SourceText, ...] = ()
    rows: tuple[SourceStatement, ...] = ()
    policies: tuple[SourceText, ...] = ()

    def __add__(self, other: Sources) -> Sources:
        return Sources(self.schema + other.schema, self.rows + other.rows, self.policies + other.policies)

    def database(self) -> Database:
        """A database in memory with this schema and these rows."""
        made = Database()
        self.fill(made)
        return made

    def fill(self, database: Database) -> None:
        """Load the schema and run the statements for rows.  Their errors carry the position of the statement."""
        for text in self.schema:
            database.load_schema(text.text, text.name)
        for statement in self.rows:
            try:
                database.execute(statement.text)
            except PolicyError as error:
                if error.position is None:
                    raise located(error, statement.position) from error
                raise


def located(error: PolicyError, position: Position) -> PolicyError:
    """The error, said to be at this position."""
    error.position = position
    error.args = (f"{position}: {error.args[0]}",)
    return error


def statements_of(text: SourceText) -> tuple[SourceStatement, ...]:
    """The statements of a text.  PolicySyntaxError when it is no SQL at all."""
    return tuple(
        SourceStatement(
            text.text[tokens[0].start : tokens[-1].end + 1],
            text.position(tokens[0].start),
            tuple(token.text.upper() for token in tokens[:2]),
            tokens[0].start,
            tokens[-1].end + 1,
        )
        for tokens in split_statements(text)
    )


def sorted_sources(texts: Iterable[SourceText]) -> Sources:
    """Sort the statements of texts by what they are for."""
    found = Sources()
    for text in texts:
        statements = statements_of(text)
        schema = [statement for statement in statements if statement.is_schema]
        rows = [statement for statement in statements if statement.is_rows]
        others = [statement for statement in statements if not statement.is_schema and not statement.is_rows]
        found += Sources(
            (blanked(text, [*rows, *others]),) if schema else (),
            tuple(rows),
            (blanked(text, [*schema, *rows]),) if others else (),
        )
    return found


def blanked(text: SourceText, statements: Iterable[SourceStatement]) -> SourceText:
    """The text with some statements replaced by blanks, so that what is left stands where it stood."""
    characters = list(text.text)
    for statement in statements:
        end = statement.end
        while end < len(characters) and characters[end].isspace():
            end += 1
        end = end + 1 if end < len(characters) and characters[end] == ";" else statement.end
        for place in range(statement.start, end):
            if characters[place] != "\n":
                characters[place] = " "
    return SourceText(text.name, "".join(characters))


def insert_tables(database: Database, tables: Mapping[str, object], place: str) -> set[str]:
    """Insert rows given as ``{"table": [{"column": value}]}``; the tables named.  DataError when they are not."""
    hint = 'write {"table": [{"column": value}]}; a file of one table\'s rows is called as the table, or NAME=FILE'
    for table, rows in tables.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise DataError(f"{place}: {table!r} is no list of rows", hint=hint)
        try:
            database.insert(table, rows)
        except PolicyError as error:
            wrong = getattr(error, "rows", ())[:1]
            number = next((f", row {number}" for number, row in enumerate(rows, 1) if row in wrong), "")
            error.say_of(f"{place}{number}")
            raise
    return {table.lower() for table in tables}
