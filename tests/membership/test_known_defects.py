"""One regression test for each known defect, B1 to B20, of the implementation that came before this one.

Each test builds the very situation in which the defect does its harm, on whole cores, and fails if it comes back.
The parts have finer tests beside this file.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import membership
from chaos import NetworkSettings, faults
from chaos.faults import At
from chaos.simulated_cluster.cluster import Cluster
from chaos.simulated_cluster.faults import core_on
from membership.address import Address
from membership.protocol import messages as wire
from membership.protocol.context.effects import Evicted, JoinRefused
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.view.configuration import Configuration
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.protocol.view.cut import Cut, Removal
from membership.protocol.view.member import Member
from membership.protocol.view.rings import ring_keys
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings
from tests.budget import budgeted
from tests.membership.group import Group

SEEDS = budgeted(range(3), 1, in_test=1)


def standing(nodes: int, *, seed: int = 0, settings: Settings | None = None, **options: Any) -> Cluster:
    """A cluster of `nodes` in one view, quiet for a while."""
    cluster = Cluster(nodes, seed=seed, settings=settings, **options)
    cluster.start()
    assert cluster.run(60.0, stop=lambda: cluster.converged() and len(cluster.running()) == nodes)
    cluster.run(cluster.now + 3.0)
    return cluster


def removed(cluster: Cluster) -> set[str]:
    return {name for view in cluster.views for name in view.removed}


# -- B1: votes without incarnation and metadata ------------------------------------------------------


def _restarted(member: Member) -> Member:
    return Member.create(member.name, member.address, b"restarted meanwh", dict(member.metadata))


def _with_metadata(member: Member) -> Member:
    return Member.create(member.name, member.address, member.incarnation, {"rack": "another"})


@pytest.mark.parametrize("other", [_restarted, _with_metadata])
def test_b1_votes_for_two_incarnations_of_a_joiner_are_two_values(lab, other) -> None:
    """A joiner restarts while it joins: some saw the first process, some the second. All must install one."""
    group = Group(lab, 5)
    one = lab.member(50, metadata={"rack": "first"})
    for index in range(5):
        group.propose(index, Cut.of([one if index < 3 else other(one)]))
    assert group.run(20.0, lambda: group.together(group.view.epoch + 1))
    assert len({core.configuration.id for core in group.cores}) == 1
    assert len({core.configuration.members for core in group.cores}) == 1


# -- B2: a fast vote after a classic promise ---------------------------------------------------------


def test_b2_no_fast_vote_after_a_classic_promise_so_five_decide_one_value(lab) -> None:
    """Two vote for A. A third votes for B and coordinates; two more promise, and only then come to A as well.

    B is decided by the last three. If those two still voted, A would have the fast quorum of four elsewhere.
    """
    group = Group(lab, 5)
    by_turn = sorted(range(5), key=lambda index: group.cores[index]._instance.change._turn())
    coordinator, promising, others = by_turn[0], by_turn[1:3], by_turn[3:]
    a, b = group.cut(joins=[lab.member(50)]), group.cut(joins=[lab.member(51)])
    for index in others:
        group.propose(index, a)
    group.propose(coordinator, b)

    def lost(sender: int, receiver: int, message: Any) -> bool:
        # The others are heard by each other only, and hear nothing but votes.
        if sender in others:
            return receiver not in others
        if isinstance(message, wire.Accept) and group.now < 1.8:
            return True  # so that there is time for the votes that must not be cast
        return receiver in others and not isinstance(message, wire.Gossip | wire.CutBody)

    promised: set[int] = set()

    def after(sender: int, message: Any) -> None:
        if isinstance(message, wire.Promised) and sender in promising and sender not in promised:
            promised.add(sender)
            group.simulator.call_after(0.0, lambda: group.propose(sender, a))

    group.lost, group.after = lost, after
    decided = group.view.apply(b).id
    majority = (coordinator, *promising)
    assert group.run(20.0, lambda: all(group.cores[i].configuration.id == decided for i in majority))
    assert promised == set(promising)
    group.run(2.0)
    group.lost = lambda sender, receiver, message: False
    assert group.run(20.0, lambda: group.together(group.view.epoch + 1))
    assert {core.configuration.id for core in group.cores} == {decided}


# -- B3: repeated answers counted twice --------------------------------------------------------------


def test_b3_two_of_five_decide_nothing_however_often_they_answer(lab) -> None:
    """Every datagram arrives twice, and requests are repeated: one live acceptor stays one."""
    group = Group(lab, 5, network=NetworkSettings(duplication=1.0))
    group.crash(2, 3, 4)
    cut = group.cut(2, 3, 4)
    for index in (0, 1):
        group.propose(index, cut)
    group.run(60.0)
    assert any(isinstance(message, wire.Promised) for _, _, message in group.sent)
    assert not any(isinstance(message, wire.Accept) for _, _, message in group.sent)
    assert [core.configuration for core in group.alive()] == [group.view, group.view]


# -- B4: a decision whose joiner was never seen ------------------------------------------------------


def test_b4_a_decided_joiner_that_was_never_seen_is_fetched_before_anything_is_applied(lab) -> None:
    group = Group(lab, 5)
    joiner = lab.member(50, metadata={"rack": "r7"})
    cut = group.cut(joins=[joiner])
    group.lost = lambda sender, receiver, message: (
        receiver == 0 and isinstance(message, wire.CutBody | wire.DecidedChain | wire.FullConfiguration)
    )
    for index in (1, 2, 3, 4):
        group.propose(index, cut)
    assert group.run(5.0, lambda: all(group.cores[i].configuration.epoch == 2 for i in (1, 2, 3, 4)))
    group.run(1.0)
    behind = group.cores[0]
    assert behind.configuration == group.view, "half a cut is no view"
    assert any(sender == 0 and isinstance(m, wire.PullCut) for _, sender, m in group.sent)
    group.lost = lambda sender, receiver, message: False
    assert group.run(3.0, lambda: group.together(2))
    assert behind.configuration.member("n50") == joiner


# -- B5: a coordinator that dies ---------------------------------------------------------------------


@pytest.mark.parametrize("second_dies_after", [wire.Prepare, wire.Accept])
@pytest.mark.parametrize("first_dies_after", [wire.Prepare, wire.Accept])
def test_b5_coordinators_that_die_one_after_the_other_block_nobody(
    lab, first_dies_after: type[wire.Message], second_dies_after: type[wire.Message]
) -> None:
    """After 1a or after 2a, with the votes divided, so that nothing but a classic round can decide."""
    group = Group(lab, 9)
    for index in range(9):
        group.propose(index, group.cut(8) if index % 2 else group.cut(7, 8))
    fates = [first_dies_after, second_dies_after]
    dead: list[int] = []

    def after(sender: int, message: Any) -> None:
        if fates and isinstance(message, fates[0]):
            fates.pop(0)
            dead.append(sender)
            group.simulator.call_after(0.0, lambda: group.crash(sender))

    group.after = after
    group.run(30.0, lambda: not fates and group.together(group.view.epoch + 1))
    assert len(dead) == 2
    assert group.together(group.view.epoch + 1)


# -- B6: no catch-up ---------------------------------------------------------------------------------


def test_b6_a_member_that_missed_decisions_is_no_zombie(lab) -> None:
    """It hears nothing while three views pass, too shortly to be missed; then it is in the last one at once."""
    group = Group(lab, 6)
    group.lost = lambda sender, receiver, message: receiver == 0
    for step in range(3):
        joiner = lab.member(50 + step)
        for index in range(1, 6):
            group.propose(index, Cut.of([joiner]))
        assert group.run(
            2.0, lambda step=step: all(c.configuration.epoch == 2 + step for c in group.cores[1:])
        )
    assert group.cores[0].configuration is group.view
    group.lost = lambda sender, receiver, message: False
    assert group.run(1.5, lambda: group.together(4))


def test_b6_a_member_that_was_removed_learns_it_in_one_round_trip(lab) -> None:
    group = Group(lab, 6)
    group.lost = lambda sender, receiver, message: 0 in (sender, receiver)
    for index in range(1, 6):
        group.propose(index, group.cut(0))
    assert group.run(5.0, lambda: all(core.configuration.epoch == 2 for core in group.cores[1:]))
    assert group.cores[0].status is Status.MEMBER
    group.lost = lambda sender, receiver, message: False
    since, asked = group.now, len(group.sent)
    assert group.run(3.0, lambda: group.cores[0].status is Status.EVICTED)
    ((at, _, _),) = group.seen(Evicted)
    spoke = next(t for t, sender, _ in group.sent[asked:] if sender == 0)
    assert at - max(spoke, since) < 0.02, "its first message in the open is answered by the notice"


# -- B7: failures that add up for ever ---------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_b7_failed_probes_far_apart_never_add_up(seed: int) -> None:
    """Everybody loses a fifth of all packets: one probe in 170 fails, six on each edge in these 1000 seconds."""
    cluster = standing(4, seed=seed, network=NetworkSettings(loss=0.2), count_bytes=False)
    before = cluster.latest
    cluster.run(cluster.now + 1000.0)
    assert cluster.latest is before
    assert cluster.converged()


# -- B8: detectors that begin anew with each view ----------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_b8_view_changes_do_not_put_off_the_detection_of_a_crash(seed: int) -> None:
    """Somebody joins every second after the crash; each is a view change in the middle of counting."""
    cluster = standing(40, seed=seed)
    cluster.apply(faults.Crash(("n7",)))
    crashed = cluster.now
    for step in range(8):
        name = f"n{50 + step}"
        cluster.simulator.call_after(0.5 + step, lambda name=name: cluster.apply(faults.Start((name,))))
    assert cluster.run(crashed + 20.0, stop=lambda: "n7" in removed(cluster))
    between = [view for view in cluster.views[:-1] if view.seconds > crashed]
    assert len(between) >= 2, "no view change came in between: the test shows nothing"
    assert cluster.now - crashed < 7.0


# -- B9: a subject stuck between L and H -------------------------------------------------------------


def test_b9_a_subject_that_only_half_of_its_observers_report_holds_up_nothing_for_ever(lab) -> None:
    group = Group(lab, 20)
    subject = 0
    masks = group.view.observer_masks(group.view.members[subject])
    reported = 0
    for observer, mask in masks:
        if reported.bit_count() + mask.bit_count() <= 6:
            reported |= mask
            group.accuse(observer, subject)
    assert group.settings.low_watermark <= reported.bit_count() < group.settings.high_watermark
    group.run(0.5)
    assert all(core.configuration is group.view for core in group.cores)
    limit = group.settings.blind_reinforcement_timeout + 2.0
    assert group.run(limit, lambda: all(core.configuration.epoch == 2 for core in group.cores[1:]))
    assert group.cores[1].configuration.index_of_incarnation(group.cores[0].me.incarnation) is None


# -- B10: observers at the wrap-around of a ring -----------------------------------------------------


def _brute_force_observers(view: Configuration, member: Member) -> tuple[int, ...]:
    found = []
    for ring in range(view.rings.count):
        order = sorted(
            view.members, key=lambda other: (ring_keys(other, view.rings.count)[ring], other.incarnation)
        )
        own = (ring_keys(member, view.rings.count)[ring], member.incarnation)
        later = [o for o in order if (ring_keys(o, view.rings.count)[ring], o.incarnation) > own]
        found.append(view.members.index((later or order)[0]))
    return tuple(found)


def test_b10_observers_are_right_at_the_end_of_a_ring_after_every_change(lab) -> None:
    """Asking fills the memory of one view; the next one must not inherit an answer, least of all at the ends."""
    rng = random.Random(10)
    view = lab.configuration(8)
    wrapped = 0
    for step in range(25):
        for member in view.members:
            observers = view.observers_of(member)
            assert observers == _brute_force_observers(view, member)
            for ring, observer in enumerate(observers):
                assert view.subjects_of(view.members[observer])[ring] == view.members.index(member)
                last, first = view.rings.orders[ring][-1], view.rings.orders[ring][0]
                if member == last:
                    wrapped += 1
                    assert view.members[observer] == first
        ring = step % view.rings.count
        ends = [view.rings.orders[ring][0], view.rings.orders[ring][-1]]
        gone = [rng.choice(ends)] if step % 2 else []
        view = view.apply(Cut.of([lab.member(100 + step)], [Removal(member.incarnation) for member in gone]))
    assert wrapped > 200


# -- B11: messages of the next epoch -----------------------------------------------------------------


def test_b11_what_the_next_view_says_early_is_not_lost(lab) -> None:
    """Member 0 learns of the decision late. What the others reported in the new view meanwhile it then knows,
    although everything they say afterwards is lost."""
    group = Group(lab, 6)
    cut = Cut.of([lab.member(50)])
    later = group.view.apply(cut)
    names = [core.me.name for core in group.cores]
    subject = next(
        index
        for index, member in enumerate(later.members)
        if member.name != names[0]
        and 0 < dict(later.observer_masks(member)).get(later.index_of(names[1]), 0).bit_count() < 3
    )
    behind = group.cores[0]

    def lost(sender: int, receiver: int, message: Any) -> bool:
        if receiver != 0:
            return False
        early = isinstance(message, wire.Gossip) and message.epoch == later.epoch and bool(message.alerts)
        return not early or behind._instance is None

    group.lost = lost
    for index in range(1, 6):
        group.propose(index, cut)
    assert group.run(2.0, lambda: all(core.configuration.id == later.id for core in group.cores[1:]))
    group.accuse(1, subject)
    group.run(1.0)
    assert behind.configuration is group.view
    group.lost = lambda sender, receiver, message: (
        receiver == 0 and not isinstance(message, wire.DecidedChain | wire.Decided)
    )
    request = wire.CatchUpRequest(behind.me.incarnation, group.view.epoch, group.view.id)
    effects = group.cores[1].receive(behind.me.address, request, group.now)
    (chain,) = (send.message for send in effects.sends if isinstance(send.message, wire.DecidedChain))
    behind.receive(group.cores[1].me.address, chain, group.now)
    assert behind.configuration.id == later.id
    assert behind._instance.table.removals[subject].rings


# -- B12: a broadcast without repair -----------------------------------------------------------------


def test_b12_a_report_whose_every_broadcast_is_lost_still_reaches_everybody(lab) -> None:
    """Five of twenty lose every gossip message with a report in it until nobody spreads it any more."""
    group = Group(lab, 20)
    subject = 7
    observer, mask = group.view.observer_masks(group.view.members[subject])[0]
    assert mask.bit_count() < group.settings.low_watermark, "it must stay noise, so that nothing is decided"
    deaf = [index for index in range(20) if index not in (observer, subject)][:5]
    group.lost = lambda sender, receiver, message: (
        receiver in deaf and isinstance(message, wire.Gossip) and bool(message.alerts)
    )
    group.accuse(observer, subject)
    group.run(5.0)
    assert all(subject not in group.cores[index]._instance.table.removals for index in deaf)
    group.lost = lambda sender, receiver, message: False

    def everybody_knows() -> bool:
        return all(subject in core._instance.table.removals for core in group.cores)

    assert group.run(3.0, everybody_knows)


# -- B13: memory that grows with churn ----------------------------------------------------------------

_SHARED_OR_BOUNDED = (Configuration, ConfigurationCache, Settings, random.Random, Member, type, str, bytes)
"""Not walked into: values without growth, and the views, whose bounds have tests of their own."""


def entries(root: object) -> int:
    """Entries in all containers that belong to `root`, by walking everything it refers to."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED_OR_BOUNDED) or callable(found):
            continue
        seen.add(id(found))
        if isinstance(found, Mapping):
            total += len(found)
            waiting += [*found.keys(), *found.values()]
        elif isinstance(found, list | tuple | set | frozenset | deque):
            total += len(found)
            waiting += found
        else:
            waiting += vars(found).values() if hasattr(found, "__dict__") else ()
            slots = [name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(found, name) for name in slots if hasattr(found, name)]
    return total


