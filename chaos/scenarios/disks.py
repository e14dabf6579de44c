"""Hosts that come back with less than they had: disk losses in the schedule of any scenario in which hosts come back.

A pure function of a schedule and a source of randomness. What may be lost at a time is bounded elsewhere, while the
cluster runs (`chaos.store.disks`): no schedule knows when a loss has been made good.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from chaos.faults import (
    At,
    CopyDisk,
    Crash,
    DiskLoss,
    Fault,
    Hosts,
    Leave,
    LoseFile,
    Restart,
    RestoreDisk,
    Start,
    WipeDisk,
)

LOSSES: tuple[Callable[[Hosts], DiskLoss], ...] = (WipeDisk, RestoreDisk, LoseFile, LoseFile)
"""Of what happens to a disk one is drawn; there are many files to lose."""
_SHARE = 0.5
"""Of the hosts that come back."""
_COPIED = 0.3
"""Share of the hosts whose disks are copied just before they die; the others' copies are older."""


def with_lost_disks(schedule: Iterable[At], hosts: Hosts, rng: random.Random) -> tuple[At, ...]:
    """The schedule, with copies of these hosts' disks, and with losses on a share of all that come back."""
    planned = tuple(schedule)
    found: list[At] = [At(0.0, CopyDisk(hosts))]
    down: set[str] = set()

    def add(at: At, *faults: Fault) -> None:
        found.extend(At(at.seconds, fault) for fault in faults)

    for at in planned:
        match at.fault:
            case Crash(names) | Leave(names):
                add(at, *(CopyDisk((name,)) for name in names if rng.random() < _COPIED), at.fault)
                down.update(names)
            case Start(names):
                add(at, *_losses([name for name in names if name in down], rng), at.fault)
                down.difference_update(names)
            case Restart(names):
                add(at, Crash(names), *_losses(names, rng), Start(names))
            case _:
                found.append(at)
    return tuple(found) if any(isinstance(at.fault, DiskLoss) for at in found) else planned


def _losses(hosts: Iterable[str], rng: random.Random) -> list[DiskLoss]:
    return [rng.choice(LOSSES)((name,)) for name in hosts if rng.random() < _SHARE]
