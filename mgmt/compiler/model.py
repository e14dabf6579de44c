"""A model: policies compiled against a schema, solved as often as the state changes.

    model = mgmt.Model.build(database, policies)   # parse, bind, split; errors carry line and column
    solution = model.solve(budget=2.0)             # snapshot, encode, optimise, verify
    database.apply(solution)                       # compare-and-set on the snapshot's version

The stages are modules of their own (``mgmt.language.parsing.statements`` and ``statement_binder``; ``relational``,
``encoding`` and ``verification`` here; ``mgmt.optimization.general.lexicographic``); this one only runs them in
order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from mgmt.compiler.compilation import Compilation, deep_nesting_refused
from mgmt.compiler.decisions import Assignments, Decided, Impossible, no_assignments
from mgmt.compiler.encoding.answers import KeptAnswers
from mgmt.compiler.encoding.encoder import Encoder
from mgmt.compiler.infeasibility.clashes import CellClash, Clash, ConstraintClash, error_of
from mgmt.compiler.infeasibility.lifted_clash import LiftedClash
from mgmt.compiler.infeasibility.relaxations import find_relaxations
from mgmt.compiler.partition import ColumnName, Partition, Step, candidates_of
from mgmt.compiler.parts.encoded_part import EncodedPart
from mgmt.compiler.relational.pushdown import pushed_sql
from mgmt.compiler.results.solution import doubted, joint_statistics, solution_of, today_instead
from mgmt.compiler.results.unassigned import emptiest, find_unassigned
from mgmt.compiler.time_limits import a_second_at_least, phase
from mgmt.compiler.verification.oracle import Verdict
from mgmt.compiler.verification.rejection import rejection
from mgmt.errors import (
    InfeasibleError,
    Relaxation,
    SolveTimeout,
    UnsupportedConstructError,
    VerificationError,
)
from mgmt.language.bound_queries.queries import BoundQuery, PushedView
from mgmt.language.parsing.set_statements import Settings
from mgmt.language.policy_packs import Policy, texts_of
from mgmt.language.pushdown.column_types import EngineTypes
from mgmt.language.pushdown.engine_errors import refusals_at
from mgmt.optimization.backends import Backend
from mgmt.optimization.backends.cp_sat import CpSatBackend
from mgmt.optimization.contradictions import contradictions
from mgmt.optimization.deadline import Deadline
from mgmt.optimization.infeasibility.elastic import Placement
from mgmt.solution import Solution, Unassigned
from mgmt.source_text import SourceText
from mgmt.state.database import Database, Snapshot
from mgmt.state.date_texts import moment_of

_LIFTED = 0.5
"""Of the time for a clash, to see it in what is lifted; the rest is for a truth of each row and value."""


class Model:
    """Compiled policies over one database.  Use :meth:`build`.

    The stages can be looked at: ``catalog`` (names and types), ``program`` (what the database computes and
    what is left to the solver, per query), ``oracle`` (the SQL that checks a solution).
    """

    def __init__(
        self,
        database: Database,
        compilation: Compilation,
        backend: Backend | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._compilation = compilation
        self.catalog = compilation.catalog
        self.program = compilation.steps
        self.oracle = compilation.oracle
        self._chosen_backend = backend
        self._backend = backend or CpSatBackend()
        self._answers = KeptAnswers()
        self._clock = clock

    @classmethod
    def build(
        cls,
        database: Database,
        policies: Policy | Iterable[Policy],
        *,
        backend: Backend | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Model:
        """Compile policies against the database's schema.

        Raises a PolicyError with line and column for the first mistake, NoConstraintsError when there is
        nothing to solve.  With a ``backend`` all parts are one constraint model, so that it decides every cell.
        Budgets end by ``clock``, in seconds.
        """
        texts = texts_of(policies)
        model = cls(
            database,
            Compilation.of(texts, database.schema, EngineTypes(database.rehearsal())),
            backend,
            clock=clock,
        )
        with deep_nesting_refused(texts[0].position(0)):
            model._rehearse()
        return model

    @property
    def constraints(self) -> tuple[str, ...]:
        """Names of the constraints and objectives, in order."""
        return self._compilation.constraints

    @property
    def settings(self) -> Settings:
        """What the texts SET."""
        return self._compilation.settings

    @property
    def partition(self) -> Partition:
        """Which variable columns the demands connect."""
        return self._compilation.partition

    @property
    def clock(self) -> Callable[[], float]:
        """By which budgets end."""
        return self._clock

    @property
    def database(self) -> Database:
        """The state it solves."""
        return self._database

    @property
    def texts(self) -> tuple[SourceText, ...]:
        """The policies it was built from."""
        return self._compilation.texts

    @property
    def queries(self) -> tuple[PushedView | BoundQuery, ...]:
        """What the texts were bound to, in order."""
        return self._compilation.results

    @property
    def asking_for_the_time(self) -> tuple[PushedView | BoundQuery, ...]:
        """The views, constraints and objectives that do so themselves, in order."""
        return self._compilation.asking_for_the_time

    def at(self, now: float | datetime | None = None) -> Model:
        """The same policies over the same state, asking for the time as if it were always this one.

        By default that of a state whose time stands still, or else the present; itself if nothing asks for it.
        """
        if not self.asking_for_the_time:
            return self
        return self.revised(database=self._database.at(moment_of(now) or self._database.now()))

    def revised(
        self,
        revise: Callable[[BoundQuery], BoundQuery | None] = lambda query: query,
        database: Database | None = None,
    ) -> Model:
        """The same policies with some queries changed or, for None, left out; over another state if one is given.

        Nothing is parsed or bound again.  A view that others read must stay, and the other state must have the
        same schema.
        """
        return Model(
            database or self._database,
            self._compilation.revised(revise),
            self._chosen_backend,
            clock=self._clock,
        )

    def beside(self, other: Model) -> Model:
        """The same policies over the state of a model with the same views, with what that has read of it."""
        found = Model(other._database, self._compilation, self._chosen_backend, clock=self._clock)
        found._answers = other._answers
        return found

    def extended(self, text: SourceText) -> Model:
        """These policies and the ones of a further text, which may use the views of these."""
        compilation = self._compilation.extended(text, self._database.schema)
        return Model(self._database, compilation, self._chosen_backend, clock=self._clock)

    def without_objectives(self) -> Model:
        """The hard constraints alone, over the same state."""
        return Model(
            self._database, self._compilation.without_objectives, self._chosen_backend, clock=self._clock
        )

    def satisfiable(self, budget: float = 2.0, seed: int = 0) -> bool | None:
        """Whether anything satisfies the hard constraints; None when ``budget`` seconds were too few to tell."""
        try:
            self.without_objectives().solve(budget, seed, clashes=False)
        except InfeasibleError:
            return False
        except SolveTimeout:
            return None
        return True

    def accepts(self, assignments: Placement) -> bool:
        """Whether these values of all variables satisfy every hard constraint, by what the database says."""
        with self._database.snapshot() as snapshot:
            return not self.oracle.examine(snapshot, assignments).violations

    def solve(
        self,
        budget: float = 2.0,
        seed: int = 0,
        *,
        workers: int = 1,
        clashes: bool = True,
        now: float | datetime | None = None,
    ) -> Solution:
        """Solve the present state within ``budget`` seconds.

        ``now``: the time, for SET cooldown and policies that ask for it: Unix seconds, or a datetime (in UTC, if it has
        no zone); by default the present, or that of a private copy, in which it stands still.

        The answer depends on the state, the time and the seed alone as long as the budget is not exhausted.  Raises
        InfeasibleError (with the names of the clashing constraints, unless ``clashes`` is false), SolveTimeout (also
        when the state database takes as long, and a second, to read the state or to check the answer),
        DataError and its like for unusable rows, VerificationError if the database disagrees with the solver.
        """
        with contradictions() as errors:
            return doubted(self._solve(budget, seed, workers, clashes, now), errors)

    def _solve(
        self, budget: float, seed: int, workers: int, clashes: bool, now: float | datetime | None
    ) -> Solution:
        started, deadline = self._clock(), Deadline.after(budget, self._clock)
        snapshot = self._database.snapshot(moment_of(now))
        with snapshot:
            fetching = self._clock() - started - self._answers.fetch_seconds
            today = no_assignments(snapshot.schema)
            with phase(snapshot, budget):
                parts = self.encoded(snapshot)
                encoded = self._clock()
                fetching += self._answers.fetch_seconds
                complete = not [part for part in parts if not part.current(today)]
                present = self._present(snapshot, parts, today) if complete else None

            def impossible() -> InfeasibleError:
                if complete:
                    self._refute(snapshot, today, seed)
                if not clashes:
                    return InfeasibleError(())
                time = Deadline.after(a_second_at_least(deadline.left), self._clock)
                return self._infeasible(snapshot, parts[0] if len(parts) == 1 else None, time, seed)

            decided = self._decide(parts, present, deadline, seed, workers)
            if decided is None:
                raise impossible()
            solved = self._clock()
            assignments = no_assignments(snapshot.schema)
            for values in decided:
                assignments.update(values.assignments)
            with phase(snapshot, budget, deadline.left):
                verdict = self._verify(snapshot, assignments, decided, seed)
            if verdict is None:
                raise impossible()
            joint = joint_statistics(decided)
            clock = snapshot.moved_at, snapshot.moment.timestamp()
            least = self.settings.least_gain(*clock)
            if least is not None and present is not None and not present.violations:
                why = self.settings.why_held(*clock)
                kept = today_instead(self.program, decided, today, present, verdict, least, why)
                if kept is not None:
                    decided, assignments, verdict = [kept], today, present
            unassigned = find_unassigned(self._compilation, snapshot, assignments, verdict)
        finished = self._clock()
        statistics = {
            **joint,
            "fetch_seconds": fetching,
            "encode_seconds": encoded - started,
            "solve_seconds": solved - encoded,
            "verify_seconds": finished - solved,
        }
        seconds, version = finished - started, snapshot.version
        found = solution_of(
            version, self.program, decided, assignments, present, verdict, seconds, statistics
        )
        moment = snapshot.moment if self.asking_for_the_time else None
        return replace(found, moment=moment, unassigned=unassigned)

    def unasked_for(self, snapshot: Snapshot) -> tuple[Unassigned, ...]:
        """The variables that a plan may leave without a value in every row, with nothing said against it."""
        plan = emptiest(self._compilation, snapshot)
        return find_unassigned(self._compilation, snapshot, plan, self.oracle.examine(snapshot, plan))

    def without_rows(self, snapshot: Snapshot) -> frozenset[str]:
        """The constraints and objectives that have no row to be about, whatever is decided."""
        with self.available_views(snapshot):
            return frozenset(
                name
                for name, statements in candidates_of(self.program).items()
                if not all(map(snapshot.rows, statements))
            )

    @contextmanager
    def available_views(self, snapshot: Snapshot) -> Iterator[None]:
        """Inside, the snapshot has the views that need no solver."""
        with snapshot.scratch():
            for view in self.partition.available:
                snapshot.define_view(view.name, pushed_sql(view))
            yield

    def _rehearse(self) -> None:
        """Run every statement once over empty tables, so that the database's complaints come at build.

        How each demand is solved is found out now, too: the first solve is to be as quick as it can.
        """
        _ = self.partition
        schema = self.catalog.schema
        snapshot = self._compilation.engine.snapshot
        with snapshot.scratch():
            Encoder(snapshot).encode(self.program, self.catalog)
        self.oracle.examine(snapshot, no_assignments(schema))

    def encoded(self, snapshot: Snapshot) -> list[EncodedPart]:
        """Choices together, and apart from them the columns of numbers that no demand connects with any choice."""
        self._keep_views(snapshot)
        return [self._in_cells(snapshot, *each) for each in self._compilation.programs]

    def _in_cells(
        self,
        snapshot: Snapshot,
        program: Sequence[Step] | None = None,
        columns: frozenset[ColumnName] | None = None,
    ) -> EncodedPart:
        """Encoded: all of the program, or what some of its columns are about."""
        lifts, program = self._chosen_backend is None, self.program if program is None else program
        self._answers.below = self.partition.below
        self._answers.trim()
        return EncodedPart.encode(
            snapshot, program, self.catalog, columns, self._backend, lifts=lifts, kept=self._answers
        )

    def _keep_views(self, snapshot: Snapshot) -> None:
        """Make the views that stay from one solve to the next, as far as they are not there as they should be."""
        positions = {result.name: result.position for result in self.queries}
        snapshot.keep_views(self._compilation.kept_views, lambda name: refusals_at(name, positions[name]))

    def _present(self, snapshot: Snapshot, parts: Sequence[EncodedPart], today: Assignments) -> Verdict:
        """The objectives as things stand, and what they break where anybody asks for it."""
        worths = [None] if self.settings.may_keep_today else [part.objectives_today() for part in parts]
        told = {name: value for worth in worths if worth is not None for name, value in worth.items()}
        demands = [(each.name, each.demand) for each in self.queries if isinstance(each, BoundQuery)]
        asked = {name for name, demand in demands if demand is not None and demand.is_objective}
        if None in worths or asked - told.keys():
            return self.oracle.examine(snapshot, today)
        return Verdict((), told)

    def _decide(
        self,
        parts: Sequence[EncodedPart],
        present: Verdict | None,
        deadline: Deadline,
        seed: int,
        workers: int,
    ) -> list[Decided] | None:
        """The values of every part; None when one of them has none.

        Each but the last has half of the time that is left: choices may take all of it, so numbers go before them.
        """
        decided = []
        for place, part in enumerate(sorted(parts, key=lambda part: part.cells is not None), 1):
            until = deadline if place == len(parts) else deadline.part(0.5)
            found = part.solve(present, deadline=until, seed=seed, workers=workers)
            if isinstance(found, Impossible):
                return None
            decided.append(found)
        return decided

    def _refute(self, snapshot: Snapshot, today: Assignments, seed: int) -> None:
        """VerificationError if the database accepts today's values where the solver says that there are none."""
        if not self.oracle.examine(snapshot, today).violations:
            raise self._rejection(
                ["it is none, though today's values satisfy everything"], snapshot, today, seed
            )

    def _infeasible(
        self, snapshot: Snapshot, general: EncodedPart | None, deadline: Deadline, seed: int
    ) -> InfeasibleError:
        """The error with its core; what would help is looked for on the same snapshot when somebody asks.

        ``general``: all there is to decide, where it is encoded as one.
        """
        budget = deadline.left
        try:
            with phase(snapshot, budget, deadline.left):
                clash = self._clash_of(general or self._in_cells(snapshot), deadline, seed)
        except (UnsupportedConstructError, SolveTimeout):  # too large to speak of rows
            model = self.revised(database=self._database.clone(snapshot.dump(), snapshot.moment))
            queries = {query.name: query for query in self.queries if isinstance(query, BoundQuery)}
            return error_of(ConstraintClash.of(model, queries, deadline=deadline, seed=seed), self.queries)
        return error_of(clash, self.queries, self._relaxing(snapshot, clash, budget, seed))

    def _clash_of(self, general: EncodedPart, deadline: Deadline, seed: int) -> Clash:
        """In what is lifted, or else in truths for each row and value."""
        if general.cells is not None:
            encoded, within = (general.encoding, general.cells), deadline.part(_LIFTED)
            clash = LiftedClash.of(*encoded, self._backend, deadline=within, seed=seed)
            if clash is not None:
                return clash
        return CellClash.of(general.encoding, self._backend, deadline=deadline, seed=seed)

    def _relaxing(
        self, snapshot: Snapshot, clash: Clash, budget: float, seed: int
    ) -> Callable[[float | None], tuple[Relaxation, ...]]:
        state, moment = snapshot.dump(), snapshot.moment

        def relax(seconds: float | None) -> tuple[Relaxation, ...]:
            model = self.revised(database=self._database.clone(state, moment))
            deadline = Deadline.after(3 * budget if seconds is None else seconds, self._clock)
            return find_relaxations(model, clash, deadline=deadline, seed=seed)

        return relax

    def _verify(
        self, snapshot: Snapshot, assignments: Assignments, decided: Sequence[Decided], seed: int
    ) -> Verdict | None:
        """What the database says of the values; None when a demand without variables does not hold."""
        verdict = self.oracle.examine(snapshot, assignments)
        constant = {each.demand.name for each in self.partition.constants}
        if verdict.broken and constant >= set(verdict.broken):
            return None
        complaints = list(verdict.violations)
        for part in decided:
            for name, claimed in part.claims.items():
                found = verdict.objectives[name]
                if claimed != found:
                    complaints.append(f"{name}: the solver says {claimed}, the database {found}")
        if complaints:
            raise self._rejection(complaints, snapshot, assignments, seed)
        return verdict

    def _rejection(
        self, complaints: Sequence[str], snapshot: Snapshot, assignments: Assignments, seed: int
    ) -> VerificationError:
        texts = self._database.schema_texts, self.texts
        return rejection(complaints, snapshot.dump(), texts, assignments, seed, snapshot.moment.timestamp())
