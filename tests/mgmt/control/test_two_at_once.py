"""Of nine hosts any two, or a rack, are killed at the same moment while somebody writes: the store goes on.

Controllers, log and transfers are the product's own, in virtual time.
"""

from __future__ import annotations

from itertools import combinations, count, pairwise
from typing import Any

import pytest

from datastore_adapter import ExtentAwayError, LogClient, LogError, LogUnavailableError, OutcomeUnknownError
from datastore_adapter.log.layout.document import Layout
from datastore_adapter.log.runtime.virtual_loop import Task
from mgmt.placement.hosts import controller_of
from tests.budget import budgeted
from tests.mgmt.control.log_harness import LogHarness

HOSTS, RACKS, SEGMENTS = 9, 3, 9
NAMES = [f"n{number + 1}" for number in range(HOSTS)]
PAIRS = list(combinations(NAMES, 2))
DETECTION = 2.0
"""Seconds until the view is without the two."""
LONGEST_PAUSE = 6.0
"""Seconds, with the detection, that a writer may wait."""
APPEND_TIMEOUT = 10.0
"""Seconds after which a writer does without the answer: one that was about to write where all hosts are lost."""


class Writer:
    """Appends one record after the other, and remembers what was acknowledged, and when."""

    def __init__(self, harness: LogHarness) -> None:
        self._harness = harness
        addresses = [host.address for host in harness.log.hosts.values()]
        self._client = LogClient(harness.log.runtime("writer"), addresses, harness.log.settings)
        self.acknowledged: dict[int, bytes] = {}
        self.times: list[float] = []
        self.unconfirmed = 0
        self.stopped = False
        self.task: Task

    async def run(self) -> None:
        for number in count():
            if self.stopped:
                return
            payload = b"%d" % number
            try:
                address = await self._client.append("any two", payload, timeout=APPEND_TIMEOUT)
            except (OutcomeUnknownError, LogUnavailableError):
                self.unconfirmed += 1
                continue
            assert address not in self.acknowledged
            self.acknowledged[address] = payload
            self.times.append(self._harness.log.loop.now)
            await self._client.runtime.sleep(0.05)

    async def read_all(self) -> dict[int, bytes | LogError]:
        """What is read where something was acknowledged."""
        found: dict[int, bytes | LogError] = {}
        for address in self.acknowledged:
            try:
                record = await self._client.read(address)
            except LogError as error:
                found[address] = error
            else:
                found[address] = b"" if record is None else record.payload
        return found

    @property
    def longest_pause(self) -> float:
        return max(later - earlier for earlier, later in pairwise(self.times))


def layout_of(harness: LogHarness) -> Layout:
    known = [host.node.document for host in harness.log.hosts.values() if host.node and host.node.document]
    return max(known, key=lambda document: document.epoch).layout


def go_on(harness: LogHarness, seconds: float) -> None:
    until = harness.log.loop.now + seconds
    harness.run_until(lambda: harness.log.loop.now >= until, within=seconds + 1)


def lose(harness: LogHarness, hosts: tuple[str, ...]) -> tuple[Writer, Layout]:
    """Somebody writes, and goes on; the layout before all are killed, which the view knows by then."""
    harness.settle()
    writer = Writer(harness)
    writer.task = harness.log.loop.start(writer.run())
    go_on(harness, 3.0)
    before = layout_of(harness)
    for name in hosts:
        harness.kill(name)
    go_on(harness, DETECTION)
    harness.change(*hosts)
    return writer, before


def stop_and_read(harness: LogHarness, writer: Writer) -> dict[int, bytes | LogError]:
    harness.settle()
    go_on(harness, 1.0)
    writer.stopped = True
    harness.run_until(lambda: writer.task.ended)
    assert writer.task.error is None, writer.task.error
    reading = harness.log.loop.start(writer.read_all())
    harness.run_until(lambda: reading.ended)
    read: dict[int, bytes | LogError] = reading.result
    return read


def status_of(harness: LogHarness) -> dict[str, Any]:
    return harness.controllers[controller_of(harness.view) or ""].status()


@pytest.mark.parametrize("pair", budgeted(PAIRS, 30, in_test=6), ids="-".join)
def test_any_two_of_nine(pair: tuple[str, ...]) -> None:
    with LogHarness(HOSTS, RACKS, SEGMENTS, PAIRS.index(pair)) as harness:
        writer, _ = lose(harness, pair)
        read = stop_and_read(harness, writer)
        assert read == writer.acknowledged, "of three copies one is left"
        assert not writer.unconfirmed
        assert writer.longest_pause < LONGEST_PAUSE
        layout = layout_of(harness)
        assert len(layout.layout_servers) == 5
        assert not {*layout.layout_servers, *layout.sequencers}.intersection(pair), "they were replaced"
        status = status_of(harness)
        assert (status["away"], status["under_replicated"]) == ([], 0)


@pytest.mark.parametrize("pair", budgeted(PAIRS, 9), ids="-".join)
def test_any_two_of_nine_that_hold_the_only_copies(pair: tuple[str, ...]) -> None:
    """With two copies the two may have all of a segment: that is away, and named, and nothing else is.

    Only if one of them is the sequencer, too, nobody else can tell how far that segment was written: then the log
    waits for one of them, or for an operator's word.
    """
    with LogHarness(HOSTS, RACKS, SEGMENTS, PAIRS.index(pair), copies=2) as harness:
        writer, before = lose(harness, pair)
        lost = {s.key for s in before.segments if set(s.open_extent.chain) == set(pair)}
        if lost and before.sequencer in pair:
            harness.run_until(lambda: "rota log forget" in status_of(harness)["last_error"])
            written = len(writer.acknowledged)
            harness.revive(pair[0])
            harness.run_until(lambda: len(writer.acknowledged) > written + 20)
            lost.clear()
        read = stop_and_read(harness, writer)
        wrong = {address: told for address, told in read.items() if told != writer.acknowledged[address]}
        assert {before.segment_of(address).key for address in wrong} == lost
        assert all(
            isinstance(told, ExtentAwayError) and set(told.hosts) == set(pair) for told in wrong.values()
        )
        assert {away["segment"] for away in status_of(harness)["away"]} == lost


@pytest.mark.parametrize("rack", ["r1", "r2", "r3"])
def test_any_rack_of_three(rack: str) -> None:
    """With two copies in different racks, which two racks can hold."""
    with LogHarness(HOSTS, RACKS, SEGMENTS, copies=2) as harness:
        hosts = tuple(name for name, host in harness.hosts.items() if host.rack == rack)
        writer, before = lose(harness, hosts)
        assert len(set(hosts).intersection(before.layout_servers)) <= 2
        assert stop_and_read(harness, writer) == writer.acknowledged
        assert writer.longest_pause < LONGEST_PAUSE
        assert len(layout_of(harness).layout_servers) == 5
