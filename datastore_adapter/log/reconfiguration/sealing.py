"""Sealing an epoch at the log units, and letting new replicas join their chains.

The part of a reconfiguration between the promise of the layout servers and their choice.  It cannot be undone.  A
sealed epoch takes no more writes; if the reconfiguration fails here, another has to come after it
(`Reconfiguration.complete`).

**When every replica of a segment is away** the log goes on without them, although they cannot be sealed.  What has to
be excluded is that a record acknowledged under the old epoch stands at an address that the new epoch gives to another.
Where one unit of the chain is sealed, its tail excludes that: no record is acknowledged before that unit has
it.  Where none is, somebody on the far side of a partition may go on writing to the chain for as long as it gets
addresses.  So the *sequencer* of the old epoch is sealed in their place: it hands out no address any more, and tells
the highest it ever gave.  The new epoch begins above it, and what the unsealed chain holds, and may still be given,
all lies below: in a closed extent that keeps its chain, unread by the new epoch until the hosts are back
(`log.layout.extent_states`).  The other segments get holes where an address was given and not used; activation
fills them.  An append acknowledged by the unsealed chain afterwards took its address before the seal, so its place
before the records of the new epoch contradicts nothing that anybody saw: whoever reads across the extent is told that
it is away.

If the sequencer is away as well, or has forgotten what it gave because it was restarted, nobody can tell how far the
chain was written, and the log waits: until one of them is back, or an operator says that the hosts never come
(`Layout.forgotten`).  Then what they acknowledged is lost whatever is done, and nothing needs to be excluded any more.

**A host that answers from another disk** than the document names (`log.storage.disk_identity`) is sealed, but
tells nothing: whatever stands there, it counts as one that knows no segment, and so does its sequencer.
Source: CORFU (NSDI 2012) section 2.3 (seal, then find the tail); that a sequencer knows an upper bound follows from its
section 2.2: nobody writes an address that was not handed out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from datastore_adapter.log.errors import CallError, EpochSealedError, ReplicaUnavailableError
from datastore_adapter.log.layout.chain import LayoutChain
from datastore_adapter.log.layout.change import LayoutTarget
from datastore_adapter.log.layout.document import EpochDocument, Segment
from datastore_adapter.log.messages import (
    Done,
    HostIdentity,
    Join,
    Refused,
    Reply,
    Seal,
    Sealed,
    SealTokens,
    TokensSealed,
    WrongEpoch,
)
from datastore_adapter.log.runtime.runtime import Peer, Runtime, call_all, hosts_at
from datastore_adapter.log.settings import LogSettings

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
    """Per segment, the hosts of its chains that answered and know nothing of it: their disks were emptied."""
    sealed: Mapping[str, tuple[str, ...]]
    """Per segment, the hosts of its chains that are sealed and know it."""
    away: tuple[str, ...] = ()
    """Segments of whose open chain nobody is there."""
    disks: Mapping[str, bytes] = field(default_factory=dict)
    """Of every host that was sealed, the disk that answered."""


async def seal(
    runtime: Runtime,
    settings: LogSettings,
    chain: LayoutChain,
    current: EpochDocument,
    target: LayoutTarget,
    away: Collection[str] = (),
) -> SealedEpoch:
    """Seal `current`'s epoch at the log units, and let the new replicas of `target` join.

    Every unit that stays in a chain must be sealed, because what stands on it alone belongs to the old
    epoch; of a chain that loses all its units, one must be, or the sequencer if they are all `away`.  A unit that
    answers but does not know the segment begins anew.  Raises EpochSealedError (somebody was faster) and
    ReplicaUnavailableError.
    """
    units = dict.fromkeys(host for hosts in target.chains.values() for host in hosts)
    for segment in current.layout.segments:
        units.update(dict.fromkeys(segment.open_extent.chain))
    # All others that are there, too: each may have come back with another disk.
    others = (*current.layout.holders(), *target.layout_servers, *target.sequencers[:1])
    units.update(dict.fromkeys(host for host in others if host not in away))
    addresses = chain.addresses(tuple(units), current)
    replies = await call_all(runtime, hosts_at(addresses), Seal(current.epoch), settings.call_timeout)
    for host, reply in replies.items():
        if isinstance(reply, WrongEpoch):
            raise EpochSealedError(host, reply.epoch)
    answers = {host: reply for host, reply in replies.items() if isinstance(reply, Sealed)}
    tails = {
        host: dict(reply.tails) if reply.disk == current.disks.get(host) else {}
        for host, reply in answers.items()
    }
    disks = {host: reply.disk for host, reply in answers.items()}
    found = replace(_evaluate(current, target, tails, away), disks=disks)
    if found.away:
        highest = await _seal_sequencer(runtime, settings, chain, current, found.away)
        found = replace(found, tail=max(found.tail, highest))
    # What was told of a disk holds for that one alone.
    sealed = {host: Peer(addresses[host], HostIdentity(host, disk)) for host, disk in disks.items()}
    await _join(runtime, settings, sealed, _joins(current, target, tails, found.tail, replies))
    return found


def _evaluate(
    current: EpochDocument, target: LayoutTarget, tails: Tails, away: Collection[str]
) -> SealedEpoch:
    """Whether enough units are sealed, and what they tell."""
    tail = current.layout.base
    forgetful: dict[str, tuple[str, ...]] = {}
    sealed: dict[str, tuple[str, ...]] = {}
    left: list[str] = []
    for segment in current.layout.segments:
        answered = [host for host in segment.hosts() if host in tails]
        sealed[segment.key] = tuple(host for host in answered if segment.key in tails[host])
        forgetful[segment.key] = tuple(host for host in answered if segment.key not in tails[host])
        hosts = segment.open_extent.chain
        own = [host for host in hosts if host in sealed[segment.key]]
        absent = [host for host in hosts if host not in tails]
        needed = [host for host in absent if host in target.chains[segment.key]]
        if not own and absent and not needed and all(host in away for host in absent):
            left.append(segment.key)
        elif needed or not own:
            names = ", ".join(needed or hosts)
            why = "could not be sealed; retry" if absent else _ALL_LOST
            raise ReplicaUnavailableError(f"segment {segment.key}: {names} {why}")
        tail = max([tail, *(tails[host][segment.key] for host in own)])
    return SealedEpoch(tail, forgetful, sealed, tuple(left))


async def _seal_sequencer(
    runtime: Runtime,
    settings: LogSettings,
    chain: LayoutChain,
    current: EpochDocument,
    segments: tuple[str, ...],
) -> int:
    """One above the highest address ever given to a writer, and none is given any more; 0: nobody needs to know."""
    layout = current.layout
    unsealed = {
        host
        for key in segments
        if (segment := layout.segment(key)) is not None
        for host in segment.open_extent.chain
    }
    sequencer = layout.sequencer
    if sequencer is None or unsealed.issubset(layout.forgotten):
        return 0
    names = ", ".join(sorted(unsealed))
    request = SealTokens(layout.data_epoch)
    reply: Reply | CallError
    try:
        reply = await runtime.call(chain.peer(sequencer, current), request, settings.call_timeout)
    except CallError as error:
        reply = error
    if isinstance(reply, WrongEpoch):
        raise EpochSealedError(sequencer, reply.epoch)
    if isinstance(reply, TokensSealed) and reply.disk == current.disks[sequencer]:
        return reply.tail
    if isinstance(reply, TokensSealed):
        why = "it came back without the disk it had"
    else:
        why = reply.message if isinstance(reply, Refused) else str(reply)
    raise ReplicaUnavailableError(
        f"segments {', '.join(segments)}: {names} are away, and the sequencer {sequencer} cannot tell how far they "
        f"were written ({why}); start one of them, or `rota log forget {names.replace(', ', ' ')}` if they never "
        "come back"
    )


def _joins(
    current: EpochDocument, target: LayoutTarget, tails: Tails, tail: int, replies: Mapping[str, Reply]
) -> list[tuple[str, Join]]:
    """Who has to join what, being new in a chain or having lost its disk.  `replies`: to the seal, by host."""
    joins: list[tuple[str, Join]] = []
    for key, hosts in sorted(target.chains.items()):
        segment = current.layout.segment(key)
        present = () if segment is None else segment.open_extent.chain
        for host in hosts:
            if host not in tails:
                reply = replies.get(host)
                why = f"refused: {reply.message}" if isinstance(reply, Refused) else "did not answer"
                raise ReplicaUnavailableError(f"segment {key}: {host} {why}; retry")
            if host not in present or key not in tails[host]:
                # What a disk that is not sound here holds counts as missing until it was compared.
                keep = _kept(segment, host) if key in tails[host] else ()
                joins.append((host, Join(current.epoch, key, keep, tail)))
    return joins


async def _join(
    runtime: Runtime, settings: LogSettings, peers: Mapping[str, Peer], joins: list[tuple[str, Join]]
) -> None:
    calls = [partial(runtime.call, peers[host], request, settings.call_timeout) for host, request in joins]
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
