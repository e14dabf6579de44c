"""The SQL dialect of schemas and policies: PostgreSQL's, in which the words that begin other statements are names.

A schema and a policy know CREATE alone.  The words that begin statements elsewhere (LOAD, CACHE, COMMENT, SHOW, ...)
are plain names here, as they are in PostgreSQL: a table may be called ``load``, and a condition may begin with it.

What it is not: it knows nothing of CONSTRAINT and the tails (see ``mgmt.language.syntax``), which are cut off before.
"""

from __future__ import annotations

from typing import Any, ClassVar

import apsw
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

_OURS = {TokenType.CREATE, TokenType.SEMICOLON}
# Words of queries too, which PostgreSQL reserves; and those of ON DELETE SET NULL, which may be names as they are.
_ALSO_INSIDE = {
    TokenType.END,
    TokenType.DESC,
    TokenType.FETCH,
    TokenType.DELETE,
    TokenType.UPDATE,
    TokenType.SET,
}
_OTHERS = (set(PostgresParser.STATEMENT_PARSERS) | Postgres.Tokenizer.COMMANDS | {TokenType.FUNCTION}) - _OURS
_NAMES = {
    word for word, kind in Postgres.Tokenizer.KEYWORDS.items() if kind in _OTHERS and kind not in _ALSO_INSIDE
}

NAMES_TO_QUOTE = frozenset(_NAMES | apsw.keywords)
"""In upper case: names that SQLite, or who reads SQL written for it, would take for a word of its own."""


class PolicyDialect(Postgres):
    """What ``mgmt.tokens`` reads."""

    class Tokenizer(Postgres.Tokenizer):
        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []  # which SQLite does not know
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
            **Postgres.Tokenizer.SINGLE_TOKENS,
            "$": TokenType.PARAMETER,
        }
        COMMANDS: ClassVar[set[TokenType]] = (
            set()
        )  # after one of these, the rest of a statement would be a string
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind for word, kind in Postgres.Tokenizer.KEYWORDS.items() if word not in _NAMES
        }

    class Parser(PostgresParser):
        STATEMENT_PARSERS: ClassVar[dict[TokenType, Any]] = {
            kind: parse for kind, parse in PostgresParser.STATEMENT_PARSERS.items() if kind in _OURS
        }
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            name: made
            for name, made in PostgresParser.FUNCTIONS.items()
            if not name.startswith("JSON_EXTRACT")
        }  # each database has its own, under other names
        LAMBDAS: ClassVar[dict[TokenType, Any]] = {
            kind: parse for kind, parse in PostgresParser.LAMBDAS.items() if kind is not TokenType.ARROW
        }  # in coalesce(labels -> 'n', 'none') it is an operator as elsewhere
        JSON_OPERATORS: ClassVar[dict[TokenType, Any]] = {
            **PostgresParser.JSON_OPERATORS,
            TokenType.ARROW: lambda _, this, name: exp.JSONExtract(this=this, expression=name),
            TokenType.DARROW: lambda _, this, name: exp.JSONExtractScalar(this=this, expression=name),
        }  # names stay as they are written
        SCHEMA_UNNAMED_CONSTRAINTS: ClassVar[set[str]] = {"CHECK", "FOREIGN KEY", "PRIMARY KEY", "UNIQUE"}
