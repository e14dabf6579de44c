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
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.state.cluster_state import ClusterState, Member, Report
from datastore_adapter.slots.state.server_info import Persistence, parse_persistence
from datastore_adapter.slots.state.shards import Shard
from datastore_adapter.slots.state.slot_ranges import Ranges, count, slots_of, text_of, without
from datastore_adapter.slots.steps.gossip import AGAIN, not_agreeing, not_electing, spread
from datastore_adapter.slots.steps.step_context import StepContext, recipient_of

FORGETTING: Final = 50.0
"""Seconds within which all have to forget a server: after 60 those that did hear of it again from the others."""


async def create(
    context: StepContext, chains: Mapping[str, Sequence[str]], slots: Mapping[str, Ranges]
) -> None:
    """A cluster where there is none."""
    state = await context.state()
    if not state.owners:
        chosen = _servers_for(state, chains)
        everyone = [report for reports in chosen.values() for report in reports]
        for epoch, report in enumerate(everyone, 1):
            if report.is_alone and report.table.me.config_epoch == 0:
                # Before they meet, so that no two primaries begin with the same and have to sort it out.
                await context.commands(report.recipient, [("CLUSTER", "SET-CONFIG-EPOCH", epoch)])
        wanted = {reports[0].node_id: slots[key] for key, reports in chosen.items()}
        for report in everyone:  # before they meet, too: it is the first that they tell each other
            await _assign(context, report, wanted.get(report.node_id, ()))
        await _introduce(context, everyone, everyone)
        for reports in chosen.values():
            for report in reports[1:]:
                await _follow(context, report.recipient, reports[0].node_id)
    number = sum(count(ranges) for ranges in slots.values())

    async def stands() -> bool:
        state = await context.state()
        shards = context.shards(state)
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
            and await _serves(context, state)
        )

    if state.owners and not await stands():
        held = "; ".join(f"{text_of(ranges)}" for ranges in state.owners.values())
        raise StepFailedError(
            "exists",
            f"there is a cluster already ({held}): make a new plan from what stands",
            retryable=False,
        )
    await spread(context, not_agreeing, context.settings.gossip_timeout, patience=0.0)
    await context.until(
        stands, "all servers agree on the new cluster and serve", context.settings.look_interval
    )


async def join(context: StepContext, copies: Sequence[tuple[str, str]]) -> None:
    """For each (shard, host) there is a copy, or a member without one."""
    state = await context.state()
    shards = context.shards(state)
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
            await release(context, report.address)
        coming += (spare + back)[:number]
    if coming:
        addresses = {report.address for report in coming}
        state = await context.state()
        ready = [report for report in state.spares if report.address in addresses]
        if len(ready) < len(coming):
            raise StepFailedError("no_server", f"{', '.join(sorted(addresses))}: not all are free yet")
        for report in ready:
            await _assign(context, report, ())
        await _introduce(context, state.reports, ready)


async def replicate(
    context: StepContext, key: str, host: str, chain: Sequence[str], instead: str | None
) -> None:
    """A copy of the shard on the host, complete."""
    state = await context.state()
    shard = _shard(context, state, key, chain)
    member = next(iter(_live_at(shard, host)), None)
    if member is None:
        member = _free_at(context, state, host, instead)
        if recipient_of(shard.primary) and member.node_id == shard.primary.node_id:
            return
        context.claimed.add(member.node_id)
        try:
            await _follow(context, recipient_of(member), shard.primary.node_id)
            await _synchronized(context, recipient_of(member), key, host, chain)
        finally:
            context.claimed.discard(member.node_id)
    elif member.node_id != shard.primary.node_id:
        await _synchronized(context, recipient_of(member), key, host, chain)


async def remove(context: StepContext, key: str, host: str, only: str) -> None:
    """No copy of the shard on the host, or one fewer; its server has left the cluster and is empty."""
    state = await context.state()
    shard = context.shards(state).get(key)
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
        await _forget(context, state, member.node_id)
        if member.report is not None:
            await _reset(context, member.report.recipient)
    if copies:
        for node_id in _left_over(context, state):
            await _forget(context, state, node_id)


async def forget_hosts(context: StepContext, hosts: Collection[str]) -> None:
    """Whatever their servers were in the cluster, unless they hold slots still."""
    state = await context.state()
    for node_id, member in state.members.items():
        if member.host in hosts and member.report is None and node_id not in state.owners:
            await _forget(context, state, node_id)


