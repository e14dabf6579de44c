"""The membership core: one sans-I/O object per process.

It makes the components and joins them, takes messages, time and commands, and returns what is to be done as `Effects`.
It has no clock, socket or task. Probes and their answers, nearly all of the traffic, take a short path here; all other
messages go through `dispatch`.
Source: Rapid; the components cite their sections.
"""

import random
from collections.abc import Mapping, Sequence

from membership.address import Address
from membership.errors import EdgeError, RecoveryError
from membership.protocol import messages
from membership.protocol.context.alert_signatures import Signer
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import Effects
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core.base import MemberCoreBase
from membership.protocol.core.components import Components
from membership.protocol.core.dispatch import Dispatcher
from membership.protocol.core.status import FINISHED, Status
from membership.protocol.core.suspicions import Suspicions, suspicions_of
from membership.protocol.core.view_instance import ViewInstance
from membership.protocol.dissemination.anti_entropy import AntiEntropy
from membership.protocol.dissemination.broadcaster import Broadcaster, epidemic
from membership.protocol.dissemination.catch_up import CatchUp
from membership.protocol.lifecycle.admission import Admission
from membership.protocol.lifecycle.change_requests import ChangeRequests, member_to_evict
from membership.protocol.lifecycle.founder_election import FounderElection
from membership.protocol.lifecycle.joiner import Joiner
from membership.protocol.lifecycle.refounding import Refounding
from membership.protocol.monitoring.edge_detector import DetectorFactory
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.monitoring.simulation_fast_forward import FastForwardEdge
from membership.protocol.recovery.operator_recovery import Recovery
from membership.protocol.recovery.permanent_quorum_loss import PermanentQuorumLoss
from membership.protocol.recovery.quorum_watch import QuorumWatch
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import Member, check_member
from membership.settings import Settings

__all__ = ["Core", "Status"]

_ROUTINE = (messages.Probe, messages.ProbeAcknowledged)


