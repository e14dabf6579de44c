"""Lint: what compiles and is probably not meant, in the policies and in the rows they are about.

Rules about the text need no rows; rules about the state look at those there are, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from mgmt.compiler.encoding.encoder import Encoder, Encoding
from mgmt.compiler.model import Model
from mgmt.errors import OverflowError, PolicyError  # noqa: A004 - the published name
from mgmt.explaining.policies.lineage import Lineage
from mgmt.language.bound_queries.queries import BoundQuery
from mgmt.source_text import Position
from mgmt.sql.annotations import ANNOTATIONS, nearest, unknown_annotations
from mgmt.state.database import Snapshot
from mgmt.state.schema import SqlType, quote
from mgmt.state.schema_parsing.column_bounds import bounds

_MOST_SHOWN = 5


class Rule(StrEnum):
    CROSS_PRODUCT = "cross-product"
    UNKNOWN_ANNOTATION = "unknown-annotation"
    UNUSED_VARIABLE = "unused-variable"
    RENAMED_VARIABLE = "renamed-variable"
    FROZEN_VARIABLE = "frozen-variable"
    CONSTANT_OBJECTIVE = "constant-objective"
    WEIGHT_OVERFLOW = "weight-overflow"
    VIOLATED_TODAY = "violated-today"
    NEVER_BINDS = "never-binds"
    MISSING_LABEL = "missing-label"
    UNASSIGNED = "unassigned"


# What follows from the rows of today is worth knowing; it is no fault of the policies.
_ABOUT_ROWS = {Rule.VIOLATED_TODAY, Rule.NEVER_BINDS}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at."""

    rule: Rule
    message: str
    position: Position | None
    hint: str = ""

    @property
    def is_warning(self) -> bool:
        """False for a remark about the rows of today."""
        return self.rule not in _ABOUT_ROWS

    def __str__(self) -> str:
        where = f"{self.position}: " if self.position is not None else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.rule}: {self.message}{hint}"


def lint(model: Model) -> tuple[Finding, ...]:
    """All findings, in the order of the rules above."""
    found = [
        *_cross_products(model),
        *_unknown_annotations(model),
        *_unused_variables(model),
        *_renamed_variables(model),
        *_frozen_variables(model),
        *_constant_objectives(model),
        *_findings_in_rows(model),
    ]
    order = list(Rule)
    return tuple(sorted(found, key=lambda finding: order.index(finding.rule)))


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


def _constant_objectives(model: Model) -> Iterator[Finding]:
    lineage = Lineage(model)
    for query in model.queries:
        if not isinstance(query, BoundQuery) or query.demand is None or not query.demand.is_objective:
            continue
        if not lineage.involves_solver(query):
            yield Finding(
                Rule.CONSTANT_OBJECTIVE,
                f"{query.name} is worth the same whatever is decided",
                query.demand.tail.position,
                "let it speak of a variable column",
            )


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
    demanding = set(encoding.problem.constraint_names)
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


def _some(rows: list[tuple[object, ...]]) -> str:
    shown = ["/".join(map(str, row)) for row in rows[:_MOST_SHOWN]]
    return ", ".join(shown) + (", ..." if len(rows) > _MOST_SHOWN else "")
