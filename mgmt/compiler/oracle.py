"""The oracle: plain SQL in the database re-checks every plan with the decided values put in.

Independent of the encoder: it starts again from the bound SQL.  Possible groups are had by grouping the
variable-free part of a query and giving every aggregate the solver's predicates as its FILTER, so that an empty
group stays a group.  A view whose rows the solver decides keeps all candidate rows here, with a column that
says which exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.compiler.split import from_clause, to_sql
from mgmt.language.bound import BoundQuery, PushedView
from mgmt.language.catalog import Catalog, domain_sql
from mgmt.solution import PrimaryKey, Value
from mgmt.state.database import Snapshot
from mgmt.state.schema import Table, quote

EXISTS = "row exists"  # no column of a policy has this name: it would need quotes and a space

Assignments = Mapping[tuple[str, str], Mapping[PrimaryKey, Value]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the database says of an assignment: broken demands in words, and the value of each objective."""

    violations: tuple[str, ...]
    objectives: Mapping[str, int]


class Oracle:
    """Checks assignments of one compiled program.  The SQL is made once."""

    def __init__(self, results: Sequence[PushedView | BoundQuery], catalog: Catalog) -> None:
        self._catalog = catalog
        self._views = []
        self._checks: list[tuple[str, str]] = []
        self._objectives: list[tuple[str, str]] = []
        for result in results:
            if isinstance(result, PushedView):
                self._views.append(f"CREATE VIEW {quote(result.name)} AS {to_sql(result.tree)}")
            elif result.demand is None:
                self._views.append(f"CREATE VIEW {quote(result.name)} AS {_view_sql(result)}")
            elif result.demand.is_objective:
                self._objectives.append((result.name, _objective_sql(result)))
            else:
                self._checks.append((result.name, _check_sql(result)))

    def examine(self, snapshot: Snapshot, assignments: Assignments) -> Verdict:
        """Put the values in, ask every constraint and objective, and take the values out again."""
        with snapshot.scratch():
            for table in snapshot.schema.tables:
                for column in table.variables:
                    _write(snapshot, table, column.name, assignments[table.name, column.name])
            for view in self._views:
                snapshot.run(view)
            violations = [
                *self._schema_violations(snapshot),
                *(f"{name}: {count} rows" for name, count in self._ask(snapshot, self._checks) if count),
            ]
            objectives = dict(self._ask(snapshot, self._objectives))
        return Verdict(tuple(violations), objectives)

    def _ask(self, snapshot: Snapshot, questions: Iterable[tuple[str, str]]) -> list[tuple[str, int]]:
        return [(name, int(snapshot.rows(sql)[0][0])) for name, sql in questions]

    def _schema_violations(self, snapshot: Snapshot) -> Iterable[str]:
        """Domains, NOT NULL and UNIQUE over variable columns."""
        for table in snapshot.schema.tables:
            for column in table.variables:
                name = quote(column.name)
                wrong = f"{name} NOT IN (SELECT value FROM ({domain_sql(self._catalog, table.name, column.name)}))"
                if not column.nullable:
                    wrong = f"{name} IS NULL OR {wrong}"
                count = snapshot.rows(f"SELECT count(*) FROM {quote(table.name)} WHERE {wrong}")[0][0]
                if count:
                    yield f"{table.name}.{column.name}: {count} values outside the domain"
            variable = {column.name.lower() for column in table.variables}
            for unique in table.uniques:
                if not variable & {name.lower() for name in unique}:
                    continue
                names = ", ".join(map(quote, unique))
                known = " AND ".join(f"{quote(name)} IS NOT NULL" for name in unique)
                sql = f"SELECT 1 FROM {quote(table.name)} WHERE {known} GROUP BY {names} HAVING count(*) > 1"
                if snapshot.rows(f"SELECT count(*) FROM ({sql})")[0][0]:
                    yield f"{table.name}: UNIQUE ({names}) is broken"


def _write(snapshot: Snapshot, table: Table, column: str, values: Mapping[PrimaryKey, Value]) -> None:
    key = " AND ".join(f"{quote(name)} IS ?{number}" for number, name in enumerate(table.primary_key, 2))
    snapshot.run(
        f"UPDATE {quote(table.name)} SET {quote(column)} = ?1 WHERE {key}",
        [(value, *primary_key) for primary_key, value in values.items()],
    )


