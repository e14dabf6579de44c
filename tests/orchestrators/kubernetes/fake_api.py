"""An API server in memory, as far as a scheduler sees one: lists, watches with versions, bindings, leases; and faults.

It stands in for ``ApiClient``.  What real servers do is in ``test_real_server.py``; this one does the same on command.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import trio

from orchestrators.kubernetes.errors import RequestError, UnreachableError

STATUS = {409: "Conflict", 404: "NotFound", 410: "Expired"}


class FakeApi:
    """``down``: nobody gets an answer, and watches break.  ``lose_answers``: of so many bindings, which are made."""

    def __init__(self) -> None:
        self.down = False
        self.lose_answers = 0
        self.bindings: list[tuple[str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.conditions: dict[str, dict[str, Any]] = {}
        self._objects: dict[str, dict[str, dict[str, Any]]] = {}
        self._version = 0
        self._oldest = 0
        self._log: list[tuple[int, str, str, dict[str, Any]]] = []
        self._more = trio.Event()

    # What others do

    def put(self, plural: str, item: dict[str, Any]) -> dict[str, Any]:
        held = self._objects.setdefault(plural, {})
        key = self._key(item)
        kind = "MODIFIED" if key in held else "ADDED"
        metadata = {"uid": f"{key}-{self._version}", "namespace": "", **item["metadata"]}
        held[key] = {**item, "metadata": metadata}
        self._tell(plural, kind, held[key])
        return copy.deepcopy(held[key])

    def remove(self, plural: str, key: str) -> None:
        self._tell(plural, "DELETED", self._objects[plural].pop(key))

    def forget(self) -> None:
        """All watches are broken, and none can go on from where it was."""
        self._oldest = self._version = self._version + 100
        self._wake()

    def stop(self) -> None:
        self.down = True
        self._wake()

    def start(self) -> None:
        self.down = False

    def nodes_of_pods(self) -> dict[str, str | None]:
        return {key: pod["spec"].get("nodeName") for key, pod in self._objects.get("pods", {}).items()}

    # The client

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        await self._answering()
        plural, key, _subresource = _parts(path)
        held = self._objects.get(plural, {})
        if key is None:
            metadata = {"resourceVersion": str(self._version)}
            return {"items": copy.deepcopy(list(held.values())), "metadata": metadata}
        if key not in held:
            raise _error(404)
        return copy.deepcopy(held[key])

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._answering()
        plural, key, subresource = _parts(path)
        if subresource == "binding":
            assert key is not None
            self._bind(key, body)
            if self.lose_answers:
                self.lose_answers -= 1
                raise UnreachableError("the answer is lost")
        elif plural == "events":
            self.events.append(body)
        else:
            if self._key(body) in self._objects.get(plural, {}):
                raise _error(409)
            return self.put(plural, dict(body))
        return {}

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._answering()
        plural, key, _subresource = _parts(path)
        held = self._objects.get(plural, {}).get(key or "")
        if held is None:
            raise _error(404)
        if held["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise _error(409)
        return self.put(plural, dict(body))

    async def patch(self, path: str, body: dict[str, Any], _kind: str = "merge") -> dict[str, Any]:
        await self._answering()
        self.conditions[_parts(path)[1] or ""] = body
        return {}

    @asynccontextmanager
    async def lines(
        self, path: str, *, silence: float, **parameters: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._answering()
        version = int(parameters["resourceVersion"])
        if version < self._oldest:
            raise _error(410)
        async with aclosing(self._watch(_parts(path)[0], version)) as lines:
            yield lines

    async def _watch(self, plural: str, version: int) -> AsyncGenerator[bytes]:
        while True:
            more = self._more
            for number, name, kind, item in list(self._log):
                if number > version and name == plural:
                    version = number
                    yield json.dumps({"type": kind, "object": item}).encode()
            if self.down:
                raise UnreachableError("the server is down")
            if version < self._oldest:
                status = {"kind": "Status", "code": 410, "message": "too old resource version"}
                yield json.dumps({"type": "ERROR", "object": status}).encode()
                return
            await more.wait()

    async def _answering(self) -> None:
        await trio.sleep(0.002)
        if self.down:
            raise UnreachableError("the server is down")

    def _bind(self, key: str, body: dict[str, Any]) -> None:
        held = self._objects.get("pods", {}).get(key)
        if held is None:
            raise _error(404)
        if held["metadata"]["uid"] != body["metadata"]["uid"] or held["spec"].get("nodeName"):
            raise _error(409)
        self.bindings.append((key, body["target"]["name"]))
        self.put("pods", {**held, "spec": {**held["spec"], "nodeName": body["target"]["name"]}})

    def _tell(self, plural: str, kind: str, item: dict[str, Any]) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, plural, kind, copy.deepcopy(item)))
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = trio.Event()

    @staticmethod
    def _key(item: dict[str, Any]) -> str:
        namespace = item["metadata"].get("namespace")
        return f"{namespace}/{item['metadata']['name']}" if namespace else str(item["metadata"]["name"])


def _parts(path: str) -> tuple[str, str | None, str]:
    """The plural, the key and the subresource that a path names."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    namespace = ""
    if words[0] == "namespaces" and len(words) > 2:
        namespace, words = words[1], words[2:]
    name = words[1] if len(words) > 1 else None
    key = name if name is None or not namespace else f"{namespace}/{name}"
    return words[0], key, words[2] if len(words) > 2 else ""


def _error(status: int) -> RequestError:
    return RequestError(status, STATUS[status], "")
