"""The epoch document: what is agreed, once per epoch, about the log and about what operators want.

Immutable values with a deterministic encoding, and the arithmetic of extents.  The log is one write-once address
space 0, 1, 2, …, striped over segments (`log.layout.striping`).  A segment, the unit of placement, is a list of
extents ``[start, end)`` of global addresses, each with a chain of hosts, head first; the last extent is open (``end``
is None).  An extent lies within one stripe: where the striping changes it is split.  A closed one may be *away*:
nobody who holds it was there (`log.reconfiguration.sealing` says why the log can go on then).
Source: M. Balakrishnan et al., *CORFU: A Shared Log Design for Flash Clusters*, NSDI 2012, section 2
(projections); L. Lamport, D. Malkhi, L. Zhou, *Vertical Paxos*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import msgspec

from datastore_adapter.interface import NO_CAUSE, Cause
from datastore_adapter.log.errors import LayoutError, LayoutVersionError
from datastore_adapter.log.layout.striping import Stripe, Striping, addresses_in, check_stripings, stripes_of
from datastore_adapter.log.messages import HostIdentity
from datastore_adapter.log.runtime.runtime import Peer

NAME_LIMIT: Final = 255
SEGMENT_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DOCUMENT_VERSION: Final = 1
"""Higher with each change that an agent which does not know it must not overlook.  A field that may get lost in such an
agent's hands needs none: it has a default."""
DOCUMENT_LIMIT: Final = 16 << 20
"""Bytes, the largest document that is decoded.  10 000 segments with three replicas need about 1 MB."""


class ExtentState(IntEnum):
    """Whether an extent can be read."""

    HELD = 0
    AWAY = 1
    """None of its hosts was there when the document was decided.  A later one takes it back when they are."""
    FORGOTTEN = 2
    """An operator has declared it lost.  The hosts named are those that had it."""


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Global addresses ``start`` to ``end`` (exclusive; None: open) of one segment, and who holds them."""

    start: int
    end: int | None
    chain: tuple[str, ...]
    """Host names, head first.  Every one holds every acknowledged record of the extent.  Empty only if it is away and
    the last who had it came back without it."""
    state: ExtentState = ExtentState.HELD

    def __contains__(self, address: int) -> bool:
        return self.start <= address and (self.end is None or address < self.end)

    @property
    def is_held(self) -> bool:
        return self.state is ExtentState.HELD

    @property
    def head(self) -> str:
        return self.chain[0]

    @property
    def tail(self) -> str:
        return self.chain[-1]


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One share of the log: extents in order of address, without gaps; only the last one is open.

    The open extent of a retired segment has no addresses, and may never get any.
    """

    key: str
    extents: tuple[Extent, ...]

    @property
    def open_extent(self) -> Extent:
        return self.extents[-1]

    @property
    def closed_extents(self) -> tuple[Extent, ...]:
        return self.extents[:-1]

    def extent_of(self, address: int) -> Extent:
        """The extent that holds `address`; raises LayoutError for one below the first."""
        for extent in reversed(self.extents):
            if extent.start <= address:
                return extent
        raise LayoutError(f"address {address} lies before the first extent of segment {self.key}")

    def hosts(self) -> tuple[str, ...]:
        """Every host of any extent that is not forgotten: those of the open one in chain order, then as they come."""
        return self._hosts_of(ExtentState.HELD, ExtentState.AWAY)

    def serving_hosts(self) -> tuple[str, ...]:
        """The same without those that are named for what is away only."""
        return self._hosts_of(ExtentState.HELD)

    def _hosts_of(self, *states: ExtentState) -> tuple[str, ...]:
        ordered = dict.fromkeys(self.open_extent.chain)
        for extent in self.closed_extents:
            if extent.state in states:
                ordered.update(dict.fromkeys(extent.chain))
        return tuple(ordered)


