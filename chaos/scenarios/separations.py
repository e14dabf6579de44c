"""Scenarios in which healthy hosts can not reach each other: `partition`, `minority`, `quorum-loss`,
`blackhole-pair`, `ambient-loss`.

Source: *Stable and Consistent Membership at Scale with Rapid*, section 7, Figure 12 (a blackhole between two
members of a data platform); section 4.3 for what a side without a quorum may do (nothing).
"""

from __future__ import annotations

from itertools import combinations

from chaos.checkers.quorum_promise import quorum_lost_bound
from chaos.errors import BadArgumentError
from chaos.faults import At, Block, Crash, Heal, Partition, Pause, Resume
from chaos.scenarios.model import (
    AGREEMENT,
    CAME_BACK,
    CONVERGED,
    NO_CHANGE,
    NOBODY_HEALTHY,
    Outcome,
    Plan,
    Promise,
    Scenario,
    ScenarioContext,
)

_CUT_OFF = 40.0
"""Seconds that a partition lasts."""


def _halves(context: ScenarioContext) -> Plan:
    """Two halves; with an odd number of nodes one host is alone, so that nobody has a majority."""
    names = [f"n{number}" for number in range(context.nodes)]
    context.rng.shuffle(names)
    half = context.nodes // 2
    groups = [tuple(names[:half]), tuple(names[half : 2 * half]), tuple(names[2 * half :])]
    return Plan(
        tuple(names),
        (At(0.0, Partition(tuple(group for group in groups if group))), At(_CUT_OFF, Heal())),
    )


def _minority(context: ScenarioContext) -> Plan:
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, Partition((faulty,))), At(_CUT_OFF, Heal())))


def _majority_dies(context: ScenarioContext) -> Plan:
    if 2 * (context.nodes - context.faulty) > context.nodes:
        raise BadArgumentError(
            f"{context.faulty} of {context.nodes} nodes leave a majority, which goes on; use --faulty "
            f"{_half(context.nodes)} or more, or the scenario crash"
        )
    faulty = context.choose_faulty()
    return Plan(faulty, (At(0.0, Crash(faulty)),))


def _majority_stands_still(context: ScenarioContext) -> Plan:
    """Half of the hosts or more, the sequencer among them, for so long that everybody notices."""
    sequencer = context.store.sequencer
    others = [f"n{number}" for number in range(context.nodes) if f"n{number}" != sequencer]
    faulty = (sequencer, *context.rng.sample(others, context.faulty - 1))
    return Plan(faulty, (At(0.0, Pause(faulty)), At(_CUT_OFF, Resume(faulty))))


def _half(nodes: int) -> int:
    """As few as must be gone for the others to be no majority."""
    return (nodes + 1) // 2


def _pair(context: ScenarioContext) -> Plan:
    """Two hosts that watch each other on fewer rings than a report needs to be more than noise."""
    configuration, low = context.configuration, context.settings.low_watermark
    members = list(configuration.members)
    context.rng.shuffle(members)
    for one, other in combinations(members, 2):
        if (
            configuration.observers_of(one).count(configuration.members.index(other)) < low
            and configuration.observers_of(other).count(configuration.members.index(one)) < low
        ):
            schedule = (At(0.0, Block(one.name, other.name)), At(0.0, Block(other.name, one.name)))
            return Plan((), schedule)
    raise BadArgumentError(
        f"every two of {context.nodes} nodes watch each other on {low} rings or more, so a blackhole between "
        "them is a failure; use more nodes"
    )


def _nothing(context: ScenarioContext) -> Plan:
    return Plan(())


def _everybody_said_so(outcome: Outcome) -> bool:
    bound = quorum_lost_bound(outcome.settings)
    said = {notice.host for notice in outcome.notices if notice.lost and notice.seconds <= bound}
    return said.issuperset(outcome.faulty)


def _survivors_say_so_for_good(outcome: Outcome) -> bool:
    return _survivors_say_so(outcome) and all(notice.lost for notice in outcome.notices)


def _survivors_say_so(outcome: Outcome) -> bool:
    bound = quorum_lost_bound(outcome.settings)
    said = {notice.host for notice in outcome.notices if notice.lost and notice.seconds <= bound}
    return said >= {f"n{number}" for number in range(outcome.nodes)} - set(outcome.faulty)


def _nothing_while_apart(outcome: Outcome) -> bool:
    return not any(view.seconds < _CUT_OFF for view in outcome.views)


def _removed_while_apart(outcome: Outcome) -> bool:
    removed = {name for view in outcome.views if view.seconds < _CUT_OFF for name in view.removed}
    return removed == set(outcome.faulty)


_QUORUM_LOSS_WITH_STORE = Scenario(
    name="quorum-loss",
    summary="half of the hosts or more stand still for 40 s: nothing is decided meanwhile, all goes on afterwards",
    promises=(
        AGREEMENT,
        Promise("no view is installed while nobody has a majority", _nothing_while_apart),
        Promise("every survivor says QuorumLost in time", _survivors_say_so),
        CAME_BACK,
    ),
    duration=100.0,
    minimum_duration=_CUT_OFF + 30.0,
    plan=_majority_stands_still,
    faulty=_half,
    minimum_nodes=4,
    needs_quorum=False,
    needs_store=True,
    runs_with_servers=True,
)

SCENARIOS = (
    Scenario(
        name="partition",
        summary="two halves for 40 s: nobody installs anything, everybody says so; one again afterwards",
        promises=(
            AGREEMENT,
            Promise("no view is installed while nobody has a majority", _nothing_while_apart),
            Promise("everybody says QuorumLost in time", _everybody_said_so),
            CAME_BACK,
        ),
        duration=120.0,
        minimum_duration=_CUT_OFF + 20.0,
        plan=_halves,
        minimum_nodes=4,
        needs_quorum=False,
    ),
    Scenario(
        name="minority",
        summary="a few are cut off for 40 s: removed, they know it, and they rejoin by themselves",
        promises=(
            AGREEMENT,
            NOBODY_HEALTHY,
            Promise("the cut off say QuorumLost in time", _everybody_said_so),
            Promise("the majority removes them meanwhile", _removed_while_apart),
            CAME_BACK,
        ),
        duration=120.0,
        minimum_duration=_CUT_OFF + 20.0,
        plan=_minority,
        faulty=lambda nodes: max(1, nodes // 4),
        minimum_nodes=4,
    ),
    Scenario(
        name="quorum-loss",
        summary="half of the hosts or more die together: each of the others says QuorumLost; no view change",
        promises=(
            AGREEMENT,
            NO_CHANGE,
            Promise("every survivor says QuorumLost in time, and for good", _survivors_say_so_for_good),
        ),
        duration=60.0,
        minimum_duration=20.0,
        plan=_majority_dies,
        faulty=_half,
        minimum_nodes=2,
        needs_quorum=False,
        with_store=_QUORUM_LOSS_WITH_STORE,
    ),
    Scenario(
        name="blackhole-pair",
        summary="two hosts that can not reach each other, while all others can: no view change",
        promises=(AGREEMENT, CONVERGED, NO_CHANGE),
        duration=180.0,
        plan=_pair,
        faulty=lambda nodes: 0,
        minimum_nodes=4,
    ),
    Scenario(
        name="ambient-loss",
        summary="every link loses packets (1 % unless --loss says more): no view change",
        promises=(AGREEMENT, CONVERGED, NO_CHANGE),
        duration=600.0,
        plan=_nothing,
        faulty=lambda nodes: 0,
        loss=0.01,
        leaps=True,
    ),
)
