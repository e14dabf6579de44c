"""The console in a real browser, over made-up clusters: every state it can show, and what must never happen."""

from __future__ import annotations

import http.server
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.errors import ApiError
from tests.console.conftest import Page
from tests.console.fake_agent import FakeAgent, served

pytestmark = pytest.mark.system

HOSTILE = "<img src=x onerror='window.harmed=1'>"


def open_settled(page: Page, url: str) -> None:
    page.open(url)
    page.until(lambda: page.texts(".host, .cell"), "hosts do not appear")
    page.until(lambda: page.texts(".log li"), "events do not appear")
    page.until_text("#policies", "datastore")


def test_a_cluster_in_order(page: Page) -> None:
    agent = FakeAgent()
    agent.tags["n4"] = {"disk": "nvme"}
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#headline", "Everything is in place")
        assert page.texts(".rack h3 .name") == ["r1", "r2", "r3"]
        first = page.texts('.rack[data-rack="r1"] .host')
        assert "n1" in first[0]
        assert "controller" in first[0]
        assert page.texts('[data-host="n1"] .copy') == ["s00", "s02", "s04", "s06", "s08", "s10"]
        assert page.texts('[data-host="n1"] .copy.primary') == page.texts('[data-host="n1"] .copy')
        assert "disk=nvme" in page.text('[data-host="n4"]')
        assert "sequencer" in page.text('[data-host="n2"]')
        assert page.text('[data-fact="quorum"]') == "yes"
        assert page.text('[data-fact="controller"]') == "n1"
        page.until_text("#timeline .caption", "installed by 6 within")
        assert not page.run("return document.querySelector('.panel.suspicions').checkVisibility()")
        assert "fewest_moves" in page.text("#policies")
        page.until(lambda: page.text("#connection").startswith("live"), "it is not live")
        assert page.errors() == []


def test_paused_frozen_and_pinned_are_shown_and_go_again(page: Page) -> None:
    agent = FakeAgent()
    agent.control_now = {
        "phase": "paused",
        "paused": True,
        "frozen": {"n5": 12.5},
        "pins": [{"segment": "s03", "host": "n4"}],
    }
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#headline", "Paused")
        page.until_text('[data-fact="controller"]', "n1 (paused)")
        page.until_text('[data-fact="frozen"]', "n5")
        page.until_text('[data-fact="pinned"]', "s03 to n4")
        page.until_text('[data-host="n5"]', "no new copies yet")
        assert "no new copies" not in page.text('[data-host="n4"]')
        agent.control_now = {}
        page.until_text("#headline", "Everything is in place")
        page.until(lambda: not page.texts('[data-fact="frozen"], [data-fact="pinned"]'), "they stay shown")
        page.until(lambda: "no new copies" not in page.text('[data-host="n5"]'), "n5 stays frozen")
        assert page.errors() == []


def test_shards_have_slots_and_their_servers_are_counted(page: Page) -> None:
    agent = FakeAgent(segments=3)
    agent.slots = {key: [[5461 * index, 5461 * index + 5460]] for index, key in enumerate(agent.chains)}
    agent.engine = {"name": "valkey", "servers": ["10.0.0.1:1", "10.0.0.1:3"], "running": 1, "restarts": 0}
    agent.tags["n1"] = {"engine": "10.0.0.1:1,10.0.0.1:3", "store": "valkey"}
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#headline", "3 shards with 16383 slots")
        page.until_text('[data-fact="servers"]', "valkey, 1 of 2 here")
        assert "10.0.0.1:3" not in page.text('[data-host="n1"]')
        agent.control_now = {"phase": "observing", "observing": True}
        page.until_text("#headline", "The servers are only observed")
        agent.control_now = {
            "phase": "asking operators",
            "asks": [{"segment": "s01", "text": "fail s01 over: no data"}],
        }
        page.until_text("#headline", "1 repair needs an operator")
        page.until_text("#headline", "fail s01 over: no data")
        assert page.errors() == []


