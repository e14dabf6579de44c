"""What is said about a running view change: tallies, votes, and why there is no new view yet."""

from __future__ import annotations

import random
from typing import Any

from consensus import fast_quorum
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.core.suspicions import Suspicions, own_suspicions
from membership.protocol.monitoring.monitor import Monitor
from membership.settings import Settings
from tests.membership.group import Group
from tests.membership.test_paper_rules import accuse_on

K, H, L = Settings().rings, Settings().high_watermark, Settings().low_watermark
SIZE, SUBJECT = 20, 4


def reading(group: Group, index: int = 0) -> Suspicions:
    found = group.cores[index].suspicions(group.now)
    assert found is not None
    return found


def test_a_quiet_cluster_has_nothing_to_say(lab: Any) -> None:
    group = Group(lab, SIZE)
    quiet = reading(group)
    assert (quiet.epoch, quiet.size, quiet.suspects, quiet.votes, quiet.reason) == (1, SIZE, (), (), "")
    assert (quiet.rings, quiet.high, quiet.low) == (K, H, L)


def test_noise_is_told_from_what_holds_the_next_view_up(lab: Any) -> None:
    group = Group(lab, SIZE)
    name = group.view.members[SUBJECT].name
    accusers = accuse_on(group, SUBJECT, L - 1)
    group.run(0.6)
    (suspect,) = reading(group).suspects
    assert (suspect.name, suspect.reports, suspect.standing, suspect.request) == (name, L - 1, "noise", "")
    assert {each.name for each in suspect.accusers} == {group.view.members[index].name for index in accusers}
    assert sum(len(each.rings) for each in suspect.accusers) == L - 1
    assert f"noise below {L}" in reading(group).reason

    for observer, mask in group.view.observer_masks(group.view.members[SUBJECT]):
        if observer not in accusers and mask.bit_count() <= H - 1 - suspect.reports:
            group.accuse(observer, SUBJECT)
            break
    group.run(0.4)
    (suspect,) = reading(group).suspects
    assert L <= suspect.reports == suspect.tally < H
    assert suspect.standing == "unstable"
    assert f"{name} {suspect.tally} of the {H}" in reading(group).reason


def test_votes_are_counted_against_the_quorum(lab: Any) -> None:
    group = Group(lab, SIZE)
    group.lost = lambda sender, receiver, message: type(message).__name__ in ("Decided", "Prepare")
    for index in range(5):
        group.propose(index, group.cut(SUBJECT))
    group.run(0.3)
    seen = reading(group)
    (vote,) = seen.votes
    assert (vote.votes, vote.known, vote.own) == (5, True, True)
    assert vote.removes == (group.view.members[SUBJECT].name,)
    assert seen.fast_quorum == fast_quorum(SIZE)
    assert f"5 of {SIZE} members have voted" in seen.reason
    assert "classic round in" in seen.reason
    other = reading(group, 9)
    assert [(vote.votes, vote.known, vote.removes) for vote in other.votes] == [(5, False, ())]


def test_reports_about_a_dead_member_and_the_observer_s_own_probes(lab: Any) -> None:
    group = Group(lab, SIZE)
    dead = group.view.members[SUBJECT]
    observer = next(index for index in group.view.observers_of(dead) if index != SUBJECT)
    group.crash(SUBJECT)
    assert group.run(20, stop=lambda: bool(reading(group, observer).own))
    assert [each.name for each in reading(group, observer).own] == [dead.name]
    assert group.run(20, stop=lambda: reading(group, observer).epoch == 2)
    assert reading(group, observer).suspects == ()


def test_before_the_first_view_and_after_the_last_there_is_no_reading(lab: Any) -> None:
    group = Group(lab, 3)
    joiner = Core(lab.member(7), seeds=[], settings=Settings(), rng=random.Random(1))
    assert joiner.suspicions(0.0) is None
    leaver = group.cores[0]
    group.simulator.command(group.hosts[0], lambda process, now: process.core.leave(now))
    assert group.run(10, stop=lambda: leaver.status is Status.LEFT)
    assert leaver.suspicions(group.now) is None


def test_a_member_of_a_centralised_cluster_knows_of_its_own_probes_only(lab: Any) -> None:
    context = lab.context(lab.configuration(5), 0)
    monitor = Monitor(context)
    monitor.on_view_change(0.0)
    assert own_suspicions(context, monitor, quorum=True).reason == ""
    subject = monitor.subjects[0].subject
    monitor.on_check(subject.incarnation, healthy=False, certain=True, now=1.0)
    found = own_suspicions(context, monitor, quorum=True)
    assert [(each.name, each.failed) for each in found.own] == [(subject.name, True)]
    assert "the ensemble decides" in found.reason
    assert "no majority of the ensemble" in own_suspicions(context, monitor, quorum=False).reason
