"""Queries whose rows and values can be fetched each for themselves, as nothing but ``choice = key`` joins them.

``pod JOIN node ON pod.variable__node = node.name`` has a candidate row for each pod and node.  What is asked of them
where they are counted and summed in groups, or where no row may be, is known from the pods and from the nodes alone.
Conditions between both sides, and what is computed of both, need no candidates either, only *classes*: the different
values, on each side, of the columns that they read.  A *flag* is a boolean that is decided in the same rows: what it is
a condition of is asked of the rows in which it holds alone.

What it is not: nothing is fetched here (see ``mgmt.compiler.encoding.products``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Case,
    Cell,
    Comparison,
    Conjunction,
    Expression,
    Fetched,
    has_variable,
)
from mgmt.language.bound_queries.queries import Subquery
from mgmt.language.names.scopes import Source, from_items
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import SqlType, quote

_OF_THE_DIFFERENT = {
    AggregateFunction.COUNT_DISTINCT,
    AggregateFunction.MINIMUM,
    AggregateFunction.MAXIMUM,
    AggregateFunction.ANY,
    AggregateFunction.ALL,
    AggregateFunction.ALL_EQUAL,
}
"""Aggregates that are the same however often a value is there."""


@dataclass(frozen=True, slots=True)
class Side:
    """A statement for the rows, or for the values: ``slots`` are the columns of the whole query that it has, in order.

    ``before`` are columns that come first, ``classes`` those that come last.
    """

    before: tuple[str, ...]
    slots: tuple[int, ...]
    classes: tuple[tuple[str, SqlType], ...]
    texts: tuple[str, ...]
    sources: tuple[str, ...]
    conditions: tuple[str, ...]
    around: bool

    def sql(self, around: str) -> str:
        """``around``: what a subquery has of the rows around it, as a source."""
        sources = [around, *self.sources] if self.around else self.sources
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        listed = ", ".join((*self.before, *self.texts, *(text for text, _ in self.classes))) or "1"
        return f"SELECT {listed} FROM {', '.join(sources)}{where}"


@dataclass(frozen=True, slots=True)
class Apart:
    """How a query is fetched apart, and what is asked of its groups without the comparison with the choice.

    ``key`` is the slot of what the choice is compared with.  ``flag`` is a condition of aggregates, or one of all rows
    (``all_flagged``).  ``mixed`` are the slots that are computed of both sides, by ``mixed_texts`` over the tables
    ``_ROWS`` and ``_VALUES`` of classes, where ``conditions`` hold.
    """

    choice: Cell
    key: int
    flag: Cell | None
    all_flagged: bool
    rows: Side
    values: Side
    mixed: tuple[int, ...]
    mixed_texts: tuple[str, ...]
    conditions: tuple[str, ...]
    having: Expression | None
    outputs: tuple[Expression, ...]
    demand: Expression | None

    @property
    def has_classes(self) -> bool:
        return bool(self.mixed or self.conditions)

    def class_sql(self, rows: str, values: str) -> str:
        """Given two tables of classes, ``c0``, ``c1``, ...: their row numbers and what is computed of both."""
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        listed = ", ".join((f"{_ROWS}.rowid", f"{_VALUES}.rowid", *self.mixed_texts))
        return f"SELECT {listed} FROM {rows} AS {_ROWS}, {values} AS {_VALUES}{where}"


_ROWS, _VALUES = quote("classes of rows"), quote("classes of values")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a query consists of, its constants as slots: ``trees`` of those, conditions and sources for the database.

    ``around``: the name of the rows around a subquery among the tables that trees mention, and ``parameters`` the types
    of its columns ``p0``, ``p1``, ...
    """

    sources: tuple[Source, ...]
    skeleton: exp.Select
    conditions: tuple[exp.Expr, ...]
    trees: tuple[exp.Expr, ...]
    gates: tuple[Expression, ...]
    keys: tuple[int, ...] | None
    having: Expression | None
    outputs: tuple[Expression, ...]
    demand: Expression | None
    around: str = ""
    parameters: tuple[SqlType, ...] = ()

    @property
    def asked(self) -> tuple[Expression, ...]:
        found = (self.having, *(self.outputs if self.demand is None else ()), self.demand)
        return tuple(expression for expression in found if expression is not None)


def apart(parts: Parts) -> Apart | None:
    """How to fetch the rows and the values each for themselves; None where more than that is asked."""
    plain = not any(join.args.get("side") for join in parts.skeleton.args.get("joins") or ())
    if not plain or any(source.relation.gated for source in parts.sources):
        return None
    link = _only_link(parts)
    if link is None:
        return None
    try:
        return _Separation(parts, *link).found()
    except _InseparableError:
        return None


class _InseparableError(Exception):
    """More is asked than sums over rows and values."""


