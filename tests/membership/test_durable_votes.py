"""A member votes for a next view only when that is on its disk: a power cut makes nobody forget what it voted for.

Source: L. Lamport, *Paxos Made Simple*, section 2.5 (stable storage); the rule is that of `view_change`, and
`founder_election` says what rests on it.
"""

from __future__ import annotations

import random

import pytest

from membership.protocol import messages as wire
from membership.protocol.context.effects import Effects, QuorumLost, StableStateToSave
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.lifecycle.founder_election import founder_of
from membership.protocol.view.configuration import RECOVERY_STRIDE, RESTART_STRIDE
from membership.protocol.view.cut import Cut, Removal
from membership.settings import Settings
from tests.membership.test_power_cut import cut_power, running, start

SEEDS = range(6)
RINGS = 10


def member_with_a_disk(lab, view, index: int = 0) -> Core:
    core = Core(
        view.members[index],
        seeds=[],
        settings=Settings(),
        rng=random.Random(1),
        cluster_id=view.cluster_id,
        has_disk=True,
    )
    core._views._install(view, None, 0.0)
    core._context.take_effects(0.0)
    return core


def to_save(effects: Effects) -> list[StableState]:
    return [event.state for event in effects.events if isinstance(event, StableStateToSave)]


def test_a_request_to_accept_is_answered_when_the_view_is_durable_beside_the_present_one(lab) -> None:
    view = lab.configuration(3)
    core = member_with_a_disk(lab, view)
    coordinator = view.members[1]
    cut = Cut.of((), [Removal(view.members[2].incarnation)])
    header = (coordinator.incarnation, view.epoch, view.id)
    asked = wire.Accept(*header, 2, 1, cut.hash)
    core.receive(coordinator.address, asked, 0.1)
    effects = core.receive(coordinator.address, wire.CutBody(*header, cut), 0.2)
    assert not lab.sent(effects, wire.Accepted)
    (state,) = to_save(effects)
    assert [each.id for each in state.accepted] == [view.apply(cut).id]
    assert not lab.sent(core.saved(StableState(None, state.accepted), 0.3), wire.Accepted), "not in this view"
    assert not lab.sent(core.saved(StableState(view), 0.4), wire.Accepted)
    assert lab.sent(core.saved(state, 0.5), wire.Accepted)
    assert lab.sent(core.receive(coordinator.address, asked, 0.6), wire.Accepted), (
        "and at once when asked again"
    )


def test_a_promise_to_a_coordinator_ends_the_request_for_a_fast_vote(lab) -> None:
    """What the disk was late with is no vote any more: the coordinator has not seen it."""
    view = lab.configuration(3)
    core = member_with_a_disk(lab, view)
    change = core._views.instance.change
    change.propose(Cut.of((), [Removal(view.members[2].incarnation)]), 0.1)
    (state,) = to_save(core._context.take_effects(0.1))
    assert change.holding
    assert not change.fast_votes
    coordinator = view.members[1]
    asked = wire.Prepare(coordinator.incarnation, view.epoch, view.id, 2, 1)
    (promised,) = lab.sent(core.receive(coordinator.address, asked, 0.2), wire.Promised)
    assert not promised.value
    core.saved(state, 0.3)
    assert not change.fast_votes


@pytest.mark.parametrize("seed", SEEDS)
def test_whose_disk_takes_nothing_does_not_vote_and_the_others_decide_without_it(cluster, seed: int) -> None:
    world = running(cluster, 5, seed)
    world.full_disks.add("h1")
    votes = world.hosts[1].process.statistics().get("fast votes", 0)
    cut_power(world, (4,))
    assert world.run(40.0, lambda: world.together(4))
    assert world.hosts[1].process.statistics().get("fast votes", 0) == votes


@pytest.mark.parametrize("seed", SEEDS)
def test_where_too_few_can_vote_the_quorum_is_lost(cluster, seed: int) -> None:
    world = running(cluster, 4, seed)
    world.full_disks.update(("h0", "h1"))
    epoch, began = world.epoch, world.now
    cut_power(world, (3,))
    assert world.run(40.0, lambda: len({name for _, name, _ in world.seen(QuorumLost, began)}) == 3)
    assert world.epoch == epoch
    world.full_disks.clear()
    for host in world.hosts[:2]:
        state = host.process._context.storage.state
        world.simulator.call_after(
            0.01, lambda host=host, state=state: world._save(host, host.process, state)
        )
    assert world.run(40.0, lambda: world.together(3))


