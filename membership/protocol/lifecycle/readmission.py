"""Readmission: a process that was removed as faulty is reported as a joiner only once its links have proved to work.

A future observer probes the joiner by datagrams; one answer proves a link in both directions. The evidence is that of
the loss test, weighed the other way round: an answer adds the logarithm of how much likelier it is on a tolerated link
than on a faulty one, a loss subtracts its own. The link has passed when the sum has stayed above zero for as long as
the joiner's removals demand (see removal_history), and has reached the threshold that convicts. Silence resets it at
once: a starved process answers often, but not always soon. A process that never failed, or that was restarted and
replaced its predecessor, is not tested. One that has just started says so: the one before it may have died while its
links were sound, so it is tested as after a first removal, and somewhat longer in a crash loop.

The history that it goes by is in memory only. Whoever lives on hands it to those who come back, and after a power cut
of everybody it is gone. That breaks no promise: members need not agree on it, it delays a join and never decides one,
and a host whose links are still bad is found faulty again like any other, and has a history from then on.
Source: Rapid admits whoever asks. The test is Wald's (*Sequential Analysis*, 1947).
"""

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.messages import NotMember, Probe
from membership.protocol.monitoring.loss_test import evidence_of
from membership.protocol.view.member import Member

_TEST_SEQUENCE = 1 << 60
"""Sequences from here on are probes of joiners; a member's own rounds never get there, nor those for others here."""
_MOST_TESTS = 1000
"""Link tests at a time; further joiners must wait."""
_SILENCE = 1.5
"""Probe intervals without any answer, each of several probes, after which the sum is zero again."""
_MEMORY = 1.25
"""The sum stops here, in thresholds: so a link that breaks is known within a few probes."""


class LinkTest:
    """What one observer knows of its link to one joiner."""

    __slots__ = (
        "answered_at",
        "asked_at",
        "joiner",
        "probe_at",
        "reported",
        "score",
        "test_time",
        "unanswered",
        "well_since",
    )

    def __init__(self, joiner: Member, test_time: float, now: float) -> None:
        self.joiner = joiner
        self.test_time = test_time
        self.asked_at = now
        self.answered_at = -NEVER
        self.probe_at = now
        self.score = 0.0
        self.well_since = NEVER
        self.unanswered: dict[int, float] = {}
        """Probes on their way, by sequence, and when each was sent."""
        self.reported = False


class Readmission:
    """All link tests at this member."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings = context.settings
        self._per_loss, self._per_answer = evidence_of(settings)
        self._pause = settings.probe_interval / settings.probe_attempts
        self._tests: dict[bytes, LinkTest] = {}
        self._next_sequence = _TEST_SEQUENCE
        self.deadline = NEVER

    def on_view_change(self) -> None:
        """Who is in the new view has passed."""
        view = self._context.view
        self._tests = {key: test for key, test in self._tests.items() if test.joiner not in view}

    def passes(self, joiner: Member, now: float, *, is_new: bool = False) -> bool:
        """Whether this joiner, which asks, needs no test or has passed it. Else the test goes on, and it is told.

        `is_new`: it says that it has just started, so that it may have been the process before it that failed.
        """
        test_time = self._context.removal_history.test_time(joiner, is_new=is_new)
        if not test_time:
            return True
        test = self._tests.get(joiner.incarnation)
        if test is None:
            if len(self._tests) >= _MOST_TESTS:
                self._context.drop("a join beyond the bound of joins kept")
                return False
            test = self._tests[joiner.incarnation] = LinkTest(joiner, test_time, now)
            self.deadline = min(self.deadline, now)
            self._context.count("joiners on probation")
        test.asked_at = now
        test.reported = self._is_proven(test, now)
        if not test.reported:
            reason = f"it was removed as faulty: first its links must work for {test.test_time:g} s"
            self._context.defer(joiner, reason)
        return test.reported

    def _is_proven(self, test: LinkTest, now: float) -> bool:
        return test.score >= self._context.settings.loss_threshold and now - test.well_since >= test.test_time

    def tick(self, now: float) -> list[Member]:
        """Send the probes that are due; the joiners whose links have just proved themselves."""
        if now < self.deadline:
            return []
        settings = self._context.settings
        late = now - self.deadline > settings.probe_interval / 2
        asking = now - 2 * settings.join_attempt_timeout
        self._tests = {key: test for key, test in self._tests.items() if test.asked_at >= asking}
        proven = []
        for test in self._tests.values():
            self._judge(test, now, late=late)
            if not test.reported and self._is_proven(test, now):
                test.reported = True
                proven.append(test.joiner)
            if now >= test.probe_at:
                self._probe(test, now)
        self.deadline = now + self._pause if self._tests else NEVER
        return proven

    def _judge(self, test: LinkTest, now: float, *, late: bool) -> None:
        """Whose time is up is lost, unless this member was late itself and the answers may wait unread."""
        interval = self._context.settings.probe_interval
        if late:
            test.unanswered.clear()
        elif now - test.answered_at > _SILENCE * interval:
            test.score = 0.0
        horizon = now - interval
        for sequence, sent_at in list(test.unanswered.items()):
            if sent_at > horizon:
                break
            del test.unanswered[sequence]
            test.score = max(0.0, test.score - self._per_loss)
        if not test.score:
            test.well_since = NEVER

    def _probe(self, test: LinkTest, now: float) -> None:
        """One probe; the next one soon, or as rarely as any member is probed if it has nothing to say for itself."""
        test.unanswered[self._next_sequence] = now
        probe = Probe(*self._context.short_header, self._next_sequence, None)
        self._next_sequence += 1
        self._context.send(test.joiner.address, probe)
        test.probe_at = now + (self._pause if test.score else self._context.settings.probe_interval)

    def on_answer(self, source: Address, message: NotMember, now: float) -> None:
        """A process without a view has answered a probe."""
        test = self._tests.get(message.incarnation)
        if test is None or source != test.joiner.address:
            return
        if test.unanswered.pop(message.sequence, None) is not None:
            test.answered_at = now
            test.well_since = min(test.well_since, now)
            most = _MEMORY * self._context.settings.loss_threshold
            test.score = min(most, test.score + self._per_answer)
            test.probe_at = min(test.probe_at, now + self._pause)
