"""Scenarios in which something is wrong with processes rather than with the network: `pause`, `slow-node`,
`clock-jump`, `rolling-restart`.

Source: *Stable and Consistent Membership at Scale with Rapid*, section 2, for hosts that work, but not all the
time: they must not make a healthy host leave.
"""

from __future__ import annotations

from chaos.faults import At, JumpClock, Leave, Pause, Resume, Start, starve
from chaos.scenarios.model import (
    AGREEMENT,
    CAME_BACK,
    CONVERGED,
    NO_CHANGE,
    NOBODY_HEALTHY,
    NOT_READDED,
    Outcome,
    Plan,
    Promise,
    Scenario,
    ScenarioContext,
)

_ASLEEP = 30.0
"""Seconds that a paused process stands still: a long garbage collection, a machine that swaps, a live migration."""
_SHARE = 0.1
_PERIOD = 2.0
"""A starved process runs for a fifth of a second, then waits for 1.8 s."""
_JUMP = 3600.0
_REST = 30.0
"""Seconds at the end of `slow-node` in which everything is well again."""
_BETWEEN = 10.0
"""Seconds from one restart to the next ..."""
_DOWN = 6.0
"""... of which the host is away this long: a leave takes five at most."""
_QUIET = 20.0


def _pause(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, Pause(faulty)), At(_ASLEEP, Resume(faulty))))


def _slow(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, starve(faulty, share=_SHARE, period=_PERIOD, until=context.duration - _REST))


def _jump(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, JumpClock(_JUMP, faulty)),))


def _rolling(context: ScenarioContext) -> Plan:
    """One process after the other leaves and is started again, as when a new version is rolled out."""
    faulty = context.choose_faulty()
    schedule: list[At] = []
    for number, name in enumerate(faulty):
        schedule.append(At(number * _BETWEEN, Leave((name,))))
        schedule.append(At(number * _BETWEEN + _DOWN, Start((name,))))
    return Plan(faulty, tuple(schedule))


def _removed_asleep(outcome: Outcome) -> bool:
    removed = [name for view in outcome.views if view.seconds < _ASLEEP for name in view.removed]
    return sorted(removed) == sorted(outcome.faulty)


def _nobody_lost_quorum(outcome: Outcome) -> bool:
    return all(notice.host in outcome.faulty for notice in outcome.notices)


def _two_changes_each(outcome: Outcome) -> bool:
    return len(outcome.views) <= 2 * len(outcome.faulty)


SCENARIOS = (
    Scenario(
        name="pause",
        summary="processes stand still for 30 s (SIGSTOP): removed meanwhile, they rejoin by themselves afterwards",
        promises=(
            AGREEMENT,
            NOBODY_HEALTHY,
            Promise("those that stand still are removed meanwhile, once", _removed_asleep),
            CAME_BACK,
        ),
        duration=90.0,
        minimum_duration=_ASLEEP + 20.0,
        plan=_pause,
        minimum_nodes=4,
        runs_with_servers=True,
    ),
    Scenario(
        name="slow-node",
        summary="processes get a tenth of a processor: whether they stay or go, they take nobody healthy with them",
        promises=(
            AGREEMENT,
            NOBODY_HEALTHY,
            NOT_READDED,
            Promise("no healthy host loses its quorum", _nobody_lost_quorum),
        ),
        duration=120.0,
        minimum_duration=_REST + 20.0,
        plan=_slow,
        minimum_nodes=4,
    ),
    Scenario(
        name="clock-jump",
        summary="some hosts' clocks jump an hour ahead: no view change",
        promises=(AGREEMENT, CONVERGED, NO_CHANGE),
        duration=60.0,
        minimum_duration=20.0,
        plan=_jump,
        minimum_nodes=3,
    ),
    Scenario(
        name="rolling-restart",
        summary="one process after the other leaves and starts again: two view changes each, all in afterwards",
        promises=(
            AGREEMENT,
            NOBODY_HEALTHY,
            Promise("at most two view changes for each restart", _two_changes_each),
            Promise("no other host loses its quorum", _nobody_lost_quorum),
            CAME_BACK,
        ),
        duration=120.0,
        minimum_duration=_QUIET,
        seconds_per_faulty=_BETWEEN,
        plan=_rolling,
        faulty=lambda nodes: nodes,
        minimum_nodes=3,
        needs_quorum=False,
        runs_with_servers=True,
    ),
)
