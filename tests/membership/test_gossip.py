"""Gossip: bounded fan-out and size, spreading, and repair of what was lost. Source: Rapid section 6."""

from __future__ import annotations

import random

import pytest

from membership.address import Address
from membership.protocol import messages as wire
from membership.protocol.agreement.view_change import ViewChange
from membership.protocol.cut_detection.alert_table import AlertTable
from membership.protocol.dissemination.broadcaster import epidemic
from membership.protocol.dissemination.gossip import GossipSpreader
from membership.protocol.messages.sizes import GOSSIP_BYTES, alert_bytes, cut_bytes
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.settings import Settings


class Spreader:
    def __init__(self, lab, view, index: int = 0) -> None:
        self.context = lab.context(view, index, seed=index)
        self.table = AlertTable(view, self.context.settings)
        self.change = ViewChange(self.context)
        self.gossip = GossipSpreader(self.context, self.table, self.change, epidemic(), 0.0)

    def learn(self, alerts, now: float) -> None:
        changed = False
        for alert in alerts:
            changed |= self.table.merge(alert, now)
        if changed:
            self.gossip.wake(now)

    def tick(self, now: float) -> list:
        self.gossip.tick(now)
        return list(self.context.take_effects(now).sends)


def alert(subject: int, rings: int = 1) -> wire.Alert:
    return wire.Alert(wire.AlertKind.REMOVE, subject, rings)


def long_member(number: int) -> Member:
    address = Address(f"{'x' * 60}{number}.example", 7946)
    return Member.create(f"n{number}", address, random.Random(number).randbytes(16), {"rack": "r" * 300})