def test_what_members_say_is_text_and_nothing_else(page: Page) -> None:
    agent = FakeAgent(nodes=3, segments=2)
    agent.names[2] = HOSTILE
    agent.racks[HOSTILE] = "</section><script>window.harmed=2</script>"
    agent.tags[HOSTILE] = {"<b>key</b>": '"><svg onload="window.harmed=3">', "spoof": "abc\u202edcba"}
    agent.chains = {"<i>s00</i>": [HOSTILE, "n1", "n2"]}
    agent.installed = {name: [] for name in agent.names}
    agent.install(time.time() - 5, joined=agent.names)
    agent.say("<u>kind</u>", f"text {HOSTILE}")
    agent.say("plan", f"plan {HOSTILE}", plan_id=HOSTILE, moves=1, required=1, bytes=0, lines=[HOSTILE])
    agent.say("step-started", HOSTILE, plan_id=HOSTILE)
    agent.suspect(HOSTILE, ["n1"], 1, "noise")
    agent.votes = [{"votes": 1, "known": True, "removes": [HOSTILE], "joins": [], "updates": [], "own": True}]
    agent.reason = HOSTILE
    agent.control_now = {
        "controller": HOSTILE, "phase": "trouble", "last_error": HOSTILE,
        "last_solve": {"status": HOSTILE, "seconds": 1, "text": HOSTILE, "asked": HOSTILE, "seconds_ago": 1,
                       "clashing": [{"policy": HOSTILE, "rows": HOSTILE}]},
    }  # fmt: skip
    with served(agent) as server:
        open_settled(page, server.url)
        for place in ("#headline", "#facts", "#hosts", "#plan", "#suspicions", "#policies", "#events"):
            page.until_text(place, HOSTILE)
        assert "</section><script>" in page.text("#hosts")
        assert '<b>key</b>="><svg' in page.text("#hosts")
        assert "spoof=abc\ufffddcba" in page.text("#hosts")
        assert page.run("return document.querySelectorAll('img').length") == 1  # the mark
        assert page.run("return document.querySelectorAll('script').length") == 1
        assert page.run("return document.querySelectorAll('svg, b > b, u, i:not(.reports i)').length") == 0
        assert page.run("return window.harmed ?? 'unharmed'") == "unharmed"
        assert page.errors() == []


def test_a_script_that_came_in_after_all_would_not_run(page: Page) -> None:
    """The policy stands behind the care with which the page is built."""
    with served(FakeAgent()) as server:
        open_settled(page, server.url)
        page.run(
            "const script = document.createElement('script'); script.textContent = 'window.harmed = 1';"
            "document.body.append(script);"
        )
        assert page.run("return window.harmed ?? 'unharmed'") == "unharmed"
        assert any("Content Security Policy" in error for error in page.errors())


def test_what_happens_is_shown_also_when_no_more_can_be_kept(page: Page) -> None:
    agent = FakeAgent()
    for number in range(3000):
        agent.say("step-done", f"step {number}")
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#events-age", "3000 events")
        agent.say("step-done", "one more")
        page.until_text("#events", "one more")


def test_a_host_is_lost_while_the_page_is_open(page: Page) -> None:
    agent = FakeAgent()
    with served(agent) as server:
        open_settled(page, server.url)
        agent.suspect("n5", ["n1", "n2", "n3", "n4"], 7)
        agent.reason = "reports are still coming in: n5 7 of the 9 that are needed"
        page.until_text("#headline", "n5 is suspected")
        page.until_text("#suspicions", "Why no new view yet: reports are still coming in")
        assert "7 of 10 reports, needs 9" in page.text("#suspicions")
        assert "4 accusations: n5 by n1 n2 n3 n4" in page.run(
            "return document.querySelector('#suspicions canvas').getAttribute('aria-label')"
        )
        page.until(lambda: "suspected" in page.text('[data-host="n5"]'), "n5 is not marked")

        progress = {"steps": 4, "steps_done": 1, "bytes": 0, "bytes_done": 0}
        agent.control_now = {"phase": "executing", "progress": progress}
        agent.lose("n5")
        agent.say(
            "plan", "plan p5-n1", plan_id="p5-n1", moves=6, required=6, bytes=0, lines=["s01  - n5  + n2"]
        )
        agent.say("step-started", "open the next epoch", plan_id="p5-n1")
        agent.say("step-done", "open the next epoch")
        page.until_text("#events", "view 2, 5 members: failed n5")
        page.until_text("#headline", "n5 failed; copies are being made again")
        page.until_text('.rack[data-rack="r2"] [data-host="n5"]', "failed")
        assert page.run("return document.querySelectorAll('[data-host=\"n5\"] .copy.lost').length") == 6
        page.until_text("#plan", "1 of 4 steps done")
        bar = "return document.querySelector('#plan [role=progressbar]').getAttribute('aria-valuenow')"
        assert page.run(bar) == "25"
        page.until_text("#timeline .caption", "View 2 of 5 members")
        page.until(
            lambda: page.run("return document.querySelector('.panel.suspicions').hidden"), "suspicions stay"
        )

        agent.chains = {key: [host for host in chain if host != "n5"] for key, chain in agent.chains.items()}
        agent.say("plan-done", "plan p5-n1 is done", plan_id="p5-n1")
        agent.control_now = {}
        page.until(
            lambda: page.run("return !!document.querySelector('[data-plan-state=done]')"), "it is not done"
        )
        page.until_text("#headline", "n5 failed; everything is in place again")
        assert page.errors() == []


