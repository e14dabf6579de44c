"""Signatures under alerts: a report that would remove or change a member is signed by its observer.

Gossip merges the reports of many observers, so its sender cannot answer for them. Each observer signs its own report
once, the signature travels with the merged alert, and every member verifies it once. Claims about the rings of
others do not count without their signatures. Votes and decisions are not signed (docs/security.md).
Source: Rapid, section 4.2: an alert is irrevocable and its observer's. The signatures are rota's addition.

An incarnation is a hash of the process's public key, so the view already says whose signature is whose. Joins are not
signed: they are many, and who holds a key may join anyway. Those that would take the place of a member with the same
name or address are signed.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from membership.protocol.messages import Alert, AlertKind, EnsembleAlerts, EnsembleReport, Gossip, Proof
from membership.protocol.messages.sizes import alert_bytes
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import INCARNATION_BYTES, Member

PROOF_BYTES = 110
"""A proof in a message, at most."""

_HEADER_BYTES = 128
_STATEMENTS_KEPT = 16384
_NEVER_PASSED_ON = 1 << 32


class Signer(Protocol):
    """Signs for one process, and checks the signatures of all."""

    public_key: bytes

    def sign(self, statement: bytes) -> bytes:
        """This process's signature."""

    def verify(self, public_key: bytes, signature: bytes, statement: bytes) -> bool:
        """Whether the signature is of this key's owner."""


def incarnation_of(public_key: bytes) -> bytes:
    """The incarnation of the process with this key."""
    return hashlib.blake2b(public_key, digest_size=INCARNATION_BYTES, person=b"rota incarnation").digest()


