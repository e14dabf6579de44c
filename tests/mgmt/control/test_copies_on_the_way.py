"""On the real log a host that is drained takes no copy away before another has it, and the status says so."""

from __future__ import annotations

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