class Layout(msgspec.Struct, frozen=True, dict=True):
    """Who does what."""

    data_epoch: int = 0
    """Epoch of the last change that concerned writers.  Every data request carries it; sealing an epoch
    stops all requests that carry it or a lower one."""
    base: int = 0
    """Global address at which `data_epoch` began.  The epoch is *activated*, that is, its sequencer works,
    once every lower address is settled: filled, and equally so on every replica of its chain."""
    settled_below: int = 0
    """Every lower address is known to be settled, so that any replica of its chain may serve it.  An extent that
    is away, and was not settled before, holds it down."""
    segments: tuple[Segment, ...] = ()
    layout_servers: tuple[str, ...] = ()
    sequencers: tuple[str, ...] = ()
    """The first is the active one."""
    log_units: tuple[str, ...] = ()
    unresponsive: tuple[str, ...] = ()
    stripings: tuple[Striping, ...] = ()
    """Which segments addresses belong to, each up to the start of the next.  Empty, as long as it never changed: to all
    segments, from address 0 on."""
    trimmed_below: int = 0
    """Every lower address is trimmed, and the layout does not say any more who held it."""
    pointers_from: int = 0
    """Back-pointers lead to every record from here on.  They may miss lower ones, because a sequencer began while an
    extent was away or forgotten: what lies below is found by searching."""
    forgotten: tuple[str, ...] = ()
    """Hosts of which an operator has said that they never come back with what they held."""
    forgotten_below: int = 0
    """Every forgotten address lies below; it grows with each extent that is."""

    @cached_property
    def all_stripings(self) -> tuple[Striping, ...]:
        """`stripings`, also when that is empty; none before there are segments."""
        if self.stripings or not self.segments:
            return self.stripings
        return (Striping(0, tuple(segment.key for segment in self.segments)),)

    @cached_property
    def _by_key(self) -> dict[str, Segment]:
        return {segment.key: segment for segment in self.segments}

    @cached_property
    def _striped(self) -> tuple[tuple[int, tuple[Segment, ...]], ...]:
        """Start and segments of each striping, the latest first."""
        return tuple(
            (striping.start, tuple(self._by_key[key] for key in striping.keys))
            for striping in reversed(self.all_stripings)
        )

    @cached_property
    def _stripes(self) -> tuple[tuple[int, dict[str, Stripe]], ...]:
        return tuple((striping.start, stripes_of(striping)) for striping in self.all_stripings)

    @property
    def retired(self) -> frozenset[str]:
        """The segments that take no more records."""
        written = self.all_stripings[-1].keys if self.segments else ()
        return frozenset(self._by_key).difference(written)

    @property
    def sequencer(self) -> str | None:
        return self.sequencers[0] if self.sequencers else None

    def segment_of(self, address: int) -> Segment:
        """The segment that `address` belongs to."""
        for start, segments in self._striped:
            if start <= address:
                return segments[address % len(segments)]
        if not self.segments:
            raise LayoutError("the layout has no segments yet")
        raise LayoutError(f"address {address} lies before the log's first, {self.all_stripings[0].start}")

    def segment(self, key: str) -> Segment | None:
        return self._by_key.get(key)

    def stripe_of(self, key: str, address: int) -> Stripe | None:
        """The stripe of segment `key` around `address`, thus in the extent there; None: it has no addresses there."""
        for start, stripes in reversed(self._stripes):
            if start <= address:
                return stripes.get(key)
        return None

    def hosts(self) -> tuple[str, ...]:
        """Every host the layout names in any part, sorted."""
        return self._hosts

    @cached_property
    def _hosts(self) -> tuple[str, ...]:
        named = {*self.layout_servers, *self.sequencers, *self.log_units}
        for segment in self.segments:
            for extent in segment.extents:
                named.update(extent.chain)
        return tuple(sorted(named))

    def holders(self) -> tuple[str, ...]:
        """Every host that the layout trusts to remember something: votes, the addresses given, or records; sorted."""
        return self._holders

    @cached_property
    def _holders(self) -> tuple[str, ...]:
        named = {*self.layout_servers, *self.sequencers[:1]}
        for segment in self.segments:
            for extent in segment.extents:
                named.update(extent.chain)
        return tuple(sorted(named))

    def serving_hosts(self) -> tuple[str, ...]:
        """The same without those that are named for what is away only."""
        named = {*self.layout_servers, *self.sequencers, *self.log_units}
        for segment in self.segments:
            named.update(segment.serving_hosts())
        return tuple(sorted(named))

    def away(self) -> Iterator[tuple[Segment, Extent]]:
        """The extents that are away, with their segments."""
        for segment in self.segments:
            for extent in segment.closed_extents:
                if extent.state is ExtentState.AWAY:
                    yield segment, extent

    def away_within(self, start: int, end: int) -> tuple[int, int] | None:
        """The first and the last address in ``[start, end)`` that only hosts that are away hold; None: none is."""
        held: list[int] = []
        for segment, extent in self.away():
            stripe = self.stripe_of(segment.key, extent.start)
            begin, until = max(start, extent.start), min(end, extent.end or end)
            if stripe is not None and (addresses := addresses_in(begin, until, stripe)):
                held += (addresses[0], addresses[-1])
        return (min(held), max(held)) if held else None

    def validate(self) -> Layout:
        """Check the invariants; returns self or raises LayoutError."""
        _check_names("layout_servers", self.layout_servers)
        _check_names("sequencers", self.sequencers)
        _check_names("log_units", self.log_units)
        if not self.layout_servers:
            raise LayoutError("a layout needs at least one layout server")
        if self.segments and not self.sequencers:
            raise LayoutError("a layout with segments needs a sequencer")
        keys = [segment.key for segment in self.segments]
        if keys != sorted(set(keys)):
            raise LayoutError("segment keys must be sorted and unique")
        if not 0 <= self.settled_below <= self.base:
            raise LayoutError(f"settled below {self.settled_below}, which must be 0 to the base {self.base}")
        check_stripings(self.stripings, frozenset(keys))
        for segment in self.segments:
            _check_segment(segment)
            if self.stripings:
                self._check_stripes(segment)
        return self

    def _check_stripes(self, segment: Segment) -> None:
        """No extent spans a change of the segment's stripe, and every address of it lies in one."""
        first = segment.extents[0].start
        starts = {extent.start for extent in segment.extents}
        before = None
        for start, stripes in self._stripes:
            stripe = stripes.get(segment.key)
            if stripe != before and start > first and start not in starts:
                raise LayoutError(
                    f"segment {segment.key}: an extent spans address {start}, where its stripe changes"
                )
            if stripe is not None and before is None and start < first > self.trimmed_below:
                raise LayoutError(f"segment {segment.key}: nobody holds its addresses from {start} on")
            before = stripe


