"""``rota suspicions`` says in a terminal what the console draws."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rota.commands.command_line import rota
from tests.console.fake_agent import FakeAgent, served

pytestmark = pytest.mark.socket


def said(agent: FakeAgent, *options: str) -> str:
    with served(agent) as server:
        outcome = CliRunner().invoke(rota, ["suspicions", "--api", server.url, *options])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_nobody_suspects_anybody() -> None:
    output = said(FakeAgent())
    assert "view 1, 6 members; 9 of 10 reports remove a member, fewer than 3 are noise" in output
    assert "nobody suspects anybody" in output


def test_who_suspects_whom_and_why_there_is_no_new_view() -> None:
    agent = FakeAgent()
    agent.suspect("n5", ["n1", "n2", "n3"], 7)
    agent.suspect("n6", ["n1"], 1, "noise", "evict")
    agent.votes = [
        {"votes": 4, "known": True, "removes": ["n5"], "joins": ["n9"], "updates": [], "own": True},
        {"votes": 1, "known": False, "removes": [], "joins": [], "updates": [], "own": False},
    ]
    agent.reason = "4 of 6 members have voted"
    output = said(agent)
    assert "n1 (1) n2 (1) n3 (1)" in output
    assert "7 of 10" in output
    assert "to be evicted" in output
    assert "4 of 5 votes: without n5; with n9" in output
    assert "1 of 5 votes: a cut not seen here yet" in output
    assert "no new view yet: 4 of 6 members have voted" in output
    assert json.loads(said(agent, "--json"))["suspects"][0]["name"] == "n5"
