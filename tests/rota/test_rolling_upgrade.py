"""A cluster of version 0.1 is rolled to this one, host by host, and back, under a writer and a reader."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio

from membership import Address, Key
from rota.access.roles import OPERATE
from rota.access.tokens import Token, digest_of, new_token, write_tokens
from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.errors import ApiError
from rota.local.cluster import AgentProcess, ClusterPlan, LocalCluster, is_settled, open_local_cluster
from rota.version import VERSION
from tests.rota.certificates import Authority
from tests.rota.frozen import frozen_build

pytestmark = [pytest.mark.demo, pytest.mark.socket]


@pytest.fixture(autouse=True)
def answers_are_as_described() -> None:
    """Those of version 0.1 are not, but as it described them."""


STREAM = "/v1/log/words"
PAUSE = 0.05


class MixedCluster(LocalCluster):
    """Hosts that run version 0.1, but for some."""

    frozen: ClassVar[tuple[list[str], dict[str, str]]]
    secured: ClassVar[bool]
    """All serve HTTPS to those who have a token, with a certificate and tokens beside it."""

    def __init__(self, plan: ClusterPlan) -> None:
        super().__init__(plan)
        self.access: Target | None = None
        if self.secured:
            assert self.network is not None
            hosts = [self.network.host(number + 1) for number in range(plan.nodes)]
            self.access = issue_access(plan.directory, hosts)
        self.upgraded: set[str] = set()
        self.leaving = False
        """A restart is a leave and a join; otherwise the host takes its own place."""

    def program(self, name: str) -> tuple[list[str], dict[str, str]]:
        return super().program(name) if name in self.upgraded else self.frozen

    def options(self) -> list[str]:
        if self.access is None:
            return []
        files = {name: self.plan.directory / f"host.{name}" for name in ("pem", "key", "tokens")}
        names = {"pem": "--api-certificate", "key": "--api-key", "tokens": "--api-tokens"}
        return [word for name, path in files.items() for word in (names[name], str(path))]

    def target(self, api: Address) -> Target:
        return super().target(api) if self.access is None else replace(self.access, api=f"https://{api}")

    async def restart(self, name: str, *, upgrade: bool) -> None:
        """End it, start the other version on the same data; until all is as wanted again."""
        before = max(status["epoch"] for status in (await self.statuses()).values())
        agent = self.agents[name]
        agent.expected_to_end = True
        at_once = signal.SIGQUIT if name in self.upgraded else signal.SIGKILL
        agent.process.send_signal(signal.SIGTERM if self.leaving else at_once)
        status = await agent.process.wait()
        if name in self.upgraded and not self.leaving:
            assert status == 128 + signal.SIGQUIT, "systemd starts it again"
        (self.upgraded.add if upgrade else self.upgraded.discard)(name)
        await self.start_one(name)

        after = before + (2 if self.leaving else 1)

        def is_back(statuses: dict[str, dict[str, Any]]) -> bool:
            views = {(status["epoch"], status["size"]) for status in statuses.values()}
            return views == {(after, 3)} and any(map(is_settled, statuses.values()))

        await self.wait_until(is_back, timeout=90, what=f"{name} back in view {after}, without other changes")


class Traffic:
    """A writer that asks every agent in turn until one confirms, and a reader of what was confirmed."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.confirmed: dict[int, str] = {}
        self.reads = 0

    def _agent(self, number: int) -> AgentProcess:
        agents = self._cluster.in_order()
        return agents[number % len(agents)]

    async def write(self) -> None:
        number = asked = 0
        while True:
            text = f"word {number}"
            try:
                self.confirmed[await self._append(self._agent(asked), text)] = text
                number += 1
            except ApiError:
                pass  # it may be in the log; it is asked for again
            asked += 1
            await trio.sleep(PAUSE)

    async def _append(self, agent: AgentProcess, text: str) -> int:
        client = ApiClient(agent.target, timeout=60.0)
        answer = await trio.to_thread.run_sync(client.post, STREAM, text.encode(), abandon_on_cancel=True)
        return int(answer["address"])

    async def read(self) -> None:
        while True:
            for address, text in list(self.confirmed.items())[-3:]:
                try:
                    answer = await self._agent(self.reads).get(STREAM, address=address)
                except ApiError:
                    continue  # the agent restarts, or a chain does
                assert [record["text"] for record in answer["records"]] == [text]
                self.reads += 1
            await trio.sleep(PAUSE)

    async def check(self) -> None:
        """Every confirmed record is there, in its place, whoever is asked."""
        assert len(self.confirmed) > 20
        assert self.reads > 20
        for agent in self._cluster.live():
            answer = await agent.get(STREAM, start=0, limit=10_000)
            found = {record["address"]: record["text"] for record in answer["records"]}
            assert self.confirmed.items() <= found.items()


def issue_access(directory: Path, hosts: list[str]) -> Target:
    """A certificate and tokens for every agent of a cluster; how a client with one of the tokens reaches them."""
    directory.mkdir()
    authority, token = Authority(directory), new_token()
    authority.issue("host", *hosts)
    write_tokens(directory / "host.tokens", [Token("alice", OPERATE, digest_of(token))])
    (directory / "alice.token").write_text(token)
    return Target(token_file=directory / "alice.token", ca_file=authority.path)


@pytest.mark.parametrize(
    ("leaving", "secured"),
    [
        (False, True),
        pytest.param(True, False, marks=pytest.mark.sweep("six restarts of real agents once more")),
    ],
)
async def test_from_0_1_to_this_version_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving: bool, secured: bool
) -> None:
    """``secured``: with TLS, tokens and a key ring."""
    monkeypatch.setattr(MixedCluster, "frozen", frozen_build(tmp_path / "0.1"), raising=False)
    monkeypatch.setattr(MixedCluster, "secured", secured, raising=False)
    keys = (Key.generate(),) if secured else ()
    # A crash is found out after 30 s: a slow start is no view change.
    plan = ClusterPlan(tmp_path / "cluster", nodes=3, segments=3, preset="wan", keys=keys)
    async with open_local_cluster(plan, MixedCluster) as cluster:
        assert isinstance(cluster, MixedCluster)
        cluster.leaving = leaving
        for status in (await cluster.wait_together(60)).values():
            assert (status["keys"] is not None) == secured
        await cluster.wait_until_settled(timeout=60, what="a placement", size=3)
        traffic = Traffic(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.write)
            nursery.start_soon(traffic.read)
            for name in ("n3", "n2", "n1"):
                await cluster.restart(name, upgrade=True)
            assert {status["version"] for status in (await cluster.statuses()).values()} == {VERSION}
            for name in ("n1", "n2", "n3"):
                await cluster.restart(name, upgrade=False)
            nursery.cancel_scope.cancel()
        await traffic.check()
        with pytest.raises(ApiError, match="upgrade the older of the two"):
            await cluster.agents["n1"].get("/v1/backup")
