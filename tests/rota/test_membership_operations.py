"""Evict, leave, tag, recover: the commands against real agents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from membership import Address
from rota.client.api_client import ApiClient
from rota.errors import ApiError
from rota.local.cluster import AgentProcess, ClusterPlan, LocalCluster, open_local_cluster
from tests.own_addresses import own_address
from tests.rota.description import Description

pytestmark = pytest.mark.socket

Statuses = dict[str, dict[str, Any]]


async def rota(*arguments: str, fails: bool | None = False) -> dict[str, Any]:
    """Run a command; its JSON.  ``fails``: whether it is to; None: it may."""
    done = await trio.run_process(
        [sys.executable, "-m", "rota", *arguments, "--json"],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert fails is None or (done.returncode != 0) == fails, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def until_size(cluster: LocalCluster, size: int) -> Statuses:
    return await cluster.wait_until(
        lambda answers: all(answer["size"] == size and answer["quorum"] for answer in answers.values()),
        timeout=60,
        what=f"a view of {size}",
    )


async def ended(agent: AgentProcess) -> int:
    agent.expected_to_end = True
    with trio.fail_after(60):
        return await agent.process.wait()


async def view_events(agent: AgentProcess) -> list[dict[str, Any]]:
    answer = await agent.get("/v1/events", local=1)
    return [event["data"] for event in answer["events"] if event["kind"] == "view"]


async def test_a_name_in_use_ends_the_agent_with_the_reason(tmp_path: Path) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=3)) as cluster:
        await until_size(cluster, 3)
        with trio.fail_after(90):
            done = await trio.run_process(
                [
                    *(sys.executable, "-m", "rota", "agent", "--name", "n2", "--preset", "local"),
                    *(
                        "--listen",
                        "127.0.0.1:0",
                        "--api",
                        "127.0.0.1:0",
                        "--data-dir",
                        str(tmp_path / "again"),
                    ),
                    *("--seed", str(cluster.agents["n1"].address)),
                ],
                capture_stderr=True,
                check=False,
            )
        assert done.returncode == 1
        last = done.stderr.decode().splitlines()[-1]
        assert last.startswith("rota: the cluster refuses this process: the name of n2"), last
        assert "stop that process or choose another name" in last
        await until_size(cluster, 3)


async def test_tag_evict_and_leave(tmp_path: Path, description: Description) -> None:
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=5)) as cluster:
        await until_size(cluster, 5)
        n1, n2, n4, n5 = (cluster.agents[name] for name in ("n1", "n2", "n4", "n5"))
        epoch = (await n1.get("/v1/status"))["epoch"]

        tagged = await rota("tag", "rack=r9", "zone=z1", "--api", str(n2.api))
        description.check_answer("POST", "/v1/tags", tagged)
        assert tagged["tags"]["rack"] == "r9"
        assert tagged["epoch"] == epoch + 1
        await cluster.wait_until(
            lambda answers: all(answer["epoch"] == epoch + 1 for answer in answers.values()),
            timeout=30,
            what="the view with the tags",
        )
        seen = {member["name"]: member["tags"] for member in (await n4.get("/v1/members"))["members"]}
        assert (seen["n2"]["rack"], seen["n2"]["zone"], seen["n4"]["rack"]) == ("r9", "z1", "r1")
        refused = await rota("tag", "--remove", "nothing", "--api", str(n2.api), fails=True)
        assert refused["code"] == "unknown_tag"

        n5.expected_to_end = True
        evicted = await rota("evict", "n5", "--api", str(n1.api))
        description.check_answer("POST", "/v1/evict", evicted)
        assert evicted == {"host": "n5", "evicted": True, "epoch": epoch + 2}
        assert await ended(n5) == 0
        assert "evicted by an operator" in n5.last_lines()
        assert "quorum-lost" not in n5.last_lines(), "it is out; the others have their majority"
        await until_size(cluster, 4)
        for arguments, code in ((("evict", "n5"), "unknown_host"), (("evict", "n1"), "refused")):
            assert (await rota(*arguments, "--api", str(n1.api), fails=True))["code"] == code

        n4.expected_to_end = True
        left = await rota("leave", "--api", str(n4.api))
        description.check_answer("POST", "/v1/leave", left)
        assert left == {"host": "n4", "left": True, "agreed": True}
        assert await ended(n4) == 0
        await until_size(cluster, 3)

        kinds = ("updated", "evicted", "left", "failed")
        changes = [tuple(event[kind] for kind in kinds) for event in await view_events(n2)]
        assert changes[-3:] == [(["n2"], [], [], []), ([], ["n5"], [], []), ([], [], ["n4"], [])]


@pytest.mark.slow("the times of detection and of a lost quorum, in real time")
async def test_two_of_five_recover_and_the_killed_join_as_new(
    tmp_path: Path, description: Description
) -> None:
    """Longer than 10 s: nobody is missed before the time of failure detection and the quorum's timeout are over."""
    async with open_local_cluster(ClusterPlan(tmp_path, nodes=5, segments=4)) as cluster:
        await until_size(cluster, 5)
        await cluster.wait_until(
            lambda answers: any((answer["control"] or {}).get("settled") for answer in answers.values()),
            timeout=60,
            what="a settled placement",
        )
        for path in description.document["paths"]:  # each answer is held against it
            needs_more = path == "/v1/keys" or "{" in path or not path.startswith("/v1/")
            operation = None if needs_more else description.operation("GET", path)
            if operation is not None and "application/json" in operation["responses"]["200"]["content"]:
                assert await cluster.agents["n2"].get(path)
        one, other = (cluster.agents[name] for name in await two_with_everything(cluster))
        names = f"{one.name},{other.name}"
        killed = sorted(set(cluster.agents) - {one.name, other.name})
        before = await one.get("/v1/status")
        await rota("log", "append", "words", "before", "--api", str(one.api))
        refused = await rota("recover", "--survivors", names, "--api", str(one.api), fails=True)
        assert "majority of the members is within reach" in refused["error"]
        for name in killed:
            cluster.kill(name)
            await ended(cluster.agents[name])
        await cluster.wait_until(
            lambda answers: not any(answer["quorum"] for answer in answers.values()),
            timeout=60,
            what="the loss of the quorum",
        )
        too_many = f"{names},{killed[0]}"
        silent = await rota("recover", "--survivors", too_many, "--api", str(one.api), fails=True)
        assert f"{killed[0]} did not answer" in silent["error"]
        recovered = await rota("recover", "--survivors", names, "--api", str(other.api))
        description.check_answer("POST", "/v1/recover", recovered)
        assert recovered["members"] == sorted((one.name, other.name))
        assert recovered["epoch"] > before["epoch"]
        statuses = await until_size(cluster, 2)
        assert {answer["id"] for answer in statuses.values()} == {recovered["id"]}
        assert {answer["cluster_id"] for answer in statuses.values()} == {before["cluster_id"]}
        # Three of the five layout servers were killed, too: that takes a word of its own.
        await cluster.wait_until(
            lambda answers: all(
                set(answer["control"]["layout_servers_lost"]) == set(killed) for answer in answers.values()
            ),
            timeout=60,
            what="the loss of the layout servers",
        )
        known = await rota("layout", "show", "--api", str(one.api))
        description.check_answer("GET", "/v1/layout", known)
        assert known["known_only"]
        assert set(known["layout_servers_lost"]) == set(killed)
        checks = (await rota("doctor", "--api", str(one.api), fails=True))["checks"]
        (found,) = [check for check in checks if check["check"] == "agent"]
        assert (found["outcome"], "rota layout recover" in found["remedy"]) == ("failed", True)
        await rota("layout", "recover", "--yes", "--api", str(other.api))
        await rota("log", "append", "words", "alone", "--api", str(one.api))
        for name in killed:
            await cluster.start_elsewhere(name, seed=one.address)
        statuses = await until_size(cluster, 5)
        assert all(answer["recoveries"] == [recovered["recovery"]] for answer in statuses.values())
        assert (await one.get("/v1/members"))["epoch"] > recovered["epoch"]
        read = await rota("log", "read", "words", "--api", str(cluster.agents[killed[0]].api))
        assert [record["text"] for record in read["records"]] == ["before", "alone"]


