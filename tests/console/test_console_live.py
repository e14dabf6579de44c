"""The console over a real cluster: a host is killed, and the page tells the story."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from rota.local.cluster import ClusterPlan, open_local_cluster
from tests.console.conftest import Page

pytestmark = [pytest.mark.system, pytest.mark.socket]

NODES = 6


async def test_the_page_tells_how_a_host_is_lost_and_replaced(tmp_path: Path, page: Page) -> None:
    async def look(function: Any, *arguments: Any) -> Any:
        return await trio.to_thread.run_sync(lambda: function(*arguments), abandon_on_cancel=True)

    async with open_local_cluster(ClusterPlan(tmp_path, nodes=NODES, racks=3)) as cluster:
        # Any agent shows the whole cluster: take one that is not the controller.
        agent = cluster.agents["n4"]
        await look(page.open, f"http://{agent.api}/")
        await look(page.until, lambda: len(page.texts(".host")) == NODES, "all hosts do not appear")
        await look(page.until_text, "#headline", "Everything is in place")
        for rack in ("r1", "r2", "r3"):
            assert len(page.texts(f'.rack[data-rack="{rack}"] .host')) == 2
        # The headline is the controller's state, the copies are the layout's: one may be there before the other.
        await look(
            page.until, lambda: len(page.texts(".copy[data-segment]")) == 36, "all copies do not appear"
        )
        assert len(page.texts(".copy.primary[data-segment]")) == 12
        await look(page.until_text, "#timeline .caption", f"of {NODES} members")
        await look(page.until_text, "#policies", "21 rules and 15 objectives of datastore")

        hostile = "<img src=x onerror=alert(1)>"
        await cluster.agents["n2"].post("/v1/tags", {"set": {"note": hostile}})
        await look(page.until_text, '[data-host="n2"]', f"note={hostile}")
        assert page.run("return document.querySelectorAll('img').length") == 1

        # What another agent alone knows comes by way of this one.
        await cluster.agents["n4"].post("/v1/map/m", {"action": "set", "key": "k", "value": "dg=="})
        page.run("document.querySelector('[data-host=\"n2\"] .line a').click()")
        await look(page.until_text, "#page", "runs since")
        await look(page.until_text, "#page", "a write takes")
        await look(page.until, lambda: page.texts("#page figure"), "its last hour does not appear")
        page.run("document.querySelector('.back a').click()")

        cluster.kill("n5")
        await look(page.until_text, "#events", f"{NODES - 1} members: failed n5")
        await look(page.until_text, "#timeline .caption", f"of {NODES - 1} members")
        await look(page.until_text, "#timeline .caption", f"installed by {NODES - 1} within")
        await look(page.until_text, "#headline", "n5 failed")
        await look(page.until_text, '.rack[data-rack="r2"] [data-host="n5"]', "failed")
        await look(page.until_text, "#events", "plan-done")
        await look(page.until_text, "#headline", "everything is in place again")
        # Events, the controller's state and the layout come by roads of their own: one may be ahead of the others.
        await look(page.until_text, "[data-plan-state]", "done")
        await look(page.until, lambda: not page.texts('[data-host="n5"] .copy'), "n5 keeps its copies")
        await look(
            page.until, lambda: len(page.texts(".copy[data-segment]:not(.lost)")) == 36, "copies are missing"
        )
        # While an epoch is sealed an agent may answer that the engine is not to be reached; the browser notes it.
        assert [error for error in page.errors() if "status of 503" not in error] == []
