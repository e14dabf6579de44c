"""After a power cut: who remembers the last view finds the others again, and exactly one cluster goes on from it.

Source: the embedded log's specification (power loss of everybody); the rule is that of
`membership.protocol.lifecycle.founder_election`.
"""

from __future__ import annotations

import copy
import random

import pytest

from chaos import NetworkSettings
from chaos.simulated_cluster.message_faults import MessageFaults
from membership.errors import RecoveryError
from membership.protocol import messages as wire
from membership.protocol.context.effects import Evicted, JoinWaiting, StableStateToSave
from membership.protocol.context.stable_storage import StableState
from membership.protocol.core import Core
from membership.protocol.view.configuration import RECOVERY_STRIDE, RESTART_STRIDE
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings
from tests.budget import budgeted

SEEDS = range(6)


def running(cluster, count: int, seed: int, **options):
    """A cluster that is together, and whose hosts remember that on their disks."""
    world = cluster(count, seed=seed, remember=True, **options)
    world.boot()
    world.run(0.1)
    return world


def cut_power(world, numbers=None) -> None:
    for number, host in enumerate(world.hosts):
        if numbers is None or number in numbers:
            world.simulator.crash(host)


def start(world, numbers, spread: float = 1.0) -> None:
    rng = random.Random(world.simulator.seed)
    for number in numbers:
        host = world.hosts[number]
        world.simulator.call_after(spread * rng.random(), lambda host=host: world.simulator.start(host))


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 12])
def test_everybody_comes_back_in_one_cluster_that_goes_on(cluster, count: int, loss: float) -> None:
    for seed in SEEDS:
        world = running(cluster, count, seed, network=NetworkSettings(loss=loss))
        before, cluster_id = world.epoch, world.cores[0].configuration.cluster_id
        cut_power(world)
        world.run(5.0)
        start(world, range(count))
        assert world.run(40.0, lambda: world.together(count)), f"seed {seed}"  # noqa: B023
        view = world.cores[0].configuration
        assert view.cluster_id == cluster_id
        assert RESTART_STRIDE <= view.epoch <= RESTART_STRIDE + 3 + before
        assert sum(core.founded for core in world.cores) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_thousand_epochs_are_kept_for_every_cut(cluster, seed: int) -> None:
    """Epochs are fencing tokens: they grow over any number of power cuts, and more than once at a time."""
    world = running(cluster, 4, seed)
    for times in range(1, 6):
        cut_power(world)
        world.run(1.0)
        start(world, range(4))
        assert world.run(40.0, lambda: world.together(4))
        assert world.epoch // RESTART_STRIDE == times


@pytest.mark.parametrize("seed", SEEDS)
def test_a_majority_is_enough_and_the_others_come_later(cluster, seed: int) -> None:
    world = running(cluster, 5, seed)
    cut_power(world)
    world.run(1.0)
    start(world, (0, 2, 4))
    assert world.run(40.0, lambda: world.together(3))
    start(world, (1, 3))
    assert world.run(40.0, lambda: world.together(5))


@pytest.mark.parametrize("seed", SEEDS)
def test_fewer_than_a_majority_wait_and_say_for_whom(cluster, seed: int) -> None:
    world = running(cluster, 5, seed)
    epoch = world.epoch
    cut_power(world)
    world.run(1.0)
    began = world.now
    start(world, (1, 2))
    world.run(120.0)
    assert not world.seen(ViewChanged, began)
    reasons = {event.reason for _, _, event in world.seen(JoinWaiting, began)}
    expected = (
        f"the cluster comes back when 3 of the 5 members of its last view ({epoch}) do, 2 have met so far; "
        "not heard of: n0, n3, n4"
    )
    assert expected in reasons


