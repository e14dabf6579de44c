"""What an agent keeps of the last hour, and where it comes from."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from datastore_adapter.slots.slots_adapter import SlotsAdapter
from datastore_adapter.slots.state.server_info import ServerInfo, parse_info
from rota.agent.engine.measuring import measure
from rota.http.answers import Space
from rota.services.host_monitor import HostMonitor, counted
from rota.services.measurements import INTERVAL, Measurements

STEPS = st.tuples(st.integers(-3, 40), st.integers(0, 2000), st.booleans())
"""Seconds since the last one, what the counter says, whether it is known."""


@given(st.lists(STEPS, min_size=1, max_size=12), st.integers(2, 6))
def test_each_rate_is_what_was_counted_in_between(steps: list[tuple[int, int, bool]], kept: int) -> None:
    measurements = Measurements(kept=kept)
    now, known, wanted, gauges = 100.0, dict[int, int](), list[float | None](), list[float | None]()
    for index, (seconds, count, is_known) in enumerate(steps):
        now += seconds
        measurements.take(now, {"records": count} if is_known else {}, {"sync_seconds": float(count)})
        before = known.get(index - 1)
        if is_known:
            known[index] = count
        is_rate = is_known and before is not None and seconds > 0 and count >= before
        wanted.append(float(f"{(count - before) / seconds:.4g}") if is_rate and before is not None else None)
        gauges.append(float(f"{count:.4g}"))
    told = measurements.told()
    assert told["end"] == now
    assert told["series"]["sync_seconds"] == gauges[-kept:]
    assert told["series"].get("records", [None] * len(steps))[-kept:] == wanted[-kept:]


def test_a_series_that_begins_later_is_unknown_before() -> None:
    measurements = Measurements(kept=3)
    measurements.take(0.0, {}, {"a": 1.0})
    measurements.take(10.0, {}, {"a": 2.0, "b": 5.0})
    assert measurements.told() == {
        "interval": INTERVAL, "end": 10.0, "series": {"a": [1.0, 2.0], "b": [None, 5.0]},
    }  # fmt: skip
    for time in (20.0, 30.0, 40.0):
        measurements.take(time, {}, {"a": time})
    assert measurements.told()["series"] == {"a": [20.0, 30.0, 40.0], "b": [None, None, None]}


async def test_an_agent_measures_at_even_times(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def space(self: HostMonitor) -> Space:
        return {"free": 3, "total": 7}

    monkeypatch.setattr(HostMonitor, "space", space)
    monitor = HostMonitor(tmp_path, lambda: 1000.0 + trio.current_time())
    sent = 0

    async def look() -> tuple[Mapping[str, int], Mapping[str, float | None]]:
        nonlocal sent
        sent += 700
        return counted({"datagram_bytes_sent": sent, "stream_bytes_received": 5}, with_log=False), {}

    with trio.move_on_after(3 * INTERVAL - 1):
        await monitor.run(look)
    assert monitor.measured()["series"] == {
        "network_bytes": [None, 70.0, 70.0], "disk_free": [3.0] * 3, "disk_total": [7.0] * 3,
    }  # fmt: skip


async def test_an_agent_outlives_whatever_fails_while_it_measures(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def space(_: HostMonitor) -> None:
        return None

    monkeypatch.setattr(HostMonitor, "space", space)
    monitor, begun = HostMonitor(tmp_path, trio.current_time), list[float]()

    async def look() -> tuple[Mapping[str, int], Mapping[str, float | None]]:
        begun.append(trio.current_time())
        await trio.sleep(3)
        if 2 <= len(begun) <= 3:
            raise ExceptionGroup("of a nursery", [RuntimeError("can't start new thread")])
        return {}, {"a": float(len(begun))}

    with trio.move_on_after(4 * INTERVAL - 1):
        await monitor.run(look)
    assert monitor.measured()["series"]["a"] == [1.0, None, None, 4.0]
    assert begun == pytest.approx([begun[0] + count * INTERVAL for count in range(4)], abs=0.1), (
        "at even times"
    )
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_disk_that_hangs_keeps_one_thread(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released, asked = threading.Event(), threading.Event(), list[Path]()

    def hang(path: Path) -> None:
        asked.append(path)
        begun.set()
        released.wait(60)
        raise OSError

    monkeypatch.setattr(shutil, "disk_usage", hang)
    monitor = HostMonitor(tmp_path)
    try:
        assert await monitor.space() is None
        assert begun.wait(60)
        assert [await monitor.space() for _ in range(5)] == [None] * 5
        assert len(asked) == 1
    finally:
        released.set()


async def test_a_file_system_tells_its_room_and_one_that_is_not_there_none(tmp_path: Path) -> None:
    space = await HostMonitor(tmp_path).space()
    assert space is not None
    assert 0 < space["free"] <= space["total"]
    assert await HostMonitor(tmp_path / "not there").space() is None


async def test_the_servers_of_a_host_are_measured_as_far_as_they_answer(mock_clock: MockClock) -> None:
    info = parse_info(b"redis_version:7.2.0\r\nused_memory_dataset:100\r\ninstantaneous_ops_per_sec:7\r\n")
    answers = {"a:1": info, "a:2": info}

    class Adapter:
        async def infos(self, servers: Sequence[str]) -> list[ServerInfo]:
            mock_clock.jump(0.25)
            return [answers[server] for server in servers if server in answers]

    adapter = cast(SlotsAdapter, Adapter())
    assert await measure(adapter, ["a:1", "a:2", "a:3"]) == {
        "operations": 14.0, "engine_bytes": 200, "engine_seconds": 0.25,
    }  # fmt: skip
    answers.clear()
    assert set((await measure(adapter, ["a:1"])).values()) == {None}
