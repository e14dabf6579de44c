"""What the figures of `log-throughput` are made of."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

import grpc
import pytest

from bench.log.grpc_calls import GrpcConnection
from bench.log.grpcio_calls import GrpcioChannel
from bench.log.log_load import SYNCS, Measured
from bench.log.raw_costs import RawCost, cpu_seconds_of, fsync_cost, round_trip_cost
from bench.log.throughput import Case, log_throughput


def measured(latencies: list[float]) -> Measured:
    return Measured(
        operations=4,
        seconds=2.0,
        latencies=latencies,
        client_cpu=0.4,
        host_cpu={1: 0.1, 2: 0.2, 3: 0.3},
        counters={SYNCS: 12},
        messages={"requests": 16},
    )


def test_figures_are_per_append() -> None:
    appends = measured([0.1, 0.2, 0.3, 0.9])
    case = Case(256, 2, appends, appends, RawCost(0.01, 0.001), RawCost(0.002, 0.0005))
    assert appends.rate == 2.0
    assert [appends.latency(percent) for percent in (0, 50, 99, 100)] == [0.1, 0.3, 0.9, 0.9]
    assert case.cpu == pytest.approx(0.25)
    assert case.raw.seconds == pytest.approx(3 * 0.01 + 4 * 0.002)
    assert case.raw.cpu_seconds == pytest.approx(3 * 0.001 + 4 * 0.0005)
    figures = case.figures()
    assert figures["agent_cpu_us_per_append"] == pytest.approx([25_000, 50_000, 75_000])
    assert (figures["fsyncs_per_append"], figures["requests_per_append"]) == (3.0, 4.0)


def test_raw_fsyncs_are_done_on_the_disk_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def fdatasync(descriptor: int) -> None:
        assert os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(tmp_path))
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    cost = fsync_cost(5, 100, tmp_path)
    assert synced == [200, 300, 400, 500, 600]
    assert cost.seconds > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.socket
def test_round_trips_of_any_size_come_back() -> None:
    cost = round_trip_cost(20, 300_000, 100_000)
    assert cost.seconds > 0
    assert cost.cpu_seconds >= 0


@pytest.mark.socket
@pytest.mark.parametrize("driver", [GrpcConnection, GrpcioChannel])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_the_clients_of_etcd_keep_as_many_calls_under_way_as_asked_for(
    driver: type[GrpcConnection | GrpcioChannel], in_flight: int
) -> None:
    numbers = count()
    received: list[int] = []

    def answer(message: bytes, _: object) -> bytes:
        received.append(int(message))
        return message

    handler = grpc.method_handlers_generic_handler(
        "echo.Echo", {"Say": grpc.unary_unary_rpc_method_handler(answer)}
    )
    with ThreadPoolExecutor(max_workers=4) as threads:
        server = grpc.server(threads, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with closing(driver(f"127.0.0.1:{port}")) as connection:
            latencies, seconds = connection.load(
                "/echo.Echo/Say", lambda: b"%d" % next(numbers), in_flight, 0.05
            )
        server.stop(grace=None).wait()
    assert len(latencies) == len(received) == next(numbers)
    assert sorted(received) == list(range(len(received)))
    assert len(received) >= in_flight
    assert 0 < max(latencies) <= seconds


def test_cpu_of_a_process_counts_its_work() -> None:
    before = cpu_seconds_of(os.getpid())
    while cpu_seconds_of(os.getpid()) == before:
        sum(range(10_000))


@pytest.mark.slow("three real agents")
def test_a_short_run_on_real_agents_says_all_it_should() -> None:
    result = log_throughput([256], [8], 0.3, segments=3)
    (case,) = result.figures["cases"]
    assert case["appends_per_second"] > 0
    assert case["reads_per_second"] > 0
    assert case["fsyncs_per_append"] > 0
    assert len(case["agent_cpu_us_per_append"]) == 3
