"""From one view of the cluster to the next, at one voter.

It installs what is decided, here or by other voters, asks those for what it has missed, and has the members told. The
decision itself is in agreement; why decisions form one chain is said there, too.
Source: Rapid, section 5.
"""

from membership.address import Address
from membership.ensemble.durable_state import VoterState
from membership.ensemble.electorate import Electorate
from membership.ensemble.member_registry import MemberRegistry
from membership.ensemble.view_history import ViewHistory
from membership.ensemble.view_instance import ViewInstance
from membership.protocol import messages
from membership.protocol.context.context import Context
from membership.protocol.context.refusals import Refusal
from membership.protocol.view.configuration import Configuration, ConfigurationError
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member
from membership.protocol.view.rings import Rings
from membership.protocol.view.view_difference import ViewChanged


class ViewInstaller:
    """Installs the views. `instance` is the present one at work; None until the electorate has formed."""

    def __init__(self, context: Context, electorate: Electorate, registry: MemberRegistry) -> None:
        self._context = context
        self._electorate = electorate
        self._registry = registry
        self.history = ViewHistory(context)
        self.instance: ViewInstance | None = None

    def begin(self, record: VoterState, now: float) -> None:
        """The electorate has formed: take up the chain where the record says."""
        cluster_id = self._electorate.cluster_id
        rings = self._context.settings.rings
        if record.configuration:
            configuration = self._context.cache.decode(record.configuration, record.configuration_id, rings)
        else:
            configuration = Configuration(0, cluster_id, cluster_id, Rings.build((), rings), {})
        self._install(configuration, None, now, record)

    def admit(self, instance: ViewInstance, joiner: Member, now: float) -> None:
        """Report a joiner; into the first view with all who wait."""
        joiners = [joiner] if self._context.view.epoch > 0 else self._registry.waiting
        for each in joiners:
            instance.detection.join(each, now)

    # Catching up with other voters.

    def ask(self, address: Address, now: float) -> None:
        """Ask this voter for later views; at most once in a while."""
        if self.history.may_ask(now):
            self._context.count("catch-up requests")
            self._context.send(address, messages.CatchUpRequest(*self._context.header))

    def ask_any(self, now: float) -> None:
        """Ask one of the other voters."""
        self.ask(self._context.rng.choice(self._electorate.others()), now)

    def on_chain(self, message: messages.DecidedChain, now: float) -> None:
        """Another voter's steps from here."""
        view = self._context.view
        if message.configuration_id != view.id:
            return
        for cut in message.cuts:
            if self.instance is None or not self.instance.fits(cut):
                return
            self._take_step(cut, now)

    def on_configuration(self, message: messages.FullConfiguration, now: float) -> None:
        """Another voter's view, so much later that the steps are not told any more."""
        view = self._context.view
        if message.epoch <= view.epoch:
            return
        try:
            configuration = self._context.cache.decode(
                message.body, message.configuration_id, self._context.settings.rings
            )
        except ConfigurationError as error:
            self._context.drop(Refusal.CONFIGURATION_UNREADABLE, str(error))
            return
        if configuration.cluster_id != view.cluster_id or configuration.epoch <= view.epoch:
            self._context.drop(Refusal.CONFIGURATION_FOREIGN)
            return
        self.history.forget()
        self._context.removal_history.learn(message.faulty, now)
        self._install(configuration, None, now)

    # From reports to the next view.

    def advance(self, now: float) -> None:
        """Propose if there is a clean cut, install what is decided, and on with what waits for that."""
        while self.instance is not None:
            self.instance.tick(now)
            cut = self.instance.decision
            if cut is None:
                return
            if self.instance.agreement.decided_by_coordinating:
                chain = messages.DecidedChain(*self._context.header, (cut,))
                for address in self._electorate.others():
                    self._context.send(address, chain, reliable=True)
            self._take_step(cut, now)

    def _take_step(self, cut: Cut, now: float) -> None:
        view = self._context.view
        configuration = self._context.cache.apply(view, cut)
        self.history.remember(view, cut)
        self._context.removal_history.on_cut(view, cut, now)
        self._install(configuration, cut, now)

    def _install(
        self,
        configuration: Configuration,
        cut: Cut | None,
        now: float,
        record: VoterState | None = None,
    ) -> None:
        context, previous = self._context, self._context.configuration
        context.configuration = configuration
        context.set_header(configuration)
        context.count("views installed")
        self.instance = instance = ViewInstance(context, self._electorate, record, now)
        if cut is not None and previous is not None:
            context.publish(context.cache.change(previous, configuration, cut))
            self._registry.tell(previous, cut, self._electorate, self.history, now)
        elif previous is not None and len(previous):
            context.publish(context.cache.change(previous, configuration, None))
        else:
            context.publish(ViewChanged(configuration, previous, joined=configuration.members))
        for joiner in self._registry.on_view_change(now):
            self.admit(instance, joiner, now)
