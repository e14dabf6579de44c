"""Talking with the servers: commands out, answers as they come in.

The `valkey` package's connections, whose calls block, in worker threads; each server has a few, and one that failed is
thrown away.  What is asked of several servers is asked at the same time.

An address says where, never who: a server may have died, and another one been started there.  So a command for a
certain server names its node id, which is compared on the same connection: before the command where it changes
something, and else with the answer.
"""

from __future__ import annotations

import logging
import ssl
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import trio

from datastore_adapter.slots.errors import (
    AccessError,
    CommandRefusedError,
    MalformedReplyError,
    OtherServerError,
    ServerUnreachableError,
    SlotsError,
)
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.settings import EngineAccess, SlotsSettings

log = logging.getLogger(__name__)

THREADS: Final = 64
IDLE_CONNECTIONS: Final = 4
"""Of one server, kept for the next commands."""
READING: Final = frozenset(
    {
        "CLUSTER COUNTKEYSINSLOT", "CLUSTER GETKEYSINSLOT", "CLUSTER GETSLOTMIGRATIONS", "CLUSTER INFO",
        "CLUSTER LINKS", "CLUSTER MYID", "CLUSTER NODES", "CONFIG GET", "INFO", "MEMORY USAGE", "ROLE", "TIME",
    }
)  # fmt: skip
"""Commands that change nothing; every other one is written to the log."""
MYID: Final = ("CLUSTER", "MYID")

Command = Sequence[str | bytes | int]


