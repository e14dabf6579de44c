"""Bind subqueries in expressions: scalar, EXISTS, IN, and comparisons with ANY and ALL.

One in which the solver has no say stays SQL and is computed by the database.  Any other is bound like a SELECT of its
own that sees the names of those around it (:class:`~mgmt.language.bound_queries.queries.Subquery`); what groups,
sorts or combines SELECTs is made a view first, which it can only be when it does not refer to the outer query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from mgmt.errors import TypeMismatchError, UnsupportedConstructError
from mgmt.language.bound_queries.expressions import (
    Cell,
    DatabasePart,
    Expression,
    SubqueryKind,
    has_aggregate,
    has_variable,
)
from mgmt.language.bound_queries.queries import BoundQuery, Subquery
from mgmt.language.names.scopes import References, Scope
from mgmt.sql.trees import named_table
from mgmt.state.schema import TEXTUAL, SqlType

if TYPE_CHECKING:
    from mgmt.language.expression_binding.expression_binder import ExpressionBinder

# Clauses that a view understands and a subquery does not.
_AS_MANY = "select as many columns as are compared"
_OF_VIEWS = ("with_", "group", "having", "limit", "offset", "distinct")


@dataclass(frozen=True, slots=True)
class EnclosingSelect:
    """What binding a subquery needs of the SELECT around it.

    ``define_view(tree)`` makes a view of a SELECT and returns its name; ``bind_select(tree, scopes, references)``
    binds one that sees the scopes around it and notes what it uses of them.
    """

    define_view: Callable[[exp.Expr], str]
    bind_select: Callable[[exp.Select, tuple[Scope, ...], References], BoundQuery]


class SubqueryBinder:
    """Binds the subqueries of the expressions of one SELECT; ``binder`` binds everything else in them."""

    def __init__(self, binder: ExpressionBinder) -> None:
        self._binder = binder
        self.enclosing: EnclosingSelect | None = None
        """None: what is not the database's is refused."""

    def bind(
        self,
        node: exp.Expr,
        inner: exp.Expr,
        kind: SubqueryKind,
        operator: str = "=",
        operands: Sequence[Expression] = (),
    ) -> Expression:
        """``inner`` is the SELECT below ``node``, which is what the database would compute."""
        position = self._binder.position(node)
        computed_here = any(has_variable(operand) or has_aggregate(operand) for operand in operands)
        boolean = kind is not SubqueryKind.VALUE
        if not computed_here:
            try:
                self._binder.scan_subquery(_select_of(inner))
            except UnsupportedConstructError:
                if self.enclosing is None:
                    raise
            else:
                self.check_width(node, _select_of(inner), kind, operands)
                kind_of_value = SqlType.BOOLEAN if boolean else self._binder.type_of(node)
                return DatabasePart(kind_of_value, position, node)
        if self.enclosing is None:
            raise self._binder.unsupported(node, "a subquery here", "define a CREATE VIEW")
        select = self._plain_select(node, inner, kind)
        references: References = []
        query = self.enclosing.bind_select(select, self._binder.scopes, references)
        parameters, names, outer_cells = self._outer_columns(references)
        if not computed_here and not outer_cells and not _involves_solver(query):
            kind_of_value = SqlType.BOOLEAN if boolean else query.outputs[0].expression.type
            return DatabasePart(kind_of_value, position, node)
        self._check_outputs(node, query, kind, operator, operands)
        _sum_of_nothing_is_zero(select)
        return Subquery(
            SqlType.BOOLEAN if boolean else query.outputs[0].expression.type,
            position,
            kind,
            operator,
            tuple(operands),
            parameters,
            names,
            outer_cells,
            query,
            query.keys == () or _is_single(query),
        )

    def check_width(
        self, node: exp.Expr, select: exp.Expr, kind: SubqueryKind, operands: Sequence[Expression]
    ) -> None:
        """The same of a subquery that the database computes."""
        while isinstance(select, exp.SetOperation):
            select = _select_of(select.this)
        if kind is SubqueryKind.EXISTS or not isinstance(select, exp.Select):
            return
        found, wanted = self._width(select), 1 if kind is SubqueryKind.VALUE else len(operands)
        if found != wanted:
            raise TypeMismatchError(
                f"the subquery gives {found} columns where {wanted} are compared",
                position=self._binder.position(node),
                hint=_AS_MANY,
            )

    def _width(self, select: exp.Select) -> int:
        """How many columns a SELECT has, each * written out."""
        tables = {
            table.alias_or_name.lower(): self._binder.catalog.find(table.name)
            for table in select.find_all(exp.Table)
        }
        found = 0
        for output in select.expressions:
            star = isinstance(output, exp.Column) and isinstance(output.this, exp.Star)
            if star or isinstance(output, exp.Star):
                wanted = output.table.lower() if star else None
                relations = [known for alias, known in tables.items() if wanted in {None, alias}]
                found += sum(len(relation.columns) for relation in relations if relation is not None)
            else:
                found += 1
        return found

    def _plain_select(self, node: exp.Expr, inner: exp.Expr, kind: SubqueryKind) -> exp.Select:
        """The subquery as a SELECT with FROM and WHERE alone; anything more becomes a view."""
        assert self.enclosing is not None
        select = _select_of(inner)
        if isinstance(select, exp.Select):
            if select.args.get("limit") is None and select.args.get("offset") is None:
                select.set("order", None)  # an order without a limit changes nothing here
            if kind is not SubqueryKind.VALUE and isinstance(select.args.get("distinct"), exp.Distinct):
                select.set("distinct", None)  # nor does it matter how often a row is there
            if kind is SubqueryKind.EXISTS and _is_at_least_one(select.args.get("limit")):
                select.set("limit", None)
            if self._is_plain(select):
                if kind is SubqueryKind.EXISTS and not list(select.find_all(exp.AggFunc)):
                    select.set("expressions", [exp.Literal.number(1)])
                return select
        if self._refers_outside(select):
            raise self._binder.unsupported(
                node,
                "a subquery that refers to the outer query and has DISTINCT, LIMIT, WITH or UNION",
                "write it as a view with the columns it is compared by, and compare them in WHERE",
            )
        parent, key = select.parent, select.arg_key
        assert parent is not None
        name = self.enclosing.define_view(select)
        relation = self._binder.catalog.find(name)
        assert relation is not None
        columns = [exp.column(c.name, quoted=True) for c in relation.columns]
        made = exp.Select(expressions=columns, from_=exp.From(this=named_table(name)))
        parent.set(str(key), made)
        return made

    def _is_plain(self, select: exp.Select) -> bool:
        """Whether it is bound where it stands; what of its groups does not refer to the outer query becomes a view."""
        clauses = {clause for clause in _OF_VIEWS if select.args.get(clause)}
        return not clauses or (clauses <= {"group", "having"} and self._refers_outside(select))

    def _refers_outside(self, select: exp.Expr) -> bool:
        """Whether a column can only be one of the SELECTs around it."""
        relations = [self._binder.catalog.find(table.name) for table in select.find_all(exp.Table)]
        aliases = {table.alias_or_name.lower() for table in select.find_all(exp.Table)}
        aliases |= {derived.alias.lower() for derived in select.find_all(exp.Subquery) if derived.alias}
        known = {column.name.lower() for relation in relations if relation for column in relation.columns}
        known |= {alias.alias.lower() for alias in select.find_all(exp.Alias)}
        around = {name: source for scope in self._binder.scopes for name, source in scope.items()}
        for column in select.find_all(exp.Column):
            if isinstance(column.this, exp.Star):
                continue
            if column.table:
                if column.table.lower() not in aliases and column.table.lower() in around:
                    return True
            elif column.name.lower() not in known and any(
                source.relation.find(column.name) for source in around.values()
            ):
                return True
        return False

    def _outer_columns(
        self, references: References
    ) -> tuple[tuple[Expression, ...], tuple[tuple[str, str], ...], tuple[Expression, ...]]:
        """What a subquery uses of the SELECTs around it, bound there: constants, their names, and cells."""
        parameters: list[Expression] = []
        names: list[tuple[str, str]] = []
        cells: list[Expression] = []
        seen: set[tuple[str, str]] = set()
        for scope, source, column, node in references:
            name = (source.alias.lower(), column.name.lower())
            if name in seen or not any(scope is known for known in self._binder.scopes):
                continue
            seen.add(name)
            bound = self._binder.column(node.copy())
            if isinstance(bound, Cell):
                cells.append(bound)
            else:
                # The copy has lost its place in the text.
                parameters.append(
                    DatabasePart(
                        bound.type,
                        self._binder.position(node),
                        exp.column(column.name, table=source.alias, quoted=True),
                    )
                )
                names.append(name)
        return tuple(parameters), tuple(names), tuple(cells)

    def _check_outputs(
        self,
        node: exp.Expr,
        query: BoundQuery,
        kind: SubqueryKind,
        operator: str,
        operands: Sequence[Expression],
    ) -> None:
        wanted = {SubqueryKind.EXISTS: None, SubqueryKind.VALUE: 1}.get(kind, len(operands))
        if wanted is not None and len(query.outputs) != wanted:
            raise TypeMismatchError(
                f"the subquery gives {len(query.outputs)} columns where {wanted} are compared",
                position=self._binder.position(node),
                hint=_AS_MANY,
            )
        if kind in {SubqueryKind.ANY, SubqueryKind.ALL}:
            for operand, output in zip(operands, query.outputs, strict=True):
                self._binder.check_comparable(operand, output.expression, operator, node)
                if TEXTUAL & {operand.type, output.expression.type} and operator not in {"=", "<>"}:
                    raise self._binder.unsupported(
                        node, f"{operator} on text that the solver decides", "compare text with = or <>"
                    )


