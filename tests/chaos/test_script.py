"""Fault scripts are read back as they were written, and refuse nonsense with line and reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos import ScriptError, faults
from chaos.faults import MESSAGE_KINDS, At, Fault
from chaos.fuzzing.generator import random_script
from chaos.script import Script, format_script, parse

names = st.integers(0, 300).map("n{}".format)
hosts = st.lists(names, min_size=1, max_size=4, unique=True).map(tuple)
shares = st.integers(0, 100_000).map(lambda thousandths: thousandths / 100_000)
seconds = st.integers(0, 10_000_000).map(lambda milliseconds: milliseconds / 1000)
some_fault: st.SearchStrategy[Fault] = st.one_of(
    hosts.map(faults.Start),
    hosts.map(faults.Crash),
    hosts.map(faults.Leave),
    hosts.map(faults.Pause),
    hosts.map(faults.Resume),
    st.lists(hosts, min_size=1, max_size=3).map(tuple).map(faults.Partition),
    st.just(faults.Heal()),
    st.builds(faults.DropIngress, shares, hosts),
    st.builds(faults.DropEgress, shares, hosts),
    st.builds(faults.Block, names, names),
    st.builds(faults.Unblock, names, names),
    shares.map(faults.Loss),
    shares.map(faults.Duplication),
    st.builds(faults.Delay, seconds, hosts),
    st.builds(faults.Reordering, shares, seconds),
    hosts.map(faults.Restart),
    st.builds(faults.DropMessages, st.sampled_from(MESSAGE_KINDS), shares, hosts),
    st.builds(faults.CrashOn, st.sampled_from(MESSAGE_KINDS), hosts),
    hosts.map(faults.Disarm),
    st.builds(faults.Evict, names, names),
    st.builds(faults.Recover, hosts, st.booleans()),
    st.builds(faults.Tag, st.sampled_from(["a", "b-2"]), hosts),
    hosts.map(faults.Accuse),
    hosts.map(faults.FillDisk),
    hosts.map(faults.ClearDisk),
    hosts.map(faults.CopyDisk),
    hosts.map(faults.RestoreDisk),
    hosts.map(faults.WipeDisk),
    hosts.map(faults.LoseFile),
    st.builds(faults.JumpClock, seconds, hosts),
    st.builds(faults.FailCall, st.sampled_from(faults.ERRORS), st.sampled_from(faults.OPERATIONS), hosts),
    hosts.map(faults.ExceedQuota),
    st.builds(faults.SlowDisk, seconds, hosts),
    st.builds(faults.ShortWrites, shares, hosts),
    st.builds(faults.CutPowerAfter, st.integers(0, 10_000), hosts),
    hosts.map(faults.MendDisk),
    st.builds(faults.SwapAddresses, names, names),
)
scripts = st.builds(
    Script,
    nodes=st.integers(1, 1000),
    seed=st.integers(0, 1 << 40),
    duration=seconds,
    schedule=st.lists(st.builds(At, seconds, some_fault), max_size=10).map(faults.in_order),
    settings=st.sampled_from(["lan", "wan", "local"]),
    keep_quorum=st.booleans(),
    store=st.booleans(),
    keep_disks=st.booleans(),
    copies=st.integers(1, 3),
)


@given(scripts)
def test_what_is_written_is_read_back(script: Script) -> None:
    assert parse(format_script(script)) == script


def test_remarks_blank_lines_and_order_do_not_matter() -> None:
    text = """
    # two crash
    nodes 5        # small
    at 20s start n3
    at 500ms crash n3 n4
    seed 7
    """
    crash, start = At(0.5, faults.Crash(("n3", "n4"))), At(20.0, faults.Start(("n3",)))
    assert parse(text) == Script(5, 7, 60.0, (crash, start))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "does not say `nodes N`"),
        ("nodes x", 1, "whole number"),
        ("nodes 0", 1, "1 to 100000"),
        ("nodes 3\nduration 5", 2, "is no time"),
        ("nodes 3\nsettings fast", 2, "lan, wan, local"),
        ("nodes 3\nquorum lose", 2, "keep, any"),
        ("nodes 3\nstore some", 2, "yes, no"),
        ("nodes 3\ndisks all", 2, "keep, any"),
        ("nodes 3\ncrash n1", 2, "expected"),
        ("nodes 3\nat 5s", 2, "at TIME FAULT"),
        ("nodes 3\nat 5 crash n1", 2, "is no time"),
        ("nodes 3\n\nat 5s melt n1", 3, "`melt n1` is no fault"),
        ("nodes 3\nat 5s crash", 2, "names of hosts"),
        ("nodes 3\nat 5s crash m1", 2, "m1 is no host"),
        ("nodes 3\nat 5s block n1 n2", 2, "is no fault"),
        ("nodes 3\nat 5s loss 101%", 2, "is no share"),
        ("nodes 3\nat 5s drop-egress 0.5 n1", 2, "is no share"),
        ("nodes 3\nat 5s partition n0 |", 2, "names of hosts"),
    ],
)
def test_nonsense_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ScriptError, match=f"line {line}: ") as caught:
        parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("seed", range(200))
def test_random_scripts_are_valid_and_depend_on_the_seed_alone(seed: int) -> None:
    script = random_script(seed)
    assert script == random_script(seed) == parse(str(script))
    assert script != random_script(seed + 1)
    assert random_script(seed, nodes=7).nodes == 7


def test_random_scripts_use_the_whole_vocabulary() -> None:
    used = {type(at.fault) for seed in range(100) for at in random_script(seed).schedule}
    # Accusers are bad for as long as they live: what must hold then is said by their scenario.
    assert used == {*Fault.__args__} - {faults.Accuse}  # type: ignore[attr-defined]


def test_flip_flop_ends_healthy() -> None:
    schedule = faults.flip_flop(("n1",), period=20.0, until=50.0)
    assert [(at.seconds, at.fault.probability) for at in schedule] == [  # type: ignore[union-attr]
        (0.0, 1.0),
        (20.0, 0.0),
        (40.0, 1.0),
        (50.0, 0.0),
    ]
