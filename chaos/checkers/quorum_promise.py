"""Who is out of reach of a majority says so in time: the promise of `Settings.quorum_timeout`, whatever the links do.

A side is a set of members that all reach each other, if only through others: a strongly connected component of the
graph of links. Who stands in a view of which its side is no majority must have said so once that has been so for as
long as the promise allows. Judged is only what is beyond doubt: each link was open or cut, and neither who is on its
side, nor its view, nor its clock has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from consensus import classic_quorum
from membership.protocol.view.configuration import Configuration
from membership.settings import Settings

Links = Mapping[str, Collection[str]]
"""To whom messages of each come directly, by name."""
_LAG = 2.0
"""Probe intervals that the promise allows a process that lags, as one does that was paused."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a process stands that runs."""

    incarnation: bytes
    clock: float
    """Seconds that its clock is ahead: who leaps in time may begin anew."""
    view: Configuration | None
    has_quorum: bool = field(compare=False)
    """It stands in the view, and has not said that a majority is lost."""


class QuorumPromise:
    """Told again and again, and after every fault, how a cluster is; `fail` is called with what is broken."""

    def __init__(self, settings: Settings, fail: Callable[[str], object]) -> None:
        self._patience = quorum_lost_bound(settings) + _LAG * settings.probe_interval
        self._fail = fail
        self._since: dict[tuple[Standing, frozenset[bytes]], float] = {}
        """Since when each has stood there, with these incarnations on its side."""

    def look(self, now: float, standing: Mapping[str, Standing], links: Links | None) -> None:
        """`standing`: all that run, by name. `links`: None while one of them is neither open nor cut."""
        before, self._since = self._since, {}
        if links is None:
            return
        reached = {name: reached_by(name, links) for name in standing}
        for name, one in standing.items():
            side = frozenset(standing[other].incarnation for other in reached[name] if name in reached[other])
            since = self._since[one, side] = before.get((one, side), now)
            if one.has_quorum and one.view is not None and now - since > self._patience:
                self._check(name, one.view, side, since)

    def _check(self, name: str, view: Configuration, side: Collection[bytes], since: float) -> None:
        members = [member.name for member in view.members if member.incarnation in side]
        if len(members) < classic_quorum(len(view)):
            self._fail(
                f"{name} has not said that it lost its majority: since {since:.3f} s it has reached only "
                f"{' '.join(sorted(members))} of the {len(view)} members of epoch {view.epoch}"
            )


def quorum_lost_bound(settings: Settings) -> float:
    """Seconds within which a side without a quorum says so."""
    return settings.quorum_timeout + (settings.probe_failures + 3) * settings.probe_interval


def reached_by(name: str, links: Links) -> set[str]:
    """To whom word of this one comes, if only through others; itself included."""
    found, left = {name}, [name]
    while left and len(found) < len(links):
        new = set(links[left.pop()]) - found
        found |= new
        left += new
    return found
