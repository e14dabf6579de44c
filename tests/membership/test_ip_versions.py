"""IPv6, and both versions at once: over real sockets of this machine's loopback."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

import membership
from membership import Cluster
from rota.local.cluster import ClusterPlan, open_local_cluster
from tests.membership.facades import FACADES, PATIENCE, SETTINGS, Facade


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.socket,
    pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address ::1"),
]

NAME = "dual.example"
"""A name with an address of each version, see `TwoAddresses`."""


class TwoAddresses(trio.abc.HostnameResolver):
    """Resolves NAME as a resolver does that knows an A and an AAAA record of it."""

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        family: int = 0,
        type: int = 0,  # noqa: A002 - as in the interface
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        await trio.lowlevel.checkpoint()
        assert (host if isinstance(host, str) else host.decode()) == NAME
        found: list[Any] = []
        if family in (0, socket.AF_INET6):
            found.append((socket.AF_INET6, type, proto, "", ("::1", port, 0, 0)))
        if family in (0, socket.AF_INET):
            found.append((socket.AF_INET, type, proto, "", ("127.0.0.1", port)))
        return found

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise AssertionError("nobody asks for names")


async def meet(hosts: Sequence[tuple[str, str | None]]) -> list[Cluster]:
    """One member per (listen, advertise), until all see all; then one vanishes, and the others see that."""
    clusters: list[Cluster] = []
    scopes = [trio.CancelScope() for _ in hosts]
    seeds: list[str] = []

    async def run(number: int, task_status: Any) -> None:
        listen, advertise = hosts[number]
        with scopes[number]:
            async with membership.join(
                listen, tuple(seeds), advertise=advertise, name=f"n{number}", settings=SETTINGS, insecure=True
            ) as cluster:
                clusters.append(cluster)
                seeds.append(str(cluster.me.address))
                task_status.started()
                await trio.sleep_forever()

    async def start(number: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await run(number, task_status)

    async with trio.open_nursery() as nursery:
        for number in range(len(hosts)):
            with trio.fail_after(PATIENCE):
                await nursery.start(start, number)
        for cluster in clusters:
            await cluster.wait_for(lambda view: len(view.members) == len(hosts), PATIENCE)
        scopes[-1].cancel()
        for cluster in clusters[:-1]:
            await cluster.wait_for(lambda view: len(view.members) == len(hosts) - 1, PATIENCE)
        epochs = {cluster.view.epoch for cluster in clusters[:-1]}
        assert epochs == {len(hosts)}, (
            "one view change for each that joined, and one for the one that vanished"
        )
        nursery.cancel_scope.cancel()
    return clusters


@pytest.mark.parametrize("facade", FACADES, ids=str)
def test_every_facade_joins_over_ipv6(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join(listen="[::1]:0", name="ada") as ada:
            assert ada.me.address.host == "::1"
            assert str(ada.me.address).startswith("[::1]:")
            async with facade.join(str(ada.me.address), listen="[::1]:0", name="ben") as ben:
                await ben.wait_for(lambda view: len(view.members) == 2, PATIENCE)
            await ada.wait_for(lambda view: len(view.members) == 1, PATIENCE)

    facade.run(body)


async def test_members_on_ipv6_alone() -> None:
    clusters = await meet([("[::1]:0", None)] * 5)
    assert all(member.host == "::1" for member in clusters[0].view.members)


async def test_a_dual_stack_socket_is_a_member_among_ipv4_hosts() -> None:
    """It sends to them, and hears them, by IPv4 addresses mapped into IPv6."""
    await meet(
        [("127.0.0.1:0", None), ("[::]:0", "127.0.0.1:0"), ("127.0.0.1:0", None), ("127.0.0.1:0", None)]
    )


async def test_a_dual_stack_socket_is_a_member_among_ipv6_hosts() -> None:
    await meet([("[::1]:0", None), ("[::]:0", "[::1]:0"), ("[::1]:0", None), ("[::1]:0", None)])


async def test_dual_stack_members_that_advertise_either_version() -> None:
    await meet([("[::]:0", "127.0.0.1:0"), ("[::]:0", "[::1]:0")] * 3)


@pytest.mark.parametrize("single", ["127.0.0.1:0", "[::1]:0"])
async def test_a_name_with_both_versions_is_reached_from_either(single: str) -> None:
    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    clusters = await meet([("[::]:0", f"{NAME}:0"), (single, None), ("[::]:0", f"{NAME}:0"), (single, None)])
    assert clusters[1].view.member("n0") is not None
    assert clusters[1].view.member("n0").host == NAME  # type: ignore[union-attr]


@pytest.mark.parametrize(("first", "second"), [("127.0.0.1:0", "[::1]:0")])
async def test_a_seed_of_the_other_version_is_told_apart_from_a_firewall(first: str, second: str) -> None:
    async with membership.join(first, settings=SETTINGS) as cluster:
        with pytest.raises(membership.SeedsUnreachableError, match=r"other IP version .* listen on \[::\]"):
            async with membership.join(second, [str(cluster.me.address)], settings=SETTINGS, join_timeout=3):
                pytest.fail("joined")


@pytest.mark.slow("three real agents")
async def test_agents_on_ipv6_form_a_cluster_with_a_log(tmp_path: Path) -> None:
    plan = ClusterPlan(tmp_path, nodes=3, racks=3, segments=2, host="::1")
    async with open_local_cluster(plan) as cluster:
        answers = await cluster.wait_until(
            lambda answers: all(answer["size"] == 3 for answer in answers.values()),
            timeout=PATIENCE,
            what="three agents on ::1 meet",
        )
        assert len(answers) == 3
        assert {agent.address.host for agent in cluster.agents.values()} == {"::1"}
        agent = cluster.agents["n2"]
        with trio.fail_after(PATIENCE):
            appended = await agent.post("/v1/log/words", {"word": "hello"})
        read = await agent.get("/v1/log/words", address=appended["address"])
        assert read["records"]
