"""The status of a controller: its phase, plan and trouble, for displays and listeners, never for decisions."""

from __future__ import annotations

from enum import Enum
from typing import Any

from datastore_adapter.interface import DiskState, Observation
from mgmt.control.decision import destination
from mgmt.control.dry_run import describe, solve_to_json
from mgmt.control.environment import Environment
from mgmt.control.events import ControlEvents
from mgmt.control.hysteresis import BalanceHold
from mgmt.control.plan_execution.executor import Executor
from mgmt.control.plan_execution.plan_runner import PlanRunner
from mgmt.placement.disk_watch import disk_to_json
from mgmt.placement.fallback_placement import is_unavailable
from mgmt.placement.flap_damping import frozen_at
from mgmt.placement.hosts import HostView, controller_of
from mgmt.placement.layout_report import away_to_json, counted, shards_to_json, troubled_segments
from mgmt.placement.losses import losses
from mgmt.plans.plan import Plan, is_reached
from mgmt.plans.plan_report import summary
from mgmt.solving.placement_solver import Infeasible, SolveOutcome


class Phase(Enum):
    """What goes on now."""

    STANDBY = "standby"
    LOOKING = "looking"
    WAITING = "waiting for hosts"
    SOLVING = "solving"
    EXECUTING = "executing"
    SETTLED = "settled"
    PAUSED = "paused"
    OBSERVING = "observing"
    HOLDING = "holding still"
    INFEASIBLE = "infeasible"
    UNREACHABLE = "engine unreachable"
    ASKING = "asking operators"
    TROUBLE = "trouble"