def _churn(newcomers: int) -> list[int]:
    """The most entries of any founding member, after each tenth of so many newcomers that came and went."""
    cluster = standing(5, seed=13, settings=Settings.local(), count_bytes=False)
    most = []
    for number in range(newcomers):
        name = f"n{100 + number}"
        cluster.apply(faults.Start((name,)))
        gone = faults.Leave((name,)) if number % 3 else faults.Crash((name,))
        cluster.schedule([At(3.0, gone)], offset=cluster.now)
        cluster.run(cluster.now + 0.6)
        if (number + 1) % (newcomers // 10) == 0:
            most.append(max(entries(core_on(cluster.hosts[f"n{index}"])) for index in range(5)))
    cluster.run(cluster.now + 20.0)
    came = {name for view in cluster.views for name in view.joined}
    went = {name for view in cluster.views for name in view.removed}
    assert len(came) + len(went) >= newcomers, "hardly anybody came in: the test shows nothing"
    assert cluster.latest is not None
    assert len(cluster.latest) == 5
    return most


def test_b13_the_walk_sees_what_a_part_keeps(lab) -> None:
    core = lab.core_in(lab.configuration(5))
    before = entries(core)
    core._admission._waiting.update({bytes([n]) * 16: lab.member(100 + n) for n in range(50)})
    assert entries(core) == before + 50


def test_b13_churn_leaves_nothing_behind_in_any_part_of_a_member() -> None:
    most = _churn(100)
    assert max(most) < 1200, most


@pytest.mark.slow("a thousand joins and departures")
def test_b13_nor_do_a_thousand_joins_and_departures() -> None:
    most = _churn(1000)
    assert max(most) < 1200, most
    assert max(most[5:]) < 1.3 * max(most[:5]), most


# -- B14: no signer checks ------------------------------------------------------------------------


def test_b14_no_single_forged_packet_removes_anybody(lab) -> None:
    """Each says, in one way or another, that member 3 is to go, to everybody; each is counted and dropped."""
    group = Group(lab, 12)
    victim = group.view.members[3]
    stranger = b"a stranger's tag"
    header = (stranger, group.view.epoch, group.view.id)
    short_header = (stranger[:8], group.view.epoch, group.view.short_id)
    cut = group.cut(3)
    everybody = bytes([0xFF, 0x0F])
    forged = [
        wire.Gossip(*short_header, wire.Digest(), (wire.Alert(wire.AlertKind.REMOVE, 3, 1023),)),
        wire.Gossip(*short_header, wire.Digest(), (), ((cut.hash, everybody),)),
        wire.LeaveRequest(*header),
        wire.Prepare(*header, 5, 1),
        wire.Accept(*header, 5, 1, cut.hash),
        wire.Decided(*header, cut.hash, group.view.epoch + 1),
        wire.DecidedChain(*header, (cut,)),
        wire.EvictedNotice(victim.incarnation, group.view.epoch + 7),
    ]
    for message in forged:
        for index, core in enumerate(group.cores):

            def receive(process: Any, now: float, message: Any = message) -> Any:
                return process.receive(Address("10.66.66.66", 666), message, now)

            before = sum(n for reason, n in core.statistics().items() if reason.startswith("dropped"))
            group.simulator.command(group.hosts[index], receive)
            after = sum(n for reason, n in core.statistics().items() if reason.startswith("dropped"))
            if not isinstance(message, wire.EvictedNotice):
                assert after == before + 1, f"{message} was not counted at {index}"
    group.run(30.0)
    assert all(core.configuration is group.view for core in group.cores)
    assert group.cores[3].status is Status.MEMBER


# -- B15: a restart at the same address --------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_b15_a_process_restarted_at_its_address_is_replaced_in_one_cut_at_once(seed: int) -> None:
    """Nobody waits for failure detection, which takes five seconds and more, and nobody sees a view without it."""
    cluster = standing(8, seed=seed)
    before = len(cluster.views)
    cluster.apply(faults.Restart(("n5",)))
    restarted = cluster.now
    assert cluster.run(restarted + 3.0, stop=cluster.converged)
    (view,) = cluster.views[before:]
    assert (view.joined, view.removed, view.size) == (("n5",), ("n5",), 8)


def test_b15_while_the_old_process_answers_its_address_and_name_are_its_own(lab) -> None:
    group = Group(lab, 8)
    defender = group.cores[5].me
    impostor = Member.create(defender.name, Address("10.0.0.9", 99), b"somebody else...")
    core = Core(impostor, seeds=[group.cores[1].me.address], settings=Settings(), rng=random.Random(1))
    refused = group.join(core)
    group.run(10.0)
    reasons = {event.reason for _, _, event in group.seen(JoinRefused, refused)}
    assert any(defender.name in reason for reason in reasons), reasons
    assert all(core.configuration is group.view for core in group.cores[:8])


# -- B16: joiners outside the cut --------------------------------------------------------------------


def test_b16_a_joiner_left_out_of_a_cut_is_told_at_once(lab) -> None:
    """Its observers wait for further joiners when a cut without it is decided. It does not wait for a time-out."""
    settings = Settings(join_batch_quiet=4.0, join_batch_cap=4.0, rpc_cap=60.0, join_attempt_timeout=60.0)
    group = Group(lab, 8, settings=settings)
    joiner = group.join(
        Core(lab.member(50), seeds=[group.cores[1].me.address], settings=settings, rng=random.Random(50))
    )
    group.run(1.0)
    assert any(sender == joiner and isinstance(m, wire.ObserveJoin) for _, sender, m in group.sent)
    for index in range(8):
        group.propose(index, group.cut(0))
    assert group.run(2.0, lambda: all(core.configuration.epoch == 2 for core in group.cores[1:8]))
    assert group.cores[joiner].status is Status.JOINING
    group.run(0.2)
    assert any(isinstance(m, wire.ObserveJoin) and m.epoch == 2 for _, who, m in group.sent if who == joiner)
    assert group.run(10.0, lambda: group.cores[joiner].status is Status.MEMBER)


# -- B17: two members --------------------------------------------------------------------------------


def test_b17_one_of_two_cannot_remove_the_other_says_so_and_goes_on_when_it_is_back() -> None:
    cluster = standing(2)
    before = cluster.latest
    cluster.apply(faults.Pause(("n1",)))
    cluster.run(cluster.now + 60.0)
    assert cluster.latest is before, "one is no majority of two"
    assert [(notice.host, notice.lost) for notice in cluster.quorum_notices] == [("n0", True)]
    assert "two" in (Core.__doc__ or "").lower()
    assert "QuorumLost" in (Core.__doc__ or "")
    cluster.apply(faults.Resume(("n1",)))
    assert cluster.run(cluster.now + 10.0, stop=lambda: not cluster.quorum_notices[-1].lost)
    cluster.run(cluster.now + 10.0)
    assert cluster.latest is before
    assert cluster.converged()


@pytest.mark.parametrize("seed", [1501])
@pytest.mark.parametrize("victim", ["n0", "n1", "n2"])
def test_a_dead_member_of_three_is_removed_though_its_only_observer_sees_nobody_else(
    seed: int, victim: str
) -> None:
    """Once in 512 configurations all ten rings of three go the same way round; the observer doubted itself for ever."""
    cluster = standing(3, seed=seed)
    view = cluster.latest
    (dead,) = (member for member in view.members if member.name == victim)
    (observer,) = set(view.observers_of(dead))
    assert set(view.subjects_of(view.members[observer])) == {view.index_of_incarnation(dead.incarnation)}
    cluster.apply(faults.Crash((victim,)))
    assert cluster.run(cluster.now + 12.0, stop=lambda: len(cluster.latest) == 2)


def test_b17_the_operator_command_takes_one_of_two_on() -> None:
    cluster = standing(2)
    cluster.apply(faults.Crash(("n1",)))
    cluster.apply(faults.Evict("n0", "n1"))
    assert cluster.run(cluster.now + 60.0, stop=lambda: bool(cluster.quorum_notices))
    assert len(cluster.latest) == 2
    cluster.apply(faults.Recover(("n0",)))
    assert cluster.run(cluster.now + 5.0, stop=cluster.converged)
    assert len(cluster.latest) == 1
    assert [notice.lost for notice in cluster.quorum_notices] == [True, False]
    cluster.apply(faults.Start(("n1",)))
    assert cluster.run(cluster.now + 10.0, stop=lambda: cluster.converged() and len(cluster.latest) == 2)


# -- B18: state touched from two threads -------------------------------------------------------------


def test_b18_whatever_thread_asks_only_one_touches_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads use one membership at once; the core is called in the thread that runs trio, and nowhere else."""
    callers: dict[str, set[int]] = {}
    for name in ("start", "receive", "tick", "leave", "set_metadata", "evict", "statistics"):
        original = getattr(Core, name)

        def recorded(
            self: Core, *args: Any, _name: str = name, _original: Any = original, **options: Any
        ) -> Any:
            callers.setdefault(_name, set()).add(threading.get_ident())
            return _original(self, *args, **options)

        monkeypatch.setattr(Core, name, recorded)
    with membership.blocking.join(
        "127.0.0.1:7946", network=membership.InMemoryNetwork(), settings=Settings.local(), found=True
    ) as cluster:

        def use(number: int) -> None:
            cluster.set_metadata({"thread": str(number)})
            assert cluster.statistics()
            with contextlib.suppress(membership.EvictionError):
                cluster.evict("nobody")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(use, range(8)))
    assert set(callers) >= {"start", "tick", "leave", "set_metadata", "evict", "statistics"}
    threads = set.union(*callers.values())
    assert len(threads) == 1
    assert threading.get_ident() not in threads


# -- B19: a detector of an older view ----------------------------------------------------------------


def test_b19_what_a_detector_saw_of_an_edge_that_is_gone_accuses_nobody(lab) -> None:
    """Member 0 finds all its subjects silent; then a view comes in which some of them are not its subjects."""
    core = lab.core_in(lab.configuration(12), 0)
    view = core.configuration
    subjects = {view.members[index].incarnation for index in view.subjects_of(core.me)}
    number = 50
    while True:  # newcomers take their places between member 0 and its subjects
        cut = Cut.of([lab.member(number + step) for step in range(12)])
        later = view.apply(cut)
        still = {later.members[index].incarnation for index in later.subjects_of(core.me)}
        if subjects - still:
            break
        number += 100
    effects = core.tick(0.0)
    while effects.wake_at < 30.0:
        effects = core.tick(effects.wake_at)
    core._views.apply(core._instance, cut, 30.0)
    former = {later.index_of_incarnation(incarnation) for incarnation in subjects - still}
    watched = {edge.subject.incarnation for edge in core._monitor.subjects}
    assert watched == still
    effects = core.tick(30.0)
    while effects.wake_at < 32.0:
        effects = core.tick(effects.wake_at)
    assert not former & set(core._instance.table.removals)


@pytest.mark.parametrize("seconds", [3.2, 3.6, 4.0, 4.4])
def test_b19_the_silence_of_a_dead_process_is_not_held_against_its_successor(seconds: float) -> None:
    """It is dead until it is nearly accused, or just so; then a new process answers at its address."""
    cluster = standing(8, seed=1)
    cluster.apply(faults.Crash(("n5",)))
    cluster.run(cluster.now + seconds)
    cluster.apply(faults.Start(("n5",)))
    cluster.run(cluster.now + 60.0)
    assert cluster.converged()
    gone = [name for view in cluster.views for name in view.removed]
    assert gone == ["n5"], "the old process goes once, the new one never"


# -- B20: who left, who failed, who was evicted ------------------------------------------------------


def test_b20_left_failed_and_evicted_members_look_different_to_everybody() -> None:
    cluster = standing(9, seed=20)
    deltas: dict[str, list[ViewChanged]] = {}
    inner = cluster.simulator.on_events
    assert inner is not None

    def listen(host: Any, events: Any) -> None:
        deltas.setdefault(host.name, []).extend(event for event in events if isinstance(event, ViewChanged))
        inner(host, events)

    cluster.simulator.on_events = listen
    cluster.rejoin = False
    cluster.apply(faults.Leave(("n6",)))
    cluster.apply(faults.Crash(("n7",)))
    cluster.simulator.command(cluster.hosts["n1"], lambda core, now: core.evict("n8", now))
    assert cluster.run(
        cluster.now + 20.0, stop=lambda: len(cluster.latest or ()) == 6 and cluster.converged()
    )
    for name in (f"n{number}" for number in range(6)):
        told = {
            "left": [member.name for event in deltas[name] for member in event.left],
            "failed": [member.name for event in deltas[name] for member in event.failed],
            "evicted": [member.name for event in deltas[name] for member in event.evicted],
        }
        assert told == {"left": ["n6"], "failed": ["n7"], "evicted": ["n8"]}, name
