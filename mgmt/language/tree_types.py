"""What type a tree of SQL has, before anything is bound: as far as dates must be told from texts and numbers.

What it is not: it checks nothing and changes nothing (see ``dates``); UNKNOWN is an honest answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from mgmt.language.catalog import Catalog
from mgmt.language.scopes import Scope, Source, candidates, from_items
from mgmt.state.schema import TEMPORAL, SqlType
from mgmt.state.schema_dates import KINDS

_KIND = "rota_type"
"""The key under which a tree that was made for another carries its type."""
_OF_CAST = {
    **dict.fromkeys(
        (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT), SqlType.INTEGER
    ),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), SqlType.TEXT),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL), SqlType.REAL),
    exp.DType.BOOLEAN: SqlType.BOOLEAN,
    **KINDS,
}
_LIKE_THEIR_OPERAND = (
    *(exp.Paren, exp.Alias, exp.Filter, exp.Window, exp.Distinct, exp.Order, exp.Ordered, exp.Max, exp.Min),
    *(exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue, exp.AnyValue, exp.IgnoreNulls),
    *(exp.RespectNulls, exp.Nullif, exp.PercentileDisc, exp.Mode),
)


def mark(tree: exp.Expr, kind: SqlType) -> exp.Expr:
    """The tree, which is of this type whatever it looks like; its copies are so too."""
    tree.meta[_KIND] = kind
    return tree


def marked(tree: exp.Expr) -> SqlType | None:
    """What it was marked with."""
    found: SqlType | None = tree.meta.get(_KIND)
    return found


class TreeTypes:
    """Types of the trees of one SELECT.  ``scopes``: its own and those around it, inner first."""

    def __init__(self, catalog: Catalog, scopes: Sequence[Scope], outputs: Sequence[exp.Expr] = ()) -> None:
        """``outputs`` can be named too, where no column has the name."""
        self._catalog = catalog
        self._scopes = scopes
        self._outputs = {output.alias.lower(): output for output in outputs if isinstance(output, exp.Alias)}
        self._known: dict[str, SqlType] = {}

    def of(self, node: exp.Expr) -> SqlType:
        """The type of a tree."""
        kind = marked(node)
        if kind is not None:
            return kind
        if isinstance(node, _LIKE_THEIR_OPERAND) and isinstance(node.this, exp.Expr):
            return self.of(node.this)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal):
            if node.is_string:
                return SqlType.TEXT
            return SqlType.INTEGER if node.this.isdecimal() else SqlType.REAL
        if isinstance(node, exp.Cast):
            return _OF_CAST.get(node.to.this, SqlType.UNKNOWN)
        if isinstance(node, exp.Boolean):
            return SqlType.BOOLEAN
        if isinstance(node, exp.Query):
            return self._query(node)
        return self.common(choices(node))

    def common(self, parts: Sequence[exp.Expr]) -> SqlType:
        """That of values of which one is taken: a date or time where one of them is."""
        kinds = {self.of(part) for part in parts} - {SqlType.UNKNOWN}
        if kinds & TEMPORAL:
            return SqlType.TIMESTAMP if SqlType.TIMESTAMP in kinds else SqlType.DATE
        return next(iter(kinds)) if len(kinds) == 1 else SqlType.UNKNOWN

    def _column(self, node: exp.Column) -> SqlType:
        for scope in self._scopes:
            found = candidates(scope, node.name, node.table)
            if found:
                return found[0][1].type if len(found) == 1 else SqlType.UNKNOWN
        name = node.name.lower()
        output = None if node.table else self._outputs.get(name)
        if output is not None and name not in self._known:
            self._known[name] = SqlType.UNKNOWN  # should it name itself
            self._known[name] = self.of(output)
        return self._known.get(name, SqlType.UNKNOWN) if output is not None else SqlType.UNKNOWN

    def _query(self, node: exp.Query) -> SqlType:
        """A SELECT of one value."""
        select = node.unnest() if isinstance(node, exp.Subquery) else node
        while isinstance(select, exp.SetOperation):
            select = select.left.unnest()
        if not isinstance(select, exp.Select) or len(select.expressions) != 1:
            return SqlType.UNKNOWN
        scope: dict[str, Source] = {}
        for item in from_items(select):
            relation = self._catalog.find(item.name) if isinstance(item, exp.Table) else None
            if relation is None:
                return SqlType.UNKNOWN
            alias = item.alias_or_name
            scope[alias.lower()] = Source(alias, relation)
        return TreeTypes(self._catalog, (scope, *self._scopes)).of(select.expressions[0])


def choices(node: exp.Expr) -> list[exp.Expr]:
    """The values of which a tree is one; none for a tree that is something else."""
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        found = [branch.args["true"] for branch in node.args["ifs"]]
        return [*found, default] if default is not None else found
    if isinstance(node, exp.If):
        default = node.args.get("false")
        return [node.args["true"], default] if default is not None else [node.args["true"]]
    if isinstance(node, (exp.Coalesce, exp.Greatest, exp.Least)):
        return [node.this, *node.expressions]
    return []


def own_nodes(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Those of a tree, without what is inside of its subqueries."""
    return tree.walk(prune=lambda node: node is not tree and isinstance(node, exp.Query))
