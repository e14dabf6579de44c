"""The rules of *Stable and Consistent Membership at Scale with Rapid* (USENIX ATC 2018), one by one, with their
sections.

On whole cores in a group that stands; the parts have finer tests (rings, cut detector, view change, consensus).
Where the specification decides something beyond the paper, the test says so.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from consensus import fast_quorum
from membership.protocol import messages as wire
from membership.protocol.context.effects import Evicted
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.view.cut import Cut
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings
from tests.membership.group import Group

K, H, L = Settings().rings, Settings().high_watermark, Settings().low_watermark


def accuse_on(group: Group, subject: int, rings: int) -> list[int]:
    """Let observers report the subject on exactly so many rings; who did. Each is healthy itself."""
    told: list[int] = []
    for observer, mask in group.view.observer_masks(group.view.members[subject]):
        if mask.bit_count() <= rings:
            rings -= mask.bit_count()
            group.accuse(observer, subject)
            told.append(observer)
    assert rings == 0, "no set of observers has that many rings: take another subject"
    return told


def know(group: Group, subject: int, rings: int, indices: Iterable[int] | None = None) -> bool:
    """Whether everybody has this tally of the subject."""
    found = []
    for index in range(len(group.cores)) if indices is None else indices:
        instance = group.cores[index]._instance
        assert instance is not None
        report = instance.table.removals.get(subject)
        found.append(0 if report is None else report.rings.bit_count())
    return set(found) == {rings}


class TestOverlay:
    """Section 4.1: expander-based monitoring."""

    def test_4_1_everybody_has_k_observers_and_k_subjects_and_both_sides_agree(self, lab) -> None:
        view = lab.configuration(30)
        for member in view.members:
            assert len(view.observers_of(member)) == K
            assert len(view.subjects_of(member)) == K
            for ring, observer in enumerate(view.observers_of(member)):
                assert view.members[view.subjects_of(view.members[observer])[ring]] == member

    def test_4_1_the_overlay_follows_from_the_membership_alone(self, lab) -> None:
        """Nobody distributes it: whoever has the members has the edges, in whatever order they came in."""
        one = lab.configuration(20)
        other = lab.configuration(1)
        for number in reversed(range(1, 20)):
            other = other.apply(Cut.of([lab.member(number)]))
        assert one.members == other.members
        assert [one.observers_of(member) for member in one.members] == [
            other.observers_of(member) for member in other.members
        ]

    def test_4_1_the_rings_differ_from_each_other(self, lab) -> None:
        view = lab.configuration(50)
        orders = [tuple(member.name for member in order) for order in view.rings.orders]
        assert len({*orders}) == K

    @pytest.mark.parametrize("size", [100, 200])
    def test_4_1_the_overlay_is_an_expander(self, lab, size: int) -> None:
        """The paper measures a second eigenvalue below 0.45 of the degree for K = 10: so no small set of faulty
        members can watch a healthy one among themselves. By power iteration, orthogonal to the constant vector."""
        view = lab.configuration(size)
        edges = [view.observers_of(member) for member in view.members]
        rng = random.Random(size)
        vector = [rng.uniform(-1, 1) for _ in range(size)]
        growth = 0.0
        for _ in range(60):
            mean = sum(vector) / size
            vector = [x - mean for x in vector]
            length = sum(x * x for x in vector) ** 0.5
            vector = [x / length for x in vector]
            image = [0.0] * size
            for subject, observers in enumerate(edges):
                for observer in observers:
                    image[observer] += vector[subject]
                    image[subject] += vector[observer]
            growth = sum(x * x for x in image) ** 0.5
            vector = image
        assert growth / (2 * K) < 0.45

    def test_4_1_an_edge_is_watched_by_its_observer_only(self, lab) -> None:
        group = Group(lab, 12)
        group.run(5.0)
        for index, core in enumerate(group.cores):
            watched = {
                group.view.index_of_incarnation(edge.subject.incarnation) for edge in core._monitor.subjects
            }
            assert watched == set(group.view.subjects_of(group.view.members[index]))


class TestAlerts:
    """Sections 4.1 and 4.2: reports."""

    def test_4_1_a_report_reaches_everybody(self, lab) -> None:
        group = Group(lab, 20)
        accuse_on(group, 3, 1)
        assert group.run(2.0, lambda: know(group, 3, 1))

    def test_4_1_reports_are_irrevocable(self, lab) -> None:
        """The subject has answered all the time. (Beyond the paper: noise is forgotten after a lifetime.)"""
        group = Group(lab, 20)
        accuse_on(group, 3, 2)
        group.run(Settings().noise_lifetime * 0.8)
        assert know(group, 3, 2)
        group.run(Settings().noise_lifetime)
        assert know(group, 3, 0)

    def test_4_2_reports_of_one_configuration_mean_nothing_in_the_next(self, lab) -> None:
        group = Group(lab, 20)
        accuse_on(group, 3, L - 1)
        group.run(1.0)
        joiner = lab.member(50)
        for index in range(20):
            group.propose(index, Cut.of([joiner]))
        assert group.run(2.0, lambda: group.together(2))
        group.run(2.0)
        assert all(core._instance is not None and core._instance.table.empty for core in group.cores)

    def test_4_2_a_ring_counts_once_however_often_it_reports(self, lab) -> None:
        group = Group(lab, 20)
        (observer,) = accuse_on(group, 3, 1)
        for _ in range(12):
            group.run(0.2)
            group.accuse(observer, 3)
        group.run(1.0)
        assert know(group, 3, 1)
        assert all(core.configuration is group.view for core in group.cores)


class TestCutDetection:
    """Section 4.2: multi-process cut detection."""

    def test_4_2_below_l_is_noise_and_holds_up_nobody(self, lab) -> None:
        group = Group(lab, 20)
        accuse_on(group, 3, L - 1)
        accuse_on(group, 7, H)
        assert group.run(2.0, lambda: all(core.configuration.epoch == 2 for core in group.cores[:7]))
        assert group.cores[0].configuration.member(group.cores[3].me.name) is not None
        assert group.cores[0].configuration.member(group.cores[7].me.name) is None

    def test_4_2_between_l_and_h_everybody_waits(self, lab) -> None:
        settings = Settings(reinforcement_timeout=50.0, blind_reinforcement_timeout=60.0)
        group = Group(lab, 20, settings=settings)
        accuse_on(group, 3, L)
        group.run(0.5)
        accuse_on(group, 7, H)
        group.run(4.0)
        assert all(core.configuration is group.view for core in group.cores)

    def test_4_2_what_was_waited_for_goes_into_the_same_cut(self, lab) -> None:
        """The subject in between becomes stable two seconds later: one view change removes both."""
        settings = Settings(reinforcement_timeout=50.0, blind_reinforcement_timeout=60.0)
        group = Group(lab, 20, settings=settings)
        first = accuse_on(group, 3, L)
        group.run(0.5)
        accuse_on(group, 7, H)
        group.run(2.0)
        for observer, _ in group.view.observer_masks(group.view.members[3]):
            if observer not in first:
                group.accuse(observer, 3)
        assert group.run(2.0, lambda: all(group.cores[index].configuration.epoch == 2 for index in (0, 1, 2)))
        group.run(2.0)
        gone = {member.name for _, _, event in group.seen(ViewChanged) for member in event.failed}
        assert gone == {group.cores[3].me.name, group.cores[7].me.name}
        assert max(group.chain) == 2

    def test_4_2_an_accused_observer_counts_as_having_reported(self, lab) -> None:
        """Implicit alerts: 3 observes 7 and both are dead, so nobody but the others can report 7."""
        group = Group(
            lab, 20, settings=Settings(reinforcement_timeout=50.0, blind_reinforcement_timeout=60.0)
        )
        subject = 7
        masks = dict(group.view.observer_masks(group.view.members[subject]))
        silent = next(
            (one, other)
            for one in masks
            for other in masks
            if one < other and masks[one].bit_count() + masks[other].bit_count() > K - H
        )
        for observer in masks:
            if observer not in silent:
                group.accuse(observer, subject)
        group.run(2.0)
        assert all(core.configuration is group.view for core in group.cores), "without the two it is unstable"
        for dead in silent:
            for observer, _ in group.view.observer_masks(group.view.members[dead]):
                if observer not in silent:
                    group.accuse(observer, dead)
        watcher = next(index for index in range(20) if index not in (subject, *silent))
        assert group.run(3.0, lambda: group.cores[watcher].configuration.epoch == 2)
        left = group.cores[watcher].configuration
        assert all(left.member(group.cores[index].me.name) is None for index in (subject, *silent))

    def test_4_2_who_stays_unstable_is_reported_by_its_other_observers(self, lab) -> None:
        """Reinforcement: so that liveness does not hang on observers that saw nothing."""
        group = Group(lab, 20)
        accuse_on(group, 3, L + 1)
        limit = Settings().blind_reinforcement_timeout + 2.0
        assert group.run(
            limit, lambda: all(group.cores[index].configuration.epoch == 2 for index in (0, 1, 2))
        )
        assert "removals reinforced" in {name for core in group.cores for name in core.statistics()}

    def test_4_2_a_member_proposes_once_in_a_configuration(self, lab) -> None:
        group = Group(lab, 20)
        group.lost = lambda sender, receiver, message: True  # nobody hears anybody, so nothing is decided
        group.propose(0, group.cut(3))
        group.propose(0, group.cut(3, 4))
        instance = group.cores[0]._instance
        assert instance is not None
        assert list(instance.change._fast.votes) == [group.cut(3).hash]


class TestViewChange:
    """Section 4.3: leaderless consensus on the cut."""

    @pytest.mark.parametrize("size", [4, 5, 9, 20])
    def test_4_3_three_quarters_of_equal_votes_decide_without_a_leader(self, lab, size: int) -> None:
        group = Group(lab, size)
        cut = group.cut(joins=[lab.member(50)])
        for index in range(fast_quorum(size)):
            group.propose(index, cut)
        assert group.run(0.9, lambda: group.together(2)), "sooner than any coordinator would begin"
        assert not any(isinstance(message, wire.Prepare | wire.Accept) for _, _, message in group.sent)

    @pytest.mark.parametrize("size", [5, 9, 20])
    def test_4_3_one_vote_less_does_not(self, lab, size: int) -> None:
        """(Beyond the paper a majority's votes are adopted by the rest; here the rest hears nothing.)"""
        group = Group(lab, size)
        voting = fast_quorum(size) - 1
        group.lost = lambda sender, receiver, message: receiver >= voting
        cut = group.cut(joins=[lab.member(50)])
        for index in range(voting):
            group.propose(index, cut)
        group.run(0.9)
        assert all(core.configuration is group.view for core in group.cores)

    def test_4_3_conflicting_proposals_are_settled_by_classic_rounds(self, lab) -> None:
        group = Group(lab, 9)
        cuts = [group.cut(joins=[lab.member(50)]), group.cut(joins=[lab.member(51)])]
        for index in range(9):
            group.propose(index, cuts[index % 2])
        assert group.run(10.0, lambda: group.together(2))
        assert any(isinstance(message, wire.Accept) for _, _, message in group.sent)
        assert group.cores[0].configuration.id in {group.view.apply(cut).id for cut in cuts}

    def test_4_3_what_a_fast_quorum_may_have_decided_the_classic_round_decides_too(self, lab) -> None:
        """A fast quorum voted for one cut, but nobody hears the votes; whoever coordinates must find it."""
        group = Group(lab, 9)
        quorum = fast_quorum(9)
        decided, other = group.cut(joins=[lab.member(50)]), group.cut(joins=[lab.member(51)])
        group.lost = lambda sender, receiver, message: isinstance(message, wire.Gossip)
        for index in range(9):
            group.propose(index, decided if index < quorum else other)
        assert group.run(30.0, lambda: group.together(2))
        assert {core.configuration.id for core in group.cores} == {group.view.apply(decided).id}

    def test_4_3_a_minority_decides_nothing(self, lab) -> None:
        group = Group(lab, 9)
        group.crash(4, 5, 6, 7, 8)
        for index in range(4):
            group.propose(index, group.cut(4, 5, 6, 7, 8))
        group.run(60.0)
        assert all(core.configuration is group.view for core in group.alive())

    def test_4_3_every_view_follows_from_the_one_before(self, lab) -> None:
        group = Group(lab, 6)
        ids = [group.view.id]
        for step in range(4):
            for index in range(6):
                group.propose(index, Cut.of([lab.member(50 + step)]))
            assert group.run(3.0, lambda step=step: group.together(2 + step))
            group.run(0.5)
            ids.append(group.cores[0].configuration.id)
        assert len(set(ids)) == 5
        assert [group.chain[epoch][0] for epoch in sorted(group.chain)] == ids[1:]


class TestJoining:
    """Section 4.1: joins; section 3: who is removed comes back as somebody else."""

    def joiner(self, lab: Any, group: Group, number: int, incarnation: int = 0) -> int:
        core = Core(
            lab.member(number, incarnation=incarnation, metadata={"rack": "r1"}),
            seeds=[group.cores[0].me.address],
            settings=group.settings,
            rng=random.Random(number),
        )
        return group.join(core)

    def test_4_1_a_joiner_is_reported_by_the_observers_it_would_have(self, lab) -> None:
        group = Group(lab, 20)
        joiner = self.joiner(lab, group, 50)
        assert group.run(5.0, lambda: group.cores[joiner].status is Status.MEMBER)
        reports = [
            (sender, alert)
            for _, sender, message in group.sent
            if isinstance(message, wire.Gossip)
            for alert in message.alerts
            if alert.member is not None
        ]
        assert {alert.member for _, alert in reports} == {group.cores[joiner].me}, "the whole record travels"
        rings = 0
        for _, alert in reports:
            rings |= alert.rings
        assert rings.bit_count() >= H

    def test_4_1_it_gets_the_whole_view_over_a_stream_when_it_is_in(self, lab) -> None:
        group = Group(lab, 20)
        joiner = self.joiner(lab, group, 50)
        assert group.run(5.0, lambda: group.cores[joiner].status is Status.MEMBER)
        whole = [message for _, _, message in group.sent if isinstance(message, wire.FullConfiguration)]
        assert whole
        assert group.cores[joiner].configuration.id == group.cores[0].configuration.id

    def test_4_1_joins_and_removals_go_into_one_cut(self, lab) -> None:
        group = Group(lab, 20)
        joiner = self.joiner(lab, group, 50)
        accuse_on(group, 3, H)
        assert group.run(5.0, lambda: group.cores[joiner].status is Status.MEMBER)
        group.run(1.0)
        assert max(group.chain) == 2
        assert group.cores[joiner].configuration.member(group.cores[3].me.name) is None

    def test_3_who_was_removed_is_told_and_its_incarnation_never_returns(self, lab) -> None:
        group = Group(lab, 12)
        victim = group.cores[5].me
        for index in range(12):
            if index != 5:
                group.propose(index, group.cut(5))
        assert group.run(3.0, lambda: group.cores[5].status is Status.EVICTED)
        assert [who for _, who, _ in group.seen(Evicted)] == [5]
        effects = group.cores[5].tick(group.now + 100.0)
        assert effects.wake_at == float("inf")
        assert not effects.sends
        with pytest.raises(ValueError, match="not a member"):
            group.cores[0].configuration.apply(group.cut(5))
        assert group.cores[0].configuration.index_of_incarnation(victim.incarnation) is None

    def test_3_everybody_sees_the_same_changes_in_the_same_order(self, lab) -> None:
        group = Group(lab, 9)
        for step in range(3):
            for index in range(9):
                group.propose(index, Cut.of([lab.member(50 + step)]))
            group.run(2.0)
        histories = {
            tuple(
                (
                    event.configuration.epoch,
                    event.configuration.id,
                    tuple(member.name for member in event.joined),
                )
                for _, _, event in group.seen(ViewChanged, index)
            )
            for index in range(9)
        }
        assert len(histories) == 1
        assert len(histories.pop()) == 3
