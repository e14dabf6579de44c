"""Signed reports: what an observer has not signed counts for nothing, and everything else works as before."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from membership.address import Address
from membership.protocol.context.alert_signatures import PROOF_BYTES, AlertSignatures
from membership.protocol.context.effects import Effects
from membership.protocol.core import Core
from membership.protocol.messages import Alert, AlertKind, Digest, FullConfiguration, Gossip, Proof, encode
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged
from membership.runtime.signing import Ed25519Signer
from membership.settings import Settings

EVERY_RING = (1 << 10) - 1
NOBODY = Member.create("n99", Address("10.0.0.9", 99), bytes(range(16)))


class Town:
    """Members that sign, in one view; the cores of some of them."""

    def __init__(self, count: int) -> None:
        self.signers = [Ed25519Signer() for _ in range(count)]
        members = [
            Member.create(f"n{number}", Address("10.0.0.1", 1000 + number), signer.incarnation)
            for number, signer in enumerate(self.signers)
        ]
        first = Configuration.found(members[0], b"cluster-for-test", 10)
        self.view = first.apply(Cut.of(members[1:]))

    def signer(self, index: int) -> Ed25519Signer:
        incarnation = self.view.members[index].incarnation
        return next(each for each in self.signers if each.incarnation == incarnation)

    def core(self, index: int) -> Core:
        core = Core(
            self.view.members[index],
            seeds=[],
            settings=Settings(),
            rng=random.Random(index),
            cluster_id=self.view.cluster_id,
            signer=self.signer(index),
        )
        core.start(0.0)
        sender = self.view.members[(index + 1) % len(self.view)]
        whole = FullConfiguration(sender.incarnation, self.view.epoch, self.view.id, self.view.encoded())
        core.receive(sender.address, whole, 0.0)
        return core

    def evidence(self, index: int) -> AlertSignatures:
        return AlertSignatures(self.view, index, self.signer(index), 1280)

    def gossip(self, sender: int, *alerts: Alert, proofs: tuple[Proof, ...] = ()) -> Gossip:
        name = self.view.members[sender].incarnation[:8]
        return Gossip(name, self.view.epoch, self.view.short_id, Digest(), alerts, (), proofs)

    def said(self, core: Core, sender: int, message: Gossip, now: float = 1.0) -> Effects:
        return core.receive(self.view.members[sender].address, message, now)

    def rings(self, observer: int, subject: int) -> int:
        return dict(self.view.observer_masks(self.view.members[subject])).get(observer, 0)

    def pairs(self, subject: int) -> list[tuple[int, int]]:
        """Observers of the subject and their rings."""
        return list(self.view.observer_masks(self.view.members[subject]))


@pytest.fixture(scope="module")
def town() -> Town:
    return Town(20)


def known(core: Core) -> dict[int, Any]:
    """What the core believes about removals."""
    instance = core._instance
    assert instance is not None
    return {subject: report.rings for subject, report in instance.table.removals.items() if report.rings}


@pytest.mark.parametrize("kind", [AlertKind.REMOVE, AlertKind.LEAVE, AlertKind.EVICT])
def test_b14_a_member_cannot_report_on_rings_it_does_not_own(town: Town, kind: AlertKind) -> None:
    """One packet of a member that has the key, about all rings of a victim: refused, and counted."""
    core = town.core(0)
    for liar in (1, 2, 3):
        effects = town.said(core, liar, town.gossip(liar, Alert(kind, 7, EVERY_RING)))
        assert not effects.sends
    assert known(core) == {}
    assert core.statistics()["dropped: reports on rings whose observers have not signed them"] == 3


def test_b14_nor_sign_for_another(town: Town) -> None:
    """Its own signature under the other's name, the other's key with its own signature, a key of nobody."""
    core = town.core(0)
    observer, mask = next(pair for pair in town.pairs(7) if pair[0] not in (0, 1))
    liar = town.signer(1)
    alert = Alert(AlertKind.REMOVE, 7, mask)
    other = Ed25519Signer()
    truth = next(
        iter(town.evidence(observer).with_proofs(town.gossip(observer, alert), news=False, whole=True))
    ).proofs[0]
    statement = town.evidence(observer)._statement(alert, town.view.members[7])
    for proof in (
        Proof(0, observer, liar.public_key, liar.sign(statement)),
        Proof(0, observer, truth.public_key, liar.sign(statement)),
        Proof(0, observer, other.public_key, other.sign(statement)),
        Proof(0, 19, truth.public_key, truth.signature),
        Proof(0, 500, truth.public_key, truth.signature),
        Proof(3, observer, truth.public_key, truth.signature),
        msgspec.structs.replace(truth, signature=bytes(64)),
    ):
        town.said(core, 1, town.gossip(1, alert, proofs=(proof,)))
        assert known(core) == {}
    assert core.statistics()["dropped: a signature under a report that does not hold"] == 7
    town.said(core, 1, town.gossip(1, alert, proofs=(truth,)))
    assert known(core) == {7: mask}


def test_a_report_is_believed_from_anybody_who_brings_its_proof(town: Town) -> None:
    """What gossip merges on its way stays proven; what somebody adds does not count."""
    merged = town.core(0)
    carried: tuple[Proof, ...] = ()
    honest = 0
    for observer, mask in town.pairs(7)[:3]:
        if observer == 0:
            continue
        alert = Alert(AlertKind.REMOVE, 7, mask)
        (message,) = town.evidence(observer).with_proofs(town.gossip(observer, alert), news=False, whole=True)
        carried += message.proofs
        honest |= mask
    greedy = Alert(AlertKind.REMOVE, 7, EVERY_RING)
    town.said(merged, 1, town.gossip(1, greedy, proofs=carried))
    assert known(merged) == {7: honest}
    assert merged.statistics()["dropped: reports on rings whose observers have not signed them"] == 1


def test_a_proof_is_of_one_configuration_and_one_subject(town: Town) -> None:
    observer, mask = next(pair for pair in town.pairs(7) if pair[0] != 0)
    alert = Alert(AlertKind.REMOVE, 7, mask)
    (message,) = town.evidence(observer).with_proofs(town.gossip(observer, alert), news=False, whole=True)
    other = next(subject for subject in range(20) if subject != 7 and dict(town.pairs(subject)).get(observer))
    core = town.core(0)
    moved = Alert(AlertKind.REMOVE, other, dict(town.pairs(other))[observer])
    town.said(core, observer, town.gossip(observer, moved, proofs=message.proofs))
    assert known(core) == {}
    later = town.view.apply(Cut.of([NOBODY]))
    subject = later.index_of(town.view.members[7].name)
    where = later.index_of(town.view.members[observer].name)
    assert subject is not None
    assert where is not None
    evidence = AlertSignatures(later, 0, town.signer(0), 1280)
    stale = Proof(0, where, message.proofs[0].public_key, message.proofs[0].signature)
    assert not evidence.take(town.gossip(1, Alert(AlertKind.REMOVE, subject, mask), proofs=(stale,)))


def test_a_join_needs_no_proof_unless_it_takes_a_members_place(town: Town) -> None:
    core = town.core(0)
    town.said(core, 1, town.gossip(1, Alert(AlertKind.JOIN, -1, 0b1, 0, NOBODY)))
    instance = core._instance
    assert instance is not None
    assert NOBODY.incarnation in instance.table.joins
    victim = town.view.members[7]
    usurper = Member.create(victim.name, victim.address, bytes(16))
    town.said(core, 1, town.gossip(1, Alert(AlertKind.JOIN, -1, EVERY_RING, 0, usurper)))
    assert usurper.incarnation not in instance.table.joins
    changed = msgspec.structs.replace(victim, metadata=(("rack", "r9"),))
    town.said(core, 1, town.gossip(1, Alert(AlertKind.UPDATE, -1, EVERY_RING, 0, changed)))
    assert core.statistics()["dropped: reports on rings whose observers have not signed them"] == 2


def test_proofs_fit_their_datagrams(town: Town) -> None:
    evidence = town.evidence(0)
    carried: list[Gossip] = []
    for subject in range(8):
        for observer, mask in town.pairs(subject):
            message = town.gossip(observer, Alert(AlertKind.REMOVE, subject, mask))
            (signed,) = town.evidence(observer).with_proofs(message, news=False, whole=True)
            assert evidence.take(signed)
            assert len(encode(Gossip(*_header(signed), Digest(), (), (), signed.proofs))) < 70 + PROOF_BYTES
    alerts = tuple(Alert(AlertKind.REMOVE, subject, EVERY_RING) for subject in range(8))
    votes = ((bytes(16), bytes(250)), (bytes(16), bytes(250)))
    whole = msgspec.structs.replace(town.gossip(0, *alerts), votes=votes)
    carried = list(evidence.with_proofs(whole, news=False))
    assert all(len(encode(part)) <= 1280 for part in carried)
    assert [part.votes for part in carried if part.votes] == [votes]
    assert sorted(alert.subject for part in carried for alert in part.alerts) == list(range(8))
    receiver = town.evidence(1)
    for part in carried:
        assert receiver.take(part)
        for alert in part.alerts:
            assert receiver.proven(alert) == EVERY_RING
    assert len(list(evidence.with_proofs(whole, news=False, whole=True))) == 1


def test_proofs_are_checked_once(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = town.evidence(0)
    observer, mask = next(pair for pair in town.pairs(7) if pair[0] != 0)
    (message,) = town.evidence(observer).with_proofs(
        town.gossip(observer, Alert(AlertKind.REMOVE, 7, mask)), news=False
    )
    assert evidence.take(message)
    monkeypatch.setattr(Ed25519Signer, "verify", lambda *_: pytest.fail("checked again"))
    assert evidence.take(message)


# Whole clusters of signing members.


def removed_in_one_change(crew: Any, since: float) -> None:
    changes = {event.configuration.epoch for _, _, event in crew.seen(ViewChanged, since + 1e-6)}
    assert len(changes) == 1, changes


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_crashes_leaves_and_updates_work_as_without(cluster: Any, loss: float) -> None:
    from chaos import NetworkSettings

    crew = cluster(12, seed=3, signed=True, network=NetworkSettings(loss=loss))
    crew.boot()
    assert crew.run(2.0) is not None
    for action in (_crash, _leave, _update, _evict):
        since, epoch = crew.now, crew.epoch
        size = action(crew)
        assert crew.run(40.0, lambda size=size, epoch=epoch: crew.together(size) and crew.epoch > epoch)
        removed_in_one_change(crew, since)
    for core in crew.cores:
        refused = "dropped: reports on rings whose observers have not signed them"
        assert core.statistics().get(refused, 0) == 0
        assert core.statistics().get("dropped: a signature under a report that does not hold", 0) == 0


def _crash(crew: Any) -> int:
    for host in crew.hosts[4:6]:
        crew.simulator.crash(host)
    return 10


def _leave(crew: Any) -> int:
    host = crew.hosts[7]
    crew.simulator.command(host, lambda core, now: core.leave(now))
    crew.run(10.0, lambda: host.process is not None and host.process.status.value == "left")
    crew.simulator.crash(host)
    return 9


def _update(crew: Any) -> int:
    crew.simulator.command(crew.hosts[1], lambda core, now: core.set_metadata({"rack": "r7"}, now))
    return 9


def _evict(crew: Any) -> int:
    crew.rejoin = False
    crew.simulator.command(crew.hosts[1], lambda core, now: core.evict("n9", now))
    return 8


def test_a_process_that_restarts_takes_its_own_place_back(cluster: Any) -> None:
    """B15 with signatures: the join that replaces a member carries its observers' proofs."""
    crew = cluster(8, seed=4, signed=True)
    crew.boot()
    host = crew.hosts[3]
    epoch = crew.epoch
    crew.simulator.crash(host)
    crew.simulator.start(host)
    assert crew.run(20.0, lambda: crew.together(8) and crew.epoch > epoch)


def _header(message: Gossip) -> tuple[bytes, int, bytes]:
    return message.sender, message.epoch, message.configuration_id
