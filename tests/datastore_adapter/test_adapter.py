"""The adapter's promises beyond reconfiguration: observation, refusals, cancellation, fail-over, inverse."""

from __future__ import annotations

import pytest

from datastore_adapter import LogAdapter, Reopening
from datastore_adapter.interface import (
    Adapter,
    AdapterError,
    Cancelled,
    Done,
    Failed,
    Fence,
    Observation,
    Pending,
    Placement,
    ReplicaState,
    Role,
    Running,
    ServiceRoles,
    Step,
    StepStatus,
    Unreachable,
)
from datastore_adapter.log.messages import Request, Seal
from tests.datastore_adapter.harness import Harness


async def observed(adapter: LogAdapter) -> Observation:
    observation = await adapter.observe()
    assert isinstance(observation, Observation)
    return observation


async def ended(harness: Harness, adapter: LogAdapter, step: Step) -> StepStatus:
    while isinstance(status := await adapter.poll(step), Running):
        await harness.runtime.sleep(0.01)
    return status


def test_it_is_an_adapter() -> None:
    adapter: Adapter = Harness(1).adapter()
    assert adapter.capabilities.name == "log"
    assert adapter.capabilities.resumable_transfer


def test_before_anything_was_founded_nothing_is_known() -> None:
    harness = Harness(2)

    async def story() -> None:
        adapter = LogAdapter(harness.cluster.runtime("stranger"), "stranger", {"n1": "n1:1"})
        answer = await adapter.observe()
        assert isinstance(answer, Unreachable)
        assert "knows a layout" in answer.reason

    harness.loop.run(story())


def test_the_genesis_is_observed_and_any_host_of_the_view_can_be_asked() -> None:
    harness = Harness(3)

    async def story() -> None:
        observation = await observed(LogAdapter(harness.cluster.runtime("x"), "x", harness.cluster.addresses))
        assert observation.layout_epoch == 0
        assert observation.segments == ()
        assert observation.roles == ServiceRoles(("n0",))
        assert observation.cluster_id == "c0ffee"
        assert not observation.unfinished

    harness.loop.run(story())


def test_an_observation_tells_chains_bytes_and_who_is_gone() -> None:
    harness = Harness(4, segments=2)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        segment = (await observed(adapter)).segments[0]
        assert [replica.host for replica in segment.replicas] == list(
            harness.document.layout.segments[0].open_extent.chain
        )
        assert [replica.role for replica in segment.replicas] == [Role.PRIMARY, Role.REPLICA, Role.REPLICA]
        assert {replica.state for replica in segment.replicas} == {ReplicaState.IN_SYNC}
        assert {replica.bytes for replica in segment.replicas} == {segment.bytes}
        assert segment.bytes > 5 * 36
        harness.crash("n1")
        adapter.set_hosts(harness.view_epoch, harness.cluster.addresses)
        observation = await observed(adapter)
        assert observation.unresponsive == {"n1"}
        gone = {
            replica.host
            for segment in observation.segments
            for replica in segment.replicas
            if replica.state is ReplicaState.GONE
        }
        assert gone == {"n1"}

    harness.loop.run(story())


@pytest.mark.parametrize(("lost", "fewest"), [(False, 3), (True, 2)], ids=["drained", "lost"])
def test_in_the_middle_of_a_move_every_record_counts_its_own_copies(lost: bool, fewest: int) -> None:
    """The host that leaves has the old records and the one that comes the new: both are not in sync, and none is short
    of a copy.  The twin counts the live copies of every address."""
    harness = Harness(4, segments=2)

    def twin(key: str) -> int:
        segment = harness.document.layout.segment(key)
        assert segment is not None
        starts = [extent.start for extent in segment.extents]
        return min(len(set(segment.extent_of(start).chain) & set(harness.members)) for start in starts)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(40)
        if lost:
            harness.crash("n1")
        else:
            harness.drained = {"n1"}
        adapter.set_hosts(harness.view_epoch, harness.members)
        before = await observed(adapter)
        moved = [s.key for s in before.segments if any(copy.host == "n1" for copy in s.replicas)]
        (opened, *_) = adapter.lower(before, harness.target(before)).steps
        await adapter.start(opened, Fence(harness.view_epoch, before.layout_epoch, "plan", opened.number))
        assert await ended(harness, adapter, opened) == Done()
        seen = {segment.key: segment for segment in (await observed(adapter)).segments}
        for key in moved:
            states = [copy.state for copy in seen[key].replicas]
            assert states.count(ReplicaState.IN_SYNC) == 2
            assert ReplicaState.SYNCING in states
            assert seen[key].fewest_copies == twin(key) == fewest
        await harness.settle(adapter)
        assert {segment.fewest_copies for segment in (await observed(adapter)).segments} == {3}

    harness.loop.run(story())


