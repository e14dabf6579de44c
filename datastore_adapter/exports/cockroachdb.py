"""``ALTER ... CONFIGURE ZONE USING`` statements for CockroachDB.

The format: the pages "CONFIGURE ZONE" and "Configure Replication Zones" of CockroachDB's documentation.  A segment is
what a zone configuration may be of: a table, or what ``SHOW ZONE CONFIGURATIONS`` calls ``TABLE``, ``DATABASE``,
``INDEX``, ``PARTITION ... OF`` or ``RANGE``.  Tags of hosts are the tiers of the nodes' ``--locality``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from datastore_adapter.exports.errors import CopiesError, HostTagError
from datastore_adapter.exports.placed import PlacedHost, PlacedSegment

RANGES = ("default", "meta", "liveness", "system", "timeseries", "tenants")
"""Ranges with a zone configuration of their own; there are no others."""
_PART = r'(?:"(?:[^"]|"")+"|[^\s".@]+)'
_NAME = rf"{_PART}(?:\.{_PART})*"
_TARGETS = (
    ("DATABASE", re.compile(rf"DATABASE (?P<database>{_PART})"), 1),
    ("TABLE", re.compile(rf"TABLE (?P<table>{_NAME})"), 3),
    ("INDEX", re.compile(rf"INDEX (?P<table>{_NAME})@(?P<index>{_PART})"), 3),
    ("PARTITION", re.compile(rf"PARTITION (?P<partition>{_PART}) OF TABLE (?P<table>{_NAME})"), 3),
    (
        "PARTITION",
        re.compile(rf"PARTITION (?P<partition>{_PART}) OF INDEX (?P<table>{_NAME})@(?P<index>{_PART})"),
        3,
    ),
)
"""What ``SHOW ZONE CONFIGURATIONS`` prints, and how many parts the dotted name may have."""


def zone_configurations(
    segments: Sequence[PlacedSegment], tiers: Sequence[str] = ("rack",)
) -> tuple[str, ...]:
    """One statement per segment, in the order given, each on a line of its own and ended with a semicolon.

    ``tiers``: the tags that are tiers of ``--locality``, the widest first.  The copies are pinned by number to
    localities, and the lease prefers the primary's, then those of the other copies in their order.  Raises
    :class:`~datastore_adapter.exports.errors.ExportError`.
    """
    statements: dict[str, str] = {}
    for segment in segments:
        target = _target(segment)
        if target in statements:
            raise segment.refused(f"is {target}, and so is another")
        statements[target] = f"ALTER {target} CONFIGURE ZONE USING {_configuration(segment, tiers)};"
    return tuple(statements.values())


def _configuration(segment: PlacedSegment, tiers: Sequence[str]) -> str:
    count = len(segment.hosts)
    if count == 2:
        raise CopiesError(
            f"segment {segment.key!r} has 2 copies, and CockroachDB takes 1, or 3 and more; change the "
            "replication factor"
        )
    localities = [_locality(host, tiers) for host in segment.hosts]
    constraints = {",".join(locality): number for locality, number in Counter(localities).items()}
    preferences = [list(locality) for locality in dict.fromkeys(localities)]
    return f"num_replicas = {count}, constraints = {_value(constraints)}, lease_preferences = {_value(preferences)}"


def _locality(host: PlacedHost, tiers: Sequence[str]) -> tuple[str, ...]:
    constraints = []
    for tier in tiers:
        value = host.tag(tier, "a tier of its node's --locality")
        if any(character in tier + value for character in ",="):
            raise HostTagError(
                f"host {host.name!r}: {tier}={value} is no tier of a locality, which has no comma and no second equals "
                "sign; tag the host and its node otherwise"
            )
        constraints.append(f"+{tier}={value}")
    return tuple(constraints)


def _value(value: object) -> str:
    """YAML in a literal of SQL: JSON whose texts are not escaped needlessly is YAML, too."""
    return _quoted(json.dumps(value, ensure_ascii=False), "'")


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote


def _target(segment: PlacedSegment) -> str:
    if not segment.name.isprintable():
        raise segment.refused("has characters that cannot be printed")
    kind, _, range_name = segment.name.partition(" ")
    if kind == "RANGE":
        if range_name not in RANGES:
            raise segment.refused(f"is none of the ranges that have a zone: {', '.join(RANGES)}")
        return segment.name
    text = segment.name if kind in {kind for kind, _, _ in _TARGETS} else f"TABLE {segment.name}"
    for kind, pattern, most in _TARGETS:
        match = pattern.fullmatch(text)
        if match is not None:
            parts = {key: _identifiers(value) for key, value in match.groupdict().items()}
            if all(len(identifiers) <= most for identifiers in parts.values()):
                return _clause(kind, {key: ".".join(identifiers) for key, identifiers in parts.items()})
    raise segment.refused(
        "is nothing that has a zone: a table as in shop.public.orders, or what SHOW ZONE CONFIGURATIONS prints, as in "
        "PARTITION west OF TABLE shop.public.orders (names with blanks, dots or quotes in double quotes)"
    )


def _identifiers(name: str) -> list[str]:
    """The parts of a dotted name, each in double quotes; what is not quoted is taken letter by letter."""
    return [part if part.startswith('"') else _quoted(part, '"') for part in re.findall(_PART, name)]


def _clause(kind: str, names: dict[str, str]) -> str:
    index = f"{names.get('table')}@{names.get('index')}"
    match kind:
        case "DATABASE":
            return f"DATABASE {names['database']}"
        case "TABLE":
            return f"TABLE {names['table']}"
        case "INDEX":
            return f"INDEX {index}"
        case _:
            owner = f"INDEX {index}" if "index" in names else f"TABLE {names['table']}"
            return f"PARTITION {names['partition']} OF {owner}"
