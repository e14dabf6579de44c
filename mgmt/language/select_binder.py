"""Binds one SELECT: sources, predicates, groups, outputs and what its tail demands.

The result is normalised: inner joins have lost their ON to the list of predicates, stars and positions are
spelled out, GROUP BY a variable has become a join with the variable's domain (so that every value is a
possible group).  Each predicate is marked as the database's or the solver's.

Possible groups (DCM, OSDI 2020, section 4): the groups of a query are those of its variable-free part, so a
host with nothing on it is a group with COUNT = 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from mgmt.errors import PolicySyntaxError, UnknownColumnError, UnsupportedConstructError
from mgmt.language.bound_queries.expressions import (
    Aggregate,
    Cell,
    ComputedKey,
    DatabasePart,
    Expression,
    has_aggregate,
    has_variable,
    signature,
)
from mgmt.language.bound_queries.queries import BoundQuery, Demand, Output, Predicate, PushedView, Subquery
from mgmt.language.expression_binding.expression_binder import ExpressionBinder
from mgmt.language.expression_binding.functional_dependencies import dependencies_of_view, ungrouped_columns
from mgmt.language.names.catalog import Relation, RelationColumn
from mgmt.language.names.scopes import References, Scope
from mgmt.language.normalization import pinned_rows as pins
from mgmt.language.normalization.select_normalizer import SelectNormalizer
from mgmt.language.normalization.soft_constraints import violation
from mgmt.language.parsing.trailing_clauses import TailKind
from mgmt.language.pushdown.aggregates import is_database_aggregate, unknown_to_the_solver
from mgmt.source_text import Position
from mgmt.sql.trees import conjuncts
from mgmt.state.schema import TEXTUAL, SqlType

# The clauses that are bound; any other one is the database's, or refused.
_ENCODED_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "kind", "hint"}
_CLAUSE_HINTS = {
    "distinct": "group by the columns instead",
    "order": "leave it out: rows have no order here",
}


class SelectBinder(SelectNormalizer):
    """Binds one SELECT."""

    # ---- the whole ----------------------------------------------------------------------------------

    def run(self, results: list[PushedView | BoundQuery]) -> None:
        """Bind, and append what came of it."""
        self._prepare()
        binder = self._binder()
        self._expand_domain_groups(binder)
        binder = self._binder()
        binder.of_database = self._tail is None and not self._is_gated()
        predicates = self._bind_predicates(binder)
        if self._tail is not None and self._tail.kind is TailKind.PINNED:
            assert self._tail_holder is not None
            condition = self._bind_conditions(binder, conjuncts(self._tail_holder.this))
            predicates = pins.rows_of(self._tail, predicates, condition, self._scope, self._catalog.schema)
        keys = self._bind_keys(binder)
        having = self._bind_having(binder)
        outputs = self._bind_outputs(binder)
        demand = self._bind_demand(binder)
        parts = [output.expression for output in outputs]
        parts.extend(part.expression for part in (demand, having) if part is not None)
        having, outputs, demand = self._in_terms_of(keys, having, outputs, demand)
        if keys is None and (binder.left_to_database or any(has_aggregate(part) for part in parts)):
            keys = ()  # one group of all rows
        made = self._statement.made_groups
        all_of_them = keys == () and not any(has_aggregate(output.expression) for output in outputs)
        if demand is not None and keys is not None and (made or all_of_them):
            # SELECT * FROM task CHECK count(*) < 3: what differs from row to row is not shown of their group.
            outputs = [one for one in outputs if not self._ungrouped([one.expression], keys)]
        self._check_reason(outputs, keys)
        involved = self._involves_solver(predicates, having, outputs, demand)
        if demand is None and not involved:
            self._scan_other_clauses(binder)
            if keys is not None:
                self._check_grouped(keys, outputs, None, having)
            self._define_pushed(outputs, results)
            return
        self._refuse_unencodable_clauses()
        if involved:
            for aggregate in binder.left_to_database:
                raise unknown_to_the_solver(aggregate, self._text)
            self._refuse_what_only_the_database_knows()
        if keys is not None:
            self._check_grouped(keys, outputs, demand, having)
        query = BoundQuery(
            self._name,
            self._statement.position,
            tuple(self._scope.values()),
            self._skeleton(),
            tuple(predicates),
            keys,
            having,
            tuple(outputs),
            demand,
            self._statement.strict_groups or self._distinct or any(map(has_variable, keys or ())),
        )
        if demand is None:
            self._define(query)
        results.append(query)

    def bind_subquery(self) -> BoundQuery:
        """Bind a SELECT inside an expression: of its groups there are those with rows."""
        self._prepare()
        binder = self._binder()
        predicates = self._bind_predicates(binder)
        keys = self._bind_keys(binder)
        having, outputs, _ = self._in_terms_of(
            keys, self._bind_having(binder), self._bind_outputs(binder), None
        )
        self._refuse_unencodable_clauses()
        self._refuse_what_only_the_database_knows()
        if keys is None and (having or any(has_aggregate(output.expression) for output in outputs)):
            keys = ()
        if keys is not None:
            self._check_grouped(keys, outputs, None, having)
        return BoundQuery(
            self._name,
            self._position(self._tree),
            tuple(self._scope.values()),
            self._skeleton(),
            tuple(predicates),
            keys,
            having,
            tuple(outputs),
            None,
            bool(keys),
        )

    def _bind_subquery(
        self, tree: exp.Select, scopes: tuple[Scope, ...], references: References
    ) -> BoundQuery:
        return SelectBinder(
            self._views,
            self._catalog,
            self._engine,
            self._name,
            tree,
            None,
            self._statement,
            outer=scopes,
            references=references,
        ).bind_subquery()

    def _involves_solver(
        self,
        predicates: Iterable[Predicate],
        having: Predicate | None,
        outputs: Iterable[Output],
        demand: Demand | None,
    ) -> bool:
        if self._is_gated():
            return True
        if any(predicate.by_solver for predicate in predicates):
            return True
        parts = [output.expression for output in outputs]
        parts.extend(part.expression for part in (having, demand) if part is not None)
        return any(has_variable(part) for part in parts)

    def _is_gated(self) -> bool:
        """Whether the solver decides the rows of a source."""
        return any(source.relation.gated for source in self._scope.values())

    def _define_pushed(self, outputs: list[Output], results: list[PushedView | BoundQuery]) -> None:
        empty = [output.name.lower() for output in outputs if _is_null(output.tree)]
        results.append(self._views.push(self._name, self._tree, self._statement, empty=empty))

    def _define(self, query: BoundQuery) -> None:
        """Make the view visible, with what is symbolic in it."""
        columns = []
        for output in query.outputs:
            expression = output.expression
            symbolic = not isinstance(expression, DatabasePart)
            origin = None
            nullable = True
            if isinstance(expression, Cell):
                column = self._scope[expression.source.lower()].relation.find(expression.column)
                assert column is not None
                origin, nullable = column.origin, column.nullable
            columns.append(
                RelationColumn(
                    output.name, expression.type, symbolic, origin, nullable, _is_null(output.tree)
                )
            )
        gated = query.having is not None and query.having.by_solver
        if query.keys is None:
            gated = any(predicate.by_solver for predicate in query.predicates) or any(
                source.relation.gated for source in query.sources
            )
        elif query.strict_groups:
            gated = True
        names = _names_of_columns(query)
        dependencies = dependencies_of_view(query.sources, self._catalog.schema, names)
        relation = Relation(self._name, tuple(columns), gated, _view_key(query, names), dependencies)
        self._catalog.define(relation)
        self._engine.define_symbolic(relation)

    # ---- steps --------------------------------------------------------------------------------------

    def _bind_predicates(self, binder: ExpressionBinder) -> list[Predicate]:
        trees: list[exp.Expr] = []
        for join in self._tree.args.get("joins") or ():
            on = join.args.get("on")
            if on is None:
                continue
            if not join.args.get("side"):
                trees.extend(conjuncts(on))
            else:
                binder.require_truth(binder.bind(on))  # free of variables: others have become views
        where = self._tree.args.get("where")
        if where is not None:
            trees.extend(conjuncts(where.this))
        return self._bind_conditions(binder, trees)

    def _bind_conditions(self, binder: ExpressionBinder, trees: Iterable[exp.Expr]) -> list[Predicate]:
        found = []
        for tree in trees:
            known = len(binder.left_to_database)
            bound = binder.bind(tree)
            if has_aggregate(bound) or len(binder.left_to_database) > known:
                raise PolicySyntaxError(
                    "an aggregate in WHERE or ON", position=self._position(tree), hint="use HAVING or CHECK"
                )
            binder.require_truth(bound)
            found.append(Predicate(tree, bound, has_variable(bound)))
        return found

    def _bind_keys(self, binder: ExpressionBinder) -> tuple[DatabasePart | ComputedKey, ...] | None:
        group = self._tree.args.get("group")
        if group is None:
            return None
        bound = [binder.bind(tree) for tree in group.expressions]
        computed = [place for place, key in enumerate(bound) if not isinstance(key, DatabasePart)]
        keys: list[DatabasePart | ComputedKey] = []
        for place, (tree, key) in enumerate(zip(group.expressions, bound, strict=True)):
            if isinstance(key, DatabasePart):
                keys.append(key)
                continue
            if has_aggregate(key):
                raise PolicySyntaxError(
                    "an aggregate in GROUP BY",
                    position=key.position,
                    hint="compute it in a CREATE VIEW of its own, and group the rows of that",
                )
            number = computed.index(place) - len(computed)
            keys.append(ComputedKey(key.type, key.position, key, tree, number))
        return tuple(keys)

    def _in_terms_of(
        self,
        keys: tuple[DatabasePart | ComputedKey, ...] | None,
        having: Predicate | None,
        outputs: list[Output],
        demand: Demand | None,
    ) -> tuple[Predicate | None, list[Output], Demand | None]:
        """What is said of groups, computed keys in it put as such."""
        computed = {signature(key.operand): key for key in keys or () if isinstance(key, ComputedKey)}
        if not computed:
            return having, outputs, demand

        def change(expression: Expression) -> Expression:
            key = computed.get(signature(expression))
            if key is not None or isinstance(expression, (Aggregate, Subquery)):
                return expression if key is None else key
            return expression.with_children(change)

        return (
            None if having is None else replace(having, expression=change(having.expression)),
            [replace(output, expression=change(output.expression)) for output in outputs],
            None if demand is None else replace(demand, expression=change(demand.expression)),
        )

    def _bind_having(self, binder: ExpressionBinder) -> Predicate | None:
        clause = self._tree.args.get("having")
        if clause is None:
            return None
        bound = binder.bind(clause.this)
        binder.require_truth(bound)
        return Predicate(clause.this, bound, True)

    def _bind_outputs(self, binder: ExpressionBinder) -> list[Output]:
        return [Output(item.alias, item, binder.bind(item.this)) for item in self._tree.expressions]

    def _bind_demand(self, binder: ExpressionBinder) -> Demand | None:
        if self._tail is None or self._tail_holder is None:
            return None
        tail = self._tail
        if tail.kind is TailKind.PINNED:
            self._tail_holder.set("this", pins.values_of_today(tail, self._scope, self._catalog.schema))
            tail = replace(tail, kind=TailKind.CHECK, expression=self._tail_holder.this)
        tree = self._tail_holder.this
        bound = binder.bind(tree)
        if tail.kind is TailKind.CHECK:
            binder.require_truth(bound)
            tree = self._tail_holder.this  # dates are others by now
            if tail.soft:
                tree = violation(tree, binder)
                bound = binder.bind(tree)
        elif bound.type in TEXTUAL | {SqlType.REAL}:
            raise self._unsupported(
                tree, f"an objective of type {bound.type}", "an objective is a whole number"
            )
        return Demand(tail, tree, bound)

    def _check_reason(self, outputs: list[Output], keys: Sequence[DatabasePart | ComputedKey] | None) -> None:
        """A reason speaks of constant columns of the row, or of the group."""
        reason = None if self._tail is None else self._tail.reason
        if reason is None:
            return
        known = {o.name.lower(): isinstance(o.expression, DatabasePart) for o in outputs}
        if keys is None:
            told = [name for source in self._scope.values() for name in source.relation.key]
        else:
            told = [key.tree.name for key in keys if isinstance(key.tree, exp.Column)]
        for name in told:
            known.setdefault(name.lower(), True)
        row = "row" if keys is None else "group"
        for name in reason.names:
            if name.lower() not in known:
                raise UnknownColumnError(
                    f"REASON names {{{name}}}, which is no selected column of the {row}",
                    position=reason.position,
                    hint=f"columns of the {row}: {', '.join(sorted(known)) or 'none'}",
                )
            if not known[name.lower()]:
                raise UnsupportedConstructError(
                    f"cannot be encoded: REASON names {{{name}}}, which the solver decides",
                    position=reason.position,
                    hint="name constant columns of the row",
                )

    def _refuse_unencodable_clauses(self) -> None:
        """Whatever is not known to be encoded is refused, so that nothing is dropped."""
        for clause, found in self._tree.args.items():
            if not found or clause in _ENCODED_CLAUSES:
                continue
            hint = _CLAUSE_HINTS.get(clause, "compute it in a variable-free view")
            node = found[0] if isinstance(found, list) else found
            node = node if isinstance(node, exp.Expr) else self._tree
            raise self._unsupported(node, f"{clause.rstrip('_').upper()} here", hint)

    def _refuse_what_only_the_database_knows(self) -> None:
        """A window is over the rows there are, and which these are is not known where the database computes."""
        for part in [self._tree, *([self._tail_holder] if self._tail_holder is not None else [])]:
            for node in part.walk(prune=lambda node: isinstance(node, exp.Query) and node is not self._tree):
                if is_database_aggregate(node):
                    raise unknown_to_the_solver(node, self._text)
                if isinstance(node, exp.Window):
                    raise self._unsupported(
                        node,
                        "a window beside what the solver decides",
                        "compute it in a view without variables, and join that by its key",
                    )

    def _scan_other_clauses(self, binder: ExpressionBinder) -> None:
        """ORDER BY, DISTINCT ON and the like of a view that the database computes alone."""
        names = {output.alias.lower() for output in self._tree.expressions}
        for clause, found in self._tree.args.items():
            if not found or clause in _ENCODED_CLAUSES:
                continue
            for node in found if isinstance(found, list) else [found]:
                for column in node.find_all(exp.Column) if isinstance(node, exp.Expr) else ():
                    if column.table or column.name.lower() not in names:
                        binder.scan(column)

    def _check_grouped(
        self,
        keys: tuple[DatabasePart | ComputedKey, ...],
        outputs: list[Output],
        demand: Demand | None,
        having: Predicate | None,
    ) -> None:
        parts = [part.expression for part in (demand, having, *outputs) if part is not None]
        for position, table, column in self._ungrouped(parts, keys):
            raise PolicySyntaxError(
                f"column {table}.{column} must be in GROUP BY or inside an aggregate",
                position=position,
                hint=f"add it to GROUP BY, or say which of a group is meant: min({column})",
            )

    def _ungrouped(
        self, parts: Sequence[Expression], keys: Sequence[DatabasePart | ComputedKey]
    ) -> list[tuple[Position, str, str]]:
        return list(ungrouped_columns(parts, keys, self._scope, self._settled))


def _is_null(tree: exp.Expr) -> bool:
    return isinstance(tree.unalias(), exp.Null)


def _names_of_columns(query: BoundQuery) -> dict[tuple[str, str], str]:
    """What a view calls columns of its sources that it passes on: by alias and name, in lower case."""
    found: dict[tuple[str, str], str] = {}
    for output in query.outputs:
        expression = output.expression
        if isinstance(expression, Cell):
            found.setdefault((expression.source.lower(), expression.column.lower()), output.name.lower())
        elif isinstance(expression, DatabasePart) and isinstance(expression.tree, exp.Column):
            column = expression.tree
            found.setdefault((column.table.lower(), column.name.lower()), output.name.lower())
    return found


def _view_key(query: BoundQuery, names: Mapping[tuple[str, str], str]) -> tuple[str, ...]:
    """Outputs that tell the rows of a view apart: its group keys when all of them are selected."""
    if query.keys is None:
        if len(query.sources) != 1:
            return ()
        wanted = [(query.sources[0].alias.lower(), name.lower()) for name in query.sources[0].relation.key]
    else:
        columns = [key.tree for key in query.keys if isinstance(key.tree, exp.Column)]
        wanted = [(column.table.lower(), column.name.lower()) for column in columns]
        if len(columns) < len(query.keys):
            return ()
    return tuple(names[column] for column in wanted) if all(column in names for column in wanted) else ()
