"""The dispatcher: who may say what in which configuration; catching up; leaving; losing the quorum.

The defects named b1 to b20 are those of the specification, section 5.
"""

from __future__ import annotations

import itertools
import random

import pytest

from membership.address import Address
from membership.protocol import messages as wire
from membership.protocol.context.effects import Dropped, Effects, Evicted, Left, QuorumLost, QuorumRegained
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

SOMEWHERE = Address("10.9.9.9", 9)


def hear(core: Core, message: wire.Message, now: float) -> Effects:
    """The core receives this from the address of its sender, as the core knows it."""
    view = core.configuration
    index = None
    if view is not None and isinstance(message, wire.MemberMessage):
        index = view.index_of_sender(message.sender)
    source = SOMEWHERE if view is None or index is None else view.members[index].address
    return core.receive(source, message, now)


def header(view, index: int = 1) -> tuple[bytes, int, bytes]:
    return (view.members[index].incarnation, view.epoch, view.id)


def short_header(view, index: int = 1) -> tuple[bytes, int, bytes]:
    return (view.members[index].incarnation[:8], view.epoch, view.short_id)


def probe(view, index: int = 1) -> wire.Probe:
    return wire.Probe(*short_header(view, index), 5, None)


def messages(effects, kind) -> list:
    return [send.message for send in effects.sends if isinstance(send.message, kind)]


class TestFounding:
    def test_a_founder_is_a_cluster_of_one(self, lab) -> None:
        core = Core(lab.member(0), seeds=[], settings=Settings(), rng=random.Random(1), found=True)
        event, _to_save = core.start(0.0).events
        assert isinstance(event, ViewChanged)
        assert event.joined == (lab.member(0),)
        assert event.configuration.epoch == 0
        assert core.status is Status.MEMBER
        assert len(core.cluster_id) == 16

    def test_two_founders_never_merge(self, lab) -> None:
        """They have different cluster ids, so also different histories."""
        cores = [
            Core(lab.member(n), seeds=[], settings=Settings(), rng=random.Random(n), found=True)
            for n in (0, 1)
        ]
        for core in cores:
            core.start(0.0)
        view = cores[1].configuration
        effects = hear(cores[0], probe(view, 0), 1.0)
        assert not effects.sends
        assert isinstance(effects.events[0], Dropped)


class TestAuthority:
    """b14: no signer checks, one forged packet evicts anybody."""

    @pytest.fixture
    def view(self, lab):
        return lab.configuration(12)

    @pytest.fixture
    def core(self, lab, view) -> Core:
        return lab.core_in(view)

    def test_b14_a_sender_that_is_not_in_the_view(self, core: Core, view) -> None:
        forged = wire.LeaveRequest(b"somebody else...", view.epoch, view.id)
        assert hear(core, forged, 1.0).events == (Dropped("a message whose sender is not in the view"),)

    def test_b14_another_history(self, core: Core, view) -> None:
        forged = wire.Gossip(view.members[1].incarnation[:8], view.epoch, b"x" * 8, wire.Digest())
        hear(core, forged, 1.0)
        assert core.statistics()["dropped: a message from another history of this cluster"] == 1

    def test_b14_a_report_on_the_rings_of_this_member_that_it_did_not_make(self, core: Core, view) -> None:
        subject = view.subjects_of(core.me)[0]
        own = dict(view.observer_masks(view.members[subject]))[0]
        alert = wire.Alert(wire.AlertKind.REMOVE, subject, 1023)
        hear(core, wire.Gossip(*short_header(view), wire.Digest(), (alert,)), 1.0)
        assert not core._instance.table.removals[subject].rings & own
        assert core.statistics()["reports in this member's name refused"] == 1

    def test_b14_a_member_leaves_only_for_itself(self, core: Core, view) -> None:
        """The leave names nobody: it is about its sender, and only observers of the sender report it."""
        observed = {index for index in range(12) if core._instance.reporter.own_rings(view.members[index])}
        for index in range(1, 12):
            hear(core, wire.LeaveRequest(*header(view, index)), 1.0)
        core.tick(1.2)
        assert set(core._instance.table.removals) == observed - {0}

    def test_b14_a_ballot_of_somebody_else(self, core: Core, view) -> None:
        for message in (
            wire.Prepare(*header(view, 1), 2, 3),
            wire.Accept(*header(view, 1), 2, 3, bytes(16)),
            wire.Prepare(*header(view, 1), 1, 1),
        ):
            assert not hear(core, message, 1.0).sends
        assert core.statistics()["dropped: a classic round under a ballot of somebody else"] == 3

    @pytest.mark.parametrize("epoch", [0, 5])
    def test_b14_an_eviction_notice_from_a_stranger_or_an_old_one(self, core: Core, view, epoch: int) -> None:
        hear(core, wire.EvictedNotice(core.me.incarnation, epoch), 1.0)
        hear(core, wire.EvictedNotice(b"not this process", view.epoch + 1), 1.0)
        assert core.status is Status.MEMBER

    def test_b14_a_whole_configuration_from_a_stranger(self, lab, core: Core, view) -> None:
        later = view.apply(Cut.of([lab.member(50)], [Removal(core.me.incarnation)]))
        stranger = later.index_of("n50")
        hear(core, wire.FullConfiguration(*header(later, stranger), later.encoded()), 1.0)
        assert core.status is Status.MEMBER
        assert core.configuration is view

    def test_alerts_about_nobody_are_dropped_and_the_rest_is_taken(self, core: Core, view) -> None:
        good = wire.Alert(wire.AlertKind.REMOVE, 5, 1)
        bad = wire.Alert(wire.AlertKind.REMOVE, 500, 1)
        hear(core, wire.Gossip(*short_header(view), wire.Digest(), (bad, good)), 1.0)
        assert core.statistics()["dropped: alert about a subject outside the view"] == 1

    def test_each_reason_is_reported_once_but_counted_always(self, core: Core, view) -> None:
        forged = wire.LeaveRequest(b"somebody else...", view.epoch, view.id)
        events = [hear(core, forged, 1.0).events for _ in range(3)]
        assert [len(each) for each in events] == [1, 0, 0]
        assert core.statistics()["dropped: a message whose sender is not in the view"] == 3


