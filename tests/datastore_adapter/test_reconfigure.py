"""Reconfigurations that are interrupted, that collide, and that meet hosts with a past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datastore_adapter import LogAdapter, OutcomeUnknownError
from datastore_adapter.interface import (
    DiskState,
    Done,
    Failed,
    Fence,
    FencedError,
    Observation,
    Placement,
    ReplicaState,
    Running,
    StaleIntentError,
    Step,
    StepStatus,
    Unreachable,
)
from datastore_adapter.log.errors import (
    LogUnavailableError,
    ReplicaUnavailableError,
    StorageError,
    SupersededError,
)
from datastore_adapter.log.layout.chain import LayoutChain, Proposal
from datastore_adapter.log.layout.change import LayoutTarget
from datastore_adapter.log.messages import (
    Accept,
    BeginBootstrap,
    Entry,
    FinishBootstrap,
    Install,
    Join,
    Prepare,
    ReadStreamTails,
    Request,
    Seal,
    Survey,
    Write,
    WriteChunk,
)
from datastore_adapter.log.reconfiguration.reconfiguration import Authority, Reconfiguration, View
from datastore_adapter.log.storage.disk_health import refused_by
from tests.budget import budgeted
from tests.datastore_adapter.harness import Harness


async def observed(adapter: LogAdapter) -> Observation:
    observation = await adapter.observe()
    assert isinstance(observation, Observation)
    return observation


async def finished(harness: Harness, adapter: LogAdapter, step: Step, fence: Fence) -> StepStatus:
    await adapter.start(step, fence)
    while isinstance(status := await adapter.poll(step), Running):
        await harness.runtime.sleep(0.01)
    return status


def without(harness: Harness, placement: Placement, host: str) -> Placement:
    """The same placement with `host` replaced where it was."""
    spare = [name for name in harness.live if name != host]
    chains = {}
    for key, chain in placement.segments.items():
        kept = [name for name in chain if name != host]
        extra = [name for name in spare if name not in kept][: len(chain) - len(kept)]
        chains[key] = (*kept, *extra)
    return Placement(chains, placement.roles)


INTERRUPTIONS = [
    Prepare,
    Seal,
    Join,
    Accept,
    Install,
    Survey,
    ReadStreamTails,
    BeginBootstrap,
    FinishBootstrap,
]


@pytest.mark.parametrize("last", [0, 1, 3])
@pytest.mark.parametrize("kind", INTERRUPTIONS, ids=lambda kind: kind.__name__)
def test_a_controller_that_dies_at_any_point_is_completed_by_the_next(kind: type[Request], last: int) -> None:
    """Also the partial seal: some units sealed, and nothing decided."""
    harness = Harness(seed=last)

    async def story() -> None:
        adapter = harness.adapter("first")
        observation = await harness.settle(adapter)
        writers = harness.start_writers()
        await harness.runtime.sleep(0.2)
        seen = 0

        def hook(source: str, destination: str, request: Request) -> None:
            nonlocal seen
            if source == "first" and isinstance(request, kind):
                seen += 1
                if seen > last:
                    task.cancel()

        harness.crash("n4")
        harness.on_request = hook
        task = harness.loop.start(harness.settle(adapter))
        while not task.ended:
            await harness.runtime.sleep(0.01)
        harness.cluster.blocked |= {
            ("first", name) for name in harness.cluster.hosts
        }  # what it left running is dead
        after = await harness.settle(harness.adapter("second"))
        assert after.layout_epoch > observation.layout_epoch
        assert not after.unfinished
        await harness.runtime.sleep(0.1)
        await harness.stop_writers(writers)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


@pytest.mark.parametrize("seed", budgeted(range(6), 2, in_test=2))
def test_two_controllers_at_once_do_not_harm_each_other(seed: int) -> None:
    harness = Harness(seed=seed)

    async def story() -> None:
        await harness.settle(harness.adapter())
        writers = harness.start_writers()
        await harness.runtime.sleep(0.1)
        harness.crash("n2")
        tasks = [
            harness.loop.start(harness.settle(harness.adapter(f"controller{index}"))) for index in range(2)
        ]
        for task in tasks:
            while not task.ended:
                await harness.runtime.sleep(0.01)
            assert task.error is None, task.error
        await harness.stop_writers(writers)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_a_deposed_controller_can_change_nothing() -> None:
    harness = Harness()

    async def story() -> None:
        old, new = harness.adapter("old"), harness.adapter("new")
        before = await harness.settle(old)
        harness.crash("n5")
        await harness.settle(new)  # acts in view 2
        moved = without(harness, harness.target(before), "n1")
        (step, *_) = old.lower(before, moved).steps
        status = await finished(harness, old, step, Fence(1, before.layout_epoch, "late", 0))
        assert isinstance(status, Failed)
        assert (status.code, status.retryable) == ("fenced", False)
        with pytest.raises(FencedError):
            await old.start(step, Fence(1, before.layout_epoch, "late", 0))
        current = await observed(old)
        with pytest.raises(FencedError):
            await old.set_intent(current.layout_epoch, {}, Fence(1, current.layout_epoch, "late", 0))
        assert (await observed(new)).layout_epoch == current.layout_epoch

    harness.loop.run(story())


def test_intent_is_changed_by_compare_and_set_and_does_not_disturb_writers() -> None:
    harness = Harness()

    async def story() -> None:
        adapter, other = harness.adapter(), harness.adapter("other")
        observation = await harness.settle(adapter)
        writers = harness.start_writers()
        await harness.runtime.sleep(0.1)
        fence = Fence(1, observation.layout_epoch, "", 0)
        epoch = await adapter.set_intent(observation.layout_epoch, {"drains": ["n1"], "n": (1, 2)}, fence)
        assert epoch == observation.layout_epoch + 1
        with pytest.raises(StaleIntentError) as caught:
            await other.set_intent(observation.layout_epoch, {"lost": True}, fence)
        assert (caught.value.expected, caught.value.current) == (epoch - 1, epoch)
        again = await observed(other)
        assert (again.layout_epoch, again.intent) == (epoch, {"drains": ["n1"], "n": [1, 2]})
        assert not again.unfinished
        assert harness.document.layout.data_epoch == observation.layout_epoch  # no unit was sealed
        await harness.stop_writers(writers)
        assert all(host.node and host.node.log_unit.sealed == 0 for host in harness.cluster.hosts.values())
        await harness.check_everything()

    harness.loop.run(story())


def test_of_two_intents_at_once_one_wins() -> None:
    harness = Harness()

    async def story() -> None:
        adapters = [harness.adapter(f"agent{index}") for index in range(4)]
        observation = await harness.settle(adapters[0])
        outcomes: list[object] = []

        async def ask(index: int) -> None:
            try:
                outcomes.append(
                    await adapters[index].set_intent(
                        observation.layout_epoch, {"by": index}, Fence(1, observation.layout_epoch, "", 0)
                    )
                )
            except StaleIntentError as error:
                outcomes.append(error)

        tasks = [harness.loop.start(ask(index)) for index in range(4)]
        for task in tasks:
            while not task.ended:
                await harness.runtime.sleep(0.01)
            assert task.error is None, task.error
        assert sum(isinstance(outcome, int) for outcome in outcomes) == 1

    harness.loop.run(story())


def test_killed_written_on_revived_and_healed_back_to_one_extent() -> None:
    """The returning host has records of its own past; none of them may come back."""
    harness = Harness(4, segments=3)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(30)
        chain = harness.document.layout.segments[0].open_extent.chain
        victim = chain[0]
        # Records that stand on the head only: written to it, and never acknowledged.
        tail = await harness.client().tail()
        for address in range(tail, tail + 9):
            segment = harness.document.layout.segment_of(address)
            if victim in segment.open_extent.chain:
                request = Write(harness.document.layout.data_epoch, segment.key, address, ghost(address))
                await harness.runtime.call(f"{victim}:1", request, 1.0)
        harness.crash(victim)
        await harness.settle(adapter)
        await harness.write(30)
        harness.restart(victim)
        harness.drained = {
            next(host for host in harness.live if host != victim)
        }  # so that it is needed again
        await harness.settle(adapter)
        await harness.write(30)
        content = await harness.check_everything()
        assert not any(payload.startswith(b"ghost") for _, payload in content.values())
        harness.assert_tidy()

    harness.loop.run(story())


def ghost(address: int) -> Entry:
    return Entry(address.to_bytes(16, "big"), "red", (), b"ghost")


def test_a_host_whose_disk_was_emptied_begins_anew() -> None:
    harness = Harness(4, segments=4)
    harness.steady = False  # n1 is up and yet without its copies

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(40)
        harness.crash("n1")
        harness.cluster.hosts["n1"].erase()
        harness.restart("n1")
        states = {
            replica.state
            for segment in (await observed(adapter)).segments
            for replica in segment.replicas
            if replica.host == "n1"
        }
        assert states == {ReplicaState.STALE}
        await harness.settle(adapter)
        await harness.write(10)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


@pytest.mark.parametrize("again", [False, True])
def test_a_host_that_lost_the_end_of_its_files_is_not_believed_and_copies_what_it_lacks(again: bool) -> None:
    """Damage inside the commit log: it starts, says which segments are in doubt, and is repaired from the others."""
    harness = Harness(3, segments=2)
    harness.steady = False
    copied: list[int] = []

    def count(source: str, destination: str, request: Request) -> None:
        if isinstance(request, WriteChunk):
            copied.extend(address for address, _ in request.entries)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(40)
        harness.crash("n1")
        harness.lose_ends("n1", "s0", 200)
        harness.restart("n1")
        if again:  # it is remembered over a second start
            harness.crash("n1")
            harness.restart("n1")
        files = harness.cluster.hosts["n1"].files
        assert files is not None
        assert not files.is_damaged
        states = {
            replica.state
            for segment in (await observed(adapter)).segments
            for replica in segment.replicas
            if replica.host == "n1"
        }
        assert states == {ReplicaState.STALE}
        harness.on_request = count
        await harness.settle(adapter)
        assert 0 < len(copied) < 20, "only what it lacks"
        await harness.write(10)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_when_the_only_copy_is_damaged_nothing_wrong_is_served_and_the_error_says_why() -> None:
    harness = Harness(2, segments=1, copies=1)
    harness.steady = False

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        (host,) = harness.document.layout.segments[0].hosts()
        harness.crash(host)
        harness.lose_ends(host, "s0", 50)
        harness.restart(host)
        client = harness.client()
        with pytest.raises(LogUnavailableError, match="damaged"):
            await client.read(3, timeout=2.0)
        chain = LayoutChain(harness.runtime, harness.cluster.settings)
        chain.set_view(harness.members)
        reconfiguration = Reconfiguration(harness.runtime, harness.cluster.settings, chain)
        with pytest.raises(ReplicaUnavailableError, match=f"{host} answer, but lost what they held"):
            await reconfiguration.complete(View(harness.members), Authority(harness.view_epoch))

    harness.loop.run(story())


def test_a_host_several_epochs_behind_returns() -> None:
    harness = Harness()

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        harness.crash("n0")  # founder and layout server
        await harness.settle(adapter)
        for number in range(3):
            observation = await observed(adapter)
            await adapter.set_intent(
                observation.layout_epoch,
                {"n": number},
                Fence(harness.view_epoch, observation.layout_epoch, "", 0),
            )
        harness.restart("n0")
        assert harness.cluster.node("n0").document.epoch < harness.document.epoch  # type: ignore[union-attr]
        await harness.settle(adapter)
        await harness.write(10)
        await harness.check_everything()

    harness.loop.run(story())


def test_two_of_three_down_and_back_the_blocked_append_completes_once() -> None:
    harness = Harness(3, segments=3)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(5)
        harness.cluster.crash("n1")  # nobody changes the layout: no majority of layout servers
        harness.cluster.crash("n2")
        assert isinstance(await adapter.observe(), Unreachable)
        writer = harness.loop.start(harness.write(1, harness.client("blocked")))
        await harness.runtime.sleep(5.0)
        assert not writer.ended
        harness.restart("n1", "n2")
        await harness.settle(adapter)
        while not writer.ended:
            await harness.runtime.sleep(0.05)
        assert writer.error is None
        assert len(harness.acknowledged) == 6
        await harness.check_everything()

    harness.loop.run(story())


def test_power_loss_of_everybody_again_and_again() -> None:
    harness = Harness(seed=5)

    async def story() -> None:
        await harness.settle(harness.adapter())
        writers = harness.start_writers(4, pause=0.005)
        for _ in range(10):
            await harness.runtime.sleep(0.1)
            everybody = harness.live
            harness.crash(*everybody)
            await harness.runtime.sleep(0.1)
            harness.restart(*everybody)
            await harness.settle(harness.adapter("after the power loss"))
        await harness.stop_writers(writers)
        await harness.check_everything()
        assert not harness.uncertain

    harness.loop.run(story())
    assert len(harness.acknowledged) > 100


def test_the_sequencer_killed_again_and_again() -> None:
    harness = Harness(4, segments=4)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers(2)
        for _ in range(15):
            sequencer = harness.document.layout.sequencers[0]
            harness.crash(sequencer)
            await harness.settle(adapter)
            harness.restart(sequencer)
            await harness.settle(adapter)
        await harness.stop_writers(writers)
        await harness.check_everything()

    harness.loop.run(story())


def test_a_restarted_sequencer_is_noticed_and_gets_a_new_epoch() -> None:
    harness = Harness()

    async def story() -> None:
        adapter = harness.adapter()
        before = await harness.settle(adapter)
        await harness.write(10)
        sequencer = harness.document.layout.sequencers[0]
        harness.crash(sequencer)
        harness.restart(sequencer)
        assert (await observed(adapter)).unfinished
        after = await harness.settle(adapter)
        assert after.layout_epoch == before.layout_epoch + 1
        await harness.write(10)
        await harness.check_everything()

    harness.loop.run(story())


def test_a_drained_host_is_empty_afterwards_and_served_meanwhile() -> None:
    harness = Harness()

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers()
        await harness.runtime.sleep(0.3)
        harness.drained = {"n3"}
        await harness.settle(adapter)
        await harness.stop_writers(writers)
        assert not any("n3" in segment.hosts() for segment in harness.document.layout.segments)
        assert not harness.cluster.node("n3").log_unit.stores
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_a_chain_whose_every_host_is_dead_waits_for_one_to_come_back() -> None:
    harness = Harness(6, segments=2, copies=2)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(6)
        first = harness.document.layout.segments[0].open_extent.chain
        harness.crash(*first)
        adapter.set_hosts(harness.view_epoch, harness.cluster.addresses)
        observation = await adapter.observe()
        if isinstance(observation, Observation):
            graph = adapter.lower(observation, harness.target(observation))
            (status, *_) = await harness.execute(adapter, graph, observation)
            assert isinstance(status, Failed)
            assert status.retryable
        with pytest.raises((OutcomeUnknownError, LogUnavailableError)):
            await harness.client().append("red", b"in vain", timeout=2.0)
        harness.attempted.add(b"in vain")
        harness.restart(*first)
        await harness.settle(adapter)
        await harness.write(6)
        await harness.check_everything()

    harness.loop.run(story())


def test_disks_that_failed_and_work_again_are_left_behind_as_far_as_the_controller_says() -> None:
    """Two of three are on probation, of which the minority rule relieves one: else all would stand on one host."""
    harness = Harness(3, segments=3)
    harness.steady = False  # one copy is given up

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(5)
        for name in ("n1", "n2"):
            disk = harness.cluster.node(name).disk
            disk.note(refused_by(StorageError("cannot write: Input/output error")))
            disk.care()
        runtime = harness.cluster.runtime("before")  # a controller that begins a change, and is gone
        chain = LayoutChain(runtime, harness.cluster.settings)
        chain.set_view(harness.members)
        latest = await chain.fetch()
        await Proposal(chain, runtime, harness.cluster.settings, latest.document).prepare()
        observation = await observed(adapter)
        assert {trouble.state for trouble in observation.disks.values()} == {DiskState.FAILED}
        assert observation.disks.keys() == {"n1", "n2"}
        disks = {
            host: replace(trouble, is_relieved=host == "n1") for host, trouble in observation.disks.items()
        }
        observation = replace(observation, disks=disks)
        assert observation.unfinished
        await harness.execute(adapter, await adapter.repair(observation), observation)
        layout = harness.document.layout
        assert all(set(segment.open_extent.chain) == {"n0", "n2"} for segment in layout.segments)
        assert {"n0", "n2"} <= set(layout.layout_servers)
        await harness.check_everything()

    harness.loop.run(story())


def test_a_step_that_is_done_does_nothing_again() -> None:
    """Starting is idempotent by id and by effect."""
    harness = Harness()

    async def story() -> None:
        adapter = harness.adapter()
        observation = await observed(adapter)
        (step,) = adapter.lower(observation, harness.target(observation)).steps
        fence = Fence(1, observation.layout_epoch, "plan", 0)
        assert await finished(harness, adapter, step, fence) == Done()
        assert await finished(harness, adapter, step, fence) == Done()
        assert await finished(harness, harness.adapter("other"), step, fence) == Done()
        assert harness.document.epoch == 1

    harness.loop.run(story())


def test_a_new_replica_that_refuses_the_seal_is_told_with_its_reason() -> None:
    harness = Harness(4, segments=1)

    async def story() -> None:
        adapter = harness.adapter()
        observation = await harness.settle(adapter)
        used = [replica.host for replica in observation.segments[0].replicas]
        (spare,) = set(harness.members) - set(used)
        moved = without(harness, harness.target(observation), used[0])
        (step, *_) = adapter.lower(observation, moved).steps
        files = harness.cluster.hosts[spare].files
        assert files is not None
        files.failure = StorageError("the disk is worn out")
        status = await finished(harness, adapter, step, Fence(1, observation.layout_epoch, "plan", 0))
        assert isinstance(status, Failed)
        assert f"{spare} refused: the disk is worn out" in status.message

    harness.loop.run(story())


def test_a_replica_that_stays_must_be_sealed_or_nothing_is_decided() -> None:
    """What stands on it alone belongs to the old epoch; a slow host is waited for, or leaves the view."""
    harness = Harness(4, segments=2)

    async def story() -> None:
        adapter = harness.adapter()
        observation = await harness.settle(adapter)
        first = observation.segments[0].replicas
        staying, leaving = first[0].host, first[1].host
        moved = without(harness, harness.target(observation), leaving)
        (step, *_) = adapter.lower(observation, moved).steps
        harness.cluster.isolate("controller", [staying])
        status = await finished(harness, adapter, step, Fence(1, observation.layout_epoch, "plan", 0))
        assert isinstance(status, Failed)
        assert status.retryable
        assert f"{staying} could not be sealed" in status.message
        assert harness.document.epoch == observation.layout_epoch
        harness.cluster.heal()
        await harness.settle(adapter)
        await harness.write(6)
        await harness.check_everything()

    harness.loop.run(story())


def test_the_chain_of_documents_is_not_entrusted_to_layout_servers_that_are_away() -> None:
    harness = Harness(5, segments=1)

    async def story() -> None:
        adapter = harness.adapter()
        observation = await harness.settle(adapter)
        target = harness.target(observation)
        roles = replace(target.roles, layout_servers=("n0", "n3", "n4"))
        harness.cluster.isolate("controller", ["n3", "n4"])
        (step,) = adapter.lower(observation, replace(target, roles=roles)).steps
        status = await finished(harness, adapter, step, Fence(1, observation.layout_epoch, "plan", 0))
        assert isinstance(status, Failed)
        assert "layout servers n3, n4 do not answer" in status.message
        harness.cluster.heal()
        assert await finished(harness, adapter, step, Fence(1, observation.layout_epoch, "plan", 0)) == Done()
        assert harness.document.layout.layout_servers == ("n0", "n3", "n4")

    harness.loop.run(story())


def test_a_change_meant_for_one_epoch_is_not_applied_to_another() -> None:
    harness = Harness(3, segments=1)

    async def story() -> None:
        settings = harness.cluster.settings
        await harness.settle(harness.adapter())
        runtime = harness.cluster.runtime("late")
        chain = LayoutChain(runtime, settings)
        chain.set_view(harness.cluster.addresses)
        late = Reconfiguration(runtime, settings, chain)
        view, as_is = View(harness.cluster.addresses), LayoutTarget.as_is(harness.document.layout)
        with pytest.raises(SupersededError):
            await late.open(as_is, view, Authority(1), force=True, at=harness.document.epoch - 1)
        assert (await late.open(as_is, view, Authority(1), force=True, at=harness.document.epoch)).epoch == 2

    harness.loop.run(story())
