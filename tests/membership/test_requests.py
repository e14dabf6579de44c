"""New metadata and forced evictions, agreed with the view: one view change each, also under loss.

Source: the specification, sections 3.8 and 3.9.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from chaos import NetworkSettings
from membership.errors import EvictionError
from membership.protocol import messages as wire
from membership.protocol.context.effects import Evicted
from membership.protocol.core.status import Status
from membership.protocol.view.cut import Cut, Removal, Update
from membership.protocol.view.member import RECORD_LIMIT, MemberError
from membership.protocol.view.view_difference import ViewChanged
from membership.settings import Settings

LOSSES = (0.0, 0.2)
SEEDS = range(5)


def command(world, number: int, call) -> None:
    world.simulator.command(world.hosts[number], call)


def changes_after(world, epoch: int) -> list[ViewChanged]:
    return [event for _, _, event in world.seen(ViewChanged) if event.configuration.epoch > epoch]


def metadata_of(world, number: int) -> list[dict[str, str]]:
    return [core.configuration.member(f"n{number}").attributes for core in world.cores]


class TestMetadata:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_one_view_change_agrees_on_them(self, cluster, size: int, loss: float) -> None:
        for seed in SEEDS:
            world = cluster(size, seed=seed, network=NetworkSettings(loss=loss))
            world.boot()
            epoch = world.epoch
            number = seed % size
            command(world, number, lambda core, now: core.set_metadata({"rack": "r9"}, now))
            assert world.run(20, lambda: metadata_of(world, number) == [{"rack": "r9"}] * size)  # noqa: B023
            world.run(15)
            assert world.epoch == epoch + 1, f"seed {seed}: one view change for one request"
            seen = changes_after(world, epoch)
            assert len(seen) == size
            for event in seen:
                assert [(member.name, member.attributes) for member in event.updated] == [
                    (f"n{number}", {"rack": "r9"})
                ]
                others = (event.joined, event.left, event.failed, event.replaced, event.evicted)
                assert not any(others)
            assert world.hosts[number].process.me.attributes == {"rack": "r9"}

    def test_of_several_requests_the_last_one_counts_and_none_goes_back(self, cluster) -> None:
        world = cluster(7, seed=3)
        world.boot()
        for value in ("a", "b", "c"):
            command(world, 4, lambda core, now, value=value: core.set_metadata({"rack": value}, now))
            world.run(0.05)
        assert world.run(20, lambda: metadata_of(world, 4) == [{"rack": "c"}] * 7)
        world.run(10)
        values = [
            event.updated[0].attributes["rack"] for _, name, event in world.seen(ViewChanged) if event.updated
        ]
        assert set(values) <= {"a", "c"}, "one value per configuration, then the newest"
        assert metadata_of(world, 4) == [{"rack": "c"}] * 7

    def test_everybody_at_once_is_one_view_change(self, cluster) -> None:
        world = cluster(12, seed=1)
        world.boot()
        epoch = world.epoch
        for number in range(12):
            command(world, number, lambda core, now: core.set_metadata({"wave": "2"}, now))
        assert world.run(20, lambda: all(metadata_of(world, n) == [{"wave": "2"}] * 12 for n in range(12)))
        assert world.epoch == epoch + 1

    def test_a_crash_in_the_middle_of_a_request_does_not_stand_in_the_way(self, cluster) -> None:
        for seed in SEEDS:
            world = cluster(9, seed=seed, network=NetworkSettings(loss=0.2), rejoin=False)
            world.boot()
            command(world, 5, lambda core, now: core.set_metadata({"rack": "r9"}, now))
            world.simulator.call_after(
                0.004 * seed, lambda world=world: world.simulator.crash(world.hosts[5])
            )
            assert world.run(60, lambda: world.together(8)), f"seed {seed}"  # noqa: B023

    def test_they_survive_a_whole_configuration(self, cluster) -> None:
        """A member that was cut off meanwhile gets the view, not the steps, and sees what is new in it."""
        settings = Settings(decisions_kept=1)
        world = cluster(6, seed=2, settings=settings)
        world.boot()
        world.simulator.network.partition([range(5), [5]])
        for value in ("a", "b", "c"):
            epoch = world.epoch
            command(world, 2, lambda core, now, value=value: core.set_metadata({"rack": value}, now))
            assert world.run(3, lambda: world.epoch > epoch)  # noqa: B023
        world.simulator.network.heal()
        assert world.run(20, lambda: metadata_of(world, 2) == [{"rack": "c"}] * 6)
        (event,) = [e for _, name, e in world.seen(ViewChanged) if name == "h5" and e.updated]
        assert event.updated[0].attributes == {"rack": "c"}

    def test_a_joiner_asks_once_it_is_in(self, cluster) -> None:
        world = cluster(3, seed=2)
        world.boot()
        host = world.add(3)
        world.simulator.start(host)
        world.simulator.command(host, lambda core, now: core.set_metadata({"late": "yes"}, now))
        assert world.run(10, lambda: world.together(4) and metadata_of(world, 3) == [{"late": "yes"}] * 4)

    def test_beyond_the_bound_they_are_refused_where_they_are_given(self, lab) -> None:
        core = lab.core_in(lab.configuration(3))
        with pytest.raises(MemberError, match="shorten its metadata"):
            core.set_metadata({"text": "x" * RECORD_LIMIT}, 1.0)
        assert not core.tick(1.0).sends or core.me.attributes == {}

    def test_a_request_that_is_fulfilled_already_says_nothing(self, lab) -> None:
        core = lab.core_in(lab.configuration(3))
        assert not core.set_metadata({}, 0.0).sends

    def test_b14_a_member_can_change_its_own_metadata_only(self, lab) -> None:
        view = lab.configuration(5)
        core = lab.core_in(view, 1)
        sender, victim = view.members[2], view.members[3]
        for record, reason in (
            (msgspec.structs.replace(victim, metadata=(("a", "b"),)), "somebody else"),
            (msgspec.structs.replace(sender, name="other"), "somebody else"),
            (msgspec.structs.replace(sender, metadata=(("a", "b" * 2000),)), "beyond their bound"),
        ):
            before = core.statistics().get("alerts raised", 0)
            request = wire.UpdateRequest(sender.incarnation, view.epoch, view.id, record)
            core.receive(sender.address, request, 1.0)
            core.tick(2.0)
            assert core.statistics().get("alerts raised", 0) == before
            assert any(reason in name for name in core.statistics())

    def test_a_gossiped_record_of_a_stranger_or_beyond_the_bound_is_refused(self, lab) -> None:
        view = lab.configuration(5)
        core = lab.core_in(view, 1)
        sender = view.members[2]
        stranger = lab.member(77)
        renamed = msgspec.structs.replace(view.members[3], name="other")
        huge = msgspec.structs.replace(view.members[3], metadata=(("a", "b" * 2000),))
        for record in (stranger, renamed, huge, None):
            alert = wire.Alert(wire.AlertKind.UPDATE, -1, 1, 0, record)
            gossip = wire.Gossip(sender.incarnation[:8], view.epoch, view.short_id, wire.Digest(), (alert,))
            core.receive(sender.address, gossip, 1.0)
        assert core.statistics()["dropped: update alert without the record of a member"] == 4
        assert not core._instance.table.joins

    def test_they_do_not_move_anybody_on_the_rings(self, lab) -> None:
        for size in (5, 200):  # rebuilt, and edited
            view = lab.configuration(size)
            record = view.members[3]
            later = view.apply(Cut.of(updates=[Update(record.incarnation, (("a", "b"),))]))
            assert [m.incarnation for m in later.members] == [m.incarnation for m in view.members]
            assert later.members[3].attributes == {"a": "b"}
            assert later.joined_epochs == view.joined_epochs
            assert later.id != view.id
            for member in view.members:
                assert later.observers_of(member) == view.observers_of(member)
                assert later.subjects_of(member) == view.subjects_of(member)
            assert all(record not in order for order in later.rings.orders), "no ring keeps the old record"

    def test_the_hash_covers_them(self) -> None:
        one, other = (Cut.of(updates=[Update(bytes(16), (("a", value),))]) for value in "bc")
        assert one.hash != other.hash != Cut.of().hash


class TestEviction:
    @pytest.mark.parametrize("size", [2, 3, 8, 20])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_one_view_change_removes_a_healthy_member_and_says_so(
        self, cluster, size: int, loss: float
    ) -> None:
        for seed in SEEDS:
            world = cluster(size, seed=seed, network=NetworkSettings(loss=loss), rejoin=False)
            world.boot()
            epoch = world.epoch
            command(world, 0, lambda core, now: core.evict("n1", now))
            assert world.run(20, lambda: world.together(size - 1)), f"seed {seed}"  # noqa: B023
            world.run(15)
            assert world.epoch == epoch + 1
            changes = changes_after(world, epoch)
            assert len(changes) == size - 1
            for event in changes:
                assert [member.name for member in event.evicted] == ["n1"]
                assert not any((event.left, event.failed, event.joined, event.updated))
            ((_, name, event),) = world.seen(Evicted)
            assert (name, event.by_operator) == ("h1", True)
            assert world.hosts[1].process is None

    def test_b20_left_failed_and_evicted_are_told_apart(self, cluster) -> None:
        world = cluster(9, seed=4, rejoin=False)
        world.boot()
        since = world.now
        command(world, 3, lambda core, now: core.leave(now))
        assert world.run(10, lambda: world.hosts[3].process.status is Status.LEFT)
        world.simulator.crash(world.hosts[3])
        command(world, 0, lambda core, now: core.evict("n4", now))
        assert world.run(20, lambda: world.together(7))
        world.simulator.crash(world.hosts[5])
        assert world.run(30, lambda: world.together(6))
        told = {
            (kind, member.name)
            for _, _, event in world.seen(ViewChanged, since)
            for kind in ("left", "evicted", "failed")
            for member in getattr(event, kind)
        }
        assert told == {("left", "n3"), ("evicted", "n4"), ("failed", "n5")}

    def test_a_dead_member_can_be_evicted_before_anybody_misses_it(self, cluster) -> None:
        world = cluster(6, seed=1, rejoin=False)
        world.boot()
        world.simulator.crash(world.hosts[4])
        started = world.now
        command(world, 0, lambda core, now: core.evict("n4", now))
        assert world.run(20, lambda: world.together(5))
        assert world.now - started < 3.0, "detection alone takes four probe intervals"
        assert world.removed(started) == set()
        assert {m.name for _, _, e in world.seen(ViewChanged, started) for m in e.evicted} == {"n4"}

    def test_b17_of_two_members_the_dead_one_cannot_be_evicted(self, cluster) -> None:
        """Two is the quorum of two: only `recover` helps. The request ends by itself."""
        world = cluster(2, seed=1, rejoin=False)
        world.boot()
        world.simulator.crash(world.hosts[1])
        command(world, 0, lambda core, now: core.evict("n1", now))
        world.run(60)
        assert len(world.hosts[0].process.configuration) == 2
        assert world.hosts[0].process._requests.deadline == float("inf")

    def test_a_later_stranger_learns_from_the_notice_that_it_was_an_operator(self, lab) -> None:
        view = lab.configuration(6)
        core = lab.core_in(view)
        for index, evicted in ((3, True), (4, False)):
            gone = core.configuration.index_of_incarnation(view.members[index].incarnation)
            cut = Cut.of(removals=[Removal(core.configuration.members[gone].incarnation, False, evicted)])
            core._views.apply(core._instance, cut, 1.0)
            core._context.take_effects(1.0)
            former = view.members[index]
            probe = wire.Probe(former.incarnation[:8], view.epoch, view.short_id, 1, None)
            (notice,) = lab.sent(core.receive(former.address, probe, 2.0 + index), wire.EvictedNotice)
            assert notice.by_operator is evicted

    def test_who_cannot_be_evicted(self, lab) -> None:
        core = lab.core_in(lab.configuration(3))
        with pytest.raises(EvictionError, match="no member 'n77'"):
            core.evict("n77", 0.0)
        with pytest.raises(EvictionError, match="this process itself"):
            core.evict(core.me.name, 0.0)

    def test_an_eviction_asked_of_the_wrong_observer_is_counted(self, lab) -> None:
        view = lab.configuration(40)
        core = lab.core_in(view, 0)
        subject = next(
            member
            for member in view.members
            if 0 not in {index for index, _ in view.observer_masks(member)} and member != core.me
        )
        request = wire.EvictRequest(view.members[1].incarnation, view.epoch, view.id, subject.incarnation)
        core.receive(view.members[1].address, request, 1.0)
        assert core.statistics()["dropped: an eviction that asks somebody else's observer"] == 1

    def test_many_requests_at_once(self, cluster) -> None:
        """Evictions, leaves, failures and new metadata together: agreement, and everybody told alike."""
        for seed in SEEDS:
            world = cluster(16, seed=seed, network=NetworkSettings(loss=0.1), rejoin=False)
            world.boot()
            rng = random.Random(seed)
            gone = rng.sample(range(1, 16), 6)
            for number in gone[:2]:
                command(world, 0, lambda core, now, n=number: core.evict(f"n{n}", now))
            for number in gone[2:4]:
                command(world, number, lambda core, now: core.leave(now))
            for number in gone[4:]:
                world.simulator.crash(world.hosts[number])
            stays = [number for number in range(16) if number not in gone]
            for number in stays:
                command(world, number, lambda core, now: core.set_metadata({"x": "y"}, now))

            def done(world=world, stays=stays) -> bool:
                cores = [world.hosts[number].process for number in stays]
                return all(
                    len(core.configuration) == 10 and core.configuration is cores[0].configuration
                    for core in cores
                ) and all(member.attributes == {"x": "y"} for member in cores[0].configuration.members)

            assert world.run(60, done), f"seed {seed}"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_graceful_leave_is_one_view_change_under_loss_too(cluster, loss: float) -> None:
    for seed in SEEDS:
        world = cluster(8, seed=seed, network=NetworkSettings(loss=loss))
        world.boot()
        epoch = world.epoch
        host = world.hosts[3]
        command(world, 3, lambda core, now: core.leave(now))
        assert world.run(6.0, lambda: host.process.status is Status.LEFT)  # noqa: B023
        world.simulator.crash(host)
        assert world.run(10.0, lambda: world.together(7))  # noqa: B023
        world.run(8.0)
        assert world.epoch == epoch + 1, f"seed {seed}"
        for event in changes_after(world, epoch):
            assert [member.name for member in event.left] == ["n3"]
            assert not any((event.failed, event.evicted, event.joined))
