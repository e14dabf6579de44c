"""Domains that policies imply: a CHECK of every row of a table bounds its columns, wherever it is written.

It is for integer variables whose schema gives no set of values; what bounds them is in
``mgmt.state.schema_parsing.column_bounds``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from mgmt.errors import UnboundedDomainError
from mgmt.language.parsing.statements import Statement, parse_statements
from mgmt.language.parsing.trailing_clauses import TailKind
from mgmt.source_text import SourceText
from mgmt.sql.tokens import parse_tokens, tokenize
from mgmt.state.schema import Column, Schema, Table
from mgmt.state.schema_parsing.variable_columns import bounded


def with_implied_domains(schema: Schema, texts: Iterable[SourceText]) -> Schema:
    """The schema with a domain for each variable; UnboundedDomainError for one that nothing bounds."""
    if not any(column.is_unbounded for table in schema.tables for column in table.columns):
        return schema
    statements = [statement for text in texts for statement in parse_statements(text)]
    tables = [
        replace(table, columns=tuple(_bounded(column, table, statements) for column in table.columns))
        for table in schema.tables
    ]
    return replace(schema, tables=tuple(tables))


def _bounded(column: Column, table: Table, statements: Iterable[Statement]) -> Column:
    if not column.is_unbounded:
        return column
    rules = [SourceText(rule.name, rule.condition) for rule in table.rules]
    checks = [parse_tokens(tokenize(rule), rule) for rule in rules]
    found = bounded(column, [*checks, *_checks_of_rows(table, column, statements)])
    if found.is_unbounded:
        raise UnboundedDomainError(
            f"variable column {column.name!r} has no finite set of values",
            position=column.position,
            hint="add REFERENCES table (column), DOMAIN (SELECT ...), or for integers CHECK (x BETWEEN 0 AND 9)",
        )
    return found


def _checks_of_rows(table: Table, column: Column, statements: Iterable[Statement]) -> Iterator[exp.Expr]:
    """What must hold of the column in every row of the table."""
    for statement in statements:
        select, tail = statement.select, statement.tail
        if tail is None or tail.kind is not TailKind.CHECK or tail.soft or tail.pinned is not None:
            continue
        clauses = {name for name, value in select.args.items() if value}
        if not isinstance(select, exp.Select) or clauses - {"expressions", "from_"} or "from_" not in clauses:
            continue
        source = select.args["from_"].this
        renamed = any(
            isinstance(each, exp.Alias) and each.alias == column.name for each in select.expressions
        )
        if isinstance(source, exp.Table) and source.name.lower() == table.name.lower() and not renamed:
            yield tail.expression
