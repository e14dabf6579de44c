"""Random scripts of faults: one seed, one script.

A generator that mixes crashes, restarts, partitions, one-way links, drops, delays, disorder, pauses, leaves,
evictions, changed metadata, newcomers, lost message types and coordinators that die between two phases, with
everything repaired after a while, so that most runs keep a quorum. Most clusters are tiny, where every quorum is
tight. In some, a majority goes in the end, and operators recover the cluster from the others: in time or too early,
rightly or in error, one of them or two. Some remember what was on their disks, and some carry a store: then the power
goes out for many or all, and disks are lost. Combinations that once found errors come more often than others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from chaos import faults
from chaos.errors import BadArgumentError
from chaos.faults import ERRORS, At, Hosts
from chaos.scenarios import with_lost_disks
from chaos.script import Script

_FIRST = 3.0
"""Seconds before the first fault may happen; many seeds thus hurt a cluster that is still forming."""
_KEEP_QUORUM = 0.9
"""Share of scripts in which crashes that would end all agreement are skipped."""
_RECOVERY = 1 / 6
"""Share of scripts in which a majority is lost, or seems to be, and operators recover the cluster."""
_RECOVERY_MESSAGES = ("RecoveryRequest", "RecoveryAnswer", "FullConfiguration")
_FEW_KINDS = 1 / 2
"""Share of scripts with a few kinds of faults only: in those shows what the others cover up.

