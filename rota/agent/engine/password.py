"""The password of the engine's servers: one for the whole cluster, for they replicate from each other.

It is in a file of each host's data directory that only its user may read.  The most senior member makes it, whoever
comes later asks the others (service ``engine``), over the cluster's own transport and thus under its keys.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import trio

from membership import Cluster, Configuration, Member, TransportError
from membership.files import replace_file
from rota.errors import AgentError, ApiError, SettingsError
from rota.services.control_service import ask_member

log = logging.getLogger("rota")

SERVICE: Final = "engine"
"""Of the agents; `password` is what they ask for."""
DIRECTORY: Final = "engine"
PASSWORD_FILE: Final = "password"
"""In the data directory, and in that."""
BYTES: Final = 24
ASK_AGAIN: Final = 0.3
LONGEST: Final = 512


class SharedPassword:
    """This host's copy of it, and the way to those of the others."""

    def __init__(self, path: Path, *, given: Path | None, may_travel: bool) -> None:
        """``given``: an operator's file instead.  ``may_travel``: nobody can listen to what the agents say.

        Raises :class:`SettingsError`.
        """
        self._path = path
        self._may_travel = may_travel
        self._silent: set[str] = set()
        self._is_given = given is not None
        self._password = read_password(given) if given is not None else _kept(path)
        if given is None and not may_travel:
            raise SettingsError(
                "engine_password_file: without --key-file the servers' password would travel unencrypted; give keys, "
                "or the same --engine-password-file on all hosts"
            )

    def answer(self) -> dict[str, Any]:
        """Another agent asks for it.  Raises :class:`ApiError`."""
        if not self._may_travel:
            raise ApiError("this host does not tell the servers' password", code="refused", status=403)
        return {"password": self._password}

    async def agree(self, cluster: Cluster, others: Mapping[str, str]) -> str:
        """Wait until there is one.  ``others``: what the metadata of those to be asked say, beside this host.

        One that is kept here gives way to that of more senior members: this host may have made it and ended before
        anybody heard of it.
        """
        if self._password is not None and not self._is_given:
            seniors = list(
                takewhile(lambda member: member.name != cluster.me.name, _server_hosts(cluster.view, others))
            )
            found = await self._ask_all(cluster, seniors)
            if told := next(filter(None, (found.get(member.name) for member in seniors)), None):
                self._keep(told)
        while self._password is None:
            view = cluster.view
            members = _server_hosts(view, others)
            asked = [member for member in members if member.name != cluster.me.name]
            found = await self._ask_all(cluster, asked)
            if told := next(filter(None, found.values()), None):
                self._keep(told)
            elif _is_first(cluster, members) and len(found) == len(asked) and cluster.view is view:
                # All others say that they have none, and they will ask this host.
                self._keep(secrets.token_urlsafe(BYTES))
            else:
                await trio.sleep(ASK_AGAIN)
        return self._password

    async def _ask_all(self, cluster: Cluster, members: list[Member]) -> dict[str, str | None]:
        """What those say that answer."""
        answers: dict[str, str | None] = {}

        async def ask_one(member: Member) -> None:
            try:
                answer = (await ask_member(cluster, member, SERVICE, "password", {})).get("password")
            except (ApiError, TransportError) as error:
                if member.name not in self._silent:
                    self._silent.add(member.name)
                    log.info("engine: %s does not tell the servers' password yet: %s", member.name, error)
                return
            if answer is None or (isinstance(answer, str) and 0 < len(answer) <= LONGEST):
                answers[member.name] = answer

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(ask_one, member)
        return answers

    def _keep(self, password: str) -> None:
        if password == self._password:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, f"{password}\n".encode(), 0o600)
        except OSError as error:
            raise AgentError(f"{self._path}: {error.strerror}; make it writable") from error
        self._password = password


def _is_first(cluster: Cluster, members: Sequence[Member]) -> bool:
    return [member.name for member in members[:1]] == [cluster.me.name]


def _server_hosts(view: Configuration, metadata: Mapping[str, str]) -> list[Member]:
    """Members whose metadata say so, the most senior first."""
    return [member for member in view.by_seniority() if metadata.items() <= member.attributes.items()]


def read_password(path: Path) -> str:
    """The first line of a file that nobody else may read.  Raises :class:`SettingsError`."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            password = file.readline(LONGEST + 2).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SettingsError(f"engine_password_file: {path}: {reason}") from error
    if mode & 0o077:
        raise SettingsError(
            f"engine_password_file: {path}: others than its owner can reach this file (mode {mode:04o}); chmod 600 it"
        )
    if not 0 < len(password) <= LONGEST:
        raise SettingsError(
            f"engine_password_file: {path}: 1 to {LONGEST} characters are needed in its first line"
        )
    return password


def _kept(path: Path) -> str | None:
    return read_password(path) if path.exists() else None
