"""An agent and the process that started it: it is told when the agent listens, and the agent ends when it does.

Both go over pipes whose descriptors are in the environment; without them nothing is told, and nothing is noticed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping

import trio

READY_DESCRIPTOR = "ROTA_READY_DESCRIPTOR"
"""Names a pipe on which an agent says where it listens.  So where its HTTP port is taken, any other will do."""
LIFELINE_DESCRIPTOR = "ROTA_LIFELINE_DESCRIPTOR"
"""Names a pipe that nobody writes to: when it ends, whoever started the agent is gone, and so is the agent."""


def is_parent_told() -> bool:
    """Whether somebody waits for :func:`tell_parent`."""
    return os.environ.get(READY_DESCRIPTOR, "").isdigit()


def tell_parent(report: Mapping[str, str]) -> None:
    """One JSON document down the first pipe, which is closed."""
    descriptor = os.environ.pop(READY_DESCRIPTOR, "")
    if descriptor.isdigit():
        with contextlib.suppress(OSError), os.fdopen(int(descriptor), "w") as channel:
            channel.write(json.dumps(report) + "\n")


async def parent_ends() -> None:
    """Returns when the process that started this one is gone, if it wanted that to be noticed."""
    descriptor = os.environ.pop(LIFELINE_DESCRIPTOR, "")
    if not descriptor.isdigit():
        await trio.sleep_forever()
    async with trio.lowlevel.FdStream(int(descriptor)) as lifeline:
        while await lifeline.receive_some():
            pass
