"""Upper bounds for the size of records on the wire, computed without encoding them."""

from membership.protocol.messages import Alert
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member

GOSSIP_BYTES = 96
"""A gossip message without alerts and votes, at most."""

_ALERT_BYTES = 26
_REMOVAL_BYTES = 20
_MESSAGE_BYTES = 96


def record_bytes(member: Member) -> int:
    """A member's record."""
    return len(member.name.encode()) + len(member.host.encode()) + metadata_bytes(member.metadata) + 40


def metadata_bytes(metadata: tuple[tuple[str, str], ...]) -> int:
    """A member's metadata."""
    return sum(len(key.encode()) + len(value.encode()) + 7 for key, value in metadata)


def alert_bytes(alert: Alert) -> int:
    """One alert."""
    return _ALERT_BYTES if alert.member is None else _ALERT_BYTES + record_bytes(alert.member)


def cut_bytes(cut: Cut) -> int:
    """A message with a cut in it."""
    joins = sum(record_bytes(member) for member in cut.joins)
    updates = sum(_REMOVAL_BYTES + metadata_bytes(update.metadata) for update in cut.updates)
    return _MESSAGE_BYTES + joins + updates + _REMOVAL_BYTES * len(cut.removals)