async def release(context: StepContext, address: str) -> None:
    """A server of ours, that the others have forgotten, is empty and free.

    What it has is older than what its shard holds now, which is why it was taken out.
    """
    before = _returned_at(await context.state(), address)
    if before is None:
        return
    await trio.sleep(min(1.0, context.settings.gossip_timeout))  # it may be on its way in just now
    state = await context.state()
    report = _returned_at(state, address)
    if report is None or report.node_id != before.node_id:
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
        await context.command(report.recipient, "FLUSHALL")
    await _reset(context, report.recipient)


# the parts


async def _reset(context: StepContext, server: Recipient) -> None:
    """It belongs to no cluster and holds nothing, in its files either.

    RESET empties a replica's memory and not its files: started again it would have its keys back, and make itself the
    primary of their slots.
    """
    what, interval = f"{server.address} writes its files anew", context.settings.look_interval

    async def is_quiet() -> bool:
        return not (await _persistence(context, server)).is_writing

    await context.until(is_quiet, what, interval)
    write = "BGREWRITEAOF" if (await _persistence(context, server)).has_log else "BGSAVE"
    # Sent together: who ends in between leaves nobody who would know that its files are still to be written.
    reset, answer, node_id = await context.commands(
        server, [("CLUSTER", "RESET", "HARD"), (write,), ("CLUSTER", "MYID")]
    )
    if isinstance(reset, CommandRefusedError):
        raise reset
    renamed = Recipient(server.address, node_id.decode())

    async def is_written() -> bool:
        nonlocal answer
        persistence = await _persistence(context, renamed)
        if persistence.is_writing:
            return False
        if persistence.is_written and not isinstance(answer, CommandRefusedError):
            return True
        (answer,) = await context.commands(renamed, [(write,)])
        return False

    await context.until(is_written, what, interval)


async def _persistence(context: StepContext, server: Recipient) -> Persistence:
    return parse_persistence(await context.ask(server, "INFO", "persistence"))


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


async def _assign(context: StepContext, report: Report, slots: Ranges) -> None:
    """The slots of a server that knows nobody yet."""
    held = report.table.me.slots
    for word, ranges in (("DELSLOTSRANGE", without(held, slots)), ("ADDSLOTSRANGE", without(slots, held))):
        if ranges:
            await context.command(
                report.recipient, "CLUSTER", word, *(slot for pair in ranges for slot in pair)
            )


async def _introduce(context: StepContext, members: Sequence[Report], newcomers: Sequence[Report]) -> None:
    """Each member is told of each newcomer: nobody has to wait for gossip, and none is missed by it."""
    wanted = {report.node_id for report in (*members, *newcomers)}
    new = {report.node_id for report in newcomers}
    told_at = float("-inf")

    async def is_known() -> bool:
        nonlocal told_at
        state = await context.cluster.read_reports()
        reports = [report for report in state if report.node_id in wanted]
        strangers = [
            (one, other)
            for position, one in enumerate(reports)
            for other in reports[position + 1 :]
            if {one.node_id, other.node_id} & new and not (_knows(one, other) and _knows(other, one))
        ]
        if strangers and trio.current_time() >= told_at + AGAIN:
            told_at = trio.current_time()
            await _meet(context, strangers)
        return not strangers and len(reports) == len(wanted)

    await context.until(is_known, "all servers know the ones that joined", context.settings.look_interval)


def _knows(one: Report, other: Report) -> bool:
    record = one.table.nodes.get(other.node_id)
    return record is not None and record.is_known and record.has_address


async def _meet(context: StepContext, strangers: Sequence[tuple[Report, Report]]) -> None:
    places = {other.address: await context.cluster.endpoint(other.address) for _, other in strangers}
    by_one: dict[Recipient, list[Report]] = defaultdict(list)
    for one, other in strangers:
        by_one[one.recipient].append(other)
    for server, others in by_one.items():
        meets = [
            ("CLUSTER", "MEET", *places[other.address], other.table.me.bus_port)
            for other in await context.present(others)  # whoever is there is met
        ]
        for answer in await context.commands(server, meets):
            if isinstance(answer, CommandRefusedError):
                raise answer


