"""A server that gave its copy up is empty and free, and stays so when it is started again."""

from __future__ import annotations

import pytest

from tests.slots.controllers import Controller, placement, story
from tests.slots.servers import Options, running, wait_until

pytestmark = pytest.mark.engine

SLOTS = {"s00": [(0, 16383)]}


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
            left.restart()
            wait_until(lambda: left.info("persistence")["loading"] == "0", "it has loaded its files")
            assert left.key_count == 0
            assert left.me().slots == ()
            assert (await controller.observed()).notices == ()
            await controller.reach(placement({"s00": "n0 n1 n2"}, SLOTS), segments=["s00"], slots=SLOTS)
            assert left.key_count == 300
            assert fleet.lost(data) == []

        story(controller, main)
