"""The election of a founder, when none was chosen: for a cold start, and to found a cluster anew after a power cut.

At a cold start (`expect=N` and seeds, and no cluster answers) each process asks its seeds, and promises itself to the
lowest address it hears of among those that others name as seeds. A process founds the cluster when a majority of the
seeds, itself included, has promised itself to it and it has met N processes. It goes on from no view.

After a power cut, processes that remember a last view ask its members and their seeds; whoever hears of several that
remember one passes on what they ask, as their addresses may have changed. A process promises itself to nobody that
remembers less, and to the lowest address among those that remember most. It refounds the cluster, and goes on from the
view it remembers, when a majority of that view, by name, has promised itself to it, at least half of the view are among
them with what they remember, and it has met nobody that knows of a later view, if only by a copy of a disk.

The founder proposes the first view of several to those who have promised, and that is in force when so many have
accepted it: written it down durably (see refounding). Promises are no more than that: kept in memory, they only spare
proposals that come to nothing. A founder that is not heard of any more is followed no longer, and while it is alone it
goes on asking, and gives way to whoever knows of a later view, or goes on without it.

What is *accepted* is what counts. A process accepts two kinds of views, each of which may come into force without its
hearing of it: the first view of several that its founder proposes, and each next view that it votes for (see
view_change). It accepts a view before it says so, and what it says then goes with all else that it has accepted. On the
disk they stand beside the last view in force that it was in, in one record. The next view that it installs takes the
place of all of them.

Why there is never a second cluster. Take a view V in force, and any view W that comes into force after it, in V or not.
By induction all that was in force before is on one chain. W was voted for in a view, or proposed by a founder:

* Voted for: by a majority of a view on the chain, each of whom had that view on its disk, and is in it to this day: who
  has accepted a founder's view is another incarnation, or comes into no earlier view. The rule of consensus leaves one
  successor.
* Proposed: accepted by a majority of the last view that its founder remembers or, at a cold start, of the seeds; half
  of the view with what they knew, so that one of them voted for the successor, if there is one, or accepted what
  another founder proposed that came into force. It has that on its disk, and has told the founder, who counts on nobody
  who has accepted what it does not know itself. It goes on from the latest of those views, in a later epoch, and needs
  the same of each of them as of the first: a majority, so that nothing more is decided there, and half with what they
  knew, so that nobody went further.

A process that was removed, or left, counts in its last view as it did before: it has what it accepted there, and where
most of a view voted for their own removal they may be the only ones that know. Nobody goes on without the later view,
as one of any half of them has accepted it. That rests on the vote. An operator's recovery takes none: a process that
hears of one without it, or cannot tell, treats its last view like a copy of a disk: there has been a later one.

A process that came back without its disk stands for its name, never for what it may have known, and founds nothing
unless it was told to expect others. In a view that may never have come into force, those who were to be new in it have
no memory of it by right; all but one of them are taken at their word (`_are_enough`): one may have lost its disk. A
view that one member decided alone counts as such until another one is heard in it (see view_installation).

With fewer processes they wait, and say for whom, until an operator says that those are lost for good (`recover`).
Where nothing was accepted yet, the same processes just start with other seeds. What it rests on: all name the same
seeds (with or without themselves), a disk is not lost while a cluster is founded, and what a process has accepted is
durable. Without a disk it is in memory, and two who vote or accept, and are started again within the same second, may
have forgotten it.
Source: L. Lamport, *The Part-Time Parliament* (1998), whose ledger is the record here.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from membership.address import Address
from membership.errors import RecoveryError
from membership.protocol.context.context import NEVER, Context
from membership.protocol.context.effects import JoinWaiting
from membership.protocol.messages import ColdStart, JoinRequest
from membership.protocol.view.configuration import RECOVERY_BYTES, RESTART_STRIDE, Configuration
from membership.protocol.view.member import Member

JOINING_TOO = "this process is joining too"
"""What a joiner answers to another one when no cold start is under way."""

_PEERS_KEPT = 4096
_GREETED_AT_ONCE = 64
"""Of a large view's members so many are asked at a time, in turn and the lowest first, for all choose among those."""
_NOTHING = -1
"""The epoch that a process remembers which was in no view before."""
Memory: TypeAlias = tuple[int, int]
"""The epoch of the view that a process remembers for certain, and of the one it remembers, if only by a copy."""
_NOBODY = b""
_PATIENCE = 3
"""Longest retransmission intervals in which whoever names this process as a seed will have asked it."""


