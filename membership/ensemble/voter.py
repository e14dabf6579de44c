"""The core of an ensemble member (voter): one sans-I/O object per process.

It forms the electorate, checks who says what, hands each message to the component it concerns, and hands out what must
be saved. It is not itself a member of the cluster whose views it records.
Source: Rapid, section 5 (the logically centralised service).

The electorate is fixed. A voter may crash and come back with what it had saved (`saved`, the last `StateToSave`);
one that comes back without takes no part any more. A majority of the voters must run for a view to change.
"""

import random
from collections.abc import Sequence

from consensus import classic_quorum
from membership.address import Address
from membership.ensemble.abbreviated_ids import with_whole_ids
from membership.ensemble.cut_detection import CutDetection
from membership.ensemble.durable_state import RecordError, VoterState, decode_state, encode_state
from membership.ensemble.electorate import Electorate
from membership.ensemble.member_registry import MemberRegistry
from membership.ensemble.view_installation import ViewInstaller
from membership.ensemble.view_instance import ViewInstance
from membership.errors import MembershipError
from membership.protocol import messages
from membership.protocol.context.alert_signatures import Signer
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import Effects, Left, QuorumLost, QuorumRegained, StateToSave
from membership.protocol.context.refusals import Refusal, elsewhere
from membership.protocol.core.base import CoreBase
from membership.protocol.core.status import Status
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import Member, check_member
from membership.settings import Settings

SMALLEST_ENSEMBLE = 3


class EnsembleError(MembershipError, ValueError):
    """Raised when a list of ensemble members cannot be an ensemble. The message says what to change."""


