"""The centralised mode under keys: a report counts with its observer's signature only, whoever brings it."""

from __future__ import annotations

import random

import msgspec
import pytest

from membership.address import Address
from membership.ensemble import Client, Voter
from membership.ensemble.cut_detection import CutDetection
from membership.ensemble.durable_state import VoterState, encode_state
from membership.ensemble.session import EnsembleSession
from membership.protocol import messages as wire
from membership.protocol.context.alert_signatures import AlertSignatures
from membership.protocol.context.context import Context
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from membership.runtime.signing import Ed25519Signer
from membership.settings import Settings

ADDRESSES = [Address("10.255.0.1", 1000 + number) for number in range(3)]
VOTERS = tuple(Member(f"e{number}", *ADDRESSES[number], bytes([number + 1]) * 16) for number in range(3))
UNSIGNED = "dropped: reports on rings whose observers have not signed them"
FALSE = "dropped: a signature under a report that does not hold"
SUBJECT = 7


class Town:
    """Members that sign, in one view, and the reports they would send about one of them."""

    def __init__(self, count: int) -> None:
        signers = [Ed25519Signer() for _ in range(count)]
        members = [
            Member.create(f"n{number}", Address("10.0.0.1", 1000 + number), signer.incarnation)
            for number, signer in enumerate(signers)
        ]
        self.signers = {signer.incarnation: signer for signer in signers}
        self.view = Configuration.found(members[0], b"cluster-for-test", 10).apply(Cut.of(members[1:]))

    def signer(self, index: int) -> Ed25519Signer:
        return self.signers[self.view.members[index].incarnation]

    @property
    def observers(self) -> list[tuple[int, int]]:
        """The observers of the subject and their rings."""
        return list(self.view.observer_masks(self.view.members[SUBJECT]))

    def report(self, sender: int, rings: int, proofs: tuple[wire.Proof, ...] = ()) -> wire.EnsembleReport:
        alert = wire.Alert(wire.AlertKind.REMOVE, SUBJECT, rings)
        incarnation = self.view.members[sender].incarnation
        return wire.EnsembleReport(incarnation, self.view.epoch, self.view.id, (alert,), proofs)

    def signed(self, observer: int, rings: int) -> wire.EnsembleReport:
        """What this observer says itself."""
        evidence = AlertSignatures(self.view, observer, self.signer(observer), 1280)
        unsigned = self.report(observer, rings)
        alerts, proofs = evidence.provable(unsigned.alerts)
        return msgspec.structs.replace(unsigned, alerts=alerts, proofs=proofs)

    def voter(self, number: int = 0) -> Voter:
        """One that checks signatures, in this view, and has heard from the others."""
        record = VoterState(VOTERS[number], VOTERS, True, self.view.epoch, self.view.id, self.view.encoded())
        voter = Voter(
            VOTERS[number],
            addresses=ADDRESSES,
            settings=Settings(),
            rng=random.Random(number),
            saved=encode_state(record),
            signer=Ed25519Signer(),
        )
        voter.start(0.0)
        return voter

    def tell(self, voter: Voter, sender: int, message: wire.Message) -> None:
        voter.receive(self.view.members[sender].address, wire.decode(wire.encode(message)), 1.0)


@pytest.fixture(scope="module")
def town() -> Town:
    return Town(20)


def alert_bits(voter: Voter) -> int:
    """How many reports, one per ring, the voter believes."""
    assert voter._instance is not None
    return voter._instance.detection.digest().alert_bits


def test_a_signed_report_counts(town: Town) -> None:
    voter = town.voter()
    observer, rings = town.observers[0]
    town.tell(voter, observer, town.signed(observer, rings))
    assert alert_bits(voter) == rings.bit_count()
    assert not [name for name in voter.statistics() if name.startswith("dropped")]


def test_an_unsigned_report_is_counted_and_dropped(town: Town) -> None:
    voter = town.voter()
    observer, rings = town.observers[0]
    town.tell(voter, observer, town.report(observer, rings))
    assert alert_bits(voter) == 0
    assert voter.statistics()[UNSIGNED] == 1


def test_a_member_cannot_forge_the_report_of_another_observer(town: Town) -> None:
    """It has the key of the cluster and forges even the other's address, but has not the other's signature."""
    voter = town.voter()
    observer, rings = town.observers[0]
    truth = town.signed(observer, rings).proofs[0]
    liar = next(index for index in range(20) if index not in dict(town.observers))
    forger = town.signer(liar)
    statement = AlertSignatures(town.view, liar, forger, 1280)._statement(
        town.report(observer, rings).alerts[0], town.view.members[SUBJECT]
    )
    forged = wire.Proof(0, observer, forger.public_key, forger.sign(statement))
    for proof in (
        forged,
        msgspec.structs.replace(forged, public_key=truth.public_key),
        msgspec.structs.replace(truth, signature=bytes(64)),
        msgspec.structs.replace(truth, alert=1),
    ):
        town.tell(voter, observer, town.report(observer, rings, (proof,)))
        assert alert_bits(voter) == 0
    assert voter.statistics()[FALSE] == 4
    assert voter.statistics()[UNSIGNED] == 4
    # Nor under its own name: these are not its rings, even with the true signature.
    town.tell(voter, liar, town.report(liar, rings, (truth,)))
    assert alert_bits(voter) == 0
    assert voter.statistics()["dropped: a report on rings of another observer"] == 1


