"""Lint: what compiles and is probably not meant, in the policies and in the rows they are about.

Rules about the text need no rows; rules about the state look at those there are, and say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from mgmt.compiler.encoding.encoder import Encoder, Encoding
from mgmt.compiler.model import Model
from mgmt.errors import OverflowError, PolicyError  # noqa: A004 - the published name
from mgmt.explaining.policies.lineage import Lineage
from mgmt.language.bound_queries.queries import BoundQuery, Demand
from mgmt.language.names.catalog import domain_sql
from mgmt.language.normalization.group_by_variable import replace_columns
from mgmt.language.parsing.statements import parse_statements
from mgmt.language.parsing.trailing_clauses import TailKind
from mgmt.language.pushdown.engine_errors import refusals_at
from mgmt.language.pushdown.sql_text import to_sql
from mgmt.source_text import Position
from mgmt.sql.annotations import ANNOTATIONS, nearest, unknown_annotations
from mgmt.sql.tokens import tokenize
from mgmt.state.database import Snapshot
from mgmt.state.schema import Column, SqlType, Table, literal, quote
from mgmt.state.schema_parsing.column_bounds import MOST_VALUES, bounds
from mgmt.state.sources.misspelling import misspelt

_MOST_SHOWN = 5
_MOST_COMPARED = 10_000
"""Values that a text may be the misspelt one of."""


class Rule(StrEnum):
    CROSS_PRODUCT = "cross-product"
    UNKNOWN_ANNOTATION = "unknown-annotation"
    UNREAD_VIEW = "unread-view"
    UNUSED_VARIABLE = "unused-variable"
    RENAMED_VARIABLE = "renamed-variable"
    FROZEN_VARIABLE = "frozen-variable"
    CONSTANT_OBJECTIVE = "constant-objective"
    CONSTANT_CHECK = "constant-check"
    NULL_COMPARISON = "null-comparison"
    NO_VARIABLE = "no-variable"
    WEIGHT_OVERFLOW = "weight-overflow"
    VIOLATED_TODAY = "violated-today"
    NEVER_BINDS = "never-binds"
    NO_ROWS = "no-rows"
    NO_CANDIDATE = "no-candidate"
    MISSPELT_VALUE = "misspelt-value"
    MISSING_LABEL = "missing-label"
    UNASSIGNED = "unassigned"


# What follows from the rows of today is worth knowing; so is what programs may read or rows alone have to meet.
_NOTES = {
    Rule.UNREAD_VIEW,
    Rule.NO_VARIABLE,
    Rule.VIOLATED_TODAY,
    Rule.NEVER_BINDS,
    Rule.NO_ROWS,
    Rule.NO_CANDIDATE,
    Rule.MISSPELT_VALUE,
}
_COMPARING = {TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE}
_SECONDS = 10.0
"""That the database may take for what is said beside a plan."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at."""

    rule: Rule
    message: str
    position: Position | None
    hint: str = ""

    @property
    def is_warning(self) -> bool:
        """False for a remark, mostly about the rows of today."""
        return self.rule not in _NOTES

    def __str__(self) -> str:
        where = f"{self.position}: " if self.position is not None else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.rule}: {self.message}{hint}"


def lint(model: Model) -> tuple[Finding, ...]:
    """All findings, in the order of the rules above."""
    found = [
        *_cross_products(model),
        *_unknown_annotations(model),
        *_unread_views(model),
        *_unused_variables(model),
        *_renamed_variables(model),
        *_findings_in_rows(model),
        *remarks(model),
    ]
    told = {finding.position for finding in found if finding.rule in {Rule.CONSTANT_CHECK, Rule.NO_VARIABLE}}
    found = [one for one in found if one.rule is not Rule.NEVER_BINDS or one.position not in told]
    # A variable without a value, or with one that it cannot have, breaks what every plan keeps.
    kept = {finding.position for finding in found if finding.rule is Rule.NEVER_BINDS}
    found = [one for one in found if one.rule is not Rule.VIOLATED_TODAY or one.position not in kept]
    order = list(Rule)
    return tuple(sorted(found, key=lambda finding: order.index(finding.rule)))