class Voter(CoreBase):
    """One member of the ensemble `addresses`, among which is its own.

    All processes of the ensemble must be given the same addresses. `expect`: hold the first view until so many
    processes want to join. `saved`: the record of an earlier run at this address, if there was one; then the
    incarnation is taken from it. `configuration` is the cluster's present view, None until the electorate has
    formed; it may be empty. `signer`: checks who signed the members' reports; then all members must sign, and
    what is not signed by its observer does not count. All times are seconds of one monotonic clock.
    """

    def __init__(
        self,
        me: Member,
        *,
        addresses: Sequence[Address],
        settings: Settings,
        rng: random.Random,
        saved: bytes | None = None,
        expect: int = 1,
        cache: ConfigurationCache | None = None,
        signer: Signer | None = None,
    ) -> None:
        check_member(me)
        distinct = dict.fromkeys(addresses)
        if len(distinct) < SMALLEST_ENSEMBLE or me.address not in distinct:
            raise EnsembleError(
                f"an ensemble is at least {SMALLEST_ENSEMBLE} different addresses, {me.address} among them; "
                f"given are {', '.join(map(str, distinct)) or 'none'}"
            )
        self._record = VoterState(me) if saved is None else decode_state(saved)
        if self._record.me.address != me.address:
            raise RecordError(
                f"the saved state is that of {self._record.me}, not of {me.address}: give each member its own"
            )
        voters = {voter.address for voter in self._record.electorate}
        if voters and voters != set(distinct):
            raise EnsembleError(
                f"this ensemble was formed by {', '.join(sorted(map(str, voters)))} and cannot be changed: "
                "give these addresses"
            )
        self.status = Status.JOINING
        self._saved_standing: object = None
        self._context = Context(self._record.me, settings, rng, cache or ConfigurationCache(), signer)
        self._electorate = Electorate(self.me, tuple(distinct))
        self._registry = MemberRegistry(self._context, expect)
        self._views = ViewInstaller(self._context, self._electorate, self._registry)
        self._greet_at = 0.0
        self._liveness_check_at = 0.0
        self._alone_since: float | None = None
        self.quorum_lost = False

    # What the host sees.

    @property
    def _instance(self) -> ViewInstance | None:
        return self._views.instance

    @property
    def cluster_id(self) -> bytes | None:
        """The id of the cluster this ensemble records, None until the electorate has formed."""
        return None if self._context.configuration is None else self._electorate.cluster_id

    @property
    def electorate(self) -> tuple[Member, ...]:
        """The members of the ensemble, empty until they have met."""
        return self._electorate.members

    # Inputs.

    def start(self, now: float) -> Effects:
        """Begin, or go on from the saved record. Call once, first."""
        record = self._record
        self._electorate.restore(record.electorate, record.formed, now)
        if self._electorate.formed:
            self._begin(now)
        self._tick(now)
        return self._effects(now)

    def receive(self, source: Address, message: messages.Message, now: float) -> Effects:
        """A message arrived from this address."""
        if self.status is not Status.LEFT:
            self._registry.notice_own_lag(now)
            self._handle(source, message, now)
            self._views.advance(now)
        return self._effects(now)

    def tick(self, now: float) -> Effects:
        """Time has passed."""
        if self.status is not Status.LEFT:
            self._registry.notice_own_lag(now)
            self._tick(now)
        return self._effects(now)

    def leave(self, now: float) -> Effects:
        """Stop. The electorate stays as it is: to the others this voter is away, and may come back."""
        if self.status is not Status.LEFT:
            self.status = Status.LEFT
            self._context.publish(Left(decided=True))
        return self._effects(now)

    def _effects(self, now: float) -> Effects:
        self._save()
        if self.status is Status.LEFT:
            return self._context.take_effects(NEVER)
        soonest = min(self._greet_at, self._registry.deadline)
        if self._instance is not None:
            soonest = min(soonest, self._instance.deadline)
        return self._context.take_effects(max(now, soonest))

    def _save(self) -> None:
        """Hand out the record if it changed; nothing of these effects may be sent before it is safe."""
        view, electorate = self._context.configuration, self._electorate
        state = None if self._instance is None else self._instance.agreement.state
        standing = (electorate.size, electorate.formed, None if view is None else view.id, state)
        if standing == self._saved_standing:
            return
        self._saved_standing = standing
        record = VoterState(self.me, electorate.members, electorate.formed)
        if view is not None and self._instance is not None and state is not None:
            record = VoterState.of_chain(record, view, state, self._instance.agreement.accepted)
        self._context.publish(StateToSave(encode_state(record)))

    # The electorate forms.

    def _begin(self, now: float) -> None:
        self.status = Status.MEMBER
        self._views.begin(self._record, now)

    def _greet(self, now: float) -> None:
        settings = self._context.settings
        self._greet_at = now + settings.greeting_interval * (0.9 + 0.2 * self._context.rng.random())
        _, epoch, identifier = self._context.header
        instance = self._instance
        digest = messages.Digest() if instance is None else instance.detection.digest()
        orphans = () if instance is None else instance.orphans
        greeting = messages.EnsembleGreeting(
            self.me, self._electorate.members, epoch, identifier, digest, orphans
        )
        self._context.send_all(self._electorate.addresses, greeting)

    def _on_greeting(self, message: messages.EnsembleGreeting, now: float) -> None:
        if not self._electorate.formed:
            if self._electorate.meet(message.member, message.electorate, now):
                self._greet(now)
            if self._electorate.formed:
                self._begin(now)
            return
        voter = self._electorate.index_of(message.member.incarnation)
        if voter is None:
            self._context.drop(Refusal.GREETING_OF_STRANGER)
            return
        self._electorate.heard(voter, now)
        self._electorate.note_orphans(voter, message.configuration_id, message.orphans)
        view, detection = self._context.view, None if self._instance is None else self._instance.detection
        if message.electorate and message.epoch < view.epoch:
            if self._views.history.may_help(message.member.incarnation, now):
                self._views.history.send_steps(
                    message.member.address, message.epoch, message.configuration_id
                )
        elif message.epoch > view.epoch:
            self._views.ask(message.member.address, now)
        elif detection is not None and message.digest != detection.digest():
            settled = detection.quiet_since(now - 2 * self._context.settings.gossip_interval)
            if settled and message.digest.alert_bits <= detection.digest().alert_bits:
                self._context.count("reports shared")
                self._context.send(message.member.address, detection.everything(now), reliable=True)

    # Messages.

    def _handle(self, source: Address, message: messages.Message, now: float) -> None:
        if isinstance(message, messages.ShortMessage):
            voters = (voter.incarnation for voter in self._electorate.members)
            message = with_whole_ids(message, self._context.configuration, voters)
        match message:
            case messages.EnsembleGreeting():
                self._on_greeting(message, now)
            case messages.EnsembleJoin():
                self._on_join(message, now)
            case messages.NotMember() if self._instance is not None:
                for joiner in self._registry.on_not_member(source, message, now):
                    self._views.admit(self._instance, joiner, now)
            case messages.JoinRequest():
                reason = "this is an ensemble: join in the centralised mode"
                self._context.defer(message.joiner, reason)
            case messages.MemberMessage() if self._instance is not None:
                voter = self._electorate.index_of(message.sender)
                if voter is not None and source != self._electorate.members[voter].address:
                    self._context.drop(Refusal.SENDER_ELSEWHERE)
                elif voter is not None:
                    self._electorate.heard(voter, now)
                    self._on_voter(self._instance, message, voter, now)
                else:
                    self._on_member(self._instance.detection, source, message, now)
            case _:
                self._context.count("messages not for an ensemble")

    def _on_join(self, message: messages.EnsembleJoin, now: float) -> None:
        if self._instance is None:
            self._context.defer(message.joiner, "the ensemble has not formed yet")
        elif self._registry.on_join(
            message, self._instance.detection, self._electorate, self._views.history, now
        ):
            self._views.admit(self._instance, message.joiner, now)

    def _on_member(
        self, detection: CutDetection, source: Address, message: messages.MemberMessage, now: float
    ) -> None:
        """A message of a process that is, was or will be in the cluster."""
        view = self._context.view
        index = view.index_of_incarnation(message.sender)
        if index is None:
            if message.epoch > view.epoch:
                self._views.ask_any(now)  # it may be in a view this voter has still to learn of
            elif self._views.history.may_help(message.sender, now):
                self._context.count("evicted notices sent")
                by_operator = self._views.history.was_evicted(message.sender)
                self._context.send(source, messages.EvictedNotice(message.sender, view.epoch, by_operator))
            return
        address = view.members[index].address
        if source != address:
            self._context.drop(Refusal.SENDER_ELSEWHERE, elsewhere(view.members[index], source))
            return
        self._registry.heard(message.sender, now)
        if message.epoch > view.epoch:
            self._views.ask_any(now)
        elif message.configuration_id != view.id:
            if self._views.history.may_help(message.sender, now):
                self._views.history.send_steps(address, message.epoch, message.configuration_id)
        else:
            match message:
                case messages.EnsembleReport():
                    detection.report(message, index, now)
                case messages.LeaveRequest():
                    detection.leave(index, now)
                case messages.EvictRequest():
                    subject = view.index_of_incarnation(message.subject)
                    if subject is not None:
                        detection.evict(subject, now)
                case messages.UpdateRequest() if message.member.incarnation == message.sender:
                    detection.update(message.member, now)
                case _:
                    pass
        if isinstance(message, messages.Probe):
            answer = messages.ProbeAcknowledged(*self._context.short_header, message.sequence, None)
            self._context.send(address, answer)

    def _on_voter(
        self, instance: ViewInstance, message: messages.MemberMessage, voter: int, now: float
    ) -> None:
        view = self._context.view
        address = self._electorate.members[voter].address
        match message:
            case messages.DecidedChain():
                self._views.on_chain(message, now)
                return
            case messages.FullConfiguration():
                self._views.on_configuration(message, now)
                return
            case messages.CatchUpRequest() if message.epoch < view.epoch:
                self._views.history.send_steps(address, message.epoch, message.configuration_id)
                return
            case _:
                pass
        if message.epoch < view.epoch:
            if self._views.history.may_help(message.sender, now):
                self._views.history.send_steps(address, message.epoch, message.configuration_id)
        elif message.epoch > view.epoch:
            self._views.ask(address, now)
        elif message.configuration_id != view.id:
            self._context.drop("a message from another history of this cluster")
        else:
            instance.handle(message, voter, now)

    # Time.

    def _tick(self, now: float) -> None:
        if now >= self._greet_at:
            self._greet(now)
            if self._electorate.formed:
                self._watch_quorum(now)
        if self._instance is None:
            return
        self._observe(self._instance, now)
        for joiner in self._registry.tick(now):
            self._views.admit(self._instance, joiner, now)
        self._views.advance(now)

    def _observe(self, instance: ViewInstance, now: float) -> None:
        """Tell the members that somebody is suspected; ask observers about subjects that others have reported for a
        while, or that send the ensemble no heartbeats any more."""
        view, detection = self._context.view, instance.detection
        if detection.alarm_due(now):
            self._registry.raise_alarm(self._electorate, now)
        questions = detection.questions(now)
        if now >= self._liveness_check_at:
            self._liveness_check_at = now + self._context.settings.probe_interval
            instance.orphans = self._registry.find_orphans(detection, questions, now)
            self._electorate.note_orphans(self._electorate.index, view.id, instance.orphans)
            interval = self._context.settings.greeting_interval
            for subject in self._electorate.agreed_orphans(view.id, now, interval):
                detection.give_up(subject, now)
        for observer, subjects in questions.items():
            question = messages.EnsembleQuestion(*self._context.header, tuple(subjects[:1024]))
            self._context.send(view.members[observer].address, question)

    def _watch_quorum(self, now: float) -> None:
        settings = self._context.settings
        answering = self._electorate.answering(now, settings.greeting_interval)
        if len(answering) >= classic_quorum(self._electorate.size):
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        lost = self._alone_since is not None and now - self._alone_since >= settings.quorum_timeout
        if lost != self.quorum_lost:
            self.quorum_lost = lost
            self._context.publish(QuorumLost() if lost else QuorumRegained())
