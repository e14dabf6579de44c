"""Keys with real agents: a rotation through the command line, the file, a stranger, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from membership import Key, KeyRing
from membership.wire.key_ring import read_key_file, write_key_file
from rota.errors import ApiError, SettingsError
from rota.local.cluster import AgentProcess, ClusterPlan, open_local_cluster
from rota.services.key_service import KeyService
from tests.rota.description import Description

OLD, NEW, STRANGE = (Key.of(bytes([number]) * 32) for number in (1, 2, 3))


async def rota(*arguments: str, check: bool = True) -> tuple[int, str, str]:
    done = await trio.run_process(
        [sys.executable, "-m", "rota", *arguments], capture_stdout=True, capture_stderr=True, check=False
    )
    assert not check or done.returncode == 0, done.stderr.decode()
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def on_one(service: KeyService, action: str, **arguments: Any) -> dict[str, Any]:
    return await service.change(action, arguments)


async def test_one_host_keeps_its_file_and_its_ring_together(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_key_file(path, [OLD])
    service = KeyService("n1", path)
    ring = service.ring
    assert ring is not None
    assert (await on_one(service, "list"))["changed"] is False
    assert await on_one(service, "install", key=NEW.text) == {
        "primary": OLD.id, "installed": [OLD.id, NEW.id], "changed": True,
    }  # fmt: skip
    assert read_key_file(path) == [OLD, NEW]
    assert (await on_one(service, "install", key=NEW.text))["changed"] is False
    assert (await on_one(service, "use", id=NEW.id))["primary"] == NEW.id
    assert read_key_file(path) == [NEW, OLD]
    assert (await on_one(service, "remove", id=OLD.id))["installed"] == [NEW.id]
    assert (await on_one(service, "remove", id=OLD.id))["changed"] is False
    assert read_key_file(path) == list(ring.keys) == [NEW]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for action, arguments, code in (
        ("remove", {"id": NEW.id}, "key"),
        ("use", {"id": OLD.id}, "key"),
        ("install", {"key": "nonsense"}, "bad_request"),
        ("install", {}, "bad_request"),
        ("use", {"id": 3}, "bad_request"),
        ("eat", {"id": NEW.id}, "bad_request"),
    ):
        with pytest.raises(ApiError) as caught:
            await service.change(action, arguments)
        assert caught.value.code == code
    assert read_key_file(path) == list(ring.keys) == [NEW]


async def test_a_change_that_cannot_be_written_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "keys"
    path.parent.mkdir()
    write_key_file(path, [OLD])
    service = KeyService("n1", path)
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(ApiError, match="cannot be written"):
        await on_one(service, "install", key=NEW.text)
    assert service.ring is not None
    assert service.ring.keys == (OLD,)


async def test_without_keys_there_is_nothing_to_change() -> None:
    service = KeyService("n1", None)
    assert service.status() is None
    assert not await service.reload()
    with pytest.raises(ApiError, match="start its agent with --key-file"):
        await on_one(service, "list")


def test_a_key_file_that_is_no_good_stops_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_key_file(path, [OLD])
    path.chmod(0o644)
    with pytest.raises(SettingsError, match=r"key_file: .*chmod 600"):
        KeyService("n1", path)


def test_generate_makes_a_key_or_a_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "rota", "keys", "generate"], capture_output=True, check=True)
    assert KeyRing([Key.parse(done.stdout.decode())])
    path = tmp_path / "new.key"
    command = [sys.executable, "-m", "rota", "keys", "generate", str(path), "--json"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer == {"id": read_key_file(path)[0].id, "file": str(path)}
    again = subprocess.run(command[:-1], capture_output=True, check=False)
    assert again.returncode == 1
    assert b"is there already" in again.stderr


@pytest.mark.socket
async def test_a_rotation_with_real_agents_loses_nobody(tmp_path: Path, description: Description) -> None:
    """Install, use, remove through any agent; the store goes on, no view changes, a stranger stays outside."""
    plan = ClusterPlan(tmp_path, nodes=3, racks=3, segments=4, keys=(OLD,))
    async with open_local_cluster(plan) as cluster:
        await cluster.wait_until(
            lambda answers: all(answer["size"] == 3 for answer in answers.values()),
            timeout=40,
            what="one view",
        )
        await cluster.wait_until(
            lambda answers: any(
                name == answer["controller"] and answer["control"]["settled"]
                for name, answer in answers.items()
            ),
            timeout=60,
            what="a settled placement",
        )
        agent = cluster.agents["n2"]
        api = f"http://{agent.api}"
        epoch = (await agent.get("/v1/status"))["epoch"]
        new_file = tmp_path / "new.key"
        write_key_file(new_file, [NEW])

        status, _, error = await rota("keys", "use", NEW.id, "--api", api, check=False)
        assert status == 1
        assert "install it first" in error
        status, _, error = await rota("keys", "remove", OLD.id, "--api", api, check=False)
        assert status == 1
        assert "use another key first" in error

        for arguments in (
            ("install", str(new_file)),
            ("use", NEW.id),
            ("remove", OLD.id),
            ("remove", OLD.id),
        ):
            _, out, _ = await rota("keys", *arguments, "--api", api, "--json")
            answer = json.loads(out)
            description.check_answer("POST", "/v1/keys", answer)
            assert answer["agreed"], answer
            assert sorted(answer["hosts"]) == ["n1", "n2", "n3"]
            await agent.post("/v1/log/words", {"said after": arguments[0]})
        _, out, _ = await rota("keys", "remove", OLD.id, "--api", api)
        assert "no host held this key, and nothing was changed" in out
        _, out, _ = await rota("keys", "list", "--api", api)
        assert out.count(NEW.id) == 6
        assert OLD.id not in out
        assert "all hosts agree" in out
        for name in plan_names(plan):
            assert read_key_file(tmp_path / f"{name}.key") == [NEW]

        await a_stranger_is_refused(tmp_path, agent)
        answers = await cluster.wait_until(
            lambda answers: answers["n2"]["dropped"].get("datagrams_removed_key", 0) > 0,
            timeout=10,
            what="a count",
        )
        assert all(answer["epoch"] == epoch for answer in answers.values())
        assert answers["n2"]["keys"] == {"primary": NEW.id, "installed": [NEW.id]}
        _, out, _ = await rota("status", "--api", api)
        assert f"key {NEW.id}" in out
        assert "under a key that was removed" in " ".join(out.split())

        await the_file_is_read_again(cluster.agents["n1"], tmp_path / "n1.key")


def plan_names(plan: ClusterPlan) -> list[str]:
    return [f"n{index + 1}" for index in range(plan.nodes)]


async def a_stranger_is_refused(directory: Path, seed: AgentProcess) -> None:
    """It holds the key that was removed."""
    path = directory / "stranger.key"
    write_key_file(path, [OLD])
    status, out, error = await rota(
        "agent", "--name", "stranger", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--seed", str(seed.address),
        "--data-dir", str(directory / "stranger"), "--preset", "local", "--join-timeout", "4", "--key-file", str(path),
        check=False,
    )  # fmt: skip
    assert status == 1
    assert "does not hold the key" in (out + error).strip().splitlines()[-1]


async def the_file_is_read_again(agent: AgentProcess, path: Path) -> None:
    write_key_file(path, [NEW, STRANGE])
    os.kill(agent.process.pid, signal.SIGHUP)
    with trio.fail_after(20):
        while (await agent.get("/v1/status"))["keys"]["installed"] != [NEW.id, STRANGE.id]:  # noqa: ASYNC110
            await trio.sleep(0.1)
