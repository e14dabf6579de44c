"""From one view to the next: what was decided, or received whole, is checked and installed.

It holds where this process stands (its status, its view at work) and everything that changes it: founding, the first
configuration, the next cut, a chain of cuts, a later configuration, a recovered one, leaving, eviction.
Source: Rapid, section 4.3, whose decision becomes the next view here. Catching up and recovery go beyond the paper.
"""

from collections.abc import Callable

from membership.address import Address
from membership.protocol import messages
from membership.protocol.context.context import NEVER
from membership.protocol.context.effects import Evicted, Left
from membership.protocol.context.refusals import Refusal
from membership.protocol.core.components import Components
from membership.protocol.core.status import Status
from membership.protocol.core.view_instance import ViewInstance
from membership.protocol.lifecycle.leave import Leaver, Phase
from membership.protocol.recovery.operator_recovery import continues
from membership.protocol.view.configuration import Configuration, ConfigurationError, Lineage
from membership.protocol.view.cut import Cut


class ViewInstaller:
    """Where one process stands. `handle` takes the messages that came too early for the views before."""

    def __init__(
        self, components: Components, handle: Callable[[Address, messages.Message, float], None]
    ) -> None:
        self._components = components
        self._context = components.context
        self._catch_up = components.catch_up
        self._handle = handle
        self.status = Status.JOINING
        self.instance: ViewInstance | None = None
        """The present configuration at work, None before the first."""
        self.leaver: Leaver | None = None
        self.is_unheard_of = False
        """This member was alone in the view before, and so decided the present one alone; nobody else may know of it.
        Until somebody does it stands on the disk as one that may have come into force."""

    # The first view.

    def found(self, now: float) -> None:
        """Install the first view of a new cluster, or one that goes on from a remembered view.

        This process is alone in it.
        """
        self._install(self._first_view(), None, now)

    def may_found(self) -> bool:
        """Whether a founder that waits for nobody has its view on its disk; if not, that begins to be written.

        It shows the view at once, and no other view may ever have that epoch.
        """
        election, storage, me = self._components.election, self._context.storage, self._context.me
        if election.latest is None or election.expect > 1:
            return True
        view = self._first_view()
        if all(known.id != view.id for known in storage.state.accepted):
            # It goes on from every earlier view in which it was alone, too.
            others = (each for each in election.accepted if len(each) > 1 or each.members[0].name != me.name)
            storage.accept((*others, view))
        return storage.has_accepted(view)

    def _first_view(self) -> Configuration:
        election = self._components.election
        remembered = election.latest
        rings = self._context.settings.rings
        if remembered is None:
            cluster_id = self._components.joiner.cluster_id or self._context.rng.randbytes(16)
            return self._context.cache.found(self._context.me, cluster_id, rings)
        return self._context.cache.restart(remembered, self._context.me, rings, election.recovery)

    def on_first_configuration(self, message: messages.FullConfiguration, now: float) -> None:
        """A joiner is sent a view: it is in."""
        configuration = self._decode(message)
        if configuration is None:
            return
        if self._context.me not in configuration:
            self._context.drop("a configuration without this process")
        elif self._components.joiner.cluster_id not in (None, configuration.cluster_id):
            self._context.drop("a configuration of another cluster")
        elif self._components.election.has_left(configuration):
            self._context.drop("a configuration from before a founding that counts on this process")
        else:
            self._context.removal_history.learn(message.faulty, now)
            self._install(configuration, None, now)

    def install_first(self, configuration: Configuration, now: float) -> None:
        """A joiner has had this view for some time; now it is in force."""
        self._install(configuration, None, now)

    # The next views.

    def conclude(self, instance: ViewInstance, now: float) -> None:
        """If the decision is known: tell some others, or everybody after a classic round, and install it."""
        cut = instance.decision
        if cut is None or instance is not self.instance or self.telling:
            return
        view = self._context.view
        decided = messages.Decided(*self._context.header, cut.hash, view.epoch + 1)
        if instance.change.decided_by_classic:
            told = [member for member in view.members if member != self._context.me]
        else:
            # Twice the fan-out: nobody gossips about a decision any more, and who misses it must ask for it.
            told = instance.gossip.random_members(
                2 * self._context.settings.gossip_fanout, instance.change.suspected
            )
        self._context.send_all([member.address for member in told], decided)
        self.apply(instance, cut, now)

    def on_chain(self, message: messages.DecidedChain, now: float) -> None:
        """The cuts that were decided since the view of this member."""
        for epoch, cut in enumerate(message.cuts, start=message.epoch):
            # Messages kept for later are handled between the steps and may have taken some of them already.
            instance = self.instance
            if (
                instance is not None
                and self._context.view.epoch == epoch
                and not self.apply(instance, cut, now)
            ):
                return

    def on_later_configuration(self, message: messages.FullConfiguration, now: float) -> None:
        """A member that is far behind is sent a whole view."""
        configuration = self._decode(message)
        if configuration is None or configuration.epoch <= self._context.view.epoch:
            return
        if configuration.cluster_id != self._context.view.cluster_id:
            self._context.drop("a configuration of another cluster")
        elif not continues(configuration.lineage, self._context.view.lineage):
            self._context.drop("a configuration from another recovery of this cluster")
        elif self._context.me not in configuration:
            self._depart(configuration.epoch, configuration.lineage)
        else:
            self._catch_up.forget_decisions()
            self._context.removal_history.learn(message.faulty, now)
            self._install(configuration, None, now)

    def on_heard(self) -> None:
        """Another member speaks in the present view."""
        if self.is_unheard_of:
            self.is_unheard_of = False
            self._context.storage.install(self._context.view)

    def tick_recovery(self, now: float) -> None:
        """Install the recovered view once all survivors have agreed to it; ask or tell who has not answered."""
        recovered = self._components.recovery.take_decision()
        if recovered is not None:
            self._catch_up.forget_decisions()
            self._install(recovered, None, now)
        if self.status in (Status.MEMBER, Status.LEAVING):
            self._components.recovery.tick(now)

    def _decode(self, message: messages.FullConfiguration) -> Configuration | None:
        try:
            return self._context.cache.decode(
                message.body, message.configuration_id, self._context.settings.rings
            )
        except ConfigurationError as error:
            self._context.drop(Refusal.CONFIGURATION_UNREADABLE, str(error))
            return None

    def apply(self, instance: ViewInstance, cut: Cut, now: float) -> bool:
        """Take this decided step from the present view; False if it does not fit, or leads out."""
        view = self._context.view
        try:
            configuration = self._context.cache.apply(view, cut)
        except ConfigurationError as error:
            self._context.drop(Refusal.CUT_UNFIT, str(error))
            return False
        if self._context.me not in configuration:
            if self.leaver is not None:
                self.leaver.on_decided(cut.hash, now)
                self.tick_leave(now)
            else:
                mine = next(r for r in cut.removals if r.incarnation == self._context.me.incarnation)
                self._depart(configuration.epoch, configuration.lineage, by_operator=mine.evicted)
            return False
        self._catch_up.remember(view.id, view.epoch, cut, now)
        self._context.removal_history.on_cut(view, cut, now)
        self._install(configuration, cut, now)
        return True

    def _install(self, configuration: Configuration, cut: Cut | None, now: float) -> None:
        components = self._components
        previous = self._context.configuration
        self._context.install(configuration)
        instance = self.instance = ViewInstance(
            self._context, components.monitor, components.broadcaster, now
        )
        if previous is None:
            self.status = Status.MEMBER
            self._catch_up.on_first_view(configuration.epoch)
            components.anti_entropy.start(now)
        self._context.publish(self._context.cache.change(previous, configuration, cut))
        decided_alone = cut is not None and previous is not None and len(previous) == 1
        self.is_unheard_of = decided_alone and len(configuration) > 1 and not components.refounding.in_force
        if not (components.admission.holding or self.is_unheard_of):
            # The view of a founder alone is to be remembered by nobody.
            self._context.storage.install(configuration)
        self._context.count("views installed")
        components.monitor.on_view_change(now)
        components.quorum.on_view_change(now)
        components.requests.on_view_change(now)
        components.recovery.on_view_change(configuration if cut is None else None, now)
        if self.leaver is not None:
            self.leaver.on_view_change(now)
            self._check_left()
        if previous is not None:
            components.admission.on_view_change(previous, cut, instance.reporter, now)
        instance.reporter.accuse_failed(now, in_doubt=components.quorum.in_doubt(now))
        for source, message in self._catch_up.take_early():
            self._handle(source, message, now)

    # The way out.

    def leave(self, now: float) -> None:
        """Leave in order; nothing if this process is leaving, or gone."""
        if self.status is Status.MEMBER:
            self.status = Status.LEAVING
            self.leaver = Leaver(self._context, now)
            self.tick_leave(now)
        elif self.status is Status.JOINING:
            self.status = Status.LEFT
            self._context.publish(Left(decided=False))  # nothing was there to decide

    @property
    def telling(self) -> bool:
        """Whether it is decided that this member leaves, and it makes sure that somebody who stays knows it."""
        return self.leaver is not None and self.leaver.phase is Phase.TELLING

    @property
    def leave_deadline(self) -> float:
        """When `tick_leave` has something to do."""
        return NEVER if self.leaver is None else self.leaver.deadline

    def tick_leave(self, now: float) -> None:
        """Repeat what a leaver has to say; notice when it is done."""
        if self.leaver is not None:
            self.leaver.tick(now)
            self._check_left()

    def refuse(self) -> None:
        """The cluster will not have this process."""
        self.status = Status.REFUSED

    def on_evicted_notice(self, source: Address, message: messages.EvictedNotice, now: float) -> None:
        """Somebody says that this process is not in the view any more."""
        view = self._context.view
        if not self._context.me.incarnation.startswith(message.incarnation) or message.epoch <= view.epoch:
            self._context.drop("an eviction notice for somebody else or an old one")
        elif view.index_of_address(source) is None and not self._catch_up.expected(now):
            self._context.drop("an eviction notice from a stranger")
        elif not continues(message.lineage, view.lineage):
            self._context.drop("an eviction notice from another recovery of this cluster")
        else:
            self._depart(message.epoch, message.lineage, by_operator=message.by_operator)

    def _depart(self, epoch: int, lineage: Lineage, *, by_operator: bool = False) -> None:
        """Others are in a view of this epoch and lineage, without this member."""
        superseded = lineage != self._context.view.lineage
        if self.leaver is not None:
            self.leaver.on_confirmed(superseded=superseded)
            self._check_left()
        else:
            self.status = Status.EVICTED
            self._context.publish(Evicted(epoch, by_operator, superseded=superseded))

    def give_up(self, restarted: tuple[str, ...], epoch: int | None = None) -> None:
        """Leave a view that can never have a majority again, because these members were started again.

        `epoch`: of a proposed view that this process waits for in vain; or of one that others have gone on to.
        """
        self.status = Status.EVICTED
        epoch = self._context.view.epoch if epoch is None else epoch
        self._context.publish(Evicted(epoch, restarted=restarted, superseded=not restarted))

    def _check_left(self) -> None:
        if self.leaver is not None and self.leaver.phase is Phase.DONE:
            self.status = Status.LEFT
