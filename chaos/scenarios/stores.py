"""Scenarios that need a store: `kill-host`, `kill-two`, `kill-sequencer`, `kill-controller`, `rack-loss`,
`disk-full`, `disk-fails`, `disk-slow`, `lost-disks`.

Source: `shared/spec-datastore.md`, sections 2 and 4: what may be lost and what must go on.
"""

from __future__ import annotations

from chaos.faults import At, ClearDisk, CopyDisk, Crash, FailCall, FillDisk, Hosts, SlowDisk, Start
from chaos.scenarios.disks import LOSSES
from chaos.scenarios.model import (
    AGREEMENT,
    CAME_BACK,
    CONVERGED,
    EXACTLY_THE_FAULTY,
    NO_CHANGE,
    NOT_READDED,
    ONE_CHANGE,
    ONE_PLAN_EACH,
    Outcome,
    Plan,
    Promise,
    Scenario,
    ScenarioContext,
)

_ANY_MOMENT = 20.0
"""Seconds within which `kill-host` strikes: from the first placement on, until well after it."""
_FOUNDER = "n0"
_FOUNDED = 10.0
"""Seconds by which the first placement is done."""
_LONGEST_PAUSE = 20.0
"""Seconds that writers may wait at most when two hosts die: for their removal, and for the next layout."""
_RACK_AWAY = 40.0
"""Seconds that a rack is down: much longer than its removal and the repair after it."""
_DISK_FULL = 30.0
"""Seconds that a disk is full."""
_LONGEST_PAUSE = 10.0
"""Seconds between two writes while a host is relieved whose disk has failed, or is slow."""
_SLOW = 2.0
"""Seconds that a sync takes on a slow disk."""
_DEAD = 10.0
"""Seconds from the death of a host of `lost-disks` to its return ..."""
_MADE_GOOD = 40.0
"""... and from one death to the next: what was lost is made good by then."""
_KILLED = (AGREEMENT, CONVERGED, EXACTLY_THE_FAULTY, NOT_READDED, ONE_CHANGE, ONE_PLAN_EACH)


def _kill(victim: str, at: float = 0.0) -> Plan:
    return Plan((victim,), (At(at, Crash((victim,))),))


def _any_host(context: ScenarioContext) -> Plan:
    """Any one, also while everything is placed for the first time; but until that is done, what is wanted stands on
    the founder's disk alone."""
    victim = context.choose_faulty()[0]
    first = _FOUNDED if victim == _FOUNDER else 0.0
    return _kill(victim, round(context.rng.uniform(first, _ANY_MOMENT), 3))


def _two_hosts(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, Crash(faulty)),))


def _rack(context: ScenarioContext) -> Plan:
    faulty: Hosts = context.store.hosts_in(context.rng.choice(sorted(set(context.store.racks.values()))))
    return Plan(faulty, (At(0.0, Crash(faulty)), At(_RACK_AWAY, Start(faulty))))


def _disk(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, FillDisk(faulty)), At(_DISK_FULL, ClearDisk(faulty))))


def _failing_disk(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, FailCall("EIO", "fdatasync", faulty)),))


def _slow_disk(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, SlowDisk(_SLOW, faulty)),))


def _lost_disks(context: ScenarioContext) -> Plan:
    """One after the other, in an order drawn by the seed; so is what each one has lost when it comes back."""
    faulty = context.rng.sample(context.choose_faulty(), context.faulty)
    schedule = [At(0.0, CopyDisk(tuple(faulty)))]
    for number, name in enumerate(faulty):
        death = number * _MADE_GOOD
        loss = context.rng.choice(LOSSES)((name,))
        schedule += [At(death, Crash((name,))), At(death + _DEAD, loss), At(death + _DEAD, Start((name,)))]
    return Plan(tuple(sorted(faulty)), tuple(schedule))


def _all_disks_lost(outcome: Outcome) -> bool:
    return outcome.store is not None and outcome.store.lost_disks == len(outcome.faulty)


def _removed_together(outcome: Outcome) -> bool:
    removals = [set(view.removed) for view in outcome.views if view.removed]
    return removals == [set(outcome.faulty)]


def _repaired_meanwhile(outcome: Outcome) -> bool:
    store = outcome.store
    return store is not None and store.repair_seconds is not None and store.repair_seconds < _RACK_AWAY


def _written_on(outcome: Outcome) -> bool:
    return outcome.store is not None and outcome.store.longest_write_pause < _LONGEST_PAUSE


def _repaired(outcome: Outcome) -> bool:
    return outcome.store is not None and outcome.store.repair_seconds is not None


def _written_meanwhile(outcome: Outcome) -> bool:
    store = outcome.store
    return store is not None and store.longest_write_pause < _RACK_AWAY / 2


def _hardly_paused(outcome: Outcome) -> bool:
    return outcome.store is not None and outcome.store.longest_write_pause <= _LONGEST_PAUSE