class TestCatchUp:
    @pytest.fixture
    def view(self, lab):
        return lab.configuration(8)

    def advance(self, core: Core, *cuts: Cut) -> None:
        for cut in cuts:
            core._views.apply(core._instance, cut, 1.0)
        core._context.take_effects(1.0)

    def test_b6_a_stale_peer_learns_the_decision_in_one_round_trip(self, lab, view) -> None:
        ahead, behind = lab.core_in(view, 0), lab.core_in(view, 1)
        cut = Cut.of([lab.member(50)])
        self.advance(ahead, cut)
        effects = ahead.receive(view.members[1].address, probe(view, 1), 2.0)
        assert messages(effects, wire.ProbeAcknowledged), "alive is alive, in whatever view"
        (hint,) = messages(effects, wire.Decided)
        (request,) = messages(behind.receive(view.members[0].address, hint, 2.01), wire.PullCut)
        (chain,) = messages(ahead.receive(view.members[1].address, request, 2.02), wire.DecidedChain)
        behind.receive(view.members[0].address, chain, 2.03)
        assert behind.configuration.id == ahead.configuration.id

    def test_a_chain_of_several_cuts_is_installed_step_by_step(self, lab, view) -> None:
        ahead, behind = lab.core_in(view, 0), lab.core_in(view, 1)
        cuts = [Cut.of([lab.member(50 + number)]) for number in range(3)]
        self.advance(ahead, *cuts)
        request = wire.CatchUpRequest(*header(view, 1))
        (chain,) = messages(hear(ahead, request, 2.0), wire.DecidedChain)
        effects = hear(behind, chain, 2.1)
        epochs = [event.configuration.epoch for event in effects.events if isinstance(event, ViewChanged)]
        assert epochs == [2, 3, 4]

    def test_of_those_who_tell_of_a_decision_one_is_asked_for_the_cut_and_one_for_the_chain(
        self, lab, view
    ) -> None:
        """Either may be lost; nobody is asked twice within a tick."""
        core = lab.core_in(view, 0)
        value = Cut.of([lab.member(50)]).hash

        def asked(index: int, now: float) -> list[str]:
            told = wire.Decided(*header(view, index), value, view.epoch + 1)
            sends = hear(core, told, now).sends
            assert all(send.destinations == (view.members[index].address,) for send in sends)
            return [type(send.message).__name__ for send in sends]

        tick = Settings().gossip_interval
        assert asked(2, 1.0) == ["PullCut"]
        assert asked(2, 1.0) == []
        assert asked(3, 1.0) == ["CatchUpRequest"]
        assert asked(4, 1.0) == []
        assert asked(4, 1.01 + tick) == ["PullCut"]
        assert asked(2, 1.01 + tick) == ["CatchUpRequest"]

    def test_who_knows_the_decision_but_not_its_cut_asks_without_being_told_again(self, lab, view) -> None:
        """Two members each time, at growing intervals, until the cut is there."""
        core, cut = lab.core_in(view, 0), Cut.of([lab.member(50)])
        hear(core, wire.Decided(*header(view, 2), cut.hash, view.epoch + 1), 1.0)
        now, moments = 1.0, []
        while len(moments) < 6:
            now += 0.01
            pulls = messages(core.tick(now), wire.PullCut)
            if pulls:
                assert [pull.value for pull in pulls] == [cut.hash] * 2
                moments.append(now)
        assert moments[0] <= 1.0 + 1.3 * Settings().gossip_interval
        gaps = [after - before for before, after in itertools.pairwise(moments)]
        assert gaps[0] < gaps[-1] <= 1.1 * Settings().classic_retransmit
        hear(core, wire.CutBody(*header(view, 3), cut), now + 0.01)
        assert core.configuration.epoch == view.epoch + 1

    def test_questions_become_rarer(self, lab, view) -> None:
        """Whoever has asked five times may be waiting for a large answer."""
        core = lab.core_in(view, 0)
        later = view.apply(Cut.of([lab.member(50)]))
        tick, pause = Settings().gossip_interval, Settings().catch_up_interval
        asked = [
            1.0 + step * tick / 5
            for step in range(100)
            if messages(hear(core, probe(later, 2), 1.0 + step * tick / 5), wire.CatchUpRequest)
        ]
        gaps = [after - before for before, after in itertools.pairwise(asked)]
        assert max(gaps[:4]) < 1.3 * tick < pause <= min(gaps[4:]) + 1e-9

    def test_one_who_is_too_far_behind_gets_the_whole_view_by_stream(self, lab, view) -> None:
        settings = Settings(decisions_kept=2)
        ahead = lab.core_in(view, 0, settings)
        behind = lab.core_in(view, 1)
        self.advance(ahead, *[Cut.of([lab.member(50 + number)]) for number in range(4)])
        request = wire.CatchUpRequest(*header(view, 1))
        (send,) = hear(ahead, request, 2.0).sends
        assert isinstance(send.message, wire.FullConfiguration)
        assert send.reliable
        behind._catch_up._asked_at = 2.0
        effects = hear(behind, send.message, 2.1)
        assert behind.configuration.id == ahead.configuration.id
        (event,) = (event for event in effects.events if isinstance(event, ViewChanged))
        assert {member.name for member in event.joined} == {"n50", "n51", "n52", "n53"}

    def test_b6_a_removed_member_is_told_and_stops(self, lab, view) -> None:
        ahead, removed = lab.core_in(view, 0), lab.core_in(view, 1)
        self.advance(ahead, Cut.of([], [Removal(view.members[1].incarnation)]))
        (notice,) = messages(hear(ahead, probe(view, 1), 2.0), wire.EvictedNotice)
        effects = removed.receive(view.members[0].address, notice, 2.1)
        assert effects.events == (Evicted(view.epoch + 1),)
        assert removed.status is Status.EVICTED
        assert effects.wake_at == float("inf")
        assert not hear(removed, probe(view, 2), 3.0).sends

    def test_a_member_behind_asks_whoever_is_ahead(self, lab, view) -> None:
        core = lab.core_in(view, 0)
        later = view.apply(Cut.of([lab.member(50)]))
        index = later.index_of("n50")
        effects = hear(core, probe(later, index), 1.0)
        (send,) = (send for send in effects.sends if isinstance(send.message, wire.CatchUpRequest))
        assert send.destinations == (SOMEWHERE,)
        assert send.message.configuration_id == view.id

    def test_a_peer_is_helped_only_so_often(self, lab, view) -> None:
        core = lab.core_in(view, 0)
        self.advance(core, Cut.of([lab.member(50)]))
        hints = [len(messages(hear(core, probe(view, 1), 2.0 + 0.01 * n), wire.Decided)) for n in range(50)]
        assert sum(hints) <= 0.5 / Settings().catch_up_interval, "fifty probes within half a second"

    def test_b11_messages_of_the_next_view_are_kept_until_it_is_here(self, lab, view) -> None:
        core = lab.core_in(view, 0)
        cut = Cut.of([lab.member(50)])
        later = view.apply(cut)
        subject = next(
            index
            for index in range(9)
            if not dict(later.observer_masks(later.members[index])).get(later.index_of(core.me.name))
        )
        alert = wire.Alert(wire.AlertKind.REMOVE, subject, 0b11)
        early = wire.Gossip(*short_header(later, later.index_of("n50")), wire.Digest(), (alert,))
        core.receive(lab.member(50).address, early, 1.0)
        assert core._instance.table.empty
        core._views.apply(core._instance, cut, 1.1)
        assert core._instance.table.removals[subject].rings == 0b11

    def test_b11_but_only_so_many(self, lab, view) -> None:
        settings = Settings(early_messages_kept=5)
        core = lab.core_in(view, 0, settings)
        later = view.apply(Cut.of([lab.member(50)]))
        for _ in range(100):
            hear(core, probe(later, 2), 1.0)
        assert len(core._catch_up._early) == 5

    def test_a_chain_whose_first_steps_are_known_by_now_is_joined_in_the_middle(self, lab, view) -> None:
        behind = lab.core_in(view, 1)
        cuts = [Cut.of([lab.member(50 + number)]) for number in range(3)]
        end = view
        for cut in cuts:
            end = end.apply(cut)
        chain = wire.DecidedChain(*header(view, 0), tuple(cuts))
        early = wire.Gossip(*short_header(end, 0), wire.Digest())
        hear(behind, early, 1.0)
        hear(behind, chain, 1.1)
        assert behind.configuration.id == end.id
        assert "CONFLICTING DECISIONS" not in behind.statistics()


