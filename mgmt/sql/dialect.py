"""The SQL dialect of schemas and policies: DuckDB's, in which the words that begin other statements are names.

A schema and a policy know CREATE alone.  The words that begin statements elsewhere (LOAD, CACHE, COMMENT, SHOW, ...)
are plain names here: a table may be called ``load``, and a condition may begin with it.

CONSTRAINT and the clauses that end a statement (CHECK, MAXIMIZE, ...) are cut off before
(``mgmt.language.parsing.statements``).
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType

_OURS = {TokenType.CREATE, TokenType.SEMICOLON}
# Words of queries too, which are reserved; and those of ON DELETE SET NULL, which may be names as they are.
_ALSO_INSIDE = {
    TokenType.END,
    TokenType.DESC,
    TokenType.FETCH,
    TokenType.DELETE,
    TokenType.UPDATE,
    TokenType.SET,
    TokenType.PIVOT,
    TokenType.UNPIVOT,
}
_OTHERS = (
    set(DuckDBParser.STATEMENT_PARSERS) | DuckDB.Tokenizer.COMMANDS | {TokenType.FUNCTION, TokenType.LOCK}
) - _OURS
_NAMES = {
    word for word, kind in DuckDB.Tokenizer.KEYWORDS.items() if kind in _OTHERS and kind not in _ALSO_INSIDE
}


class PolicyDialect(DuckDB):
    """What ``mgmt.sql.tokens`` reads."""

    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = (
            set()
        )  # after one of these, the rest of a statement would be a string
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind for word, kind in DuckDB.Tokenizer.KEYWORDS.items() if word not in _NAMES
        }

    class Parser(DuckDBParser):
        STATEMENT_PARSERS: ClassVar[dict[TokenType, Any]] = {
            kind: parse for kind, parse in DuckDBParser.STATEMENT_PARSERS.items() if kind in _OURS
        }
        SCHEMA_UNNAMED_CONSTRAINTS: ClassVar[set[str]] = {"CHECK", "FOREIGN KEY", "PRIMARY KEY", "UNIQUE"}


def duckdb_sql(tree: exp.Expr) -> str:
    """A tree as DuckDB reads it.  Every name is quoted, so that none is taken for a word."""
    text: str = tree.sql(dialect="duckdb", identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
    return text
