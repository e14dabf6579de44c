"""`rota plan` and `rota apply`: what is carried out is what was shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.client.api_client import ApiClient
from rota.errors import ApiError
from tests.rota.test_command_line import run

Asked = list[tuple[str, Any]]
Output = pytest.CaptureFixture[str]
CHANGED = "the plan is no longer the one that was shown (d1); nothing was changed"


@pytest.fixture
def plan() -> dict[str, Any]:
    moves = [{"segment": "s01", "from": "n3", "to": "n4"}]
    return {
        "text": "plan p4-n1: 1 move",
        "digest": "d1",
        "moves": moves,
        "primaries": [],
        "roles": [],
        "slots": [],
    }


@pytest.fixture
def asked(plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What was posted; the agent has this plan, and carries out what is named ``d1``."""
    posted: Asked = []

    def get(self: ApiClient, path: str) -> dict[str, Any]:
        if path == "/v1/plan":
            return plan
        return {"plan_id": path.removeprefix("/v1/plans/"), "state": "done", "error": "", "progress": None}

    def post(self: ApiClient, path: str, body: Any) -> dict[str, Any]:
        posted.append((path, body))
        if body.get("digest", "d1") != "d1":
            raise ApiError(CHANGED, code="plan_changed", status=409)
        return {
            "plan_id": "p4-n1" if plan["moves"] else None,
            "moves": len(plan["moves"]),
            "bytes": 9,
            "waves": 1,
        }

    monkeypatch.setattr(ApiClient, "get", get)
    monkeypatch.setattr(ApiClient, "post", post)
    return posted


def test_the_plan_is_shown_and_then_that_one_is_ordered(capsys: Output, asked: Asked) -> None:
    status, out, _ = run(capsys, "apply")
    assert (status, asked) == (0, [("/v1/apply", {"digest": "d1"})])
    assert out.startswith("plan p4-n1: 1 move\nplan p4-n1: done after ")
    status, out, _ = run(capsys, "apply", "--json")
    assert json.loads(out)["state"] == "done"


def test_a_plan_that_was_looked_at_is_named_by_its_digest(capsys: Output, asked: Asked) -> None:
    assert "`rota apply --digest d1` carries out this plan and no other" in run(capsys, "plan")[1]
    assert run(capsys, "apply", "--digest", "d1")[0] == 0
    status, out, err = run(capsys, "apply", "--digest", "d0")
    assert (status, out, err) == (1, "", f"rota: {CHANGED}\n")


@pytest.mark.parametrize("older", [False, True])
def test_without_anything_to_do_or_a_digest_nothing_is_named(
    older: bool, capsys: Output, plan: dict[str, Any], asked: Asked
) -> None:
    """A controller of 0.1 tells no digest."""
    plan.pop("digest") if older else plan["moves"].clear()
    assert run(capsys, "apply")[0] == 0
    assert asked == [("/v1/apply", {})]
