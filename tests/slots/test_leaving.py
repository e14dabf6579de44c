"""A server that gave its copy up is empty and free, and stays so when it is started again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from datastore_adapter.interface import Cancelled, StepGraph
from datastore_adapter.slots.recipient import Recipient
from datastore_adapter.slots.servers import Command
from tests.slots.controllers import Controller, placement, story
from tests.slots.servers import Options, Server, running, wait_until

pytestmark = pytest.mark.engine

SLOTS = {"s00": [(0, 16383)]}


def start_again(server: Server) -> None:
    server.restart()
    wait_until(lambda: server.info("persistence")["loading"] == "0", "it has loaded its files")


@pytest.mark.parametrize("is_durable", [True, False], ids=["log", "snapshot"])
def test_who_left_is_empty_after_a_restart_too(engine: str, is_durable: bool) -> None:
    """Found by `rota chaos run rolling-restart --store valkey`: RESET empties memory only. Started again it had its
    keys back from its files, and took their slots for its own."""
    with running(engine, ["n0", "n1", "n2"], Options(is_durable=is_durable)) as fleet:
        controller = Controller(fleet)

        async def main() -> None:
            await controller.reach(placement({"s00": "n0 n1"}, SLOTS), segments=["s00"], slots=SLOTS)
            data = fleet.fill(300)
            (left,) = fleet.hosts["n1"]
            if not is_durable:
                left.call("SAVE")
            await controller.reach(placement({"s00": "n0 n2"}, SLOTS), segments=["s00"], slots=SLOTS)
            start_again(left)
            assert left.key_count == 0
            assert left.me().slots == ()
            assert (await controller.observed()).notices == ()
            await controller.reach(placement({"s00": "n0 n1 n2"}, SLOTS), segments=["s00"], slots=SLOTS)
            assert left.key_count == 300
            assert fleet.lost(data) == []

        story(controller, main)


def test_who_left_is_empty_though_its_controller_ended_at_that_very_moment(engine: str) -> None:
    """Found by the same, seed 5: the controller left between RESET and what writes the files anew, and the next one
    saw a server that is free and empty."""
    with running(engine, ["n0", "n1", "n2"], Options(is_durable=True)) as fleet:
        controller = Controller(fleet)

        async def main() -> None:
            await controller.reach(placement({"s00": "n0 n1"}, SLOTS), segments=["s00"], slots=SLOTS)
            fleet.fill(300)
            (left,) = fleet.hosts["n1"]
            target = placement({"s00": "n0 n2"}, SLOTS)
            await controller.agree(target, segments=["s00"], slots=SLOTS)
            *before, last = controller.adapter.lower(await controller.observed(), target).steps
            await controller.carry_out(StepGraph(tuple(before)))
            end_after_reset(controller, left.address)
            await controller.adapter.start(last, controller.fence(await controller.observed(), last.number))
            with trio.fail_after(20):
                while len(left.nodes()) > 1:  # noqa: ASYNC110 - it tells nobody
                    await trio.sleep(0.005)
            await controller.adapter.cancel(last)
            assert isinstance(await controller.adapter.poll(last), Cancelled)
            wait_until(lambda: not is_writing(left), "it has written its files")
            start_again(left)
            assert (left.key_count, left.me().slots) == (0, ())

        story(controller, main)


def is_writing(server: Server) -> bool:
    said = server.info("persistence")
    return "1" in (said["aof_rewrite_in_progress"], said["aof_rewrite_scheduled"])


def end_after_reset(controller: Controller, address: str) -> None:
    """What is sent to the server together with RESET is sent, and nothing afterwards."""
    servers = controller.adapter._connections
    call_all = servers.call_all

    async def ends(
        to: str | Recipient, commands: Sequence[Command], timeout: float | None = None
    ) -> list[Any]:
        answers = await call_all(to, commands, timeout)
        is_meant = isinstance(to, Recipient) and to.address == address
        if is_meant and any("RESET" in command for command in commands):
            await trio.sleep_forever()
        return answers

    servers.call_all = ends  # type: ignore[method-assign]
