"""Star expansion: ``*`` and ``table.*`` in a SELECT list, written out as the columns they stand for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import exp

from mgmt.errors import PolicySyntaxError, UnknownTableError
from mgmt.language.names.scopes import Scope
from mgmt.source_text import SourceText
from mgmt.sql.tokens import offset_of, position_of
from mgmt.sql.trees import unsupported

MOST_COLUMNS = 1_000
"""Of one view or constraint."""


def expand_stars(
    items: Sequence[exp.Expr], scope: Scope, merged: Collection[tuple[str, str]], text: SourceText
) -> list[exp.Expr]:
    """The list without stars.  ``merged``: (alias, column) of what USING has made one with a column before it."""
    outputs: list[exp.Expr] = []
    for item in items:
        table = item.table if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) else None
        if not isinstance(item, exp.Star) and table is None:
            outputs.append(item)
            continue
        _refuse_changes(item, item if table is None else item.this, text)
        wanted = None if table is None else table.lower()
        if wanted is not None and wanted not in scope:
            raise UnknownTableError(
                f"no relation {table!r} in FROM",
                position=position_of(item, text),
                hint=f"relations in FROM: {', '.join(source.alias for source in scope.values())}",
            )
        offset = offset_of(item)
        for alias, source in scope.items():
            if wanted in {None, alias}:
                outputs.extend(
                    _column_at(offset, column.name, source.alias)
                    for column in source.relation.columns
                    if not column.hidden and (wanted or (alias, column.name.lower()) not in merged)
                )
            if len(outputs) > MOST_COLUMNS:
                raise PolicySyntaxError(
                    f"* stands for more than {MOST_COLUMNS} columns",
                    position=position_of(item, text),
                    hint="name the columns that are used",
                )
    return outputs


def _refuse_changes(item: exp.Expr, star: exp.Expr, text: SourceText) -> None:
    """EXCEPT, REPLACE and RENAME of a star."""
    for name, given in sorted(star.args.items()):
        if given:
            raise unsupported(item, text, f"* {name.rstrip('_').upper()}", "name the columns")


def _column_at(offset: int | None, name: str, alias: str) -> exp.Column:
    """A column that stands where something else is written."""
    identifier = exp.to_identifier(name, quoted=True)
    if offset is not None:
        identifier.meta["start"] = offset
    return exp.column(identifier, table=exp.to_identifier(alias, quoted=True))
