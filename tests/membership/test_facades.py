"""trio, asyncio and threads: the same surface, the same behaviour, over real sockets on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import membership
from membership import Change, ClusterStatus, EdgeError, MembershipEndedError, WaitTimeoutError
from tests.membership.facades import FACADES, PATIENCE, Facade
from tests.own_addresses import own_address


@pytest.fixture(params=FACADES, ids=str)
def facade(request: pytest.FixtureRequest) -> Facade:
    found: Facade = request.param
    return found


def size(count: int) -> Any:
    return lambda view: len(view.members) == count


def names(members: tuple[membership.Member, ...]) -> list[str]:
    return sorted(member.name for member in members)


# Joining and leaving


@pytest.mark.socket
def test_a_member_reads_where_it_stands(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join(name="ada", metadata={"rack": "r1"}) as cluster:
            assert cluster.status is ClusterStatus.MEMBER
            assert cluster.quorum
            assert cluster.view.epoch == 0
            assert cluster.view.members == (cluster.me,)
            assert cluster.me.attributes == {"rack": "r1"}
            assert len(cluster.cluster_id) == 16
            assert cluster.statistics()["views_installed"] == 1

    facade.run(body)


@pytest.mark.socket
def test_two_members_meet_and_a_leave_is_seen_as_one(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join(name="ada") as ada:
            changes = ada.changes()
            first = await changes.__anext__()
            assert names(first.joined) == ["ada"]
            async with facade.join(str(ada.me.address), name="ben") as ben:
                assert (await ben.wait_for(size(2), PATIENCE)).epoch == 1
                second = await changes.__anext__()
                assert names(second.joined) == ["ben"]
                assert await ben.leave()
                assert await ben.leave(), "leaving twice is leaving once"
                assert ben.status is ClusterStatus.LEFT
            third = await changes.__anext__()
            assert (names(third.left), names(third.failed)) == (["ben"], [])

    facade.run(body)


@pytest.mark.socket
def test_an_error_in_the_block_is_raised_as_it_was_after_a_graceful_leave(facade: Facade) -> None:
    class OwnError(Exception):
        pass

    async def body() -> None:
        async with facade.join(name="ada") as ada:
            with pytest.raises(OwnError):  # noqa: PT012 - the block is what is tested
                async with facade.join(str(ada.me.address), name="ben"):
                    await ada.wait_for(size(2), PATIENCE)
                    changes = ada.changes()
                    await changes.__anext__()
                    raise OwnError
            assert names((await changes.__anext__()).left) == ["ben"]

    facade.run(body)


@pytest.mark.socket
def test_what_join_raises_arrives(facade: Facade) -> None:
    async def body() -> None:
        with pytest.raises(membership.JoinArgumentError, match="at least 1"):
            async with facade.join(expect=0):
                pytest.fail("joined")
        with pytest.raises(membership.AddressError):
            async with facade.join(listen="nonsense"):
                pytest.fail("joined")
        with pytest.raises(membership.JoinTimeoutError, match="must meet first"):
            async with facade.join(expect=2, join_timeout=0.1):
                pytest.fail("joined")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(membership.BindError, match="in use"):
                async with facade.join(listen=f"127.0.0.1:{taken.getsockname()[1]}"):
                    pytest.fail("joined")

    facade.run(body)


@pytest.mark.socket
def test_one_can_join_again_and_again(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join(name="ada") as ada:
            for _ in range(3):
                async with facade.join(str(ada.me.address), name="ben") as ben:
                    await ben.wait_for(size(2), PATIENCE)
            await ada.wait_for(size(1), PATIENCE)
            assert ada.view.epoch == 6
        for _ in range(3):
            async with facade.join():
                pass

    facade.run(body)


# The centralised mode


@pytest.mark.socket
def test_voters_and_their_member_stand_in_one_view(facade: Facade, tmp_path: Path) -> None:
    voters = [str(own_address()) for _ in range(3)]

    def serve(number: int) -> Any:
        return facade.serve_ensemble(voters[number], voters, state=tmp_path / str(number), name=f"e{number}")

    async def body() -> None:
        async with serve(0) as first, serve(1) as second, serve(2):
            with pytest.raises(WaitTimeoutError, match=r"within 0\.01 s"):
                await first.wait_for(size(1), 0.01)
            empty = await first.wait_for(size(0), PATIENCE)
            assert len(empty) == 0
            assert [member.name for member in first.electorate].count("e0") == 1
            assert len(first.electorate) == 3
            assert first.me in first.electorate
            assert first.quorum
            assert first.keys is None
            options = {"name": "ada", "mode": membership.Mode.CENTRALISED}
            async with facade.join(*voters, **options) as ada:
                view = await second.wait_for(size(1), PATIENCE)
                assert names(view.members) == ["ada"]
                assert second.cluster_id == ada.cluster_id == view.cluster_id
                changes = second.changes()
                assert names((await changes.__anext__()).joined) == ["ada"]
            assert second.statistics()["views_installed"] >= 2
        async for change in changes:
            assert change.view.epoch >= view.epoch
        with pytest.raises(MembershipEndedError, match="no further view"):
            await second.wait_for(size(9), PATIENCE)

    facade.run(body)


@pytest.mark.socket
def test_what_serve_ensemble_raises_arrives(facade: Facade, tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(membership.EnsembleError, match="at least 3"):
            async with facade.serve_ensemble("127.0.0.1:1", ["127.0.0.1:1"], state=tmp_path, insecure=True):
                pytest.fail("served")
        async with facade.join() as alone:
            address = str(alone.me.address)
            with pytest.raises(membership.BindError, match="in use"):
                async with facade.serve_ensemble(address, [address], state=tmp_path / "other"):
                    pytest.fail("served")

    facade.run(body)


# Waiting


@pytest.mark.socket
def test_waiting_ends_in_time_or_with_the_membership(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join() as cluster:
            with pytest.raises(WaitTimeoutError, match=r"within 0\.05 s; the latest is epoch 0 of 1 members"):
                await cluster.wait_for(size(2), 0.05)
            with pytest.raises(ZeroDivisionError):
                await cluster.wait_for(lambda view: view.epoch < 1 / 0, PATIENCE)
            assert isinstance(WaitTimeoutError("x"), TimeoutError)
            await cluster.leave()
            with pytest.raises(MembershipEndedError, match="no member any more"):
                await cluster.wait_for(size(2), PATIENCE)

    facade.run(body)


@pytest.mark.socket
def test_an_iteration_beside_the_block_ends_with_it(facade: Facade) -> None:
    told: list[Change] = []
    ended: list[bool] = []

    async def body() -> None:
        async with facade.join() as cluster:

            async def listen() -> None:
                async for change in cluster.changes():
                    told.append(change)  # noqa: PERF401 - a comprehension would show nothing while it runs
                ended.append(True)

            facade.start(listen)
            facade.start(listen)
            await cluster.wait_for(size(1), PATIENCE)

    facade.run(body)
    assert ended == [True, True]
    assert told[-1].status is ClusterStatus.LEFT


@pytest.mark.socket
def test_after_the_block_a_call_says_that_it_is_over(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join() as cluster:
            pass
        assert cluster.status is ClusterStatus.LEFT
        async for change in cluster.changes():
            assert change.status is ClusterStatus.LEFT
        if facade.name != "trio":  # where the call needs nobody else
            with pytest.raises(MembershipEndedError, match="block is over"):
                await cluster.leave()

    facade.run(body)


@pytest.mark.socket
def test_who_observes_a_member_may_report_it_and_it_goes_when_the_others_do_too(facade: Facade) -> None:
    async def body() -> None:
        async with facade.join(name="ada") as ada:
            seed = str(ada.me.address)
            assert ada.subjects == ()
            async with facade.join(seed, name="ben") as ben, facade.join(seed, name="cat") as cat:
                await ada.wait_for(size(3), PATIENCE)
                await ben.wait_for(size(3), PATIENCE)
                accused = cat.me
                assert {member.name for member in ada.subjects} == {"ben", "cat"}
                with pytest.raises(EdgeError, match=r"ada .* is not observed by this process"):
                    await ada.edge_failed(ada.me)
                await ada.edge_failed(accused)
                await ben.edge_failed(accused)
                await ada.wait_for(lambda view: accused not in view, PATIENCE)

    facade.run(body)


# Failure: a defect of the protocol must be heard


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every protocol tick raises once both members are in a view of two.

    Not before: a joiner that was not told that it is in would wait for a seed that is no more.
    """
    from membership.protocol.core import Core

    tick, joined = Core.tick, set[Core]()

    def broken(self: Core, now: float) -> Any:
        if self.configuration is not None and len(self.configuration.members) > 1:
            joined.add(self)
        if len(joined) > 1:
            raise RuntimeError("a defect")
        return tick(self, now)

    monkeypatch.setattr(Core, "tick", broken)
    return iter(())


def has_defect(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(has_defect(each) for each in error.exceptions)
    return isinstance(error, RuntimeError) and str(error) == "a defect"


@pytest.mark.socket
def test_a_defect_of_the_protocol_is_raised_to_whoever_waits_and_out_of_the_block(
    facade: Facade, defect: None
) -> None:
    heard: list[MembershipEndedError] = []

    async def body() -> None:
        async with facade.join(name="ada") as ada:

            async def listen() -> None:
                with pytest.raises(MembershipEndedError, match="a defect") as caught:
                    async for _ in ada.changes():
                        pass
                heard.append(caught.value)

            if facade.name != "trio":  # there the block's own end stops everybody in its nursery
                facade.start(listen)
            async with facade.join(str(ada.me.address), name="ben", join_timeout=PATIENCE):
                async for _ in ada.changes():
                    pass

    with pytest.raises(BaseExceptionGroup) as raised:
        facade.run(body)
    assert has_defect(raised.value), raised.value
    assert len(heard) == (facade.name != "trio")
    assert all(has_defect(each.__cause__) for each in heard if each.__cause__ is not None)
