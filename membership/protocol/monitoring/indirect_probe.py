"""Indirect probes: can others reach the subject that does not answer me?

Both ends are here. The observer asks two other members to probe a silent subject, and probes it itself over a stream.
The helper probes once and reports the outcome. Helpers that reach the subject excuse it: one link is broken, not the
subject. Helpers that do not answer at all tell the observer that it is itself at fault. One answer through a helper
counts for nothing, so a subject that loses most of its packets is not excused.
Source: SWIM's ping-req (Das, Gupta, Motivala 2002); what the answers count for is our own.
"""

from collections.abc import Collection
from dataclasses import dataclass

from membership.protocol.context.context import NEVER, Context
from membership.protocol.messages import (
    IndirectAnswer,
    IndirectProbe,
    Probe,
    StreamProbe,
    StreamProbeAcknowledged,
)
from membership.protocol.view.member import Member

HelperMessage = IndirectProbe | IndirectAnswer | StreamProbe | StreamProbeAcknowledged
"""What is said about probes on behalf of others and over streams."""

HELPERS = 2
"""Members asked per silent subject and round."""
HELPED_SEQUENCE = 1 << 61
"""Sequences from here on are probes on behalf of others; a member's own rounds never get there."""
_MOST_HELPED = 64
"""Probes on behalf of others under way at a time; a flood of requests costs no more than this."""

_WINDOW = 8
_ENOUGH = 6
_STREAMS = 3
_CONFIRM = 3


class Verdicts:
    """What helpers and streams said about one subject while it did not answer this observer.

    A subject that answers a helper's single probe with probability p is excused with probability
    p^6 + 6 p^5 (1-p) once there are six verdicts: 0.2 % for one that loses 80 % one way (p = 0.2), 97 % for a
    healthy one behind one broken link at 5 % loss everywhere (p = 0.9).
    """

    __slots__ = ("_count", "_reached", "_stream_count", "_streams")

    def __init__(self) -> None:
        self._count = 0
        self._reached = 0
        self._stream_count = 0
        self._streams = 0

    def add(self, reached: bool) -> None:
        """A helper reached the subject, or did not."""
        self._reached = (self._reached << 1 | reached) & ((1 << _WINDOW) - 1)
        self._count = min(self._count + 1, _WINDOW)

    def add_stream(self, answered: bool) -> None:
        """The subject answered over a stream in time, or did not."""
        self._streams = (self._streams << 1 | answered) & ((1 << _STREAMS) - 1)
        self._stream_count = min(self._stream_count + 1, _STREAMS)

    @property
    def confirm(self) -> bool:
        """Whether helpers find the subject silent too: none of the last three reached it.

        That they could say so shows that this observer's own links work. A healthy subject behind one broken link is
        confirmed silent with probability 0.1 % at 5 % loss everywhere.
        """
        return self._count >= _CONFIRM and not self._reached & ((1 << _CONFIRM) - 1)

    @property
    def excuse(self) -> bool:
        """Whether the link is broken rather than the subject.

        All but one of six to eight verdicts of helpers must be good. Streams count only when no helper says
        anything: a subject that helpers do not reach by datagram cannot vote either, whatever its streams do.
        """
        if self._count:
            return self._count >= _ENOUGH and self._reached.bit_count() >= self._count - 1
        return self._stream_count == _STREAMS == self._streams.bit_count()


@dataclass(slots=True)
class _Asked:
    """One subject that helpers were asked about in one round."""

    helpers: dict[bytes, None]
    stream: bool


@dataclass(frozen=True, slots=True)
class _Helped:
    """One probe on behalf of `requester`."""

    requester: Member
    sequence: int
    subject: Member
    index: int
    until: float


@dataclass(slots=True)
class RoundSummary:
    """What became of the requests of one round."""

    reached: int = 0
    unreached: int = 0
    unhelpful: int = 0
    """Helpers that did not answer at all."""


