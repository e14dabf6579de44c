"""The SQL of the oracle: bound queries as plain SQL over tables that hold the decided values.

Possible groups are had by grouping the variable-free part of a query and giving every aggregate the solver's
predicates as its FILTER, so that an empty group stays a group.  A view whose rows the solver decides keeps all
candidate rows, with a column that says which exist; whatever reads such a view asks for that column.

What it is not: it asks nothing itself (see ``oracle``), and shares nothing with the encoder but the bound trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from mgmt.compiler.relational.split import from_clause
from mgmt.compiler.verification.outer_joins import THERE, empty_group, joined_rows, named
from mgmt.language.bound_queries.queries import BoundQuery, UnionView
from mgmt.language.names.scopes import Source
from mgmt.language.pushdown.aggregates import aggregate_sql, is_ours
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.state.schema import quote

EXISTS = "row exists"  # no column of a policy has this name: it would need quotes and a space


@dataclass(frozen=True, slots=True)
class Asked:
    """One number that is asked: an expression over the rows of a FROM clause.

    While one of the relations it ``needs`` has no row, the answer is 0.
    """

    answer: str
    rows: str
    needs: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """The whole statement."""
        return f"SELECT {self.answer}{self.rows}"


class OracleSql:
    """Writes the oracle's SQL.

    ``gated`` are the names of the views whose rows the solver decides, ``tables`` those of the schema's tables.
    ``joins``: without cross products where that can be, and so that much is asked of the same rows.
    """

    def __init__(self, gated: Iterable[str], tables: Iterable[str], *, joins: bool = True) -> None:
        self._joins = joins
        self._gated = {name.lower() for name in gated}
        self._tables = {name.lower() for name in tables}

    def view(self, query: BoundQuery) -> str:
        """A view; when the solver decides its rows, with all candidates and the EXISTS column."""
        conditions = self._solver_predicates(query)
        if query.keys is not None:
            rows, existing = self._groups(query, [o.tree.this for o in query.outputs])
            outputs = [f"{self._grouped(o.tree.this, existing)} AS {quote(o.name)}" for o in query.outputs]
            exists = self._group_exists(query, existing)
            if exists:
                outputs.append(f"{exists} AS {quote(EXISTS)}")
            return f"SELECT {', '.join(outputs)}{rows}"
        outputs = [f"{self._sql(o.tree.this)} AS {quote(o.name)}" for o in query.outputs]
        if conditions:
            outputs.append(f"({' AND '.join(conditions)}) AS {quote(EXISTS)}")
        where = _where(self._constant_predicates(query))
        return f"SELECT {', '.join(outputs)} {from_clause(query)}{where}"

    def union(self, view: UnionView) -> str:
        """The parts one after the other, with the EXISTS column when the solver decides the rows of one."""
        selects = []
        for part in view.parts:
            pairs = zip(part.columns, view.columns, strict=True)
            outputs = [f"{quote(column.name)} AS {quote(target.name)}" for column, target in pairs]
            if view.gated:
                outputs.append(f"{quote(EXISTS) if part.gated else 'TRUE'} AS {quote(EXISTS)}")
            selects.append(f"SELECT {', '.join(outputs)} FROM {quote(part.name)}")
        return " UNION ALL ".join(selects)

    def check(self, query: BoundQuery) -> Asked:
        """How many rows break the condition; TRUE and UNKNOWN pass."""
        if query.keys is None and query.demand is not None and self._of_one_table(query):
            broken = f"NOT ({to_sql(query.demand.tree)})"
            return self._counted([*self._predicates(query), broken], query.sources)
        return Asked("count(*)", f" FROM ({self._demanded(query)}) WHERE NOT value", needed(query))

    def quick_checks(self, query: BoundQuery) -> tuple[Asked, ...]:
        """Counts that are all 0 only if no row breaks the condition; none where there is no short way to tell."""
        conditions = self._solver_predicates(query)
        plain = query.keys is None or query.having is not None or query.strict_groups
        if not self._joins or query.demand is None or plain or not conditions:
            return ()
        tree = query.demand.tree
        empty = empty_group(query, tree)
        if empty is None:
            return ()
        rows = f" {from_clause(query)}{_where(self._predicates(query))}"
        keys = [to_sql(key.tree) for key in query.keys or ()]
        names = ", ".join([*keys, *self._fixed_columns(query, keys)])
        rows += f" GROUP BY {names}" if keys else " HAVING count(*) > 0"
        holder = exp.Paren(this=self._with_existing_rows(tree))
        _replace_aggregates(holder, ())
        value = to_sql(holder)
        groups = Asked("count(*)", f" FROM (SELECT {value} AS value{rows}) WHERE NOT value", needed(query))
        return groups, self._counted(*empty)

    def objective(self, query: BoundQuery) -> Asked:
        """What the objective is worth."""
        return Asked("coalesce(sum(value), 0)", f" FROM ({self._demanded(query)})", needed(query))

    def quick_objective(self, query: BoundQuery) -> tuple[Asked, ...]:
        """The same of one group of all rows, over those that exist; NULL where that does not tell."""
        assert query.demand is not None
        if not self._joins or query.having is not None or query.keys != ():
            return ()
        conditions = self._predicates(query)
        tree = query.demand.tree.unnest()
        if isinstance(tree, exp.Count) and isinstance(tree.this, exp.Star) and self._of_one_table(query):
            return (self._counted(conditions, query.sources),)
        holder = exp.Paren(this=self._with_existing_rows(tree))
        _replace_aggregates(holder, ())
        value = f"coalesce({to_sql(holder)}, 0)"
        if not conditions and len(query.sources) == 1:
            # Nothing is demanded of no candidates.
            answer = f"CASE WHEN count(*) > 0 THEN {value} ELSE 0 END"
            return (Asked(answer, f" {from_clause(query)}", needed(query)),)
        if not self._solver_predicates(query):
            return ()
        rows = f"SELECT count(*) AS existing, {value} AS value {from_clause(query)}{_where(conditions)}"
        # Another value than 0 of no rows may be that of no candidates, of which nothing is demanded.
        answer = "CASE WHEN existing > 0 OR value = 0 THEN value END"
        return (Asked(answer, f" FROM ({rows})", needed(query)),)

    # ---- parts --------------------------------------------------------------------------------------

    def _demanded(self, query: BoundQuery) -> str:
        """What is demanded of each row or group."""
        assert query.demand is not None
        if query.keys is None:
            rows = f"{from_clause(query)}{_where(self._predicates(query))}"
            return f"SELECT ({self._sql(query.demand.tree)}) AS value {rows}"
        rows, existing = self._groups(query, [query.demand.tree])
        # Nothing is demanded of no input at all, so the group of all rows needs a candidate.
        exists = [self._group_exists(query, existing), "" if query.keys else "count(*) > 0"]
        having = " AND ".join(part for part in exists if part)
        value = self._grouped(query.demand.tree, existing)
        return f"SELECT ({value}) AS value{rows}{f' HAVING {having}' if having else ''}"

    def _of_one_table(self, query: BoundQuery) -> bool:
        """Whether what is asked of its rows can be asked of all rows of a table together with more."""
        assert query.demand is not None
        trees = (query.demand.tree, *(predicate.tree for predicate in query.predicates))
        names = {source.relation.name.lower() for source in query.sources}
        alone = self._joins and len(query.sources) == 1 and names <= self._tables
        return alone and not any(tree.find(exp.Query) for tree in trees)

    def _counted(self, conditions: Sequence[str], sources: Sequence[Source]) -> Asked:
        """How many rows of the sources meet the conditions."""
        names = tuple(source.relation.name for source in sources)
        rows = f" FROM {', '.join(map(named, sources))}" if sources else ""
        if len(sources) == 1 and names[0].lower() in self._tables:  # together with what else is asked of it
            return Asked(f"count(*){_filter(conditions)}", rows, names)
        return Asked("count(*)", f"{rows}{_where(conditions)}", names)

    def _predicates(self, query: BoundQuery) -> list[str]:
        return [*self._constant_predicates(query), *self._solver_predicates(query)]

    def _solver_predicates(self, query: BoundQuery) -> list[str]:
        """The conditions under which a candidate row exists."""
        gated = [source for source in query.sources if source.relation.gated]
        conditions = [f"{quote(source.alias)}.{quote(EXISTS)}" for source in gated]
        conditions.extend(f"({self._sql(p.tree)})" for p in query.predicates if p.by_solver)
        return conditions

    def _constant_predicates(self, query: BoundQuery) -> list[str]:
        return [f"({to_sql(p.tree)})" for p in query.predicates if not p.by_solver]

    def _groups(self, query: BoundQuery, trees: Sequence[exp.Expr]) -> tuple[str, list[str]]:
        """FROM, WHERE and GROUP BY of the possible groups, and the conditions under which a row in one exists.

        They are those of the variable-free part.
        """
        existing = self._solver_predicates(query)
        having = [] if query.having is None else [query.having.tree]
        text = joined_rows(query, [*trees, *having], existing) if self._joins else None
        if text is not None:
            existing = [quote(THERE)]
        else:
            text = f" {from_clause(query)}{_where(self._constant_predicates(query))}"
        if query.keys:
            keys = [to_sql(key.tree) for key in query.keys]
            text += f" GROUP BY {', '.join([*keys, *self._fixed_columns(query, keys)])}"
        return text, existing

    def _fixed_columns(self, query: BoundQuery, keys: Sequence[str]) -> list[str]:
        """Columns that the keys determine, as the binder has checked, which the engine does not know."""
        sources = {s.alias.lower() for s in query.sources}
        trees = [output.tree for output in query.outputs] if query.demand is None else [query.demand.tree]
        trees += [query.having.tree] if query.having is not None else []
        used = (column for tree in trees for column in _outside_aggregates(tree, keys))
        found = dict.fromkeys(to_sql(column) for column in used if column.table.lower() in sources)
        return [text for text in found if text not in keys]

    def _group_exists(self, query: BoundQuery, existing: Sequence[str]) -> str:
        parts = []
        if query.strict_groups:
            parts.append(f"count(*){_filter(existing)} > 0")
        if query.having is not None:
            parts.append(f"({self._grouped(query.having.tree, existing)})")
        return f"({' AND '.join(parts)})" if parts else ""

    def _sql(self, tree: exp.Expr) -> str:
        """An expression, whose subqueries see only the rows that exist."""
        return to_sql(self._with_existing_rows(tree))

    def _with_existing_rows(self, tree: exp.Expr) -> exp.Expr:
        holder = exp.Paren(this=tree.copy())
        for select in list(holder.find_all(exp.Select)):
            items = [select.args["from_"].this] if select.args.get("from_") else []
            items += [join.this for join in select.args.get("joins") or ()]
            for item in items:
                if isinstance(item, exp.Table) and item.name.lower() in self._gated:
                    condition = exp.column(EXISTS, table=item.alias_or_name, quoted=True)
                    select.where(condition, copy=False)
            # A sum is what DuckDB says; where the solver has a say in its rows the binder has written that it is 0.
            for node in list(select.walk()):
                if is_ours(node.this if isinstance(node, exp.Filter) else node):
                    node.replace(exp.Var(this=_aggregate(node, ())))
        found: exp.Expr = holder.this
        return found

    def _grouped(self, tree: exp.Expr, existing: Sequence[str]) -> str:
        """An expression over groups: every aggregate looks at the rows that exist; SUM over none is 0."""
        holder = exp.Paren(this=self._with_existing_rows(tree))
        _replace_aggregates(holder, existing)
        return to_sql(holder.this)


def needed(query: BoundQuery) -> tuple[str, ...]:
    """The relations of a query that a row of it has a row of."""
    relations = {source.alias.lower(): source.relation.name for source in query.sources}
    start = query.skeleton.args.get("from_")
    found = [start.this.alias_or_name.lower()] if start is not None else []
    for join in query.skeleton.args.get("joins") or ():
        if join.side == "LEFT":
            continue
        if join.side or join.kind not in {"", "INNER", "CROSS"}:
            return ()
        found.append(join.this.alias_or_name.lower())
    return tuple(relations[alias] for alias in found if alias in relations)


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _filter(conditions: Sequence[str]) -> str:
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def _replace_aggregates(tree: exp.Expr, conditions: Sequence[str]) -> None:
    """Each aggregate below a tree, but not in its subqueries, by one over the rows that meet the conditions."""
    replacements: list[tuple[exp.Expr, str]] = []
    _collect_aggregates(tree, conditions, replacements)
    for node, text in replacements:
        node.replace(exp.Var(this=text))


def _aggregate(node: exp.Expr, conditions: Sequence[str]) -> str:
    """One aggregate, with its FILTER if it has one, over the rows that meet the conditions."""
    if isinstance(node, exp.Filter):
        return _aggregate_sql(node.this, [*conditions, f"({to_sql(node.expression.this)})"])
    return _aggregate_sql(node, conditions)


def _collect_aggregates(
    node: exp.Expr, conditions: Sequence[str], replacements: list[tuple[exp.Expr, str]]
) -> None:
    if isinstance(node, exp.Query):
        return  # it has conditions of its own
    if isinstance(node, exp.Filter):
        own = [*conditions, f"({to_sql(node.expression.this)})"]
        replacements.append((node, _aggregate_sql(node.this, own)))
    elif isinstance(node, (exp.Count, exp.Sum, exp.Min, exp.Max)) or is_ours(node):
        replacements.append((node, _aggregate_sql(node, conditions)))
    else:
        for child in node.iter_expressions():
            _collect_aggregates(child, conditions, replacements)


def _outside_aggregates(tree: exp.Expr, keys: Sequence[str]) -> Iterator[exp.Column]:
    """The columns that must be the same in every row of a group, without those in what it is grouped by."""

    def is_apart(node: exp.Expr) -> bool:
        return isinstance(node, (exp.AggFunc, exp.Filter)) or is_ours(node) or to_sql(node) in keys

    for node in tree.walk(prune=is_apart):
        if isinstance(node, exp.Column) and to_sql(node) not in keys:
            yield node


def _aggregate_sql(node: exp.Expr, conditions: Sequence[str]) -> str:
    suffix = _filter(conditions)
    if is_ours(node):
        return aggregate_sql(node, suffix, to_sql)
    text = f"{to_sql(node)}{suffix}"
    return f"coalesce({text}, 0)" if isinstance(node, exp.Sum) else text
