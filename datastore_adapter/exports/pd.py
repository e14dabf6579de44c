"""Placement rules for PD, TiKV's Placement Driver, as ``pd-ctl config placement-rules rule-bundle save`` reads them.

The format: the page "Placement Rules" of TiDB's documentation.  A segment is a range of keys and is called
``START..END``, both in hexadecimal digits, as PD has them; either may be empty, for no bound.  Tags of hosts are the
labels of the TiKV stores.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

from datastore_adapter.exports.errors import ExportError
from datastore_adapter.exports.placed import HOST, PlacedHost, PlacedSegment

RANGE = re.compile(r"(?P<start>(?:[0-9a-fA-F]{2})*)\.\.(?P<end>(?:[0-9a-fA-F]{2})*)")
GROUP = "rota"
GROUP_INDEX = 100
"""Above the groups of PD (0) and of TiDB's placement policies (at most 80), which the rules take the place of, and
below that of TiFlash (120), whose learners stay."""
CHUNK = 8
"""Bytes of a key between two bytes that say how many of them count."""


class KeyType(StrEnum):
    """PD's ``key-type``: whether keys are encoded so that they compare as their bytes do."""

    TABLE = "table"
    TXN = "txn"
    RAW = "raw"


KeyRange = tuple[bytes, bytes]
"""From the first key up to the second, exclusive; an empty second one: to the end."""


def rule_bundles(
    segments: Sequence[PlacedSegment],
    labels: Sequence[str] = ("rack",),
    *,
    group: str = GROUP,
    key_type: KeyType = KeyType.TABLE,
) -> list[dict[str, Any]]:
    """One group with all rules; segments in the order of their keys, the rule for the leader first.

    ``labels``: the tags that are labels of the stores, the widest first.  Per segment there is one rule with the role
    ``leader`` where the primary is, and one with the role ``voter`` for each other place, so that PD may let another
    copy lead while the primary's store is drained.  The group overrides those below it: the ranges are governed by
    these rules alone.  Raises :class:`~datastore_adapter.exports.errors.ExportError`.
    """
    if not group or not group.isprintable():
        raise ExportError(
            f"the group of placement rules cannot be called {group!r}; use printable characters"
        )
    ranges = sorted(
        ((_key_range(segment, key_type), segment) for segment in segments), key=lambda each: each[0]
    )
    for (before, first), (after, second) in pairwise(ranges):
        if not before[1] or after[0] < before[1]:
            raise second.refused(f"shares keys with {first.key!r}")
    rules = [
        rule for key_range, segment in ranges for rule in _rules(segment, key_range, tuple(labels), group)
    ]
    return [{"group_id": group, "group_index": GROUP_INDEX, "group_override": True, "rules": rules}]


def _rules(
    segment: PlacedSegment, key_range: KeyRange, labels: tuple[str, ...], group: str
) -> list[dict[str, Any]]:
    if not segment.key or not segment.key.isprintable():
        raise segment.refused("cannot be the id of a rule")
    primary, *others = (_place(host, labels) for host in segment.hosts)
    wanted = [("leader", primary, 1), *(("voter", place, count) for place, count in Counter(others).items())]
    return [
        {
            "group_id": group,
            "id": f"{segment.key}-{number}",
            "index": number,
            "start_key": key_range[0].hex(),
            "end_key": key_range[1].hex(),
            "role": role,
            "count": count,
            "label_constraints": [
                {"key": label, "op": "in", "values": [value]}
                for label, value in zip(labels, place, strict=True)
            ],
            "location_labels": list(dict.fromkeys((*labels, HOST))),
        }
        for number, (role, place, count) in enumerate(wanted)
    ]


def _place(host: PlacedHost, labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(host.tag(label, "a label of its TiKV store") for label in labels)


def _key_range(segment: PlacedSegment, key_type: KeyType) -> KeyRange:
    match = RANGE.fullmatch(segment.name)
    if match is None:
        raise segment.refused(
            "is no range of keys, which are called START..END in hexadecimal digits, as in 7480..7481"
        )
    start, end = bytes.fromhex(match["start"]), bytes.fromhex(match["end"])
    if end and end <= start:
        raise segment.refused("ends before it starts")
    if key_type is not KeyType.RAW and not all(_is_encoded(key) for key in (start, end) if key):
        raise segment.refused(
            f"has keys that are not encoded as PD has them with key-type {key_type} (`tidb-ctl keyrange --encode` "
            "prints them so, and --key-type raw takes any)"
        )
    return start, end


def _is_encoded(key: bytes) -> bool:
    """Whether ``key`` begins with an encoded one: chunks of 8 bytes, each with a byte that counts the padding."""
    for start in range(0, len(key), CHUNK + 1):
        chunk, marker = key[start : start + CHUNK], key[start + CHUNK : start + CHUNK + 1]
        if not marker:
            return False
        padding = 0xFF - marker[0]
        if padding:
            return padding <= CHUNK and not any(chunk[CHUNK - padding :])
    return False
