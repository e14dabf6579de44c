"""The words between a chaos run and the agents it hurts: one JSON document a line, over a Unix socket.

The messages of both directions and their encoding. The agent speaks first (`Hello`), then waits for `Begin`, so that
all agents of a run start together whatever their interpreters took to load. It exists only in agents started with
`--chaos-control`; operators have no use for it.
"""

from __future__ import annotations

import msgspec

from membership.protocol.view.member import Member


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The agent is loaded and waits for `Begin`."""

    name: str
    pid: int


class Installed(msgspec.Struct, tag="installed", frozen=True):
    """The agent installed a view; the fields are those of `membership.protocol.context.effects.ViewChanged`."""

    at: float
    """Seconds of the machine's monotonic clock."""
    me: Member
    id: bytes
    configuration: bytes
    """As `Configuration.encoded` gives it."""
    first: bool
    """Whether this is the process's first view."""
    joined: tuple[Member, ...] = ()
    left: tuple[Member, ...] = ()
    failed: tuple[Member, ...] = ()
    replaced: tuple[Member, ...] = ()
    evicted: tuple[Member, ...] = ()
    updated: tuple[Member, ...] = ()


class Quorum(msgspec.Struct, tag="quorum", frozen=True):
    """The agent's quorum is lost, or regained."""

    at: float
    lost: bool


class Gone(msgspec.Struct, tag="gone", frozen=True):
    """The agent's incarnation is over: it left, or the others evicted it."""

    at: float
    evicted: bool


class Sample(msgspec.Struct, tag="sample", frozen=True):
    """Sent once a second."""

    at: float
    size: int
    """Members in the agent's view; 0 while it has none."""
    received: int
    """Bytes its transport received so far, headers of IP and UDP included."""
    sent: int


class Injected(msgspec.Struct, frozen=True):
    """What the agent's transport does from now on; the fields are those of `membership.Faults`."""

    ingress_loss: float = 0.0
    egress_loss: float = 0.0
    delay: float = 0.0
    blocked_ingress: tuple[str, ...] = ()
    """Addresses, as `host:port`."""
    blocked_egress: tuple[str, ...] = ()


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """Join (or found) now, under these faults."""

    faults: Injected = Injected()


class Inject(msgspec.Struct, tag="inject", frozen=True):
    """Faults from now on, instead of those before."""

    faults: Injected


class Leave(msgspec.Struct, tag="leave", frozen=True):
    """Leave gracefully and end."""


class Accuse(msgspec.Struct, tag="accuse", frozen=True):
    """From now on report every member you observe as gone, for nothing."""


class JumpClock(msgspec.Struct, tag="jump-clock", frozen=True):
    """Set the clock that membership goes by ahead by so many seconds."""

    seconds: float


class FailCall(msgspec.Struct, tag="fail-call", frozen=True):
    """Let the next such call on the store's files fail, once."""

    error: str
    """EIO, or another name of an error of the system."""
    operation: str
    """As in `chaos.faults.OPERATIONS`."""


class Disk(msgspec.Struct, tag="disk", frozen=True):
    """How the disk below the store's files is from now on; calls that were to fail do not any more."""

    sync_seconds: float = 0.0
    """What each sync takes longer."""
    is_quota_used_up: bool = False


Report = Hello | Installed | Quorum | Gone | Sample
Order = Begin | Inject | Leave | Accuse | JumpClock | FailCall | Disk

_reports: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)
_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


def encode(message: Report | Order) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"


def decode_report(line: bytes) -> Report:
    """What an agent said. Raises msgspec.DecodeError."""
    return _reports.decode(line)


def decode_order(line: bytes) -> Order:
    """What an agent is told. Raises msgspec.DecodeError."""
    return _orders.decode(line)


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
