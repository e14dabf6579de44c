"""A bounded exhaustive explorer of foundings: every schedule with few deviations from the plain one.

Three processes with disks, the very cores, start together. Plainly, messages and writes are done in the order in which
they began, and time passes when nothing is under way. A deviation is a power cut of one host between any two of them
(what was being written is lost) with or without a new start at once, a host that is cut off, or a message or write that
is late. Every schedule with up to so many deviations is run; one whose state was seen before, with as many deviations
left, is not run again. In the end everything is connected and started, and all have to come together.

Source: M. Emmi, S. Qadeer, Z. Rakamarić, *Delay-Bounded Scheduling* (POPL 2011); runs are repeated from the beginning,
as in stateless model checking (P. Godefroid, *Model Checking for Programming Languages using VeriSoft*, POPL 1997).
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from consensus import classic_quorum
from membership.address import Address
from membership.protocol import messages
from membership.protocol.context.effects import Effects, Evicted, StableStateToSave
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

SETTINGS = Settings(quorum_timeout=1.0, join_attempt_timeout=1.0, rpc_cap=0.5)
_EXPLORED = 1.0
"""Seconds from the start in which deviations begin: a founding takes less."""
_HEALED = 3.5
"""Seconds from the start until everything is connected and started: a founder has been given up by then."""
_TOGETHER = 90.0
"""Seconds in which all must have come together once everything is connected and started."""


class ExplorationError(AssertionError):
    """A schedule broke a promise."""


class Deviation(NamedTuple):
    """What happens instead of, or before, the step of this number."""

    step: int
    kind: str
    """`blink`: the host is started again at once; `cut power`: in the end; `cut off`: it and all others are; `late`:
    the next message or write comes after all others that are under way."""
    host: int = -1


KINDS = ("blink", "cut power", "cut off", "late")
Schedule = tuple[Deviation, ...]


class SteadyRandom(random.Random):
    """No jitter; identities that depend on their host and process only."""

    def random(self) -> float:
        return 0.5

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


@dataclass
class Host:
    """One machine."""

    number: int
    disk: StableState = field(default_factory=StableState)
    is_copy: bool = False
    expect: int = 1
    core: Core | None = None
    wake_at: float = 0.0
    processes: int = 0
    is_cut_off: bool = False
    stands_in: Configuration | None = None

    @property
    def address(self) -> Address:
        return address(self.number)


def address(number: int) -> Address:
    return Address("10.0.0.1", 1000 + number)


def member(number: int, process: int) -> Member:
    incarnation = hashlib.blake2b(bytes([number, process % 256, process // 256]), digest_size=16).digest()
    return Member.create(f"n{number}", address(number), incarnation)


@dataclass
class World:
    """All of them, and what is under way."""

    hosts: list[Host]
    cache: ConfigurationCache = field(default_factory=lambda: ConfigurationCache(1000))
    now: float = 0.0
    under_way: deque[tuple[Any, ...]] = field(default_factory=deque)
    late: deque[tuple[Any, ...]] = field(default_factory=deque)
    shown: dict[int, bytes] = field(default_factory=dict)
    """The view of each epoch that was in force anywhere."""
    acted: set[int] = field(default_factory=set)
    """Hosts that did anything in the last step."""
    spoke: set[int] = field(default_factory=set)
    """Hosts of which a message arrived in it."""

    def start(self, host: Host) -> None:
        if host.core is not None:
            return
        me = member(host.number, host.processes)
        host.processes += 1
        view = host.disk.view
        core = host.core = Core(
            me,
            seeds=[other.address for other in self.hosts if other is not host],
            settings=SETTINGS,
            rng=SteadyRandom(f"{me.incarnation!r}"),
            expect=host.expect if view is None else 1,
            cluster_id=None if view is None else view.cluster_id,
            stable=host.disk,
            is_copy=host.is_copy,
            has_disk=True,
            cache=self.cache,
        )
        self._perform(host, core.start(self.now))

    def cut_power(self, host: Host) -> None:
        host.core, host.stands_in = None, None
        self.under_way = deque(each for each in self.under_way if not _is_write(each, host))
        self.late = deque(each for each in self.late if not _is_write(each, host))

    def step(self) -> None:
        """The next thing that is under way, or else the next that is due."""
        self.acted.clear()
        self.spoke.clear()
        queue = self.under_way or self.late
        if queue:
            self._do(*queue.popleft())
            return
        running = [host for host in self.hosts if host.core is not None]
        self.now = max(self.now, min(host.wake_at for host in running))
        for host in running:
            if host.core is not None and host.wake_at <= self.now:
                self._perform(host, host.core.tick(self.now))

    def _do(self, kind: str, host: Host, core: Core | None, what: Any, source: Host | None) -> None:
        if kind == "write":
            if host.core is core is not None:
                if what.view is not None and (host.disk.view is None or what.view.id != host.disk.view.id):
                    host.is_copy = False
                host.disk = what
                self._perform(host, core.saved(what, self.now))
        elif host.core is not None and source is not None and not (host.is_cut_off or source.is_cut_off):
            self.spoke.add(source.number)
            self._perform(host, host.core.receive(source.address, what, self.now))

    def _perform(self, host: Host, effects: Effects) -> None:
        core = host.core
        assert core is not None
        self.acted.add(host.number)
        host.wake_at = effects.wake_at
        for send in effects.sends:
            for destination in send.destinations:
                receiver = next((each for each in self.hosts if each.address == destination), None)
                if receiver is not None:
                    self.under_way.append(("message", receiver, None, send.message, host))
        for event in effects.events:
            if isinstance(event, StableStateToSave):
                is_behind = any(_is_write(each, host) for each in self.late)
                queue = self.late if is_behind else self.under_way
                queue.append(("write", host, core, event.state, None))
            elif isinstance(event, ViewChanged) and not core.gathering:
                self._show(host, event.configuration)
            elif isinstance(event, Evicted):
                if event.superseded:
                    host.is_copy = True
                self.cut_power(host)
                self.start(host)
                return
        self._check()

    def _show(self, host: Host, view: Configuration) -> None:
        host.stands_in = view
        known = self.shown.setdefault(view.epoch, view.id)
        if known != view.id:
            raise ExplorationError(f"two views of epoch {view.epoch}")

    def _check(self) -> None:
        standing = Counter(host.stands_in for host in self.hosts if host.stands_in is not None)
        going_on = [view for view, count in standing.items() if count >= classic_quorum(len(view))]
        if len(going_on) > 1:
            raise ExplorationError(f"two clusters: {going_on}")
        if len({view.cluster_id for view in standing}) > 1:
            raise ExplorationError("views of two clusters are in force")

    @property
    def are_together(self) -> bool:
        views = {host.stands_in for host in self.hosts}
        return len(views) == 1 and None not in views and len(views.pop() or ()) == len(self.hosts)

    def deviate(self, deviation: Deviation) -> None:
        match deviation.kind:
            case "late":
                first = self.under_way.popleft()
                self.late.append(first)
                if _is_write(first, first[1]):  # a disk writes in order
                    self.late.extend(each for each in self.under_way if _is_write(each, first[1]))
                    self.under_way = deque(each for each in self.under_way if not _is_write(each, first[1]))
            case "cut off":
                self.hosts[deviation.host].is_cut_off = True
            case "cut power" | "blink":
                self.cut_power(self.hosts[deviation.host])
                if deviation.kind == "blink":
                    self.start(self.hosts[deviation.host])

    def possible(self, step: int) -> Iterator[Deviation]:
        """The deviations that make a difference now: whatever befalls a host that did nothing befell it before."""
        if self.under_way and isinstance(self.under_way[0][3], StableState | messages.FullConfiguration):
            yield Deviation(step, "late")
        for host in self.hosts:
            if host.core is not None and host.number in self.acted:
                yield Deviation(step, "blink", host.number)
                yield Deviation(step, "cut power", host.number)
            if not host.is_cut_off and host.number in self.acted | self.spoke:
                yield Deviation(step, "cut off", host.number)

    def was_seen(self, seen: dict[bytes, int], left: int) -> bool:
        """Whether a world that behaves alike from here on was seen, with at least as many deviations left."""
        fingerprint = self._fingerprint()
        if seen.get(fingerprint, -1) >= left:
            return True
        seen[fingerprint] = left
        return False

    def _fingerprint(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for host in self.hosts:
            digest.update(
                repr(
                    (host.number, host.is_cut_off, host.is_copy, _name(host.disk), _name(host.stands_in))
                ).encode()
            )
            digest.update(b"-" if host.core is None else _state(host.core, self.now).encode())
        for queue in (self.under_way, self.late):
            for kind, host, _, what, source in queue:
                number = -1 if source is None else source.number
                digest.update(repr((kind, host.number, number, _name(what))).encode())
        return digest.digest()


def _is_write(item: tuple[Any, ...], host: Host) -> bool:
    return item[0] == "write" and item[1] is host


def _name(what: Any) -> Any:
    match what:
        case Configuration():
            return what.id
        case StableState(view, accepted):
            return _name(view), tuple(_name(each) for each in accepted)
    return what


def _state(core: Core, now: float) -> str:
    """What decides how this core acts in a founding."""
    election, refounding = core._election, core._refounding
    peers = sorted((str(address), tuple(peer)) for address, peer in election._peers.items())
    return repr(
        (
            core.me,
            core.status,
            _name(core.configuration),
            core.gathering,
            peers,
            election.followed,
            election._turn,
            election._candidate,
            election.is_bound,
            [_name(view) for view in election.accepted],
            _name(election.proposed),
            sorted(election.past),
            refounding.in_force,
            round(election.deadline - now, 3),
            round(core._joiner.deadline - now, 3),
        )
    )


def run(make: Callable[[], World], schedule: Schedule) -> tuple[World, int]:
    """The world after the last deviation of this schedule, and the number of the next step."""
    world, step = make(), 0
    for deviation in schedule:
        while step < deviation.step:
            world.step()
            step += 1
        world.deviate(deviation)
        world._check()
    return world, step


def finish(world: World) -> None:
    """What was cut stays so for a while; then everything is connected and started, and all come together."""
    while world.now < _HEALED and any(host.core for host in world.hosts):
        world.step()
    for host in world.hosts:
        host.is_cut_off = False
        world.start(host)
    ends = world.now + _TOGETHER
    while not world.are_together:
        if world.now > ends:
            waiting = {host.number: host.core and host.core._election.progress for host in world.hosts}
            raise ExplorationError(f"not together after {_TOGETHER:g} s: {waiting}")
        world.step()


def explore(make: Callable[[], World], deviations: int, kinds: Collection[str] = KINDS) -> int:
    """Run every schedule with so many deviations of these kinds; how many were run.

    Raises ExplorationError, with the schedule.
    """
    seen: dict[bytes, int] = {}
    stack: list[Schedule] = [()]
    count = 0
    while stack:
        schedule = stack.pop()
        count += 1
        try:
            further = _explore(make, schedule, deviations, seen)
        except ExplorationError as error:
            raise ExplorationError(f"{error}, after {list(schedule)}") from None
        stack.extend(each for each in further if each[-1].kind in kinds)
    return count


def _explore(
    make: Callable[[], World], schedule: Schedule, deviations: int, seen: dict[bytes, int]
) -> Sequence[Schedule]:
    """Run this schedule to its end; those with one deviation more that begin like it."""
    left = deviations - len(schedule)
    world, step = run(make, schedule)
    found: list[Schedule] = []
    while left and world.now < _EXPLORED and not world.are_together:
        if world.was_seen(seen, left):
            return found
        found.extend((*schedule, deviation) for deviation in world.possible(step))
        world.step()
        step += 1
    if not world.was_seen(seen, 0):
        finish(world)
    return found
