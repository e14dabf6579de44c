"""How one layout becomes the next: pure functions, the arithmetic of a reconfiguration.

Opening (new chains, and perhaps other segments, from the tail on), closing (new replicas take over the closed
extents, equal neighbours merge, what is trimmed is left out), dropping dead hosts (`extent_states`).  It trusts the
caller's word on what is sealed and copied.

Two rules keep data safe.  A chain with addresses that are not *settled* may only lose members, never gain
or reorder them: a record may stand on a prefix of such a chain only, and is completed from its head.  And the last
replicas of an extent stay named although they are dead, because their disks are the only place the data can
come back from.
Source: CORFU (NSDI 2012) section 2.3 (reconfiguration); R. van Renesse, F. Schneider, *Chain Replication*.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields

from msgspec.structs import replace

from datastore_adapter.log.errors import LayoutError
from datastore_adapter.log.layout.document import Extent, Layout, Segment
from datastore_adapter.log.layout.extent_states import Presence, after_change, settled_below, without
from datastore_adapter.log.layout.striping import Striping, from_address, keys_from, restriped


@dataclass(frozen=True, slots=True)
class LayoutTarget:
    """What a reconfiguration is to reach: per segment the chain of its open extent, and the roles."""

    chains: Mapping[str, tuple[str, ...]]
    layout_servers: tuple[str, ...]
    sequencers: tuple[str, ...]
    log_units: tuple[str, ...]
    retired: frozenset[str] = frozenset()
    """Segments that take no more records; they have chains all the same."""

    @classmethod
    def as_is(cls, layout: Layout) -> LayoutTarget:
        """The target that changes nothing."""
        chains = {segment.key: segment.open_extent.chain for segment in layout.segments}
        return cls(chains, layout.layout_servers, layout.sequencers, layout.log_units, layout.retired)

    def without(self, gone: Collection[str]) -> LayoutTarget:
        """The same target without dead hosts, where others remain.

        A dead sequencer without a spare is followed by the head of the first chain.
        """
        chains = {key: without(chain, gone) for key, chain in self.chains.items()}
        heads = tuple(chains[key][0] for key in sorted(chains))[:1]
        live = tuple(host for host in self.sequencers if host not in gone)
        return replace_fields(
            self,
            chains=chains,
            layout_servers=without(self.layout_servers, gone),
            sequencers=live or heads,
            log_units=without(self.log_units, gone),
        )

    @property
    def written(self) -> tuple[str, ...]:
        """The segments that the log is striped over."""
        return tuple(sorted(set(self.chains) - self.retired))


def absent_layout_server(servers: Sequence[str], live: Collection[str]) -> str | None:
    """Of an odd number of layout servers the one that stays named although it is not `live`: the others are even.

    Two of three are as many as two of two, but two of three also forgive the loss of one disk once the third is back.
    """
    absent = [host for host in servers if host not in live]
    is_even = (len(servers) - len(absent)) % 2 == 0
    return absent[0] if absent and is_even and len(absent) < len(servers) else None


def _voting(layout: Layout, wanted_hosts: tuple[str, ...], gone: Collection[str]) -> tuple[str, ...]:
    """The layout servers wanted and, where they are even, one of today's that is gone."""
    present = [host for host in layout.layout_servers if host in wanted_hosts or host in gone]
    live = [host for host in present if host not in gone or host in wanted_hosts]
    if len(wanted_hosts) % 2 or set(live) != set(wanted_hosts):
        return wanted_hosts
    forgotten = layout.forgotten
    spare = next((host for host in present if host not in live and host not in forgotten), None)
    return wanted_hosts if spare is None else (*wanted_hosts, spare)


def check_target(layout: Layout, target: LayoutTarget) -> None:
    """Refuse what this log cannot do; raises LayoutError."""
    forgotten = [segment.key for segment in layout.segments if segment.key not in target.chains]
    if forgotten:
        raise LayoutError(f"segment {forgotten[0]!r} has records: retire it, and say where they are to be")
    if target.chains and not target.written:
        raise LayoutError("all segments are retired: the log needs one that takes records")
    for key, chain in target.chains.items():
        if not chain:
            raise LayoutError(f"segment {key}: at least one host is needed")


def concerns_writers(layout: Layout, target: LayoutTarget) -> bool:
    """Whether the target needs the epoch sealed: another chain of an open extent, other segments, or another sequencer.

    Everything else (closed extents, layout servers, spare sequencers, intent) is invisible to a writer, so
    that writers may go on under the epoch they know.
    """
    if not layout.segments:
        return bool(target.chains)
    if target.sequencers[:1] != layout.sequencers[:1] or target.written != layout.all_stripings[-1].keys:
        return True
    return any(target.chains[segment.key] != segment.open_extent.chain for segment in layout.segments)


