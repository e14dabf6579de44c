"""The transport: one process's address on the network, for every protocol that lives there.

Datagrams in envelopes, drained in batches; one-way frames to peers; services for framed streams; fault injection;
counters. It knows clusters and senders, but no messages.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import trio

from membership.address import Address
from membership.settings import Settings
from membership.transport.drops import Drops
from membership.transport.endpoint import Endpoint, Network
from membership.transport.errors import PeerUnreachableError
from membership.transport.faults import FaultInjector
from membership.transport.file_descriptors import fit_connections
from membership.transport.outgoing import DELIVERY_TIMEOUT, OutgoingFrames
from membership.transport.services import CONNECT_TIMEOUT, Handler, Services, open_service
from membership.transport.sockets import SocketNetwork
from membership.transport.streams import FrameStream
from membership.wire.frames import (
    STREAM_FRAME_LIMIT,
    UNKNOWN_CLUSTER,
    DatagramCodec,
    DropReason,
    Envelope,
    FrameError,
)
from membership.wire.protection import UNPROTECTED, Protection

MEMBERSHIP_SERVICE: Final = "membership"
"""The service for one-way frames between the members' cores."""

DRAIN_LIMIT: Final = 64
"""Datagrams taken per wake-up before other tasks get their turn."""

FRAMES_ARRIVED_BOUND: Final = 256
"""Frames kept for the next drain; further ones are dropped and counted."""

SHOW_KEY_INTERVAL: Final = 0.02
"""Seconds between two answers to datagrams under keys that are not held here, to whomever."""

_OTHER_KEY: Final = frozenset({DropReason.UNKNOWN_KEY, DropReason.REMOVED_KEY})

_DEFAULTS: Final = Settings()


class Arrival(NamedTuple):
    """One message that has come in. `by_stream`: as a stream frame; otherwise as a datagram."""

    source: Address
    cluster_id: bytes
    payload: bytes
    by_stream: bool


