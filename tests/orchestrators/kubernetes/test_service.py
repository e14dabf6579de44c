"""The scheduler at work against an API server in memory, in virtual time: outages, lost answers, replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from trio.testing import MockClock

from mgmt import SourceText
from orchestrators.kubernetes.api.client import ApiClient
from orchestrators.kubernetes.errors import RequestError
from orchestrators.kubernetes.placement import Placement, Placer
from orchestrators.kubernetes.rows import ClusterObjects
from orchestrators.kubernetes.scheduling.effects import Bind, Evict
from orchestrators.kubernetes.service import Service, ServiceSettings
from tests.orchestrators.kubernetes.control_plane import node, pod
from tests.orchestrators.kubernetes.fake_api import FakeApi


class FirstNode:
    """A placer that needs no solver: every pod to the first node there is."""

    def place(self, objects: ClusterObjects, **_: Any) -> Placement:
        waiting = [
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for each in objects.pods
            if not each["spec"].get("nodeName")
        ]
        names = sorted(each["metadata"]["name"] for each in objects.nodes)
        return Placement(dict.fromkeys(waiting, names[0])) if names else Placement({}, tuple(waiting))


async def inline(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def service(api: FakeApi) -> Service:
    return Service(cast(ApiClient, api), cast(Placer, FirstNode()), ServiceSettings(), cast(Any, inline))


@asynccontextmanager
async def running(api: FakeApi, *services: Service) -> Any:
    async with trio.open_nursery() as nursery:
        for each in services:
            nursery.start_soon(each.run)
        yield nursery
        nursery.cancel_scope.cancel()


async def until_all_bound(api: FakeApi, seconds: float = 120) -> None:
    with trio.fail_after(seconds):
        while not all(api.nodes_of_pods().values()):  # noqa: ASYNC110 - of a server, which tells nobody
            await trio.sleep(0.1)


def with_pods(count: int = 3) -> FakeApi:
    api = FakeApi()
    for name in ("n1", "n2"):
        api.put("nodes", node(name))
    for number in range(count):
        api.put("pods", pod(f"p{number}"))
    return api


def once_each(api: FakeApi) -> bool:
    return len(api.bindings) == len({pod for pod, _ in api.bindings})


async def test_pods_are_bound_and_told_so(autojump_clock: MockClock) -> None:
    api = with_pods()
    async with running(api, service(api)):
        await until_all_bound(api)
        await trio.sleep(1)
    assert set(api.nodes_of_pods().values()) == {"n1"}
    assert [event["reason"] for event in api.events] == ["Scheduled"] * 3


async def test_an_outage_of_the_server_forgets_nobody(autojump_clock: MockClock) -> None:
    api = with_pods()
    async with running(api, service(api)):
        await until_all_bound(api)
        api.stop()
        await trio.sleep(60)
        api.put("pods", pod("meanwhile"))
        api.remove("pods", "default/p0")
        api.start()
        await until_all_bound(api)
    assert once_each(api)


async def test_a_watch_that_is_out_of_date_begins_again(autojump_clock: MockClock) -> None:
    api = with_pods()
    async with running(api, service(api)):
        await until_all_bound(api)
        api.forget()
        api.put("pods", pod("meanwhile"))
        await until_all_bound(api)
    assert once_each(api)


async def test_a_binding_whose_answer_is_lost_is_made_once(autojump_clock: MockClock) -> None:
    api = with_pods()
    api.lose_answers = 2
    async with running(api, service(api)):
        await until_all_bound(api)
        await trio.sleep(5)
    assert once_each(api)


async def test_a_node_that_goes_is_given_nothing_more(autojump_clock: MockClock) -> None:
    api = with_pods()
    async with running(api, service(api)):
        await until_all_bound(api)
        api.remove("nodes", "n1")
        api.put("pods", pod("later"))
        await until_all_bound(api)
    assert api.nodes_of_pods()["default/later"] == "n2"


async def test_nobody_is_placed_before_the_rules_are_known_and_rules_that_may_not_be_read_stay(
    autojump_clock: MockClock,
) -> None:
    class Slow(FakeApi):
        forbids = False

        async def get(self, path: str, **parameters: str) -> dict[str, Any]:
            if "configmaps" in path:
                if self.forbids:
                    raise RequestError(403, "Forbidden", "")
                await trio.sleep(1)
            return await super().get(path, **parameters)

    used: list[list[str]] = []

    class Noting(FirstNode):
        def use(self, policies: Sequence[SourceText]) -> None:
            used.append([each.name for each in policies])

        def place(self, objects: ClusterObjects, **_: Any) -> Placement:
            assert used
            return super().place(objects)

    api = Slow()
    api.put("nodes", node("n1"))
    api.put("pods", pod("p"))
    api.put("configmaps", {"metadata": {"name": "r", "namespace": "kube-system"}, "data": {"own.sql": "x"}})
    settings = ServiceSettings(config_map=("kube-system", "r"))
    async with running(
        api, Service(cast(ApiClient, api), cast(Placer, Noting()), settings, cast(Any, inline))
    ):
        await until_all_bound(api)
        api.forbids = True
        api.forget()
        await trio.sleep(60)
    assert len(used) == 1
    assert used[0][0].endswith("own.sql")


async def test_what_was_to_be_done_is_left_where_another_one_leads(autojump_clock: MockClock) -> None:
    api = with_pods(0)
    first = service(api)
    async with running(api, first):
        await trio.sleep(1)
        first.scheduler.lead(-math.inf, trio.current_time())
        first._do([Evict(("default", "p"), "u", ("default", "q")), Bind(("default", "p"), "u", "n1")])
        await trio.sleep(0.1)
    assert b'what="' not in first.metrics.text()


async def test_of_two_replicas_one_schedules_and_the_other_takes_over(autojump_clock: MockClock) -> None:
    api = with_pods()
    first, second = service(api), service(api)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def mortal() -> None:
            with scope:
                await first.run()

        nursery.start_soon(mortal)
        await until_all_bound(api)
        nursery.start_soon(second.run)
        await trio.sleep(5)
        assert not second.scheduler.leads(trio.current_time())
        api.stop()  # what dies cannot hand its lease over
        scope.cancel()
        await trio.sleep(3)
        api.start()
        api.put("pods", pod("after"))
        await until_all_bound(api)
        assert second.scheduler.statistics.bound == 1
        nursery.cancel_scope.cancel()
    assert once_each(api)
