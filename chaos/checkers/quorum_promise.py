"""Who is out of reach of a majority says so in time: the promise of `Settings.quorum_timeout`, whatever the links do.

A side is a set of members that all reach each other, if only through others: a strongly connected component of the
graph of links. Who stands in a view of which its side is no majority must have said so once everything has been as it
is for as long as the promise allows. Judged is only what is beyond doubt: each link is open or cut, and no link,
process, view or clock has changed meanwhile.
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
        self._last: tuple[Mapping[str, Standing], Links | None] | None = None
        self._since = 0.0

    def look(self, now: float, standing: Mapping[str, Standing], links: Links | None) -> None:
        """`standing`: all that run, by name. `links`: None while one of them is neither open nor cut."""
        present = (standing, links)
        if links is None or present != self._last:
            self._last, self._since = present, now
        elif now - self._since > self._patience:
            for name, one in standing.items():
                if one.has_quorum and one.view is not None:
                    self._check(name, one.view, standing, links)

    def _check(self, name: str, view: Configuration, standing: Mapping[str, Standing], links: Links) -> None:
        side = [other for other in reached_by(name, links) if name in reached_by(other, links)]
        members = [
            other for other in side if view.index_of_incarnation(standing[other].incarnation) is not None
        ]
        if len(members) < classic_quorum(len(view)):
            self._fail(
                f"{name} has not said that it lost its majority: since {self._since:.3f} s it has reached only "
                f"{' '.join(sorted(members))} of the {len(view)} members of epoch {view.epoch}"
            )


def quorum_lost_bound(settings: Settings) -> float:
    """Seconds within which a side without a quorum says so."""
    return settings.quorum_timeout + (settings.probe_failures + 3) * settings.probe_interval


def reached_by(name: str, links: Links) -> set[str]:
    """To whom word of this one comes, if only through others; itself included."""
    found, left = {name}, [name]
    while left:
        new = set(links[left.pop()]) - found
        found |= new
        left += new
    return found
