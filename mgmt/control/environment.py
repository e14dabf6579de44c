"""The controller's environment: what it asks of engine, solver and epoch document, and their last answers.

It decides nothing.  The loop and the operators' requests share one :class:`Environment`, in tasks of one trio run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import trio

from datastore_adapter.interface import (
    Adapter,
    Cause,
    DiskState,
    DiskTrouble,
    Fence,
    LayoutVersion,
    Observation,
    Placement,
    ReplicaState,
    StepGraph,
    Unreachable,
)
from mgmt.control.decision import Situation, situation_of, thawed
from mgmt.control.events import ControlEvents
from mgmt.control.settings import ControlSettings
from mgmt.errors import PlacementError, SolverUnavailableError
from mgmt.placement.disk_watch import DiskWatch, disk_to_json, relief_text, watched
from mgmt.placement.flap_damping import unknown, with_returns
from mgmt.placement.hosts import EMPTY_VIEW, Host, HostView
from mgmt.placement.intent import Intent, PolicyChoice
from mgmt.placement.placement_rows import PlacementState
from mgmt.solving.async_solver import AsyncSolver
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import Infeasible, Solved, SolveOutcome, Undecided

DEPARTED_KEPT = 1024


class Environment:
    """The engine and the solver of one controller, with the view and the intent in force."""

    def __init__(
        self,
        me: str,
        adapter: Adapter,
        solver: AsyncSolver,
        settings: ControlSettings,
        events: ControlEvents,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._me = me
        self._adapter = adapter
        self._solver = solver
        self._settings = settings
        self._events = events
        self.wall = wall
        """The time in Unix seconds."""
        self._departed: dict[str, Host] = {}
        self._returns: dict[str, int] = {}  # hosts that came back, and the view of the last time
        self._previous: PlacementState | None = None
        self._prepared: PolicyChoice | None = None
        self._reachable = True
        self._running: set[trio.CancelScope] = set()
        self.view: HostView = EMPTY_VIEW
        self.observation: Observation | None = None
        """The last one."""
        self.unreachable: Unreachable | None = None
        """The last answer, if it was none."""
        # The document that `intent` was read from; it is most often the one before.
        self._read: object = None
        self._looked_at = -math.inf
        self.intent: Intent | None = None
        """As it stood in the last observation."""
        self.outcome: SolveOutcome | None = None
        """Of the last solve."""
        self.asked = ""
        """What the last solve was for; empty: what the control loop is to do next."""
        self.solved_at = 0.0
        """When the last solve ended, by the events' clock."""
        self._listing: tuple[PolicyChoice, dict[str, Any]] | None = None
        self.disks = DiskWatch()
        """As of the last observation."""
        self.questions: Mapping[str, str] = {}
        """By segment what operators are asked: it cannot be repaired, and is left as it is."""
        self.observations = 0
        self.solves = 0
        self.solver_errors = 0
        """Answers in which the solver contradicted itself."""

    def see(self, view: HostView) -> None:
        """Take a new view in; hosts that left are remembered, for a plan shall say where its copies were.

        What is being solved is for hosts that are not these: it is given up.
        """
        for host in self.view.hosts:
            if host.name not in view.names:
                self._departed[host.name] = host
        before = self.view.by_name
        for host in view.hosts:
            other_run = host.name in before and before[host.name].incarnation != host.incarnation
            if self._departed.pop(host.name, None) is not None or other_run:
                self._returns[host.name] = view.epoch
        for kept in (self._departed, self._returns):
            while len(kept) > DEPARTED_KEPT:
                kept.pop(next(iter(kept)))
        self.view = view
        for solve in self._running:
            solve.cancel()

    @property
    def slots(self) -> int:
        """Into how many the engine divides its keys; 0: it has none."""
        return self._adapter.capabilities.slots

    @property
    def seconds_since_look(self) -> float:
        """Since the engine was asked last; infinite before."""
        return self._events.now - self._looked_at

    async def observe(self) -> Observation | Unreachable:
        """Ask the engine.  Raises :class:`IntentError` when its epoch document cannot be read."""
        self._looked_at = self._events.now
        answer = await self._adapter.observe()
        self.observations += 1
        reachable = isinstance(answer, Observation)
        self.unreachable = answer if isinstance(answer, Unreachable) else None
        if reachable != self._reachable:
            self._reachable = reachable
            if isinstance(answer, Unreachable):
                self._events.add("engine-unreachable", answer.reason)
            else:
                self._events.add("engine-reachable", "a majority of the engine answers again")
        if isinstance(answer, Observation):
            answer = replace(answer, disks=self._watch_disks(answer))
            self.observation = answer
            if answer.intent is not self._read:
                self.intent = Intent.from_mapping(answer.intent, self.slots) if answer.intent else None
                self._read = answer.intent
        return answer

    def _watch_disks(self, answer: Observation) -> Mapping[str, DiskTrouble]:
        """Whose disks are in trouble, after this look; and tell of what is new."""
        before, now = self.disks, self._events.now
        written = {
            replica.host
            for segment in answer.segments
            for replica in segment.replicas
            if replica.state in (ReplicaState.IN_SYNC, ReplicaState.SYNCING)
        }
        idle = self.view.names - written if written else frozenset[str]()
        self.disks = watched(
            before, now, self.view.names, answer.disks, answer.sync_seconds, self._settings.disks, idle
        )
        for host, trouble in self.disks.disks.items():
            earlier = before.disks.get(host)
            if earlier is None or (earlier.state, earlier.is_relieved) != (
                trouble.state,
                trouble.is_relieved,
            ):
                self._tell_trouble(host, trouble)
        for host in sorted(before.disks.keys() - self.disks.disks.keys()):
            if before.disks[host].state is DiskState.FULL:
                self._events.add("disk-room", f"the disk of {host} has room again", host=host)
            else:
                self._events.add("disk-ok", f"the disk of {host} is in order again", host=host)
        return self.disks.disks

    def _tell_trouble(self, host: str, trouble: DiskTrouble) -> None:
        data = disk_to_json(host, trouble)
        why, relief = trouble.reason, relief_text(trouble, len(self.view.names))
        match trouble.state:
            case DiskState.FULL:
                self._events.add("disk-full", f"the disk of {host} is full: {why}; {relief}", **data)
            case DiskState.FAILED:
                self._events.add("disk-failed", f"the disk of {host} has failed: {why}; {relief}", **data)
            case DiskState.SLOW:
                self._events.add("disk-slow", f"the disk of {host} is slow: {why}; {relief}", **data)

    def situation(self, observation: Observation, intent: Intent) -> Situation:
        situation = situation_of(
            self._me,
            self.view,
            observation,
            intent,
            self._departed,
            self._previous,
            self._settings.waves,
            self.wall(),
            self._settings.freezes,
            self._tick(),
            self.questions,
        )
        self._previous = situation.state
        return situation

    def _tick(self) -> int:
        """Another number every so often, if what was decided last may be decided otherwise as time goes by."""
        asked = isinstance(self.outcome, (Solved, Infeasible)) and self.outcome.asks_for_the_time
        return int(self.wall() // self._settings.time_interval) if asked else 0

    def with_freezes(self, intent: Intent) -> Intent:
        """The intent with hosts that came back frozen; the same if all of them are known."""
        returns = unknown(intent.freezes, tuple(self._returns.items()))
        if not returns:
            return intent
        return replace(
            intent, freezes=with_returns(intent.freezes, returns, self.wall(), self._settings.freezes)
        )

    def lower(self, observation: Observation, target: Placement) -> StepGraph:
        """The engine's steps to ``target``.  Raises :class:`PlacementError` when it says there is no way."""
        try:
            return self._adapter.lower(observation, target)
        except ValueError as error:
            raise PlacementError(f"the engine cannot take this placement: {error}") from error

    async def prepare(self, policies: PolicyChoice) -> None:
        """Load and compile the solver ahead of need, once."""
        if self._prepared == policies:
            return
        self._prepared = policies
        await self._load(policies)

    async def warm_up(self) -> bool:
        """Have a solver loaded by the time it is needed; one that was prepared may have ended since. Whether it is."""
        if self.intent is None:
            return True
        self._prepared = self.intent.policies
        return await self._load(self._prepared)

    async def _load(self, policies: PolicyChoice) -> bool:
        try:
            await self._solver.prepare(policies)
        except Exception:  # whatever is wrong, the solve itself will say
            return False
        return True

    async def policies(self, choice: PolicyChoice) -> dict[str, Any]:
        """The policies of this choice, listed.  Raises :class:`SolverUnavailableError`."""
        if self._listing is None or self._listing[0] != choice:
            entries = await self._solver.policies(choice)
            self._listing = (choice, {"pack": choice.pack, "policies": [asdict(entry) for entry in entries]})
        return self._listing[1]

    async def solve(self, situation: Situation, patience: int = 0, asked: str = "") -> SolveOutcome:
        """Ask the solver.  Each step of ``patience`` doubles the time it may take.  ``asked``: what for.

        A view change in the meantime ends it, undecided: the answer would be for other hosts.
        """
        budget = min(self._settings.solve_budget * 2.0**patience, self._settings.longest_solve_budget)
        policies = situation.intent.policies
        with trio.CancelScope() as scope:
            self._running.add(scope)
            try:
                # Loading the solver takes a second or more on a busy host: not out of the first solve's budget.
                await self.prepare(policies)
                self.solves += 1
                outcome = await self._ask(situation.state, policies, budget)
                self.outcome, self.asked, self.solved_at = outcome, asked, self._events.now
                self.solver_errors += isinstance(outcome, Solved) and outcome.contradictory
                return outcome
            finally:
                self._running.discard(scope)
        return Undecided("the view changed while this was being solved; try again", 0.0)

    async def solve_or_thaw(
        self, situation: Situation, patience: int = 0, asked: str = ""
    ) -> tuple[Situation, SolveOutcome]:
        """As :meth:`solve`; if there is no placement, again without the freezes that repairs go before.

        Returns the situation that the outcome is for.
        """
        outcome = await self.solve(situation, patience, asked)
        warmer = thawed(situation) if isinstance(outcome, Infeasible) else None
        if warmer is None:
            return situation, outcome
        second = await self.solve(warmer, patience, asked)
        if isinstance(second, Solved):
            return warmer, second
        self.outcome = outcome
        return situation, outcome

    async def explain(self, situation: Situation, question: Question) -> Explanation:
        """Ask the solver about the present state.  Raises :class:`SolverUnavailableError`."""
        policies = situation.intent.policies
        await self.prepare(policies)
        budget, seed = (
            self._settings.longest_solve_budget,
            self._settings.seed,
        )  # a person waits, not the cluster
        return await self._solver.explain(situation.state, policies, question, budget, seed)

    async def _ask(self, state: PlacementState, policies: PolicyChoice, budget: float) -> SolveOutcome:
        try:
            return await self._solver.solve(state, policies, budget, self._settings.seed)
        except SolverUnavailableError as error:
            return Undecided(str(error), 0.0)
        except Exception as error:  # noqa: BLE001, RUF100 - see below
            # A defect in the solver's machinery must not keep lost hosts in their chains: without an answer
            # the loop still does what availability needs, and says so.
            return Undecided(f"internal error of the solver: {type(error).__name__}: {error}", 0.0)

    async def history(self) -> tuple[LayoutVersion, ...] | Unreachable:
        """The versions of the layout that the engine keeps."""
        return await self._adapter.history()

    def cause(self, why: str, asked_at: str = "") -> Cause:
        """For the history of the layout: this host, now, and why."""
        return Cause(self._me, self.wall(), why, asked_at)

    async def agree(
        self,
        view: HostView,
        observation: Observation,
        intent: Intent,
        plan_id: str = "",
        *,
        why: str = "",
        asked_at: str = "",
    ) -> int:
        """Put ``intent`` into the epoch document in place of what ``observation`` found there.

        ``why``, and the host where an operator asked for it, if one did, are for the history of the layout.

        Raises ``StaleIntentError`` when the document moved on meanwhile, ``FencedError`` when deposed.
        """
        fence = Fence(view.epoch, observation.layout_epoch, plan_id, 0, self.cause(why, asked_at))
        return await self._adapter.set_intent(observation.layout_epoch, intent.to_mapping(), fence)
