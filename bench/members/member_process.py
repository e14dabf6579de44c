"""One of the processes that share the members: real members on real sockets, told what to do on standard input.

The child of ``bench.members.processes``. It speaks JSON, one document a line: commands come in on standard input,
what its members see goes out on standard output. Times are of the machine's monotonic clock, in seconds, the same for
all processes of one machine. The members are the agent's own shells, cores and transports, without log, control loop
or HTTP; a thousand of them share one loop.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from bench.members.alerts import observers_of
from bench.members.run import DETECTION
from membership.address import Address
from membership.protocol.context.effects import Accused, Event
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.core_factory import Identity
from membership.runtime.driver import Driver
from membership.runtime.event_loops.shared_loop import SharedLoop, open_shared_loop
from membership.settings import Settings
from membership.transport import SocketNetwork, Transport

HOST: Final = "127.0.0.1"
REPORT_INTERVAL: Final = 0.05
"""Seconds between two lines about views; the times in them are exact."""

_DETECTION_TAGS: Final = {kind.__struct_config__.tag for kind in DETECTION}


class CountingTransport(Transport):
    """A transport that also counts what failure detection alone sends."""

    detection_datagrams = 0
    detection_bytes = 0

    def send_datagram(self, payload: bytes, destinations: tuple[Address, ...]) -> None:
        """As `Transport.send_datagram`."""
        # A message is a short MessagePack array that begins with its tag: one byte each.
        if payload[1] in _DETECTION_TAGS:
            self.detection_datagrams += len(destinations)
            self.detection_bytes += len(payload) * len(destinations)
        super().send_datagram(payload, destinations)


class Member:
    """A member of this process."""

    def __init__(self, number: int, transport: CountingTransport) -> None:
        self.number = number
        self.transport = transport
        self.driver: Driver | None = None
        self.view: tuple[int, str, int] | None = None


class MemberProcess:
    """Carries out the commands."""

    def __init__(self, loop: SharedLoop, plan: Mapping[str, Any]) -> None:
        self._loop = loop
        self._numbers = range(plan["first"], plan["first"] + plan["count"])
        self._seed = plan["seed"]
        self._settings = Settings()
        self._members: dict[int, Member] = {}
        self._gone: Counter[str] = Counter()
        self._standing: Counter[tuple[int, str, int]] = Counter()
        self._last_change: dict[tuple[int, str, int], float] = {}
        self._first_change: dict[tuple[int, str, int], float] = {}
        self._changed: dict[tuple[int, str, int], None] = {}

    async def bind(self, numbers: range) -> list[str]:
        """Take the addresses of these members of this process already, so that others can be told."""
        return [
            str((await self._member(number)).transport.bound) for number in numbers if number in self._numbers
        ]

    async def _member(self, number: int) -> Member:
        member = self._members.get(number)
        if member is None:
            transport = await CountingTransport.bind(Address(HOST, 0), network=SocketNetwork())
            assert isinstance(transport, CountingTransport)
            member = self._members[number] = Member(number, transport)
        return member

    async def start(self, seeds: tuple[Address, ...], begin: float, spread: float) -> None:
        """Start each member at its time: the first at ``begin``, the others evenly within ``spread`` seconds."""
        rng = random.Random(self._seed)
        times = sorted(
            (begin + (spread * rng.random() if number else 0.0), number) for number in self._numbers
        )
        async with trio.open_nursery() as nursery:
            for when, number in times:
                if (pause := when - time.monotonic()) > 0:
                    await trio.sleep(pause)
                nursery.start_soon(self._start, number, seeds)
        say(event="started", seconds=time.monotonic())

    async def _start(self, number: int, seeds: tuple[Address, ...]) -> None:
        member = await self._member(number)
        member.driver = driver = Driver(
            member.transport,
            Identity(name_of(member.number), member.transport.advertised, ()),
            seeds=seeds,
            settings=self._settings,
            rng=random.Random(f"{self._seed} {member.number}"),
            found=member.number == 0,
            expect=1,
            cluster_id=None,
            rejoin=True,
        )
        driver.on_event = self._listener(member)
        await self._loop.start(driver)

    def _listener(self, member: Member) -> Callable[[Event], None]:
        def on_event(event: Event) -> None:
            match event:
                case ViewChanged(configuration):
                    self._stand(member, (configuration.epoch, configuration.id.hex(), len(configuration)))
                case Accused(subject):
                    say(
                        event="alert",
                        seconds=time.monotonic(),
                        observer=name_of(member.number),
                        subject=subject.name,
                    )

        return on_event

    def _stand(self, member: Member, view: tuple[int, str, int] | None) -> None:
        now = time.monotonic()
        for each, step in ((member.view, -1), (view, 1)):
            if each is not None:
                self._standing[each] += step
                self._first_change.setdefault(each, now)
                self._last_change[each] = now
                self._changed[each] = None
        member.view = view

    async def report_views(self) -> None:
        """Say how many members stand in each view, whenever that has changed."""
        while True:
            await trio.sleep(REPORT_INTERVAL)
            for view in self._changed:
                epoch, identifier, size = view
                say(
                    event="view",
                    epoch=epoch,
                    id=identifier,
                    size=size,
                    members=self._standing[view],
                    first=self._first_change[view],
                    last=self._last_change[view],
                )
            self._changed.clear()

    def kill(self, numbers: list[int]) -> None:
        """Let these members vanish: their sockets close, nobody is told."""
        for number in numbers:
            member = self._members.pop(number)
            self._gone.update(self._counted(member))
            assert member.driver is not None
            self._loop.kill(member.driver)
            self._stand(member, None)

    def observers(self, numbers: list[int]) -> dict[str, dict[str, int]]:
        """Who observes these members, in the view of a member of this process; they must be in it."""
        driver = next(member.driver for member in self._members.values() if member.driver is not None)
        view = driver.core.configuration
        assert view is not None
        return observers_of(view, map(name_of, numbers))

    def statistics(self) -> dict[str, Any]:
        """What the process has used, and what its members have sent, so far."""
        total = Counter(self._gone)
        for member in self._members.values():
            total.update(self._counted(member))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "max_rss": usage.ru_maxrss * 1024,
            "longest_round": self._loop.longest_round,
            "rounds": self._loop.rounds,
            "counters": dict(total),
        }

    @staticmethod
    def _counted(member: Member) -> Counter[str]:
        transport = member.transport
        return transport.counters + Counter(
            detection_datagrams=transport.detection_datagrams, detection_bytes=transport.detection_bytes
        )


def name_of(number: int) -> str:
    """The name of the member with this number."""
    return f"m{number}"


def say(**report: Any) -> None:
    """One line to the parent."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


