"""Joining, the joiner's side: two phases, repeated until a view admits this process.

Phase 1 asks any seed who the temporary observers are. Phase 2 asks each of them once. Then the joiner waits for the
view, and asks on. Seeds are tried for ever, with jittered back-off.
Source: Rapid, section 4.1 (joins).
"""

from collections.abc import Sequence

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import JoinRefused, JoinWaiting
from membership.protocol.messages import (
    JoinDeferred,
    JoinDenied,
    JoinObserved,
    JoinRequest,
    ObserveJoin,
    ObserversAssigned,
)

_BACK_OFF = 1.5
_QUICK_TRIES = 5
"""Repetitions without back-off, against lost datagrams; back-off is for a cluster that is not there."""


class Joiner:
    """Asks until a configuration with this process in it arrives."""

    def __init__(
        self, context: Context, seeds: Sequence[Address], cluster_id: bytes | None, *, is_new: bool = False
    ) -> None:
        """`is_new`: this process has just started; else it comes back from a view that goes on without it."""
        self._context = context
        self._is_new = is_new
        self._seeds: tuple[Address, ...] = ()
        self._founder: Address | None = None
        self.cluster_id = cluster_id
        self._cluster_is_given = cluster_id is not None
        self._attempt = 0
        self._asked = 0
        """Seeds asked since the last pause."""
        self._pause = context.settings.rpc_retransmit
        self._tries = 0
        self._assignment: ObserversAssigned | None = None
        self._silent: dict[Address, None] = {}
        self._heard: dict[Address, None] = {}
        self._phase_ends = NEVER
        self._next_pull = 0.0
        self._refusals = 0
        self._refused_at = -NEVER
        self.given_up = False
        """Whether this process was refused so often that it asks no more."""
        self.deadline = NEVER
        self.set_seeds(seeds)

    def set_seeds(self, seeds: Sequence[Address]) -> None:
        """Replace the seeds, for instance after resolving their names again."""
        own = self._context.me.address
        self._seeds = tuple(dict.fromkeys(seed for seed in seeds if seed != own))

    @property
    def seeds(self) -> tuple[Address, ...]:
        """The seeds, without this process."""
        return self._seeds

    @property
    def assigned(self) -> bool:
        """Whether a cluster answered and named observers."""
        return self._assignment is not None

    def prefer(self, founder: Address | None) -> None:
        """Ask this process as often as the seeds together: it is going to found the cluster, and waits for all."""
        self._founder = founder

    def turn_to(self, founder: Address | None, now: float) -> None:
        """Ask this process only, which founds the cluster anew, and no observers of the view that was."""
        seeds = () if founder is None else (founder,)
        if seeds != self._seeds:
            self._seeds = seeds
            self._assignment = None
            self.deadline = now

    def start(self, now: float) -> None:
        """Begin with phase 1."""
        self._attempt = self._context.rng.randrange(len(self._seeds)) if self._seeds else 0
        self.deadline = now

    def tick(self, now: float) -> None:
        """Send what is due."""
        if now < self.deadline:
            return
        if self._assignment is not None and now < self._phase_ends:
            self._ask_observers(now)
            return
        self._assignment = None
        if not self._cluster_is_given:
            self.cluster_id = None  # the one that named observers may have died with its only member
        self._asked = 0
        self._ask_seed(now, and_founder=True)

    def _ask_seed(self, now: float, *, and_founder: bool = False) -> None:
        asked = [self._seeds[self._attempt % len(self._seeds)]] if self._seeds else []
        if and_founder and self._founder is not None and self._founder not in asked:
            asked.append(self._founder)
        for address in asked:
            self._context.send(address, JoinRequest(self._context.me, self._attempt))
            self._context.count("join requests")
        self._attempt += 1
        self._asked += 1
        self.deadline = now + self._backed_off()

    def _backed_off(self) -> float:
        pause = self._pause
        self._tries += 1
        if self._tries > _QUICK_TRIES:
            self._pause = min(self._pause * _BACK_OFF, self._context.settings.rpc_cap)
        return pause * (0.75 + 0.5 * self._context.rng.random())

    def _ask_observers(self, now: float) -> None:
        assert self._assignment is not None
        where = self._assignment.epoch, self._assignment.configuration_id
        request = ObserveJoin(self._context.me, *where, self._is_new)
        if self._silent:
            self._context.send_all(self._silent, request)
        if now >= self._next_pull and self._heard:
            # The view may have been decided and its push lost: ask those who have heard, one at a time.
            address = next(iter(self._heard))
            del self._heard[address]
            self._heard[address] = None
            self._context.send(address, request)
            self._next_pull = now + self._context.settings.rpc_cap
        self.deadline = min(now + self._backed_off(), self._phase_ends)

    def on_observers(self, message: ObserversAssigned, now: float) -> None:
        """Phase 1 is answered, or a decided cut left this process out and names its new observers."""
        if message.joiner != self._context.me.incarnation:
            self._context.drop("an answer to another joiner")
            return
        if self._cluster_is_given and message.cluster_id != self.cluster_id:
            self._context.drop("an answer from another cluster")
            return
        current = self._assignment
        if current is not None and message.epoch <= current.epoch:
            return
        self.cluster_id = message.cluster_id
        settings = self._context.settings
        self._assignment = message
        self._silent = {Address(entry.host, entry.port): None for entry in message.observers}
        self._heard = {}
        self._pause = settings.rpc_retransmit
        self._tries = 0
        self._phase_ends = now + settings.join_attempt_timeout
        self._next_pull = now + settings.rpc_cap
        self._ask_observers(now)

    def on_observed(self, message: JoinObserved, source: Address) -> None:
        """An observer heard phase 2."""
        current = self._assignment
        if current is None or message.configuration_id != current.configuration_id:
            return
        if source in self._silent:
            del self._silent[source]
            self._heard[source] = None

    def on_deferred(self, message: JoinDeferred, now: float) -> None:
        """The seed cannot help yet: try the next one at once, but pause when as many were asked as there are."""
        if message.joiner not in (b"", self._context.me.incarnation):
            self._context.drop("an answer to another joiner")
            return
        self._context.publish(JoinWaiting(message.reason))
        if self._assignment is None and self._asked < len(self._seeds) and not self.given_up:
            self._ask_seed(now)

    def on_denied(self, message: JoinDenied, now: float) -> None:
        """A member refuses this process as it is; ask again in case that changes, but not for ever."""
        if message.joiner != self._context.me.incarnation:
            return
        if now - self._refused_at >= self._context.settings.rpc_cap / 2:  # several observers speak at once
            self._refused_at = now
            self._refusals += 1
        self.given_up = self._refusals >= self._context.settings.join_refusals
        self._context.publish(JoinRefused(message.reason, self.given_up))
        self._assignment = None
        if self.given_up:
            self.deadline = NEVER
            return
        self._pause = self._context.settings.rpc_cap
        self.deadline = now + self._backed_off()
