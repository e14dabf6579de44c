"""Who asks, and whether they may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Final

from starlette.requests import Request

from rota.access.host_names import HostNames
from rota.access.roles import OPERATE, suffices
from rota.access.sessions import Sessions
from rota.access.tls import TlsFiles
from rota.access.tokens import LONGEST_TOKEN, Token, Tokens, read_tokens
from rota.errors import ApiError

COOKIE: Final = "__Host-rota"
"""Browsers keep a cookie of such a name only for this host, its every path, and TLS."""
COUNTED: Final = (400, 401, 403, 404, 405, 408, 413, 415, 421)
"""The statuses of refusals that ``/metrics`` has from the start."""
READING: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection."""

    address: str = ""
    user: str = ""
    """Of the system, who came through the Unix socket: the file's mode says who may."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.  ``name`` is empty for who came through loopback without a token: that may be anybody there."""

    name: str
    role: str
    address: str

    def __str__(self) -> str:
        who = f"{self.name} ({self.role}) " if self.name else ""
        return f"{who}from {self.address or 'nowhere'}"


@dataclass
class Access:
    """The rules in force.  Without files this is an interface on loopback, which everybody there may use."""

    token_file: Path | None = None
    tls_files: TlsFiles | None = None
    sessions: Sessions = field(default_factory=Sessions)
    counters: Counter[str] = field(default_factory=Counter)
    tokens: Tokens = field(default_factory=Tokens)
    names: HostNames = field(default_factory=HostNames)
    tls: SSLContext | None = None
    expiry: int | None = None
    """Of the certificate in use, in Unix seconds."""
    connections: Sequence[Sized] = ()
    """The tables of those that are open."""

    def __post_init__(self) -> None:
        """Raises :class:`AgentError` where a file is no good."""
        self.reload()
        self.counters.update({f"http.refused_{status}": 0 for status in COUNTED})

    def reload(self) -> None:
        """Take over what the files say now, all of it or nothing.  Raises :class:`AgentError`."""
        tokens = None if self.token_file is None else Tokens(read_tokens(self.token_file))
        if self.tls_files is not None:
            context, (names, expiry) = self.tls_files.context(), self.tls_files.names_and_expiry()
            self.tls, self.names, self.expiry = context, HostNames(names), expiry
        if tokens is not None:
            self.tokens = tokens

    # -- one request --------------------------------------------------------------------------------

    def caller(self, request: Request) -> Caller:
        """Raises :class:`ApiError` for who has no token, or a wrong one."""
        peer = peer_of(request)
        if self.token_file is None or peer.user:
            return Caller(peer.user, OPERATE, peer.address)
        token = self._from_header(request) or self._from_cookie(request)
        if token is None:
            raise ApiError("a token is needed here; give --token-file FILE", code="no_token", status=401)
        return Caller(token.name, token.role, peer.address)

    def _from_header(self, request: Request) -> Token | None:
        given = request.headers.get("authorization")
        if given is None:
            return None
        scheme, _, text = given.partition(" ")
        if scheme.lower() != "bearer":
            raise ApiError("write Authorization: Bearer TOKEN", code="wrong_token", status=401)
        return self.holder(text.strip())

    def _from_cookie(self, request: Request) -> Token | None:
        number = request.cookies.get(COOKIE)
        if number is None:
            return None
        # A browser adds the cookie by itself, so the page that asks must be this agent's own: `rota.http.guard`
        # has compared the origin, if there is one, and browsers give one with whatever changes something.
        if request.method not in READING and "origin" not in request.headers:
            text = "a session may change something only from the console, which says its Origin"
            raise ApiError(text, code="foreign_origin", status=403)
        token = self.sessions.find(number, self.tokens)
        if token is None:
            raise ApiError("this session has ended; log in again", code="no_session", status=401)
        return token

    def holder(self, text: str) -> Token:
        """Whose token it is.  Raises :class:`ApiError`."""
        token = self.tokens.find(text) if 0 < len(text) <= LONGEST_TOKEN else None
        if token is None:
            remedy = "`rota tokens list` at the agent's host names those that are"
            raise ApiError(f"this token is not known here; {remedy}", code="wrong_token", status=401)
        return token

    def open_connections(self) -> int:
        return sum(map(len, self.connections))

    def gauges(self) -> Mapping[str, int | None]:
        """What ``/metrics`` has of the interface beside the counters."""
        return {
            "http_open_connections": self.open_connections(),
            "certificate_expiry_timestamp_seconds": self.expiry,
        }

    def statistics(self) -> Mapping[str, int]:
        return dict(self.counters)


def demand(caller: Caller, needed: str) -> None:
    """Raises :class:`ApiError` for whose role does not suffice."""
    if not suffices(caller.role, needed):
        text = f"this needs the role {needed}; the token of {caller.name} has the role {caller.role}"
        raise ApiError(text, code="wrong_role", status=403)


def peer_of(request: Request) -> Peer:
    peer = (request.scope.get("state") or {}).get("peer")
    if isinstance(peer, Peer):
        return peer
    return Peer("" if request.client is None else request.client.host)