def test_changes_that_writers_wait_for_are_told_with_the_time_of_their_parts() -> None:
    harness = Harness(4, segments=2)
    told: list[tuple[float, Reopening]] = []
    runtime = harness.runtime
    adapter = LogAdapter(
        runtime, "x", harness.members, on_reopened=lambda reopening: told.append((runtime.now(), reopening))
    )

    async def story() -> None:
        await harness.settle(adapter)
        await harness.write(5)
        told.clear()
        harness.crash("n1")
        began = runtime.now()
        await harness.settle(adapter)
        await harness.write(5)
        ((ended, reopening),) = told
        layout = harness.document.layout
        assert reopening.epoch == layout.data_epoch
        parts = (reopening.look, reopening.seal, reopening.decide, reopening.activate)
        assert all(seconds > 0 for seconds in parts)
        assert reopening.seconds == pytest.approx(sum(parts))
        assert began <= ended - reopening.seconds

    harness.loop.run(story())


def test_an_older_view_is_ignored() -> None:
    harness = Harness(2)
    adapter = harness.adapter()
    adapter.set_hosts(5, {"n0": "n0:1"})
    adapter.set_hosts(4, {"n1": "n1:1"})

    async def story() -> None:
        assert (await observed(adapter)).unresponsive == frozenset()

    harness.loop.run(story())


def test_what_can_not_succeed_is_refused_before_it_is_started() -> None:
    harness = Harness(4, segments=2)

    async def story() -> None:
        adapter = harness.adapter()
        observation = await harness.settle(adapter)
        far = Placement(
            {"s00": ("n9", "n1", "n2"), "s01": ("n0", "n1", "n2")}, ServiceRoles(("n0",), ("n0",), ("n0",))
        )
        open_step, copy_step, *_ = adapter.lower(observation, far).steps
        for step in (open_step, copy_step):
            refusal = adapter.precheck(step, observation)
            assert refusal is not None
            assert (refusal.code, "n9 is not in the view" in refusal.message) == ("host_gone", True)
        refusal = adapter.precheck(Step(0, "dance", "unheard of"), observation)
        assert refusal is not None
        assert refusal.code == "unknown_step"
        with pytest.raises(AdapterError, match="no step 'dance'"):
            await adapter.start(Step(0, "dance", "unheard of"), Fence(1, 1, "plan", 0))
        lost = Step(0, "copy", "copy", segment="s77", destination="n1")
        refusal = adapter.precheck(lost, observation)
        assert refusal is not None
        assert refusal.code == "unknown_segment"

    harness.loop.run(story())


def test_a_step_is_pending_running_and_then_done_or_cancelled() -> None:
    harness = Harness(4, segments=2)

    async def story() -> None:
        adapter = harness.adapter()
        observation = await observed(adapter)
        (step,) = adapter.lower(observation, harness.target(observation)).steps
        assert await adapter.poll(step) == Pending()
        await adapter.start(step, Fence(1, 0, "plan", 0))
        await adapter.start(step, Fence(1, 0, "plan", 0))
        assert isinstance(await adapter.poll(step), Running)
        assert await ended(harness, adapter, step) == Done()
        assert adapter.statistics()["started_open"] == 1
        harness.crash("n1")
        adapter.set_hosts(harness.view_epoch, harness.cluster.addresses)
        observation = await observed(adapter)
        step = adapter.lower(observation, harness.target(observation)).steps[0]

        def hold(source: str, destination: str, request: Request) -> None:
            if isinstance(request, Seal):
                harness.cluster.isolate("controller", harness.cluster.hosts)

        harness.on_request = hold
        await adapter.start(step, Fence(2, 0, "plan", 0))
        await harness.runtime.sleep(0.1)
        await adapter.cancel(step)
        assert await adapter.poll(step) == Cancelled()
        await harness.runtime.sleep(5.0)
        assert await adapter.poll(step) == Cancelled()
        harness.on_request = lambda source, destination, request: None
        harness.cluster.heal()
        await harness.settle(adapter)
        await harness.write(5)
        await harness.check_everything()

    harness.loop.run(story())