class IndirectProbes:
    """One member's requests to helpers, and its help to others."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked: dict[tuple[bytes, int], _Asked] = {}  # by subject and round
        self._helped: dict[int, _Helped] = {}
        self._next_helped = HELPED_SEQUENCE
        self._summary = RoundSummary()
        self.verdicts: dict[bytes, Verdicts] = {}
        """By the subject's incarnation, for subjects asked about since they last answered."""

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        # Requests come in order of time and all wait equally long, so the first is due first.
        return next(iter(self._helped.values())).until if self._helped else NEVER

    def on_view_change(self, subjects: Collection[bytes]) -> None:
        """Requests name members by index, so none survives; verdicts about subjects that stay do."""
        self._asked.clear()
        self._helped.clear()
        self.verdicts = {key: verdicts for key, verdicts in self.verdicts.items() if key in subjects}

    # The observer.

    def ask(
        self, subject: Member, index: int, sequence: int, avoided: Collection[int], *, stream: bool
    ) -> None:
        """Ask helpers to probe a subject; once per subject and round. `avoided`: silent members, by index."""
        context = self._context
        if (subject.incarnation, sequence) in self._asked:
            return
        helpers = self._choose_helpers(index, avoided)
        request = IndirectProbe(*context.header, index, sequence)
        context.send_all([helper.address for helper in helpers], request)
        if stream:
            context.send(subject.address, StreamProbe(*context.header, sequence), reliable=True)
        context.count("indirect probes", len(helpers))
        self._asked[subject.incarnation, sequence] = _Asked(
            dict.fromkeys(helper.incarnation for helper in helpers), stream
        )

    def _about(self, subject: bytes) -> Verdicts:
        return self.verdicts.setdefault(subject, Verdicts())

    def _choose_helpers(self, index: int, avoided: Collection[int]) -> list[Member]:
        members = self._context.view.members
        skip = {self._context.index, index, *avoided}
        wanted = min(len(members), HELPERS + len(skip))
        drawn = self._context.rng.sample(range(len(members)), wanted)
        return [members[other] for other in drawn if other not in skip][:HELPERS]

    def on_message(self, message: HelperMessage, sender: Member, now: float) -> None:
        """A member of the present configuration asks for help, answers, or probes over a stream."""
        match message:
            case IndirectProbe():
                self.on_request(message, sender, now)
            case IndirectAnswer():
                self.on_answer(message)
            case StreamProbe():
                answer = StreamProbeAcknowledged(*self._context.header, message.sequence)
                self._context.send(sender.address, answer, reliable=True)
            case StreamProbeAcknowledged():
                self.on_stream_answer(message.sender, message.sequence)

    def on_answer(self, message: IndirectAnswer) -> None:
        """A helper says whether it reached the subject. Only helpers that were asked in this round count."""
        members = self._context.view.members
        if not 0 <= message.subject < len(members):
            return self._context.drop("an answer of a helper about nobody")
        subject = members[message.subject].incarnation
        asked = self._asked.get((subject, message.sequence))
        if asked is None or message.sender not in asked.helpers:
            return self._context.count("answers of helpers that came late or were not asked for")
        del asked.helpers[message.sender]
        self._about(subject).add(message.reached)
        if message.reached:
            self._summary.reached += 1
        else:
            self._summary.unreached += 1
        return None

    def on_stream_answer(self, sender: bytes, sequence: int) -> None:
        """A subject answered over a stream."""
        asked = self._asked.get((sender, sequence))
        if asked is not None and asked.stream:
            asked.stream = False
            self._about(sender).add_stream(True)
            self._context.count("subjects reached over a stream only")

    def conclude_round(self, finished: int, *, watched: bool) -> RoundSummary:
        """A round ends: what was asked in round `finished` or before has had its time.

        With `watched` false (this observer was late itself) silence says nothing.
        """
        for (subject, asked_in), asked in list(self._asked.items()):
            if asked_in > finished:
                continue
            del self._asked[subject, asked_in]
            if watched:
                self._summary.unhelpful += len(asked.helpers)
                if asked.stream:
                    self._about(subject).add_stream(False)
        summary, self._summary = self._summary, RoundSummary()
        return summary

    # The helper.

    def on_request(self, message: IndirectProbe, requester: Member, now: float) -> None:
        """Probe a member on behalf of another."""
        context = self._context
        members = context.view.members
        if not 0 <= message.subject < len(members) or message.subject == context.index:
            return context.drop("a request to probe nobody, or this member itself")
        if len(self._helped) >= _MOST_HELPED:
            return context.count("requests of other observers refused: too many at a time")
        subject = members[message.subject]
        sequence = self._next_helped
        self._next_helped += 1
        until = now + context.settings.probe_interval / 2
        self._helped[sequence] = _Helped(requester, message.sequence, subject, message.subject, until)
        context.send(subject.address, Probe(*context.short_header, sequence, None))
        context.count("probes on behalf of others")
        return None

    def on_acknowledgement(self, sender: bytes, sequence: int) -> None:
        """A member answered a probe on behalf of somebody."""
        helped = self._helped.get(sequence)
        if helped is not None and helped.subject.incarnation == sender:
            del self._helped[sequence]
            self._tell(helped, True)

    def tick(self, now: float) -> None:
        """Tell the requesters whose subjects did not answer in time."""
        for sequence, helped in list(self._helped.items()):
            if helped.until > now:
                break
            del self._helped[sequence]
            self._tell(helped, False)

    def _tell(self, helped: _Helped, reached: bool) -> None:
        answer = IndirectAnswer(*self._context.header, helped.index, helped.sequence, reached)
        self._context.send(helped.requester.address, answer)
