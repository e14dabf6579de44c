"""The keys of all hosts, one step at a time: list, install, use, remove.

An operator asks any agent, which asks every member of the view (service ``keys``) and reports host by host.  Every
step may be repeated, so a host that was down is caught up by saying it again.  What would cut hosts off is refused
unless forced: using a key that somebody lacks, removing one that somebody still seals with.

A host changes its key file first and its ring then, so a restart finds what was agreed.  New keys travel under the
present one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from membership import Cluster, FrameStream, Key, KeyRing, KeyRingError, Member, TransportError
from membership.wire.key_ring import read_key_file, write_key_file
from rota.errors import ApiError, SettingsError
from rota.http.answers import OwnKeys
from rota.services.control_service import answer_requests, ask_member

log = logging.getLogger("rota")

SERVICE = "keys"
ACTIONS = ("list", "install", "use", "remove")
HOSTS_AT_A_TIME = 32


class KeyService:
    """This host's keys, and the way to those of the others."""

    def __init__(self, name: str, key_file: Path | None) -> None:
        """Raises :class:`SettingsError` when there is a key file that is no good."""
        self._name = name
        self._file = key_file
        self._changing = trio.Lock()
        try:
            self.ring = None if key_file is None else KeyRing.from_file(key_file)
        except KeyRingError as error:
            raise SettingsError(f"key_file: {error}") from error

    def status(self) -> OwnKeys | None:
        """Ids only, the primary's first; None when nothing is encrypted."""
        return None if self.ring is None else {"primary": self.ring.ids[0], "installed": list(self.ring.ids)}

    async def reload(self) -> bool:
        """Take over what the key file says now.  False when nothing changed.  Raises :class:`KeyRingError`."""
        if self.ring is None or self._file is None:
            return False
        async with self._changing:
            return self.ring.replace(await trio.to_thread.run_sync(read_key_file, self._file))

    # -- this host ----------------------------------------------------------------------------------

    async def serve(self, stream: FrameStream) -> None:
        """Another agent's request for this host."""
        async with stream:
            await answer_requests(stream, self.change)

    async def change(self, action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """One step on this host alone.  Raises :class:`ApiError`."""
        if self.ring is None or self._file is None:
            raise ApiError(
                "this host has no keys; start its agent with --key-file", code="no_keys", status=409
            )
        try:
            async with self._changing:
                wanted = KeyRing(self.ring.keys)
                if changed := _apply(wanted, action, arguments):
                    await trio.to_thread.run_sync(write_key_file, self._file, wanted.keys)
                    self.ring.replace(wanted.keys)
        except KeyRingError as error:
            raise ApiError(str(error), code="key", status=409) from error
        if changed:
            log.info("keys: %s; %s in use, installed %s", action, self.ring.ids[0], ", ".join(self.ring.ids))
        status = self.status()
        assert status is not None
        return {**status, "changed": changed}

    # -- all hosts ----------------------------------------------------------------------------------

    async def everywhere(self, cluster: Cluster, action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """One step on every member of the view: ``{"action", "agreed", "hosts": {NAME: answer or error}}``.

        Raises :class:`ApiError` when nothing was tried.
        """
        if action not in ACTIONS:
            raise ApiError(f"{action!r} is not one of {', '.join(ACTIONS)}", code="bad_request", status=400)
        if self.ring is None:
            raise ApiError(
                "this host has no keys; start its agent with --key-file", code="no_keys", status=409
            )
        _apply(KeyRing(self.ring.keys), action, arguments, only_check=True)
        if action in ("use", "remove") and not arguments.get("force"):
            await self._check_harmless(cluster, action, str(arguments["id"]))
        hosts = await self._ask_all(cluster, action, arguments)
        answers = [answer for answer in hosts.values() if "error" not in answer]
        agreed = len(answers) == len(hosts) and len({_as_set(answer) for answer in answers}) == 1
        return {"action": action, "agreed": agreed, "hosts": hosts}

    async def _check_harmless(self, cluster: Cluster, action: str, key_id: str) -> None:
        hosts = await self._ask_all(cluster, "list", {})
        silent = [name for name, answer in hosts.items() if "error" in answer]
        if silent:
            raise ApiError(
                f"{_some(silent)} cannot be asked which keys they hold; repeat when they answer, or force it",
                code="unreachable",
            )
        lacking = [name for name, answer in hosts.items() if key_id not in answer["installed"]]
        if action == "use" and lacking:
            raise ApiError(
                f"{_some(lacking)} do not hold {key_id}; install it first, or force it",
                code="key",
                status=409,
            )
        using = [name for name, answer in hosts.items() if key_id == answer["primary"]]
        if action == "remove" and using:
            raise ApiError(
                f"{_some(using)} still use {key_id}; use another key first", code="key", status=409
            )

    async def _ask_all(
        self, cluster: Cluster, action: str, arguments: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        answers: dict[str, dict[str, Any]] = {}
        free = trio.Semaphore(HOSTS_AT_A_TIME)

        async def ask_one(member: Member) -> None:
            async with free:
                try:
                    answers[member.name] = await self._ask(cluster, member, action, arguments)
                except (ApiError, TransportError) as error:
                    answers[member.name] = {"error": str(error)}

        # This host last: were it to change first, it might not reach the others any more.
        others = [member for member in cluster.view.members if member.name != self._name]
        async with trio.open_nursery() as nursery:
            for member in others:
                nursery.start_soon(ask_one, member)
        await ask_one(cluster.me)
        return dict(sorted(answers.items()))

    async def _ask(
        self, cluster: Cluster, member: Member, action: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        if member.name == self._name:
            return await self.change(action, arguments)
        return await ask_member(cluster, member, SERVICE, action, dict(arguments))


def _apply(ring: KeyRing, action: str, arguments: Mapping[str, Any], *, only_check: bool = False) -> bool:
    """Change ``ring``; False when there is nothing to change.  Raises :class:`ApiError`, :class:`KeyRingError`.

    ``only_check``: whether the arguments make sense; what the ring says to them is for each host to find out.
    """
    match action, arguments:
        case "list", _:
            return False
        case "install", {"key": str(text)}:
            try:
                key = Key.parse(text)
            except KeyRingError as error:
                raise ApiError(str(error), code="bad_request", status=400) from error
            return not only_check and ring.install(key)
        case "use", {"id": str(key_id)}:
            return not only_check and ring.use(key_id)
        case "remove", {"id": str(key_id)}:
            return not only_check and ring.remove(key_id)
    raise ApiError(
        'send {"action": "install", "key": BASE64} or {"action": "use" or "remove", "id": ID}',
        code="bad_request",
        status=400,
    )


def _as_set(answer: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    return answer["primary"], frozenset(answer["installed"])


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more hosts" if len(names) > 5 else shown
