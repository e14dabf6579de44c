"""Requests to observers: a member's new metadata, and evictions that an operator asks for.

Both sides are here. A member asks again and again until a view grants it or, for an eviction, until its time is up.
Observers check who may ask for what: a member for its own metadata only, but any member for anybody's eviction, since
an operator who can reach one member is trusted with the whole cluster.

A member asks for one record per configuration and keeps to it until the next: reports are irrevocable, and two records
under way at once would split the votes.
"""

from collections.abc import Callable

import msgspec

from membership.errors import EvictionError
from membership.protocol.context.context import NEVER, Context
from membership.protocol.cut_detection.reporter import Reporter
from membership.protocol.messages import EvictRequest, MemberMessage, UpdateRequest
from membership.protocol.view.member import Member, is_valid

_BACK_OFF = 1.5


def member_to_evict(context: Context, name: str) -> Member:
    """The member of the current view with this name. Raises EvictionError if there is none, or if it is this one."""
    member = None if context.configuration is None else context.configuration.member(name)
    if member is None:
        raise EvictionError(f"no member {name!r} to evict; the view lists the names")
    if member == context.me:
        raise EvictionError(f"{name!r} is this process itself: let it leave")
    return member


class ChangeRequests:
    """This member's requests to observers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._wanted: tuple[tuple[str, str], ...] | None = None
        self._asked: Member | None = None
        self._evictions: dict[bytes, float] = {}
        self._pause = context.settings.rpc_retransmit
        self.deadline = NEVER

    def set_metadata(self, metadata: tuple[tuple[str, str], ...], now: float) -> None:
        """Have these agreed as this member's metadata. Later ones take the place of earlier ones."""
        self._wanted = metadata
        self._again(now)

    def evict(self, incarnation: bytes, now: float) -> None:
        """Have this member removed, if that can be agreed within `Settings.leave_timeout`."""
        self._evictions[incarnation] = now + self._context.settings.leave_timeout
        self._again(now)

    def _again(self, now: float) -> None:
        self._pause = self._context.settings.rpc_retransmit
        self.deadline = now

    def on_view_change(self, now: float) -> None:
        """See what the new view grants, and ask its observers for the rest."""
        self._asked = None
        if self._wanted == self._context.me.metadata:
            self._wanted = None
        view = self._context.view
        self._evictions = {
            incarnation: ends
            for incarnation, ends in self._evictions.items()
            if view.index_of_incarnation(incarnation) is not None
        }
        if self._wanted is not None or self._evictions:
            self._again(now)
        else:
            self.deadline = NEVER

    def tick(self, now: float, reporter: Reporter) -> None:
        """Ask, and ask again."""
        if now < self.deadline:
            return
        self._evictions = {key: ends for key, ends in self._evictions.items() if ends > now}
        if self._wanted is not None or self._asked is not None:
            self._ask_for_metadata(reporter, now)
        for incarnation in self._evictions:
            self._ask_for_eviction(incarnation, reporter, now)
        if self._wanted is None and self._asked is None and not self._evictions:
            self.deadline = NEVER
            return
        self.deadline = now + self._pause
        self._pause = min(self._pause * _BACK_OFF, self._context.settings.rpc_cap)

    def _ask_for_metadata(self, reporter: Reporter, now: float) -> None:
        record = self._asked
        if record is None:
            assert self._wanted is not None
            if self._wanted == self._context.me.metadata:
                self._wanted = None
                return
            record = self._asked = msgspec.structs.replace(self._context.me, metadata=self._wanted)
        self._ask(
            self._context.me,
            UpdateRequest(*self._context.header, record),
            lambda: reporter.report_join(record, now),
        )

    def _ask_for_eviction(self, incarnation: bytes, reporter: Reporter, now: float) -> None:
        index = self._context.view.index_of_incarnation(incarnation)
        assert index is not None
        self._ask(
            self._context.view.members[index],
            EvictRequest(*self._context.header, incarnation),
            lambda: reporter.report_eviction(index, now),
        )

    def _ask(self, subject: Member, request: MemberMessage, report: Callable[[], bool]) -> None:
        view = self._context.view
        observers = [index for index, _ in view.observer_masks(subject)]
        if self._context.index in observers:
            report()
        others = [view.members[index].address for index in observers if index != self._context.index]
        self._context.send_all(others, request)

    # The observers' side.

    def on_update(self, message: UpdateRequest, sender: Member, reporter: Reporter, now: float) -> None:
        """A member asks this one to report its new metadata."""
        record = message.member
        expected = (sender.incarnation, sender.name, sender.address)
        if (record.incarnation, record.name, record.address) != expected or not is_valid(record):
            self._context.drop("new metadata for somebody else, or beyond their bound")
        elif record != sender and not reporter.report_join(record, now):
            self._context.drop("new metadata that ask somebody else's observer")

    def on_evict(self, message: EvictRequest, reporter: Reporter, now: float) -> None:
        """A member asks this one to report that another one must go."""
        index = self._context.view.index_of_incarnation(message.subject)
        if index is None or not reporter.report_eviction(index, now):
            self._context.drop("an eviction that asks somebody else's observer")
