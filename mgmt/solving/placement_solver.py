"""The placement solver: rows of a state in, a decided placement out; the loop's view of the policy compiler.

The outcome is a value, not an exception: "the rules clash" is an ordinary answer of a control loop.  The
compiler and the solver behind :class:`PolicySolver` are loaded on first use.  All of this blocks: the
controller calls it in a worker thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from datastore_adapter.interface import ServiceRoles
from mgmt.placement.intent import PolicyChoice
from mgmt.placement.placement_rows import HostRow, PlacementState
from mgmt.solution import Delta, ObjectiveValue, SolveStatus
from mgmt.solving.placement_questions import Explanation, Question, explain
from mgmt.solving.policy_listing import PolicyEntry, list_policies
from mgmt.solving.required_moves import required_moves
from mgmt.state.memory_limits import MEMORY

if TYPE_CHECKING:
    from mgmt.compiler.model import Model
    from mgmt.errors import CoreMember
    from mgmt.state.database import Database


@dataclass(frozen=True, slots=True)
class Solved:
    """A placement was found; ``deltas`` is what changes."""

    status: str
    deltas: tuple[Delta, ...]
    objectives: tuple[ObjectiveValue, ...]
    seconds: float
    gap: float = 0.0
    proven: bool = True
    """Whether no better placement exists.  If not, moves for balance's sake may be far more than needed."""
    held: str = ""
    """What the policies keep back (SET min_gain), for people."""
    breaks_rules_today: bool = False
    """Whether the placement as it stands breaks a rule, so that it cannot be compared with this one."""
    must_leave: tuple[tuple[str, str], ...] = ()
    """(segment, host) of copies that the policies do not let stay there, beside those on hosts gone or drained."""
    asks_for_the_time: bool = False
    """Whether the policies do, so that the answer may be another one later."""
    contradictory: bool = False
    """Whether the solver contradicted itself, so that nothing is proven."""


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No placement satisfies the rules; ``policies`` names those that clash, ``details`` where they stand."""

    policies: tuple[str, ...]
    details: tuple[str, ...]
    seconds: float
    status: str = "infeasible"
    rows: tuple[str, ...] = ()
    """For each of the policies, some of what it speaks of in words (``segment s00, rack r1``); may be empty."""
    asks_for_the_time: bool = False
    """As of :class:`Solved`."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """No answer: the time ran out, or the policies have an error.  Nothing may be concluded."""

    reason: str
    seconds: float
    status: str = "undecided"


SolveOutcome = Solved | Infeasible | Undecided


class PlacementSolver(Protocol):
    """Decides placements.  Calls block, and come one at a time."""

    def prepare(self, policies: PolicyChoice) -> None:
        """Load and compile ahead of the first solve; errors wait for :meth:`solve`."""
        ...

    def policies(self, policies: PolicyChoice) -> tuple[PolicyEntry, ...]:
        """The policies, for people; none if they cannot be read."""
        ...

    def solve(
        self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int
    ) -> SolveOutcome: ...

    def explain(
        self, state: PlacementState, policies: PolicyChoice, question: Question, budget: float, seed: int
    ) -> Explanation: ...


class PolicySolver:
    """The product's solver: a policy pack compiled once over an embedded state database."""

    def __init__(self, memory: int = MEMORY) -> None:
        """``memory``: bytes, as of ``mgmt.Database``."""
        self._memory = memory
        self._policies: PolicyChoice | None = None
        self._database: Database | None = None
        self._model: Model | None = None

    def prepare(self, policies: PolicyChoice) -> None:
        if self._model is not None and self._policies == policies:
            return
        # One host and nothing to place: loads and compiles all that the first real solve would wait for.
        lonely = HostRow("host", "rack", "", 0, True, False, False, False)
        rehearsal = PlacementState((lonely,), (), (), ServiceRoles())
        self.solve(rehearsal, policies, budget=1.0, seed=0)

    def policies(self, policies: PolicyChoice) -> tuple[PolicyEntry, ...]:
        from mgmt.errors import PolicyError

        try:
            return list_policies(policies)
        except PolicyError:
            return ()  # what is wrong with them, every solve says

    def solve(self, state: PlacementState, policies: PolicyChoice, budget: float, seed: int) -> SolveOutcome:
        from mgmt.errors import InfeasibleError, PolicyError

        started = time.perf_counter()
        try:
            database, model = self._compiled(policies)
            fill(database, state)
            asks_for_the_time = bool(model.asking_for_the_time)
            solution = model.solve(budget=budget, seed=seed, now=state.moment)
            today = required_moves(model.at(state.moment), solution, state)
        except InfeasibleError as error:
            details = tuple(str(member) for member in error.core)
            rows = tuple(_some_rows(member) for member in error.core)
            return Infeasible(
                tuple(error.constraints),
                details,
                time.perf_counter() - started,
                rows=rows,
                asks_for_the_time=asks_for_the_time,
            )
        except PolicyError as error:
            return Undecided(str(error), time.perf_counter() - started)
        return Solved(
            status=str(solution.status),
            deltas=tuple(solution.deltas),
            objectives=tuple(solution.objectives),
            seconds=time.perf_counter() - started,
            gap=solution.gap,
            proven=solution.status is not SolveStatus.FEASIBLE,
            held=solution.held,
            breaks_rules_today=today.breaks_rules,
            must_leave=today.must_leave,
            asks_for_the_time=asks_for_the_time,
            contradictory=bool(solution.statistics["solver_errors"]),
        )

    def explain(
        self, state: PlacementState, policies: PolicyChoice, question: Question, budget: float, seed: int
    ) -> Explanation:
        from mgmt.errors import PolicyError, SolveTimeout

        try:
            database, model = self._compiled(policies)
            fill(database, state)
            return explain(model.at(state.moment), state, question, budget, seed)
        except SolveTimeout:
            return Explanation(
                error=f"no answer within {budget:g} s; ask again when the controller is less busy"
            )
        except PolicyError as error:
            return Explanation(error=str(error))

    def _compiled(self, policies: PolicyChoice) -> tuple[Database, Model]:
        if self._database is None or self._model is None or self._policies != policies:
            from mgmt.compiler.model import Model
            from mgmt.language.policy_packs import load_pack
            from mgmt.state.database import Database

            pack = load_pack(policies.pack)
            self._database = Database(memory=self._memory)
            self._database.load_schema(pack.schema)
            self._model = Model.build(self._database, [*pack.policies, *policies.texts])
            self._policies = policies
        return self._database, self._model


