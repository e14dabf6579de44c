"""What all servers said, put together: which of them form our cluster, and who holds what.

Pure.  A server speaks for itself and tells what it knows of the others, which may be old, or of another cluster.
Servers that know each other form a group; ours is the one that has the slots.  A server outside of it is *spare* if it
knows nobody and holds nothing, *returned* if it was one of ours once (it names servers of ours, which do not know it
any more), and else *foreign*: nothing is ever done to such a one.
Source: Redis Cluster specification, "Cluster topology", "Configuration epochs".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.state.nodes_table import NodeRecord, NodesTable
from datastore_adapter.slots.state.server_info import ServerInfo
from datastore_adapter.slots.state.slot_ranges import SLOTS, Ranges, count, of_slots, slots_of, text_of


@dataclass(frozen=True, slots=True)
class Report:
    """What one server answered."""

    address: str
    host: str
    """Name of the host it runs on."""
    table: NodesTable
    info: ServerInfo
    fault: str = ""
    """What its settings are at odds with, a sentence; nothing: they are as they have to be."""

    @property
    def node_id(self) -> str:
        return self.table.myself

    @property
    def recipient(self) -> Recipient:
        return Recipient(self.address, self.node_id)

    @property
    def is_alone(self) -> bool:
        """It knows no other server and holds no key, and a part of the slots at most: its cluster was never made."""
        return len(self.table.nodes) == 1 and not self.info.keys and count(self.table.me.slots) < SLOTS

    @property
    def moves_slots(self) -> bool:
        """It knows CLUSTER MIGRATESLOTS: it moves whole slots by itself, all or nothing."""
        return self.info.software == "valkey" and self.info.version >= (9, 0)


@dataclass(frozen=True, slots=True)
class Member:
    """One node of our cluster, as most of those that answered see it."""

    record: NodeRecord
    host: str
    """Name of its host; its address, where that is not known."""
    report: Report | None
    """None: it did not answer, or was not asked."""

    @property
    def node_id(self) -> str:
        return self.record.node_id

    @property
    def address(self) -> str:
        return self.record.address if self.report is None else self.report.address


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything at one moment."""

    members: Mapping[str, Member]
    """Node id -> member of our cluster."""
    owners: Mapping[str, Ranges]
    """Node id -> the slots it holds, in the eyes of most."""
    is_agreed: bool
    """Whether all that answered see the same owners."""
    spares: tuple[Report, ...]
    returned: tuple[Report, ...]
    foreign: tuple[Report, ...]
    missing: tuple[str, ...] = ()
    """Addresses of servers that were asked and did not answer."""
    troubles: tuple[str, ...] = ()
    """What the servers that could not be used said, a sentence each."""

    @property
    def reports(self) -> tuple[Report, ...]:
        """Of our cluster's servers that answered."""
        return tuple(member.report for member in self.members.values() if member.report is not None)

    @property
    def usable(self) -> tuple[Report, ...]:
        """Those of our cluster, and those that it may be given."""
        return (*self.reports, *self.spares, *self.returned)

    def replicas_of(self, node_id: str) -> tuple[Member, ...]:
        """Those that follow the node, by node id; for a moment after it took over, through the one before."""
        return tuple(
            member for other, member in sorted(self.members.items()) if self._leader(other) == node_id
        )

    def _leader(self, node_id: str) -> str:
        """Whom a node follows in the end; nobody, for a primary."""
        leader, seen = "", {node_id}
        while (member := self.members.get(node_id)) is not None and member.record.primary_id not in {
            "",
            *seen,
        }:
            leader = node_id = member.record.primary_id
            seen.add(node_id)
        return leader

    def at(self, host: str) -> tuple[Member, ...]:
        """Members on a host."""
        return tuple(member for _, member in sorted(self.members.items()) if member.host == host)

    @property
    def free(self) -> tuple[Member, ...]:
        """Members that answer and hold nothing: primaries without slots, and whoever follows one."""
        holding = self.owners.keys()
        return tuple(
            member
            for node_id, member in sorted(self.members.items())
            if member.report is not None and node_id not in holding and self._leader(node_id) not in holding
        )