@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_starts_again_just_rejoins(cluster, seed: int) -> None:
    """Also the founder. The chain goes on as it was."""
    world = running(cluster, 5, seed)
    cut_power(world, (0,))
    world.run(1.0)
    start(world, (0,))
    assert world.run(40.0, lambda: world.together(5))
    assert world.epoch < RESTART_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_majority_starts_again_while_the_rest_lives(cluster, seed: int) -> None:
    """Those who live on have no majority any more; they are taken into the new view, as new incarnations."""
    world = running(cluster, 5, seed)
    cut_power(world, (0, 1, 3))
    world.run(1.0)
    start(world, (0, 1, 3))
    assert world.run(60.0, lambda: world.together(5))
    assert world.epoch >= RESTART_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_majority_that_was_removed_at_once_founds_nothing(cluster, seed: int) -> None:
    """They know the view before, and no other; those who removed them go on. Found by the fuzzer, seed 3074."""
    world = running(cluster, 5, seed, rejoin=False)
    for name in ("n2", "n3", "n4"):
        world.simulator.command(world.hosts[0], lambda core, now, name=name: core.evict(name, now))
    assert world.run(20.0, lambda: world.together(2))
    assert len(world.seen(Evicted)) == 3
    assert len(world.cores[0].configuration) == 2
    began = world.now
    world.simulator.network.partition([[0, 1], [2, 3, 4]])
    start(world, (2, 3, 4))
    world.run(30.0)
    assert not world.seen(ViewChanged, began)
    world.simulator.network.heal()
    assert world.run(60.0, lambda: world.together(5))
    assert world.epoch < RESTART_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("leaving", [(2, 3, 4), (0, 1, 2, 3, 4)])
def test_a_majority_that_left_at_once_founds_nothing_unless_nobody_stays(
    cluster, leaving: tuple[int, ...], seed: int
) -> None:
    world = running(cluster, 5, seed)
    for number in leaving:
        world.simulator.command(world.hosts[number], lambda core, now: core.leave(now))
    world.run(10.0)
    cut_power(world, leaving)
    staying = [number for number in range(5) if number not in leaving]
    if staying:
        assert len(world.cores[0].configuration) == 2
        began = world.now
        world.simulator.network.partition([staying, leaving])
        start(world, leaving)
        world.run(30.0)
        assert not world.seen(ViewChanged, began)
        world.simulator.network.heal()
    else:
        start(world, leaving)
    assert world.run(60.0, lambda: world.together(5))
    assert (world.epoch < RESTART_STRIDE) == bool(staying)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_was_removed_before_the_cut_founds_nothing(cluster, seed: int) -> None:
    """Three of five died long ago, one after the other; with a fourth that saw them go they are no majority."""
    world = running(cluster, 5, seed)
    for number in (0, 1):
        cut_power(world, (number,))
        assert world.run(40.0, lambda: world.together(4 - number))  # noqa: B023
    cut_power(world, (2,))
    world.run(2.0)
    began = world.now
    world.simulator.network.partition([[0, 1, 2], [3, 4]])
    start(world, (0, 1, 2))
    world.run(30.0)
    assert not [name for _, name, _ in world.seen(ViewChanged, began) if name in ("h0", "h1", "h2")]
    world.simulator.network.heal()
    assert world.run(60.0, lambda: world.together(5))
    assert world.epoch < RESTART_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_all_left_in_order_and_the_last_one_opens_again(cluster, seed: int) -> None:
    world = running(cluster, 4, seed)
    for number in (3, 2, 1):
        host = world.hosts[number]
        world.simulator.command(host, lambda core, now: core.leave(now))
        world.run(6.0)
        world.simulator.crash(host)
    cut_power(world)
    start(world, range(4))
    assert world.run(60.0, lambda: world.together(4))
    assert world.hosts[0].process.founded, "it was alone in the last view of all"


@pytest.mark.parametrize(("count", "lost"), [(5, 2), (4, 2), (2, 1), (3, 1)])
def test_whose_disks_were_lost_stand_for_their_names_beside_half_that_remembers(
    cluster, count: int, lost: int
) -> None:
    """They remember nothing, and only want to join; without them nobody would have a majority."""
    for seed in SEEDS:
        world = running(cluster, count, seed)
        cut_power(world)
        for number in range(lost):
            del world.disks[f"h{number}"]
        start(world, range(count))
        assert world.run(60.0, lambda: world.together(count)), f"seed {seed}"  # noqa: B023
        assert world.epoch >= RESTART_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [3, 5])
