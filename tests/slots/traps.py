"""States of a cluster that are dangerous, made by the engine's own commands: what rota must see and not fall into.

Each is one that an operator, a crash in the middle of a change, or another tool leaves behind.  That they are as
dangerous as they say is tested in `test_traps`: otherwise it would mean nothing that rota does the right thing there.
"""

from __future__ import annotations

from collections.abc import Sequence

from valkey.crc import key_slot

from tests.slots.servers import Fleet, Server, follow, wait_until


def never_synced(stranger: Server, primary: Server) -> None:
    """The replica of another shard becomes one of this primary, which dies before it has sent anything.

    Whoever asks the others only hears of a replica like any other; its own INFO says that the link was never up.
    """
    node_id = primary.node_id
    primary.pause()
    follow(stranger, primary)
    wait_until(lambda: stranger.me().primary_id == node_id, f"{stranger} follows {primary}")
    primary.kill()


def half_moved(source: Server, target: Server, keys: Sequence[str], moved: int) -> int:
    """A slot in the middle of its way, slot by slot as Redis 7 does it: the first ``moved`` keys are gone; returns it.

    All keys are of one slot.
    """
    (slot,) = {key_slot(key.encode()) for key in keys}
    target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.node_id)
    source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)
    if moved:
        move_keys(source, target, keys[:moved])
    return slot


def move_keys(source: Server, target: Server, keys: Sequence[str]) -> None:
    """Their values, from one server to the other."""
    source.call("MIGRATE", target.ip, target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)


def promoted(fleet: Fleet, replica: Server) -> None:
    """The replica takes its shard over, whether its primary lives or not; returns when the others have heard of it."""
    replica.call("CLUSTER", "FAILOVER", "FORCE")
    node_id = replica.node_id
    wait_until(
        lambda: all(server.nodes()[node_id].slots for server in fleet.members()),
        f"all servers know that {replica} has the slots",
    )
