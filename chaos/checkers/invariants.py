"""What must hold after every event, whatever goes wrong: the promises of strongly consistent membership.

A checker that is told of each view a process installs. The checks cost a few dictionary look-ups for each
installation and nothing in between.

1. One chain: an epoch has one configuration in the whole cluster, so nothing is decided twice. An operator's recovery
   begins a branch of its own, and then the same is true of each branch.
2. Epochs only grow at a process.
3. A process installs only views that contain it.
4. A view appears first at a process that stands in the view before it, and only after a majority of that
   one has installed it: whoever did not take part in agreeing can only catch up.
5. The delta a process reports is the difference of the two views, the same at every process; but a laggard
   that got a whole view instead of the decisions can not tell who left, was evicted, or failed.
6. A branch begins with members of the view it was recovered from, in an epoch above it. Branches never merge: a process
   goes from a branch only to one that was recovered from it, and who was not among the survivors is never in the
   branch, but as a new incarnation.
7. After a loss of power (only where processes remember their last views) one process that stands nowhere goes on alone,
   in an epoch that shows it: the next of that kind after all that the chain had, or was to have by a view that did not
   come into force (`membership.protocol.lifecycle.refounding`). What remained of the view before may
   still take the step that was already voted for, and no other.
8. Who learns that it was evicted is missing from that view, and the view is of a branch that continues its own.

Whether the cluster comes together again is asked at the run's end; whether a removal was deserved is the scenario's
promise.
Source: *Stable and Consistent Membership at Scale with Rapid*, sections 3 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from consensus import classic_quorum
from membership.protocol.recovery.operator_recovery import continues
from membership.protocol.view.configuration import RESTART_STRIDE, Configuration
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged

Lineage = tuple[bytes, ...]
_Members = tuple[Member, ...]
_Delta = tuple[_Members, _Members, _Members, _Members, _Members, _Members]


class ViewInvariants:
    """Checks the views of all processes of one cluster; `fail` is called with what broke, and raises."""

    def __init__(
        self,
        fail: Callable[[str], NoReturn],
        *,
        ordered: bool = True,
        standing: Callable[[Configuration], int] = lambda _: 0,
    ) -> None:
        """`ordered`: reports come in the order in which things happened, so that rule 4 can be checked.

        `standing`: how many processes run, and have this view.
        """
        self._fail = fail
        self._standing = standing
        self._ordered = ordered
        self.chain: dict[int, Configuration] = {}
        """The view of each epoch, in the order they first appeared, before any recovery."""
        self.branches: dict[Lineage, dict[int, Configuration]] = {(): self.chain}
        """The same for each branch, by the recoveries that led to it."""
        self.latest: Configuration | None = None
        """The view of the highest epoch; of two branches, the one that got there first."""
        self._recovered_from: dict[Lineage, Configuration] = {}
        self._left_behind: dict[Lineage, frozenset[bytes]] = {(): frozenset()}
        self._before_restart: dict[Lineage, int] = {}
        """The latest epoch that each branch had before it was last started again."""
        self._accepted: dict[Lineage, int] = {}
        """The highest epoch of a view that was proposed in each branch, and that a process has written down."""
        self._current: dict[bytes, Configuration] = {}
        self._installations: dict[bytes, int] = {}
        self._deltas: dict[tuple[bytes, bytes], _Delta] = {}

    def latest_of(self, lineage: Lineage) -> Configuration:
        """The latest view of a branch."""
        return next(reversed(self.branches[lineage].values()))

    def before(self, configuration: Configuration) -> Configuration | None:
        """The view that this one followed, or was recovered from; None for the first."""
        found = self.branches[configuration.lineage].get(configuration.epoch - 1)
        return found if found is not None else self._recovered_from.get(configuration.lineage)

    def installed(self, member: Member, event: ViewChanged) -> bool:
        """Member's process reports that it installed a view; True when nobody had it before."""
        before = self._current.get(member.incarnation)
        if event.previous is not before:
            stands = "no view" if before is None else f"epoch {before.epoch}"
            self._fail(
                f"{member.name} reports epoch {event.configuration.epoch}, but not as the next of {stands}"
            )
        first = self._installed(member, before, event.configuration)
        if event.previous is not None:
            self._delta(member, event, event.previous)
        return first

    def accepted(self, configuration: Configuration) -> None:
        """A process has written down this view, which may come into force or not."""
        lineage = configuration.lineage
        self._accepted[lineage] = max(configuration.epoch, self._accepted.get(lineage, 0))

    def evicted(self, member: Member, epoch: int, unseen: Configuration | None = None) -> None:
        """Member's process was told that a view without it has been decided, the one of this epoch.

        `unseen`: the view of a founder that was still alone, which was passed over by the others.
        """
        stands = unseen or self._current.get(member.incarnation)
        if stands is None:
            self._fail(f"{member.name} was evicted from no view at all")
        if epoch <= stands.epoch:
            self._fail(
                f"{member.name} stands in epoch {stands.epoch} and was told that it is out since epoch {epoch}"
            )
        for lineage, branch in self.branches.items():
            if continues(lineage, stands.lineage) and epoch in branch and member not in branch[epoch]:
                return
        if epoch != stands.epoch + 1:  # the evicted one may be the first to know the decision
            self._fail(
                f"{member.name} stands in epoch {stands.epoch} and was told that it is out since epoch {epoch}, "
                "which no branch that continues its own has reached without it"
            )

    def _delta(self, member: Member, event: ViewChanged, previous: Configuration) -> None:
        step = (previous.id, event.configuration.id)
        delta = (
            event.joined,
            event.replaced,
            event.updated,
            event.left,
            event.evicted,
            event.failed,
        )
        known = self._deltas.get(step)
        if known is None:
            self._check_delta(member, event, previous)
            self._deltas[step] = delta
        elif known != delta and not _less_exact(known, delta):
            self._fail(
                f"{member.name} reports another delta to epoch {event.configuration.epoch} than others"
            )

    def _installed(self, member: Member, before: Configuration | None, configuration: Configuration) -> bool:
        epoch = configuration.epoch
        known = self.branches.get(configuration.lineage, {}).get(epoch)
        if configuration.index_of_incarnation(member.incarnation) is None:
            self._fail(f"{member.name} installed the view of epoch {epoch}, which does not contain it")
        if before is not None and epoch <= before.epoch:
            self._fail(f"{member.name} went from epoch {before.epoch} back to {epoch}")
        if before is not None and not continues(configuration.lineage, before.lineage):
            self._fail(
                f"{member.name} went from one recovery's branch, at epoch {before.epoch}, to another's at {epoch}"
            )
        if known is None:
            self._first(member, before, configuration)
            if self.latest is None or epoch > self.latest.epoch:
                self.latest = configuration
        elif known.id != configuration.id:
            self._fail(
                f"{member.name} installed a second view of epoch {epoch}: id {configuration.id.hex()} "
                f"of {len(configuration)} beside {known.id.hex()} of {len(known)}"
            )
        elif known is not configuration and known.members != configuration.members:
            self._fail(f"{member.name} has other members in the view of epoch {epoch} under the same id")
        self._current[member.incarnation] = configuration
        self._installations[configuration.id] = self._installations.get(configuration.id, 0) + 1
        return known is None

    def _first(self, member: Member, before: Configuration | None, configuration: Configuration) -> None:
        epoch, lineage = configuration.epoch, configuration.lineage
        branch = self.branches.get(lineage)
        if branch is None:
            self._first_recovered(member, before, configuration)
            return
        if self._ordered and branch and before is None and len(configuration) == 1:
            self._first_restarted(member, configuration)
            return
        latest = self.latest_of(lineage).epoch if branch else -1
        if self._ordered and epoch < latest and epoch > self._before_restart[lineage] + 1:
            self._fail(
                f"{member.name} installed epoch {epoch}, although the cluster was started again in {latest}"
            )
        branch[epoch] = configuration
        if epoch < latest:
            branch[latest] = branch.pop(latest)  # the latest stays the last
        returned = [
            known.name
            for known in configuration.members
            if known.incarnation in self._left_behind[lineage] and self._is_of_another(lineage, known)
        ]
        if returned:
            self._fail(f"epoch {epoch} has {returned[0]}, which was no survivor, under the same incarnation")
        if (len(branch) == 1 and not lineage) or not self._ordered:
            return  # the founder's, or reports of real processes, which overtake each other
        parent = branch.get(epoch - 1)
        if parent is None:
            self._fail(f"{member.name} installed epoch {epoch}, but nobody ever had epoch {epoch - 1}")
        if before is not parent:
            stands = "no view" if before is None else f"epoch {before.epoch}"
            self._fail(f"{member.name} was first to install epoch {epoch} while it had {stands}")
        installations = self._installations[parent.id]
        if installations < classic_quorum(len(parent)):
            self._fail(
                f"epoch {epoch} was decided when only {installations} of the {len(parent)} members of epoch "
                f"{parent.epoch} had that view"
            )

    def _first_restarted(self, member: Member, configuration: Configuration) -> None:
        """The first view after a loss of power: whoever knew better must not be passed over."""
        epoch, lineage = configuration.epoch, configuration.lineage
        latest = self.latest_of(lineage).epoch
        expected = (latest // RESTART_STRIDE + 1) * RESTART_STRIDE
        highest = (max(latest, self._accepted.get(lineage, 0)) // RESTART_STRIDE + 1) * RESTART_STRIDE
        if epoch % RESTART_STRIDE or not expected <= epoch <= highest:
            self._fail(
                f"{member.name} started the cluster again in epoch {epoch}; after epoch {latest} it is to be {expected}"
            )
        self._check_nobody_is_passed_over(member, configuration)
        self._before_restart[lineage] = latest
        self.branches[lineage][epoch] = configuration

    def _check_nobody_is_passed_over(self, member: Member, configuration: Configuration) -> None:
        latest = self.latest_of(configuration.lineage)
        standing = self._standing(latest)
        if 2 * standing > len(latest):
            self._fail(
                f"{member.name} started the cluster again in epoch {configuration.epoch}, and so there are two: "
                f"{standing} of the {len(latest)} members of epoch {latest.epoch} still stand there"
            )

    def _is_of_another(self, lineage: Lineage, member: Member) -> bool:
        # Who was admitted there but never heard of it is a joiner like any other: it has not been a member.
        stands = self._current.get(member.incarnation)
        return stands is not None and stands.lineage != lineage

    def _first_recovered(
        self, member: Member, before: Configuration | None, configuration: Configuration
    ) -> None:
        """The first view of a branch: a minority begins it, because an operator says so."""
        epoch, lineage = configuration.epoch, configuration.lineage
        alone = before is None and len(configuration) == 1 and lineage[:-1] in self.branches
        if not self._ordered or alone:
            # Or an operator has a cluster that lost its power started again by one who stands nowhere.
            self.branches[lineage] = {epoch: configuration}
            self._left_behind[lineage] = frozenset()
            return
        if before is None or before.lineage != lineage[:-1]:
            self._fail(
                f"{member.name} was first in epoch {epoch} of a recovery without a view to recover from"
            )
        survivors = {known.incarnation for known in configuration.members}
        gone = {known.incarnation for known in before.members} - survivors
        if len(survivors) + len(gone) != len(before):
            self._fail(f"epoch {epoch} of a recovery has members that epoch {before.epoch} did not have")
        self.branches[lineage] = {epoch: configuration}
        self._recovered_from[lineage] = before
        self._left_behind[lineage] = (self._left_behind[before.lineage] | gone) - survivors

    def _check_delta(self, member: Member, event: ViewChanged, previous: Configuration) -> None:
        before = {known.incarnation for known in previous.members}
        after = {known.incarnation for known in event.configuration.members}
        came = {known.incarnation for known in (*event.joined, *event.replaced)}
        replaced = {known.name for known in event.replaced} | {str(known.address) for known in event.replaced}
        gone = {known.incarnation for known in (*event.left, *event.evicted, *event.failed)} | {
            known.incarnation
            for known in previous.members
            if known.incarnation not in after and (known.name in replaced or str(known.address) in replaced)
        }
        records = {known.incarnation: known for known in previous.members}
        changed = {
            known
            for known in event.configuration.members
            if known.incarnation in records and known != records[known.incarnation]
        }
        if changed != set(event.updated):
            self._fail(f"{member.name} reports other new metadata than epoch {event.configuration.epoch} has")
        if came != after - before or gone != before - after:
            self._fail(f"{member.name} reports a delta to epoch {event.configuration.epoch} that is not one")


def _less_exact(one: _Delta, other: _Delta) -> bool:
    """Whether one of two deltas only misses who left by itself and who was evicted.

    If a new incarnation has taken the place of somebody who left, the other delta does not show the old one at all.
    """
    *came, left, evicted, failed = one
    *came_too, left_too, evicted_too, failed_too = other
    if came != came_too or ((left or evicted) and (left_too or evicted_too)):
        return False
    places = {place for member in came[1] for place in (member.name, member.address)}

    def gone(members: tuple[Member, ...]) -> set[Member]:
        return {member for member in members if member.name not in places and member.address not in places}

    return gone(left + evicted + failed) == gone(left_too + evicted_too + failed_too)
