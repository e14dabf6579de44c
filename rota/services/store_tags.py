"""What agents tell each other of themselves, with the view: where they answer over HTTP, which version they are, what
data are kept in, and where a host's servers are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from membership import Address, AddressError
from rota.errors import AgentError

if TYPE_CHECKING:  # the command line reads settings, and starts without trio
    from membership import Cluster, Member

STORE: Final = "store"
"""Absent: the log; `no`: none; else valkey, redis or ``ADOPTED``."""
ADOPTED: Final = "adopted"
"""Servers that somebody else runs."""
SERVERS: Final = "engine"
"""``host:port`` of each server, with commas between."""
HTTP: Final = "http"
"""The address of the HTTP interface, as the agent itself is told of it."""
VERSION_TAG: Final = "rota"
RESERVED: Final = frozenset({STORE, SERVERS, HTTP, VERSION_TAG})
"""Tags that are no operator's."""


def tags_of(member: Member) -> dict[str, str]:
    """The tags of a member, without what is told of its agent beside them."""
    return {key: value for key, value in member.metadata if key not in (HTTP, VERSION_TAG)}


def servers_of(cluster: Cluster) -> Callable[[str], Sequence[str]]:
    """``host:port`` of a host's servers, as the view says; none for a host that is not in it."""

    def servers(host: str) -> Sequence[str]:
        member = cluster.view.member(host)
        told = "" if member is None else member.attributes.get(SERVERS, "")
        return tuple(address for address in told.split(",") if _is_address(address))

    return servers


def check_store(cluster: Cluster, mine: Mapping[str, str]) -> None:
    """Raises :class:`AgentError` where others of the cluster keep their data in something else."""
    wanted = mine.get(STORE, "log")
    for member in cluster.view.members:
        found = member.attributes.get(STORE, "log")
        if found not in (wanted, "no"):
            raise AgentError(
                f"store: this host is for {_named(wanted)}, and {member.name} for {_named(found)}: give all hosts of a "
                "cluster the same --store, or --engine"
            )


def counts_streams(cluster: Cluster) -> bool:
    """Whether all hosts with the log know the question how much there is of each stream.

    One of 0.1 ends the connection over it, which it shares with appends.
    """
    versions = [
        member.attributes.get(VERSION_TAG, "0.1")
        for member in cluster.view.members
        if member.attributes.get(STORE) != "no"
    ]
    return not any(version.split(".")[:2] == ["0", "1"] for version in versions)


def _named(store: str) -> str:
    return "adopted servers (--engine)" if store == ADOPTED else store


def _is_address(text: str) -> bool:
    try:
        Address.parse(text)
    except AddressError:
        return False
    return True
