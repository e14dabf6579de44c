"""The centralised mode, part by part: how an electorate forms, what is saved, whom a voter believes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from consensus import AcceptorState, Ballot
from membership.address import Address
from membership.ensemble import Client, EnsembleError, RecordError, Voter
from membership.ensemble.cut_detection import CutDetection
from membership.ensemble.durable_state import VoterState, decode_state, encode_state
from membership.ensemble.electorate import Electorate
from membership.ensemble.member_registry import MemberRegistry
from membership.protocol import messages as wire
from membership.protocol.context.context import Context
from membership.protocol.context.effects import Effects, QuorumLost, StateToSave
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

ADDRESSES = [Address("10.255.0.1", 1000 + number) for number in range(3)]


def voter(number: int, *, incarnation: int = 0, **options: Any) -> Voter:
    me = Member(f"e{number}", *ADDRESSES[number], random.Random(f"{number} {incarnation}").randbytes(16))
    return Voter(me, addresses=ADDRESSES, settings=Settings(), rng=random.Random(number), **options)


class Ensemble:
    """Voters that talk without loss or delay, one message at a time; `deliver` tells whether one arrives."""

    def __init__(self, voters: list[Voter]) -> None:
        self.voters = {voter.me.address: voter for voter in voters}
        self.saved: dict[Address, bytes] = {}
        self.to_others: list[tuple[Address, wire.Message]] = []
        self.events: list[tuple[Address, Any]] = []
        self.dead: set[Address] = set()
        self._queue: list[tuple[Address, Address, wire.Message]] = []

    def perform(self, source: Address, effects: Effects) -> None:
        for event in effects.events:
            self.events.append((source, event))
            if isinstance(event, StateToSave):
                self.saved[source] = event.record
        for send in effects.sends:
            for destination in send.destinations:
                self._queue.append((source, destination, wire.decode(wire.encode(send.message))))

    def start(self, now: float) -> None:
        for address, voter in self.voters.items():
            self.perform(address, voter.start(now))
        self.settle(now)

    def settle(self, now: float) -> None:
        while self._queue:
            source, destination, message = self._queue.pop(0)
            if destination in self.dead or source in self.dead:
                continue
            if destination in self.voters:
                self.perform(destination, self.voters[destination].receive(source, message, now))
            else:
                self.to_others.append((destination, message))

    def run(self, begin: float, end: float) -> None:
        now = begin
        while now < end:
            now = round(now + 0.05, 3)
            for address, voter in self.voters.items():
                if address not in self.dead:
                    self.perform(address, voter.tick(now))
            self.settle(now)

    def tell(self, message: wire.Message, source: Address, now: float) -> None:
        for address in self.voters:
            self._queue.append((source, address, message))
        self.settle(now)


@pytest.fixture
def ensemble() -> Ensemble:
    made = Ensemble([voter(number) for number in range(3)])
    made.start(0.0)
    return made


class TestFormation:
    def test_it_forms_and_every_voter_has_saved_the_same_electorate(self, ensemble: Ensemble) -> None:
        electorates = {voter.electorate for voter in ensemble.voters.values()}
        assert len(electorates) == 1
        assert {len(electorate) for electorate in electorates} == {3}
        records = [decode_state(data) for data in ensemble.saved.values()]
        assert all(record.formed and record.electorate in electorates for record in records)
        assert len({voter.cluster_id for voter in ensemble.voters.values()}) == 1

    def test_nobody_votes_before_all_have_named_the_same_list(self) -> None:
        one, other, third = (Member(f"e{n}", *ADDRESSES[n], bytes([n]) * 16) for n in range(3))
        electorate = Electorate(one, ADDRESSES)
        electorate.meet(other, (), 0.0)
        assert electorate.meet(third, (), 0.0)
        everybody = electorate.members
        electorate.meet(other, everybody, 0.0)
        assert not electorate.formed
        assert electorate.meet(third, everybody, 0.0)
        assert electorate.formed

    def test_a_list_once_named_is_never_changed_for_a_process_that_lost_its_memory(self) -> None:
        one, other, third = (Member(f"e{n}", *ADDRESSES[n], bytes([n]) * 16) for n in range(3))
        again = Member("e2", *ADDRESSES[2], b"n" * 16)
        electorate = Electorate(one, ADDRESSES)
        electorate.meet(other, (), 0.0)
        electorate.meet(third, (), 0.0)
        named = electorate.members
        electorate.meet(again, (), 0.0)
        electorate.meet(other, named, 0.0)
        electorate.meet(again, tuple(sorted((one, other, again), key=lambda m: m.incarnation)), 0.0)
        assert electorate.members == named
        assert not electorate.formed

    def test_a_voter_without_its_record_has_no_vote(self, ensemble: Ensemble) -> None:
        forgetful = voter(2, incarnation=1)
        ensemble.voters[ADDRESSES[2]] = forgetful
        ensemble.perform(ADDRESSES[2], forgetful.start(1.0))
        ensemble.run(1.0, 3.0)
        assert forgetful.configuration is None
        others = [ensemble.voters[address] for address in ADDRESSES[:2]]
        assert all(forgetful.me not in other.electorate for other in others)
        dropped = "dropped: a greeting of a process that is not of this ensemble, or has lost its state"
        assert all(other.statistics()[dropped] for other in others)

    @pytest.mark.parametrize("addresses", [ADDRESSES[:2], [*ADDRESSES[:2], ADDRESSES[0]], ADDRESSES[1:] * 2])
    def test_too_few_addresses_or_not_the_own_are_refused(self, addresses: list[Address]) -> None:
        me = Member("e0", *ADDRESSES[0], b"i" * 16)
        with pytest.raises(EnsembleError, match="at least 3 different addresses"):
            Voter(me, addresses=addresses, settings=Settings(), rng=random.Random(1))


class TestMemory:
    def test_a_restarted_voter_remembers_what_it_promised_and_accepted(self, lab) -> None:
        record = VoterState(
            lab.member(1),
            tuple(lab.members(3)),
            True,
            accepted_ballot=(3, 1),
            promised=(4, 2),
            accepted=Cut.of([lab.member(7)]),
        )
        again = decode_state(encode_state(record))
        assert again == record
        value = Cut.of([lab.member(7)]).hash
        assert again.state == AcceptorState(Ballot(4, 2), Ballot(3, 1), value)

    @pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", b"\x91\x01"])
    def test_what_is_no_record_is_refused_with_what_to_do(self, data: bytes) -> None:
        with pytest.raises(RecordError, match="restore the file"):
            decode_state(data)

    def test_the_state_of_another_member_is_refused(self, ensemble: Ensemble) -> None:
        with pytest.raises(RecordError, match="give each member its own"):
            voter(0, saved=ensemble.saved[ADDRESSES[1]])

    def test_other_addresses_than_those_it_was_formed_by_are_refused(self, ensemble: Ensemble) -> None:
        me = Member("e0", *ADDRESSES[0], b"i" * 16)
        with pytest.raises(EnsembleError, match="cannot be changed"):
            Voter(
                me,
                addresses=[*ADDRESSES[:2], Address("10.255.0.9", 9)],
                settings=Settings(),
                rng=random.Random(1),
                saved=ensemble.saved[ADDRESSES[0]],
            )

    def test_a_vote_is_saved_in_the_same_effects_that_send_it(self, ensemble: Ensemble, lab) -> None:
        """Whoever saves before it sends can so never have said what it does not remember."""
        joiner = lab.member(1)
        first = ensemble.voters[ADDRESSES[0]]
        effects = [first.receive(joiner.address, wire.EnsembleJoin(joiner), 1.0)]
        effects += [first.tick(1.0 + 0.1 * step) for step in range(1, 20)]
        spoken = [
            (effect, send.message)
            for effect in effects
            for send in effect.sends
            if isinstance(send.message, wire.EnsembleVote | wire.Prepare)
        ]
        assert spoken
        effect, _ = spoken[0]
        record = decode_state(next(e.record for e in effect.events if isinstance(e, StateToSave)))
        assert record.promised != (0, 0)

    def test_a_restarted_voter_keeps_its_vote_and_ends_the_round(self, ensemble: Ensemble, lab) -> None:
        joiner = lab.member(1)
        ensemble.tell(wire.EnsembleJoin(joiner), joiner.address, 1.0)
        ensemble.run(1.0, 2.0)
        views = {voter.configuration for voter in ensemble.voters.values()}
        assert {view.epoch for view in views if view is not None} == {1}
        for number, address in enumerate(ADDRESSES):
            ensemble.voters[address] = voter(number, incarnation=5, saved=ensemble.saved[address])
            ensemble.perform(address, ensemble.voters[address].start(9.0))
        ensemble.run(9.0, 10.0)
        again = {voter.configuration.id for voter in ensemble.voters.values() if voter.configuration}
        assert again == {view.id for view in views if view is not None}


class TestAgreementOfThree:
    def test_three_voters_decide_in_the_fast_round(self, ensemble: Ensemble, lab) -> None:
        joiner = lab.member(1)
        ensemble.tell(wire.EnsembleJoin(joiner), joiner.address, 1.0)
        ensemble.run(1.0, 1.5)
        for one in ensemble.voters.values():
            assert one.configuration is not None
            assert joiner in one.configuration
            assert one.statistics()["fast votes"] == 1
            assert "classic rounds started" not in one.statistics()

    def test_with_one_dead_a_classic_round_is_started_without_waiting(self, ensemble: Ensemble, lab) -> None:
        ensemble.dead.add(ADDRESSES[1])
        ensemble.run(1.0, 3.0)
        joiner = lab.member(1)
        ensemble.tell(wire.EnsembleJoin(joiner), joiner.address, 3.0)
        ensemble.run(3.0, 3.0 + 2 * Settings().join_batch_quiet)
        alive = [one for address, one in ensemble.voters.items() if address not in ensemble.dead]
        assert all(one.configuration is not None and joiner in one.configuration for one in alive)
        assert sum(one.statistics().get("classic rounds started", 0) for one in alive) == 1
        assert sum(one.statistics().get("fast votes", 0) for one in alive) == 0

    def test_one_alone_decides_nothing_and_says_so(self, ensemble: Ensemble, lab) -> None:
        ensemble.dead.update(ADDRESSES[1:])
        joiner = lab.member(1)
        ensemble.run(1.0, 3.0)
        ensemble.tell(wire.EnsembleJoin(joiner), joiner.address, 3.0)
        ensemble.run(3.0, 12.0)
        view = ensemble.voters[ADDRESSES[0]].configuration
        assert view is not None
        assert view.epoch == 0
        assert any(isinstance(event, QuorumLost) for _, event in ensemble.events)


def report(
    detection: CutDetection, view: Configuration, observer: int, alert: wire.Alert, now: float
) -> None:
    incarnation = view.members[observer].incarnation
    detection.report(wire.EnsembleReport(incarnation, view.epoch, view.id, (alert,)), observer, now)


class TestReports:
    def test_only_own_rings_and_only_removals_count(self, lab) -> None:
        view = lab.configuration(20)
        context = lab.context(view)
        detection = CutDetection(context)
        subject = 5
        masks = view.observer_masks(view.members[subject])
        observer, mask = masks[0]
        stranger = next(index for index in range(20) if index not in dict(masks) and index != subject)
        alert = wire.Alert(wire.AlertKind.REMOVE, subject, mask)
        report(detection, view, stranger, alert, 1.0)
        report(detection, view, observer, wire.Alert(wire.AlertKind.REMOVE, subject, 0b1111111111), 1.0)
        report(detection, view, observer, wire.Alert(wire.AlertKind.LEAVE, subject, mask), 1.0)
        assert detection.digest().alert_bits == 0
        assert context.counters["dropped: a report on rings of another observer"] == 2
        assert context.counters["dropped: a report of somebody else's join or leave"] == 1
        report(detection, view, observer, alert, 1.0)
        assert detection.digest().alert_bits == mask.bit_count()

    def test_a_cut_comes_when_the_last_unstable_subject_is_stable(self, lab) -> None:
        view = lab.configuration(30)
        detection = CutDetection(lab.context(view))
        for subject in (3, 9):
            for observer, mask in view.observer_masks(view.members[subject]):
                if subject == 9 and mask & 0b1111:
                    continue
                report(detection, view, observer, wire.Alert(wire.AlertKind.REMOVE, subject, mask), 1.0)
        detection.tick(1.0)
        assert detection.held_up
        assert detection.cut() is None
        for observer, mask in view.observer_masks(view.members[9]):
            report(detection, view, observer, wire.Alert(wire.AlertKind.REMOVE, 9, mask), 1.1)
        detection.tick(1.1)
        assert detection.cut() == Cut.of((), [Removal(view.members[index].incarnation) for index in (3, 9)])

    def test_silent_observers_are_asked_and_in_the_end_not_waited_for(self, lab) -> None:
        view, settings = lab.configuration(30), Settings()
        detection = CutDetection(lab.context(view))
        masks = view.observer_masks(view.members[9])
        for observer, mask in masks[:5]:
            report(detection, view, observer, wire.Alert(wire.AlertKind.REMOVE, 9, mask), 1.0)
        detection.tick(1.0)
        asked = detection.questions(1.0 + settings.reinforcement_timeout)
        assert asked == {observer: [9] for observer, _ in masks[5:]}
        later = 1.0 + settings.blind_reinforcement_timeout
        assert detection.questions(later) == {}
        detection.tick(later)
        assert detection.cut() == Cut.of((), [Removal(view.members[9].incarnation)])

    def test_the_alarm_is_raised_while_somebody_is_suspected(self, lab) -> None:
        """Not for noise, at once for a subject at L, and again after a while."""
        view, settings = lab.configuration(30), Settings()
        detection = CutDetection(lab.context(view))
        masks = view.observer_masks(view.members[9])
        report(detection, view, masks[0][0], wire.Alert(wire.AlertKind.REMOVE, 9, masks[0][1]), 1.0)
        detection.tick(1.0)
        assert not detection.alarm_due(2.0)  # noise
        for observer, mask in masks[1:4]:
            report(detection, view, observer, wire.Alert(wire.AlertKind.REMOVE, 9, mask), 2.0)
        detection.tick(2.0)
        assert detection.deadline <= 2.0
        assert detection.alarm_due(2.0)
        assert not detection.alarm_due(2.1)
        assert detection.alarm_due(2.0 + settings.reinforcement_timeout)

    def test_the_alarm_reaches_every_member_once_and_by_another_voter_the_next_time(self, lab) -> None:
        view, now = lab.configuration(20), 1.0
        electorate = tuple(
            Member(f"e{number}", *ADDRESSES[number], bytes([number + 1]) * 16) for number in range(3)
        )
        told: list[dict[Address, int]] = [{}, {}]
        for number, me in enumerate(electorate):
            context = Context(me, Settings(), random.Random(number), ConfigurationCache())
            context.configuration = view
            voters = Electorate(me, ADDRESSES)
            voters.restore(electorate, True, now)
            registry = MemberRegistry(context, 1)
            for turn in told:
                registry.raise_alarm(voters, now)
                for send in context.take_effects(now).sends:
                    assert isinstance(send.message, wire.EnsembleQuestion)
                    assert send.message.subjects == ()
                    turn |= dict.fromkeys(send.destinations, number)
        everybody = {member.address for member in view.members}
        assert set(told[0]) == set(told[1]) == everybody
        assert not [address for address in everybody if told[0][address] == told[1][address]]

    def test_the_whole_cluster_never_goes_in_one_cut(self, lab) -> None:
        view = lab.configuration(4)
        detection = CutDetection(lab.context(view))
        for index in range(4):
            detection.leave(index, 1.0)
        detection.tick(1.0)
        cut = detection.cut()
        assert cut is not None
        assert len(cut.removals) == 3

    def test_joins_wait_for_others_that_start_at_the_same_time(self, lab) -> None:
        settings = Settings()
        detection = CutDetection(lab.context(lab.configuration(4)))
        detection.join(lab.member(10), 1.0)
        detection.tick(1.0)
        assert detection.cut() is None
        detection.join(lab.member(11), 1.0 + settings.join_batch_quiet / 2)
        now = 1.001 + 1.5 * settings.join_batch_quiet
        detection.tick(now)
        assert detection.cut() == Cut.of([lab.member(10), lab.member(11)])


def reported(effects: Effects) -> list[int]:
    """The subjects, by index, of the reports in these effects."""
    reports = [send.message for send in effects.sends if isinstance(send.message, wire.EnsembleReport)]
    return [alert.subject for report in reports for alert in report.alerts]


class TestClient:
    @pytest.fixture
    def voters(self) -> tuple[Member, ...]:
        return tuple(Member(f"e{n}", *ADDRESSES[n], bytes([n + 1]) * 16) for n in range(3))

    @pytest.fixture
    def client(self, lab, voters) -> Client:
        """A member of a view of four, which the first voter has sent."""
        view = lab.configuration(4)
        me = view.members[1]
        made = Client(me, seeds=ADDRESSES, settings=Settings(), rng=random.Random(1))
        made.start(0.0)
        named = wire.EnsembleMembers(me.incarnation, view.cluster_id, True, voters)
        made.receive(ADDRESSES[0], named, 0.1)
        whole = wire.FullConfiguration(voters[0].incarnation, view.epoch, view.id, view.encoded())
        effects = made.receive(ADDRESSES[0], whole, 0.2)
        assert [event.configuration.id for event in effects.events] == [view.id]
        return made

    def test_views_come_from_voters_only(self, client: Client, lab) -> None:
        view = client.configuration
        assert view is not None
        stranger = view.members[2]
        chain = wire.DecidedChain(stranger.incarnation, view.epoch, view.id, (Cut.of([lab.member(50)]),))
        effects = client.receive(stranger.address, chain, 1.0)
        assert client.configuration is view
        assert not [event for event in effects.events if isinstance(event, ViewChanged)]
        client.receive(stranger.address, wire.EvictedNotice(client.me.incarnation, view.epoch + 1), 1.0)
        assert client.status.value == "member"

    def test_a_decided_cut_is_installed(self, client: Client, voters, lab) -> None:
        view = client.configuration
        assert view is not None
        cut = Cut.of([lab.member(50)], [Removal(view.members[0].incarnation)])
        chain = wire.DecidedChain(voters[1].incarnation, view.epoch, view.id, (cut,))
        effects = client.receive(ADDRESSES[1], chain, 1.0)
        (event,) = effects.events
        assert isinstance(event, ViewChanged)
        assert event.joined == (lab.member(50),)
        assert event.failed == (view.members[0],)

    def test_a_peer_in_a_later_view_makes_it_ask_the_ensemble(self, client: Client, lab) -> None:
        view = client.configuration
        assert view is not None
        peer = view.members[2]
        probe = wire.Probe(peer.incarnation[:8], view.epoch + 1, b"x" * 8, 1, None)
        effects = client.receive(peer.address, probe, 1.0)
        asked = [send for send in effects.sends if isinstance(send.message, wire.CatchUpRequest)]
        assert [set(send.destinations) <= set(ADDRESSES) for send in asked] == [True]
        assert [send for send in effects.sends if isinstance(send.message, wire.ProbeAcknowledged)]

    def test_a_member_names_the_ensemble_to_joiners(self, client: Client, lab, voters) -> None:
        joiner = lab.member(60)
        effects = client.receive(joiner.address, wire.EnsembleJoin(joiner), 1.0)
        (send,) = effects.sends
        assert send.message.electorate == voters
        assert not send.message.observed

    def test_a_subject_under_half_a_suspicion_is_reported_while_a_view_change_is_under_way(
        self, client: Client, voters
    ) -> None:
        view, settings = client.configuration, Settings()
        assert view is not None
        edge = client._monitor.subjects[0]
        edge.loss.score, edge.sent_before = settings.loss_threshold / 2, 0b11
        client.edge_checked(edge.subject.incarnation, healthy=True, now=0.3)
        assert reported(client.tick(0.5)) == []
        question = wire.EnsembleQuestion(voters[0].incarnation, view.epoch, view.id, ())
        client.receive(ADDRESSES[0], question, 0.5)
        assert reported(client.tick(0.5 + settings.remove_batch)) == [edge.index]
        over = 0.5 + settings.blind_reinforcement_timeout
        for each in client._monitor.subjects:
            each.detector.on_probe_result(True, over)
        assert reported(client.tick(over)) == []

    def test_nothing_is_reported_to_other_members(self, client: Client) -> None:
        """The point of the mode: alerts go to the ensemble alone."""
        now, sends = 0.2, []
        while now < 12.0:
            now += 0.05
            sends += client.tick(now).sends
        reports = [send for send in sends if isinstance(send.message, wire.EnsembleReport)]
        to_members = [send for send in sends if not set(send.destinations) <= set(ADDRESSES)]
        probes = {wire.Probe, wire.StreamProbe, wire.IndirectProbe}
        assert {type(send.message) for send in to_members} <= probes
        assert reports == []  # all subjects are silent, and the ensemble is: it doubts itself
