"""Recovery: an operator begins a new chain from the survivors of a majority lost for good.

Source: the specification, section 3.7. The promises: all survivors end in one view; nobody else gets in unasked; two
recoveries never merge; nothing happens while a majority is within reach, unless forced.
"""

from __future__ import annotations

import pytest

from chaos import NetworkSettings
from membership.errors import RecoveryError
from membership.protocol import messages as wire
from membership.protocol.context.effects import (
    Evicted,
    QuorumLost,
    QuorumRegained,
    RecoveryFailed,
    RecoveryFinished,
)
from membership.protocol.core.status import Status
from membership.protocol.view.configuration import LINEAGE_LIMIT, RECOVERY_STRIDE, ConfigurationError

SEEDS = range(4)


def lost(world, numbers) -> bool:
    return all(world.hosts[number].process._quorum.lost for number in numbers)


def recover(world, number: int, survivors: list[str], **options) -> None:
    world.simulator.command(world.hosts[number], lambda core, now: core.recover(survivors, now, **options))


def views(world, numbers) -> set:
    return {world.hosts[number].process.configuration for number in numbers}


def reduced(cluster, seed: int, nodes: int = 5, kept: int = 2, **options):
    """A cluster of which only the first few are left, and know it."""
    world = cluster(nodes, seed=seed, **options)
    world.boot()
    world.run(1.0)
    for host in world.hosts[kept:]:
        world.simulator.crash(host)
    assert world.run(40.0, lambda: lost(world, range(kept)))
    return world


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize(("nodes", "kept"), [(2, 1), (3, 1), (5, 2), (12, 5)])
def test_all_survivors_end_in_one_new_view(cluster, nodes: int, kept: int, loss: float) -> None:
    for seed in SEEDS:
        world = reduced(cluster, seed, nodes, kept, network=NetworkSettings(loss=loss))
        survivors = [f"n{number}" for number in range(kept)]
        recover(world, seed % kept, survivors)
        assert world.run(20.0, lambda: world.seen(RecoveryFinished)), f"seed {seed}"  # noqa: B023
        (view,) = views(world, range(kept))
        assert {member.name for member in view.members} == set(survivors)
        assert view.epoch == RECOVERY_STRIDE
        assert len(view.lineage) == 1
        assert len(world.seen(QuorumLost)) == len(world.seen(QuorumRegained)) == kept
        assert not world.seen(RecoveryFailed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_killed_come_back_and_join_as_new(cluster, seed: int) -> None:
    world = reduced(cluster, seed)
    recover(world, 0, ["n0", "n1"])
    assert world.run(20.0, lambda: world.seen(RecoveryFinished))
    for host in world.hosts[2:]:
        world.simulator.start(host)
    assert world.run(20.0, lambda: world.together(5))
    (view,) = views(world, range(5))
    assert RECOVERY_STRIDE < view.epoch < RECOVERY_STRIDE + 10
    assert len(view.lineage) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_the_old_chain_that_were_only_asleep_are_told_that_they_are_out(
    cluster, seed: int
) -> None:
    world = cluster(5, seed=seed)
    world.boot()
    for host in world.hosts[2:]:
        world.simulator.pause(host)
    assert world.run(40.0, lambda: lost(world, (0, 1)))
    recover(world, 0, ["n0", "10.0.0.1:1001"])
    assert world.run(20.0, lambda: world.seen(RecoveryFinished))
    for host in world.hosts[2:]:
        world.simulator.resume(host)
    assert world.run(30.0, lambda: world.together(5)), "they rejoin as new incarnations"
    assert {name for _, name, _ in world.seen(Evicted)} == {"h2", "h3", "h4"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_majority_that_was_alive_after_all_is_evicted_not_merged(cluster, seed: int) -> None:
    """The operator was wrong: the others went on. Their chain ends where it meets the recovered one."""
    world = cluster(5, seed=seed, rejoin=False)
    world.boot()
    world.simulator.network.partition([[0, 1], [2, 3, 4]])
    assert world.run(60.0, lambda: lost(world, (0, 1)) and len(world.hosts[3].process.configuration) == 3)
    old = world.hosts[3].process.configuration
    recover(world, 1, ["n0", "n1"])
    assert world.run(20.0, lambda: world.seen(RecoveryFinished))
    assert world.hosts[0].process.configuration.epoch > old.epoch
    world.simulator.network.heal()
    world.run(30.0)
    assert len(views(world, (0, 1))) == 1
    assert len(world.hosts[0].process.configuration) == 2
    for host in world.hosts[2:]:
        # Nobody has to meet; whoever does is out. Never do the two chains share a member.
        assert host.process is None or host.process.configuration.lineage == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_two_recoveries_never_merge(cluster, seed: int) -> None:
    world = cluster(7, seed=seed, rejoin=False)
    world.boot()
    world.simulator.network.partition([[0, 1], [2, 3], [4, 5, 6]])
    for host in world.hosts[4:]:
        world.simulator.crash(host)
    assert world.run(40.0, lambda: lost(world, range(4)))
    recover(world, 0, ["n0", "n1"])
    recover(world, 3, ["n2", "n3"])
    assert world.run(20.0, lambda: len(world.seen(RecoveryFinished)) == 2)
    world.simulator.network.heal()
    # One of them is further, so that its members count as newer wherever they are heard.
    world.simulator.command(world.hosts[0], lambda core, now: core.set_metadata({"a": "b"}, now))
    world.run(30.0)
    one, other = world.hosts[0].process, world.hosts[2].process
    for mine, theirs in ((one, other), (other, one)):
        probe = wire.Probe(*theirs._context.short_header, 1, None)
        world.simulator.command(
            next(host for host in world.hosts if host.process is mine),
            lambda core, now, probe=probe, theirs=theirs: core.receive(theirs.me.address, probe, now),
        )
    world.run(30.0)
    (first,), (second,) = views(world, (0, 1)), views(world, (2, 3))
    assert {member.name for member in first.members} == {"n0", "n1"}
    assert {member.name for member in second.members} == {"n2", "n3"}
    assert first.lineage != second.lineage
    assert not world.seen(Evicted)


def test_a_survivor_that_missed_the_end_follows_when_it_is_heard(cluster) -> None:
    world = reduced(cluster, 1, nodes=7, kept=3)
    recover(world, 0, ["n0", "n1", "n2"])
    assert world.run(10.0, lambda: world.hosts[2].process._recovery._bound is not None)
    world.simulator.network.block(0, 2)  # it has agreed, but is not told what came of it
    assert world.run(10.0, lambda: world.hosts[1].process.configuration.lineage)
    world.simulator.crash(world.hosts[0])
    assert not world.hosts[2].process.configuration.lineage
    assert world.run(30.0, lambda: len(views(world, (1, 2))) == 1)
    assert world.hosts[2].process.configuration.lineage


def test_a_coordinator_that_dies_before_the_end_leaves_everything_as_it_was(cluster) -> None:
    world = reduced(cluster, 2, nodes=7, kept=3)
    before = views(world, (1, 2))
    recover(world, 0, ["n0", "n1", "n2"])
    world.simulator.crash(world.hosts[0])
    world.run(1.0)
    assert views(world, (1, 2)) == before
    with pytest.raises(RecoveryError, match="agreed to another recovery"):
        world.hosts[1].process.recover(["n1", "n2"], world.now)
    world.run(2 * world.settings.leave_timeout)
    recover(world, 1, ["n1", "n2"])
    assert world.run(10.0, lambda: world.seen(RecoveryFinished)), "and free again afterwards"
    assert len(views(world, (1, 2))) == 1


def test_a_silent_survivor_is_named_and_nothing_changes(cluster) -> None:
    world = reduced(cluster, 3)
    before = views(world, (0, 1))
    recover(world, 0, ["n0", "n1", "n4"])
    assert world.run(20.0, lambda: world.seen(RecoveryFailed))
    ((_, _, event),) = world.seen(RecoveryFailed)
    assert "n4 did not answer" in event.reason
    assert views(world, (0, 1)) == before


def test_one_that_gives_up_sets_the_others_free(cluster) -> None:
    world = reduced(cluster, 3)
    recover(world, 0, ["n0", "n1", "n4"])
    assert world.run(20.0, lambda: world.seen(RecoveryFailed))
    world.run(0.1)
    recover(world, 1, ["n0", "n1"])
    assert world.run(5.0, lambda: world.seen(RecoveryFinished))
    assert len(views(world, (0, 1))) == 1


def test_a_survivor_with_a_majority_within_reach_refuses_unless_forced(cluster) -> None:
    world = cluster(5, seed=1)
    world.boot()
    world.run(3.0)
    core = world.hosts[0].process
    with pytest.raises(RecoveryError, match="majority of the members is within reach"):
        core.recover(["n0", "n1"], world.now)
    core._quorum.lost = True  # as after a partition that cut off this member alone
    recover(world, 0, ["n0", "n1"])
    assert world.run(20.0, lambda: world.seen(RecoveryFailed))
    assert (
        "n1 refuses: a majority of the members is within its reach" in world.seen(RecoveryFailed)[0][2].reason
    )
    recover(world, 0, ["n0", "n1"], force=True)
    assert world.run(20.0, lambda: world.seen(RecoveryFinished))


def test_what_makes_no_sense_is_refused_with_what_to_do(lab) -> None:
    view = lab.configuration(5)
    core = lab.core_in(view)
    core._quorum.lost = True
    me, other = view.members[0].name, view.members[1].name
    for survivors, reason in (
        ([me, "n77"], "'n77' is no member"),
        ([other], "not among the survivors"),
        ([member.name for member in view.members], "nothing to recover from"),
    ):
        with pytest.raises(RecoveryError, match=reason):
            core.recover(survivors, 1.0)
    core.recover([me, other], 1.0)
    with pytest.raises(RecoveryError, match="under way already"):
        core.recover([me, other], 1.0)
    core._views.status = Status.EVICTED
    with pytest.raises(RecoveryError, match="not a member"):
        core.recover([me, other], 1.0)


def test_the_marker_makes_the_id_differ_from_any_ordinary_successor(lab) -> None:
    view = lab.configuration(5)
    kept = [member.incarnation for member in view.members[:2]]
    one, other = (view.recover(kept, recovery * 16) for recovery in (b"a", b"b"))
    assert len({view.id, one.id, other.id}) == 3
    assert one.epoch == other.epoch == RECOVERY_STRIDE
    assert one.lineage == (b"a" * 16,)
    assert one.cluster_id == view.cluster_id
    assert {m.incarnation: e for m, e in zip(one.members, one.joined_epochs, strict=True)} == {
        m.incarnation: e
        for m, e in zip(view.members, view.joined_epochs, strict=True)
        if m.incarnation in kept
    }
    again = one.recover(kept[:1], b"c" * 16)
    assert again.epoch == 2 * RECOVERY_STRIDE
    assert again.lineage == (b"a" * 16, b"c" * 16)


def test_a_chain_is_recovered_from_members_only_and_not_for_ever(lab) -> None:
    view = lab.configuration(3)
    for survivors in ([], [b"a stranger      "]):
        with pytest.raises(ConfigurationError):
            view.recover(survivors, bytes(16))
    kept = [view.members[0].incarnation]
    for number in range(LINEAGE_LIMIT):
        view = view.recover(kept, number.to_bytes(16, "big"))
    with pytest.raises(ConfigurationError):
        view.recover(kept, bytes(16))


def test_a_recovered_view_survives_the_wire(lab) -> None:
    view = lab.configuration(3)
    recovered = view.recover([member.incarnation for member in view.members[:2]], b"r" * 16)
    context = lab.context(view)
    decoded = context.cache.decode(recovered.encoded(), recovered.id, 10)
    assert (decoded.id, decoded.epoch, decoded.lineage) == (recovered.id, recovered.epoch, recovered.lineage)
