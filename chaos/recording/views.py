"""What a backend notes of a run: the chain of views, and who said that its quorum was lost.

Values, the same from every backend.
"""

from __future__ import annotations

from dataclasses import dataclass

from membership.protocol.view.configuration import Configuration


@dataclass(frozen=True, slots=True)
class View:
    """One view of the chain, as it first appeared."""

    epoch: int
    size: int
    seconds: float
    """Virtual time at which the first process installed it."""
    joined: tuple[str, ...]
    """Names of the members that are not in the view before; a new incarnation of a name counts as joined."""
    removed: tuple[str, ...]
    """Names of the members that were in the view before; a replaced incarnation counts as removed."""


def difference(before: Configuration | None, after: Configuration, seconds: float) -> View:
    """The view `after` as it follows `before` in the chain."""
    old = {} if before is None else {member.incarnation: member.name for member in before.members}
    new = {member.incarnation: member.name for member in after.members}
    joined = tuple(name for incarnation, name in new.items() if incarnation not in old)
    removed = tuple(name for incarnation, name in old.items() if incarnation not in new)
    return View(after.epoch, len(after), seconds, joined, removed)


def describe(view: View) -> str:
    """A view change in a line."""
    changes = [
        f"{what} {', '.join(names)}"
        for what, names in (("with", view.joined), ("without", view.removed))
        if names
    ]
    return f"view {view.epoch}, {view.size} members: {'; '.join(changes)}"


@dataclass(frozen=True, slots=True)
class QuorumNotice:
    """A process said that its quorum is lost, or regained."""

    seconds: float
    host: str
    lost: bool
