"""The core of a member in the centralised mode: one sans-I/O object per process.

It joins by asking the ensemble, probes its subjects on the rings and answers its observers, reports failures to the
ensemble, and installs the views that it decides. It decides nothing itself, and keeps no alerts of others.
Source: Rapid, section 5 (the logically centralised service).
"""

import random
from collections.abc import Mapping, Sequence

from membership.address import Address
from membership.ensemble.abbreviated_ids import with_whole_ids
from membership.ensemble.session import EnsembleSession
from membership.errors import EdgeError, RecoveryError
from membership.protocol import messages
from membership.protocol.context.alert_signatures import Signer
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import Effects, Evicted, JoinRefused, JoinWaiting, Left
from membership.protocol.context.refusals import Refusal, elsewhere
from membership.protocol.core.base import MemberCoreBase
from membership.protocol.core.status import Status
from membership.protocol.core.suspicions import Suspicions, own_suspicions
from membership.protocol.lifecycle.change_requests import member_to_evict
from membership.protocol.monitoring.edge_detector import DetectorFactory
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.configuration import Configuration, ConfigurationError
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member, check_member
from membership.settings import Settings

_BACK_OFF = 1.5


class Client(MemberCoreBase):
    """One process of a cluster whose membership an ensemble records.

    `seeds`: any members of the ensemble, or of the cluster, which then name the ensemble. `cluster_id`: 16 bytes;
    refuses other clusters. `QuorumLost` means here that a majority of the ensemble is out of reach; it comes within
    the same bound (see `Settings.quorum_timeout`). Otherwise as `membership.protocol.core.Core`.
    """

    def __init__(
        self,
        me: Member,
        *,
        seeds: Sequence[Address],
        settings: Settings,
        rng: random.Random,
        cluster_id: bytes | None = None,
        is_new: bool = False,
        cache: ConfigurationCache | None = None,
        detectors: DetectorFactory | None = None,
        signer: Signer | None = None,
    ) -> None:
        check_member(me)
        self.status = Status.JOINING
        self._context = Context(me, settings, rng, cache or ConfigurationCache(), signer)
        self._monitor = Monitor(self._context, detectors)
        self._session = EnsembleSession(self._context, self._monitor)
        self._given_cluster_id = cluster_id
        self._is_new = is_new
        self._seeds: tuple[Address, ...] = ()
        self._join_at = NEVER
        self._join_pause = settings.rpc_retransmit
        self._leave_ends = NEVER
        self.set_seeds(seeds)

    # What the host sees.

    @property
    def cluster_id(self) -> bytes | None:
        """The cluster's id, None while unknown."""
        view = self._context.configuration
        return self._given_cluster_id if view is None else view.cluster_id

    def suspicions(self, now: float) -> Suspicions | None:
        """Which subjects do not answer this member; None before the first view. For people."""
        if self._context.configuration is None or self.status not in (Status.MEMBER, Status.LEAVING):
            return None
        return own_suspicions(self._context, self._monitor, quorum=not self._session.lost)

    def set_seeds(self, seeds: Sequence[Address]) -> None:
        """Replace the seeds of a joiner."""
        self._seeds = tuple(dict.fromkeys(seed for seed in seeds if seed != self.me.address))

    # Inputs.

    def start(self, now: float) -> Effects:
        """Begin to join. Call once, first."""
        self._join_at = now
        return self.tick(now)

    def receive(self, source: Address, message: messages.Message, now: float) -> Effects:
        """A message arrived from this address."""
        if self.status is Status.JOINING:
            self._handle_as_joiner(source, message, now)
        elif self.status in (Status.MEMBER, Status.LEAVING):
            self._handle(source, message, now)
        return self._effects(now)

    def tick(self, now: float) -> Effects:
        """Time has passed."""
        if self.status is Status.JOINING:
            if now >= self._join_at:
                self._ask_to_join(now)
        elif self.status in (Status.MEMBER, Status.LEAVING):
            if now >= self._monitor.deadline and self._monitor.tick(now, messages.Digest()):
                self._session.review(now)
            self._session.tick(now)
            if now >= self._leave_ends:
                self._depart(decided=False)
        return self._effects(now)

    def leave(self, now: float) -> Effects:
        """Leave the cluster in order. `Left` follows within `Settings.leave_timeout`."""
        if self.status is Status.JOINING:
            self._depart(decided=False)
        elif self.status is Status.MEMBER:
            self.status = Status.LEAVING
            self._session.leave(now)
            self._session.tick(now)
            self._leave_ends = now + self._context.settings.leave_timeout
            self._leave_if_alone()
        return self._effects(now)

    def set_metadata(self, metadata: Mapping[str, str], now: float) -> Effects:
        """Have new metadata agreed with the view; tried until a view has them. Raises MemberError.

        Of several requests the last one counts. A process that is joining asks once it is in.
        """
        record = Member.create(self.me.name, self.me.address, self.me.incarnation, metadata)
        self._session.set_metadata(record.metadata, now)
        return self.tick(now)

    def evict(self, name: str, now: float) -> Effects:
        """Have a member removed, healthy or not, for an operator; tried for `Settings.leave_timeout` seconds.

        Raises EvictionError if there is no such member, or if it is this one.
        """
        member = member_to_evict(self._context, name)
        self._session.evict(member.incarnation, now)
        return self.tick(now)

    def recover(self, survivors: Sequence[str], now: float, *, force: bool = False) -> Effects:
        """Not in this mode: raises RecoveryError. Members hold no chain; it is the ensemble that must stand up."""
        raise RecoveryError(
            "in the centralised mode members have nothing to recover from: start the members of the ensemble again, "
            "each with its own state"
        )

    def edge_checked(self, subject: bytes, *, healthy: bool, now: float, certain: bool = False) -> Effects:
        """The application's own check of a subject has an outcome, as in `membership.protocol.core.Core`."""
        if self.status in (Status.MEMBER, Status.LEAVING):
            self._monitor.on_check(subject, healthy, certain, now)
            self._session.review(now)
        return self._effects(now)

    def edge_failed(self, subject: Member, now: float) -> Effects:
        """The application reports that a member this one observes has failed, as in `membership.protocol.core.Core`."""
        if self.status not in (Status.MEMBER, Status.LEAVING):
            raise EdgeError("this process is no member at present, so it observes nobody")
        self._monitor.report_failed(subject, now)
        self._session.review(now)
        return self._effects(now)

    def _effects(self, now: float) -> Effects:
        if self.status is Status.JOINING:
            return self._context.take_effects(max(now, self._join_at))
        if self.status in (Status.LEFT, Status.EVICTED):
            return self._context.take_effects(NEVER)
        soonest = min(self._monitor.deadline, self._session.deadline, self._leave_ends)
        return self._context.take_effects(max(now, soonest))

    # Joining.

    def _ask_to_join(self, now: float) -> None:
        addresses = dict.fromkeys((*self._session.addresses, *self._seeds))
        self._context.send_all(addresses, messages.EnsembleJoin(self.me, self._is_new))
        self._context.count("join requests")
        self._join_at = now + self._join_pause * (0.75 + 0.5 * self._context.rng.random())
        self._join_pause = min(self._join_pause * _BACK_OFF, self._context.settings.rpc_cap)

    def _handle_as_joiner(self, source: Address, message: messages.Message, now: float) -> None:
        match message:
            case messages.EnsembleMembers():
                self._on_ensemble(message, now)
            case messages.FullConfiguration() if self._session.voter_address(message.sender) == source:
                self._on_configuration(message, now)
            case messages.JoinDeferred() if message.joiner in (b"", self.me.incarnation):
                self._context.publish(JoinWaiting(message.reason))
            case messages.JoinDenied() if message.joiner == self.me.incarnation:
                self._context.publish(JoinRefused(message.reason))
                self._join_pause = self._context.settings.rpc_cap
            case messages.Probe():
                answer = messages.NotMember(self.me.incarnation, message.configuration_id, message.sequence)
                self._context.send(source, answer)
            case _:
                self._context.count("messages before the first view")

    def _on_ensemble(self, message: messages.EnsembleMembers, now: float) -> None:
        if message.joiner != self.me.incarnation:
            self._context.drop("an answer to another joiner")
        elif self._given_cluster_id not in (None, message.cluster_id):
            self._context.drop("an answer from another cluster")
        elif not self._session.addresses:
            self._session.learn(message.electorate, now)
            self._given_cluster_id = message.cluster_id
            self._ask_to_join(now)

    # A member's messages.

    def _handle(self, source: Address, message: messages.Message, now: float) -> None:
        if isinstance(message, messages.ShortMessage):
            message = with_whole_ids(message, self._context.view, self._session.voters)
        match message:
            case messages.EvictedNotice():
                self._on_evicted(source, message)
            case messages.NotMember():
                self._on_not_member(source, message, now)
            case messages.EnsembleJoin():
                view = self._context.view
                voters = self._session.electorate
                answer = messages.EnsembleMembers(message.joiner.incarnation, view.cluster_id, False, voters)
                self._context.send(message.joiner.address, answer)
            case messages.MemberMessage() if address := self._session.voter_address(message.sender):
                if source == address:
                    self._session.heard(message.sender, now)
                    self._on_voter(message, now)
                else:
                    self._context.drop(Refusal.SENDER_ELSEWHERE)
            case messages.MemberMessage():
                self._on_member(source, message, now)
            case _:
                self._context.count("messages not for a member")

    def _on_voter(self, message: messages.MemberMessage, now: float) -> None:
        view = self._context.view
        match message:
            case messages.DecidedChain():
                self._on_chain(message, now)
            case messages.FullConfiguration():
                self._on_configuration(message, now)
            case messages.EnsembleQuestion() if message.configuration_id == view.id:
                self._session.on_question(message.subjects, now)
            case messages.ProbeAcknowledged() if message.epoch > view.epoch:
                self._session.ask(now)
            case _:
                pass

    def _on_member(self, source: Address, message: messages.MemberMessage, now: float) -> None:
        """A message of another member, or of who was or will be one."""
        view = self._context.view
        index = view.index_of_incarnation(message.sender)
        if index is not None and source != view.members[index].address:
            self._context.drop(Refusal.SENDER_ELSEWHERE, elsewhere(view.members[index], source))
            return
        if message.epoch > view.epoch:
            self._session.ask(now)
        elif index is None:
            if message.epoch == view.epoch:
                self._context.drop("a message whose sender is not in the view")
            return
        match message:
            case messages.Probe():
                address = source if index is None else view.members[index].address
                answer = messages.ProbeAcknowledged(*self._context.short_header, message.sequence, None)
                self._context.send(address, answer)
            case messages.ProbeAcknowledged():
                self._monitor.on_acknowledgement(message.sender, message.sequence, now)
            case (
                messages.IndirectProbe()
                | messages.IndirectAnswer()
                | messages.StreamProbe()
                | messages.StreamProbeAcknowledged()
            ) if index is not None and message.configuration_id == view.id:
                self._monitor.indirect.on_message(message, view.members[index], now)
            case messages.Unanswered() if index is not None and message.configuration_id == view.id:
                self._monitor.on_unanswered(message.subject, now)
            case _:
                self._context.count("messages not for a member")

    def _on_not_member(self, source: Address, message: messages.NotMember, now: float) -> None:
        if self._context.view.is_named(message.configuration_id):
            self._monitor.on_not_member(source, message, now)
            self._session.review(now)

    def _on_evicted(self, source: Address, message: messages.EvictedNotice) -> None:
        if (
            not self.me.incarnation.startswith(message.incarnation)
            or message.epoch <= self._context.view.epoch
        ):
            self._context.drop("an eviction notice for somebody else or an old one")
        elif not self._session.is_voter_at(source):
            self._context.drop("an eviction notice from a stranger")
        else:
            self._go(message.epoch, by_operator=message.by_operator)

    def _go(self, epoch: int, *, by_operator: bool = False) -> None:
        """A view without this process is decided."""
        if self.status is Status.LEAVING:
            self._depart(decided=True)
        else:
            self.status = Status.EVICTED
            self._context.publish(Evicted(epoch, by_operator))

    def _depart(self, *, decided: bool) -> None:
        self.status = Status.LEFT
        self._context.publish(Left(decided))

    def _leave_if_alone(self) -> None:
        if self.status is Status.LEAVING and len(self._context.view) == 1:
            self._depart(decided=False)  # there is nobody to tell: the ensemble keeps the last member listed

    # Installing views.

    def _on_chain(self, message: messages.DecidedChain, now: float) -> None:
        if message.configuration_id != self._context.view.id:
            if message.epoch > self._context.view.epoch:
                self._session.ask(now)
            return
        for cut in message.cuts:
            view = self._context.view
            try:
                configuration = self._context.cache.apply(view, cut)
            except ConfigurationError as error:
                self._context.drop(Refusal.CUT_UNFIT, str(error))
                return
            if self.me not in configuration:
                evicted = any(
                    gone.evicted and gone.incarnation == self.me.incarnation for gone in cut.removals
                )
                self._go(configuration.epoch, by_operator=evicted)
                return
            self._install(configuration, cut, now)

    def _on_configuration(self, message: messages.FullConfiguration, now: float) -> None:
        view = self._context.configuration
        try:
            configuration = self._context.cache.decode(
                message.body, message.configuration_id, self._context.settings.rings
            )
        except ConfigurationError as error:
            self._context.drop(Refusal.CONFIGURATION_UNREADABLE, str(error))
            return
        if self.cluster_id != configuration.cluster_id:
            self._context.drop("a configuration of another cluster")
        elif view is not None and configuration.epoch <= view.epoch:
            return
        elif self.me in configuration:
            self._install(configuration, None, now)
        elif view is None:
            self._context.drop("a configuration without this process")
        else:
            self._go(configuration.epoch)

    def _install(self, configuration: Configuration, cut: Cut | None, now: float) -> None:
        previous = self._context.configuration
        self._context.install(configuration)
        if previous is None:
            self.status = Status.MEMBER
        self._context.publish(self._context.cache.change(previous, configuration, cut))
        self._context.count("views installed")
        self._monitor.on_view_change(now)
        self._session.on_view_change(now)
        self._leave_if_alone()
