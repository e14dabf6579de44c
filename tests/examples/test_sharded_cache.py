"""A cache whose keys follow the view: who owns what, how little moves, and that nothing stale is answered."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import membership
from membership import Address
from membership.protocol.view.cut import Cut, Removal
from tests.examples.running import PATIENCE, Program, load

example = load("sharded_cache")

KEYS = [f"key-{number}" for number in range(400)]


def member(number: int) -> membership.Member:
    return membership.Member.create(f"m{number}", Address("127.0.0.1", 1000 + number), bytes([number]) * 16)


def owners(members: Any) -> dict[str, str]:
    return {key: example.owner_of(members, key).name for key in KEYS}


# Who owns what


@settings(max_examples=30)
@given(st.sets(st.integers(1, 20), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter_and_only_keys_of_one_who_goes_or_comes_move(
    numbers: set[int], rng: Any
) -> None:
    members = [member(number) for number in sorted(numbers)]
    before = owners(members)
    rng.shuffle(members)
    assert owners(members) == before
    gone, *rest = members
    after = owners(rest)
    for key in KEYS:
        assert after[key] == before[key] or before[key] == gone.name


def test_the_shares_are_about_equal() -> None:
    counts = Counter(owners([member(number) for number in range(1, 9)]).values())
    assert len(counts) == 8
    assert all(25 <= count <= 80 for count in counts.values())  # 50 each, and six standard deviations


# What a node does with a view


class FakeCluster:
    """What a node reads of its cluster."""

    quorum = True

    def __init__(self, me: membership.Member) -> None:
        self.me = me


def change(view: membership.Configuration, previous: membership.Configuration | None = None) -> Any:
    return membership.Change(view, membership.ClusterStatus.MEMBER, True, previous=previous)


def node_in(view: membership.Configuration, me: int = 1) -> Any:
    node = example.Node()
    node._cluster = FakeCluster(member(me))
    assert node._rehash(change(view)) == {}
    return node


def views() -> list[membership.Configuration]:
    first = membership.Configuration.found(member(1), bytes(16), 10)
    second = first.apply(Cut.of([member(2), member(3)]))
    return [first, second, second.apply(Cut.of([], [Removal(member(2).incarnation)]))]


def test_a_node_keeps_its_own_keys_and_gives_the_others_to_their_owners() -> None:
    first, second, _ = views()
    node = node_in(first)
    node.entries = {key: key for key in KEYS}
    moved = node._rehash(change(second, first))
    expected = owners(second.members)
    assert set(node.entries) == {key for key in KEYS if expected[key] == "m1"}
    assert {key: to.name for to, entries in moved.items() for key in entries} == {
        key: owner for key, owner in expected.items() if owner != "m1"
    }


def test_a_node_that_missed_a_view_forgets_everything() -> None:
    first, _, third = views()
    node = node_in(first)
    node.entries = {key: key for key in KEYS}
    assert node._rehash(change(third, first)) == {}
    assert node.entries == {}


async def test_a_request_by_an_older_view_is_sent_on_and_one_by_a_later_view_waits(
    autojump_clock: Any,
) -> None:
    first, second, _ = views()
    node = node_in(first)
    mine = next(key for key, owner in owners(second.members).items() if owner == "m1")
    other = next(key for key, owner in owners(second.members).items() if owner == "m3")
    put = {"do": "put", "epoch": 0, "key": other, "value": "old"}
    assert await node.answer(put) == {"value": "old"}
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await node.answer({"do": "get", "epoch": 1, "key": mine, "value": None}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        node._rehash(change(second, first))
    assert answers == [{"value": None}]
    assert await node.answer(put) == {"moved": 1}


async def test_an_entry_that_is_handed_over_replaces_nothing_newer_and_comes_only_within_its_view() -> None:
    _, second, third = views()
    node = node_in(second, me=3)
    mine, other = (
        next(key for key, owner in owners(second.members).items() if owner == name) for name in ("m3", "m1")
    )
    await node.answer({"do": "put", "epoch": 1, "key": mine, "value": "new"})
    await node.answer({"do": "keep", "epoch": 1, "entries": {mine: "old", other: "stray"}})
    assert node.entries == {mine: "new"}
    node.entries.clear()
    node._rehash(change(third, second))
    await node.answer({"do": "keep", "epoch": 1, "entries": {mine: "late"}})
    assert node.entries == {}


# With real members


@pytest.mark.socket
async def test_requests_through_any_node_while_nodes_come_leave_and_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes: dict[str, tuple[Any, membership.Cluster, int]] = {}
    stops: dict[str, trio.Event] = {}
    scopes: dict[str, trio.CancelScope] = {}

    async def http(port: int, method: str, key: str, body: str | None = None) -> tuple[int, str, str]:
        answer: tuple[int, str, str] = await trio.to_thread.run_sync(
            functools.partial(example.ask, f"127.0.0.1:{port}", method, key, body)
        )
        return answer

    async def run(name: str, seeds: list[str], task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as scopes[name]:
            async with trio.open_nursery() as inner:
                stops[name] = trio.Event()
                nodes[name] = await inner.start(
                    example.run_node, name, "127.0.0.1:0", seeds, "127.0.0.1:0", stops[name]
                )
                task_status.started()
        del nodes[name]

    async def start(
        name: str, seeds: list[str], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await run(name, seeds, task_status)

    async def until_epoch_is_common(size: int) -> membership.Configuration:
        for _, cluster, _ in list(nodes.values()):
            await cluster.wait_for(lambda view: len(view.members) == size, PATIENCE)
        view = max((cluster.view for _, cluster, _ in nodes.values()), key=lambda view: view.epoch)
        for node, _, _ in list(nodes.values()):
            await node._reach(view.epoch)
        return view

    async def hits() -> int:
        """Every key read through the nodes in turn; a value that comes must be the right one."""
        ports = [port for _, _, port in nodes.values()]
        found = 0
        for number, key in enumerate(KEYS[:100]):
            status, owner, body = await http(ports[number % len(ports)], "GET", key)
            assert status in (200, 404)
            if status == 200:
                assert body == f"value of {key}"
                assert key in nodes[owner][0].entries
                found += 1
        return found

    with trio.fail_after(2 * PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(start, "n0", [])
            seed = str(nodes["n0"][1].me.address)
            for number in range(1, 4):
                await nursery.start(start, f"n{number}", [seed])
            await until_epoch_is_common(4)
            for number, key in enumerate(KEYS[:100]):
                port = list(nodes.values())[number % 4][2]
                status, owner, _ = await http(port, "PUT", key, f"value of {key}")
                assert (status, owner in nodes) == (200, True)
            assert await hits() == 100

            # One more: about a fifth of the keys moves to it, and nothing else moves.
            before = {key: name for name, (node, _, _) in nodes.items() for key in node.entries}
            await nursery.start(start, "n4", [seed])
            view = await until_epoch_is_common(5)
            while sum(len(node.entries) for node, _, _ in nodes.values()) < 100:  # noqa: ASYNC110 - on their way
                await trio.sleep(0.01)
            after = {key: name for name, (node, _, _) in nodes.items() for key in node.entries}
            assert after == {key: example.owner_of(view.members, key).name for key in KEYS[:100]}
            assert {after[key] for key in after if after[key] != before[key]} == {"n4"}
            assert await hits() == 100

            # One leaves: it hands over what it has.
            stops["n1"].set()
            while "n1" in nodes:  # noqa: ASYNC110 - until the task is over
                await trio.sleep(0.01)
            await until_epoch_is_common(4)
            assert await hits() == 100

            # One fails: its keys are forgotten, the others are still there.
            lost = len(nodes["n2"][0].entries)
            scopes["n2"].cancel()
            while "n2" in nodes:  # noqa: ASYNC110 - until the task is over
                await trio.sleep(0.01)
            status, _, _ = await http(nodes["n0"][2], "GET", next(k for k in KEYS if after[k] == "n2"))
            assert status == 404, (
                "asked while the owner is gone and the view does not know: the next one says"
            )
            await until_epoch_is_common(3)
            assert await hits() == 100 - lost
            for scope in scopes.values():
                scope.cancel()
    assert "entries stay" in capsys.readouterr().out


@pytest.mark.socket
def test_the_program_serves_http() -> None:
    with Program("sharded_cache", "nodes", "3") as nodes:
        ports = [
            nodes.wait_for(lambda line, n=number: line.startswith(f"n{n}: member at")) for number in range(3)
        ]
        first, *others = (line.rpartition("//")[2].rstrip("/") for line in ports)
        assert example.ask(first, "PUT", "greeting", "hello")[0] == 200
        for where in others:
            status, owner, body = example.ask(where, "GET", "greeting")
            assert (status, body) == (200, "hello")
            assert owner in ("n0", "n1", "n2")
        assert example.ask(first, "GET", "nothing")[0] == 404
        assert example.ask(first, "POST", "greeting", "x")[0] == 405
