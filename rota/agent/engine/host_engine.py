"""The engine's servers of one host as its agent has to do with them: servers that it runs, or somebody else's.

Where they are is agreed with the view, in the host's metadata: who is in the view says so, and nobody has to be asked.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings
from membership import Address, Cluster, FrameStream, TransportError
from membership.transport import Handler
from rota.agent.engine.configuration import Ports, ServerOptions
from rota.agent.engine.inspection import inspect
from rota.agent.engine.password import DIRECTORY, PASSWORD_FILE, SERVICE, SharedPassword, read_password
from rota.agent.engine.predecessors import Predecessors
from rota.agent.engine.program import check_library, find_program
from rota.agent.engine.servers import EngineServers, allocate_ports, is_empty
from rota.agent.settings import AgentSettings, EngineUrl
from rota.errors import ApiError, SettingsError
from rota.http import answers
from rota.services.control_service import answer_requests, ask_member
from rota.services.store_tags import ADOPTED, SERVERS, STORE, servers_of

EMPTY: Final = "empty"
"""The request of another agent for those of this host's servers that have nothing."""
PATIENCE: Final = 1.0
"""Seconds for the answer to it."""

OnEvent = Callable[[str, str], None]


class HostEngine(Protocol):
    """Of one host."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the others are told with the view."""
        ...

    @property
    def services(self) -> Mapping[str, Handler]:
        """What this host answers to other agents."""
        ...

    async def access(self, cluster: Cluster) -> EngineAccess:
        """How all servers of the cluster are reached; waits until that is agreed."""
        ...

    async def run(
        self,
        cluster: Cluster,
        access: EngineAccess,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Have them run until cancelled; "started" once those run that need not wait."""
        ...

    def status(self) -> answers.Engine: ...


class OwnServers:
    """Servers that this agent runs."""

    def __init__(self, settings: AgentSettings, name: str, data_dir: Path, on_event: OnEvent) -> None:
        """Raises :class:`SettingsError`."""
        self._settings = settings
        self._on_event = on_event
        self._name = name
        self._program = find_program(settings.store)
        self._bind = _number_of(settings.listen.host)
        self._announced = _number_of((settings.advertise or settings.listen).host)
        self._directory = data_dir / DIRECTORY
        may_travel = settings.key_file is not None or ipaddress.ip_address(self._announced).is_loopback
        self._password = SharedPassword(
            self._directory / PASSWORD_FILE, given=settings.engine_password_file, may_travel=may_travel
        )
        self._ports = allocate_ports(
            self._directory, settings.engine_servers, self._bind, settings.listen.port
        )
        self._servers: EngineServers | None = None
        if settings.engine_config is not None and not settings.engine_config.is_file():
            raise SettingsError(f"engine_config: {settings.engine_config} is no file that can be read")

    @property
    def metadata(self) -> Mapping[str, str]:
        return {STORE: self._settings.store, SERVERS: ",".join(self._addresses())}

    def _addresses(self) -> list[str]:
        return [self._address(ports) for ports in self._ports]

    def _address(self, ports: Ports) -> str:
        return str(Address(self._announced, ports.clients))

    @property
    def services(self) -> Mapping[str, Handler]:
        return {SERVICE: self._serve}

    async def _serve(self, stream: FrameStream) -> None:
        """Another agent asks."""
        async with stream:
            await answer_requests(stream, self._answer)

    async def _answer(self, request: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if request == "password":
            return self._password.answer()
        if request == EMPTY:
            return {"servers": self._empty()}
        raise ApiError(f"{request}: this agent answers no such request", code="refused", status=403)

    def _empty(self) -> list[str]:
        """Those of its servers that have never begun, or not since the disk was lost: they know nobody."""
        addresses = enumerate(self._addresses())
        return [address for number, address in addresses if is_empty(self._directory, number)]

    async def access(self, cluster: Cluster) -> EngineAccess:
        return EngineAccess(password=await self._password.agree(cluster, {STORE: self._settings.store}))

    async def run(
        self,
        cluster: Cluster,
        access: EngineAccess,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        options = ServerOptions(
            program=self._program,
            bind=self._bind,
            announced=self._announced,
            host=self._name,
            rack=self._settings.tags.get("rack", ""),
            password=access.password,
            include=self._settings.engine_config,
        )
        connections = Servers(access, SlotsSettings())
        predecessors = Predecessors(
            connections, partial(_servers_of_others, cluster), partial(_is_empty, cluster), self._on_event
        )
        self._servers = EngineServers(
            self._directory, self._ports, options, self._on_event, may_start=predecessors.may_start
        )
        try:
            await self._servers.run(task_status=task_status)
        finally:
            connections.close()

    def status(self) -> answers.Engine:
        servers = self._servers
        return {
            "name": self._settings.store,
            "servers": self._addresses(),
            "running": 0 if servers is None else servers.running,
            "restarts": 0 if servers is None else servers.restarts,
        }


class AdoptedServers:
    """Servers that somebody else runs."""

    def __init__(self, settings: AgentSettings) -> None:
        """Raises :class:`SettingsError`."""
        urls = [EngineUrl.parse(text) for text in settings.engine]
        self._addresses = [str(Address(_number_of(url.address.host), url.address.port)) for url in urls]
        file = settings.engine_password_file
        self._access = EngineAccess(
            user=urls[0].user,
            password=urls[0].password if file is None else read_password(file),
            is_tls=urls[0].is_tls,
            ca_file=settings.engine_ca,
            certificate_file=settings.engine_certificate,
            key_file=settings.engine_key,
        )

    @property
    def metadata(self) -> Mapping[str, str]:
        return {STORE: ADOPTED, SERVERS: ",".join(self._addresses)}

    @property
    def services(self) -> Mapping[str, Handler]:
        return {}

    async def check(self) -> None:
        """Raises :class:`AgentError` for servers that cannot be managed."""
        await inspect(self._addresses, self._access)

    async def access(self, cluster: Cluster) -> EngineAccess:
        return self._access

    async def run(
        self,
        cluster: Cluster,
        access: EngineAccess,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()
        await trio.sleep_forever()

    def status(self) -> answers.Engine:
        return {"name": ADOPTED, "servers": self._addresses, "running": None, "restarts": 0}


async def open_host_engine(
    settings: AgentSettings, name: str, data_dir: Path, on_event: OnEvent
) -> HostEngine:
    """For settings that have one.  Raises :class:`SettingsError` for what cannot be."""
    check_library()
    if not settings.engine:
        return OwnServers(settings, name, data_dir, on_event)
    adopted = AdoptedServers(settings)
    await adopted.check()
    return adopted


def _servers_of_others(cluster: Cluster) -> list[str]:
    servers = servers_of(cluster)
    hosts = [member.name for member in cluster.view.members if member.name != cluster.me.name]
    return [address for host in hosts for address in servers(host)]


async def _is_empty(cluster: Cluster, address: str) -> bool:
    """Whether the agent of the server at this address says so; not if it says nothing."""
    servers = servers_of(cluster)
    for member in cluster.view.members:
        if address in servers(member.name):
            with trio.move_on_after(PATIENCE), suppress(ApiError, TransportError):
                told = (await ask_member(cluster, member, SERVICE, EMPTY, {})).get("servers")
                return isinstance(told, list) and address in told
    return False


def _number_of(host: str) -> str:
    """The IP address of a host: servers tell each other nothing else."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(f"{host}: no address is known for it ({error.strerror or error})") from error
    return str(found[0][4][0])