def remarks(model: Model) -> tuple[Finding, ...]:
    """What a plan does not show: the policies that say nothing, and the values of today that no plan can keep."""
    frozen = list(_frozen_variables(model))
    with model.database.snapshot() as snapshot:
        found = [
            *frozen,
            *_rules_for_rows(model, {finding.position for finding in frozen}),
            *_comparisons_with_null(model),
            *_constant_objectives(model, snapshot),
            *_constant_checks(model, snapshot),
        ]
        try:
            with snapshot.within(_SECONDS):
                found += [*_without_rows(model, snapshot), *_without_candidates(model, snapshot)]
                found += _misspelt_values(model, snapshot)
        except PolicyError:
            pass  # too long, or nothing to compute with: nothing is known, so nothing is said
    return tuple(found)


# ---- the text -------------------------------------------------------------------------------------------


def _cross_products(model: Model) -> Iterator[Finding]:
    """Sources that nothing joins: every row meets every row, each pair with a say of the solver."""
    lineage = Lineage(model)
    for query in model.queries:
        if not isinstance(query, BoundQuery):
            continue
        groups = lineage.joined(query)
        large = [
            group
            for group in groups
            if not all(
                lineage.is_single_row(query, alias) or lineage.is_grouped_by(query, alias) for alias in group
            )
        ]
        if len(large) > 1:
            names = " and ".join(min(group) for group in large)
            yield Finding(
                Rule.CROSS_PRODUCT,
                f"{query.name} pairs every row of {names} with every other",
                query.position,
                "join them ON something, or select from one of them",
            )


def _unknown_annotations(model: Model) -> Iterator[Finding]:
    known = ", ".join(f"@{name}" for name in ANNOTATIONS)
    for text in (*model.database.schema_texts, *model.texts):
        for word, position in unknown_annotations(text):
            meant = nearest(word)
            yield Finding(
                Rule.UNKNOWN_ANNOTATION,
                f"@{word} is read over like any comment",
                position,
                f"did you mean @{meant}?" if meant else f"the annotations are {known}",
            )


def _unread_views(model: Model) -> Iterator[Finding]:
    """Views that nothing names but the statement that makes them."""
    named = Counter(token.text.lower() for text in model.texts for token in tokenize(text))
    for text in model.texts:
        for statement in parse_statements(text):
            if statement.tail is None and named[statement.name.lower()] == 1:
                yield Finding(
                    Rule.UNREAD_VIEW,
                    f"nothing reads the view {statement.name}, and it demands nothing itself",
                    statement.position,
                    "end it in CHECK, MINIMIZE or MAXIMIZE, or leave it out",
                )


def _unused_variables(model: Model) -> Iterator[Finding]:
    used = Lineage(model).variables_used()
    for table in model.database.schema.tables:
        for column in table.variables:
            if (table.name, column.name) not in used:
                yield Finding(
                    Rule.UNUSED_VARIABLE,
                    f"no constraint and no objective speaks of {table.name}.{column.name}, "
                    "so any value of its domain will do",
                    column.position,
                    "constrain it, or drop the column",
                )


def _renamed_variables(model: Model) -> Iterator[Finding]:
    """A view that gives a variable a name like that of a constant."""
    for query in model.queries:
        if not isinstance(query, BoundQuery) or query.demand is not None:
            continue
        relation = model.catalog.find(query.name)
        for column in relation.columns if relation is not None else ():
            if column.origin is None or "__" in column.name:
                continue
            yield Finding(
                Rule.RENAMED_VARIABLE,
                f"the view {query.name} calls {'.'.join(column.origin)} {column.name!r}, "
                "which readers take for today's value",
                query.position,
                f"keep the name {column.origin[1]}",
            )


