"""Views whose rows with a key come of their tables' rows with that key alone: a change touches only these.

A view like "what is left of each node" joins and groups by the node throughout.  Whether one is of that kind is read
off its tree: one of its columns equals, by the joins, a column of every source, and is among the keys of its groups.

What it is not: it computes nothing (see ``mgmt.state.kept_views``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.compiler.shapes.fetch import UNKNOWN
from mgmt.compiler.sql_text import pushed_sql
from mgmt.language.bound import PushedView
from mgmt.state.schema import Schema
from mgmt.state.store import ByKey, KeptView

Key = tuple[str, str]
"""(alias, column), in lower case."""


def kept_views(
    views: Sequence[PushedView],
    often: Collection[str],
    base_tables: Mapping[str, frozenset[str]],
    schema: Schema,
) -> tuple[KeptView, ...]:
    """These views to be kept, those asked ``often`` with their rows, and by key where they have one."""
    return tuple(
        KeptView(
            view.name,
            pushed_sql(view),
            view.name in often,
            base_tables[view.name.lower()] - {UNKNOWN},
            UNKNOWN in base_tables[view.name.lower()],
            by_key(view, views, schema) if view.name in often else None,
        )
        for view in views
    )


def by_key(view: PushedView, views: Sequence[PushedView], schema: Schema) -> ByKey | None:
    """The first column of a view that is a key of this kind; None if there is none."""
    known = {other.name.lower(): other for other in views}
    if type(view) is not PushedView or not isinstance(view.tree, exp.Select):
        return None
    columns = tuple(output.alias_or_name for output in view.tree.expressions)
    for column in columns:
        found = _tables_by(view, column, known, schema)
        if found is not None and len({name.lower() for name in columns}) == len(columns):
            below = [other for other in views if other.name.lower() in found.views]
            return ByKey(
                column, columns, found.tables, tuple((other.name, pushed_sql(other)) for other in below)
            )
    return None


@dataclass(slots=True)
class _Below:
    """What is below a view, by a key of it."""

    tables: dict[str, str]
    views: set[str]

    def add(self, other: _Below) -> bool:
        """False when a table would be read by two columns."""
        if any(self.tables.get(table, column) != column for table, column in other.tables.items()):
            return False
        self.tables |= other.tables
        self.views |= other.views
        return True


def _tables_by(
    view: PushedView, output: str, views: Mapping[str, PushedView], schema: Schema
) -> _Below | None:
    """What is below a view, if all of it is tied to this column of the view."""
    select = view.tree
    if not isinstance(select, exp.Select) or not _is_plain(select):
        return None
    (key,) = [o.unalias() for o in select.expressions if o.alias_or_name.lower() == output.lower()][:1] or [
        None
    ]
    if not isinstance(key, exp.Column) or not key.table:
        return None
    tied = _tied(select, _name(key))
    if tied is None:
        return None
    group = select.args.get("group")
    if group is not None and not any(
        isinstance(one, exp.Column) and _name(one) in tied.everywhere for one in group.expressions
    ):
        return None
    found = _Below({}, set())
    for alias, relation in _sources(select):
        column = tied.column_of[alias]
        below = views.get(relation)
        if below is not None:
            part = _tables_by(below, column, views, schema)
            if part is None or not found.add(part):
                return None
            found.views.add(relation)
        else:
            table = schema.find(relation)
            if table is None or not found.add(_Below({relation: column}, set())):
                return None
    return found


def _is_plain(select: exp.Select) -> bool:
    """Whether it has nothing but joins, conditions and groups."""
    inside = [node for node in select.find_all(exp.Query, exp.Window) if node is not select]
    others = ("limit", "offset", "with", "with_", "laterals", "qualify", "distinct_on")
    grouped = select.args.get("group") is not None
    aggregated = select.find(exp.AggFunc) is not None
    named = all(isinstance(node.this, exp.Identifier) for node in select.find_all(exp.Table))
    rows = any(column.name.lower() in {"_rowid_", "rowid", "oid"} for column in select.find_all(exp.Column))
    return (
        not inside
        and not any(select.args.get(name) for name in others)
        and (grouped or not aggregated)
        and named
        and not rows
    )


@dataclass(slots=True)
class _Tied:
    """Columns that equal the key."""

    everywhere: set[Key]
    """Those that do in every row."""
    column_of: dict[str, str]
    """Per source one that does, or is NULL where an outer join found none."""


def _tied(select: exp.Select, key: Key) -> _Tied | None:
    """What the joins tie to a column of the rows; None when some source is not tied, or may be missing altogether."""
    joins = list(select.args.get("joins") or ())
    if any(join.args.get("using") or join.args.get("method") for join in joins):
        return None
    if any(str(join.args.get("side") or "").upper() not in {"", "LEFT"} for join in joins):
        return None
    outer = {join.this.alias_or_name.lower() for join in joins if join.args.get("side")}
    if key[0] in outer:
        return None
    where = select.args.get("where")
    always = [*(_equalities(where.this) if where else ())]
    for join in joins:
        if not join.args.get("side"):
            always.extend(_equalities(join.args.get("on")))
    everywhere = {key}
    growing = True
    while growing:
        more = {
            other
            for pair in always
            for one, other in (pair, pair[::-1])
            if one in everywhere and other not in everywhere and other[0] not in outer
        }
        everywhere |= more
        growing = bool(more)
    column_of = dict(sorted(everywhere))
    for join in joins:
        alias = join.this.alias_or_name.lower()
        if alias not in outer:
            continue
        for pair in _equalities(join.args.get("on")):
            for one, other in (pair, pair[::-1]):
                if one in everywhere and other[0] == alias:
                    column_of[alias] = other[1]
    if any(alias not in column_of for alias, _ in _sources(select)):
        return None
    return _Tied(everywhere, column_of)


def _sources(select: exp.Select) -> Iterator[Key]:
    """The aliases of a SELECT's sources, with their relations."""
    first = select.args.get("from") or select.args.get("from_")
    tables = [first.this] if first is not None else []
    for table in (*tables, *(join.this for join in select.args.get("joins") or ())):
        yield table.alias_or_name.lower(), table.name.lower()


def _equalities(condition: exp.Expr | None) -> list[tuple[Key, Key]]:
    """The columns that a condition says are equal, when it holds."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return _equalities(condition.this)
    if isinstance(condition, exp.And):
        return _equalities(condition.left) + _equalities(condition.right)
    if isinstance(condition, exp.EQ):
        left, right = condition.left, condition.right
        if isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.table and right.table:
            return [(_name(left), _name(right))]
    return []


def _name(column: exp.Column) -> Key:
    return column.table.lower(), column.name.lower()