def test_whose_disk_was_lost_is_not_waited_for_by_one_that_lived_on(cluster, count: int, seed: int) -> None:
    """Found by `rota chaos fuzz --store`, seed 63: a majority dies, and one of it comes back with an empty disk.

    Who lived on told that one of a cluster to join, the view without a majority, and held on to that view itself; the
    one that remembered waited for both.
    """
    world = running(cluster, count, seed)
    dead = range(1, count // 2 + 2)
    cut_power(world, dead)
    world.run(6.0)
    del world.disks["h1"]
    start(world, dead)
    assert world.run(60.0, lambda: world.together(count))
    assert RESTART_STRIDE <= world.epoch < RECOVERY_STRIDE


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_half_that_lived_on_founds_anew_with_those_who_know_nothing(cluster, count: int, seed: int) -> None:
    """They died before their disks had the view. Found by the fuzz: one of two held on to the view of both for good."""
    world = running(cluster, count, seed)
    dead = range(count // 2, count)
    cut_power(world, dead)
    world.run(6.0)
    for number in dead:
        del world.disks[f"h{number}"]
    world.core_arguments = {"seeds": [world.hosts[0].address], "found": False}
    start(world, dead)
    assert world.run(60.0, lambda: world.together(count))
    assert RESTART_STRIDE <= world.epoch < RECOVERY_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_who_lived_on_hears_by_its_probes_that_a_disk_was_lost(cluster, seed: int) -> None:
    """Two of three die; one comes back with its disk, and one without, whose seeds do not lead to the third.

    The third held on to the view of three, in which it saw one that was started again, and two were waited for.
    """
    world = running(cluster, 3, seed)
    cut_power(world, (0, 1))
    world.run(6.0)
    del world.disks["h0"]
    world.core_arguments = {"seeds": [world.hosts[0].address, world.hosts[1].address], "found": False}
    start(world, (0, 1))
    assert world.run(60.0, lambda: world.together(3))
    assert RESTART_STRIDE <= world.epoch < RECOVERY_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_one_alone_in_a_later_view_is_asked_all_the_same(cluster, seed: int) -> None:
    """Two found the cluster anew; one of them dies, loses its disk, and comes back.

    The third had promised itself to the founder, which named it observers again and again: it took that for a cluster
    to join, and did not say that it was started again.
    """
    world = running(cluster, 3, seed)
    cut_power(world)
    start(world, range(3))
    assert world.run(40.0, lambda: any(len(core.configuration or ()) == 2 for core in world.cores))
    (founder,) = (core for core in world.cores if core.founded)
    other = next(member for member in founder.configuration.members if member != founder.me)
    number = int(other.name[1:])
    cut_power(world, (number,))
    del world.disks[f"h{number}"]
    world.run(8.0)
    start(world, (number,))
    assert world.run(60.0, lambda: world.together(3))


@pytest.mark.parametrize("seed", SEEDS)
def test_fewer_than_half_that_remember_wait_for_an_operator(cluster, seed: int) -> None:
    world = running(cluster, 5, seed)
    cut_power(world)
    for number in (1, 2, 4):
        del world.disks[f"h{number}"]
    start(world, range(5))
    assert not world.run(60.0, lambda: any(core.configuration for core in world.cores))
    said = [event.reason for _, _, event in world.seen(JoinWaiting)]
    assert any("without what they knew: n1, n2, n4 (3 must have it)" in each for each in said)
    refusals = []

    def recover(core: Core, now: float) -> object:
        try:
            return core.recover([f"n{number}" for number in range(5)], now)
        except RecoveryError as error:
            refusals.append(str(error))
            return core.tick(now)

    for host in reversed(world.hosts):
        world.simulator.command(host, recover)
        world.run(1.0)
    assert world.run(60.0, lambda: world.together(5))
    view = world.cores[0].configuration
    assert view.epoch >= RECOVERY_STRIDE
    assert len(view.lineage) == 1
    assert any("remembers no view" in refusal for refusal in refusals)
    assert any("ask there" in refusal for refusal in refusals)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("copies", [(0,), (1, 2), (0, 1, 2)])
def test_what_a_copy_of_a_disk_says_leads_to_the_others_and_counts_for_nothing(
    cluster, copies: tuple[int, ...], seed: int
) -> None:
    world = running(cluster, 3, seed)
    early = dict(world.disks)
    cut_power(world, (2,))
    assert world.run(60.0, lambda: world.together(2))
    start(world, (2,))
    assert world.run(60.0, lambda: world.together(3))
    cut_power(world)
    for number in copies:
        world.disks[f"h{number}"] = early[f"h{number}"]
        world.copies.add(f"h{number}")
    start(world, range(3))
    if len(copies) > 1:
        assert not world.run(60.0, lambda: any(core.configuration for core in world.cores))

        def recover(core: Core, now: float) -> object:
            try:
                return core.recover(["n0", "n1", "n2"], now)
            except RecoveryError:
                return core.tick(now)

        for host in world.hosts:
            world.simulator.command(host, recover)
            world.run(1.0)
    assert world.run(60.0, lambda: world.together(3))
    assert (world.epoch >= RECOVERY_STRIDE) == (len(copies) > 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("count", "stale", "lost"), [(3, (2,), (0,)), (6, (4, 5), (0, 1))])
def test_the_stale_and_the_emptied_do_not_outvote_those_who_know(
    cluster, count: int, stale: tuple[int, ...], lost: tuple[int, ...], seed: int
) -> None:
    """Some die, the others go on; then the power is cut, and some of those lose their disks."""
    world = running(cluster, count, seed)
    cut_power(world, stale)
    rest = count - len(stale)
    assert world.run(60.0, lambda: world.together(rest))
    cut_power(world)
    for number in lost:
        del world.disks[f"h{number}"]
    start(world, (*stale, *lost))
    assert not world.run(60.0, lambda: any(core.configuration for core in world.cores))
    start(world, range(count))
    assert world.run(60.0, lambda: world.together(count))
    assert RESTART_STRIDE <= world.epoch < RECOVERY_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_founder_whose_first_joiner_never_heard_of_it(cluster, seed: int) -> None:
    """The view of both is on the founder's disk alone: started again, it goes on from there with the other."""
    world = cluster(2, seed=seed, remember=True)
    faults = MessageFaults(world.simulator, random.Random(seed), world.simulator.crash)
    faults.drop("FullConfiguration", 1.0, world.hosts)
    assert world.run(20.0, lambda: len(world.cores[0].configuration or ()) == 2)
    cut_power(world, (0,))
    faults.clear()
    start(world, (0,))
    assert world.run(40.0, lambda: world.together(2))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_founder_that_is_cut_off_before_others_have_its_view_is_passed_over(cluster, seed: int) -> None:
    """Those on whom it counts lose their power again in that instant, and found the cluster once more without it.

    Its view is not in force, so it does not have it, nor tell them of a removal; in the end it gives it up and comes
    over. Found by `rota chaos fuzz --store`, seed 3446.
    """
    world = running(cluster, 4, seed)
    cut_power(world)
    faults = MessageFaults(world.simulator, random.Random(seed), world.simulator.crash)
    faults.drop("FullConfiguration", 1.0, world.hosts)
    start(world, range(4))
    assert world.run(40.0, lambda: any(core.statistics().get("views proposed") for core in world.cores))
    (founder,) = (number for number, core in enumerate(world.cores) if core.founded)
    others = [number for number in range(4) if number != founder]
    cut_power(world, others)
    faults.clear()
    world.simulator.network.partition([[founder], others])
    assert len(world.hosts[founder].process.configuration) == 1
    start(world, others)
    assert world.run(
        40.0, lambda: all(world.disks[f"h{number}"].view.epoch >= RESTART_STRIDE for number in others)
    )
    assert world.disks[f"h{founder}"].view.epoch < RESTART_STRIDE
    world.simulator.network.heal()
    assert world.run(90.0, lambda: world.together(4))
    assert world.epoch < 2 * RESTART_STRIDE


@pytest.mark.parametrize("seed", SEEDS)
def test_foundings_in_vain_leave_no_more_than_the_last_of_each_founder_on_a_disk(cluster, seed: int) -> None:
    """Only one of four hears the founders, which begin anew again and again."""
    world = running(cluster, 4, seed)
    cut_power(world)
    faults = MessageFaults(world.simulator, random.Random(seed), world.simulator.crash)
    faults.drop("FullConfiguration", 1.0, [world.hosts[number] for number in (0, 2, 3)])
    start(world, range(4))
    world.run(120.0)
    assert len(world.seen(Evicted)) > 10
    assert len(world.disks["h1"].accepted) == 1
    faults.clear()
    assert world.run(60.0, lambda: world.together(4))


@pytest.mark.parametrize("seed", budgeted(range(24), 8, in_test=8))
def test_one_chain_whatever_starts_and_dies(cluster, seed: int) -> None:
    """Power cuts of some or all, starts in any order, crashes meanwhile, partitions and loss: one chain of views.

    The histories are checked at every event (two views of one epoch); in the end all are in one view.
    """
    rng = random.Random(seed)
    count = rng.randint(3, 8)
    world = running(cluster, count, seed, network=NetworkSettings(loss=rng.choice((0.0, 0.1, 0.3))))
    for _ in range(rng.randint(1, 4)):
        cut_power(world, rng.sample(range(count), rng.randint(1, count)))
        if rng.random() < 0.5:
            world.simulator.network.partition([rng.sample(range(count), rng.randint(1, count - 1))])
        world.run(rng.choice((0.5, 3.0, 20.0)))
        start(world, range(count), spread=rng.choice((0.1, 2.0, 10.0)))
        world.run(rng.choice((0.5, 5.0, 15.0)))
        world.simulator.network.heal()
    start(world, range(count))
    assert world.run(120.0, lambda: world.together(count)), f"seed {seed}"
    assert len({core.configuration.cluster_id for core in world.cores}) == 1


def test_nobody_promises_to_one_who_remembers_less(lab) -> None:
    first = lab.configuration(3)
    second = first.apply(Cut.of((), [Removal(first.members[first.index_of("n0") or 0].incarnation)]))
    made = Core(
        lab.member(1, incarnation=1),
        seeds=[],
        settings=Settings(),
        rng=random.Random(1),
        cluster_id=first.cluster_id,
        stable=StableState(second),
        has_disk=True,
    )
    made.start(0.0)

    def promised(number: int, remembers: int) -> bytes:
        question = wire.ColdStart(lab.member(number, incarnation=2), True, 0, b"", 0, True, remembers)
        (answer,) = lab.sent(made.receive(lab.member(number).address, question, 0.1), wire.ColdStart)
        follows: bytes = answer.follows
        return follows

    assert promised(0, first.epoch) == b"", "it does not know of the view in which it was removed"
    assert promised(2, second.epoch) == b"", "as much, but this one is the lower"
    assert promised(3, second.epoch + 1) == lab.member(3, incarnation=2).incarnation


def remembering(lab, view) -> Core:
    """The first of a view's members, started again."""
    core = Core(
        lab.member(0, incarnation=2),
        seeds=[],
        settings=Settings(),
        rng=random.Random(1),
        cluster_id=view.cluster_id,
        stable=StableState(view),
        has_disk=True,
    )
    core.start(0.0)
    return core


def promise(lab, founder: Core, number: int, remembers: int, *, is_copy: bool = False) -> list[JoinWaiting]:
    """A promise of another to found with this one, and what this one then says that it waits for."""
    other = lab.member(number, incarnation=2)
    question = wire.ColdStart(other, False, 0, founder.me.incarnation, 0, True, remembers, is_copy)
    effects = founder.receive(other.address, question, 0.1)
    return [event for event in effects.events if isinstance(event, JoinWaiting)]


def test_the_first_view_of_several_has_those_in_it_on_whose_strength_it_was_founded(lab) -> None:
    """Found by `rota chaos fuzz --store`, seed 3406: one of four and two strangers were as many as it takes, and so the
    other three of the four knew nothing of that view, and founded the cluster once more.

    Those in it are to write it down; whoever is not needed joins when it is in force.
    """
    view = lab.configuration(4)
    founder = remembering(lab, view)
    for number in (1, 2, 5, 6):
        promise(lab, founder, number, view.epoch if number in (1, 2) else -1)
    founder.tick(60.0)
    assert founder.founded

    def proposed_to(number: int) -> list[str]:
        """To whom a view is proposed when this one asks."""
        other = lab.member(number, incarnation=2)
        effects = founder.receive(other.address, wire.JoinRequest(other, 0), 60.1)
        sent = lab.deliveries(effects, wire.FullConfiguration)
        assert all(send.message.proposed for send in sent)
        return sorted(str(address) for send in sent for address in send.destinations)

    for number in (5, 6, 1):
        assert proposed_to(number) == []
    assert proposed_to(2) == [str(lab.member(number).address) for number in (1, 2)]
    assert {member.name for member in founder.configuration.members} == {"n0"}


def test_a_proposed_view_is_in_force_when_enough_of_those_who_remember_have_it_on_disk(lab) -> None:
    view = lab.configuration(5)
    founder = remembering(lab, view)
    others = [lab.member(number, incarnation=2) for number in (1, 2)]
    for number in (1, 2):
        promise(lab, founder, number, view.epoch)
    founder.tick(60.0)
    for other in others:
        sent = lab.sent(
            founder.receive(other.address, wire.JoinRequest(other, 0), 60.1), wire.FullConfiguration
        )
    accepted = (sent[0].configuration_id,)

    def accepts(other, ids: tuple[bytes, ...]) -> list[StableState]:
        """What the founder is to save when this one says what it has accepted."""
        question = wire.ColdStart(other, False, 0, founder.me.incarnation, 0, True, view.epoch, accepted=ids)
        effects = founder.receive(other.address, question, 60.2)
        return [event.state for event in effects.events if isinstance(event, StableStateToSave)]

    assert accepts(others[0], accepted) == []
    assert accepts(others[1], (bytes(16), *accepted)) == [], "what else it has accepted may be in force"
    (state,) = accepts(others[1], accepted)
    assert len(founder.configuration) == 1, "the founder is among the enough: it writes it down last"
    late = copy.deepcopy(founder).tick(60.2 + Settings().quorum_timeout)
    assert Evicted(founder.configuration.epoch, restarted=("n0",)) in late.events, "nobody went on without it"
    founder.saved(state, 60.3)
    assert founder.configuration is state.accepted[-1]
    assert {member.name for member in founder.configuration.members} == {"n0", "n1", "n2"}


def test_a_joiner_accepts_a_view_of_the_founder_it_follows_and_waits_for_a_word_from_within_it(lab) -> None:
    view = lab.configuration(3)
    joiner = Core(
        lab.member(1, incarnation=2),
        seeds=[],
        settings=Settings(),
        rng=random.Random(1),
        cluster_id=view.cluster_id,
        stable=StableState(view),
        has_disk=True,
    )
    joiner.start(0.0)
    founder, stranger = lab.member(0, incarnation=2), lab.member(2, incarnation=2)
    joiner.receive(founder.address, wire.ColdStart(founder, True, 0, b"", 0, True, view.epoch), 0.1)
    first = view.restart(founder, 10).apply(Cut.of([joiner.me]))

    def proposed_by(sender) -> list[StableStateToSave]:
        message = wire.FullConfiguration(
            sender.incarnation, first.epoch, first.id, first.encoded(), proposed=True
        )
        effects = joiner.receive(sender.address, message, 0.2)
        return [event for event in effects.events if isinstance(event, StableStateToSave)]

    assert proposed_by(stranger) == []
    (event,) = proposed_by(founder)
    (told,) = lab.sent(joiner.saved(event.state, 0.3), wire.ColdStart)
    assert told.accepted == (first.id,)
    assert joiner.configuration is None
    word = wire.Probe(founder.incarnation[:8], first.epoch, first.short_id, 0, None)
    joiner.receive(founder.address, word, 0.4)
    assert joiner.configuration == event.state.accepted[0]


def test_who_has_accepted_a_view_starts_again_when_its_founder_is_not_heard_of(lab) -> None:
    """Its incarnation may be counted on there, and so is of no use to another founder."""
    view = lab.configuration(3)
    joiner = Core(
        lab.member(1, incarnation=2),
        seeds=[],
        settings=Settings(),
        rng=random.Random(1),
        cluster_id=view.cluster_id,
        stable=StableState(view),
        has_disk=True,
    )
    joiner.start(0.0)
    founder = lab.member(0, incarnation=2)
    joiner.receive(founder.address, wire.ColdStart(founder, True, 0, b"", 0, True, view.epoch), 0.1)
    first = view.restart(founder, 10).apply(Cut.of([joiner.me]))
    message = wire.FullConfiguration(
        founder.incarnation, first.epoch, first.id, first.encoded(), proposed=True
    )
    (event,) = joiner.receive(founder.address, message, 0.2).events
    joiner.saved(event.state, 0.3)
    ends = [event for second in range(1, 8) for event in joiner.tick(float(second)).events]
    assert Evicted(first.epoch, restarted=("n0",)) in ends


def test_two_without_their_disks_found_nothing_while_those_who_know_look_for_each_other(lab) -> None:
    """Found with real processes, six hosts of which two were emptied: they just wanted to join, were each other's seed,
    heard first of one who had promised itself to another, and one founded a cluster by the promise of the other."""
    view = lab.configuration(6)
    blank = Core(
        lab.member(1, incarnation=2), seeds=[lab.member(2).address], settings=Settings(), rng=random.Random(1)
    )
    blank.start(0.0)
    knowing, other = lab.member(3, incarnation=2), lab.member(2, incarnation=2)
    lowest = lab.member(0, incarnation=2).incarnation
    asked = wire.ColdStart(knowing, True, 1, lowest, 0, True, view.epoch)
    (answer,) = lab.sent(blank.receive(knowing.address, asked, 0.1), wire.ColdStart)
    assert not answer.candidate
    promise = wire.ColdStart(other, False, 1, blank.me.incarnation, answer.turn, True, -1)
    blank.receive(other.address, promise, 0.2)
    for tenth in range(3, 200):
        blank.tick(tenth / 10)
        assert blank.configuration is None


def test_nobody_goes_on_from_a_view_before_one_that_somebody_knows_of(lab) -> None:
    """Found by `rota chaos fuzz --store`, seed 3180: a founder that was told of no confirmation forgot its view, one of
    those who had it lost its disk, and of the other there was a copy; the next founder gave the same epochs again."""
    view = lab.configuration(4)
    founder = remembering(lab, view)
    later = view.epoch + RESTART_STRIDE
    promise(lab, founder, 1, view.epoch)
    promise(lab, founder, 2, -1)
    (waiting,) = promise(lab, founder, 5, later, is_copy=True)
    founder.tick(60.0)
    assert founder.configuration is None
    assert waiting.reason.endswith(f"there was a later view ({later}), of which n5 knows")
    founder.recover(["n0", "n1", "n2"], 61.0)
    founder.tick(61.0)
    assert founder.configuration is not None


@pytest.mark.parametrize("expect", [1, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_founder_that_was_told_to_decides_alone_dies_and_is_started_again(
    cluster, seed: int, expect: int
) -> None:
    """Those that it has let in never heard of it, so they have no memory of that view by right."""
    world = cluster(4, seed=seed, spread=0.05, expect=expect, remember=True)
    faults = MessageFaults(world.simulator, random.Random(seed), world.simulator.crash)
    faults.drop("FullConfiguration", 1.0, world.hosts)
    assert world.run(20.0, lambda: len(world.cores[0].configuration or ()) >= 3)
    world.run(0.2)
    cut_power(world, (0,))
    faults.clear()
    start(world, (0,))
    assert world.run(60.0, lambda: world.together(4))
    assert world.epoch >= RESTART_STRIDE