def _solver_predicates(query: BoundQuery) -> list[str]:
    """The conditions under which a candidate row exists."""
    gated = [source for source in query.sources if source.relation.gated]
    conditions = [f"{quote(source.alias)}.{quote(EXISTS)}" for source in gated]
    conditions.extend(f"({to_sql(p.tree)})" for p in query.predicates if p.by_solver)
    return conditions


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _constant_predicates(query: BoundQuery) -> list[str]:
    return [f"({to_sql(p.tree)})" for p in query.predicates if not p.by_solver]


def _view_sql(query: BoundQuery) -> str:
    """A view; when the solver decides its rows, with all candidates and the EXISTS column."""
    conditions = _solver_predicates(query)
    if query.keys is not None:
        outputs = [f"{_grouped(o.tree.this, query)} AS {quote(o.name)}" for o in query.outputs]
        exists = _group_exists(query)
        if exists:
            outputs.append(f"{exists} AS {quote(EXISTS)}")
        return f"SELECT {', '.join(outputs)} {_grouped_from(query)}"
    outputs = [f"{to_sql(o.tree.this)} AS {quote(o.name)}" for o in query.outputs]
    if conditions:
        outputs.append(f"({' AND '.join(conditions)}) AS {quote(EXISTS)}")
    return f"SELECT {', '.join(outputs)} {from_clause(query)}{_where(_constant_predicates(query))}"


def _grouped_from(query: BoundQuery) -> str:
    """FROM, WHERE and GROUP BY of the variable-free part: its groups are the possible ones."""
    text = f"{from_clause(query)}{_where(_constant_predicates(query))}"
    if query.keys:
        text += f" GROUP BY {', '.join(to_sql(key.tree) for key in query.keys)}"
    return text


def _group_exists(query: BoundQuery) -> str:
    parts = []
    if query.strict_groups:
        conditions = _solver_predicates(query)
        parts.append(f"count(*){_filter(conditions)} > 0")
    if query.having is not None:
        parts.append(f"({_grouped(query.having.tree, query)})")
    return f"({' AND '.join(parts)})" if parts else ""


def _filter(conditions: Sequence[str]) -> str:
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def _check_sql(query: BoundQuery) -> str:
    """How many rows break the condition; TRUE and UNKNOWN pass."""
    return f"SELECT count(*) FROM ({_demand_rows(query)}) WHERE NOT value"


def _objective_sql(query: BoundQuery) -> str:
    return f"SELECT coalesce(sum(value), 0) FROM ({_demand_rows(query)})"


def _demand_rows(query: BoundQuery) -> str:
    assert query.demand is not None
    if query.keys is None:
        conditions = [*_constant_predicates(query), *_solver_predicates(query)]
        return f"SELECT ({to_sql(query.demand.tree)}) AS value {from_clause(query)}{_where(conditions)}"
    # Nothing is demanded of no input at all, so the group of all rows needs a candidate.
    exists = " AND ".join(part for part in ("count(*) > 0", _group_exists(query)) if part)
    return f"SELECT ({_grouped(query.demand.tree, query)}) AS value {_grouped_from(query)} HAVING {exists}"


def _grouped(tree: exp.Expr, query: BoundQuery) -> str:
    """An expression over groups: every aggregate looks at the rows that exist; SUM over none is 0."""
    holder = exp.Paren(this=tree.copy())
    conditions = _solver_predicates(query)
    replacements: list[tuple[exp.Expr, str]] = []
    _collect_aggregates(holder.this, conditions, replacements)
    for node, text in replacements:
        node.replace(exp.Var(this=text))
    return to_sql(holder.this)


def _collect_aggregates(
    node: exp.Expr, conditions: Sequence[str], replacements: list[tuple[exp.Expr, str]]
) -> None:
    if isinstance(node, exp.Query):
        return  # a subquery is free of variables and stays as it is
    if isinstance(node, exp.Filter):
        own = [*conditions, f"({to_sql(node.expression.this)})"]
        replacements.append((node, _aggregate_sql(node.this, own)))
    elif isinstance(node, (exp.Count, exp.Sum, exp.Min, exp.Max)) or _is_all_different(node):
        replacements.append((node, _aggregate_sql(node, conditions)))
    else:
        for child in node.iter_expressions():
            _collect_aggregates(child, conditions, replacements)


def _is_all_different(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "all_different"


def _aggregate_sql(node: exp.Expr, conditions: Sequence[str]) -> str:
    if _is_all_different(node):
        operand = to_sql(node.expressions[0])
        suffix = _filter(conditions)
        return f"(count({operand}){suffix} = count(DISTINCT {operand}){suffix})"
    text = f"{to_sql(node)}{_filter(conditions)}"
    return f"coalesce({text}, 0)" if isinstance(node, exp.Sum) else text
