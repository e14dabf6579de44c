"""On the real log a host that is drained takes no copy away before another has it, and the status says so.

Not even when the host that was to have it dies meanwhile, and whether or not anything may be moved then.
"""

from __future__ import annotations

import pytest

from mgmt.control.events import ControlEvent
from tests.mgmt.control.log_harness import LogHarness


def test_no_record_is_short_of_a_copy_while_a_host_is_drained() -> None:
    short: list[int] = []

    def look(name: str, event: ControlEvent) -> None:
        if name == "n1" and event.kind in ("step-started", "step-done"):
            short.append(cluster.controllers["n1"].status()["under_replicated"])

    with LogHarness(6, 3, 6) as cluster:
        cluster.settle()
        cluster.write(60)
        cluster.on_event = look
        cluster.requests("n1", "drain", "n4")
        cluster.settle()
        assert not any("n4" in chain for chain in cluster.chains().values())
        assert len(short) > 4
        assert set(short) == {0}


def fewest_copies(cluster: LogHarness, segment: str) -> int:
    """Of any record of the segment, on hosts that are alive."""
    known = [host.node.document for host in cluster.log.hosts.values() if host.node and host.node.document]
    layout = max(known, key=lambda document: document.epoch).layout
    extents = next(each.extents for each in layout.segments if each.key == segment)
    return min(len(cluster.hosts.keys() & extent.chain) for extent in extents if extent.is_held)


@pytest.mark.parametrize("paused", [True, False])
def test_a_move_whose_end_dies_leaves_its_beginning_the_copy(paused: bool) -> None:
    copying: list[str] = []

    def look(name: str, event: ControlEvent) -> None:
        if name == "n1" and event.kind == "step-started" and event.text.startswith("copy"):
            copying.append(event.text)

    with LogHarness(6, 3, 6) as cluster:
        cluster.settle()
        cluster.write(60)
        moved = [segment for segment, chain in cluster.chains().items() if "n4" in chain]
        cluster.on_event = look
        cluster.requests("n1", "drain", "n4")
        cluster.run_until(lambda: bool(copying))
        if paused:
            cluster.requests("n1", "pause")
        cluster.kill("n1")  # the only other host of its rack
        cluster.change("n1")
        fewest: list[int] = []
        cluster.on_event = lambda name, event: fewest.append(min(fewest_copies(cluster, s) for s in moved))
        later = cluster.log.loop.now + 40
        cluster.log.loop.schedule(41, lambda: None)
        cluster.run_until(lambda: cluster.log.loop.now >= later)
        assert fewest[-1] == 3
        assert min(fewest) >= 2, "of what was written since the move began"
        assert all("n4" in cluster.chains()[segment] for segment in moved)
