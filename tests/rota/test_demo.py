"""The demo, for real, once per kind of victim and under packet loss: the promise of the product."""

from __future__ import annotations

import pytest

from rota.local.demo import DemoOptions, ShardsReport, run_demo

pytestmark = [pytest.mark.demo, pytest.mark.socket]


@pytest.mark.parametrize(
    "options",
    [
        DemoOptions(kill="controller"),
        DemoOptions(kill="sequencer"),
        DemoOptions(kill="head"),
        DemoOptions(kill="random", seed=2, loss=0.2),
    ],
    ids=lambda options: f"{options.kill}-loss-{options.loss}",
)
async def test_a_host_dies_and_nothing_is_lost(options: DemoOptions) -> None:
    report = await run_demo(options, json_wanted=True)
    assert report.failure() == ""
    assert report.acknowledged_writes > 20
    assert report.reads > 20
    assert [view["size"] for view in report.views][-2:] == [6, 5]
    assert len(report.views) <= 4, "members come in one or two views, and one view change removes the victim"
    assert report.detection_seconds is not None
    assert report.detection_seconds < 5  # about 2 s on an idle machine
    assert report.total_seconds < 60
    assert report.moves > 0


@pytest.mark.engine
@pytest.mark.parametrize(
    "store", ["valkey", pytest.param("redis", marks=pytest.mark.sweep("the same with the other program"))]
)
async def test_a_primary_of_foreign_servers_is_lost_and_no_acknowledged_key(store: str) -> None:
    report = await run_demo(DemoOptions(store=store, kill="head"), json_wanted=True)
    assert isinstance(report, ShardsReport)
    assert report.failure() == ""
    assert report.acknowledged_writes > 100
    assert report.reads > 20
    assert [view["size"] for view in report.views][-2:] == [6, 5]
    assert report.failover_seconds is not None
    assert (
        report.failover_seconds < 2
    )  # about 0.1 s on an idle machine; the engine's own takes its node timeout, 15 s
    assert report.total_seconds < 60