def _select_of(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, (exp.Subquery, exp.Paren)):
        tree = tree.this
    return tree


def _involves_solver(query: BoundQuery) -> bool:
    return (
        any(source.relation.gated for source in query.sources)
        or any(predicate.by_solver for predicate in query.predicates)
        or any(has_variable(part) for part in query.expressions)
    )


def _is_at_least_one(limit: exp.Expr | None) -> bool:
    """Whether a LIMIT leaves a row where there is one."""
    number = None if limit is None else limit.expression
    return isinstance(number, exp.Literal) and number.this.isdecimal() and int(number.this) > 0


def _sum_of_nothing_is_zero(select: exp.Select) -> None:
    """As in groups: what has nothing on it has a load of 0.  Here for the database; the solver does so anyway."""
    having = select.args.get("having")
    for output in [*select.expressions, *([] if having is None else [having])]:
        for node in list(output.find_all(exp.Sum)):
            if node.find_ancestor(exp.Select) is select:
                inner = node.parent if isinstance(node.parent, exp.Filter) else node
                wrapped = exp.Coalesce(this=inner.copy(), expressions=[exp.Literal.number(0)])
                if inner.parent != wrapped:  # bound before
                    inner.replace(wrapped)


def _is_single(query: BoundQuery) -> bool:
    """At most one row: the only source is told by its key which row is meant."""
    if len(query.sources) != 1 or not query.sources[0].relation.key:
        return False
    alias = query.sources[0].alias.lower()
    fixed = set()
    for predicate in query.predicates:
        tree = predicate.tree
        if not isinstance(tree, exp.EQ):
            continue
        for one, other in ((tree.this, tree.expression), (tree.expression, tree.this)):
            own = {column.table.lower() for column in other.find_all(exp.Column)}
            if isinstance(one, exp.Column) and one.table.lower() == alias and alias not in own:
                fixed.add(one.name.lower())
    return fixed >= {name.lower() for name in query.sources[0].relation.key}
