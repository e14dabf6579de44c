"""Effects: everything that a call of the core wants done, as one immutable value.

This is the only way out of a sans-I/O core. The driver in `membership.runtime`, or the simulator, performs them.
"""

from dataclasses import dataclass

import msgspec

from membership.address import Address
from membership.protocol.context.stable_storage import StableState
from membership.protocol.messages import Message
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.member import Member
from membership.protocol.view.view_difference import ViewChanged


class Send(msgspec.Struct, frozen=True):
    """Send one message to each destination, once, without waiting for an answer.

    `reliable=False`: one datagram, may be lost. `reliable=True`: one frame on a stream.
    """

    destinations: tuple[Address, ...]
    message: Message
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """A member refused this join; `reason` says what to change.

    The core goes on asking, unless it is `final`: it has been refused `Settings.join_refusals` times.
    """

    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class JoinWaiting:
    """Somebody answered that this process must wait; `reason` says for what."""

    reason: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """This member was removed by the others; `epoch` is the first epoch without it (0 if unknown).

    `by_operator`: by command, as far as is known here; otherwise the others found it faulty.
    `restarted`: this member gave the view `epoch` up, because it has no majority within reach and never will: these
    members were started again, or founded it in vain. `superseded`: what this member knows of its last view counts no
    more, for the others may have gone on by an operator's word, without a vote in it. The core is finished: rejoin
    with a new core and a new incarnation.
    """

    epoch: int
    by_operator: bool = False
    restarted: tuple[str, ...] = ()
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """The leave this process asked for is over. `decided` is False if the time-out ended the waiting."""

    decided: bool
    superseded: bool = False
    """As of who was evicted."""


@dataclass(frozen=True, slots=True)
class QuorumLost:
    """No majority has answered this member for `Settings.quorum_timeout`: the last view stays as it is.

    `unheard` of the `watched` members have not been heard since the view was installed: they may not know of it.
    """

    unheard: int = 0
    watched: int = 0


@dataclass(frozen=True, slots=True)
class QuorumRegained:
    """A majority is within reach again."""


@dataclass(frozen=True, slots=True)
class RecoveryFinished:
    """The recovery this member was asked for is done: all survivors stand in this view."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """The recovery this member was asked for came to nothing; `reason` says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class EdgeFailed:
    """This member's own detector finds a subject faulty. It is one observer's opinion, not a decision."""

    subject: Member


@dataclass(frozen=True, slots=True)
class Accused:
    """This member reports a subject to the others, on its own evidence or because they do: the alert of the paper."""

    subject: Member


@dataclass(frozen=True, slots=True)
class EdgeRecovered:
    """This member's own detector finds a subject healthy again."""

    subject: Member


@dataclass(frozen=True, slots=True)
class Dropped:
    """An incoming message was refused, for a reason worth a log line (each reason is reported once)."""

    reason: str


@dataclass(frozen=True, slots=True)
class StateToSave:
    """An ensemble member's memory (see membership.ensemble): to be durable before any send of these effects."""

    record: bytes


@dataclass(frozen=True, slots=True)
class StableStateToSave:
    """This is to be on disk, in place of what was, as one record. Of several the last one counts.

    Tell the core when it is durable (`Core.saved`), with what was written: that may be an earlier one. Without a disk
    the driver keeps it in memory, for the next incarnation.
    """

    state: StableState


Event = (
    ViewChanged
    | JoinRefused
    | JoinWaiting
    | Evicted
    | Left
    | QuorumLost
    | QuorumRegained
    | RecoveryFinished
    | RecoveryFailed
    | EdgeFailed
    | Accused
    | EdgeRecovered
    | Dropped
    | StateToSave
    | StableStateToSave
)


class Effects(msgspec.Struct, frozen=True):
    """Sends to perform, events to publish (in order), and the absolute time of the next `tick`."""

    sends: tuple[Send, ...]
    events: tuple[Event, ...]
    wake_at: float