async def two_with_everything(cluster: LocalCluster) -> tuple[str, str]:
    """The sequencer, and a host with which it has a copy of every segment."""
    layout = await cluster.agents["n1"].get("/v1/layout")
    sequencer = layout["roles"]["sequencers"][0]
    chains = [{copy["host"] for copy in segment["replicas"]} for segment in layout["segments"]]
    others = (name for name in sorted(cluster.agents) if name != sequencer)
    return sequencer, next(name for name in others if all(chain & {sequencer, name} for chain in chains))


async def test_b17_one_of_two_goes_on_by_the_operators_command(tmp_path: Path) -> None:
    async with open_local_cluster(
        ClusterPlan(tmp_path, nodes=2, segments=1, replication_factor=1)
    ) as cluster:
        await until_size(cluster, 2)
        n1 = cluster.agents["n1"]
        cluster.kill("n2")
        await ended(cluster.agents["n2"])
        await cluster.wait_until(
            lambda answers: not any(answer["quorum"] for answer in answers.values()),
            timeout=60,
            what="the loss of the quorum",
        )
        refused = await rota("evict", "n2", "--api", str(n1.api), fails=True)
        assert "recover from the survivors" in refused["error"]
        recovered = await rota("recover", "--survivors", "n1", "--api", str(n1.api))
        assert recovered["members"] == ["n1"]
        await until_size(cluster, 1)
        await cluster.start_elsewhere("n2", seed=n1.address)
        statuses = await until_size(cluster, 2)
        assert all(answer["recoveries"] == [recovered["recovery"]] for answer in statuses.values())


