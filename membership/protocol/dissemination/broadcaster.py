"""Broadcasters: how many other members are told a member's news, and whether they tell it on.

The two that are shipped send the same messages, so members of one cluster may differ. Pace, contents and repair of
losses are the same for all (see gossip).
Source: Rapid, section 6, which ships these two.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from membership.settings import Settings, SettingsError


@runtime_checkable
class Broadcaster(Protocol):
    """Whom a member tells its news. Stateless, so that many members can share one."""

    @property
    def passes_on(self) -> bool:
        """Whether a member tells on what it heard from others."""

    def fanout(self, settings: Settings, others: int) -> int:
        """How many of the `others`, members besides this one, are told at a tick with news."""


@dataclass(frozen=True, slots=True)
class Epidemic:
    """A few random members are told, and tell it on: see `epidemic`."""

    members_told: int | None = None
    passes_on: bool = True

    def __post_init__(self) -> None:
        if self.members_told is not None and self.members_told < 1:
            raise SettingsError(f"gossip tells at least 1 member per tick, not {self.members_told}")

    def fanout(self, settings: Settings, others: int) -> int:
        """Bounded, however large the cluster."""
        return self.members_told or settings.gossip_fanout


@dataclass(frozen=True, slots=True)
class UnicastToAll:
    """Everybody is told, by the member whose news it is: see `unicast_to_all`."""

    passes_on: bool = False

    def fanout(self, settings: Settings, others: int) -> int:
        """All of them."""
        return others


def epidemic(fanout: int | None = None) -> Broadcaster:
    """A member tells `fanout` random others per tick (default: `Settings.gossip_fanout`), and they tell it on.

    The default. Everybody hears of it after about log(N) ticks, and no member sends more than `fanout` messages
    per tick, whatever N.
    """
    return Epidemic(fanout)


def unicast_to_all() -> Broadcaster:
    """A member tells its own news to all others at once, and nobody tells it on.

    For small clusters: one network delay instead of several ticks. Each report and each vote is N - 1 messages, so a
    view change costs N (N - 1) votes, and a member with news sends N - 1 datagrams in one go.
    """
    return UnicastToAll()
