"""LATERAL (SELECT ...), which SQLite does not have, as a join with what the SELECT gives for each of its parameters.

The columns to the left that the SELECT names are its parameters.  Their values that there are become a view; joined
with it, the SELECT gives the rows of all of them at once, each with its parameters, by which what stands to the left
finds its own (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015, in the part that needs no new operator):
GROUP BY and PARTITION BY take the parameters with them, LIMIT counts the rows of each.

What it is not: it binds nothing; what it makes is the SQL that policies could have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlglot import exp

from mgmt.errors import PolicySyntaxError, UnsupportedConstructError
from mgmt.language.catalog import Catalog, RelationColumn
from mgmt.language.column_names import named_columns
from mgmt.language.json_rows import Views, demand
from mgmt.language.of_parameters import PARAMETERS, OfParameters, column_of, table_of, unsupported
from mgmt.language.row_sources import SERIES, is_series, name_of_series, series_as_select, values_as_selects
from mgmt.language.scopes import Scope, Source, candidates, from_items
from mgmt.language.syntax import Statement
from mgmt.source import SourceText
from mgmt.tokens import position_of


def is_lateral(item: exp.Expr) -> bool:
    """Whether it is a SELECT behind LATERAL, or a series, whose operands may be columns to the left."""
    return is_series(item) or (
        isinstance(item, exp.Lateral) and isinstance(item.this, (exp.Subquery, *SERIES))
    )


class _Parameter(NamedTuple):
    source: Source
    column: RelationColumn


@dataclass(slots=True)
class LateralRows:
    """What is known where one stands.  ``outer`` are the scopes of the SELECTs around it."""

    views: Views
    catalog: Catalog
    scope: Scope
    outer: tuple[Scope, ...]
    statement: Statement
    _called: str = field(init=False, default="")
    _known: dict[tuple[str, str], _Parameter] = field(init=False, default_factory=dict)
    """By alias and name, in lower case; the n-th is the column n of the view of them."""

    @property
    def _text(self) -> SourceText:
        return self.statement.source

    def replace(self, holder: exp.Expr, select: exp.Select) -> exp.Expr:
        """What stands in its place below ``holder``, which is FROM or a join of the SELECT."""
        item: exp.Expr = holder.this
        if isinstance(item.this, SERIES):
            return self._series(holder, select)
        alias = item.args.get("alias")
        if alias is None or not alias.this:
            raise PolicySyntaxError(
                "a derived table needs an alias",
                position=position_of(item, self._text),
                hint="write LATERAL (SELECT ...) AS name",
            )
        self._called = item.alias
        body = item.this.this
        if isinstance(body, exp.Values):
            body = values_as_selects(body, self._text)
        self._find_parameters(body)
        if not self._known:
            made: exp.Expr = exp.Subquery(this=body, alias=alias)
            item.replace(made)
            return made
        self._refuse_join(holder)
        return self._joined(holder, select, *self._of_parameters().rows(body), alias)

    def _series(self, holder: exp.Expr, select: exp.Select) -> exp.Expr:
        item = holder.this
        if not isinstance(item, exp.Table):  # the word LATERAL says nothing more
            item = exp.Table(this=item.this, alias=item.args.get("alias"))
            holder.set("this", item)
        self._called = item.alias or name_of_series(item)
        self._find_parameters(item)
        if not self._known:
            return item
        self._refuse_join(holder)
        made = self._of_parameters()
        tree = series_as_select(item, self._text, table_of(made.view, PARAMETERS), self._names)
        return self._joined(holder, select, *made.defined(tree), item.args["alias"])

    def _of_parameters(self) -> OfParameters:
        view = self._view_of_parameters()
        return OfParameters(self.views, self.catalog, self.statement, self._called, view, self._names)

    def _joined(
        self,
        holder: exp.Expr,
        select: exp.Select,
        view: str,
        columns: Sequence[RelationColumn],
        alias: exp.Expr,
    ) -> exp.Table:
        """The view of all rows in the place of the item, joined by the parameters."""
        relation = self.catalog.find(view)
        assert relation is not None
        if relation.symbolic:
            raise self._decided(holder.this)
        made = self._renamed(view, columns, alias)
        holder.this.replace(made)
        demand(holder, select, self._own_rows())
        return made

    def _renamed(self, view: str, columns: Sequence[RelationColumn], alias: exp.Expr) -> exp.Table:
        """The view under the names that its alias gives, without its parameters for who asks for all columns."""
        own = [column for column in columns if column.name not in self._names]
        named = [*named_columns(own, alias, self._text)]
        named += [replace(column, hidden=True) for column in columns if column.name in self._names]
        ordered = [*own, *(column for column in columns if column.name in self._names)]
        outputs = [
            exp.alias_(column_of(column.name), name.name, quoted=True)
            for column, name in zip(ordered, named, strict=True)
        ]
        tree = exp.Select(expressions=outputs, from_=exp.From(this=table_of(view)))
        return table_of(self.views.define_made(self._called, tree, named, self.statement), self._called)

    def _own_rows(self) -> exp.Expr:
        """That a row is one of those for the values to the left."""
        return exp.and_(
            *(
                (exp.NullSafeEQ if known.column.nullable else exp.EQ)(
                    this=column_of(name, self._called),
                    expression=column_of(known.column.name, known.source.alias),
                )
                for name, known in zip(self._names, self._known.values(), strict=True)
            ),
            copy=False,
        )

    # ---- parameters -----------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str]:
        return [f"{name} of {alias} for {self._called}" for alias, name in self._known]

    def _find_parameters(self, body: exp.Expr) -> None:
        for column in list(body.find_all(exp.Column)):
            if isinstance(column.this, exp.Star):
                continue
            known = self._meant(column, body)
            if known is None:
                continue
            if known.column.symbolic or known.source.relation.gated:
                raise self._decided(column)
            self._known.setdefault((known.source.alias.lower(), known.column.name.lower()), known)
        # Only now, for what a name means does not depend on others.
        for column in list(body.find_all(exp.Column)):
            meant = None if isinstance(column.this, exp.Star) else self._meant(column, body)
            if meant is not None:
                place = list(self._known).index((meant.source.alias.lower(), meant.column.name.lower()))
                parameter: exp.Expr = column_of(self._names[place], PARAMETERS)
                if isinstance(column.parent, exp.Select):  # an output keeps its name
                    parameter = exp.alias_(parameter, column.name, quoted=True)
                column.replace(parameter)

    def _meant(self, column: exp.Column, body: exp.Expr) -> _Parameter | None:
        """The column to the left that a name means; None for one of the SELECT's own."""
        node: exp.Expr | None = column
        derived = False
        while node is not None and node is not body.parent:
            if isinstance(node, exp.Select) and self._is_own(column, node):
                return None
            derived |= node is not body and isinstance(node.parent, (exp.From, exp.Join)) and _is_query(node)
            node = node.parent
        found = candidates(self.scope, column.name, column.table)
        around = [scope for scope in self.outer if candidates(scope, column.name, column.table)]
        if len(found) != 1:
            if around and not found:
                raise self._unsupported(column, "LATERAL that names columns of the SELECTs around")
            return None
        if derived:
            raise self._unsupported(column, "a column to the left in a derived table of LATERAL")
        return _Parameter(*found[0])

    def _is_own(self, column: exp.Column, select: exp.Select) -> bool:
        """Whether a SELECT has a source, or an output, that a name means before those to the left."""
        outputs = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        key = column.parent if isinstance(column.parent, exp.Ordered) else column
        sorted_by = not column.table and isinstance(key.parent, (exp.Order, exp.Group))
        if sorted_by and column.name.lower() in outputs:
            return True
        for item in from_items(select):
            if column.table:
                if item.alias_or_name.lower() == column.table.lower():
                    return True
                continue
            names = self._columns(item)
            if names is None or column.name.lower() in names:
                return True
        return False

    def _columns(self, item: exp.Expr) -> set[str] | None:
        """The columns of what stands in FROM, in lower case; None where that cannot be seen yet."""
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Query):
            named = item.args["alias"].args.get("columns") if item.alias else None
            names = [column.name for column in named or ()] or item.this.named_selects
            return None if "*" in names else {name.lower() for name in names}
        if isinstance(item, exp.Table) and is_series(item):
            return {name_of_series(item).lower()}
        relation = self.catalog.find(item.name) if isinstance(item, exp.Table) else None
        return None if relation is None else {column.name.lower() for column in relation.columns}

    def _view_of_parameters(self) -> str:
        sources = {known.source.alias: known.source for known in self._known.values()}
        tables = [table_of(source.relation.name, alias) for alias, source in sources.items()]
        outputs = [
            exp.alias_(column_of(known.column.name, known.source.alias), name, quoted=True)
            for name, known in zip(self._names, self._known.values(), strict=True)
        ]
        tree = exp.Select(
            expressions=outputs,
            distinct=exp.Distinct(),
            from_=exp.From(this=tables[0]),
            joins=[exp.Join(this=table, kind="CROSS") for table in tables[1:]],
        )
        return self.views.define_anonymous(PARAMETERS, tree, self.statement)

    # ---- what is refused ------------------------------------------------------------------------------

    def _refuse_join(self, holder: exp.Expr) -> None:
        side = str(holder.args.get("side") or "").upper()
        if side not in {"", "LEFT"}:
            raise self._unsupported(holder.this, f"a {side} JOIN of what stands to the left")
        if holder.args.get("using") or holder.args.get("method"):
            raise self._unsupported(holder.this, "USING of LATERAL")

    def _decided(self, node: exp.Expr) -> UnsupportedConstructError:
        return UnsupportedConstructError(
            "cannot be encoded: LATERAL of what the solver decides",
            position=position_of(node, self._text),
            hint="write a join, or a subquery in the SELECT list for a single value",
        )

    def _unsupported(self, node: exp.Expr, what: str) -> UnsupportedConstructError:
        return unsupported(node, what, self.statement)


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, (exp.Subquery, exp.Query)) and not isinstance(node.parent, exp.Lateral)