def test_each_loss_has_its_own_time_and_stays_known_after_a_reload(page: Page) -> None:
    agent = FakeAgent()
    now = time.time()
    agent.lose("n6", now - 7200)
    agent.chains = {key: [host for host in chain if host != "n6"] for key, chain in agent.chains.items()}
    agent.lose("n5", now - 50)
    agent.lose("n2", now - 20)
    agent.said.clear()  # the controller is another one, and knows nothing of them
    agent.say("controller", "n1 is the controller")
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#headline", "Rack r2 lost: n2, n5 failed")
        assert "in place" not in page.text(
            "#headline"
        )  # the layout still names them, whatever the controller was at
        assert re.search(r"n2 failed 2\d s ago, n5 5\d s ago", page.text("#detail"))
        for name, ago in (("n2", 2), ("n5", 5)):
            card = page.text(f'.rack[data-rack="r2"] [data-host="{name}"]')
            assert re.search(rf"failed {ago}\d s ago", card), card
            assert "copies lost" in card
            assert "primary" not in card
        assert page.text('.rack[data-rack="r2"] h3') == "r2\nno host left"
        assert page.texts('[data-host="n2"] .bdg.role') == []  # it was the sequencer
        assert "Gone: n6 of rack r3 failed 2 h ago" in page.text("#hosts")
        assert page.errors() == []


def test_nothing_is_called_good_beside_an_alarm(page: Page) -> None:
    agent = FakeAgent()
    agent.say("plan", "plan p1", plan_id="p1", moves=1, required=1, bytes=0, lines=[])
    agent.say("plan-done", "plan p1 is done", plan_id="p1")
    green = (
        "const good = document.createElement('i'); good.style.color = 'var(--good)'; document.body.append(good);"
        "const colour = getComputedStyle(good).color; good.style.color = 'var(--soft)';"
        "const soft = getComputedStyle(good).color; good.remove(); return colour !== soft"
    )
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#headline", "Everything is in place")
        assert page.run(green)
        agent.quorum, agent.silent = False, ["n4", "n5", "n6"]
        page.until_text("#headline", "n4, n5, n6 do not answer")
        page.until_text("#headline code", "rota recover --survivors n1,n2,n3")
        assert not page.run(green)
        page.until_text('[data-host="n5"]', "does not answer n1")
        agent.quorum, agent.silent = True, []
        page.until_text("#headline", "Everything is in place")
        server.stop()
        page.until_text("#away", "The agent does not answer")
        assert not page.run("return document.getElementById('headline').checkVisibility()")


@pytest.mark.parametrize(
    ("state", "way"),
    [
        ({"phase": "infeasible", "last_error": "they clash"}, "rota undrain n3"),
        ({"away": [{"segment": "s01", "start": 0, "end": 9, "hosts": ["n7", "n8"]}]}, "rota log forget n7 n8"),
        ({"phase": "paused", "paused": True, "under_replicated": 2}, "rota resume"),
        ({"phase": "trouble", "last_error": "no idea"}, "rota doctor"),
        ({"under_replicated": 2, "troubled": [
            {"segment": "s01", "copies": 1, "wanted": 3, "hosts": ["n1"], "crowded": []}]}, "rota undrain n3"),
    ],
)  # fmt: skip
def test_the_way_out_is_named(page: Page, state: dict[str, object], way: str) -> None:
    agent = FakeAgent()
    agent.control_now, agent.drained = state, ["n3"]
    with served(agent) as server:
        open_settled(page, server.url)
        page.until(lambda: way in page.texts("#detail code"), f"{way} is not named")
        if "under_replicated" in state:
            assert "2 segments with too few copies" in page.text("#headline")


