"""Waves: every state on the way is safe.  The check of a wave is held against all of its states, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain as joined
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgmt.plans.cyclic_exchanges import find_exchange
from mgmt.plans.safety import Chains, Danger, SafetyContext, SegmentState, SegmentStates, WaveLimits, dangers
from mgmt.plans.wave_planning import Change, split_into_waves

HOSTS = ("a", "b", "c", "d", "e")
RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3"}


@dataclass(frozen=True)
class State:
    """One segment at one moment: who has all of it, who has any of it, who leads."""

    complete: frozenset[str]
    held: frozenset[str]
    primary: str | None


def states_of(before: SegmentState, chain: tuple[str, ...]) -> Iterator[State]:
    """All states of a segment on its way: opened, any of the new copies complete, closed."""
    yield State(before.complete, before.held, before.chain[0] if before.chain else None)
    if chain == before.chain:
        return
    live = [host for host in chain if host in RACKS]
    new = [host for host in live if host not in before.complete]
    for done in joined.from_iterable(combinations(new, size) for size in range(len(new) + 1)):
        yield State(before.complete | set(done), before.held | set(live), chain[0])
    yield State(frozenset(live), frozenset(live), chain[0])


def racks(hosts: frozenset[str]) -> int:
    return len({RACKS[host] for host in hosts})


def worst_by_states(stand: SegmentStates, wave: Chains, context: SafetyContext) -> list[Danger]:
    """The same as ``dangers``, by looking at every combination of states of the segments."""
    worst: dict[tuple[str, str], int] = {}

    def broken(rule: str, subject: str, by: int) -> None:
        if by > 0:
            worst[rule, subject] = max(by, worst.get((rule, subject), 0))

    keys = sorted(stand)
    now = {host: sum(stand[key].bytes for key in keys if host in stand[key].held) for host in RACKS}
    copies_now = {host: sum(host in stand[key].held for key in keys) for host in RACKS}
    for states in product(*(list(states_of(stand[key], wave.get(key, stand[key].chain))) for key in keys)):
        primaries, copies, on_host, on_rack = 0, 0, Counter[str](), Counter[str]()
        new: Counter[str] = Counter()
        for key, state in zip(keys, states, strict=True):
            before = stand[key]
            coming = sorted(state.held - before.held)
            leads = wave.get(key, before.chain)[:1]
            if before.is_new:
                continue
            broken("copies", key, min(context.wanted, len(before.complete)) - len(state.complete))
            least = min(racks(before.complete), context.wanted, context.wanted_racks.get(key, 9))
            broken("racks", key, least - racks(state.complete))
            old = before.chain[0] if before.chain else None
            moved = leads and state.primary == leads[0] and old != leads[0]
            primaries += bool(moved and old in RACKS and old not in context.leaving)
            copies += len(coming)
            new.update(coming)
            if coming:
                gone = [host for host in before.complete if host not in wave[key]][: len(coming)]
                for host in (*coming, *gone):
                    on_host[host] += 1
                    on_rack[RACKS[host]] += 1
        for host in RACKS:
            held = sum(stand[key].bytes for key, s in zip(keys, states, strict=True) if host in s.held)
            if held > now[host]:
                broken("capacity", host, held - context.capacity[host])
            copies_then = sum(host in state.held for state in states)
            if context.servers and copies_then > copies_now[host]:
                broken("servers", host, copies_then - context.servers.get(host, 0))
            if host in context.frozen:
                broken("frozen", host, new[host])
            broken("moves", host, on_host[host] - context.limits.moves_per_host)
        for rack, count in on_rack.items():
            broken("moves", f"rack {rack}", count - context.limits.moves_per_rack)
        broken("moves", "the cluster", copies - context.limits.moves_per_cluster)
        placed = sum(not stand[key].is_new for key in keys)
        broken("primaries", "the cluster", primaries - max(1, (placed - 1) // 2))
    return sorted(Danger(rule, subject, by) for (rule, subject), by in worst.items())


def worst_of_exchange(stand: SegmentStates, wave: Chains, context: SafetyContext) -> list[Danger]:
    """The same for an exchange: every copy that leaves does so first, then the new ones come, in any order."""
    without = {
        key: replace(
            stand[key],
            chain=tuple(host for host in stand[key].chain if host in chain),
            complete=stand[key].complete & set(chain),
            held=stand[key].held & set(chain),
        )
        for key, chain in wave.items()
    }
    left = {key: min(context.wanted, len(stand[key].complete)) - len(without[key].complete) for key in wave}
    found = [Danger("copies", key, by) for key, by in left.items() if by > 0]
    for key, chain in wave.items():
        before = stand[key].complete
        least = min(racks(before), context.wanted, context.wanted_racks.get(key, 9))
        found += (
            [Danger("racks", key, by)] if (by := least - racks(frozenset(chain) & RACKS.keys())) > 0 else []
        )
    # That copies, and so racks, are fewer is told; whatever else is broken with the rest as what stands is not.
    later = worst_by_states({**stand, **without}, wave, context)
    return sorted([*found, *(danger for danger in later if danger.rule in {"capacity", "servers", "frozen"})])


chains = st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def stands(draw: st.DrawFn) -> SegmentState:
    if draw(st.integers(0, 5)) == 0:
        return SegmentState((), frozenset(), frozenset(), 0)
    chain = draw(chains)
    old = draw(st.sets(st.sampled_from(HOSTS), max_size=1))  # holds data of an old layout, complete or not
    complete = frozenset(host for host in {*chain, *old} if draw(st.integers(0, 3)))
    return SegmentState(chain, complete, frozenset(chain) | old, draw(st.integers(0, 9)))


limits = st.builds(WaveLimits, st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, SegmentState], dict[str, tuple[str, ...]], SafetyContext]:
    stand = {key: draw(stands()) for key in "xyz"[: draw(st.integers(1, 3))]}
    wave = {key: draw(chains) for key in stand if draw(st.booleans())}
    context = SafetyContext(
        racks=RACKS,
        capacity={host: draw(st.sampled_from((8, 15, 100))) for host in HOSTS},
        wanted=draw(st.integers(1, 3)),
        servers=draw(st.sampled_from(({}, dict.fromkeys(HOSTS, 1), {"a": 1, "b": 2, "c": 3, "d": 2}))),
        wanted_racks={key: draw(st.integers(1, 3)) for key in stand if draw(st.booleans())},
        frozen=draw(st.sets(st.sampled_from(HOSTS), max_size=1).map(frozenset)),
        leaving=draw(st.sets(st.sampled_from(HOSTS), max_size=1).map(frozenset)),
        limits=draw(limits),
    )
    return stand, wave, context


@given(cases())
def test_the_dangers_of_a_wave_are_those_of_its_worst_states(
    case: tuple[dict[str, SegmentState], dict[str, tuple[str, ...]], SafetyContext],
) -> None:
    stand, wave, context = case
    assert dangers(stand, wave, context) == worst_by_states(stand, wave, context)


@given(cases(), st.data())
def test_waves_lead_to_what_is_wanted_and_each_is_safe(
    case: tuple[dict[str, SegmentState], dict[str, tuple[str, ...]], SafetyContext], data: st.DataObject
) -> None:
    stand, wanted, context = case
    changes = [
        Change(key, chain, required := data.draw(st.booleans()), required and data.draw(st.booleans()))
        for key, chain in wanted.items()
        if chain != stand[key].chain
    ]
    found = split_into_waves(stand, changes, context)
    assert len(found.waves) == len(found.exchanges)
    at_risk = {change.segment for change in changes if change.at_risk}
    required = {change.segment for change in changes if change.required}
    before = dict(stand)
    for number, (wave, told) in enumerate(zip(found.waves, found.dangers, strict=True)):
        moved = {key: chain for key, chain in wave.items() if chain != before[key].chain}
        exchanged = found.exchanges[number]
        if exchanged:
            assert list(told) == worst_of_exchange(before, moved, context)
            assert {danger.rule for danger in told} == {"copies"}
            assert number < found.required
            for key in moved:
                assert wave[key][0] == before[key].chain[0], "a primary is in no exchange"
                assert wave[key][0] in before[key].complete
            # No part of it would have done: it is the smallest there is.
            for size in range(1, len(moved)):
                for part in combinations(moved, size):
                    broken = worst_of_exchange(before, {key: wave[key] for key in part}, context)
                    assert {danger.rule for danger in broken} - {"copies"}
        else:
            assert list(told) == worst_by_states(before, moved, context)
        if (
            told and not exchanged
        ):  # only alone, and only because data is at risk otherwise, or there is no smaller part
            assert len(moved) == 1
            assert set(moved) <= at_risk or {danger.rule for danger in told} == {"moves"}
        assert set(moved) <= required if number < found.required else not set(moved) & required
        before |= {key: before[key].then(chain, RACKS) for key, chain in moved.items()}
    left = {change.segment for change, _ in found.left_out}
    lacking = {change.segment for change, told in found.left_out if {d.rule for d in told} & {"servers"}}
    assert not left & at_risk - lacking
    for change in changes:
        reached = found.waves[-1][change.segment] == change.chain
        assert reached != (change.segment in left)


servers_of_one = st.fixed_dictionaries(dict.fromkeys(HOSTS, st.integers(1, 2)))


@given(
    st.lists(
        st.lists(st.sampled_from(HOSTS), min_size=2, max_size=2, unique=True).map(tuple),
        min_size=2,
        max_size=4,
    ),
    servers_of_one,
    st.data(),
)
def test_the_smallest_exchange_is_found_where_there_is_one(
    placed: list[tuple[str, ...]], servers: dict[str, int], data: st.DataObject
) -> None:
    """Against every set of segments, each of which moves one of its copies."""
    stand = {f"s{number}": standing(*chain) for number, chain in enumerate(placed)}
    wanted = {}
    for key, before in stand.items():
        stays, goes = before.chain
        free = [host for host in HOSTS if host not in before.chain]
        wanted[key] = (stays, data.draw(st.sampled_from([goes, *free])))
    copies = Counter(host for before in stand.values() for host in before.held)
    servers = {host: max(number, copies[host]) for host, number in servers.items()}
    context = context_of(wanted=2, servers=servers)
    found = find_exchange(stand, wanted, context)
    moving = [key for key in stand if wanted[key] != stand[key].chain]
    sets = joined.from_iterable(combinations(moving, size) for size in range(1, len(moving) + 1))
    for keys in sets:
        wave = {key: wanted[key] for key in keys}
        if {danger.rule for danger in worst_of_exchange(stand, wave, context)} <= {"copies"}:
            assert found is not None
            assert len(found.chains) == len(wave)
            break
    else:
        assert found is None


def test_copies_change_places_where_every_server_is_in_use() -> None:
    """Two shards with both copies in one rack; a primary that is to move is handed on before."""
    stand = {"x": standing("a", "b"), "y": standing("c", "d")}
    changes = [Change("x", ("b", "c"), True), Change("y", ("d", "a"), True)]
    full = context_of(wanted=2, servers=dict.fromkeys("abcd", 1), limits=WaveLimits())
    found = split_into_waves(stand, changes, full)
    assert found.waves == (
        {"x": ("b", "a"), "y": ("c", "d")},  # fewer than half of the primaries, but one in any case
        {"x": ("b", "a"), "y": ("d", "c")},
        {"x": ("b", "c"), "y": ("d", "a")},
    )
    assert found.exchanges == ((), (), ("x", "y"))
    assert [str(danger) for danger in found.dangers[2]] == [
        "segment x has 1 complete copies fewer than it may",
        "segment y has 1 complete copies fewer than it may",
    ]
    assert found.required == 3
    for_balance = split_into_waves(stand, [replace(change, required=False) for change in changes], full)
    assert for_balance.waves == ({"x": ("a", "b"), "y": ("c", "d")},)
    assert [str(danger) for danger in for_balance.left_out[0][1]] == [
        "c has 1 servers fewer than old and new copies need together"
    ]
    alone = {key: standing(before.chain[0]) for key, before in stand.items()}
    last_copies = [Change("x", ("c",), True), Change("y", ("a",), True)]
    assert split_into_waves(alone, last_copies, full).waves == ({"x": ("a",), "y": ("c",)},)


def standing(*hosts: str, size: int = 1) -> SegmentState:
    return SegmentState(hosts, frozenset(hosts), frozenset(hosts), size)


def context_of(**fields: object) -> SafetyContext:
    given_fields: dict[str, object] = {"capacity": dict.fromkeys(HOSTS, 100), "wanted": 3, **fields}
    return SafetyContext(racks=RACKS, **given_fields)  # type: ignore[arg-type]


def test_what_is_required_goes_first_and_the_least_replicated_before_others() -> None:
    stand = {"x": standing("a", "c", "e"), "y": standing("a", "c", "e"), "z": standing("a")}
    changes = [
        Change("x", ("b", "c", "e"), False),
        Change("y", ("b", "c", "e"), True),
        Change("z", ("a", "c", "e"), True, at_risk=True),
    ]
    found = split_into_waves(stand, changes, context_of(limits=WaveLimits(moves_per_cluster=2)))
    moved = [{key for key, c in wave.items() if c != stand[key].chain} for wave in found.waves]
    assert moved == [{"z"}, {"z", "y"}, {"z", "y", "x"}]
    assert found.required == 2
    assert found.dangers == ((), (), ())


def test_a_swap_that_only_fits_after_another_move_waits_for_it() -> None:
    stand = {"x": standing("a", "c", size=60), "y": standing("b", "c", size=60)}
    changes = [Change("x", ("b", "c"), False), Change("y", ("e", "c"), False)]
    found = split_into_waves(stand, changes, context_of(wanted=2))
    assert [wave["x"] for wave in found.waves] == [("a", "c"), ("b", "c")]


@pytest.mark.parametrize("required", [False, True])
def test_what_fits_in_no_order_is_left_out_unless_data_is_at_risk(required: bool) -> None:
    stand = {"x": standing("a", "c", size=60), "y": standing("b", "c", size=60)}
    exchange = [
        Change("x", ("b", "c"), required, at_risk=required),
        Change("y", ("a", "c"), required, at_risk=required),
    ]
    found = split_into_waves(
        stand, exchange, context_of(wanted=2, capacity=dict.fromkeys(HOSTS, 100) | {"c": 1000})
    )
    if required:
        assert found.waves[-1] == {"x": ("b", "c"), "y": ("a", "c")}
        assert [str(danger) for danger in found.dangers[0]] == [
            "b holds 20 bytes more than its capacity, old and new copies together"
        ]
        assert found.left_out == ()
    else:
        assert found.waves == ({"x": ("a", "c"), "y": ("b", "c")},)
        assert [change.segment for change, _ in found.left_out] == ["x", "y"]


def test_nothing_to_do_is_one_wave_that_stays() -> None:
    stand = {"x": standing("a", "c", "e")}
    assert split_into_waves(stand, [], context_of()).waves == ({"x": ("a", "c", "e")},)
    assert split_into_waves(stand, [], context_of()).required == 0
    assert split_into_waves(stand, [], context_of(), taken_out=True).required == 1


@pytest.mark.parametrize("name", ["moves_per_host", "moves_per_rack", "moves_per_cluster"])
def test_limits_let_something_through(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        WaveLimits(**{name: 0})
