"""What `rota status` makes of an agent's answer, for people."""

from __future__ import annotations

from typing import Any

import pytest

from agent.api_client import ApiClient
from tests.agent.test_command_line import run

CONTROL: dict[str, Any] = {
    "layout_epoch": 8, "open_moves": 6, "progress": None, "paused": False, "held": None, "away": [], "full": [],
    "frozen": {}, "pins": [], "rack_violations": 0, "under_replicated": 0, "last_error": "",
}  # fmt: skip
STATUS: dict[str, Any] = {
    "name": "n1", "address": "127.0.0.1:7946", "state": "member", "epoch": 4, "id": "a053009e", "size": 6,
    "recoveries": [], "quorum": True, "controller": "n1", "keys": None, "dropped": {}, "control": CONTROL,
}  # fmt: skip
PROGRESS = {
    "wave": 1, "waves": 2, "steps": 8, "steps_done": 1,
    "bytes": 60_000_000, "bytes_done": 15_000_000, "rate": 1_000_000.0, "eta": 45.0,
}  # fmt: skip


def answered(monkeypatch: pytest.MonkeyPatch, control: dict[str, Any]) -> None:
    monkeypatch.setattr(ApiClient, "get", lambda self, path, **query: {**STATUS, "control": control})


def test_a_plan_under_way_is_told_with_bytes_rate_and_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, {**CONTROL, "progress": PROGRESS})
    status, out, _ = run(capsys, "status")
    assert status == 0
    assert "progress      25%, wave 1 of 2, 15.0 MB of 60.0 MB, 1.0 MB/s, 45 s left" in out.splitlines()


def test_without_a_plan_there_is_no_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, CONTROL)
    _, out, _ = run(capsys, "status")
    assert "progress" not in out