class EpochDocument(msgspec.Struct, frozen=True, dict=True):
    """Everything agreed at one epoch."""

    epoch: int
    cluster_id: str
    layout: Layout
    hosts: dict[str, str]
    """Host name -> ``host:port``, of every host the layout names."""
    disks: dict[str, bytes] = {}
    """Host name -> identity of the disk that its part is entrusted to (`log.storage.disk_identity`): answers from
    another one are no votes, no tails and no copies.  Of every host that votes or holds records."""
    intent: dict[str, Any] = {}
    """The management plane's own: opaque here."""
    view_epoch: int = -1
    """The highest membership epoch on whose behalf a document was changed: an older controller is fenced."""
    plan_id: str = ""
    """Of the management plane's plan that this change is a part of, if any."""
    cause: Cause = NO_CAUSE
    """Who changed it, when and what for: a note for people."""
    version: int = DOCUMENT_VERSION

    def address_of(self, host: str) -> str:
        try:
            return self.hosts[host]
        except KeyError:
            raise LayoutError(f"the document of epoch {self.epoch} has no address of host {host!r}") from None

    def peer(self, host: str, address: str | None = None) -> Peer:
        """The host with the disk that its part is entrusted to, at `address` or where it is said to be here.

        Of a host that neither votes nor holds records the disk is not known.
        """
        if address is None and host in self._peers:
            return self._peers[host]
        return Peer(address or self.address_of(host), HostIdentity(host, self.disks.get(host, b"")))

    @cached_property
    def _peers(self) -> dict[str, Peer]:
        """Made once, for every request of a client needs one."""
        return {host: self.peer(host, address) for host, address in self.hosts.items()}

    def validate(self) -> EpochDocument:
        """Check the invariants; returns self or raises LayoutError."""
        if self.epoch < 0 or self.layout.data_epoch > self.epoch:
            raise LayoutError(f"epoch {self.epoch} with a layout of data epoch {self.layout.data_epoch}")
        missing = [name for name in self.layout.validate().hosts() if name not in self.hosts]
        if missing:
            raise LayoutError(f"no address of host {missing[0]!r} in the document of epoch {self.epoch}")
        unknown = [name for name in self.layout.holders() if name not in self.disks]
        if unknown:
            raise LayoutError(f"no disk of host {unknown[0]!r} in the document of epoch {self.epoch}")
        return self


