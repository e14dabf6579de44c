"""Disks that are emptied, put back from old copies, swapped or robbed of a file: nothing acknowledged goes silently.

Whatever is done to the disks of hosts that are down: either every acknowledged record is there, or the log says that
it waits. There are never two documents of one epoch, and no read, tail or append answers as if a record that was
acknowledged had never been. Where at most one host's disk is hurt between two repairs, the log goes on by itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import pytest

from datastore_adapter import EpochDocument, LogAdapter, LogSettings, SimulatedCluster
from datastore_adapter.interface import Fence, Unreachable
from datastore_adapter.log.errors import LogClientError, UnwrittenError
from datastore_adapter.log.layout.document import encode_document
from datastore_adapter.log.messages import Install, Read, Refused, SealTokens, TokensSealed
from membership.files.simulated import SimulatedFiles
from tests.budget import budgeted
from tests.datastore_adapter.harness import Harness

_PATIENCE = 5.0
"""Virtual seconds that a call may take in these runs."""


class Operator:
    """Whoever crashes hosts, hurts their disks, and starts them again in any order, some where others were."""

    def __init__(self, seed: int, *, hosts: int, reckless: bool) -> None:
        self.rng = random.Random(seed)
        self.addresses = random.Random(f"{seed} addresses")
        # Small journal files, so that there are several of each segment to lose.
        settings = LogSettings(segment_file_bytes=600, backoff_limit=0.1, reconfiguration_timeout=3.0)
        self.harness = Harness(hosts, segments=2, seed=seed, settings=settings)
        self.harness.steady = False
        self.reckless = reckless
        self.kept: dict[str, list[SimulatedFiles]] = {name: [] for name in self.harness.cluster.hosts}
        """Copies of each host's disk, and disks that were taken out."""
        self.hurt: list[str] = []
        """What was done to whose disk."""
        self.waited = 0
        self.controllers = 0

    async def story(self, rounds: int) -> None:
        harness = self.harness
        await harness.settle(harness.adapter())
        await self.write(12)
        for _ in range(rounds):
            await self.round()
            await self.look()
        if not self.reckless:
            await harness.settle(self.adapter())
            await harness.check_everything()

    async def round(self) -> None:
        harness, rng = self.harness, self.rng
        names = sorted(harness.cluster.hosts)
        down = [name for name in names if name not in harness.live]
        fallen = rng.sample(harness.live, rng.randint(min(1, len(harness.live)), len(harness.live)))
        self.copy_some(names)
        harness.crash(*fallen)
        down = sorted({*down, *fallen})
        hurt = (
            rng.sample(down, rng.randint(0, len(down)))
            if self.reckless
            else rng.sample(down, rng.randint(0, 1))
        )
        for name in hurt:
            self.hurt.append(f"{name} {self.hurt_disk(name)}")
        rng.shuffle(down)
        staying_away = rng.randint(0, len(down)) if self.reckless else 0
        for name in down[staying_away:]:
            vacant = harness.cluster.vacant
            if vacant and self.addresses.random() < 0.3:
                harness.cluster.move(name, self.addresses.choice(vacant))
            harness.restart(name)
            if rng.random() < 0.5:
                await self.work(rng.uniform(0.1, 2.0))
        await self.work(_PATIENCE)

    def copy_some(self, names: Sequence[str]) -> None:
        """Also of a host that runs: what its disk would be if the power went off now."""
        for name in names:
            if self.rng.random() < 0.4:
                self.kept[name].append(self.harness.cluster.hosts[name].copy_disk())

    def hurt_disk(self, name: str) -> str:
        host, rng = self.harness.cluster.hosts[name], self.rng
        kept = self.kept[name]
        match rng.choice(("erase", "restore", "swap", "lose", "lose")):
            case "restore" if kept:
                host.restore_disk(rng.choice(kept))
                return "restored"
            case "swap" if self.taken_out(name):
                kept.append(host.swap_disk(rng.choice(self.taken_out(name))))
                return "swapped"
            case "lose":
                return f"lost {host.lose_file()}"
            case _:
                taken = host.swap_disk(host.new_disk())
                taken.was_taken_out = True  # type: ignore[attr-defined]
                kept.append(taken)
                return "erased"

    def taken_out(self, name: str) -> list[SimulatedFiles]:
        return [disk for disk in self.kept[name] if hasattr(disk, "was_taken_out")]

    def adapter(self) -> LogAdapter:
        self.controllers += 1
        return self.harness.adapter(f"controller{self.controllers}")

    async def work(self, seconds: float) -> None:
        """The control loop runs, and a writer writes, for so long."""
        harness = self.harness
        if not harness.live:
            return
        loop = harness.loop.start(self.control())
        await self.look()
        await self.write(4)
        await harness.runtime.sleep(seconds)
        loop.cancel()
        if loop.error is not None and not isinstance(loop.error, AssertionError):
            raise loop.error

    async def control(self) -> None:
        await self.harness.settle(self.adapter(), limit=1e9)

    async def write(self, count: int) -> None:
        harness = self.harness
        client = harness.client(f"writer{self.rng.getrandbits(32)}")
        for _ in range(count):
            payload = f"record {len(harness.attempted)}".encode()
            harness.attempted.add(payload)
            try:
                address = await client.append("red", payload, timeout=_PATIENCE)
            except LogClientError:
                self.waited += 1
                return
            assert address not in harness.acknowledged, f"{address} was given twice"
            harness.acknowledged[address] = ("red", payload)

    async def look(self) -> None:
        """Whoever reads is told what was acknowledged, or that it cannot be read."""
        harness = self.harness
        client = harness.client(f"reader{self.rng.getrandbits(32)}")
        try:
            tail = await client.tail(timeout=_PATIENCE)
        except LogClientError:
            self.waited += 1
            return
        assert tail > max(harness.acknowledged), f"the tail is {tail}; {self.hurt}"
        for address, expected in harness.acknowledged.items():
            try:
                record = await client.read(address, timeout=0.5)
            except UnwrittenError:
                record = None
            except LogClientError:
                continue  # it cannot be read, and says so
            assert record is not None, f"{address} is gone; {self.hurt}"
            assert (record.stream, record.payload) == expected, f"{address} is another; {self.hurt}"


