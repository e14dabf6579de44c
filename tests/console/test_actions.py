"""What operators do from the console: for whose role suffices, and only after what would come of it was shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.access.access import Access
from rota.access.roles import OPERATE, READ
from rota.access.tls import TlsFiles
from rota.access.tokens import Token, digest_of, write_tokens
from rota.errors import ApiError
from tests.console.conftest import Page
from tests.console.fake_agent import FakeAgent, served
from tests.rota.certificates import Authority

pytestmark = pytest.mark.system

HOST = "o'neil"
DRAIN = "UPDATE host SET drained = true WHERE name = 'o''neil'"


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    agent = FakeAgent()
    agent.names[3] = HOST
    agent.racks[HOST] = "r1"
    agent.chains = {key: [HOST if host == "n4" else host for host in of] for key, of in agent.chains.items()}
    agent.installed = {name: [] for name in agent.names}
    return agent


def press(page: Page, text: str) -> None:
    script = (
        "const found = [...document.querySelectorAll('button')].filter((each) => each.checkVisibility() && "
        "each.textContent === arguments[0] && !each.disabled); found.at(-1)?.click(); return found.length"
    )
    page.until(lambda: page.run(script, text), f"no button {text!r} can be pressed")


def test_a_drain_shows_what_would_move_and_then_is_ordered(page: Page, agent: FakeAgent) -> None:
    agent.what_if[DRAIN] = ["it costs 6 moves", f"{HOST} -> n1: s01 <b>s03</b>"]
    with served(agent) as server:
        page.open(f"{server.url}#/host/{HOST}")
        press(page, "Drain …")
        page.until_text("dialog .lines", f"{HOST} -> n1: s01 <b>s03</b>")
        assert agent.ordered == []
        press(page, "Cancel")
        page.until(lambda: not page.texts("dialog"), "the dialog stays")
        assert agent.ordered == []
        press(page, "Drain …")
        press(page, "Drain it")
        page.until_text("dialog .done", f"{HOST} is being drained")
        assert agent.ordered == [("drain", HOST)]
        press(page, "Close")
        agent.what_if.clear()
        press(page, "Drain …")
        page.until_text("dialog .problem", "it would break one_replica_per_rack")
        assert page.run("return document.querySelector('dialog .confirm').disabled")
        press(page, "Close")
        assert page.errors() == []


def test_what_lifts_a_request_needs_no_plan(page: Page, agent: FakeAgent) -> None:
    agent.drained = [HOST]
    agent.control_now = {"phase": "paused", "paused": True, "restoring": True}
    agent.plan = {}
    with served(agent) as server:
        page.open(f"{server.url}#/host/{HOST}")
        press(page, "Undrain …")
        page.until_text("dialog .problem", "it would break one_replica_per_rack")
        press(page, "Undrain it")
        page.until_text("dialog .done", "may hold copies again")
        press(page, "Close")
        page.run("location.hash = '#/'")
        press(page, "Apply …")
        page.until_text("dialog .problem", "The answer of the agent cannot be read.")
        assert page.run("return document.querySelector('dialog .confirm').disabled")
        press(page, "Close")
        press(page, "Resume …")
        page.until_text("dialog .problem", "The answer of the agent cannot be read.")
        assert "A backup is being restored: this gives that up" in page.text("dialog")
        press(page, "Resume")
        page.until_text("dialog .done", "The controller goes on by itself")
        assert agent.ordered == [("undrain", HOST), ("resume", "")]


def test_the_end_of_observing_is_announced(page: Page, agent: FakeAgent) -> None:
    agent.control_now = {"phase": "observing", "observing": True}
    with served(agent) as server:
        page.open(server.url)
        for button in ("Apply …", "Resume …"):
            press(page, button)
            page.until_text("dialog", "only observed: this ends that for good")
            press(page, "Close" if button == "Apply …" else "Cancel")


def test_the_plan_is_shown_before_it_is_carried_out(page: Page, agent: FakeAgent) -> None:
    with served(agent) as server:
        page.open(server.url)
        press(page, "Apply …")
        page.until_text("dialog .lines", "nothing to do")
        assert page.run("return document.querySelector('dialog .confirm').disabled")
        press(page, "Close")
        agent.plan |= {
            "text": "plan p4-n1:\n6 moves",
            "moves": [{"segment": "s01", "bytes": 1}],
            "digest": "d6",
            "dangers": ["s01 has one copy on the way"],
        }
        press(page, "Apply …")
        page.until_text("dialog .lines", "6 moves")
        assert page.texts("dialog .lines p") == ["plan p4-n1:", "6 moves"]
        assert "s01 has one copy on the way" in page.text("dialog")
        agent.plan |= {"text": "7 moves", "digest": "d7"}
        press(page, "Carry it out")
        page.until_text("dialog .problem", "Nothing was done")
        assert page.texts("dialog .lines p") == ["7 moves"]
        assert agent.ordered == []
        press(page, "Carry it out")
        page.until_text("dialog .done", "Plan p4-n1 is carried out: 6 moves, 1 wave")
        press(page, "Close")
        press(page, "Pause …")
        press(page, "Pause")
        page.until_text("dialog .done", "Paused")
        press(page, "Close")
        agent.control_now = {"phase": "paused", "paused": True}
        press(page, "Resume …")
        page.until_text("dialog .lines", "7 moves")
        agent.broken["resume"] = ApiError("the controller cannot be reached", code="unreachable", status=503)
        press(page, "Resume")
        page.until_text("dialog .problem", "the controller cannot be reached")
        assert [action for action, _ in agent.ordered] == ["apply-shown", "pause"]


def test_who_may_only_read_is_offered_nothing_and_the_agent_refuses_besides(
    page: Page, agent: FakeAgent, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    tokens = [Token("alice", OPERATE, digest_of("rota_alice")), Token("bob", READ, digest_of("rota_bob"))]
    write_tokens(file, tokens)
    access = Access(file, TlsFiles(*Authority(tmp_path).issue("agent", "127.0.0.1", "localhost")))
    roles = [("rota_bob", "bob (read)", []), ("rota_alice", "alice (operate)", ["Pause …", "Apply …"])]
    pause = (
        "const done = arguments[0]; fetch('/v1/pause', {method: 'POST', body: '{}', headers: "
        "{'content-type': 'application/json'}}).then((answer) => done(answer.status))"
    )
    with served(agent, access) as server:
        page.open(server.url)
        for token, name, offered in roles:
            page.until(
                lambda: page.run("return !document.getElementById('login').hidden"), "no login appears"
            )
            page.run(
                "document.getElementById('token').value = arguments[0]; document.getElementById('enter').click()",
                token,
            )
            page.until_text("#who", name)
            page.until_text("#policies", "fewest_moves")
            if offered:
                page.until(lambda: page.texts("#plan-actions button"), "nothing is offered")
            assert page.texts("#plan-actions button") == offered
            if not offered:
                assert page.driver.execute_async_script(pause) == 403
            if offered:
                press(page, "Pause …")
                page.until_text("dialog", "Nothing is under way.")
            page.run("location.hash = '#/segment/s01'")
            page.until(lambda: page.texts("#page button"), "the page of the segment does not appear")
            page.run("document.querySelector('#page button').click()")
            page.until_text("#page .answer", "s01 is where it is")
            page.run("document.getElementById('logout').click()")
            page.until(
                lambda: page.run("return !document.getElementById('login').hidden"), "nobody is logged out"
            )
            assert page.texts("dialog") == [], "a question stays over the login"
            assert "is where it is" not in page.run("return document.getElementById('page').textContent")
            page.run("location.hash = '#/'")
        assert agent.ordered == []