def test_rules_that_clash_are_told_in_words(page: Page) -> None:
    agent = FakeAgent()
    clash = [
        {"policy": "one_replica_per_rack", "rows": "segment s00, rack r1"},
        {"policy": "drained_hosts_are_empty", "rows": ""},
    ]
    solve = {
        "status": "infeasible",
        "seconds": 0.2,
        "text": "no placement",
        "clashing": clash,
        "seconds_ago": 1.0,
    }
    agent.control_now = {"last_solve": {**solve, "asked": "drain n6"}}
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#policies .core", "“drain n6” cannot be")
        core = page.text("#policies .core")
        assert "one_replica_per_rack: no rack holds two copies of a segment" in core
        assert "for example segment s00, rack r1" in core
        assert "drained_hosts_are_empty: nothing is placed on a host that is drained" in core
        assert "drain n6 was refused" in page.text("#headline")
        error = "no placement satisfies one_replica_per_rack"
        agent.control_now = {"phase": "infeasible", "last_error": error, "last_solve": {**solve, "asked": ""}}
        agent.say("infeasible", error)
        page.until_text("#headline", "The rules cannot all hold")
        page.until_text("#policies .core", "These rules cannot all hold at once")


def test_no_majority_is_the_first_thing_said(page: Page) -> None:
    agent = FakeAgent()
    agent.quorum = False
    agent.suspect("n4", ["n1"], 1, "noise")
    agent.own = [{"name": "n5", "failed": True}, {"name": "n6", "failed": False}]
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text('[data-host="n5"]', "does not answer n1")
        page.until_text("#suspicions", "n1's own probes: n5 found faulty, n6 missed some")
        page.until_text("#headline", "No majority is within reach")
        assert page.text('[data-fact="quorum"]') == "LOST"
        page.until(lambda: page.driver.title.startswith("! "), "the title does not warn")


def test_lost_layout_servers_are_named_with_the_way_out(page: Page) -> None:
    agent = FakeAgent()
    error = "no majority of the layout servers answered: go on by `rota layout recover`"
    lost = ["n2", "n4", "n5"]
    agent.control_now = {"phase": "engine unreachable", "last_error": error, "layout_servers_lost": lost}
    with served(agent) as server:
        open_settled(page, server.url)
        page.until_text("#headline", "A majority of the layout servers is lost, with n2, n4")
        page.until_text("#headline", "rota layout recover")


def test_when_the_agent_is_away_nothing_looks_fresh_and_it_comes_back_by_itself(page: Page) -> None:
    agent = FakeAgent()
    with served(agent) as server:
        open_settled(page, server.url)
        assert page.run("return document.getElementById('away').hidden")
        server.stop()
        page.until_text("#away", "The agent does not answer.")
        assert "old and may be wrong" in page.text("#away")
        assert "Trying again" in page.text("#away")
        assert page.run("return document.body.dataset.connection") == "away"
        assert "grayscale" in page.run("return getComputedStyle(document.querySelector('main')).filter")
        ages = page.run(
            "return [...document.querySelectorAll('.age:not(#events-age)')].map((e) => e.className)"
        )
        assert set(ages) == {"age old"}
        server.start()
        page.until(lambda: page.text("#connection").startswith("live"), "it does not come back")
        assert page.run("return document.getElementById('away').hidden")
        agent.say("plan-done", "after the pause", plan_id="x")
        page.until_text("#events", "after the pause")


def test_a_part_that_fails_says_so_and_keeps_its_age(page: Page) -> None:
    agent = FakeAgent()
    with served(agent) as server:
        open_settled(page, server.url)
        agent.broken["layout"] = ApiError("the engine does not answer; try again", code="control", status=503)
        agent.say("trouble", "look again")
        page.until_text("#headline", "The placement cannot be read")
        page.until_text("#headline", "the engine does not answer")
        assert page.texts('[data-host="n1"] .copy'), "the last known copies stay, with their age"
        page.until(lambda: "as of" in page.text("#hosts-age"), "its age does not show")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [("joining", "n1 is joining"), ("rejoining", "n1 is rejoining"), ("leaving", "n1 is leaving")],
)
def test_an_agent_that_is_no_member_says_so_first(page: Page, state: str, sentence: str) -> None:
    agent = FakeAgent()
    agent.state = state
    with served(agent) as server:
        page.open(server.url)
        page.until_text("#headline", sentence)
        agent.state = "member"
        page.until_text("#headline", "Everything is in place")


