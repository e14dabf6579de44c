"""Counters that any number of processes share: a ReplicatedDict inside an application.

Start a cluster with `rota up`, then run this as often as you like, also several at a time:

    python examples/shared_counters.py add visits 10
    python examples/shared_counters.py show

Each `add` counts up one by one with compare-and-set, three tasks at a time; no count is ever lost. The counters are in
the cluster's log: they survive this process, and the loss of hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import urllib.request

import trio

from rota import LogClient, ReplicatedDict, TrioRuntime

TASKS = 3


async def add(counters: ReplicatedDict, name: str, times: int) -> None:
    """Count `name` up by one, `times` times."""
    for _ in range(times):
        while True:
            before = await counters.get(name)
            after = b"%d" % (int(before or 0) + 1)
            if await counters.compare_and_set(name, before, after):
                break


async def main(agents: list[str], name: str | None, times: int) -> None:
    """Add to a counter, if one is named, and print all."""
    async with trio.open_nursery() as nursery:
        # Connections live in this nursery. With a key ring, pass `open_stream`, as rota/agent/node.py does.
        client = LogClient(TrioRuntime(nursery), agents)
        counters = ReplicatedDict(client, "counters")
        if name is not None:
            async with trio.open_nursery() as workers:
                for task in range(TASKS):
                    workers.start_soon(add, counters, name, times // TASKS + (task < times % TASKS))
        for key, value in (await counters.items()).items():
            print(f"{key}: {int(value)}", flush=True)
        nursery.cancel_scope.cancel()


def agents_of(api: str) -> list[str]:
    """The addresses of all agents, as one of them tells over HTTP."""
    with urllib.request.urlopen(f"{api}/v1/members", timeout=10) as answer:
        return [member["address"] for member in json.load(answer)["members"]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="counters shared over a rota cluster")
    parser.add_argument("action", choices=["add", "show"])
    parser.add_argument("name", nargs="?", help="of the counter to add to")
    parser.add_argument("times", nargs="?", type=int, default=1)
    parser.add_argument(
        "--api", default=os.environ.get("ROTA_API", "http://127.0.0.1:7947"), help="HTTP address of any agent"
    )
    given = parser.parse_args()
    if (given.action == "add") != (given.name is not None):
        parser.error("add needs a name, show takes none")
    trio.run(main, agents_of(given.api), given.name, given.times)
