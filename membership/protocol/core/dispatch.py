"""Dispatch: every message is checked against its sender's place in the view, and handed to the component it concerns.

Senders are told apart by where they stand: a joiner, an outsider, a member that is behind, ahead, or in this very
view.
Source: Rapid, section 4. That every message names its configuration, and what follows from that, is our own.
"""

from membership.address import Address
from membership.protocol import messages
from membership.protocol.context.context import NEVER
from membership.protocol.context.refusals import Refusal, elsewhere
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core.components import Components
from membership.protocol.core.status import FINISHED, Status
from membership.protocol.core.view_installation import ViewInstaller
from membership.protocol.core.view_instance import ViewInstance
from membership.protocol.recovery.quorum_watch import polled_at
from membership.protocol.view.member import Member


class Dispatcher:
    """Handles the messages of one process. `founded`: it was told to found its cluster."""

    def __init__(self, components: Components, *, founded: bool) -> None:
        self._context = components.context
        self._joiner = components.joiner
        self._election = components.election
        self._refounding = components.refounding
        self._monitor = components.monitor
        self._admission = components.admission
        self._catch_up = components.catch_up
        self._quorum = components.quorum
        self._requests = components.requests
        self._recovery = components.recovery
        self._quorum_loss = components.quorum_loss
        self.views = ViewInstaller(components, self.handle)
        self.founded = founded
        """Whether this process founds its cluster: it was told to, or a cold start chose it."""

    def handle(self, source: Address, message: messages.Message, now: float) -> None:
        """A message arrived from this address."""
        if self.views.status in FINISHED:
            return
        instance = self.views.instance
        if isinstance(message, messages.FullConfiguration) and message.proposed:
            if instance is None:
                self._refounding.on_proposed(message, now)
                self.found_if_chosen(now)
        elif instance is None:
            self._handle_as_joiner(source, message, now)
        elif isinstance(message, messages.MemberMessage):
            self._handle_from_member(instance, source, message, now)
        else:
            self._handle_from_outside(instance, source, message, now)

    @property
    def awaits_cluster(self) -> bool:
        """Whether this process founds a cluster of which nobody knows yet, and would rather find one."""
        election = self._election
        return self._admission.holding and election.is_active and election.remembered is None

    def on_saved(self, state: StableState, now: float) -> None:
        """This is what is on disk."""
        if self.views.status in FINISHED:
            return
        self._context.storage.on_saved(state)
        instance = self.views.instance
        if instance is None or self._admission.holding:
            # Else it is in another view by now: what was being written down for a founding is not told any more.
            self._refounding.on_saved()
        if instance is None:
            self.found_if_chosen(now)
        elif self._admission.holding:
            self._install_if_in_force(instance, now)
        else:
            instance.on_saved(now)
            self.views.conclude(instance, now)

    def _install_if_in_force(self, instance: ViewInstance, now: float) -> None:
        self._refounding.on_accepted(now)
        if self._refounding.in_force and self._admission.holding:
            self._admission.release(self._election.acceptors(), now)
            self.views.apply(instance, self._refounding.cut, now)
            self._refounding.tell()

    def _handle_as_joiner(self, source: Address, message: messages.Message, now: float) -> None:
        if isinstance(message, messages.MemberMessage) and not isinstance(
            message, messages.FullConfiguration
        ):
            view = self._refounding.awaited(source, message)
            if view is not None:
                self.views.install_first(view, now)
                self.handle(source, message, now)
                return
        match message:
            case messages.FullConfiguration():
                self.views.on_first_configuration(message, now)
            case messages.ObserversAssigned():
                self._joiner.on_observers(message, now)
                if self._joiner.assigned:
                    self._election.on_cluster(message.epoch, now)
            case messages.JoinObserved():
                self._joiner.on_observed(message, source)
            case messages.JoinDeferred():
                self._joiner.on_deferred(message, now)
            case messages.JoinDenied():
                self._joiner.on_denied(message, now)
                if self._joiner.given_up:
                    self.views.refuse()
            case messages.Probe():
                me = self._context.me
                answer = messages.NotMember(me.incarnation, message.configuration_id, message.sequence)
                self._context.send(source, answer)
            case messages.ColdStart():
                self._on_cold_start(message, now)
                if source == message.sender.address:  # what was passed on already goes no further
                    self._election.pass_on(message)
            case messages.JoinRequest():
                self._context.defer(message.joiner, self._election.progress)
            case _:
                self._context.count("messages before the first view")

    def _on_cold_start(self, message: messages.ColdStart, now: float) -> None:
        self._election.on_cold_start(message, now)
        self._refounding.share(message, now)
        if self._election.remembered is None:
            self._joiner.prefer(self._election.followed)
        else:
            self._joiner.turn_to(self._election.followed, now)
        self.found_if_chosen(now)

    def found_if_chosen(self, now: float) -> None:
        """Found the cluster, or found it anew, if enough others that start too count on this process.

        Or start over, if the founder that counts on this incarnation is gone.
        """
        election = self._election
        if election.is_deserted:
            deserted = election.accepted[-1]
            self.views.give_up((deserted.by_seniority()[0].name,), deserted.epoch)
        elif election.founds(now) and self.views.may_found():
            self.founded = True
            self._admission.hold(election.expect, election.suffices, self._refounding.propose)
            self._refounding.begin(now)
            self.views.found(now)

    def tick_refounding(self, now: float) -> None:
        """A founder whose view is not in force for too long starts over like those on whom it counts."""
        if now >= self._refounding.deadline:
            self._refounding.deadline = NEVER
            if self.views.status is Status.MEMBER:
                self.views.give_up(self._refounding.missing)

    def _handle_from_outside(
        self, instance: ViewInstance, source: Address, message: messages.Message, now: float
    ) -> None:
        match message:
            case messages.JoinRequest():
                if self.views.status is Status.LEAVING:
                    self._context.defer(message.joiner, "this member is leaving")
                elif self._admission.holding and not self._election.counts_on(message.joiner):
                    self._context.defer(message.joiner, self._election.progress)
                elif not self._gives_up_for_joiner(source, message.joiner):
                    self._admission.on_request(message, instance.reporter, now)
            case messages.ColdStart() if self._concerns_members(message):
                self._on_restarted(instance, source, message, now)
            case messages.EnsembleJoin():
                reason = "this cluster has no ensemble: join in the decentralised mode"
                self._context.defer(message.joiner, reason)
            case messages.ObserveJoin():
                self._admission.on_observe(message, instance.reporter, now)
            case messages.NotMember():
                self._on_not_member(instance, source, message, now)
            case messages.EvictedNotice():
                self.views.on_evicted_notice(source, message, now)
            case _:
                self._context.count("messages for joiners")

    def _concerns_members(self, message: messages.ColdStart) -> bool:
        """Whether this comes from a process that was a member once, or this one was elected to found with it."""
        is_electing = self._admission.holding and self._election.is_active
        return message.asking and (message.remembers >= 0 or bool(message.accepted) or is_electing)

    def _on_restarted(
        self, instance: ViewInstance, source: Address, message: messages.ColdStart, now: float
    ) -> None:
        """A process that was a member once looks for the others: let it in, or join it if this view is beyond help."""
        if source != message.sender.address:
            self._context.drop(Refusal.SENDER_ELSEWHERE, elsewhere(message.sender, source))
            return
        if self._admission.holding:
            if self._election.while_gathering(message):
                self.views.give_up((message.sender.name,))
            else:
                self._install_if_in_force(instance, now)
            return
        self._quorum_loss.on_restarted(message.sender)
        if not self._gives_up() and self.views.status is not Status.LEAVING:
            self._admission.on_request(messages.JoinRequest(message.sender, 0), instance.reporter, now)

    def _gives_up_for_joiner(self, source: Address, joiner: Member) -> bool:
        """The same for one that remembers nothing, as it died before its disk had the view: it stands for its name, and
        half of the view is still there with what they know."""
        if source == joiner.address:
            self._quorum_loss.on_joining(joiner)
        restarted = self._quorum_loss.restarted
        is_half = self._context.storage.has_disk and 2 * len(restarted) <= len(self._context.view)
        return is_half and self._gives_up()

    def _gives_up(self) -> bool:
        """Give this view up if it is beyond help; whether that was done."""
        restarted = self._quorum_loss.restarted
        if not restarted or not self._quorum.lost or self.views.status is not Status.MEMBER:
            return False
        self.views.give_up(restarted)
        return True

    def _on_not_member(
        self, instance: ViewInstance, source: Address, message: messages.NotMember, now: float
    ) -> None:
        if not self._context.view.is_named(message.configuration_id):
            return
        self._quorum_loss.on_not_member(source, message.incarnation)
        self._admission.on_not_member(source, message, instance.reporter, now)
        without_view = self._monitor.on_not_member(source, message, now)
        if without_view is not None:
            self._admission.push(without_view, now)

    # Members, in whatever configuration they are.

    def _handle_from_member(
        self, instance: ViewInstance, source: Address, message: messages.MemberMessage, now: float
    ) -> None:
        view = self._context.view
        index = view.index_of_sender(message.sender)
        if isinstance(message, messages.ObserversAssigned) and self.awaits_cluster:
            # Others go on without this founder, which nobody has joined yet, and which goes on from nothing.
            if message.joiner == self._context.me.incarnation:
                self.views.give_up((self._context.me.name,))
            return
        if self._refounding.takes(source, message):
            self._install_if_in_force(instance, now)
            return
        if index is not None:
            if source != view.addresses[index]:
                # It would otherwise be answered, and believed alive, wherever somebody says it is.
                self._context.drop(Refusal.SENDER_ELSEWHERE, elsewhere(view.members[index], source))
                return
            self._quorum.heard(index, now)
        if view.is_named(message.configuration_id):
            if index is not None:
                self.views.on_heard()
                self._recovery.heard(view.members[index].incarnation)
                self._handle_current(instance, message, index, now)
            elif isinstance(message, messages.DecidedChain) and self._catch_up.expected(now):
                self.views.on_chain(message, now)
            else:
                self._context.drop("a message whose sender is not in the view")
        elif message.epoch < view.epoch and self._admission.holding:
            # This founder's view may never be anybody's: it says nothing about others.
            self._context.drop("a message from before a founding that is not in force")
        elif message.epoch < view.epoch:
            self._handle_stale(instance, source, message, index, now)
        elif message.epoch > view.epoch:
            self._handle_newer(instance, source, message, index, now)
        elif not isinstance(
            message, messages.JoinObserved | messages.JoinDenied | messages.ObserversAssigned
        ):
            self._context.drop("a message from another history of this cluster")

    def _handle_stale(
        self,
        instance: ViewInstance,
        source: Address,
        message: messages.MemberMessage,
        index: int | None,
        now: float,
    ) -> None:
        match message:
            case messages.CatchUpRequest() | messages.PullCut():
                self._catch_up.on_request(message, source)
                return
            case messages.Probe() if index is not None:
                instance.acknowledge(message, self._context.view.members[index].address)
            case messages.ProbeAcknowledged() if index is not None:
                self.on_sign_of_life(message, index, now)
            case (
                messages.ObserversAssigned()
                | messages.JoinObserved()
                | messages.JoinDenied()
                | messages.FullConfiguration()
            ):
                return  # late answers to the joiner this process was
            case _:
                pass
        self._catch_up.help(message, source, now)

    def _handle_newer(
        self,
        instance: ViewInstance,
        source: Address,
        message: messages.MemberMessage,
        index: int | None,
        now: float,
    ) -> None:
        match message:
            case messages.FullConfiguration():
                if self._admission.holding:
                    return  # others on whom this founder counts may count on that it does not go back
                if index is not None or self._catch_up.expected(now):
                    self.views.on_later_configuration(message, now)
                return
            case messages.ObserversAssigned() if self._admission.holding:
                # The others went on without this founder, which nobody has joined yet.
                if message.joiner == self._context.me.incarnation:
                    self.views.give_up((), message.epoch)
                return
            case messages.ObserversAssigned() | messages.JoinObserved() | messages.JoinDenied():
                return
            case messages.Probe():
                instance.acknowledge(message, source)
            case messages.ProbeAcknowledged() if index is not None:
                self.on_sign_of_life(message, index, now)
            case _:
                pass
        self._catch_up.note_newer(source, message, now)

    def on_sign_of_life(self, message: messages.ProbeAcknowledged, index: int, now: float) -> None:
        """The member with this index has answered a probe."""
        incarnation = self._context.view.members[index].incarnation
        timely = self._monitor.on_acknowledgement(incarnation, message.sequence, now)
        asked_at = now if timely else polled_at(message.sequence, now)
        if asked_at is not None:
            self._quorum.answered(index, asked_at)
        self._admission.on_sign_of_life(incarnation)

    # Members of the present configuration.

    def _handle_current(
        self, instance: ViewInstance, message: messages.MemberMessage, index: int, now: float
    ) -> None:
        """A message of the present configuration, from a member of it."""
        sender = self._context.view.members[index]
        match message:
            case messages.DecidedChain():
                self.views.on_chain(message, now)
            case (
                messages.IndirectProbe()
                | messages.IndirectAnswer()
                | messages.StreamProbe()
                | messages.StreamProbeAcknowledged()
            ):
                self._monitor.indirect.on_message(message, sender, now)
            case messages.Unanswered():
                self._monitor.on_unanswered(message.subject, now)
            case messages.LeaveRequest():
                if not instance.reporter.report_leave(index, now):
                    self._context.drop("a leave that asks somebody else's observer")
            case messages.UpdateRequest():
                self._requests.on_update(message, sender, instance.reporter, now)
            case messages.EvictRequest():
                self._requests.on_evict(message, instance.reporter, now)
            case messages.RecoveryRequest():
                self._on_recovery_request(message, sender, now)
            case messages.RecoveryAnswer():
                self._recovery.on_answer(message, sender.name)
                self.views.tick_recovery(now)
            case _:
                instance.handle(message, index, now)
                if isinstance(message, messages.Decided):
                    self._ask_for_more(instance, message, sender, now)
                self.views.conclude(instance, now)

    def _on_recovery_request(self, message: messages.RecoveryRequest, sender: Member, now: float) -> None:
        refusal = self._recovery.on_request(message, sender.name, quorum_lost=self._quorum.lost, now=now)
        answer = messages.RecoveryAnswer(*self._context.header, message.recovery, refusal)
        self._context.send(sender.address, answer)

    def _ask_for_more(
        self, instance: ViewInstance, message: messages.Decided, sender: Member, now: float
    ) -> None:
        # Who was asked for the cut itself need not be asked for the chain. The next one that tells is: either
        # question or its answer may be lost, and hardly both.
        missing = instance.decision is None and sender != instance.change.proposals.asked
        if missing or message.latest_epoch > message.epoch + 1:
            self._catch_up.ask(sender.address, now)
