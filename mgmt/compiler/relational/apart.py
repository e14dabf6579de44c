"""Queries whose rows and values are fetched each for themselves: nothing but ``choice = key`` joins them, or classes.

``pod JOIN node ON pod.variable__node = node.name`` has a candidate row for each pod and node.  What is asked of them
where groups are summed or no row may be is known from the pods and from the nodes alone: a sum is over some pods times
some nodes.  Conditions between both sides, and what is computed of both, need no candidates either, only *classes*: the
different values of the columns that they read on each side.

What it is not: it fetches nothing (see ``mgmt.compiler.encoding.products``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mgmt.language.bound_queries.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Case,
    Cell,
    Comparison,
    Expression,
    Fetched,
)
from mgmt.language.bound_queries.queries import BoundQuery, Predicate, Subquery
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import SqlType, quote

_SUMS = {AggregateFunction.COUNT, AggregateFunction.SUM}
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
    """One statement: first the number of a row of ``symbolic``, if that is given, then columns.

    ``slots`` are the columns of the whole that it has, in order; after these come those that classes are of.
    """

    sql: str
    symbolic: str | None
    slots: tuple[int, ...]
    classes: int


@dataclass(frozen=True, slots=True)
class Apart:
    """How a query is fetched apart.

    ``key`` is the slot of what the choice is compared with.  ``mixed`` are slots that are computed of both sides, by
    ``classes_sql``: given two tables of classes, their rows and these columns where every condition holds.
    """

    choice: Cell
    key: int
    rows: Side
    values: Side
    mixed: tuple[int, ...]
    class_columns: tuple[tuple[exp.Column, ...], tuple[exp.Column, ...]]
    conditions: tuple[str, ...]
    texts: tuple[str, ...]