def _fast_in_the_end(outcome: Outcome) -> bool:
    return outcome.store is not None and outcome.store.last_write_pause < _SLOW / 2


_HARDLY_PAUSED = Promise(f"writes pause for {_LONGEST_PAUSE:g} s at most", _hardly_paused)
_GREY = (
    AGREEMENT,
    CONVERGED,
    NO_CHANGE,
    _HARDLY_PAUSED,
    Promise("in the end nobody waits for that disk", _fast_in_the_end),
)

SCENARIOS = (
    Scenario(
        name="kill-host",
        summary="any one host is killed at any moment: one view change, one plan, nothing lost",
        promises=_KILLED,
        duration=60.0,
        minimum_duration=_ANY_MOMENT + 20.0,
        plan=_any_host,
        faulty=lambda nodes: 1,
        minimum_nodes=4,
        needs_store=True,
        waits_for_placement=False,
        runs_with_servers=True,
    ),
    Scenario(
        name="kill-two",
        summary="any two hosts are killed at the same moment: writes go on, all copies are made again, nothing lost",
        promises=(
            AGREEMENT,
            CONVERGED,
            EXACTLY_THE_FAULTY,
            NOT_READDED,
            Promise("writes go on", _written_on),
            Promise("the copies are made again on the hosts that are left", _repaired),
        ),
        duration=60.0,
        minimum_duration=_LONGEST_PAUSE + 20.0,
        plan=_two_hosts,
        faulty=lambda nodes: 2,
        minimum_nodes=6,
        needs_store=True,
    ),
    Scenario(
        name="kill-sequencer",
        summary="the host that hands out the log's addresses is killed: another does, none twice, nothing lost",
        promises=_KILLED,
        duration=60.0,
        minimum_duration=20.0,
        plan=lambda context: _kill(context.store.sequencer),
        faulty=lambda nodes: 1,
        minimum_nodes=4,
        needs_store=True,
    ),
    Scenario(
        name="kill-controller",
        summary="the host that decides placements is killed: the next in line repairs what it held, nothing lost",
        promises=_KILLED,
        duration=60.0,
        minimum_duration=20.0,
        plan=lambda context: _kill(context.store.controller),
        faulty=lambda nodes: 1,
        minimum_nodes=4,
        needs_store=True,
        runs_with_servers=True,
    ),
    Scenario(
        name="rack-loss",
        summary="a whole rack dies for 40 s: reads and writes go on, repaired in the other racks, spread again after",
        promises=(
            AGREEMENT,
            Promise("one view change removes the rack, and nobody else", _removed_together),
            CAME_BACK,
            Promise("the copies are made again in the racks that are left", _repaired_meanwhile),
            Promise("writes go on while the rack is away", _written_meanwhile),
        ),
        duration=100.0,
        minimum_duration=_RACK_AWAY + 30.0,
        plan=_rack,
        faulty=lambda nodes: (nodes + 2) // 3,
        minimum_nodes=6,
        needs_store=True,
        runs_with_servers=True,
    ),
    Scenario(
        name="disk-full",
        summary="disks are full for 30 s: their hosts stay members, nothing is lost, all is written afterwards",
        promises=(AGREEMENT, CONVERGED, NO_CHANGE, _HARDLY_PAUSED),
        duration=60.0,
        minimum_duration=_DISK_FULL + 20.0,
        plan=_disk,
        faulty=lambda nodes: 1,
        minimum_nodes=4,
        needs_store=True,
    ),
    Scenario(
        name="disk-fails",
        summary="a sync fails once: the host stays a member and is relieved, writes go on, nothing is lost",
        promises=_GREY,
        duration=60.0,
        minimum_duration=40.0,
        plan=_failing_disk,
        faulty=lambda nodes: 1,
        minimum_nodes=4,
        needs_store=True,
    ),
    Scenario(
        name="disk-slow",
        summary="each sync of a disk takes 2 s: the host stays a member and is relieved, writers are fast again after",
        promises=_GREY,
        duration=60.0,
        minimum_duration=60.0,
        plan=_slow_disk,
        faulty=lambda nodes: 1,
        minimum_nodes=4,
        needs_store=True,
    ),
    Scenario(
        name="lost-disks",
        summary="hosts die and come back with empty disks, old copies or a file gone, one by one: nothing is lost",
        promises=(
            AGREEMENT,
            CAME_BACK,
            Promise("each has lost something of its disk, the one before being made good", _all_disks_lost),
        ),
        duration=60.0,
        minimum_duration=_MADE_GOOD,
        seconds_per_faulty=_MADE_GOOD,
        plan=_lost_disks,
        faulty=lambda nodes: nodes,
        minimum_nodes=4,
        needs_quorum=False,
        needs_store=True,
    ),
)
