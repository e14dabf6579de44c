"""What the log's procedures need of the world: time, calls to other processes, concurrency.

The Protocol that lets client, reconfiguration and transfer be plain ``async def`` code, run by trio in an agent
(`log.runtime.trio_runtime`) and in virtual time by a simulator (`log.host.simulated`). It has exactly the operations
that are used.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, cast

from datastore_adapter.log.errors import LogError, MisdirectedError
from datastore_adapter.log.messages import HostIdentity, Misdirected, Reply, Request
from datastore_adapter.log.messages.codec import ReplyFrame

T = TypeVar("T")


class Peer(NamedTuple):
    """Whom a request is for, and where that is thought to be.

    Addresses change hands: whoever is started at the one of a dead host must not answer in its name.
    """

    address: str
    identity: HostIdentity | None
    """None: whoever is there, as for a first question to an agent of which nothing but the address is known."""


def whoever_at(address: str) -> Peer:
    """For what any agent may tell."""
    return Peer(address, None)


def hosts_at(addresses: Mapping[str, str]) -> dict[str, Peer]:
    """The hosts of these names, with whichever disks they have: the answers tell, and that is to be looked at."""
    return {host: Peer(address, HostIdentity(host)) for host, address in addresses.items()}


def answer_of(peer: Peer, frame: ReplyFrame) -> Reply | MisdirectedError:
    """The reply, if it comes from whom it was asked.

    One that does not say whom it is from is of version 0.1, and taken for what it was taken for then.
    """
    reply, by, meant = frame.reply, frame.by, peer.identity
    if isinstance(reply, Misdirected):
        by = HostIdentity(reply.host, reply.disk)
    elif by is None or by.is_meant_by(meant):
        return reply
    if meant is not None and by.host == meant.host:
        return MisdirectedError(f"{by.host} at {peer.address} came back without the disk it had")
    name = "the host asked" if meant is None else meant.host
    return MisdirectedError(f"{by.host} is at {peer.address} now, and not {name}")


class TaskHandle(Protocol):
    """A task under way."""

    def cancel(self) -> None:
        """Stop it at its next suspension; no effect once it has ended."""
        ...


class Event(Protocol):
    """Happens once."""

    def set(self) -> None: ...

    async def wait(self) -> None:
        """Return when it has been set."""
        ...


class Runtime(Protocol):
    """Time is in seconds; addresses are ``host:port``."""

    @property
    def random(self) -> random.Random:
        """The only source of randomness of the procedures."""
        ...

    def now(self) -> float:
        """Monotonic."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def call(self, peer: Peer, request: Request, timeout: float) -> Reply:
        """One request, one reply.  Raises CallError; the request may have been carried out nevertheless.

        That is certain not to be so after MisdirectedError: somebody else is at the address.
        """
        ...

    async def gather(
        self,
        calls: Sequence[Callable[[], Awaitable[T]]],
        enough: Callable[[Sequence[T | LogError | None]], bool] | None = None,
    ) -> list[T | LogError | None]:
        """Run all at once; their results in the same order, with LogErrors in place of results.

        With `enough`, asked after each end, the rest is cancelled as soon as it returns true; None stands
        for what was cancelled.  Any other exception cancels all and is raised.
        """
        ...

    def event(self) -> Event: ...

    def spawn(self, task: Callable[[], Awaitable[None]]) -> TaskHandle:
        """Run a task in the background of the runtime's lifetime; it must handle its own errors."""
        ...


def results_of(outcomes: Sequence[T | LogError | None]) -> list[T]:
    """What came of a `Runtime.gather` without `enough`.  Raises the first error among it.

    An error leads to every frame it passes through: one that is kept in a frame outlives it, with all that frame
    knows, until the garbage collector comes.  So nobody keeps one here, or at the callers that hand all over.
    """
    failure = next((outcome for outcome in outcomes if isinstance(outcome, LogError)), None)
    if failure is None:
        return cast("list[T]", list(outcomes))
    del outcomes
    try:
        raise failure
    finally:
        del failure


async def call_all(
    runtime: Runtime,
    peers: Mapping[str, Peer],
    request: Request | Mapping[str, Request],
    timeout: float,
    enough: Callable[[Mapping[str, Reply]], bool] | None = None,
) -> dict[str, Reply]:
    """Send `request` (or each peer its own) to all `peers`; the replies by the same names.

    Those that gave no answer are absent.  With `enough`, returns as soon as the replies are.
    """
    hosts = sorted(peers)

    def replies(results: Sequence[Reply | LogError | None]) -> dict[str, Reply]:
        return {
            host: result
            for host, result in zip(hosts, results, strict=True)
            if result is not None and not isinstance(result, LogError)
        }

    calls = [
        partial(
            runtime.call, peers[host], request[host] if isinstance(request, Mapping) else request, timeout
        )
        for host in hosts
    ]
    condition = None if enough is None else (lambda results: enough(replies(results)))
    return replies(await runtime.gather(calls, condition))


class Patience:
    """How long one answer is waited for: twice as long whenever there were too few.

    An answer waits for a disk, which may be slower than was thought; a dead host costs no more for it.
    """

    def __init__(self, first: float) -> None:
        self.seconds = first

    def grow(self) -> None:
        self.seconds *= 2


class Backoff:
    """Growing pauses with jitter between retries."""

    def __init__(self, runtime: Runtime, first: float, limit: float) -> None:
        self._runtime = runtime
        self._first = first
        self._next = first
        self._limit = limit

    def reset(self) -> None:
        self._next = self._first

    async def pause(self) -> None:
        """Sleep half to all of the current pause, then double it."""
        pause = self._next
        self._next = min(self._limit, 2 * pause)
        await self._runtime.sleep(pause * self._runtime.random.uniform(0.5, 1.0))
