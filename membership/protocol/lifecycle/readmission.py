"""Probation: the links of who was removed as faulty must prove themselves before its observers report its join.

What it is: the trials at one future observer, who probes the joiner by datagrams; one answer proves a link in both
directions. The evidence is that of the loss test, weighed the other way round: an answer adds the logarithm of how much
likelier it is in the worst weather than on a faulty link, a loss subtracts its own. A link is proven when the sum has
stayed above zero for as long as the joiner's offences demand, and has reached the threshold that convicts. Silence ends
that at once: a process without time to run answers much, but not always soon.
What it is not: anything that a fresh joiner, or a process that was started again in its place, ever meets; nor the
memory of who was removed (see faulty_members).
Source: Rapid admits whoever asks; the test is Wald's (Sequential Analysis, 1947).
"""

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.messages import JoinDeferred, NotMember, Probe
from membership.protocol.monitoring.loss_test import evidence_of
from membership.protocol.view.member import Member

_TRIAL_SEQUENCE = 1 << 60
"""Sequences from here on are probes of joiners; a member's own rounds never get there, nor those for others here."""
_MOST_TRIALS = 1000
"""Trials at a time; further joiners must wait."""
_SILENCE = 1.5
"""Probe intervals without any answer, each of several probes, after which the sum is zero again."""
_MEMORY = 1.25
"""The sum stops here, in thresholds: so a link that breaks is known within a few probes."""


class Trial:
    """What one observer knows of its link to one joiner."""

    __slots__ = (
        "answered_at",
        "asked_at",
        "joiner",
        "patience",
        "probe_at",
        "reported",
        "score",
        "unanswered",
        "well_since",
    )

    def __init__(self, joiner: Member, patience: float, now: float) -> None:
        self.joiner = joiner
        self.patience = patience
        self.asked_at = now
        self.answered_at = -NEVER
        self.probe_at = now
        self.score = 0.0
        self.well_since = NEVER
        self.unanswered: dict[int, float] = {}
        """Probes on their way, by sequence, and when each was sent."""
        self.reported = False


class Probation:
    """All trials at this member."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings = context.settings
        self._per_loss, self._per_answer = evidence_of(settings)
        self._pause = settings.probe_interval / settings.probe_attempts
        self._trials: dict[bytes, Trial] = {}
        self._next_sequence = _TRIAL_SEQUENCE
        self.deadline = NEVER

    def on_view_change(self) -> None:
        """Who is in the new view has passed."""
        view = self._context.view
        self._trials = {key: trial for key, trial in self._trials.items() if trial.joiner not in view}

    def passes(self, joiner: Member, now: float) -> bool:
        """Whether this joiner, who asks, needs no trial or has passed it. Otherwise that goes on, and it is told so."""
        patience = self._context.faulty.patience(joiner)
        if not patience:
            return True
        trial = self._trials.get(joiner.incarnation)
        if trial is None:
            if len(self._trials) >= _MOST_TRIALS:
                self._context.drop("a join beyond the bound of joins kept")
                return False
            trial = self._trials[joiner.incarnation] = Trial(joiner, patience, now)
            self.deadline = min(self.deadline, now)
            self._context.count("joiners on probation")
        trial.asked_at = now
        trial.reported = self._is_proven(trial, now)
        if not trial.reported:
            reason = f"it was removed as faulty: first its links must work for {trial.patience:g} s"
            self._context.send(joiner.address, JoinDeferred(reason))
        return trial.reported

    def _is_proven(self, trial: Trial, now: float) -> bool:
        return (
            trial.score >= self._context.settings.loss_threshold and now - trial.well_since >= trial.patience
        )

    def tick(self, now: float) -> list[Member]:
        """Send the probes that are due; the joiners whose links have just proved themselves."""
        if now < self.deadline:
            return []
        settings = self._context.settings
        late = now - self.deadline > settings.probe_interval / 2
        asking = now - 2 * settings.join_attempt_timeout
        self._trials = {key: trial for key, trial in self._trials.items() if trial.asked_at >= asking}
        proven = []
        for trial in self._trials.values():
            self._judge(trial, now, late=late)
            if not trial.reported and self._is_proven(trial, now):
                trial.reported = True
                proven.append(trial.joiner)
            if now >= trial.probe_at:
                self._probe(trial, now)
        self.deadline = now + self._pause if self._trials else NEVER
        return proven

    def _judge(self, trial: Trial, now: float, *, late: bool) -> None:
        """Whose time is up is lost, unless this member was late itself and the answers may wait unread."""
        interval = self._context.settings.probe_interval
        if late:
            trial.unanswered.clear()
        elif now - trial.answered_at > _SILENCE * interval:
            trial.score = 0.0
        horizon = now - interval
        for sequence, sent_at in list(trial.unanswered.items()):
            if sent_at > horizon:
                break
            del trial.unanswered[sequence]
            trial.score = max(0.0, trial.score - self._per_loss)
        if not trial.score:
            trial.well_since = NEVER

    def _probe(self, trial: Trial, now: float) -> None:
        """One probe; the next one soon, or as rarely as any member is probed if it has nothing to say for itself."""
        trial.unanswered[self._next_sequence] = now
        probe = Probe(*self._context.short_header, self._next_sequence, None)
        self._next_sequence += 1
        self._context.send(trial.joiner.address, probe)
        trial.probe_at = now + (self._pause if trial.score else self._context.settings.probe_interval)

    def on_answer(self, source: Address, message: NotMember, now: float) -> None:
        """A process without a view has answered a probe."""
        trial = self._trials.get(message.incarnation)
        if trial is None or source != trial.joiner.address:
            return
        if trial.unanswered.pop(message.sequence, None) is not None:
            trial.answered_at = now
            trial.well_since = min(trial.well_since, now)
            most = _MEMORY * self._context.settings.loss_threshold
            trial.score = min(most, trial.score + self._per_answer)
            trial.probe_at = min(trial.probe_at, now + self._pause)