def open_layout(
    layout: Layout,
    target: LayoutTarget,
    *,
    epoch: int,
    tail: int,
    gone: Collection[str],
    activated: bool,
    away: Collection[str] | None = None,
    forgetful: Mapping[str, Collection[str]] | None = None,
    sealed: Mapping[str, Collection[str]] | None = None,
) -> Layout:
    """The layout of `epoch` in which writing goes on at `tail` on the chains wanted.

    `gone`: hosts whose replicas are dropped where others remain.  `activated`: `layout` had been activated,
    that is, all addresses below its base are settled.  `away`: of these, the hosts that are not there at all (None:
    all).  `forgetful`: per segment, live hosts that have lost its data (an emptied disk); they begin anew, with the
    open extent.  `sealed`: per segment, the hosts that have its data and are sealed, so that they can take back
    what was away.
    """
    check_target(layout, target)
    if tail < layout.base:
        raise LayoutError(f"tail {tail} lies below the epoch's base {layout.base}")
    stripings = restriped(layout.all_stripings, tail, target.written)
    after = replace(layout, stripings=stripings)
    presence = Presence(
        frozenset(gone),
        frozenset(gone if away is None else away),
        forgetful or {},
        sealed or {},
        frozenset(layout.forgotten),
    )
    segments = tuple(
        _open_segment(after, key, target.chains[key], tail, presence) for key in sorted(target.chains)
    )
    changed = replace(
        after,
        data_epoch=epoch,
        base=tail,
        settled_below=settled_below(layout) if activated else layout.settled_below,
        stripings=_shortest(stripings, segments),
    )
    return _with_roles(after_change(changed, segments, presence.away), target, gone)


def quiet_layout(
    layout: Layout,
    target: LayoutTarget,
    *,
    gone: Collection[str],
    activated: bool,
    away: Collection[str] | None = None,
) -> Layout:
    """The layout that differs only in what writers do not see; `concerns_writers` must be false.

    Nothing is sealed for it, so that what was away stays so.  Arguments as of `open_layout`.
    """
    if layout.segments and concerns_writers(layout, target):
        raise LayoutError("this change concerns writers: the epoch must be sealed first")
    presence = Presence(
        frozenset(gone), frozenset(gone if away is None else away), forgotten=frozenset(layout.forgotten)
    )
    segments = tuple(
        replace(
            segment,
            extents=merge(layout, segment.key, (*_closed(segment, presence), segment.open_extent)),
        )
        for segment in layout.segments
    )
    settled = settled_below(layout) if activated else layout.settled_below
    changed = after_change(replace(layout, settled_below=settled), segments, presence.away)
    return _with_roles(changed, target, gone)


def close_layout(layout: Layout, chains: Mapping[str, tuple[str, ...]], *, trimmed_below: int = 0) -> Layout:
    """The closed extents of the named segments get the given chains; the layout must be activated.

    The caller has verified that every host of the new chain holds every address of these extents.  What lies below
    `trimmed_below`, which some replica has trimmed, is left out, and retired segments with nothing else are too.
    """
    kept = keys_from(layout.all_stripings, trimmed_below)
    stripings = from_address(layout.stripings, trimmed_below)
    begin = stripings[0].start if stripings else 0
    segments = []
    for segment in layout.segments:
        closed = segment.closed_extents
        chain = chains.get(segment.key)
        if chain is not None:
            closed = tuple(replace(extent, chain=chain) if extent.is_held else extent for extent in closed)
        left = (extent for extent in closed if extent.end is not None and extent.end > trimmed_below)
        extents = merge(layout, segment.key, (*left, segment.open_extent))
        if segment.key in kept:
            first = replace(extents[0], start=max(extents[0].start, begin))
            segments.append(replace(segment, extents=(first, *extents[1:])))
    return replace(
        layout,
        segments=tuple(segments),
        stripings=_shortest(stripings, segments),
        settled_below=settled_below(layout),
        trimmed_below=max(layout.trimmed_below, trimmed_below),
    ).validate()


def merge(layout: Layout, key: str, extents: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """Join neighbours with equal chains and stripes; what is settled is known per address, not per extent."""
    merged: list[Extent] = []
    stripe = None
    for extent in extents:
        own = layout.stripe_of(key, extent.start)
        before = merged[-1] if merged else None
        if before is not None and (before.chain, before.state, stripe) == (extent.chain, extent.state, own):
            merged[-1] = replace(before, end=extent.end)
        else:
            merged.append(extent)
        stripe = own
    return tuple(merged)


def _open_segment(layout: Layout, key: str, chain: tuple[str, ...], tail: int, presence: Presence) -> Segment:
    """The segment as `layout`, which has the new stripings and the old segments, opens it at `tail`."""
    segment = layout.segment(key)
    if segment is None:
        return Segment(key, (Extent(tail, None, chain),))
    closed = _closed(segment, presence, chain)
    current = segment.open_extent
    stays = chain == current.chain and not set(chain).intersection(presence.leaving(key))
    if stays and layout.stripe_of(key, current.start) == layout.stripe_of(key, tail):
        return replace(segment, extents=merge(layout, key, (*closed, current)))
    if tail > current.start:
        # Where there are no addresses nothing can be away.
        holders = chain if layout.stripe_of(key, current.start) is None else current.chain
        closed = (*closed, presence.applied(key, Extent(current.start, tail, holders), chain))
    opened = Extent(max(tail, current.start), None, chain)
    return replace(segment, extents=merge(layout, key, (*closed, opened)))


def _closed(segment: Segment, presence: Presence, joining: Collection[str] = ()) -> tuple[Extent, ...]:
    return tuple(presence.applied(segment.key, extent, joining) for extent in segment.closed_extents)


def _with_roles(layout: Layout, target: LayoutTarget, gone: Collection[str]) -> Layout:
    changed = replace(
        layout,
        layout_servers=_voting(layout, target.layout_servers, gone),
        sequencers=target.sequencers,
        log_units=target.log_units,
        unresponsive=(),
    )
    return replace(changed, unresponsive=tuple(host for host in changed.hosts() if host in gone)).validate()


def _shortest(stripings: tuple[Striping, ...], segments: Sequence[Segment]) -> tuple[Striping, ...]:
    """None at all where one says what goes without saying."""
    everything = (Striping(0, tuple(segment.key for segment in segments)),)
    return () if stripings == everything else stripings
