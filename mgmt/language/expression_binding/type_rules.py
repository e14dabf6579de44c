"""Which operands go together: the types an operator or a function takes, and what it gives.

Types are SQL's, as far as the solver must know them; UNKNOWN goes with everything, for the database will say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from mgmt.errors import DataError, OverflowError, StatementTimeoutError, TypeMismatchError  # noqa: A004 - the published name
from mgmt.language.bound_queries.expressions import Expression, has_variable
from mgmt.language.expression_binding.name_resolution import Resolver, spelled
from mgmt.language.pushdown.column_types import RefusedStatementError
from mgmt.language.pushdown.engine_errors import error_of
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import TEXTUAL, SqlType

NUMERIC = {SqlType.INTEGER, SqlType.BOOLEAN, SqlType.REAL, SqlType.UNKNOWN}


def go_together(types: Iterable[SqlType]) -> bool:
    """Whether values of these types can stand side by side: numbers with numbers, texts with texts and dates."""
    known = set(types) - {SqlType.UNKNOWN}
    return not known & TEXTUAL or known <= TEXTUAL


def as_number(node: exp.Expr) -> None:
    """Put 0 or 1 in the place of a condition: DuckDB does not compute with TRUE and FALSE, the solver does."""
    inner = node.copy()
    inner.meta.update(node.meta)
    kind = exp.DataType.build("BIGINT", dialect="duckdb")
    node.replace(exp.Cast(this=exp.Paren(this=inner), to=kind))


class TypeRules(Resolver):
    """Checks the types of the bound expressions of one SELECT; every refusal says where."""

    def bind(self, node: exp.Expr) -> Expression:
        """The typed expression of a tree."""
        raise NotImplementedError

    def bind_for_database_alone(self, node: exp.Expr) -> Expression:
        """What only the database computes."""
        raise NotImplementedError

    def type_of(self, node: exp.Expr) -> SqlType:
        """What the engine says that a tree, whose columns are qualified, is."""
        if isinstance(node, (exp.Interval, exp.Star)):
            return SqlType.UNKNOWN
        sources = {s.alias: s.relation.name for scope in reversed(self.scopes) for s in scope.values()}
        try:
            return self.engine.type_of(to_sql(node), sources)
        except RefusedStatementError as error:
            if node.find(exp.AggFunc, exp.Window) is not None:  # it needs the groups around it
                return SqlType.UNKNOWN
            raise error_of(error, spelled(node), self.position(node)) from error
        except (DataError, OverflowError, StatementTimeoutError) as error:
            error.move(self.position(node))
            raise

    def check_comparable(self, left: Expression, right: Expression, operator: str, node: exp.Expr) -> None:
        """TypeMismatchError for text beside what is none."""
        if not go_together({left.type, right.type}):
            raise TypeMismatchError(
                f"{operator} compares {left.type} with {right.type}",
                position=self.position(node),
                hint="compare values of one type, or make one of the other: CAST(... AS TEXT)",
            )

    def require_truth(self, bound: Expression) -> None:
        """TypeMismatchError unless the expression is a condition."""
        if bound.type not in {SqlType.BOOLEAN, SqlType.UNKNOWN}:
            raise TypeMismatchError(
                f"expected a condition, found {bound.type}",
                position=bound.position,
                hint="compare it with something",
            )

    def common_type(self, node: exp.Expr, parts: Sequence[Expression]) -> SqlType:
        """The type that all the parts have or can be given; TypeMismatchError when there is none."""
        types = {part.type for part in parts} - {SqlType.UNKNOWN}
        if not types:
            return SqlType.UNKNOWN
        if len(types) == 1:
            return next(iter(types))
        if types <= TEXTUAL:
            return SqlType.TEXT if SqlType.TEXT in types else SqlType.TIMESTAMP
        if not go_together(types):
            raise TypeMismatchError(
                f"{' and '.join(sorted(types))} in one expression",
                position=self.position(node),
                hint="its values must be of one type: CAST(... AS TEXT) makes texts of the others",
            )
        return SqlType.REAL if SqlType.REAL in types else SqlType.INTEGER

    def refuse_variables(self, node: exp.Expr, parts: Sequence[Expression], what: str, hint: str) -> None:
        """UnsupportedConstructError unless the database can compute all the parts."""
        if any(has_variable(part) for part in parts):
            raise self.unsupported(node, what, hint)
