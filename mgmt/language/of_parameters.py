"""The rows that a SELECT gives for each of its parameters, all at once: one view with the parameters as columns.

The values of the parameters that there are stand in a view, which the SELECT is joined with.  GROUP BY and PARTITION BY
take the parameters with them, LIMIT counts the rows of each, and aggregates of all rows have a row for each.

What it is not: it does not know which columns are parameters (see ``lateral``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.errors import UnsupportedConstructError
from mgmt.language.catalog import Catalog, RelationColumn
from mgmt.language.column_names import selects_of
from mgmt.language.json_rows import Views
from mgmt.language.scopes import from_items
from mgmt.language.syntax import Statement
from mgmt.tokens import position_of

PARAMETERS = "parameters"
"""What the view of them is called where it is joined."""
_ROWS, _PLACE, _KEY, _PART = "rows", "place", "key", "part"
_COUNTS = (exp.Count, exp.RegrCount)
"""Aggregates that are 0 over no rows; the others are NULL."""


@dataclass(frozen=True, slots=True)
class OfParameters:
    """SELECTs whose parameters have these names, in the view of this name; ``called`` is what their rows are."""

    views: Views
    catalog: Catalog
    statement: Statement
    called: str
    view: str
    names: Sequence[str]

    def rows(self, body: exp.Expr) -> tuple[str, Sequence[RelationColumn]]:
        """A view of the rows of all parameters, and its columns."""
        order, limit, offset = (body.args.get(name) for name in ("order", "limit", "offset"))
        for name in ("order", "limit", "offset"):
            body.set(name, None)
        if limit is None and offset is None:
            return self.defined(self._with_parameters(body))
        if order is None or not isinstance(body, exp.Select):
            raise self._unsupported(body, "LIMIT in LATERAL of a UNION, or in no order")
        keys = self._keys(body, order)
        inner, columns = self.defined(self._with_parameters(body))
        own = [column for column in columns if column.name not in {name for name, _ in keys}]
        window = exp.Window(
            this=exp.RowNumber(),
            partition_by=[column_of(name) for name in self.names],
            order=exp.Order(expressions=[_ordered(name, key) for name, key in keys]),
            over="OVER",
        )
        place = f"{_PLACE} of {self.called}"
        placed = exp.alias_(window, place, quoted=True)
        numbered, _ = self.defined(
            exp.Select(expressions=[*_all(own), placed], from_=exp.From(this=table_of(inner)))
        )
        first = self._number(offset, "expression")
        condition: exp.Expr = exp.GT(this=column_of(place), expression=exp.Literal.number(first))
        if limit is not None:
            last = first + self._number(limit, "count" if isinstance(limit, exp.Fetch) else "expression")
            until = exp.LTE(this=column_of(place), expression=exp.Literal.number(last))
            condition = exp.and_(condition, until, copy=False)
        return self.defined(
            exp.Select(
                expressions=_all(own),
                from_=exp.From(this=table_of(numbered)),
                where=exp.Where(this=condition),
            )
        )

    def defined(self, tree: exp.Expr) -> tuple[str, Sequence[RelationColumn]]:
        """A view, and its columns."""
        view = self.views.define_anonymous(self.called, tree, self.statement)
        relation = self.catalog.find(view)
        assert relation is not None
        return view, relation.columns

    def _keys(self, body: exp.Select, order: exp.Order) -> list[tuple[str, exp.Ordered]]:
        """What is ordered by as outputs of the SELECT, with the names they have."""
        keys = []
        for number, ordered in enumerate(order.expressions):
            node = ordered.this
            for place, output in enumerate(body.expressions, 1):
                named = isinstance(node, exp.Column) and not node.table and node.name == output.alias
                if named or (isinstance(node, exp.Literal) and node.this == str(place)):
                    node = output.unalias()
            if body.args.get("distinct") and node not in [output.unalias() for output in body.expressions]:
                raise self._unsupported(node, "DISTINCT in LATERAL in an order that is no output")
            name = f"{_KEY} {number} of {self.called}"
            keys.append((name, ordered))
            body.append("expressions", exp.alias_(node.copy(), name, quoted=True))
        return keys

    def _number(self, clause: exp.Expr | None, name: str) -> int:
        if clause is None:
            return 0
        node = clause.args.get(name) or exp.Literal.number(1)  # FETCH FIRST ROW
        if not isinstance(node, exp.Literal) or not node.this.isdecimal():
            raise self._unsupported(clause, "a computed LIMIT in LATERAL")
        return int(node.this)

    def _with_parameters(self, body: exp.Expr) -> exp.Expr:
        if body.args.get("with_"):
            raise self._unsupported(body, "WITH in LATERAL")
        changed: Mapping[int, exp.Expr] = {
            id(select): self._select(select) for select in list(selects_of(body))
        }
        for select in list(selects_of(body)):
            if select is body:
                return changed[id(select)]
            select.replace(changed[id(select)])
        return body

    def _select(self, select: exp.Select) -> exp.Select:
        """One SELECT with its parameters as further outputs."""
        distinct = select.args.get("distinct")
        sides = {str(join.args.get("side") or "").upper() for join in select.args.get("joins") or ()}
        for clause, what in (
            (
                distinct if distinct is not None and distinct.args.get("on") else None,
                "DISTINCT ON in LATERAL",
            ),
            (select if sides & {"RIGHT", "FULL"} else None, "RIGHT and FULL joins in LATERAL"),
            (select.args.get("limit"), "LIMIT within a UNION in LATERAL"),
        ):
            if clause is not None:
                raise self._unsupported(clause, what)
        select = _without_stars(select)
        group = select.args.get("group")
        aggregates = [node for output in select.expressions for node in _aggregates(output)]
        if group is None and (aggregates or select.args.get("having")):
            return self._of_all_rows(select, aggregates)
        if group is not None:
            if (
                group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None
            ):  # whose total has a row for nothing
                raise self._unsupported(group, "GROUPING SETS in LATERAL")
            group.set("expressions", [*group.expressions, *self._parameters()])
        for window in [*select.find_all(exp.Window)]:
            if window.find_ancestor(exp.Select) is select and not window.args.get("alias"):
                window.set("partition_by", [*(window.args.get("partition_by") or ()), *self._parameters()])
        self._join_parameters(select)
        select.set("expressions", [*select.expressions, *self._outputs()])
        return select

    def _join_parameters(self, select: exp.Select) -> None:
        first = select.args.get("from_")
        if first is not None:
            select.set("joins", [exp.Join(this=first.this, kind="CROSS"), *(select.args.get("joins") or ())])
        select.set("from_", exp.From(this=table_of(self.view, PARAMETERS)))

    def _of_all_rows(self, select: exp.Select, aggregates: Sequence[exp.Expr]) -> exp.Select:
        """Aggregates without GROUP BY: there is a row for parameters that have none, too."""
        if select.args.get("having") or select.find(exp.Window) is not None:
            raise self._unsupported(select, "HAVING, or windows, in LATERAL without GROUP BY")
        outputs = select.expressions
        parts = []
        for number, aggregate in enumerate(aggregates):
            name = f"{_PART} {number}"
            parts.append(exp.alias_(aggregate.copy(), name, quoted=True))
            found: exp.Expr = column_of(name, _ROWS)
            if isinstance(aggregate.this if isinstance(aggregate, exp.Filter) else aggregate, _COUNTS):
                found = exp.Coalesce(this=found, expressions=[exp.Literal.number(0)])
            aggregate.replace(found)
        select.set("expressions", [*parts, *self._outputs()])
        select.set("group", exp.Group(expressions=self._parameters()))
        self._join_parameters(select)
        found_rows, _ = self.defined(select)
        own = exp.and_(
            *(
                exp.NullSafeEQ(this=column_of(name, _ROWS), expression=column_of(name, PARAMETERS))
                for name in self.names
            ),
            copy=False,
        )
        return exp.Select(
            expressions=[*outputs, *self._outputs()],
            from_=exp.From(this=table_of(self.view, PARAMETERS)),
            joins=[exp.Join(this=table_of(found_rows, _ROWS), side="LEFT", on=own)],
        )

    def _parameters(self) -> list[exp.Expr]:
        return [column_of(name, PARAMETERS) for name in self.names]

    def _outputs(self) -> list[exp.Expr]:
        return [exp.alias_(column_of(name, PARAMETERS), name, quoted=True) for name in self.names]

    def _unsupported(self, node: exp.Expr, what: str) -> UnsupportedConstructError:
        return unsupported(node, what, self.statement)


def unsupported(node: exp.Expr, what: str, statement: Statement) -> UnsupportedConstructError:
    """The error for what has no such rows."""
    return UnsupportedConstructError(
        f"cannot be encoded: {what}",
        position=position_of(node, statement.source),
        hint="write a join, or a CREATE VIEW that is joined",
    )


def _without_stars(select: exp.Select) -> exp.Select:
    """``*`` as the columns of each of its sources; there will be one more."""
    outputs: list[exp.Expr] = []
    for output in select.expressions:
        if isinstance(output, exp.Star):
            outputs += [
                exp.Column(this=exp.Star(), table=exp.to_identifier(item.alias_or_name, quoted=True))
                for item in from_items(select)
            ]
        else:
            outputs.append(output)
    select.set("expressions", outputs)
    return select


def _aggregates(output: exp.Expr) -> list[exp.Expr]:
    """Those of a SELECT's output that are of its rows, with their FILTER."""
    ends = (exp.Query, exp.Window, exp.AggFunc, exp.Filter)
    nodes = output.walk(prune=lambda node: isinstance(node, ends))
    return [node for node in nodes if isinstance(node, (exp.AggFunc, exp.Filter))]


def _all(columns: Sequence[RelationColumn]) -> list[exp.Expr]:
    return [exp.alias_(column_of(column.name), column.name, quoted=True) for column in columns]


def _ordered(name: str, key: exp.Ordered) -> exp.Ordered:
    changed = key.copy()
    changed.set("this", column_of(name))
    return changed


def column_of(name: str, table: str | None = None) -> exp.Column:
    """A column by its name as it is."""
    of = None if table is None else exp.to_identifier(table, quoted=True)
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=of)


def table_of(name: str, alias: str | None = None) -> exp.Table:
    """A relation in FROM."""
    called = None if alias is None else exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    return exp.Table(this=exp.to_identifier(name, quoted=True), alias=called)
