"""Processes that come back under a name or address that is in use [B15].

Source: the specification, section 2 (identity rules): a new incarnation replaces the old one in the same cut, at
once, unless the old one still answers; then it is refused with an error that names the conflict.
"""

from __future__ import annotations

import msgspec
import pytest

from chaos import NetworkSettings
from membership.protocol import messages as wire
from membership.protocol.context.effects import JoinRefused
from membership.protocol.core import Core
from membership.protocol.view.view_difference import ViewChanged

SEEDS = range(3)


def without_seeds(core: Core) -> Core:
    core.set_seeds([])
    return core


def changes_after(world, epoch: int) -> list[ViewChanged]:
    """What the members that stay were told of views after this one."""
    return [
        event
        for _, _, event in world.seen(ViewChanged)
        if event.previous is not None and event.configuration.epoch > epoch
    ]


@pytest.mark.parametrize(
    "nodes", [3, 4, 6, 20, pytest.param(50, marks=pytest.mark.slow("fifty simulated processes"))]
)
@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("pause", [0.001, 0.3, 2.0])
def test_b15_a_restart_is_one_cut_at_once(cluster, nodes: int, loss: float, pause: float) -> None:
    for seed in SEEDS:
        world = cluster(nodes, seed=seed, network=NetworkSettings(loss=loss))
        world.boot()
        world.run(2.0)
        epoch = world.epoch
        host = world.hosts[-1]
        world.simulator.crash(host)
        world.run(pause)
        world.simulator.start(host)
        started = world.now
        back = world.run(10.0, lambda: host.process.configuration is not None and world.together(nodes))  # noqa: B023
        assert back, f"seed {seed}"
        assert world.now - started < (1.5 if not loss else 8.0)
        world.run(8.0)
        assert world.epoch == epoch + 1, f"seed {seed}: one cut"
        told = changes_after(world, epoch)
        assert len(told) == nodes - 1
        for event in told:
            assert [member.name for member in event.replaced] == [f"n{nodes - 1}"]
            assert not any((event.joined, event.left, event.failed, event.evicted))


@pytest.mark.parametrize("seed", SEEDS)
def test_b15_several_restarts_at_once(cluster, seed: int) -> None:
    world = cluster(20, seed=seed)
    world.boot()
    world.run(2.0)
    epoch = world.epoch
    for host in world.hosts[15:]:
        world.simulator.crash(host)
        world.simulator.start(host)
    assert world.run(5.0, lambda: world.together(20))
    assert world.epoch - epoch <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_b15_a_host_that_moved_to_another_address(cluster, seed: int) -> None:
    """The old address is silent; nothing answers for it. One probe interval is enough to say so."""
    world = cluster(8, seed=seed)
    world.boot()
    epoch = world.epoch
    world.simulator.crash(world.hosts[7])
    world.add(50, name="n7", start_at=world.now, found=False)
    started = world.now
    assert world.run(3.5, lambda: world.together(8)), "sooner than failure detection"
    assert world.now - started < 3.5
    assert world.epoch == epoch + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_b15_a_restart_that_never_joins_is_removed_as_failed(cluster, seed: int) -> None:
    """Its address answers that there is no view; that alone must not keep the old incarnation in."""
    world = cluster(6, seed=seed)
    world.boot()
    host = world.hosts[5]
    world.simulator.crash(host)
    make = host.factory
    host.factory = lambda generation, rng: without_seeds(make(generation, rng))
    world.simulator.start(host)
    world.run(12.0)
    views = {core.configuration for core in world.cores if core is not host.process}
    assert {len(view) for view in views} == {5}


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_name_in_use_is_refused_with_the_reason(cluster, loss: float) -> None:
    for seed in SEEDS:
        world = cluster(6, seed=seed, network=NetworkSettings(loss=loss))
        world.boot()
        epoch = world.epoch
        world.add(50, name="n2", start_at=world.now, found=False)
        world.run(20.0)
        reasons = {event.reason for _, name, event in world.seen(JoinRefused) if name == "h50"}
        (reason,) = reasons
        assert "the name of n2" in reason
        assert "in use by n2 (10.0.0.1:1002), a member that answers" in reason
        assert world.epoch == epoch, f"seed {seed}"


def test_an_observer_reports_a_successor_only_when_the_predecessor_is_silent(lab) -> None:
    """A seed that was deceived must not be enough: every observer looks for itself."""
    view = lab.configuration(8)
    old = view.members[3]
    new = msgspec.structs.replace(old, incarnation=b"another process!")
    index = next(i for i, _ in view.observer_masks(new) if i != 3)
    core = lab.core_in(view, index)
    request = wire.ObserveJoin(new, view.epoch, view.id)
    (challenge,) = core.receive(new.address, request, 1.0).sends
    assert isinstance(challenge.message, wire.Probe)
    sign = wire.ProbeAcknowledged(old.incarnation[:8], view.epoch, view.short_id, 0, None)
    core.receive(old.address, sign, 1.01)
    (answer,) = core.receive(new.address, request, 1.2).sends
    assert isinstance(answer.message, wire.JoinDenied)
    assert new.incarnation not in core._instance.table.joins


def test_nobody_comes_in_under_the_first_bytes_of_a_members_incarnation(lab) -> None:
    """Frequent messages name their sender by them: who had them too would take the other's messages away."""
    view = lab.configuration(8)
    old = view.members[3]
    new = msgspec.structs.replace(lab.member(50), incarnation=old.incarnation[:8] + b"not it!!")
    index = next(i for i, _ in view.observer_masks(new) if i != 3)
    core = lab.core_in(view, index)
    request = wire.ObserveJoin(new, view.epoch, view.id)
    (challenge,) = core.receive(new.address, request, 1.0).sends
    assert isinstance(challenge.message, wire.Probe)
    sign = wire.ProbeAcknowledged(old.incarnation[:8], view.epoch, view.short_id, 0, None)
    core.receive(old.address, sign, 1.01)
    (answer,) = core.receive(new.address, request, 1.2).sends
    assert isinstance(answer.message, wire.JoinDenied)
    assert "begins as that of n" in answer.message.reason


def test_an_observer_answers_at_once_when_the_predecessor_owns_up(lab) -> None:
    view = lab.configuration(8)
    old = view.members[3]
    new = msgspec.structs.replace(old, incarnation=b"another process!")
    index = next(i for i, _ in view.observer_masks(new) if i != 3)
    core = lab.core_in(view, index)
    core.receive(new.address, wire.ObserveJoin(new, view.epoch, view.id), 1.0)
    own_up = wire.NotMember(new.incarnation, view.short_id, 0)
    sent = lab.sent(core.receive(old.address, own_up, 1.01))
    assert [type(message) for message in sent] == [wire.JoinObserved]


@pytest.mark.parametrize("seed", SEEDS)
def test_b1_a_joiner_that_restarts_in_the_middle(cluster, seed: int) -> None:
    """Some observers report the first incarnation, some the second; all members must install one of them."""
    for moment in (0.02, 0.1, 0.12, 0.2, 0.3, 0.5):
        world = cluster(8, seed=seed, network=NetworkSettings(loss=0.05))
        world.boot()
        host = world.add(50, start_at=world.now, found=False)
        world.run(moment)
        world.simulator.crash(host)
        world.simulator.start(host)
        joined = world.run(20.0, lambda: host.process.configuration is not None and world.together(9))  # noqa: B023
        assert joined, f"moment {moment}"