@pytest.mark.parametrize("silent", ["control", "layout"])
def test_what_is_not_known_is_not_called_good(page: Page, silent: str) -> None:
    agent = FakeAgent()
    agent.broken[silent] = ApiError("the controller n2 cannot be reached", code="unreachable", status=503)
    with served(agent) as server:
        page.open(server.url)
        page.until_text("#headline", "the controller n2 cannot be reached")
        assert page.run("return document.getElementById('headline').className") == "headline warn"
        agent.control_now = {"view_epoch": agent.epoch - 1}
        agent.broken.clear()
        agent.say("trouble", "look again")
        page.until_text("#headline", "Its last word is about view 0")
        agent.control_now = {"phase": "standby"}
        agent.say("standby", "look again")
        agent.say("trouble", "look again")
        page.until_text("#headline", "What it finds is not known yet")
        agent.control_now = {}
        agent.say("settled", "look again")
        page.until_text("#headline", "Everything is in place")


def test_nobody_is_called_gone_before_the_members_are_known(page: Page) -> None:
    agent = FakeAgent()
    agent.broken["members"] = ApiError("not yet", code="unreachable", status=503)
    with served(agent) as server:
        page.open(server.url)
        page.until_text("#connection", "live")
        page.until_text("#policies", "fewest_moves")  # the rest has been read meanwhile
        assert page.texts("[data-host]") == []
        agent.broken.clear()
        agent.say("trouble", "look again")
        page.until(lambda: len(page.texts("[data-host]")) == 6, "the hosts do not appear")


def test_an_agent_without_the_store(page: Page) -> None:
    agent = FakeAgent()
    for request in ("layout", "control", "policies"):
        agent.broken[request] = ApiError("this agent runs without the store", code="no_store", status=404)
    with served(agent) as server:
        page.open(server.url)
        page.until_text("#plan", "runs without the store")
        page.until_text("#policies", "runs without the store")
        page.until(lambda: len(page.texts(".host")) == 6, "hosts do not appear")


def test_a_thousand_members(page: Page) -> None:
    agent = FakeAgent(nodes=1000, racks=20, segments=1000)
    agent.suspect("n500", ["n1", "n2"], 4)
    with served(agent) as server:
        open_settled(page, server.url)
        assert len(page.texts(".cell")) == 1000
        assert len(page.texts(".rack")) == 20
        assert page.run("return document.querySelectorAll('*').length") < 6000
        page.until(lambda: page.text('.cell[data-host="n500"]') == "?", "n500 is not marked")
        page.run("document.querySelector('.cell[tabindex=\"0\"]').focus()")
        from selenium.webdriver.common.keys import Keys

        page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        page.until_text(".chosen", "n21 member in rack r1")
        page.run(
            "const find = document.getElementById('find'); find.value = 'n777';"
            "find.dispatchEvent(new Event('input'))"
        )
        page.until_text("#hosts", "1 host of 1000 match “n777”")
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        assert page.errors() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits(page: Page, width: int) -> None:
    agent = FakeAgent()
    agent.names[5] = "a-host-with-a-name-that-somebody-found-a-good-idea.example.internal"
    agent.racks[agent.names[5]] = "rack-" + "x" * 60
    agent.tags["n1"] = {"note": "y" * 200}
    agent.say("trouble", "z" * 400)
    page.look(width=width)
    with served(agent) as server:
        open_settled(page, server.url)
        wide = page.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]
        columns = page.run(
            "return ['.hosts', '.plan'].map((each) => document.querySelector(each).getBoundingClientRect().top)"
        )
        assert (columns[0] == columns[1]) == (width == 1280)


CONTRASTS = """
const luminance = (text) => {
  const context = document.createElement('canvas').getContext('2d');
  context.fillStyle = text; context.fillRect(0, 0, 1, 1);
  const parts = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const of = (name) => luminance(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
return arguments[0].map(([one, other]) => {
  const [low, high] = [of(one), of(other)].sort((a, b) => a - b);
  return [`${one} on ${other}`, (high + 0.05) / (low + 0.05)];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(page: Page, scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for text, on every surface it stands on."""
    page.look(scheme=scheme)
    pairs = [[ink, surface] for ink in ("--ink", "--soft", "--accent", "--good", "--warn", "--bad")
             for surface in ("--panel", "--sunk", "--page")]  # fmt: skip
    tinted = {
        "--accent": "--accent-tint",
        "--good": "--good-tint",
        "--warn": "--warn-tint",
        "--bad": "--bad-tint",
    }
    pairs += [[ink, surface] for ink, surface in tinted.items()]
    pairs += [["--accent-ink", "--accent"], ["--ink", "--bad-tint"], ["--soft", "--bad-tint"]]
    with served(FakeAgent()) as server:
        open_settled(page, server.url)
        assert {name: round(ratio, 2) for name, ratio in page.run(CONTRASTS, pairs) if ratio < 4.5} == {}


