"""Variable columns of a table: declared by comments or prefix, bounded by CHECKs, with rules for the solver.

The database cannot uphold a CHECK or a foreign key over what is not decided yet; these become rules for the solver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from mgmt.errors import (
    OverflowError,  # noqa: A004 - the published name
    PolicySyntaxError,
    UnknownColumnError,
)
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import position_of
from mgmt.state.schema import Column, SqlType, Table, VariableRule, quote
from mgmt.state.schema_parsing.column_bounds import LARGEST, bounds, range_sql


def declared_variables(comments: Sequence[str]) -> tuple[str, ...]:
    """The columns that comments of the OSDI form declare: ``-- @variable_columns (a, b)``, without their tables."""
    lists = re.findall(r"@variable_columns\s*\(([^)]*)\)", " ".join(comments), flags=re.IGNORECASE)
    return tuple(
        name.strip().rpartition(".")[2] for text in lists for name in text.split(",") if name.strip()
    )


def names_variable(check: exp.Expr, columns: Sequence[Column]) -> bool:
    """Whether a CHECK speaks of a variable column."""
    variable = {column.name.lower() for column in columns if column.is_variable}
    return any(column.name.lower() in variable for column in check.find_all(exp.Column))


def declare(columns: list[Column], declared: Sequence[str], position: Position) -> None:
    """Make the columns variable that a comment says are."""
    for name in declared:
        place = next((p for p, column in enumerate(columns) if column.name.lower() == name.lower()), None)
        if place is None:
            raise UnknownColumnError(
                f"@variable_columns names {name!r}, which the table does not have",
                position=position,
                hint=f"it has {', '.join(column.name for column in columns)}",
            )
        columns[place] = replace(columns[place], declared=True)


def rules_of(
    table: Table, checks: Sequence[exp.Expr], source: SourceText, position: Position
) -> tuple[VariableRule, ...]:
    """What the database cannot uphold, because it speaks of variables."""
    rules = []
    for check in checks:
        if names_variable(check, table.columns):
            text = check.sql(dialect="duckdb")
            rules.append(VariableRule(f"CHECK ({text}) of {table.name}", text, position_of(check, source)))
    variable = {column.name.lower() for column in table.variables}
    for key in table.foreign_keys:
        beside_domain = any(
            column.domain is not None and [name.lower() for name in key.columns] == [column.name.lower()]
            for column in table.variables
        )
        if beside_domain or (len(key.columns) > 1 and variable & {name.lower() for name in key.columns}):
            own, referenced = ", ".join(map(quote, key.columns)), ", ".join(map(quote, key.referenced))
            condition = f"({own}) IN (SELECT {referenced} FROM {quote(key.table)})"
            if not key.referenced:
                raise PolicySyntaxError(
                    f"the foreign key ({own}) must name the columns it refers to",
                    position=position,
                    hint="write REFERENCES t (c)",
                )
            name = f"FOREIGN KEY ({', '.join(key.columns)}) of {table.name}"
            rules.append(VariableRule(name, condition, position))
    return tuple(rules)


def bounded(column: Column, checks: Sequence[exp.Expr]) -> Column:
    """An integer variable without a domain has the one that the checks bound."""
    if not column.is_variable or column.type is not SqlType.INTEGER or column.domain is not None:
        return column
    low, high = bounds(column.name, checks)
    if low is None or high is None:
        return column
    if max(abs(low), abs(high)) > LARGEST:
        raise OverflowError(
            f"variable column {column.name!r} may reach {max(-low, high)}, beyond exact 64-bit integers",
            position=column.position,
            hint="use a larger unit",
        )
    return replace(column, domain=range_sql(low, high), range=(low, high))
