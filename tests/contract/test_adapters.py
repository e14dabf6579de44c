"""What every adapter of a datastore has to keep, whatever its engine: the contract the control loop relies on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from datastore_adapter.interface import (
    Adapter,
    AdapterError,
    Cancelled,
    Cause,
    Done,
    Failed,
    FencedError,
    Observation,
    Pending,
    Placement,
    Refusal,
    ReplicaState,
    Role,
    Running,
    StaleIntentError,
    Step,
    StepGraph,
    StepStatus,
    Unreachable,
)
from tests.budget import budgeted
from tests.contract.engine_rigs import servers_rig
from tests.contract.rigs import (
    HOSTS,
    SEGMENTS,
    FakeRig,
    LogRig,
    Rig,
    chains_of,
    fence_for,
    intent_for,
    placement,
)
from tests.slots.servers import program

FIRST = placement({key: HOSTS[index : index + 3] for index, key in enumerate(SEGMENTS)})
INTENT = intent_for(FIRST)


@pytest.fixture(
    params=[
        "fake",
        "log",
        pytest.param("valkey", marks=pytest.mark.engine),
        pytest.param(
            "redis", marks=[pytest.mark.engine, pytest.mark.sweep("the same with another server program")]
        ),
    ]
)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    if request.param == "fake":
        yield FakeRig()
    elif request.param == "log":
        yield LogRig()
    elif program(request.param) is None:
        pytest.skip(f"there is no {request.param}-server here: `make system` installs it")
    else:
        with servers_rig(request.param) as servers:
            yield servers


async def observed(adapter: Adapter) -> Observation:
    observation = await adapter.observe()
    assert isinstance(observation, Observation)
    return observation


async def ended(rig: Rig, adapter: Adapter, step: Step) -> StepStatus:
    while isinstance(status := await adapter.poll(step), Running):
        await rig.sleep(0.01)
    return status


async def carried_out(rig: Rig, adapter: Adapter, step: Step, view_epoch: int = 1) -> StepStatus:
    """One step from start to end, refused or not."""
    observation = await observed(adapter)
    assert adapter.precheck(step, observation) is None
    await adapter.start(step, fence_for(observation, view_epoch, step.number))
    return await ended(rig, adapter, step)


async def agreed(adapter: Adapter, target: Placement, view_epoch: int = 1) -> Observation:
    """The plan is agreed before its first step, as the control loop does."""
    before = await observed(adapter)
    if before.intent != intent_for(target):
        await adapter.set_intent(before.layout_epoch, intent_for(target), fence_for(before, view_epoch))
    return await observed(adapter)


async def reached(rig: Rig, adapter: Adapter, target: Placement, view_epoch: int = 1) -> Observation:
    await agreed(adapter, target, view_epoch)
    graph = adapter.lower(await observed(adapter), target)
    for step in graph.steps:
        assert await carried_out(rig, adapter, step, view_epoch) == Done()
    observation = await observed(adapter)
    for _ in range(int(rig.settles_within / 0.1)):
        if chains_of(observation) == target.segments:
            break
        await rig.sleep(0.1)
        observation = await observed(adapter)
    return observation


async def placed(rig: Rig, view_epoch: int = 1) -> Adapter:
    """An adapter on an engine with an intent, the first placement, and data."""
    adapter = rig.adapter(view_epoch)
    await reached(rig, adapter, FIRST, view_epoch)
    await rig.write()
    return adapter


def moved(chains: Mapping[str, tuple[str, ...]], segment: str, host: str) -> Placement:
    """The last copy of one segment goes to another host."""
    return placement({**chains, segment: (*chains[segment][:-1], host)})


def of_kind(graph: StepGraph, *, transfer: bool) -> Step:
    """The first step of the graph that moves data, or that changes the layout."""
    return next(step for step in graph.steps if (step.destination is not None) is transfer)


def test_the_engine_says_what_it_can_do_and_always_the_same(rig: Rig) -> None:
    first, second = rig.adapter().capabilities, rig.adapter().capabilities
    assert first == second
    assert first.name == rig.name


class TestObserving:
    def test_without_a_majority_it_says_so_and_guesses_nothing(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            rig.cut_off()
            for answer in (await adapter.observe(), await adapter.history()):
                assert isinstance(answer, Unreachable)
                assert answer.reason

        rig.run(story)

    def test_an_observation_is_what_stands(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            observation = await observed(adapter)
            assert chains_of(observation) == FIRST.segments
            assert not observation.unfinished
            assert observation.intent == INTENT
            for segment in observation.segments:
                assert [copy.role for copy in segment.replicas] == [Role.PRIMARY, Role.REPLICA, Role.REPLICA]
                assert {copy.state for copy in segment.replicas} == {ReplicaState.IN_SYNC}
                assert segment.bytes > 0
            assert rig.steady(await observed(rig.adapter())) == rig.steady(observation)

        rig.run(story)

    def test_a_host_that_is_out_of_the_view_is_gone(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            rig.crash("n1")
            rig.tell(adapter, 2)
            states = {
                copy.host: copy.state
                for segment in (await observed(adapter)).segments
                for copy in segment.replicas
            }
            assert [host for host, state in states.items() if state is ReplicaState.GONE] == ["n1"]

        rig.run(story)


class TestLowering:
    def test_it_is_pure_deterministic_and_ordered(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            before = await observed(adapter)
            target = moved(FIRST.segments, "s00", "n5")
            graph = adapter.lower(before, target)
            assert graph == adapter.lower(before, target) == rig.adapter().lower(before, target)
            assert [step.number for step in graph.steps] == list(range(len(graph.steps)))
            assert all(before < step.number for step in graph.steps for before in step.after)
            await rig.sleep(1.0)
            assert rig.steady(await observed(adapter)) == rig.steady(before), "nothing is done for it"

        rig.run(story)

    def test_what_stands_needs_no_steps(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            assert adapter.lower(await observed(adapter), FIRST).steps == ()

        rig.run(story)

    @pytest.mark.parametrize("seed", budgeted(range(4), 0, in_test=1))
    def test_its_steps_lead_to_what_is_wanted_and_then_there_are_none(self, rig: Rig, seed: int) -> None:
        chance = random.Random(seed)

        async def story() -> None:
            adapter = await placed(rig)
            for _ in range(3):
                chains = {key: tuple(chance.sample(HOSTS, 3)) for key in SEGMENTS}
                target = placement(chains, chance.choice(HOSTS))
                observation = await reached(rig, adapter, target)
                assert chains_of(observation) == chains
                assert observation.roles.sequencers[:1] == target.roles.sequencers[:1]
                assert set(observation.roles.layout_servers) == set(target.roles.layout_servers)
                states = {copy.state for segment in observation.segments for copy in segment.replicas}
                assert states == {ReplicaState.IN_SYNC}
                assert adapter.lower(observation, target).steps == ()

        rig.run(story)


class TestSteps:
    def test_what_needs_a_host_that_is_gone_is_refused_before_it_starts(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            graph = adapter.lower(await observed(adapter), moved(FIRST.segments, "s00", "n5"))
            rig.crash("n5")
            rig.tell(adapter, 2)
            observation = await observed(adapter)
            for step in (of_kind(graph, transfer=False), of_kind(graph, transfer=True)):
                refusal = adapter.precheck(step, observation)
                assert isinstance(refusal, Refusal)
                assert "n5" in refusal.message

        rig.run(story)

    def test_a_step_that_was_never_started_is_pending(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            graph = adapter.lower(await observed(adapter), moved(FIRST.segments, "s00", "n5"))
            for step in graph.steps:
                assert await adapter.poll(step) == Pending()
                await adapter.cancel(step)
            assert await adapter.poll(graph.steps[0]) == Pending()

        rig.run(story)

    def test_starting_twice_starts_once(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            before = await observed(adapter)
            step = of_kind(adapter.lower(before, moved(FIRST.segments, "s00", "n5")), transfer=False)
            fence = fence_for(before)
            await adapter.start(step, fence)
            await adapter.start(step, fence)
            assert await ended(rig, adapter, step) == Done()
            await rig.sleep(1.0)
            after = await observed(adapter)
            assert after.layout_epoch == before.layout_epoch + rig.epochs_of_a_change
            assert await adapter.poll(step) == Done()

        rig.run(story)

    def test_what_is_done_already_is_done_again_without_harm(self, rig: Rig) -> None:
        """By another controller, which knows only what it observes."""

        async def story() -> None:
            target = moved(FIRST.segments, "s00", "n5")
            adapter = await placed(rig)
            graph = adapter.lower(await agreed(adapter, target), target)
            for step in graph.steps:
                assert await carried_out(rig, adapter, step) == Done()
                second = rig.adapter()
                assert await second.poll(step) == Pending()
                assert await carried_out(rig, second, step) == Done()
            observation = await observed(adapter)
            assert chains_of(observation) == target.segments
            states = {copy.state for segment in observation.segments for copy in segment.replicas}
            assert states == {ReplicaState.IN_SYNC}

        rig.run(story)

    def test_a_transfer_tells_how_far_it_is_and_can_be_cancelled_and_taken_up(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            graph = adapter.lower(await observed(adapter), moved(FIRST.segments, "s00", "n5"))
            assert await carried_out(rig, adapter, of_kind(graph, transfer=False)) == Done()
            copy = rig.slowed(of_kind(graph, transfer=True))
            await adapter.start(copy, fence_for(await observed(adapter), step=copy.number))
            told: list[int] = []
            for _ in range(20):
                await rig.sleep(0.1)
                status = await adapter.poll(copy)
                assert isinstance(status, Running), status
                assert 0 <= status.done <= status.total
                told.append(status.done)
            assert told == sorted(told)
            await adapter.cancel(copy)
            assert await adapter.poll(copy) == Cancelled()
            await rig.sleep(5.0)
            observation = await observed(adapter)
            (segment,) = (each for each in observation.segments if each.key == "s00")
            assert ("n5", ReplicaState.SYNCING) in {(each.host, each.state) for each in segment.replicas}
            rig.hurried()
            again = of_kind(graph, transfer=True)
            assert await carried_out(rig, adapter, again) == Done()

        if not rig.adapter().capabilities.cancellable_transfer:
            pytest.skip("this engine cannot cancel")
        rig.run(story)

    def test_an_inverse_leads_back_and_where_there_is_none_nothing_needs_undoing(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            before = await observed(adapter)
            graph = adapter.lower(before, placement({**FIRST.segments, "s00": ("n2", "n1", "n5")}, "n3"))
            assert adapter.inverse(of_kind(graph, transfer=True)) is None
            for step in graph.steps:
                standing = chains_of(await observed(adapter))
                assert await carried_out(rig, adapter, step) == Done()
                if adapter.inverse(step) is not None and chains_of(await observed(adapter)) != standing:
                    break
            else:
                pytest.fail("no step that can be undone has changed anything")
            back = adapter.inverse(step)
            assert back is not None
            assert adapter.inverse(step) == back, "pure"
            assert await carried_out(rig, adapter, back) == Done()
            after = await reached(rig, adapter, FIRST)  # closes what the way back has left open
            assert (chains_of(after), after.roles) == (chains_of(before), before.roles)

        rig.run(story)


class TestRepairing:
    def test_where_nothing_was_left_open_nothing_is_to_be_done(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            assert (await adapter.repair(await observed(adapter))).steps == ()

        rig.run(story)

    def test_what_a_controller_left_half_done_the_next_one_completes(self, rig: Rig) -> None:
        async def story() -> None:
            first = await placed(rig)
            graph = first.lower(await observed(first), moved(FIRST.segments, "s00", "n5"))
            rig.leave_half_done()
            step = of_kind(graph, transfer=False)
            await first.start(step, fence_for(await observed(first)))
            await rig.sleep(0.3)
            second = rig.adapter(2)
            observation = await observed(second)
            repairs = await second.repair(observation)
            assert repairs.steps
            for repair in repairs.steps:
                assert await carried_out(rig, second, repair, 2) == Done()
            observation = await observed(second)
            assert not observation.unfinished
            assert (await second.repair(observation)).steps == ()

        rig.run(story)


class TestLastResorts:
    """What an operator orders when hosts are gone for good."""

    def test_hosts_that_never_come_back_are_declared_so_once_and_those_that_are_there_never(
        self, rig: Rig
    ) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            rig.crash("n5")
            rig.tell(adapter, 2)
            for host in ("n4", "n77"):
                with pytest.raises(AdapterError):
                    await adapter.forget((host,), fence_for(await observed(adapter), 2))
            before = (await observed(adapter)).layout_epoch
            await adapter.forget(("n5",), fence_for(await observed(adapter), 2))
            after = (await observed(adapter)).layout_epoch
            assert after >= before + rig.epochs_of_a_change
            await adapter.forget(("n5",), fence_for(await observed(adapter), 2))
            assert (await observed(adapter)).layout_epoch == after, "asking again is harmless"

        rig.run(story)

    def test_while_a_majority_answers_there_is_nothing_to_recover(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            seen = await observed(adapter)
            with pytest.raises(AdapterError):
                await adapter.recover(fence_for(seen))
            assert (await observed(adapter)).layout_epoch == seen.layout_epoch

        rig.run(story)

    def test_without_a_majority_it_goes_on_at_an_epoch_that_the_lost_ones_cannot_reach(
        self, rig: Rig
    ) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            seen = await observed(adapter)
            rig.cut_off()
            rig.tell(adapter, 2)
            look = await adapter.recover(fence_for(seen, 2), only_look=True)
            assert look.layout_epoch == seen.layout_epoch
            assert isinstance(await adapter.observe(), Unreachable), "it was only looked at"
            recovery = await adapter.recover(fence_for(seen, 2))
            assert recovery.risks == look.risks, "what may be lost was told before it was risked"
            epoch = recovery.layout_epoch
            assert epoch > 1_000_000
            if not rig.serves_after_recovery:
                assert isinstance(await adapter.observe(), Unreachable)
                return
            now = await observed(adapter)
            assert now.layout_epoch == epoch
            assert now.intent == seen.intent
            assert {segment.key for segment in now.segments} == {segment.key for segment in seen.segments}

        rig.run(story)


class TestFailingOver:
    def test_the_preferred_replica_becomes_the_primary(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            await adapter.failover("s01", fence_for(await observed(adapter)), prefer="n3")
            chain = chains_of(await observed(adapter))["s01"]
            assert chain[0] == "n3"
            assert set(chain) == set(FIRST.segments["s01"])

        rig.run(story)

    def test_without_a_preference_it_is_a_live_one(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            rig.crash("n1")
            rig.tell(adapter, 2)
            await adapter.failover("s01", fence_for(await observed(adapter), 2))
            assert chains_of(await observed(adapter))["s01"][0] in {"n2", "n3"}

        rig.run(story)

    @pytest.mark.parametrize(("segment", "prefer"), [("s01", "n0"), ("s99", None)])
    def test_what_is_no_replica_is_refused(self, rig: Rig, segment: str, prefer: str | None) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            with pytest.raises(AdapterError):
                await adapter.failover(segment, fence_for(await observed(adapter)), prefer=prefer)
            assert chains_of(await observed(adapter)) == FIRST.segments

        rig.run(story)


class TestAgreeing:
    def test_the_intent_is_agreed_by_compare_and_set(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            before = await observed(adapter)
            intent = intent_for(FIRST, mark=1)
            epoch = await adapter.set_intent(before.layout_epoch, intent, fence_for(before))
            assert epoch > before.layout_epoch
            with pytest.raises(StaleIntentError) as caught:
                await adapter.set_intent(before.layout_epoch, INTENT, fence_for(before))
            assert (caught.value.expected, caught.value.current) == (before.layout_epoch, epoch)
            after = await observed(adapter)
            assert (after.intent, after.layout_epoch) == (intent, epoch)
            assert chains_of(after) == chains_of(before)

        rig.run(story)

    def test_the_history_tells_each_version_with_its_cause(self, rig: Rig) -> None:
        async def story() -> None:
            adapter = await placed(rig)
            before = await observed(adapter)
            cause = Cause("n0", 12.5, "a test", "n4")
            fence = replace(fence_for(before), cause=cause)
            epoch = await adapter.set_intent(before.layout_epoch, intent_for(FIRST, mark=2), fence)
            versions = await rig.adapter().history()
            assert isinstance(versions, tuple)
            assert [version.epoch for version in versions] == sorted({version.epoch for version in versions})
            latest = versions[-1]
            assert (latest.epoch, latest.cause, latest.plan_id) == (epoch, cause, "plan")
            assert latest.placement.segments == latest.holders == FIRST.segments
            assert versions[-2].intent == INTENT

        rig.run(story)


class TestFencing:
    """A controller that was deposed changes nothing any more."""

    def test_its_calls_are_refused(self, rig: Rig) -> None:
        async def story() -> None:
            deposed = await placed(rig, 1)
            successor = rig.adapter(2)
            before = await observed(successor)
            await successor.set_intent(before.layout_epoch, INTENT, fence_for(before, 2))
            seen = await observed(deposed)
            await successor.check(fence_for(seen, 2))
            with pytest.raises(FencedError):
                await deposed.check(fence_for(seen, 1))
            with pytest.raises(FencedError):
                await deposed.set_intent(seen.layout_epoch, intent_for(FIRST, mark=3), fence_for(seen, 1))
            with pytest.raises(FencedError):
                await deposed.failover("s00", fence_for(seen, 1), prefer="n1")
            graph = deposed.lower(seen, moved(FIRST.segments, "s00", "n5"))
            with pytest.raises(FencedError):
                await deposed.start(of_kind(graph, transfer=False), fence_for(seen, 1))
            after = await observed(successor)
            assert (after.intent, chains_of(after)) == (INTENT, FIRST.segments)

        rig.run(story)

    def test_a_step_under_way_when_it_is_deposed_fails_for_good_or_was_done_before(self, rig: Rig) -> None:
        async def story() -> None:
            deposed = await placed(rig, 1)
            seen = await observed(deposed)
            graph = deposed.lower(seen, moved(FIRST.segments, "s00", "n5"))
            successor = rig.adapter(2)
            before = await observed(successor)
            epoch = await successor.set_intent(before.layout_epoch, INTENT, fence_for(before, 2))
            step = of_kind(graph, transfer=False)
            try:  # it has not observed since
                await deposed.start(step, fence_for(seen, 1))
            except FencedError:
                return
            status = await ended(rig, deposed, step)
            assert isinstance(status, Failed)
            assert (status.code, status.retryable) == ("fenced", False)
            after = await observed(successor)
            assert (after.layout_epoch, chains_of(after)) == (epoch, FIRST.segments)

        rig.run(story)