async def test_three_agents_started_alike_are_one_cluster(tmp_path: Path) -> None:
    listen = [own_address() for _ in range(3)]
    apis = [own_address() for _ in range(3)]
    seeds = [word for address in listen for word in ("--seed", str(address))]
    processes: list[trio.Process] = []
    try:
        for number, (address, api) in enumerate(zip(listen, apis, strict=True)):
            command = [
                *(sys.executable, "-m", "rota", "agent", "--name", f"n{number}", "--preset", "local"),
                *("--listen", str(address), "--api", str(api), "--data-dir", str(tmp_path / str(number))),
                *("--expect", "3", *seeds, "--tag", f"rack=r{number}"),
            ]
            processes.append(await trio.lowlevel.open_process(command, stderr=subprocess.DEVNULL))
        with trio.fail_after(90):
            while not (statuses := await sizes(apis)) or {size for size, _ in statuses} != {3}:  # noqa: ASYNC110
                await trio.sleep(0.2)
            assert len({cluster for _, cluster in statuses}) == 1
            while (await rota("status", "--api", str(apis[0]), fails=None))["layout_epoch"] < 0:  # noqa: ASYNC110
                await trio.sleep(0.2)  # the chosen founder also brings the store up
    finally:
        with trio.CancelScope(shield=True):
            for process in processes:
                process.kill()
                await process.wait()


async def sizes(apis: list[Address]) -> list[tuple[int, str]]:
    """Size and cluster as every agent sees them; empty until all answer."""
    answers = []
    for api in apis:
        client = ApiClient(f"http://{api}")
        try:
            status = await trio.to_thread.run_sync(client.get, "/v1/status")
        except ApiError:
            return []
        answers.append((status["size"], status["cluster_id"]))
    return answers
