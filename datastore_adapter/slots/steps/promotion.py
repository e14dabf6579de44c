"""Another copy becomes the primary of a shard: handed on in order, or after a loss, to one that has the data.

Source: Redis Cluster specification, "Replica election and promotion"; CLUSTER FAILOVER.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf

import trio

from datastore_adapter.slots.errors import SlotsError, StepFailedError
from datastore_adapter.slots.observation import is_in_step
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.state.cluster_state import ClusterState, Member, Report
from datastore_adapter.slots.state.evidence import Candidate, Sample
from datastore_adapter.slots.state.shards import Record, Shard
from datastore_adapter.slots.state.slot_ranges import Ranges, count, overlap, slots_of
from datastore_adapter.slots.steps.gossip import Ignorance, is_elected, not_electing, spread
from datastore_adapter.slots.steps.step_context import StepContext, recipient_of

RECENT = 0.2
"""Seconds that a look at the cluster may be old when a primary is lost: the candidates themselves are asked anew."""
HANDING_OVER = 6.0
"""Seconds that a primary has to hand its shard over; the servers themselves give up after 5."""
AGREEING = 5.0
INFORMING = 2.0
GOSSIPING = 0.1
"""Seconds in which the other replicas mostly find out by themselves."""
TELLING_AGAIN = 1.0


async def switch(context: StepContext, key: str, host: str) -> None:
    """The copy on the host is the primary, whether the one before lives or not."""
    state = await context.state()
    shard = _shard(context, state, key)
    chosen = next((member for member in shard.at(host) if member.report is not None), None)
    if chosen is None:
        raise StepFailedError("no_copy", f"no server on {host} that answers has a copy of {key}")
    if chosen is not shard.primary:
        if shard.primary.report is None:
            await fail_over(context, key, prefer=host, only=True)
            return
        await _hand_over(context, key, shard, chosen)
    await _agreed(context, shard, chosen)


async def fail_over(context: StepContext, key: str, prefer: str | None = None, *, only: bool = False) -> None:
    """The shard has a primary that answers.  ``only``: it has to be the one on the host ``prefer``."""
    state = await context.state(RECENT)
    shard = _shard(context, state, key)
    if shard.primary.report is not None:  # the engine did it itself, or it is back
        await _agreed(context, shard, shard.primary)
        return
    candidates = await _candidates(context, shard)
    # One that leads was elected since that look: an election may outlast the step that asked for it.
    chosen = next((candidate for candidate in candidates if not candidate.primary_id), None)
    if chosen is None:
        _check_votes(state, key)
        chosen = _fittest(context, shard, candidates, prefer, only=only)
        await _elect(context, shard, _member(shard, chosen))
    await _agreed(context, shard, _member(shard, chosen))
    await _take_rest(context, shard, _member(shard, chosen))


def _fittest(
    context: StepContext, shard: Shard, candidates: Sequence[Candidate], prefer: str | None, *, only: bool
) -> Candidate:
    """The best of those that have the data.  Where there is none it is a question, unless one has not answered now."""
    verdict = context.cluster.evidence.assess(shard.primary.node_id, candidates, trio.current_time())
    fit = [
        c for c in in_order(context.record, shard.key, verdict.fit, prefer) if not only or c.host == prefer
    ]
    if fit:
        return fit[0]
    answered = {candidate.sample.node_id for candidate in candidates}
    silent = [m.host for m in shard.replicas if m.report is not None and m.node_id not in answered]
    if silent:
        raise StepFailedError("silent", f"{silent[0]}, which has a copy of {shard.key}, does not answer")
    why = "; ".join(verdict.refused) or "no replica of it answers"
    raise StepFailedError(
        "asks",
        f"no replica is known to have its data ({why}); bring {shard.primary.host} back, or name one by hand "
        "(CLUSTER FAILOVER TAKEOVER there), which may lose data",
        retryable=False,
    )


def _member(shard: Shard, candidate: Candidate) -> Member:
    return next(member for member in shard.replicas if member.node_id == candidate.sample.node_id)


async def _elect(context: StepContext, shard: Shard, chosen: Member) -> None:
    """The replica leads.  Where that takes too long it may come to lead later all the same."""
    server = recipient_of(chosen)
    await _inform(context, shard, chosen, INFORMING, patience=0.0)
    await context.command(server, "CLUSTER", "FAILOVER", "FORCE")
    if not await _leads(context, server, context.settings.failover_timeout):
        raise StepFailedError(
            "no_votes",
            f"{server.address} on {chosen.host} was not elected within {context.settings.failover_timeout:g} s; the "
            "other primaries vote once for a shard in twice the node timeout",
        )


async def _inform(
    context: StepContext, shard: Shard, chosen: Member, timeout: float, patience: float
) -> None:
    """See that the replica can be elected: for some times the node timeout it cannot run again.

    Where there is time all that vote have to know it; in a loss enough of them.
    """

    def ignorance(state: ClusterState) -> Ignorance:
        against = not_electing(state, chosen.node_id, shard.primary.node_id)
        is_enough = shard.primary.report is None and is_elected(state, against)
        return {chosen.node_id: [] if is_enough else against}

    if any(ignorance(await context.state(RECENT)).values()):
        await spread(context, ignorance, timeout, patience)


async def _take_rest(context: StepContext, shard: Shard, chosen: Member) -> None:
    """Slots that the lost primary was given so lately that its replica, which has their keys, did not run for them."""
    state = await context.state()
    rest = state.owners.get(shard.primary.node_id, ())
    if rest and chosen.node_id in state.owners and state.members[shard.primary.node_id].report is None:
        primaries = [m for m in state.members.values() if m.report is not None and m.record.is_primary]
        words = [("CLUSTER", "SETSLOT", slot, "NODE", chosen.node_id) for slot in sorted(slots_of(rest))]
        await context.everywhere(primaries, words)


def _check_votes(state: ClusterState, key: str) -> None:
    """An election needs a majority of the primaries with slots; the command answers OK without it, and nothing comes of
    it."""
    voters = [state.members.get(node_id) for node_id, ranges in state.owners.items() if ranges]
    living = [member for member in voters if member is not None and member.report is not None]
    if 2 * len(living) <= len(voters):
        gone = sorted(member.host for member in voters if member is not None and member.report is None)
        raise StepFailedError(
            "asks",
            f"{len(living)} of {len(voters)} primaries answer, which is no majority, so that nobody can be elected for "
            f"{key}; bring one of {', '.join(gone)} back, or have a replica take over by hand "
            "(CLUSTER FAILOVER TAKEOVER)",
            retryable=False,
        )


async def _candidates(context: StepContext, shard: Shard) -> list[Candidate]:
    """Replicas as they are this moment: what they say of their data, and whom they follow, in one answer."""
    found: list[Candidate] = []

    async def ask(report: Report) -> None:
        with suppress(SlotsError):
            now = await context.cluster.report(report.recipient, report.host)
            found.append(Candidate(Sample(now.node_id, now.info), now.host, now.table.me.primary_id))

    async with trio.open_nursery() as nursery:
        for member in shard.replicas:
            if member.report is not None:
                nursery.start_soon(ask, member.report)
    return found


def in_order(
    record: Record, key: str, fit: Sequence[Candidate], prefer: str | None = None
) -> Sequence[Candidate]:
    """Who has most of the writes first, or one that `WAIT 1` has answered for may be lost; of equals the one that the
    policies want, hosts that are being emptied last."""
    wanted = (record.chains or {}).get(key, ())

    def rank(candidate: Candidate) -> tuple[int, bool, bool, int, str]:
        place = wanted.index(candidate.host) if candidate.host in wanted else len(wanted)
        offset = -candidate.sample.info.offset
        return offset, candidate.host != prefer, candidate.host in record.drains, place, candidate.host

    return sorted(fit, key=rank)


async def _hand_over(context: StepContext, key: str, shard: Shard, chosen: Member) -> None:
    """Nothing is lost: the old primary waits until the new one has everything."""
    assert chosen.report is not None
    assert shard.primary.report is not None
    lag = max(0, shard.primary.report.info.offset - chosen.report.info.offset)
    if not is_in_step(chosen, shard.primary, lag, context.settings.lag_limit):
        raise StepFailedError("behind", f"{chosen.host} is not in step with the primary of {key}")
    await _inform(context, shard, chosen, context.settings.gossip_timeout, patience=inf)
    await context.command(chosen.report.recipient, "CLUSTER", "FAILOVER")
    if not await _leads(context, chosen.report.recipient, HANDING_OVER):
        raise StepFailedError("slow", f"{shard.primary.host} did not hand {key} over to {chosen.host}")


async def _leads(context: StepContext, server: Recipient, timeout: float) -> bool:
    """Whether the server becomes a primary in time."""
    with trio.move_on_after(timeout):
        while True:
            answer = await context.ask(server, "ROLE")
            if isinstance(answer, list) and answer and answer[0] in {b"master", b"primary"}:
                return True
            await trio.sleep(context.settings.poll_interval)
    return False


async def _agreed(context: StepContext, before: Shard, chosen: Member) -> None:
    """Most servers know the new primary, and the other copies that answer follow it.

    Not all: on Redis 7 a server that imports a slot believes nobody about who holds it until it is told again.
    """
    others = [member.node_id for member in before.members if member.node_id != chosen.node_id]
    began = trio.current_time()
    told_at = began - TELLING_AGAIN + GOSSIPING
    while trio.current_time() < began + AGREEING:
        state = await context.state()
        ranges = state.owners.get(chosen.node_id, ())
        knowing = [report for report in state.reports if _knows(report, chosen.node_id, ranges)]
        strays = [
            member
            for node_id in others
            if (member := state.members.get(node_id)) is not None
            and member.report is not None
            and member.record.primary_id != chosen.node_id
        ]
        if 2 * len(knowing) > len(state.reports) and not strays:
            return
        if knowing and trio.current_time() - told_at >= TELLING_AGAIN:
            # A replica of the former primary may follow that one for seconds still, though it leads nothing any more.
            told_at = trio.current_time()
            await context.everywhere(strays, [("CLUSTER", "REPLICATE", chosen.node_id)])
        await trio.sleep(context.settings.poll_interval)
    behind = [report.address for report in state.reports if report not in knowing]
    raise StepFailedError(
        "slow",
        f"not within {AGREEING:g} s do most servers know that {chosen.host} leads {before.key}; "
        f"not {', '.join([*behind, *(member.address for member in strays)][:3])}",
    )


def _knows(report: Report, node_id: str, ranges: Ranges) -> bool:
    """Whether this server sees the node as a primary, with these slots."""
    record = report.table.nodes.get(node_id)
    return record is not None and record.is_primary and overlap(record.slots, ranges) == count(ranges)


def _shard(context: StepContext, state: ClusterState, key: str) -> Shard:
    shard = context.shards(state).get(key)
    if shard is None:
        raise StepFailedError("unknown_shard", f"there is no shard {key}", retryable=False)
    return shard