class _Versioned(msgspec.Struct):
    """All that has to be readable of a document of whatever version."""

    version: int = DOCUMENT_VERSION


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(EpochDocument)
_version_decoder = msgspec.msgpack.Decoder(_Versioned)


def encode_document(document: EpochDocument) -> bytes:
    """Equal documents give equal bytes, whatever the order of their mappings."""
    return _encoder.encode(document)


def decode_document(data: bytes) -> EpochDocument:
    """The inverse of `encode_document`.

    Raises LayoutError on anything that is no valid document, LayoutVersionError on one of a later version.
    """
    if len(data) > DOCUMENT_LIMIT:
        raise LayoutError(f"a document of {len(data)} bytes; at most {DOCUMENT_LIMIT} are read")
    try:
        document = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _check_version(_version_of(data))
        raise LayoutError(f"not an epoch document: {error}") from None
    _check_version(document.version)
    return document.validate()


def _version_of(data: bytes) -> int:
    try:
        return _version_decoder.decode(data).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return DOCUMENT_VERSION


def _check_version(version: int) -> None:
    if version > DOCUMENT_VERSION:
        raise LayoutVersionError(
            f"the epoch document is of version {version}, and this agent knows {DOCUMENT_VERSION}; upgrade this agent"
        )


def genesis_document(cluster_id: str, founder: str, address: str, disk: bytes) -> EpochDocument:
    """Epoch 0 of a new cluster: the founder is the only layout server, and there are no segments."""
    layout = Layout(layout_servers=(founder,))
    return EpochDocument(0, cluster_id, layout, {founder: address}, {founder: disk}).validate()


def _check_segment(segment: Segment) -> None:
    if not SEGMENT_KEY.fullmatch(segment.key):
        raise LayoutError(
            f"{segment.key!r} is no segment key: 1 to 64 letters, digits, '.', '_' or '-', and a letter or "
            "digit first"
        )
    if not segment.extents:
        raise LayoutError(f"segment {segment.key} has no extent")
    position = segment.extents[0].start
    if position < 0:
        raise LayoutError(f"segment {segment.key} starts below address 0")
    for index, extent in enumerate(segment.extents):
        last = index == len(segment.extents) - 1
        if extent.start != position or (extent.end is None) != last:
            raise LayoutError(
                f"segment {segment.key}: extents must follow each other, only the last one open"
            )
        if extent.end is not None and extent.end <= extent.start:
            raise LayoutError(f"segment {segment.key}: extent {extent.start} is empty")
        if last and not extent.is_held:
            raise LayoutError(f"segment {segment.key}: the open extent must be held")
        if not extent.chain and extent.is_held:
            raise LayoutError(f"segment {segment.key}: extent {extent.start} has no replica")
        _check_names(f"segment {segment.key}", extent.chain)
        position = extent.end if extent.end is not None else position


def _check_names(where: str, names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        raise LayoutError(f"{where}: a host stands twice in {', '.join(names)}")
    for name in names:
        if not 0 < len(name) <= NAME_LIMIT:
            raise LayoutError(f"{where}: {name[:40]!r} is not a host name of 1 to {NAME_LIMIT} characters")
