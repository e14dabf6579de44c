"""The simulator with a toy protocol: time, crashes, pauses, determinism, bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from chaos import NetworkSettings, SimulationError, Simulator


def test_processes_live_on_their_own_clocks(greeters: Any) -> None:
    simulator, processes = greeters()
    simulator.run(10.0)
    assert simulator.now == 10.0
    for number, process in enumerate(processes.values()):
        assert 95 <= len(process.ticks) <= 100
        assert process.ticks[0] == pytest.approx(number * 100.25 + 0.1, abs=0.0011)
        gaps = [after - before for before, after in zip(process.ticks, process.ticks[1:], strict=False)]
        assert all(0.1 - 1e-9 <= gap <= 0.101 + 1e-9 for gap in gaps)


def test_everything_sent_arrives_within_the_delay_when_nothing_is_wrong(greeters: Any) -> None:
    simulator, processes = greeters()
    simulator.run(10.0)
    hellos = sum(message.startswith("hello") for p in processes.values() for _, _, message in p.received)
    assert sum(len(p.ticks) for p in processes.values()) - 3 <= hellos
    assert simulator.sent - simulator.delivered < 10


def test_run_goes_on_where_it_stopped(greeters: Any) -> None:
    whole, _ = greeters()
    whole.run(5.0)
    pieces, _ = greeters()
    for end in (1.0, 1.0005, 2.5, 5.0):
        pieces.run(end)
    assert pieces.trace_hash == whole.trace_hash


def test_stop_ends_a_run(greeters: Any) -> None:
    simulator, processes = greeters()
    assert simulator.run(60.0, stop=lambda: len(processes["a"].ticks) >= 7)
    assert 0.7 <= simulator.now < 0.8
    assert not simulator.run(1.0)


def test_a_crashed_process_is_silent_and_a_restarted_one_is_new(greeters: Any) -> None:
    simulator, processes = greeters()
    host = simulator.hosts["a"]
    simulator.run(1.0)
    first = processes["a"]
    simulator.crash(host)
    ticks, received = len(first.ticks), len(first.received)
    simulator.run(2.0)
    assert (len(first.ticks), len(first.received)) == (ticks, received)
    assert not host.up
    simulator.start(host)
    simulator.run(3.0)
    assert processes["a"] is not first
    assert processes["a"].generation == 1
    assert processes["a"].received
    assert len(first.ticks) == ticks


def test_a_paused_process_gets_its_messages_when_it_goes_on(greeters: Any) -> None:
    simulator, processes = greeters()
    host = simulator.hosts["a"]
    simulator.run(1.0)
    simulator.pause(host)
    simulator.run(6.0)
    heard = len(processes["a"].received)
    assert all(now < 1.01 for now, _, _ in processes["a"].received)
    simulator.resume(host)
    assert len(processes["a"].received) > heard + 10
    assert processes["a"].ticks[-1] == pytest.approx(6.0)


def test_events_and_inputs_are_told(greeters: Any) -> None:
    simulator, _ = greeters(2)
    told: list[object] = []
    inputs: list[str] = []
    simulator.on_events = lambda host, events: told.append((host.name, *events))
    simulator.after_input = lambda host: inputs.append(host.name)
    simulator.run(0.5)
    assert told == [("a", "started"), ("b", "started")]
    assert len(inputs) > 10


def test_calls_happen_at_their_time(greeters: Any) -> None:
    simulator, _ = greeters()
    seen: list[float] = []
    simulator.call_at(1.5, lambda: seen.append(simulator.now))
    simulator.call_at(0.5, lambda: simulator.call_after(0.25, lambda: seen.append(simulator.now)))
    simulator.run(2.0)
    assert seen == [0.75, 1.5]


def test_every_message_can_go_through_the_codec(greeters: Any, text_codec: Any) -> None:
    plain, processes = greeters(codec=text_codec)
    plain.run(3.0)
    coded, same = greeters(codec=text_codec, through_codec=True)
    coded.run(3.0)
    assert plain.trace_hash == coded.trace_hash
    assert [p.received for p in processes.values()] == [p.received for p in same.values()]


def test_bytes_of_messages_are_counted(greeters: Any, text_codec: Any) -> None:
    simulator, _ = greeters(2, codec=text_codec)
    simulator.sample_traffic()
    simulator.run(10.0)
    # Ten greetings out and ten answered a second: `hello 50` and `answer hello 50`; headers are not counted.
    expected = 10 * (len("hello 50") + len("answer hello 50")) / 1000
    assert simulator.traffic.sent().mean == pytest.approx(expected, rel=0.05)
    assert simulator.traffic.received().mean == pytest.approx(expected, rel=0.05)
    assert simulator.traffic.sent().max >= simulator.traffic.sent().p99 >= simulator.traffic.sent().mean


def test_streams_are_not_lost_with_datagrams(greeters: Any) -> None:
    bad = NetworkSettings(loss=0.3)
    datagrams, _ = greeters(network=bad)
    streams, _ = greeters(network=bad, reliable=True)
    datagrams.run(20.0)
    streams.run(20.0)
    assert datagrams.delivered < 0.8 * datagrams.sent
    assert streams.delivered > 0.95 * streams.sent


def test_names_and_addresses_are_unique(greeters: Any) -> None:
    simulator, processes = greeters()
    with pytest.raises(SimulationError, match="there already"):
        simulator.add_host("a", "elsewhere", lambda generation, rng: processes["a"])
    with pytest.raises(SimulationError, match="there already"):
        simulator.add_host("z", "a", lambda generation, rng: processes["a"])


def test_through_codec_needs_one() -> None:
    with pytest.raises(SimulationError):
        Simulator(through_codec=True)


def test_seeds_make_runs_equal_or_different(greeters: Any) -> None:
    def trace(seed: int) -> int:
        simulator, _ = greeters(5, seed=seed, network=NetworkSettings(loss=0.1, duplication=0.1))
        simulator.run(5.0)
        return simulator.trace_hash

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


@pytest.mark.slow("two interpreters simulate three scripts each")
def test_python_hash_seeds_make_no_difference() -> None:
    """Two interpreters with different string hashes: the same simulated cluster, event by event."""
    code = (
        "from chaos.fuzzing.fuzz import replay; from chaos.fuzzing.generator import random_script\n"
        "print([replay(random_script(seed)).trace_hash for seed in range(3)])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1