class Core(MemberCoreBase):
    """One process of the cluster.

    `seeds`: whom to ask for admission. `found`: start a new cluster instead; then `expect` processes, this one
    included, must have met before the first joiners are admitted, all in one view change. Without `found` and
    with `expect` above 1, processes that name each other agree on who founds (see founder_election). `cluster_id`:
    16 bytes; given to a joiner it refuses other clusters. `stable`: what an earlier process of this name has left
    on its disk: if a majority of the last view there has been started again too, they go on from it in a new view
    (see founder_election). `is_copy`: there may have been later views: the disk was put back from a copy, or others
    recovered without this process. `has_disk`: what is to be saved is durable when `saved` says so; otherwise memory
    is all there is. `is_new`: the process has just started; else it comes back from a view that goes on without it.
    `cache`: shared by the cores of one process.
    `detectors`: the kind of edge detector, by default windowed. `broadcaster`: how news spreads, by default gossip.
    `signer`: signs this member's reports; then all members must sign, and what is not signed by its observer does
    not count.

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
        stable: StableState | None = None,
        is_copy: bool = False,
        has_disk: bool = False,
        is_new: bool = False,
        cache: ConfigurationCache | None = None,
        detectors: DetectorFactory | None = None,
        signer: Signer | None = None,
        broadcaster: Broadcaster | None = None,
    ) -> None:
        check_member(me)
        context = self._context = Context(
            me,
            settings,
            rng,
            cache or ConfigurationCache(),
            signer,
            stable=None if found else stable,
            has_disk=has_disk,
        )
        self._joiner = Joiner(context, (), cluster_id, is_new=is_new)
        self._election = FounderElection(context, 1 if found else expect, is_copy=is_copy)
        self._refounding = Refounding(context, self._election, self._joiner)
        self.set_seeds(seeds)
        self._monitor = Monitor(context, detectors)
        self._admission = Admission(context, expect if found else 1)
        self._catch_up = CatchUp(context)
        self._quorum = QuorumWatch(context)
        self._requests = ChangeRequests(context)
        self._recovery = Recovery(context)
        self._anti_entropy = AntiEntropy(context, self._quorum)
        components = Components(
            context=context,
            joiner=self._joiner,
            election=self._election,
            refounding=self._refounding,
            monitor=self._monitor,
            admission=self._admission,
            catch_up=self._catch_up,
            quorum=self._quorum,
            requests=self._requests,
            recovery=self._recovery,
            quorum_loss=PermanentQuorumLoss(context),
            anti_entropy=self._anti_entropy,
            broadcaster=epidemic() if broadcaster is None else broadcaster,
        )
        self._dispatcher = Dispatcher(components, founded=found)
        self._views = self._dispatcher.views
        self._soonest = NEVER

    @property
    def _instance(self) -> ViewInstance | None:
        """The present configuration at work, None before the first and after the last."""
        views = self._views
        return None if views.status in FINISHED else views.instance

    # What the host sees.

    @property
    def status(self) -> Status:
        """Where this process stands."""
        return self._views.status

    @property
    def founded(self) -> bool:
        """Whether this process founds its cluster: it was told to, or a cold start chose it."""
        return self._dispatcher.founded

    @property
    def gathering(self) -> int:
        """How many processes must have met before this founder is in a view that is anybody's idea of the cluster.

        0 when they have met. Until then the view of the founder alone is not to be shown, nor remembered.
        """
        return self._admission.expected

    @property
    def cluster_id(self) -> bytes | None:
        """The cluster's id, None while unknown: also of one that this process founds, until it is in force."""
        view = self._context.configuration
        if view is None or self._dispatcher.awaits_cluster:
            return self._joiner.cluster_id
        return view.cluster_id

    def suspicions(self, now: float) -> Suspicions | None:
        """Who suspects whom, as far as this member knows; None before the first view. For people."""
        instance = self._instance
        if instance is None or self.status in FINISHED:
            return None
        return suspicions_of(self._context, instance, self._monitor, quorum=not self._quorum.lost, now=now)

    def fast_forward_edges(self) -> list[FastForwardEdge] | None:
        """The edges of a member at which nothing goes on but probing, else None: for simulations of long times.

        Rounds that pass in these edges (`FastForwardEdge.pass_rounds`), equally many in all edges of all members, are
        time that the cluster has lived through, with the clock of this core standing still. Nothing else would
        have changed: what is repeated (probes, digests to random members) meets equal digests and leaves no
        trace, and nothing that waits for a time-out is under way.
        """
        instance = self._instance
        if instance is None or self.status is not Status.MEMBER or self._requests.deadline != NEVER:
            return None
        if instance.deadline != NEVER or not instance.table.empty or instance.change.vote_bits:
            return None
        if self._admission.busy or self._quorum.missing:
            return None
        return self._monitor.fast_forward_edges()

    def set_seeds(self, seeds: Sequence[Address]) -> None:
        """Replace the seeds of a joiner."""
        others = tuple(dict.fromkeys(seed for seed in seeds if seed != self._context.me.address))
        self._election.set_seeds(others)
        if self._election.remembered is None:  # else the election asks the members
            self._joiner.set_seeds(others)

    # Inputs.

    def start(self, now: float) -> Effects:
        """Found the cluster, or begin to join one. Call once, first."""
        if self.founded:
            self._views.found(now)
        else:
            self._joiner.start(now)
            self._joiner.tick(now)
            self._election.start(now)
            self._election.tick(now)
            self._dispatcher.found_if_chosen(now)
        return self._effects(now)

    def receive(self, source: Address, message: messages.Message, now: float) -> Effects:
        """A message arrived from this address."""
        if isinstance(message, _ROUTINE) and self._is_routine(source, message, now):
            return self._context.take_effects(max(now, self._soonest))  # routine moves no deadline
        self._dispatcher.handle(source, message, now)
        return self._effects(now)

    def _is_routine(
        self, source: Address, message: messages.Probe | messages.ProbeAcknowledged, now: float
    ) -> bool:
        """Handle a probe or its answer among members of one view, nearly all of the traffic, on a short way."""
        views = self._views
        instance = views.instance
        if instance is None or views.status in FINISHED:
            return False
        view = self._context.view
        index = view.index_of_sender(message.sender)
        if index is None or message.configuration_id != view.short_id or source != view.addresses[index]:
            return False
        self._quorum.heard(index, now)
        if views.is_unheard_of:
            views.on_heard()
        if self._recovery.telling:
            self._recovery.heard(view.members[index].incarnation)
        if isinstance(message, messages.Probe):
            instance.acknowledge(message, view.addresses[index])
            if isinstance(message, messages.QuorumAlarm):
                self._quorum.on_alarm(index, now)
        else:
            self._dispatcher.on_sign_of_life(message, index, now)
        instance.gossip.compare(index, message.digest or messages.EMPTY_DIGEST, now)
        return True

    def saved(self, state: StableState, now: float) -> Effects:
        """This is what is on disk now, durably: what StableStateToSave asked for, or has asked for before."""
        self._dispatcher.on_saved(state, now)
        return self._effects(now)

    def tick(self, now: float) -> Effects:
        """Time has passed."""
        if self.status is Status.JOINING:
            self._joiner.tick(now)
            self._election.tick(now)
            self._dispatcher.found_if_chosen(now)
        elif (instance := self._instance) is not None:
            if now >= self._soonest:
                self._context.loop_lag.note(now - self._soonest)
            self._tick_member(instance, now)
        return self._effects(now)

    def leave(self, now: float) -> Effects:
        """Leave the cluster in order. `Left` follows within `Settings.leave_timeout`."""
        self._views.leave(now)
        return self._effects(now)

    def set_metadata(self, metadata: Mapping[str, str], now: float) -> Effects:
        """Have new metadata agreed with the view; tried until a view has them. Raises MemberError.

        Of several requests the last one counts. A process that is joining asks once it is in.
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
        instance = self._instance
        if instance is not None:
            self._monitor.on_check(subject, healthy, certain, now)
            instance.reporter.accuse_failed(now, in_doubt=self._quorum.in_doubt(now))
        return self._effects(now)

    def edge_failed(self, subject: Member, now: float) -> Effects:
        """The application reports, once and for certain, that a member this one observes has failed.

        The report stands for `Settings.report_lifetime`, over view changes too, whatever the probes say. It is one
        observer's: the subject goes only if several agree. Raises EdgeError if this member does not observe it.
        """
        instance = self._instance
        if instance is None:
            raise EdgeError("this process is no member at present, so it observes nobody")
        self._monitor.report_failed(subject, now)
        instance.reporter.accuse_failed(now)
        return self._effects(now)

    def recover(self, survivors: Sequence[str], now: float, *, force: bool = False) -> Effects:
        """For an operator: the majority is lost for good, begin a new chain from these names or addresses.

        A process that waits for others after a power cut founds the cluster anew at once, with those named.

        RecoveryFinished or RecoveryFailed follows within twice `Settings.leave_timeout`. Raises RecoveryError,
        among others when a majority is within reach and `force` is not given.
        """
        if self.status is Status.JOINING:
            self._election.recover(survivors)
            self._dispatcher.found_if_chosen(now)
            return self._effects(now)
        if self.status is not Status.MEMBER:
            raise RecoveryError("this process is not a member: ask one that is")
        self._recovery.start(survivors, force=force, quorum_lost=self._quorum.lost, now=now)
        self._views.tick_recovery(now)
        return self._effects(now)

    def _effects(self, now: float) -> Effects:
        return self._context.take_effects(self._wake_at(now))

    def _wake_at(self, now: float) -> float:
        views = self._views
        if views.status is Status.JOINING:
            return max(now, min(self._joiner.deadline, self._election.deadline))
        instance = views.instance
        if instance is None or views.status in FINISHED:
            return NEVER
        if views.telling:
            self._soonest = views.leave_deadline
            return max(now, self._soonest)
        self._soonest = min(
            self._monitor.deadline,
            instance.deadline,
            self._quorum.deadline,
            self._admission.deadline,
            self._anti_entropy.deadline,
            NEVER if self._admission.holding else self._requests.deadline,
            self._recovery.deadline,
            self._election.deadline,
            self._refounding.deadline,
            views.leave_deadline,
        )
        return max(now, self._soonest)

    # Time.

    def _tick_member(self, instance: ViewInstance, now: float) -> None:
        if self._views.telling:
            self._views.tick_leave(now)  # its view is over, and the next one goes on without it
            return
        if now >= self._election.deadline:
            if self._admission.holding:
                self._election.tick(now)
            else:
                self._election.stop()
        if now >= self._monitor.deadline:
            self._monitor.tick(now, instance.gossip.digest())
            instance.reporter.accuse_failed(now, in_doubt=self._quorum.in_doubt(now))
        self._tick_requests(now)
        self._admission.tick(instance.reporter, now)
        instance.tick(now)
        self._views.conclude(instance, now)
        self._views.tick_recovery(now)
        self._views.tick_leave(now)
        next_instance = self._instance
        if next_instance is not None:
            self._quorum.tick(now, next_instance.change.active_since, idle=self._monitor.idle)
            self._anti_entropy.tick(next_instance.gossip, now)
            self._dispatcher.tick_refounding(now)

    def _tick_requests(self, now: float) -> None:
        instance = self._instance
        # Not in the view of a founder alone: it would decide that by itself, and remember it as one that was in force.
        if instance is not None and not self._admission.holding:
            self._requests.tick(now, instance.reporter)
