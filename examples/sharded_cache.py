"""A cache spread over all members: every key has one owner, which follows from the view alone.

Two commands, each in a terminal of its own:

    python examples/sharded_cache.py nodes 5 --http 8101
    python examples/sharded_cache.py load

Any node answers for any key, `curl -X PUT -d hello http://127.0.0.1:8101/greeting`, then
`curl -i http://127.0.0.1:8103/greeting`: it asks the owner over a service of its transport. In a third terminal,
`python examples/sharded_cache.py nodes 2 --name more --seed 127.0.0.1:8201 --http 8111` adds two nodes, and
Ctrl-C there lets them leave, or `kill -9` lets them fail: only the keys whose owner has changed move.

What this rests on:
- Rendezvous hashing: the owner is the member with the highest hash of (member, key). When a member goes, only
  its keys find new owners; when one comes, it takes an equal share from each.
- Views are agreed. A request names the epoch by which the owner was found; a node that is behind waits for that
  view, one that is ahead says so and the asker follows. Two nodes never own a key in the same view.
- It is a cache: when in doubt a value is forgotten. What a failed member held is gone; what cannot be handed
  over at once is dropped; a node that has missed a view drops everything. Until a node that is cut off notices
  that no majority is within its reach, it may still answer what others have overwritten.

It uses `rota.join` on trio.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import http.client
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trio

import rota

SERVICE = "cache"
ANSWER_TIMEOUT = 10.0
"""Seconds a client waits at most: enough for a failed owner to be replaced."""
HAND_OVER_TIMEOUT = 2.0
"""Seconds a new owner may take to reach the view in which it is one; then the entries are dropped."""
ENTRIES_PER_FRAME = 200


def weight(name: str, key: str) -> bytes:
    """Compared between members, it says who of them is the better owner of a key."""
    return hashlib.blake2b(f"{name}\0{key}".encode(), digest_size=8).digest()


def owner_of(members: Sequence[rota.Member], key: str) -> rota.Member:
    """The one of these members that holds the key."""
    return max(members, key=lambda member: weight(member.name, key))


@dataclass(frozen=True)
class Answer:
    """To a client."""

    status: int
    body: str = ""
    owner: str = ""


class Node:
    """One member's share of the cache."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.view: rota.Configuration | None = None
        self._cluster: rota.Cluster | None = None
        self._next_view = trio.Event()

    # The view

    async def follow(self, cluster: rota.Cluster) -> None:
        """Keep the entries that belong here in the latest view, and hand over the others."""
        self._cluster = cluster
        async with trio.open_nursery() as nursery:
            async for change in cluster.changes():
                moved = self._rehash(change)
                for member, entries in moved.items():
                    nursery.start_soon(self._hand_over, member, entries, change.view.epoch)
                if change.joined or change.left or change.failed or change.evicted:
                    away = sum(map(len, moved.values()))
                    print(
                        f"{cluster.me.name}: view {change.view.epoch} of {len(change.view)}, "
                        f"{len(self.entries)} entries stay, {away} move",
                        flush=True,
                    )

    def _rehash(self, change: rota.Change) -> dict[rota.Member, dict[str, str]]:
        """Take the view; returns the entries that are others' now. Without any waiting, so that nobody asks
        for an entry in between."""
        assert self._cluster is not None
        missed = change.previous is not None and change.view.epoch > change.previous.epoch + 1
        if missed:
            self.entries.clear()  # somebody else may have owned them meanwhile, and changed them
        moved: dict[rota.Member, dict[str, str]] = {}
        for key in list(self.entries):
            owner = owner_of(change.view.members, key)
            if owner.name != self._cluster.me.name:
                moved.setdefault(owner, {})[key] = self.entries.pop(key)
        self.view = change.view
        self._next_view.set()
        self._next_view = trio.Event()
        return moved

    async def _reach(self, epoch: int) -> rota.Configuration:
        """This node's view, at the earliest that of `epoch`."""
        while self.view is None or self.view.epoch < epoch:
            await self._next_view.wait()
        return self.view

    async def _hand_over(self, member: rota.Member, entries: dict[str, str], epoch: int) -> None:
        """Give entries to their new owner, as far as it is there and holds the same view."""
        keys = list(entries)
        with trio.move_on_after(HAND_OVER_TIMEOUT), contextlib.suppress(rota.TransportError):
            for start in range(0, len(keys), ENTRIES_PER_FRAME):
                some = {key: entries[key] for key in keys[start : start + ENTRIES_PER_FRAME]}
                await self._ask(member, {"do": "keep", "epoch": epoch, "entries": some})

    async def hand_over_all(self) -> None:
        """After leaving: give everything to the owners in the view without this node, if nothing else changed."""
        assert self._cluster is not None
        assert self.view is not None
        name = self._cluster.me.name
        rest = [member for member in self.view.members if member.name != name]
        moved: dict[rota.Member, dict[str, str]] = {}
        if rest:
            for key, value in self.entries.items():
                moved.setdefault(owner_of(rest, key), {})[key] = value
        async with trio.open_nursery() as nursery:
            for member, entries in moved.items():
                nursery.start_soon(self._hand_over, member, entries, self.view.epoch + 1)

    # Requests, from other nodes and from clients

    async def serve(self, stream: rota.FrameStream) -> None:
        """The service: one request, one answer."""
        request = json.loads(await stream.receive())
        await stream.send(json.dumps(await self.answer(request)).encode())

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """To a request that found this node by the view of its epoch."""
        view = await self._reach(request["epoch"])
        assert self._cluster is not None
        if request["do"] == "keep":
            if view.epoch == request["epoch"]:
                for key, value in request["entries"].items():
                    if owner_of(view.members, key).name == self._cluster.me.name:
                        self.entries.setdefault(key, value)  # what was put here since is newer
            return {}
        key = request["key"]
        if owner_of(view.members, key).name != self._cluster.me.name:
            return {"moved": view.epoch}
        if request["do"] == "put":
            self.entries[key] = request["value"]
        return {"value": self.entries.get(key)}

    async def handle(self, do: str, key: str, value: str | None = None) -> Answer:
        """A client's request: answered here, or by the owner."""
        epoch = 0
        with trio.move_on_after(ANSWER_TIMEOUT):
            while True:
                view = await self._reach(epoch)
                assert self._cluster is not None
                if not self._cluster.quorum:
                    return Answer(503, "no majority of the members is within reach")
                owner = owner_of(view.members, key)
                request = {"do": do, "epoch": view.epoch, "key": key, "value": value}
                if owner.name == self._cluster.me.name:
                    answer = await self.answer(request)
                else:
                    try:
                        answer = await self._ask(owner, request)
                    except rota.TransportError:
                        answer = {"moved": view.epoch + 1}  # it is gone, which the next view will say
                if "moved" not in answer:
                    found = answer["value"] is not None
                    return Answer(200 if found else 404, answer["value"] if found else "", owner.name)
                epoch = answer["moved"]
        return Answer(504, "the owner of this key does not answer")

    async def _ask(self, member: rota.Member, request: dict[str, Any]) -> dict[str, Any]:
        assert self._cluster is not None
        frame = json.dumps(request).encode()
        async with await self._cluster.transport.open_service(
            member.address, SERVICE, incarnation=member.incarnation, early_frames=[frame]
        ) as stream:
            answer: dict[str, Any] = json.loads(await stream.receive())
            return answer

    # HTTP, as little as curl needs

    async def serve_http(self, stream: trio.SocketStream) -> None:
        """GET and PUT, one request per connection."""
        received = b""
        with contextlib.suppress(trio.BrokenResourceError, ValueError):
            async with stream:
                while b"\r\n\r\n" not in received and (some := await stream.receive_some()):
                    received += some
                head, _, body = received.partition(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                method, path, _ = first.split(" ")
                headers = {
                    name.strip().lower(): value for name, _, value in (x.partition(":") for x in lines)
                }
                while len(body) < int(headers.get("content-length", "0")):
                    body += await stream.receive_some()
                if method in ("GET", "PUT"):
                    answer = await self.handle(method.lower(), path[1:], body.decode())
                else:
                    answer = Answer(405, "GET or PUT")
                text = answer.body.encode()
                await stream.send_all(
                    f"HTTP/1.1 {answer.status} {http.client.responses[answer.status]}\r\nX-Owner: {answer.owner}\r\n"
                    f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode()
                    + text
                )


# The program


async def run_node(
    name: str,
    listen: str,
    seeds: list[str],
    http_listen: str,
    stop: trio.Event,
    task_status: trio.TaskStatus[tuple[Node, rota.Cluster, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """One node, until `stop`; reports itself, its cluster and its HTTP port once it is in."""
    node = Node()
    where = rota.Address.parse(http_listen, lowest_port=0)
    async with (
        rota.join(
            listen, seeds, name=name, settings=rota.Settings.local(), services={SERVICE: node.serve}
        ) as cluster,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(node.follow, cluster)
        listeners = await nursery.start(
            functools.partial(trio.serve_tcp, node.serve_http, where.port, host=where.host)
        )
        task_status.started((node, cluster, listeners[0].socket.getsockname()[1]))
        await stop.wait()
        if await cluster.leave():
            await node.hand_over_all()
        nursery.cancel_scope.cancel()


async def run_nodes(options: argparse.Namespace) -> None:
    """Nodes until Ctrl-C or SIGTERM; then they leave."""
    stop = trio.Event()
    listen, seeds = options.listen, list(options.seed)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            for number in range(options.count):
                name = f"{options.name}{number}"
                address = f"127.0.0.1:{options.http + number if options.http else 0}"
                _, cluster, port = await nursery.start(run_node, name, listen, seeds or [], address, stop)
                print(f"{name}: member at {cluster.me.address}, http://127.0.0.1:{port}/", flush=True)
                listen, seeds = "127.0.0.1:0", seeds or [str(cluster.me.address)]
            async for _ in signals:
                break
            stop.set()


def run_load(options: argparse.Namespace) -> None:
    """Read many keys over and over, each through some node; write those that are missing, as users of caches do."""
    while True:
        statuses: Counter[int] = Counter()
        owners: Counter[str] = Counter()
        begin = time.perf_counter()
        for number in range(options.keys):
            key = f"key-{number}"
            status, owner, body = ask(random.choice(options.http), "GET", key)
            if status == 404:
                ask(random.choice(options.http), "PUT", key, f"value of {key}")
            elif status == 200 and body != f"value of {key}":
                raise SystemExit(f"{key} has the wrong value {body!r}")
            statuses[status] += 1
            owners[owner or "nobody"] += 1
        shares = "  ".join(f"{owner} {count}" for owner, count in sorted(owners.items()))
        took = time.perf_counter() - begin
        print(
            f"{statuses[200]:5d} hits {statuses[404]:5d} misses {statuses.total() - statuses[200] - statuses[404]:3d} "
            f"refused in {took:4.1f} s   {shares}",
            flush=True,
        )


def ask(where: str, method: str, key: str, body: str | None = None) -> tuple[int, str, str]:
    """Status, owner and body of one HTTP request; status 0 when the node does not answer at all."""
    connection = http.client.HTTPConnection(where, timeout=2 * ANSWER_TIMEOUT)
    try:
        connection.request(method, f"/{key}", body)
        response = connection.getresponse()
        return response.status, response.headers["X-Owner"], response.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, "", ""
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    nodes = commands.add_parser("nodes", help="run nodes of the cache")
    nodes.add_argument("count", type=int)
    nodes.add_argument("--name", default="n", help="what their names begin with")
    nodes.add_argument("--listen", default="127.0.0.1:0", help="member address of the first")
    nodes.add_argument("--seed", action="append", default=[], help="join these instead of founding")
    nodes.add_argument("--http", type=int, default=0, help="HTTP port of the first; the others follow")
    nodes.set_defaults(run=lambda options: trio.run(run_nodes, options))
    load = commands.add_parser("load", help="read and write keys through the nodes")
    load.add_argument("--http", action="append", help="address of a node; several times")
    load.add_argument("--keys", type=int, default=500)
    load.set_defaults(run=run_load)
    options = parser.parse_args()
    if options.run is run_load:
        options.http = options.http or [f"127.0.0.1:{port}" for port in range(8101, 8106)]
    elif not options.seed:
        options.listen = options.listen if options.listen != "127.0.0.1:0" else "127.0.0.1:8201"
    with contextlib.suppress(KeyboardInterrupt):
        options.run(options)


if __name__ == "__main__":
    main()
