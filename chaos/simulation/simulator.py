"""The deterministic simulator: sans-I/O processes on hosts, a network between them, virtual time.

An event loop over a calendar queue. The same seed gives the same run, event by event, in any Python process;
`trace_hash` proves it. It hosts the very objects that the agent runs. It knows nothing of membership: who is a member
and what must hold is said through `on_events` and `after_input`.
"""

from __future__ import annotations

import gc
import heapq
import math
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from chaos.errors import SimulationError
from chaos.recording.traffic import Traffic
from chaos.simulation.event_queue import TICKS_PER_SECOND, CalendarQueue
from chaos.simulation.host import Factory, Host
from chaos.simulation.network import Network, NetworkSettings
from chaos.simulation.process import Codec, Effects

_BACKLOG = 1000
"""Messages kept for a paused host, as its socket's buffer would; the rest is lost."""


_Entry = tuple[Host | None, Any, Any, int]
"""(host, sending host, message, size) delivers; (host, None, None, 0) wakes; (None, call, None, 0) looks;
(None, call, `_AT_ITS_TIME`, 0) calls at a time that cannot be put off."""
_AT_ITS_TIME = object()


class Simulator:
    """Hosts, their processes, and the network between them, in virtual time.

    `codec` (needed for byte accounting) encodes messages; with `through_codec` every datagram and frame
    is also decoded again at its receiver, as on a real wire.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        network: NetworkSettings | None = None,
        codec: Codec | None = None,
        through_codec: bool = False,
    ) -> None:
        if through_codec and codec is None:
            raise SimulationError("through_codec needs a codec")
        self.seed = seed
        self.rng = random.Random(seed)
        """For the schedule of faults; processes and the network have sources of their own."""
        self.network = Network(random.Random(self.rng.getrandbits(64)), network)
        self.hosts: dict[str, Host] = {}
        self.on_events: Callable[[Host, Sequence[Any]], None] | None = None
        """Called with the events of an effect, after its messages are on their way."""
        self.after_input: Callable[[Host], None] | None = None
        """Called after every start, message and tick of a process, after its events: for invariants."""
        self.before_send: Callable[[Host, Sequence[Hashable], Any], Sequence[Hashable]] | None = None
        """Asked with the sender, the destinations and the message; returns the destinations that remain."""
        self.delivered = 0
        """Messages that reached a running process."""
        self.sent = 0
        """Messages sent, one for each destination."""
        self.traffic = Traffic()
        self._codec = codec
        self._through_codec = through_codec
        self._by_address: dict[Hashable, Host] = {}
        self._queue: CalendarQueue[_Entry] = CalendarQueue()
        self._calls: list[int] = []
        self._tick = 0
        self._hash = 0
        self._last_message: Any = None
        self._last_size = 0
        self._last_checksum = 0
        self._last_data = b""

    # -- time -----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual time in seconds since the simulation began."""
        return self._tick / TICKS_PER_SECOND

    @property
    def next_at(self) -> float:
        """When something happens next, in seconds; infinite when nothing is left."""
        tick = self._queue.next_tick()
        return math.inf if tick is None else tick / TICKS_PER_SECOND

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Call `call` at virtual time `when` (seconds; not before now)."""
        tick = max(self._tick, _ticks(when))
        heapq.heappush(self._calls, tick)
        self._queue.push(tick, (None, lambda: self._called(call), _AT_ITS_TIME, 0))

    def _called(self, call: Callable[[], None]) -> None:
        heapq.heappop(self._calls)  # the earliest, as calls come in order of time
        call()

    @property
    def next_call_at(self) -> float:
        """When the next of the calls given to `call_at` and `call_after` is due; infinite when none is pending."""
        return self._calls[0] / TICKS_PER_SECOND if self._calls else math.inf

    def skip(self, seconds: float) -> None:
        """Let time pass in which nobody does anything: all that is due, and every host's clock, is put off.

        Not over a pending call: calls have times of their own.
        """
        ticks = _ticks(seconds)
        if self._calls and self._calls[0] < self._tick + ticks:
            raise SimulationError(f"a call is pending at {self.next_call_at} s; it can not be put off")
        self._queue.postpone(ticks, lambda entry: entry[2] is _AT_ITS_TIME)
        self._tick += ticks
        for host in self.hosts.values():
            host.clock_offset -= ticks / TICKS_PER_SECOND
            host.wake_tick = None if host.wake_tick is None else host.wake_tick + ticks
            host.queued_tick = None if host.queued_tick is None else host.queued_tick + ticks

    def observe(self, call: Callable[[], None], *, first: float, every: float) -> None:
        """Call `call` after `first` seconds and then every `every`: it may look, but not touch, and does not keep
        time from being leapt over."""

        def look() -> None:
            call()
            look_at(self.now + every)

        def look_at(when: float) -> None:
            self._queue.push(max(self._tick, _ticks(when)), (None, look, None, 0))

        look_at(self.now + first)

    def call_after(self, delay: float, call: Callable[[], None]) -> None:
        """Call `call` after `delay` seconds of virtual time."""
        self.call_at(self.now + delay, call)

    def run(self, until: float, *, stop: Callable[[], bool] | None = None) -> bool:
        """Run up to virtual time `until` (seconds); True when `stop` ended it before.

        `stop` is asked between ticks. Afterwards `now` is `until`, or the time at which it stopped.
        """
        last = _ticks(until)
        queue = self._queue
        with _collector_resting():
            while (tick := queue.next_tick()) is not None and tick <= last:
                self._tick = tick
                self._work(tick)
                if stop is not None and stop():
                    return True
        self._tick = max(self._tick, last)
        return False

    @property
    def trace_hash(self) -> int:
        """A hash over everything sent and delivered so far, in order: equal for equal runs."""
        return self._hash

    # -- hosts ----------------------------------------------------------------------------------

    def add_host(
        self,
        name: str,
        address: Hashable,
        factory: Factory,
        *,
        start_at: float | None = None,
        clock_offset: float = 0.0,
    ) -> Host:
        """Add a machine; with `start_at` (seconds) its process starts then."""
        if name in self.hosts or address in self._by_address:
            raise SimulationError(
                f"host {name} at {address} is there already; names and addresses are unique"
            )
        host = Host(self.network.add_host(), name, address, factory, clock_offset)
        self.hosts[name] = host
        self._by_address[address] = host
        if start_at is not None:
            self.call_at(start_at, lambda: self.start(host))
        return host

    def swap_addresses(self, first: Host, second: Host) -> None:
        """What is sent to the address of one reaches the other from now on."""
        first.address, second.address = second.address, first.address
        for host in (first, second):
            self._by_address[host.address] = host

    def start(self, host: Host) -> None:
        """Start a new process on `host`; after a crash this is the restart. No effect when one runs."""
        if host.process is not None:
            return
        host.process = host.factory(host.generation, random.Random(self.rng.getrandbits(64)))
        host.generation += 1
        self._apply(host, host.process.start(self.now + host.clock_offset))

    def crash(self, host: Host) -> None:
        """Kill the process on `host` at once. What it sent is still on its way."""
        host.process = None
        host.paused = False
        host.backlog.clear()
        host.commands.clear()
        host.wake_at = host.wake_tick = host.queued_tick = None

    def pause(self, host: Host) -> None:
        """Stop the process without its noticing (SIGSTOP): messages queue, timers are late."""
        if host.process is not None:
            host.paused = True

    def resume(self, host: Host) -> None:
        """Let a paused process go on: first the queued messages, then commands, then the timers."""
        if not host.paused:
            return
        host.paused = False
        backlog, host.backlog = host.backlog, []
        commands, host.commands = host.commands, []
        for source, message, size in backlog:
            self._deliver(host, source, message, size)
        for command in commands:
            self.command(host, command)
        if host.process is not None:
            self._apply(host, host.process.tick(self.now + host.clock_offset))

    def jump_clock(self, host: Host, seconds: float) -> None:
        """Set a host's clock ahead; its process is woken at once if that makes a timer due."""
        if host.process is not None and host.wake_tick is not None:
            # Before the offset changes: the deadline is that of the process's own clock.
            host.wake_tick = max(self._tick + 1, host.wake_tick - _ticks(seconds))
            if not host.paused:
                self._queue_wake(host, host.wake_tick)
        host.clock_offset += seconds

    def command(self, host: Host, call: Callable[[Any, float], Effects]) -> None:
        """Give the process on `host` a local command: `call(process, now)` returns its effects.

        A paused process gets it when it goes on, as it would a signal.
        """
        if host.paused:
            host.commands.append(call)
        elif host.process is not None:
            self._apply(host, call(host.process, self.now + host.clock_offset))

    # -- the loop -------------------------------------------------------------------------------

    def _work(self, tick: int) -> None:
        bucket = self._queue.bucket(tick)
        done = 0
        try:
            for host, source, message, size in bucket:  # grows while it is iterated over
                done += 1
                if host is None:
                    source()
                elif source is None:
                    self._wake(host)
                else:
                    self._deliver(host, source, message, size)
        finally:
            self._queue.drop(tick, done)

    def _wake(self, host: Host) -> None:
        tick = self._tick
        if host.queued_tick != tick:
            return  # an earlier wake-up took this one's place
        host.queued_tick = None
        if host.process is None or host.paused or host.wake_tick is None:
            return
        if host.wake_tick > tick:
            self._queue_wake(host, host.wake_tick)
            return
        self._hash = hash((self._hash, tick, host.index))
        host.wake_at = None
        self._apply(host, host.process.tick(tick / TICKS_PER_SECOND + host.clock_offset))

    def _deliver(self, host: Host, source: Host, message: Any, size: int) -> None:
        process = host.process
        if process is None:
            return
        if host.paused:
            if len(host.backlog) < _BACKLOG:
                host.backlog.append((source, message, size))
            return
        host.received_bytes += size
        self.delivered += 1
        if self._through_codec and self._codec is not None:
            message = self._codec.decode(message)
        tick = self._tick
        self._hash = hash((self._hash, tick, host.index, source.index, size))
        self._apply(
            host, process.receive(source.address, message, tick / TICKS_PER_SECOND + host.clock_offset)
        )

    def _apply(self, host: Host, effects: Effects) -> None:
        for send in effects.sends:
            self._send(host, send.destinations, send.message, send.reliable)
        if effects.wake_at != host.wake_at:
            self._set_wake(host, effects.wake_at)
        if effects.events and self.on_events is not None:
            self.on_events(host, effects.events)
        if self.after_input is not None:
            self.after_input(host)

    def _set_wake(self, host: Host, wake_at: float) -> None:
        host.wake_at = wake_at
        if wake_at == math.inf:
            host.wake_tick = None
        else:
            tick = _ticks(wake_at - host.clock_offset)
            if tick / TICKS_PER_SECOND + host.clock_offset < wake_at:
                tick += 1  # rounding must not wake it a hair too early
            # At least one tick on, so that a process that asks to be woken at once can not stop the time.
            host.wake_tick = tick = max(tick, self._tick + 1)
            if host.queued_tick is None or tick < host.queued_tick:
                self._queue_wake(host, tick)

    def _queue_wake(self, host: Host, tick: int) -> None:
        host.queued_tick = tick
        self._queue.push(tick, (host, None, None, 0))

    def _send(self, host: Host, destinations: Sequence[Hashable], message: Any, reliable: bool) -> None:
        if self.before_send is not None:
            destinations = self.before_send(host, destinations, message)
        payload = message
        if self._codec is not None and message is not self._last_message:
            data = self._codec.encode(message)
            self._last_message, self._last_size, self._last_checksum = message, len(data), crc32(data)
            self._last_data = data
        if self._through_codec:
            payload = self._last_data
        size = self._last_size
        push, by_address, source, now = self._queue.push, self._by_address, host.index, self._tick
        self._hash = hash((self._hash, now, source, len(destinations), self._last_checksum))
        self.sent += len(destinations)
        host.sent_bytes += size * len(destinations)
        for address in destinations:
            receiver = by_address.get(address)
            if receiver is None:
                continue
            if reliable:
                delay = self.network.stream(source, receiver.index)
                if delay is not None:
                    push(now + delay, (receiver, host, payload, size))
            else:
                for delay in self.network.datagram(source, receiver.index):
                    push(now + delay, (receiver, host, payload, size))

    # -- byte accounting ------------------------------------------------------------------------

    def sample_traffic(self, every: float = 1.0) -> None:
        """Record each running host's bytes of the last `every` seconds, from now on."""

        def sample() -> None:
            for host in self.hosts.values():
                if host.process is not None:
                    self.traffic.record(host.received_bytes / every, host.sent_bytes / every)
                host.received_bytes = host.sent_bytes = 0

        self.observe(sample, first=every, every=every)


def _ticks(seconds: float) -> int:
    """The first tick not before `seconds`, give or take a nanosecond of rounding."""
    return math.ceil(seconds * TICKS_PER_SECOND - 1e-6)


@contextmanager
def _collector_resting() -> Iterator[None]:
    # The queue holds hundreds of thousands of live tuples that no cycle refers to: collecting costs
    # up to half of the run and frees nothing.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
