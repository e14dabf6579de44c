"""Who runs late does less: a machine without time to spare must not be kept late by its own members."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from membership.protocol import messages as wire
from membership.protocol.agreement.view_change import ViewChange
from membership.protocol.context.loop_lag import LoopLag
from membership.protocol.cut_detection.alert_batch import AlertBatch
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.dissemination.broadcaster import epidemic
from membership.protocol.dissemination.gossip import GossipSpreader
from membership.protocol.messages import Digest
from membership.protocol.monitoring.monitor import Monitor
from membership.settings import Settings


def late_by(seconds: float) -> LoopLag:
    loop_lag = LoopLag()
    for _ in range(200):
        loop_lag.note(seconds)
    return loop_lag


@given(st.lists(st.floats(min_value=-10.0, max_value=0.02)))
def test_timers_are_only_so_precise(measured: list[float]) -> None:
    loop_lag = LoopLag()
    for late in measured:
        loop_lag.note(late)
    assert loop_lag.seconds == 0.0
    assert loop_lag.stretched(1.5, 16) == 1.5


@given(st.lists(st.floats(min_value=0.0, max_value=1e6), max_size=50))
def test_periods_grow_within_bounds_and_come_back_to_exactly_what_they_were(measured: list[float]) -> None:
    loop_lag = LoopLag()
    for late in measured:
        loop_lag.note(late)
        assert 0.0 <= loop_lag.seconds <= 1.0
        assert 1.0 <= loop_lag.stretched(1.0, 2) <= 2.0
    for _ in range(60):
        loop_lag.note(0.0)
    assert loop_lag.seconds == 0.0


def test_one_long_stop_counts_little_and_steady_lateness_in_full() -> None:
    stopped = LoopLag()
    stopped.note(30.0)
    assert stopped.seconds < 0.13
    assert 0.25 < late_by(0.3).seconds < 0.3


def probes_in(seconds: float, lab, loop_lag: LoopLag) -> int:
    """Of a member that never rests."""
    settings = Settings()
    context = lab.context(lab.configuration(30), settings=replace(settings, idle_probes=settings.rings))
    context.loop_lag = loop_lag
    monitor = Monitor(context)
    monitor.on_view_change(0.0)
    probes = 0
    while monitor.deadline <= seconds:
        now = monitor.deadline
        monitor.tick(now, Digest())
        for send in context.take_effects(0.0).sends:
            if isinstance(send.message, wire.Probe):
                probes += len(send.destinations)
                for address in send.destinations:
                    index = context.view.index_of_address(address)
                    assert index is not None
                    incarnation = context.view.members[index].incarnation
                    monitor.on_acknowledgement(incarnation, send.message.sequence, now)
    return probes


def test_a_late_member_probes_up_to_half_as_often(lab) -> None:
    usual = probes_in(20.0, lab, LoopLag())
    assert usual // 2 <= probes_in(20.0, lab, late_by(10.0)) <= usual // 2 + usual // 20
    assert usual // 2 < probes_in(20.0, lab, late_by(0.1)) < usual


def test_a_late_member_gossips_less_often(lab) -> None:
    def ticks(loop_lag: LoopLag) -> int:
        context = lab.context(lab.configuration(50))
        context.loop_lag = loop_lag
        table = AlertTable(context.view, context.settings)
        gossip = GossipSpreader(context, table, ViewChange(context), epidemic(), 0.0)
        count = 0
        for number in range(400):  # news all the time, for ten seconds
            now = number * 0.025
            table.merge(wire.Alert(wire.AlertKind.REMOVE, 1 + number % 49, 1 << (number // 49)), now)
            gossip.wake(now)
            if now >= gossip.deadline:
                gossip.tick(now)
                count += 1
        return count

    assert ticks(LoopLag()) > 70
    assert ticks(late_by(0.2)) < 15


def test_a_late_member_waits_longer_for_further_joiners(lab) -> None:
    settings = Settings()
    for loop_lag, factor in ((LoopLag(), 1), (late_by(10.0), 4)):
        batch = AlertBatch(settings, 200, loop_lag)
        batch.add_join(lab.member(900), 1, 0.0)
        assert batch.deadline == settings.join_batch_quiet * factor
        now = 0.0
        for number in range(901, 999):
            now = min(now + 0.09, settings.join_batch_cap * factor)
            batch.add_join(lab.member(number), 1, now)
        assert batch.deadline == settings.join_batch_cap * factor
