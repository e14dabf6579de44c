"""The control loop: view change -> state -> solve -> plan -> epoch document -> steps -> observe -> again.

Every manager runs one :class:`Controller`; the one the agreed view names acts, the others stand by.  A view
change interrupts whatever is going on and the situation is looked at afresh, so a plan is never carried on
from memory.  A deposed controller stops at once, and its fence stops what it no longer can.

Decisions are in ``mgmt.control.decision``; this module waits, calls, and remembers only what status displays need.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable
from enum import Enum
from typing import Any

import trio

from datastore_adapter.interface import (
    Adapter,
    AdapterError,
    FencedError,
    Observation,
    Placement,
    StaleIntentError,
)
from mgmt.control.decision import (
    Situation,
    decided_plan,
    decision_key,
    hosts_missing,
    paused_plan,
    resumable,
    resumed_plan,
    without_balance,
)
from mgmt.control.drift import DriftWatch
from mgmt.control.dry_run import describe
from mgmt.control.environment import Environment
from mgmt.control.events import ControlEvent, ControlEvents
from mgmt.control.hysteresis import BalanceHold, balance_hold
from mgmt.control.operator_requests.controller_requests import Requests
from mgmt.control.operator_requests.forced_recovery import ForcedRecovery
from mgmt.control.operator_requests.reports import Reports
from mgmt.control.plan_execution.executor import Executor
from mgmt.control.plan_execution.plan_runner import PlanRunner, event_data
from mgmt.control.plan_execution.repairs import RepairOutcome, Repairs
from mgmt.control.settings import ControlSettings
from mgmt.control.status import ControlStatus, Phase
from mgmt.errors import ControlError
from mgmt.placement.adoption import adopted, only_roles, without_segments
from mgmt.placement.hosts import HostView, controller_of, managers_of
from mgmt.placement.intent import Intent, Order
from mgmt.plans.plan import Plan, PlanKind, is_reached
from mgmt.plans.plan_report import left_out
from mgmt.solving.async_solver import AsyncSolver, ThreadSolver
from mgmt.solving.placement_solver import Infeasible, PolicySolver, Solved, SolveOutcome, Undecided

_RAREST_LOADING = 7
"""Doublings of the pause before a solver that does not load is tried again: with rounds of 5 s, up to ten minutes."""


class _RoundResult(Enum):
    """What one round came to; decides the pause before the next."""

    IDLE = "idle"  # nothing to do until something changes
    ACTED = "acted"  # look again at once
    RETRY = "retry"  # look again after a growing pause


class Controller:
    """The control loop of one host.

    ``initial`` is agreed as the operators' intent if the epoch document has none yet (the founder gives it).
    ``solver``: the policy compiler in a thread of this process, unless another is given.
    ``listener`` is called with every event; it must neither block nor raise.
    """

    def __init__(
        self,
        adapter: Adapter,
        me: str,
        *,
        initial: Intent | None = None,
        solver: AsyncSolver | None = None,
        settings: ControlSettings | None = None,
        listener: Callable[[ControlEvent], None] | None = None,
        clock: Callable[[], float] = trio.current_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._adapter = adapter
        self._me = me
        self._initial = initial
        self._settings = settings = settings or ControlSettings()
        self.events = events = ControlEvents(clock, settings.events_kept, listener)
        self._environment = environment = Environment(
            me, adapter, solver or ThreadSolver(PolicySolver()), settings, events, wall
        )
        self._executor = Executor(adapter, environment.observe, settings, events, clock, environment.cause)
        self._repairs = Repairs(adapter, self._executor, settings, clock)
        self._runner = PlanRunner(me, environment, self._executor, settings, events, clock)
        self.requests = Requests(me, environment, settings, events, self._intent_changed, self._runner.speeds)
        self._drift = DriftWatch(events)
        self.forced_recovery = ForcedRecovery(me, adapter, environment, events, self._drift.acted)
        self._interrupt: trio.CancelScope | None = None
        self._interrupted_because = ""
        self._wake = trio.Event()
        self._change_is_near = trio.Event()
        self._status = ControlStatus(me, environment, self._executor, self._runner, events)
        self.reports = Reports(environment, self._status, settings)
        self._acting = False  # between taking the role on and having put it down
        self._undecided = 0  # solves without an answer, one after the other
        self._failed_plan = ""  # id of the last plan that failed: solve again rather than resume it
        self._idle_key: object = None  # the situation in which there was nothing to do
        self._plan_key: object = None  # the situation and target of the last plan carried out
        # View, intent, relieved hosts and target of the plan just done, if it was proven best.
        self._best: tuple[int, Intent, frozenset[str], Placement] | None = None

    # -- what may be asked; more is in ``requests`` and ``reports`` ------------------------------------

    @property
    def settled(self) -> bool:
        """Whether, in the view this loop knows, everything is placed as the policies want."""
        return self._status.settled

    def settled_in(self, view_epoch: int) -> bool | None:
        """Whether it is settled, and knows that view; None while it leaves that to another host.

        As the status says, and quick enough to be asked at every moment of a simulation.
        """
        view = self._environment.view
        if controller_of(view) != self._me:
            return None
        return self.settled and view.epoch == view_epoch

    @property
    def leader(self) -> str | None:
        """Who is the controller in the view that this loop knows."""
        return controller_of(self._environment.view)

    def status(self) -> dict[str, Any]:
        """For ``rota status``; as of the last look at the engine."""
        return self._status.report()

    def statistics(self) -> dict[str, int]:
        """Counters since this object was made."""
        return self._status.statistics()

    def expect_change(self) -> None:
        """The view will change soon, as somebody is suspected: whoever may have to solve then loads its solver now."""
        self._change_is_near.set()

    # -- the loop -----------------------------------------------------------------------------------

    async def run(self, views: AsyncIterable[HostView]) -> None:
        """Follow the views until they end; the newest is in force.  To be run once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._control)
            nursery.start_soon(self._keep_solver)
            async for view in views:
                self._see(view)
            nursery.cancel_scope.cancel()

    def _see(self, view: HostView) -> None:
        if view.epoch <= self._environment.view.epoch:
            return
        self._environment.see(view)
        self._adapter.set_hosts(view.epoch, view.addresses)
        self._status.phase = Phase.LOOKING
        self._undecided = 0
        self._change_is_near.set()
        self._give_up("the view changed")

    async def _keep_solver(self) -> None:
        """Have a solver loaded, which takes seconds, wherever one is needed next: where the controller is, and where
        the next one would be. One that does not load is tried again ever more seldom."""
        failures = 0
        while True:
            is_near, self._change_is_near = self._change_is_near.is_set(), trio.Event()
            in_line = [
                host.name for host in managers_of(self._environment.view)[: 1 + self._settings.standbys]
            ]
            intent = self._environment.intent
            if self._me in in_line and intent is not None:
                if is_near or self._settings.keep_solver:
                    failures = 0 if await self._environment.warm_up() else failures + 1
                else:
                    await self._environment.prepare(intent.policies)
            pause = self._settings.intent_interval if intent is None else self._settings.round_interval
            pause *= 2.0 ** min(failures, _RAREST_LOADING)
            with trio.move_on_after(pause):
                await self._change_is_near.wait()

    def _intent_changed(self, at_once: bool) -> None:
        """``at_once``: what is carried out now is not to be finished first."""
        if self._status.phase is not Phase.EXECUTING:
            self._status.phase = Phase.LOOKING
        self._idle_key = None  # the intent may be that of before again, and then that is to be told
        self._wake.set()
        if at_once:
            self._give_up("an operator decided otherwise")

    def _give_up(self, why: str) -> None:
        self._interrupted_because = why
        if self._interrupt is not None:
            self._interrupt.cancel()

    async def _control(self) -> None:
        while True:
            view = self._environment.view
            with trio.CancelScope() as self._interrupt:
                if controller_of(view) == self._me:
                    await self._act(view)
                else:
                    await self._stand_by(view)
            if self._status.plan is not None:
                self.events.add(
                    "plan-superseded",
                    f"plan {self._status.plan.plan_id}: {self._interrupted_because}",
                    plan_id=self._status.plan.plan_id,
                )
                self._status.plan = None

    async def _stand_by(self, view: HostView) -> None:
        self._status.phase = Phase.STANDBY
        self._environment.questions = {}  # the controller asks them
        if self._acting:
            await self._executor.cancel_all()
            self._acting = False
            self.events.add(
                "standby", f"{controller_of(view)} is the controller now", controller=controller_of(view)
            )
        if self._environment.intent is not None:
            # The controller looks at a new view at once, and should not have to wait behind all others.
            await trio.sleep(self._settings.intent_interval)
        while True:
            try:
                observation = await self._environment.observe()
                if (
                    isinstance(observation, Observation)
                    and self._environment.intent is None
                    and self._initial is not None
                ):
                    # The founder may have been evicted, and come back as the last in line: nobody else brings them.
                    await self._agree_initial(view, observation)
                    self._status.phase = Phase.STANDBY
            except (AdapterError, ControlError) as error:
                self._status.trouble = str(error)
            early = self._environment.intent is None
            await trio.sleep(self._settings.intent_interval if early else self._settings.standby_interval)

    async def _act(self, view: HostView) -> None:
        if not self._acting:
            self._acting = True
            self.events.add(
                "controller", f"{self._me} is the controller by view {view.epoch}", view_epoch=view.epoch
            )
        retries = 0
        while True:
            result = await self._guarded_round(view)
            retries = retries + 1 if result is _RoundResult.RETRY else 0
            if result is _RoundResult.ACTED:
                await trio.lowlevel.checkpoint()
                continue
            await self._pause(self._rest() if result is _RoundResult.IDLE else self._backoff(retries))

    def _rest(self) -> float:
        """Until the next look at an engine that needs nothing."""
        is_suspicious = self._environment.disks.is_suspicious
        return self._settings.suspicion_interval if is_suspicious else self._settings.round_interval

    def _backoff(self, attempts: int) -> float:
        return min(self._settings.first_backoff * 2.0 ** (attempts - 1), self._settings.longest_backoff)

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._wake.wait()
        self._wake = trio.Event()

    async def _guarded_round(self, view: HostView) -> _RoundResult:
        """One round; whatever engine or document have to complain about ends it, never the loop."""
        self._status.counts["rounds"] += 1
        try:
            result = await self._round(view)
        except FencedError as error:
            self._status.complain(Phase.TROUBLE, "fenced", f"another controller took over: {error}")
            result = _RoundResult.RETRY
        except StaleIntentError:
            result = _RoundResult.RETRY  # somebody else's change won; look again
        except (AdapterError, ControlError) as error:
            self._status.complain(Phase.TROUBLE, "trouble", str(error))
            result = _RoundResult.RETRY
        if result is _RoundResult.RETRY:
            self._idle_key = None  # the situation of before, found again, ends what is complained of now
        self._status.plan = None
        return result

    async def _round(self, view: HostView) -> _RoundResult:
        await self._executor.cancel_layout_changes()
        observation = await self._environment.observe()
        if not isinstance(observation, Observation):
            self._status.complain(
                Phase.UNREACHABLE, "trouble", f"the engine does not answer: {observation.reason}"
            )
            return _RoundResult.RETRY
        self._status.counts["drifts"] += self._drift.look(view.epoch, observation)
        if self._is_only_observed():
            return await self._observe_only(view, observation)
        plan_id = f"repair-{observation.layout_epoch}-{self._status.counts['rounds']}"
        repaired = await self._repairs.run(view.epoch, observation, plan_id, self._drift.acted)
        if repaired is not RepairOutcome.NOTHING:
            return _RoundResult.ACTED if repaired is RepairOutcome.ACTED else _RoundResult.RETRY
        self._environment.questions = self._repairs.questions
        intent = self._environment.intent
        if intent is None:
            return await self._agree_initial(view, observation)
        frozen = self._environment.with_freezes(intent)
        if observation.segments and frozen != intent:
            await self._environment.agree(view, observation, frozen, why="hosts came back")
            self._tell_freezes(frozen)
            return _RoundResult.ACTED
        situation = self._environment.situation(observation, intent)
        missing = hosts_missing(situation)
        if missing:
            self._status.complain(
                Phase.WAITING, "waiting", f"the first placement waits for {missing} more hosts"
            )
            return _RoundResult.IDLE
        key = decision_key(situation)
        if key == self._idle_key:
            return _RoundResult.IDLE
        return await self._improve(view, situation, key)

    def _tell_freezes(self, intent: Intent) -> None:
        for freeze in intent.freezes:
            if freeze.view_epoch == self._environment.view.epoch:
                seconds = freeze.until - freeze.since
                text = f"{freeze.host} came back ({freeze.returns} in a row): nothing new for it for {seconds:.0f} s"
                self.events.add("frozen", text, host=freeze.host, returns=freeze.returns, seconds=seconds)

    def _is_only_observed(self) -> bool:
        """Whether nothing of the engine may be changed: it is somebody else's, or nobody has said yet whose."""
        intent = self._environment.intent or self._initial
        return bool(self._environment.slots) if intent is None else intent.observing

    async def _observe_only(self, view: HostView, observation: Observation) -> _RoundResult:
        """Follow what is found; of everything only the roles are the control loop's own."""
        intent = self._environment.intent
        if intent is None:
            return await self._agree_initial(view, observation)
        found = adopted(intent, observation, self._environment.slots)
        if found != intent:
            await self._environment.agree(view, observation, found, why="the engine as it was found")
            return _RoundResult.ACTED
        steps = without_segments(self._environment.lower(observation, only_roles(view, observation)))
        if steps.steps:
            self._drift.acted()
            plan_id = f"roles-{observation.layout_epoch}-{self._status.counts['rounds']}"
            result = await self._executor.run(steps, observation, view.epoch, plan_id)
            return _RoundResult.ACTED if result.done else _RoundResult.RETRY
        text = "observing: nothing of the engine is changed until `rota apply` or `rota resume`"
        self._status.report_unavailable(view, observation)
        self._status.hold(Phase.OBSERVING, text)
        return _RoundResult.IDLE

    async def _agree_initial(self, view: HostView, observation: Observation) -> _RoundResult:
        if self._initial is None or observation.layout_epoch < 0:
            self._status.complain(
                Phase.WAITING,
                "waiting",
                "no segments and policies are agreed yet; the founder brings them",
            )
            return _RoundResult.IDLE
        intent, slots = self._initial, self._environment.slots
        if intent.observing:
            intent = adopted(intent, observation, slots)
        elif slots:
            intent = intent.with_even_slots(slots)
        await self._environment.agree(view, observation, intent, why="the founder's settings")
        count, copies = len(intent.segments), intent.replication_factor
        self.events.add(
            "intent",
            f"agreed: {count} segments x {copies} replicas by {intent.policies.pack}"
            + (", adopted as they are; nothing is changed yet" if intent.observing else ""),
        )
        return _RoundResult.ACTED

    async def _improve(self, view: HostView, situation: Situation, key: object) -> _RoundResult:
        """Find out what to do, and do it."""
        outcome: SolveOutcome | None = None
        holding: BalanceHold | None = None
        if self._is_best(situation):
            return self._nothing_to_do(situation, None, None, key)
        plan = self._resume(situation)
        if plan is None and situation.intent.paused:
            await self._executor.cancel_all()
            plan = paused_plan(situation)
        elif plan is None:
            if (
                self._status.phase is not Phase.SETTLED
            ):  # a second look at a settled system does not unsettle it
                self._status.phase = Phase.SOLVING
            situation, outcome = await self._environment.solve_or_thaw(situation, self._undecided)
            self._undecided = self._undecided + 1 if isinstance(outcome, Undecided) else 0
            plan = decided_plan(situation, outcome)
            if isinstance(outcome, Solved):
                holding = balance_hold(
                    plan, situation.intent, outcome, self._settings.hysteresis, situation.now
                )
                plan = plan if holding is None else without_balance(situation, plan)
        self._status.held = holding
        self._status.trouble = ""  # what is still in the way is told again below
        self._status.report_unavailable(view, situation.observation)
        if not self._runner.steps(plan, situation.observation, plan.target).steps:
            if holding is not None and holding.until is not None:
                self._status.hold(Phase.HOLDING, holding.why)
                return _RoundResult.IDLE
            return self._nothing_to_do(situation, plan, outcome, key)
        if outcome is not None and plan.kind is PlanKind.AVAILABILITY:
            self._status.report_no_placement(outcome)
        result = await self._carry_out(view, situation, plan)
        if (
            result is _RoundResult.ACTED
            and isinstance(outcome, Solved)
            and outcome.proven
            and holding is None
            and not situation.thawed
        ):
            intent = self._runner.intent_with(situation, plan).with_plan(None)
            self._best = (view.epoch, intent, situation.observation.relieved, plan.target)
        return result

    def _is_best(self, situation: Situation) -> bool:
        """Whether the placement just reached is the one proven best for this view and this intent."""
        if self._best is None:
            return False
        *decided_for, target = self._best
        self._best = None  # good for one look: later looks have other data to go by
        intent, relieved = situation.intent.with_plan(None), situation.observation.relieved
        return (
            decided_for == [situation.view.epoch, intent, relieved]
            # One that was given up may have handed its last slot on.
            and target.segments.keys() == {row.key for row in situation.state.segments}
            and is_reached(situation.observation, target)
            and not self._environment.lower(situation.observation, target).steps
        )

    def _resume(self, situation: Situation) -> Plan | None:
        """The plan in the epoch document, if there is still something to do for it."""
        record = resumable(situation)
        if record is None or (record.plan_id == self._failed_plan and record.order is not Order.ABORT):
            return None
        plan = resumed_plan(situation, record)
        return plan if self._environment.lower(situation.observation, plan.target).steps else None

    def _nothing_to_do(
        self, situation: Situation, plan: Plan | None, outcome: SolveOutcome | None, key: object
    ) -> _RoundResult:
        if isinstance(outcome, Undecided):
            self._status.report_no_placement(outcome)
            return _RoundResult.RETRY
        if not isinstance(outcome, Solved) or outcome.proven:
            self._idle_key = key
        if isinstance(outcome, Infeasible):
            self._status.report_no_placement(outcome)
            return _RoundResult.IDLE
        if situation.questions:
            text = "; ".join(situation.questions[key] for key in sorted(situation.questions))
            self._status.complain(Phase.ASKING, "asks", text, segments=sorted(situation.questions))
            return _RoundResult.IDLE
        if plan is not None and plan.left_out:
            self._status.hold(Phase.HOLDING, left_out(plan))
            return _RoundResult.IDLE
        if situation.intent.paused:
            self._status.hold(Phase.PAUSED, "paused: no data is moved until `rota resume`")
            return _RoundResult.IDLE
        epoch = situation.observation.layout_epoch
        how = "nothing to do" if outcome is None else describe(outcome)
        self._status.settle(f"layout epoch {epoch} is what the policies want ({how})", epoch)
        return _RoundResult.IDLE

    async def _carry_out(self, view: HostView, situation: Situation, plan: Plan) -> _RoundResult:
        self._status.plan, self._status.phase = plan, Phase.EXECUTING
        self._status.counts["plans"] += 1
        attempt = (decision_key(situation), plan.target)
        self._drift.acted()
        self._idle_key = None  # the plan may lead back to the situation in which there was nothing to do
        error = await self._runner.run(view, situation, plan)
        repeated, self._plan_key = attempt == self._plan_key, attempt
        if error:
            self._failed_plan = plan.agreed_as
            self._status.counts["plans_failed"] += 1
            self._status.complain(
                Phase.TROUBLE, "plan-failed", f"plan {plan.plan_id}: {error}", plan_id=plan.plan_id
            )
            return _RoundResult.RETRY
        self._status.counts["plans_done"] += 1
        self._status.counts["moves_done"] += len(plan.moves)
        self.events.add("plan-done", f"plan {plan.plan_id} is done", **event_data(plan))
        if repeated:
            # Done, yet asked for again in the very situation it started from: once more would not help.
            text = f"plan {plan.plan_id} is done, and the engine shows no effect; nothing more until something changes"
            self._status.complain(Phase.TROUBLE, "trouble", text)
            self._idle_key = decision_key(situation)
            return _RoundResult.IDLE
        return _RoundResult.ACTED