def test_a_signature_is_worth_nothing_in_the_next_view(town: Town) -> None:
    later = town.view.apply(Cut.of((), [Removal(town.view.members[19].incarnation)]))
    rings_then, rings_now = dict(town.observers), dict(later.observer_masks(later.members[SUBJECT]))
    observer = next(index for index in rings_then if index in rings_now)
    context = Context(VOTERS[0], Settings(), random.Random(1), ConfigurationCache(), Ed25519Signer())
    context.configuration = later
    detection = CutDetection(context)
    stale = town.signed(observer, rings_then[observer])
    alert = wire.Alert(wire.AlertKind.REMOVE, SUBJECT, rings_now[observer])
    message = msgspec.structs.replace(stale, epoch=later.epoch, configuration_id=later.id, alerts=(alert,))
    detection.report(message, observer, 1.0)
    assert detection.digest().alert_bits == 0
    assert context.counters[FALSE] == 1


class TestAmongVoters:
    def test_what_is_shared_brings_its_proofs(self, town: Town) -> None:
        informed, other = town.voter(0), town.voter(1)
        for observer, rings in town.observers[:4]:
            town.tell(informed, observer, town.signed(observer, rings))
        assert informed._instance is not None
        shared = informed._instance.detection.everything(1.0)
        other.receive(ADDRESSES[0], wire.decode(wire.encode(shared)), 1.0)
        assert alert_bits(other) == alert_bits(informed) > 0
        assert UNSIGNED not in other.statistics()

    def test_who_speaks_in_a_voters_name_makes_up_no_report(self, town: Town) -> None:
        voter = town.voter(1)
        alert = wire.Alert(wire.AlertKind.REMOVE, SUBJECT, (1 << 10) - 1)
        observer, rings = town.observers[0]
        proofs = town.signed(observer, rings).proofs
        header = (VOTERS[0].incarnation, town.view.epoch, town.view.id)
        voter.receive(ADDRESSES[0], wire.EnsembleAlerts(*header, (alert,), proofs), 1.0)
        assert alert_bits(voter) == rings.bit_count()  # what is proven counts, whoever brings it
        assert voter.statistics()[UNSIGNED] == 1

    def test_what_a_voter_decides_on_its_own_is_not_passed_on(self, town: Town) -> None:
        voter, other = town.voter(0), town.voter(1)
        assert voter._instance is not None
        voter._instance.detection.declare_failed(SUBJECT, 1.0)
        assert voter._instance.detection.everything(1.0).alerts == ()
        other.receive(ADDRESSES[0], voter._instance.detection.everything(1.0), 1.0)
        assert UNSIGNED not in other.statistics()


def test_a_member_signs_what_it_reports(town: Town) -> None:
    observer, rings = town.observers[0]
    client = Client(
        town.view.members[observer],
        seeds=ADDRESSES,
        settings=Settings(),
        rng=random.Random(1),
        signer=town.signer(observer),
    )
    client.start(0.0)
    named = wire.EnsembleMembers(client.me.incarnation, town.view.cluster_id, True, VOTERS)
    client.receive(ADDRESSES[0], named, 0.1)
    header = (VOTERS[0].incarnation, town.view.epoch, town.view.id)
    client.receive(ADDRESSES[0], wire.FullConfiguration(*header, town.view.encoded()), 0.2)
    client.edge_checked(town.view.members[SUBJECT].incarnation, healthy=False, certain=True, now=0.3)
    effects = client.tick(0.3 + Settings().remove_batch)
    (sent,) = [send for send in effects.sends if isinstance(send.message, wire.EnsembleReport)]
    assert sent.destinations == tuple(ADDRESSES)
    assert len(wire.encode(sent.message)) <= Settings().datagram_payload
    voter = town.voter()
    town.tell(voter, observer, sent.message)
    assert alert_bits(voter) == rings.bit_count()


def test_many_signed_reports_fit_their_datagrams() -> None:
    """A member alone among many dead ones: each datagram stays within its bound."""
    town = Town(200)
    subjects = [len(dict.fromkeys(town.view.subjects_of(member))) for member in town.view.members]
    index = subjects.index(max(subjects))
    me, signer = town.view.members[index], town.signer(index)
    context = Context(me, Settings(), random.Random(1), ConfigurationCache(), signer)
    context.install(town.view)
    monitor = Monitor(context)
    line = EnsembleSession(context, monitor)
    line.learn(VOTERS, 0.0)
    monitor.on_view_change(0.0)
    line.on_view_change(0.0)
    for edge in monitor.subjects:
        monitor.on_check(edge.subject.incarnation, False, True, 0.1)
    line.review(0.1)
    line.tick(0.1 + Settings().remove_batch)
    sent = [
        send.message
        for send in context.take_effects(0.0).sends
        if isinstance(send.message, wire.EnsembleReport)
    ]
    assert sum(len(message.alerts) for message in sent) == len(monitor.subjects) > 8
    assert all(len(wire.encode(message)) <= Settings().datagram_payload for message in sent)