@dataclass(frozen=True, slots=True)
class NoMajority:
    """Too few servers answered to say anything."""

    reason: str


@dataclass(slots=True)
class HostNames:
    """Which host a node runs on: learned from those that answer, remembered of those that do not any more."""

    by_node: dict[str, str] = field(default_factory=dict)
    by_address: dict[str, str] = field(default_factory=dict)

    def learn(self, reports: Sequence[Report]) -> None:
        for report in reports:
            self.by_node[report.node_id] = report.host
            self.by_address[report.address] = report.host

    def of(self, record: NodeRecord) -> str:
        known = self.by_node.get(record.node_id) or self.by_address.get(record.address)
        return known or record.host_name or record.address


def combine(
    reports: Sequence[Report],
    names: HostNames,
    live: frozenset[str],
    missing: Sequence[str] = (),
    troubles: Sequence[str] = (),
) -> ClusterState | NoMajority:
    """Put the answers together.

    ``live``: hosts of the view; ``missing``: addresses asked that did not answer; ``troubles``: why servers could not
    be used that did.
    """
    names.learn(reports)
    groups = _groups(reports)
    holding = [
        group for group in groups if any(report.table.me.slots and not report.is_alone for report in group)
    ]
    holding.sort(key=lambda group: (-_weight(group), min(report.node_id for report in group)))
    ours = holding[0] if holding else []
    known = {node_id for report in ours for node_id in report.table.nodes}
    spares: list[Report] = []
    returned: list[Report] = []
    foreign: list[Report] = []
    for report in reports:
        if report in ours:
            continue
        if report.is_alone:
            spares.append(report)
        elif ours and {node for node in report.table.nodes if node != report.node_id} & known:
            returned.append(report)
        elif not ours and not report.table.me.slots and not report.info.keys:
            returned.append(report)  # a cluster that was about to be made, and nobody holds anything yet
        else:
            foreign.append(report)
    reason = _lack(ours, names, live) if ours else _unknown(reports, missing, troubles)
    if reason:
        return NoMajority("; ".join([*troubles[:1], reason]))
    members, owners, agreed = _view_of(ours, names)
    return ClusterState(
        members,
        owners,
        agreed,
        tuple(sorted(spares, key=lambda report: report.address)),
        tuple(sorted(returned, key=lambda report: report.address)),
        tuple(sorted(foreign, key=lambda report: report.address)),
        tuple(missing),
        tuple(troubles),
    )


def _unknown(reports: Sequence[Report], missing: Sequence[str], troubles: Sequence[str]) -> str:
    """Why it is not known that there is no cluster yet; empty: it is known, for every server says so.

    A majority would not do: of a cluster that does not answer nobody else knows.
    """
    if missing:
        return f"no server that answers holds slots, and {missing[0]} does not answer: it may"
    if troubles:
        return "no other server holds slots"
    return "" if reports else "no host of the view names a server"


def _weight(group: Sequence[Report]) -> int:
    return sum(count(report.table.me.slots) for report in group) + len(group)


def _groups(reports: Sequence[Report]) -> list[list[Report]]:
    """Servers that know each other, directly or through others."""
    by_id = {report.node_id: report for report in reports}
    left = dict(by_id)
    groups: list[list[Report]] = []
    while left:
        _, first = left.popitem()
        group, open_ = [first], [first]
        while open_:
            report = open_.pop()
            for node_id in report.table.nodes:
                other = left.get(node_id)
                if other is not None and report.node_id in other.table.nodes:
                    del left[node_id]
                    group.append(other)
                    open_.append(other)
        groups.append(sorted(group, key=lambda report: report.node_id))
    return groups


