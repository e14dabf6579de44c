"""Split: what the database computes, and what is left to the solver.

Each bound query becomes one SQL statement over its variable-free part (all joins on constants, all constant
predicates, every constant expression) and a list of solver expressions over the columns it returns.  The rows
of that statement are the candidates: their groups are the possible groups, and the solver's predicates decide
which of them exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.language.bound import BoundQuery
from mgmt.language.expressions import DatabasePart, Expression, Fetched
from mgmt.state.schema import quote


@dataclass(frozen=True, slots=True)
class SplitQuery:
    """One query, ready for data.

    ``sql`` returns first the row number of each source in ``symbolic_sources``, then the fetched columns.
    ``keys`` are slots of fetched columns.
    """

    bound: BoundQuery
    sql: str
    symbolic_sources: tuple[str, ...]
    gates: tuple[Expression, ...]
    keys: tuple[int, ...] | None
    having: Expression | None
    outputs: tuple[tuple[str, Expression], ...]
    demand: Expression | None
    fetched: int

    @property
    def name(self) -> str:
        return self.bound.name


class _Collector:
    """Gives each distinct constant expression a slot in the database's answer."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def slot(self, tree: exp.Expr) -> int:
        return self.texts.setdefault(to_sql(tree), len(self.texts))

    def collect(self, expression: Expression) -> Expression:
        if isinstance(expression, DatabasePart):
            tree = expression.tree
            tree = tree.this if isinstance(tree, exp.Alias) else tree
            return Fetched(expression.type, expression.position, self.slot(tree))
        return expression.with_children(self.collect)


def split(bound: BoundQuery) -> SplitQuery:
    """Separate one bound query."""
    collector = _Collector()
    gates = tuple(collector.collect(p.expression) for p in bound.predicates if p.by_solver)
    keys = None if bound.keys is None else tuple(collector.slot(key.tree) for key in bound.keys)
    having = None if bound.having is None else collector.collect(bound.having.expression)
    demand = None if bound.demand is None else collector.collect(bound.demand.expression)
    wanted = bound.outputs
    if bound.demand is not None:
        # Only used to say which rows clash; what the solver decides is not needed for that.
        wanted = tuple(o for o in bound.outputs if isinstance(o.expression, DatabasePart))
    outputs = tuple((output.name, collector.collect(output.expression)) for output in wanted)
    symbolic = tuple(source.alias for source in bound.sources if source.relation.symbolic)
    return SplitQuery(
        bound,
        _database_sql(bound, symbolic, list(collector.texts)),
        symbolic,
        gates,
        keys,
        having,
        outputs,
        demand,
        len(collector.texts),
    )


def to_sql(tree: exp.Expr) -> str:
    """A tree in the database's dialect."""
    holder = exp.Paren(this=tree.copy())
    # Inner ones first: an outer one copies its operands.
    for node in reversed(list(holder.find_all(exp.Greatest, exp.Least))):
        node.replace(_extreme_for_sqlite(node))
    text: str = holder.this.sql(dialect="sqlite", comments=False)
    return text


def _extreme_for_sqlite(node: exp.Expr) -> exp.Expr:
    """greatest and least are scalar max and min there, of two or more operands."""
    operands = [node.this, *node.expressions]
    if len(operands) == 1:
        return exp.Paren(this=operands[0].copy())
    name = "max" if isinstance(node, exp.Greatest) else "min"
    return exp.Anonymous(this=name, expressions=[operand.copy() for operand in operands])


def from_clause(bound: BoundQuery) -> str:
    """FROM and joins, without the conditions of inner joins."""
    text = to_sql(bound.skeleton)
    start = text.upper().find("FROM ")
    return text[start:] if start >= 0 else ""


def _database_sql(bound: BoundQuery, symbolic: Sequence[str], texts: list[str]) -> str:
    columns = [f"{quote(alias)}._rowid_" for alias in symbolic]
    columns.extend(texts)
    conditions = [to_sql(p.tree) for p in bound.predicates if not p.by_solver]
    where = " WHERE " + " AND ".join(f"({c})" for c in conditions) if conditions else ""
    return f"SELECT {', '.join(columns) or '1'} {from_clause(bound)}{where}"
