"""Bind statements in order, each seeing the views before it.

WITH and derived tables become views of their own; each SELECT is bound by ``mgmt.language.select_binder``;
UNION and its like are left to the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlglot import exp

from mgmt.errors import (
    PolicySyntaxError,
    TypeMismatchError,
    UnknownColumnError,
    UnsupportedConstructError,
)
from mgmt.language.bound import BoundQuery, PushedView, UnionView
from mgmt.language.casts import rewrite_casts
from mgmt.language.catalog import Catalog, Relation, RelationColumn
from mgmt.language.column_names import give_names, named_columns, selects_of, view_under_names
from mgmt.language.dates import rewrite_dates
from mgmt.language.grouping_sets import has_grouping_sets, written_out
from mgmt.language.normalize import unsupported
from mgmt.language.pins import pins_of
from mgmt.language.portable import refuse_unportable
from mgmt.language.recursion import recursive_view, refers_to, refuse_other_forms
from mgmt.language.scopes import Source
from mgmt.language.select_binder import SelectBinder
from mgmt.language.set_operations import written_for_both
from mgmt.language.shorthands import write_out
from mgmt.language.sizes import Sizes
from mgmt.language.syntax import Statement
from mgmt.language.tails import Tail
from mgmt.language.tree_types import TreeTypes
from mgmt.language.typing_rules import go_together
from mgmt.state.schema import SqlType
from mgmt.tokens import position_of


class QueryBinder:
    """Binds statements in order, each seeing the views before it."""

    def __init__(self, catalog: Catalog, functions: frozenset[str]) -> None:
        self._catalog = catalog
        self._functions = functions
        self.results: list[PushedView | BoundQuery] = []
        self._anonymous = 0
        self._sizes = Sizes()

    def bind(self, statement: Statement) -> None:
        """Bind one statement and append it, after the views it needed, to ``results``."""
        self._catalog.reserve(statement.name, statement.position)
        variable = {c.name.lower() for table in self._catalog.schema.tables for c in table.variables}
        for name in statement.variable_columns:
            if name.lower() not in variable:
                raise UnknownColumnError(
                    f"@variable_columns names {name!r}, which is no variable column of the schema",
                    position=statement.position,
                    hint="declare it there: -- @variable_columns (name) before CREATE TABLE, or a variable__ prefix",
                )
        refuse_unportable(statement)
        known = len(self.results)
        self._bind(write_out(statement))
        for result in self.results[known:]:
            self._sizes.add_result(result)

    def _bind(self, statement: Statement) -> None:
        pins = pins_of(statement)
        if pins is not None:
            if pins.name != statement.name:
                self._catalog.reserve(pins.name, statement.position)
            self._bind_query(pins.name, pins.select, pins.tail, pins)
        if pins is None or pins.name != statement.name:
            self._bind_query(statement.name, statement.select, statement.tail, statement)

    def _bind_query(self, name: str, tree: exp.Expr, tail: Tail | None, statement: Statement) -> None:
        tree = tree.unnest() if isinstance(tree, exp.Subquery) else tree
        tree = self._hoist_with(tree, statement)
        self._sizes.add_statement(name, tree, statement)
        if tail is None and has_grouping_sets(tree) and self._push_grouping_sets(name, tree, statement):
            return
        if isinstance(tree, exp.Select):
            distinct = tree.args.get("distinct") is not None and self._names_variables(tree)
            if distinct and tail is None and self._push_distinct(name, tree, statement):
                return
            if distinct:
                tree, tail = self._prepare_distinct(tree, tail, statement)
            SelectBinder(
                self,
                self._catalog,
                self._functions,
                name,
                tree,
                tail,
                statement,
                distinct=distinct and tree.args.get("distinct") is not None,
            ).run(self.results)
        elif isinstance(tree, exp.SetOperation) and tail is None:
            self._bind_set_operation(name, tree, statement)
        else:
            raise unsupported(
                tree, statement.source, f"{type(tree).__name__.upper()} in a constraint", "put it in a view"
            )

    def _push_distinct(self, name: str, tree: exp.Select, statement: Statement) -> bool:
        """Whether a SELECT DISTINCT of tables with variables is of constants alone; then it is left to the database."""
        known, copy = len(self.results), tree.copy()
        binder = SelectBinder(self, self._catalog, self._functions, name, copy, None, statement)
        try:
            columns = binder.bind_for_database()
        except UnsupportedConstructError:
            del self.results[known:]
            return False
        self._catalog.define(Relation(name, tuple(columns)))
        self.results.append(PushedView(name, copy, statement.position))
        return True

    def _push_grouping_sets(self, name: str, tree: exp.Expr, statement: Statement) -> bool:
        """Whether a SELECT with ROLLUP or its like is of constants alone; then it is left to the database."""
        known = len(self.results)
        try:
            self._push_set_operation(name, written_out(tree.copy(), statement.source), statement)
        except UnsupportedConstructError:
            if not self._names_variables(tree):
                raise
            del self.results[known:]
            return False
        return True

    def _prepare_distinct(
        self, tree: exp.Select, tail: Tail | None, statement: Statement
    ) -> tuple[exp.Select, Tail | None]:
        """DISTINCT over variables: made groups by the select binder, so nothing else may stand beside it."""
        if tree.args["distinct"].args.get("on") is not None:
            raise unsupported(
                tree, statement.source, "DISTINCT ON over variables", "aggregate with GROUP BY instead"
            )
        if tail is not None:
            # The tail speaks of the distinct rows, also in its aggregates: they are a view of their own.
            outputs = list(tree.expressions)
            holder = exp.Paren(this=tail.expression.copy())
            view = self.define_anonymous("distinct", tree, statement)
            _speak_of_outputs(holder, outputs)
            return exp.select("*").from_(_table(view)), replace(tail, expression=holder.this)
        grouped = tree.args.get("group")
        if grouped is not None:
            chosen = {output.unalias().sql().lower() for output in tree.expressions}
            if all(key.sql().lower() in chosen for key in grouped.expressions):
                tree.set("distinct", None)  # the keys tell the rows apart
                return tree, None
        if grouped is not None or any(output.find(exp.AggFunc) for output in tree.expressions):
            tree.set("distinct", None)
            view = self.define_anonymous("grouped", tree, statement)
            tree = exp.select("*").distinct().from_(_table(view))
        return tree, None

    def define_anonymous(self, label: str, tree: exp.Expr, statement: Statement) -> str:
        """Make a view of a derived table; returns its name."""
        name = self._reserved_name(label, statement)
        self._bind_query(name, tree, None, statement)
        return name

    def define_made(
        self, label: str, tree: exp.Expr, columns: Sequence[RelationColumn], statement: Statement
    ) -> str:
        """Make a view of a SELECT that needs no binding; returns its name."""
        name = self._reserved_name(label, statement)
        self._sizes.add_statement(name, tree, statement)
        self._catalog.define(Relation(name, tuple(columns)))
        self.results.append(PushedView(name, tree, statement.position))
        return name

    def _reserved_name(self, label: str, statement: Statement) -> str:
        self._anonymous += 1
        name = f"{statement.name}__{label}_{self._anonymous}"
        self._catalog.reserve(name, statement.position)
        return name

    def _hoist_with(self, tree: exp.Expr, statement: Statement) -> exp.Expr:
        clause = tree.args.get("with_")
        if clause is None:
            return tree
        clause.pop()
        names: dict[str, str] = {}
        for part in clause.expressions:
            inner, alias = part.this, part.args["alias"]
            _rename_tables(inner, names)
            if clause.args.get("recursive") and refers_to(inner, part.alias):
                names[part.alias.lower()] = self._define_recursion(part, statement)
                continue
            names[part.alias.lower()] = view_under_names(
                partial(self.define_anonymous, part.alias, statement=statement),
                self._catalog,
                inner,
                alias,
                statement.source,
            )
        _rename_tables(tree, names)
        return tree

    def _define_recursion(self, part: exp.CTE, statement: Statement) -> str:
        """Make a view of a part of WITH RECURSIVE that reads itself; returns its name."""
        text, tree = statement.source, part.this
        refuse_other_forms(part, text)
        self._anonymous += 1
        name = f"{statement.name}__{part.alias}_{self._anonymous}"
        rows = f"{name}__rows"
        give_names(tree, part.args["alias"])
        for taken in (name, rows):
            self._catalog.reserve(taken, statement.position)
        first = self._bind_branches(name, tree.left, statement)
        columns = named_columns(first, part.args["alias"], text)
        self._catalog.define(Relation(rows, columns))
        _rename_tables(tree.right, {part.alias.lower(): rows})
        more = self._bind_branches(name, tree.right, statement)
        _columns_of_union([Relation(name, columns), Relation(name, tuple(more))], tree, statement)
        self._catalog.define(Relation(name, columns))
        made = recursive_view(rows, tree, columns)
        self._sizes.add_statement(name, made, statement)
        self.results.append(PushedView(name, made, statement.position))
        return name

    def _bind_set_operation(self, name: str, tree: exp.SetOperation, statement: Statement) -> None:
        """UNION and its like: the database's without variables; UNION [ALL] over variables is encoded."""
        known = len(self.results)
        try:
            # A copy, for whatever is bound in vain; a table that holds variables may be asked for its constants.
            self._push_set_operation(name, tree.copy(), statement)
        except UnsupportedConstructError:
            if not self._names_variables(tree):
                raise
            del self.results[known:]
        else:
            return
        branches = self._branches(tree, statement)
        parts = [self._catalog.find(self.define_anonymous("part", branch, statement)) for branch in branches]
        relations = tuple(part for part in parts if part is not None)
        if isinstance(tree, exp.Union) and tree.args.get("distinct"):
            inner = f"{name}__all_{self._anonymous}"
            self._catalog.reserve(inner, statement.position)
            self._define_union(inner, relations, tree, statement)
            self._bind_query(name, exp.select("*").distinct().from_(_table(inner)), None, statement)
        else:
            self._define_union(name, relations, tree, statement)

    def _branches(self, tree: exp.Expr, statement: Statement) -> list[exp.Expr]:
        """The SELECTs of a chain of UNION ALL; those of another operation inside it stay together."""
        if not isinstance(tree, exp.Union):
            what = "EXCEPT" if isinstance(tree, exp.Except) else "INTERSECT"
            hint = "write WHERE NOT EXISTS (...)" if what == "EXCEPT" else "write WHERE EXISTS (...)"
            raise unsupported(tree, statement.source, f"{what} over variables", hint)
        for clause in ("order", "limit", "offset"):
            if tree.args.get(clause) is not None:
                raise unsupported(
                    tree, statement.source, f"{clause.upper()} over variables", "rows have no order here"
                )
        found: list[exp.Expr] = []
        waiting: list[exp.Expr] = [tree.right, tree.left]
        while waiting:
            branch = waiting.pop()
            branch = branch.unnest() if isinstance(branch, exp.Subquery) else branch
            if isinstance(branch, exp.Union) and bool(branch.args.get("distinct")) == bool(
                tree.args.get("distinct")
            ):
                waiting.extend((branch.right, branch.left))
            else:
                found.append(branch)
        return found

    def _define_union(
        self, name: str, parts: tuple[Relation, ...], tree: exp.Expr, statement: Statement
    ) -> None:
        columns = _columns_of_union(parts, tree, statement)
        gated = any(part.gated for part in parts)
        relation = Relation(name, tuple(columns), gated)
        self._catalog.define(relation)
        if relation.symbolic:
            plain = _union_of(parts, relation)
            self.results.append(UnionView(name, plain, statement.position, parts, tuple(columns), gated))
        else:
            self.results.append(PushedView(name, _union_of(parts, relation), statement.position))

    def _names_variables(self, tree: exp.Expr) -> bool:
        """Whether a table or view in it is symbolic: then the solver may have a say."""
        relations = (self._catalog.find(table.name) for table in tree.find_all(exp.Table))
        return any(relation is not None and relation.symbolic for relation in relations)

    def _bind_branches(self, name: str, tree: exp.Expr, statement: Statement) -> list[RelationColumn]:
        """The columns of a SELECT or set operation that must be free of variables."""
        relations = []
        for leaf in list(selects_of(tree)):
            binder = SelectBinder(self, self._catalog, self._functions, name, leaf, None, statement)
            relations.append(Relation(name, tuple(binder.bind_for_database())))
        return _columns_of_union(relations, tree, statement)

    def _push_set_operation(self, name: str, tree: exp.Expr, statement: Statement) -> None:
        columns = self._bind_branches(name, tree, statement)
        relation = Relation(name, tuple(columns))
        order = tree.args.get("order")
        if order is not None:
            types = TreeTypes(self._catalog, ({name.lower(): Source(name, relation)},))
            rewrite_dates(order, types, statement.source)
            rewrite_casts(order, types, statement.source)
        self._catalog.define(relation)
        made = written_for_both(tree)
        self.results.append(PushedView(name, made, statement.position))


