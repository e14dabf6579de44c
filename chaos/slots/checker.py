"""What must be true of the servers in the end: one primary for each slot, copies in different racks, no open slot.

A pure function of what every server said, and a record of evidence for each rule that does not hold. But for the
parser of CLUSTER NODES nothing of the product's own reading of the cluster is used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from chaos.checkers.store_outcome import has_enough_copies
from datastore_adapter.slots.state.nodes_table import NodesTable
from datastore_adapter.slots.state.slot_ranges import SLOTS, Ranges, count, of_slots, slots_of, text_of

_SHOWN = 5
"""Ranges in a sentence; the evidence has all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one server said when it was asked."""

    address: str
    host: str
    """Name of the host it runs on."""
    table: NodesTable | None
    """What it knows of the cluster; None: it gave no answer."""
    is_linked: bool = False
    """A replica: it has its primary's data, and follows."""
    why: str = ""
    """Without an answer: what came instead."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold; each kind says what was seen."""

    @property
    def sentence(self) -> str:
        raise NotImplementedError

    def to_json(self) -> dict[str, object]:
        return {"kind": type(self).__name__, "text": self.sentence, **asdict(self)}


@dataclass(frozen=True, slots=True)
class SilentServer(Violation):
    """A server of a live host that does not answer."""

    address: str
    host: str
    why: str

    @property
    def sentence(self) -> str:
        return f"{self.address} on {self.host} does not answer: {self.why}"


@dataclass(frozen=True, slots=True)
class NoPrimary(Violation):
    """Slots of which no server is the primary in the eyes of most, or whose primary knows nothing of it."""

    slots: Ranges
    named: tuple[str, ...]
    """Servers that some take for it."""
    asked: int
    """Servers whose eyes count."""

    @property
    def sentence(self) -> str:
        named = ", ".join(self.named) or "nobody"
        return f"{_shown(self.slots)} have no primary in the eyes of most of {self.asked} servers: they name {named}"


@dataclass(frozen=True, slots=True)
class SeveralPrimaries(Violation):
    """Slots that several servers take for theirs."""

    slots: Ranges
    addresses: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"{_shown(self.slots)} have several primaries: {', '.join(self.addresses)}"


@dataclass(frozen=True, slots=True)
class OpenSlots(Violation):
    """Slots that were left half way on their way from one server to another."""

    address: str
    slots: Ranges
    entries: tuple[str, ...]
    """As CLUSTER NODES writes them."""

    @property
    def sentence(self) -> str:
        return f"{_shown(self.slots)} are open at {self.address}: {' '.join(self.entries[:_SHOWN])}"


@dataclass(frozen=True, slots=True)
class CopiesOnOneHost(Violation):
    """Copies of a shard that are lost together with one host."""

    primary: str
    host: str
    addresses: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"the shard of {self.primary} has several copies on {self.host}: {', '.join(self.addresses)}"


@dataclass(frozen=True, slots=True)
class CopiesMissing(Violation):
    """A shard with fewer complete copies than there should be, given how many hosts live."""

    primary: str
    hosts: tuple[str, ...]
    """Those that have one."""
    wanted: int

    @property
    def sentence(self) -> str:
        return (
            f"the shard of {self.primary} has copies on {', '.join(self.hosts)}, and {self.wanted} are wanted"
        )


@dataclass(frozen=True, slots=True)
class CopiesUneven(Violation):
    """A shard whose copies are on fewer racks than they could be."""

    primary: str
    racks: Mapping[str, str]
    """Host -> rack, of each copy."""

    @property
    def sentence(self) -> str:
        where = ", ".join(f"{host} ({rack})" for host, rack in self.racks.items())
        return f"the copies of the shard of {self.primary} are not spread over the racks: {where}"


def _shown(slots: Ranges) -> str:
    more = " …" if len(slots) > _SHOWN else ""
    return f"{count(slots)} slots ({text_of(slots[:_SHOWN])}{more})"