class TestLeaving:
    def test_a_leaver_asks_its_observers_until_it_is_decided(self, lab) -> None:
        view = lab.configuration(8)
        core = lab.core_in(view)
        effects = core.leave(1.0)
        (send,) = lab.deliveries(effects, wire.LeaveRequest)
        assert set(send.destinations) == {view.members[i].address for i, _ in view.observer_masks(core.me)}
        assert core.status is Status.LEAVING
        times = []
        while effects.wake_at < 3.0:
            now = effects.wake_at
            effects = core.tick(now)
            times += [now] * len(lab.deliveries(effects, wire.LeaveRequest))
        assert len(times) >= 3

    def test_it_stays_to_tell_the_decision_until_somebody_confirms(self, lab) -> None:
        """Otherwise the last two of a cluster could end with one that never learns of the decision."""
        view = lab.configuration(2)
        core = lab.core_in(view)
        core.leave(1.0)
        cut = Cut.of([], [Removal(core.me.incarnation, left=True)])
        core._views.apply(core._instance, cut, 1.1)
        told = lab.sent(core._context, wire.Decided)
        assert told
        assert core.status is Status.LEAVING
        effects = core.receive(
            view.members[1].address, wire.EvictedNotice(core.me.incarnation, view.epoch + 1), 1.2
        )
        assert effects.events == (Left(decided=True),)
        assert core.status is Status.LEFT

    @pytest.mark.parametrize("is_recovered", [False, True])
    def test_what_it_knows_counts_no_more_where_others_recovered_without_it(
        self, lab, is_recovered: bool
    ) -> None:
        """A majority of its view has not voted for theirs; for one that was voted for, it may have."""
        view = lab.configuration(3)
        lineage = (*view.lineage, *[b"r" * 16] * is_recovered)
        leaving, staying = lab.core_in(view), lab.core_in(view)
        leaving.leave(1.0)
        notice = wire.EvictedNotice(leaving.me.incarnation, 1_000_000, False, lineage)
        source = view.members[1].address
        assert leaving.receive(source, notice, 1.2).events == (Left(decided=True, superseded=is_recovered),)
        (event,) = staying.receive(source, notice, 1.2).events
        assert event == Evicted(1_000_000, superseded=is_recovered)

    def test_waiting_is_bounded(self, lab) -> None:
        core = lab.core_in(lab.configuration(4))
        effects = core.leave(1.0)
        events = []
        while core.status is Status.LEAVING:
            effects = core.tick(effects.wake_at)
            events += effects.events
            assert effects.wake_at < 20.0 or core.status is Status.LEFT
        assert Left(decided=False) in events

    def test_the_last_one_leaves_at_once(self, lab) -> None:
        core = lab.core_in(lab.configuration(1))
        assert core.leave(1.0).events == (Left(decided=True),)
        assert core.status is Status.LEFT

    def test_a_leaving_member_is_no_seed(self, lab) -> None:
        core = lab.core_in(lab.configuration(4))
        core.leave(1.0)
        (answer,) = messages(hear(core, wire.JoinRequest(lab.member(50)), 1.1), wire.JoinDeferred)
        assert "leaving" in answer.reason

    def test_b20_left_failed_and_replaced_look_different(self, lab) -> None:
        view = lab.configuration(6)
        core = lab.core_in(view, view.index_of("n0"))
        new = lab.member(3, incarnation=1)
        cut = Cut.of(
            [new, lab.member(50)],
            [
                Removal(lab.member(1).incarnation, left=True),
                Removal(lab.member(2).incarnation),
                Removal(lab.member(3).incarnation),
            ],
        )
        core._views.apply(core._instance, cut, 1.0)
        (change,) = (e for e in core._context.take_effects(1.0).events if isinstance(e, ViewChanged))
        assert change.left == (lab.member(1),)
        assert change.failed == (lab.member(2),)
        assert change.replaced == (new,)
        assert change.joined == (lab.member(50),)


