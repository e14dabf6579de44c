"""A network inside one process: endpoints that reach each other without the operating system.

For tests of applications that embed membership: whole clusters in virtual time (`trio.testing.MockClock`), at any
addresses, without a port. A receiver that does not drain loses datagrams, as with a socket. Loss and delay come from
each transport's fault injector. For deterministic runs use the simulator (`chaos`).
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import trio

from membership.address import Address
from membership.transport.endpoint import Accept
from membership.transport.errors import BindError
from membership.wire.frames import DATAGRAM_LIMIT

_QUEUE_BOUND: Final = 4096
_FIRST_PORT: Final = 20000


class InMemoryNetwork:
    """Endpoints by address. Use one network for all members that shall meet."""

    def __init__(self) -> None:
        self._endpoints: dict[Address, InMemoryEndpoint] = {}
        self._next_port = _FIRST_PORT

    async def bind(self, listen: Address, counters: Counter[str]) -> InMemoryEndpoint:
        """An endpoint at `listen`; no other may have the address. Raises BindError."""
        await trio.lowlevel.checkpoint()
        address = listen
        while address.port == 0 or (listen.port == 0 and address in self._endpoints):
            self._next_port += 1
            address = Address(listen.host, self._next_port)
        if address in self._endpoints:
            raise BindError(f"cannot listen at {listen}: another endpoint of this network has the address")
        endpoint = InMemoryEndpoint(self, address, counters)
        self._endpoints[address] = endpoint
        return endpoint

    def endpoint(self, address: Address) -> InMemoryEndpoint | None:
        """Who is bound to `address`."""
        return self._endpoints.get(address)

    def release(self, address: Address) -> None:
        """Forget the endpoint at `address`."""
        self._endpoints.pop(address, None)


class InMemoryEndpoint:
    """See `Endpoint`."""

    def __init__(self, network: InMemoryNetwork, address: Address, counters: Counter[str]) -> None:
        self.address = address
        self.exposed = False
        self._network = network
        self._counters = counters
        self._arrived: deque[bytes] = deque()
        self._readable = trio.Event()
        self._connections, self._accepted = trio.open_memory_channel[trio.abc.Stream](_QUEUE_BOUND)

    def send(self, datagram: bytes, destination: Address) -> bool:
        """Put the datagram into the receiver's queue."""
        receiver = self._network.endpoint(destination)
        return receiver is not None and receiver.deliver(datagram)

    def deliver(self, datagram: bytes) -> bool:
        """Take a datagram in; False when the queue is full."""
        if len(self._arrived) >= _QUEUE_BOUND:
            self._counters["datagrams_overflowed"] += 1
            return False
        self._arrived.append(datagram[: DATAGRAM_LIMIT + 1])
        self._readable.set()
        return True

    def receive(self) -> bytes | None:
        """The oldest datagram that has arrived."""
        return self._arrived.popleft() if self._arrived else None

    def fileno(self) -> int | None:
        """None: nothing of the operating system is involved."""
        return None

    async def wait_readable(self) -> None:
        """Wait until something is in the queue."""
        if self._arrived:
            await trio.lowlevel.checkpoint()
            return
        self._readable = trio.Event()
        await self._readable.wait()

    async def connect(self, destination: Address) -> trio.abc.Stream:
        """A pair of streams, one end of which the other endpoint accepts."""
        import trio.testing  # takes long to load, and agents on real sockets never need it

        await trio.lowlevel.checkpoint()
        listener = self._network.endpoint(destination)
        if listener is None:
            raise ConnectionRefusedError(111, "Connection refused")
        mine, theirs = trio.testing.memory_stream_pair()
        listener.take(theirs)
        return mine

    def take(self, stream: trio.abc.Stream) -> None:
        """Queue a stream to be accepted. Raises ConnectionRefusedError when too many wait."""
        try:
            self._connections.send_nowait(stream)
        except trio.WouldBlock:
            raise ConnectionRefusedError(111, "Connection refused") from None

    async def run(self, accept: Accept) -> None:
        """Accept until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                async for stream in self._accepted:
                    nursery.start_soon(accept, stream)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the network; what is still queued is lost."""
        if self._network.endpoint(self.address) is self:
            self._network.release(self.address)
        self._arrived.clear()