def _only_link(parts: Parts) -> tuple[Cell, int, Cell | None] | None:
    """The choice, the slot that it is compared with and the flag beside it, where that is all that is asked of any."""
    links: dict[tuple[str, str, int], Cell] = {}
    flags: dict[tuple[str, str], Cell] = {}
    cells = compared = flagged = 0
    for expression in (*parts.gates, *parts.asked):
        for node in expression.walk():
            if isinstance(node, Subquery):
                return None
            cells += isinstance(node, Cell)
            if isinstance(node, Cell) and node.type is SqlType.BOOLEAN:
                flags[node.source.lower(), node.column.lower()] = node
                flagged += 1
            if (link := _link(node)) is not None:
                compared += 1
                links[link[0].source.lower(), link[0].column.lower(), link[1]] = link[0]
    if len(links) != 1 or cells != compared + flagged or len(flags) > 1:
        return None
    (((alias, _, slot), cell),) = links.items()
    if any(source != alias for source, _ in flags):
        return None
    return cell, slot, next(iter(flags.values()), None)


def _link(node: Expression) -> tuple[Cell, int] | None:
    if isinstance(node, Comparison) and node.operator == "=" and not node.null_safe:
        for one, other in (node.children, node.children[::-1]):
            if isinstance(one, Cell) and isinstance(other, Fetched):
                return one, other.slot
    return None


