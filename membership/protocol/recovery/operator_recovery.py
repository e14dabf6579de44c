"""Recovery by an operator: a new chain of views from the survivors, when the majority is lost for good.

The member that the operator tells asks every survivor whether it agrees. When all do, it installs the recovered view
and hands it to the others. A survivor agrees only while it reaches no majority itself (unless the operator forces it),
stands in the very same view, and has agreed to no other recovery.
This is not consensus. No protocol can tell a lost majority from an unreachable one; the operator says so. Should the
others be alive after all, they are evicted when they meet the recovered chain.

Why two recoveries never merge: each adds an identifier of its own to the lineage, which whole views and eviction
notices carry. A member follows a lineage that continues its own, and no other.
"""

from collections.abc import Collection, Sequence
from enum import Enum

from membership.errors import RecoveryError
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import RecoveryFailed, RecoveryFinished
from membership.protocol.messages import RecoveryAnswer, RecoveryRequest
from membership.protocol.view.configuration import LINEAGE_LIMIT, Configuration

_BOUND_TIMEOUTS = 2
"""A survivor that agreed refuses other recoveries for this many leave time-outs."""


class Phase(Enum):
    """How far a recovery that this member coordinates has come."""

    IDLE = "idle"
    ASKING = "asking"
    TELLING = "telling"


