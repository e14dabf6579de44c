"""`membership.join` as an application uses it: whole clusters in one process and in virtual time."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import membership
from membership import Address, Change, Cluster, ClusterStatus, Faults, InMemoryNetwork, Settings
from membership.protocol.messages import CutBody, encode
from membership.protocol.view.cut import Cut
from membership.runtime.driver import SEED_RETRY_LONGEST
from membership.runtime.last_view import LastView
from membership.transport import BindError, FrameStream
from membership.wire.frames import DatagramCodec, Envelope

SETTINGS = Settings.local()
SEED = Address("10.0.0.1", 7946)
FOREIGN = bytes(range(1, 17))


def address(number: int) -> Address:
    return Address(f"10.0.0.{number}", 7946)


@dataclass
class Host:
    """One member, run by a task of its own, and all it was told."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    stop: trio.Event = field(default_factory=trio.Event)
    stopped: trio.Event = field(default_factory=trio.Event)
    changes: list[Change] = field(default_factory=list)
    cluster: Cluster | None = None

    @property
    def size(self) -> int:
        return 0 if self.cluster is None else len(self.cluster.view.members)

    def crash(self) -> None:
        self.scope.cancel()


class Hosts:
    """Members on one in-memory network. Each has its own seeded randomness."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = InMemoryNetwork()
        self.hosts: dict[int, Host] = {}
        self._nursery = nursery

    def start(self, number: int, **options: Any) -> Host:
        """Start the member at `address(number)`; host 1 founds, the others ask it."""
        host = self.hosts[number] = Host()
        self._nursery.start_soon(self._run, host, number, options)
        return host

    async def _run(self, host: Host, number: int, options: dict[str, Any]) -> None:
        options = {
            "seeds": [] if number == 1 else [SEED],
            "settings": SETTINGS,
            "network": self.network,
            "rng": random.Random(number),
            **options,
        }
        try:
            with host.scope:
                async with (
                    membership.join(address(number), **options) as cluster,
                    trio.open_nursery() as inner,
                ):
                    host.cluster = cluster
                    inner.start_soon(self._listen, host, cluster)
                    await host.stop.wait()
                    inner.cancel_scope.cancel()
        finally:
            host.stopped.set()

    async def _listen(self, host: Host, cluster: Cluster) -> None:
        async for change in cluster.changes():
            host.changes.append(change)

    async def until(self, condition: Callable[[], bool], timeout: float = 30.0) -> float:
        """Seconds (virtual) until the condition holds; fails after `timeout`."""
        start = trio.current_time()
        with trio.move_on_after(timeout):
            while not condition():  # noqa: ASYNC110 - the condition spans many members; time is virtual
                await trio.sleep(0.02)
            return trio.current_time() - start
        sizes = {number: host.size for number, host in self.hosts.items()}
        raise AssertionError(f"not within {timeout} s; sizes {sizes}")

    async def bootstrap(self, count: int, **options: Any) -> list[Host]:
        """Start `count` members; returns when all see all."""
        hosts = [self.start(number, **options) for number in range(1, count + 1)]
        await self.until(lambda: all(host.size == count for host in hosts))
        return hosts


@asynccontextmanager
async def running() -> AsyncIterator[Hosts]:
    async with trio.open_nursery() as nursery:
        yield Hosts(nursery)
        nursery.cancel_scope.cancel()


def names(members: tuple[membership.Member, ...]) -> list[str]:
    return sorted(member.name for member in members)


# Joining


async def test_without_seeds_a_process_founds_a_cluster(autojump_clock: MockClock) -> None:
    async with membership.join(SEED, network=InMemoryNetwork(), settings=SETTINGS) as cluster:
        assert cluster.status is ClusterStatus.MEMBER
        assert cluster.quorum
        assert cluster.view.epoch == 0
        assert cluster.view.members == (cluster.me,)
        assert cluster.me.name == "10.0.0.1:7946"
        assert len(cluster.cluster_id) == 16


async def test_a_process_whose_only_seed_is_itself_founds_a_cluster(autojump_clock: MockClock) -> None:
    async with membership.join(SEED, [str(SEED)], network=InMemoryNetwork(), settings=SETTINGS) as cluster:
        assert len(cluster.view.members) == 1


async def test_five_members_meet_and_hold_the_same_views(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(5, metadata={"rack": "r1"})
        views = {(host.cluster.view.epoch, host.cluster.view.id) for host in members if host.cluster}
        assert len(views) == 1
        assert all(member.metadata == (("rack", "r1"),) for member in members[4].changes[-1].view.members)


async def test_a_founder_that_expects_five_shows_no_smaller_view(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        hosts.start(1, expect=5)
        await trio.sleep(3)
        assert hosts.hosts[1].size == 0
        for number in range(2, 6):
            hosts.start(number)
        await hosts.until(lambda: all(host.size == 5 for host in hosts.hosts.values()))
        sizes = {len(change.view.members) for host in hosts.hosts.values() for change in host.changes}
        assert sizes == {5}


async def test_a_founder_that_waits_in_vain_says_for_what(autojump_clock: MockClock) -> None:
    bound: list[Address] = []
    with pytest.raises(membership.JoinTimeoutError, match="3 processes, this one included, must meet first"):
        async with membership.join(
            Address("10.0.0.1", 0),
            network=InMemoryNetwork(),
            settings=SETTINGS,
            expect=3,
            join_timeout=20,
            on_listening=lambda transport: bound.append(transport.bound),
        ):
            pass
    assert bound[0].port != 0
    assert trio.current_time() == pytest.approx(20, abs=0.5)


async def test_a_joiner_that_starts_before_its_seed_waits_for_it(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with running() as hosts:
        hosts.start(2)
        await trio.sleep(20)
        assert caplog.messages == [
            "10.0.0.2:7946: not joined yet: 10.0.0.1:7946 cannot be reached: Connection refused"
        ]
        hosts.start(1)
        await hosts.until(lambda: hosts.hosts[2].size == 2, timeout=60)


async def test_seeds_that_are_names_are_resolved_again_at_every_try(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    answers: list[Any] = [OSError("not yet"), [(2, 2, 17, "", ("10.0.0.9", 7946))]]

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        answer = answers.pop(0) if answers else [(2, 2, 17, "", ("10.0.0.1", 7946))]
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(trio.socket, "getaddrinfo", getaddrinfo)
    async with running() as hosts:
        hosts.start(1)
        hosts.start(2, seeds=["seed.example:7946"])
        await hosts.until(lambda: hosts.hosts[2].size == 2, timeout=60)
        assert answers == []


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (None, membership.SeedsUnreachableError, "10.0.0.1:7946 cannot be reached"),
        (b"HTTP/1.1 400\r\n\r\n", membership.SeedNotRotaError, "not rota"),
        (Envelope(SEED, FOREIGN).encode() + b"\0", membership.SeedForeignClusterError, FOREIGN.hex()),
        (b"rota\x09" + bytes(40), membership.SeedNotRotaError, "protocol version 9"),
    ],
)
@pytest.mark.parametrize("join_timeout", [10.0, 0.5])
async def test_a_join_that_is_out_of_time_says_what_stood_in_the_way(
    answer: bytes | None,
    error: type[Exception],
    text: str,
    join_timeout: float,
    autojump_clock: MockClock,
) -> None:
    network = InMemoryNetwork()

    async def pretend(stream: trio.abc.Stream) -> None:
        assert answer is not None
        await stream.send_all(answer)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        if answer is not None:
            endpoint = await network.bind(SEED, Counter())
            nursery.start_soon(endpoint.run, pretend)
        with pytest.raises(error, match=text) as caught:
            async with membership.join(
                address(2),
                [SEED],
                network=network,
                settings=SETTINGS,
                cluster_id=bytes(15) + b"x",
                join_timeout=join_timeout,
            ):
                pass
        assert "\n" not in str(caught.value)
        nursery.cancel_scope.cancel()


async def test_a_name_that_is_taken_is_refused_with_its_reason(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        await hosts.bootstrap(2)
        with pytest.raises(membership.JoinRefusedError, match=r"10\.0\.0\.2:7946"):
            async with membership.join(
                address(3),
                [SEED],
                name="10.0.0.2:7946",
                network=hosts.network,
                settings=SETTINGS,
                join_timeout=5,
            ):
                pass
        assert hosts.hosts[1].size == 2


async def test_another_clusters_joiner_is_never_admitted(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        await hosts.bootstrap(2)
        with pytest.raises(membership.SeedForeignClusterError):
            async with membership.join(
                address(3),
                [SEED],
                cluster_id=FOREIGN,
                network=hosts.network,
                settings=SETTINGS,
                join_timeout=5,
            ):
                pass
        cluster = hosts.hosts[1].cluster
        assert cluster is not None
        assert cluster.statistics()["datagrams_dropped_foreign_cluster"] > 0
        assert hosts.hosts[1].size == 2


async def test_arguments_that_cannot_work_are_refused_before_anything_starts(
    autojump_clock: MockClock,
) -> None:
    network = InMemoryNetwork()

    async def refused(error: type[Exception], text: str, *args: Any, **options: Any) -> None:
        with pytest.raises(error, match=text):
            async with membership.join(*args, network=network, **options):
                pass
        async with membership.join(SEED, network=network, settings=SETTINGS):
            pass  # the address was given back

    await refused(membership.AddressError, "host:port", "10.0.0.1")
    await refused(membership.AddressError, "host:port", SEED, ["10.0.0.2"])
    await refused(membership.JoinArgumentError, "expect", SEED, expect=0)
    await refused(membership.JoinArgumentError, "give seeds", SEED, found=False)
    await refused(membership.JoinArgumentError, "16 bytes", SEED, cluster_id=b"short")
    await refused(membership.MemberError, "metadata", SEED, metadata={"key": "x" * 2000})
    await refused(membership.AddressError, "advertise=", Address("0.0.0.0", 7946))
    await refused(ValueError, "registered already", SEED, services={"membership": echo})


# Failing, leaving, coming back


async def test_a_crash_is_removed_in_about_two_seconds_and_told_once(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(6)
        await trio.sleep(2)
        members[5].crash()
        rest = members[:5]
        seconds = await hosts.until(lambda: all(host.size == 5 for host in rest))
        assert 0.5 < seconds < 3.0
        for host in rest:
            assert names(host.changes[-1].failed) == ["10.0.0.6:7946"]
            assert host.changes[-1].left == ()


async def test_leaving_the_block_leaves_the_cluster(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(5)
        members[4].stop.set()
        seconds = await hosts.until(lambda: all(host.size == 4 for host in members[:4]))
        assert seconds < 1.5
        await members[4].stopped.wait()
        for host in members[:4]:
            assert names(host.changes[-1].left) == ["10.0.0.5:7946"]
            assert host.changes[-1].failed == ()


async def test_leave_says_whether_it_was_agreed_and_ends_the_changes(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(4)
        cluster = members[3].cluster
        assert cluster is not None
        assert await cluster.leave()
        assert await cluster.leave()
        assert cluster.status is ClusterStatus.LEFT
        assert members[3].changes[-1].status is ClusterStatus.LEFT


async def test_the_last_member_may_leave_too(autojump_clock: MockClock) -> None:
    async with membership.join(SEED, network=InMemoryNetwork(), settings=SETTINGS) as cluster:
        start = trio.current_time()
        await cluster.leave()
        assert trio.current_time() - start < 1


async def test_leaving_without_anybody_to_agree_is_bounded(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(5)
        for host in members[1:]:
            host.crash()
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        members[0].stop.set()
        await members[0].stopped.wait()
        assert trio.current_time() - start <= SETTINGS.leave_timeout + 1.1


async def test_a_clock_that_jumps_makes_due_what_waits_and_nothing_else(autojump_clock: MockClock) -> None:
    """For chaos runs; the other members, whose clocks do not jump, see nothing of it."""
    async with running() as hosts:
        members = await hosts.bootstrap(4)
        views = [len(host.changes) for host in members]
        for number in range(3):
            members[number].cluster._driver.jump_clock(3600.0)
            await trio.sleep(3)
        assert [len(host.changes) for host in members] == views

        for host in members[1:]:
            host.crash()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(members[0].cluster.leave)
            await trio.sleep(0.1)
            members[0].cluster._driver.jump_clock(60.0)
        assert trio.current_time() - began < 0.2, "it waits up to leave_timeout, which is over now"


async def test_an_evicted_member_comes_back_as_a_new_incarnation(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(5)
        cut_off = members[4].cluster
        assert cut_off is not None
        before = cut_off.me.incarnation
        cut_off.transport.fault_injector.faults = Faults(ingress_loss=1.0, egress_loss=1.0)
        await hosts.until(lambda: all(host.size == 4 for host in members[:4]))
        await hosts.until(lambda: not cut_off.quorum)
        cut_off.transport.fault_injector.faults = Faults()
        await hosts.until(lambda: all(host.size == 5 for host in members), timeout=60)
        assert cut_off.status is ClusterStatus.MEMBER
        assert cut_off.quorum
        assert cut_off.me.incarnation != before
        statuses = [change.status for change in members[4].changes]
        assert ClusterStatus.REJOINING in statuses
        assert statuses[-1] is ClusterStatus.MEMBER
        assert members[4].changes[-1].view.id == members[0].changes[-1].view.id


async def test_an_evicted_founder_comes_back_although_it_has_no_seeds(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(5)
        founder = members[0].cluster
        assert founder is not None
        founder.transport.fault_injector.faults = Faults(ingress_loss=1.0, egress_loss=1.0)
        await hosts.until(lambda: all(host.size == 4 for host in members[1:]))
        founder.transport.fault_injector.faults = Faults()
        await hosts.until(lambda: all(host.size == 5 for host in members), timeout=60)
        assert founder.status is ClusterStatus.MEMBER


async def test_an_evicted_member_that_shall_not_come_back_stays_out(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        for number in range(1, 5):
            hosts.start(number)
        stubborn = hosts.start(5, rejoin=False)
        await hosts.until(lambda: all(host.size == 5 for host in hosts.hosts.values()))
        assert stubborn.cluster is not None
        injector = stubborn.cluster.transport.fault_injector
        injector.faults = Faults(ingress_loss=1.0, egress_loss=1.0)
        await hosts.until(lambda: hosts.hosts[1].size == 4)
        injector.faults = Faults()
        await hosts.until(lambda: stubborn.changes[-1].status is ClusterStatus.EVICTED, timeout=60)
        await trio.sleep(30)
        assert hosts.hosts[1].size == 4


async def test_a_restarted_process_replaces_its_old_incarnation(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(5)
        members[4].crash()
        await members[4].stopped.wait()
        again = hosts.start(5, rng=random.Random(55))
        await hosts.until(lambda: again.size == 5 and all(host.size == 5 for host in members[:4]), timeout=60)
        assert again.cluster is not None
        view = again.cluster.view
        assert view.member("10.0.0.5:7946") == again.cluster.me


@pytest.mark.slow("two minutes of six members in virtual time")
async def test_a_fifth_of_all_datagrams_lost_evicts_nobody(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(6, faults=Faults(egress_loss=0.2))
        await trio.sleep(120)
        epochs = {host.cluster.view.epoch for host in members if host.cluster}
        assert len(epochs) == 1
        assert all(change.failed == () for host in members for change in host.changes)


# The block, its errors, its neighbours


async def test_what_the_block_raises_comes_out_as_it_is_and_the_member_leaves(
    autojump_clock: MockClock,
) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(4)
        with pytest.raises(KeyError, match="mine"):
            async with membership.join(address(9), [SEED], network=hosts.network, settings=SETTINGS):
                raise KeyError("mine")
        await hosts.until(lambda: members[0].size == 4)
        assert names(members[0].changes[-1].left) == ["10.0.0.9:7946"]


async def test_a_cancelled_block_vanishes_at_once(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        await hosts.bootstrap(3)
        start = trio.current_time()
        with trio.move_on_after(5) as scope:
            async with membership.join(address(9), [SEED], network=hosts.network, settings=SETTINGS):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(5)


async def test_a_join_can_be_cancelled(autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as scope:
        async with membership.join(address(9), [SEED], network=InMemoryNetwork(), settings=SETTINGS):
            raise AssertionError("there is nobody to join")
    assert scope.cancelled_caught


async def test_a_subscriber_that_sleeps_stalls_nobody(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        await hosts.bootstrap(3)
        cluster = hosts.hosts[1].cluster
        assert cluster is not None
        feed = cluster.changes()
        await feed.__anext__()
        for number in range(4, 8):
            hosts.start(number)
            await hosts.until(lambda: all(host.size == len(hosts.hosts) for host in hosts.hosts.values()))
        change = await feed.__anext__()
        assert len(change.joined) == 4
        assert len(change.view.members) == 7


async def echo(stream: FrameStream) -> None:
    async for frame in stream:
        await stream.send(frame)


async def test_members_offer_services_to_each_other(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(2, services={"echo": echo})
        cluster = members[0].cluster
        assert cluster is not None
        async with await cluster.transport.open_service(address(2), "echo") as stream:
            assert stream.cluster_id == cluster.cluster_id
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"


async def test_hostile_traffic_is_counted_and_changes_nothing(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(4)
        cluster = members[0].cluster
        assert cluster is not None
        epoch = cluster.view.epoch
        endpoint = hosts.network.endpoint(SEED)
        assert endpoint is not None
        rng = random.Random(1)
        ours = DatagramCodec(address(2), cluster.cluster_id)
        nobody = DatagramCodec(address(77))
        for _ in range(1000):
            endpoint.deliver(rng.randbytes(rng.randrange(200)))
            endpoint.deliver(ours.seal(rng.randbytes(rng.randrange(100))))
            endpoint.deliver(nobody.seal(b"\x93" + rng.randbytes(20)))
        endpoint.deliver(bytes(9000))
        stream = await endpoint.connect(SEED)
        await stream.send_all(rng.randbytes(10_000))
        half_open = await endpoint.connect(SEED)
        await trio.sleep(10)
        await half_open.aclose()
        statistics = cluster.statistics()
        assert statistics["datagrams_dropped_not_rota"] > 900
        assert statistics["datagrams_dropped_too_large"] == 1
        assert statistics["messages_dropped_malformed"] > 1000
        assert statistics["streams_dropped_not_rota"] == 1
        assert statistics["streams_dropped_silent"] == 1
        assert all(host.cluster is not None and host.cluster.view.epoch == epoch for host in members)


async def test_a_stranger_without_a_cluster_may_only_ask_to_join(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(2)
        cluster = members[0].cluster
        assert cluster is not None
        message = CutBody(cluster.me.incarnation, cluster.view.epoch, cluster.view.id, Cut.of())
        endpoint = hosts.network.endpoint(SEED)
        assert endpoint is not None
        endpoint.deliver(DatagramCodec(address(2)).seal(encode(message)))
        await trio.sleep(1)
        assert cluster.statistics()["messages_dropped_unknown_cluster"] == 1


# Real sockets


@pytest.mark.socket
async def test_listening_for_everybody_without_a_key_must_be_said() -> None:
    with pytest.raises(BindError, match="insecure=True"):
        async with membership.join("0.0.0.0:0", advertise="127.0.0.1:0"):
            pass


def test_the_names_of_the_package_are_all_there() -> None:
    assert len(membership.__all__) == len(set(membership.__all__))
    for name in membership.__all__:
        assert getattr(membership, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = membership.nonsense  # type: ignore[attr-defined]  # that is the point


# What an operator or the application asks for


async def test_new_metadata_are_agreed_and_told_to_everybody(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(4, metadata={"rack": "r1"})
        cluster = members[2].cluster
        assert cluster is not None
        epoch = cluster.view.epoch
        await cluster.set_metadata({"rack": "r2", "zone": "z"})
        assert cluster.me.attributes == {"rack": "r2", "zone": "z"}
        assert cluster.view.epoch == epoch + 1
        await hosts.until(lambda: all(host.changes[-1].updated for host in members))
        for host in members:
            assert [m.attributes["rack"] for m in host.changes[-1].updated] == ["r2"]
            assert host.changes[-1].joined == host.changes[-1].failed == ()
        with pytest.raises(membership.MemberError, match="shorten its metadata"):
            await cluster.set_metadata({"text": "x" * 1000})
        assert cluster.me.attributes == {"rack": "r2", "zone": "z"}


async def test_without_a_majority_new_metadata_wait_for_it(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(2)
        cluster = members[0].cluster
        assert cluster is not None
        members[1].crash()
        with trio.move_on_after(20) as waiting:
            await cluster.set_metadata({"rack": "r2"})
        assert waiting.cancelled_caught
        assert cluster.me.attributes == {}


async def test_an_evicted_member_stays_out_and_the_others_know_why(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(4)
        cluster, victim = members[0].cluster, members[2].cluster
        assert cluster is not None
        assert victim is not None
        epoch = cluster.view.epoch
        assert await cluster.evict(victim.me.name) == epoch + 1
        await hosts.until(lambda: victim.status is ClusterStatus.EVICTED)
        await hosts.until(lambda: all(hosts.hosts[number].changes[-1].evicted for number in (1, 2, 4)))
        for number in (1, 2, 4):
            change = hosts.hosts[number].changes[-1]
            assert names(change.evicted) == [victim.me.name]
            assert change.failed == change.left == ()
        await trio.sleep(30)
        assert victim.status is ClusterStatus.EVICTED
        with pytest.raises(membership.MembershipEndedError, match="no member any more"):
            await victim.set_metadata({"rack": "r2"})


async def test_an_eviction_that_nobody_can_agree_on_says_so(autojump_clock: MockClock) -> None:
    """B17: of two members one can never remove the other without its vote."""
    async with running() as hosts:
        members = await hosts.bootstrap(2)
        cluster = members[0].cluster
        assert cluster is not None
        members[1].crash()
        await hosts.until(lambda: not cluster.quorum, timeout=60)
        with pytest.raises(membership.EvictionError, match="recover from the survivors"):
            await cluster.evict("10.0.0.2:7946")
        with pytest.raises(membership.EvictionError, match="no member"):
            await cluster.evict("nobody")


async def test_two_of_five_recover_and_the_others_join_as_new(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        members = await hosts.bootstrap(5)
        for host in members[2:]:
            host.crash()
        await hosts.until(
            lambda: not any(host.cluster.quorum for host in members[:2] if host.cluster), timeout=60
        )
        cluster = members[1].cluster
        assert cluster is not None
        with pytest.raises(membership.RecoveryError, match="not among the survivors"):
            await cluster.recover(["10.0.0.1:7946"])
        with pytest.raises(membership.RecoveryError, match=r"10\.0\.0\.3:7946 did not answer"):
            await cluster.recover([f"10.0.0.{number}:7946" for number in (1, 2, 3)])
        view = await cluster.recover(["10.0.0.1:7946", "10.0.0.2:7946"])
        assert len(view) == 2
        assert cluster.quorum
        await hosts.until(lambda: all(host.size == 2 for host in members[:2]))
        for number in (3, 4, 5):
            hosts.start(number, rng=random.Random(number * 11))
        await hosts.until(lambda: all(host.size == 5 for host in hosts.hosts.values()), timeout=60)
        assert cluster.view.lineage == view.lineage


async def test_a_process_whose_name_stays_taken_gives_up_without_a_timeout(
    autojump_clock: MockClock,
) -> None:
    async with running() as hosts:
        await hosts.bootstrap(3)
        start = trio.current_time()
        with pytest.raises(membership.JoinRefusedError, match=r"in use by 10\.0\.0\.2:7946"):
            async with membership.join(
                address(9), [SEED], name="10.0.0.2:7946", network=hosts.network, settings=SETTINGS
            ):
                pass
        assert trio.current_time() - start < 2 * SETTINGS.join_refusals * SETTINGS.rpc_cap
        assert hosts.hosts[1].size == 3


async def test_two_that_both_found_never_merge(autojump_clock: MockClock) -> None:
    """Each other's seeds, both told to found: two clusters, and each side counts what it drops of the other."""
    async with running() as hosts:
        one = hosts.start(1, found=True, seeds=[address(2)])
        other = hosts.start(2, found=True, seeds=[address(1)])
        hosts.start(3, seeds=[address(1)])
        hosts.start(4, seeds=[address(2)])
        await hosts.until(lambda: one.size == other.size == 2)
        assert one.cluster is not None
        assert other.cluster is not None
        assert one.cluster.cluster_id != other.cluster.cluster_id
        one.cluster.transport.send_datagram(
            encode(CutBody(one.cluster.me.incarnation, 1, one.cluster.view.id, Cut.of())), (address(2),)
        )
        await trio.sleep(60)
        assert one.size == other.size == 2
        assert other.cluster.statistics()["datagrams_dropped_foreign_cluster"] >= 1
        with pytest.raises(membership.SeedForeignClusterError):
            async with membership.join(
                address(9),
                [address(1)],
                cluster_id=other.cluster.cluster_id,
                join_timeout=10,
                network=hosts.network,
                settings=SETTINGS,
            ):
                pass
        assert one.size == 2


