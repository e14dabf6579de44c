"""What operators ask of the controller alone: a dry run, a drain, a pause, an abort, a plan carried out now.

A request is decided *first*, then agreed in the epoch document, then acknowledged: one that is acknowledged
survives every controller, and one that cannot be satisfied changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final

import trio

from datastore_adapter.interface import AdapterError, FencedError, Observation, StaleIntentError
from mgmt.control.decision import (
    Situation,
    abort_record,
    decided_plan,
    hosts_missing,
    in_flight,
    resumed_plan,
)
from mgmt.control.dry_run import DryRun, describe
from mgmt.control.environment import Environment
from mgmt.control.events import ControlEvents
from mgmt.control.hysteresis import balance_hold
from mgmt.control.operator_requests.shown_outcomes import ShownOutcomes
from mgmt.control.settings import ControlSettings
from mgmt.errors import (
    ControlError,
    DrainRefusedError,
    EngineUnreachableError,
    IntentError,
    InvalidRequestError,
    NotControllerError,
    NothingToAbortError,
    NotRestoringError,
    PlanChangedError,
    RefusedError,
    SolverUnavailableError,
    UndecidedError,
    UnknownHostError,
    UnknownSegmentError,
)
from mgmt.placement.hash_slot_assignment import balanced
from mgmt.placement.hosts import controller_of
from mgmt.placement.intent import MOST_SEGMENTS, Intent, Order
from mgmt.plans.duration_estimate import TransferSpeeds
from mgmt.plans.plan import Plan
from mgmt.solving.placement_questions import Explanation, Question
from mgmt.solving.placement_solver import Infeasible, Solved, SolveOutcome, Undecided

PATIENCE: Final = 1
"""Doublings of the time to solve where somebody is shown a plan, or orders one."""
_ONCE_MORE: Final = 3
"""The same for a request that the solver had no answer to in its usual time: a person waits, not the cluster."""

Change = Callable[[Observation, Intent], Awaitable[Intent]]
"""The intent instead, decided for what was observed.  Raises what the request is refused with."""


Amendment = Callable[[Observation, Intent], Intent]
"""The same, where nobody has to be asked."""


class _ClashError(ControlError):
    """The policies don't allow what is asked for."""

    def __init__(self, situation: Situation, outcome: Infeasible) -> None:
        super().__init__(", ".join(outcome.policies))
        self.situation = situation
        self.outcome = outcome


