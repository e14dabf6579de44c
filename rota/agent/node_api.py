"""What a node answers: its part of the HTTP interface, and requests passed on between agents.

It translates between the parts' own values and JSON.  Requests for the controller are answered here when this
host is it, and sent there otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from datastore_adapter import LogThread
from membership import Cluster, FrameStream, Member, TransportError
from mgmt.control.controller import Controller
from mgmt.errors import (
    ControlError,
    InvalidRequestError,
    NotControllerError,
    NothingLostError,
    NothingToAbortError,
    NotRestoringError,
    PlanChangedError,
    RefusedError,
    UnknownEpochError,
    UnknownHostError,
    UnknownSegmentError,
)
from rota.agent.solver_process import SolverProcess
from rota.errors import ApiError
from rota.http.answers import AllMeasured, Event, HostReport, Measured, Members, Solver, Status, Views
from rota.http.control_answers import Control
from rota.http.requests import ASKED_BY
from rota.services.asking_members import Shared, ask_all, checked, chosen
from rota.services.control_requests import ANSWERED_ANYWHERE, ASKED_AT, answer
from rota.services.control_service import SERVICE, answer_requests, ask_member
from rota.services.event_log import EventLog
from rota.services.former_members import FormerMembers
from rota.services.host_monitor import (
    PATIENCE,
    Counters,
    Gauges,
    HostMonitor,
    counted,
    disk_of,
    held_by,
)
from rota.services.key_service import KeyService
from rota.services.membership_operations import Operations
from rota.services.store_api import StoreApi
from rota.services.view_history import ViewHistory, own_views
from rota.services.view_report import dropped, majority_losses, members_of, short_racks
from rota.version import VERSION

if TYPE_CHECKING:
    from rota.agent.engine.host_engine import HostEngine

Part = TypeVar("Part")

log = logging.getLogger("rota")

FOLLOW_INTERVAL = 0.3
"""Seconds between two looks at the controller's events for somebody who follows them."""
HOSTS_MEASURED = 16
"""Of more hosts, the last hour of this many is told: more lines would not be told apart."""
_NO_CONTROL: dict[str, Any] = {"controller": None, "layout_epoch": None, "open_moves": 0}
"""What an agent without a store knows of the placement."""
STATUS_CODES: tuple[tuple[type[ControlError], str, int], ...] = (
    (RefusedError, "refused", 409),
    (PlanChangedError, "plan_changed", 409),
    (NothingToAbortError, "nothing_to_abort", 409),
    (NothingLostError, "nothing_lost", 409),
    (NotRestoringError, "not_restoring", 409),
    (UnknownHostError, "unknown_host", 404),
    (UnknownSegmentError, "unknown_segment", 404),
    (UnknownEpochError, "unknown_epoch", 404),
    (InvalidRequestError, "bad_request", 400),
    (NotControllerError, "not_controller", 503),
    (ControlError, "control", 503),
)