def find_violations(
    answers: Sequence[Answer], racks: Mapping[str, str], copies: int
) -> tuple[Violation, ...]:
    """What does not hold. `racks`: rack of each live host; `copies`: wanted of each shard, its primary among them."""
    tables = {
        table.myself: table
        for answer in answers
        if (table := answer.table) is not None and _is_in_cluster(table)
    }
    addresses = {answer.table.myself: answer.address for answer in answers if answer.table is not None}
    owners = _owners(tables.values())
    return (
        *(
            SilentServer(answer.address, answer.host, answer.why)
            for answer in answers
            if answer.table is None
        ),
        *_primaries(tables, owners, addresses),
        *(
            OpenSlots(addresses[name], table.open_slots, _open(table))
            for name, table in tables.items()
            if table.open_slots
        ),
        *_placement(answers, {owner for owner in owners if owner}, racks, copies),
    )


def _is_in_cluster(table: NodesTable) -> bool:
    """One that knows nobody and holds nothing is free, and has no say."""
    return len(table.nodes) > 1 or bool(table.me.slots)


def _open(table: NodesTable) -> tuple[str, ...]:
    me = table.me
    return (
        *(f"[{slot}->-{node_id}]" for slot, node_id in sorted(me.migrating.items())),
        *(f"[{slot}-<-{node_id}]" for slot, node_id in sorted(me.importing.items())),
    )


def _views(tables: Iterable[NodesTable]) -> list[Counter[str]]:
    """For each slot how many servers take whom for its primary."""
    views: list[Counter[str]] = [Counter() for _ in range(SLOTS)]
    for table in tables:
        for record in table.nodes.values():
            for slot in slots_of(record.slots):
                views[slot][record.node_id] += 1
    return views


def _owners(tables: Iterable[NodesTable]) -> dict[str, list[int]]:
    """By node id the slots it is the primary of in the eyes of more than half; by "" those without such a one."""
    seen = list(tables)
    owners: dict[str, list[int]] = defaultdict(list)
    for slot, view in enumerate(_views(seen)):
        owner, votes = view.most_common(1)[0] if view else ("", 0)
        owners[owner if 2 * votes > len(seen) else ""].append(slot)
    return dict(owners)


def _primaries(
    tables: Mapping[str, NodesTable], owners: Mapping[str, list[int]], addresses: Mapping[str, str]
) -> list[Violation]:
    """Whoever most take for the primary of a slot has to say so itself, and nobody else may."""
    claimants: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for name in sorted(tables):
        for slot in slots_of(tables[name].me.slots):
            claimants[slot] += (name,)
    lost: dict[tuple[str, ...], list[int]] = defaultdict(list)
    doubled: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for owner, slots in owners.items():
        for slot in slots:
            claiming = claimants[slot]
            primaries = tuple(dict.fromkeys((owner, *claiming))) if owner else claiming
            if len(primaries) > 1:
                doubled[primaries].append(slot)
            elif not owner or owner not in claiming:
                lost[primaries].append(slot)

    def named(node_ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(addresses.get(node_id, node_id) for node_id in node_ids))

    return [
        *(NoPrimary(of_slots(slots), named(who), len(tables)) for who, slots in lost.items()),
        *(SeveralPrimaries(of_slots(slots), named(who)) for who, slots in doubled.items()),
    ]


def _placement(
    answers: Sequence[Answer], primaries: Iterable[str], racks: Mapping[str, str], copies: int
) -> list[Violation]:
    """Copies of each shard: its primary, and the servers that follow it and have its data."""
    found: list[Violation] = []
    for primary in sorted(primaries):
        held = [answer for answer in answers if _holds(answer, primary)]
        named = next((answer.address for answer in held if _is(answer, primary)), primary)
        on_hosts: dict[str, list[str]] = defaultdict(list)
        for answer in held:
            on_hosts[answer.host].append(answer.address)
        found += [
            CopiesOnOneHost(named, host, tuple(addresses))
            for host, addresses in on_hosts.items()
            if len(addresses) > 1
        ]
        hosts = tuple(answer.host for answer in held if answer.host in racks)
        wanted = min(copies, len(racks))
        if len(hosts) < wanted:
            found.append(CopiesMissing(named, hosts, wanted))
        elif not has_enough_copies(hosts, racks, copies):
            found.append(CopiesUneven(named, {host: racks[host] for host in hosts}))
    return found


def _is(answer: Answer, node_id: str) -> bool:
    return answer.table is not None and answer.table.myself == node_id


def _holds(answer: Answer, primary: str) -> bool:
    table = answer.table
    return _is(answer, primary) or (table is not None and table.me.primary_id == primary and answer.is_linked)
