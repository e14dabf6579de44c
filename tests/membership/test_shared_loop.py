"""Many members in one process on real sockets: the drivers of agents, driven by one loop."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from membership.address import Address
from membership.protocol.context.effects import Event
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.core_factory import Identity
from membership.runtime.driver import Driver
from membership.runtime.event_loops.shared_loop import SharedLoop, open_shared_loop
from membership.settings import Settings
from membership.transport import InMemoryNetwork, Transport
from membership.transport.sockets import SocketEndpoint
from membership.transport.transport import MEMBERSHIP_SERVICE
from membership.wire.frames import UNKNOWN_CLUSTER, Envelope, encode_opening, frame_prefix

PATIENCE = 60
LOOPBACK = Address("127.0.0.1", 0)


class Crowd:
    """Members of one cluster in one loop; the first founds it and is the seed of the others."""

    def __init__(self, loop: SharedLoop) -> None:
        self.loop = loop
        self.drivers: list[Driver] = []
        self.started = -1
        self.chain: dict[int, ViewChanged] = {}
        """The first report of each view that follows another, by epoch."""
        self.news = trio.Event()

    async def start(self, count: int) -> None:
        for _ in range(count):
            self.started += 1
            driver = await make_driver(self.started, [each.transport.bound for each in self.drivers[:1]])
            driver.on_event = self._listen
            self.drivers.append(driver)
            await self.loop.start(driver)

    def _listen(self, event: Event) -> None:
        if isinstance(event, ViewChanged):
            if event.previous is not None:
                self.chain.setdefault(event.configuration.epoch, event)
            self.news.set()
            self.news = trio.Event()

    def kill(self, numbers: list[int]) -> None:
        for number in numbers:
            self.loop.kill(self.drivers[number])
        self.drivers = [driver for number, driver in enumerate(self.drivers) if number not in numbers]

    async def until_agreed(self) -> Configuration:
        """Wait until exactly the living members stand in one view, and all of them do."""
        with trio.fail_after(PATIENCE):
            while True:
                views = {driver.core.configuration for driver in self.drivers}
                view = views.pop()
                if not views and view is not None and len(view) == len(self.drivers):
                    return view
                await self.news.wait()


async def make_driver(number: int, seeds: list[Address], network: InMemoryNetwork | None = None) -> Driver:
    transport = await Transport.bind(LOOPBACK, network=network)
    return Driver(
        transport,
        Identity(f"m{number}", transport.advertised, ()),
        seeds=seeds,
        settings=Settings.lan(),
        rng=random.Random(number),
        found=not seeds,
        expect=1,
        cluster_id=None,
        rejoin=False,
    )


@asynccontextmanager
async def crowd() -> AsyncIterator[Crowd]:
    async with open_shared_loop() as loop:
        yield Crowd(loop)


@pytest.mark.socket
async def test_sixty_members_in_one_loop_join_and_lose_four_in_one_view_change() -> None:
    async with crowd() as members:
        await members.start(60)
        full = await members.until_agreed()
        assert all(driver.core.configuration is full for driver in members.drivers), "views are shared"
        members.kill([5, 17, 30, 59])
        cut = await members.until_agreed()
        assert cut.epoch == full.epoch + 1
        failed = {member.name for member in members.chain[cut.epoch].failed}
        assert failed == {"m5", "m17", "m30", "m59"}


@pytest.mark.socket
async def test_a_killed_members_port_is_free_at_once_and_the_loop_goes_on() -> None:
    async with crowd() as members:
        await members.start(3)
        await members.until_agreed()
        gone = members.drivers[2]
        members.kill([2])
        members.loop.kill(gone)  # a second time is nothing
        with socket.socket(type=socket.SOCK_DGRAM) as successor:
            successor.bind(tuple(gone.transport.bound))
        await members.start(1)
        view = await members.until_agreed()
        assert gone.core.me not in view


@pytest.mark.socket
@pytest.mark.parametrize("turns", range(4))
async def test_a_member_killed_before_its_tasks_have_begun_costs_only_itself(turns: int) -> None:
    """Its listener is closed when they come to serve it; the others of the loop must not hear of that."""
    async with crowd() as members:
        await members.start(8)
        await members.until_agreed()
        for _ in range(3):
            await members.start(1)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            members.kill([8])
        await members.until_agreed()


@pytest.mark.socket
async def test_a_torn_stream_costs_only_itself() -> None:
    async with crowd() as members:
        await members.start(2)
        await members.until_agreed()
        target = members.drivers[0].transport
        opening = encode_opening(Envelope(Address("127.0.0.1", 9), UNKNOWN_CLUSTER), MEMBERSHIP_SERVICE)
        stream = await trio.open_tcp_stream(*target.bound)
        await stream.send_all(opening + frame_prefix(1000) + b"the beginning")
        await stream.aclose()
        with trio.fail_after(PATIENCE):
            while not target.counters["streams_broken"]:
                await trio.lowlevel.checkpoint()
        assert target.counters["frames_received"] == 0
        await members.start(1)
        await members.until_agreed()


@pytest.mark.socket
async def test_only_members_on_sockets_share_a_loop() -> None:
    async with open_shared_loop() as loop:
        with pytest.raises(ValueError, match="socket"):
            await loop.start(await make_driver(0, [], InMemoryNetwork()))


class FullSocket:
    """A datagram socket whose buffer is full."""

    family = socket.AF_INET

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 7946

    def sendto(self, data: bytes, where: tuple[str, int]) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")


def test_what_a_full_socket_does_not_take_is_lost_and_counted() -> None:
    counters: Counter[str] = Counter()
    with socket.socket() as listener:
        full: SocketEndpoint = SocketEndpoint(FullSocket(), listener, counters)  # type: ignore[arg-type]
        transport = Transport(full, counters)
        transport.send_datagram(b"payload", (Address("127.0.0.1", 1), Address("127.0.0.1", 2)))
    assert counters["datagrams_congested"] == 2
    assert counters["datagrams_sent"] == 0


class _Busy:
    """Stands in for a driver and its transport: with datagrams that are never all read, or always due."""

    def __init__(self, *, unread: bool) -> None:
        self.transport = self
        self.socket, self.sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        if unread:
            self.sender.send(b"unread")
        self.deadline = float("inf") if unread else 0.0
        self.steps = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    async def begin(self) -> None:
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        await trio.sleep_forever()

    keep_seeds = run

    def step(self, now: float) -> None:
        self.steps += 1


@pytest.mark.socket
async def test_what_has_arrived_is_read_before_more_is_sent() -> None:
    """Else a machine without time to spare sends ever more and reads ever less of it, and does not recover."""
    readers = [_Busy(unread=True) for _ in range(100)]
    senders = [_Busy(unread=False) for _ in range(100)]
    async with open_shared_loop() as loop:
        for each in (*readers, *senders):
            await loop.start(each)  # type: ignore[arg-type]
        before = loop.rounds
        while loop.rounds < before + 200:
            await trio.lowlevel.checkpoint()
    read = sum(each.steps for each in readers)
    sent = sum(each.steps for each in senders)
    assert read > 10 * sent > 0, "but nobody waits for ever"
    for each in (*readers, *senders):
        each.socket.close()
        each.sender.close()