class Transport:
    """Make one with `Transport.bind`, then keep `run` running in a nursery."""

    advertised: Address
    """The address other processes are told; it is in every envelope."""
    counters: Counter[str]
    """What was sent, received and dropped, by reason."""
    fault_injector: FaultInjector
    """Injects nothing until its `faults` are set."""
    protection: Protection
    """Seals and opens all that goes through here; for streams that this process opens by itself."""
    incarnation: bytes | None
    """Which member this process is at present; it refuses streams that are meant for another one."""

    def __init__(
        self,
        endpoint: Endpoint,
        counters: Counter[str],
        *,
        advertise: Address | None = None,
        cluster_id: bytes | None = None,
        fault_injector: FaultInjector | None = None,
        frame_limit: int = STREAM_FRAME_LIMIT,
        protection: Protection = UNPROTECTED,
        settings: Settings = _DEFAULTS,
    ) -> None:
        self.advertised = advertise if advertise is not None else endpoint.address
        self.counters = counters
        self.fault_injector = fault_injector if fault_injector is not None else FaultInjector()
        self._endpoint = endpoint
        self._frame_limit = frame_limit
        self.protection = protection
        self.incarnation = None
        self._drops = Drops(counters, self.advertised)
        self._codec = DatagramCodec(self.advertised, cluster_id, protection)
        self._services = Services(
            self._envelope,
            incarnation=lambda: self.incarnation,
            counters=counters,
            frame_limit=frame_limit,
            protection=protection,
            links=self.fault_injector,
            settings=settings,
        )
        self._services.register(MEMBERSHIP_SERVICE, self._take_frames)
        self._outgoing = OutgoingFrames(self._deliver, counters)
        self._frames: deque[Arrival] = deque()
        self._late: list[tuple[float, int, bytes, Address]] = []
        self._late_count = 0
        self._wait_scope: trio.CancelScope | None = None
        self._woken = False
        self._show_key_at = 0.0
        self.on_wake: Callable[[], None] | None = None
        """Called by `wake`, for whoever waits for several transports at once and not with `wait`."""

    @classmethod
    async def bind(
        cls,
        listen: Address,
        *,
        network: Network | None = None,
        advertise: Address | None = None,
        cluster_id: bytes | None = None,
        fault_injector: FaultInjector | None = None,
        frame_limit: int = STREAM_FRAME_LIMIT,
        protection: Protection = UNPROTECTED,
        settings: Settings = _DEFAULTS,
    ) -> Transport:
        """Take the address `listen` (port 0: any free one) for datagrams and streams.

        `advertise`: the address for others, default the bound one; its port 0 stands for the bound port.
        `settings`: the bounds of what strangers can take; connections are at most what the process's descriptors allow.
        Raises BindError.
        """
        counters: Counter[str] = Counter()
        endpoint = await (network if network is not None else SocketNetwork()).bind(listen, counters)
        if endpoint.fileno() is not None:
            settings = replace(settings, connections=fit_connections(settings.connections))
        if advertise is not None and advertise.port == 0:
            advertise = Address(advertise.host, endpoint.address.port)
        return cls(
            endpoint,
            counters,
            advertise=advertise,
            cluster_id=cluster_id,
            fault_injector=fault_injector,
            frame_limit=frame_limit,
            protection=protection,
            settings=settings,
        )

    @property
    def bound(self) -> Address:
        """The address this process really listens at."""
        return self._endpoint.address

    @property
    def exposed(self) -> bool:
        """Whether others than this machine can reach this process."""
        return self._endpoint.exposed

    @property
    def cluster_id(self) -> bytes | None:
        """The cluster this process belongs to; None until it knows. Traffic of other clusters is dropped."""
        return self._codec.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: bytes | None) -> None:
        self._codec.cluster_id = cluster_id

    async def run(self) -> None:
        """Accept streams and deliver frames until cancelled; then the address is given back."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._outgoing.run)
                nursery.start_soon(self._endpoint.run, self._accept)
        finally:
            self.close()

    def close(self) -> None:
        """Give the address back at once, without a word to anybody."""
        self._endpoint.close()

    # Services

    def register(self, service: str, handler: Handler) -> None:
        """Offer `service`: every stream that a peer opens for it is one call of `handler`.

        The stream is closed when the handler returns. A handler that raises costs only its stream.
        Raises ValueError when the name is taken.
        """
        self._services.register(service, handler)

    def unregister(self, service: str) -> None:
        """Stop offering `service`; streams that are open stay."""
        self._services.unregister(service)

    async def open_service(
        self,
        address: Address,
        service: str,
        *,
        incarnation: bytes | None = None,
        timeout: float = CONNECT_TIMEOUT,
        early_frames: Sequence[bytes] = (),
    ) -> FrameStream:
        """Open a stream to `service` at `address`, in this process's name and cluster.

        `incarnation`: of the member that is meant (`Member.incarnation`); another process that has its address by now
        refuses. None: whoever is there. `timeout` in seconds covers connection and handshake. Raises as the function
        `open_service` does.
        """
        if self.fault_injector.refuses_stream(address):
            await trio.lowlevel.checkpoint()
            raise PeerUnreachableError(f"{address} cannot be reached: fault injection blocks it")
        return await open_service(
            address,
            service,
            incarnation=incarnation,
            cluster_id=self.cluster_id,
            sender=self.advertised,
            timeout=timeout,
            frame_limit=self._frame_limit,
            protection=self.protection,
            connect=self._endpoint.connect,
            links=self.fault_injector,
            early_frames=early_frames,
            counters=self.counters,
        )

    async def _deliver(self, address: Address, frames: Sequence[bytes]) -> None:
        stream = await self.open_service(
            address, MEMBERSHIP_SERVICE, timeout=DELIVERY_TIMEOUT, early_frames=frames
        )
        await stream.aclose()

    def _envelope(self) -> Envelope:
        return Envelope(self.advertised, self.cluster_id or UNKNOWN_CLUSTER, self.protection.sealed)

    async def _accept(self, stream: trio.abc.Stream) -> None:
        await self._services.serve(stream)

    async def _take_frames(self, stream: FrameStream) -> None:
        """The membership service: put frames where `drain` finds them."""
        source = stream.peer
        if source is None or self.fault_injector.refuses_stream(source):
            self.counters["streams_dropped_no_sender" if source is None else "streams_blocked"] += 1
            return
        async for payload in stream:
            self.counters["frames_received"] += 1
            self.counters["stream_bytes_received"] += len(payload)
            if len(self._frames) >= FRAMES_ARRIVED_BOUND:
                self.counters["frames_dropped_overflow"] += 1
                continue
            self._frames.append(Arrival(source, stream.cluster_id, payload, True))
            self.wake()

    # Datagrams and one-way frames

    def send_datagram(self, payload: bytes, destinations: tuple[Address, ...]) -> None:
        """One datagram with `payload` to each destination; what cannot be sent now is lost and counted."""
        datagram = sealed = self._codec.seal(payload)
        send = self._endpoint.send
        peer_keys = self.protection.peer_keys
        sent = 0
        for destination in destinations:
            if peer_keys:
                key_id = peer_keys.get(destination)
                datagram = sealed if key_id is None else self._codec.seal(payload, key_id)
            if self.fault_injector.active and not self._passes_faults(datagram, destination):
                continue
            sent += send(datagram, destination)
        self.counters["datagrams_sent"] += sent
        self.counters["datagram_bytes_sent"] += sent * len(datagram)

    def _passes_faults(self, datagram: bytes, destination: Address) -> bool:
        """False when the datagram is lost, or will be sent late."""
        if self.fault_injector.loses_outgoing(destination):
            self.counters["datagrams_lost_on_purpose"] += 1
            return False
        delay = self.fault_injector.delay()
        if delay == 0.0:
            return True
        self._late_count += 1
        heapq.heappush(self._late, (trio.current_time() + delay, self._late_count, datagram, destination))
        return False

    def _send_late(self) -> None:
        now = trio.current_time()
        while self._late and self._late[0][0] <= now:
            _, _, datagram, destination = heapq.heappop(self._late)
            if self._endpoint.send(datagram, destination):
                self.counters["datagrams_sent"] += 1
                self.counters["datagram_bytes_sent"] += len(datagram)

    def send_frame(self, payload: bytes, destinations: tuple[Address, ...]) -> None:
        """One stream frame with `payload` to each destination, in the background; never waits."""
        for destination in destinations:
            self._outgoing.put(destination, payload)

    @property
    def deadline(self) -> float:
        """When `drain` is due although nothing arrives, because a delayed datagram goes out then."""
        return self._late[0][0] if self._late else math.inf

    def fileno(self) -> int | None:
        """The descriptor that is readable when datagrams wait; None without one, or when closed."""
        return self._endpoint.fileno()

    async def wait(self, deadline: float) -> None:
        """Return when something has arrived, `wake` was called, or at `deadline` (trio's clock)."""
        if self._woken or self._frames:
            await trio.lowlevel.checkpoint()
        else:
            with trio.CancelScope(deadline=min(deadline, self.deadline)) as self._wait_scope:
                await self._endpoint.wait_readable()
            self._wait_scope = None
        self._woken = False

    def wake(self) -> None:
        """Make the present or the next `wait` return at once."""
        self._woken = True
        if self.on_wake is not None:
            self.on_wake()
        if self._wait_scope is not None:
            self._wait_scope.cancel()

    def drain(self, limit: int = DRAIN_LIMIT) -> list[Arrival]:
        """What has arrived: all stream frames, and datagrams up to `limit`. Delayed datagrams go out."""
        if self._late:
            self._send_late()
        arrivals = list(self._frames)
        self._frames.clear()
        receive = self._endpoint.receive
        received = received_bytes = 0
        while received < limit and (datagram := receive()) is not None:
            received += 1
            received_bytes += len(datagram)
            try:
                source, cluster_id, payload = self._codec.open(datagram)
            except FrameError as error:
                self._drops.count("datagrams", error)
                if error.reason in _OTHER_KEY and error.sender is not None:
                    self._show_key(error.sender, len(datagram))
                continue
            if self.fault_injector.active and self.fault_injector.loses_incoming(source):
                self.counters["datagrams_lost_on_purpose"] += 1
                continue
            if not payload and self.protection.sealed:
                continue  # a peer has shown its key; opening it was all that was to be done
            arrivals.append(Arrival(source, cluster_id, payload, False))
        if received:
            self.counters["datagrams_received"] += received
            self.counters["datagram_bytes_received"] += received_bytes
            if self.protection.unshown:
                self._show_primary()
        return arrivals

    def _show_primary(self) -> None:
        """To peers that were heard under another key, an empty datagram under this one; it is never answered."""
        for peer in self.protection.unshown:
            datagram = self._codec.seal(b"")
            if not self.fault_injector.active or self._passes_faults(datagram, peer):
                self._endpoint.send(datagram, peer)
        self.protection.unshown.clear()

    def _show_key(self, peer: Address, length: int) -> None:
        """Answer what is under a key that is not held here by an empty datagram: the peer may hold ours.

        It is no longer than what it answers, is never answered itself, and is limited in rate.
        """
        answer = self._codec.seal(b"", self.protection.peer_keys.get(peer))
        now = trio.current_time()
        if len(answer) < length and now >= self._show_key_at:
            self._show_key_at = now + SHOW_KEY_INTERVAL
            self.counters["keys_shown"] += 1
            self._endpoint.send(answer, peer)
