"""The node agent: membership, the log's servers and the control loop, wired into one process.

It moves values between the parts and decides nothing: views go from membership to the controller, events of
all parts go into one log.  What the node answers over HTTP is in
``rota.agent.node_api``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

import membership
from datastore_adapter import LogAdapter, LogClient, LogError, LogSettings, LogThread, Reopening, TrioRuntime
from membership import (
    Address,
    Change,
    Cluster,
    ClusterStatus,
    Faults,
    FrameStream,
    JoinArgumentError,
    KeyRingError,
    MemberError,
    MembershipError,
    Mode,
    Settings,
    Transport,
    open_service,
)
from membership.files import SYSTEM
from membership.runtime.data_directory import LOG as LOG_FOLDER
from membership.runtime.data_directory import DataDirectory, DataDirectoryError, Identity, check_owner
from membership.transport import Handler
from mgmt.control.controller import Controller
from mgmt.control.events import ControlEvent
from mgmt.placement.hosts import HostView, host_view
from mgmt.placement.intent import Intent
from rota.access.access import Access
from rota.access.tls import TlsFiles
from rota.agent.node_api import NodeApi
from rota.agent.parent_process import is_parent_told
from rota.agent.settings import COPIES, COPIES_OF_SHARDS, SEGMENTS, SHARDS, AgentSettings, default_data_dir
from rota.agent.solver_process import COMMAND, SolverLimits, SolverProcess, open_solver_process
from rota.errors import AgentError, SettingsError, UsageProblem, first_error
from rota.http.api import build_application
from rota.http.server import UnixSocket, reload_access, serve
from rota.services.control_service import SERVICE as CONTROL_SERVICE
from rota.services.event_log import EventLog
from rota.services.former_members import FILE as FORMER_MEMBERS
from rota.services.former_members import FormerMembers
from rota.services.host_monitor import HostMonitor
from rota.services.key_service import SERVICE as KEY_SERVICE
from rota.services.key_service import KeyService
from rota.services.store_api import StoreApi
from rota.services.store_tags import HTTP, VERSION_TAG, check_store, counts_streams, servers_of
from rota.services.view_report import view_event
from rota.version import VERSION

if TYPE_CHECKING:
    from datastore_adapter.interface import Adapter
    from rota.agent.chaos_control import ChaosControl
    from rota.agent.engine.host_engine import HostEngine
    from rota.agent.engine.sampling import Sampling

log = logging.getLogger("rota")

LOG_SERVICE = "log"
SAVING_PATIENCE = 0.5
"""Seconds that one who is to stop waits for its disk, if it may be in the view already: then it leaves in order."""
SUSPICION_INTERVAL = 0.5
"""Seconds between looks whether a member is suspected."""
RELOADED = ("tags", "capacity", "manager")
"""Settings that SIGHUP takes over."""
RELOAD_PATIENCE = 2.0
"""Seconds a reload waits for the others' agreement before it goes on in the background."""
PRESETS: Mapping[str, tuple[Callable[[], Settings], Callable[[], LogSettings]]] = {
    "lan": (Settings.lan, LogSettings.lan),
    "wan": (Settings.wan, LogSettings.wan),
    "local": (Settings.local, LogSettings.local),
}


