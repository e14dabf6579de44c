"""A member's session with its ensemble: heartbeats, reports and requests.

Reports of silent subjects, and requests (to leave, to change metadata, to evict a member), are repeated until a view
settles them. Heartbeats to the voters show whether a majority of them is within reach.
Source: Rapid, section 5: members report to the ensemble only, and ask it from time to time.
"""

from collections.abc import Iterable, Sequence

import msgspec

from consensus import classic_quorum
from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import QuorumLost, QuorumRegained
from membership.protocol.messages import (
    Alert,
    AlertKind,
    CatchUpRequest,
    EnsembleReport,
    EvictRequest,
    LeaveRequest,
    MemberMessage,
    Probe,
    UpdateRequest,
)
from membership.protocol.monitoring.edge import Edge
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.member import Member

HEARTBEAT_INTERVAL = 3
"""Probe intervals from one heartbeat to the next. So QuorumLost comes as soon as in the decentralised mode."""
_BACK_OFF = 1.5
_ALERTS_PER_DATAGRAM = 64
_SIGNED_ALERTS_PER_DATAGRAM = 8


class EnsembleSession:
    """From one member to the voters. Reports and requests are repeated until a view settles them."""

    def __init__(self, context: Context, monitor: Monitor) -> None:
        self._context = context
        self._monitor = monitor
        self.electorate: tuple[Member, ...] = ()
        self._voters: dict[bytes, Address] = {}
        self._heard: dict[bytes, float] = {}
        self._sequence = 0
        self._heartbeat_at = NEVER
        self._report_at = NEVER
        self._report_pause = 0.0
        self._reported: dict[int, None] = {}
        self._asked: dict[int, None] = {}
        self._joining_in_until = -NEVER
        self._leaving = False
        self._metadata: tuple[tuple[str, str], ...] | None = None
        self._record: Member | None = None
        self._evictions: dict[bytes, float] = {}
        self._request_at = NEVER
        self._request_pause = 0.0
        self._asked_at = -NEVER
        self._heartbeat_since: float | None = None
        self._missing_since: float | None = None
        self.lost = False

    # The electorate.

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where the voters are; empty while unknown."""
        return tuple(self._voters.values())

    def learn(self, electorate: Sequence[Member], now: float) -> None:
        """Who the voters are. They never change (see electorate)."""
        if not self._voters:
            self.electorate = tuple(electorate)
            self._voters = {voter.incarnation: voter.address for voter in electorate}
            self._heard = dict.fromkeys(self._voters, now)

    @property
    def voters(self) -> Iterable[bytes]:
        """The voters' incarnations."""
        return self._voters

    def voter_address(self, incarnation: bytes) -> Address | None:
        """Where the voter of this incarnation is; None if it is no voter's."""
        return self._voters.get(incarnation)

    def is_voter_at(self, address: Address) -> bool:
        """Whether a voter has this address."""
        return address in self._voters.values()

    def heard(self, incarnation: bytes, now: float) -> None:
        """This voter has sent something."""
        self._heard[incarnation] = now

    # What is said.

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self._heartbeat_at, self._report_at, self._request_at)

    def on_view_change(self, now: float) -> None:
        """A new view: what was reported about the last one is settled, or to be said again."""
        settings = self._context.settings
        if self._heartbeat_at == NEVER:
            self._heartbeat_at = (
                now + HEARTBEAT_INTERVAL * settings.probe_interval * self._context.rng.random()
            )
        self._reported.clear()
        self._asked.clear()
        self._joining_in_until = -NEVER
        self._report_at = NEVER
        self._report_pause = settings.rpc_retransmit
        self._record = None
        if self._metadata == self._context.me.metadata:
            self._metadata = None
        self._request(now)
        self.review(now)

    def review(self, now: float) -> None:
        """The monitor's opinion may have changed: a subject newly found faulty is reported shortly."""
        if any(edge.index not in self._reported for edge in self._accused(now)):
            self._report_at = min(self._report_at, now + self._context.settings.remove_batch)
            self._report_pause = self._context.settings.rpc_retransmit

    def _accused(self, now: float) -> list[Edge]:
        """Subjects found faulty; while a view change is under way also those about to be, to go with it."""
        edges = self._monitor.failed_edges()
        return edges + self._monitor.corroborating_edges() if now < self._joining_in_until else edges

    def on_question(self, subjects: Sequence[int], now: float) -> None:
        """The ensemble says that a view change is under way: subjects that are about to be found faulty go with it.

        It may ask about subjects that others report: any evidence of one's own counts for these.
        """
        self._joining_in_until = now + self._context.settings.blind_reinforcement_timeout
        self.review(now)
        view = self._context.view
        for index in subjects:
            edge = self._monitor.edge_to(view, index) if 0 <= index < len(view) else None
            if edge is not None and (edge.failed or edge.has_evidence() or edge.corroborates()):
                self._context.count("removals reinforced")
                self._asked[index] = None
                self._report_at = min(self._report_at, now)

    def leave(self, now: float) -> None:
        """Say that this member leaves, until it has left."""
        self._leaving = True
        self._request(now)

    def set_metadata(self, metadata: tuple[tuple[str, str], ...], now: float) -> None:
        """Have these agreed as this member's metadata. Later ones take the place of earlier ones."""
        self._metadata = metadata
        self._request(now)

    def evict(self, incarnation: bytes, now: float) -> None:
        """Have this member removed, if that can be agreed within `Settings.leave_timeout`."""
        self._evictions[incarnation] = now + self._context.settings.leave_timeout
        self._request(now)

    def _request(self, now: float) -> None:
        self._request_at = now
        self._request_pause = self._context.settings.rpc_retransmit

    def ask(self, now: float) -> None:
        """Ask a voter for later views; at most once in a while."""
        if now - self._asked_at >= self._context.settings.catch_up_interval and self._voters:
            self._asked_at = now
            self._context.count("catch-up requests")
            address = self._context.rng.choice(self.addresses)
            self._context.send(address, CatchUpRequest(*self._context.header))

    def tick(self, now: float) -> None:
        """Say what is due."""
        if now >= self._heartbeat_at:
            self._heartbeat(now)
        if now >= self._report_at:
            self._report(now)
        if now >= self._request_at:
            self._send_requests(now)

    def _send_requests(self, now: float) -> None:
        """Ask for what this member wants, again and again until a view grants it or its time is up."""
        context = self._context
        view = context.view
        self._evictions = {
            incarnation: ends
            for incarnation, ends in self._evictions.items()
            if ends > now and view.index_of_incarnation(incarnation) is not None
        }
        requests: list[MemberMessage] = [EvictRequest(*context.header, key) for key in self._evictions]
        if self._leaving:
            requests.append(LeaveRequest(*context.header))
        if self._metadata is not None and self._record is None and self._metadata != context.me.metadata:
            # One record per configuration: two values under way at once would split the votes.
            self._record = msgspec.structs.replace(context.me, metadata=self._metadata)
        if self._record is not None:
            requests.append(UpdateRequest(*context.header, self._record))
        for request in requests:
            context.send_all(self.addresses, request)
        self._request_at = now + self._request_pause if requests else NEVER
        self._request_pause = min(self._request_pause * _BACK_OFF, context.settings.rpc_cap)

    def _report(self, now: float) -> None:
        rings: dict[int, int] = {}
        accused = self._accused(now)
        for edge in accused:
            if not edge.has_evidence():
                continue  # the window still holds old failures, but the subject answers again
            # Most subjects silent, or the ensemble: more likely the fault is here. Then others must report first.
            # A subject that nobody else observes is different, as long as the ensemble answers.
            sole_observer = edge.rings == (1 << self._context.settings.rings) - 1
            in_doubt = self._monitor.doubts_itself and not sole_observer
            if (in_doubt or self._missing_since is not None) and not (
                edge.certain or edge.index in self._asked
            ):
                self._context.count("accusations withheld in self-doubt")
                continue
            rings[edge.index] = edge.rings
        for index in self._asked:
            edge_asked = self._monitor.edge_to(self._context.view, index)
            if edge_asked is not None and not edge_asked.failed:
                rings[index] = edge_asked.rings
        self._reported = {edge.index: None for edge in accused}
        alerts = [Alert(AlertKind.REMOVE, index, mask) for index, mask in rings.items()]
        if alerts:
            self._context.count("reports sent")
        signatures = self._context.signatures
        size = _ALERTS_PER_DATAGRAM if signatures is None else _SIGNED_ALERTS_PER_DATAGRAM
        for first in range(0, len(alerts), size):
            batch = tuple(alerts[first : first + size])
            signed = (batch, ()) if signatures is None else signatures.provable(batch)
            self._context.send_all(self.addresses, EnsembleReport(*self._context.header, *signed))
        if self._reported or self._asked:
            self._report_at = now + self._report_pause
            self._report_pause = min(self._report_pause * _BACK_OFF, self._context.settings.rpc_cap)
        else:
            self._report_at = NEVER

    # Is a majority of the voters within reach?

    def _heartbeat(self, now: float) -> None:
        """Send the voters a heartbeat every now and then; while too few of them answer, again and again."""
        settings = self._context.settings
        if self._heartbeat_since is not None:
            answered = sum(1 for at in self._heard.values() if at >= self._heartbeat_since)
            if answered >= classic_quorum(len(self._voters)):
                self._missing_since = self._heartbeat_since = None
                self._set_lost(False)
                pause = (HEARTBEAT_INTERVAL - 1) * settings.probe_interval
                self._heartbeat_at = now + pause * (0.75 + 0.5 * self._context.rng.random())
                return
            if self._missing_since is None:
                self._missing_since = now
            self._set_lost(now - self._missing_since >= settings.quorum_timeout)
        else:
            self._heartbeat_since = now  # answers to repetitions count too
        self._sequence += 1
        self._context.send_all(self.addresses, Probe(*self._context.short_header, self._sequence, None))
        self._heartbeat_at = now + settings.probe_interval

    def _set_lost(self, lost: bool) -> None:
        if lost != self.lost:
            self.lost = lost
            self._context.publish(QuorumLost() if lost else QuorumRegained())
