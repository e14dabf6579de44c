"""Pinned rows: PINNED WHERE keeps rows at their values of today, by a constraint of its own.

Which rows these are is known before anything is decided; otherwise a row could be let go by being moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.language.bound_queries.queries import Predicate
from mgmt.language.names.scopes import Scope, Source
from mgmt.language.parsing.statements import Statement
from mgmt.language.parsing.trailing_clauses import Tail, TailKind
from mgmt.source_text import Position
from mgmt.state.schema import Schema


def pins_of(statement: Statement) -> Statement | None:
    """The statement that PINNED WHERE beside a demand, or as one, stands for: rows that keep their values."""
    tail, select = statement.tail, statement.select
    if tail is None or (tail.pinned is None and tail.kind is not TailKind.PINNED):
        return None
    if not isinstance(select, exp.Select) or select.args.get("distinct") or select.args.get("having"):
        raise UnsupportedConstructError(
            "cannot be encoded: PINNED WHERE beside UNION, DISTINCT or HAVING",
            position=tail.position,
            hint="pin in a constraint of its own: SELECT * FROM table PINNED WHERE condition",
        )
    condition = tail.expression if tail.kind is TailKind.PINNED else tail.pinned
    assert condition is not None
    select = select.copy()
    if select.args.get("group") or any(output.find(exp.AggFunc) for output in select.expressions):
        select.set("group", None)
        select.set("expressions", [exp.alias_(exp.Literal.number(1), "pinned")])
    beside = tail.kind is not TailKind.PINNED
    name = f"{statement.name}__pinned" if beside else statement.name
    pins = Tail(
        TailKind.PINNED,
        condition,
        tail.position,
        priority=tail.priority,
        reason=tail.reason,
        beside_demand=beside,
    )
    return replace(statement, name=name, select=select, tail=pins, strict_groups=False)


def rows_of(
    tail: Tail, predicates: Sequence[Predicate], condition: Sequence[Predicate], scope: Scope, schema: Schema
) -> list[Predicate]:
    """What chooses the pinned rows: the condition, and of the WHERE and ON around it what is constant.

    Beside a demand these are the demand's, in which the solver may have a say; of a constraint that only pins it is
    refused, as it is in the condition.
    """
    for source in scope.values():
        if source.relation.gated:
            raise _refused(tail.position, f"PINNED over {source.alias!r}, whose rows the solver decides")
    by_solver = [predicate for predicate in predicates if predicate.by_solver]
    refused = [predicate for predicate in condition if predicate.by_solver]
    refused += [] if tail.beside_demand else by_solver
    for predicate in refused:
        raise _refused(predicate.expression.position, "PINNED of rows that the solver chooses")
    if any(len(_aliases(predicate.tree)) > 1 for predicate in by_solver):
        # Without these joins a row of one table says nothing of one of another.
        owners = {alias for alias, source in scope.items() if _paired_variables(source, schema)}
        for predicate in condition:
            named = _aliases(predicate.tree)
            if named and (named - owners or len(owners) > 1):
                raise _refused(
                    predicate.expression.position, "PINNED WHERE over tables that the solver joins"
                )
    return [*(predicate for predicate in predicates if not predicate.by_solver), *condition]


def values_of_today(tail: Tail, scope: Scope, schema: Schema) -> exp.Expr:
    """Every variable of the tables in FROM is what it is today, if it is anything today."""
    parts: list[exp.Expr] = []
    for source in scope.values():
        for name, current in _paired_variables(source, schema):
            today = exp.column(current, table=source.alias, quoted=True)
            decided = exp.column(name, table=source.alias, quoted=True)
            same = exp.NullSafeEQ(this=decided, expression=today)
            nothing = exp.Is(this=today.copy(), expression=exp.null())
            parts.append(exp.Paren(this=exp.Or(this=same, expression=nothing)))
    if not parts:
        raise UnsupportedConstructError(
            "cannot be encoded: PINNED over rows that have no value of today",
            position=tail.position,
            hint="FROM needs a table whose variable column is paired with another (its name, or CURRENT column)",
        )
    return exp.and_(*parts, copy=False)


def _paired_variables(source: Source, schema: Schema) -> list[tuple[str, str]]:
    """The variables of a source's table that have a value of today, each with the column of that."""
    table = schema.find(source.relation.name)
    columns = table.variables if table is not None else ()
    return [(column.name, column.current) for column in columns if column.current is not None]


def _aliases(tree: exp.Expr) -> set[str]:
    return {column.table.lower() for column in tree.find_all(exp.Column) if column.table}


def _refused(position: Position, what: str) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"cannot be encoded: {what}",
        position=position,
        hint="choose by constant columns, in a constraint of its own: SELECT * FROM table PINNED WHERE condition",
    )
