"""Upper bounds for the size of records on the wire, computed without encoding them."""

from membership.cut import Cut
from membership.member import Member
from membership.messages import Alert

_ALERT_BYTES = 26
_REMOVAL_BYTES = 20
_MESSAGE_BYTES = 96


def record_bytes(member: Member) -> int:
    """A member's record."""
    text = len(member.name.encode()) + len(member.host.encode())
    for key, value in member.metadata:
        text += len(key.encode()) + len(value.encode()) + 7
    return text + 40


def alert_bytes(alert: Alert) -> int:
    """One alert."""
    return _ALERT_BYTES if alert.member is None else _ALERT_BYTES + record_bytes(alert.member)


def cut_bytes(cut: Cut) -> int:
    """A message with a cut in it."""
    joins = sum(record_bytes(member) for member in cut.joins)
    return _MESSAGE_BYTES + joins + _REMOVAL_BYTES * len(cut.removals)
