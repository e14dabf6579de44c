"""Hostile packets in numbers: everything a process does with a datagram, from the bytes to the core.

Spoiled packets by seed, given to real transports (with and without keys) and the real cores behind them, a member's
and a joiner's. Whatever leaves them as an exception is a failure, told with its packet. It is not guided by coverage;
the mutators know the structure instead.
"""

from __future__ import annotations

import logging
import random
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import trio

from chaos.fuzzing.packets import Samples, spoil_bytes, spoil_value
from membership.address import Address
from membership.protocol.context.refusals import public_name
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.messages import FullConfiguration, encode
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.runtime.driver import read_message
from membership.runtime.signing import Ed25519Signer
from membership.settings import Settings
from membership.transport.endpoint import Accept
from membership.transport.transport import Transport
from membership.wire.frames import UNKNOWN_CLUSTER, DatagramCodec
from membership.wire.key_ring import Key, KeyRing
from membership.wire.protection import UNPROTECTED, Protection
from membership.wire.sealing import SealedProtection

_CLUSTER = b"cluster-for-fuzz"
_MEMBERS = 8
_TICKS = 20
"""Ticks before a packet, at most, when much time has passed."""

_ROUND = 500
"""Packets after which the cores are made anew, so that they are not all spent on cores in odd states."""


@dataclass
class PacketFuzzReport:
    """What came of it. `failures`: number of the packet, the packet, and what was raised."""

    count: int
    seed: int
    packets: int = 0
    understood: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing escaped."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {**asdict(self), "ok": self.ok}

    def text(self) -> str:
        """The report for people."""
        lines = [
            f"{self.packets} packets, {self.understood} of them understood, seed {self.seed}:"
            f" {'nothing escaped' if self.ok else f'{len(self.failures)} FAILURES'}"
        ]
        lines += [f"  {count:>9} {reason}" for reason, count in sorted(self.dropped.items())]
        lines += [
            f"  packet {f['packet']}: {f['error']} ({f['where']})\n    {f['bytes']}" for f in self.failures
        ]
        return "\n".join(lines)


class _Endpoint:
    """An endpoint that holds what the fuzzer puts there, and sends nowhere."""

    exposed = False

    def __init__(self, address: Address) -> None:
        self.address = address
        self.arrived: deque[bytes] = deque()

    def send(self, datagram: bytes, destination: Address) -> bool:
        return True

    def receive(self) -> bytes | None:
        return self.arrived.popleft() if self.arrived else None

    def fileno(self) -> int | None:
        return None

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()

    async def connect(self, destination: Address) -> trio.abc.Stream:
        raise ConnectionRefusedError(111, "Connection refused")

    async def run(self, accept: Accept) -> None:
        await trio.sleep_forever()

    def close(self) -> None:
        self.arrived.clear()


class Target:
    """One process as far as packets go: transport, decoder, core."""

    def __init__(
        self, protection: Protection, view: Configuration, me: Member, counters: Counter[str]
    ) -> None:
        self._endpoint = _Endpoint(me.address)
        self._transport = Transport(
            self._endpoint, counters, cluster_id=view.cluster_id, protection=protection
        )
        self._counters = counters
        self._view = view
        self._me = me
        self._signer = Ed25519Signer() if protection.sealed else None
        self._wake_at = 0.0
        self.core = self._new_core()
        self.understood = 0

    def _new_core(self) -> Core:
        seed = self._view.members[1]
        core = Core(
            self._me,
            seeds=[seed.address],
            settings=Settings(),
            rng=random.Random(1),
            cluster_id=self._view.cluster_id,
            cache=ConfigurationCache(),
            signer=self._signer,
        )
        self._wake_at = core.start(0.0).wake_at
        if self._me in self._view:
            whole = FullConfiguration(seed.incarnation, self._view.epoch, self._view.id, self._view.encoded())
            self._wake_at = core.receive(seed.address, whole, 0.0).wake_at
        return core

    def renew(self) -> None:
        """A core as at the beginning; what the old one refused is added up."""
        for name, count in self.core.statistics().items():
            if "_dropped_" in (public := public_name(name)):
                self._counters[public] += count
        self.core = self._new_core()

    def take(self, datagram: bytes, now: float) -> None:
        """All that a process does with a datagram that arrived."""
        for _ in range(_TICKS):
            if self._wake_at > now:
                break
            self._wake_at = self.core.tick(now).wake_at
        self._endpoint.arrived.append(datagram)
        for arrival in self._transport.drain():
            message = read_message(arrival, self._counters)
            if message is None:
                continue
            self.understood += 1
            effects = self.core.receive(arrival.source, message, now)
            for send in effects.sends:
                encode(send.message)
            self._wake_at = effects.wake_at


