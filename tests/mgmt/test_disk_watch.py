"""Whose disk counts as slow, and who is relieved: compared with a count over the whole history."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.interface import DiskState, DiskTrouble
from mgmt.placement.disk_watch import DiskWatch, SlowDiskLimits, relief_text, watched

LIMITS = SlowDiskLimits(factor=10, least=0.1, slow_after=10, fast_after=60)
HOSTS = ("a", "b", "c", "d", "e")
FAILED = DiskTrouble(DiskState.FAILED, "cannot write: Input/output error")
FULL = DiskTrouble(DiskState.FULL, "it takes no more records")

Look = tuple[float, dict[str, float], dict[str, DiskTrouble]]


def run(looks: list[Look], hosts: tuple[str, ...] = HOSTS) -> list[DiskWatch]:
    """After each look."""
    watch, results = DiskWatch(), []
    for now, figures, told in looks:
        watch = watched(watch, now, hosts, told, figures, LIMITS)
        results.append(watch)
    return results


def steady(seconds: float, **figures: float) -> list[Look]:
    """A look every second, until then: 2 ms unless another figure is given."""
    return [(float(now), {**dict.fromkeys(HOSTS, 0.002), **figures}, {}) for now in range(int(seconds) + 1)]


def test_a_disk_that_is_far_slower_than_its_peers_for_ten_seconds_is_named_and_relieved() -> None:
    *before, last = run(steady(10, c=2.0))
    assert not any(watch.disks for watch in before)
    assert all(watch.is_suspicious for watch in before)
    assert last.disks == {
        "c": DiskTrouble(
            DiskState.SLOW, "a sync takes 2 s there, and 0.002 s on other hosts", is_relieved=True
        )
    }


def test_what_is_slow_everywhere_or_fast_enough_is_not_slow() -> None:
    assert not run(steady(100, a=2.0, b=2.0, c=2.0, d=2.0, e=2.0))[-1].disks
    assert not run(steady(100, a=0.09))[-1].disks


def test_a_burst_is_forgotten() -> None:
    looks = [(now, figures | {"c": 2.0 if now % 10 else 0.002}, told) for now, figures, told in steady(100)]
    assert not any(watch.disks for watch in run(looks))


def test_what_was_seen_long_ago_says_nothing_of_the_time_between() -> None:
    """A controller that was busy, or stood by, meanwhile."""
    slow = {**dict.fromkeys(HOSTS, 0.002), "c": 2.0}
    results = run([(0.0, slow, {}), (500.0, slow, {}), (501.0, slow, {})])
    assert not any(watch.disks for watch in results)
    fast = dict.fromkeys(HOSTS, 0.002)
    *_, last = run([*steady(10, c=2.0), (11.0, fast, {}), (511.0, fast, {})])
    assert last.disks


def test_a_new_controller_relieves_at_once_whoever_is_slow_and_holds_nothing_that_is_written_to() -> None:
    """Another one has relieved it, and it would be given new copies for ten seconds."""
    slow = {**dict.fromkeys(HOSTS, 0.002), "c": 2.0, "d": 2.0}
    first = watched(DiskWatch(), 0.0, HOSTS, {}, slow, LIMITS, idle={"a", "c"})
    assert first.disks.keys() == {"c"}
    watch = watched(DiskWatch(), 0.0, HOSTS, {}, dict.fromkeys(HOSTS, 0.002), LIMITS, idle={"a", "c"})
    assert not watched(watch, 1.0, HOSTS, {}, slow, LIMITS, idle={"a", "c"}).disks, "a burst, as everywhere"


def test_it_is_slow_until_it_has_been_fast_for_a_minute() -> None:
    again = [(11 + now, figures, told) for now, figures, told in steady(61)]
    results = run([*steady(10, c=2.0), *again])
    named = [bool(watch.disks) for watch in results]
    assert named == [False] * 10 + [True] * 61 + [False] * 2


def test_half_as_slow_is_not_fast() -> None:
    """Else it would go to and fro at the threshold."""
    almost = [(11 + now, figures | {"c": 0.06}, told) for now, figures, told in steady(100)]
    assert run([*steady(10, c=2.0), *almost])[-1].disks


def test_a_host_that_does_not_answer_counts_as_slow_too() -> None:
    looks: list[Look] = [
        (now, {h: s for h, s in figures.items() if now < 5 or h != "c"}, {}) for now, figures, _ in steady(30)
    ]
    results = run(looks)
    assert [bool(watch.disks) for watch in results] == [False] * 15 + [True] * 16
    assert results[-1].disks["c"].reason == "its log has not answered for 26 s"


def test_an_observer_that_hardly_anybody_answers_concludes_nothing() -> None:
    looks = [(now, {"a": 0.002, "b": 0.002}, told) for now, _, told in steady(100)]
    assert not run(looks)[-1].disks


def test_engines_that_tell_nothing_are_not_judged() -> None:
    assert not run([(float(now), {}, {}) for now in range(100)])[-1].disks


def test_no_more_than_a_minority_is_relieved_and_failed_disks_go_first() -> None:
    slow = run(steady(10, c=2.0, e=2.0))[-1]
    assert {host: trouble.is_relieved for host, trouble in slow.disks.items()} == {"c": True, "e": True}
    worse = watched(slow, 11.0, HOSTS, {"a": FAILED}, steady(1, c=2.0, e=2.0)[0][1], LIMITS)
    assert {host for host, trouble in worse.disks.items() if trouble.is_relieved} == {"a", "c"}
    full = watched(slow, 11.0, HOSTS, dict.fromkeys("abd", FULL), steady(1, c=2.0, e=2.0)[0][1], LIMITS)
    assert {host for host, trouble in full.disks.items() if trouble.is_relieved} == {"a", "b", "d"}


def test_whoever_is_relieved_stays_so_when_another_fails_as_well() -> None:
    """Three hosts: one may be relieved."""
    hosts = ("a", "b", "c")
    figures = dict.fromkeys(hosts, 0.002)
    first, second = run([(0.0, figures, {"c": FAILED}), (1.0, figures, {"a": FAILED, "c": FAILED})], hosts)
    assert first.disks["c"].is_relieved
    assert (second.disks["a"].is_relieved, second.disks["c"].is_relieved) == (False, True)


@pytest.mark.parametrize(
    ("told", "hosts", "relieved"),
    [
        ({"a": FAILED}, "ab", "a"),
        ({"a": FAILED, "b": FAILED}, "ab", "a"),
        ({"a": FAILED, "b": FULL}, "ab", "b"),
        ({"a": FAILED}, "a", ""),
        ({"a": FULL, "b": FAILED}, "abc", "ab"),
        ({"a": FULL, "b": FULL, "c": FAILED}, "abc", "ab"),
        ({"a": FULL, "b": FULL, "c": FAILED, "d": FAILED}, "abcde", "abc"),
    ],
)
def test_one_that_failed_is_relieved_as_long_as_another_host_stays(
    told: dict[str, DiskTrouble], hosts: str, relieved: str
) -> None:
    """Writers do not get past it, and a full one is no use to them anyhow."""
    watch = watched(DiskWatch(), 0.0, hosts, told, dict.fromkeys(hosts, 0.002), LIMITS)
    assert {host for host, trouble in watch.disks.items() if trouble.is_relieved} == set(relieved)


def test_what_is_done_is_told_by_the_number_of_hosts() -> None:
    kept = replace(FAILED, is_relieved=False)
    assert relief_text(FAILED, 3) == "its copies are to go elsewhere"
    assert relief_text(FAILED, 2) == "the other host is to go on without it"
    assert relief_text(kept, 3) == "too many are in trouble to relieve it"
    assert relief_text(kept, 2) == "two hosts are too few to relieve it"
    assert relief_text(FULL, 1) == relief_text(kept, 1) == "there is no other host"


figures = st.dictionaries(
    st.sampled_from(HOSTS), st.sampled_from([0.0, 0.001, 0.05, 0.1, 0.5, 2.0]), min_size=3
)
troubles = st.dictionaries(st.sampled_from(HOSTS), st.sampled_from([FAILED, FULL]), max_size=3)
histories = st.lists(
    st.tuples(st.sampled_from([1.0, 4.0, 9.0, 11.0, 61.0, 121.0]), figures, troubles), max_size=25
)


def verdicts(looks: list[Look], slow_so_far: list[set[str]]) -> dict[str, list[bool | None]]:
    """For each host and look whether it was too slow then, straight from the definition."""
    found: dict[str, list[bool | None]] = {host: [] for host in HOSTS}
    last: dict[str, float] = {}
    for index, (now, told, _) in enumerate(looks):
        slow = slow_so_far[index - 1] if index else set()
        for host in HOSTS:
            if host not in told:
                is_slow = host in slow or (bool(found[host]) and now > last.setdefault(host, looks[0][0]))
                found[host].append(is_slow)
                continue
            last[host] = now
            peers = [told[peer] for peer in told if peer != host and told[peer]]
            most = max(0.1, 10 * median(peers)) / (2 if host in slow else 1) if peers else float("inf")
            found[host].append(bool(told[host]) and told[host] >= most)
    return found


@given(histories)
def test_it_is_what_the_whole_history_says(
    steps: list[tuple[float, dict[str, float], dict[str, DiskTrouble]]],
) -> None:
    now, looks = 0.0, []
    for pause, told, disks in steps:
        now += pause
        looks.append((now, told, disks))
    results = run(looks)
    slow = [set(watch.slow) for watch in results]
    found = verdicts(looks, slow)
    for index, (at, _, disks) in enumerate(looks):
        relieved = {host for host, each in results[index].disks.items() if each.is_relieved}
        full = {host for host, trouble in disks.items() if trouble is FULL}
        assert full <= relieved
        others = relieved - full
        is_single = len(others) == 1 and all(disks.get(host) is FAILED for host in others)
        assert not others or is_single or 2 * len(relieved) < len(HOSTS), "never more than a minority"
        assert results[index].disks.keys() == disks.keys() | slow[index]
        for host in HOSTS:
            began = index  # since when the verdict has been what it is
            was_slow = bool(index) and host in slow[index - 1]
            telling = 120 if was_slow else 10
            while (
                began
                and found[host][began - 1] == found[host][index]
                and looks[began][0] - looks[began - 1][0] < telling
            ):
                began -= 1
            is_over = at - looks[began][0] >= (60 if was_slow else 10)
            changes = found[host][index] is not was_slow and is_over
            assert (host in slow[index]) is (was_slow is not changes)