Source: A. Groce et al., *Swarm Testing*, ISSTA 2012.
"""
_STORE = 8
"""Every so many-th script is one for a cluster with a store."""
_STORE_SIZES = (3, 7)
_REMEMBER = 4
"""Of so many scripts of members alone one is for members that remember."""
_COLD_STARTS = 0.3
"""Share of those in which nobody is told to found the cluster."""
_KEEP_DISKS = 0.6
"""Share of those in which no more disks are lost than the store makes good by itself."""
_PLACED = 6.0
"""Seconds by which the store of an unhurt cluster has placed everything; in most scripts nothing happens before."""
_SIZES = ((2, 7, 12), (8, 14, 6), (20, 40, 1))
"""Least and most members at the start, and the weight of such clusters among all."""
_LARGE = 20
_CALLS_TO_FAIL = ("fdatasync", "fsync", "pwrite", "create", "open", "pread", "replace", "unlink", "ftruncate")
_AFTER_WHICH_TO_DIE = (
    "Prepare", "Accept", "Promised", "Accepted", "Decided", "Gossip", "JoinObserved", "ObserversAssigned",
    "FullConfiguration", "PullCut",
)  # fmt: skip
_WHICH_TO_LOSE = (
    "Decided", "DecidedChain", "FullConfiguration", "Gossip", "CutBody", "PullCut", "Promised", "Accepted",
    "ObserveJoin", "JoinObserved", "ProbeAcknowledged", "EvictedNotice", "CatchUpRequest",
)  # fmt: skip


def random_script(seed: int, nodes: int | None = None, *, store: bool | None = None) -> Script:
    """The script of this seed, with `nodes` members at the start or as many as the seed says.

    `store`: whether they carry a store; None: the seed says.
    """
    if nodes is not None and nodes < 2:
        raise BadArgumentError(f"faults among fewer than 2 nodes show nothing, not {nodes}")
    least, most = _STORE_SIZES
    if store and nodes is not None and nodes < least:
        raise BadArgumentError(f"a store has its copies on {least} hosts, and these are {nodes}")
    if store is None:
        store = seed % _STORE == _STORE - 1 and (nodes is None or least <= nodes <= most)
    if store:
        return _script_with_store(seed, nodes)
    if seed % _REMEMBER == _REMEMBER - 2:
        return _script_with_memory(seed, nodes)
    rng = random.Random(f"rota fuzz {seed}")
    least, most, _ = rng.choices(_SIZES, [weight for _, _, weight in _SIZES])[0]
    count = rng.randint(least, most) if nodes is None else nodes
    duration = float(rng.randint(20, 40 if count >= _LARGE else 90))
    script = _Writer(rng, count, duration).script(seed)
    # From a source of its own, so that the scripts of other seeds are what they were before there were recoveries.
    chance = random.Random(f"rota fuzz recovery {seed}")
    return _with_recovery(chance, script) if chance.random() < _RECOVERY else script


def _script_with_store(seed: int, nodes: int | None) -> Script:
    """Operators recover nothing here: by that word of theirs writes may be lost."""
    rng = random.Random(f"rota fuzz with a store {seed}")
    count = rng.randint(*_STORE_SIZES) if nodes is None else nodes
    script = _StoreWriter(rng, count, float(rng.randint(30, 120))).script(seed)
    hosts = tuple(f"n{number}" for number in range(count))
    # Whoever remembers its last view comes back after any loss of power: no quorum needs to be kept.
    return replace(
        script,
        schedule=faults.in_order(with_lost_disks(script.schedule, hosts, rng)),
        keep_quorum=False,
        store=True,
        keep_disks=rng.random() < _KEEP_DISKS,
        # With few it takes few dead hosts to have no copy of something.
        copies=rng.choice((1, 2, 3)),
    )


def _script_with_memory(seed: int, nodes: int | None) -> Script:
    """Members whose disks outlive their power: whatever was cut, they are one cluster in the end, and never two.

    A few lose their disks or get an old copy of it, as many as the others can do without.
    """
    rng = random.Random(f"rota fuzz with memory {seed}")
    count = rng.randint(2, 7) if nodes is None else nodes
    is_cold = rng.random() < _COLD_STARTS
    script = _MemoryWriter(rng, count, float(rng.randint(20, 90)), is_cold=is_cold).script(seed)
    expect = rng.randint(2, max(2, min(count, 3))) if is_cold else 1
    return replace(script, keep_quorum=False, remember=True, expect=expect)


def _with_recovery(rng: random.Random, script: Script) -> Script:
    """The script and, towards its end, a lost majority and what operators make of that."""
    begin = rng.uniform(script.duration / 2, script.duration + 20.0)
    started = [
        at.fault.hosts for at in script.schedule if at.seconds < begin and isinstance(at.fault, faults.Start)
    ]
    names = sorted(
        {*(f"n{number}" for number in range(script.nodes)), *(name for hosts in started for name in hosts)}
    )
    rng.shuffle(names)
    left = rng.randint(1, max(1, (len(names) - 1) // 2))
    survivors, others = tuple(names[:left]), tuple(names[left:])
    slow = 3.0 if script.settings == "lan" else 1.0
    recoveries: list[At] = []

    def add(seconds: float, fault: faults.Fault) -> None:
        recoveries.append(At(round(seconds, 3), fault))

    groups = [survivors]
    if left > 1 and rng.random() < 0.3:  # two operators, who do not know of each other
        half = rng.randint(1, left - 1)
        groups = [survivors[:half], survivors[half:]]
    way = rng.choice(("crash", "crash", "partition", "pause"))
    if way == "crash":
        add(begin, faults.Crash(others))
    elif way == "pause":
        add(begin, faults.Pause(others))
    if way == "partition" or len(groups) > 1:
        add(begin, faults.Partition((*groups, others)))
    if rng.random() < 0.3:
        add(begin, faults.CrashOn(rng.choice(_RECOVERY_MESSAGES), survivors))
    if rng.random() < 0.3:
        kind = rng.choice(_RECOVERY_MESSAGES)
        add(begin, faults.DropMessages(kind, 0.5, tuple(names)))
    end = begin
    for group in groups:
        now = begin + slow * rng.uniform(3.0, 9.0)  # the quorum is said to be lost after about 4 s, or 11 s
        for _ in range(rng.randint(1, 3)):
            named = list(group)
            rng.shuffle(named)
            if rng.random() < 0.2:
                named = named[: rng.randint(1, len(named))]  # it forgets somebody
            elif rng.random() < 0.1:
                named.append(rng.choice(others))  # it takes somebody for alive
            add(now, faults.Recover(tuple(named), forced=rng.random() < 0.2))
            now += slow * rng.uniform(0.1, 8.0)
        end = max(end, now)
    if rng.random() < 0.7:  # otherwise they are gone for good
        back = rng.uniform(begin, end + slow * 20.0)
        add(back, faults.Heal())
        add(back, faults.Resume(others))
        add(back, faults.Start(others))
    for kind in _RECOVERY_MESSAGES:
        add(end, faults.DropMessages(kind, 0.0, tuple(names)))
    return replace(script, schedule=faults.in_order((*script.schedule, *recoveries)), keep_quorum=False)


class _Writer:
    first = 0.0
    """Seconds before which nothing happens."""

    def __init__(self, rng: random.Random, nodes: int, duration: float) -> None:
        self.rng = rng
        self.nodes = nodes
        self.duration = duration
        self.schedule: list[At] = []
        self.names = [f"n{number}" for number in range(nodes)]
        self.down_until: dict[str, float] = {}

    def script(self, seed: int) -> Script:
        settings = self.rng.choices(("local", "lan"), (4, 1))[0]
        writers = self._writers()
        if self.rng.random() < _FEW_KINDS:
            writers = tuple(self.rng.sample(writers, self.rng.randint(1, 4)))
        now = self.first + self._time(0.0, _FIRST)
        gap = self.rng.choice((2.0, 6.0, 12.0, 25.0))
        while now < self.duration:
            self.rng.choice(writers)(now)
            now += self._time(0.01, gap)
        keep_quorum = self.rng.random() < _KEEP_QUORUM
        return Script(self.nodes, seed, self.duration, faults.in_order(self.schedule), settings, keep_quorum)

    def _writers(self) -> tuple[Callable[[float], None], ...]:
        return (
            self._crash, self._crash, self._crash_many, self._restart, self._leave, self._evict, self._tag,
            self._newcomer, self._partition, self._one_way, self._one_way_cut, self._one_way_cut,
            self._drop, self._drop, self._pause, self._delay, self._weather,
            self._lose_messages, self._die_between_phases, self._jump_clock,
        )  # fmt: skip

    def _time(self, least: float, most: float) -> float:
        return round(self.rng.uniform(least, most), 3)

    def _add(self, seconds: float, fault: faults.Fault) -> None:
        self.schedule.append(At(round(seconds, 3), fault))

    def _some(self, most: int) -> Hosts:
        return tuple(
            sorted(self.rng.sample(self.names, self.rng.randint(1, max(1, min(most, len(self.names))))))
        )

    def _up(self, now: float) -> list[str]:
        return [name for name in self.names if self.down_until.get(name, 0.0) <= now]

    def _allowed_down(self, now: float) -> int:
        """How many more may go down and still leave a majority of all that were ever started."""
        return len(self._up(now)) - len(self.names) // 2 - 1

    def _down(self, now: float, hosts: Hosts, fault: faults.Fault) -> None:
        self._add(now, fault)
        for name in hosts:
            # Mostly long enough to be noticed; sometimes back before anybody does.
            back = now + self._time(*self.rng.choice(((0.1, 2.0), (5.0, 25.0))))
            self._add(back, faults.Start((name,)))
            self.down_until[name] = back + 10.0

    def _crash(self, now: float) -> None:
        if self._allowed_down(now) > 0:
            hosts = (self.rng.choice(self._up(now)),)
            self._down(now, hosts, faults.Crash(hosts))

    def _crash_many(self, now: float) -> None:
        allowed = self._allowed_down(now)
        if allowed > 1:
            hosts = tuple(sorted(self.rng.sample(self._up(now), self.rng.randint(2, allowed))))
            self._down(now, hosts, faults.Crash(hosts))

    def _restart(self, now: float) -> None:
        hosts = self._some(max(1, self._allowed_down(now)))
        self._add(now, faults.Restart(hosts))
        for name in hosts:
            self.down_until[name] = now + 10.0

    def _lose_messages(self, now: float) -> None:
        for kind in self.rng.sample(_WHICH_TO_LOSE, self.rng.randint(1, 3)):
            hosts = self._some(max(1, len(self.names) // 3))
            self._add(now, faults.DropMessages(kind, self.rng.choice((0.5, 1.0)), hosts))
            self._add(now + self._time(1.0, 20.0), faults.DropMessages(kind, 0.0, hosts))

    def _die_between_phases(self, now: float) -> None:
        """Usually together with something that needs a view change, or nobody would send such a message."""
        if self._allowed_down(now) < 1:
            return
        hosts = tuple(self._up(now))
        end = now + self._time(2.0, 12.0)
        for kind in self.rng.sample(_AFTER_WHICH_TO_DIE, self.rng.randint(1, 2)):
            self._add(now, faults.CrashOn(kind, hosts))
        self._crash(now)
        self._add(end, faults.Disarm(hosts))
        self._add(end, faults.Start(hosts))

    def _leave(self, now: float) -> None:
        if self._allowed_down(now) > 0:
            hosts = (self.rng.choice(self._up(now)),)
            self._down(now, hosts, faults.Leave(hosts))

    def _evict(self, now: float) -> None:
        if self._allowed_down(now) < 1:
            return
        asking, gone = self.rng.sample(self._up(now), 2)
        self._add(now, faults.Evict(asking, gone))
        back = now + self._time(3.0, 20.0)
        self._add(back, faults.Start((gone,)))
        self.down_until[gone] = back + 10.0

    def _tag(self, now: float) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self._add(now, faults.Tag(f"t{self.rng.randint(0, 3)}", self._some(2)))
            now += self._time(0.0, 2.0)

    def _newcomer(self, now: float) -> None:
        name = f"n{len(self.names)}"
        self.names.append(name)
        self._add(now, faults.Start((name,)))

    def _partition(self, now: float) -> None:
        names = list(self.names)
        self.rng.shuffle(names)
        cuts = sorted(self.rng.sample(range(1, len(names)), min(len(names) - 1, self.rng.randint(1, 2))))
        groups = [tuple(sorted(names[a:b])) for a, b in zip([0, *cuts], [*cuts, len(names)], strict=True)]
        self._add(now, faults.Partition(tuple(groups)))
        self._add(now + self._time(0.5, 20.0), faults.Heal())

    def _one_way_cut(self, now: float) -> None:
        """Some hear the others, who do not hear them."""
        half = len(self.names) // 2  # of an even number: nobody has a majority then
        count = self.rng.choice((half, self.rng.randint(1, len(self.names) - 1)))
        deaf = sorted(self.rng.sample(self.names, count))
        end = now + self._time(1.0, 30.0)
        for source in sorted({*self.names} - {*deaf}):
            for destination in deaf:
                self._add(now, faults.Block(source, destination))
                self._add(end, faults.Unblock(source, destination))

    def _one_way(self, now: float) -> None:
        for _ in range(self.rng.randint(1, 4)):
            source, destination = self.rng.sample(self.names, 2)
            self._add(now, faults.Block(source, destination))
            self._add(now + self._time(1.0, 20.0), faults.Unblock(source, destination))

    def _drop(self, now: float) -> None:
        make = self.rng.choice((faults.DropIngress, faults.DropEgress))
        hosts = self._some(len(self.names) // 2)
        self._add(now, make(self.rng.choice((0.2, 0.5, 0.8, 1.0)), hosts))
        self._add(now + self._time(1.0, 25.0), make(0.0, hosts))

    def _pause(self, now: float) -> None:
        hosts = self._some(len(self.names) // 2)
        self._add(now, faults.Pause(hosts))
        self._add(now + self._time(0.1, 20.0), faults.Resume(hosts))

    def _jump_clock(self, now: float) -> None:
        self._add(now, faults.JumpClock(self._time(0.5, 60.0), self._some(len(self.names) // 2)))

    def _delay(self, now: float) -> None:
        hosts = self._some(2)
        self._add(now, faults.Delay(self.rng.choice((0.02, 0.1, 0.5, 2.0)), hosts))
        self._add(now + self._time(1.0, 15.0), faults.Delay(0.0, hosts))

    def _weather(self, now: float) -> None:
        """It clears up again in the end."""
        self._add(now, faults.Loss(self.rng.choice((0.0, 0.02, 0.1, 0.3))))
        self._add(now, faults.Duplication(self.rng.choice((0.0, 0.05, 0.3, 1.0))))
        self._add(now, faults.Reordering(self.rng.choice((0.0, 0.05, 0.3, 1.0)), self._time(0.05, 1.0)))
        end = now + self._time(2.0, 30.0)
        for fault in (faults.Loss(0.0), faults.Duplication(0.0), faults.Reordering(0.0, 0.05)):
            self._add(end, fault)


class _DiskWriter(_Writer):
    """For hosts that remember: whose power goes out, whose disks fail, fill up or are slow, and whose addresses change
    hands."""

    def _writers(self) -> tuple[Callable[[float], None], ...]:
        return (
            *super()._writers(),
            *(self._cut_power,) * 4,
            self._restart,
            *self._of_disks(),
            *(self._swap_addresses,) * 3,
        )

    def _of_disks(self) -> tuple[Callable[[float], None], ...]:
        return (
            self._fill_disk, self._exceed_quota, self._fail_call, self._fail_call, self._slow_disk, self._short_writes,
            self._cut_power_after, self._cut_power_after,
        )  # fmt: skip

    def _cut_power(self, now: float) -> None:
        """Of some or all; then they are started one by one, in any order, some of them much later."""
        names = self.rng.sample(self.names, self.rng.randint(1, len(self.names)))
        self._add(now, faults.Crash(tuple(sorted(names))))
        most = self.rng.choice((1.0, 10.0, 40.0))
        for name in names:
            back = now + self._time(0.1, most)
            self._add(back, faults.Start((name,)))
            self.down_until[name] = back + 10.0

    def _fill_disk(self, now: float) -> None:
        hosts = self._some(2)
        self._add(now, faults.FillDisk(hosts))
        self._add(now + self._time(2.0, 20.0), faults.ClearDisk(hosts))

    def _exceed_quota(self, now: float) -> None:
        hosts = self._some(2)
        self._add(now, faults.ExceedQuota(hosts))
        self._add(now + self._time(2.0, 20.0), faults.MendDisk(hosts))

    def _fail_call(self, now: float) -> None:
        """Mostly the one that everything depends on."""
        operation = self.rng.choice((*_CALLS_TO_FAIL, "fdatasync", "fdatasync", "fsync"))
        error = self.rng.choice(("EIO", "EIO", *ERRORS))
        self._add(now, faults.FailCall(error, operation, self._some(1)))

    def _slow_disk(self, now: float) -> None:
        hosts = self._some(1)
        self._add(now, faults.SlowDisk(self.rng.choice((0.05, 0.5, 2.0)), hosts))
        self._add(now + self._time(2.0, 20.0), faults.SlowDisk(0.0, hosts))

    def _short_writes(self, now: float) -> None:
        hosts = self._some(2)
        self._add(now, faults.ShortWrites(self.rng.choice((0.1, 0.5, 1.0)), hosts))
        self._add(now + self._time(2.0, 20.0), faults.ShortWrites(0.0, hosts))

    def _cut_power_after(self, now: float) -> None:
        """In the middle of a commit, of what a start writes, or of what a reconfiguration does."""
        hosts = self._some(1)
        self._add(now, faults.CutPowerAfter(self.rng.randint(0, self.rng.choice((5, 40))), hosts))
        back = now + self._time(0.5, 15.0)
        self._add(back, faults.Start(hosts))
        if self.rng.random() < 0.3:  # and again as it starts
            self._add(back - 0.1, faults.CutPowerAfter(self.rng.randint(0, 20), hosts))
            self._add(back + self._time(1.0, 5.0), faults.Start(hosts))
        for name in hosts:
            self.down_until[name] = back + 10.0

    def _swap_addresses(self, now: float) -> None:
        """Some hosts go, perhaps with others; then as many more, which are back first, at the addresses of those."""
        hosts = self.rng.sample(self._up(now), len(self._up(now)))
        if len(hosts) < 3:
            return
        pairs = self.rng.choice((1, self.rng.randint(1, len(hosts) // 2)))
        gone, movers, others = hosts[:pairs], hosts[pairs : 2 * pairs], hosts[2 * pairs :]
        if self._allowed_down(now) > pairs:  # what those have who go together may be nobody else's
            together = tuple(others[: self._allowed_down(now) - pairs])
            self._down(now, together, faults.Crash(together))
        swapped = now + self._time(0.5, 12.0)
        self._add(now, faults.Crash(tuple(gone)))
        down_for = self._time(0.1, self.rng.choice((0.5, 12.0)))  # briefly, a majority stays
        self._add(max(now, swapped - down_for), faults.Crash(tuple(movers)))
        for first, second in zip(gone, movers, strict=True):
            self._add(swapped, faults.SwapAddresses(first, second))
        self._add(swapped, faults.Start(tuple(movers)))
        back = swapped + self._time(*self.rng.choice(((0.0, 2.0), (5.0, 40.0))))
        self._add(back, faults.Start(tuple(gone)))
        self.down_until.update(dict.fromkeys(gone, back + 10.0) | dict.fromkeys(movers, swapped + 10.0))


class _StoreWriter(_DiskWriter):
    """For a cluster with a store."""

    def __init__(self, rng: random.Random, nodes: int, duration: float) -> None:
        super().__init__(rng, nodes, duration)
        self.first = 0.0 if rng.random() < 0.2 else _PLACED


class _MemoryWriter(_DiskWriter):
    """For members alone, of which one may lose its disk, or get an old copy of it.

    Two clusters take a host that says something, forgets it, and says something else to others. So disks that are late
    or full, power cuts and partitions come together, while a view is changed or founded.
    """

    def __init__(self, rng: random.Random, nodes: int, duration: float, *, is_cold: bool) -> None:
        super().__init__(rng, nodes, duration)
        self._victim = None if is_cold or rng.random() < 0.4 else rng.choice((self.names[0], *self.names))
        if self._victim is not None:  # an old copy has a small view, from which few go on
            self._add(self._time(0.0, 1.5), faults.CopyDisk((self._victim,)))
        if rng.random() < 0.25:  # while the founder still decides alone
            self._mute(self._time(0.0, 0.5))

    def _writers(self) -> tuple[Callable[[float], None], ...]:
        # What one-way links and power cuts do together was found too late; so they come often.
        writers = (
            *super()._writers(), self._cut_power, self._one_way, self._one_way_cut, self._partition, self._evict,
            *(self._change_sides,) * 8, *(self._found_in_vain,) * 6, *(self._mute,) * 3,
        )  # fmt: skip
        return writers if self._victim is None else (*writers, self._lose_disk, self._lose_disk)

    def _hinder_disks(self, begin: float, end: float, hosts: Hosts) -> None:
        """What these hosts write meanwhile comes late to their disks, or not at all."""
        match self.rng.choice(("full", "slow", "slow", "quota")):
            case "full":
                self._add(begin, faults.FillDisk(hosts))
                self._add(end, faults.ClearDisk(hosts))
            case "slow":
                self._add(begin, faults.SlowDisk(self.rng.choice((0.1, 0.5, 2.0)), hosts))
                self._add(end, faults.SlowDisk(0.0, hosts))
            case "quota":
                self._add(begin, faults.ExceedQuota(hosts))
                self._add(end, faults.MendDisk(hosts))

    def _change_sides(self, now: float) -> None:
        """A majority is cut off from the others, and one of it is started again with those instead; they have lost
        their power, too, and often all of them, just before."""
        if len(self.names) < 3:
            return
        names = self.rng.sample(self.names, len(self.names))
        majority = len(names) // 2 + 1
        mover, stay, others = (names[0],), tuple(names[1:majority]), tuple(names[majority:])
        start = now
        if self.rng.random() < 0.4:
            start += self._time(0.1, 1.0)
            self._add(now, faults.Crash(tuple(names)))
            for name in names:
                self._add(start + self._time(0.0, 1.0), faults.Start((name,)))
        move = start + self._time(*self.rng.choice(((0.2, 4.0), (4.0, 15.0))))
        self._add(now, faults.Partition(((*mover, *stay), others)))
        if self.rng.random() < 0.8:
            self._hinder_disks(now, move, mover if self.rng.random() < 0.5 else self._some(3))
        self._add(move, faults.Crash((*mover, *others)))
        self._add(move, faults.Partition((stay, (*mover, *others))))
        self._add(move + self._time(0.1, 2.0), faults.Start((*mover, *others)))
        self._add(move + self._time(5.0, 30.0), faults.Heal())
        for name in (*mover, *others):
            self.down_until[name] = move + 10.0

    def _found_in_vain(self, now: float) -> None:
        """All lose their power, most come back, and whoever founds the cluster anew may die meanwhile."""
        names = self.rng.sample(self.names, len(self.names))
        late = names[: self.rng.randint(0, (len(names) - 1) // 2)]
        self._add(now, faults.Crash(tuple(sorted(names))))
        if self._victim is not None and self.rng.random() < 0.6:
            self._add(now, faults.RestoreDisk((self._victim,)))
        start = now + self._time(0.1, 1.0)
        again = start + self._time(10.0, 30.0)
        if self.rng.random() < 0.7:
            self._hinder_disks(now, again, self._some(3))
        for name in names:
            self._add(again if name in late else start + self._time(0.0, 0.5), faults.Start((name,)))
        for name in self.rng.sample(names, self.rng.randint(1, 2)):
            self._add(start + self._time(0.0, 5.0), faults.Crash((name,)))
            self._add(again, faults.Start((name,)))
        for name in names:
            self.down_until[name] = again + 10.0

    def _mute(self, now: float) -> None:
        """One whom nobody hears, or not what it says of a view, is started again, or all are."""
        host = self.rng.choice((self.names[0], *self.names))
        others = tuple(name for name in self.names if name != host)
        end = now + self._time(0.1, 5.0)
        if self.rng.random() < 0.3:
            self._add(now, faults.DropEgress(1.0, (host,)))
            self._add(end + 1.0, faults.DropEgress(0.0, (host,)))
        else:
            self._add(now, faults.DropMessages("FullConfiguration", 1.0, others))
            self._add(end + 1.0, faults.DropMessages("FullConfiguration", 0.0, others))
        hosts = (host,) if self.rng.random() < 0.6 else tuple(self.rng.sample(self.names, len(self.names)))
        self._add(end, faults.Crash(hosts))
        for name in hosts:
            back = end + self._time(0.1, 2.0)
            self._add(back, faults.Start((name,)))
            self.down_until[name] = back + 10.0

    def _lose_disk(self, now: float) -> None:
        assert self._victim is not None
        hosts = (self._victim,)
        self._add(max(0.0, now - self._time(0.0, 30.0)), faults.CopyDisk(hosts))
        self._add(now, faults.Crash(hosts))
        self._add(now, self.rng.choice((faults.WipeDisk, faults.RestoreDisk, faults.LoseFile))(hosts))
        back = now + self._time(0.1, 20.0)
        self._add(back, faults.Start(hosts))
        self.down_until[self._victim] = back + 10.0
