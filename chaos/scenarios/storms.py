"""Random faults for hours: `storm`.

One fault after the other, some while the last one is still being repaired, drawn by the seed from all that can befall
hosts, links and disks; a majority is always left alone. `rota chaos fuzz` hurts members faster than any store could
follow, for a minute or two.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from chaos.faults import (
    At,
    Block,
    ClearDisk,
    Crash,
    CutPowerAfter,
    Delay,
    DropEgress,
    DropIngress,
    ExceedQuota,
    FailCall,
    Fault,
    FillDisk,
    Heal,
    Hosts,
    Leave,
    Loss,
    MendDisk,
    Partition,
    Pause,
    Restart,
    Resume,
    ShortWrites,
    SlowDisk,
    Start,
    SwapAddresses,
    Unblock,
    in_order,
)
from chaos.scenarios.model import AGREEMENT, CAME_BACK, Plan, Scenario, ScenarioContext

_CALM = 180.0
"""Seconds between two faults, on average, when the second waits for the first to be over ..."""
_HASTE = 0.3
"""... which this share of them does not: they come within seconds, while hosts are removed, repaired or back."""
_LONGEST = 60.0
"""Seconds that a fault lasts at most."""
_QUIET = 90.0
"""Seconds at the end in which nothing more happens."""
_BACK = 15.0
"""Seconds after a fault within which whom it removed is in the view again: until then one more that is hurt is one less
of a smaller view, and two of four are no majority any more."""
_DRAINED = 8.0
"""Seconds within which one that leaves has ended."""

_CALLS = ("fdatasync", "fsync", "pwrite")
"""On files, that fail."""

_FaultKind = Callable[[random.Random, Hosts, Hosts], tuple[Fault, tuple[Fault, ...]]]
"""Of hosts to hurt and the others: what begins, and what ends it, in order. What a backend cannot do it leaves out."""

_FAULT_KINDS: tuple[tuple[float, _FaultKind], ...] = (
    (4.0, lambda rng, hurt, others: (Crash(hurt), (Start(hurt),))),
    (2.0, lambda rng, hurt, others: (Leave(hurt[:1]), (Start(hurt[:1]),))),
    (2.0, lambda rng, hurt, others: (Restart(hurt), ())),
    (2.0, lambda rng, hurt, others: (Pause(hurt), (Resume(hurt),))),
    (2.0, lambda rng, hurt, others: (Partition((hurt,)), (Heal(),))),
    (1.0, lambda rng, hurt, others: (Block(hurt[0], others[0]), (Unblock(hurt[0], others[0]),))),
    (1.0, lambda rng, hurt, others: (DropIngress(_share(rng), hurt), (DropIngress(0.0, hurt),))),
    (1.0, lambda rng, hurt, others: (DropEgress(_share(rng), hurt), (DropEgress(0.0, hurt),))),
    (1.0, lambda rng, hurt, others: (Loss(rng.choice((0.02, 0.1))), (Loss(0.0),))),
    (1.0, lambda rng, hurt, others: (Delay(rng.choice((0.02, 0.2)), hurt), (Delay(0.0, hurt),))),
    (1.0, lambda rng, hurt, others: (FillDisk(hurt), (ClearDisk(hurt),))),
    (1.0, lambda rng, hurt, others: (ExceedQuota(hurt), (MendDisk(hurt),))),
    (1.0, lambda rng, hurt, others: (SlowDisk(rng.choice((0.5, 2.0)), hurt), (SlowDisk(0.0, hurt),))),
    (1.0, lambda rng, hurt, others: (ShortWrites(rng.choice((0.3, 1.0)), hurt), (ShortWrites(0.0, hurt),))),
    (1.0, lambda rng, hurt, others: (FailCall("EIO", rng.choice(_CALLS), hurt), (MendDisk(hurt),))),
    (1.0, lambda rng, hurt, others: (CutPowerAfter(rng.randint(0, 60), hurt), (MendDisk(hurt), Start(hurt)))),
    (1.0, lambda rng, hurt, others: (Crash(hurt), (*_swaps(hurt), Start(hurt)))),
)


def _swaps(hurt: Hosts) -> tuple[Fault, ...]:
    """They come back at each other's addresses, by twos."""
    return tuple(map(SwapAddresses, hurt[::2], hurt[1::2]))


def _share(rng: random.Random) -> float:
    return rng.choice((0.3, 0.8, 1.0))


def _storm(context: ScenarioContext) -> Plan:
    rng, schedule = context.rng, []
    names = [f"n{number}" for number in range(context.nodes)]
    most = max(1, (context.nodes - 1) // 2)
    free_at = dict.fromkeys(names, 0.0)
    now = 1.0
    while now < context.duration - _QUIET - _LONGEST:
        free = [name for name in names if free_at[name] <= now]
        room = most - (len(names) - len(free))
        if room > 0:
            rng.shuffle(free)
            count = rng.randint(1, room)
            way = rng.choices([way for _, way in _FAULT_KINDS], [weight for weight, _ in _FAULT_KINDS])[0]
            begins, ends = way(rng, tuple(sorted(free[:count])), tuple(free[count:]))
            over = round(now + rng.uniform(_DRAINED, _LONGEST), 3)
            schedule.append(At(now, begins))
            schedule += (At(over, fault) for fault in ends)
            free_at.update(dict.fromkeys(free[:count], over + _BACK))
        calm = max(free_at.values()) + rng.expovariate(1 / _CALM)
        now = round(now + rng.uniform(0.5, 20.0) if rng.random() < _HASTE else max(now, calm) + 1.0, 3)
    return Plan(tuple(names), in_order(schedule))


SCENARIOS = (
    Scenario(
        name="storm",
        summary="one random fault after the other, of hosts, links and disks, for as long as you like: nothing is lost",
        promises=(AGREEMENT, CAME_BACK),
        duration=3600.0,
        minimum_duration=_QUIET + 2 * _LONGEST,
        plan=_storm,
        faulty=lambda nodes: max(1, (nodes - 1) // 2),
        minimum_nodes=5,
        leaps=True,
        needs_store=True,
    ),
)
