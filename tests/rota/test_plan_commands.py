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
        "retirements": [],
    }


def is_done(plan: dict[str, Any]) -> bool:
    return not (plan["moves"] or plan["retirements"])


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
            "plan_id": None if is_done(plan) else "p4-n1",
            "moves": len(plan["moves"]),
            "bytes": 9,
            "waves": 1,
        }

    monkeypatch.setattr(ApiClient, "get", get)
    monkeypatch.setattr(ApiClient, "post", post)
    return posted


def test_the_plan_is_shown_and_then_that_one_is_ordered(capsys: Output, asked: Asked) -> None:
    status, out, _ = run(capsys, "apply")
    assert (status, asked) == (0, [("/v1/apply/shown", {"digest": "d1"})])
    assert out.startswith("plan p4-n1: 1 move\nplan p4-n1: done after ")
    status, out, _ = run(capsys, "apply", "--json")
    assert json.loads(out)["state"] == "done"


def test_a_plan_that_was_looked_at_is_named_by_its_digest(capsys: Output, asked: Asked) -> None:
    assert "`rota apply --digest d1` carries out this plan and no other" in run(capsys, "plan")[1]
    assert run(capsys, "apply", "--digest", "d1")[0] == 0
    status, out, err = run(capsys, "apply", "--digest", "d0")
    assert (status, out, err) == (1, "", f"rota: {CHANGED}\n")


def test_who_was_shown_that_nothing_is_to_be_done_orders_nothing_else(
    capsys: Output, plan: dict[str, Any], asked: Asked
) -> None:
    plan["moves"].clear()
    plan["text"] = "nothing to do: the placement is what the policies want"
    assert "rota apply" not in run(capsys, "plan")[1]
    status, out, _ = run(capsys, "apply")
    assert (status, out) == (0, f"{plan['text']}\nnothing to do\n")
    assert asked == [("/v1/apply/shown", {"digest": "d1"})]


def test_a_plan_that_only_retires_segments_is_one(capsys: Output, plan: dict[str, Any], asked: Asked) -> None:
    plan["moves"].clear()
    plan["retirements"].append({"segment": "s11", "retired": True})
    assert "`rota apply --digest d1` carries out this plan and no other" in run(capsys, "plan")[1]
    assert "plan p4-n1: done after " in run(capsys, "apply")[1]


def test_a_controller_of_0_1_tells_no_digest(capsys: Output, plan: dict[str, Any], asked: Asked) -> None:
    del plan["digest"]
    status, out, _ = run(capsys, "apply")
    assert status == 0
    assert out.startswith("plan p4-n1: 1 move\n"), "it is shown all the same"
    assert asked == [("/v1/apply", {})]
