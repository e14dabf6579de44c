"""Translate SELECTs and set operations from SQL as SQLite reads it to PostgreSQL.

A query may read the relations it is given and nothing else: a name that is none of them is refused here, so that
no policy looks into the server's own tables.

What it is not: it knows no table by itself (the store and its snapshots say which there are).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from mgmt.state.postgres.expressions import Columns, ColumnType, ExpressionTranslator
from mgmt.state.postgres.own_functions import is_own_rows, own_rows
from mgmt.state.postgres.typed import STORAGE, Typed, by_code_point, cast, identifier, number
from mgmt.state.schema import SqlType
from mgmt.state.sole_row import unguarded
from mgmt.state.store import RefusedStatementError

_TRANSLATED = {
    *("expressions", "from_", "joins", "where", "group", "having", "distinct", "with_", "kind", "hint"),
    *("this", "expression", "side", "on", "by_name", "operation_modifiers"),
}


class QueryTranslator(ExpressionTranslator):
    """Translates queries over the relations given (lower-case name -> columns)."""

    def __init__(self, relations: Mapping[str, Columns]) -> None:
        super().__init__()
        self._relations = dict(relations)
        self._unnamed = 0

    def query(self, tree: exp.Expr) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        tree = unguarded(tree) or tree  # the server looks for a second row by itself
        known = dict(self._relations)
        try:
            clause = self._with(tree)
            if isinstance(tree, exp.Subquery):
                inner, columns = self.query(tree.this)
                translated: exp.Expr = exp.Subquery(this=inner)
            elif isinstance(tree, exp.SetOperation):
                translated, columns = self._set_operation(tree)
            elif isinstance(tree, exp.Select):
                translated, columns = self._select(tree)
            else:
                raise RefusedStatementError(f"{type(tree).__name__.upper()} is not understood in a query")
            if clause is not None:
                translated.set("with_", clause)
            return translated, columns
        finally:
            self._relations = known

    def _with(self, tree: exp.Expr) -> exp.With | None:
        clause = tree.args.get("with_")
        if clause is None:
            return None
        parts = []
        for part in clause.expressions:
            if clause.args.get("recursive") and isinstance(part.this, exp.SetOperation):
                self._name_recursion(part)
            inner, columns = self.query(part.this)
            names = [column.name for column in part.args["alias"].args.get("columns") or ()]
            if names:
                columns = [(name, kind) for name, (_, kind) in zip(names, columns, strict=True)]
            alias = exp.TableAlias(
                this=identifier(part.alias), columns=[identifier(name) for name, _ in columns]
            )
            parts.append(exp.CTE(this=inner, alias=alias))
            self._relations[part.alias.lower()] = {name.lower(): kind for name, kind in columns}
        return exp.With(expressions=parts, recursive=clause.args.get("recursive"))

    def _name_recursion(self, part: exp.CTE) -> None:
        """What reads itself has the columns that there are to begin with."""
        _, columns = self.query(part.this.left)
        names = [column.name for column in part.args["alias"].args.get("columns") or ()]
        named = zip(names or [name for name, _ in columns], columns, strict=True)
        self._relations[part.alias.lower()] = {name.lower(): kind for name, (_, kind) in named}

    def _set_operation(self, tree: exp.SetOperation) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        left, left_columns = self.query(tree.this)
        right, right_columns = self.query(tree.expression)
        columns = []
        for place, (name, kind) in enumerate(left_columns):
            other = right_columns[place][1] if place < len(right_columns) else kind
            if {kind, other} == {SqlType.BOOLEAN, SqlType.INTEGER}:
                _as_number(left if kind is SqlType.BOOLEAN else right, place)
                kind = SqlType.INTEGER
            elif kind is None or other is None:
                _as_null(left if kind is None else right, place, kind or other)
                kind = kind or other
            columns.append((name, other if kind is SqlType.UNKNOWN else kind))
        made = type(tree)(this=left, expression=right, distinct=tree.args.get("distinct"))
        self._outputs.append({name.lower(): kind for name, kind in columns})
        self._scopes.append({})
        self._finish(tree, made)
        self._scopes.pop()
        self._outputs.pop()
        return made, columns

    def _select(self, tree: exp.Select) -> tuple[exp.Expr, list[tuple[str, ColumnType]]]:
        scope: dict[str, Columns] = {}
        self._scopes.append(scope)
        self._outputs.append({})
        try:
            made = exp.Select()
            if tree.args.get("from_"):
                made.set("from_", exp.From(this=self._source(tree.args["from_"].this, scope)))
            joins = []
            for join in tree.args.get("joins") or ():
                translated = join.copy()
                translated.set("this", self._source(join.this, scope))
                if join.args.get("on"):
                    translated.set("on", self.condition(join.args["on"]))
                if join.args.get("using"):
                    translated.set("using", [identifier(column.name) for column in join.args["using"]])
                joins.append(translated)
            made.set("joins", joins)
            outputs = self._select_list(tree, scope)
            columns = [(name, value.column_type) for name, value in outputs]
            self._outputs[-1].update({name.lower(): kind for name, kind in columns})
            made.set(
                "expressions",
                [exp.Alias(this=by_code_point(value), alias=identifier(name)) for name, value in outputs],
            )
            if tree.args.get("distinct"):
                made.set("distinct", exp.Distinct())
            if tree.args.get("where"):
                made.set("where", exp.Where(this=self.condition(tree.args["where"].this)))
            group = tree.args.get("group")
            if group is not None:
                keys = [_place(key) or self.value(key).tree for key in group.expressions]
                made.set("group", exp.Group(expressions=keys))
            if tree.args.get("having"):
                made.set("having", exp.Having(this=self.condition(tree.args["having"].this)))
            self._finish(tree, made)
            return made, columns
        finally:
            self._scopes.pop()
            self._outputs.pop()

    def _select_list(self, tree: exp.Select, scope: Mapping[str, Columns]) -> list[tuple[str, Typed]]:
        outputs: list[tuple[str, Typed]] = []
        for item in tree.expressions:
            qualified = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            if isinstance(item, exp.Star) or qualified:
                wanted = item.table.lower() if qualified else None
                for alias, columns in scope.items():
                    if wanted in {None, alias}:
                        outputs.extend(
                            (
                                name,
                                self._typed_column(
                                    exp.column(identifier(name), table=identifier(alias)), kind
                                ),
                            )
                            for name, kind in columns.items()
                        )
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            outputs.append((item.alias_or_name or f"column_{len(outputs) + 1}", self.value(inner)))
        return outputs

    def _source(self, item: exp.Expr, scope: dict[str, Columns]) -> exp.Expr:
        """A table, view or derived table of FROM."""
        if isinstance(item, exp.Subquery):
            translated, columns = self.query(item.this)
            name = item.alias
            if not name:  # SQLite needs none
                self._unnamed += 1
                name = f"unnamed {self._unnamed}"
            names = (
                [column.name for column in item.args["alias"].args.get("columns") or ()] if item.alias else []
            )
            if names:
                columns = [(given, kind) for given, (_, kind) in zip(names, columns, strict=True)]
            scope[name.lower()] = {given.lower(): kind for given, kind in columns}
            alias = exp.TableAlias(
                this=identifier(name), columns=[identifier(given) for given in names] or None
            )
            return exp.Subquery(this=translated, alias=alias)
        if is_own_rows(item):
            scope[item.alias.lower()] = {"key": SqlType.TEXT, "value": SqlType.TEXT}
            made = exp.Subquery(this=own_rows(item, self.value))
            return exp.Lateral(this=made, alias=exp.TableAlias(this=identifier(item.alias)))
        if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
            raise RefusedStatementError(f"{type(item).__name__.upper()} is not understood in FROM")
        relation = self._relation(item)
        alias_name = item.alias or item.name
        scope[alias_name.lower()] = relation
        joins = [
            exp.Join(**{**join.copy().args, "this": self._source(join.this, scope)})
            for join in item.args.get("joins") or ()
        ]
        return exp.Table(
            this=identifier(item.name),
            alias=exp.TableAlias(this=identifier(alias_name)),
            joins=joins or None,
        )

    def _relation(self, item: exp.Table) -> Columns:
        relation = None if item.args.get("db") else self._relations.get(item.name.lower())
        if relation is None:
            raise RefusedStatementError(f"no such table: {item.sql(dialect='sqlite')}")
        return relation

    def _finish(self, tree: exp.Query, made: exp.Query) -> None:
        """ORDER BY, LIMIT and OFFSET, and the named windows; whatever else there is, is refused."""
        for clause, found in tree.args.items():
            if not found or clause in _TRANSLATED:
                continue
            if clause == "order":
                made.set("order", self._order(found, of_outputs=True))
            elif clause == "limit" and isinstance(found.expression, exp.Neg):
                continue  # how SQLite says that there is no limit, where there is an offset
            elif clause in {"limit", "offset"}:
                changed = found.copy()
                changed.set("expression", cast(number(self.value(found.expression)).tree, "bigint"))
                made.set(clause, changed)
            elif clause == "windows":
                made.set("windows", [self.window(window, window.this.copy()) for window in found])
            else:
                raise RefusedStatementError(f"{clause.rstrip('_').upper()} is not understood")

    def _order(self, order: exp.Order, *, of_outputs: bool = False) -> exp.Order:
        """``of_outputs``: outputs can be named, as in the ORDER BY of a query and not in those of windows."""
        parts = []
        for part in order.expressions:
            changed = part.copy()
            output = self._output(part.this) if of_outputs else None
            changed.set("this", output or _place(part.this) or by_code_point(self.value(part.this)))
            parts.append(changed)
        return exp.Order(expressions=parts)

    def _output(self, node: exp.Expr) -> exp.Expr | None:
        """An output that is named, which comes before a column of that name."""
        named = isinstance(node, exp.Column) and not node.table and node.name.lower() in self._outputs[-1]
        return exp.column(identifier(node.name)) if named else None

    def window(self, node: exp.Window, inner: exp.Expr) -> exp.Expr:
        changed = node.copy()
        changed.set("this", inner)
        changed.set("partition_by", [self.value(key).tree for key in node.args.get("partition_by") or ()])
        if node.args.get("order"):
            changed.set("order", self._order(node.args["order"]))
        return changed


def _place(node: exp.Expr) -> exp.Expr | None:
    """A number in GROUP BY or ORDER BY: the place of an output."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal():
        return node.copy()
    return None


def _as_number(query: exp.Expr, place: int) -> None:
    """Make a number of a condition that a query returns at this place."""
    for output in _outputs(query, place):
        output.set("this", cast(cast(output.this, "int"), "bigint"))


def _as_null(query: exp.Expr, place: int, kind: ColumnType) -> None:
    """Give the type of the other side to the NULL that a query returns at this place."""
    if kind in {SqlType.INTEGER, SqlType.REAL, SqlType.TEXT, SqlType.BOOLEAN}:
        for output in _outputs(query, place):
            output.set("this", cast(output.this, STORAGE[kind].partition(" COLLATE")[0]))


def _outputs(query: exp.Expr, place: int) -> list[exp.Expr]:
    """What a SELECT, or each SELECT of a union, returns at this place."""
    if isinstance(query, exp.Subquery):
        return _outputs(query.this, place)
    if isinstance(query, exp.SetOperation):
        return [*_outputs(query.this, place), *_outputs(query.expression, place)]
    return [query.expressions[place]] if isinstance(query, exp.Select) else []
