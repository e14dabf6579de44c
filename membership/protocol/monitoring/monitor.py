"""The monitor: this member probes its subjects on the rings, and judges each of them.

It holds the edges to its distinct subjects, runs the rounds of probes with their retransmissions, and says which
subjects this member finds faulty.
Source: Rapid, sections 4.1 and 6. Added to the paper: an edge keeps its detector across view changes; lossy edges are
probed more often; silent subjects are probed through others; a member whose own event loop lagged, or most of whose
subjects are silent, doubts itself first. While nothing speaks against any subject, a member is idle: it probes only
a few of them per round. The first observer that misses an answer tells the subject's other observers, which then stop
being idle.
"""

from membership.address import Address
from membership.errors import EdgeError
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import EdgeFailed, EdgeRecovered
from membership.protocol.context.refusals import Refusal
from membership.protocol.messages import Digest, NotMember, Probe, Unanswered
from membership.protocol.monitoring.edge import Edge
from membership.protocol.monitoring.edge_detector import DetectorFactory, UntimedDetector, windowed
from membership.protocol.monitoring.indirect_probe import HELPED_SEQUENCE, IndirectProbes
from membership.protocol.monitoring.local_health import LocalHealth
from membership.protocol.monitoring.loss_test import LossTest
from membership.protocol.monitoring.simulation_fast_forward import FastForwardEdge
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member

_STEPS = 64
"""A round is divided into steps of half a `probe_retransmit`; a sequence is the round and the step, so that each
attempt's answer is known from the others'."""
_UNANSWERED_FOR_HELP = 3
"""Attempts of a round after whose loss others are asked."""
_UNANSWERED_TO_TELL = 2
_UNANSWERED_TO_TELL_WHEN_IDLE = 3
"""Attempts of a round after whose loss the other observers of a subject are told, so that none of them is idle. When
idle, attempts follow each other twice as fast."""
_LEAST_ATTEMPTS = 3
"""A subject left out of a round is probed later in it only if this many attempts still fit: fewer would say little."""

_LONGEST_STRETCH = 2
"""Rounds of a member whose event loop lags take at most this many intervals: it must still hear its neighbours."""

_SOUND_EDGES = 2
_SOUND_SHARE = 4
"""An observer whose subjects are mostly silent trusts itself if at least two, and one in this many, are well."""


