"""Whose disks are in trouble, and who is relieved for it: what hosts tell of themselves, and how they compare.

A disk that fails or is full says so itself.  One that is merely slow cannot know: its host tells what a sync takes, and
here it is compared with the others' median.  Everybody waits for the slowest disk of a chain, so that one that takes
many times as long as its peers is in the way of all writers, though nothing is wrong with any answer of its host.  A
host that has not answered at all for a while, though it is a member, is no better than the slowest.

Whoever is found slow is so until it has been fast for a good while, and by more than was too slow.  Two looks far
apart say nothing of the time between; but where nobody has looked for so long (another controller has), a disk that is
too slow and holds nothing that is written to was relieved for that, and still is.

No more hosts are relieved at a time than a minority: were most disks in trouble, there would be nowhere to go, and
moving everything would make it worse.  A full disk is relieved in any case, for it could not be used anyhow; and one
that failed, as long as another host stays, for writers do not get past it.

Pure; times are seconds of any steady clock.
Source: P. Huang et al., *Gray Failure: The Achilles' Heel of Cloud-Scale Systems*, HotOS 2017; H. Gunawi et al.,
*Fail-Slow at Scale*, FAST 2018 (peers are the measure).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from datastore_adapter.interface import DiskState, DiskTrouble

_CLOSE: Final = 3.0
"""Seconds; looks that follow each other as soon as can be are not always closer than that."""


@dataclass(frozen=True, slots=True)
class SlowDiskLimits:
    """When a disk counts as slow; times are seconds."""

    factor: float = 10.0
    """Times the median of the other hosts' syncs from which on a disk is too slow.  Lower: disks of different kinds in
    one cluster are taken for broken ones."""
    least: float = 0.1
    """A sync that takes less is fast enough, whatever the others take."""
    slow_after: float = 10.0
    """For so long it has to be too slow, or its host silent, before it is relieved.  Shorter: a burst of somebody
    else's writes moves data; longer: writers wait for it so long."""
    fast_after: float = 60.0
    """For so long it has to be twice as fast as that before it counts as any other."""

    def __post_init__(self) -> None:
        for name in ("factor", "slow_after", "fast_after"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.least < 0:
            raise ValueError(f"least must be 0 or more, not {self.least}")


@dataclass(frozen=True, slots=True)
class DiskWatch:
    """What is known after a look, and what the next one needs of it."""

    disks: Mapping[str, DiskTrouble] = field(default_factory=dict)
    """Hosts in trouble, each with the reason and whether it is relieved."""
    slow: Mapping[str, str] = field(default_factory=dict)
    """Of hosts that count as slow, whatever else is wrong with them, why."""
    answered: Mapping[str, float] = field(default_factory=dict)
    """When each host answered last, or was first missed."""
    since: Mapping[str, float] = field(default_factory=dict)
    """Of hosts that are too slow and do not count as slow yet, and of those that do and are fast again: since when."""
    looked: float = -math.inf
    """When that was."""

    @property
    def is_suspicious(self) -> bool:
        """Whether somebody may soon count as slow, so that the next look should not be far."""
        return any(host not in self.slow for host in self.since)


def watched(
    before: DiskWatch,
    now: float,
    hosts: Collection[str],
    told: Mapping[str, DiskTrouble],
    sync_seconds: Mapping[str, float],
    limits: SlowDiskLimits,
    idle: Collection[str] = frozenset(),
) -> DiskWatch:
    """After a look at ``hosts``: what they ``told`` of their disks, and what a sync takes on each that answered.

    ``idle``: those that hold nothing that is written to.
    """
    gap = now - before.looked
    answered = {host: now if host in sync_seconds else before.answered.get(host, now) for host in hosts}
    reasons = _too_slow(before, now, hosts, sync_seconds, answered, limits)
    slow: dict[str, str] = {}
    since: dict[str, float] = {}
    for host in sorted(hosts):
        counts = was_slow = host in before.slow
        if (host in reasons) is not was_slow:
            is_known = gap < _telling_gap(limits, was_slow=was_slow)
            began = before.since.get(host, now) if is_known else now
            is_over = now - began >= (limits.fast_after if was_slow else limits.slow_after)
            is_over |= not is_known and not was_slow and host in idle and host in sync_seconds
            counts = was_slow is not is_over
            if not is_over:
                since[host] = began
        if counts:
            slow[host] = reasons.get(host) or before.slow[host]
    disks = {host: DiskTrouble(DiskState.SLOW, why) for host, why in slow.items()}
    disks |= {host: trouble for host, trouble in told.items() if host in hosts}
    return DiskWatch(_relieved(before, disks, len(hosts)), slow, answered, since, now)


def _telling_gap(limits: SlowDiskLimits, *, was_slow: bool) -> float:
    """Two looks so far apart say nothing of the time between them."""
    return 2 * limits.fast_after if was_slow else max(limits.slow_after, _CLOSE)


def _too_slow(
    before: DiskWatch,
    now: float,
    hosts: Collection[str],
    sync_seconds: Mapping[str, float],
    answered: Mapping[str, float],
    limits: SlowDiskLimits,
) -> dict[str, str]:
    """Who is too slow at this moment, and why."""
    reasons: dict[str, str] = {}
    known = {host: sync_seconds[host] for host in hosts if sync_seconds.get(host, 0.0) > 0}
    is_heard = 2 * sum(host in sync_seconds for host in hosts) > len(hosts)
    for host in hosts:
        if host not in sync_seconds:
            # Nothing follows from one answer that is missing; but a disk that was too slow has not become faster.
            was_too_slow = host in before.slow
            if is_heard and (was_too_slow or now > answered[host]):
                reasons[host] = f"its log has not answered for {now - answered[host]:.0f} s"
            continue
        peers = [seconds for peer, seconds in known.items() if peer != host]
        if host not in known or not peers:
            continue
        usual = median(peers)
        most = max(limits.least, limits.factor * usual)
        if host in before.slow:
            most /= 2
        if known[host] >= most:
            reasons[host] = f"a sync takes {known[host]:.2g} s there, and {usual:.2g} s on other hosts"
    return reasons


def _relieved(before: DiskWatch, disks: Mapping[str, DiskTrouble], hosts: int) -> dict[str, DiskTrouble]:
    """Who is relieved of these: the worst first, and those that were before, as many as a minority."""

    def rank(host: str) -> tuple[bool, str]:
        earlier = before.disks.get(host)
        return earlier is None or not earlier.is_relieved, host

    def those(state: DiskState) -> list[str]:
        return sorted((host for host, trouble in disks.items() if trouble.state is state), key=rank)

    relieved = those(DiskState.FULL)
    minority = (hosts - 1) // 2
    places = max(minority - len(relieved), 1 if len(relieved) + 1 < hosts else 0)
    relieved += those(DiskState.FAILED)[:places]
    relieved += those(DiskState.SLOW)[: max(0, minority - len(relieved))]
    return {host: replace(disks[host], is_relieved=host in relieved) for host in sorted(disks)}


_WORDS = {DiskState.FULL: "is full", DiskState.FAILED: "has failed", DiskState.SLOW: "is slow"}


def disk_text(host: str, trouble: DiskTrouble) -> str:
    """What is wrong, for people."""
    return f"the disk of {host} {_WORDS[trouble.state]}"


def relief_text(trouble: DiskTrouble, hosts: int) -> str:
    """What is done about it where there are so many hosts, for people."""
    if hosts < 2:
        return "there is no other host"
    if trouble.is_relieved:
        return "its copies are to go elsewhere" if hosts > 2 else "the other host is to go on without it"
    return "too many are in trouble to relieve it" if hosts > 2 else "two hosts are too few to relieve it"


def disk_to_json(host: str, trouble: DiskTrouble) -> dict[str, Any]:
    """As in the status and in events."""
    return {
        "host": host,
        "state": str(trouble.state),
        "reason": trouble.reason,
        "relieved": trouble.is_relieved,
    }