def _lack(ours: Sequence[Report], names: HostNames, live: frozenset[str]) -> str:
    """Why what was answered is too little; empty: it is enough.

    A majority is needed of the nodes that are on hosts of the view or hold slots: the others went with their hosts, or
    made room for another server at their address.
    """
    records: dict[str, NodeRecord] = {}
    for report in ours:
        records |= {
            node_id: record
            for node_id, record in report.table.nodes.items()
            if record.is_known and (record.slots or (record.has_address and names.of(record) in live))
        }
    answered = {report.node_id for report in ours}
    if 2 * len(answered & records.keys()) > len(records):
        return ""
    silent = sorted(records[node_id].address for node_id in records.keys() - answered)
    return (
        f"{len(answered & records.keys())} of {len(records)} servers of the cluster answered, which is no "
        f"majority; not {', '.join(silent[:6])}{' …' if len(silent) > 6 else ''}"
    )


def _view_of(ours: Sequence[Report], names: HostNames) -> tuple[dict[str, Member], dict[str, Ranges], bool]:
    by_id = {report.node_id: report for report in ours}
    seen: dict[str, list[NodeRecord]] = defaultdict(list)
    for report in ours:
        for node_id, record in report.table.nodes.items():
            if record.is_known:
                seen[node_id].append(record)
    members: dict[str, Member] = {}
    for node_id, records in seen.items():
        own = by_id.get(node_id)
        # Of whom it is a replica it knows itself; what it does not say, most of the others do.
        record = own.table.me if own is not None else _most(records)
        if own is None and 2 * len(records) <= len(ours):
            continue  # most have forgotten it
        members[node_id] = Member(record, names.of(record), own)
    owners, agreed = _owners(ours)
    return members, owners, agreed


def _most(records: Sequence[NodeRecord]) -> NodeRecord:
    counts = Counter((record.primary_id, record.is_primary, record.is_failed) for record in records)
    wanted = min(counts, key=lambda key: (-counts[key], key))
    return next(
        record for record in records if (record.primary_id, record.is_primary, record.is_failed) == wanted
    )


def _owners(ours: Sequence[Report]) -> tuple[dict[str, Ranges], bool]:
    """Who holds which slots: what all say, or else what each says of itself, and others of who does not answer.

    Of two that claim a slot the one with the higher config epoch has it, as the servers will see it in the end: whoever
    is given slots gets a new one, the highest.
    """
    said = [
        frozenset((record.node_id, record.slots) for record in report.table.nodes.values() if record.slots)
        for report in ours
    ]
    if len(set(said)) <= 1:
        return (dict(said[0]) if said else {}), True
    epochs: dict[str, int] = defaultdict(int)
    for report in ours:
        for node_id, record in report.table.nodes.items():
            epochs[node_id] = max(epochs[node_id], record.config_epoch)
    answered = {report.node_id for report in ours}
    claims = {(node_id, ranges) for view in said for node_id, ranges in view if node_id not in answered}
    claims |= {(report.node_id, report.table.me.slots) for report in ours}
    owner: dict[int, str] = {}
    for node_id, ranges in sorted(claims, key=lambda claim: (epochs[claim[0]], claim[0])):
        owner.update(dict.fromkeys(slots_of(ranges), node_id))
    held: dict[str, set[int]] = defaultdict(set)
    for slot, node_id in owner.items():
        held[node_id].add(slot)
    return {node_id: of_slots(slots) for node_id, slots in held.items()}, False


def describe_foreign(report: Report) -> str:
    """Why a server is not used, for operators."""
    if len(report.table.nodes) == 1 and not report.table.me.slots:
        return (
            f"{report.address} on {report.host} belongs to no cluster and holds {report.info.keys} keys; empty it "
            "(FLUSHALL) to have it used"
        )
    slots = text_of(report.table.me.slots) or "no slots"
    return (
        f"{report.address} on {report.host} answers for another cluster ({len(report.table.nodes)} nodes, {slots}); "
        "nothing is done to it: give the right --engine address, or reset it by hand (CLUSTER RESET HARD)"
    )