class Monitor:
    """All edges of this member."""

    def __init__(self, context: Context, factory: DetectorFactory | None = None) -> None:
        self._context = context
        self._factory = factory or windowed()
        self._edges: dict[bytes, Edge] = {}
        # Members begin at different round numbers: an answer that goes to the wrong member matches nothing there.
        self._round = int.from_bytes(context.me.incarnation[:4], "big") >> 7
        self._step = 0
        self._last_step = 2 * (context.settings.probe_attempts - 1)
        self._rounds_of_view = 0
        self._round_started = 0.0
        self._round_ends = 0.0
        self._unobserved = 0.0
        self._asked_id: bytes | None = None
        self._bursts = True
        self.idle = False
        """Whether nothing has spoken against any subject for so long that a few probes per round are enough."""
        self.health = LocalHealth()
        self.indirect = IndirectProbes(context)
        self._probe_at = NEVER

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self._probe_at, self.indirect.deadline)

    def on_view_change(self, now: float) -> None:
        """Take over the edges of the new view; an edge that stays keeps its detector."""
        view = self._context.view
        settings = self._context.settings
        edges: dict[bytes, Edge] = {}
        for ring, index in enumerate(view.subjects_of(self._context.me)):
            if index == self._context.index:
                continue
            subject = view.members[index]
            edge = edges.get(subject.incarnation) or self._edges.get(subject.incarnation)
            if edge is None:
                detector = self._factory.new(settings, self._observed(now))
                edge = Edge(subject, detector, LossTest(settings))
            if subject.incarnation not in edges:
                edges[subject.incarnation] = edge
                edge.subject = subject  # its metadata may have changed
                edge.rings = 0
                edge.index = index
            edge.rings |= 1 << ring
        self._edges = edges
        self._rounds_of_view = 0
        self.indirect.on_view_change(edges)
        if not edges:
            self._probe_at = NEVER
        elif self._probe_at == NEVER:
            self._start_at(now + self._context.rng.random() * settings.probe_interval)

    def _start_at(self, when: float) -> None:
        self._round_started = when - self._context.settings.probe_interval
        self._round_ends = when
        self._step = self._last_step
        self._asked_id = None
        self._probe_at = when

    def _observed(self, now: float) -> float:
        """Seconds that this member has been observing: time during which it was late itself does not count."""
        return now - self._unobserved

    @property
    def subjects(self) -> tuple[Edge, ...]:
        """The edges, in order of their first ring."""
        return tuple(self._edges.values())

    # Probing.

    def tick(self, now: float, digest: Digest) -> bool:
        """Send what is due: the next attempts of this round, or the first probes of the next.

        Whether a round ended, so that opinions may have changed.
        """
        if now >= self.indirect.deadline:
            self.indirect.tick(now)
        if now < self._probe_at:
            return False
        interval = self._context.settings.probe_interval
        round_ends = self._round_ends
        if now < round_ends:
            self._repeat(digest, now)
            return False
        # After a pause the missed rounds are skipped: they say nothing about the subjects.
        late = now - round_ends
        lagged = late > interval / 2
        if lagged:
            self._unobserved += late
        if self._asked_id is not None:
            self._conclude_round(now, lagged)
        self._round_started = now if lagged else round_ends
        self._round_ends = self._round_started + self._context.loop_lag.stretched(interval, _LONGEST_STRETCH)
        self._round += 1
        self._rounds_of_view += 1
        self._step = 0
        # If most subjects are silent the trouble is here, and more packets make it worse.
        self._bursts = not self.doubts_itself
        self.idle = self._may_idle
        for edge in self._edges.values():
            edge.sent = edge.answered = 0
        # While members differ in what they know, probes carry the digest to all subjects.
        probed = self._next_in_turn() if self.idle and not digest else self.subjects
        for edge in probed:
            edge.sent = 1
        self._send([edge.subject.address for edge in probed], digest)
        self._context.count("probes", len(probed))
        self._schedule(now)
        return True

    def _send(self, addresses: list[Address], digest: Digest) -> None:
        self._asked_id = self._context.view.short_id
        probe = Probe(*self._context.short_header, self._round * _STEPS + self._step, digest or None)
        self._context.send_all(addresses, probe)

    def _repeat(self, digest: Digest, now: float) -> None:
        """The attempts of this step: to subjects without an answer yet, at every second one; to lossy subjects
        at every one, answer or not, so that their observers need fewer rounds to be sure."""
        bit = 1 << self._step
        regular = self._step % 2 == 0
        if now - self._probe_at < self._context.settings.probe_retransmit / 4:  # else answers may wait unread
            unanswered = _UNANSWERED_TO_TELL_WHEN_IDLE if self.idle else _UNANSWERED_TO_TELL
            self._tell_observers(unanswered, now)
        late = self.idle or self._step > self._last_step - 2 * (_LEAST_ATTEMPTS - 1)
        addresses = []
        quiet = True
        for edge in self._edges.values():
            suspicious = self._bursts and edge.loss.suspicious
            if (edge.answered and not suspicious) or (late and not edge.sent):
                continue
            quiet = False
            if regular or suspicious or self.idle:
                edge.sent |= bit
                addresses.append(edge.subject.address)
                if self._step == 2 * _UNANSWERED_FOR_HELP and not edge.answered:
                    self._ask_others(edge)
        if addresses:
            self._send(addresses, digest)
            self._context.count("probes repeated", len(addresses))
        if quiet:
            self._step = self._last_step
        self._schedule(now)

    def _ask_others(self, edge: Edge) -> None:
        avoided = [other.index for other in self._edges.values() if other.sent and not other.answered]
        stream = edge.detector.has_evidence()  # a connection is dear: not for the first silent probe
        self.indirect.ask(edge.subject, edge.index, self._round, avoided, stream=stream)

    def _schedule(self, now: float) -> None:
        """The next step is half a retransmission away if there is a lossy subject, else a whole one.

        A member that was late itself skips the steps it missed: the answers were given no time to come, and more
        packets are the last thing a machine without time to spare needs.
        """
        settings = self._context.settings
        half = settings.probe_retransmit / 2
        every = self.idle or (self._bursts and any(edge.loss.suspicious for edge in self._edges.values()))
        self._step += 1
        while (self._step % 2 and not every) or self._round_started + (self._step + 0.5) * half <= now + half:
            self._step += 1
        if self._step > self._last_step:
            self._probe_at = self._round_ends
        else:
            self._probe_at = self._round_started + self._step * half

    # Idle rounds.

    @property
    def _may_idle(self) -> bool:
        few = len(self._edges) <= self._context.settings.idle_probes
        return not few and all(self._is_clean(edge) for edge in self._edges.values())

    def _is_clean(self, edge: Edge) -> bool:
        return edge.clean_rounds >= self._context.settings.probe_window

    def _next_in_turn(self) -> tuple[Edge, ...]:
        """The few subjects to probe in this round: those on a few rings, on all rings in turn.

        All members are at nearly the same rings, for they count the rounds of a view, which all install at nearly the
        same time. So each member is probed by a few of its observers in every interval, and not by chance by none.
        """
        view, settings = self._context.view, self._context.settings
        subjects = view.subjects_of(self._context.me)
        first = self._rounds_of_view * settings.idle_probes
        rings = ((first + offset) % settings.rings for offset in range(settings.idle_probes))
        edges = dict.fromkeys(self.edge_to(view, subjects[ring]) for ring in rings)
        return tuple(edge for edge in edges if edge is not None)

    def _tell_observers(self, unanswered: int, now: float) -> None:
        """Tell the other observers, which may be idle, of subjects that now, for once, miss so many attempts."""
        view = self._context.view
        for edge in self._edges.values():
            if self._is_clean(edge) and not edge.answered and edge.sent.bit_count() >= unanswered:
                others = [index for index in view.observers_of(edge.subject) if index != self._context.index]
                message = Unanswered(*self._context.short_header, edge.index)
                self._context.send_all(dict.fromkeys(view.addresses[index] for index in others), message)
                self._context.count("unanswered probes announced")
                self._doubt(edge, now)

    def on_unanswered(self, subject: int, now: float) -> None:
        """Another observer of a subject (its index) got no answer."""
        view = self._context.view
        edge = self.edge_to(view, subject) if subject < len(view) else None
        if edge is None:
            self._context.drop(Refusal.UNANSWERED_NOT_OBSERVED)
        else:
            self._doubt(edge, now)

    def _doubt(self, edge: Edge, now: float) -> None:
        """Probe all subjects again, from the next step of this round on if it leaves time for it."""
        edge.clean_rounds = 0
        if self.idle:
            self.idle = False
            if self._step > self._last_step:
                self._step = 0
                self._schedule(now)

    # Opinions.

    def _conclude_round(self, now: float, lagged: bool) -> None:
        summary = self.indirect.conclude_round(self._round - 1, watched=not lagged)
        current = [edge for edge in self._edges.values() if edge.sent]
        silent = sum(1 for edge in current if not edge.answered and not edge.confirmed)
        if not lagged:
            self._tell_observers(1, now)
        if lagged:
            self.health.on_lag()
            self._context.count("probe rounds discarded for own lag")
        elif current:
            self.health.on_round(
                edges=len(current),
                silent=silent,
                reached=summary.reached,
                unreached=summary.unreached,
                unhelpful=summary.unhelpful,
                elsewhere=self._has_sound_edges,
            )
        observed = self._observed(now)
        for edge in current:
            if lagged:
                edge.discard_round()
            else:
                edge.conclude_round(observed)
            verdicts = self.indirect.verdicts.get(edge.subject.incarnation)
            if verdicts is not None:
                edge.excused, edge.confirmed = verdicts.excuse, verdicts.confirm
                if edge.answered and not edge.loss.suspicious and not edge.detector.has_evidence():
                    del self.indirect.verdicts[edge.subject.incarnation]
                    edge.excused = edge.confirmed = False
            self._judge(edge, observed)
        for edge in self._edges.values():
            edge.count_clean_round(healthy=not self.health.score)

    def _judge(self, edge: Edge, observed: float) -> None:
        if edge.judge(observed, self.health):
            self._context.publish(EdgeFailed(edge.subject) if edge.failed else EdgeRecovered(edge.subject))

    @property
    def doubts_itself(self) -> bool:
        """Whether most subjects failed to answer of late: then the fault is more likely here.

        Not so while enough of the others answer as if nothing had happened. A fault here would touch the edges
        to all; after half of the cluster died together, each edge is either dead or perfectly well. Nor does a
        subject count that others find silent too: the only subject of a member of three may be the dead one.
        """
        silent = sum(
            1
            for edge in self._edges.values()
            if edge.has_evidence() and not edge.certain and not edge.confirmed
        )
        return 2 * silent > len(self._edges) and not self._has_sound_edges

    @property
    def _has_sound_edges(self) -> bool:
        sound = sum(1 for edge in self._edges.values() if edge.sound)
        return sound >= _SOUND_EDGES and _SOUND_SHARE * sound >= len(self._edges)

    def fast_forward_edges(self) -> list[FastForwardEdge] | None:
        """The edges, if nothing is held for or against any subject but what chance losses explain.

        None also when a detector of the embedding's own choice goes by time (see UntimedDetector).
        """
        quiet = []
        for edge in self._edges.values():
            if (
                edge.failed
                or self._context.loop_lag.seconds
                or edge.certain
                or edge.unhealthy
                or edge.excused
                or not (edge.sent or edge.sent_before)
            ):
                return None
            if not isinstance(edge.detector, UntimedDetector):
                return None
            quiet.append(FastForwardEdge(edge, edge.detector, self._context.settings))
        return quiet

    def failed_edges(self) -> list[Edge]:
        """Edges whose subjects this member finds faulty."""
        return [edge for edge in self._edges.values() if edge.failed]

    def corroborating_edges(self) -> list[Edge]:
        """Edges with enough evidence to report the subject after others, though not first. None at a sick observer."""
        if self.health.score:
            return []
        return [edge for edge in self._edges.values() if not edge.failed and edge.corroborates()]

    def edge_to(self, configuration: Configuration, index: int) -> Edge | None:
        """The edge to the member with this index, or None."""
        return self._edges.get(configuration.members[index].incarnation)

    # What comes in.

    def on_acknowledgement(self, sender: bytes, sequence: int, now: float) -> bool:
        """A probe of this sequence was answered by this incarnation. Whether it is one of this round or the last."""
        if sequence >= HELPED_SEQUENCE:
            self.indirect.on_acknowledgement(sender, sequence)
            return False
        edge = self._edges.get(sender)
        if edge is None:
            return False
        round_number, step = divmod(sequence, _STEPS)
        if round_number == self._round:
            if not edge.answered:
                edge.detector.on_probe_result(True, self._observed(now))
            edge.answered |= 1 << step
            edge.replaced = False  # whoever else answered at its address is gone again
        elif round_number == self._round - 1:
            edge.answered_before |= 1 << step
        else:
            return False
        return True

    def on_not_member(self, source: Address, message: NotMember, now: float) -> Member | None:
        """A process without a view answered a probe.

        It is either the subject itself, which has not received its view (returned, so that it can be helped),
        or another incarnation at the subject's address: then the subject is gone for certain. That is not
        reported at once, because the other one is about to take its place, in one cut (see admission); should
        it not, the probes fail as those of any dead subject.
        """
        if self._asked_id is None or message.configuration_id != self._asked_id:
            return None
        if message.sequence // _STEPS != self._round:
            return None
        edge = self._edges.get(message.incarnation)
        if edge is not None:
            self.on_acknowledgement(message.incarnation, message.sequence, now)
            return edge.subject
        for edge in self._edges.values():
            if edge.subject.address == source:
                edge.replaced = True
        return None

    def report_failed(self, subject: Member, now: float) -> None:
        """The application reports this edge as failed, once: it counts so for `Settings.report_lifetime`.

        Raises EdgeError about anybody who is not observed from here.
        """
        edge = self._edges.get(subject.incarnation)
        if edge is None:
            raise EdgeError(
                f"{subject} is not observed by this process, which may report only those it observes "
                f"(`Cluster.subjects`: {', '.join(edge.subject.name for edge in self._edges.values()) or 'none'}); "
                "to remove any member, have it evicted"
            )
        edge.reported = True
        edge.reported_until = self._observed(now) + self._context.settings.report_lifetime
        self._judge(edge, self._observed(now))

    def on_check(self, subject: bytes, healthy: bool, certain: bool, now: float) -> None:
        """The application says whether a subject works; about members that are no subjects it is ignored."""
        edge = self._edges.get(subject)
        if edge is not None:
            edge.unhealthy = not healthy
            edge.declared_dead = not healthy and certain
            self._judge(edge, self._observed(now))
