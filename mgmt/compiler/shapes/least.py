"""The least of a family of groups beside each group of it: a grouped view, and a view with its minima joined to it.

    SELECT load.team, load.rack FROM load JOIN least ON least.team = load.team CHECK load.tasks - least.tasks <= 1

where ``least`` is ``SELECT team, min(tasks) AS tasks FROM load GROUP BY team``.  The minimum is of all the groups that
the join's keys do not tell apart, so the query is one over the groups of ``load`` with an expression for it.

What it is not: it decides nothing about amounts (see ``skews``), and finds no other joins of grouped views.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.language.bound_queries.expressions import Aggregate, AggregateFunction, DatabasePart, Expression
from mgmt.language.bound_queries.queries import BoundQuery


@dataclass(frozen=True, slots=True, eq=False)
class Least(Expression):
    """The least that an expression over a group is in the groups with the same keys; NULLs are left out."""

    operand: Expression
    keys: tuple[Expression, ...]
    of_groups: bool = False
    """Groups with NULL in a key are a family, too; a join finds none for them."""

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand, *self.keys)

    def with_children(self, change: Callable[[Expression], Expression]) -> Expression:
        return replace(self, operand=change(self.operand), keys=tuple(map(change, self.keys)))


@dataclass(frozen=True, slots=True)
class Minima:
    """A view of minima over the groups of another view, joined to these."""

    alias: str
    groups: str
    """The alias of the view it is joined to."""
    inner: str
    """The alias of that view inside it."""
    keys: tuple[str, ...]
    """Columns of the view of groups."""
    columns: Mapping[str, str]
    """Outputs that are keys."""
    minima: Mapping[str, Aggregate]
    """Outputs that are minima."""

    def outputs(
        self, groups: Mapping[str, Expression], over: Callable[[Expression], Expression]
    ) -> dict[str, Expression]:
        """What its columns stand for; ``over`` puts the outputs of the groups into an expression on them."""
        keys = tuple(groups[key] for key in self.keys)
        found = {name: groups[column] for name, column in self.columns.items()}
        for name, one in self.minima.items():
            assert one.operand is not None
            found[name] = Least(one.type, one.position, over(one.operand), keys)
        return found


def minima_in(query: BoundQuery, views: Mapping[str, BoundQuery]) -> Minima | None:
    """The view of minima that a CHECK joins to the view it is over, by all its keys and nothing else; None: neither."""
    if query.demand is None or query.demand.is_objective or query.keys is not None or len(query.sources) != 2:
        return None
    for one, other in (query.sources, query.sources[::-1]):
        view = views.get(one.relation.name.lower())
        if view is None or len(view.sources) != 1:
            continue
        if view.sources[0].relation.name.lower() != other.relation.name.lower():
            continue
        found = _minima_of(view, one.alias.lower(), other.alias.lower())
        if found is not None and _joined_by_keys(query, found):
            return found
    return None


def _minima_of(view: BoundQuery, alias: str, groups: str) -> Minima | None:
    if not view.keys or view.predicates or view.having is not None or view.strict_groups:
        return None
    keys = [_plain_column(key.tree) for key in view.keys]
    columns: dict[str, str] = {}
    minima: dict[str, Aggregate] = {}
    for output in view.outputs:
        part = output.expression
        key = _plain_column(part.tree) if isinstance(part, DatabasePart) else None
        if key is not None and key in keys:
            columns[output.name.lower()] = key[1]
        elif (
            isinstance(part, Aggregate)
            and part.function is AggregateFunction.MINIMUM
            and part.condition is None
        ):
            minima[output.name.lower()] = part
        else:
            return None
    names = tuple(key[1] for key in keys if key is not None)
    if len(names) < len(keys) or not minima:
        return None
    return Minima(alias, groups, view.sources[0].alias.lower(), names, columns, minima)


def _joined_by_keys(query: BoundQuery, minima: Minima) -> bool:
    joined = set()
    for predicate in query.predicates:
        names = equal_columns(predicate.tree)
        if set(names) != {minima.alias, minima.groups}:
            return False
        if minima.columns.get(names[minima.alias]) != names[minima.groups]:
            return False
        joined.add(names[minima.groups])
    return joined == set(minima.keys)


def equal_columns(tree: exp.Expr) -> dict[str, str]:
    """Alias and name of the plain columns that a condition says are equal."""
    tree = tree.unalias().unnest()
    sides = [_plain_column(tree.this), _plain_column(tree.expression)] if isinstance(tree, exp.EQ) else []
    return dict(side for side in sides if side is not None)


def _plain_column(tree: exp.Expr) -> tuple[str, str] | None:
    """Alias and name of a plain column."""
    tree = tree.unalias()
    return (tree.table.lower(), tree.name.lower()) if isinstance(tree, exp.Column) else None
