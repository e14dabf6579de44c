"""Detectors that an application chooses or brings along, through `membership.join` on the in-memory network."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
import trio
import trio.testing

import membership
from membership import Settings
from membership.protocol.context.effects import Accused, EdgeFailed, EdgeRecovered
from membership.protocol.view.member import Member
from membership.runtime.application_checks import (
    ApplicationCheck,
    ApplicationCheckError,
    CheckRunner,
    application_check,
)
from membership.runtime.member_log import MemberLog
from tests.membership.test_cluster import address, running


class Bench:
    """What the runner needs of a driver."""

    def __init__(self, lab, count: int = 3) -> None:
        self.members = tuple(lab.members(count))
        self.results: list[tuple[str, bool]] = []
        self.news = trio.Event()

    def subjects(self) -> tuple[Member, ...]:
        return self.members

    def report_check(self, subject: bytes, healthy: bool) -> None:
        name = next(member.name for member in self.members if member.incarnation == subject)
        self.results.append((name, healthy))
        self.news.set()

    def of(self, name: str) -> list[bool]:
        return [healthy for who, healthy in self.results if who == name]


async def checked(bench: Bench, what: ApplicationCheck, until: Callable[[], bool]) -> None:
    """Run the checks until this is so."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CheckRunner(bench, what, random.Random(1), MemberLog("n1")).run)
        while not until():
            bench.news = trio.Event()
            await bench.news.wait()
        nursery.cancel_scope.cancel()


async def test_only_failures_in_a_row_count(lab, autojump_clock) -> None:
    bench = Bench(lab)
    answers = {"n0": iter([False, False, True, False, False, False, False, True, True] + [True] * 99)}

    async def check(member: Member) -> bool:
        return next(answers[member.name]) if member.name in answers else True

    await checked(bench, application_check(check, failures=3), lambda: len(bench.of("n0")) >= 9)
    assert bench.of("n0")[:9] == [True, True, True, True, True, False, False, True, True]
    assert all(bench.of("n1"))


async def test_an_exception_is_a_no(lab, autojump_clock) -> None:
    bench = Bench(lab)

    async def check(member: Member) -> bool:
        if member.name == "n1":
            raise ValueError("a bug of the application")
        return True

    await checked(bench, application_check(check, failures=1), lambda: len(bench.of("n1")) >= 2)
    assert not any(bench.of("n1"))
    assert all(bench.of("n0"))


async def test_no_answer_in_time_is_a_no_and_holds_up_nobody(lab, autojump_clock) -> None:
    bench = Bench(lab)

    async def check(member: Member) -> bool:
        if member.name == "n2":
            await trio.sleep_forever()
        return True

    what = application_check(check, failures=1, timeout=1.0, interval=2.0)
    await checked(bench, what, lambda: len(bench.of("n2")) >= 3)
    assert not any(bench.of("n2"))
    assert all(bench.of("n0"))
    assert len(bench.of("n0")) >= 3


async def test_a_plain_function_runs_in_a_thread_and_a_stuck_one_stays_alone(lab) -> None:
    """Real time: threads know no other. Nothing is asserted about how long anything takes."""
    bench = Bench(lab)
    release = threading.Event()
    loop = threading.get_ident()
    threads: dict[str, int] = {}
    calls: list[str] = []

    def check(member: Member) -> bool:
        threads[member.name] = threading.get_ident()
        calls.append(member.name)
        if member.name == "n0":
            release.wait(60.0)
        return True

    what = application_check(check, failures=2, timeout=0.05, interval=0.05)
    try:
        with trio.fail_after(60.0):
            await checked(bench, what, lambda: len(bench.of("n0")) >= 4 and True in bench.of("n1"))
    finally:
        release.set()
    assert bench.of("n0")[-1] is False
    assert calls.count("n0") == 1, "none is started beside one that has not returned"
    assert loop not in threads.values()


class TestJoin:
    async def test_what_all_applications_find_unhealthy_goes(self, autojump_clock) -> None:
        sick: set[str] = set()

        async def ask(member: Member) -> bool:
            return member.name not in sick

        detector = membership.application_check(ask, interval=1.0)
        async with running() as hosts:
            members = await hosts.bootstrap(5, detector=detector, rejoin=False)
            victim = hosts.hosts[3]
            sick.add(str(address(3)))
            await hosts.until(lambda: all(host.size == 4 for host in members if host is not victim), 600.0)
            assert members[0].cluster is not None
            assert str(address(3)) not in {member.name for member in members[0].cluster.view.members}

    async def test_just_a_function_will_do(self, autojump_clock) -> None:
        asked: set[str] = set()

        async def ask(member: Member) -> bool:
            asked.add(member.name)
            return True

        async with running() as hosts:
            members = await hosts.bootstrap(3, detector=ask)
            await hosts.until(lambda: len(asked) == 3, 60.0)
            assert all(host.size == 3 for host in members)

    @pytest.mark.parametrize("detector", [membership.phi_accrual(8.0), membership.windowed(6, 3)])
    async def test_a_kind_of_detector_is_used(self, autojump_clock, detector: object) -> None:
        async with running() as hosts:
            kinds = {
                type(edge.detector)
                for host in await hosts.bootstrap(3, detector=detector)
                for edge in host.cluster._driver.core._monitor.subjects  # type: ignore[union-attr]
            }
        assert kinds == {type(detector.new(Settings(), 0.0))}  # type: ignore[attr-defined]

    @pytest.mark.parametrize("detector", ["phi", 8])
    async def test_anything_else_is_refused(self, detector: object) -> None:
        with pytest.raises(membership.JoinArgumentError, match="phi_accrual"):
            async with membership.join("127.0.0.1:0", detector=detector):  # type: ignore[arg-type]
                pass


@pytest.mark.parametrize(
    "numbers", [{"interval": 0}, {"timeout": float("inf")}, {"failures": 0}, {"check": "no function"}]
)
def test_numbers_that_make_no_sense_are_refused(numbers: dict[str, object]) -> None:
    with pytest.raises(ApplicationCheckError):
        application_check(**{"check": bool, **numbers})  # type: ignore[arg-type]


def test_an_opinion_of_the_application_is_reported_by_the_observers_only(lab) -> None:
    configuration = lab.configuration(30)
    core = lab.core_in(configuration)
    observed = {member.incarnation for member in core.subjects}
    stranger = next(m for m in configuration.members if m.incarnation not in observed and m != core.me)
    core.edge_checked(stranger.incarnation, healthy=False, now=1.0)
    assert not core._monitor.failed_edges()
    subject = core.subjects[0]
    effects = core.edge_checked(subject.incarnation, healthy=False, now=1.0)
    assert effects.events == (EdgeFailed(subject), Accused(subject))
    effects = core.edge_checked(subject.incarnation, healthy=True, now=2.0)
    assert effects.events == (EdgeRecovered(subject),)
    assert not core._monitor.failed_edges()
