"""Joining, the members' side: a seed names observers, observers report the joiner, one of them delivers the view.

It answers both phases of a join, keeps joins that name a view not yet installed here, guards names and addresses in
use, tests the links of those once removed as faulty, holds the first view of a cold start, and tells joiners what each
view change means for them.
Source: Rapid, section 4.1. Added to the paper: a joiner that a cut left out is told its new observers at once.
"""

from collections.abc import Callable, Collection

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.refusals import taken
from membership.protocol.cut_detection.reporter import Reporter
from membership.protocol.lifecycle.readmission import Readmission
from membership.protocol.messages import (
    JoinDenied,
    JoinObserved,
    JoinRequest,
    NotMember,
    ObserveJoin,
    ObserverEntry,
    ObserversAssigned,
    Probe,
)
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member, MemberError, check_member

_ASKED_KEPT = 8
"""Joiners that claim one name or address, answered at once when its holder turns out to be gone."""


class HolderCheck:
    """Whether the member whose name or address a joiner claims still answers, and who asked meanwhile."""

    __slots__ = ("alive", "asked", "holder", "started")

    def __init__(self, holder: Member, started: float) -> None:
        self.holder = holder
        self.started = started
        self.alive: bool | None = None
        self.asked: dict[bytes, JoinRequest | ObserveJoin] = {}