def _columns_of_union(
    parts: Sequence[Relation], tree: exp.Expr, statement: Statement
) -> list[RelationColumn]:
    """The columns of a union of these, which must be as many and of types that go together."""
    position = position_of(tree, statement.source)
    if len({len(part.columns) for part in parts}) > 1:
        raise PolicySyntaxError(
            "the SELECTs of a UNION have different numbers of columns",
            position=position,
            hint="select as many in each; NULL AS name stands for what one of them lacks",
        )
    columns = []
    for place, first in enumerate(parts[0].columns):
        same = [part.columns[place] for part in parts]
        types = {column.type for column in same} - {SqlType.UNKNOWN}
        if not go_together(types):
            raise TypeMismatchError(
                f"column {first.name!r} of the UNION is {' and '.join(sorted(types))}",
                position=position,
                hint="CAST(... AS TEXT) makes texts of the others",
            )
        columns.append(_united(first.name, same, types))
    return columns


def _united(name: str, same: Sequence[RelationColumn], types: set[SqlType]) -> RelationColumn:
    """One column of a union of these."""
    kind = next(iter(types)) if len(types) == 1 else (SqlType.INTEGER if types else SqlType.UNKNOWN)
    filled = [column for column in same if not column.empty]
    origins = {column.origin for column in filled}
    origin = next(iter(origins)) if len(origins) == 1 else None
    return RelationColumn(
        name,
        SqlType.REAL if SqlType.REAL in types else kind,
        any(column.symbolic for column in same),
        origin,
        any(column.nullable or column.empty for column in same),
        not filled,
    )


