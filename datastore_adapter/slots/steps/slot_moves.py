"""Slots change hands, by whichever way the servers know, and slots left half way are finished.

*atomic* (CLUSTER MIGRATESLOTS, Valkey 9): the source sends whole slots and hands them over at once; cancelled, or with
the target lost, they stay.  *Key by key* (Redis 7): a slot is open for a while, with some of its keys at the source and
some at the target.  Such a slot is only ever brought forward: called STABLE, the keys that have moved are not found.
Sources: Redis documentation, CLUSTER SETSLOT ("Redis Cluster live resharding explained"), MIGRATE; Valkey
documentation, CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from datastore_adapter.slots.errors import CommandRefusedError, SlotsError, StepFailedError
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.state.cluster_state import ClusterState, Member
from datastore_adapter.slots.state.shards import Shard
from datastore_adapter.slots.state.slot_ranges import (
    Ranges,
    common,
    count,
    of_slots,
    overlap,
    slots_of,
    text_of,
    without,
)
from datastore_adapter.slots.steps.step_context import StepContext, recipient_of

FINISHED: Final = frozenset({"success", "failed", "cancelled", "canceled"})
ATOMIC_INTERVAL: Final = 0.02
HANDLED_AT_ONCE: Final = 1000
"""Keys of one slot that are looked at together."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """From whom to whom, as they are this moment."""

    source: Member
    target: Member


async def migrate(
    context: StepContext, giver: str | None, taker: str, ranges: Ranges, chain: Sequence[str], size: int
) -> None:
    """The slots are the taker's, and every primary knows it."""
    serves = False
    while True:
        state = await context.state()
        shards = context.shards(state, taker, chain)
        if taker not in shards:
            raise StepFailedError("unknown_shard", f"there is no shard {taker}; {chain[0]} has to join")
        left = without(ranges, shards[taker].slots)
        if not left:
            break
        if giver is None or giver not in shards:
            await _give(context, state, shards[taker], left)
            continue
        if overlap(left, shards[giver].slots) != count(left):
            others = text_of(without(left, shards[giver].slots))
            raise StepFailedError(
                "held", f"slots {others} are not {giver}'s any more: make a new plan", retryable=False
            )
        pair = _Pair(shards[giver].primary, shards[taker].primary)
        if not serves:
            await _until_it_serves(context, pair.target)
            serves = True
        context.report(size * (count(ranges) - count(left)) // max(1, count(ranges)), size)
        atomic = all(
            member.report is not None and member.report.moves_slots for member in (pair.source, pair.target)
        )
        if atomic:
            await _move_whole(context, pair, left)
        else:
            await _move_by_key(
                context, state, pair, _first(left, context.settings.slots_at_once), check_sizes=True
            )
    await context.until(
        lambda: _is_known(context, taker, chain, ranges),
        f"every primary names {taker} for slots {text_of(ranges[:3])}",
        context.settings.look_interval,
    )


async def _until_it_serves(context: StepContext, member: Member) -> None:
    """One that joined a moment ago refuses every key for some seconds, also those of slots that it is given."""

    async def is_ok() -> bool:
        answer = await context.ask(recipient_of(member), "CLUSTER", "INFO")
        return isinstance(answer, bytes) and b"cluster_state:ok" in answer

    await context.until(is_ok, f"{member.address} serves", context.settings.look_interval)


async def cancel_whole(context: StepContext, giver: str, ranges: Ranges) -> None:
    """Stop what the source sends of these slots; they stay there."""
    shard = context.shards(await context.state()).get(giver)
    if shard is None or shard.primary.report is None or not shard.primary.report.moves_slots:
        return
    source = shard.primary.report.recipient
    if any(overlap(job.ranges, ranges) for job in await _jobs(context, source) if job.state not in FINISHED):
        await context.command(source, "CLUSTER", "CANCELSLOTMIGRATIONS")


# slots that nobody holds


async def _give(context: StepContext, state: ClusterState, shard: Shard, ranges: Ranges) -> None:
    for report in state.reports:
        for record in report.table.nodes.values():
            if record.node_id != shard.primary.node_id and overlap(record.slots, ranges):
                held = text_of(common(record.slots, ranges))
                raise StepFailedError(
                    "held", f"slots {held} are held by {record.address} in the eyes of {report.address}"
                )
    words = [slot for pair in ranges for slot in pair]
    await context.command(recipient_of(shard.primary), "CLUSTER", "ADDSLOTSRANGE", *words)


# whole slots


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    ranges: Ranges
    target: str
    state: str
    message: str


async def _move_whole(context: StepContext, pair: _Pair, ranges: Ranges) -> None:
    """Take up what a controller before began; returns when it has ended well."""
    source = recipient_of(pair.source)
    job = _running(await _jobs(context, source), ranges)
    if job is not None and job.target != pair.target.node_id:
        await context.command(source, "CLUSTER", "CANCELSLOTMIGRATIONS")
        job = None
    if job is None:
        before = {each.name for each in await _jobs(context, source)}
        words = [slot for each in ranges for slot in each]
        await context.command(
            source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *words, "NODE", pair.target.node_id
        )
        fresh = [each for each in await _jobs(context, source) if each.name not in before]
        job = next((each for each in fresh if overlap(each.ranges, ranges)), None)
    while job is not None and job.state not in FINISHED:
        await trio.sleep(ATOMIC_INTERVAL)
        name = job.name
        job = next((each for each in await _jobs(context, source) if each.name == name), None)
    if job is None or job.state != "success":
        why = "it is not known any more" if job is None else f"{job.state} {job.message}".strip()
        raise StepFailedError("not_moved", f"{source.address} did not move slots {text_of(ranges)}: {why}")

    async def is_handed_over() -> bool:
        state = await context.state()
        return overlap(state.owners.get(pair.target.node_id, ()), ranges) == count(ranges)

    await context.until(is_handed_over, f"most servers know who has {text_of(ranges)}", ATOMIC_INTERVAL)


def _running(jobs: Sequence[_Job], ranges: Ranges) -> _Job | None:
    return next((job for job in jobs if job.state not in FINISHED and overlap(job.ranges, ranges)), None)


async def _jobs(context: StepContext, server: Recipient) -> list[_Job]:
    """What the server sends, or has sent lately."""
    answer = await context.ask(server, "CLUSTER", "GETSLOTMIGRATIONS")
    jobs = []
    for entry in answer if isinstance(answer, list) else ():
        fields = {_text(entry[i]): _text(entry[i + 1]) for i in range(0, len(entry) - 1, 2)}
        if fields.get("operation") != "EXPORT":
            continue
        jobs.append(
            _Job(
                fields.get("name", ""),
                _ranges_of(fields.get("slot_ranges", "")),
                fields.get("target_node", ""),
                fields.get("state", ""),
                fields.get("message", ""),
            )
        )
    return jobs


def _ranges_of(text: str) -> Ranges:
    pairs = (part.partition("-") for part in text.split())
    return of_slots(slot for first, _, last in pairs for slot in range(int(first), int(last or first) + 1))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# key by key


async def _move_by_key(
    context: StepContext, state: ClusterState, pair: _Pair, slots: Sequence[int], *, check_sizes: bool
) -> None:
    """A few slots at a time, each step of it for all of them together."""
    source, target = recipient_of(pair.source), recipient_of(pair.target)
    keys = await _keys_in(context, source, slots)
    if check_sizes:
        await _check_sizes(context, source, keys)
    # The target first: a source that sends clients to it must not find it unprepared.
    await _set(context, target, slots, "IMPORTING", pair.source.node_id, fine="already the owner")
    await _set(context, source, slots, "MIGRATING", pair.target.node_id, fine="not the owner")
    open_slots = list(slots)
    while open_slots:
        while True:
            await _send(context, source, target, list(keys.values()))
            # Only now it is for sure: until they were MIGRATING, clients could add keys.
            keys = await _keys_in(context, source, open_slots)
            if not any(keys.values()):
                break
        await _set(context, target, open_slots, "NODE", pair.target.node_id)
        answers = await context.commands(
            source, [_setslot(slot, "NODE", pair.target.node_id) for slot in open_slots]
        )
        # Refused with "Can't assign hashslot": a key was there after all.
        open_slots = [
            slot
            for slot, answer in zip(open_slots, answers, strict=True)
            if isinstance(answer, CommandRefusedError)
        ]
        keys = await _keys_in(context, source, open_slots) if open_slots else {}
        if open_slots and not any(keys.values()):
            raise next(answer for answer in answers if isinstance(answer, CommandRefusedError))
    both = {source.node_id, target.node_id}
    others = [
        member
        for node_id, member in state.members.items()
        if member.report is not None and member.record.is_primary and node_id not in both
    ]
    await context.everywhere(others, [_setslot(slot, "NODE", pair.target.node_id) for slot in slots])


async def _check_sizes(context: StepContext, server: Recipient, keys: Mapping[int, Sequence[bytes]]) -> None:
    """Before a slot is opened: one that cannot be moved to its end is not begun."""
    looked_at = [(slot, key) for slot, its_keys in keys.items() for key in its_keys]
    sizes = await context.ask_all(server, [("MEMORY", "USAGE", key, "SAMPLES", "5") for _, key in looked_at])
    largest = context.settings.largest_key
    for (slot, key), size in zip(looked_at, sizes, strict=True):
        if isinstance(size, int) and size > largest:
            raise StepFailedError(
                "huge_key",
                f"key {key[:60].decode('utf-8', 'replace')!r} in slot {slot} takes about {size} bytes, above the "
                f"limit of {largest}: its server would answer nobody while it moves; make it smaller, or raise "
                "`largest_key`",
                retryable=False,
            )


async def _keys_in(context: StepContext, server: Recipient, slots: Sequence[int]) -> dict[int, list[bytes]]:
    answers = await context.ask_all(
        server, [("CLUSTER", "GETKEYSINSLOT", slot, HANDLED_AT_ONCE) for slot in slots]
    )
    found = {}
    for slot, answer in zip(slots, answers, strict=True):
        if isinstance(answer, SlotsError):
            raise answer
        found[slot] = list(answer)
    return found


async def _send(
    context: StepContext, source: Recipient, target: Recipient, slots: Sequence[Sequence[bytes]]
) -> None:
    """The keys of each slot: one command takes keys of one slot."""
    host, port = await context.cluster.endpoint(target.address)
    access, timeout = context.access, context.settings.move_timeout
    words: list[str | bytes | int] = ["MIGRATE", host, port, "", 0, int(timeout * 1000), "REPLACE"]
    if access.password:
        words += ["AUTH2", access.user, access.password] if access.user else ["AUTH", access.password]
    chunks = [chunk for its_keys in slots for chunk in _chunks(its_keys, context.settings.keys_at_once)]
    for together in _together(chunks, context.settings.keys_at_once):
        commands = [[*words, "KEYS", *chunk] for chunk in together]
        await context.ask(target, "ROLE")  # whoever is there gets the keys
        for answer in await context.commands(source, commands, timeout=timeout + 1.0):
            if isinstance(answer, CommandRefusedError):
                raise answer


def _together(chunks: Sequence[Sequence[bytes]], size: int) -> Iterator[list[Sequence[bytes]]]:
    """As many at a time as have so many keys together: a server answers nobody until it has done all it was sent."""
    group: list[Sequence[bytes]] = []
    for chunk in chunks:
        if group and sum(map(len, group)) + len(chunk) > size:
            yield group
            group = []
        group.append(chunk)
    if group:
        yield group


async def _set(
    context: StepContext, server: Recipient, slots: Sequence[int], what: str, node_id: str, fine: str = ""
) -> None:
    for answer in await context.commands(server, [_setslot(slot, what, node_id) for slot in slots]):
        if isinstance(answer, CommandRefusedError) and not (fine and fine in answer.answer):
            raise answer


def _setslot(slot: int, *words: str) -> tuple[str | int, ...]:
    return ("CLUSTER", "SETSLOT", slot, *words)


async def _is_known(context: StepContext, taker: str, chain: Sequence[str], ranges: Ranges) -> bool:
    """By every primary that answers, and no slot of them open any more."""
    state = await context.state()
    shard = context.shards(state, taker, chain).get(taker)
    if shard is None or overlap(shard.slots, ranges) != count(ranges):
        return False
    me = shard.primary.node_id
    return all(
        me in report.table.nodes and overlap(report.table.nodes[me].slots, ranges) == count(ranges)
        for report in state.reports
        if report.table.me.is_primary
    )


def _first(ranges: Ranges, number: int) -> list[int]:
    return sorted(slots_of(ranges))[:number]


def _chunks(keys: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


# slots left half way


def open_slots(state: ClusterState) -> dict[str, Ranges]:
    """By node id of who holds them in the eyes of most."""
    found: dict[str, set[int]] = defaultdict(set)
    owners = {slot: node_id for node_id, ranges in state.owners.items() for slot in slots_of(ranges)}
    for report in state.reports:
        for slot in slots_of(report.table.open_slots):
            found[owners.get(slot, report.node_id)].add(slot)
    return {node_id: of_slots(slots) for node_id, slots in found.items()}


async def finish(context: StepContext, key: str, slots: Ranges) -> None:
    """None of the slots is open, and no key of them is where nobody looks for it."""
    state = await context.state()
    still = {slot: node_id for node_id, ranges in open_slots(state).items() for slot in slots_of(ranges)}
    by_pair: dict[tuple[str, str], list[int]] = defaultdict(list)
    for slot in sorted(slots_of(slots) & still.keys()):
        owner = state.members.get(still[slot])
        if owner is None or owner.report is None:
            raise StepFailedError(
                "asks", f"the primary of {key}, which holds slot {slot}, does not answer", retryable=False
            )
        receiver = await _receiver(context, state, owner, slot)
        if receiver is None:
            await _close(context, state, owner, slot)
        else:
            by_pair[owner.node_id, receiver.node_id].append(slot)
    for (source, target), its in by_pair.items():
        pair = _Pair(state.members[source], state.members[target])
        for start in range(0, len(its), context.settings.slots_at_once):
            await _move_by_key(
                context, state, pair, its[start : start + context.settings.slots_at_once], check_sizes=False
            )


async def _receiver(context: StepContext, state: ClusterState, owner: Member, slot: int) -> Member | None:
    """Where the slot was on its way to, as far as any of its keys may be there; None: it need only be closed."""
    primaries = [
        member
        for member in state.members.values()
        if member.report is not None and member.record.is_primary and member is not owner
    ]
    holding = await _counts(context, primaries, slot)
    importing = [m for m in primaries if m.report is not None and slot in m.report.table.me.importing]
    assert owner.report is not None
    wanted = owner.report.table.me.migrating.get(slot, "")
    with_keys = [member for member in primaries if holding.get(member.node_id)]
    for member in (*(m for m in importing if m in with_keys), *with_keys):
        return member
    # Nothing is elsewhere.  What was begun in order goes on; a slot that only one of the two knows of is closed.
    return next((member for member in importing if member.node_id == wanted), None)


async def _counts(context: StepContext, members: Sequence[Member], slot: int) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for member in members:
        answer = await context.ask(recipient_of(member), "CLUSTER", "COUNTKEYSINSLOT", slot)
        counts[member.node_id] = int(answer)
    return counts


async def _close(context: StepContext, state: ClusterState, owner: Member, slot: int) -> None:
    """Nobody but its owner has keys of it."""
    for member in state.members.values():
        report = member.report
        if report is None or not (slot in report.table.me.migrating or slot in report.table.me.importing):
            continue
        await context.command(report.recipient, *_setslot(slot, "STABLE"))
        if member is not owner:
            # It believed nobody about the slot; it must not think that it is still its former primary's.
            await context.command(report.recipient, *_setslot(slot, "NODE", owner.node_id))
