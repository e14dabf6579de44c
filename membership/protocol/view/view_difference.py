"""The difference between two views, as applications hear of it: who joined, left, failed, was evicted or replaced.

It is computed from the decided cut, or by comparing the views when a member was so far behind that it received a
whole configuration.
"""

from dataclasses import dataclass

from membership.protocol.view.configuration import Configuration
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """A new configuration is installed. `previous` is None for the first view of this process.

    `joined`: members that were not there before; `left`: left by themselves; `evicted`: removed by an operator's
    command; `failed`: found faulty by the others; `replaced`: new incarnations that took over the name or address
    of a member removed in the same cut (neither the new one is in `joined` nor the old one in `failed`);
    `updated`: members that stay, with new metadata.
    """

    configuration: Configuration
    previous: Configuration | None
    joined: tuple[Member, ...] = ()
    left: tuple[Member, ...] = ()
    failed: tuple[Member, ...] = ()
    replaced: tuple[Member, ...] = ()
    evicted: tuple[Member, ...] = ()
    updated: tuple[Member, ...] = ()


def by_cut(previous: Configuration, configuration: Configuration, cut: Cut) -> ViewChanged:
    """The change one cut makes."""
    left = {removal.incarnation for removal in cut.removals if removal.left}
    evicted = {removal.incarnation for removal in cut.removals if removal.evicted}
    return _sorted_out(configuration, previous, left, evicted)


def by_comparison(previous: Configuration | None, configuration: Configuration) -> ViewChanged:
    """The change between any two views. Nobody can tell any more who left or was evicted: all are `failed`."""
    if previous is None:
        return ViewChanged(configuration, None, joined=configuration.members)
    return _sorted_out(configuration, previous, set(), set())


def _sorted_out(
    configuration: Configuration,
    previous: Configuration,
    left: set[bytes],
    evicted: set[bytes],
) -> ViewChanged:
    # In canonical order, whichever way this member learnt of the change: all members report the same.
    came = tuple(member for member in configuration.members if member not in previous)
    gone = [member for member in previous.members if member not in configuration]
    replaced = tuple(member for member in came if previous.conflicts(member))
    successors = {member.name for member in replaced} | {str(member.address) for member in replaced}
    failed = tuple(
        member
        for member in gone
        if member.incarnation not in left
        and member.incarnation not in evicted
        and member.name not in successors
        and str(member.address) not in successors
    )
    return ViewChanged(
        configuration,
        previous,
        joined=tuple(member for member in came if member not in replaced),
        left=tuple(member for member in gone if member.incarnation in left),
        failed=failed,
        replaced=replaced,
        evicted=tuple(member for member in gone if member.incarnation in evicted),
        updated=_updated(configuration, previous),
    )


def _updated(configuration: Configuration, previous: Configuration) -> tuple[Member, ...]:
    earlier = {member.incarnation: member for member in previous.members}
    return tuple(
        member
        for member in configuration.members
        if (known := earlier.get(member.incarnation)) is not None and known.metadata != member.metadata
    )
