"""From the agreed view to the values the management plane works with.

Tags with a meaning: ``rack``, ``zone``, ``capacity`` (bytes), ``manager`` (``no``: never the controller) and ``store``
(``no``: carries nothing, so the management plane does not see it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgmt.placement.hosts import Host, HostView

if TYPE_CHECKING:
    from membership import Configuration, Member

DEFAULT_CAPACITY = 10**12


def host_view(configuration: Configuration) -> HostView:
    """Every member of one view builds an equal value."""
    ranks = {member.name: rank for rank, member in enumerate(configuration.by_seniority())}
    hosts = tuple(
        _host(member, ranks[member.name])
        for member in configuration.members
        if dict(member.metadata).get("store") != "no"
    )
    return HostView(configuration.epoch, hosts)


def _host(member: Member, seniority: int) -> Host:
    tags = dict(member.metadata)
    capacity = tags.get("capacity", "")
    return Host(
        name=member.name,
        address=str(member.address),
        rack=tags.get("rack", ""),
        zone=tags.get("zone", ""),
        # Another version's agent may carry a tag this one cannot read: never a reason to stop.
        capacity_bytes=int(capacity) if capacity.isascii() and capacity.isdigit() else DEFAULT_CAPACITY,
        is_manager=tags.get("manager", "yes") != "no",
        seniority=seniority,
        incarnation=member.incarnation.hex(),
    )
