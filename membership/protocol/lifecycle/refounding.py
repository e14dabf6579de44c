"""Refounding: the first view of several is accepted by its members before it is in force.

The founder, alone in its view so far, proposes the first view of several, at a cold start or after a power cut. Its
members write it down durably, beside the last view they were in, and say so. When they and the founder, which writes it
down last, are enough to go on from the last view, or at a cold start a majority of the seeds and of the new view, it is
in force; only then does anybody install it, show it, or vote in it. A process that has accepted one and no longer hears
of its founder starts again, as another incarnation. The founder is chosen in founder_election, which also says why
there is never a second cluster.

It is Paxos with the proposed views for values: to accept one is to write it down, and whoever accepts says what else it
has accepted. So does whoever votes for the next view of a cluster: the founder has to know of these votes, too, and is
sent the views like those that other founders proposed. (One disk lost in between is not enough for two clusters: of two
majorities that have half of what they knew, there is a process with an intact disk in both, for either order.) Who has
accepted a founder's view installs no earlier one any more. An accepted view is forgotten where a view is installed. One
that a founder proposed is also where that founder has come back with its disk and has not written it down, as it was
the last that would have; never one that was voted for, for then others decide.
Source: L. Lamport, *The Part-Time Parliament* (1998), and joint quorums as when an electorate changes.
"""

from membership.address import Address
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.refusals import Refusal
from membership.protocol.lifecycle.founder_election import FounderElection, founder_of
from membership.protocol.lifecycle.joiner import Joiner
from membership.protocol.messages import (
    ACCEPTED_LIMIT,
    ColdStart,
    FullConfiguration,
    MemberMessage,
    Probe,
)
from membership.protocol.view.configuration import Configuration, ConfigurationError
from membership.protocol.view.cut import Cut
from membership.protocol.view.member import Member


class Refounding:
    """One process's part in the first view of several, as its founder or as another one in it."""

    def __init__(self, context: Context, election: FounderElection, joiner: Joiner) -> None:
        self._context = context
        self._election = election
        self._joiner = joiner
        self._offered: dict[bytes, float] = {}
        self._saving: tuple[Configuration, ...] = ()
        self._awaited: Configuration | None = None
        self.cut = Cut()
        """What leads to the proposed view from that of the founder alone."""
        self.in_force = False
        """The proposed view is on enough disks, and so is to be installed."""
        self.deadline = NEVER
        """When a founder gives its founding up."""

    # The founder.

    def begin(self, now: float) -> None:
        """This process founds the cluster. While it is alone it goes on asking."""
        if not self._election.recovery and not self._election.suffices(()):
            self.deadline = now + self._context.settings.quorum_timeout

    def propose(self, joiners: list[Member], asking: Member, now: float) -> None:
        """These are enough; one of them asks to be let in. Send it the view, and the first time all of them."""
        election = self._election
        if election.proposed is None:
            self.cut = Cut.of(joiners)
            election.proposed = self._context.cache.apply(self._context.view, self.cut)
            self.deadline = now + self._context.settings.quorum_timeout
            self._context.count("views proposed")
        elif asking in election.proposed and not election.has_accepted(asking):
            joiners = [asking]
        else:
            self._context.defer(asking, "the first view is being written down by those in it")
            return
        for joiner in joiners:
            self._offer(joiner, election.proposed, now, self._context.settings.rpc_retransmit)

    def _offer(self, destination: Member, view: Configuration, now: float, pause: float) -> None:
        """Send it the view to write down, but not again before `pause` is over."""
        key = destination.incarnation + view.id
        if now - self._offered.get(key, -NEVER) < pause:
            return
        self._offered[key] = now
        message = FullConfiguration(
            self._context.me.incarnation,
            view.epoch,
            view.id,
            view.encoded(),
            self._context.removal_history.everything(),
            True,
        )
        self._context.send(destination.address, message, reliable=True)

    def on_accepted(self, now: float) -> None:
        """Somebody may have written the proposed view down; if enough have, this process does."""
        view = self._election.proposed
        if view is None or self.in_force or self._saving:
            return
        if self._election.is_in_force:
            self.deadline = now + self._context.settings.quorum_timeout
            self._save(view, self._election.accepted)

    def takes(self, source: Address, message: MemberMessage) -> bool:
        """Whether this comes from within the proposed view: an agent of an earlier version installs it at once."""
        view = self._election.proposed
        if view is None or self.in_force or not view.is_named(message.configuration_id):
            return False
        index = view.index_of_sender(message.sender)
        if index is not None and source == view.addresses[index]:
            self._election.note_acceptance(source)
        return True

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of those on whom the founder counts in vain: of itself, if only its own disk is late."""
        view = self._election.proposed or self._election.latest or self._context.view
        me = self._context.me.name
        here = {me, *(member.name for member in self._election.acceptors())}
        return tuple(sorted(member.name for member in view.members if member.name not in here)) or (me,)

    def tell(self) -> None:
        """The proposed view is installed: those who have written it down need no more than a word from within it."""
        self.deadline = NEVER
        told = [member.address for member in self._election.acceptors()]
        self._context.send_all(told, Probe(*self._context.short_header, 0, None))

    # The others.

    def on_proposed(self, message: FullConfiguration, now: float) -> None:
        """A view to write down: from the founder that this process follows, or, so that this process founds on it,
        from one that follows it."""
        election = self._election
        try:
            view = self._context.cache.decode(
                message.body, message.configuration_id, self._context.settings.rings
            )
        except ConfigurationError as error:
            self._context.drop(Refusal.CONFIGURATION_UNREADABLE, str(error))
            return
        is_told = election.followed is None and election.is_promised(message.sender)
        if is_told and election.has_outlived(view):
            election.past.add(view.id)
        elif self._joiner.cluster_id not in (None, view.cluster_id):
            self._context.drop("a configuration of another cluster")
        elif any(known.id == view.id for known in election.accepted):
            election.ask_followed()
        elif election.follows(message.sender):
            if self._context.me in view and not election.is_bound:
                self._context.removal_history.learn(message.faulty, now)
                self._save(view, election.still_accepted(view))
        elif is_told:
            self._save(view, election.accepted)

    def share(self, message: ColdStart, now: float) -> None:
        """Send the founder that this process follows what it must know of to count on it."""
        for view in self._election.uncovered(message):
            self._offer(message.sender, view, now, self._context.settings.join_attempt_timeout)

    def awaited(self, source: Address, message: MemberMessage) -> Configuration | None:
        """The proposed view, if this comes from within it: it is in force."""
        view = self._awaited
        if view is None or not view.is_named(message.configuration_id):
            return None
        index = view.index_of_sender(message.sender)
        return view if index is not None and source == view.addresses[index] else None

    # Both.

    def _save(self, view: Configuration, accepted: tuple[Configuration, ...]) -> None:
        """Have this view written down beside these."""
        if self._saving or len(accepted) >= ACCEPTED_LIMIT:
            return
        self._saving = (*accepted, view)
        self._context.storage.accept(self._saving)
        self.on_saved()

    def on_saved(self) -> None:
        """Something has become durable."""
        views = self._saving
        if not views or views != self._context.storage.durable.accepted:
            return
        self._saving = ()
        election, view = self._election, views[-1]
        election.accepted = views
        if view is election.proposed:
            self.in_force = True
            return
        founder = founder_of(view)
        if self._context.me in view and founder is not None:
            election.bind(founder)
            self._awaited = view
        election.ask_followed()
