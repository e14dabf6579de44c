"""Clusters under keys: wrong, mixed, rotated and removed ones; forged and replayed packets change nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import membership
from membership import Address, Cluster, InMemoryNetwork, Key, KeyRing, Settings
from membership.protocol.messages import Alert, AlertKind, Digest, Gossip, encode
from membership.transport import Transport
from membership.wire.frames import DatagramCodec
from membership.wire.key_ring import write_key_file
from membership.wire.sealing import SealedProtection

OLD, NEW, STRANGE = (Key.of(bytes([number]) * 32) for number in (1, 2, 3))
SEED = Address("10.0.0.1", 7946)


def address(number: int) -> Address:
    return Address(f"10.0.0.{number}", 7946)


class Members:
    """Members on one in-memory network, each with a key ring of its own."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = InMemoryNetwork()
        self.clusters: dict[int, Cluster] = {}
        self._nursery = nursery

    def start(self, number: int, keys: KeyRing | Path | None, **options: Any) -> None:
        self._nursery.start_soon(self._run, number, {"keys": keys, **options})

    async def _run(self, number: int, options: dict[str, Any]) -> None:
        async with membership.join(
            address(number),
            [] if number == 1 else [SEED],
            settings=Settings.local(),
            network=self.network,
            rng=random.Random(number),
            **options,
        ) as cluster:
            self.clusters[number] = cluster
            await trio.sleep_forever()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while not condition():  # noqa: ASYNC110 - the condition spans many members; time is virtual
                await trio.sleep(0.02)

    async def until_size(self, size: int) -> None:
        await self.until(
            lambda: len(self.clusters) == size and all(len(c.view) == size for c in self.clusters.values())
        )

    @property
    def views(self) -> set[bytes]:
        return {cluster.view.id for cluster in self.clusters.values()}

    def refuses(self, number: int, reason: str) -> int:
        return self.clusters[number].statistics().get(f"datagrams_dropped_{reason}", 0)

    async def tap(self, number: int) -> list[bytes]:
        """The datagrams that reach a member from here on; they still reach it."""
        endpoint = self.network.endpoint(address(number))
        assert endpoint is not None
        taken: list[bytes] = []
        deliver = endpoint.deliver

        def recording(datagram: bytes) -> bool:
            taken.append(datagram)
            return deliver(datagram)

        endpoint.deliver = recording  # type: ignore[method-assign]  # a wire tap
        await trio.sleep(1)
        endpoint.deliver = deliver  # type: ignore[method-assign]
        return taken

    def deliver(self, number: int, datagram: bytes) -> None:
        endpoint = self.network.endpoint(address(number))
        assert endpoint is not None
        endpoint.deliver(datagram)


@asynccontextmanager
async def running() -> AsyncIterator[Members]:
    async with trio.open_nursery() as nursery:
        yield Members(nursery)
        nursery.cancel_scope.cancel()


async def test_members_with_a_common_key_meet(autojump_clock: MockClock) -> None:
    async with running() as members:
        for number, keys in enumerate(([OLD], [OLD, NEW], [OLD]), start=1):
            members.start(number, KeyRing(keys))
        await members.until_size(3)
        cluster = members.clusters[2]
        assert cluster.keys is not None
        assert cluster.keys.ids == (OLD.id, NEW.id)


@pytest.mark.parametrize("joiner", [OLD, NEW])
async def test_a_joiner_with_any_installed_key_joins_and_stays(
    autojump_clock: MockClock, joiner: Key
) -> None:
    """Spec 3.11. The others go on with their own primary among themselves, in either order of the ring."""
    async with running() as members:
        for number in range(1, 7):
            members.start(number, KeyRing([NEW, OLD] if number % 3 else [OLD, NEW]))
        await members.until_size(6)
        members.start(7, KeyRing([joiner]))
        await members.until_size(7)
        before = members.views
        await trio.sleep(60)
        assert members.views == before
        assert len(before) == 1
        assert all(cluster.quorum for cluster in members.clusters.values())


