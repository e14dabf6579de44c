"""Bind statements in order, each seeing the views before it.

WITH and derived tables become views of their own; each SELECT is bound by ``mgmt.language.select_binder``;
UNION and its like are left to the database.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.language.bound import BoundQuery, PushedView
from mgmt.language.catalog import Catalog, Relation, RelationColumn
from mgmt.language.normalize import unsupported
from mgmt.language.select_binder import SelectBinder
from mgmt.language.syntax import Statement, Tail


class QueryBinder:
    """Binds statements in order, each seeing the views before it."""

    def __init__(self, catalog: Catalog, functions: frozenset[str]) -> None:
        self._catalog = catalog
        self._functions = functions
        self.results: list[PushedView | BoundQuery] = []
        self._anonymous = 0

    def bind(self, statement: Statement) -> None:
        """Bind one statement and append it, after the views it needed, to ``results``."""
        self._catalog.reserve(statement.name, statement.position)
        tail = statement.tail
        self._bind_query(statement.name, statement.select, tail, statement)

    def _bind_query(self, name: str, tree: exp.Expr, tail: Tail | None, statement: Statement) -> None:
        tree = tree.unnest() if isinstance(tree, exp.Subquery) else tree
        tree = self._hoist_with(tree, statement)
        if isinstance(tree, exp.Select):
            SelectBinder(
                self.define_anonymous,
                self._catalog,
                self._functions,
                name,
                tree,
                tail,
                statement,
            ).run(self.results)
        elif isinstance(tree, exp.SetOperation) and tail is None:
            self._bind_set_operation(name, tree, statement)
        else:
            raise unsupported(
                tree, statement.source, f"{type(tree).__name__.upper()} in a constraint", "put it in a view"
            )

    def define_anonymous(self, label: str, tree: exp.Expr, statement: Statement) -> str:
        """Make a view of a derived table; returns its name."""
        self._anonymous += 1
        name = f"{statement.name}__{label}_{self._anonymous}"
        self._catalog.reserve(name, statement.position)
        self._bind_query(name, tree, None, statement)
        return name

    def _hoist_with(self, tree: exp.Expr, statement: Statement) -> exp.Expr:
        clause = tree.args.get("with_")
        if clause is None:
            return tree
        if clause.args.get("recursive"):
            raise unsupported(tree, statement.source, "WITH RECURSIVE", "compute it in the database first")
        clause.pop()
        names: dict[str, str] = {}
        for part in clause.expressions:
            inner = part.this
            _rename_tables(inner, names)
            names[part.alias.lower()] = self.define_anonymous(part.alias, inner, statement)
        _rename_tables(tree, names)
        return tree

    def _bind_set_operation(self, name: str, tree: exp.SetOperation, statement: Statement) -> None:
        """UNION and its like are the database's, so their branches may hold no variable."""
        columns: list[RelationColumn] | None = None
        branches: list[exp.Expr] = [tree]
        leaves: list[exp.Select] = []
        while branches:
            branch = branches.pop()
            branch = branch.unnest() if isinstance(branch, exp.Subquery) else branch
            if isinstance(branch, exp.SetOperation):
                branches.extend((branch.right, branch.left))
            elif isinstance(branch, exp.Select):
                leaves.append(branch)
        for leaf in leaves:
            binder = SelectBinder(
                self.define_anonymous,
                self._catalog,
                self._functions,
                name,
                leaf,
                None,
                statement,
            )
            if columns is None:
                columns = binder.bind_for_database()
            else:
                binder.bind_for_database()
        self._catalog.define(Relation(name, tuple(columns or ())))
        self.results.append(PushedView(name, tree, statement.position))


def _rename_tables(tree: exp.Expr, names: dict[str, str]) -> None:
    for table in list(tree.find_all(exp.Table)):
        renamed = names.get(table.name.lower())
        if renamed is not None and not table.args.get("db"):
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("this", exp.to_identifier(renamed))
