"""The base classes of cores: what a host can read of any core, a member's or a voter's."""

from membership.protocol.context.context import Context
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member


class CoreBase:
    """Of any core."""

    _context: Context

    @property
    def me(self) -> Member:
        """This process's record: as agreed in the current view, or as it wants to join."""
        return self._context.me

    @property
    def configuration(self) -> Configuration | None:
        """The current view, None before the first."""
        return self._context.configuration

    def statistics(self) -> dict[str, int]:
        """Counters since the start, by name."""
        return dict(self._context.counters)


class MemberCoreBase(CoreBase):
    """Of a core that observes others."""

    _monitor: Monitor

    @property
    def subjects(self) -> tuple[Member, ...]:
        """The distinct members that this one observes."""
        return tuple(edge.subject for edge in self._monitor.subjects)