async def _follow(context: StepContext, server: Recipient, primary_id: str) -> None:
    """Until gossip has told the server of the primary, it refuses."""

    async def takes() -> bool:
        try:
            await context.command(server, "CLUSTER", "REPLICATE", primary_id)
        except CommandRefusedError as error:
            if "Unknown node" in error.answer or "your replication" in error.answer:
                return False
            raise
        return True

    await context.until(
        takes, f"{server.address} knows the primary it is to follow", context.settings.look_interval
    )


async def _synchronized(
    context: StepContext, server: Recipient, key: str, host: str, chain: Sequence[str]
) -> None:
    """As long as it takes: whoever started this looks whether it goes on."""
    while True:
        state = await context.state()
        shard = _shard(context, state, key, chain)
        member = next((each for each in _live_at(shard, host) if each.node_id == server.node_id), None)
        if member is None:
            raise StepFailedError("lost", f"{server.address} on {host} follows {key} no longer")
        if member.node_id == shard.primary.node_id:
            return
        if _is_complete(shard, member, context.settings.sync_lag):
            await _be_known(context, member, shard)
            return
        assert member.report is not None
        total = shard.primary.report.info.memory if shard.primary.report is not None else 0
        left = member.report.info.sync_left if member.report.info.is_syncing else total
        context.report(max(0, total - left), total)
        await trio.sleep(context.settings.look_interval)


async def _be_known(context: StepContext, member: Member, shard: Shard) -> None:
    """As a replica: nobody votes for one that is not known as such."""
    leader = shard.primary.node_id
    await spread(
        context,
        lambda state: {member.node_id: not_electing(state, member.node_id, leader)},
        context.settings.gossip_timeout,
    )


def _is_complete(shard: Shard, member: Member, lag: int = 1 << 16) -> bool:
    if member is shard.primary:
        return member.report is not None
    if member.report is None or shard.primary.report is None:
        return False
    behind = max(0, shard.primary.report.info.offset - member.report.info.offset)
    return is_in_step(member, shard.primary, behind, lag)


def _shard(context: StepContext, state: ClusterState, key: str, chain: Sequence[str]) -> Shard:
    shard = context.shards(state, key, chain).get(key)
    if shard is None:
        raise StepFailedError(
            "unknown_shard", f"there is no shard {key}: {chain[0] if chain else 'nobody'} has to join"
        )
    return shard


def _live_at(shard: Shard, host: str) -> tuple[Member, ...]:
    return tuple(member for member in shard.at(host) if member.report is not None)


def _free_at(context: StepContext, state: ClusterState, host: str, instead: str | None) -> Member:
    shards = context.shards(state)
    used = {member.node_id for shard in shards.values() for member in shard.members}
    for member in state.free:
        if member.host == host and member.node_id not in used | context.claimed:
            return member
    if instead is not None and instead in shards:
        for member in _live_at(shards[instead], host):
            if member is not shards[instead].primary:
                return member
    raise StepFailedError("no_server", f"{host} has no server that is free: it has to join first")


async def _forget(context: StepContext, state: ClusterState, node_id: str) -> None:
    """By all others within a minute, for who still knows it would tell the rest of it again."""
    others = [
        member for member in state.members.values() if member.report is not None and member.node_id != node_id
    ]
    deadline = trio.current_time() + FORGETTING
    while others and trio.current_time() < deadline:
        answers = await context.everywhere(others, [("CLUSTER", "FORGET", node_id)])
        for (answer,) in answers.values():
            if isinstance(answer, CommandRefusedError) and "Unknown node" not in answer.answer:
                raise answer
        others = [member for member in others if member.node_id not in answers]
        if others:
            live = {report.node_id for report in (await context.state()).reports}
            others = [member for member in others if member.node_id in live]
    if others:
        raise StepFailedError("slow", f"{others[0].address} does not answer, and still knows {node_id[:8]}")


def _left_over(context: StepContext, state: ClusterState) -> list[str]:
    """Members of hosts that left, with no slots and no shard: nobody waits for them."""
    used = {member.node_id for shard in context.shards(state).values() for member in shard.members}
    return [
        node_id
        for node_id, member in state.members.items()
        if member.report is None
        and member.host not in context.cluster.hosts
        and node_id not in {*used, *state.owners}
    ]


async def _serves(context: StepContext, state: ClusterState) -> bool:
    for member in state.members.values():
        if member.node_id in state.owners:
            answer = await context.ask(recipient_of(member), "CLUSTER", "INFO")
            if not isinstance(answer, bytes) or b"cluster_state:ok" not in answer:
                return False
    return True