class ControlStatus:
    """The present phase, plan and trouble of one controller, and its counters."""

    def __init__(
        self,
        me: str,
        environment: Environment,
        executor: Executor,
        runner: PlanRunner,
        events: ControlEvents,
    ) -> None:
        self._me = me
        self._environment = environment
        self._executor = executor
        self._runner = runner
        self._events = events
        self._said = ""  # the last standing complaint, not to be repeated every round
        self.phase = Phase.STANDBY
        self.plan: Plan | None = None
        self.held: BalanceHold | None = None
        self.trouble = ""
        self.counts = dict.fromkeys(
            ("rounds", "plans", "plans_done", "plans_failed", "moves_done", "drifts"), 0
        )

    @property
    def settled(self) -> bool:
        return self.phase is Phase.SETTLED

    def complain(self, phase: Phase, kind: str, text: str, /, **data: Any) -> None:
        """A condition that lasts: said once, until something else is said."""
        self.phase = phase
        self.trouble = text
        if self._said != text:
            self._said = text
            self._events.add(kind, text, **data)

    def hold(self, phase: Phase, text: str) -> None:
        """Nothing is done, and on purpose; told when it was not so before."""
        self.phase = phase
        self.trouble = ""
        if self._said != text:
            self._said = text
            self._events.add("holding", text)

    def settle(self, text: str, layout_epoch: int) -> None:
        """All is as wanted; told when it was not so before."""
        if self.settled:
            return
        self.phase = Phase.SETTLED
        self.trouble = self._said = ""
        self._events.add("settled", text, layout_epoch=layout_epoch)

    def report_no_placement(self, outcome: SolveOutcome) -> None:
        """The solver gave no placement; why."""
        if isinstance(outcome, Infeasible):
            data = {"policies": list(outcome.policies), "details": list(outcome.details)}
            text = f"{describe(outcome)}; `rota plan` says what would help"
            self.complain(Phase.INFEASIBLE, "infeasible", text, **data)
        else:
            self.complain(Phase.TROUBLE, "undecided", describe(outcome))

    def report_unavailable(self, view: HostView, observation: Observation) -> None:
        """Names the segments that no live host holds a complete copy of, if there are any."""
        lost = [segment for segment in observation.segments if is_unavailable(segment, view)]
        if lost:
            keys = [segment.key for segment in lost]
            hosts = {copy.host for segment in lost for copy in segment.replicas}
            hosts = (hosts - view.names).union(*(away.hosts for segment in lost for away in segment.away))
            where = (
                f"they are only on hosts that are away, among {', '.join(sorted(hosts))}; bring those back"
                if hosts
                else "no complete copy answers, though its host is there; look at what runs on it"
            )
            text = f"records of {', '.join(keys[:8])} cannot be read: {where}"
            self.complain(self.phase, "unavailable", text, segments=keys, hosts=sorted(hosts))

    def report(self) -> dict[str, Any]:
        """For ``rota status``; as of the last look at the engine."""
        environment, plan = self._environment, self.plan
        view, observation, intent = environment.view, environment.observation, environment.intent
        disks = environment.disks.disks
        troubled = [] if observation is None else troubled_segments(view, observation, intent)
        check = counted(troubled)
        controller, solve = controller_of(view), solve_to_json(environment.outcome)
        if solve is not None:
            solve |= {
                "asked": environment.asked,
                "seconds_ago": max(0.0, self._events.now - environment.solved_at),
            }
        return {
            "role": "controller" if controller == self._me else "standby",
            "controller": controller,
            "view_epoch": view.epoch,
            "layout_epoch": -1 if observation is None else observation.layout_epoch,
            "phase": self.phase.value,
            "settled": self.settled,
            "open_moves": 0 if plan is None else len(plan.moves),
            "plan": None if plan is None else summary(plan),
            "plan_id": None if plan is None else plan.agreed_as,
            "progress": self._runner.progress(),
            "paused": intent is not None and intent.paused,
            "observing": intent is not None and intent.observing,
            "restoring": intent is not None and bool(intent.restoring),
            "held": None if self.held is None else self.held.to_json(),
            "frozen": self._frozen(),
            "away": [
                {"segment": segment.key, **away_to_json(away)}
                for segment in (() if observation is None else observation.segments)
                for away in segment.away
            ],
            "asks": [
                {"segment": segment, "text": text} for segment, text in sorted(environment.questions.items())
            ],
            "layout_servers_lost": []
            if environment.unreachable is None
            else list(environment.unreachable.lost),
            "shards": [] if observation is None else shards_to_json(observation),
            "full": [host for host, trouble in disks.items() if trouble.state is DiskState.FULL],
            "disks": [disk_to_json(host, trouble) for host, trouble in disks.items()],
            "pins": [{"segment": s, "host": h} for s, h in (intent.pins if intent is not None else ())],
            "solve_status": None if solve is None else solve["status"],
            "solve_seconds": None if solve is None else solve["seconds"],
            "last_solve": solve,
            "last_error": self.trouble,
            **check.to_json(),
            "troubled": [each.to_json() for each in troubled],
            "at_risk": []
            if observation is None or intent is None or not observation.segments
            else [each.to_json() for each in losses(view, observation, intent)],
            "drains": self._drains(),
            "statistics": self.statistics(),
        }

    def outcome(self, plan_id: str) -> dict[str, Any]:
        """What became of an agreed plan: ``open``, ``done``, ``failed`` or ``replaced``, and why."""
        error = self._runner.ended(plan_id)
        intent, observation = self._environment.intent, self._environment.observation
        record = None if intent is None else intent.plan
        progress = None
        if error is not None:
            state = "failed" if error else "done"
        elif record is None or record.plan_id != plan_id or observation is None:
            state, error = (
                "replaced",
                "another plan took its place, because hosts, or what operators ask for, changed",
            )
        elif is_reached(observation, destination(self._environment.view, observation, record)):
            state = "done"  # by a controller before this one
        else:
            state, progress = "open", self._runner.progress()
        return {"plan_id": plan_id, "state": state, "error": error or "", "progress": progress}

    def _frozen(self) -> dict[str, float]:
        """Hosts that receive nothing new, and for how many seconds still."""
        intent, now = self._environment.intent, self._environment.wall()
        active = frozen_at(intent.freezes, now) if intent else frozenset()
        return {f.host: f.until - now for f in (intent.freezes if intent else ()) if f.host in active}

    def _drains(self) -> dict[str, int]:
        """Drained hosts with the copies they still hold."""
        observation, intent = self._environment.observation, self._environment.intent
        held = [copy.host for s in (observation.segments if observation else ()) for copy in s.replicas]
        return {host: held.count(host) for host in (intent.drains if intent else ())}

    def statistics(self) -> dict[str, int]:
        """Counters since the controller was made."""
        return {
            **self.counts,
            "observations": self._environment.observations,
            "solves": self._environment.solves,
            "solver_errors": self._environment.solver_errors,
            "steps_done": self._executor.steps_done,
            "steps_failed": self._executor.steps_failed,
        }
