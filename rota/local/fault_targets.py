"""Whom to kill in a local cluster, by what it does there: for the demo and the fault tests."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rota.local.cluster import LocalCluster

KILLABLE: Final = ("random", "controller", "sequencer", "head")


async def choose_fault_target(cluster: LocalCluster, kill: str, chance: Random) -> tuple[str, list[str]]:
    """The name of the host that ``kill`` (one of `KILLABLE`) means now, and all it does, in words.

    Raises :class:`ApiError` when the agent asked does not answer.
    """
    agents = cluster.live()
    layout = await agents[0].get("/v1/layout")
    status = await agents[0].get("/v1/status")
    heads = {segment["replicas"][0]["host"] for segment in layout["segments"]}
    controller, sequencer = status["controller"], next(iter(layout["roles"]["sequencers"]), None)
    plain_heads = sorted(heads - {controller, sequencer})
    victims = {
        "controller": controller,
        "sequencer": sequencer,
        "head": (plain_heads or sorted(heads))[0],
        "random": chance.choice([agent.name for agent in agents]),
    }
    name = victims[kill]
    held = [role for role in ("controller", "sequencer") if victims[role] == name]
    if name in layout["roles"]["layout_servers"]:
        held.append("layout server")
    if name in heads:
        held.append("primary" if cluster.plan.store != "log" else "chain head")
    return name, held