class Servers:
    """The way to any server.  May be used by many tasks at a time.

    Commands go to a `Recipient`, or to whoever answers at a ``host:port``.
    """

    def __init__(self, access: EngineAccess, settings: SlotsSettings) -> None:
        self._access = access
        self._settings = settings
        self._idle: dict[str, list[Any]] = defaultdict(list)
        self._limiter = trio.CapacityLimiter(THREADS)
        self.counters: Counter[str] = Counter()

    async def call(
        self, to: str | Recipient, *command: str | bytes | int, timeout: float | None = None
    ) -> Any:
        """One answer.  Raises CommandRefusedError, AccessError, ServerUnreachableError, MalformedReplyError."""
        (answer,) = await self.call_all(to, [command], timeout=timeout)
        if isinstance(answer, SlotsError):
            raise answer
        return answer

    async def call_all(
        self, to: str | Recipient, commands: Sequence[Command], timeout: float | None = None
    ) -> list[Any]:
        """One answer for each, sent together; a refusal stands as a CommandRefusedError in its place.

        Raises AccessError, OtherServerError, ServerUnreachableError, MalformedReplyError.
        """
        address, node_id = (to, "") if isinstance(to, str) else to
        changes = [command for command in commands if _name(command) not in READING]
        self.counters["commands"] += len(changes)
        if log.isEnabledFor(logging.INFO):
            for command in changes:
                log.info("%s: %s", address, _text(command))
        seconds = self._settings.call_timeout if timeout is None else timeout
        batches = [commands]
        if node_id:
            batches = [[MYID], commands] if changes else [[MYID, *commands]]
        call = partial(self._exchange, address, node_id, batches, seconds)
        answers: list[Any] = await trio.to_thread.run_sync(
            call, limiter=self._limiter, abandon_on_cancel=True
        )
        return answers

    def close(self) -> None:
        """End the connections that are idle."""
        for connections in self._idle.values():
            for connection in connections:
                connection.disconnect()
        self._idle.clear()

    # in worker threads

    def _exchange(
        self, address: str, node_id: str, batches: Sequence[Sequence[Command]], timeout: float
    ) -> list[Any]:
        """The answers to all batches, each sent when the one before was answered.

        ``node_id``: of the server that is meant, or nothing; then the first answer has to be this, and is left out.
        """
        import valkey

        connection = None
        answers: list[Any] = []
        try:
            connection = self._connection(address, timeout)
            for commands in batches:
                connection.send_packed_command(connection.pack_commands(commands))
                answers += [self._answer(address, connection, command) for command in commands]
                if node_id and answers[0] != node_id.encode():
                    raise self._other(address, node_id, answers[0])
        except (valkey.AuthenticationError, valkey.exceptions.NoPermissionError) as error:
            _end(connection)
            raise AccessError(
                f"{address} does not let us in: {error}; check the engine's user and password"
            ) from error
        except valkey.InvalidResponse as error:
            _end(connection)
            raise MalformedReplyError(
                f"{address} does not speak the protocol of Valkey and Redis: {error}"
            ) from error
        except ssl.SSLError as error:
            _end(connection)
            raise AccessError(f"{address}: TLS: {error}; check the engine's certificates") from error
        except (valkey.ConnectionError, valkey.TimeoutError, OSError, ValueError) as error:
            _end(connection)
            self.counters["unreachable"] += 1
            if isinstance(error.__cause__, ssl.SSLError) or "SSL" in str(error):
                raise AccessError(f"{address}: TLS: {error}; check the engine's certificates") from error
            raise ServerUnreachableError(f"{address} does not answer: {error}") from error
        except BaseException:
            _end(connection)
            raise
        idle = self._idle[address]
        if len(idle) < IDLE_CONNECTIONS:
            idle.append(connection)
        else:
            connection.disconnect()
        return answers[1:] if node_id else answers

    def _other(self, address: str, node_id: str, answer: object) -> OtherServerError:
        self.counters["other_server"] += 1
        found = answer.decode("utf-8", "replace")[:8] if isinstance(answer, bytes) else "one of no cluster"
        return OtherServerError(
            f"another server ({found}) answers at {address}, where {node_id[:8]} was; nothing was done to it"
        )

    def _answer(self, address: str, connection: Any, command: Command) -> Any:
        import valkey

        try:
            return connection.read_response()
        except (valkey.AuthenticationError, valkey.exceptions.NoPermissionError):
            raise
        except valkey.ResponseError as error:
            if str(error).startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
                raise valkey.AuthenticationError(str(error)) from error
            return CommandRefusedError(address, _text(command), str(error))

    def _connection(self, address: str, timeout: float) -> Any:
        try:
            connection = self._idle[address].pop()
        except IndexError:
            return self._connect(address, timeout)
        if _is_stale(connection):  # the server has ended it meanwhile, or is another process now
            connection.disconnect()
            return self._connect(address, timeout)
        connection._sock.settimeout(timeout)
        return connection

    def _connect(self, address: str, timeout: float) -> Any:
        from valkey.connection import Connection, SSLConnection

        host, _, port = address.rpartition(":")
        access = self._access
        options: dict[str, Any] = {
            "host": host.strip("[]"),
            "port": int(port),
            "username": access.user or None,
            "password": access.password or None,
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, self._settings.call_timeout),
            "lib_name": None,
            "lib_version": None,
        }
        if access.uses_tls:
            options |= {
                "ssl_ca_certs": None if access.ca_file is None else str(access.ca_file),
                "ssl_certfile": None if access.certificate_file is None else str(access.certificate_file),
                "ssl_keyfile": None if access.key_file is None else str(access.key_file),
                "ssl_check_hostname": True,
            }
        connection = (SSLConnection if access.uses_tls else Connection)(**options)
        connection.connect()  # type: ignore[no-untyped-call]
        return connection


def _is_stale(connection: Any) -> bool:
    """Whether there is something to read although nothing was asked: its end, mostly."""
    try:
        return bool(connection.can_read(timeout=0))
    except Exception:
        return True


def _end(connection: Any) -> None:
    if connection is not None:
        connection.disconnect()


def _name(command: Command) -> str:
    words = [str(word).upper() for word in command[:2]]
    return " ".join(words) if words[0] in {"CLUSTER", "CONFIG", "MEMORY", "COMMAND"} else words[0]


def _text(command: Command) -> str:
    """For people: long ones cut, passwords left out."""
    words: list[str] = []
    hidden = 0
    for word in command:
        text = word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
        words.append("***" if hidden else text)
        hidden = max(0, hidden - 1)
        if text.upper() in {"AUTH", "AUTH2"}:
            hidden = 2 if text.upper() == "AUTH2" else 1
    line = " ".join(words)
    return line if len(line) <= 200 else f"{line[:200]}…"