def _frozen_variables(model: Model) -> Iterator[Finding]:
    """A rule about today's value that leaves the solver no say."""
    lineage = Lineage(model)
    for query in model.queries:
        if not isinstance(query, BoundQuery) or query.demand is None or lineage.involves_solver(query):
            continue
        for table, column in sorted(lineage.columns_used(query)):
            paired = [
                variable.name
                for variable in model.database.schema.table(table).variables
                if (variable.current or "").lower() == column.lower()
            ]
            if paired:
                yield Finding(
                    Rule.FROZEN_VARIABLE,
                    f"{query.name} looks at {table}.{column}, the value of today, which no plan changes",
                    query.demand.tail.position,
                    f"did you mean {paired[0]}?",
                )


def _demands(model: Model) -> Iterator[tuple[BoundQuery, Demand]]:
    for query in model.queries:
        if isinstance(query, BoundQuery) and query.demand is not None:
            yield query, query.demand


def _rules_for_rows(model: Model, frozen: Collection[Position | None]) -> Iterator[Finding]:
    """Constraints in which the solver has no say; that they look at the value of today is another finding, at
    ``frozen``."""
    lineage = Lineage(model)
    for query, demand in _demands(model):
        said = demand.is_objective or lineage.involves_solver(query) or demand.tail.position in frozen
        if not said and demand.tail.expression.find(exp.Column) is not None:
            yield Finding(
                Rule.NO_VARIABLE,
                f"{query.name} reads no variable: it holds or fails whatever is decided",
                demand.tail.position,
            )


def _comparisons_with_null(model: Model) -> Iterator[Finding]:
    """``x = NULL`` is NULL whatever x is: in WHERE no row meets it, and a CHECK lets all pass."""
    for text in model.texts:
        for operator, operand in pairwise(tokenize(text)):
            if operator.token_type in _COMPARING and operand.token_type is TokenType.NULL:
                yield Finding(
                    Rule.NULL_COMPARISON,
                    f"{operator.text} NULL is neither true nor false",
                    text.position(operator.start),
                    "write IS NULL or IS NOT NULL",
                )


