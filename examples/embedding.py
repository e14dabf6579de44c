"""Three members in one process: they meet, one vanishes, and the others agree that it is gone.

Run it with `python examples/embedding.py`. In an application each member is a process of its own.
"""

from typing import Any

import trio

import membership

FIRST = "127.0.0.1:7956"
SETTINGS = membership.Settings.local()  # short intervals: a dead member is removed in about two seconds


async def run_member(name: str, listen: str, seeds: list[str], lifetime: float, options: Any) -> None:
    """Be a member for `lifetime` seconds and print every view; then vanish without a word."""
    with trio.move_on_after(lifetime):
        async with membership.join(listen, seeds, name=name, settings=SETTINGS, **options) as cluster:
            async for change in cluster.changes():
                members = ", ".join(sorted(member.name for member in change.view.members))
                failed = "".join(f"; {member.name} failed" for member in change.failed)
                print(f"{name}: view {change.view.epoch}: {members}{failed}", flush=True)


async def main(**options: Any) -> None:
    """Start three members; cleo lives shortest."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_member, "ada", FIRST, [], 10, options)
        nursery.start_soon(run_member, "ben", "127.0.0.1:7957", [FIRST], 10, options)
        nursery.start_soon(run_member, "cleo", "127.0.0.1:7958", [FIRST], 4, options)


if __name__ == "__main__":
    trio.run(main)