class PacketFuzzer:
    """Targets, a corpus, and spoiled packets from them by number."""

    def __init__(self, seed: int) -> None:
        members = [_member(number) for number in range(_MEMBERS)]
        first = Configuration.found(members[0], _CLUSTER, Settings().rings)
        self._view = first.apply(Cut.of(members[1:]))
        stranger = _member(99)
        me = self._view.members[0]
        self.seed = seed
        self.counters: Counter[str] = Counter()
        ring = KeyRing([Key.of(b"k" * 32)])
        self._rng = random.Random(seed)
        corpus = Samples(self._view, stranger).all(0)
        self._corpus = [encode(message) for message in corpus]
        incarnations = tuple(member.incarnation for member in (*members, stranger))
        self._known = (self._view.id, _CLUSTER, UNKNOWN_CLUSTER, *incarnations)
        self._senders: list[tuple[DatagramCodec, list[Target]]] = []
        for keys in (None, ring):
            targets = [Target(_protection(keys), self._view, each, self.counters) for each in (me, stranger)]
            for sender in (self._view.members[1].address, stranger.address):
                for cluster_id in (_CLUSTER, _CLUSTER, _CLUSTER, UNKNOWN_CLUSTER):
                    self._senders.append((DatagramCodec(sender, cluster_id, _protection(keys)), targets))

    @property
    def understood(self) -> int:
        """Packets that reached a core."""
        return sum({id(t): t.understood for _, targets in self._senders for t in targets}.values())

    def packet(self) -> tuple[bytes, Target]:
        """The next packet, and whom it is for."""
        rng = self._rng
        codec, targets = rng.choice(self._senders)
        payload, other = rng.choice(self._corpus), rng.choice(self._corpus)
        match rng.randrange(12):
            case 10:  # as it is, so that the others meet cores in many states
                datagram = codec.seal(payload)
            case 0:  # from somebody without anything
                datagram = rng.randbytes(rng.randrange(200))
            case 1 | 2:  # on the way
                datagram = spoil_bytes(codec.seal(payload), rng, codec.seal(other))
            case 3 | 4 | 5:  # by somebody with the key, if there is one
                datagram = codec.seal(spoil_bytes(payload, rng, other))
            case _:
                datagram = codec.seal(spoil_value(payload, rng, self._known))
        return datagram[:9000], rng.choice(targets)

    def renew(self) -> None:
        """New cores."""
        for _, targets in self._senders:
            for target in targets:
                target.renew()


def _protection(keys: KeyRing | None) -> Protection:
    return UNPROTECTED if keys is None else SealedProtection(keys)


def _member(number: int) -> Member:
    identity = random.Random(number).randbytes(16)
    return Member.create(f"n{number}", Address("10.0.0.1", 1000 + number), identity, {"rack": "r1"})


@contextmanager
def _logs_resting() -> Iterator[None]:
    """One line per reason is plenty for a process, but here there are many processes' worth of them."""
    logger = logging.getLogger("membership")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


async def _run(report: PacketFuzzReport, progress: Callable[[float], None], most_failures: int) -> None:
    fuzzer = PacketFuzzer(report.seed)
    now = 0.0
    for number in range(report.count):
        if number % _ROUND == 0:
            fuzzer.renew()
            now = 0.0
            progress(number / report.count)
            await trio.lowlevel.checkpoint()
        datagram, target = fuzzer.packet()
        now += 0.001 if number % 25 else 2.0  # now and then all timers run down
        report.packets += 1
        try:
            target.take(datagram, now)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            failure = {
                "packet": number,
                "error": f"{type(error).__name__}: {error}",
                "where": f"{place.filename.rpartition('/')[2]}:{place.lineno}, in {place.name}",
                "bytes": datagram.hex(),
            }
            report.failures.append(failure)
            if len(report.failures) >= most_failures:
                break
        if target.core.status in (Status.LEFT, Status.EVICTED):
            target.renew()
    fuzzer.renew()
    report.understood = fuzzer.understood
    report.dropped = {name: count for name, count in sorted(fuzzer.counters.items()) if "_dropped_" in name}


def fuzz_packets(
    count: int,
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
    most_failures: int = 10,
) -> PacketFuzzReport:
    """Give `count` spoiled packets to real receivers. The same seed gives the same packets without keys."""
    report = PacketFuzzReport(count, seed)
    with _logs_resting():
        trio.run(_run, report, progress, most_failures)
    return report
