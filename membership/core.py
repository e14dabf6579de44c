"""The membership core: one sans-I/O object per process.

What it is: the dispatcher. It checks who says what in which configuration, hands each message to the part that
owns it, installs decided configurations, and returns what is to be done as Effects.
What it is not: the protocol itself, which lives in the parts; nor a shell: it has no clock, socket or task.
Source: Rapid (USENIX ATC 2018); the parts cite their sections.
"""

import random
from collections.abc import Mapping, Sequence
from enum import Enum

from membership import messages as wire
from membership.address import Address
from membership.admission import Admission
from membership.catch_up import CatchUp
from membership.configuration import Configuration, ConfigurationCache, ConfigurationError
from membership.context import NEVER, Context
from membership.cut import Cut
from membership.edge_detector import DetectorFactory
from membership.effects import Effects, Evicted, Left
from membership.errors import EdgeError, RecoveryError
from membership.evidence import Authority
from membership.joiner import Joiner
from membership.leave import Leaver, Phase
from membership.member import Member, check_member
from membership.monitor import Monitor
from membership.quiet_time import QuietEdge
from membership.quorum_watch import QuorumWatch
from membership.recovery import Recovery, continues
from membership.refusals import Refusal, elsewhere
from membership.rendezvous import Rendezvous
from membership.requests import Requests, member_to_evict
from membership.settings import Settings
from membership.stage import Stage
from membership.view_difference import by_comparison, by_cut


class Status(Enum):
    """Where a process stands."""

    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    LEFT = "left"
    EVICTED = "evicted"
    REFUSED = "refused"


_FINISHED = (Status.LEFT, Status.EVICTED, Status.REFUSED)
_ROUTINE = (wire.Probe, wire.ProbeAcknowledged)