class _Peer(NamedTuple):
    member: Member
    candidate: bool
    turn: int
    follows: bytes
    follows_turn: int
    memory: Memory
    accepted: frozenset[bytes]

    def knows(self, view: Configuration) -> bool:
        """Whether it would know of what came after this view by its vote."""
        return self.memory[0] != _NOTHING or view.id in self.accepted

    def has_accepted_one_of(self, earlier: Iterable[Configuration]) -> bool:
        """Whether it was to be in one of these earlier views, and has it to this day: it has lost no disk since."""
        return any(view.id in self.accepted and self.member.name in _names_of(view) for view in earlier)


class FounderElection:
    """One process's part in the election; idle unless more than one process is expected, or a view is remembered."""

    def __init__(
        self,
        context: Context,
        expect: int,
        *,
        is_copy: bool = False,
    ) -> None:
        """`is_copy`: there may have been later views than the one on its disk, without a vote in it: that is a copy,
        or others recovered without this process."""
        self._context = context
        found = context.storage.durable
        self.remembered = remembered = found.view
        self._is_copy = is_copy
        self._expect = expect
        self._seeds: tuple[Address, ...] = ()
        self.accepted = () if is_copy else found.accepted
        """The views that this process has accepted, and does not know to have come into force."""
        self.is_active = expect > 1 or remembered is not None or bool(self.accepted)
        """Whether this process takes part in an election; else it just wants to join, or was told to found."""
        self._loaded = {view.id for view in self.accepted}
        self.proposed: Configuration | None = None
        """The first view of several, as this process has founded it; not in force yet."""
        self.past: set[bytes] = set()
        """Identifiers of views that others have accepted, and that are of no account any more."""
        self.is_bound = False
        """Another founder counts on this very incarnation: it has written down a view with it."""
        self._remembered_names = _names_of(remembered) if remembered else frozenset()
        self._remembered_addresses = _others(self._gone_on_from, context.me.address)
        self._round = 0
        self._silent_until = -NEVER
        self._silenced_by = _NOTHING
        self._peers: dict[Address, _Peer] = {}
        self._candidate = False
        self._patient_until = 0.0
        self._turn = 0
        self._followed: Member | None = None
        self._followed_turn = 0
        self._heard_of_followed = 0.0
        self._met = 0
        self._confirmed: frozenset[str] | None = None
        self.recovery = b""
        """Identifier of the recovery by which an operator had the cluster founded anew; empty: it comes by itself."""
        self._pause = context.settings.rpc_retransmit
        self.deadline = NEVER

    def set_seeds(self, seeds: tuple[Address, ...]) -> None:
        """Whom to ask, this process not among them."""
        self._seeds = seeds

    def start(self, now: float) -> None:
        """Begin, if there is anything to do."""
        if self.is_active:
            self._candidate = self.remembered is not None
            self.deadline = now
            self._patient_until = now + _PATIENCE * self._context.settings.rpc_cap

    @property
    def expect(self) -> int:
        """How many processes the first view of several is held for. Where others are needed, only what they have
        accepted counts: who just promised itself may be let into an earlier view, as the incarnation that it is."""
        if self._confirmed is not None:
            return len(self._confirmed)
        if self.remembered is None:
            return self._expect
        return max(len(view) // 2 + 1 for view in self._gone_on_from)

    @property
    def followed(self) -> Address | None:
        """Who will found, as far as this process knows."""
        return None if self._followed is None else self._followed.address

    def follows(self, incarnation: bytes) -> bool:
        """Whether this process has promised itself to that one."""
        return self._followed is not None and self._followed.incarnation == incarnation

    def bind(self, founder: Member) -> None:
        """That one counts on this very incarnation now, which is of no use to any other founder any more."""
        self.is_bound = True
        if not self.follows(founder.incarnation):
            self._followed = None

    def has_left(self, view: Configuration) -> bool:
        """Whether a founder counts on it that this process takes part in this view no more."""
        if not self.is_bound:
            return False
        bound = self.accepted[-1]
        return view.epoch < bound.epoch or view.cluster_id != bound.cluster_id

    def has_outlived(self, view: Configuration) -> bool:
        """Whether what another process has accepted was overtaken by the view that this one remembers, or was proposed
        by this one, in an earlier incarnation, and given up: a founder writes its view down before it is in force.

        Where one cluster was founded for certain, nothing of another one ever came into force.
        """
        remembered = self.remembered
        if remembered is not None:
            is_same = view.cluster_id == remembered.cluster_id
            if view.epoch <= remembered.epoch if is_same else len(remembered) > 1:
                return True
        founder = founder_of(view)
        return self._has_memory and founder is not None and founder.name == self._context.me.name

    @property
    def knows(self) -> bool:
        """Whether this process remembers a view for certain."""
        return self.remembered is not None and not self._is_copy

    @property
    def _has_memory(self) -> bool:
        """Whether this process would know if it had accepted something in an earlier incarnation."""
        return self.knows or (self._context.storage.has_disk and not self._is_copy)

    def still_accepted(self, proposed: Configuration) -> tuple[Configuration, ...]:
        """What this process has accepted, without what the founder of this view, which has this process in it, has
        given up.

        Accepted by an earlier process here, it came from an earlier one there. The founder knows of it, or would not
        count on this process; had it gone on from it, it would be in a later epoch.
        """
        founder = founder_of(proposed)
        return tuple(
            view
            for view in self.accepted
            if view.id not in self._loaded
            or view.epoch < proposed.epoch
            or (proposer := founder_of(view)) is None
            or founder is None
            or proposer.name != founder.name
        )

    def is_promised(self, incarnation: bytes) -> bool:
        """Whether that process has promised itself to this one."""
        return any(self._peers[address].member.incarnation == incarnation for address in self._promisers())

    @property
    def is_deserted(self) -> bool:
        """Whether the founder that counts on this incarnation will not found any more, or is not heard of."""
        return self.is_bound and self._followed is None

    @property
    def latest(self) -> Configuration | None:
        """The view that the next founding must come after, whether it was in force or not."""
        return max(self._gone_on_from, key=lambda view: view.epoch, default=None)

    def stop(self) -> None:
        """This process founds the cluster: it asks nobody any more."""
        self.deadline = NEVER

    def acceptors(self) -> list[Member]:
        """Which of those in the proposed view are known to have written it down."""
        others = () if self.proposed is None else self.proposed.members
        return [member for member in others if self.has_accepted(member)]

    def has_accepted(self, member: Member) -> bool:
        """Whether this one is known to have written the proposed view down."""
        peer = self._peers.get(member.address)
        return (
            self.proposed is not None
            and peer is not None
            and peer.member == member
            and self.proposed.id in peer.accepted
        )

    def note_acceptance(self, address: Address) -> None:
        """The process at this address has the proposed view."""
        if self.proposed is not None and address in self._peers:
            peer = self._peers[address]
            self._peers[address] = peer._replace(accepted=peer.accepted | {self.proposed.id})

    def ask_followed(self) -> None:
        """Tell the founder how this process stands."""
        if self._followed is not None:
            self._context.send(self._followed.address, self._cold_start(True))

    def on_cluster(self, epoch: int, now: float) -> None:
        """Somebody is in a view of this epoch: for as long as joining it may take nobody else is needed to found one.

        For ever would be too long. Who founds may die before anybody else is in the view, and needs the promises of
        this process again. And if this process remembers a view, or has accepted one, the other one may be left alone
        in that very view: only a later one shows that the cluster went on without this process; and who is in it, but
        without a majority, gives it up when it is asked. So one view silences a process that knows of another one only
        once.
        """
        known = self.latest
        silenced_before = known is not None and epoch <= self._silenced_by
        if (known is None or epoch > known.epoch) and not silenced_before:
            self._silenced_by = epoch
            self._silent_until = now + self._context.settings.join_attempt_timeout

    def tick(self, now: float) -> None:
        """Greet the seeds, and whom this process follows.

        A founder that goes on from nothing also asks to be let in: there may be a cluster that it has not heard of.
        """
        if now < self.deadline:
            return
        self._forget_silent(now)
        if now >= self._silent_until:
            self._context.send_all(self._asked(), self._cold_start(True))
        if self.remembered is None and self._context.configuration is not None:
            self._context.send_all(self._seeds, JoinRequest(self._context.me))
        self.deadline = now + self._pause * (0.75 + 0.5 * self._context.rng.random())
        self._pause = min(1.5 * self._pause, self._context.settings.rpc_cap)

    def _forget_silent(self, now: float) -> None:
        """Follow nobody any more who is not heard of, and is founding the cluster anew.

        What it has founded, if that is in force, is on enough disks to be found there.
        """
        if self._followed is None:
            return
        since = max(self._heard_of_followed, self._silent_until)
        if now - since > self._context.settings.quorum_timeout:
            del self._peers[self._followed.address]
            self._followed = None

    def _asked(self) -> dict[Address, None]:
        remembered = self._remembered_addresses
        first = self._round * _GREETED_AT_ONCE
        self._round = 0 if first + _GREETED_AT_ONCE >= len(remembered) else self._round + 1
        followed = () if self.followed is None else (self.followed,)
        return dict.fromkeys((*self._seeds, *followed, *remembered[first : first + _GREETED_AT_ONCE]))

    def _cold_start(self, asking: bool) -> ColdStart:
        followed = _NOBODY if self._followed is None else self._followed.incarnation
        return ColdStart(
            self._context.me,
            self._candidate,
            self._turn,
            followed,
            self._followed_turn,
            asking,
            self._remembers,
            self._is_copy,
            tuple(view.id for view in self.accepted),
        )

    @property
    def _memory(self) -> Memory:
        return _NOTHING if self._is_copy else self._remembers, self._remembers

    @property
    def _remembers(self) -> int:
        return _NOTHING if self.remembered is None else self.remembered.epoch

    def counts_on(self, joiner: Member) -> bool:
        """Whether this process, which has founded the cluster, may hold a place in the first view for this one.

        Whoever is not needed to found it anew joins afterwards: all in the first view are to write it down.
        """
        if not self.is_active:
            return True
        peer = self._peers.get(joiner.address)
        if peer is None or (peer.member, peer.follows) != (joiner, self._context.me.incarnation):
            return False
        if self._confirmed is not None:
            return joiner.name in self._confirmed
        is_one_of_them = self.remembered is None or any(
            joiner.name in _names_of(view) for view in self._gone_on_from
        )
        return is_one_of_them and self._is_covered(peer)

    @property
    def _gone_on_from(self) -> tuple[Configuration, ...]:
        """The view this process remembers, and those that may have come into force since."""
        return self.accepted if self.remembered is None else (self.remembered, *self.accepted)

    def _is_covered(self, peer: _Peer) -> bool:
        """Whether this process founds on all that the other one has written down; else it cannot count on it."""
        known = {view.id for view in (*self._gone_on_from, self.proposed) if view is not None}
        return peer.accepted <= known | self.past

    def uncovered(self, message: ColdStart) -> tuple[Configuration, ...]:
        """The views that this process has written down, and whom it follows has not; that one must know of them."""
        if self.is_bound or not self.follows(message.sender.incarnation):
            return ()
        return tuple(view for view in self.accepted if view.id not in message.accepted)

    def while_gathering(self, message: ColdStart) -> bool:
        """Another process starts while this one founds the cluster and waits for the others; is this one to give up?

        It is if the other one remembers a later view. After a power cut also if it has promised itself to somebody
        else, or is to be preferred: then those that this process counts on may have been started again since, and
        forgotten it.
        """
        other, me = message.sender, self._context.me
        if message.follows == me.incarnation:
            self._keep(message)
        elif self.proposed is not None:
            pass  # what counts now is who writes it down
        elif self._gives_way_to(message):
            return True
        self._context.send(other.address, self._cold_start(False))
        return False

    def _gives_way_to(self, message: ColdStart) -> bool:
        if self.remembered is None:
            return message.remembers > self._remembers
        is_better = _rank(message.sender, _memory_of(message)) < _rank(self._context.me, self._memory)
        return bool(message.follows) or is_better

    def on_cold_start(self, message: ColdStart, now: float) -> None:
        """Another process is starting too."""
        if self.deadline == NEVER and message.remembers > self._remembers:
            self.deadline = (
                now  # this one just wants to join; who remembers a view may need it for a majority
            )
        if self.deadline == NEVER or now < self._silent_until:
            return
        if message.sender.incarnation == self._context.me.incarnation:
            return
        address = message.sender.address
        if address not in self._peers and len(self._peers) >= _PEERS_KEPT:
            return
        known = self._peers.get(address)
        if known is not None and known.member == message.sender and message.turn < known.turn:
            return  # overtaken by a later one
        self._keep(message)
        if self.follows(message.sender.incarnation):
            self._heard_of_followed = now
        # Who just wants to join founds nothing, whoever promises himself to it.
        self._candidate = self._candidate or (message.asking and self.expect > 1)
        before = self._followed
        self._choose(now)
        if message.asking or self._followed != before:
            self._context.send(address, self._cold_start(False))
        self._tell()

    def pass_on(self, message: ColdStart) -> None:
        """Let the first of those who remember most hear of another one that remembers a view, and answer it.

        Where addresses have changed hands neither may be at one that the other one knows, though both ask a seed.
        """
        if not message.asking or message.remembers == _NOTHING or not self._peers:
            return
        best = min(self._peers.values(), key=lambda peer: _rank(peer.member, peer.memory))
        if _rank(best.member, best.memory) < _rank(message.sender, _memory_of(message)):
            self._context.send(best.member.address, message)

    def _keep(self, message: ColdStart) -> None:
        self._peers[message.sender.address] = _Peer(
            message.sender,
            message.candidate,
            message.turn,
            message.follows,
            message.follows_turn,
            _memory_of(message),
            frozenset(message.accepted),
        )

    def _choose(self, now: float) -> None:
        if self._followed is not None and self._is_released(self._followed):
            self._followed = None
        if self._followed is not None or self.is_bound:
            return
        mine = self._memory
        candidates = [
            peer
            for peer in self._peers.values()
            if peer.candidate and not peer.follows and peer.memory >= mine
        ]
        lowest = min(candidates, key=lambda peer: _rank(peer.member, peer.memory), default=None)
        # A process that nobody has named yet may still be named by one that has not asked it again.
        eligible = self._candidate or now < self._patient_until
        if lowest is None:
            return
        if eligible and _rank(self._context.me, mine) < _rank(lowest.member, lowest.memory):
            return
        self._followed, self._followed_turn = lowest.member, lowest.turn
        self._heard_of_followed = now
        self._turn += 1  # promises given to this process until now do not count any more

    def _is_released(self, followed: Member) -> bool:
        """Whether the one this process promised itself to will certainly not found on the strength of it."""
        peer = self._peers[followed.address]
        return (
            peer.member.incarnation != followed.incarnation
            or peer.turn > self._followed_turn
            or bool(peer.follows)
        )

    def _promisers(self) -> list[Address]:
        me = self._context.me.incarnation
        return [
            address
            for address, peer in self._peers.items()
            if (peer.follows, peer.follows_turn) == (me, self._turn)
        ]

    def founds(self, now: float) -> bool:
        """Whether this process is the one to found the cluster, or to found it anew."""
        if self.deadline == NEVER or now < self._silent_until:
            return False
        if self._followed is not None or not self._candidate:
            return False
        promisers = self._promisers()
        if self._confirmed is None and self._knowing_better():
            return False
        if self.remembered is None:
            return len(promisers) + 1 >= self.expect and self.suffices(promisers)
        return self._is_restarted(promisers, now)

    def _is_restarted(self, promisers: list[Address], now: float) -> bool:
        """Whether enough of the remembered view has started again and is with this process.

        While more of them may still come it waits a little, so that they are in the first view together.
        """
        waits = self._confirmed is None and now < self._patient_until
        covered = [address for address in promisers if self._is_covered(self._peers[address])]
        return self.suffices(covered) and not (waits and self._remembered_names - self._names(covered))

    def suffices(self, peers: Collection[Address]) -> bool:
        """Whether these peers and this process are enough to go on from the view it remembers, or else from none, and
        from every later one that may have come into force."""
        if not self.is_active:
            return True
        if self._confirmed is not None:
            return self._names(peers) >= self._confirmed
        covered = [address for address in peers if self._is_covered(self._peers[address])]
        if self.remembered is None and not self._are_most_seeds(covered):
            return False
        return all(self._are_enough(covered, view) for view in self._gone_on_from)

    @property
    def is_in_force(self) -> bool:
        """Whether the proposed view is accepted by so many that it is in force once this process, its founder, has
        accepted it, too. Nobody was in a view before a cold start: then most of the new one are to have it, too."""
        acceptors = [member.address for member in self.acceptors()]
        if self.proposed is None or not self.suffices(acceptors):
            return False
        return self.remembered is not None or 2 * (len(acceptors) + 1) > len(self.proposed)

    def _are_most_seeds(self, peers: Collection[Address]) -> bool:
        """Whether these and this process, which is a seed of the others, are a majority of the seeds."""
        others = sum(1 for address in peers if address in self._seeds)
        return bool(self._seeds) and 2 * (others + 1) > len(self._seeds) + 1

    def _are_enough(self, peers: Collection[Address], view: Configuration) -> bool:
        """Whether a majority of this view is here, and with what it knew: who did not vote in it without them.

        Whoever has no memory has lost it; but not those who were to be new in a view that may never have come into
        force, but for one.
        """
        names = _names_of(view)
        back = self._names(peers) & names
        blank = back - self._knowing(peers, view)
        unsure = set() if view is self.remembered else blank & _new_in(view)
        lost = len(names) - len(back) + len(blank - unsure) + min(1, len(unsure))
        return 2 * len(back) > len(names) and 2 * lost <= len(names)

    def _names(self, peers: Iterable[Address]) -> set[str]:
        """Of these peers, and of this process."""
        return {self._peers[address].member.name for address in peers} | {self._context.me.name}

    def _knowing(self, peers: Iterable[Address], view: Configuration) -> set[str]:
        """Of these peers and this process, those of this view that have what they knew."""
        earlier = [each for each in self._gone_on_from if each.epoch < view.epoch]
        knowing = {
            peer.member.name
            for address in peers
            if (peer := self._peers[address]).knows(view) or peer.has_accepted_one_of(earlier)
        }
        if not self._is_copy and view in self._gone_on_from:
            knowing.add(self._context.me.name)
        return knowing & _names_of(view)

    def _knowing_better(self) -> dict[str, int]:
        """The names of those who know of a later view, if only by a copy, and the epochs of these."""
        known = {peer.member.name: peer.memory[1] for peer in self._peers.values()}
        return {name: epoch for name, epoch in known.items() if epoch > self._remembers}

    def recover(self, survivors: Collection[str]) -> None:
        """An operator's word that nobody but these (names or addresses) comes back with what it knows.

        The cluster is then founded anew by this process, with all of them. Raises RecoveryError.
        """
        me = self._context.me
        if not self._gone_on_from or self.deadline == NEVER:
            raise RecoveryError(f"{me.name} remembers no view to go on from: ask one that does")
        met = {peer.member.name: peer for peer in self._peers.values()}
        by_address = {str(member.address): member.name for member in (me, *(p.member for p in met.values()))}
        named = {by_address.get(survivor, survivor) for survivor in survivors}
        if me.name not in named:
            raise RecoveryError(f"{me.name} is not among the survivors: name it too, or ask one of them")
        unmet = sorted(named - met.keys() - {me.name})
        if unmet:
            raise RecoveryError(f"{', '.join(unmet)} was not heard of yet; start it, or leave it out")
        knowing = max(
            (met[name] for name in named if name in met), key=lambda peer: peer.memory, default=None
        )
        if knowing is not None and knowing.memory > self._memory:
            raise RecoveryError(
                f"{knowing.member.name} knows better than {me.name}, by view {knowing.memory[1]} beside "
                f"{self._remembers}: ask there"
            )
        if self._followed is not None:
            raise RecoveryError(
                f"{me.name} waits for {self._followed.name} ({self._followed.address}): ask there"
            )
        waiting = sorted(named - self._names(self._promisers()))
        if waiting:
            raise RecoveryError(f"{', '.join(waiting)} does not wait for {me.name} yet; try again")
        self._confirmed = frozenset(named)
        self.recovery = self._context.rng.randbytes(RECOVERY_BYTES)

    def _tell(self) -> None:
        met = len(self._peers) + 1
        if met != self._met:
            self._met = met
            self._context.publish(JoinWaiting(self.progress))

    @property
    def progress(self) -> str:
        """How far the cold start has come, for those who ask."""
        if self.deadline == NEVER:
            return JOINING_TOO
        if self.remembered is not None:
            text = self._progress_after_power_cut(self.remembered)
        elif self.expect == 1:
            text = "the members of a cluster that lost its power are looking for each other"
        else:
            text = self._progress_of_cold_start()
        for view in self.accepted:
            if missing := _names_of(view) - self._names(self._peers):
                text += (
                    f"; view {view.epoch} may have come into force, and {len(view) // 2 + 1} of its {len(view)} "
                    f"members are needed, too; not heard of: {_some(missing)}"
                )
            elif not self._are_enough(self._peers, view):
                blank = _names_of(view) - self._knowing(self._peers, view)
                text += (
                    f"; view {view.epoch} may have come into force; without what they knew: {_some(blank)}"
                )
        if better := self._knowing_better():
            text += f"; there was a later view ({max(better.values())}), of which {_some(better)} knows"
        return text[:500]  # as much as a message has room for

    def _progress_of_cold_start(self) -> str:
        met = len(self._peers) + 1
        text = f"the cluster starts with {self.expect} processes, {met} have met so far"
        if not self._are_most_seeds(self._peers):
            silent = [str(seed) for seed in self._seeds if seed not in self._peers]
            needed = (len(self._seeds) + 1) // 2 + 1
            text += (
                f"; {needed} of its {len(self._seeds) + 1} seeds are needed; not heard of: {_some(silent)}"
            )
        return text

    def _progress_after_power_cut(self, remembered: Configuration) -> str:
        names = self._remembered_names
        met = self._names(self._peers) & names
        remembering = self._knowing(self._peers, remembered)
        text = (
            f"the cluster comes back when {len(remembered) // 2 + 1} of the {len(remembered)} members of its last view "
            f"({remembered.epoch}) do, {len(met)} have met so far"
        )
        if missing := names - met:
            text += f"; not heard of: {_some(missing)}"
        if blank := met - remembering:
            needed = (len(remembered) + 1) // 2
            text += f"; without what they knew: {_some(blank)} ({needed} must have it)"
        return text


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:5]) + (" …" if len(names) > 5 else "")


