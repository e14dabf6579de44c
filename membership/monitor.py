"""Monitoring: this member probes its subjects and forms an opinion about each.

What it is: the edges from this member to its distinct subjects, probe rounds with retransmission, and the
question which subjects this member accuses.
What it is not: dissemination (see gossip) or agreement.
Source: Rapid section 4.1 and 6. Beyond it: an edge keeps its detector across view changes; a member whose own
loop lagged, or most of whose subjects do not answer, doubts itself first.
"""

from membership.address import Address
from membership.configuration import Configuration
from membership.context import NEVER, Context
from membership.edge_detector import DetectorFactory, EdgeDetector, windowed
from membership.effects import EdgeFailed, EdgeRecovered
from membership.member import Member
from membership.messages import Digest, NotMember, Probe


class Edge:
    """One distinct subject of this member."""

    __slots__ = ("acknowledged", "detector", "failed", "first_sequence", "gone", "index", "rings", "subject")

    def __init__(self, subject: Member, detector: EdgeDetector, first_sequence: int) -> None:
        self.subject = subject
        self.detector = detector
        self.first_sequence = first_sequence
        self.acknowledged = -1
        self.index = -1
        self.rings = 0
        self.failed = False
        self.gone = False


class Monitor:
    """All edges of this member."""

    def __init__(self, context: Context, factory: DetectorFactory = windowed) -> None:
        self._context = context
        self._factory = factory
        self._edges: dict[bytes, Edge] = {}
        self._sequence = 0
        self._attempts = 0
        self._round_started = 0.0
        self._pending: Probe | None = None
        self.deadline = NEVER

    def on_view_change(self, now: float) -> None:
        """Take over the edges of the new view; an edge that stays keeps its detector."""
        view = self._context.view
        edges: dict[bytes, Edge] = {}
        for ring, index in enumerate(view.subjects_of(self._context.me)):
            if index == self._context.index:
                continue
            subject = view.members[index]
            edge = edges.get(subject.incarnation) or self._edges.get(subject.incarnation)
            if edge is None:
                edge = Edge(subject, self._factory(self._context.settings), self._sequence + 1)
            if subject.incarnation not in edges:
                edges[subject.incarnation] = edge
                edge.rings = 0
                edge.index = index
            edge.rings |= 1 << ring
        self._edges = edges
        if not edges:
            self.deadline = NEVER
        elif self.deadline == NEVER:
            self._start_at(now + self._context.rng.random() * self._context.settings.probe_interval)

    def _start_at(self, when: float) -> None:
        self._round_started = when - self._context.settings.probe_interval
        self._attempts = self._context.settings.probe_attempts
        self._pending = None
        self.deadline = when

    @property
    def subjects(self) -> tuple[Edge, ...]:
        """The edges, in order of their first ring."""
        return tuple(self._edges.values())

    def tick(self, now: float, digest: Digest) -> None:
        """Send what is due: the next attempt of this round, or the first probe of the next."""
        if now < self.deadline:
            return
        settings = self._context.settings
        round_ends = self._round_started + settings.probe_interval
        if now < round_ends:
            self._retransmit(round_ends)
            return
        if self._pending is not None:
            self._conclude_round(now, lagged=now - round_ends > settings.probe_interval / 2)
        # After a pause the missed rounds are skipped: they say nothing about the subjects.
        late = now - round_ends
        self._round_started = now if late > settings.probe_interval / 2 else round_ends
        self._sequence += 1
        self._attempts = 1
        self._pending = Probe(*self._context.header, self._sequence, digest)
        self._context.send_all([edge.subject.address for edge in self._edges.values()], self._pending)
        self._context.count("probes", len(self._edges))
        self._schedule(self._round_started + settings.probe_interval)

    def _retransmit(self, round_ends: float) -> None:
        silent = [
            edge.subject.address
            for edge in self._edges.values()
            if edge.acknowledged < self._sequence and edge.first_sequence <= self._sequence
        ]
        self._attempts += 1
        if silent and self._pending is not None:
            self._context.send_all(silent, self._pending)
            self._context.count("probes repeated", len(silent))
        elif not silent:
            self._attempts = self._context.settings.probe_attempts
        self._schedule(round_ends)

    def _schedule(self, round_ends: float) -> None:
        settings = self._context.settings
        if self._attempts >= settings.probe_attempts:
            self.deadline = round_ends
        else:
            self.deadline = self._round_started + self._attempts * settings.probe_retransmit

    def _conclude_round(self, now: float, lagged: bool) -> None:
        for edge in self._edges.values():
            if edge.first_sequence > self._sequence:
                continue
            success = edge.acknowledged >= self._sequence
            if success or not lagged:
                edge.detector.on_probe_result(success, now)
            self._judge(edge, now)
        if lagged:
            self._context.count("probe rounds discarded for own lag")

    def _judge(self, edge: Edge, now: float) -> None:
        faulty = edge.detector.is_faulty(now)
        if faulty != edge.failed:
            edge.failed = faulty
            self._context.publish(EdgeFailed(edge.subject) if faulty else EdgeRecovered(edge.subject))

    def on_acknowledgement(self, sender: bytes, sequence: int) -> None:
        """A probe of this sequence was answered by this incarnation."""
        edge = self._edges.get(sender)
        if edge is not None and edge.acknowledged < sequence <= self._sequence:
            edge.acknowledged = sequence

    def on_not_member(self, source: Address, message: NotMember, now: float) -> Member | None:
        """A process without a view answered a probe.

        It is either the subject itself, which has not received its view (returned, so that it can be helped),
        or another incarnation at the subject's address: then the subject is gone for certain. That is not
        reported at once, because the other one is about to take its place, in one cut (see admission); should
        it not, the probes fail as those of any dead subject.
        """
        if self._pending is None or message.sequence != self._sequence:
            return None
        if message.configuration_id != self._pending.configuration_id:
            return None
        edge = self._edges.get(message.incarnation)
        if edge is not None:
            self.on_acknowledgement(message.incarnation, message.sequence)
            return edge.subject
        for edge in self._edges.values():
            if edge.subject.address == source:
                edge.gone = True
        return None

    @property
    def doubts_itself(self) -> bool:
        """Whether most subjects failed to answer of late: then the fault is more likely here."""
        silent = sum(1 for edge in self._edges.values() if edge.detector.has_evidence() and not edge.gone)
        return 2 * silent > len(self._edges)

    def failed_edges(self) -> list[Edge]:
        """Edges whose subjects this member finds faulty."""
        return [edge for edge in self._edges.values() if edge.failed]

    def edge_to(self, configuration: Configuration, index: int) -> Edge | None:
        """The edge to the member with this index, or None."""
        return self._edges.get(configuration.members[index].incarnation)