class Admission:
    """Everything this member does for joiners."""

    def __init__(self, context: Context, expect: int) -> None:
        self._context = context
        self._expect = expect
        self._suffices: Callable[[Collection[Address]], bool] = lambda joiners: True
        self._propose: Callable[[list[Member], Member, float], None] | None = None
        self._asked: dict[bytes, tuple[Member, float]] = {}
        self._waiting: dict[bytes, Member] = {}
        self._parked: dict[bytes, ObserveJoin] = {}
        self._pushed: dict[bytes, float] = {}
        self._holder_checks: dict[bytes, HolderCheck] = {}
        self._readmission = Readmission(context)

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return self._readmission.deadline

    def tick(self, reporter: Reporter, now: float) -> None:
        """Probe the joiners whose links are tested, and report those that have passed."""
        for joiner in self._readmission.tick(now):
            if joiner.incarnation in self._waiting:
                reporter.report_join(joiner, now)

    def hold(
        self,
        expect: int,
        suffices: Callable[[Collection[Address]], bool],
        propose: Callable[[list[Member], Member, float], None] | None,
    ) -> None:
        """Admit nobody until so many processes have met, and the joiners among them are those that it takes.

        `propose`: is then told of them, and each time that one of them asks again, until `release` (see refounding).
        """
        self._expect, self._suffices, self._propose = expect, suffices, propose

    def release(self, having: Collection[Member], now: float) -> None:
        """The first view of several is in force, and these have it."""
        self._expect = 1
        self._asked.clear()
        self._pushed.update((member.incarnation, now) for member in having)

    @property
    def holding(self) -> bool:
        """Whether the founder still waits for the expected number of processes."""
        return self._expect > 1

    @property
    def expected(self) -> int:
        """How many processes the founder waits for; 0 when it waits no more."""
        return self._expect if self.holding else 0

    @property
    def busy(self) -> bool:
        """Whether joiners wait for something here."""
        return self.holding or bool(self._waiting or self._parked or self._asked) or self.deadline != NEVER

    # Phase 1.

    def on_request(self, message: JoinRequest, reporter: Reporter, now: float) -> None:
        """A joiner asks for its observers."""
        joiner = message.joiner
        try:
            check_member(joiner)
        except MemberError as error:
            self._context.count("joins refused")
            self._deny(joiner, str(error))
            return
        view = self._context.view
        if joiner in view:
            self.push(joiner, now)
            return
        if self.holding:
            self._hold(joiner, reporter, now)
            return
        if self._may_pass(message, now):
            self._assign(joiner, view)

    def _hold(self, joiner: Member, reporter: Reporter, now: float) -> None:
        horizon = now - 2 * self._context.settings.join_attempt_timeout
        self._asked = {
            member.incarnation: (member, at)
            for member, at in self._asked.values()
            if at >= horizon and member.name != joiner.name and member.address != joiner.address
        }
        if len(self._asked) < self._context.settings.joins_kept:
            self._asked[joiner.incarnation] = (joiner, now)
        joiners = [member for member, _ in self._asked.values() if not self._context.view.conflicts(member)]
        if len(joiners) + 1 < self._expect or not self._suffices([member.address for member in joiners]):
            have = len(joiners) + 1
            reason = f"the cluster starts with {self._expect} processes, {have} have met so far"
            self._context.defer(joiner, reason)
            return
        if self._propose is not None:
            self._propose(joiners, joiner, now)
            return
        self._expect = 1
        for member in joiners:
            self._keep_waiting(member)
            reporter.report_join(member, now, at_once=True)
        self._asked.clear()

    def _assign(self, joiner: Member, view: Configuration) -> None:
        entries = tuple(
            ObserverEntry(view.members[index].host, view.members[index].port, mask)
            for index, mask in view.observer_masks(joiner)
        )
        answer = ObserversAssigned(*self._context.header, view.cluster_id, joiner.incarnation, entries)
        self._context.send(joiner.address, answer)

    def _deny(self, joiner: Member, reason: str) -> None:
        self._context.send(
            joiner.address, JoinDenied(*self._context.header, joiner.incarnation, reason[:500])
        )

    # Names and addresses in use.

    def _may_pass(self, request: JoinRequest | ObserveJoin, now: float) -> bool:
        """Whether nobody alive holds the joiner's name or address. Finding out may take a few requests.

        The seed asks this before it names observers, and each observer before it reports: so the reports of a
        join that takes a member's place say, ring by ring, that this member does not answer.
        """
        joiner = request.joiner
        passed = True
        for holder in self._context.view.conflicts(joiner):
            if holder == self._context.me:
                self._deny(joiner, taken(joiner, holder))
                return False
            check = self._holder_checks.get(holder.incarnation)
            if check is None or now - check.started > self._context.settings.join_attempt_timeout:
                self._forget_old_checks(now)
                check = self._holder_checks[holder.incarnation] = HolderCheck(holder, now)
            if check.alive is None and now - check.started > self._context.settings.probe_interval:
                check.alive = False
            if check.alive is None:
                if len(check.asked) < _ASKED_KEPT:
                    check.asked[joiner.incarnation] = request
                self._context.send(holder.address, Probe(*self._context.short_header, 0, None))
                passed = False
            elif check.alive:
                self._context.count("joins refused")
                self._deny(joiner, taken(joiner, holder))
                return False
        return passed

    def _forget_old_checks(self, now: float) -> None:
        horizon = now - self._context.settings.join_attempt_timeout
        self._holder_checks = {
            key: check for key, check in self._holder_checks.items() if check.started >= horizon
        }

    def on_sign_of_life(self, incarnation: bytes) -> None:
        """A probe was answered by this incarnation."""
        check = self._holder_checks.get(incarnation)
        if check is not None:
            check.alive = True

    def on_not_member(self, source: Address, message: NotMember, reporter: Reporter, now: float) -> None:
        """A process without a view answered at this address: whoever held it before is gone."""
        self._readmission.on_answer(source, message, now)
        incarnation = message.incarnation
        for check in list(self._holder_checks.values()):
            if check.holder.address == source and check.holder.incarnation != incarnation:
                check.alive = False
                asked, check.asked = check.asked, {}
                for request in asked.values():
                    if isinstance(request, ObserveJoin):
                        self.on_observe(request, reporter, now)
                    else:
                        self.on_request(request, reporter, now)

    # Phase 2.

    def on_observe(self, message: ObserveJoin, reporter: Reporter, now: float) -> None:
        """A joiner asks this member to report it, or asks on whether it is in."""
        view = self._context.view
        joiner = message.joiner
        try:
            check_member(joiner)
        except MemberError as error:
            self._deny(joiner, str(error))
            return
        if joiner in view:
            self.push(joiner, now)
        elif self.holding:
            # Sent to an earlier process at this address: only who asks this founder itself may count on it.
            self._context.drop("a join that asks a founder about another view")
        elif message.epoch > view.epoch:
            if len(self._parked) < self._context.settings.joins_kept:
                self._parked[joiner.incarnation] = message
        elif message.configuration_id != view.id:
            self._assign(joiner, view)
        elif not reporter.own_rings(joiner):
            self._context.drop("a join that asks somebody else's observer")
        elif self._may_pass(message, now):
            if self._keep_waiting(joiner) and self._readmission.passes(joiner, now, is_new=message.is_new):
                reporter.report_join(joiner, now)
            self._context.send(joiner.address, JoinObserved(*self._context.header, joiner.incarnation))

    def _keep_waiting(self, joiner: Member) -> bool:
        if (
            joiner.incarnation not in self._waiting
            and len(self._waiting) >= self._context.settings.joins_kept
        ):
            self._context.drop("a join beyond the bound of joins kept")
            return False
        self._waiting[joiner.incarnation] = joiner
        return True

    # After a view change.

    def on_view_change(
        self, previous: Configuration, cut: Cut | None, reporter: Reporter, now: float
    ) -> None:
        """Deliver the view to those it admits, and tell the others their new observers."""
        view = self._context.view
        self._readmission.on_view_change()
        self._pushed = {key: at for key, at in self._pushed.items() if now - at < 10.0}
        if cut is not None:
            self._deliver(previous, cut, now)
        waiting, self._waiting = self._waiting, {}
        for joiner in waiting.values():
            if joiner not in view:
                self._assign(joiner, view)
        parked, self._parked = self._parked, {}
        for message in parked.values():
            self.on_observe(message, reporter, now)

    def _deliver(self, previous: Configuration, cut: Cut, now: float) -> None:
        gone = {removal.incarnation for removal in cut.removals}
        for joiner in cut.joins:
            for index, _ in previous.observer_masks(joiner):
                if previous.members[index].incarnation in gone:
                    continue
                if index == previous.index_of_incarnation(self._context.me.incarnation):
                    self.push(joiner, now)
                break

    def push(self, joiner: Member, now: float) -> None:
        """Send the whole view to a member that does not have it; not too often."""
        if now - self._pushed.get(joiner.incarnation, -NEVER) < self._context.settings.rpc_retransmit:
            return
        self._pushed[joiner.incarnation] = now
        self._context.count("configurations sent")
        self._context.send(joiner.address, self._context.whole_view(), reliable=True)
