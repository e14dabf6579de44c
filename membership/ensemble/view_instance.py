"""One view at one voter: from its installation to the decision on its successor.

Reports lead to a clean cut, the cut to a proposal when this voter's turn comes, and the voters' messages to a decision.
Source: Rapid, section 5, where the steps of section 4 run among the voters only.
"""

from membership.ensemble.agreement import Agreement
from membership.ensemble.cut_detection import CutDetection
from membership.ensemble.durable_state import VoterState
from membership.ensemble.electorate import Electorate
from membership.protocol import messages
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.refusals import Refusal
from membership.protocol.view.configuration import ConfigurationError
from membership.protocol.view.cut import Cut


class ViewInstance:
    """The running view change of one configuration, as one voter knows it."""

    def __init__(
        self, context: Context, electorate: Electorate, record: VoterState | None, now: float
    ) -> None:
        self._context = context
        self._electorate = electorate
        self._propose_at = NEVER
        self.orphans: tuple[int, ...] = ()
        """This voter's orphans: members that neither it nor any observer hears any more."""
        self.detection = CutDetection(context)
        if record is None:
            self.agreement = Agreement(context, electorate)
        else:
            self.agreement = Agreement(context, electorate, record.state, record.accepted)
        self.agreement.resume(now)

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min(self.detection.deadline, self.agreement.deadline, self._propose_at)

    @property
    def decision(self) -> Cut | None:
        """The decided cut."""
        return self.agreement.decision

    def tick(self, now: float) -> None:
        """Assess the reports, propose if it is due, and go on with what is proposed."""
        self.detection.tick(now)
        self._propose(now)
        if now >= self.agreement.deadline:
            self.agreement.tick(now)

    def _propose(self, now: float) -> None:
        """The first in turn proposes at once; the others give it a moment, and then do it themselves."""
        cut = None if self.agreement.holding else self.detection.cut()
        if cut is None:
            self._propose_at = NEVER
            return
        settings = self._context.settings
        if self._propose_at == NEVER:
            turn = self._electorate.turn(self._context.view.id, now, settings.greeting_interval)
            self._propose_at = now + turn * settings.classic_retransmit
        if now >= self._propose_at:
            self._propose_at = NEVER
            self.agreement.propose(cut, now)

    def fits(self, cut: Cut) -> bool:
        """Whether the cut can follow this configuration; a correct voter proposes no other."""
        try:
            self._context.cache.apply(self._context.view, cut)
        except ConfigurationError as error:
            self._context.drop(Refusal.CUT_UNFIT, str(error))
            return False
        return True

    def handle(self, message: messages.MemberMessage, voter: int, now: float) -> None:
        """A message about this configuration, from the voter with this index."""
        match message:
            case messages.EnsembleAlerts():
                self.detection.merge_shared(message, now)
            case messages.EnsembleVote() if self.fits(message.cut):
                self.agreement.on_vote(message.cut, voter, now, adopt=not self.detection.held_up)
            case messages.Prepare() if self._is_own_ballot(message, voter):
                self.agreement.on_prepare(message, voter, now)
            case messages.EnsemblePromise() if message.cut is None or self.fits(message.cut):
                self.agreement.on_promise(message, voter, now)
            case messages.EnsembleAccept() if self._is_own_ballot(message, voter) and self.fits(message.cut):
                self.agreement.on_accept(message, voter, now)
            case messages.Accepted():
                self.agreement.on_accepted(message, voter)
            case messages.Rejected():
                self.agreement.on_rejected(message)
            case _:
                self._context.count("messages not for an ensemble")

    def _is_own_ballot(self, message: messages.Prepare | messages.EnsembleAccept, voter: int) -> bool:
        if message.coordinator == voter and message.round >= 2:
            return True
        self._context.drop("a classic round under a ballot of somebody else")
        return False
