"""Operating without a cluster: waiting for a drain, taking over changed tags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota.agent.node import Node
from rota.agent.settings import AgentSettings
from rota.commands.layout import layout as placement
from rota.errors import AgentError, SettingsError
from rota.terminal.progress import Progress
from rota.version import VERSION


class Layouts:
    """Answers for `GET /v1/layout`, one after the other; the last for ever."""

    def __init__(self, *held: tuple[int, bool], paused: bool = False) -> None:
        self.paused = paused
        self._answers = [
            {
                "segments": [{"replicas": [{"host": "n3"}]}] * replicas + [{"replicas": [{"host": "n1"}]}],
                "roles": {
                    "layout_servers": ["n1"],
                    "sequencers": ["n3"] if sequencer else [],
                    "log_units": ["n1", "n3"],  # whoever was one stays one
                },
            }
            for replicas, sequencer in held
        ]

    def get(self, path: str) -> dict[str, Any]:
        if path == "/v1/control":
            return {"progress": None, "paused": self.paused}
        assert path == "/v1/layout"
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def test_a_drain_is_over_when_replicas_and_roles_are_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(placement, "POLL_INTERVAL", 0.0)
    client = Layouts((2, True), (0, True), (0, False))
    with Progress("drain n3") as progress:
        placement._wait_until_empty(client, "n3", 60.0, progress)  # type: ignore[arg-type]
    told = capsys.readouterr().err.splitlines()
    assert told == ["n3 still holds 2 replicas, sequencer", "n3 still holds sequencer"]


def test_a_drain_that_takes_too_long_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "POLL_INTERVAL", 0.0)
    with (
        Progress("drain n3") as progress,
        pytest.raises(AgentError, match=r"holds 1 replicas\); the drain goes on"),
    ):
        placement._wait_until_empty(Layouts((1, False)), "n3", 0.0, progress)  # type: ignore[arg-type]


def test_a_drain_while_the_loop_is_paused_says_what_would_help() -> None:
    with Progress("drain n3") as progress, pytest.raises(AgentError, match="`rota resume`"):
        placement._wait_until_empty(Layouts((1, False), paused=True), "n3", 60.0, progress)  # type: ignore[arg-type]


class FakeCluster:
    def __init__(self) -> None:
        self.metadata: list[dict[str, str]] = []

    async def set_metadata(self, metadata: dict[str, str]) -> None:
        self.metadata.append(metadata)


async def test_changed_tags_in_the_settings_are_asked_for_once(tmp_path: Path) -> None:
    settings = AgentSettings(name="n1", data_dir=tmp_path, tags={"rack": "r1"}, capacity=5)
    now = [settings]
    node = Node(settings, lambda: now[0])
    cluster = FakeCluster()
    node._api.cluster = cluster  # type: ignore[assignment]
    await node.reload()
    assert cluster.metadata == [], "nothing has changed, so what `rota tag` has set stays"
    now[0] = replace(settings, tags={"rack": "r2"})
    await node.reload()
    await node.reload()
    own = {"rota": VERSION, "http": f"http://{settings.api}"}
    assert cluster.metadata == [{"rack": "r2", "capacity": "5", **own}]


async def test_settings_that_are_no_good_change_nothing(tmp_path: Path) -> None:
    def broken() -> AgentSettings:
        raise SettingsError("agent.toml: not valid TOML")

    node = Node(AgentSettings(name="n1", data_dir=tmp_path), broken)
    cluster = FakeCluster()
    node._api.cluster = cluster  # type: ignore[assignment]
    await node.reload()
    assert cluster.metadata == []