def test_it_can_be_used_without_eyes_and_without_a_mouse(page: Page) -> None:
    page.look(motion="reduce")
    with served(FakeAgent()) as server:
        open_settled(page, server.url)
        unnamed = page.run(
            "return [...document.querySelectorAll('button, input, select, canvas, [role=img], [role=progressbar]')]"
            ".filter((each) => !(each.getAttribute('aria-label') || each.labels?.length || each.textContent.trim()))"
            ".map((each) => each.outerHTML)"
        )
        assert unnamed == []
        assert page.run("return [...document.querySelectorAll('section.panel')].every((each) => "
                        "document.getElementById(each.getAttribute('aria-labelledby')))")  # fmt: skip
        assert page.run("return document.getElementById('sentence').getAttribute('role')") == "status"
        assert page.run("return document.documentElement.lang") == "en"
        from selenium.webdriver.common.keys import Keys

        page.run("document.querySelector('#timeline canvas').focus()")
        page.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
        page.until_text("#timeline .caption", "View 1")
        assert page.run("return getComputedStyle(document.querySelector('.skip')).position") == "absolute"
        page.run("document.querySelector('.skip').focus()")
        page.driver.switch_to.active_element.send_keys(Keys.ENTER)
        assert page.run("return document.activeElement.id") == "headline"


# Other pages of the same browser.


class CountingAgent(FakeAgent):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def operate(self, action: str, arguments: dict[str, object]) -> dict[str, object]:
        self.asked.append(action)
        return {}

    async def control(self, request: str, arguments: dict[str, object]) -> dict[str, object]:
        self.asked.append(request)
        return await super().control(request, arguments)


@contextmanager
def another_page(html: str) -> Iterator[str]:
    """A page of another origin on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


TRIES = """
const [url, done] = arguments;
const json = { 'content-type': 'application/json' };
const image = (found) => {
  const element = new Image();
  element.onload = element.onerror = () => found('opaque');
  element.src = url + 'v1/plan';
};
const stream = (found, lost) => {
  const source = new EventSource(url + 'v1/events');
  source.onmessage = () => found('read');
  source.onerror = () => (source.close(), lost());
};
const tries = [
  () => fetch(url + 'v1/status').then((answer) => answer.text()),
  () => fetch(url + 'v1/leave', { method: 'POST', body: '{}', headers: json }).then((answer) => answer.text()),
  () => fetch(url + 'v1/leave', { method: 'POST', body: '{}', mode: 'no-cors' }).then((answer) => answer.type),
  () => fetch(url + 'v1/plan', { mode: 'no-cors' }).then((answer) => answer.type),
  () => new Promise(image),
  () => new Promise(stream),
];
Promise.all(tries.map((each) => each().then((text) => text, () => 'refused'))).then(done);
"""


def test_another_page_can_neither_read_nor_change_anything(page: Page) -> None:
    agent = CountingAgent()
    with served(agent) as server, another_page("<title>another</title>") as elsewhere:
        page.open(elsewhere)
        outcome = page.driver.execute_async_script(TRIES, server.url)
        assert outcome == ["refused", "refused", "refused", "refused", "opaque", "refused"]
        page.run(
            "const form = document.createElement('form'); form.method = 'POST'; form.action = arguments[0];"
            "document.body.append(form); form.submit();",
            server.url + "v1/leave",
        )
        page.until_text("body", "foreign_origin")
        assert agent.asked == []
        page.open(elsewhere)
        page.run(
            "const link = document.createElement('a'); link.href = arguments[0];"
            "document.body.append(link); link.click()",
            server.url,
        )
        page.until_text("#headline", "Everything is in place")


def test_a_name_that_was_rebound_to_this_machine_is_no_way_in(page: Page) -> None:
    agent = CountingAgent()
    with served(agent) as server:
        page.open(f"http://rebound.example:{server.address.port}/")
        page.until_text("body", "wrong_host")
        fetched = page.driver.execute_async_script(
            "const done = arguments[0]; fetch('/v1/layout').then((answer) => done(answer.status), () => done('failed'))"
        )
        assert fetched == 421
        assert agent.asked == []
