"""The agent's end of a chaos run (``--chaos-control``): it reports every event of membership and takes faults.

For tests only, and off unless asked for.  The agent connects to a Unix socket that the chaos run listens at; when
that run is gone, so is the agent, so that no test leaves processes behind.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from chaos.processes import control_messages as control
from chaos.processes.faulty_files import FaultyFiles
from membership import Address, Cluster, FaultInjector, Faults
from membership.protocol.context.effects import Event, Evicted, Left, QuorumLost, QuorumRegained
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from rota.errors import AgentError, SettingsError

SAMPLE_INTERVAL = 1.0
HEADERS = 28
"""Bytes of IP and UDP headers of one datagram."""


@dataclass(eq=False)
class ChaosControl:
    """One agent's connection to its chaos run."""

    stream: trio.SocketStream
    name: str
    injector: FaultInjector = field(default_factory=FaultInjector)
    files: FaultyFiles = field(default_factory=FaultyFiles)
    """What the store keeps its files with."""
    counters: Counter[str] = field(default_factory=Counter)
    """The transport's; set when there is one."""
    cluster: Cluster | None = None
    """Set by `joined`, once this process is a member."""
    _accusing: bool = False
    _to_jump: float = 0.0
    _view_changed: trio.Event = field(default_factory=trio.Event)
    _size: int = 0
    _begun: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self._send, self._reports = trio.open_memory_channel[control.Report](math.inf)
        self._report(control.Hello(self.name, os.getpid()))

    async def wait_for_start(self) -> None:
        """Return when the run says that this agent may join."""
        await self._begun.wait()

    def joined(self, cluster: Cluster) -> None:
        """This process is a member now."""
        self.cluster = cluster
        self._jump_clock()

    def on_event(self, me: Member, event: Event) -> None:
        """An event of the protocol; called from within its task."""
        now = time.monotonic()
        match event:
            case ViewChanged(configuration):
                self._size = len(configuration)
                self._view_changed.set()
                self._report(
                    control.Installed(
                        now, me, configuration.id, configuration.encoded(), event.previous is None,
                        event.joined, event.left, event.failed, event.replaced, event.evicted, event.updated,
                    )
                )  # fmt: skip
            case QuorumLost() | QuorumRegained():
                self._report(control.Quorum(now, isinstance(event, QuorumLost)))
            case Evicted() | Left():
                self._size = 0
                self._report(control.Gone(now, isinstance(event, Evicted)))
            case _:
                pass

    def _report(self, report: control.Report) -> None:
        self._send.send_nowait(report)

    async def run(self, leave: Callable[[], None]) -> None:
        """Report and obey until the chaos run is gone; then return."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            nursery.start_soon(self._sample)
            nursery.start_soon(self._accuse_in_every_view)
            lines = control.Lines()
            with contextlib.suppress(trio.BrokenResourceError):
                async for data in self.stream:
                    for line in lines.feed(data):
                        self._obey(control.decode_order(line), leave)
            nursery.cancel_scope.cancel()

    def _obey(self, order: control.Order, leave: Callable[[], None]) -> None:
        match order:
            case control.Begin(faults):
                self.injector.faults = _faults(faults)
                self._begun.set()
            case control.Inject(faults):
                self.injector.faults = _faults(faults)
            case control.Accuse():
                self._accusing = True
                self._view_changed.set()
            case control.JumpClock(seconds):
                self._to_jump += seconds
                self._jump_clock()
            case control.FailCall(error, operation):
                self.files.failing.append((operation, getattr(errno, error)))
            case control.Disk(sync_seconds, is_quota_used_up):
                self.files.mend()
                self.files.sync_seconds = sync_seconds
                self.files.is_quota_used_up = is_quota_used_up
            case control.Leave():
                leave()

    def _jump_clock(self) -> None:
        """Let the clock jump, or as soon as there is a member whose clock it is."""
        if self.cluster is not None:
            self.cluster._driver.jump_clock(self._to_jump)  # nor is this anything for the public surface
            self._to_jump = 0.0

    async def _accuse_in_every_view(self) -> None:
        while True:
            await self._view_changed.wait()
            self._view_changed = trio.Event()
            if self._accusing and self.cluster is not None:
                shell = self.cluster._driver  # lying is nothing that the public surface offers
                for member in shell.subjects():
                    shell.report_check(member.incarnation, healthy=False, certain=True)

    async def _write(self) -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # the reader sees the end
            async for report in self._reports:
                await self.stream.send_all(control.encode(report))

    async def _sample(self) -> None:
        await self._begun.wait()
        # Each agent at its own moment of the second.
        next_at = trio.current_time() + random.Random(self.name).random() * SAMPLE_INTERVAL
        while True:
            await trio.sleep_until(next_at)
            self._report(control.Sample(time.monotonic(), self._size, *self._traffic()))
            # A process that was stopped does not make up for the seconds it missed.
            next_at = max(next_at + SAMPLE_INTERVAL, trio.current_time())

    def _traffic(self) -> tuple[int, int]:
        return (
            self.counters["datagram_bytes_received"]
            + HEADERS * self.counters["datagrams_received"]
            + self.counters["stream_bytes_received"],
            self.counters["datagram_bytes_sent"]
            + HEADERS * self.counters["datagrams_sent"]
            + self.counters["stream_bytes_sent"],
        )


def _faults(injected: control.Injected) -> Faults:
    return Faults(
        ingress_loss=injected.ingress_loss,
        egress_loss=injected.egress_loss,
        delay_min=injected.delay,
        delay_max=injected.delay,
        blocked_ingress=frozenset(map(Address.parse, injected.blocked_ingress)),
        blocked_egress=frozenset(map(Address.parse, injected.blocked_egress)),
    )


@asynccontextmanager
async def open_chaos_control(path: Path, name: str, leave: Callable[[], None]) -> AsyncIterator[ChaosControl]:
    """Connect, and obey while the block runs.  When the chaos run is gone the block is cancelled.

    Raises :class:`SettingsError` when nobody listens at ``path``, :class:`AgentError` when the run is gone.
    """
    try:
        stream = await trio.open_unix_socket(str(path))
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"chaos_control: {path}: {error}; this option is for `rota chaos run`, which listens there"
        ) from error
    chaos_control = ChaosControl(stream, name)
    ended = False
    async with stream, trio.open_nursery() as nursery:

        async def obey() -> None:
            nonlocal ended
            await chaos_control.run(leave)
            ended = True
            nursery.cancel_scope.cancel()

        nursery.start_soon(obey)
        yield chaos_control
        nursery.cancel_scope.cancel()
    if ended:
        raise AgentError("the chaos run that this agent belonged to is gone")
