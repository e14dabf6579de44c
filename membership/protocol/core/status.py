"""The states in the life of a member, and which of them are final. The transitions are in `view_installation`."""

from enum import Enum


class Status(Enum):
    """Where a process stands."""

    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    LEFT = "left"
    EVICTED = "evicted"
    REFUSED = "refused"


FINISHED = (Status.LEFT, Status.EVICTED, Status.REFUSED)
"""From these nothing leads on: to rejoin, another core with another incarnation is needed."""