def _some_rows(member: CoreMember, most: int = 3) -> str:
    """The first rows for which a clashing constraint is posted, for people."""
    words = [", ".join(f"{column} {value}" for column, value in row.items()) for row in member.rows[:most]]
    more = len(member.rows) - most
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def fill(database: Database, state: PlacementState) -> None:
    """Make the datastore schema's tables hold exactly ``state``."""
    contents = {"host": _host_rows(state), "segment": _segment_rows(state), "replica": _replica_rows(state)}
    requests: dict[str, list[dict[str, Any]]] = {
        "host_label": [
            {"host": row.name, "key": key, "value": value} for row in state.hosts for key, value in row.labels
        ],
        "frozen": [{"host": host} for host in state.frozen],
        "pin": [{"segment": pin.segment, "slot": pin.slot, "host": pin.host} for pin in state.pins],
    }
    known = {table.name for table in database.schema.tables}
    database.replace_rows({**contents, **{table: rows for table, rows in requests.items() if table in known}})


def _host_rows(state: PlacementState) -> Iterable[dict[str, Any]]:
    for row in state.hosts:
        yield {
            "name": row.name,
            "rack": row.rack,
            "zone": row.zone,
            "capacity_bytes": row.capacity_bytes,
            "alive": row.alive,
            "drained": row.drained,
            "servers": row.servers,
            "layout_server": row.layout_server,
            "controllable__layout_server": row.layout_server,
            "sequencer": row.sequencer,
            "controllable__sequencer": row.sequencer,
        }


def _segment_rows(state: PlacementState) -> Iterable[dict[str, Any]]:
    for row in state.segments:
        yield {
            "key": row.key,
            "bytes": row.bytes,
            "replication_factor": row.replication_factor,
            "slots": row.slots,
            "load": row.load,
        }


def _replica_rows(state: PlacementState) -> Iterable[dict[str, Any]]:
    # The decided column may not be NULL; until it is decided, any live host stands in it.
    stand_in = min(state.live_hosts)
    for row in state.replicas:
        yield {
            "segment": row.segment,
            "slot": row.slot,
            "host": row.host,
            "controllable__host": row.host if row.host is not None else stand_in,
            "is_primary": row.is_primary,
            "controllable__primary": row.is_primary,
        }