class Core:
    """One process of the cluster.

    `seeds`: whom to ask for admission. `found`: start a new cluster instead; then `expect` processes, this one
    included, must have met before the first joiners are admitted, all in one view change. Without `found` and
    with `expect` above 1, processes that name each other agree on who founds (see rendezvous). `cluster_id`:
    16 bytes; given to a joiner it refuses other clusters. `cache`: shared by the cores of one process.
    `detectors`: the kind of edge detector, by default windowed. `authority`: signs this member's reports; then all
    members must sign, and what is not signed by its observer does not count.

    A cluster of two cannot remove a dead member, because two is the quorum of two: it raises QuorumLost and
    waits. From three on a majority that can talk removes the others.

    All times are seconds of one monotonic clock, passed as `now`. After any call, `tick` is due at
    `Effects.wake_at`. A core that is LEFT, EVICTED or REFUSED is finished: to rejoin, build another with another
    incarnation.
    """

    def __init__(
        self,
        me: Member,
        *,
        seeds: Sequence[Address],
        settings: Settings,
        rng: random.Random,
        found: bool = False,
        expect: int = 1,
        cluster_id: bytes | None = None,
        cache: ConfigurationCache | None = None,
        detectors: DetectorFactory | None = None,
        authority: Authority | None = None,
    ) -> None:
        check_member(me)
        self.status = Status.JOINING
        self._context = Context(me, settings, rng, cache or ConfigurationCache(), authority)
        self.founded = found
        """Whether this process founds its cluster: it was told to, or a cold start chose it."""
        self._joiner = Joiner(self._context, seeds, cluster_id)
        self._rendezvous = Rendezvous(self._context, 1 if found else expect, self._joiner.seeds)
        self._monitor = Monitor(self._context, detectors)
        self._admission = Admission(self._context, expect if found else 1)
        self._catch_up = CatchUp(self._context)
        self._quorum = QuorumWatch(self._context)
        self._requests = Requests(self._context)
        self._recovery = Recovery(self._context)
        self._leaver: Leaver | None = None
        self._greet_at = NEVER
        self._stage: Stage | None = None
        self._soonest = NEVER

    # What the host sees.

    @property
    def me(self) -> Member:
        """This process's record: as agreed in the current view, or as it wants to join."""
        return self._context.me

    @property
    def configuration(self) -> Configuration | None:
        """The current view, None before the first."""
        return self._context.configuration

    @property
    def cluster_id(self) -> bytes | None:
        """The cluster's id, None while unknown."""
        view = self._context.configuration
        return self._joiner.cluster_id if view is None else view.cluster_id

    @property
    def subjects(self) -> tuple[Member, ...]:
        """The distinct members that this one observes."""
        return tuple(edge.subject for edge in self._monitor.subjects)

    def statistics(self) -> dict[str, int]:
        """Counters since the start, by name."""
        return dict(self._context.counters)

    def quiet_edges(self) -> list[QuietEdge] | None:
        """The edges of a member at which nothing goes on but probing, else None: for simulations of long times.

        Rounds that pass in these edges (`QuietEdge.pass_rounds`), equally many in all edges of all members, are
        time that the cluster has lived through, with the clock of this core standing still. Nothing else would
        have changed: what is repeated (probes, digests to random members) meets equal digests and leaves no
        trace, and nothing that waits for a time-out is under way.
        """
        stage = self._stage
        if stage is None or self.status is not Status.MEMBER or self._requests.deadline != NEVER:
            return None
        if stage.deadline != NEVER or not stage.table.empty or stage.change.vote_bits:
            return None
        if self._admission.busy or self._quorum.missing:
            return None
        return self._monitor.quiet_edges()

    def set_seeds(self, seeds: Sequence[Address]) -> None:
        """Replace the seeds of a joiner."""
        self._joiner.set_seeds(seeds)
        self._rendezvous.set_seeds(self._joiner.seeds)

    # Inputs.

    def start(self, now: float) -> Effects:
        """Found the cluster, or begin to join one. Call once, first."""
        if self.founded:
            self._found(now)
        else:
            self._joiner.start(now)
            self._joiner.tick(now)
            self._rendezvous.start(now)
            self._rendezvous.tick(now)
        return self._effects(now)

    def _found(self, now: float) -> None:
        cluster_id = self._joiner.cluster_id or self._context.rng.randbytes(16)
        rings = self._context.settings.rings
        self._install(self._context.cache.found(self.me, cluster_id, rings), None, now)

    def receive(self, source: Address, message: wire.Message, now: float) -> Effects:
        """A message arrived from this address."""
        if isinstance(message, _ROUTINE) and self._is_routine(source, message, now):
            return self._context.take_effects(max(now, self._soonest))  # routine moves no deadline
        self._handle(source, message, now)
        return self._effects(now)

    def _is_routine(self, source: Address, message: wire.Probe | wire.ProbeAcknowledged, now: float) -> bool:
        """Handle a probe or its answer among members of one view, nearly all of the traffic, on a short way."""
        stage = self._stage
        if stage is None or self.status in _FINISHED:
            return False
        view = self._context.view
        index = view.index_of_sender(message.sender)
        if index is None or message.configuration_id != view.short_id or source != view.addresses[index]:
            return False
        self._quorum.heard(index, now)
        if self._recovery.telling:
            self._recovery.heard(view.members[index].incarnation)
        if isinstance(message, wire.Probe):
            self._acknowledge(message, view.addresses[index])
        else:
            self._on_sign_of_life(message, index, now)
        stage.gossip.compare(index, message.digest or wire.EMPTY_DIGEST, now)
        return True

    def tick(self, now: float) -> Effects:
        """Time has passed."""
        if self.status is Status.JOINING:
            self._joiner.tick(now)
            self._rendezvous.tick(now)
        elif self._stage is not None and self.status in (Status.MEMBER, Status.LEAVING):
            self._tick_member(self._stage, now)
        return self._effects(now)

    def leave(self, now: float) -> Effects:
        """Leave the cluster in order. `Left` follows within `Settings.leave_timeout`."""
        if self.status is Status.MEMBER:
            self.status = Status.LEAVING
            self._leaver = Leaver(self._context, now)
            self._leaver.tick(now)
            self._check_left()
        elif self.status is Status.JOINING:
            self.status = Status.LEFT
            self._context.publish(Left(decided=False))  # nothing was there to decide
        return self._effects(now)

    def set_metadata(self, metadata: Mapping[str, str], now: float) -> Effects:
        """Have new metadata agreed with the view; tried until a view has them. Raises MemberError.

        Of several wishes the last one counts. A process that is joining asks once it is in.
        """
        record = Member.create(self.me.name, self.me.address, self.me.incarnation, metadata)
        self._requests.set_metadata(record.metadata, now)
        self._tick_requests(now)
        return self._effects(now)

    def evict(self, name: str, now: float) -> Effects:
        """Have a member removed, healthy or not, for an operator; tried for `Settings.leave_timeout` seconds.

        Raises EvictionError if there is no such member, or if it is this one.
        """
        member = member_to_evict(self._context, name)
        self._requests.evict(member.incarnation, now)
        self._tick_requests(now)
        return self._effects(now)

    def edge_checked(self, subject: bytes, *, healthy: bool, now: float, certain: bool = False) -> Effects:
        """The application has checked a member (its incarnation), or knows that it is gone for `certain`.

        An opinion like that of the failure detector: the subject goes only if several observers agree. Without
        `certain` this member's own health is taken into account. About members that this one does not observe,
        nothing happens.
        """
        if self._stage is not None and self.status in (Status.MEMBER, Status.LEAVING):
            self._monitor.on_check(subject, healthy, certain, now)
            self._stage.reporter.accuse_failed(now, in_doubt=self._quorum.in_doubt(now))
        return self._effects(now)

    def edge_failed(self, subject: Member, now: float) -> Effects:
        """The application reports, once and for certain, that a member this one observes has failed.

        The report stands for `Settings.report_lifetime`, over view changes too, whatever the probes say. It is one
        observer's: the subject goes only if several agree. Raises EdgeError if this member does not observe it.
        """
        if self._stage is None or self.status not in (Status.MEMBER, Status.LEAVING):
            raise EdgeError("this process is no member at present, so it observes nobody")
        self._monitor.report_failed(subject, now)
        self._stage.reporter.accuse_failed(now)
        return self._effects(now)

    def recover(self, survivors: Sequence[str], now: float, *, force: bool = False) -> Effects:
        """For an operator: the majority is lost for good, begin a new chain from these names or addresses.

        RecoveryFinished or RecoveryFailed follows within twice `Settings.leave_timeout`. Raises RecoveryError,
        among others when a majority is within reach and `force` is not given.
        """
        if self.status is not Status.MEMBER:
            raise RecoveryError("this process is not a member: ask one that is")
        self._recovery.start(survivors, force=force, quorum_lost=self._quorum.lost, now=now)
        self._tick_recovery(now)
        return self._effects(now)

    def _effects(self, now: float) -> Effects:
        return self._context.take_effects(self._wake_at(now))

    def _wake_at(self, now: float) -> float:
        if self.status is Status.JOINING:
            return max(now, min(self._joiner.deadline, self._rendezvous.deadline))
        stage = self._stage
        if stage is None or self.status in _FINISHED:
            return NEVER
        self._soonest = min(
            self._monitor.deadline,
            stage.deadline,
            self._quorum.deadline,
            self._greet_at,
            self._requests.deadline,
            self._recovery.deadline,
            NEVER if self._leaver is None else self._leaver.deadline,
        )
        return max(now, self._soonest)

    # Messages.

    def _handle(self, source: Address, message: wire.Message, now: float) -> None:
        if self.status in _FINISHED:
            return
        if self._stage is None:
            self._handle_as_joiner(source, message, now)
        elif isinstance(message, wire.MemberMessage):
            self._handle_from_member(self._stage, source, message, now)
        else:
            self._handle_from_outside(self._stage, source, message, now)

    def _handle_as_joiner(self, source: Address, message: wire.Message, now: float) -> None:
        match message:
            case wire.FullConfiguration():
                self._on_first_configuration(message, now)
            case wire.ObserversAssigned():
                self._joiner.on_observers(message, now)
                if self._joiner.assigned:
                    self._rendezvous.stop()
            case wire.JoinObserved():
                self._joiner.on_observed(message, source)
            case wire.JoinDeferred():
                self._joiner.on_deferred(message, now)
            case wire.JoinDenied():
                self._joiner.on_denied(message, now)
                if self._joiner.given_up:
                    self.status = Status.REFUSED
            case wire.Probe():
                answer = wire.NotMember(self.me.incarnation, message.configuration_id, message.sequence)
                self._context.send(source, answer)
            case wire.ColdStart():
                self._on_cold_start(message, now)
            case wire.JoinRequest():
                self._context.send(message.joiner.address, wire.JoinDeferred(self._rendezvous.standing))
            case _:
                self._context.count("messages before the first view")

    def _on_cold_start(self, message: wire.ColdStart, now: float) -> None:
        self._rendezvous.on_greeting(message, now)
        self._joiner.prefer(self._rendezvous.followed)
        if self._rendezvous.founds:
            self.founded = True
            self._admission.hold(self._rendezvous.expect)
            self._rendezvous.stop()
            self._found(now)

    def _handle_from_outside(self, stage: Stage, source: Address, message: wire.Message, now: float) -> None:
        match message:
            case wire.JoinRequest():
                if self.status is Status.LEAVING:
                    self._context.send(message.joiner.address, wire.JoinDeferred("this member is leaving"))
                else:
                    self._admission.on_request(message, stage.reporter, now)
            case wire.EnsembleJoin():
                reason = "this cluster has no ensemble: join in the decentralised mode"
                self._context.send(message.joiner.address, wire.JoinDeferred(reason))
            case wire.ObserveJoin():
                self._admission.on_observe(message, stage.reporter, now)
            case wire.NotMember():
                self._on_not_member(stage, source, message, now)
            case wire.EvictedNotice():
                self._on_evicted_notice(source, message, now)
            case _:
                self._context.count("messages for joiners")

    def _handle_from_member(
        self, stage: Stage, source: Address, message: wire.MemberMessage, now: float
    ) -> None:
        view = self._context.view
        index = view.index_of_sender(message.sender)
        if index is not None:
            if source != view.addresses[index]:
                # It would otherwise be answered, and believed alive, wherever somebody says it is.
                self._context.drop(Refusal.SENDER_ELSEWHERE, elsewhere(view.members[index], source))
                return
            self._quorum.heard(index, now)
        if view.is_named(message.configuration_id):
            if index is not None:
                self._recovery.heard(view.members[index].incarnation)
                self._handle_current(stage, message, index, now)
            elif isinstance(message, wire.DecidedChain) and self._catch_up.expected(now):
                self._on_chain(message, now)
            else:
                self._context.drop("a message whose sender is not in the view")
        elif message.epoch < view.epoch:
            self._handle_stale(source, message, index, now)
        elif message.epoch > view.epoch:
            self._handle_newer(source, message, index, now)
        elif not isinstance(message, wire.JoinObserved | wire.JoinDenied | wire.ObserversAssigned):
            self._context.drop("a message from another history of this cluster")

    def _handle_stale(
        self, source: Address, message: wire.MemberMessage, index: int | None, now: float
    ) -> None:
        match message:
            case wire.CatchUpRequest() | wire.PullCut():
                self._catch_up.on_request(message, source)
                return
            case wire.Probe() if index is not None:
                self._acknowledge(message, self._context.view.members[index].address)
            case wire.ProbeAcknowledged() if index is not None:
                self._on_sign_of_life(message, index, now)
            case (
                wire.ObserversAssigned() | wire.JoinObserved() | wire.JoinDenied() | wire.FullConfiguration()
            ):
                return  # late answers to the joiner this process was
            case _:
                pass
        self._catch_up.help(message, source, now)

    def _handle_newer(
        self, source: Address, message: wire.MemberMessage, index: int | None, now: float
    ) -> None:
        match message:
            case wire.FullConfiguration():
                if index is not None or self._catch_up.expected(now):
                    self._on_later_configuration(message, now)
                return
            case wire.ObserversAssigned() | wire.JoinObserved() | wire.JoinDenied():
                return
            case wire.Probe():
                self._acknowledge(message, source)
            case wire.ProbeAcknowledged() if index is not None:
                self._on_sign_of_life(message, index, now)
            case _:
                pass
        self._catch_up.note_newer(source, message, now)

    def _handle_current(self, stage: Stage, message: wire.MemberMessage, index: int, now: float) -> None:
        """A message of the present configuration, from a member of it."""
        sender = self._context.view.members[index]
        match message:
            case wire.DecidedChain():
                self._on_chain(message, now)
            case (
                wire.IndirectProbe()
                | wire.IndirectAnswer()
                | wire.StreamProbe()
                | wire.StreamProbeAcknowledged()
            ):
                self._monitor.indirect.on_message(message, sender, now)
            case wire.LeaveRequest():
                if not stage.reporter.report_leave(index, now):
                    self._context.drop("a leave that asks somebody else's observer")
            case wire.UpdateRequest():
                self._requests.on_update(message, sender, stage.reporter, now)
            case wire.EvictRequest():
                self._requests.on_evict(message, stage.reporter, now)
            case wire.RecoveryRequest():
                self._on_recovery_request(message, sender, now)
            case wire.RecoveryAnswer():
                self._recovery.on_answer(message, sender.name)
                self._tick_recovery(now)
            case _:
                stage.handle(message, index, now)
                if isinstance(message, wire.Decided):
                    self._ask_for_more(stage, message, sender, now)
                self._conclude(stage, now)

    def _on_recovery_request(self, message: wire.RecoveryRequest, sender: Member, now: float) -> None:
        refusal = self._recovery.on_request(message, sender.name, quorum_lost=self._quorum.lost, now=now)
        answer = wire.RecoveryAnswer(*self._context.header, message.recovery, refusal)
        self._context.send(sender.address, answer)

    def _ask_for_more(self, stage: Stage, message: wire.Decided, sender: Member, now: float) -> None:
        if stage.decision is None or message.latest_epoch > message.epoch + 1:
            self._catch_up.ask(sender.address, now)

    # Probes.

    def _acknowledge(self, probe: wire.Probe, address: Address) -> None:
        assert self._stage is not None
        digest = self._stage.gossip.digest() or None
        answer = wire.ProbeAcknowledged(*self._context.short_header, probe.sequence, digest)
        self._context.send(address, answer)

    def _on_sign_of_life(self, message: wire.ProbeAcknowledged, index: int, now: float) -> None:
        incarnation = self._context.view.members[index].incarnation
        self._monitor.on_acknowledgement(incarnation, message.sequence, now)
        self._admission.on_sign_of_life(incarnation)

    def _on_not_member(self, stage: Stage, source: Address, message: wire.NotMember, now: float) -> None:
        if not self._context.view.is_named(message.configuration_id):
            return
        self._admission.on_not_member(source, message.incarnation, stage.reporter, now)
        without_view = self._monitor.on_not_member(source, message, now)
        if without_view is not None:
            self._admission.push(without_view, now)

    # Leaving and being removed.

    def _on_evicted_notice(self, source: Address, message: wire.EvictedNotice, now: float) -> None:
        view = self._context.view
        if not self.me.incarnation.startswith(message.incarnation) or message.epoch <= view.epoch:
            self._context.drop("an eviction notice for somebody else or an old one")
        elif view.index_of_address(source) is None and not self._catch_up.expected(now):
            self._context.drop("an eviction notice from a stranger")
        elif not continues(message.lineage, view.lineage):
            self._context.drop("an eviction notice from another recovery of this cluster")
        else:
            self._depart(message.epoch, by_operator=message.by_operator)

    def _depart(self, epoch: int, *, by_operator: bool = False) -> None:
        if self._leaver is not None:
            self._leaver.on_confirmed()
            self._check_left()
        else:
            self.status = Status.EVICTED
            self._context.publish(Evicted(epoch, by_operator))

    def _check_left(self) -> None:
        if self._leaver is not None and self._leaver.phase is Phase.DONE:
            self.status = Status.LEFT

    # Installing views.

    def _on_first_configuration(self, message: wire.FullConfiguration, now: float) -> None:
        configuration = self._decode(message)
        if configuration is None:
            return
        if self.me not in configuration:
            self._context.drop("a configuration without this process")
        elif self._joiner.cluster_id not in (None, configuration.cluster_id):
            self._context.drop("a configuration of another cluster")
        else:
            self._install(configuration, None, now)

    def _on_later_configuration(self, message: wire.FullConfiguration, now: float) -> None:
        configuration = self._decode(message)
        if configuration is None or configuration.epoch <= self._context.view.epoch:
            return
        if configuration.cluster_id != self._context.view.cluster_id:
            self._context.drop("a configuration of another cluster")
        elif not continues(configuration.lineage, self._context.view.lineage):
            self._context.drop("a configuration from another recovery of this cluster")
        elif self.me not in configuration:
            self._depart(configuration.epoch)
        else:
            self._catch_up.forget_decisions()
            self._install(configuration, None, now)

    def _decode(self, message: wire.FullConfiguration) -> Configuration | None:
        try:
            return self._context.cache.decode(
                message.body, message.configuration_id, self._context.settings.rings
            )
        except ConfigurationError as error:
            self._context.drop(Refusal.CONFIGURATION_UNREADABLE, str(error))
            return None

    def _on_chain(self, message: wire.DecidedChain, now: float) -> None:
        for epoch, cut in enumerate(message.cuts, start=message.epoch):
            # Messages kept for later are handled between the steps and may have taken some of them already.
            stage = self._stage
            if stage is not None and self._context.view.epoch == epoch and not self._apply(stage, cut, now):
                return

    def _conclude(self, stage: Stage, now: float) -> None:
        """If the decision is known: tell some others, or everybody after a classic round, and install it."""
        cut = stage.decision
        if cut is None or stage is not self._stage:
            return
        view = self._context.view
        decided = wire.Decided(*self._context.header, cut.hash, view.epoch + 1)
        if stage.change.decided_by_classic:
            told = [member for member in view.members if member != self.me]
        else:
            # Twice the fan-out: nobody gossips about a decision any more, and who misses it must ask for it.
            told = stage.gossip.random_members(
                2 * self._context.settings.gossip_fanout, stage.change.suspected
            )
        self._context.send_all([member.address for member in told], decided)
        self._apply(stage, cut, now)

    def _apply(self, stage: Stage, cut: Cut, now: float) -> bool:
        view = self._context.view
        try:
            configuration = self._context.cache.apply(view, cut)
        except ConfigurationError as error:
            self._context.drop(Refusal.CUT_UNFIT, str(error))
            return False
        if self.me not in configuration:
            if self._leaver is not None:
                self._leaver.on_decided(cut.hash, now)
                self._leaver.tick(now)
                self._check_left()
            else:
                mine = next(r for r in cut.removals if r.incarnation == self.me.incarnation)
                self._depart(configuration.epoch, by_operator=mine.evicted)
            return False
        self._catch_up.remember(view.id, view.epoch, cut)
        self._install(configuration, cut, now)
        return True

    def _install(self, configuration: Configuration, cut: Cut | None, now: float) -> None:
        previous = self._context.configuration
        self._context.install(configuration)
        stage = self._stage = Stage(self._context, self._monitor, now)
        if previous is None:
            self.status = Status.MEMBER
            self._catch_up.on_first_view(configuration.epoch)
            self._greet_at = now + self._greeting_pause()
        if cut is not None and previous is not None:
            self._context.publish(by_cut(previous, configuration, cut))
        else:
            self._context.publish(by_comparison(previous, configuration))
        self._context.count("views installed")
        self._monitor.on_view_change(now)
        self._quorum.on_view_change(now)
        self._requests.on_view_change(now)
        self._recovery.on_view_change(configuration if cut is None else None, now)
        if self._leaver is not None:
            self._leaver.on_view_change(now)
            self._check_left()
        if previous is not None:
            self._admission.on_view_change(previous, cut, stage.reporter, now)
        stage.reporter.accuse_failed(now)
        for source, message in self._catch_up.take_early():
            self._handle(source, message, now)

    # Time.

    def _tick_member(self, stage: Stage, now: float) -> None:
        if now >= self._monitor.deadline:
            self._monitor.tick(now, stage.gossip.digest())
            stage.reporter.accuse_failed(now, in_doubt=self._quorum.in_doubt(now))
        self._tick_requests(now)
        stage.tick(now)
        self._conclude(stage, now)
        self._tick_recovery(now)
        if self._leaver is not None:
            self._leaver.tick(now)
            self._check_left()
        if self._stage is not None and self.status in (Status.MEMBER, Status.LEAVING):
            self._quorum.tick(now, self._stage.change.active_since)
            self._greet(self._stage, now)

    def _tick_requests(self, now: float) -> None:
        if self._stage is not None and self.status in (Status.MEMBER, Status.LEAVING):
            self._requests.tick(now, self._stage.reporter)

    def _tick_recovery(self, now: float) -> None:
        recovered = self._recovery.take_decision()
        if recovered is not None:
            self._catch_up.forget_decisions()
            self._install(recovered, None, now)
        if self.status in (Status.MEMBER, Status.LEAVING):
            self._recovery.tick(now)

    def _greet(self, stage: Stage, now: float) -> None:
        """Anti-entropy with anybody, so that a laggard whom nobody else talks to is found."""
        if now < self._greet_at:
            return
        self._greet_at = now + self._greeting_pause()
        for member in stage.gossip.random_members(1):
            stage.gossip.greet(member)

    def _greeting_pause(self) -> float:
        settings = self._context.settings
        pause = settings.probe_interval if self._quorum.lost else settings.anti_entropy_interval
        return pause * (0.5 + self._context.rng.random())