class Recovery:
    """This member's part in recoveries, as coordinator and as survivor."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._identifier = b""
        self._survivors: tuple[bytes, ...] = ()
        self._waiting: dict[bytes, None] = {}
        self._forced = False
        self._ends = 0.0
        self._bound: tuple[bytes, float] | None = None
        self.phase = Phase.IDLE
        self.deadline = NEVER

    # As coordinator.

    def start(self, survivors: Sequence[str], *, force: bool, quorum_lost: bool, now: float) -> None:
        """Begin. Raises RecoveryError when it makes no sense to."""
        if self.phase is Phase.ASKING:
            raise RecoveryError("a recovery is under way already; wait for its end")
        if (
            self._bound is not None
            and self._bound[0] != self._context.me.incarnation
            and now < self._bound[1]
        ):
            raise RecoveryError(
                "this member has agreed to another recovery; wait for its end, or go on there"
            )
        incarnations = tuple(sorted({self._find(survivor) for survivor in survivors}))
        if self._context.me.incarnation not in incarnations:
            raise RecoveryError(
                f"{self._context.me.name} is not among the survivors: name it too, or ask one of them"
            )
        if not quorum_lost and not force:
            raise RecoveryError(
                "a majority of the members is within reach: evict the dead ones instead; "
                "recovering would cut off the others for good (force says that you mean it)"
            )
        if len(incarnations) == len(self._context.view):
            raise RecoveryError("all members are among the survivors: there is nothing to recover from")
        if len(self._context.view.lineage) >= LINEAGE_LIMIT:
            raise RecoveryError(f"this chain went through {LINEAGE_LIMIT} recoveries; found a new cluster")
        self._identifier = self._context.rng.randbytes(16)
        self._survivors = incarnations
        self._waiting = dict.fromkeys(incarnations)
        del self._waiting[self._context.me.incarnation]
        self._forced = force
        self._ends = now + self._context.settings.leave_timeout
        self._bind(self._context.me.incarnation, now)
        self.phase = Phase.ASKING
        self.deadline = now

    def _find(self, survivor: str) -> bytes:
        for member in self._context.view.members:
            if survivor in (member.name, str(member.address)):
                return member.incarnation
        raise RecoveryError(f"{survivor!r} is no member of the last view; choose survivors among those")

    def tick(self, now: float) -> None:
        """Ask or tell those who have not answered, or give up."""
        if now < self.deadline:
            return
        if now >= self._ends:
            self._give_up()
            return
        view = self._context.view
        for incarnation in self._waiting:
            index = view.index_of_incarnation(incarnation)
            if index is None:
                continue
            address = view.members[index].address
            if self.phase is Phase.ASKING:
                request = RecoveryRequest(
                    *self._context.header, self._identifier, self._survivors, self._forced
                )
                self._context.send(address, request)
            else:
                self._context.send(address, self._context.whole_view(), reliable=True)
        self.deadline = min(self._ends, now + self._context.settings.rpc_cap / 2)

    def _give_up(self) -> None:
        names = ", ".join(self._name(incarnation) for incarnation in self._waiting)
        if self.phase is Phase.ASKING:
            self._fail(f"{names} did not answer; name those that do, or start them")
        else:
            self._fail(f"recovered, but {names} has not come over yet; it follows as soon as it is heard")

    def _name(self, incarnation: bytes) -> str:
        index = self._context.view.index_of_incarnation(incarnation)
        return incarnation.hex()[:8] if index is None else self._context.view.members[index].name

    def _fail(self, reason: str) -> None:
        if self.phase is Phase.ASKING:
            self._bound = None
            self._release(reason)
        self._reset()
        self._context.publish(RecoveryFailed(reason))

    def _release(self, reason: str) -> None:
        """Tell those who have agreed that nothing comes of it; who misses this is free again after a while."""
        view = self._context.view
        indices = (view.index_of_incarnation(incarnation) for incarnation in self._survivors)
        others = [index for index in indices if index is not None and index != self._context.index]
        notice = RecoveryAnswer(*self._context.header, self._identifier, reason[:500])
        self._context.send_all([view.members[index].address for index in others], notice)

    def _reset(self) -> None:
        self._waiting = {}
        self.phase = Phase.IDLE
        self.deadline = NEVER

    def on_answer(self, message: RecoveryAnswer, sender: str) -> None:
        """A survivor agrees, or says why not; or the coordinator this member agreed with has given up."""
        if self._bound is not None and self._bound[0] == message.sender and message.refusal:
            self._bound = None
        if self.phase is not Phase.ASKING or message.recovery != self._identifier:
            return
        if message.refusal:
            self._fail(f"{sender} refuses: {message.refusal}")
        else:
            self._waiting.pop(message.sender, None)

    def take_decision(self) -> Configuration | None:
        """The recovered view, once, when all survivors have agreed to it."""
        if self.phase is not Phase.ASKING or self._waiting:
            return None
        return self._context.cache.recover(self._context.view, self._survivors, self._identifier)

    def on_view_change(self, recovered: Configuration | None, now: float) -> None:
        """A view is installed: the recovered one, which now goes to the others, or another one."""
        self._bound = None
        if self.phase is not Phase.ASKING:
            return
        if recovered is None or recovered.lineage[-1:] != (self._identifier,):
            self._fail("the view changed meanwhile; look at it, and ask again if it is still needed")
            return
        self.phase = Phase.TELLING
        self._waiting = dict.fromkeys(self._survivors)
        self._ends = now + self._context.settings.leave_timeout
        self.deadline = now
        self.heard(self._context.me.incarnation)

    @property
    def telling(self) -> bool:
        """Whether this member wants to hear from every survivor."""
        return self.phase is Phase.TELLING

    def heard(self, incarnation: bytes) -> None:
        """This member speaks in the present view."""
        if self.phase is not Phase.TELLING:
            return
        self._waiting.pop(incarnation, None)
        if not self._waiting:
            self._reset()
            self._context.publish(RecoveryFinished(self._context.view))

    # As survivor.

    def on_request(self, message: RecoveryRequest, sender: str, *, quorum_lost: bool, now: float) -> str:
        """A member, told by an operator, asks whether this one agrees; returns the refusal, "" to agree."""
        if not {self._context.me.incarnation, message.sender} <= set(message.survivors):
            return f"{self._context.me.name} is not among the survivors that {sender} names"
        if not quorum_lost and not message.forced:
            return "a majority of the members is within its reach"
        if self._bound is not None and self._bound[0] != message.sender and now < self._bound[1]:
            return "another recovery is under way there; wait for its end"
        self._bind(message.sender, now)
        return ""

    def _bind(self, coordinator: bytes, now: float) -> None:
        # To the coordinator, not to its try: it has given up one when it begins the next.
        self._bound = (coordinator, now + _BOUND_TIMEOUTS * self._context.settings.leave_timeout)


def continues(lineage: Collection[bytes], mine: Collection[bytes]) -> bool:
    """Whether a chain of this lineage is this member's own, or was recovered from it."""
    return tuple(lineage)[: len(mine)] == tuple(mine)