class AlertSignatures:
    """The signatures known in one configuration."""

    def __init__(self, view: Configuration, index: int, signer: Signer, payload: int) -> None:
        """`index`: this member's, or -1 of who is none and signs nothing. `payload`: bytes of a message that still
        goes as one datagram."""
        self._view = view
        self._index = index
        self._signer = signer
        self._payload = payload
        self._known: dict[bytes, dict[int, Proof]] = {}
        self._passed_on: dict[bytes, dict[tuple[int, AlertKind], int]] = {}

    # What arrives.

    def take(self, message: Gossip | EnsembleReport | EnsembleAlerts) -> bool:
        """Keep the proofs of a message that hold; False when one does not, then the rest is not looked at."""
        statements: dict[int, bytes] = {}
        for proof in message.proofs:
            if not 0 <= proof.alert < len(message.alerts):
                return False
            alert = message.alerts[proof.alert]
            subject = self._subject(alert)
            if subject is None:
                return False
            statement = statements.get(proof.alert) or self._statement(alert, subject)
            statements[proof.alert] = statement
            if proof.observer in self._known.get(statement, ()):
                continue
            if len(self._known) >= _STATEMENTS_KEPT and statement not in self._known:
                return False
            if not self._is_genuine(proof, subject, statement):
                return False
            self._known.setdefault(statement, {})[proof.observer] = proof
        return True

    def _is_genuine(self, proof: Proof, subject: Member, statement: bytes) -> bool:
        if proof.observer not in dict(self._view.observer_masks(subject)):
            return False
        observer = self._view.members[proof.observer]
        if incarnation_of(proof.public_key) != observer.incarnation:
            return False
        return self._signer.verify(proof.public_key, proof.signature, statement)

    def proven(self, alert: Alert) -> int:
        """The rings of this alert that may count: all if it needs no proof."""
        subject = self._subject(alert)
        if subject is None or not self._needs_proof(alert):
            return alert.rings
        known = self._known.get(self._statement(alert, subject), {})
        proven = 0
        for observer, mask in self._view.observer_masks(subject):
            if observer in known:
                proven |= mask
        return alert.rings & proven

    # What is sent.

    def with_proofs(self, message: Gossip, *, news: bool, whole: bool = False) -> Iterator[Gossip]:
        """The message with its proofs; unless `whole`, in several where it would not fit one datagram.

        `news`: of each alert only what this member has not passed on before, since others have that.
        """
        alerts = [alert for alert in message.alerts if not self._needs_proof(alert)]
        if len(alerts) == len(message.alerts):
            yield message
            return
        proofs: list[Proof] = []
        votes = message.votes
        size = sum(map(alert_bytes, alerts)) + sum(len(bitmap) + 22 for _, bitmap in votes)
        for alert in message.alerts:
            if not self._needs_proof(alert):
                continue
            rings, own = self._proofs_of(alert, news)
            if not rings:
                continue
            needed = alert_bytes(alert) + PROOF_BYTES * len(own)
            if not whole and size + needed > self._payload - _HEADER_BYTES and (alerts or votes):
                yield msgspec.structs.replace(
                    message, alerts=tuple(alerts), votes=votes, proofs=tuple(proofs)
                )
                alerts, proofs, votes, size = [], [], (), 0
            proofs += [msgspec.structs.replace(proof, alert=len(alerts)) for proof in own]
            alerts.append(alert if rings == alert.rings else msgspec.structs.replace(alert, rings=rings))
            size += needed
        yield msgspec.structs.replace(message, alerts=tuple(alerts), votes=votes, proofs=tuple(proofs))

    def provable(self, alerts: Iterable[Alert]) -> tuple[tuple[Alert, ...], tuple[Proof, ...]]:
        """Those of the alerts, and of their rings, that others will believe, and the proofs to send with them."""
        kept: list[Alert] = []
        proofs: list[Proof] = []
        for alert in alerts:
            if not self._needs_proof(alert):
                kept.append(alert)
                continue
            rings, known = self._proofs_of(alert, news=False)
            if rings:
                proofs += [msgspec.structs.replace(proof, alert=len(kept)) for proof in known]
                kept.append(alert if rings == alert.rings else msgspec.structs.replace(alert, rings=rings))
        return tuple(kept), tuple(proofs)

    def _proofs_of(self, alert: Alert, news: bool) -> tuple[int, list[Proof]]:
        """The proofs to send with an alert, and the rings they are about."""
        subject = self._subject(alert)
        assert subject is not None, "this member's own table holds no such alert"
        statement = self._statement(alert, subject)
        known = self._known.setdefault(statement, {})
        passed_on = self._passed_on.setdefault(statement, {})
        observers = {
            observer: mask
            for observer, mask in self._view.observer_masks(subject)
            if mask & alert.rings and (observer in known or observer == self._index)
        }
        if news:  # a younger age than before: the observer has confirmed its report
            observers = {
                observer: mask
                for observer, mask in observers.items()
                if alert.age < passed_on.get((observer, alert.kind), _NEVER_PASSED_ON)
            }
        passed_on.update(((observer, alert.kind), alert.age) for observer in observers)
        if self._index in observers and self._index not in known:
            signature = self._signer.sign(statement)
            known[self._index] = Proof(0, self._index, self._signer.public_key, signature)
        rings = sum(observers.values()) & alert.rings
        return rings, [known[observer] for observer in observers]

    # What is signed.

    def _needs_proof(self, alert: Alert) -> bool:
        if alert.kind is AlertKind.JOIN and alert.member is not None:
            return bool(self._view.conflicts(alert.member))
        return True

    def _subject(self, alert: Alert) -> Member | None:
        if alert.member is not None:
            return alert.member
        return self._view.members[alert.subject] if 0 <= alert.subject < len(self._view) else None

    def _statement(self, alert: Alert, subject: Member) -> bytes:
        """In this configuration: `subject` shall go, shall come in, or shall have this record."""
        if alert.member is None:
            what = b"out" + subject.incarnation
        else:
            what = (b"in " if alert.kind is AlertKind.JOIN else b"as ") + msgspec.msgpack.encode(subject)
        return hashlib.blake2b(self._view.id + what, digest_size=32, person=b"rota report").digest()