def _constant_objectives(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    lineage = Lineage(model)
    for query, demand in _demands(model):
        if demand.tail.kind is TailKind.CHECK or not demand.is_objective:
            continue
        if not lineage.involves_solver(query) or _constant(query, demand, snapshot) in (0, None):
            yield Finding(
                Rule.CONSTANT_OBJECTIVE,
                f"{query.name} is worth the same whatever is decided",
                demand.tail.position,
                "let it speak of a variable column",
            )


def _constant_checks(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    for query, demand in _demands(model):
        if demand.tail.kind is TailKind.CHECK and _constant(query, demand, snapshot) in (True, None):
            yield Finding(
                Rule.CONSTANT_CHECK,
                f"{query.name} demands nothing: its CHECK passes whatever is decided",
                demand.tail.position,
                "let it speak of a variable column",
            )


def _constant(query: BoundQuery, demand: Demand, snapshot: Snapshot) -> object:
    """What a demand without columns is worth; ``demand`` itself where it has some."""
    tree = demand.tail.expression
    if tree.find(exp.Column, exp.Query, exp.AggFunc, exp.Anonymous) is not None:
        return demand
    with refusals_at(query.name, demand.tail.position):
        ((value,),) = snapshot.rows(f"SELECT {to_sql(tree)}")
    return value


# ---- the rows -------------------------------------------------------------------------------------------


def _findings_in_rows(model: Model) -> Iterator[Finding]:
    with model.database.snapshot() as snapshot:
        yield from _missing_labels(model, snapshot)
        try:
            encoding = _encoded(model, snapshot)
        except OverflowError as error:
            yield Finding(Rule.WEIGHT_OVERFLOW, error.message, error.position, error.hint)
            yield from _findings_one_by_one(model, snapshot)
        except PolicyError:
            return  # nothing to choose from, so nothing to say; or too large to be looked at row by row
        else:
            yield from _never_binding(model, encoding)
            yield from _violated_today(model, snapshot, encoding)
            yield from _unassigned(model, snapshot)


def _findings_one_by_one(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    """Of each constraint by itself: those can be looked at whose own numbers stay within 64 bits."""
    for name in model.constraints:
        alone = model.revised(lambda query, name=name: _only(query, name))  # type: ignore[misc]
        if name not in alone.constraints:
            continue  # an objective
        try:
            encoding = _encoded(alone, snapshot)
            found = [*_never_binding(alone, encoding), *_violated_today(alone, snapshot, encoding)]
        except PolicyError:
            continue
        yield from found


def _only(query: BoundQuery, name: str) -> BoundQuery | None:
    demand = query.demand
    return query if demand is None or (query.name == name and not demand.is_objective) else None


def _encoded(model: Model, snapshot: Snapshot) -> Encoding:
    with snapshot.scratch():
        return Encoder(snapshot).encode(model.program, model.catalog)


def _never_binding(model: Model, encoding: Encoding) -> Iterator[Finding]:
    demanding = set(encoding.factored.constraint_names)
    for query in model.queries:
        if not isinstance(query, BoundQuery) or query.demand is None or query.demand.is_objective:
            continue
        rows = len(encoding.rows.get(query.name, ()))
        if query.name not in demanding and rows and not _gives_a_range(model, query):
            yield Finding(
                Rule.NEVER_BINDS,
                f"{query.name} holds in all of its {rows} rows of today, whatever is decided",
                query.demand.tail.position,
                "is the limit the one you meant?",
            )


def _gives_a_range(model: Model, query: BoundQuery) -> bool:
    """Whether a variable has its values from it, which is why it holds."""
    assert query.demand is not None
    tables = (model.catalog.schema.find(source.relation.name) for source in query.sources)
    ranged = [column for table in tables if table is not None for column in table.variables if column.range]
    return any(bounds(column.name, [query.demand.tail.expression]) != (None, None) for column in ranged)


def _violated_today(model: Model, snapshot: Snapshot, encoding: Encoding) -> Iterator[Finding]:
    """As far as today's values are known: what has none breaks nothing yet."""
    if not any(value is not None for column in encoding.columns for value in column.current):
        return
    assignments: dict[tuple[str, str], dict[tuple[object, ...], object]] = {
        (table.name, column.name): {} for table in snapshot.schema.tables for column in table.variables
    }
    for column in encoding.columns:
        current = zip(column.keys, column.current, strict=True)
        assignments[column.table.name, column.column.name].update(current)
    verdict = model.oracle.examine(snapshot, assignments)  # type: ignore[arg-type]
    positions = {
        query.name: query.demand.tail.position
        for query in model.queries
        if isinstance(query, BoundQuery) and query.demand is not None
    }
    for violation in verdict.violations:
        name, _, count = violation.partition(": ")
        if name in positions:
            rows = "1 row" if count == "1 rows" else count
            yield Finding(
                Rule.VIOLATED_TODAY,
                f"{name} does not hold as things are, in {rows}",
                positions[name],
                "the next plan will change that, or say why it cannot",
            )


def _missing_labels(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    """Hosts without a rack: what values are grouped by has to be there, or they are all of one group, or of none."""
    lineage = Lineage(model)
    for table_name, columns in sorted(lineage.labels().items()):
        table = model.database.schema.table(table_name)
        for name, position in sorted(columns.items()):
            column = table.column(name)
            empty = f" OR {quote(column.name)} = ''" if column.type is SqlType.TEXT else ""
            keys = ", ".join(map(quote, table.primary_key))
            rows = snapshot.rows(
                f"SELECT {keys} FROM {quote(table.name)} WHERE {quote(column.name)} IS NULL{empty} ORDER BY {keys}"
            )
            if rows:
                yield Finding(
                    Rule.MISSING_LABEL,
                    f"{len(rows)} of {table.name} have no {column.name}: {_some(rows)}",
                    position,
                    f"label them, or declare {column.name} NOT NULL CHECK ({column.name} <> '')",
                )


def _unassigned(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    """Variables of which NULL satisfies all that is said."""
    for unassigned in model.unasked_for(snapshot):
        yield Finding(
            Rule.UNASSIGNED,
            f"nothing asks for a value of {unassigned.table}.{unassigned.variable}: NULL in all {unassigned.of} rows "
            f"satisfies {unassigned.reasons}",
            model.database.schema.table(unassigned.table).column(unassigned.variable).position,
            unassigned.hint,
        )


def _without_rows(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    """Demands no row is subject to, and tables of which nothing is decided; not where nobody has given any rows."""
    tables = model.database.schema.tables
    empty = {
        table.name for table in tables if not snapshot.rows(f"SELECT 1 FROM {quote(table.name)} LIMIT 1")
    }
    if len(empty) == len(tables):
        return
    names = model.without_rows(snapshot)
    told: dict[str, Position] = {}
    for query, demand in _demands(model):
        why = _why_without_rows(query, empty) if query.name in names else _never_met(model, snapshot, query)
        if why:
            told[f"{query.name} ({why})"] = demand.tail.position
    if told:
        yield Finding(
            Rule.NO_ROWS, f"no row of today is subject to {', '.join(told)}", next(iter(told.values()))
        )
    for table in tables:
        if table.variables and table.name in empty:
            decided = " and ".join(column.name for column in table.variables)
            yield Finding(
                Rule.NO_ROWS,
                f"{table.name} is empty, so no {decided} is decided",
                table.variables[0].position,
            )


def _why_without_rows(query: BoundQuery, empty: set[str]) -> str:
    named = [source.relation.name for source in query.sources if source.relation.name in empty]
    return f"{named[0]} is empty" if named else "no row meets its conditions"


def _never_met(model: Model, snapshot: Snapshot, query: BoundQuery) -> str:
    """Which variable has no value that meets a condition on it alone: one that is misspelt, or gone."""
    relations = {source.alias.lower(): source.relation for source in query.sources}
    for predicate in query.predicates:
        columns = list(predicate.tree.find_all(exp.Column))
        relation = relations.get(columns[0].table.lower()) if columns else None
        column = None if relation is None else relation.find(columns[0].name)
        if column is None or column.origin is None or predicate.tree.find(exp.Query) is not None:
            continue
        values = _values_sql(model, *column.origin)
        if values and all(each == columns[0] for each in columns):
            holder = exp.Paren(this=predicate.tree.copy())
            replace_columns(holder, columns[0].table, columns[0].name, exp.column("value"))
            if not snapshot.rows(f"SELECT 1 FROM ({values}) WHERE {to_sql(holder)} LIMIT 1"):
                return f"no {column.origin[1]} meets its conditions"
    return ""


def _values_sql(model: Model, table: str, name: str) -> str:
    """SQL for all that a variable can be, as ``value``; empty where that is too many numbers."""
    column = model.database.schema.table(table).column(name)
    values = "" if column.range is not None else domain_sql(model.catalog, table, name)
    if column.range is not None and column.range[1] - column.range[0] < MOST_VALUES:
        values = f"SELECT unnest(range({column.range[0]}, {column.range[1] + 1})) AS value"
    return f"{values} UNION ALL SELECT NULL" if values and column.nullable else values


def _misspelt_values(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    """Texts that demands compare with a column, and that none of its values is, though one is spelt nearly so."""
    for query, demand in _demands(model):
        for column, text in sorted(set(_compared(query, demand))):
            values = _texts_sql(model, query, column)
            if not values or snapshot.rows(f"SELECT 1 FROM ({values}) WHERE value = {literal(text)} LIMIT 1"):
                continue
            known = snapshot.rows(f"SELECT DISTINCT value FROM ({values}) LIMIT {_MOST_COMPARED}")
            spelt = {value.lower(): value for (value,) in known if value is not None}
            near = text.lower() if text.lower() in spelt else misspelt(text, spelt)
            if near is not None:
                yield Finding(
                    Rule.MISSPELT_VALUE,
                    f"{query.name} compares {column[1]} with {text!r}, which no row has",
                    demand.tail.position,
                    f"did you mean {spelt[near]!r}?",
                )


def _compared(query: BoundQuery, demand: Demand) -> Iterator[tuple[tuple[str, str], str]]:
    """The columns, by alias and name, that are compared with constant texts, and these."""
    for tree in (*(predicate.tree for predicate in query.predicates), demand.tail.expression):
        for each in tree.find_all(exp.EQ, exp.NEQ, exp.In):
            operands = (each.this, each.expression, *each.expressions)
            for column in operands:
                if isinstance(column, exp.Column):
                    place = column.table.lower(), column.name
                    texts = (one for one in operands if isinstance(one, exp.Literal) and one.is_string)
                    yield from ((place, one.this) for one in texts)


def _texts_sql(model: Model, query: BoundQuery, column: tuple[str, str]) -> str:
    """SQL for the values of a column of texts, as ``value``; empty where it is none, or not of a table."""
    alias, name = column
    for source in query.sources:
        found = source.relation.find(name)
        if found is None or alias not in {"", source.alias.lower()}:
            continue
        table = model.database.schema.find(source.relation.name)
        if found.origin is not None:
            table, name = model.database.schema.find(found.origin[0]), found.origin[1]
        if table is None or table.column(name).type is not SqlType.TEXT:
            continue
        if table.column(name).is_variable:
            return _values_sql(model, table.name, name)
        return f"SELECT {quote(name)} AS value FROM {quote(table.name)}"
    return ""


def _without_candidates(model: Model, snapshot: Snapshot) -> Iterator[Finding]:
    """Values of today that variables cannot take: a host that is no longer there."""
    for table in snapshot.schema.tables:
        for variables, outside in _outside_domains(model, table):
            today = [quote(variable.current or "") for variable in variables]
            known = [f"{value} IS NOT NULL" for value in today]
            keys = [quote(name) for name in table.primary_key]
            rows = snapshot.rows(
                f"SELECT {', '.join([*keys, *today])} FROM {quote(table.name)} AS {quote(table.name)} "
                f"WHERE {' AND '.join([*known, outside])} ORDER BY {', '.join(keys)}"
            )
            if rows:
                names = ", ".join(variable.name for variable in variables)
                values = ", ".join(variable.current or "" for variable in variables)
                told = [(*row[: len(keys)], f"({', '.join(map(str, row[len(keys) :]))})") for row in rows]
                yield Finding(
                    Rule.NO_CANDIDATE,
                    f"in {len(rows)} of {table.name} the {values} of today is no candidate of {names}, so it is "
                    f"decided anew: {_some(told, ' ')}",
                    variables[0].position,
                )


def _outside_domains(model: Model, table: Table) -> Iterator[tuple[tuple[Column, ...], str]]:
    """The variables of a table that are paired with values of today, and the condition that these are no candidates."""
    known = {column.name: column for column in table.variables if column.current is not None}
    together = [
        key for key in table.foreign_keys if len(key.columns) > 1 and not known.keys().isdisjoint(key.columns)
    ]
    for key in together:
        today = [known[name].current if name in known else name for name in key.columns]
        pairs = zip(key.referenced, today, strict=True)
        same = " AND ".join(
            f"r.{quote(name)} = {quote(table.name)}.{quote(value or '')}" for name, value in pairs
        )
        variables = tuple(known[name] for name in key.columns if name in known)
        yield variables, f"NOT EXISTS (SELECT 1 FROM {quote(key.table)} AS r WHERE {same})"
    for column in known.values():
        value = f"{quote(table.name)}.{quote(column.current or '')}"
        if column.range is not None:
            yield (column,), f"{value} NOT BETWEEN {column.range[0]} AND {column.range[1]}"
        elif column.type is not SqlType.BOOLEAN and not any(column.name in key.columns for key in together):
            domain = domain_sql(model.catalog, table.name, column.name)
            yield (column,), f"NOT EXISTS (SELECT 1 FROM ({domain}) AS r WHERE r.value = {value})"


def _some(rows: Sequence[tuple[object, ...]], between: str = "/") -> str:
    shown = [between.join(map(str, row)) for row in rows[:_MOST_SHOWN]]
    return ", ".join(shown) + (", ..." if len(rows) > _MOST_SHOWN else "")
