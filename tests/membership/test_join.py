"""Joining and admission, message by message. Source: Rapid section 4.1; the specification, section 3.1."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import msgspec
import pytest

from membership.address import Address
from membership.protocol import messages as wire
from membership.protocol.context.effects import JoinRefused, JoinWaiting, Left
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.lifecycle.joiner import Joiner
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

SEED = Address("10.0.0.9", 1)
OTHER_SEED = Address("10.0.0.9", 2)


def joiner_core(
    lab, number: int = 50, *, seeds=(SEED,), cluster_id: bytes | None = None, seed: int = 3
) -> Core:
    return Core(
        lab.member(number), seeds=seeds, settings=Settings(), rng=random.Random(seed), cluster_id=cluster_id
    )


def assignment(view, joiner) -> wire.ObserversAssigned:
    entries = tuple(
        wire.ObserverEntry(view.members[i].host, view.members[i].port, mask)
        for i, mask in view.observer_masks(joiner)
    )
    header = (view.members[0].incarnation, view.epoch, view.id)
    return wire.ObserversAssigned(*header, view.cluster_id, joiner.incarnation, entries)


def whole(view, index: int = 0) -> wire.FullConfiguration:
    return wire.FullConfiguration(view.members[index].incarnation, view.epoch, view.id, view.encoded())


class TestJoiner:
    def test_phase_1_asks_one_seed_and_repeats_for_ever(self, lab) -> None:
        core = joiner_core(lab, seeds=(SEED, OTHER_SEED))
        effects = core.start(0.0)
        asked = [effects.sends[0].destinations]
        assert isinstance(effects.sends[0].message, wire.JoinRequest)
        times = []
        for _ in range(40):
            now = effects.wake_at
            times.append(now)
            effects = core.tick(now)
            asked += [send.destinations for send in effects.sends]
        assert {(SEED,), (OTHER_SEED,)} == set(asked)
        pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert max(pauses[:3]) < 0.3, "quick at first"
        assert 0.7 < max(pauses) <= 1.25 * Settings().rpc_cap, "backed off, with jitter, and bounded"
        assert len({round(pause, 4) for pause in pauses[-5:]}) == 5, "jittered"

    def test_phase_2_asks_each_distinct_observer_until_it_has_heard(self, lab) -> None:
        view = lab.configuration(3)
        core = joiner_core(lab)
        core.start(0.0)
        effects = core.receive(SEED, assignment(view, core.me), 0.1)
        asked = effects.sends[0].destinations
        assert set(asked) == {view.members[i].address for i, _ in view.observer_masks(core.me)}
        assert effects.sends[0].message == wire.ObserveJoin(core.me, view.epoch, view.id)
        heard = wire.JoinObserved(view.members[0].incarnation, view.epoch, view.id, core.me.incarnation)
        core.receive(asked[0], heard, 0.15)
        effects = core.tick(effects.wake_at)
        assert asked[0] not in effects.sends[0].destinations
        assert set(effects.sends[0].destinations) == set(asked[1:])

    def test_it_starts_again_when_no_view_comes(self, lab) -> None:
        view = lab.configuration(3)
        core = joiner_core(lab)
        core.start(0.0)
        effects = core.receive(SEED, assignment(view, core.me), 0.1)
        kinds = []
        while effects.wake_at < 8.0:
            effects = core.tick(effects.wake_at)
            kinds += [type(send.message) for send in effects.sends]
        assert wire.ObserveJoin in kinds
        assert wire.JoinRequest in kinds[kinds.index(wire.ObserveJoin) :]

    def test_a_view_with_this_process_makes_it_a_member(self, lab) -> None:
        core = joiner_core(lab)
        core.start(0.0)
        view = lab.configuration(3).apply(Cut.of([core.me]))
        effects = core.receive(SEED, whole(view), 1.0)
        event, _ = effects.events
        assert isinstance(event, ViewChanged)
        assert event.previous is None
        assert core.status is Status.MEMBER
        assert core.configuration.id == view.id
        assert core.cluster_id == view.cluster_id

    @pytest.mark.parametrize("without", ["me", "bytes"])
    def test_other_views_are_refused(self, lab, without: str) -> None:
        core = joiner_core(lab)
        core.start(0.0)
        message = whole(lab.configuration(3))
        if without == "bytes":
            message = wire.FullConfiguration(message.sender, message.epoch, message.configuration_id, b"\xc1")
        core.receive(SEED, message, 1.0)
        assert core.status is Status.JOINING

    def test_another_cluster_is_refused_when_the_id_was_given(self, lab) -> None:
        core = joiner_core(lab, cluster_id=b"the right cluster"[:16])
        core.start(0.0)
        core.receive(SEED, assignment(lab.configuration(3), core.me), 0.1)
        core.receive(SEED, whole(lab.configuration(3).apply(Cut.of([core.me]))), 1.0)
        assert core.status is Status.JOINING
        assert core.statistics()["dropped: an answer from another cluster"] == 1
        assert core.statistics()["dropped: a configuration of another cluster"] == 1

    def test_b16_new_observers_named_unasked_are_used_at_once(self, lab) -> None:
        view = lab.configuration(3)
        core = joiner_core(lab)
        core.start(0.0)
        core.receive(SEED, assignment(view, core.me), 0.1)
        later = view.apply(Cut.of([lab.member(70)]))
        effects = core.receive(SEED, assignment(later, core.me), 0.2)
        assert effects.sends[0].message == wire.ObserveJoin(core.me, later.epoch, later.id)
        # An older or repeated answer changes nothing.
        assert not core.receive(SEED, assignment(view, core.me), 0.3).sends

    def test_a_seed_that_is_joining_too_is_passed_over_at_once(self, lab) -> None:
        core = joiner_core(lab, seeds=(SEED, OTHER_SEED))
        first = core.start(0.0).sends[0].destinations[0]
        effects = core.receive(first, wire.JoinDeferred("this process is joining too"), 0.01)
        assert effects.events == (JoinWaiting("this process is joining too"),)
        (send,) = effects.sends
        assert send.destinations[0] != first
        # A whole round of deferrals is followed by a pause: no two joiners ask each other in a tight loop.
        assert not core.receive(send.destinations[0], wire.JoinDeferred("x"), 0.02).sends

    def test_a_deferral_for_the_process_that_had_this_address_before_is_no_answer(self, lab) -> None:
        core = joiner_core(lab, seeds=(SEED, OTHER_SEED))
        seed = core.start(0.0).sends[0].destinations[0]
        effects = core.receive(seed, wire.JoinDeferred("wait", b"another process!"), 0.01)
        assert not effects.sends
        assert not any(isinstance(event, JoinWaiting) for event in effects.events)
        assert core.statistics()["dropped: an answer to another joiner"] == 1
        effects = core.receive(seed, wire.JoinDeferred("wait", core.me.incarnation), 0.02)
        assert effects.events == (JoinWaiting("wait"),)

    @pytest.mark.parametrize("first", range(3))
    def test_every_seed_is_asked_before_a_pause_and_once_however_often_deferrals_repeat(
        self, lab, first: int
    ) -> None:
        seeds = (SEED, OTHER_SEED, Address("10.0.0.9", 3))
        random_seed = next(seed for seed in range(100) if random.Random(seed).randrange(len(seeds)) == first)
        core = joiner_core(lab, seeds=seeds, seed=random_seed)
        effects = core.start(0.0)
        now = 0.0
        for _ in range(10):
            asked = [destination for send in effects.sends for destination in send.destinations]
            for number in range(20):  # each answered, and each answer many times over
                again = core.receive(asked[-1], wire.JoinDeferred("x"), now + number / 10_000)
                asked += [destination for send in again.sends for destination in send.destinations]
            assert sorted(asked) == sorted(seeds)
            now = again.wake_at
            effects = core.tick(now)

    def test_who_is_going_to_found_the_cluster_is_asked_each_time(self, lab) -> None:
        founder = Address("10.0.0.9", 3)
        context = lab.context(lab.configuration(1))
        joiner = Joiner(context, [SEED, OTHER_SEED, founder], None)
        joiner.start(0.0)
        joiner.prefer(founder)
        others: set[Address] = set()
        for _ in range(6):
            joiner.tick(joiner.deadline)
            asked = [address for send in context.take_effects(0.0).sends for address in send.destinations]
            assert asked.count(founder) == 1
            others.update(asked)
        assert others == {SEED, OTHER_SEED, founder}

    def test_a_refusal_is_reported_and_asked_again_later(self, lab) -> None:
        core = joiner_core(lab)
        core.start(0.0)
        denial = wire.JoinDenied(bytes(16), 1, bytes(16), core.me.incarnation, "the name is taken")
        effects = core.receive(SEED, denial, 0.1)
        assert effects.events == (JoinRefused("the name is taken"),)
        assert effects.wake_at > 0.5
        assert isinstance(core.tick(effects.wake_at).sends[0].message, wire.JoinRequest)

    def test_a_joiner_refused_again_and_again_gives_up(self, lab) -> None:
        core = joiner_core(lab)
        now = core.start(0.0).wake_at
        denial = wire.JoinDenied(bytes(16), 1, bytes(16), core.me.incarnation, "the name is taken")
        for count in range(1, Settings().join_refusals + 1):
            for _ in range(3):  # several observers refuse at once: that is one refusal
                effects = core.receive(SEED, denial, now)
                if core.status is Status.REFUSED:
                    break
            assert (core.status is Status.REFUSED) == (count == Settings().join_refusals)
            now = effects.wake_at
        assert effects.events == (JoinRefused("the name is taken", final=True),)
        assert effects.wake_at == float("inf")
        assert not core.tick(1000.0).sends
        view = lab.configuration(3).apply(Cut.of([core.me]))
        core.receive(SEED, whole(view), 1001.0)
        assert core.configuration is None

    def test_joiners_defer_each_other_and_own_up_to_having_no_view(self, lab) -> None:
        core = joiner_core(lab)
        core.start(0.0)
        (send,) = core.receive(SEED, wire.JoinRequest(lab.member(7)), 0.1).sends
        assert isinstance(send.message, wire.JoinDeferred)
        probe = wire.Probe(b"o" * 8, 3, b"c" * 8, 17, None)
        (send,) = core.receive(SEED, probe, 0.1).sends
        assert send.message == wire.NotMember(core.me.incarnation, b"c" * 8, 17)

    def test_leaving_before_being_in_is_over_at_once(self, lab) -> None:
        core = joiner_core(lab)
        core.start(0.0)
        effects = core.leave(0.1)
        assert core.status is Status.LEFT
        assert effects.events == (Left(decided=False),), "the host is told"
        assert effects.wake_at == float("inf")


class TestAdmission:
    def test_a_seed_names_the_observers(self, lab) -> None:
        view = lab.configuration(20)
        core = lab.core_in(view)
        joiner = lab.member(50)
        (send,) = core.receive(joiner.address, wire.JoinRequest(joiner), 1.0).sends
        assert send.destinations == (joiner.address,)
        answer = send.message
        assert {(entry.port, entry.rings) for entry in answer.observers} == {
            (view.members[index].port, mask) for index, mask in view.observer_masks(joiner)
        }
        assert (answer.epoch, answer.configuration_id) == (view.epoch, view.id)

    def observer(self, lab, view, joiner, **arguments) -> Core:
        return lab.core_in(view, view.observer_masks(joiner)[0][0], **arguments)

    def alerts(self, core: Core, until: float) -> list[wire.Alert]:
        found, now = [], 0.0
        while now <= until:
            effects = core.tick(now)
            for send in effects.sends:
                if isinstance(send.message, wire.Gossip):
                    found += send.message.alerts
            now += 0.05
        return found

    def test_an_observer_reports_with_the_full_record_on_its_rings_only(self, lab) -> None:
        view = lab.configuration(20)
        joiner = lab.member(50, metadata={"rack": "r1"})
        core = self.observer(lab, view, joiner)
        request = wire.ObserveJoin(joiner, view.epoch, view.id)
        (send,) = core.receive(joiner.address, request, 0.0).sends
        assert isinstance(send.message, wire.JoinObserved)
        alerts = self.alerts(core, 1.0)
        assert {alert.member for alert in alerts} == {joiner}
        assert {alert.rings for alert in alerts} == {view.observer_masks(joiner)[0][1]}

    def test_joins_are_batched_until_quiet_but_not_for_ever(self, lab) -> None:
        view = lab.configuration(2)
        settings = Settings()
        core = lab.core_in(view)
        now, flushed_at = 0.0, None
        for number in range(100, 150):
            core.receive(SEED, wire.ObserveJoin(lab.member(number), view.epoch, view.id), now)
            core.tick(now)
            if core.statistics().get("alerts raised"):
                flushed_at = now
                break
            now += settings.join_batch_quiet / 2
        # More of them than there are members: the longer cap.
        assert settings.join_batch_cap + 0.1 < flushed_at <= 4 * settings.join_batch_cap + 0.1

    def test_b14_a_member_that_does_not_observe_the_joiner_reports_nothing(self, lab) -> None:
        view = lab.configuration(40)
        joiner = lab.member(50)
        observers = {index for index, _ in view.observer_masks(joiner)}
        stranger = next(index for index in range(40) if index not in observers)
        core = lab.core_in(view, stranger)
        assert not core.receive(SEED, wire.ObserveJoin(joiner, view.epoch, view.id), 0.0).sends
        assert not self.alerts(core, 1.0)

    def test_a_join_for_a_view_not_installed_here_yet_is_parked(self, lab) -> None:
        """The joiner asked a seed that was faster than this observer."""
        view = lab.configuration(20)
        later = view.apply(Cut.of([lab.member(60)]))
        joiner = lab.member(50)
        index = later.index_of("n60")
        observers = [i for i, _ in later.observer_masks(joiner) if i != index]
        name = later.members[observers[0]].name
        core = lab.core_in(view, view.index_of(name))
        assert not core.receive(SEED, wire.ObserveJoin(joiner, later.epoch, later.id), 0.0).sends
        core._catch_up._asked_at = 0.0
        header = (later.members[index].incarnation, later.epoch, later.id)
        effects = core.receive(SEED, wire.FullConfiguration(*header, later.encoded()), 0.1)
        assert any(isinstance(send.message, wire.JoinObserved) for send in effects.sends)
        assert {alert.member for alert in self.alerts(core, 1.0)} == {joiner}

    def test_a_join_for_an_old_view_is_answered_with_the_present_observers(self, lab) -> None:
        view = lab.configuration(20)
        core = lab.core_in(view)
        (send,) = core.receive(SEED, wire.ObserveJoin(lab.member(50), view.epoch - 1, bytes(16)), 0.0).sends
        assert isinstance(send.message, wire.ObserversAssigned)
        assert send.message.configuration_id == view.id

    @pytest.mark.parametrize("phase", [1, 2])
    def test_a_process_that_is_in_gets_the_view_by_stream(self, lab, phase: int) -> None:
        view = lab.configuration(5)
        core = lab.core_in(view)
        joiner = view.members[3]
        question = wire.JoinRequest(joiner) if phase == 1 else wire.ObserveJoin(joiner, view.epoch, view.id)
        (send,) = core.receive(SEED, question, 1.0).sends
        assert isinstance(send.message, wire.FullConfiguration)
        assert send.reliable
        # Not for every repetition of the question.
        assert not core.receive(SEED, question, 1.01).sends

    def test_only_the_first_living_observer_delivers_the_view(self, lab) -> None:
        view = lab.configuration(10)
        joiner = lab.member(50)
        first, second = (index for index, _ in view.observer_masks(joiner)[:2])
        for cut, deliverer in (
            (Cut.of([joiner]), first),
            (Cut.of([joiner], [Removal(view.members[first].incarnation)]), second),
        ):
            for index in range(10):
                core = lab.core_in(view, index)
                if view.members[index].incarnation in {removal.incarnation for removal in cut.removals}:
                    continue
                core._views.apply(core._instance, cut, 1.0)
                sends = core._context.take_effects(1.0).sends
                delivered = [send for send in sends if isinstance(send.message, wire.FullConfiguration)]
                assert bool(delivered) == (index == deliverer)

    def test_b16_joiners_left_out_of_a_cut_are_told_at_once(self, lab) -> None:
        view = lab.configuration(10)
        joiner = lab.member(50)
        core = self.observer(lab, view, joiner)
        core.receive(SEED, wire.ObserveJoin(joiner, view.epoch, view.id), 0.0)
        core._views.apply(core._instance, Cut.of([lab.member(60)]), 0.2)
        told = [
            send
            for send in core._context.take_effects(0.2).sends
            if isinstance(send.message, wire.ObserversAssigned)
        ]
        assert [send.destinations for send in told] == [(joiner.address,)]
        assert told[0].message.epoch == view.epoch + 1

    def test_after_its_own_proposal_a_member_reports_no_new_joiner(self, lab) -> None:
        """The hold rule: a stream of joiners must not keep somebody unstable for ever."""
        view = lab.configuration(5)
        core = lab.core_in(view)
        core._instance.change.propose(Cut.of([lab.member(60)]), 0.0)
        joiner = lab.member(50)
        while not any(index == 0 for index, _ in view.observer_masks(joiner)):
            joiner = lab.member(joiner.port)
        core.receive(SEED, wire.ObserveJoin(joiner, view.epoch, view.id), 0.0)
        assert not [alert for alert in self.alerts(core, 0.9) if alert.member == joiner]


class TestNamesInUse:
    def request(self, lab, view, **changes) -> wire.JoinRequest:
        record = {"name": "n3", "host": "10.0.0.7", "port": 77, "incarnation": b"the second n3..."}
        return wire.JoinRequest(msgspec.structs.replace(lab.member(3), **(record | changes)))

    def test_a_member_that_answers_defends_its_name(self, lab) -> None:
        view = lab.configuration(5)
        core = lab.core_in(view, view.index_of("n0"))
        request = self.request(lab, view)
        (challenge,) = core.receive(SEED, request, 1.0).sends
        assert isinstance(challenge.message, wire.Probe)
        assert challenge.destinations == (lab.member(3).address,)
        acknowledged = wire.ProbeAcknowledged(
            lab.member(3).incarnation[:8], view.epoch, view.short_id, 0, None
        )
        core.receive(lab.member(3).address, acknowledged, 1.01)
        (answer,) = core.receive(SEED, request, 1.2).sends
        assert isinstance(answer.message, wire.JoinDenied)
        assert "the name of n3" in answer.message.reason
        assert "in use" in answer.message.reason

    def test_a_silent_member_loses_it(self, lab) -> None:
        view = lab.configuration(5)
        core = lab.core_in(view, view.index_of("n0"))
        request = self.request(lab, view)
        core.receive(SEED, request, 1.0)
        (answer,) = core.receive(SEED, request, 1.0 + Settings().probe_interval + 0.01).sends
        assert isinstance(answer.message, wire.ObserversAssigned)

    def test_b15_a_restarted_process_owns_up_and_need_not_wait(self, lab) -> None:
        view = lab.configuration(5)
        core = lab.core_in(view, view.index_of("n0"))
        address = lab.member(3).address
        request = self.request(lab, view, host=address.host, port=address.port)
        (challenge,) = core.receive(address, request, 1.0).sends
        own_up = wire.NotMember(request.joiner.incarnation, view.short_id, challenge.message.sequence)
        core.receive(address, own_up, 1.01)
        (answer,) = core.receive(address, request, 1.2).sends
        assert isinstance(answer.message, wire.ObserversAssigned)

    def test_the_seed_defends_its_own_name_itself(self, lab) -> None:
        view = lab.configuration(5)
        core = lab.core_in(view, view.index_of("n3"))
        (answer,) = core.receive(SEED, self.request(lab, view), 1.0).sends
        assert isinstance(answer.message, wire.JoinDenied)

    def test_a_record_that_breaks_the_rules_is_refused_with_the_rule(self, lab) -> None:
        core = lab.core_in(lab.configuration(5))
        unsorted = (("b", "1"), ("a", "2"))
        for changes, rule in (({"name": "a\x00b"}, "printable"), ({"metadata": unsorted}, "sorted")):
            request = wire.JoinRequest(msgspec.structs.replace(lab.member(50), **changes))
            (answer,) = core.receive(SEED, request, 1.0).sends
            assert isinstance(answer.message, wire.JoinDenied)
            assert rule in answer.message.reason


class TestColdStart:
    def test_the_founder_holds_until_enough_have_met_then_admits_all_in_one_cut(self, lab) -> None:
        founder = Core(
            lab.member(0), seeds=[], settings=Settings(), rng=random.Random(1), found=True, expect=4
        )
        founder.start(0.0)
        for number in (1, 2):
            (send,) = founder.receive(SEED, wire.JoinRequest(lab.member(number)), 0.1).sends
            assert isinstance(send.message, wire.JoinDeferred)
            assert "starts with 4 processes" in send.message.reason
        founder.tick(3.0)
        assert len(founder.configuration) == 1
        founder.receive(SEED, wire.JoinRequest(lab.member(3)), 3.1)
        effects = founder.tick(3.2)
        assert len(founder.configuration) == 4
        assert founder.configuration.epoch == 1
        delivered = [send for send in effects.sends if isinstance(send.message, wire.FullConfiguration)]
        assert len(delivered) == 3

    def test_a_process_that_asked_long_ago_is_not_counted(self, lab) -> None:
        settings = replace(Settings(), join_attempt_timeout=1.0)
        founder = Core(lab.member(0), seeds=[], settings=settings, rng=random.Random(1), found=True, expect=3)
        founder.start(0.0)
        founder.receive(SEED, wire.JoinRequest(lab.member(1)), 0.1)
        founder.receive(SEED, wire.JoinRequest(lab.member(2)), 10.0)
        founder.tick(11.0)
        assert len(founder.configuration) == 1
