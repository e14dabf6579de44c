"""Endpoints: the narrow interface below the transport, to sockets or to a network in memory.

The transport above cannot tell which it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import trio

from membership.address import Address

Accept: TypeAlias = Callable[[trio.abc.Stream], Awaitable[None]]


class Endpoint(Protocol):
    """A bound address that sends and receives datagrams and streams."""

    address: Address
    """The address it is bound to, with the real port."""
    exposed: bool
    """Whether others than this machine can reach it."""

    def send(self, datagram: bytes, destination: Address) -> bool:
        """Send without waiting; False when the system took it not (dropped and counted)."""

    def receive(self) -> bytes | None:
        """A datagram that has arrived, or None. One above the bound comes cut, but still above it."""

    def fileno(self) -> int | None:
        """The descriptor that is readable when `receive` has something; None if there is none."""

    async def wait_readable(self) -> None:
        """Return when `receive` may have something."""

    async def connect(self, destination: Address) -> trio.abc.Stream:
        """A new stream. Raises OSError when nobody listens there."""

    async def run(self, accept: Accept) -> None:
        """Accept streams, each in a task of its own, until cancelled; afterwards the endpoint is closed.

        Returns at once if it is closed already.
        """

    def close(self) -> None:
        """Give the address back. May be called twice."""


class Network(Protocol):
    """Makes endpoints."""

    async def bind(self, listen: Address, counters: Counter[str]) -> Endpoint:
        """An endpoint at `listen` (port 0: any free one). Raises BindError."""