async def test_nobody_goes_on_showing_keys_to_somebody_without_a_common_one(
    autojump_clock: MockClock,
) -> None:
    async with running() as members:
        members.start(1, KeyRing([OLD]))
        await members.until_size(1)
        members.deliver(
            1, DatagramCodec(address(1), None, SealedProtection(KeyRing([STRANGE]))).seal(bytes(50))
        )
        await trio.sleep(5)
        assert members.clusters[1].statistics()["keys_shown"] == 1


async def test_keys_may_be_given_as_a_file(autojump_clock: MockClock, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_key_file(path, [OLD])
    async with running() as members:
        members.start(1, path)
        members.start(2, KeyRing([OLD]))
        await members.until_size(2)


@pytest.mark.parametrize(
    ("keys", "text", "reason"),
    [(KeyRing([STRANGE]), "does not hold the key", "unknown_key"), (None, "encrypted", "not_encrypted")],
)
async def test_a_wrong_key_is_a_clear_error_and_counted(
    autojump_clock: MockClock, keys: KeyRing | None, text: str, reason: str
) -> None:
    async with running() as members:
        members.start(1, KeyRing([OLD]))
        members.start(2, KeyRing([OLD]))
        await members.until_size(2)
        before = members.views
        with pytest.raises(membership.JoinError, match=text):
            async with membership.join(
                address(3),
                [SEED],
                network=members.network,
                keys=keys,
                join_timeout=5,
                settings=Settings.local(),
            ):
                pass
        assert members.refuses(1, reason) > 0
        assert members.views == before


async def test_a_rotation_under_way_changes_no_view(autojump_clock: MockClock) -> None:
    """Install, use, remove, one member after the other, with seconds between: nobody is ever suspected."""
    async with running() as members:
        for number in range(1, 6):
            members.start(number, KeyRing([OLD]))
        await members.until_size(5)
        before = members.views
        recorded = await members.tap(2)
        for step in (
            lambda ring: ring.install(NEW),
            lambda ring: ring.use(NEW.id),
            lambda ring: ring.remove(OLD.id),
        ):
            for cluster in members.clusters.values():
                step(cluster.keys)
                await trio.sleep(3)
        await trio.sleep(10)
        assert members.views == before
        assert all(cluster.quorum for cluster in members.clusters.values())
        for number in range(1, 6):
            assert members.refuses(number, "unknown_key") == 0
            assert members.refuses(number, "removed_key") == 0
        # What was recorded under the old key is worth nothing now.
        for datagram in recorded:
            members.deliver(2, datagram)
        await trio.sleep(1)
        assert members.refuses(2, "removed_key") == len(recorded)
        # Neither is a process that was not told.
        with pytest.raises(membership.JoinError, match="does not hold the key"):
            async with membership.join(
                address(9),
                [SEED],
                network=members.network,
                keys=KeyRing([OLD]),
                join_timeout=5,
                settings=Settings.local(),
            ):
                pass
        members.start(6, KeyRing([NEW]))
        await members.until_size(6)


class Pair:
    """Two transports that hold both keys and use the old one; what one sends the other takes at once."""

    def __init__(self, network: InMemoryNetwork, transports: list[Transport]) -> None:
        self.network = network
        self.transports = transports
        self.protections = [transport.protection for transport in transports]
        self.rings = [protection.ring for protection in self.protections if protection.ring is not None]

    @classmethod
    async def bind(cls) -> Pair:
        network = InMemoryNetwork()
        return cls(
            network,
            [
                await Transport.bind(
                    address(number),
                    network=network,
                    cluster_id=bytes(16),
                    protection=SealedProtection(KeyRing([OLD, NEW])),
                )
                for number in range(2)
            ],
        )

    def drop_waiting(self) -> None:
        for transport in self.transports:
            endpoint = self.network.endpoint(transport.advertised)
            while endpoint is not None and endpoint.receive():
                pass

    def use_new(self, number: int) -> None:
        self.rings[number].use(NEW.id)
        self.transports[number].send_datagram(b"to somebody else", (address(9),))

    def arrives(self, sender: int, text: bytes) -> bool:
        receiver = self.transports[1 - sender]
        self.transports[sender].send_datagram(text, (receiver.advertised,))
        return [arrival.payload for arrival in receiver.drain()] == [text]


async def test_two_that_use_the_new_key_do_not_hold_each_other_to_the_old_one() -> None:
    """The second hears the first, which answers it under its old key, before it has sent anything under the new one."""
    pair = await Pair.bind()
    pair.use_new(0)
    assert pair.arrives(1, b"still under the old key")
    assert pair.arrives(0, b"under the one that the second was heard under")
    pair.use_new(1)
    for _ in range(3):
        assert pair.arrives(0, b"from the first")
        assert pair.arrives(1, b"from the second")
    assert not any(protection.peer_keys for protection in pair.protections)
    pair.rings[1].remove(OLD.id)
    assert pair.arrives(0, b"nothing is lost when the old key is removed")


async def test_who_gave_the_key_in_use_up_too_early_is_reached_under_the_other() -> None:
    pair = await Pair.bind()
    assert pair.arrives(0, b"the first is known to hold the old key")
    pair.rings[0].replace([NEW])
    assert not pair.arrives(1, b"a datagram that is long enough to be answered by a key")
    assert not pair.transports[1].drain()
    assert pair.arrives(1, b"under the key that it showed")


async def test_who_gave_it_up_is_reached_by_what_is_too_short_to_be_answered() -> None:
    pair = await Pair.bind()
    assert pair.arrives(0, b"the first is known to hold the old key")
    pair.rings[0].replace([NEW])
    reached = []
    for _ in range(20):
        assert pair.arrives(0, b"it goes on under the new one")
        reached.append(pair.arrives(1, b"."))
    assert reached == sorted(reached)
    assert reached[-1]


async def test_a_lost_sight_of_the_new_key_is_made_good() -> None:
    """All the datagrams that show a key are lost for a while."""
    pair = await Pair.bind()
    pair.use_new(0)
    assert pair.arrives(1, b"still under the old key")
    pair.drop_waiting()
    pair.use_new(1)
    for sender in (0, 1) * 3:
        assert pair.arrives(sender, b"the receiver shows its key, which is lost")
        pair.drop_waiting()
    assert all(protection.peer_keys for protection in pair.protections)
    for sender in (0, 1) * 20:
        assert pair.arrives(sender, b"the receiver shows its key again")
    assert not any(protection.peer_keys for protection in pair.protections)


async def test_a_member_that_missed_the_rotation_is_removed_like_any_other_silent_one(
    autojump_clock: MockClock,
) -> None:
    async with running() as members:
        for number in range(1, 6):
            members.start(number, KeyRing([OLD]))
        await members.until_size(5)
        for number in range(1, 5):
            ring = members.clusters[number].keys
            assert ring is not None
            ring.replace([NEW])
        await members.until(lambda: all(len(members.clusters[number].view) == 4 for number in range(1, 5)))
        assert members.refuses(1, "removed_key") > 0
        assert members.refuses(5, "unknown_key") > 0


async def test_replayed_and_reflected_packets_change_nothing_and_are_counted(
    autojump_clock: MockClock,
) -> None:
    async with running() as members:
        for number in range(1, 4):
            members.start(number, KeyRing([OLD]))
        await members.until_size(3)
        recorded = await members.tap(1)
        before = members.views
        assert len(recorded) > 5
        for datagram in recorded * 3:
            members.deliver(1, datagram)
            await trio.sleep(0.001)
        assert members.refuses(1, "replayed") == 3 * len(recorded)
        for datagram in await members.tap(2):
            for sender in (1, 2, 3):
                members.deliver(sender, datagram)
        await trio.sleep(1)
        assert sum(members.refuses(number, "reflected") for number in (1, 3)) > 0
        assert members.views == before


async def test_a_forged_packet_from_outside_changes_nothing_and_is_counted(
    autojump_clock: MockClock,
) -> None:
    """B14: one forged packet evicts nobody. The forger knows everything that is secret to nobody."""
    async with running() as members:
        for number in range(1, 5):
            members.start(number, KeyRing([OLD]))
        await members.until_size(4)
        view = members.clusters[1].view
        before = members.views
        liar, victim = view.members[0], view.index_of(str(address(4)))
        assert victim is not None
        accusation = Gossip(
            liar.incarnation[:8],
            view.epoch,
            view.short_id,
            Digest(),
            (Alert(AlertKind.REMOVE, victim, (1 << 10) - 1),),
        )
        forgers = {
            "not_encrypted": DatagramCodec(liar.address, view.cluster_id),
            "unknown_key": DatagramCodec(liar.address, view.cluster_id, SealedProtection(KeyRing([STRANGE]))),
            "forged": DatagramCodec(
                liar.address, view.cluster_id, SealedProtection(KeyRing([Key(STRANGE.secret, OLD.id_bytes)]))
            ),
        }
        for forger in forgers.values():
            for number in range(1, 5):
                members.deliver(number, forger.seal(encode(accusation)))
        await trio.sleep(5)
        assert members.views == before
        for reason in forgers:
            assert all(members.refuses(number, reason) == 1 for number in range(1, 5)), reason


@pytest.mark.socket
async def test_with_keys_a_process_may_listen_for_everybody() -> None:
    with pytest.raises(membership.JoinError, match="not joined within"):
        async with membership.join(
            "0.0.0.0:0",
            ["127.0.0.1:9"],
            advertise="127.0.0.1:0",
            keys=KeyRing([OLD]),
            join_timeout=0.01,
        ):
            pass


async def test_a_bad_key_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(membership.KeyRingError, match="cannot be read"):
        async with membership.join("127.0.0.1:0", keys=str(tmp_path / "nowhere")):
            pass


async def test_each_reason_is_said_once(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as members:
        members.start(1, KeyRing([OLD]))
        await members.until_size(1)
        for number in range(20):
            members.deliver(1, DatagramCodec(address(number), None).seal(b"x"))
            members.deliver(1, b"nonsense %d" % number)
        await trio.sleep(1)
        assert members.refuses(1, "not_encrypted") == members.refuses(1, "not_rota") == 20
        lines = [record.message for record in caplog.records if "dropped datagrams" in record.message]
        assert len(lines) == 2
        assert "10.0.0.0:7946 (not_encrypted)" in lines[0]
        assert "give it the key file" in lines[0]


async def test_b14_a_member_cannot_evict_anybody_with_one_packet(autojump_clock: MockClock) -> None:
    """A forged report from a member, under the right key, about rings it does not own: refused and counted."""
    async with running() as members:
        for number in range(1, 7):
            members.start(number, KeyRing([OLD]))
        await members.until_size(6)
        view, before = members.clusters[1].view, members.views
        liar, victim = view.member(str(address(2))), view.index_of(str(address(5)))
        assert liar is not None
        assert victim is not None
        traitor = DatagramCodec(liar.address, view.cluster_id, SealedProtection(KeyRing([OLD])))
        for kind in (AlertKind.REMOVE, AlertKind.LEAVE, AlertKind.EVICT):
            lie = Gossip(
                liar.incarnation[:8],
                view.epoch,
                view.short_id,
                Digest(),
                (Alert(kind, victim, (1 << 10) - 1),),
            )
            for number in (1, 3, 4, 5, 6):
                members.deliver(number, traitor.seal(encode(lie)))
        await trio.sleep(10)
        assert members.views == before
        for number in (1, 3, 4, 6):
            assert members.clusters[number].statistics()["messages_dropped_rings_of_others"] == 3


async def test_with_keys_a_crash_is_one_view_change(autojump_clock: MockClock) -> None:
    """The signed reports of everybody else are enough."""
    async with running() as members:
        for number in range(1, 7):
            members.start(number, KeyRing([OLD]))
        await members.until_size(6)
        epoch = members.clusters[1].view.epoch
        endpoint = members.network.endpoint(address(6))
        assert endpoint is not None
        endpoint.close()
        del members.clusters[6]
        await members.until_size(5)
        assert {cluster.view.epoch for cluster in members.clusters.values()} == {epoch + 1}
        for cluster in members.clusters.values():
            assert not any("rings_of" in name or "proof" in name for name in cluster.statistics())
