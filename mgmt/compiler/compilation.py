"""A compilation: what policies become before any row is looked at.

Texts are parsed and bound; each bound query is split between the database and the solver, put to the oracle as
questions in SQL.  Compilations that are revised from one another share what they have in common.

What it is not: it knows no database and no row (see ``model``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from mgmt.compiler.partition import (
    ColumnName,
    ColumnsOfDemand,
    Partition,
    Step,
    often_asked,
    partition_of,
    restricted,
)
from mgmt.compiler.relational.dependencies import PRESENT, UNKNOWN
from mgmt.compiler.relational.memo import Memo
from mgmt.compiler.relational.pushdown import pushed_sql
from mgmt.compiler.relational.split import SplitQuery, split
from mgmt.compiler.verification.oracle import Oracle, Question
from mgmt.errors import NoConstraintsError, PolicySyntaxError
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.language.implied_constraints import bind_settings, bind_table_rules
from mgmt.language.names.catalog import Catalog
from mgmt.language.names.implied_domains import with_implied_domains
from mgmt.language.parsing.set_statements import Settings, parse_settings
from mgmt.language.parsing.statements import parse_statements
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.language.statement_binder import QueryBinder
from mgmt.source_text import Position, SourceText
from mgmt.state.schema import Schema
from mgmt.state.snapshot import KeptView

MOST_STATEMENTS = 400
"""Constraints and views of one model: some ms of CPU to compile each, and it may take no more than a second."""

Result = PushedView | BoundQuery


@dataclass(frozen=True, slots=True)
class _Known:
    """What queries have been compiled to."""

    splits: Memo[BoundQuery, SplitQuery] = field(default_factory=Memo)
    questions: Memo[Result, Question] = field(default_factory=Memo)
    columns: Memo[SplitQuery, ColumnsOfDemand] = field(default_factory=Memo)

    def copy(self, *, same_views: bool) -> _Known:
        """For a compilation of more or other queries.  What a demand speaks of depends on the views."""
        columns = self.columns.copy() if same_views else Memo[SplitQuery, ColumnsOfDemand]()
        return _Known(self.splits.copy(), self.questions.copy(), columns)


class Compilation:
    """Compiled texts.  Use :meth:`of`.

    ``steps``: what the database computes and what is left to the solver, per query; ``oracle``: the SQL that checks a
    solution.
    """

    def __init__(
        self,
        texts: tuple[SourceText, ...],
        settings: Settings,
        catalog: Catalog,
        results: tuple[Result, ...],
        engine: EngineTypes,
        known: _Known | None = None,
    ) -> None:
        self._known = known or _Known()
        self.engine = engine
        self.texts = texts
        self.settings = settings
        self.catalog = catalog
        self.results = results
        self.steps: tuple[Step, ...] = tuple(
            self._known.splits.of(result, lambda bound: split(bound, catalog, engine))
            if isinstance(result, BoundQuery)
            else result
            for result in results
        )
        self.oracle = Oracle(results, catalog, questions=self._known.questions)

    @classmethod
    def of(cls, texts: tuple[SourceText, ...], schema: Schema, engine: EngineTypes) -> Compilation:
        """Compile texts against a schema; ``engine`` is asked what it says of SQL.

        Raises a PolicyError with line and column for the first mistake, NoConstraintsError when nothing is demanded.
        """
        schema = with_implied_domains(schema, texts)
        catalog = Catalog(schema)
        binder = QueryBinder(catalog, engine)
        bind_table_rules(binder, schema)
        rules = len(binder.results)
        _bind(binder, texts)
        settings = parse_settings(texts)
        if not any(
            isinstance(result, BoundQuery) and result.demand is not None for result in binder.results[rules:]
        ):
            raise NoConstraintsError(
                "the policies demand nothing", hint="add CREATE CONSTRAINT ... AS SELECT ... CHECK ..."
            )
        bind_settings(settings, binder, schema)
        with deep_nesting_refused(texts[0].position(0)):
            return cls(texts, settings, catalog, tuple(binder.results), engine)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the constraints and objectives, in order."""
        return tuple(
            step.name for step in self.steps if isinstance(step, SplitQuery) and step.bound.demand is not None
        )

    @cached_property
    def partition(self) -> Partition:
        """Which variable columns the demands connect."""
        return partition_of(self.steps, self.catalog, self._known.columns)

    @cached_property
    def programs(self) -> tuple[tuple[tuple[Step, ...], frozenset[ColumnName] | None], ...]:
        """What is decided together, with the columns (None: all): choices, and columns of numbers apart from them."""
        numbers = [part for part in self.partition.parts if part.quantities]
        choices = [part for part in self.partition.parts if not part.quantities]
        if not (self.partition.divisible and numbers and choices):
            return ((self.steps, None),)
        return tuple(
            (
                restricted(self.steps, [each for part in group for each in part.demands]),
                frozenset().union(*(part.columns for part in group)),
            )
            for group in (choices, numbers)
        )

    @cached_property
    def kept_views(self) -> tuple[KeptView, ...]:
        """The database's views, with their rows where these are best computed once, and those of the oracle."""
        partition = self.partition
        often = often_asked(self.steps, partition, self.oracle.uses_of)
        made = [
            KeptView(
                view.name,
                pushed_sql(view),
                view.name in often,
                partition.below[view.name.lower()] - {UNKNOWN},
                UNKNOWN in partition.below[view.name.lower()],
            )
            for view in partition.available
        ]
        names = {view.name for view in made}
        others = [KeptView(*view, computed=False) for view in self.oracle.views if view[0] not in names]
        return (*made, *others)

    @cached_property
    def asking_for_the_time(self) -> tuple[Result, ...]:
        """The views, constraints and objectives that do so themselves, in order."""
        return tuple(result for result in self.results if self.oracle.matches(result, PRESENT))

    def revised(self, revise: Callable[[BoundQuery], BoundQuery | None]) -> Compilation:
        """With some queries changed or, for None, left out; the views that others read must stay."""
        pairs = [(each, revise(each) if isinstance(each, BoundQuery) else each) for each in self.results]
        if all(before is after for before, after in pairs):
            return self
        results = tuple(after for _, after in pairs if after is not None)
        same_views = all(before is after for before, after in pairs if _is_view(before))
        known = self._known.copy(same_views=same_views)
        return Compilation(self.texts, self.settings, self.catalog, results, self.engine, known)

    @cached_property
    def without_objectives(self) -> Compilation:
        """The hard constraints alone; kept, for questions of what would help ask it of many states."""
        return self.revised(
            lambda query: None if query.demand is not None and query.demand.is_objective else query
        )

    def extended(self, text: SourceText, schema: Schema) -> Compilation:
        """With a further text, which may use the views of these."""
        catalog = self.catalog.copy()
        binder = QueryBinder(catalog, self.engine)
        _bind(binder, (text,))
        added = parse_settings((text,))
        bind_settings(added, binder, schema)
        return Compilation(
            (*self.texts, text),
            self.settings.joined(added),
            catalog,
            (*self.results, *binder.results),
            self.engine,
            self._known.copy(same_views=True),
        )


def _bind(binder: QueryBinder, texts: Iterable[SourceText]) -> None:
    statements = (statement for text in texts for statement in parse_statements(text))
    for number, statement in enumerate(statements):
        if number >= MOST_STATEMENTS:
            raise PolicySyntaxError(
                f"there are more than {MOST_STATEMENTS} constraints and views",
                position=statement.position,
                hint="let one statement speak of the rows of a table, instead of one for each",
            )
        with deep_nesting_refused(statement.position):
            binder.bind(statement)


def _is_view(result: Result) -> bool:
    return isinstance(result, PushedView) or result.demand is None


@contextmanager
def deep_nesting_refused(position: Position) -> Iterator[None]:
    """Trees are walked recursively; a long chain of operators can be too deep although it has no parentheses."""
    try:
        yield
    except RecursionError as error:
        raise PolicySyntaxError(
            "the expression is nested too deeply", position=position, hint="split it into views"
        ) from error
