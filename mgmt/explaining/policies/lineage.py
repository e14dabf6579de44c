"""Lineage: the tables and variables behind the queries of a program, and what joins their sources.

Asked by lint; it follows views to the tables below them.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from mgmt.compiler.model import Model
from mgmt.language.bound_queries.expressions import has_variable
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.language.parsing.set_statements import MOVE_BUDGET
from mgmt.source_text import Position


class Lineage:
    """Of one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._schema = model.database.schema
        self._queries = {query.name.lower(): query for query in model.queries}
        self._columns: dict[str, set[tuple[str, str]]] = {}

    # ---- sources ------------------------------------------------------------------------------------

    def joined(self, query: BoundQuery) -> list[set[str]]:
        """The aliases of a query's sources, in groups that predicates and outer joins connect."""
        aliases = [source.alias.lower() for source in query.sources]
        groups = [{alias} for alias in aliases]
        trees = [predicate.tree for predicate in query.predicates]
        trees.extend(_outer_joins(query))
        for tree in trees:
            mentioned = {column.table.lower() for column in tree.find_all(exp.Column)} & set(aliases)
            touched = [group for group in groups if group & mentioned]
            if len(touched) > 1:
                groups = [group for group in groups if group not in touched]
                groups.append(set().union(*touched))
        return groups

    def is_single_row(self, query: BoundQuery, alias: str) -> bool:
        """Whether a source has one row whatever the tables hold: an aggregate over everything."""
        source = next(source for source in query.sources if source.alias.lower() == alias)
        return self._is_single_row(source.relation.name, 0)

    def is_grouped_by(self, query: BoundQuery, alias: str) -> bool:
        """Whether each row of a source is a group of its own, so that it is meant to meet all others: a parameter."""
        relation = next(source.relation for source in query.sources if source.alias.lower() == alias)
        keys = {
            key.tree.name.lower()
            for key in query.keys or ()
            if isinstance(key.tree, exp.Column) and key.tree.table.lower() == alias
        }
        return (
            bool(relation.key) and not relation.symbolic and {name.lower() for name in relation.key} <= keys
        )

    def _is_single_row(self, name: str, depth: int) -> bool:
        view = self._queries.get(name.lower())
        if view is None or depth > len(self._queries):
            return False
        if isinstance(view, BoundQuery):
            return view.keys == () or all(
                self._is_single_row(source.relation.name, depth + 1) for source in view.sources
            )
        tree = view.tree
        if not isinstance(tree, exp.Select) or tree.args.get("group"):
            return False
        if any(item.find(exp.AggFunc) and not item.find(exp.Window) for item in tree.expressions):
            return True
        return all(self._is_single_row(table.name, depth + 1) for table in _from_tables(tree))

    # ---- variables and columns ----------------------------------------------------------------------

    def involves_solver(self, query: BoundQuery) -> bool:
        """Whether what the query demands, or which rows it is demanded of, depends on a decision."""
        return (
            any(predicate.by_solver for predicate in query.predicates)
            or any(source.relation.gated for source in query.sources)
            or (query.having is not None and has_variable(query.having.expression))
            or (query.demand is not None and has_variable(query.demand.expression))
        )

    def variables_used(self) -> set[tuple[str, str]]:
        """(table, variable column) of all that constraints and objectives depend on.

        A rule of a table over one variable is part of its domain, and a budget of moves says nothing of where to.
        """
        used: set[tuple[str, str]] = set()
        of_tables = {rule.name for table in self._schema.tables for rule in table.rules}
        for query in self._queries.values():
            if not isinstance(query, BoundQuery) or query.demand is None:
                continue
            found = {
                (table, column)
                for table, column in self.columns_used(query)
                if self._schema.table(table).column(column).is_variable
            }
            of_domain = query.name in of_tables and len(found) == 1
            of_moves = query.name == MOVE_BUDGET and self._model.settings.move_budget is not None
            if not of_domain and not of_moves:
                used |= found
        return used

    def columns_used(self, query: BoundQuery | PushedView) -> set[tuple[str, str]]:
        """(table, column) of all that a query reads, through views."""
        name = query.name.lower()
        if name not in self._columns:
            self._columns[name] = used = set()
            for relation, column in self._reads(query):
                table = self._schema.find(relation)
                view = self._queries.get(relation.lower())
                if table is not None:
                    known = {other.name.lower(): other.name for other in table.columns}
                    if column.lower() in known:
                        used.add((table.name, known[column.lower()]))
                elif view is not None:
                    # All that a view reads, not only for this column: its WHERE decides which rows there are.
                    used |= self.columns_used(view)
        return self._columns[name]

    def _reads(self, query: BoundQuery | PushedView) -> Iterator[tuple[str, str]]:
        if isinstance(query, PushedView):
            yield from _columns_of(query.tree)
            return
        relations = {source.alias.lower(): source.relation.name for source in query.sources}
        trees = [predicate.tree for predicate in query.predicates]
        trees.extend(key.tree for key in query.keys or ())
        if query.having is not None:
            trees.append(query.having.tree)
        if query.demand is not None:
            trees.append(query.demand.tree)
        else:
            trees.extend(output.tree for output in query.outputs)
        trees.extend(_outer_joins(query))
        for tree in trees:
            for select in tree.find_all(exp.Select):
                yield from _columns_of(select)
            for column in tree.find_all(exp.Column):
                if column.table.lower() in relations:
                    yield relations[column.table.lower()], column.name

    # ---- labels -------------------------------------------------------------------------------------

    def labels(self) -> dict[str, dict[str, Position]]:
        """Of tables that variables choose from: the columns, keys aside, that constraints group by; and where."""
        chosen = {
            column.references[0].lower()
            for table in self._schema.tables
            for column in table.variables
            if column.references is not None
        }
        found: dict[str, dict[str, Position]] = {}
        for query in self._queries.values():
            if not isinstance(query, BoundQuery):
                continue
            relations = {source.alias.lower(): source.relation.name for source in query.sources}
            for key in query.keys or ():
                if not isinstance(key.tree, exp.Column):
                    continue
                table = self._schema.find(relations.get(key.tree.table.lower(), ""))
                if table is None or table.name.lower() not in chosen:
                    continue
                if key.tree.name.lower() in {name.lower() for name in table.primary_key}:
                    continue
                found.setdefault(table.name, {}).setdefault(key.tree.name, key.position)
        return found


def _outer_joins(query: BoundQuery) -> list[exp.Expr]:
    """The conditions of the outer joins; those of inner ones are predicates."""
    joins = query.skeleton.args.get("joins") or ()
    return [join.args["on"] for join in joins if join.args.get("on") is not None]


def _from_tables(tree: exp.Select) -> Iterator[exp.Table]:
    for table in tree.find_all(exp.Table):
        if table.find_ancestor(exp.Select) is tree:
            yield table


def _columns_of(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    """(relation, column) of all columns in a query, by the aliases of the SELECTs around them."""
    for column in tree.find_all(exp.Column):
        select = column.find_ancestor(exp.Select)
        while select is not None:
            names = {(table.alias or table.name).lower(): table.name for table in _from_tables(select)}
            if column.table.lower() in names:
                yield names[column.table.lower()], column.name
                break
            select = select.find_ancestor(exp.Select)
