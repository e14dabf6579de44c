"""The alert table: a union of reports, whatever the order and the detours, with ages and a digest."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from membership.address import Address
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.messages import Alert, AlertKind
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.settings import Settings


def member(number: int) -> Member:
    return Member.create(f"n{number}", Address("10.0.0.1", 1 + number), random.Random(number).randbytes(16))


VIEW = Configuration.found(member(0), bytes(16), 10).apply(
    Cut.of([member(number) for number in range(1, 12)])
)
JOINERS = [member(number) for number in range(100, 104)]


def table(settings: Settings | None = None) -> AlertTable:
    return AlertTable(VIEW, settings or Settings())


alerts = st.lists(
    st.one_of(
        st.builds(
            Alert,
            st.sampled_from([AlertKind.REMOVE, AlertKind.LEAVE]),
            st.integers(0, 3),
            st.integers(1, 1023),
            st.just(0),
        ),
        st.builds(
            lambda joiner, rings: Alert(AlertKind.JOIN, -1, rings, 0, joiner),
            st.sampled_from(JOINERS),
            st.integers(1, 1023),
        ),
    ),
    max_size=12,
)


def contents(of: AlertTable) -> object:
    return (
        {subject: (report.rings, report.leaves) for subject, report in of.removals.items()},
        {incarnation: report.rings for incarnation, report in of.joins.items()},
        set(of.unstable_joins),
        set(of.stable_joins),
        of.digest(0),
    )


@given(alerts, st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(reports: list[Alert], rng: random.Random) -> None:
    one, two = table(), table()
    for alert in reports:
        one.merge(alert, 0.0)
    shuffled = reports + reports[: len(reports) // 2]
    rng.shuffle(shuffled)
    for alert in shuffled:
        two.merge(alert, 0.0)
    assert contents(one) == contents(two)


@given(alerts, alerts)
def test_equal_digests_mean_equal_tables(first: list[Alert], second: list[Alert]) -> None:
    one, two = table(), table()
    for alert in first:
        one.merge(alert, 0.0)
    for alert in second:
        two.merge(alert, 0.0)
    assert (contents(one) == contents(two)) == (one.digest(0) == two.digest(0))


@given(alerts)
def test_a_table_travels_whole(reports: list[Alert]) -> None:
    one, two = table(), table()
    for alert in reports:
        one.merge(alert, 0.0)
    for alert in one.all_alerts(0.0):
        assert two.refusal(alert) is None
        two.merge(alert, 0.0)
    assert contents(one) == contents(two)


@given(alerts)
def test_news_is_what_changed(reports: list[Alert]) -> None:
    one = table()
    for alert in reports:
        changed = one.merge(alert, 0.0)
        assert changed == one.has_news
        told = one.take_changed(0.0)
        assert bool(told) == changed
        assert not one.has_news


def test_a_joiner_is_unstable_since_it_reached_the_low_watermark() -> None:
    """From then on its observers wait before they echo it: neither at once nor anew with each report."""
    one, low = table(), Settings().low_watermark
    joiner = JOINERS[0]
    for rings, now in ((1, 5.0), ((1 << low) - 1, 7.0), ((1 << low + 1) - 1, 9.0)):
        assert one.merge(Alert(AlertKind.JOIN, -1, rings, 0, joiner), now)
    assert one.unstable_joins[joiner.incarnation].unstable_since == 7.0


def test_alerts_that_cannot_be_are_refused() -> None:
    known = VIEW.members[1]
    for alert in (
        Alert(AlertKind.REMOVE, 12, 1),
        Alert(AlertKind.REMOVE, -1, 1),
        Alert(AlertKind.REMOVE, 1, 0),
        Alert(AlertKind.REMOVE, 1, 1 << 10),
        Alert(AlertKind.JOIN, -1, 1),
        Alert(AlertKind.JOIN, -1, 1, 0, known),
    ):
        assert table().refusal(alert) is not None, alert
    assert table().refusal(Alert(AlertKind.LEAVE, 0, 1)) is None


def test_an_update_is_a_members_own_record_with_other_metadata() -> None:
    known = VIEW.members[1]

    def refusal(record: Member) -> str | None:
        return table().refusal(Alert(AlertKind.UPDATE, -1, 1, 0, record))

    assert refusal(replace(known, metadata=(("rack", "r2"),))) is None
    for other in (JOINERS[0], replace(known, name="other"), replace(known, port=99), replace(known, name="")):
        assert refusal(other) == "update alert without the record of a member"


def test_a_detour_never_makes_a_report_younger() -> None:
    """Otherwise noise could live for ever by going round."""
    here, there = table(), table()
    here.merge(Alert(AlertKind.REMOVE, 1, 1), 100.0)
    now = 100.0
    for hop in range(40):
        source, target = (here, there) if hop % 2 == 0 else (there, here)
        for alert in source.all_alerts(now):
            target.merge(alert, now + 0.01)
        now += 0.21
    for one in (here, there):
        assert one.removals[1].raised[0] <= 100.0


def test_reports_of_about_one_age_travel_as_one_as_old_as_the_oldest() -> None:
    one = table()
    for ring, raised_at in enumerate((100.0, 103.5, 104.0)):
        one.merge(Alert(AlertKind.REMOVE, 1, 1 << ring), raised_at)
    assert [(alert.rings, alert.age) for alert in one.all_alerts(105.0)] == [(0b011, 82), (0b100, 18)]


@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=10))
def test_travelling_makes_no_report_younger_and_hardly_older(ages: list[float]) -> None:
    here, there = table(), table()
    for ring, age in enumerate(ages):
        here.merge(Alert(AlertKind.REMOVE, 1, 1 << ring), 50.0 - age)
    for alert in here.all_alerts(50.0):
        there.merge(alert, 50.0)
    for ring, raised_at in here.removals[1].raised.items():
        assert raised_at - 4.0 <= there.removals[1].raised[ring] <= raised_at


def test_forgotten_reports_do_not_come_back_from_a_slower_peer() -> None:
    settings = Settings()
    here, there = table(settings), table(settings)
    for one in (here, there):
        one.merge(Alert(AlertKind.REMOVE, 1, 0b11), 0.0)
    assert here.forget(here.removals[1], older_than=1.0)
    assert here.empty
    assert here.digest(0) == table().digest(0)
    for alert in there.all_alerts(40.0):
        assert not here.merge(alert, 40.0)
    assert here.empty
    # A new report on the same ring is another matter.
    assert here.merge(Alert(AlertKind.REMOVE, 1, 0b01), 40.0)


@pytest.mark.parametrize("kind", [AlertKind.REMOVE, AlertKind.LEAVE, AlertKind.EVICT])
def test_what_is_forgotten_leaves_nothing_in_the_digest(kind: AlertKind) -> None:
    """Or it would differ for ever from that of who never heard of it, and each would send the other its table."""
    one = table()
    for alert in (Alert(AlertKind.REMOVE, 1, 0b001), Alert(kind, 1, 0b110)):
        assert one.merge(alert, 0.0)
    assert one.digest(0) != table().digest(0)
    assert one.forget(one.removals[1], older_than=0.0)
    assert one.digest(0) == table().digest(0)


def test_what_is_forgotten_is_no_news() -> None:
    one = table()
    one.merge(Alert(AlertKind.REMOVE, 1, 0b11), 0.0)
    assert not one.forget(one.removals[1], older_than=-1.0)
    assert one.forget(one.removals[1], older_than=0.0)
    assert one.take_changed(0.0) == []


def test_a_leave_is_news_where_a_failure_is_known_and_not_the_other_way_round() -> None:
    failure, leave, eviction = (
        Alert(kind, 1, 0b11) for kind in (AlertKind.REMOVE, AlertKind.LEAVE, AlertKind.EVICT)
    )
    one = table()
    one.merge(failure, 0.0)
    assert one.possible_news([failure, leave, eviction], 0.0) == [leave, eviction]
    assert one.merge(leave, 0.0)
    assert one.possible_news([failure, leave, eviction], 0.0) == [eviction]
    assert one.merge(eviction, 0.0)
    assert one.possible_news([failure, leave, eviction], 0.0) == []


def test_reports_older_than_noise_are_not_even_taken_in() -> None:
    settings = Settings()
    late = Alert(AlertKind.REMOVE, 1, 1, int(16 * settings.noise_lifetime))
    assert not table(settings).merge(late, 1000.0)


def test_b13_invented_joiners_fill_no_memory() -> None:
    from dataclasses import replace as changed

    one = table(changed(Settings(), joins_kept=10))
    for number in range(200, 300):
        one.merge(Alert(AlertKind.JOIN, -1, 1, 0, member(number)), 0.0)
    assert len(one.joins) == 10


removals = st.builds(
    Alert,
    st.sampled_from([AlertKind.REMOVE, AlertKind.LEAVE, AlertKind.EVICT]),
    st.integers(0, 2),
    st.integers(1, 1023),
    st.integers(0, 20),
)


@given(
    st.lists(st.tuples(st.floats(0, 5), removals), max_size=30),
    st.sampled_from([Settings(), Settings(noise_lifetime=6.0)]),
)
def test_what_is_passed_over_as_known_would_have_changed_nothing(
    history: list[tuple[float, Alert]], settings: Settings
) -> None:
    """The twin merges all; the table only what `possible_news` lets through. Now and then the old is forgotten."""
    picky, twin = table(settings), table(settings)
    now = 0.0
    for step, (pause, alert) in enumerate(history):
        now += pause
        for news in picky.possible_news([alert], now):
            picky.merge(news, now)
        twin.merge(alert, now)
        if step % 7 == 6:
            for one in (picky, twin):
                for report in list(one.removals.values()):
                    one.forget(report, now - 3.0)
        assert contents(picky) == contents(twin)
        assert picky.all_alerts(now) == twin.all_alerts(now)
        assert picky.take_changed(now) == twin.take_changed(now)


@given(st.lists(removals, max_size=12))
def test_accusers_are_the_observers_of_the_rings_that_reported(history: list[Alert]) -> None:
    merged = table()
    for alert in history:
        merged.merge(alert, 10.0)
    for subject, report in merged.removals.items():
        observers = VIEW.observers_of(VIEW.members[subject])
        accusing = {observer for ring, observer in enumerate(observers) if report.rings >> ring & 1}
        assert set(report.accusers) == accusing
        assert set(report.silent) == set(observers) - accusing
        assert len(report.accusers) + len(report.silent) == len(set(observers))