@pytest.mark.parametrize("seed", SEEDS)
def test_who_voted_and_lost_its_power_goes_on_from_no_earlier_view(cluster, seed: int) -> None:
    """Two of three lose theirs as soon as those who go on have the next view of five; their disks are slow.

    Before votes were durable, the two knew the view of three only, of which they are a majority, and there were two
    clusters.
    """
    world = running(cluster, 3, seed)
    world.disk_delay = 1.0
    for number in (3, 4):
        world.add(number, found=False, start_at=world.now)
    going_on = [world.hosts[number] for number in (0, 3, 4)]
    assert world.run(
        40.0, lambda: all(host.process and len(host.process.configuration or ()) == 5 for host in going_on)
    )
    world.simulator.network.partition([[0, 3, 4], [1, 2]])
    cut_power(world, (1, 2))
    start(world, (1, 2))
    world.run(60.0)
    assert all(world.hosts[number].process.configuration is None for number in (1, 2))
    world.simulator.network.heal()
    assert world.run(60.0, lambda: world.together(5))
    assert world.epoch < RESTART_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_many_were_to_join_a_view_that_was_voted_for_when_the_power_failed(cluster, seed: int) -> None:
    """It may have come into force, most of it are without memory, and all are there: they go on from it."""
    world = running(cluster, 3, seed)
    for number in range(3, 8):
        world.add(number, found=False, start_at=world.now)
    assert world.run(40.0, lambda: any(disk.accepted for disk in world.disks.values()))
    cut_power(world)
    start(world, range(8))
    assert world.run(60.0, lambda: world.together(8))
    assert RESTART_STRIDE <= world.epoch < RECOVERY_STRIDE


def test_a_view_that_was_voted_for_is_not_taken_for_one_that_its_oldest_member_proposed(lab) -> None:
    """Only what a founder proposed, and has not written down, is of no account when that founder is back."""
    view = lab.configuration(3)
    voted = view.apply(Cut.of((), [Removal(view.members[2].incarnation)]))
    proposed = view.restart(lab.member(0, incarnation=1), 10).apply(Cut.of([lab.member(1, incarnation=1)]))
    assert founder_of(voted) is None
    assert founder_of(proposed) == lab.member(0, incarnation=1)
    core = Core(
        lab.member(0, incarnation=2),
        seeds=[],
        settings=Settings(),
        rng=random.Random(1),
        stable=StableState(view),
        has_disk=True,
    )
    assert not core._election.has_outlived(voted)
    assert core._election.has_outlived(proposed)


def test_a_request_that_comes_too_late_is_refused_and_nothing_of_it_is_written_down(lab) -> None:
    """Else stale coordinators could fill what a member may accept in one view."""
    view = lab.configuration(3)
    core = member_with_a_disk(lab, view)
    core.saved(StableState(view), 0.0)
    one, other = view.members[1:]
    core.receive(one.address, wire.Prepare(one.incarnation, view.epoch, view.id, 9, 1), 0.1)
    cut = Cut.of((), [Removal(one.incarnation)])
    header = (other.incarnation, view.epoch, view.id)
    effects = core.receive(other.address, wire.Accept(*header, 2, 2, cut.hash), 0.2)
    assert lab.sent(effects, wire.Rejected)
    assert not to_save(core.receive(other.address, wire.CutBody(*header, cut), 0.3))


def test_what_was_being_written_down_for_a_founding_is_not_told_once_another_view_is_installed(lab) -> None:
    """The founder would count on a process that takes part in another view meanwhile: two views would go on."""
    voted, founder, decider = lab.member(0), lab.member(0, incarnation=1), lab.member(1)
    before, me = lab.member(2), lab.member(2, incarnation=1)
    first = lab.configuration(3)
    decided = first.apply(Cut.of([me], [Removal(before.incarnation)]))
    assert voted in first
    core = Core(
        me,
        seeds=[],
        settings=Settings(),
        rng=random.Random(1),
        cluster_id=first.cluster_id,
        stable=StableState(first),
        has_disk=True,
    )
    core.start(0.0)
    asks = wire.ColdStart(founder, True, 0, b"", 0, True, first.epoch, False, (decided.id,))
    core.receive(founder.address, asks, 0.1)
    proposed = decided.restart(founder, RINGS).apply(Cut.of([me]))
    body = (proposed.epoch, proposed.id, proposed.encoded(), ())
    effects = core.receive(founder.address, wire.FullConfiguration(founder.incarnation, *body, True), 0.2)
    (late,) = to_save(effects)
    assert [view.id for view in late.accepted] == [proposed.id]
    body = (decided.epoch, decided.id, decided.encoded(), ())
    core.receive(decider.address, wire.FullConfiguration(decider.incarnation, *body, False), 0.3)
    assert core.configuration is not None
    assert core.configuration.id == decided.id
    assert not lab.sent(core.saved(late, 0.4), wire.ColdStart)