class Requests:
    """The requests of one controller.

    ``changed`` is called when another intent was agreed, to wake the loop; with True it gives up what it is at, too.
    """

    def __init__(
        self,
        me: str,
        environment: Environment,
        settings: ControlSettings,
        events: ControlEvents,
        changed: Callable[[bool], None],
        speeds: Callable[[], TransferSpeeds] = TransferSpeeds,
    ) -> None:
        self._me = me
        self._environment = environment
        self._settings = settings
        self._events = events
        self._changed = changed
        self._speeds = speeds
        self._asked_at = me
        self._shown = ShownOutcomes()
        # One request at a time: two drains that are possible each may be impossible together.
        self._one_at_a_time = trio.Lock()

    def on_behalf_of(self, agent: str) -> Requests:
        """The same, for somebody who asked at another host's agent."""
        if not agent or agent == self._asked_at:
            return self
        other = copy(self)
        other._asked_at = agent
        return other

    async def plan(self, amended: Amendment = lambda observation, intent: intent) -> DryRun:
        """What :meth:`apply` would carry out; change nothing.  ``amended``: the intent instead of what is agreed."""
        for _ in range(self._settings.intent_attempts):
            observation, intent = await self._current()
            intent = amended(observation, intent)
            situation = self._environment.situation(observation, intent)
            plan, outcome = self._under_way(situation), None
            helping: tuple[str, ...] = ()
            if plan is None:
                asked = situation
                situation, outcome = await self._environment.solve_or_thaw(asked, PATIENCE, "a dry run")
                helping = await self._relaxations(situation) if isinstance(outcome, Infeasible) else ()
                if self._environment.view is not situation.view:
                    continue  # solved for hosts that are no longer those of the view, or not at all
                plan = decided_plan(situation, outcome)
                self._shown.keep(plan.digest, asked, situation, outcome)
            steps = self._environment.lower(observation, plan.waves[0])
            waits = (
                balance_hold(plan, intent, outcome, self._settings.hysteresis, situation.now)
                if isinstance(outcome, Solved)
                else None
            )
            return DryRun(
                plan,
                steps,
                outcome,
                hosts_missing=hosts_missing(situation),
                paused=intent.paused,
                observing=intent.observing,
                speeds=self._speeds(),
                held=waits,
                relaxations=helping,
            )
        raise UndecidedError("the view changed under every attempt; try again")

    def _under_way(self, situation: Situation) -> Plan | None:
        """The plan that is agreed, if something is left to do for it."""
        record = in_flight(situation)
        if record is None or record.order is Order.ABORT:
            return None
        plan = resumed_plan(situation, record)
        return plan if self._environment.lower(situation.observation, plan.target).steps else None

    async def _relaxations(self, situation: Situation, drained: str = "") -> tuple[str, ...]:
        """What would help, as far as it can be had: which rules clash is known without.

        ``drained``: the host that is to be, so that this is not taken back.
        """
        try:
            return (await self._environment.explain(situation, Question("relaxations", host=drained))).lines
        except SolverUnavailableError:
            return ()

    async def policies(self) -> dict[str, object]:
        """The policies in force, read from their texts."""
        _, intent = await self._current()
        return await self._environment.policies(intent.policies)

    async def explain(self, question: Question) -> Explanation:
        """Answer a question about the present state; nothing is changed."""
        observation, intent = await self._current()
        hosts = self._environment.view.names
        if question.segment and question.segment not in intent.segments:
            raise UnknownSegmentError(question.segment, intent.segments)
        if question.host and question.host not in hosts:
            raise UnknownHostError(question.host, sorted(hosts))
        answer = await self._environment.explain(self._environment.situation(observation, intent), question)
        if answer.malformed:
            raise InvalidRequestError(answer.error)
        if answer.error:
            raise UndecidedError(answer.error)
        return answer

    async def why(self, name: str) -> Explanation:
        """Why a segment, or what a host holds, is placed as it is."""
        _, intent = await self._current()
        hosts = self._environment.view.names
        if name not in intent.segments and name not in hosts:
            raise UnknownSegmentError(name, intent.segments, sorted(hosts))
        is_segment = name in intent.segments
        return await self.explain(Question("why", segment=name) if is_segment else Question("why", host=name))

    # -- which hosts may be used ---------------------------------------------------------------------

    async def drain(self, host: str) -> None:
        """Empty ``host``, if the policies allow it.  Asking again is harmless."""
        if host not in self._environment.view.names:
            raise UnknownHostError(host, sorted(self._environment.view.names))

        try:
            what = f"draining {host}"
            if await self._change_if_possible(lambda intent: intent.with_drain(host), what, drained=host):
                self._events.add("drain", f"{host} is to be emptied", host=host)
                self._changed(False)
        except RefusedError as refused:
            refusal = DrainRefusedError(host, refused.policies, refused.details, refused.relaxations)
            self._events.add("drain-refused", str(refusal), host=host, policies=list(refusal.policies))
            raise refusal from None

    async def undrain(self, host: str) -> None:
        """Let ``host`` be used again.  Asking again is harmless."""

        async def used(observation: Observation, intent: Intent) -> Intent:
            return intent.without_drain(host)

        if await self._change(used):
            self._events.add("undrain", f"{host} may be used again", host=host)
            self._changed(False)

    # -- which copies stay where ---------------------------------------------------------------------

    async def pin(self, segment: str, host: str) -> None:
        """Have a copy of ``segment`` on ``host`` from now on, if the policies allow it.  Asking again is harmless."""
        if host not in self._environment.view.names:
            raise UnknownHostError(host, sorted(self._environment.view.names))
        what = f"pinning {segment} to {host}"

        def pinned(intent: Intent) -> Intent:
            if segment not in intent.segments:
                raise UnknownSegmentError(segment, intent.segments)
            wanted = intent.with_pin(segment, host)
            if wanted != intent and sum(pin[0] == segment for pin in wanted.pins) > intent.replication_factor:
                raise RefusedError(f"{what} would break", ("replication_factor",))
            return wanted

        if await self._change_if_possible(pinned, what):
            self._events.add("pin", f"a copy of {segment} stays on {host}", segment=segment, host=host)
            self._changed(False)

    async def unpin(self, segment: str, host: str) -> None:
        """Let the copy move again.  Asking again is harmless."""

        async def free(observation: Observation, intent: Intent) -> Intent:
            return intent.without_pin(segment, host)

        if await self._change(free):
            self._events.add("unpin", f"{segment} may leave {host}", segment=segment, host=host)
            self._changed(False)

    # -- how many segments there are -------------------------------------------------------------------

    async def resize(self, count: int) -> int:
        """Divide the data among so many segments from now on, if the policies allow it; how many there were to be.

        Segments too many keep what they have until it is trimmed, or hand their slots on.  Asking again is harmless.
        """
        if not 1 <= count <= MOST_SEGMENTS:
            raise InvalidRequestError(f"there may be 1 to {MOST_SEGMENTS} segments, not {count}")
        slots = self._environment.slots
        if slots and count > slots:
            raise InvalidRequestError(f"{slots} slots are no more than {slots} segments, not {count}")
        what, before = f"dividing the data among {count} segments", 0

        def resized(intent: Intent) -> Intent:
            nonlocal before
            before = len(intent.segments)
            return intent.with_segments(count)

        if await self._change_if_possible(resized, what):
            self._events.add("resize", f"there are to be {count} segments instead of {before}", count=count)
            self._changed(False)
        return before

    async def rebalance(self, *, confirmed: bool) -> DryRun:
        """Have slots moved from busy segments to others, as few as make them even; what that comes to.

        It is agreed when it is ``confirmed``, and then carried out as any plan.  Asking again is harmless.
        """
        dry_run = await self.plan(_evened_out)
        if confirmed:

            async def evened_out(observation: Observation, intent: Intent) -> Intent:
                return _evened_out(observation, intent)

            if await self._change(evened_out):
                number = sum(move.slots for move in dry_run.plan.slots)
                self._events.add(
                    "rebalance", f"{number} slots are to move to less busy segments", slots=number
                )
                self._changed(False)
        return dry_run

    # -- all of it --------------------------------------------------------------------------------------

    async def begin_restoring(self, backup: str, *, resume: bool) -> bool:
        """Pause until the backup with this digest is in the log; whether it was paused before.  May be asked again.

        ``resume``: only if that was begun before.  Raises :class:`NotRestoringError`.
        """
        was_paused = False

        async def begun(observation: Observation, intent: Intent) -> Intent:
            nonlocal was_paused
            if resume:
                _check_restoring(intent, backup)
            was_paused = intent.paused
            plan = intent.plan and replace(intent.plan, order=Order.NONE)
            return replace(intent, plan=plan, paused=True, restoring=backup)

        if await self._change(begun):
            self._events.add("restore", "a backup is put back: nothing moves meanwhile")
            self._changed(True)
        return was_paused

    async def finish_restoring(self, backup: str, document: Mapping[str, Any] | None) -> None:
        """Take the intent of the backup (None: keep that of now); it stays paused.  Raises :class:`NotRestoringError`.

        Not before all of it is in the log: its intent would move or remove what another log has.  The plan under way
        and freezes are of this cluster, and stay.
        """

        async def restored(observation: Observation, intent: Intent) -> Intent:
            _check_restoring(intent, backup)
            wanted = intent if document is None else self._read(document)
            return replace(
                wanted,
                plan=intent.plan,
                freezes=intent.freezes,
                observing=intent.observing,
                paused=True,
                restoring="",
            )

        if await self._change(restored):
            brought = "" if document is None else ", with its policies and what operators had asked for"
            self._events.add("restore", f"a backup was put back{brought}")
            self._changed(True)

    def _read(self, document: Mapping[str, Any]) -> Intent:
        try:
            return Intent.from_mapping(document, self._environment.slots)
        except IntentError as error:
            raise InvalidRequestError(str(error)) from error

    # -- whether and when data moves ------------------------------------------------------------------

    async def pause(self) -> None:
        """Nothing that moves data starts, and what runs is cancelled.  Asking again is harmless."""

        async def paused(observation: Observation, intent: Intent) -> Intent:
            plan = intent.plan
            if plan is not None and plan.order is Order.APPLY:
                plan = replace(plan, order=Order.NONE)  # what was ordered before is held, too
            return intent.with_plan(plan).with_paused(True)

        if await self._change(paused):
            self._events.add("pause", "paused: no data is moved until `rota resume`")
            self._changed(True)

    async def resume(self) -> None:
        """The loop goes on by itself, also with an engine that it only observed.  Asking again is harmless."""

        async def going_on(observation: Observation, intent: Intent) -> Intent:
            undone = intent.plan is not None and intent.plan.order is Order.ABORT
            going = intent.with_plan(None) if undone else intent
            # Whoever moves data gives up on a backup that is half put back: moves make holes of the rest.
            return replace(going, restoring="").with_paused(False).with_observing(False)

        if await self._change(going_on):
            self._events.add("resume", "the control loop goes on by itself")
            self._changed(True)

    async def abort(self) -> str:
        """Back to what stood before the plan in flight, then paused; the id of the way back.

        Raises :class:`NothingToAbortError`.  Asking again while it goes back is harmless.
        """
        going_back = ""

        async def back(observation: Observation, intent: Intent) -> Intent:
            nonlocal going_back
            situation = self._environment.situation(observation, intent)
            if intent.plan is not None and intent.plan.order is Order.ABORT and intent.paused:
                going_back = intent.plan.plan_id
                return intent
            record = abort_record(situation)
            if record is None:
                raise NothingToAbortError
            going_back = record.plan_id
            return intent.with_plan(record).with_paused(True)

        if await self._change(back):
            self._events.add("abort", f"plan {going_back}: back to what stood before", plan_id=going_back)
            self._changed(True)
        return going_back

    async def apply(self, shown: str | None = None) -> Plan | None:
        """Order what a dry run shows, to be carried out also while paused; None when there is nothing to do.

        ``shown``: the digest of the plan that was; for another one :class:`PlanChangedError` is raised.
        An engine that was only observed is the loop's from then on.
        """
        ordered: Plan | None = None

        async def order(observation: Observation, intent: Intent) -> Intent:
            nonlocal ordered
            intent = intent.with_observing(False)
            situation = self._environment.situation(observation, intent)
            under_way = self._under_way(situation)
            ordered = await self._solved_plan(situation, shown) if under_way is None else under_way
            if shown not in (None, ordered.digest):
                raise PlanChangedError(shown)
            if under_way is not None and intent.plan is not None:
                return intent.with_plan(replace(intent.plan, order=Order.APPLY))
            if self._environment.lower(observation, ordered.target).steps:
                return intent.with_plan(ordered.record(self._me, Order.APPLY))
            ordered = None
            return intent

        if await self._change(order):
            if ordered is not None:
                self._events.add("apply", f"plan {ordered.agreed_as} is ordered", plan_id=ordered.agreed_as)
            self._changed(True)
        return ordered

    async def _solved_plan(self, situation: Situation, shown: str | None) -> Plan:
        """What was shown is not solved again where nothing has changed since."""
        if missing := hosts_missing(situation):
            raise UndecidedError(f"the first placement waits for {missing} more hosts; nothing was changed")
        if known := self._shown.find(shown, situation):
            return decided_plan(*known)
        situation, outcome = await self._environment.solve_or_thaw(situation, PATIENCE, "apply")
        if isinstance(outcome, Infeasible):
            raise RefusedError("no placement satisfies", outcome.policies, outcome.details)
        self._solved(outcome, "what to do")
        return decided_plan(situation, outcome)

    # -- how a request is agreed ----------------------------------------------------------------------

    async def _change_if_possible(
        self, amended: Callable[[Intent], Intent], what: str, *, drained: str = ""
    ) -> bool:
        """Agree on it; raises RefusedError, with what would help, where the policies don't allow it."""

        async def possible(observation: Observation, intent: Intent) -> Intent:
            wanted = amended(intent)
            if wanted != intent:
                situation = self._environment.situation(observation, wanted)
                view = self._environment.view
                outcome = await self._environment.solve(situation, asked=what)
                if isinstance(outcome, Undecided) and self._environment.view is view:
                    outcome = await self._environment.solve(situation, _ONCE_MORE, what)
                if isinstance(outcome, Infeasible):
                    raise _ClashError(situation, outcome)
                self._solved(outcome, what)
            return wanted

        try:
            return await self._change(possible)
        except _ClashError as clash:
            # What would help takes solves of its own; other requests need not wait for them.
            helping = await self._relaxations(clash.situation, drained)
            outcome = clash.outcome
            raise RefusedError(f"{what} would break", outcome.policies, outcome.details, helping) from None

    async def _change(self, change: Change) -> bool:
        """Compare-and-set with retries; says whether anything changed."""
        async with self._one_at_a_time:
            for _ in range(self._settings.intent_attempts):
                view = self._environment.view
                observation, intent = await self._current()
                try:
                    wanted = await change(observation, intent)
                except ControlError:
                    if self._environment.view is view:
                        raise
                    continue
                if self._environment.view is not view:
                    continue  # decided for hosts that are no longer those of the view
                if wanted == intent:
                    return False
                try:
                    await self._environment.agree(view, observation, wanted, asked_at=self._asked_at)
                except (StaleIntentError, FencedError):
                    continue
                except AdapterError as error:
                    raise EngineUnreachableError(f"the engine did not agree: {error}; try again") from error
                return True
        text = "the epoch document changed under every attempt; nothing was changed, try again"
        raise UndecidedError(text)

    @staticmethod
    def _solved(outcome: SolveOutcome, what: str) -> None:
        """Raises :class:`UndecidedError` when the solver had no answer."""
        if not isinstance(outcome, Solved):
            raise UndecidedError(f"no decision about {what}: {describe(outcome)}; nothing was changed")

    async def _current(self) -> tuple[Observation, Intent]:
        controller = controller_of(self._environment.view)
        if controller != self._me:
            raise NotControllerError(controller)
        answer = await self._environment.observe()
        if not isinstance(answer, Observation):
            raise EngineUnreachableError(f"the engine does not answer: {answer.reason}; try again")
        if self._environment.intent is None:
            raise UndecidedError("no segments and policies are agreed yet; try again in a moment")
        return answer, self._environment.intent


def _check_restoring(intent: Intent, backup: str) -> None:
    if intent.restoring != backup:
        under_way = (
            "another backup is being put back" if intent.restoring else "none is under way, or it is over"
        )
        raise NotRestoringError(
            f"no restore of this file can be gone on with: {under_way}; nothing was changed. Restore it into agents "
            "with empty data directories, without --resume; if it is all there, `rota resume`"
        )


def _evened_out(observation: Observation, intent: Intent) -> Intent:
    """The intent with slots divided by the loads that were observed."""
    if not intent.slots:
        raise InvalidRequestError(
            "this engine does not divide its keys into slots: there is nothing to even out"
        )
    wanted = dict(intent.slots)
    held = {segment.key: segment.slots for segment in observation.segments}
    if any(held.get(key, ()) != ranges for key, ranges in wanted.items()):
        raise UndecidedError(
            "slots are still on their way, and loads with them; try again when they are there"
        )
    loads = {segment.key: segment.load for segment in observation.segments}
    return intent.with_slots(balanced(wanted, loads))