def _union_of(parts: Sequence[Relation], relation: Relation) -> exp.Expr:
    """SELECT ... FROM part UNION ALL ..., as plain SQL."""
    tree: exp.Expr | None = None
    for part in parts:
        select = exp.Select(
            expressions=[
                exp.alias_(exp.column(exp.to_identifier(column.name, quoted=True)), target.name, quoted=True)
                for column, target in zip(part.columns, relation.columns, strict=True)
            ],
            from_=exp.From(this=exp.Table(this=exp.to_identifier(part.name, quoted=True))),
        )
        tree = select if tree is None else exp.Union(this=tree, distinct=False, expression=select)
    assert tree is not None
    return tree


def _speak_of_outputs(holder: exp.Expr, outputs: Sequence[exp.Expr]) -> None:
    """The columns of a tail, as outputs of the SELECT it follows."""
    for column in list(holder.find_all(exp.Column)):
        if column.find_ancestor(exp.Query) or isinstance(column.this, exp.Star):
            continue
        for output in outputs:
            inner = output.unalias()
            if (
                isinstance(inner, exp.Column)
                and inner.name.lower() == column.name.lower()
                and (not column.table or inner.table.lower() == column.table.lower())
            ):
                column.this.set("this", output.alias_or_name)
                break
        column.set("table", None)


def _rename_tables(tree: exp.Expr, names: dict[str, str]) -> None:
    for table in list(tree.find_all(exp.Table)):
        renamed = names.get(table.name.lower())
        if renamed is not None and not table.args.get("db"):
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            table.set("this", exp.to_identifier(renamed))


def _table(name: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(name, quoted=True))
