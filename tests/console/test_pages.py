"""The pages of a host and of a segment, and the last hour: in a real browser, over made-up clusters."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from rota.errors import ApiError
from rota.version import VERSION
from tests.console.conftest import Page
from tests.console.fake_agent import FakeAgent, served

pytestmark = pytest.mark.system

HOSTILE = "<img src=x onerror='window.harmed=1'>"


def version(epoch: int, segment: str = "s01", **changed: Any) -> dict[str, Any]:
    """A version of the layout that changed one segment."""
    segments = [{"segment": segment, "primary": None, **changed}]
    difference = {"segments": segments, "roles": [], "intent": [], "slots": []}
    return {"epoch": epoch, "at": time.time(), "by": "n1", "asked_at": "", "why": f"why {epoch}", "plan_id": "p",
            "view_epoch": 1, "since": epoch - 1, "what": "", "difference": difference}  # fmt: skip


def test_a_host_has_a_page_with_all_that_is_known_of_it(page: Page) -> None:
    agent = FakeAgent()
    agent.tags["n4"] = {"disk": "nvme"}
    agent.say("step-done", "copy s01 from n4 to n2")
    agent.say("step-done", "copy s01 from n40 to n2")
    agent.control_now = {"pins": [{"segment": "s03", "host": "n4"}]}
    agent.versions = [version(3, added=["n4"], removed=["n2"]), version(2, added=["n5"], removed=["n1"])]
    with served(agent) as server:
        page.open(server.url)
        page.until(lambda: page.texts(".host"), "hosts do not appear")
        page.run("document.querySelector('[data-host=\"n4\"] .line a').click()")
        told = ["300 records", "10.0.0.4:7946", "now, in view 1", "disk=nvme", "60.0 GB of 100.0 GB free",
                "takes 2.1 ms", "pinned", "s01", "why 3", "copy s01 from n4 to n2"]  # fmt: skip
        for known in told:  # by more than one answer of the agent
            page.until_text("#page", known)
        assert (
            page.run("return document.querySelector('#page dd a').href") == "http://10.0.0.4:7947/#/host/n4"
        )
        assert [row.split()[:3] for row in page.texts("#page tbody tr")][:2] == [
            ["s01", "primary", "in"],
            ["s03", "primary", "in"],
        ]
        copied = [row for row in page.texts("#page .log li .words") if "copy" in row]
        assert copied == ["copy s01 from n4 to n2"]
        assert "Disk used" in page.text("#page .plots")
        assert "why 2" not in page.text("#page")
        assert not page.run("return document.getElementById('overview').checkVisibility()")
        page.run("document.querySelector('#page tbody a').click()")
        page.until_text("#page h2", "s01")
        page.run("document.querySelector('.back a').click()")
        page.until(lambda: page.texts(".host"), "the overview does not come back")
        assert page.errors() == []


def test_the_page_of_a_host_that_is_gone_says_since_when(page: Page) -> None:
    agent = FakeAgent()
    agent.lose("n5", time.time() - 20000)
    with served(agent) as server:
        page.open(f"{server.url}#/host/n5")
        page.until_text("#page", "6 h ago; view 2 is the first without it")
        assert "rack\nr2" in page.text("#page .fact-list")
        page.until_text("#page tbody", "lost")
        page.open(f"{server.url}#/host/nobody")
        page.until_text("#page", "No host nobody is known here")
        page.run("location.hash = '#/constructor/x'")
        page.until(lambda: page.texts(".host"), "what names no page is not the overview")
        assert page.errors() == []


def test_a_host_that_does_not_answer_is_no_hole_in_the_page(page: Page) -> None:
    agent = FakeAgent()
    agent.broken["host n4"] = ApiError("n4 cannot be reached (timed out)", code="unreachable", status=503)
    with served(agent) as server:
        page.open(f"{server.url}#/host/n4")
        page.until_text("#page", "n4 cannot be reached")
        assert "10.0.0.4:7946" in page.text("#page")
        page.until(lambda: len(page.texts("#page tbody tr")) == 6, "its copies do not appear")
        assert "Asking its agent" not in page.text("#page")
        del agent.broken["host n4"]
        page.run(
            "const asked = fetch; window.fetch = (path, ...rest) => path.startsWith('/v1/hosts/') "
            "? Promise.reject(new DOMException('aborted', 'AbortError')) : asked(path, ...rest)"
        )
        page.run("location.hash = '#/host/n5'")
        page.until_text("#page", "The agent has not answered within 30 s.")
        assert "Asking its agent" not in page.text("#page")


def test_a_segment_has_a_page_with_its_copies_and_how_they_came_about(page: Page) -> None:
    agent = FakeAgent()
    primary = {"from": "n2", "to": "n4"}
    agent.versions = [
        version(3, added=["n4"], removed=["n2"], primary=primary), version(2, "s09", added=["n4"], removed=[]),
    ]  # fmt: skip
    with served(agent) as server:
        page.open(f"{server.url}#/segment/s01")
        page.until_text("#page", "why 3")
        assert "why 2" not in page.text("#page")
        assert "+ n4; − n2; primary n2 → n4" in page.text("#page")
        page.until(lambda: "50" in page.text("#page tbody tr"), "the records of its copies do not appear")
        assert [row.split()[0] for row in page.texts("#page section:nth-of-type(2) tbody tr")] == [
            "n4",
            "n5",
            "n6",
        ]
        page.run("document.querySelector('#page button').click()")
        page.until_text("#page .answer", "s01 is where it is")
        agent.control_now = {"away": [{"segment": "s01", "start": 0, "end": 9, "hosts": ["n7"]}]}
        page.until_text("#page .problem", "Addresses 0 to 8 are only on n7")
        assert page.errors() == [], "nothing of a page fails"


def test_the_last_hour_is_drawn_and_told(page: Page) -> None:
    agent = FakeAgent()
    with served(agent) as server:
        page.open(server.url)
        page.until(lambda: len(page.texts("#hour figure")) == 3, "the plots do not appear")
        assert page.text("#hour-hosts") == "6 hosts"
        label = page.run(
            "return document.querySelector('[data-quantity=disk_used]').getAttribute('aria-label')"
        )
        assert label == "Disk used, the last 40 min: now 35 % to 40 % (n1)"
        drawn = "const canvas = document.querySelector('[data-quantity=records]'); return canvas.getContext('2d')" \
                ".getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0)"  # fmt: skip
        assert page.run(drawn)
        assert not page.run("return document.querySelector('[data-quantity=failed_appends]')"), (
            "none has failed"
        )
        agent.failed_appends = 0.4
        page.until_text("#hour", "Appends through the agent that failed")
        agent.broken["measured"] = ApiError("no", code="unreachable", status=503)
        page.until(lambda: "as of" in page.text("#hour-age"), "it has no age")
        assert page.errors() == []


def test_streams_and_maps_with_their_last_records_and_first_keys(page: Page) -> None:
    agent = FakeAgent()
    agent.data.records = {"greetings": [b"hello", HOSTILE.encode(), b"\xff\x00"], "empty": []}
    agent.data.maps = {"colours": {f"key{number}": b"blue" for number in range(250)}}
    with served(agent) as server:
        page.open(server.url)
        page.until_text("#streams", "greetings")
        assert [row.split() for row in page.texts("#streams tbody tr")] == [
            ["greetings", "stream", "3", "150", "B"],
            ["empty", "stream", "0", "0", "B"],
            ["colours", "map", "250", "12.5", "kB"],
        ]
        agent.data.records["greetings"] += [b"more"] * 100
        grows = re.compile(r"greetings\sstream\s103\s\d")
        page.until(lambda: grows.search(page.text("#streams tbody")), "no rate appears")
        page.run("document.querySelector('#streams a').click()")
        page.until_text("#page", "more")
        assert page.texts("#page tbody tr")[0].split() == ["102", "4", "more"]
        agent.data.records["greetings"] = agent.data.records["greetings"][:3]
        page.until(lambda: len(page.texts("#page tbody tr")) == 3, "the records do not change")
        assert page.texts("#page td code") == ["ff00", HOSTILE, "hello"]
        agent.data.records["greetings"][0] = b"x" * 401
        page.until(lambda: page.texts("#page td code")[-1] == "x" * 400 + "…", "it is not cut")
        agent.data.are_long = True
        page.until_text("#page", "the last 3 records: they are long")
        page.run("location.hash = '#/map/colours'")
        page.until_text("#page", "the first 200 keys")
        assert len(page.texts("#page tbody tr")) == 200
        assert page.texts("#page tbody tr")[0].split() == ["key0", "4", "blue"]
        assert page.run("return document.querySelectorAll('img').length") == 1
        assert page.errors() == []


def test_a_cluster_without_the_log_says_where_the_data_are(page: Page) -> None:
    agent = FakeAgent()
    agent.broken["store"] = ApiError("this cluster keeps its data in Valkey", code="no_log", status=404)
    with served(agent) as server:
        page.open(server.url)
        page.until_text("#streams", "The data are in Valkey or Redis")
        page.until_text("#headline", "Everything is in place")


def test_help_version_and_a_sentence_for_each_objective(page: Page) -> None:
    with served(FakeAgent()) as server:
        page.open(server.url)
        page.until_text("#policies .sentence", "as few")
        assert page.texts("#policies .sentence") == ["as few copies move as tier 1 allows"]
        assert page.text("#version") == VERSION
        page.run("document.querySelector('.help a').click()")
        page.until_text("#page", f"n1 runs rota {VERSION}.")
        assert "So do all 6 members." in page.text("#page")
        explained = page.texts("#page section:nth-of-type(2) dt")
        page.run("location.hash = '#/'")
        page.until(lambda: page.texts(".host"), "the overview does not come back")
        assert set(page.texts("#overview .panel > header > h2")) <= {*explained, ""}  # "": hidden at present
        assert page.errors() == []


def test_names_in_addresses_are_text(page: Page) -> None:
    agent = FakeAgent(nodes=3, segments=2)
    agent.names[2] = HOSTILE
    agent.racks[HOSTILE] = HOSTILE
    agent.tags[HOSTILE] = {"a": HOSTILE}
    agent.chains = {HOSTILE: [HOSTILE, "n1"]}
    agent.installed = {name: [] for name in agent.names}
    with served(agent) as server:
        page.open(server.url)
        page.until(lambda: page.texts(".host"), "hosts do not appear")
        page.run(
            "[...document.querySelectorAll('.host .line a')].find((each) => each.text.startsWith('<img')).click()"
        )
        page.until_text("#page", HOSTILE)
        page.run("document.querySelector('#page tbody a').click()")
        page.until_text("#page h2", HOSTILE)
        page.open(f"{server.url}#/host/%E0%A4%A")
        page.until_text("#headline", "Everything is in place")
        assert page.run("return document.querySelectorAll('img').length") == 1
        assert page.run("return window.harmed ?? 'unharmed'") == "unharmed"
        assert page.errors() == []