async def execute(process: MemberProcess, lines: trio.abc.ReceiveStream, nursery: trio.Nursery) -> None:
    """Carry out commands until standard input ends."""
    buffer = b""
    while chunk := await lines.receive_some(65536):
        *complete, buffer = (buffer + chunk).split(b"\n")
        for line in complete:
            command = json.loads(line)
            match command["command"]:
                case "start":
                    seeds = tuple(Address.parse(seed) for seed in command["seeds"])
                    nursery.start_soon(process.start, seeds, command["begin"], command["spread"])
                case "kill":
                    process.kill(command["members"])
                    say(event="killed", seconds=time.monotonic())
                case "observers":
                    say(event="observers", observers=process.observers(command["members"]))
                case "statistics":
                    say(event="statistics", **process.statistics())


async def run(plan: Mapping[str, Any]) -> None:
    """Everything, until the parent closes our standard input."""
    _allow_many_descriptors()
    async with open_shared_loop() as loop:
        process = MemberProcess(loop, plan)
        say(event="bound", addresses=await process.bind(range(plan["seeds"])))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.report_views)
            await execute(process, trio.lowlevel.FdStream(os.dup(0)), nursery)
            nursery.cancel_scope.cancel()


def _allow_many_descriptors() -> None:
    """A member has two sockets, and streams come and go beside them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """``python -m bench.members.member_process PLAN``"""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes our input
    logging.basicConfig(level=logging.ERROR)
    # What the members hold lives as long as they do, and next to nothing of it hangs together in cycles: looking for
    # those as often as Python does by default costs a tenth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    trio.run(run, json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
