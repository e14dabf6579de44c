"""Name resolution: which source a column belongs to, and what may stand inside a subquery.

The database computes every subquery, so none may hold a variable; they are scanned here for their columns,
innermost scope first, and refused with a position when the solver would have a say in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from sqlglot import exp

from mgmt.errors import (
    AmbiguousColumnError,
    UnknownColumnError,
    UnknownFunctionError,
    UnknownTableError,
    UnsupportedConstructError,
)
from mgmt.language.bound_queries.expressions import Cell, DatabasePart, Expression
from mgmt.language.names.catalog import Catalog, RelationColumn
from mgmt.language.names.scopes import References, Scope, Source, candidates, from_items
from mgmt.language.pushdown.aggregates import OUR_AGGREGATES, is_over_a_window, unknown_to_the_solver
from mgmt.language.pushdown.column_types import EngineTypes, RefusedStatementError
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import position_of
from mgmt.sql.trees import unsupported

# Whatever else can stand beside a table is refused, so that nothing is dropped; joins are looked at elsewhere.
_TABLE_PARTS = {"this", "alias", "db", "catalog", "joins"}


_VIEW = "define a CREATE VIEW"


class Resolver:
    """Resolves the columns of one SELECT.  ``outer`` are the scopes of the SELECTs around it, inner first."""

    def __init__(
        self,
        catalog: Catalog,
        scope: Scope,
        source: SourceText,
        engine: EngineTypes,
        outer: tuple[Scope, ...] = (),
        references: References | None = None,
    ) -> None:
        self.catalog = catalog
        self.references: References = [] if references is None else references
        self.scopes = (scope, *outer)
        self.source = source
        self.engine = engine
        self.of_database = False  # whether the database computes the whole SELECT
        self._free: dict[int, tuple[exp.Expr, bool]] = {}
        self.left_to_database: list[exp.Expr] = []
        """Aggregates that the solver could not compute, should it have a say after all."""

    def position(self, node: exp.Expr) -> Position:
        return position_of(node, self.source)

    def resolve(self, node: exp.Column) -> tuple[Source, RelationColumn]:
        """The source and column a name means; the tree is qualified accordingly."""
        name, qualifier = node.name, node.table
        position = self.position(node)
        for scope in self.scopes:
            found = candidates(scope, name, qualifier)
            if len(found) > 1:
                aliases = ", ".join(source.alias for source, _ in found)
                raise AmbiguousColumnError(
                    f"column {name!r} is in several relations: {aliases}",
                    position=position,
                    hint=f"write {found[0][0].alias}.{name}",
                )
            if found:
                source, column = found[0]
                if scope is not self.scopes[0]:
                    self._refer(scope, source, column, node)
                node.set("table", exp.to_identifier(source.alias, quoted=True))
                node.this.set("this", column.name)
                node.this.set("quoted", True)
                return source, column
        shown = f"{qualifier}.{name}" if qualifier else name
        known = sorted(
            {column.name for source in self.scopes[0].values() for column in source.relation.columns}
        )
        raise UnknownColumnError(
            f"no column {shown!r}", position=position, hint=_nearest(name, known, "columns in scope")
        )

    def _refer(self, scope: Scope, source: Source, column: RelationColumn, node: exp.Column) -> None:
        for nearer in self.scopes:
            if nearer is scope:
                break
            if source.alias.lower() in nearer:
                raise AmbiguousColumnError(
                    f"column {node.name!r} is of the outer {source.alias!r}, and the subquery has one too",
                    position=self.position(node),
                    hint="give one of them an alias",
                )
        self.references.append((scope, source, column, node))

    def column(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.Column)
        if isinstance(node.this, exp.Star):
            raise self.unsupported(node, "* is only understood in a SELECT list and in count(*)", "name it")
        source, column = self.resolve(node)
        if column.symbolic:
            return Cell(column.type, self.position(node), source.alias, column.name)
        return DatabasePart(column.type, self.position(node), node)

    def scan(self, node: exp.Expr) -> bool:
        """Resolve the columns below a node; refuse variables and aggregates.  Whether an outer one is used."""
        if isinstance(node, exp.Query):
            return self.scan_subquery(node.unnest() if isinstance(node, exp.Subquery) else node)
        if isinstance(node, (exp.AggFunc, exp.Filter)) and not is_over_a_window(node):
            over = isinstance(node.parent, exp.Window)
            if over or not self.of_database:
                raise unknown_to_the_solver(node, self.source)
            self.left_to_database.append(node)
        if isinstance(node, exp.Anonymous) and not self.is_callable(node):
            raise self.unknown_function(str(node.this), node)
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            bound = self.column(node)
            if isinstance(bound, Cell):
                parent = node.parent or node
                raise self.unsupported(
                    parent,
                    f"{spelled(parent)} of {node.name!r}, which the solver decides",
                    "variables take =, <>, IN, comparison, arithmetic, CASE and the aggregates",
                )
            return self.scopes[0].get(node.table.lower()) is None
        outer = [self.scan(child) for child in node.iter_expressions()]
        return any(outer)

    def scan_subquery(self, tree: exp.Expr) -> bool:
        """Resolve a SELECT inside an expression, which may hold no variable.  Whether it is correlated."""
        if not isinstance(tree, exp.Select):
            if isinstance(tree, exp.SetOperation):
                return any([self.scan_subquery(tree.left.unnest()), self.scan_subquery(tree.right.unnest())])
            return self._scan_opaque(tree)
        items = from_items(tree)
        if tree.args.get("with_") or not all(map(_is_named, items)):
            return self._scan_opaque(tree)
        scope: dict[str, Source] = {}
        for table in items:
            assert isinstance(table, exp.Table)
            source = resolve_table(self.catalog, table, self.source)
            if source.relation.gated:
                raise self.unsupported(
                    table,
                    f"a subquery over {source.relation.name!r}, whose rows the solver decides",
                    "write a join or an aggregate in a CREATE VIEW of its own",
                )
            scope[source.alias.lower()] = source
        inner = Resolver(self.catalog, scope, self.source, self.engine, self.scopes, self.references)
        return inner.scan_select(tree)

    def _scan_opaque(self, tree: exp.Expr) -> bool:
        """A subquery of a form that only the engine reads; whether it is correlated, which is the engine's to say."""
        around = [
            column for scope in self.scopes for source in scope.values() for column in source.relation.columns
        ]
        symbolic = {column.name.lower() for column in around if column.symbolic}
        for table in tree.find_all(exp.Table):
            relation = self.catalog.find(table.name)
            if relation is not None and relation.symbolic:
                raise self.unsupported(table, f"a subquery of this form over {table.name!r}", _VIEW)
        for column in tree.find_all(exp.Column):
            if column.name.lower() in symbolic:
                raise self.unsupported(
                    column, f"{column.name!r}, which the solver decides, in this subquery", _VIEW
                )
        try:
            self.engine.columns(to_sql(tree))
        except RefusedStatementError:
            return True
        return False

    def scan_select(self, tree: exp.Select) -> bool:
        """Resolve every clause of a SELECT without variables.  Whether it refers to an outer SELECT."""
        outer = False
        outputs = {item.alias.lower() for item in tree.expressions if isinstance(item, exp.Alias)}
        for key, clause in tree.args.items():
            for part in clause if isinstance(clause, list) else [clause]:
                if not isinstance(part, exp.Expr) or key == "from_":
                    continue
                if isinstance(part, exp.Join):
                    outer |= any(self._scan_constant(on) for on in [part.args.get("on")] if on is not None)
                elif isinstance(part, exp.Star) or (
                    isinstance(part, exp.Column) and isinstance(part.this, exp.Star)
                ):
                    if any(source.relation.symbolic for source in self.scopes[0].values()):
                        raise self.unsupported(tree, "* over variables in a subquery", "name the columns")
                elif isinstance(part, (exp.Order, exp.Group)):
                    found = [self._scan_constant(one) for one in self._own_keys(part, outputs)]
                    outer |= any(found)
                else:
                    outer |= self._scan_constant(part)
        return outer

    def _own_keys(self, clause: exp.Order | exp.Group, outputs: set[str]) -> list[exp.Expr]:
        """Without those that name an output: in ORDER BY before a column, in GROUP BY after it."""
        ordered = isinstance(clause, exp.Order)
        keys: list[exp.Expr] = []
        for key in clause.iter_expressions():
            node = key.this if ordered else key
            named = isinstance(node, exp.Column) and not node.table and node.name.lower() in outputs
            if not named or not (ordered or not candidates(self.scopes[0], node.name, "")):
                keys.append(key)
        return keys

    def is_callable(self, node: exp.Expr) -> bool:
        """Whether the engine has this function."""
        return str(node.this).lower() in self.engine.functions

    def unknown_function(self, name: str, node: exp.Expr) -> UnknownFunctionError:
        """The error for a function that neither the language nor the database has."""
        close = get_close_matches(name.lower(), [*self.engine.functions, *OUR_AGGREGATES], n=1, cutoff=0.75)
        aggregates = ", ".join(OUR_AGGREGATES)
        return UnknownFunctionError(
            f"no function {name!r}",
            position=self.position(node),
            hint=f"did you mean {close[0]!r}?"
            if close
            else f"aggregates are count, sum, min, max, {aggregates}",
        )

    def _scan_constant(self, node: exp.Expr) -> bool:
        """As _scan, but aggregates are the database's business."""
        if isinstance(node, exp.Query):
            return self.scan_subquery(node.unnest() if isinstance(node, exp.Subquery) else node)
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return self.scan(node)
        outer = [self._scan_constant(child) for child in node.iter_expressions()]
        return any(outer)

    def unsupported(self, node: exp.Expr, what: str, hint: str) -> UnsupportedConstructError:
        return unsupported(node, self.source, what, hint)


