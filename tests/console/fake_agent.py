"""An agent's HTTP interface over made-up data: the console's tests drive every state of a cluster with it.

A :class:`rota.http.backend.Backend` whose answers are plain attributes, and the real application over it on a real
socket in a thread.  The test with real agents is ``test_console_live``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, cast

import trio

from membership import Address
from rota.access.access import Access
from rota.errors import ApiError
from rota.http.answers import (
    AllMeasured,
    Engine,
    Event,
    FormerMember,
    HostReport,
    InstalledView,
    Measured,
    Members,
    Status,
    StreamEntry,
    Streams,
    Views,
)
from rota.http.api import build_application
from rota.http.backend import Backend
from rota.http.server import serve
from rota.version import VERSION

POLICIES: list[dict[str, Any]] = [
    {"name": "one_replica_per_rack", "kind": "rule", "tier": None, "weight": 1, "where": "datastore/10_rules.sql:17:1",
     "meaning": "no rack holds two copies of a segment; with fewer racks than copies there is no placement"},
    {"name": "drained_hosts_are_empty", "kind": "rule", "tier": None, "weight": 1,
     "where": "datastore/10_rules.sql:37:1", "meaning": "nothing is placed on a host that is drained"},
    {"name": "fewest_moves", "kind": "minimize", "tier": 2, "weight": 1, "where": "datastore/20_objectives.sql:32:1",
     "meaning": "as few copies move as tier 1 allows: when a host dies, the lost ones"},
]  # fmt: skip


class FakeAgent:
    """``nodes`` hosts in ``racks`` racks with three copies of each of ``segments``, all in order."""

    def __init__(self, nodes: int = 6, racks: int = 3, segments: int = 12) -> None:
        self.began = time.time() - 600
        self.names = [f"n{index + 1}" for index in range(nodes)]
        self.epoch = 1
        self.racks = {name: f"r{index % racks + 1}" for index, name in enumerate(self.names)}
        self.tags: dict[str, dict[str, str]] = {}
        self.engine: Engine | None = None
        self.slots: dict[str, list[list[int]]] = {}
        self.chains = {
            f"s{index:02d}": [self.names[(index * 3 + copy) % nodes] for copy in range(min(3, nodes))]
            for index in range(segments)
        }
        self.state = "member"
        self.quorum = True
        self.control_now: dict[str, Any] = {}
        self.drained: list[str] = []
        self.suspects: list[dict[str, Any]] = []
        self.votes: list[dict[str, Any]] = []
        self.own: list[dict[str, Any]] = []
        self.reason = ""
        self.broken: dict[str, ApiError] = {}
        self.said: list[Event] = []
        self.former: list[FormerMember] = []
        self.silent: list[str] = []
        self.plan: dict[str, Any] = {
            "text": "plan p4-n1: nothing to do", "moves": [], "primaries": [], "roles": [], "slots": [], "dangers": [],
            "feasible": True, "digest": "d0",
        }  # fmt: skip
        self.failed_appends = 0.0
        self.what_if: dict[str, list[str]] = {}
        self.ordered: list[tuple[str, str]] = []
        self.data = FakeStore()
        self.versions: list[dict[str, Any]] = []
        self.installed: dict[str, list[InstalledView]] = {name: [] for name in self.names}
        self.install(self.began, joined=self.names)

    # What happens to it.

    def say(self, kind: str, text: str, at: float | None = None, /, **data: Any) -> None:
        when = time.time() if at is None else at
        self.said.append(
            {"number": len(self.said) + 1, "time": when, "kind": kind, "text": text, "data": data}
        )

    def install(self, at: float, **changes: list[str]) -> None:
        """A view of the present names, installed by everybody within 40 ms."""
        size, identifier = len(self.names), f"{self.epoch:032x}"
        for index, name in enumerate(self.names):
            when = at + 0.04 * index / size
            view: InstalledView = {"time": when, "epoch": self.epoch, "id": identifier, "size": size}
            self.installed.setdefault(name, []).append(view)
        words = "; ".join(f"{kind} {', '.join(names[:12])}" for kind, names in changes.items())
        kinds = ("joined", "left", "evicted", "failed", "restarted", "updated")
        self.say("view", f"view {self.epoch}, {size} members: {words}", at, epoch=self.epoch, id=identifier, size=size,
                 **{kind: changes.get(kind, []) for kind in kinds})  # fmt: skip

    def lose(self, name: str, at: float | None = None) -> None:
        self.names.remove(name)
        self.installed.pop(name)
        self.suspects, self.votes, self.reason = [], [], ""
        self.epoch += 1
        when = time.time() if at is None else at
        self.install(when, failed=[name])
        tags = {"rack": self.racks[name]}
        gone: FormerMember = {
            "name": name, "address": "10.0.0.9:7946", "how": "failed", "time": when, "epoch": self.epoch, "tags": tags,
        }  # fmt: skip
        self.former.insert(0, gone)

    def suspect(
        self, name: str, accusers: list[str], tally: int, standing: str = "unstable", request: str = ""
    ) -> None:
        rings = [{"name": each, "rings": [index]} for index, each in enumerate(accusers)]
        self.suspects.append({"name": name, "reports": len(accusers), "tally": tally, "standing": standing,
                              "request": request, "accusers": rings, "age": 0.7})  # fmt: skip

    # What it answers.

    def _check(self, what: str) -> None:
        if what in self.broken:
            raise self.broken[what]

    async def look(self) -> None:
        pass

    def status(self) -> Status:
        control = self._control()
        return {
            "name": self.names[0], "address": "127.0.0.1:7946", "state": self.state, "cluster_id": "c0" * 16,
            "epoch": self.epoch, "id": f"{self.epoch:032x}", "size": len(self.names), "quorum": self.quorum,
            "silent": self.silent, "former": self.former,
            "controller": control["controller"], "layout_epoch": 3, "open_moves": 0, "control": control,
            "version": VERSION, "recoveries": [], "solver": None,
            "keys": None, "dropped": {}, "statistics": {}, "engine": self.engine,
        }  # fmt: skip

    def members(self) -> Members:
        self._check("members")
        return {
            "epoch": self.epoch, "id": f"{self.epoch:032x}", "cluster_id": "c0" * 16,
            "members": [
                {"name": name, "address": f"10.0.0.{index + 1}:7946", "state": "member", "incarnation": "00" * 16,
                 "joined_epoch": 1, "place": (index * 7) % len(self.names),
                 "http": f"http://10.0.0.{index + 1}:7947", "version": VERSION,
                 "tags": {"capacity": "1000", "rack": self.racks[name], **self.tags.get(name, {})}}
                for index, name in enumerate(self.names)
            ],
        }  # fmt: skip

    def suspicions(self) -> dict[str, Any]:
        self._check("suspicions")
        return {
            "agent": self.names[0], "epoch": self.epoch, "size": len(self.names), "rings": 10, "high": 9, "low": 3,
            "suspects": self.suspects, "joiners": [], "joiners_in_all": 0, "votes": self.votes,
            "fast_quorum": len(self.names) - (len(self.names) - 1) // 4, "classic_quorum": len(self.names) // 2 + 1,
            "classic_round": False, "own": self.own, "reason": self.reason, "silent": [],
        }  # fmt: skip

    async def views(self) -> Views:
        some = dict(list(self.installed.items())[:100])
        return {"size": len(self.names), "asked": len(some), "silent": [], "members": some}

    def _measured(self, index: int) -> Measured:
        """40 minutes of them."""
        waves = [math.sin(index + each / 30) for each in range(240)]
        return {
            "interval": 10.0, "end": time.time(), "series": {
                "records": [None, *(round(40 + 20 * wave, 1) for wave in waves[1:])],
                "failed_appends": [self.failed_appends] * 240,
                "sync_seconds": [0.002 + 0.001 * wave for wave in waves],
                "disk_free": [6e10 + 1e9 * index] * 240, "disk_total": [1e11] * 240,
            },
        }  # fmt: skip

    async def measured(self) -> AllMeasured:
        self._check("measured")
        told = {name: self._measured(index) for index, name in enumerate(self.names[:16])}
        return {"size": len(self.names), "asked": len(told), "silent": [], "members": told}

    async def host(self, name: str) -> HostReport:
        self._check(f"host {name}")
        if name not in self.names:
            raise ApiError(f"no host {name!r} is in the view", code="unknown_host", status=404)
        held = [key for key, chain in self.chains.items() if name in chain]
        return {
            "name": name, "version": VERSION, "address": f"10.0.0.{self.names.index(name) + 1}:7946",
            "started": self.began, "time": time.time(),
            "disk": {"state": "ok", "reason": "", "sync_seconds": 0.0021}, "engine": self.engine,
            "space": {"free": 60_000_000_000, "total": 100_000_000_000},
            "held": {"bytes": 4000 * len(held), "records": 50 * len(held),
                     "segments": [{"key": key, "bytes": 4000, "records": 50} for key in held]},
            "measured": self._measured(self.names.index(name)),
        }  # fmt: skip

    def local_events(self, after: int) -> list[Event]:
        return self.said[after:]

    async def events(self, after: int) -> dict[str, Any]:
        return {"agent": self.names[0], "events": self.said[after:]}

    async def follow(self, after: int) -> AsyncIterator[Event]:
        while True:
            for event in self.said[after:]:
                after = event["number"]
                yield event
            await trio.sleep(0.05)

    def is_ready(self) -> bool:
        return True

    def _control(self) -> Any:
        solve = {"status": "optimal", "seconds": 0.16, "text": "optimal in 0.16 s", "gap": 0.0, "asked": "",
                 "seconds_ago": 12.0, "objectives": [
                     {"name": "fewest_moves", "tier": 2, "before": 0, "after": 0, "bound": 0}]}  # fmt: skip
        return {
            "role": "controller", "controller": self.names[0], "view_epoch": self.epoch, "layout_epoch": 3,
            "phase": "settled", "settled": True, "open_moves": 0, "plan": None, "plan_id": None, "progress": None,
            "paused": False, "frozen": {}, "pins": [], "disks": [],
            "last_solve": solve, "last_error": "", "rack_violations": 0, "under_replicated": 0, "drains": {},
            "statistics": {}, **self.control_now,
        }  # fmt: skip

    def _layout(self) -> dict[str, Any]:
        segments = [
            {"key": key, "bytes": 100, "slots": self.slots.get(key, []), "replicas": [
                {"host": host, "rack": self.racks.get(host, ""), "position": position, "bytes": 100, "lag": 0,
                 "role": "replica" if position else "primary", "state": "in_sync" if host in self.names else "gone"}
                for position, host in enumerate(chain)]}
            for key, chain in self.chains.items()
        ]  # fmt: skip
        roles = {"layout_servers": self.names[:3], "sequencers": self.names[1:2], "log_units": self.names}
        return {"layout_epoch": 3, "replication_factor": 3, "segments": segments, "roles": roles,
                "drained": self.drained, "unresponsive": [], "rack_violations": 0, "under_replicated": 0}  # fmt: skip

    async def control(self, request: str, arguments: dict[str, Any]) -> Any:
        self._check(request)
        match request:
            case "control":
                return self._control()
            case "layout":
                return self._layout()
            case "why":
                return {"lines": [f"{arguments['name']} is where it is"], "possible": True, "error": ""}
            case "history":
                return {"layout_epoch": 3, "versions": self.versions}
            case "plan":
                return self.plan
            case "what-if":
                if arguments["sql"] in self.what_if:
                    return {"lines": self.what_if[arguments["sql"]], "possible": True, "error": ""}
                return {
                    "lines": ["no placement"],
                    "possible": False,
                    "error": "it would break one_replica_per_rack",
                }
            case "apply-shown" if arguments["digest"] != self.plan["digest"]:
                raise ApiError("it is another plan", code="plan_changed", status=409)
            case "drain" | "undrain" | "pause" | "resume" | "apply" | "apply-shown":
                self.ordered.append((request, arguments.get("host", "")))
                return {"plan_id": "p4-n1", "moves": 6, "bytes": 0, "waves": 1}
            case "policies":
                return {"pack": "datastore", "policies": POLICIES}
        raise ApiError(f"{request} is not made up here", code="bad_request", status=400)

    async def keys(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def operate(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def answered(self) -> None: ...

    def record(self, kind: str, text: str, data: Mapping[str, Any]) -> None:
        self.say(kind, text, None, **data)

    def store(self) -> FakeStore:
        self._check("store")
        return self.data


class FakeStore:
    """Streams and maps, by name."""

    def __init__(self) -> None:
        self.records: dict[str, list[bytes]] = {}
        self.maps: dict[str, dict[str, bytes]] = {}
        self.are_long = False

    async def streams(self, *, only_names: bool = False) -> Streams:
        def told(data: Mapping[str, Sized]) -> list[StreamEntry]:
            return [{"name": name, "records": len(of), "bytes": 50 * len(of)} for name, of in data.items()]

        return {"streams": told(self.records), "maps": told(self.maps), "left_off": 0}

    async def read(
        self, stream: str, address: int | None, limit: int, start: int | None = None, most: int | None = None
    ) -> dict[str, Any]:
        found = list(enumerate(self.records.get(stream, ())))[-limit:]
        return {
            "stream": stream,
            "records": [{"address": number, **_text(value, most)} for number, value in found],
            "more": self.are_long,
        }

    async def entries(
        self, name: str, limit: int, most: int | None = None, after: str | None = None
    ) -> dict[str, Any]:
        found = self.maps.get(name, {})
        shown = [{"key": key, **_text(value, most)} for key, value in list(found.items())[:limit]]
        return {"map": name, "keys": len(found), "entries": shown}


def _text(value: bytes, most: int | None) -> dict[str, Any]:
    head = value[:most]
    return {"text": head.decode("utf-8", "replace"), "hex": head.hex(), "bytes": len(value)}


class Server:
    """Where it answers; ``stop`` ends it as a killed agent would, ``start`` has it back at the same address."""

    def __init__(self, agent: FakeAgent, access: Access) -> None:
        self.access = access
        self._application = build_application(cast(Backend, agent), access)
        self.address = Address("127.0.0.1", 0)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self.access.tls is None else 'https'}://{self.address}/"

    def start(self) -> None:
        ready = threading.Event()

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                self.address = await nursery.start(serve, self._application, self.address, self.access)
                self._token, self._scope = trio.lowlevel.current_trio_token(), nursery.cancel_scope
                ready.set()

        self._thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
        self._thread.start()
        assert ready.wait(30)

    def stop(self) -> None:
        if self._thread is not None:
            self._token.run_sync_soon(self._scope.cancel)
            self._thread.join(30)
            assert not self._thread.is_alive()
            self._thread = None


@contextmanager
def served(agent: FakeAgent, access: Access | None = None) -> Iterator[Server]:
    server = Server(agent, access or Access())
    server.start()
    try:
        yield server
    finally:
        server.stop()
