"""`edge_failed`: an application reports, once, that a member which this one observes has failed.

Source: the specification, section 1 (local commands); Rapid section 4.1 (edge failure detectors are
pluggable).
"""

from __future__ import annotations

from typing import Any

import pytest

from membership.errors import EdgeError
from membership.protocol.context.effects import Accused, EdgeFailed, EdgeRecovered, Evicted
from membership.protocol.core import Core
from membership.protocol.core.status import Status
from membership.protocol.messages import AlertKind, Gossip
from membership.protocol.view.member import Member
from membership.settings import Settings

NODES = 12


def observers(run: Any, name: str) -> list[Any]:
    """The hosts that observe this member."""
    return [host for host in run.hosts if any(subject.name == name for subject in host.process.subjects)]


def report(run: Any, host: Any, subject: Member) -> None:
    run.simulator.command(host, lambda core, now: core.edge_failed(subject, now))


@pytest.fixture
def run(cluster: Any) -> Any:
    made = cluster(NODES)
    made.boot()
    made.run(3.0)
    return made


def test_it_is_reported_at_once_and_for_certain(lab: Any) -> None:
    core = lab.core_in(lab.configuration(NODES))
    subject = core.subjects[0]
    effects = core.edge_failed(subject, 1.0)
    assert effects.events == (EdgeFailed(subject), Accused(subject))
    now = effects.wake_at
    assert now <= 1.0 + Settings().remove_batch
    gossip = []
    while not gossip:
        effects = core.tick(now)
        gossip = [message for message in lab.sent(effects, Gossip) if message.alerts]
        now = effects.wake_at
    (alert,) = gossip[0].alerts
    view = core.configuration
    assert (alert.kind, view.members[alert.subject]) == (AlertKind.REMOVE, subject)
    assert alert.rings == dict(view.observer_masks(subject))[view.index_of_incarnation(core.me.incarnation)]


def test_one_word_removes_nobody_and_is_withdrawn(run: Any) -> None:
    accuser = observers(run, "n7")[0]
    subject = next(member for member in accuser.process.subjects if member.name == "n7")
    since, epoch = run.now, run.epoch
    report(run, accuser, subject)
    settings = run.settings
    run.run(settings.report_lifetime - 2.0)
    assert not run.seen(EdgeRecovered, since)
    run.run(4.0)
    assert [(name, event.subject) for _, name, event in run.seen(EdgeRecovered, since)] == [
        (accuser.name, subject)
    ]
    run.run(settings.noise_lifetime + settings.report_lifetime)
    assert run.epoch == epoch
    assert not any(host.process._instance.table.removals for host in run.hosts)


def test_when_all_observers_say_so_it_goes_in_one_view_change(run: Any) -> None:
    epoch = run.epoch
    since = run.now
    for host in observers(run, "n7"):
        report(run, host, next(member for member in host.process.subjects if member.name == "n7"))
    assert run.run(5.0, lambda: bool(run.seen(Evicted, since)))
    assert [name for _, name, _ in run.seen(Evicted, since)] == ["h7"]
    assert run.removed(since) == {"n7"}
    assert run.run(20.0, lambda: run.together(NODES)), "it answers probes, and comes back by itself"
    assert run.epoch == epoch + 2


def test_it_stands_over_a_view_change(run: Any) -> None:
    accuser = observers(run, "n7")[0]
    subject = next(member for member in accuser.process.subjects if member.name == "n7")
    report(run, accuser, subject)
    run.simulator.command(accuser, lambda core, now: core.set_metadata({"another": "view"}, now))
    epoch = run.epoch
    assert run.run(5.0, lambda: all(h.process.configuration.epoch == epoch + 1 for h in run.hosts))
    run.run(1.0)
    view = accuser.process.configuration
    index = view.index_of_incarnation(subject.incarnation)
    assert all(index in host.process._instance.table.removals for host in run.hosts)


def test_only_who_observes_a_member_may_say_so(run: Any) -> None:
    core: Core = run.hosts[0].process
    subjects = set(core.subjects)
    strangers = [m for m in core.configuration.members if m not in subjects and m != core.me]
    gone = Member.create("n7", core.subjects[0].address, bytes(16), {})
    for other in (*strangers[:1], core.me, gone):
        with pytest.raises(EdgeError, match="not observed by this process"):
            core.edge_failed(other, 100.0)
    core._views.status = Status.LEFT
    with pytest.raises(EdgeError, match="no member at present"):
        core.edge_failed(core.subjects[0], 100.0)