class NodeApi:
    """Implements ``rota.http.backend.Backend``.  The parts are set as they come up; until then it says so."""

    def __init__(
        self,
        name: str,
        events: EventLog,
        key_service: KeyService,
        former: FormerMembers,
        monitor: HostMonitor,
        *,
        store: bool = True,
    ) -> None:
        self._name = name
        self._former = former
        self._monitor = monitor
        self._key_service = key_service
        self._events = events
        self._views = ViewHistory(name, events)
        self._measured = Shared[AllMeasured]()
        self.operations = Operations(name)
        self._store = store
        self.cluster: Cluster | None = None
        self.is_ending = False
        """The store's clients here are gone, or on their way."""
        self.members_decide = True
        """Whether views are agreed by a majority of the members; in the centralised mode an ensemble agrees on them."""
        self.joined = trio.Event()
        """Set with ``cluster``."""
        self.controller: Controller | None = None
        self.store_api: StoreApi | None = None
        self.server: LogThread | None = None
        self.solver: SolverProcess | None = None
        self.engine: HostEngine | None = None
        """Servers of Valkey or Redis, where the store is in such."""
        self.engine_statistics: Callable[[], Mapping[str, int]] = dict
        self.measure_engine: Callable[[], Awaitable[Gauges]] | None = None

    def wait(self, cluster: Cluster) -> None:
        """This host is about to join; all that can be asked of the membership until it has is to recover it."""
        self.operations.waiting = cluster

    def enter(self, cluster: Cluster) -> None:
        """This host is in a view."""
        self.cluster = cluster
        self.joined.set()

    # -- reports ------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        managed = self.controller is not None or not self._store
        return self.cluster is not None and managed and self.cluster.quorum

    async def look(self) -> None:
        if self.controller is not None:
            await self.controller.reports.look()

    def status(self) -> Status:
        cluster, controller = self.cluster, self.controller
        engine = None if self.engine is None else self.engine.status()
        if cluster is None or (controller is None and self._store):
            return {
                "version": VERSION,
                "name": self._name, "address": None, "state": "joining", "cluster_id": None, "epoch": None, "id": None,
                "size": 0, "recoveries": [], "quorum": False, "controller": None, "layout_epoch": None, "open_moves": 0,
                "control": None, "solver": None, "engine": engine, "disk": None, "dropped": {}, "statistics": {},
                "keys": self._key_service.status(),
            }  # fmt: skip
        view, statistics = cluster.view, cluster.statistics()
        control = _NO_CONTROL if controller is None else controller.status()
        return {
            "version": VERSION,
            "name": self._name,
            "address": str(cluster.me.address),
            "state": str(cluster.status),
            "cluster_id": cluster.cluster_id.hex(),
            "epoch": view.epoch,
            "id": view.id.hex(),
            "size": len(view),
            "recoveries": [recovery.hex() for recovery in view.lineage],
            "quorum": cluster.quorum,
            "silent": _silent(cluster),
            "former": self._former.latest(),
            "short_racks": short_racks(view, self._former.latest()),
            "at_risk": majority_losses(view) if self.members_decide and cluster.quorum else [],
            "controller": control["controller"],
            "layout_epoch": control["layout_epoch"],
            "open_moves": control["open_moves"],
            "control": None if controller is None else cast(Control, control),
            "solver": None if self.solver is None else cast(Solver, self.solver.status()),
            "engine": engine,
            "disk": None if self.server is None else disk_of(self.server),
            "keys": self._key_service.status(),
            "dropped": dropped(statistics),
            "statistics": {
                **statistics,
                **(self.server.statistics() if self.server else {}),
                **{f"engine.{name}": count for name, count in self.engine_statistics().items()},
            },
        }

    def members(self) -> Members:
        answer = members_of(_joined(self.cluster).view)
        answer["former"] = self._former.latest()
        return answer

    def local_events(self, after: int) -> list[Event]:
        return self._events.after(after)

    async def events(self, after: int) -> dict[str, Any]:
        try:
            return await self.control("events", {"after": after})
        except ApiError:
            return {"agent": self._name, "events": self._events.after(after)}

    def suspicions(self) -> dict[str, Any]:
        reading = _joined(self.cluster).suspicions()
        if reading is None:
            raise ApiError("this agent is in no view at present; it is joining again", code="joining")
        told = asdict(reading)
        for suspect in told["suspects"]:
            suspect["wish"] = suspect["request"]  # as commands of 0.1 call it
        return {"agent": self._name, **told}

    async def views(self) -> Views:
        """When each member installed each view, as the members themselves tell it."""
        cluster = _joined(self.cluster)

        async def ask_for_views(member: Member) -> dict[str, Any]:
            return await ask_member(cluster, member, SERVICE, "views", {})

        return await self._views.gather(cluster, ask_for_views)

    async def host(self, name: str) -> HostReport:
        """What the agent of a host tells of it.  Raises :class:`ApiError`."""
        if name == self._name:
            return await self._own_report()
        cluster = _joined(self.cluster)
        member = cluster.view.member(name)
        if member is None:
            raise ApiError(f"no host {name[:80]!r} is in the view; `rota members` names those that are",
                           code="unknown_host", status=404)  # fmt: skip
        try:
            return checked(await ask_member(cluster, member, SERVICE, "host", {}), HostReport)
        except TransportError as error:
            raise ApiError(f"{name} cannot be reached ({error})", code="unreachable") from error

    async def _own_report(self) -> HostReport:
        cluster, server = _joined(self.cluster), self.server
        return {
            "name": self._name,
            "version": VERSION,
            "address": str(cluster.me.address),
            "started": self._monitor.started,
            "time": self._monitor.now(),
            "disk": None if server is None else disk_of(server),
            "space": await self._monitor.space(),
            "held": None if server is None or self.engine is not None else await held_by(server),
            "engine": None if self.engine is None else self.engine.status(),
            "measured": self._monitor.measured(),
        }

    async def look_at_host(self) -> tuple[Counters, Gauges]:
        """What is measured of this host: counters, and what is so at present."""
        statistics = {} if self.cluster is None else self.cluster.statistics()
        if self.server is None:
            return counted(statistics, with_log=False), {}
        if self.measure_engine is not None:  # then there is but the layout in the log
            with trio.move_on_after(PATIENCE):
                return counted(statistics, with_log=False), await self.measure_engine()
            return counted(statistics, with_log=False), {}
        gauges = {
            "sync_seconds": self.server.disk.sync_seconds or None,
            "append_seconds": None if self.store_api is None else self.store_api.append_seconds(),
        }
        counters = counted({**statistics, **self.server.statistics()}, with_log=self.engine is None)
        if self.store_api is not None:
            counters["failed_appends"] = self.store_api.failed_appends
        return counters, gauges

    async def measured(self) -> AllMeasured:
        """What the agents of all hosts, or of some, measured in the last hour."""
        cluster = _joined(self.cluster)
        return await self._measured.get(cluster.view.id, partial(self._all_measured, cluster))

    async def _all_measured(self, cluster: Cluster) -> AllMeasured:
        async def ask(member: Member) -> Measured:
            return checked(await ask_member(cluster, member, SERVICE, "measured", {}), Measured)

        others = [member for member in cluster.view.members if member.name != self._name]
        asked = chosen(others, HOSTS_MEASURED - 1)
        told = await ask_all(asked, ask)
        members = {self._name: self._monitor.measured(), **told.answers}
        return {
            "size": len(cluster.view),
            "asked": len(asked) + 1,
            "silent": told.silent,
            "members": dict(sorted(members.items())),
        }

    async def follow(self, after: int) -> AsyncGenerator[Event, None]:
        """Numbers are each agent's own, so a new controller's events are told from when the old one's ended."""
        told_by, told_until = "", 0.0
        while True:
            answer = await self.events(after)
            if answer["agent"] != told_by:
                if told_by:
                    answer = await self.events(0)
                told_by = answer["agent"]
            for event in answer["events"]:
                after = event["number"]
                if event["time"] >= told_until:
                    told_until = event["time"]
                    yield event
            await trio.sleep(FOLLOW_INTERVAL)

    # -- requests for the controller ----------------------------------------------------------------

    async def control(self, request: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer here, or pass on to the controller.  Raises :class:`ApiError`."""
        cluster = _joined(self.cluster)
        name = self._stored(self.controller).leader
        who = arguments.get(ASKED_BY)
        arguments = {**arguments, ASKED_AT: f"{self._name} by {who}" if who else self._name}
        if request in ANSWERED_ANYWHERE or name == self._name:
            return await self._answer(request, arguments)
        member = cluster.view.member(name) if name else None
        if member is None:
            raise ApiError(
                "no live host carries the manager role; start an agent that does", code="no_controller"
            )
        try:
            return await ask_member(cluster, member, SERVICE, request, arguments)
        except TransportError as error:
            raise ApiError(
                f"the controller {name} cannot be reached ({error}); try again", code="unreachable"
            ) from error

    async def serve_control(self, stream: FrameStream) -> None:
        """Another agent's request, meant for the controller."""
        async with stream:
            await answer_requests(stream, self._answer)

    async def _answer(self, request: str, arguments: dict[str, Any]) -> dict[str, Any]:
        match request:
            case "views":
                return {"views": own_views(self._events)}
            case "host":
                return {**await self._own_report()}
            case "measured":
                return {**self._monitor.measured()}
        controller = self._stored(self.controller)
        try:
            if request == "events":
                return {"agent": self._name, "events": self._events.after(int(arguments["after"]))}
            return await answer(controller, request, arguments)
        except ControlError as error:
            code, status = next((c, s) for kind, c, s in STATUS_CODES if isinstance(error, kind))
            raise ApiError(str(error), code=code, status=status) from error

    async def keys(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One step with the keys of all hosts.  Raises :class:`ApiError`."""
        return await self._key_service.everywhere(_joined(self.cluster), action, arguments)

    def record(self, kind: str, text: str, data: Mapping[str, Any]) -> None:
        """Something for this agent's events and its log."""
        log.info("%s: %s", kind, text)
        self._events.add(kind, text, data)

    # -- operations on the membership ---------------------------------------------------------------

    async def operate(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Evict, leave, tags or recover.  Raises :class:`ApiError`."""
        self.operations.cluster = self.cluster
        return await self.operations.perform(action, arguments)

    async def answered(self) -> None:
        """The answer to a leave is on its way."""
        await self.operations.answered()

    # -- the store ----------------------------------------------------------------------------------

    def store(self) -> StoreApi:
        """Raises :class:`ApiError` where there is none, or none any more."""
        if self.is_ending:
            raise ApiError("this agent is ending, and has not begun this; ask another one", code="ending")
        if self.engine is not None:
            raise ApiError(
                "this cluster keeps its data in Valkey or Redis, not in the log: use a client of theirs, and "
                "their own backups",
                code="no_log",
                status=404,
            )
        return self._stored(self.store_api)

    def _stored(self, part: Part | None) -> Part:
        if not self._store:
            raise ApiError(
                "this agent runs without the store (--no-store); ask one that has it",
                code="no_store",
                status=404,
            )
        return _joined(part)


def _silent(cluster: Cluster) -> list[str]:
    """Who does not answer while no majority is in reach."""
    reading = None if cluster.quorum else cluster.suspicions()
    return [] if reading is None else list(reading.silent)


def _joined(part: Part | None) -> Part:
    """A part that is set once this host is in a view.  Raises :class:`ApiError` until then."""
    if part is None:
        raise ApiError("this agent has not joined yet; `rota status` says more", code="joining")
    return part