class TestQuorum:
    def silent(self, core: Core, until: float, now: float = 0.0) -> list[tuple[float, object]]:
        events, effects = [], core.tick(now)
        while effects.wake_at <= until:
            now = effects.wake_at
            effects = core.tick(now)
            events += [(now, event) for event in effects.events]
        return events

    @pytest.mark.parametrize("size", [2, 3, 6, 40])
    def test_its_loss_is_reported_within_the_stated_bound(self, lab, size: int) -> None:
        settings = Settings()
        core = lab.core_in(lab.configuration(size))
        events = self.silent(core, 30.0)
        at = next(at for at, event in events if isinstance(event, QuorumLost))
        assert settings.quorum_timeout <= at
        assert at <= settings.quorum_timeout + (settings.probe_failures + 2) * settings.probe_interval

    def test_it_comes_back_when_the_others_answer(self, lab) -> None:
        view = lab.configuration(3)
        core = lab.core_in(view)
        self.silent(core, 15.0)
        for index in (1, 2):
            core.receive(view.members[index].address, probe(view, index), 15.1)
        assert not core.tick(15.6).events, "they are heard, and may not hear"
        asked = core.tick(16.1)
        for index in (1, 2):
            address = view.members[index].address
            (question, *_) = (
                send.message
                for send in asked.sends
                if address in send.destinations and isinstance(send.message, wire.Probe)
            )
            answer = wire.ProbeAcknowledged(*short_header(view, index), question.sequence, None)
            core.receive(address, answer, 16.2)
        assert QuorumRegained() in [event for _, event in self.silent(core, 17.5, 16.2)]

    def test_one_alone_is_its_own_quorum(self, lab) -> None:
        core = lab.core_in(lab.configuration(1))
        assert not self.silent(core, 60.0)

    def test_without_a_majority_it_accuses_nobody(self, lab) -> None:
        """More likely this side is cut off. After healing, accusations would only evict the healthy."""
        core = lab.core_in(lab.configuration(6))
        self.silent(core, 60.0)
        assert core._instance.table.empty
        assert core.statistics()["accusations withheld in self-doubt"]


class TestBounds:
    def test_the_core_asks_to_be_woken_only_when_there_is_something_to_do(self, lab) -> None:
        core = lab.core_in(lab.configuration(1))
        effects = core.tick(0.0)
        ticks = 0
        while effects.wake_at < 60.0:
            effects = core.tick(effects.wake_at)
            ticks += 1
        assert ticks < 200

    def test_effects_are_immutable(self, lab) -> None:
        effects = lab.core_in(lab.configuration(3)).tick(1.0)
        with pytest.raises(AttributeError):
            effects.wake_at = 0.0
