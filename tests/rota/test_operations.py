"""Operating a real cluster through any agent: dry run, drain, a drain that cannot be, and serving meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from rota.client.api_client import ApiClient
from rota.commands.layout import exported_placement
from rota.errors import ApiError
from rota.local.cluster import AgentProcess, ClusterPlan, LocalCluster, is_settled, open_local_cluster

pytestmark = [pytest.mark.demo, pytest.mark.socket]


def settled(answers: dict[str, dict[str, Any]]) -> bool:
    return any(is_settled(answer) for answer in answers.values())


async def wait_settled(cluster: LocalCluster) -> None:
    await cluster.wait_until(settled, timeout=60, what="a settled placement")


def hosts_of(layout: dict[str, Any]) -> list[list[str]]:
    return [[replica["host"] for replica in segment["replicas"]] for segment in layout["segments"]]


def append(agent: AgentProcess, text: str) -> int:
    address: int = ApiClient(str(agent.api)).post("/v1/log/words", text.encode())["address"]
    return address


async def ordered_as_shown(agent: AgentProcess) -> dict[str, Any]:
    """A plan with moves for balance; while a busy machine proves none in time, or tells of changes, ask again."""
    with trio.fail_after(60):
        while True:
            shown = await agent.get("/v1/plan")
            assert shown["paused"] is True
            if not shown["moves"]:
                continue
            try:
                ordered: dict[str, Any] = await agent.post("/v1/apply/shown", {"digest": shown["digest"]})
            except ApiError as error:
                if error.code != "plan_changed":
                    raise
                continue
            assert ordered["moves"] == len(shown["moves"])
            return ordered


async def paused_then_applied(cluster: LocalCluster, agent: AgentProcess) -> None:
    """An undrained host gets nothing while paused, but by an order; and there is nothing to abort then."""
    await agent.post("/v1/pause", {})
    await agent.post("/v1/undrain", {"host": "n3"})
    with pytest.raises(ApiError) as refused:
        await agent.post("/v1/apply/shown", {"digest": "of another"})
    assert refused.value.code == "plan_changed"
    ordered = await ordered_as_shown(agent)
    await cluster.wait_until(
        lambda answers: any(a["control"]["phase"] == "paused" for a in answers.values()),
        timeout=60,
        what="the end of the plan",
    )
    assert (await agent.get(f"/v1/plans/{ordered['plan_id']}"))["state"] == "done"
    assert any("n3" in hosts for hosts in hosts_of(await agent.get("/v1/layout")))
    with pytest.raises(ApiError) as refused:
        await agent.post("/v1/abort", {})
    assert refused.value.code == "nothing_to_abort"
    await agent.post("/v1/resume", {})
    await wait_settled(cluster)


async def what_is_exported_is_what_stands(agent: AgentProcess) -> None:
    """The plan of a settled cluster leads to what stands, and every host has the tags that exports read."""
    client = ApiClient(str(agent.api))
    planned = await trio.to_thread.run_sync(exported_placement.of_plan, client)
    standing = await trio.to_thread.run_sync(exported_placement.standing, client)
    assert planned.segments == standing.segments
    layout = await agent.get("/v1/layout")
    assert [list(hosts) for hosts in standing.segments.values()] == hosts_of(layout)
    assert {tags["rack"] for tags in planned.tags.values()} == {"r1", "r2", "r3"}


async def test_drain_and_a_drain_that_cannot_be(tmp_path: Path) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path)) as cluster:
        await cluster.wait_until(
            lambda answers: all(answer["size"] == 6 for answer in answers.values()),
            timeout=30,
            what="one view",
        )
        await wait_settled(cluster)
        controller = (await cluster.statuses())["n1"]["controller"]
        agent = next(agent for agent in cluster.live() if agent.name != controller)
        append(agent, "before")
        assert "nothing to do" in (await agent.get("/v1/plan"))["text"]
        await what_is_exported_is_what_stands(agent)

        await agent.post("/v1/drain", {"host": "n3"})
        await wait_settled(cluster)
        drained = await agent.get("/v1/layout")
        assert drained["drained"] == ["n3"]
        assert all("n3" not in hosts for hosts in hosts_of(drained))
        assert drained["rack_violations"] == drained["under_replicated"] == 0

        with pytest.raises(ApiError) as refused:
            await agent.post("/v1/drain", {"host": "n6"})
        assert (refused.value.code, refused.value.exit_status) == ("refused", 1)
        assert "one_replica_per_rack" in str(refused.value)
        assert "it would help to let n3 be used again (`rota undrain n3`)" in str(refused.value)
        after = await agent.get("/v1/layout")
        assert hosts_of(after) == hosts_of(drained)
        assert after["drained"] == ["n3"]

        await paused_then_applied(cluster, agent)
        append(agent, "after")
        words = ApiClient(str(agent.api)).get("/v1/log/words")["records"]
        assert [record["text"] for record in words] == ["before", "after"]
        with pytest.raises(ApiError, match="no host 'n77'"):
            await agent.post("/v1/drain", {"host": "n77"})
        with pytest.raises(ApiError, match="Table with name tabel does not exist") as meant:
            await agent.post("/v1/what-if", {"sql": "DELETE FROM tabel"})
        assert (meant.value.code, meant.value.exit_status) == ("bad_request", 2)