async def test_seeds_are_tried_for_ever_with_jitter_and_names_resolved_at_every_try(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    asked: list[float] = []

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        asked.append(trio.current_time())
        if len(asked) < 25:
            raise OSError("no such name yet")
        return [(2, 2, 17, "", ("10.0.0.1", 7946))]

    monkeypatch.setattr(trio.socket, "getaddrinfo", getaddrinfo)
    async with running() as hosts:
        hosts.start(2, seeds=["seed.example:7946"])
        await trio.sleep(550)
        pauses = [later - sooner for sooner, later in itertools.pairwise(asked)]
        assert len(asked) >= 10
        assert max(pauses) <= 1.5 * SEED_RETRY_LONGEST + 1
        assert len({round(pause, 3) for pause in pauses[6:]}) == len(pauses[6:]), "jittered"
        hosts.start(1)
        await hosts.until(lambda: hosts.hosts[2].size == 2, timeout=1000)


async def test_nobody_is_told_to_found_and_one_cluster_comes_out(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        everybody = [address(number) for number in range(1, 5)]
        for number in (4, 3, 2, 1):
            hosts.start(number, seeds=everybody, expect=4)
            await trio.sleep(7)
            assert number == 1 or all(host.size == 0 for host in hosts.hosts.values())
        await hosts.until(lambda: all(host.size == 4 for host in hosts.hosts.values()))
        clusters = [host.cluster for host in hosts.hosts.values() if host.cluster is not None]
        assert len({cluster.cluster_id for cluster in clusters}) == 1
        assert sum(cluster.founded for cluster in clusters) == 1
        late = hosts.start(5, seeds=everybody, expect=4)
        await hosts.until(lambda: late.size == 5)
        assert late.cluster is not None
        assert not late.cluster.founded


async def test_who_waits_for_the_others_says_how_many_have_met(autojump_clock: MockClock) -> None:
    async with running() as hosts:
        hosts.start(2, seeds=[address(1), address(3)], expect=3)
        with pytest.raises(membership.JoinTimeoutError, match="starts with 3 processes, 2 have met so far"):
            async with membership.join(
                address(1),
                [address(2), address(3)],
                expect=3,
                join_timeout=10,
                network=hosts.network,
                settings=SETTINGS,
            ):
                pass


# Starting again


@pytest.fixture
def inline_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written at once: the virtual clock does not wait for threads."""

    async def at_once(function: Callable[..., None], *arguments: object) -> None:
        await trio.lowlevel.checkpoint()
        function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)


async def test_all_die_at_once_and_go_on_by_what_they_remember(
    inline_disk: None, autojump_clock: MockClock, tmp_path: Path
) -> None:
    """No seeds the second time, and the founder's arguments are those of its first start."""

    def memory(number: int) -> dict[str, Any]:
        return {"last_view": tmp_path / f"view{number}"}

    async with running() as world:
        for number in (1, 2, 3):
            world.start(number, **memory(number))
        await world.until(lambda: [world.hosts[number].size for number in (1, 2, 3)] == [3, 3, 3])
        first = world.hosts[1].cluster
        assert first is not None
        for host in world.hosts.values():
            host.crash()
            await host.stopped.wait()
        for number in (1, 2, 3):
            world.start(number, seeds=[], **memory(number))
        await world.until(lambda: [world.hosts[number].size for number in (1, 2, 3)] == [3, 3, 3])
        clusters = [host.cluster for host in world.hosts.values()]
        assert {cluster.cluster_id for cluster in clusters if cluster} == {first.cluster_id}
        assert [cluster.founded for cluster in clusters if cluster] == [True, False, False]
        assert all(cluster.view.epoch > first.view.epoch + 900 for cluster in clusters if cluster)


async def test_one_that_dies_comes_back_without_seeds(
    inline_disk: None, autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running() as world:
        for number in (1, 2, 3, 4):
            world.start(number, last_view=tmp_path / f"view{number}")
        await world.until(lambda: all(host.size == 4 for host in world.hosts.values()))
        world.hosts[1].crash()
        await world.hosts[1].stopped.wait()
        host = world.start(1, seeds=[], last_view=tmp_path / "view1")
        await world.until(lambda: all(host.size == 4 for host in world.hosts.values()))
        assert host.cluster is not None
        assert host.cluster.view.epoch < 100, "the chain goes on; nobody founded anything"
        assert host.cluster.founded, "the cluster, in an earlier life"


async def test_whom_others_recovered_without_remembers_that_there_has_been_a_later_view(
    inline_disk: None, autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running() as world:
        for number in (1, 2, 3):
            world.start(number, last_view=tmp_path / f"view{number}")
        await world.until(lambda: all(host.size == 3 for host in world.hosts.values()))
        one, removed = world.hosts[1].cluster, world.hosts[3].cluster
        memory = LastView(tmp_path / "view3", SETTINGS.rings)

        def is_superseded() -> bool:
            remembered = memory.load()
            return remembered is not None and remembered.is_copy

        assert one is not None
        assert removed is not None
        assert not is_superseded()
        removed.transport.fault_injector.faults = Faults(ingress_loss=1.0, egress_loss=1.0)
        await one.recover(["10.0.0.1:7946", "10.0.0.2:7946"], force=True)
        removed.transport.fault_injector.faults = Faults()
        await world.until(is_superseded)
        await world.until(lambda: all(host.size == 3 for host in world.hosts.values()), timeout=60)
        await world.until(lambda: not is_superseded())


async def test_a_recovery_that_ends_the_process_is_written_down_first(
    inline_disk: None, autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running() as world:
        for number in (1, 2, 3):
            world.start(number, last_view=tmp_path / f"view{number}", rejoin=False)
        await world.until(lambda: all(host.size == 3 for host in world.hosts.values()))
        one, other = world.hosts[1].cluster, world.hosts[3]
        assert one is not None
        assert other.cluster is not None
        state = other.cluster._driver.state
        publish = state.publish

        def end_at_once(**news: Any) -> None:
            publish(**news)
            if news.get("status") is ClusterStatus.EVICTED:
                other.crash()

        state.publish = end_at_once  # type: ignore[method-assign]
        await one.recover(["10.0.0.1:7946", "10.0.0.2:7946"], force=True)
        await other.stopped.wait()
        remembered = LastView(tmp_path / "view3", SETTINGS.rings).load()
        assert remembered is not None
        assert remembered.is_copy


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None])
async def test_a_damaged_memory_is_refused_and_says_what_to_do(
    inline_disk: None, autojump_clock: MockClock, tmp_path: Path, damage: bytes | None
) -> None:
    path = tmp_path / "view"
    network = InMemoryNetwork()
    async with membership.join(SEED, network=network, settings=SETTINGS, last_view=path):
        pass
    content = path.read_bytes()
    path.write_bytes(
        content[:4096] + bytes(byte ^ 1 for byte in content[4096:]) if damage is None else damage
    )
    with pytest.raises(membership.LastViewError, match=r"is damaged .*remove it"):
        async with membership.join(SEED, network=network, settings=SETTINGS, last_view=path):
            pass


async def test_a_memory_of_another_cluster_is_refused(
    inline_disk: None, autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "view"
    network = InMemoryNetwork()
    async with membership.join(SEED, network=network, settings=SETTINGS, last_view=path):
        pass
    with pytest.raises(membership.JoinArgumentError, match="not of 01020304"):
        async with membership.join(
            SEED, network=network, settings=SETTINGS, last_view=path, cluster_id=FOREIGN
        ):
            pass


@pytest.mark.parametrize(
    ("seeds", "warned"),
    [((), False), ((SEED,), False), (("10.9.9.9:7946", SEED), False), (("10.9.9.9:7946",), True)],
)
async def test_seeds_that_are_none_of_the_remembered_cluster_are_told_of(
    inline_disk: None,
    autojump_clock: MockClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    seeds: tuple[str | Address, ...],
    warned: bool,
) -> None:
    """A cluster of one, begun by mistake, goes on by itself and not in the cluster of its seeds: who wonders, looks."""
    path = tmp_path / "view"
    for given in ((), seeds):
        async with membership.join(
            SEED, given, network=InMemoryNetwork(), settings=SETTINGS, last_view=path
        ) as cluster:
            assert len(cluster.view) == 1
    said = [record.getMessage() for record in caplog.records if "none of the seeds" in record.getMessage()]
    assert len(said) == warned
    if warned:
        assert "(10.9.9.9:7946)" in said[0]
        assert f"remembered in {path}" in said[0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seeds": "10.0.0.1:7946"}, r"write \['10.0.0.1:7946'\]"),
        ({"seeds": [5]}, "a seed is a text host:port or an Address, not 5"),
        ({"join_timeout": -1}, "join_timeout"),
        ({"join_timeout": float("nan")}, "join_timeout"),
    ],
)
async def test_arguments_that_cannot_be_meant_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(membership.JoinArgumentError, match=text):
        async with membership.join(SEED, network=InMemoryNetwork(), **options):
            pass


async def test_a_disk_that_cannot_be_written_keeps_nobody_out(
    inline_disk: None, autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "no such folder" / "view"
    async with membership.join(SEED, network=InMemoryNetwork(), settings=SETTINGS, last_view=path) as cluster:
        assert cluster.status is ClusterStatus.MEMBER
        assert "the view was not saved" in caplog.text
        path.parent.mkdir()
        with trio.fail_after(30):
            while not path.exists():  # noqa: ASYNC110 - a file, in virtual time
                await trio.sleep(0.5)
