"""Where a process stands in the life of a member, in both modes.

What it is: the states, and which of them are final.
What it is not: the transitions; see view_installation, and ensemble.client for the centralised mode.
"""

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
