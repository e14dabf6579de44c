"""The cluster's processes as one voter knows them: who waits to join, who was heard when, and who must be told.

It keeps the joiners that wait and guards names and addresses in use, notes each member's last sign of life, and sends
the members what was decided. What members report about each other is in cut_detection.
Source: Rapid, section 5: the ensemble notifies the members, which also ask from time to time.
"""

from membership.address import Address
from membership.ensemble.cut_detection import CutDetection
from membership.ensemble.electorate import Electorate
from membership.ensemble.session import HEARTBEAT_INTERVAL
from membership.ensemble.view_history import ViewHistory
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.refusals import taken
from membership.protocol.lifecycle.readmission import Readmission
from membership.protocol.messages import (
    DecidedChain,
    EnsembleJoin,
    EnsembleMembers,
    EnsembleQuestion,
    EvictedNotice,
    JoinDenied,
    NotMember,
    Probe,
)
from membership.protocol.messages.sizes import cut_bytes
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member, MemberError, check_member

_HEARTBEATS_MISSED = 5
"""A member that misses so many heartbeats is silent."""

_FRESH = 1.5
"""A heartbeat within so many intervals shows that its sender can be heard at present."""


class PendingJoin:
    """A process that wants in."""

    __slots__ = ("asked_at", "first_asked_at", "member")

    def __init__(self, member: Member, now: float) -> None:
        self.member = member
        self.first_asked_at = self.asked_at = now