class Node:
    """One agent.  ``run`` lasts as long as the process is, or tries to be, a member."""

    def __init__(
        self, settings: AgentSettings, read_settings: Callable[[], AgentSettings] | None = None
    ) -> None:
        """``read_settings``: reads them anew, for :meth:`reload`."""
        self._settings = settings
        self._read_settings = read_settings
        self.name = _name_of(settings)
        self.address = settings.listen
        self.api_address = settings.api
        membership_settings, log_settings = PRESETS[settings.preset]
        self._membership_settings, self._log_settings = membership_settings(), log_settings()
        self._data_dir: Path = settings.data_dir or default_data_dir(self.name)
        self._directory = DataDirectory(self._data_dir, self._membership_settings.rings, VERSION)
        self._is_copy = False
        self._leave = trio.Event()
        self._events = EventLog()
        self._keys = KeyService(self.name, settings.key_file)
        self._former = FormerMembers(self._data_dir / FORMER_MEMBERS)
        self._monitor = HostMonitor(self._data_dir)
        self._api = NodeApi(
            self.name, self._events, self._keys, self._former, self._monitor, store=settings.has_store
        )
        self._api.members_decide = settings.mode == "decentralised"
        self._access = Access(
            settings.api_tokens,
            TlsFiles.of(settings.api_certificate, settings.api_key, settings.api_client_ca),
        )
        self._chaos: ChaosControl | None = None
        self._engine: HostEngine | None = None
        self._sampling: Sampling | None = None

    @property
    def leaving(self) -> bool:
        return self._leave.is_set()

    @property
    def has_tls(self) -> bool:
        """Whether the HTTP interface speaks TLS."""
        return self._access.tls is not None

    def request_leave(self) -> None:
        """Leave gracefully; ``run`` then returns."""
        self._leave.set()

    async def reload(self) -> None:
        """Take over what the key file, the tags in the settings, the tokens and the certificate say now.

        A file that is no good changes nothing and is logged.
        """
        await self._reload_tags()
        try:
            if await self._keys.reload():
                self._record("keys", "the key file was read again", self._keys.status())
        except KeyRingError as error:
            log.warning("keys: the ring stays as it was: %s", error)
        await reload_access(self._access)

    async def _reload_tags(self) -> None:
        cluster = self._api.cluster
        if self._read_settings is None or cluster is None:
            return
        try:
            wanted = self._metadata(self._read_settings())
            if wanted == self._metadata(self._settings):
                return  # what `rota tag` has changed meanwhile stays
            self._settings = replace(
                self._settings, **{name: getattr(self._read_settings(), name) for name in RELOADED}
            )
            with trio.move_on_after(RELOAD_PATIENCE):  # it goes on being asked for
                await cluster.set_metadata(wanted)
        except (AgentError, MembershipError) as error:
            log.warning("tags: they stay as they were: %s", error)
        else:
            self._record("tags", "the settings were read again: new tags", {"tags": wanted})

    async def run(self, on_listening: Callable[[Node], None]) -> None:
        """Be a member until asked to leave.  ``on_listening`` is called once both addresses are bound.

        Raises :class:`AgentError`: an address is taken, the data directory is another's, the join was given up.
        """
        remembered = self._open_data_dir()
        if self._settings.has_shards:
            # Only who needs it pays for this import.
            from rota.agent.engine.host_engine import open_host_engine
            from rota.agent.engine.sampling import Sampling

            self._engine = await open_host_engine(self._settings, self.name, self._data_dir, self._record)
            self._sampling = Sampling(self.name)
        self._api.engine = self._engine
        try:
            async with AsyncExitStack() as stack:
                await self._connect_to_chaos_run(stack)
                async with trio.open_nursery() as nursery:
                    application = build_application(self._api, self._access)
                    self.api_address = await nursery.start(
                        partial(serve, or_any_port=is_parent_told()),
                        application,
                        self._settings.api,
                        self._access,
                        UnixSocket.of(self._settings.api_socket, self._settings.api_socket_group),
                    )
                    nursery.start_soon(self._stop_joining_when_asked, nursery.cancel_scope)
                    nursery.start_soon(self._former.keep)
                    nursery.start_soon(self._monitor.run, self._api.look_at_host)
                    await self._be_member(on_listening, remembered)
                    await self._api.operations.finish()
                    nursery.cancel_scope.cancel()
        except (MembershipError, LogError, BaseExceptionGroup) as error:
            cause = first_error(error)
            if isinstance(cause, MemberError | JoinArgumentError):
                raise UsageProblem(str(cause)) from error
            if isinstance(cause, MembershipError | LogError):
                raise AgentError(str(cause)) from error
            raise

    async def _connect_to_chaos_run(self, stack: AsyncExitStack) -> None:
        """In a chaos run: report to it, and wait until it says that this agent may join."""
        path = self._settings.chaos_control
        if path is not None:
            # Only a chaos run pays for this import.
            from rota.agent.chaos_control import open_chaos_control

            self._chaos = await stack.enter_async_context(
                open_chaos_control(path, self.name, self.request_leave)
            )
            await self._chaos.wait_for_start()

    def _open_data_dir(self) -> Identity | None:
        """Whose data directory it is.  What cannot be believed any more is put aside, and told."""
        try:
            contents = self._directory.open(has_seeds=bool(self._settings.seeds))
            founding = self._settings.is_founder and not contents.has_view
            check_owner(contents.identity, name=self.name, founding=founding, path=self._data_dir)
        except DataDirectoryError as error:
            raise SettingsError(str(error)) from error
        for loss in contents.losses:
            self._record("lost", loss.text, {"set_aside": list(loss.set_aside)})
        self._is_copy = contents.is_copy
        return contents.identity

    def _note_disk(self, server: LogThread) -> None:
        """The log's own part of that; it is durable, so that the directory may count as this host's again."""
        found = server.identity
        if found.forgotten:
            folder = self._data_dir / LOG_FOLDER
            text = (
                f"{'; '.join(found.forgotten)}: this host's log is taken for a new one; it votes on no layout and "
                "serves no record until the others have taken it in"
            )
            self._record("lost", text, {"set_aside": [str(folder / name) for name in found.set_aside]})
        if self._is_copy:
            self._directory.claim()
            self._is_copy = False

    async def _stop_joining_when_asked(self, scope: trio.CancelScope) -> None:
        """Before there is a view nobody has to be told: just stop."""
        await self._leave.wait()
        with trio.move_on_after(SAVING_PATIENCE):
            await self._api.joined.wait()
        if not self._api.joined.is_set():
            scope.cancel()

    async def _be_member(self, on_listening: Callable[[Node], None], remembered: Identity | None) -> None:
        def listening(transport: Transport) -> None:
            self.address = transport.advertised
            if self._chaos is not None:
                self._chaos.counters = transport.counters
            on_listening(self)

        if self._settings.has_store:
            await self._be_member_with_store(listening, remembered)
            return
        if self._is_copy:
            await trio.to_thread.run_sync(self._directory.claim)
        async with self._join({CONTROL_SERVICE: self._api.serve_control}, remembered, listening) as cluster:
            await self._remember(cluster, remembered)
            self._api.enter(cluster)
            if self._chaos is not None:
                self._chaos.joined(cluster)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow_views, cluster, None)
                await self._leave.wait()
                nursery.cancel_scope.cancel()
        if cluster.status is ClusterStatus.EVICTED:
            self._stay_out(cluster)

    async def _be_member_with_store(
        self, listening: Callable[[Transport], None], remembered: Identity | None
    ) -> None:
        async with trio.open_nursery() as nursery:
            server = await LogThread.open(
                self.name,
                self._data_dir / LOG_FOLDER,
                nursery,
                self._log_settings,
                is_copy=self._is_copy,
                system=SYSTEM if self._chaos is None else self._chaos.files,
            )
            self._note_disk(server)
            services: dict[str, Handler] = {
                LOG_SERVICE: server.serve,
                CONTROL_SERVICE: self._api.serve_control,
            }
            services |= {} if self._engine is None else self._engine.services
            async with self._join(services, remembered, listening) as cluster:
                if cluster.founded and remembered is None:
                    # Before the identity is saved: where that is missing, this was cut short, and is done again.
                    await server.found(cluster.cluster_id.hex(), str(self.address))
                await self._remember(cluster, remembered)
                self._api.enter(cluster)
                self._api.server = server
                server.use(partial(_open_log, cluster))
                await self._work(cluster)
            if cluster.status is ClusterStatus.EVICTED:
                self._stay_out(cluster)
            nursery.cancel_scope.cancel()

    def _stay_out(self, cluster: Cluster) -> None:
        """An operator's eviction is an end like a leave; being found faulty is a failure, if it is to be the end."""
        if cluster.refusal is not None:
            raise AgentError(f"evicted, and refused when rejoining: {cluster.refusal}")
        if not cluster.evicted_by_operator:
            raise AgentError(
                "the others found this host faulty and evicted it (when_evicted is stop): start it again to rejoin"
            )
        log.warning("evicted by an operator; start this agent again to have it join anew")

    async def _remember(self, cluster: Cluster, remembered: Identity | None) -> None:
        if remembered is None:
            # Apart, for a disk may be slow, and the others take who is silent for dead.
            mine = Identity(cluster.cluster_id, self.name)
            await trio.to_thread.run_sync(self._directory.save_identity, mine)

    def _join(
        self,
        services: Mapping[str, Handler],
        remembered: Identity | None,
        listening: Callable[[Transport], None],
    ) -> AbstractAsyncContextManager[Cluster]:
        settings = self._settings
        return membership.join(
            settings.listen,
            settings.seeds,
            name=self.name,
            metadata=self._metadata(settings),
            advertise=settings.advertise,
            found=settings.is_founder,
            last_view=self._directory.last_view if settings.mode == "decentralised" else None,
            copied_view=self._directory.copied_view,
            # Who was a member before comes back to its cluster; it takes no part in founding another.
            expect=settings.expect if remembered is None else 1,
            mode=Mode(settings.mode),
            settings=self._membership_settings,
            detector=membership.phi_accrual() if settings.detector == "phi" else None,
            broadcaster=membership.unicast_to_all() if settings.broadcast == "unicast" else None,
            cluster_id=None if remembered is None else remembered.cluster_id,
            faults=Faults(ingress_loss=settings.loss) if self._chaos is None else self._chaos.injector,
            join_timeout=settings.join_timeout,
            rejoin=settings.when_evicted == "rejoin",
            keys=self._keys.ring,
            insecure=settings.insecure,
            services={**services, KEY_SERVICE: self._keys.serve},
            on_event=None if self._chaos is None else self._chaos.on_event,
            on_listening=listening,
            on_waiting=self._api.wait,
        )

    async def _work(self, cluster: Cluster) -> None:
        """Everything that runs while this host is in the view; returns when it is asked to leave."""
        limits = SolverLimits(idle=self._settings.solver_idle)
        command = [*COMMAND, str(self._settings.solver_memory)]
        async with open_solver_process(limits, command) as solver, trio.open_nursery() as nursery:
            send_view, receive_view = trio.open_memory_channel[HostView](math.inf)
            nursery.start_soon(self._follow_views, cluster, send_view)
            nursery.start_soon(self._control, cluster, solver, receive_view)
            await self._leave.wait()
            self._api.is_ending = True
            nursery.cancel_scope.cancel()

    async def _control(
        self, cluster: Cluster, solver: SolverProcess, views: trio.MemoryReceiveChannel[HostView]
    ) -> None:
        """The store and its control loop.  Raises :class:`AgentError` where others have another kind of store."""
        check_store(cluster, self._metadata(self._settings))
        async with trio.open_nursery() as nursery:
            runtime = TrioRuntime(nursery, open_stream=partial(_open_log, cluster))
            adapter: Adapter = LogAdapter(
                runtime,
                self.name,
                {self.name: str(cluster.me.address)},
                self._log_settings,
                self._record_reopening,
            )
            if self._engine is None:
                self._api.store_api = StoreApi(
                    LogClient(runtime, [str(cluster.me.address)], self._log_settings),
                    partial(counts_streams, cluster),
                )
            else:
                adapter = await self._open_engine(self._engine, cluster, adapter, nursery)
            controller = Controller(
                adapter,
                self.name,
                initial=self._initial_intent() if cluster.founded else None,
                solver=solver,
                settings=replace(self._settings.control, keep_solver=self._settings.keep_solver),
                listener=self._record_control_event,
                clock=trio.current_time,
            )
            self._api.controller = controller
            self._api.solver = solver
            async with trio.open_nursery() as watching:
                watching.start_soon(_tell_suspicions, cluster, controller)
                await controller.run(views)
                watching.cancel_scope.cancel()

    async def _open_engine(
        self, engine: HostEngine, cluster: Cluster, layout_adapter: Adapter, nursery: trio.Nursery
    ) -> Adapter:
        """Have its servers run; the adapter for those of all hosts, whose document ``layout_adapter`` agrees on."""
        from datastore_adapter.slots.slots_adapter import SlotsAdapter
        from rota.agent.engine.measuring import measure

        access = await engine.access(cluster)
        await nursery.start(engine.run, cluster, access)
        adapter = SlotsAdapter(layout_adapter, servers_of(cluster), access)
        self._api.engine_statistics = adapter.statistics
        self._api.measure_engine = partial(measure, adapter, engine.status()["servers"])
        if self._sampling is not None:
            nursery.start_soon(self._sampling.run, adapter)
        return adapter

    def _initial_intent(self) -> Intent:
        settings = self._settings
        segments, copies = (SHARDS, COPIES_OF_SHARDS) if settings.has_shards else (SEGMENTS, COPIES)
        return Intent.initial(
            settings.segments or segments,
            replication_factor=settings.replication_factor or copies,
            expect=settings.expect,
            pack=settings.policies,
        ).with_observing(bool(settings.engine))

    def _metadata(self, settings: AgentSettings) -> dict[str, str]:
        """What is agreed with the view about this host when it starts."""
        metadata = {**settings.tags, "capacity": str(settings.capacity), VERSION_TAG: VERSION}
        scheme = "https" if self.has_tls else "http"
        metadata[HTTP] = f"{scheme}://{self.api_address}"
        if not settings.has_store:
            metadata["store"] = "no"
        if not (settings.manager and settings.has_store):
            metadata["manager"] = "no"
        return metadata | ({} if self._engine is None else dict(self._engine.metadata))

    async def _follow_views(self, cluster: Cluster, views: trio.MemorySendChannel[HostView] | None) -> None:
        async for change in cluster.changes():
            self._record_change(change)
            self._former.see(change)
            if views is not None:
                view = host_view(change.view.epoch, change.view.by_seniority())
                if self._sampling is not None:
                    self._sampling.see(view)
                views.send_nowait(view)
        # The iteration ends when the others evicted this host for good, or it left.
        self.request_leave()

    # -- the event log ------------------------------------------------------------------------------

    def _record_change(self, change: Change) -> None:
        event = view_event(change)
        if event is not None:
            self._record("view", *event)
        elif change.quorum:
            self._record("status", f"this host is {change.status}, with a majority within reach")
        elif change.status is ClusterStatus.MEMBER:
            self._record("quorum-lost", "no majority is within reach; this view cannot change until one is")
        else:  # it is out, or on its way: the others may well have their majority
            self._record("status", f"this host is {change.status}")

    def _record_control_event(self, event: ControlEvent) -> None:
        self._record(event.kind, event.text, dict(event.data))

    def _record_reopening(self, reopening: Reopening) -> None:
        data = {**asdict(reopening), "seconds": reopening.seconds}
        text = f"layout epoch {reopening.epoch} takes appends; writers waited {1000 * reopening.seconds:.0f} ms for it"
        self._record("reopened", text, data)

    def _record(self, kind: str, text: str, data: Mapping[str, object] | None = None) -> None:
        # Membership itself logs its views.
        level = {"view": logging.DEBUG, "drift": logging.WARNING, "lost": logging.WARNING}.get(
            kind, logging.INFO
        )
        log.log(level, "%s: %s", kind, text)
        self._events.add(kind, text, data)


async def _tell_suspicions(cluster: Cluster, controller: Controller) -> None:
    """A solver that is loaded when a member is first suspected is there when that one is removed."""
    was_suspected = False
    while True:
        reading = cluster.suspicions()
        suspects = reading is not None and (
            reading.suspects or any(trouble.failed for trouble in reading.own)
        )
        if suspects and not was_suspected:
            controller.expect_change()
        was_suspected = bool(suspects)
        await trio.sleep(SUSPICION_INTERVAL)


async def _open_log(cluster: Cluster, address: str) -> FrameStream:
    """A stream to a log server, under this host's keys."""
    protection = cluster.transport.protection
    where = Address.parse(address)
    return await open_service(where, LOG_SERVICE, cluster_id=cluster.cluster_id, protection=protection)


def _name_of(settings: AgentSettings) -> str:
    if settings.name:
        return settings.name
    address = settings.advertise or settings.listen
    if address.port == 0:
        raise SettingsError("name: a host that listens at a free port (port 0) needs a name; give --name")
    return str(address)
