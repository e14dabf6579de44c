"""Leader election without an election: the leader is a function of the view, and the epoch fences it.

Two commands, each in a terminal of its own:

    python examples/leader_election.py storage
    python examples/leader_election.py members 5

The longest serving member leads and writes to the storage. Every now and then it is cut off from the other
members, but not from the storage: until it notices that it has no majority it does not know that it is deposed, and
goes on writing. The storage refuses it, because it has seen a later epoch. Or stop the trouble (`--trouble 0`) and
kill members yourself.

What this rests on:
- Views are agreed, one per epoch, so no epoch has two leaders. Clocks and time-outs play no part in that.
- The storage accepts no write of an epoch older than the newest that it has accepted a write of. A deposed
  leader can still write before its successor does, never after. So a new leader writes first and reads then.

It uses `rota.aio`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import rota

FIRST_MEMBER = "127.0.0.1:7980"
STORAGE = "127.0.0.1:7990"
PAUSE = 0.1
"""Seconds between two writes of a leader."""


def leader_of(view: rota.Configuration) -> rota.Member:
    """The longest serving member. Everybody who holds this view gives the same answer."""
    return view.by_seniority()[0]


def later_than(epoch: int) -> Callable[[rota.Configuration], bool]:
    """For `wait_for`."""
    return lambda view: view.epoch > epoch


@dataclass
class Register:
    """One stored value that only moves forward through epochs."""

    cluster: str = ""
    epoch: int = -1
    writer: str = ""
    value: Any = None
    accepted: int = 0
    refused: int = 0

    def write(self, cluster: str, epoch: int, writer: str, value: Any) -> str | None:
        """Accept the write, or say why not."""
        refusal = self._refusal(cluster, epoch, writer)
        if refusal is None:
            self.cluster, self.epoch, self.writer, self.value = cluster, epoch, writer, value
            self.accepted += 1
        else:
            self.refused += 1
        return refusal

    def _refusal(self, cluster: str, epoch: int, writer: str) -> str | None:
        if self.cluster and cluster != self.cluster:
            return "another cluster: its epochs cannot be compared with those here"
        if epoch < self.epoch:
            return f"epoch {epoch} is over: {self.writer} has written in epoch {self.epoch}"
        if epoch == self.epoch and writer != self.writer:
            return f"epoch {epoch} belongs to {self.writer}"  # agreement makes sure that this never happens
        return None


class Storage:
    """A register behind a TCP port: one JSON document per line, one line in answer."""

    def __init__(self, register: Register) -> None:
        self.register = register

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it goes."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                before = self.register.epoch
                request = json.loads(line)
                refusal = self.register.write(**request)
                self._tell(request, before, refusal)
                writer.write(json.dumps({"refused": refusal}).encode() + b"\n")
                await writer.drain()

    def _tell(self, request: dict[str, Any], before: int, refusal: str | None) -> None:
        register = self.register
        counts = f"{register.accepted:6d} accepted {register.refused:4d} refused"
        if refusal is not None:
            print(f"{counts}   REFUSED {request['writer']}: {refusal}", flush=True)
        elif register.epoch != before:
            print(f"{counts}   epoch {register.epoch}: {register.writer} writes", flush=True)


async def listen(storage: Storage, address: str) -> asyncio.Server:
    """Serve the storage at `host:port`."""
    where = rota.Address.parse(address, lowest_port=0)
    return await asyncio.start_server(storage.serve, where.host, where.port)


@dataclass
class Team:
    """The members that run in this process."""

    storage: str
    settings: rota.Settings = field(default_factory=rota.Settings.local)
    clusters: dict[str, rota.aio.Cluster] = field(default_factory=dict)
    injectors: dict[str, rota.FaultInjector] = field(default_factory=dict)

    async def run(self, names: list[str], listen: str, seeds: list[str], trouble: float = 0.0) -> None:
        """Be all these members; the first one tells the others where to join."""
        async with asyncio.TaskGroup() as tasks:
            joined = asyncio.Event()
            tasks.create_task(self._member(names[0], listen, seeds, joined))
            await joined.wait()
            seeds = [str(self.clusters[names[0]].me.address)]
            for name in names[1:]:
                tasks.create_task(self._member(name, "127.0.0.1:0", seeds, asyncio.Event()))
            if trouble:
                tasks.create_task(self._make_trouble(trouble))

    async def _member(self, name: str, listen: str, seeds: list[str], joined: asyncio.Event) -> None:
        injector = self.injectors[name] = rota.FaultInjector()
        async with rota.aio.join(
            listen, seeds, name=name, settings=self.settings, faults=injector
        ) as cluster:
            self.clusters[name] = cluster
            joined.set()
            where = cluster.me.address
            print(
                f"{name} is in at {where}: epoch {cluster.view.epoch} of {len(cluster.view)} members",
                flush=True,
            )
            storage = rota.Address.parse(self.storage)
            reader, writer = await asyncio.open_connection(storage.host, storage.port)
            with contextlib.closing(writer):
                await self._lead(name, cluster, reader, writer)

    async def _lead(
        self,
        name: str,
        cluster: rota.aio.Cluster,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Whenever this member leads, as far as it knows: write, in the epoch of the view it knows that by."""
        number = 0
        while True:
            view = await cluster.wait_for(lambda view: leader_of(view) == cluster.me)
            if not cluster.quorum:  # it is cut off, so another one may lead by now
                await asyncio.sleep(PAUSE)
                continue
            number += 1
            request = {
                "cluster": cluster.cluster_id.hex(),
                "epoch": view.epoch,
                "writer": f"{name}/{cluster.me.incarnation.hex()[:4]}",
                "value": number,
            }
            writer.write(json.dumps(request).encode() + b"\n")
            answer = json.loads(await reader.readline())
            if answer["refused"]:
                print(f"{name}: refused, so I do not lead; waiting for a view after {view.epoch}", flush=True)
                await cluster.wait_for(later_than(view.epoch))
            await asyncio.sleep(PAUSE)

    def cut_off(self, name: str) -> None:
        """No member hears this one any more, nor does it hear them. The storage does."""
        others = (member.address for member in self.clusters[name].view.members if member.name != name)
        self.injectors[name].block(others)

    def heal(self, name: str) -> None:
        """The others are within its reach again."""
        self.injectors[name].faults = rota.Faults()

    async def _make_trouble(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            view = max((cluster.view for cluster in self.clusters.values()), key=lambda view: view.epoch)
            name = leader_of(view).name
            if name not in self.clusters:
                continue  # it runs elsewhere
            print(f"{name} leads in epoch {view.epoch} of {len(view)} members; cutting it off", flush=True)
            self.cut_off(name)
            await asyncio.sleep(seconds)
            print(f"{name} can be reached again", flush=True)
            self.heal(name)


async def run_storage(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    server = await listen(Storage(Register()), options.listen)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"storage at {host}:{port}", flush=True)
    async with server:
        await server.serve_forever()


async def run_members(options: argparse.Namespace) -> None:
    """Be members until interrupted."""
    names = [f"{options.name}{number}" for number in range(options.count)]
    await Team(options.storage).run(names, options.listen, options.seed, options.trouble)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    storage = commands.add_parser("storage", help="accept the writes of leaders")
    storage.add_argument("--listen", default=STORAGE)
    storage.set_defaults(run=run_storage)
    members = commands.add_parser("members", help="run members, the oldest of which leads")
    members.add_argument("count", type=int)
    members.add_argument("--name", default="n", help="what their names begin with")
    members.add_argument("--listen", default=FIRST_MEMBER, help="of the first")
    members.add_argument("--seed", action="append", default=[], help="join these instead of founding")
    members.add_argument("--storage", default=STORAGE)
    members.add_argument("--trouble", type=float, default=6.0, help="seconds between troubles; 0: none")
    members.set_defaults(run=run_members)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(options.run(options))


if __name__ == "__main__":
    main()
