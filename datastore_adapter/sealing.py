"""Sealing an epoch at the log units, and letting new replicas join their chains.

What it is: the part of a reconfiguration between the promise of the layout servers and their choice.
What it is not: reversible.  A sealed epoch takes no more writes; if the reconfiguration fails here, another
has to come after it (`Reconfiguration.complete`).
Source: CORFU (NSDI 2012) section 2.3 (seal, then find the tail).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from datastore_adapter.document import EpochDocument, Segment
from datastore_adapter.errors import EpochSealedError, ReplicaUnavailableError
from datastore_adapter.layout_chain import LayoutChain
from datastore_adapter.layout_change import Wish
from datastore_adapter.messages import Done, Join, Seal, Sealed, WrongEpoch
from datastore_adapter.runtime import Runtime, call_all
from datastore_adapter.settings import LogSettings

Tails: TypeAlias = Mapping[str, Mapping[str, int]]
"""Host -> segment key -> tail, of the units that were sealed."""


_ALL_LOST: Final = (
    "answer, but lost what they held (emptied or damaged disks), and nobody else has it; restore one"
)


@dataclass(frozen=True, slots=True)
class SealedEpoch:
    """What sealing found out."""

    tail: int
    """One above the highest address ever written in the epoch or before."""
    forgetful: Mapping[str, tuple[str, ...]]
    """Per segment, the hosts of its chain that answered and know nothing of it: their disks were emptied."""


async def seal(
    runtime: Runtime, settings: LogSettings, chain: LayoutChain, current: EpochDocument, wish: Wish
) -> SealedEpoch:
    """Seal `current`'s epoch at the log units, and let the new replicas of `wish` join.

    Every unit that stays in a chain must be sealed, because what stands on it alone belongs to the old
    epoch; of a chain that loses all its units, one must be.  A unit that answers but does not know the
    segment begins anew.  Raises EpochSealedError (somebody was faster) and ReplicaUnavailableError.
    """
    units = dict.fromkeys(host for hosts in wish.chains.values() for host in hosts)
    for segment in current.layout.segments:
        units.update(dict.fromkeys(segment.open_extent.chain))
    addresses = chain.addresses(tuple(units), current)
    replies = await call_all(runtime, addresses, Seal(current.epoch), settings.call_timeout)
    for host, reply in replies.items():
        if isinstance(reply, WrongEpoch):
            raise EpochSealedError(host, reply.epoch)
    tails = {host: dict(reply.tails) for host, reply in replies.items() if isinstance(reply, Sealed)}
    found = _evaluate(current, wish, tails)
    await _join(runtime, settings, addresses, _joins(current, wish, tails, found.tail))
    return found


def _evaluate(current: EpochDocument, wish: Wish, tails: Tails) -> SealedEpoch:
    """Whether enough units are sealed, and what they tell."""
    tail = current.layout.base
    forgetful: dict[str, tuple[str, ...]] = {}
    for segment in current.layout.segments:
        hosts = segment.open_extent.chain
        sealed = [host for host in hosts if segment.key in tails.get(host, {})]
        absent = [host for host in hosts if host in wish.chains[segment.key] and host not in tails]
        if absent or not sealed:
            names = ", ".join(absent or hosts)
            why = "could not be sealed; retry" if absent or not set(hosts) <= tails.keys() else _ALL_LOST
            raise ReplicaUnavailableError(f"segment {segment.key}: {names} {why}")
        forgetful[segment.key] = tuple(host for host in hosts if host in tails and host not in sealed)
        tail = max(tail, *(tails[host][segment.key] for host in sealed))
    return SealedEpoch(tail, forgetful)


def _joins(current: EpochDocument, wish: Wish, tails: Tails, tail: int) -> list[tuple[str, Join]]:
    """Who has to join what, being new in a chain or having lost its disk."""
    joins: list[tuple[str, Join]] = []
    for key, hosts in sorted(wish.chains.items()):
        segment = current.layout.segment(key)
        present = () if segment is None else segment.open_extent.chain
        for host in hosts:
            if host not in tails:
                raise ReplicaUnavailableError(f"segment {key}: {host} did not answer; retry")
            if host not in present or key not in tails[host]:
                joins.append((host, Join(current.epoch, key, _kept(segment, host), tail)))
    return joins


async def _join(
    runtime: Runtime, settings: LogSettings, addresses: Mapping[str, str], joins: list[tuple[str, Join]]
) -> None:
    calls = [
        partial(runtime.call, addresses[host], request, settings.call_timeout) for host, request in joins
    ]
    for (host, request), answer in zip(joins, await runtime.gather(calls), strict=True):
        if isinstance(answer, WrongEpoch):
            raise EpochSealedError(host, answer.epoch)
        if not isinstance(answer, Done):
            raise ReplicaUnavailableError(f"segment {request.segment}: {host} could not join: {answer}")


def _kept(segment: Segment | None, host: str) -> tuple[tuple[int, int], ...]:
    """The closed ranges of which `host` is a replica already; it keeps them when it joins the open one."""
    if segment is None:
        return ()
    return tuple(
        (extent.start, extent.end)
        for extent in segment.closed_extents
        if extent.end is not None and host in extent.chain
    )
