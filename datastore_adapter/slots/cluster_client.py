"""The servers of all hosts in the view, asked at the same time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from datastore_adapter.slots.errors import (
    CommandRefusedError,
    MalformedReplyError,
    ServerUnreachableError,
    SlotsError,
    UnfitServerError,
)
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.servers import Servers
from datastore_adapter.slots.settings import SlotsSettings
from datastore_adapter.slots.state.cluster_state import (
    ClusterState,
    HostNames,
    NoMajority,
    Report,
    combine,
)
from datastore_adapter.slots.state.evidence import Evidence, Sample
from datastore_adapter.slots.state.nodes_table import parse_nodes
from datastore_adapter.slots.state.server_info import ServerInfo, parse_info

OLDEST_VERSION: Final = (7, 0)
INFO: Final = ("INFO", "server", "cluster", "replication", "memory", "stats", "keyspace", "persistence")
"""What is read of the answer, and no more: the whole takes a server three times as long."""
SAMPLE: Final = ("INFO", "server", "replication", "persistence")


class ClusterClient:
    """The servers of the hosts in the view."""

    def __init__(
        self, servers: Servers, addresses_of: Callable[[str], Sequence[str]], settings: SlotsSettings
    ) -> None:
        self.servers = servers
        self.hosts: frozenset[str] = frozenset()
        """Those of the view."""
        self.evidence = Evidence(settings.lag_limit, settings.blind_limit)
        self._addresses_of = addresses_of
        self._settings = settings
        self._names = HostNames()
        self._faults: dict[tuple[str, str], str] = {}  # by address and run id: settings are read once
        self._last: tuple[float, ClusterState | NoMajority] | None = None

    def set_hosts(self, hosts: frozenset[str]) -> None:
        self.hosts = hosts
        self._last = None

    async def read_state(self, max_age: float = 0.0) -> ClusterState | NoMajority:
        """What stands now, or stood ``max_age`` seconds ago at most."""
        if max_age and self._last is not None and trio.current_time() - self._last[0] <= max_age:
            return self._last[1]
        live = self.hosts
        reports, missing, troubles = await self._ask_all()
        state = combine(reports, self._names, live, missing, troubles)
        self._last = (trio.current_time(), state)
        return state

    async def read_reports(self) -> list[Report]:
        """What each server says that answers, be they of one cluster or not."""
        return (await self._ask_all())[0]

    async def _ask_all(self) -> tuple[list[Report], list[str], list[str]]:
        """Reports, addresses that did not answer, and what was wrong with others; each in order."""
        addresses, began = self._addresses(), trio.current_time()
        reports: list[Report] = []
        missing: list[str] = []
        troubles: list[str] = []

        async def ask(address: str, host: str) -> None:
            try:
                reports.append(await self.report(address, host))
            except ServerUnreachableError:
                missing.append(address)
            except SlotsError as error:
                troubles.append(str(error))

        async with trio.open_nursery() as nursery:
            for address, host in addresses.items():
                nursery.start_soon(ask, address, host)
        reports.sort(key=lambda report: report.address)
        self.evidence.learn([Sample(report.node_id, report.info) for report in reports], began)
        return reports, sorted(missing), sorted(troubles)

    @property
    def last(self) -> ClusterState | None:
        """What was seen last, if a majority answered and nothing was changed since."""
        state = None if self._last is None else self._last[1]
        return state if isinstance(state, ClusterState) else None

    @property
    def known_hosts(self) -> frozenset[str]:
        """Those that have, or had, a server that was seen."""
        return frozenset(self._names.by_node.values())

    def forget_state(self) -> None:
        """Something is about to be changed."""
        self._last = None

    async def sample(self) -> None:
        """One round of what promotions are decided by: see `evidence`."""
        began = trio.current_time()
        samples: list[Sample] = []

        async def ask(address: str) -> None:
            try:
                node_id, info = await self.servers.call_all(address, [("CLUSTER", "MYID"), SAMPLE])
                if isinstance(node_id, bytes) and isinstance(info, bytes):
                    samples.append(Sample(node_id.decode(), parse_info(info)))
            except SlotsError:
                return  # silent: `observe` says why

        async with trio.open_nursery() as nursery:
            for address in self._addresses():
                nursery.start_soon(ask, address)
        self.evidence.learn(samples, began)

    async def report(self, to: str | Recipient, host: str) -> Report:
        """What one server says now.  Raises UnfitServerError, and what `Servers.call_all` does."""
        address = to if isinstance(to, str) else to.address
        nodes, info = await self.servers.call_all(to, [("CLUSTER", "NODES"), INFO])
        if isinstance(info, CommandRefusedError):
            raise UnfitServerError(
                f"{address} on {host} does not tell of itself ({info.answer}): "
                f"{_name(OLDEST_VERSION)} or newer is needed"
            )
        said = parse_info(info)
        if not said.is_cluster:
            raise UnfitServerError(
                f"{address} on {host} is no cluster server; start it with `cluster-enabled yes`"
            )
        if said.version < OLDEST_VERSION:
            raise UnfitServerError(
                f"{address} on {host} is {said.software} {_name(said.version)}; "
                f"{_name(OLDEST_VERSION)} or newer is needed"
            )
        if isinstance(nodes, CommandRefusedError):
            raise UnfitServerError(f"{address} on {host}: {nodes.answer}")
        table = parse_nodes(nodes)
        fault = await self._fault(Recipient(address, table.myself), host, said.run_id)
        return Report(address, host, table, said, fault)

    async def infos(self, addresses: Iterable[str]) -> list[ServerInfo]:
        """What those of these servers that answer say of themselves now."""
        infos: list[ServerInfo] = []

        async def ask(address: str) -> None:
            with suppress(SlotsError):  # silent: `observe` says why
                infos.append(parse_info(await self.servers.call(address, *INFO)))

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        return infos

    async def endpoint(self, address: str) -> tuple[str, int]:
        """IP address and port, as servers want them of each other."""
        host, _, port = address.rpartition(":")
        found = await trio.to_thread.run_sync(
            partial(socket.getaddrinfo, host.strip("[]"), int(port), type=socket.SOCK_STREAM),
            abandon_on_cancel=True,
        )
        return str(found[0][4][0]), int(port)

    def _addresses(self) -> Mapping[str, str]:
        return {address: host for host in sorted(self.hosts) for address in self._addresses_of(host)}

    async def _fault(self, server: Recipient, host: str, run_id: str) -> str:
        address = server.address
        key = (address, run_id)
        if key not in self._faults:
            setting = "cluster-allow-replica-migration"
            answer = await self.servers.call(server, "CONFIG", "GET", setting)
            if not isinstance(answer, list):
                raise MalformedReplyError(f"{address}: CONFIG GET answers no list")
            is_on = b"yes" in answer
            self._faults = {known: value for known, value in self._faults.items() if known[0] != address}
            text = (
                f"{address} on {host}: `{setting} yes` lets the servers move replicas whatever their rack; "
                f"CONFIG SET {setting} no, and in its file"
            )
            if is_on:
                return text  # asked again until it is mended
            self._faults[key] = ""
        return self._faults[key]


def _name(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
