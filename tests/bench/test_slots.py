"""What the figures of `slots-move` and `slots-failover` are made of, and one small move with all that takes part."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.slots.failover import Kill, Side, _figures
from bench.slots.move import slots_move
from bench.slots.servers import installed
from bench.slots.traffic import Report, Span
from rota.agent.engine.program import find_program
from rota.errors import SettingsError


def test_a_request_counts_for_the_move_that_it_met() -> None:
    """Also one that began before, or ended after: those are the slow ones."""
    report = Report(
        ended_at=(1.0, 2.1, 2.5, 3.4, 4.0),
        seconds=(0.1, 0.2, 0.1, 0.5, 0.1),
        failed_at=(2.5, 9.0),
        last_error="",
    )
    assert report.between(2.0, 3.0) == Span(requests=3, errors=1, p50=0.2, p99=0.5, worst=0.5)
    assert report.between(5.0, 6.0) == Span(0, 0, 0.0, 0.0, 0.0)


def test_what_the_servers_take_by_themselves_is_told_as_a_multiple_of_rota() -> None:
    by_rota = [Kill(whole, 2, 0.1, 0, whole - 0.05, 0.05, 0.02) for whole in (1.5, 1.6, 9.0)]
    by_itself = [Kill(4.0, 9, 4.0, 0)]
    figures = _figures([Side("redis", "rota", by_rota, 1.0), Side("redis", "by itself", by_itself, 1.0)])
    assert figures["rota"]["whole_seconds"] == {"median": 1.6, "worst": 9.0}
    assert figures["by itself"]["of_rota"] == 2.5
    assert "failover_seconds" not in figures["by itself"], "no view changes there"


def test_an_engine_that_is_not_installed_is_skipped_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found, skipped = installed(["redis"])
    assert found == []
    assert skipped[0].startswith("redis skipped: engine: there is no redis-server on the PATH")


@pytest.mark.demo
@pytest.mark.socket
@pytest.mark.engine
def test_slots_move_there_and_back_under_traffic(tmp_path: Path) -> None:
    """Six servers, three agents and two clients have to start: some seconds."""
    try:
        find_program("valkey")
    except SettingsError as error:
        pytest.skip(str(error))
    result = slots_move(["valkey"], moves=1, slots=40, keys=200, directory=tmp_path, quiet=True)
    figures = result.figures["engines"]["valkey"]
    assert result.ok
    assert figures["missing_keys"] == figures["rota"]["clients"]["errors"] == 0, figures["last_error"]
    assert figures["rota"]["clients"]["requests"] > 0
    assert not list(tmp_path.iterdir())
