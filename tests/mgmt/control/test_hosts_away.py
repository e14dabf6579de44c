"""Every host of a segment is lost at once: the control loop has the log go on without what they hold."""

from __future__ import annotations

from functools import partial

import pytest

from mgmt.errors import (
    EngineUnreachableError,
    InvalidRequestError,
    NotControllerError,
    NothingLostError,
)
from mgmt.placement.intent import Intent
from tests.mgmt.control.log_harness import LogHarness


def unlucky(harness: LogHarness) -> tuple[str, ...]:
    """The hosts of a segment, neither the sequencer among them nor more than one layout server."""
    document = next(
        host.node.document for host in harness.log.hosts.values() if host.node and host.node.document
    )
    layout = document.layout
    for segment in layout.segments:
        chain = set(segment.open_extent.chain)
        if layout.sequencer not in chain and len(chain.intersection(layout.layout_servers)) < 2:
            return segment.open_extent.chain
    raise AssertionError("choose another seed: no such segment")


def lose(harness: LogHarness, hosts: tuple[str, ...]) -> None:
    for host in hosts:
        harness.kill(host)
    harness.change(*hosts)


def written_and_lost(harness: LogHarness) -> tuple[str, ...]:
    """Records are written, then all hosts of a segment are lost, and the rest has settled; returns those hosts."""
    harness.settle()
    harness.write(90)
    hosts = unlucky(harness)
    lose(harness, hosts)
    harness.settle()
    return hosts


@pytest.fixture
def harness() -> LogHarness:
    return LogHarness(9, 3, 9)


def test_it_goes_on_without_them_and_takes_them_back(harness: LogHarness) -> None:
    with harness:
        hosts = written_and_lost(harness)
        controller = harness.controllers["n1"]
        away = controller.status()["away"]
        assert away
        assert {tuple(each["hosts"]) for each in away} == {hosts}
        assert controller.status()["under_replicated"] == 0, "what is written now has all its copies"
        assert any(event.kind == "unavailable" for event in controller.events.after(0))
        harness.write(90)
        harness.revive(*hosts)
        harness.run_until(lambda: not controller.status()["away"])
        harness.settle()
        assert controller.status()["under_replicated"] == 0


def test_with_no_placement_possible_writing_goes_on_all_the_same() -> None:
    """Copies are wanted in three racks, and hosts are left in two, which do not have all of the segments."""
    with LogHarness(9, 3, 9) as harness:
        harness.settle()
        harness.write(30)
        left = ("n1", "n2", "n4")  # a majority of the layout servers
        assert any(not set(chain).intersection(left) for chain in harness.chains().values())
        lose(harness, tuple(host for host in harness.hosts if host not in left))
        controller = harness.controllers["n1"]
        harness.run_until(lambda: bool(controller.status()["away"]))
        harness.write(30)
        assert "infeasible" in {event.kind for event in controller.events.after(0)}


def test_what_an_operator_gives_up_is_told_first_and_then_forgotten(harness: LogHarness) -> None:
    with harness:
        hosts = written_and_lost(harness)
        controller = harness.controllers["n1"]
        forget = controller.forced_recovery.forget
        with pytest.raises(InvalidRequestError, match="no host is named"):
            harness.answer(partial(forget, (), "n2", confirmed=True))
        for wrong, words in (("n1", "in the view"), ("n77", "holds nothing")):
            with pytest.raises(NothingLostError, match=words):
                harness.answer(partial(forget, (wrong,), "n2", confirmed=True))
        told = harness.answer(partial(forget, hosts, "n2", confirmed=False))
        assert {loss["hosts"] for loss in told["lost"]} == {hosts}
        assert controller.status()["away"], "it was only told"
        assert harness.answer(partial(forget, hosts, "n2", confirmed=True)) == {**told, "forgotten": True}
        harness.run_until(lambda: not controller.status()["away"])
        assert harness.answer(partial(forget, hosts, "n2", confirmed=True))["lost"] == []
        versions = harness.answer(controller.reports.history)["versions"]
        causes = [(version["why"], version["asked_at"]) for version in versions]
        assert (f"declared lost: {', '.join(sorted(hosts))}", "n2") in causes
        harness.settle()
        harness.write(90)


def majority_of_the_layout_servers(harness: LogHarness) -> tuple[str, ...]:
    """As few as can be, without the controller."""
    document = next(h.node.document for h in harness.log.hosts.values() if h.node and h.node.document)
    servers = document.layout.layout_servers
    return tuple(host for host in servers if host != "n1")[: len(servers) // 2 + 1]


def test_without_a_majority_of_the_layout_servers_everybody_says_who_is_lost_and_what_goes_on(
    harness: LogHarness,
) -> None:
    with harness:
        harness.settle()
        servers = majority_of_the_layout_servers(harness)
        before = harness.answer(harness.controllers["n1"].reports.layout)
        assert (before["known_only"], before["layout_servers_lost"]) == (False, [])
        for host in servers:
            harness.kill(host)
        harness.change(*servers)
        controller = harness.controllers["n1"]
        harness.run_until(lambda: bool(controller.status()["layout_servers_lost"]))
        status = controller.status()
        assert set(status["layout_servers_lost"]) == set(servers)
        known = harness.answer(controller.reports.layout)
        assert known["known_only"]
        assert known["roles"] == before["roles"]
        assert known["layout_epoch"] == before["layout_epoch"]
        assert set(known["layout_servers_lost"]) == set(servers)
        for told in (status["last_error"], known["notices"][-1]):
            assert f"not in the view: {', '.join(status['layout_servers_lost'])}" in told
            assert "rota layout recover" in told
        with pytest.raises(EngineUnreachableError, match="rota layout recover"):
            harness.answer(partial(controller.reports.outcome, "p1"))
        harness.revive(*servers)
        harness.settle()
        assert not controller.status()["layout_servers_lost"]
        assert not harness.answer(controller.reports.layout)["known_only"]


def test_only_the_controller_forgets_and_any_host_recovers_a_layout(harness: LogHarness) -> None:
    with harness:
        harness.settle()
        harness.write(18)
        with pytest.raises(NotControllerError):
            harness.answer(
                partial(harness.controllers["n2"].forced_recovery.forget, ["n9"], "n2", confirmed=True)
            )
        servers = majority_of_the_layout_servers(harness)
        survivor = next(name for name in harness.hosts if name not in {"n1", *servers})
        recover = partial(harness.controllers[survivor].forced_recovery.recover_layout, survivor)
        with pytest.raises(NothingLostError, match="nothing is to be recovered"):
            harness.answer(partial(recover, confirmed=True))
        lose(harness, servers)
        controller = harness.controllers["n1"]
        harness.run_until(lambda: "no majority" in controller.status()["last_error"])
        with pytest.raises(EngineUnreachableError, match="rota layout recover"):
            harness.answer(partial(controller.forced_recovery.forget, servers, "n1", confirmed=False))
        assert not harness.answer(partial(recover, confirmed=False))["recovered"]
        answer = harness.answer(partial(recover, confirmed=True))
        assert answer["layout_epoch"] == 1_000_000_000
        known = harness.answer(controller.reports.layout)
        assert len(known["roles"]["layout_servers"]) == 5, "of the six hosts that are left"
        assert answer["hosts"] == sorted(harness.hosts)
        harness.settle()
        harness.write(18)
        wanted = Intent.initial(9, expect=9).segments
        assert set(harness.chains()) == set(wanted)
