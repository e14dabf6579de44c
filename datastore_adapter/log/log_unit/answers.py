"""What a log unit tells of the segments it holds: surveys, chunks, record ids, the latest addresses of streams.

Answers in pages, each of bounded size, that say where to go on.  They change nothing.  The log unit
(`log.log_unit.unit`) refuses sealed epochs before it asks here.
Source: CORFU (NSDI 2012) section 2.3 (what a reconfiguration and a sequencer's recovery need to know of a unit).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final

from datastore_adapter.log.layout.striping import Stripe, addresses_in
from datastore_adapter.log.log_unit.segment_store import SegmentStore
from datastore_adapter.log.messages import (
    Chunk,
    CountStreams,
    Entry,
    Ids,
    ReadChunk,
    ReadIds,
    ReadStreamTails,
    StreamCount,
    StreamCounts,
    StreamTails,
    Survey,
    SurveyReply,
)
from datastore_adapter.log.messages.codec import entries_checksum

SURVEY_LIMIT: Final = 1 << 16
"""Addresses one survey looks at; the asker goes on where it ended."""
SURVEY_ANSWERS: Final = 4096
STREAM_PAGE: Final = 1024
STREAM_SAMPLE: Final = 64
"""Records of a stream in a segment, the latest, whose size stands for that of all."""


def survey(store: SegmentStore, request: Survey) -> SurveyReply:
    """What is missing in the range, and what there is of a stream."""
    start = max(request.start, store.trimmed_below)
    candidates = addresses_in(start, max(start, request.end), Stripe(request.stripe, request.stripes))
    end = request.end if len(candidates) <= SURVEY_LIMIT else candidates[SURVEY_LIMIT]
    missing = store.missing(candidates[:SURVEY_LIMIT])
    if len(missing) > SURVEY_ANSWERS:
        end = missing[SURVEY_ANSWERS]
        del missing[SURVEY_ANSWERS:]
    found = [] if request.stream is None else store.stream_addresses(request.stream, start, end)
    if len(found) > SURVEY_ANSWERS:
        end = found[SURVEY_ANSWERS]
        del found[SURVEY_ANSWERS:]
        missing = [address for address in missing if address < end]
    retained = any(low < request.end and start < high for low, high in store.retained)
    return SurveyReply(tuple(missing), tuple(found), end, store.trimmed_below, retained)


def chunk(store: SegmentStore, request: ReadChunk) -> Chunk:
    """As many sound entries of the range as fit; the receiver sees what is missing, and asks another replica."""
    entries: list[tuple[int, Entry]] = []
    start = max(request.start, store.trimmed_below)
    candidates = addresses_in(start, max(start, request.end), Stripe(request.stripe, request.stripes))
    position = request.end if len(candidates) <= SURVEY_LIMIT else candidates[SURVEY_LIMIT]
    size = 0
    for address, entry in store.entries(store.written(candidates[:SURVEY_LIMIT])):
        size += len(entry.payload) + 64
        if entries and size > request.max_bytes:
            position = address
            break
        entries.append((address, entry))
    found = tuple(entries)
    return Chunk(found, entries_checksum(found), position, store.trimmed_below)


def record_ids(store: SegmentStore, request: ReadIds) -> Ids:
    """Which entries stand in the range; what is damaged is left out."""
    candidates = addresses_in(
        request.start, max(request.start, request.end), Stripe(request.stripe, request.stripes)
    )
    end = request.end if len(candidates) <= SURVEY_ANSWERS else candidates[SURVEY_ANSWERS]
    return Ids(tuple(store.record_ids(store.written(candidates[:SURVEY_ANSWERS]))), end)


def stream_tails(stores: Mapping[str, SegmentStore], request: ReadStreamTails, count: int) -> StreamTails:
    """The `count` latest addresses of every stream in the ranges asked for, all of which `stores` has."""
    answer: list[tuple[str, tuple[int, ...]]] = []
    asked = [stores[key] for key in sorted({key for key, _, _ in request.ranges})]
    for stream in _names_after(asked, request.after):
        if len(answer) == STREAM_PAGE:
            return StreamTails(tuple(answer), more=True)
        latest: list[int] = []
        for key, start, end in request.ranges:
            latest += stores[key].stream_addresses(stream, start, end)[-count:]
        answer.append((stream, tuple(sorted(latest, reverse=True)[:count])))
    return StreamTails(tuple(answer), more=False)


def stream_counts(stores: Mapping[str, SegmentStore], request: CountStreams) -> StreamCounts:
    """How much there is of every stream in the segments asked for, all of which `stores` has."""
    answer: list[StreamCount] = []
    asked = [stores[key] for key in sorted(set(request.segments))]
    for stream in _names_after(asked, request.after):
        if len(answer) == STREAM_PAGE:
            return StreamCounts(tuple(answer), more=True)
        counts = [store.count(stream, STREAM_SAMPLE) for store in asked]
        answer.append(
            StreamCount(stream, sum(records for records, _ in counts), sum(size for _, size in counts))
        )
    return StreamCounts(tuple(answer), more=False)


def _names_after(stores: list[SegmentStore], after: str | None) -> Iterator[str]:
    """The streams of `stores` in order of name, each once."""
    last = after
    for name in heapq.merge(*(sorted(store.streams) for store in stores)):
        if last is None or name > last:
            last = name
            yield name
