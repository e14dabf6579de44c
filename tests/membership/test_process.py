"""A process's membership over several cores: what outlives one, and when the next one starts."""

from __future__ import annotations

import random

from membership.address import Address
from membership.protocol.context.effects import Effects, Evicted
from membership.protocol.context.stable_storage import StableState
from membership.protocol.view.configuration_cache import ConfigurationCache
from membership.runtime.change_feed import ClusterStatus
from membership.runtime.core_factory import CoreFactory, Identity
from membership.runtime.last_view import Remembered
from membership.runtime.process import MemberProcess
from membership.settings import Settings
from tests.membership.conftest import Laboratory


def process(remembered: Remembered | None = None) -> MemberProcess:
    """With a disk."""
    factory = CoreFactory(
        Identity("h0", Address("10.0.0.1", 1000), ()),
        settings=Settings(),
        rng=random.Random(1),
        cache=ConfigurationCache(),
    )
    return MemberProcess(
        factory,
        found=remembered is None,
        expect=1,
        cluster_id=None,
        rejoin=True,
        remembered=remembered,
        saved=remembered,
        has_disk=True,
        rng=random.Random(2),
    )


def say(member: MemberProcess, event: Evicted, now: float) -> Effects:
    """What comes of the core saying this."""
    return member._after(Effects((), (event,), 1e9), now)


def test_a_command_does_not_put_off_the_next_incarnation() -> None:
    member = process()
    member.start(0.0)
    member._evictions = 3
    at = say(member, Evicted(9), 1.0).wake_at
    assert member.state.status is ClusterStatus.REJOINING
    assert 1.0 < at < 20.0
    assert member.set_metadata({"rack": "r1"}, 2.0).wake_at == at
    before = member.core
    member.tick(at)
    assert member.core is not before
    assert dict(member.core.me.metadata) == {"rack": "r1"}


def test_a_last_view_that_is_known_to_be_a_copy_stays_one_when_a_founding_comes_to_nothing() -> None:
    """Else it would count for what the process knew: two clusters, or one that never comes back."""
    member = process(Remembered(StableState(Laboratory().configuration(3)), False, True))
    member.start(0.0)
    say(member, Evicted(1001, restarted=("h1",)), 1.0)
    assert member.is_superseded
    assert member.restart_at is not None
    member.tick(member.restart_at)
    assert not member.core._election.knows


def test_a_view_that_nothing_came_after_counts_when_a_founding_comes_to_nothing() -> None:
    member = process(Remembered(StableState(Laboratory().configuration(3)), False))
    member.start(0.0)
    say(member, Evicted(1001, restarted=("h1",)), 1.0)
    assert not member.is_superseded
    assert member.restart_at is not None
    member.tick(member.restart_at)
    assert member.core._election.knows
    say(member, Evicted(4), 9.0)
    assert not member.is_superseded, "who was removed has what it voted for"
    assert member.restart_at is not None
    member.tick(member.restart_at)
    say(member, Evicted(1_000_000, superseded=True), 20.0)
    assert member.to_save is not None, "that others recovered without this process is written down"
    assert member.to_save.is_copy
