"""The HTTP interface of an ensemble member, over voters and members on a network in memory; and the metrics."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import membership
from membership import Address, InMemoryNetwork, Mode, Settings
from rota.agent.ensemble_node import EnsembleApi
from rota.http.api import build_application
from rota.http.metrics import exposition
from rota.services.event_log import EventLog
from rota.services.key_service import KeyService

JSON = {"content-type": "application/json"}
VOTERS = [Address(f"10.1.0.{number}", 7946) for number in range(1, 4)]


class World:
    """Three voters; `api` is the interface of the first, `client` asks it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.network = InMemoryNetwork()
        self.events = EventLog()
        self.api = EnsembleApi("e0", self.events, KeyService("e0", None))
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=build_application(self.api)), base_url="http://127.0.0.1"
        )

    @asynccontextmanager
    async def running(self, member: str) -> AsyncIterator[None]:
        """Three voters and one member."""
        options: dict[str, Any] = {"settings": Settings.local(), "network": self.network}
        async with AsyncExitStack() as stack:
            for number, address in enumerate(VOTERS):
                state, rng = self._folder / str(number), random.Random(number)
                ensemble = await stack.enter_async_context(
                    membership.serve_ensemble(
                        address, VOTERS, state=state, name=f"e{number}", rng=rng, **options
                    )
                )
                self.api.ensemble = self.api.ensemble or ensemble
            own = Address("10.0.0.1", 7946)
            mode, rng = Mode.CENTRALISED, random.Random(member)
            await stack.enter_async_context(
                membership.join(own, VOTERS, name=member, mode=mode, rng=rng, **options)
            )
            yield


@pytest.fixture
async def world(tmp_path: Path, autojump_clock: MockClock) -> AsyncIterator[World]:
    made = World(tmp_path)
    async with made.client:
        yield made


async def test_before_the_ensemble_has_formed_it_says_so(world: World) -> None:
    assert (await world.client.get("/healthz")).status_code == 200
    assert (await world.client.get("/readyz")).status_code == 503
    status = (await world.client.get("/v1/status")).json()
    assert (status["state"], status["epoch"], status["quorum"]) == ("forming", None, False)
    answer = await world.client.get("/v1/members")
    assert (answer.status_code, answer.json()["code"]) == (503, "forming")
    metrics = (await world.client.get("/metrics")).text
    assert "rota_ready 0.0" in metrics
    assert "rota_view_epoch" not in metrics


async def test_it_tells_what_it_knows_of_its_cluster(world: World) -> None:
    async with world.running("ada"):
        assert world.api.ensemble is not None
        await world.api.ensemble.wait_for(lambda view: len(view) == 1)
        status = (await world.client.get("/v1/status")).json()
        assert (status["name"], status["state"], status["quorum"], status["size"]) == ("e0", "voter", True, 1)
        assert [voter["address"] for voter in status["ensemble"]].count("10.1.0.1:7946") == 1
        assert len(status["ensemble"]) == 3
        members = (await world.client.get("/v1/members")).json()
        assert [member["name"] for member in members["members"]] == ["ada"]
        assert members["id"] == status["id"]
        assert (await world.client.get("/readyz")).status_code == 200
        answer = await world.client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "# TYPE rota_view_members gauge\nrota_view_members 1.0\n" in answer.text
        assert "rota_views_installed_total 2.0\n" in answer.text


async def test_its_events_are_its_own_and_can_be_followed(world: World) -> None:
    world.events.add("view", "one")
    assert [event["text"] for event in (await world.client.get("/v1/events")).json()["events"]] == ["one"]
    told: list[str] = []
    with trio.fail_after(10):
        async with aclosing(world.api.follow(0)) as feed:
            async for event in feed:
                told.append(event["text"])
                if len(told) == 2:
                    break
                world.events.add("view", "two")
    assert told == ["one", "two"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/suspicions", 404, "voter"),
        ("GET", "/v1/views", 404, "voter"),
        ("GET", "/v1/layout", 404, "no_store"),
        ("GET", "/v1/plan", 404, "no_store"),
        ("GET", "/v1/log/s", 404, "no_store"),
        ("POST", "/v1/drain", 404, "no_store"),
        ("POST", "/v1/evict", 409, "voter"),
        ("POST", "/v1/leave", 409, "voter"),
        ("POST", "/v1/tags", 409, "voter"),
        ("POST", "/v1/recover", 409, "voter"),
        ("GET", "/v1/keys", 409, "no_keys"),
        ("POST", "/v1/keys", 409, "voter"),
    ],
)
async def test_what_does_not_apply_is_refused_with_the_reason(
    world: World, method: str, path: str, status: int, code: str
) -> None:
    body = {} if method == "GET" else {"json": {"host": "n1", "action": "use", "id": "x"}, "headers": JSON}
    answer = await world.client.request(method, path, **body)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert len(answer.json()["error"]) > 30


def test_metrics_have_names_that_are_allowed_and_leave_out_what_is_not_known() -> None:
    status = {"quorum": True, "epoch": 7, "size": 3, "layout_epoch": None, "statistics": {"server.calls": 5}}
    assert exposition(status, ready=True).splitlines()[2::3] == [
        "rota_ready 1.0",
        "rota_quorum 1.0",
        "rota_view_epoch 7.0",
        "rota_view_members 3.0",
        "rota_server_calls_total 5.0",
    ]
    assert "# TYPE rota_server_calls_total counter\n" in exposition(status, ready=True)
    interface = {"http_open_connections": 2, "certificate_expiry_timestamp_seconds": None}
    lines = exposition(status, ready=True, interface=interface).splitlines()
    assert lines[2] == "rota_http_open_connections 2.0"
    assert len(lines) == 3 * 6


def test_metrics_of_shards_and_of_the_servers_here() -> None:
    shard = {"key": "s00", "primary": "n1", "slots": 8192, "bytes": 5, "load": 1.5, "in_sync": 2}
    control = {
        "rack_violations": 1, "under_replicated": 0, "asks": [{}], "shards": [shard], "statistics": {},
        "controller": "n1", "solve_status": "infeasible", "full": ["n2"],
        "disks": [{"host": "n2", "state": "full"}, {"host": "n3", "state": "slow"}],
    }  # fmt: skip
    engine = {"name": "redis", "servers": ["a:1", "a:3"], "running": 1, "restarts": 4}
    status = {
        "name": "n1", "quorum": True, "epoch": 7, "size": 3, "statistics": {}, "control": control, "engine": engine
    }  # fmt: skip
    lines = exposition(status, ready=True).splitlines()
    assert {
        'rota_shard_slots{shard="s00"} 8192.0',
        'rota_shard_operations_per_second{shard="s00"} 1.5',
        'rota_shard_copies_in_sync{shard="s00"} 2.0',
        "rota_rack_violations 1.0",
        "rota_questions 1.0",
        "rota_engine_servers 2.0",
        "rota_engine_servers_running 1.0",
        "rota_engine_restarts_total 4.0",
        "rota_controller 1.0",
        "rota_infeasible 1.0",
        "rota_full_disks 1.0",
        "rota_failed_disks 0.0",
        "rota_slow_disks 1.0",
    } <= set(lines)
    other = exposition({**status, "name": "n2"}, ready=True)
    assert "rota_controller 0.0" in other
    told_by_the_controller_alone = (
        "infeasible",
        "under_replicated",
        "rack_violations",
        "questions",
        "shard_",
    )
    assert not [name for name in told_by_the_controller_alone if f"rota_{name}" in other]
    adopted = {**status, "engine": {**engine, "running": None}}
    assert "rota_engine_servers_running" not in exposition(adopted, ready=True)
