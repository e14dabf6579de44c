"""Of nine hosts any two are killed at the same moment, while somebody writes: the store goes on.

Controllers, log and transfers are the product's own, in virtual time.
"""

from __future__ import annotations

from itertools import combinations, count, pairwise

import pytest

from datastore_adapter import LogClient, LogError
from datastore_adapter.log.layout.document import Layout
from tests.budget import budgeted
from tests.mgmt.control.log_harness import LogHarness

HOSTS, RACKS, SEGMENTS = 9, 3, 9
NAMES = [f"n{number + 1}" for number in range(HOSTS)]
PAIRS = list(combinations(NAMES, 2))
DETECTION = 2.0
"""Seconds until the view is without the two."""
LONGEST_PAUSE = 6.0
"""Seconds, with the detection, that a writer may wait."""


class Writer:
    """Appends one record after the other, and remembers what was acknowledged, and when."""

    def __init__(self, harness: LogHarness) -> None:
        self._harness = harness
        addresses = [host.address for host in harness.log.hosts.values()]
        self._client = LogClient(harness.log.runtime("writer"), addresses, harness.log.settings)
        self.acknowledged: dict[int, bytes] = {}
        self.times: list[float] = []
        self.stopped = False

    async def run(self) -> None:
        for number in count():
            if self.stopped:
                return
            payload = b"%d" % number
            address = await self._client.append("any two", payload)
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


def written_through_the_loss_of(harness: LogHarness, pair: tuple[str, ...]) -> tuple[Writer, float]:
    """The writer, which has stopped, and how long it waited at most; the rest of the hosts has settled."""
    harness.settle()
    writer = Writer(harness)
    task = harness.log.loop.start(writer.run())
    go_on(harness, 3.0)
    for name in pair:
        harness.kill(name)
    killed = harness.log.loop.now
    go_on(harness, DETECTION)
    harness.change(*pair)
    harness.run_until(lambda: writer.times[-1] > killed + LONGEST_PAUSE, within=2 * LONGEST_PAUSE)
    harness.settle()
    go_on(harness, 1.0)
    writer.stopped = True
    harness.run_until(lambda: task.ended)
    assert task.error is None, task.error
    return writer, writer.longest_pause


@pytest.mark.parametrize("pair", budgeted(PAIRS, 35, in_test=1), ids="-".join)
def test_any_two_of_nine(pair: tuple[str, ...]) -> None:
    with LogHarness(HOSTS, RACKS, SEGMENTS) as harness:
        writer, pause = written_through_the_loss_of(harness, pair)
        assert pause < LONGEST_PAUSE
        layout = layout_of(harness)
        assert len(layout.layout_servers) == 5
        assert not {*layout.layout_servers, *layout.sequencers}.intersection(pair), "they were replaced"
        controller = next(iter(harness.hosts))
        status = harness.controllers[controller].status()
        assert not status["away"], "of three copies one is left"
        assert status["under_replicated"] == 0
        reading = harness.log.loop.start(writer.read_all())
        harness.run_until(lambda: reading.ended)
        assert reading.result == writer.acknowledged
