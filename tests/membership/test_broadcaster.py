"""Broadcasters: epidemic and unicast to all, and what they have in common. Source: Rapid section 6."""

from __future__ import annotations

from typing import Any

import pytest

import membership
from chaos import Cluster, NetworkSettings
from chaos.faults import Crash
from membership import Broadcaster, InMemoryNetwork, JoinArgumentError, Mode, Settings, SettingsError
from membership.protocol import messages as wire
from membership.protocol.core.view_instance import ViewInstance
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.cut import Cut
from tests.budget import budgeted

BOTH = [membership.epidemic(), membership.unicast_to_all()]


class Member:
    """One member's instance; its own reports and what others gossip go in, gossip comes out."""

    def __init__(self, lab: Any, broadcaster: Broadcaster, size: int = 30) -> None:
        self.view = lab.configuration(size)
        self.context = lab.context(self.view, 0)
        self.instance = ViewInstance(self.context, Monitor(self.context), broadcaster, 0.0)
        self.now = 0.0

    def report(self, subject: int, rings: int = 1) -> None:
        self.instance.table.merge(wire.Alert(wire.AlertKind.REMOVE, subject, rings), self.now)
        self.instance.gossip.wake(self.now)

    def hear(self, subject: int, rings: int = 1, votes: Any = ()) -> None:
        digest = self.instance.table.digest(0)
        alerts = (wire.Alert(wire.AlertKind.REMOVE, subject, rings),)
        self.instance.handle(wire.Gossip(*self.context.short_header, digest, alerts, votes), 5, self.now)

    def told(self, seconds: float) -> list[Any]:
        """The gossip sent in the next seconds, without the probes."""
        sends: list[Any] = []
        end = self.now + seconds
        while self.instance.deadline <= end:
            self.now = max(self.now, self.instance.deadline)
            self.instance.tick(self.now)
            sends += self.context.take_effects(self.now).sends
        self.now = end
        return [send for send in sends if isinstance(send.message, wire.Gossip)]


def foreign_rings(member: Member, subject: int) -> int:
    """Rings of a subject that this member does not observe: its own are not believed from others."""
    return 1023 & ~member.instance.reporter.own_rings(member.view.members[subject])


class TestUnicastToAll:
    def test_own_news_goes_to_everybody_at_once(self, lab) -> None:
        member = Member(lab, membership.unicast_to_all())
        member.report(3)
        news = [send for send in member.told(3.0) if send.message.alerts]
        (send,) = news
        assert len(set(send.destinations)) == 29

    def test_what_others_say_is_not_told_on(self, lab) -> None:
        member = Member(lab, membership.unicast_to_all())
        member.hear(3, foreign_rings(member, 3) & 0b11111)
        assert member.instance.table.removals[3].rings, "it is believed"
        told = member.told(3.0)
        assert not [send for send in told if send.message.alerts]
        assert told, "digests still find who missed it"

    def test_news_of_others_does_not_hide_own_news(self, lab) -> None:
        member = Member(lab, membership.unicast_to_all())
        member.report(3)
        member.hear(4, foreign_rings(member, 4) & 0b1111)
        (send,) = [send for send in member.told(3.0) if send.message.alerts]
        assert [alert.subject for alert in send.message.alerts] == [3]

    def test_the_own_vote_goes_to_everybody_and_votes_of_others_do_not(self, lab) -> None:
        member = Member(lab, membership.unicast_to_all())
        cut = Cut.of([lab.member(900)])
        member.hear(4, foreign_rings(member, 4) & 1, ((cut.hash, b"\x06\x00\x00\x00"),))
        assert all(len(send.destinations) <= 4 for send in member.told(1.0))
        member.instance.change.propose(cut, member.now)
        member.instance.gossip.wake(member.now)
        to_all = [send for send in member.told(1.0) if len(send.destinations) == 29]
        (send,) = to_all
        ((value, bitmap),) = send.message.votes
        assert (value, bitmap[0]) == (cut.hash, 0b111)


def test_epidemic_tells_a_few_and_what_others_say_too(lab) -> None:
    member = Member(lab, membership.epidemic(3))
    member.report(3)
    member.told(1.0)
    member.hear(4, foreign_rings(member, 4) & 0b1111)
    (send,) = [send for send in member.told(1.0) if send.message.alerts]
    assert [alert.subject for alert in send.message.alerts] == [4]
    assert len(send.destinations) == 3


def standing(nodes: int, broadcaster: Broadcaster, *, seed: int, loss: float = 0.0) -> Cluster:
    """All in one view, and quiet."""
    cluster = Cluster(nodes, seed=seed, network=NetworkSettings(loss=loss), broadcaster=broadcaster)
    cluster.start()
    assert cluster.run(60.0, stop=lambda: cluster.converged() and cluster.views[-1].size == nodes)
    cluster.run(cluster.now + 3.0)
    return cluster


@pytest.mark.parametrize("broadcaster", BOTH, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("seed", budgeted(range(3), 1, in_test=1))
def test_twenty_percent_loss_and_no_acknowledgements(broadcaster: Broadcaster, seed: int) -> None:
    """Everybody joins, three of forty die together, one view change removes exactly them."""
    cluster = standing(40, broadcaster, seed=seed, loss=0.2)
    before = len(cluster.views)
    cluster.apply(Crash(("n3", "n17", "n31")))
    cluster.run(cluster.now + 30.0)
    (change,) = cluster.views[before:]
    assert set(change.removed) == {"n3", "n17", "n31"}
    assert cluster.converged()


def cost_of_a_leave(broadcaster: Broadcaster) -> tuple[float, int]:
    """Virtual seconds and messages until everybody stands in the view without it."""
    cluster = standing(30, broadcaster, seed=1)
    sent, began, views = cluster.simulator.sent, cluster.now, len(cluster.views)
    cluster.simulator.command(cluster.hosts["n5"], lambda core, now: core.leave(now))
    assert cluster.run(began + 10.0, stop=lambda: len(cluster.views) > views and cluster.converged())
    return cluster.last_installation - began, cluster.simulator.sent - sent


def test_unicast_takes_less_time_and_more_messages() -> None:
    epidemic, unicast = map(cost_of_a_leave, BOTH)
    assert unicast[0] < epidemic[0]
    assert unicast[1] > epidemic[1]


async def test_who_cannot_use_one_is_told() -> None:
    with pytest.raises(SettingsError, match="at least 1 member"):
        membership.epidemic(0)
    with pytest.raises(JoinArgumentError, match="epidemic"):
        async with membership.join("127.0.0.1:0", broadcaster="unicast", network=InMemoryNetwork()):  # type: ignore[arg-type]
            pass
    with pytest.raises(JoinArgumentError, match="only the ensemble is told"):
        async with membership.join(
            "127.0.0.1:0",
            ["127.0.0.1:1"],
            mode=Mode.CENTRALISED,
            broadcaster=membership.unicast_to_all(),
            network=InMemoryNetwork(),
            settings=Settings.local(),
        ):
            pass