class TestOneMember:
    def test_news_goes_to_a_few_at_the_next_tick_and_then_it_is_quiet(self, lab) -> None:
        spreader = Spreader(lab, lab.configuration(50))
        spreader.learn([alert(3)], 0.0)
        assert 0 <= spreader.gossip.deadline <= Settings().gossip_interval
        (send,) = spreader.tick(spreader.gossip.deadline)
        assert len(send.destinations) == Settings().gossip_fanout
        assert spreader.context.me.address not in send.destinations
        assert [a.subject for a in send.message.alerts] == [3]
        sends, now = 0, 0.0
        while now < 10.0:
            now = spreader.gossip.deadline
            sends += len(spreader.tick(now))
        assert sends < 30, "it backs off: digests on probes find the rest"

    @pytest.mark.parametrize(
        ("awaited", "voted", "per_second", "told"),
        [(13, False, range(8, 12), 3), (12, False, range(16, 22), 4), (13, True, range(16, 22), 4)],
    )
    def test_while_many_reports_are_still_to_come_they_are_told_in_longer_steps_until_somebody_votes(
        self, lab, awaited: int, voted: bool, per_second: range, told: int
    ) -> None:
        spreader = Spreader(lab, lab.configuration(500))
        spreader.gossip.awaited = awaited
        if voted:
            spreader.change.propose(Cut.of([lab.member(900)]), 0.0)
        ticks = []
        for number in range(998):  # a report each 10 ms
            now = number * 0.01
            spreader.learn([alert(1 + number % 499, 1 << number // 499)], now)
            if spreader.gossip.deadline <= now and (sends := spreader.tick(now)):
                ticks.append(now)
                assert len(sends[0].destinations) == told
        assert all(sum(1 for now in ticks if start <= now < start + 1) in per_second for start in range(2, 9))

    def test_one_without_news_tells_only_two_members(self, lab) -> None:
        spreader = Spreader(lab, lab.configuration(50))
        spreader.learn([alert(3)], 0.0)
        (news,) = spreader.tick(spreader.gossip.deadline)
        (digest,) = spreader.tick(spreader.gossip.deadline)
        assert (len(news.destinations), len(digest.destinations)) == (Settings().gossip_fanout, 2)
        assert not digest.message.alerts

    def test_without_anything_to_say_it_is_silent(self, lab) -> None:
        spreader = Spreader(lab, lab.configuration(50))
        assert spreader.gossip.deadline == float("inf")
        assert not spreader.tick(1.0)

    def test_suspected_members_are_not_told(self, lab) -> None:
        spreader = Spreader(lab, lab.configuration(6))
        spreader.change.suspected = frozenset({1, 2})
        told = {
            m.name for _ in range(50) for m in spreader.gossip.random_members(4, spreader.change.suspected)
        }
        view = spreader.context.view
        assert told == {view.members[index].name for index in (3, 4, 5)}
        # ... unless nobody else is left.
        everybody = frozenset(range(1, 6))
        assert len(spreader.gossip.random_members(2, everybody)) == 2

    def test_random_members_are_distinct_and_never_this_one(self, lab) -> None:
        for size in (1, 2, 3, 5, 40):
            spreader = Spreader(lab, lab.configuration(size))
            for _ in range(30):
                chosen = spreader.gossip.random_members(4)
                assert len(set(chosen)) == len(chosen) == min(4, size - 1)
                assert spreader.context.me not in chosen

    def test_every_datagram_stays_below_1400_bytes(self, lab) -> None:
        """A storm of joins with long names must be cut into several datagrams."""
        spreader = Spreader(lab, lab.configuration(50))
        joins = [wire.Alert(wire.AlertKind.JOIN, -1, 1023, 0, long_member(n)) for n in range(100, 180)]
        removals = [alert(subject, 1023) for subject in range(1, 50)]
        spreader.learn([*joins, *removals], 0.0)
        spreader.change.propose(Cut.of([lab.member(200)]), 0.0)
        sends = spreader.tick(1.0)
        assert len(sends) > 20
        assert max(len(wire.encode(send.message)) for send in sends) <= Settings().datagram_payload
        told = [a for send in sends for a in send.message.alerts]
        assert len(told) == len(joins) + len(removals)

    def test_size_bounds_are_bounds(self, lab) -> None:
        def full(one: wire.Alert) -> wire.Gossip:
            digest = wire.Digest((1 << 32) - 1, (1 << 40) - 1, (1 << 40) - 1)
            return wire.Gossip(b"s" * 8, 1 << 60, b"c" * 8, digest, (one,))

        for number in (1, 100, 10_000):
            join = wire.Alert(wire.AlertKind.JOIN, -1, (1 << 60) - 1, 0, long_member(number))
            remove = wire.Alert(wire.AlertKind.REMOVE, 1 << 20, (1 << 60) - 1, 1 << 20)
            for one in (join, remove):
                assert len(wire.encode(full(one))) <= alert_bytes(one) + GOSSIP_BYTES
        cut = Cut.of([long_member(number) for number in range(20)])
        assert len(wire.encode(wire.CutBody(b"s" * 16, 1 << 40, b"c" * 16, cut))) <= cut_bytes(cut)


class TestRepair:
    def pair(self, lab) -> tuple[Spreader, Spreader]:
        view = lab.configuration(50)
        return Spreader(lab, view, 0), Spreader(lab, view, 1)

    def quieten(self, spreader: Spreader, now: float) -> float:
        while spreader.gossip.deadline < now:
            spreader.tick(spreader.gossip.deadline)
        return now

    def test_b12_a_peer_that_missed_something_gets_everything(self, lab) -> None:
        informed, other = self.pair(lab)
        informed.learn([alert(3), alert(4, 7)], 0.0)
        now = self.quieten(informed, 2.0)
        informed.gossip.compare(other.context.index, other.gossip.digest(), now)
        for send in informed.context.take_effects(now).sends:
            assert send.destinations == (other.context.me.address,)
            other.learn(send.message.alerts, now)
        assert other.gossip.digest() == informed.gossip.digest()

    def test_b12_one_who_knows_less_asks(self, lab) -> None:
        informed, other = self.pair(lab)
        informed.learn([alert(3)], 0.0)
        other.gossip.compare(informed.context.index, informed.gossip.digest(), 2.0)
        (send,) = other.context.take_effects(2.0).sends
        assert send.message.digest == other.gossip.digest()

    def test_b12_as_many_but_other_reports_are_exchanged_too(self, lab) -> None:
        informed, other = self.pair(lab)
        informed.learn([alert(3)], 0.0)
        other.learn([alert(4)], 0.0)
        now = max(self.quieten(informed, 2.0), self.quieten(other, 2.0))
        informed.gossip.compare(other.context.index, other.gossip.digest(), now)
        assert [a.subject for a in informed.context.take_effects(now).sends[0].message.alerts] == [3]

    def test_equal_digests_cost_nothing(self, lab) -> None:
        informed, other = self.pair(lab)
        for one in (informed, other):
            one.learn([alert(3)], 0.0)
            self.quieten(one, 2.0)
        informed.gossip.compare(other.context.index, other.gossip.digest(), 2.0)
        assert not informed.context.take_effects(2.0).sends

    def test_repairs_are_bounded_per_tick(self, lab) -> None:
        """Behind a partition that heals, everybody has missed everything at once."""
        informed, other = self.pair(lab)
        informed.learn([alert(3)], 0.0)
        now = self.quieten(informed, 2.0)
        for _ in range(100):
            informed.gossip.compare(other.context.index, other.gossip.digest(), now)
        assert len(informed.context.take_effects(now).sends) <= 3

    def test_while_news_spreads_by_itself_nothing_is_repaired(self, lab) -> None:
        informed, other = self.pair(lab)
        informed.learn([alert(3)], 0.0)
        informed.gossip.compare(other.context.index, other.gossip.digest(), 0.0)
        assert not informed.context.take_effects(0.0).sends

    def test_a_large_repair_is_one_stream_frame(self, lab) -> None:
        informed, other = self.pair(lab)
        joins = [wire.Alert(wire.AlertKind.JOIN, -1, 1023, 0, long_member(n)) for n in range(100, 180)]
        informed.learn(joins, 0.0)
        now = self.quieten(informed, 2.0)
        informed.gossip.compare(other.context.index, other.gossip.digest(), now)
        (send,) = informed.context.take_effects(now).sends
        assert send.reliable
        assert len(send.message.alerts) == 80


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_everybody_learns_everything_in_a_few_ticks(lab, loss: float) -> None:
    """One tells four; 200 members; digests repair what is lost."""
    view = lab.configuration(200)
    rng = random.Random(1)
    spreaders = [Spreader(lab, view, index) for index in range(200)]
    for number in range(20):
        spreaders[number].learn([alert(number + 50)], 0.0)
    now, ticks = 0.0, 0
    while len({spreader.gossip.digest() for spreader in spreaders}) > 1:
        now += 0.05
        ticks += 1
        assert ticks < 60
        for index, spreader in enumerate(spreaders):
            for send in spreader.tick(now):
                for address in send.destinations:
                    if rng.random() >= loss:
                        receiver = spreaders[view.index_of_address(address)]
                        receiver.learn(send.message.alerts, now)
                        receiver.gossip.compare(index, send.message.digest, now)
    assert spreaders[0].table.alert_bits == 20
    assert ticks <= (14 if loss == 0 else 40)
