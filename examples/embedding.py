"""Three members in one process: they meet, one vanishes, and the others agree that it is gone.

Run it with `python examples/embedding.py`. In an application each member is a process of its own.
"""

from typing import Any

import trio

import rota

SETTINGS = rota.Settings.local()  # short intervals: a dead member is removed in about two seconds


async def run_member(
    name: str, seeds: list[str], lifetime: float, options: Any, task_status: trio.TaskStatus[str]
) -> None:
    """Be a member for `lifetime` seconds and print every view; then vanish without a word."""
    with trio.move_on_after(lifetime):
        async with rota.join("127.0.0.1:0", seeds, name=name, settings=SETTINGS, **options) as cluster:
            task_status.started(str(cluster.me.address))
            async for change in cluster.changes():
                members = ", ".join(sorted(member.name for member in change.view.members))
                failed = "".join(f"; {member.name} failed" for member in change.failed)
                print(f"{name}: view {change.view.epoch}: {members}{failed}", flush=True)


async def main(**options: Any) -> None:
    """Start three members; cleo lives shortest."""
    async with trio.open_nursery() as nursery:
        first = await nursery.start(run_member, "ada", [], 10, options)
        await nursery.start(run_member, "ben", [first], 10, options)
        await nursery.start(run_member, "cleo", [first], 4, options)


if __name__ == "__main__":
    trio.run(main)