def _memory_of(message: ColdStart) -> Memory:
    return _NOTHING if message.is_copy else message.remembers, message.remembers


def _rank(member: Member, memory: Memory) -> tuple[int, int, str, int, bytes]:
    return -memory[0], -memory[1], member.host, member.port, member.incarnation


def founder_of(view: Configuration) -> Member | None:
    """Who has proposed this first view of several; None: it is none, its members were voted for in the view before."""
    founder = view.by_seniority()[0]
    others = sorted(view.joined_epochs)[1:]
    alone_before = view.joined_epochs[view.members.index(founder)] == view.epoch - 1
    is_first = alone_before and view.epoch % RESTART_STRIDE == 1 and set(others) == {view.epoch}
    return founder if is_first else None


def _new_in(view: Configuration) -> frozenset[str]:
    """The names of those who were not in the view before this one; of a founding all."""
    if founder_of(view) is not None:
        return _names_of(view)
    joined = zip(view.members, view.joined_epochs, strict=True)
    return frozenset(member.name for member, epoch in joined if epoch == view.epoch)


def _names_of(view: Configuration) -> frozenset[str]:
    return frozenset(member.name for member in view.members)


def _others(views: Iterable[Configuration], mine: Address) -> tuple[Address, ...]:
    others = {address for view in views for address in view.addresses if address != mine}
    return tuple(sorted(others, key=lambda address: (address.host, address.port)))
