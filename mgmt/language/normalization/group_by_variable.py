"""GROUP BY a variable: a SELECT of its domain to join with, and what that selects in place of the variable."""

from __future__ import annotations

from sqlglot import exp

from mgmt.language.names.catalog import Catalog, domain_sql
from mgmt.source_text import SourceText
from mgmt.sql.tokens import parse_tokens, tokenize


def domain_select(catalog: Catalog, table: str, column: str, *, nullable: bool) -> exp.Expr:
    """A SELECT of the values a variable column can take, as ``value``; NULL is a group, too."""
    text = SourceText("domain", domain_sql(catalog, table, column))
    domain = parse_tokens(tokenize(text), text)
    if not nullable:
        return domain
    nothing = exp.Select(expressions=[exp.alias_(exp.null(), "value")])
    return exp.Union(this=domain, distinct=False, expression=nothing)


def replace_columns(tree: exp.Expr, alias: str, name: str, value: exp.Expr) -> None:
    """Put ``value`` where a column of a source is spoken of, with the source's alias or without."""
    for column in list(tree.find_all(exp.Column)):
        if isinstance(column.this, exp.Star) or column.name.lower() != name.lower():
            continue
        if column.table and column.table.lower() != alias.lower():
            continue
        column.replace(value.copy())