def test_out_of_reach_a_step_fails_retryably_and_intent_says_so() -> None:
    harness = Harness(3, segments=1)

    async def story() -> None:
        adapter = harness.adapter()
        observation = await harness.settle(adapter)
        harness.cluster.isolate("controller", harness.cluster.hosts)
        step = Step(
            0,
            "open",
            "swap",
            arguments={
                "segments": {"s00": ["n2", "n1", "n0"]},
                "roles": {"layout_servers": ["n0"], "sequencers": ["n0"], "log_units": ["n0"]},
            },
        )
        await adapter.start(step, Fence(1, 1, "plan", 0))
        status = await ended(harness, adapter, step)
        assert isinstance(status, Failed)
        assert (status.code, status.retryable) == ("unavailable", True)
        with pytest.raises(AdapterError, match="could not be agreed"):
            await adapter.set_intent(observation.layout_epoch, {}, Fence(1, 1, "", 0))

    harness.loop.run(story())


def test_fail_over_makes_another_replica_the_head() -> None:
    harness = Harness(4, segments=2)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        chain = harness.document.layout.segments[0].open_extent.chain
        await adapter.failover("s00", Fence(1, 1, "", 0), prefer=chain[2])
        assert harness.document.layout.segments[0].open_extent.chain == (chain[2], chain[0], chain[1])
        await adapter.failover("s00", Fence(1, 1, "", 0))
        assert harness.document.layout.segments[0].open_extent.chain == (chain[0], chain[2], chain[1])
        for segment, prefer in (("s00", "nobody"), ("s99", None)):
            with pytest.raises(AdapterError):
                await adapter.failover(segment, Fence(1, 1, "", 0), prefer=prefer)
        await harness.write(10)
        await harness.check_everything()
        await harness.settle(adapter)
        harness.assert_tidy()

    harness.loop.run(story())


def test_the_inverse_of_an_open_leads_back() -> None:
    harness = Harness(4, segments=2)

    async def story() -> None:
        adapter = harness.adapter()
        before = await harness.settle(adapter)
        target = harness.target(before)
        swapped = Placement({key: chain[::-1] for key, chain in target.segments.items()}, target.roles)
        step, close = adapter.lower(before, swapped).steps
        inverse = adapter.inverse(step)
        assert inverse is not None
        assert adapter.inverse(close) is None
        for each in (step, inverse):
            await adapter.start(each, Fence(1, 1, "plan", each.number))
            assert await ended(harness, adapter, each) == Done()
        chains = {segment.key: segment.open_extent.chain for segment in harness.document.layout.segments}
        assert chains == dict(target.segments)
        again = adapter.inverse(inverse)
        assert again is not None
        assert again.arguments["segments"] == step.arguments["segments"]

    harness.loop.run(story())


def test_a_healthy_log_needs_no_repair() -> None:
    harness = Harness(3, segments=1)

    async def story() -> None:
        adapter = harness.adapter()
        assert not (await adapter.repair(await harness.settle(adapter))).steps

    harness.loop.run(story())


def test_changed_addresses_get_into_the_document() -> None:
    harness = Harness(3, segments=1)

    async def story() -> None:
        adapter = harness.adapter()
        observation = await harness.settle(adapter)
        moved = {**harness.cluster.addresses}
        host = harness.cluster.hosts["n1"]
        harness.cluster.move("n1", "elsewhere:9")
        moved["n1"] = "elsewhere:9"
        adapter.set_hosts(2, moved)
        epoch = await adapter.set_intent(
            observation.layout_epoch, {}, Fence(2, observation.layout_epoch, "", 0)
        )
        assert harness.document.epoch == epoch
        assert harness.document.hosts["n1"] == "elsewhere:9"
        assert host.address == "elsewhere:9"
        await harness.write(5)

    harness.loop.run(story())


def test_a_host_that_is_nothing_else_becomes_the_sequencer() -> None:
    harness = Harness(5, segments=0)

    async def story() -> None:
        adapter = harness.adapter()
        for sequencers in (("n0",), ("n4",)):
            observation = await observed(adapter)
            target = Placement({}, ServiceRoles(("n0", "n1", "n2"), sequencers))
            statuses = await harness.execute(adapter, adapter.lower(observation, target), observation)
            assert statuses
            assert all(isinstance(status, Done) for status in statuses), statuses
        assert (await observed(adapter)).roles == target.roles

    harness.loop.run(story())