def run(seed: int, *, hosts: int, reckless: bool, rounds: int = 6) -> Operator:
    operator = Operator(seed, hosts=hosts, reckless=reckless)
    operator.harness.loop.run(operator.story(rounds), timeout=1e6)
    return operator


@pytest.mark.parametrize("seed", budgeted(range(12), 4, in_test=4))
def test_one_disk_at_a_time_is_made_good(seed: int) -> None:
    run(seed, hosts=3 + seed % 3, reckless=False)


@pytest.mark.parametrize("seed", budgeted(range(12), 11, in_test=1))
def test_any_disks_in_any_order(seed: int) -> None:
    run(1000 + seed, hosts=3 + seed % 4, reckless=True)


def test_a_disk_that_was_taken_out_is_not_believed_when_it_is_put_back() -> None:
    """Another one has held its host's copies meanwhile: to a reader it does not say "unwritten"."""
    harness = Harness(3, segments=1)
    harness.steady = False

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        host = harness.cluster.hosts["n1"]
        harness.crash("n1")
        old = host.swap_disk(host.new_disk())
        harness.restart("n1")
        await harness.settle(adapter)
        await harness.write(10)
        harness.crash("n1")
        host.swap_disk(old)
        harness.restart("n1")
        epoch = harness.document.layout.data_epoch
        assert isinstance(harness.cluster.node("n1").document, EpochDocument), "it knows an earlier layout"
        for told in (False, True):
            for address in harness.acknowledged:
                reply = harness.cluster.node("n1").handle(Read(epoch, "s00", address)).reply
                assert isinstance(reply, Refused)
                assert reply.code == ("damage" if told else "behind")
            harness.cluster.node("n1").handle(Install(encode_document(harness.document)))
        await harness.settle(adapter)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


@pytest.mark.parametrize("order", list(permutations(("n0", "n1", "n2"))))
@pytest.mark.parametrize("lost", ["erased", "restored"])
def test_a_stale_host_and_one_without_its_disk_do_not_outvote_the_one_that_has_everything(
    lost: str, order: tuple[str, ...]
) -> None:
    """One of three dies, the two others go on; then the power is cut, and one of the two has lost its disk."""
    harness = Harness(3, segments=2)
    harness.steady = False

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        early = harness.cluster.hosts["n0"].copy_disk()
        harness.crash("n2")
        await harness.settle(adapter)
        await harness.write(10)
        harness.crash("n0", "n1")
        if lost == "erased":
            harness.cluster.hosts["n0"].erase()
        else:
            harness.cluster.hosts["n0"].restore_disk(early)
        for name in order:
            harness.restart(name)
            fresh = harness.adapter(f"controller beside {name}")
            if "n1" not in harness.live:
                seen = await fresh.observe()
                assert isinstance(seen, Unreachable), "only the one that is missing knows what was decided"
                assert "n2" not in harness.live or "n0" not in harness.live or "the disk" in seen.reason
        await harness.settle(harness.adapter("last controller"))
        await harness.write(5)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_a_sequencer_that_lost_its_disk_does_not_tell_how_far_it_was() -> None:
    cluster = SimulatedCluster(["n0"])
    cluster.node("n0").layout_server.found("id", "n0", "n0:1")
    before = cluster.node("n0").sequencer.handle(SealTokens(0))
    cluster.crash("n0")
    cluster.hosts["n0"].lose_file()
    cluster.hosts["n0"].erase()
    cluster.restart("n0")
    after = cluster.node("n0").sequencer.handle(SealTokens(0))
    assert isinstance(before, TokensSealed)
    assert isinstance(after, TokensSealed)
    assert before.disk != after.disk


def test_when_every_disk_is_a_copy_an_operator_says_that_it_is_all_there_is() -> None:
    """A cluster restored from a backup waits, tells what that may cost, and goes on from it at an operator's word."""
    harness = Harness(3, segments=2)
    harness.steady = False

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        harness.crash("n0", "n1", "n2")
        for name in ("n0", "n1", "n2"):
            host = harness.cluster.hosts[name]
            host.restore_disk(host.copy_disk())
        harness.restart("n0", "n1", "n2")
        fresh = harness.adapter("operator")
        assert isinstance(await fresh.observe(), Unreachable)
        fence = Fence(harness.view_epoch, -1, "", 0)
        seen = await fresh.recover(fence, only_look=True)
        assert "n0, n1, n2: away, or back without the disk" in seen.risks[0]
        assert any("segments s00" in risk for risk in seen.risks[1:])
        assert isinstance(await fresh.observe(), Unreachable), "looking changes nothing"
        await fresh.recover(fence)
        await harness.settle(harness.adapter("controller after it"))
        await harness.write(5)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())
