"""What came of the store in a run: by the clients' record, the plans made, and how long copies were missing.

Values and pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from chaos.checkers.history import Record
from chaos.checkers.linearizability import contradictions
from chaos.checkers.log_order import broken_rules

_SHOWN = 5
"""Broken rules of one kind in a report."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Who is what in the store when the faults begin."""

    controller: str
    sequencer: str
    layout_servers: tuple[str, ...]
    racks: Mapping[str, str]
    """Rack of each host."""

    def hosts_in(self, rack: str) -> tuple[str, ...]:
        return tuple(host for host, its_rack in self.racks.items() if its_rack == rack)


def has_enough_copies(chain: Iterable[str], live: Mapping[str, str], copies: int) -> bool:
    """Whether these hosts hold enough copies: `copies` on live hosts, in different racks, or as even as possible over
    the racks there are. `live`: the rack of each live host."""
    held = Counter(live[host] for host in chain if host in live)
    if held.total() < min(copies, len(live)):
        return False
    racks = set(live.values())
    least, most = copies // len(racks), -(-copies // len(racks))
    return all(least <= held[rack] <= most for rack in racks)


class CopiesWatch:
    """When the rule was broken, from looks at it in order of time."""

    def __init__(self) -> None:
        self._broken_since: float | None = None
        self.spans: list[tuple[float, float]] = []

    def look(self, now: float, broken: int) -> None:
        """So many segments break the rule now."""
        if broken and self._broken_since is None:
            self._broken_since = now
        elif not broken and self._broken_since is not None:
            self.spans.append((self._broken_since, now))
            self._broken_since = None

    @property
    def holds(self) -> bool:
        """As of the last look."""
        return self._broken_since is None

    def shifted(self, seconds: float) -> CopiesWatch:
        """The same by a clock that is so many seconds ahead."""
        moved = CopiesWatch()
        moved.spans = [(begin + seconds, end + seconds) for begin, end in self.spans]
        moved._broken_since = None if self._broken_since is None else self._broken_since + seconds
        return moved

    def longest(self, since: float) -> float | None:
        """Seconds of the longest time that it was broken, and then held again; None: it never was."""
        return max((end - max(begin, since) for begin, end in self.spans if end > since), default=None)


@dataclass(frozen=True, slots=True)
class StorePromise:
    """A sentence that must be true of a store, whatever goes wrong."""

    sentence: str
    is_kept: bool
    is_of_safety: bool = False
    """It must hold even where more disks are lost than the store makes good by itself: what is missing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOutcome:
    """What a store showed from the first fault on, whichever store it is."""

    acknowledged_writes: int
    lost_writes: int
    """Acknowledged, and in the end something else is there, or nothing."""
    unreadable_writes: int
    """Of which the store says in the end that it cannot give them."""
    plans: tuple[int, ...] = ()
    """Plans that moved or replaced something, for each view change in order."""
    rule_holds: bool = True
    """At the end."""
    repair_seconds: float | None = None
    """The longest time the rule on copies and racks was broken; None: it never was."""
    longest_write_pause: float = 0.0
    """Longest time between two acknowledged writes, in seconds."""
    last_write_pause: float = 0.0
    """The same in the last third of the time."""
    lost_disks: int = 0
    """How often a host's disk was emptied, restored from a copy, or lost a file."""
    trouble: tuple[str, ...] = field(default=())
    """What went wrong besides, such as a control loop that ended with an error."""

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong in particular, in words."""
        return self.trouble

    @property
    def promises(self) -> tuple[StorePromise, ...]:
        """What is promised of this store, and whether it holds."""
        raise NotImplementedError

    def broken(self, *, everything: bool) -> list[str]:
        """What is promised and does not hold.

        `everything`: also that nothing is away in the end; otherwise only that nothing is missing silently.
        """
        return [
            promise.sentence
            for promise in self.promises
            if (everything or promise.is_of_safety) and not promise.is_kept
        ]

    def details(self) -> dict[str, object]:
        """For `to_json`, what only this store has."""
        return {}

    def to_json(self) -> dict[str, object]:
        return {
            "acknowledged_writes": self.acknowledged_writes,
            "lost_writes": self.lost_writes,
            "unreadable_writes": self.unreadable_writes,
            **self.details(),
            "plans_per_view_change": list(self.plans),
            "rule_holds": self.rule_holds,
            "repair_seconds": None if self.repair_seconds is None else round(self.repair_seconds, 3),
            "longest_write_pause_seconds": round(self.longest_write_pause, 3),
            "last_write_pause_seconds": round(self.last_write_pause, 3),
            "lost_disks": self.lost_disks,
            "findings": [*self.findings],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOutcome(StoreOutcome):
    """What the replicated log showed."""

    unanswered: int
    """Calls whose outcome the clients never learned; each may have taken effect or not."""
    operations: int
    """On the map, answered."""
    out_of_order: tuple[str, ...]
    """What the log does wrong as one order of all appends."""
    not_linearizable: tuple[str, ...]
    """Registers of the map whose answers no order explains."""

    @property
    def findings(self) -> tuple[str, ...]:
        return (*self.trouble, *self.out_of_order, *self.not_linearizable)

    @property
    def promises(self) -> tuple[StorePromise, ...]:
        return (
            StorePromise("no acknowledged write is lost", not self.lost_writes, True),
            StorePromise("every acknowledged write can be read in the end", not self.unreadable_writes),
            StorePromise("the log is one order of all appends", not self.out_of_order, True),
            StorePromise("every register of the map is linearizable", not self.not_linearizable, True),
            StorePromise(
                "in the end every segment has its copies, as even over the racks as can be", self.rule_holds
            ),
            StorePromise("clients and control loops go on to the end", not self.trouble),
        )

    def details(self) -> dict[str, object]:
        return {
            "unanswered": self.unanswered,
            "map_operations": self.operations,
            "log_in_order": not self.out_of_order,
            "linearizable": not self.not_linearizable,
        }


def log_outcome(
    record: Record,
    *,
    began: float,
    plans: Sequence[int],
    watch: CopiesWatch,
    lost_disks: int = 0,
    trouble: Sequence[str] = (),
) -> LogOutcome:
    """`began`: when the first fault happened, in the clients' time."""
    answered = [append for append in record.appends if append.address is not None]
    lost = sum(
        record.contents.get(append.address or 0) != append.value
        for append in answered
        if append.address not in record.unreadable
    )
    operations = [operation for operation in record.operations if operation.client != "judge"]
    opened = sum(operation.is_open for operation in operations)
    times = sorted([began] + [append.completed for append in answered if append.completed >= began])
    pauses = [(later - earlier, earlier) for earlier, later in pairwise(times)]
    late = times[-1] - (times[-1] - began) / 3
    return LogOutcome(
        acknowledged_writes=len(answered),
        lost_writes=lost,
        unreadable_writes=len(record.unreadable),
        unanswered=len(record.appends) - len(answered) + opened,
        operations=len(operations) - opened,
        out_of_order=tuple(
            [*record.misread, *broken_rules(record.appends, record.contents, record.unreadable)][:_SHOWN]
        ),
        not_linearizable=tuple(map(str, contradictions(record.operations)[:_SHOWN])),
        plans=tuple(plans),
        rule_holds=watch.holds,
        repair_seconds=watch.longest(began),
        longest_write_pause=max((pause for pause, _ in pauses), default=0.0),
        last_write_pause=max((pause for pause, since in pauses if since >= late), default=0.0),
        lost_disks=lost_disks,
        trouble=tuple(trouble),
    )