class _Separation:
    """Decides on which side each source, condition and slot is."""

    def __init__(self, parts: Parts, choice: Cell, key: int, flag: Cell | None) -> None:
        self._parts = parts
        self._choice = choice
        self._key = key
        self._flag = flag
        self._gated = any(_link(gate) for gate in parts.gates)
        if not all(_link(gate) or isinstance(gate, Cell) for gate in parts.gates):
            raise _InseparableError
        self._aliases = {source.alias.lower() for source in parts.sources}
        if parts.around:
            self._aliases.add(parts.around)
        self._rows, self._values = self._sides()

    def found(self) -> Apart:
        parts = self._parts
        if parts.keys is None and not (self._gated and isinstance(parts.demand, Fetched)):
            raise _InseparableError
        mixed = tuple(slot for slot, tree in enumerate(parts.trees) if self._is_mixed(tree))
        if set(parts.keys or ()) & set(mixed) or self._tables(parts.trees[self._key]) - self._values:
            raise _InseparableError
        crossing = [tree for tree in parts.conditions if self._is_mixed(tree)]
        columns = self._class_columns([*crossing, *(parts.trees[slot] for slot in mixed)])
        having = None if parts.having is None else self._plain(parts.having, mixed)
        return Apart(
            self._choice,
            self._key,
            self._flag,
            any(isinstance(gate, Cell) for gate in parts.gates),
            self._side(self._rows, columns[0], mixed),
            self._side(self._values, columns[1], mixed),
            mixed,
            tuple(self._of_classes(parts.trees[slot], columns) for slot in mixed),
            tuple(f"({self._of_classes(tree, columns)})" for tree in crossing),
            having,
            tuple(self._plain(output, mixed) for output in parts.outputs) if parts.demand is None else (),
            None if parts.demand is None else self._demand(parts.demand, mixed),
        )

    # ---- sides --------------------------------------------------------------------------------------

    def _tables(self, tree: exp.Expr) -> set[str]:
        return {column.table.lower() for column in tree.find_all(exp.Column)} & self._aliases

    def _is_mixed(self, tree: exp.Expr) -> bool:
        tables = self._tables(tree)
        return bool(tables & self._rows and tables & self._values)

    def _sides(self) -> tuple[set[str], set[str]]:
        """The sources that go with the rows, and those that go with the values."""
        rows, values = {self._choice.source.lower()}, self._tables(self._parts.trees[self._key])
        if not values or rows & values:
            raise _InseparableError
        told = [self._tables(tree) for tree in self._parts.conditions]
        for side, other in ((rows, values), (values, rows)):
            while more := [
                tables for tables in told if tables & side and not tables & other and tables - side
            ]:
                side.update(*more)
        return self._aliases - values, values

    def _side(self, aliases: set[str], classes: Sequence[exp.Column], mixed: Sequence[int]) -> Side:
        parts, is_rows = self._parts, aliases is self._rows
        slots = [
            slot
            for slot, tree in enumerate(parts.trees)
            if slot not in mixed and (self._tables(tree) <= aliases if self._tables(tree) else is_rows)
        ]
        conditions = [
            tree
            for tree in parts.conditions
            if (self._tables(tree) <= aliases if self._tables(tree) else is_rows)
        ]
        around = parts.around in aliases
        before = [f"{quote(self._choice.source)}.rowid"] if is_rows else []
        return Side(
            (*before, f"{quote(parts.around)}.rowid") if around else tuple(before),
            tuple(slots),
            tuple((to_sql(column), self._type(column)) for column in classes),
            tuple(to_sql(parts.trees[slot]) for slot in slots),
            tuple(
                to_sql(item) for item in from_items(parts.skeleton) if item.alias_or_name.lower() in aliases
            ),
            tuple(f"({to_sql(tree)})" for tree in conditions),
            around,
        )

    # ---- classes ------------------------------------------------------------------------------------

    def _class_columns(self, trees: Iterable[exp.Expr]) -> tuple[list[exp.Column], list[exp.Column]]:
        """The columns of either side that these read."""
        found: tuple[dict[str, exp.Column], dict[str, exp.Column]] = ({}, {})
        for tree in trees:
            if tree.find(exp.Select):
                raise _InseparableError
            for column in tree.find_all(exp.Column):
                found[column.table.lower() in self._values][to_sql(column)] = column
        return list(found[0].values()), list(found[1].values())

    def _type(self, column: exp.Column) -> SqlType:
        table = column.table.lower()
        if table == self._parts.around:
            return self._parts.parameters[int(column.name.removeprefix("p"))]
        relation = next(s.relation for s in self._parts.sources if s.alias.lower() == table)
        found = relation.find(column.name)
        if found is None:
            raise _InseparableError
        return found.type

    def _of_classes(self, tree: exp.Expr, columns: tuple[list[exp.Column], list[exp.Column]]) -> str:
        holder = exp.Paren(this=tree.copy())
        texts = [list(map(to_sql, side)) for side in columns]
        for column in list(holder.find_all(exp.Column)):
            side = column.table.lower() in self._values
            name = f"c{texts[side].index(to_sql(column))}"
            column.replace(exp.column(name, table=(_ROWS, _VALUES)[side].strip('"'), quoted=True))
        return to_sql(holder.this)

    # ---- what is asked ------------------------------------------------------------------------------

    def _demand(self, demand: Expression, mixed: Sequence[int]) -> Expression:
        return demand if self._parts.keys is None else self._plain(demand, mixed)

    def _plain(self, expression: Expression, mixed: Sequence[int]) -> Expression:
        """The same over groups of cells that hold: without comparisons with the choice."""
        if isinstance(expression, Aggregate):
            found = self._of_cells(expression)
            if found.function in _OF_THE_DIFFERENT and found.operand.slot in mixed:  # type: ignore[union-attr]
                raise _InseparableError
            return found
        if isinstance(expression, Cell) or (isinstance(expression, Fetched) and expression.slot in mixed):
            raise _InseparableError
        return expression.with_children(lambda child: self._plain(child, mixed))

    def _of_cells(self, aggregate: Aggregate) -> Aggregate:
        function, operand = aggregate.function, aggregate.operand
        conditions = [] if aggregate.condition is None else list(_conjuncts(aggregate.condition))
        if function is AggregateFunction.SUM and operand is not None:
            operand, more = self._summand(operand)
            conditions += more
            function = AggregateFunction.COUNT if operand is None else function
        elif function not in _OF_THE_DIFFERENT and function is not AggregateFunction.COUNT:
            raise _InseparableError
        linked = self._gated or any(map(_link, conditions))
        kept = [condition for condition in conditions if not _link(condition)]
        if not linked or not all(isinstance(one, (Fetched, Cell)) for one in kept):
            raise _InseparableError
        if function in _OF_THE_DIFFERENT and any(isinstance(one, Cell) for one in kept):
            raise _InseparableError
        if not (operand is None or isinstance(operand, Fetched)):
            raise _InseparableError
        condition = Conjunction(SqlType.BOOLEAN, aggregate.position, tuple(kept)) if kept else None
        return replace(aggregate, function=function, operand=operand, condition=condition)

    def _summand(self, operand: Expression) -> tuple[Expression | None, list[Expression]]:
        """What is added for a row under which conditions; None for 1."""
        if not has_variable(operand):
            return operand, []
        if _link(operand) or isinstance(operand, (Conjunction, Cell)):
            return None, list(_conjuncts(operand))
        if isinstance(operand, Arithmetic) and operand.operator == "*":
            for one, other in (operand.children, operand.children[::-1]):
                if isinstance(one, Fetched):
                    inner, conditions = self._summand(other)
                    if inner is None:
                        return one, conditions
        if isinstance(operand, Case) and len(operand.values) == 1 and self._is_nothing(operand.default):
            return operand.values[0], list(_conjuncts(operand.conditions[0]))
        raise _InseparableError

    def _is_nothing(self, expression: Expression) -> bool:
        if not isinstance(expression, Fetched):
            return False
        tree = self._parts.trees[expression.slot]
        return isinstance(tree, exp.Null) or (isinstance(tree, exp.Literal) and tree.this == "0")


def _conjuncts(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Conjunction):
        for operand in expression.operands:
            yield from _conjuncts(operand)
    else:
        yield expression
