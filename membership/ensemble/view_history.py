"""The views one voter remembers: the present one, and the last cuts that led to it, for whoever is behind."""

from collections import OrderedDict

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.dissemination.catch_up import send_steps
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut

_PEERS_KEPT = 8192


class ViewHistory:
    """The last decisions, in order."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._cuts: OrderedDict[bytes, Cut] = OrderedDict()
        self._helped: OrderedDict[bytes, float] = OrderedDict()
        self._asked_at = -NEVER

    def remember(self, configuration: Configuration, cut: Cut) -> None:
        """This cut was decided in this configuration."""
        self._cuts[configuration.id] = cut
        while len(self._cuts) > self._context.settings.decisions_kept:
            self._cuts.popitem(last=False)

    def forget(self) -> None:
        """A whole configuration was taken over: the steps kept do not lead to it."""
        self._cuts.clear()

    def was_evicted(self, incarnation: bytes) -> bool:
        """Whether an operator had this member removed, as far as the steps kept tell."""
        return any(
            removal.evicted and removal.incarnation == incarnation
            for cut in self._cuts.values()
            for removal in cut.removals
        )

    def may_help(self, incarnation: bytes, now: float) -> bool:
        """Whether this peer was not helped a moment ago. Call it when about to help."""
        if now - self._helped.get(incarnation, -NEVER) < self._context.settings.catch_up_interval:
            return False
        self._helped[incarnation] = now
        self._helped.move_to_end(incarnation)
        if len(self._helped) > _PEERS_KEPT:
            self._helped.popitem(last=False)
        return True

    def may_ask(self, now: float) -> bool:
        """Whether another voter was not asked for later views a moment ago. Call it when about to ask."""
        if now - self._asked_at < self._context.settings.catch_up_interval:
            return False
        self._asked_at = now
        return True

    def send_steps(self, address: Address, epoch: int, configuration_id: bytes) -> None:
        """Send what was decided since this configuration: step by step where that is known and not long."""
        chain: list[Cut] = []
        for identifier, cut in self._cuts.items():
            if chain or identifier.startswith(configuration_id):
                if not chain:
                    configuration_id = identifier
                chain.append(cut)
        send_steps(self._context, address, epoch, configuration_id, chain)

    def send_view(self, address: Address) -> None:
        """Send the whole present view."""
        self._context.count("configurations sent")
        whole = self._context.whole_view()
        self._context.send(address, whole, reliable=True)