class MemberRegistry:
    """Joiners and members, as one voter knows them. `expect`: see Voter."""

    def __init__(self, context: Context, expect: int) -> None:
        self._context = context
        self._expect = expect
        self._pending: dict[bytes, PendingJoin] = {}
        self._readmission = Readmission(context)
        self._heard: dict[bytes, float] = {}
        self._gone: dict[bytes, None] = {}
        self._alarms = 0
        self._attentive_since = 0.0
        self._last_input = -NEVER

    # Joiners.

    @property
    def waiting(self) -> list[Member]:
        """Who wants in and is not."""
        return [pending.member for pending in self._pending.values()]

    @property
    def holding(self) -> bool:
        """Whether the first view waits for more processes."""
        return self._context.view.epoch == 0 and len(self._pending) < self._expect

    def on_join(
        self,
        message: EnsembleJoin,
        detection: CutDetection,
        electorate: Electorate,
        history: ViewHistory,
        now: float,
    ) -> bool:
        """A process wants in; whether it is to be reported."""
        context, joiner = self._context, message.joiner
        try:
            check_member(joiner)
        except MemberError as error:
            self._deny(joiner, str(error))
            return False
        answer = EnsembleMembers(
            *(joiner.incarnation, electorate.cluster_id, joiner not in context.view, electorate.members)
        )
        context.send(joiner.address, answer)
        if joiner in context.view:
            if history.may_help(joiner.incarnation, now):
                history.send_view(joiner.address)
            return False
        pending = self._note(joiner, now)
        if pending is None or self._is_taken(pending, detection, now):
            return False
        if self.holding:
            reason = f"the cluster starts with {self._expect} processes, {len(self._pending)} have met so far"
            context.defer(joiner, reason)
            return False
        return self._readmission.passes(joiner, now, is_new=message.is_new)

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        return self._readmission.deadline

    def tick(self, now: float) -> list[Member]:
        """Probe the joiners whose links are tested; those that have passed, and are to be reported."""
        view = self._context.view
        return [
            joiner
            for joiner in self._readmission.tick(now)
            if joiner.incarnation in self._pending and not view.conflicts(joiner)
        ]

    def _note(self, joiner: Member, now: float) -> PendingJoin | None:
        known = self._pending.get(joiner.incarnation)
        if known is not None:
            known.asked_at = now
            return known
        horizon = now - self._context.settings.join_attempt_timeout
        if len(self._pending) >= self._context.settings.joins_kept:
            self._forget_silent_applicants(horizon)
        if len(self._pending) >= self._context.settings.joins_kept:
            self._context.drop("a join beyond the bound of joins kept")
            return None
        pending = self._pending[joiner.incarnation] = PendingJoin(joiner, now)
        return pending

    def _forget_silent_applicants(self, horizon: float) -> None:
        self._pending = {
            incarnation: pending
            for incarnation, pending in self._pending.items()
            if pending.asked_at >= horizon
        }

    def _is_taken(self, pending: PendingJoin, detection: CutDetection, now: float) -> bool:
        """Whether a member may still hold the name or address. Finding out may take a few requests.

        It does if it answers. It does not if another process answers at its address, or if it is silent and
        its observers report it. Otherwise its observers will report it, or it will answer.
        """
        joiner, view = pending.member, self._context.view
        for holder in view.conflicts(joiner):
            if holder.incarnation in self._gone:
                continue
            # Of late: a view change counts as a heartbeat of all its members, and a holder may die after it was heard.
            fresh = now - 2 * max(self._context.settings.probe_interval, self._context.settings.rpc_cap)
            if self._heard.get(holder.incarnation, -NEVER) > max(pending.first_asked_at, fresh):
                self._context.send(holder.address, Probe(*self._context.short_header, 0, None))
                self._context.count("joins refused")
                self._deny(joiner, taken(joiner, holder))
                return True
            index = view.index_of_incarnation(holder.incarnation)
            waited = now - pending.first_asked_at >= self._context.settings.probe_interval
            if index is None or not (waited and detection.suspected(index)):
                self._context.send(holder.address, Probe(*self._context.short_header, 0, None))
                return True
        return False

    def on_not_member(self, source: Address, message: NotMember, now: float) -> list[Member]:
        """A process without a view answers at this address: whoever held it is gone. Who waited for that."""
        self._readmission.on_answer(source, message, now)
        view = self._context.view
        index = view.index_of_address(source)
        if index is None or not view.is_named(message.configuration_id):
            return []
        holder = view.members[index]
        if holder.incarnation == message.incarnation:
            return []
        self._gone[holder.incarnation] = None
        return [
            joiner
            for joiner in self.waiting
            if holder in (conflicts := view.conflicts(joiner))
            and all(other.incarnation in self._gone for other in conflicts)
        ]

    def _deny(self, joiner: Member, reason: str) -> None:
        denial = JoinDenied(*self._context.header, joiner.incarnation, reason[:500])
        self._context.send(joiner.address, denial)

    def on_view_change(self, now: float) -> list[Member]:
        """Another view: who still waits and has asked of late."""
        view = self._context.view
        self._forget_silent_applicants(now - self._context.settings.join_attempt_timeout)
        self._pending = {
            incarnation: pending
            for incarnation, pending in self._pending.items()
            if pending.member not in view
        }
        self._heard = {
            incarnation: at
            for incarnation, at in self._heard.items()
            if view.index_of_incarnation(incarnation) is not None
        }
        for member in view.members:
            self._heard.setdefault(member.incarnation, now)
        self._gone = {}
        self._alarms = 0
        self._readmission.on_view_change()
        if self.holding:
            return []
        free = [joiner for joiner in self.waiting if not view.conflicts(joiner)]
        return [joiner for joiner in free if self._readmission.passes(joiner, now)]

    # Members.

    def heard(self, incarnation: bytes, now: float) -> None:
        """This member has sent something."""
        self._heard[incarnation] = now

    def notice_own_lag(self, now: float) -> None:
        """An input at this time. After a pause of this process its silence was not the others'."""
        if not now - self._last_input <= 4 * self._context.settings.greeting_interval:
            self._attentive_since = now
        self._last_input = now

    def find_orphans(
        self, detection: CutDetection, questions: dict[int, list[int]], now: float
    ) -> tuple[int, ...]:
        """The orphans: members that send no heartbeats, and whose observers are all silent or accuse them.

        Observers that do send heartbeats are asked first: that is added to `questions`.

        While nobody sends heartbeats any more, and nobody wants in, this says nothing: more likely the fault is here.
        """
        view = self._context.view
        interval = HEARTBEAT_INTERVAL * self._context.settings.probe_interval
        horizon = now - _HEARTBEATS_MISSED * interval
        if self._attentive_since > horizon:
            return ()
        silent = {
            index
            for index, member in enumerate(view.members)
            if self._heard.get(member.incarnation, horizon) <= horizon
        }
        if not silent or not (self._pending or max(self._heard.values()) >= now - _FRESH * interval):
            return ()
        orphans = []
        for index in sorted(silent):
            member = view.members[index]
            accusers = detection.accusers(index)
            unheard = [
                observer
                for observer, _ in view.observer_masks(member)
                if observer not in silent and observer not in accusers and observer != index
            ]
            for observer in unheard:
                questions.setdefault(observer, []).append(index)
            if not unheard:
                orphans.append(index)
        return tuple(orphans)

    # Notices.

    def raise_alarm(self, electorate: Electorate, now: float) -> None:
        """Tell this voter's share of the members that a view change is under way; another share each time, as some
        voter may not be heard by some member."""
        share, shares = self._share(electorate, now)
        self._alarms += 1
        members = self._context.view.members[(share + self._alarms) % shares :: shares]
        alarm = EnsembleQuestion(*self._context.header, ())
        self._context.send_all([member.address for member in members], alarm)
        self._context.count("alarms")

    def _share(self, electorate: Electorate, now: float) -> tuple[int, int]:
        """Which share of the members this voter tells, of how many: each voter that answers has one."""
        answering = electorate.answering(now, self._context.settings.greeting_interval)
        return answering.index(electorate.index), len(answering)

    def tell(
        self, previous: Configuration, cut: Cut, electorate: Electorate, history: ViewHistory, now: float
    ) -> None:
        """Tell the members, of which each voter that answers takes its share, what was decided."""
        context, view = self._context, self._context.view
        share, shares = self._share(electorate, now)
        for removal in cut.removals[share::shares]:
            index = previous.index_of_incarnation(removal.incarnation)
            if index is not None:
                notice = EvictedNotice(removal.incarnation, view.epoch, removal.evicted)
                context.send(previous.members[index].address, notice)
        stay = [member.address for member in previous.members if member in view][share::shares]
        chain = DecidedChain(context.me.incarnation, previous.epoch, previous.id, (cut,))
        if cut_bytes(cut) <= context.settings.datagram_payload:
            context.send_all(stay, chain)
        else:
            for address in stay:
                context.send(address, chain, reliable=True)
        for joiner in cut.joins[share::shares]:
            history.send_view(joiner.address)
        context.count("members told", len(stay))
