"""The context that all components of one core share: identity, settings, randomness, the current view, the outbox.

Components send and publish through it. Protocol state does not belong here; each component keeps its own.
"""

import math
import random
from collections.abc import Iterable

from membership.address import Address
from membership.protocol.context.alert_signatures import AlertSignatures, Signer
from membership.protocol.context.effects import Dropped, Effects, Event, Send, StableStateToSave
from membership.protocol.context.loop_lag import LoopLag
from membership.protocol.context.refusals import Refusal, counter_of, refusal_of
from membership.protocol.context.stable_storage import StableState, StableStorage
from membership.protocol.messages import FullConfiguration, Gossip, Message
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.member import SHORT_BYTES, Member
from membership.protocol.view.removal_history import RemovalHistory
from membership.settings import Settings


class Context:
    """Shared by the components of one core. `configuration` is None until the first view is installed."""

    __slots__ = (
        "_events",
        "_reported",
        "_sends",
        "cache",
        "configuration",
        "counters",
        "header",
        "index",
        "loop_lag",
        "me",
        "removal_history",
        "rng",
        "settings",
        "short_header",
        "signatures",
        "signer",
        "storage",
    )

    def __init__(
        self,
        me: Member,
        settings: Settings,
        rng: random.Random,
        cache: ConfigurationCache,
        signer: Signer | None = None,
        *,
        stable: StableState | None = None,
        has_disk: bool = False,
    ) -> None:
        self.me = me
        self.signer = signer
        self.storage = StableStorage(stable or StableState(), self._has_to_save, has_disk=has_disk)
        self.signatures: AlertSignatures | None = None
        self.removal_history = RemovalHistory(settings)
        self.settings = settings
        self.rng = rng
        self.cache = cache
        self.configuration: Configuration | None = None
        self.index = -1
        self.loop_lag = LoopLag()
        self.header: tuple[bytes, int, bytes] = (me.incarnation, 0, bytes(16))
        self.short_header: tuple[bytes, int, bytes] = (me.incarnation[:SHORT_BYTES], 0, bytes(SHORT_BYTES))
        self.counters: dict[str, int] = {}
        self._reported: set[Refusal] = set()
        self._sends: list[Send] = []
        self._events: list[Event] = []

    @property
    def view(self) -> Configuration:
        """The current view; only for components that run while there is one."""
        assert self.configuration is not None
        return self.configuration

    def install(self, configuration: Configuration) -> None:
        """Make this the current view. This member must be in it."""
        index = configuration.index_of_incarnation(self.me.incarnation)
        assert index is not None
        self.configuration = configuration
        self.index = index
        self.me = configuration.members[index]  # with the metadata agreed in this view
        self.set_header(configuration)
        if self.signer is not None:
            payload = self.settings.datagram_payload
            self.signatures = AlertSignatures(configuration, index, self.signer, payload)

    def set_header(self, configuration: Configuration) -> None:
        """Head all further messages with this configuration."""
        self.header = (self.me.incarnation, configuration.epoch, configuration.id)
        self.short_header = (self.me.incarnation[:SHORT_BYTES], configuration.epoch, configuration.short_id)

    def whole_view(self) -> FullConfiguration:
        """The current view and the history of removals, for a process that has seen no decision before it."""
        return FullConfiguration(*self.header, self.view.encoded(), self.removal_history.everything())

    def send(self, destination: Address, message: Message, *, reliable: bool = False) -> None:
        """Send to one address."""
        if self.signatures is not None and isinstance(message, Gossip) and message.alerts:
            for part in self.signatures.with_proofs(message, news=False, whole=reliable):
                self._sends.append(Send((destination,), part, reliable))
        else:
            self._sends.append(Send((destination,), message, reliable))

    def send_all(self, destinations: Iterable[Address], message: Message) -> None:
        """Send one datagram to each address."""
        addresses = tuple(destinations)
        if addresses and self.signatures is not None and isinstance(message, Gossip) and message.alerts:
            for part in self.signatures.with_proofs(message, news=True):
                self._sends.append(Send(addresses, part))
        elif addresses:
            self._sends.append(Send(addresses, message))

    def _has_to_save(self, state: StableState) -> None:
        self.publish(StableStateToSave(state))

    def publish(self, event: Event) -> None:
        """Tell the host of the core."""
        self._events.append(event)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of `Core.statistics`."""
        self.counters[name] = self.counters.get(name, 0) + amount

    def drop(self, reason: str, detail: str = "") -> None:
        """Count a refused message, and report the first of its kind.

        `reason`: the sentence of a Refusal. What depends on the message goes into `detail`, so that nobody can
        make this member count under ever new names.
        """
        refusal = refusal_of(reason)
        self.count(counter_of(refusal))
        if refusal not in self._reported:
            self._reported.add(refusal)
            self.publish(Dropped(f"{reason}: {detail}" if detail else reason))

    def take_effects(self, wake_at: float) -> Effects:
        """Everything asked for since the last call."""
        if not self._sends and not self._events:
            return Effects((), (), wake_at)
        effects = Effects(tuple(self._sends), tuple(self._events), wake_at)
        self._sends.clear()
        self._events.clear()
        return effects


NEVER = math.inf
"""A deadline that never comes."""