def resolve_table(catalog: Catalog, table: exp.Table, source: SourceText) -> Source:
    """The relation a FROM item names; the tree is qualified in place."""
    relation = catalog.find(table.name)
    if table.args.get("db"):
        known = f": write {relation.name}" if relation is not None else ""
        raise UnknownTableError(
            f"no schema {table.db!r}",
            position=position_of(table, source),
            hint=f"tables and views are named without one{known}",
        )
    if relation is None:
        raise UnknownTableError(
            f"no table or view {table.name!r}",
            position=position_of(table, source),
            hint=_nearest(table.name, catalog.names, "known"),
        )
    alias = table.alias or relation.name
    if table.args.get("alias") and table.args["alias"].args.get("columns"):
        raise UnsupportedConstructError(
            "a list of column aliases in FROM",
            position=position_of(table, source),
            hint="alias in the SELECT",
        )
    others = sorted(name for name, given in table.args.items() if given and name not in _TABLE_PARTS)
    if others:
        raise unsupported(
            table,
            source,
            f"{others[0].upper()} of a table",
            "all rows of a table are read; leave out with WHERE those that are not meant",
        )
    table.this.set("this", relation.name)  # in place: the identifier knows where it stands
    table.this.set("quoted", True)
    table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return Source(alias, relation)


def _is_named(item: exp.Expr) -> bool:
    """Whether an item of FROM is the name of a table or view."""
    return isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier)


_SIGNS: Mapping[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "^",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseNot: "~",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def spelled(node: exp.Expr) -> str:
    """What a construct is called, as policies are written."""
    if isinstance(node, exp.Func):
        return str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name().lower()
    if isinstance(node, _COMPARED):
        return "a comparison"
    return _SIGNS.get(type(node)) or node.key.upper()


def _nearest(name: str, known: Sequence[str], what: str) -> str:
    close = get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(sorted(known)[:12])
    return f"{what}: {shown}" if shown else f"there are no {what}"
