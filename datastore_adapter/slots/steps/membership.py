"""Servers come into the cluster, take a shard's copy, and leave.

How the steps `create`, `join`, `replicate`, `remove` and `release` are carried out.

Each looks first at what is left to do, and its last act is to see that it is done.
Source: Redis documentation, CLUSTER MEET, REPLICATE, FORGET, RESET; Redis Cluster specification, "Nodes handshake".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import trio

from datastore_adapter.slots.errors import CommandRefusedError, StepFailedError
from datastore_adapter.slots.observation import is_in_step
from datastore_adapter.slots.state.cluster_state import ClusterState, Member, Report
from datastore_adapter.slots.state.server_info import Persistence, parse_persistence
from datastore_adapter.slots.state.shards import Shard
from datastore_adapter.slots.state.slot_ranges import Ranges, count, slots_of, text_of, without
from datastore_adapter.slots.steps.gossip import AGAIN, not_agreeing, not_electing, spread
from datastore_adapter.slots.steps.step_context import Hands, address_of

FORGETTING: Final = 50.0
"""Seconds within which all have to forget a server: after 60 those that did hear of it again from the others."""


async def create(hands: Hands, chains: Mapping[str, Sequence[str]], slots: Mapping[str, Ranges]) -> None:
    """A cluster where there is none."""
    state = await hands.state()
    if not state.owners:
        chosen = _servers_for(state, chains)
        everyone = [report for reports in chosen.values() for report in reports]
        for epoch, report in enumerate(everyone, 1):
            if report.is_alone and report.table.me.config_epoch == 0:
                # Before they meet, so that no two primaries begin with the same and have to sort it out.
                await hands.commands(report.address, [("CLUSTER", "SET-CONFIG-EPOCH", epoch)])
        wanted = {reports[0].node_id: slots[key] for key, reports in chosen.items()}
        for report in everyone:  # before they meet, too: it is the first that they tell each other
            await _assign(hands, report, wanted.get(report.node_id, ()))
        await _introduce(hands, everyone, everyone)
        for reports in chosen.values():
            for report in reports[1:]:
                await _follow(hands, report.address, reports[0].node_id)
    number = sum(count(ranges) for ranges in slots.values())

    async def stands() -> bool:
        state = await hands.state()
        shards = hands.shards(state)
        placed = {
            key: [member.host for member in shard.members if _is_complete(shard, member)]
            for key, shard in shards.items()
            if shard.slots == slots.get(key) or not slots.get(key)
        }
        return (
            state.is_agreed
            and sum(map(count, state.owners.values())) == number
            and all(
                sorted(placed.get(key, ())) == sorted(hosts) for key, hosts in chains.items() if slots[key]
            )
            and await _serves(hands, state)
        )

    if state.owners and not await stands():
        held = "; ".join(f"{text_of(ranges)}" for ranges in state.owners.values())
        raise StepFailedError(
            "exists",
            f"there is a cluster already ({held}): make a new plan from what stands",
            retryable=False,
        )
    await spread(hands, not_agreeing, hands.settings.gossip_timeout, patience=0.0)
    await hands.until(stands, "all servers agree on the new cluster and serve", hands.settings.look_interval)


async def join(hands: Hands, copies: Sequence[tuple[str, str]]) -> None:
    """For each (shard, host) there is a copy, or a member without one."""
    state = await hands.state()
    shards = hands.shards(state)
    lacking = Counter(host for key, host in copies if key not in shards or not _live_at(shards[key], host))
    used = {member.node_id for shard in shards.values() for member in shard.members}
    have = Counter(member.host for member in state.free if member.node_id not in used)
    coming: list[Report] = []
    for host, number in sorted((lacking - have).items()):
        spare = [report for report in state.spares if report.host == host]
        back = [report for report in state.returned if report.host == host]
        if len(spare) + len(back) < number:
            raise StepFailedError("no_server", f"{host} has no server to spare for {number} copies")
        for report in back[: max(0, number - len(spare))]:
            await release(hands, report.address)
        coming += (spare + back)[:number]
    if coming:
        addresses = {report.address for report in coming}
        state = await hands.state()
        ready = [report for report in state.spares if report.address in addresses]
        if len(ready) < len(coming):
            raise StepFailedError("no_server", f"{', '.join(sorted(addresses))}: not all are free yet")
        for report in ready:
            await _assign(hands, report, ())
        await _introduce(hands, state.reports, ready)


async def replicate(hands: Hands, key: str, host: str, chain: Sequence[str], instead: str | None) -> None:
    """A copy of the shard on the host, complete."""
    state = await hands.state()
    shard = _shard(hands, state, key, chain)
    member = next(iter(_live_at(shard, host)), None)
    if member is None:
        member = _free_at(hands, state, host, instead)
        if address_of(shard.primary) and member.node_id == shard.primary.node_id:
            return
        hands.claimed.add(member.node_id)
        try:
            await _follow(hands, address_of(member), shard.primary.node_id)
            await _synchronized(hands, address_of(member), key, host, chain)
        finally:
            hands.claimed.discard(member.node_id)
    elif member.node_id != shard.primary.node_id:
        await _synchronized(hands, address_of(member), key, host, chain)


async def remove(hands: Hands, key: str, host: str, only: str) -> None:
    """No copy of the shard on the host, or one fewer; its server has left the cluster and is empty."""
    state = await hands.state()
    shard = hands.shards(state).get(key)
    if shard is None:
        return
    copies = shard.at(host)
    if only == "dead":
        copies = tuple(member for member in copies if member.report is None)
    elif only == "second":
        copies = (
            tuple(member for member in copies if member is not shard.primary)[-1:] if len(copies) > 1 else ()
        )
    for member in copies:
        if member is shard.primary and shard.slots:
            raise StepFailedError(
                "holds_slots", f"{host} leads {key}: another copy has to become the primary first"
            )
        if member is shard.primary and any(each.report is not None for each in shard.replicas):
            raise StepFailedError("has_replicas", f"{host} leads {key}: its replicas have to leave first")
        if member.report is not None and member.record.is_primary and member.report.info.keys:
            raise StepFailedError(
                "holds_keys",
                f"{member.address} on {host} holds {member.report.info.keys} keys in slots that are not its own; move "
                "or delete them, nothing is done to it",
                retryable=False,
            )
        await _forget(hands, state, member.node_id)
        if member.report is not None:
            await _reset(hands, member.report.address)
    if copies:
        for node_id in _left_over(hands, state):
            await _forget(hands, state, node_id)


async def forget_hosts(hands: Hands, hosts: Collection[str]) -> None:
    """Whatever their servers were in the cluster, unless they hold slots still."""
    state = await hands.state()
    for node_id, member in state.members.items():
        if member.host in hosts and member.report is None and node_id not in state.owners:
            await _forget(hands, state, node_id)


async def release(hands: Hands, address: str) -> None:
    """A server of ours, that the others have forgotten, is empty and free.

    What it has is older than what its shard holds now, which is why it was taken out.
    """
    if _returned_at(await hands.state(), address) is None:
        return
    await trio.sleep(min(1.0, hands.settings.gossip_timeout))  # it may be on its way in just now
    state = await hands.state()
    report = _returned_at(state, address)
    if report is None:
        return
    answering = [
        ranges for node_id, ranges in state.owners.items() if state.members[node_id].report is not None
    ]
    served: Ranges = tuple(pair for ranges in answering for pair in ranges)
    orphans = slots_of(report.table.me.slots) - slots_of(served)
    if orphans:
        raise StepFailedError(
            "asks",
            f"{address} on {report.host} holds {len(orphans)} slots that nobody else serves, and the others have "
            "forgotten it; have it meet them again (CLUSTER MEET), or empty it",
            retryable=False,
        )
    if report.table.me.is_primary and report.info.keys:
        await hands.command(address, "FLUSHALL")
    await _reset(hands, address)


# the parts


async def _reset(hands: Hands, address: str) -> None:
    """It belongs to no cluster and holds nothing, in its files either.

    RESET empties a replica's memory and not its files: started again it would have its keys back, and make itself the
    primary of their slots.
    """
    what, interval = f"{address} writes its files anew", hands.settings.look_interval

    async def is_quiet() -> bool:
        return not (await _persistence(hands, address)).is_writing

    await hands.until(is_quiet, what, interval)
    write = "BGREWRITEAOF" if (await _persistence(hands, address)).has_log else "BGSAVE"
    # Sent together: who ends in between leaves nobody who would know that its files are still to be written.
    reset, answer = await hands.commands(address, [("CLUSTER", "RESET", "HARD"), (write,)])
    if isinstance(reset, CommandRefusedError):
        raise reset

    async def is_written() -> bool:
        nonlocal answer
        persistence = await _persistence(hands, address)
        if persistence.is_writing:
            return False
        if persistence.is_written and not isinstance(answer, CommandRefusedError):
            return True
        (answer,) = await hands.commands(address, [(write,)])
        return False

    await hands.until(is_written, what, interval)


async def _persistence(hands: Hands, address: str) -> Persistence:
    return parse_persistence(await hands.cluster.servers.call(address, "INFO", "persistence"))


def _returned_at(state: ClusterState, address: str) -> Report | None:
    return next((report for report in state.returned if report.address == address), None)


def _servers_for(state: ClusterState, chains: Mapping[str, Sequence[str]]) -> dict[str, list[Report]]:
    """A server for each copy; those that know others already are taken too: this is done again after a crash."""
    free: dict[str, list[Report]] = defaultdict(list)
    for report in sorted((*state.spares, *state.returned), key=lambda report: report.address):
        free[report.host].append(report)
    # Primaries first, so that the same servers are taken whatever was begun before.
    chosen: dict[str, list[Report]] = {key: [] for key in chains}
    for position in range(max(map(len, chains.values()))):
        for key, hosts in chains.items():
            if position < len(hosts):
                if not free[hosts[position]]:
                    raise StepFailedError("no_server", f"{hosts[position]} has no server to spare for {key}")
                chosen[key].append(free[hosts[position]].pop(0))
    return chosen


async def _assign(hands: Hands, report: Report, slots: Ranges) -> None:
    """The slots of a server that knows nobody yet."""
    held = report.table.me.slots
    for word, ranges in (("DELSLOTSRANGE", without(held, slots)), ("ADDSLOTSRANGE", without(slots, held))):
        if ranges:
            await hands.command(report.address, "CLUSTER", word, *(slot for pair in ranges for slot in pair))


async def _introduce(hands: Hands, members: Sequence[Report], newcomers: Sequence[Report]) -> None:
    """Each member is told of each newcomer: nobody has to wait for gossip, and none is missed by it."""
    addresses = {report.address for report in (*members, *newcomers)}
    new = {report.address for report in newcomers}
    told_at = float("-inf")

    async def is_known() -> bool:
        nonlocal told_at
        state = await hands.cluster.look_at_reports()
        reports = [report for report in state if report.address in addresses]
        strangers = [
            (one, other)
            for position, one in enumerate(reports)
            for other in reports[position + 1 :]
            if {one.address, other.address} & new and not (_knows(one, other) and _knows(other, one))
        ]
        if strangers and trio.current_time() >= told_at + AGAIN:
            told_at = trio.current_time()
            await _meet(hands, strangers)
        return not strangers and len(reports) == len(addresses)

    await hands.until(is_known, "all servers know the ones that joined", hands.settings.look_interval)


def _knows(one: Report, other: Report) -> bool:
    record = one.table.nodes.get(other.node_id)
    return record is not None and record.is_known


async def _meet(hands: Hands, strangers: Sequence[tuple[Report, Report]]) -> None:
    places = {other.address: await hands.cluster.endpoint(other.address) for _, other in strangers}
    by_one: dict[str, list[Report]] = defaultdict(list)
    for one, other in strangers:
        by_one[one.address].append(other)
    for address, others in by_one.items():
        meets = [("CLUSTER", "MEET", *places[other.address], other.table.me.bus_port) for other in others]
        for answer in await hands.commands(address, meets):
            if isinstance(answer, CommandRefusedError):
                raise answer


async def _follow(hands: Hands, address: str, primary_id: str) -> None:
    """Until gossip has told the server of the primary, it refuses."""

    async def takes() -> bool:
        try:
            await hands.command(address, "CLUSTER", "REPLICATE", primary_id)
        except CommandRefusedError as error:
            if "Unknown node" in error.answer or "your replication" in error.answer:
                return False
            raise
        return True

    await hands.until(takes, f"{address} knows the primary it is to follow", hands.settings.look_interval)


async def _synchronized(hands: Hands, address: str, key: str, host: str, chain: Sequence[str]) -> None:
    """As long as it takes: whoever started this looks whether it goes on."""
    while True:
        state = await hands.state()
        shard = _shard(hands, state, key, chain)
        member = next((member for member in _live_at(shard, host) if member.address == address), None)
        if member is None:
            raise StepFailedError("lost", f"{address} on {host} follows {key} no longer")
        if member.node_id == shard.primary.node_id:
            return
        if _is_complete(shard, member, hands.settings.sync_lag):
            await _be_known(hands, member, shard)
            return
        assert member.report is not None
        total = shard.primary.report.info.memory if shard.primary.report is not None else 0
        left = member.report.info.sync_left if member.report.info.is_syncing else total
        hands.report(max(0, total - left), total)
        await trio.sleep(hands.settings.look_interval)


async def _be_known(hands: Hands, member: Member, shard: Shard) -> None:
    """As a replica: nobody votes for one that is not known as such."""
    leader = shard.primary.node_id
    await spread(
        hands,
        lambda state: {member.node_id: not_electing(state, member.node_id, leader)},
        hands.settings.gossip_timeout,
    )


def _is_complete(shard: Shard, member: Member, lag: int = 1 << 16) -> bool:
    if member is shard.primary:
        return member.report is not None
    if member.report is None or shard.primary.report is None:
        return False
    behind = max(0, shard.primary.report.info.offset - member.report.info.offset)
    return is_in_step(member, shard.primary, behind, lag)


def _shard(hands: Hands, state: ClusterState, key: str, chain: Sequence[str]) -> Shard:
    shard = hands.shards(state, key, chain).get(key)
    if shard is None:
        raise StepFailedError(
            "unknown_shard", f"there is no shard {key}: {chain[0] if chain else 'nobody'} has to join"
        )
    return shard


def _live_at(shard: Shard, host: str) -> tuple[Member, ...]:
    return tuple(member for member in shard.at(host) if member.report is not None)


def _free_at(hands: Hands, state: ClusterState, host: str, instead: str | None) -> Member:
    shards = hands.shards(state)
    used = {member.node_id for shard in shards.values() for member in shard.members}
    for member in state.free:
        if member.host == host and member.node_id not in used | hands.claimed:
            return member
    if instead is not None and instead in shards:
        for member in _live_at(shards[instead], host):
            if member is not shards[instead].primary:
                return member
    raise StepFailedError("no_server", f"{host} has no server that is free: it has to join first")


async def _forget(hands: Hands, state: ClusterState, node_id: str) -> None:
    """By all others within a minute, for who still knows it would tell the rest of it again."""
    others = [
        member for member in state.members.values() if member.report is not None and member.node_id != node_id
    ]
    deadline = trio.current_time() + FORGETTING
    while others and trio.current_time() < deadline:
        answers = await hands.everywhere(others, [("CLUSTER", "FORGET", node_id)])
        for (answer,) in answers.values():
            if isinstance(answer, CommandRefusedError) and "Unknown node" not in answer.answer:
                raise answer
        others = [member for member in others if member.address not in answers]
        if others:
            live = {report.address for report in (await hands.state()).reports}
            others = [member for member in others if member.address in live]
    if others:
        raise StepFailedError("slow", f"{others[0].address} does not answer, and still knows {node_id[:8]}")


def _left_over(hands: Hands, state: ClusterState) -> list[str]:
    """Members of hosts that left, with no slots and no shard: nobody waits for them."""
    used = {member.node_id for shard in hands.shards(state).values() for member in shard.members}
    return [
        node_id
        for node_id, member in state.members.items()
        if member.report is None
        and member.host not in hands.cluster.hosts
        and node_id not in {*used, *state.owners}
    ]


async def _serves(hands: Hands, state: ClusterState) -> bool:
    for member in state.members.values():
        if member.node_id in state.owners:
            answer = await hands.cluster.servers.call(address_of(member), "CLUSTER", "INFO")
            if not isinstance(answer, bytes) or b"cluster_state:ok" not in answer:
                return False
    return True
