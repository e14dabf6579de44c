"""The chain of epoch documents: decided once per epoch, by a majority that remembers."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from datastore_adapter import (
    BootstrapRefusedError,
    EpochDocument,
    LayoutUnavailableError,
    LayoutVersionError,
    LogSettings,
    SimulatedCluster,
    StorageError,
    SupersededError,
)
from datastore_adapter.log.layout.chain import Latest, LayoutChain, Proposal
from datastore_adapter.log.layout.document import decode_document, encode_document, genesis_document
from datastore_adapter.log.layout.server import LAYOUT_FILE, LayoutRecord, LayoutServer
from datastore_adapter.log.messages import (
    Accept,
    DocumentReply,
    FetchDocument,
    Install,
    Installed,
    Prepare,
    Promised,
    Refused,
    Rejected,
    Request,
    TakeTokens,
    Voted,
    WrongEpoch,
)
from datastore_adapter.log.storage.durable_record import save_record
from tests.budget import budgeted
from tests.datastore_adapter.memory_storage import MemoryStorage

SETTINGS = LogSettings.local()
DISK = b"disk of a"
GENESIS = genesis_document("id", "a", "a:1", DISK)


def successor(document: EpochDocument, mark: str = "") -> EpochDocument:
    return replace(document, epoch=document.epoch + 1, intent={"mark": mark})


class TestLayoutServer:
    """One layout server as a state machine."""

    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()

    @pytest.fixture
    def server(self, storage: MemoryStorage) -> LayoutServer:
        server = LayoutServer(storage, "a", DISK)
        server.found("id", "a", "a:1")
        return server

    def test_it_is_idle_until_it_knows_a_document(self, storage: MemoryStorage) -> None:
        server = LayoutServer(storage, "a", DISK)
        assert server.handle(FetchDocument()) == DocumentReply(None, False, -1, DISK)
        assert server.handle(Prepare(0, 2, 1)) == WrongEpoch(-1)
        assert server.handle(Prepare(-1, 2, 1)) == WrongEpoch(-1)
        assert server.handle(Install(encode_document(GENESIS))) == Installed(0, DISK)

    def test_a_document_is_told_to_who_does_not_know_it(self, server: LayoutServer) -> None:
        later = encode_document(successor(GENESIS))
        server.handle(Install(later))
        assert server.handle(FetchDocument()) == DocumentReply(later, False, 1, DISK)
        assert server.handle(FetchDocument(0)) == DocumentReply(later, False, 1, DISK)
        assert server.handle(FetchDocument(1)) == DocumentReply(None, False, 1, DISK)
        assert server.handle(FetchDocument(2)) == DocumentReply(None, False, 1, DISK), "the asker is ahead"
        server.handle(Prepare(1, 2, 7))
        assert server.handle(FetchDocument(1)) == DocumentReply(None, True, 1, DISK, unvoted=True)

    def test_founding_twice_is_once_and_another_genesis_is_refused(
        self, storage: MemoryStorage, server: LayoutServer
    ) -> None:
        assert server.found("id", "a", "a:1").epoch == 0
        later = successor(GENESIS)
        server.handle(Install(encode_document(later)))
        assert LayoutServer(storage, "a", DISK).found("id", "a", "a:2") == later
        with pytest.raises(BootstrapRefusedError, match="belongs to cluster id, not other"):
            server.found("other", "a", "a:1")

    def test_a_document_of_another_cluster_is_refused(self, server: LayoutServer) -> None:
        foreign = encode_document(successor(genesis_document("other", "a", "a:1", DISK)))
        for request in (Install(foreign), Accept(0, 2, 1, foreign)):
            reply = server.handle(request)
            assert isinstance(reply, Refused)
            assert reply.code == "malformed"

    def test_a_document_of_a_later_version_is_refused_with_what_to_do(
        self, storage: MemoryStorage, server: LayoutServer
    ) -> None:
        later = replace(successor(GENESIS), version=2)
        strange = msgspec.msgpack.encode({"version": 2, "epoch": "second", "more": 3})
        for document in (encode_document(later), strange):
            reply = server.handle(Install(document))
            assert isinstance(reply, Refused)
            assert "of version 2, and this agent knows 1; upgrade this agent" in reply.message
        fields = msgspec.msgpack.decode(encode_document(successor(GENESIS)))
        assert decode_document(msgspec.msgpack.encode({**fields, "more": 3})) == successor(GENESIS)
        del fields["version"]
        assert decode_document(msgspec.msgpack.encode(fields)) == successor(GENESIS), (
            "as version 0.1 writes it"
        )
        save_record(storage, LAYOUT_FILE, LayoutRecord(encode_document(later)))
        with pytest.raises(LayoutVersionError):
            LayoutServer(storage, "a", DISK)

    def test_only_the_current_epoch_is_served(self, server: LayoutServer) -> None:
        assert server.handle(Prepare(1, 2, 1)) == WrongEpoch(0)
        server.handle(Install(encode_document(successor(GENESIS))))
        assert server.handle(Prepare(0, 2, 1)) == WrongEpoch(1)
        assert server.handle(Accept(0, 2, 1, b"")) == WrongEpoch(1)

    def test_a_promise_and_a_vote_survive_power_loss(
        self, storage: MemoryStorage, server: LayoutServer
    ) -> None:
        value = encode_document(successor(GENESIS))
        assert server.handle(Prepare(0, 2, 7)) == Promised(0, 0, None)
        storage.crash(random.Random(0))
        server = LayoutServer(storage, "a", DISK)
        assert server.is_sealed
        assert server.handle(Prepare(0, 2, 6)) == Rejected(2, 7)
        assert server.handle(Accept(0, 2, 7, value)) == Voted()
        storage.crash(random.Random(1))
        server = LayoutServer(storage, "a", DISK)
        assert server.handle(Prepare(0, 3, 1)) == Promised(2, 7, value)

    def test_a_decision_ends_the_seal_and_an_older_one_changes_nothing(self, server: LayoutServer) -> None:
        first, second = successor(GENESIS), successor(successor(GENESIS))
        server.handle(Prepare(0, 2, 7))
        assert server.handle(Install(encode_document(second))) == Installed(2, DISK)
        assert not server.is_sealed
        assert server.handle(Install(encode_document(first))) == Installed(2, DISK)
        assert server.document == second

    def test_a_second_document_of_the_same_epoch_is_refused(self, server: LayoutServer) -> None:
        server.handle(Install(encode_document(successor(GENESIS, "one"))))
        reply = server.handle(Install(encode_document(successor(GENESIS, "other"))))
        assert isinstance(reply, Refused)
        assert reply.code == "contradiction"
        assert server.counters["contradictions"] == 1
        assert server.told == server.document == successor(GENESIS, "one")

    def test_a_broken_disk_promises_nothing(self, storage: MemoryStorage, server: LayoutServer) -> None:
        storage.broken = True
        reply = server.handle(Prepare(0, 2, 7))
        assert isinstance(reply, Refused)
        storage.broken = False
        assert not server.is_sealed
        assert server.handle(Prepare(0, 2, 5)) == Promised(0, 0, None)

    def test_what_could_not_be_saved_is_saved_before_it_is_promised(
        self, storage: MemoryStorage, server: LayoutServer
    ) -> None:
        """The save failed, and so did reading what stands there: it may be in memory, or in the page cache, only."""
        storage.broken = True
        storage.flip_bit(LAYOUT_FILE, 40, 2)
        assert isinstance(server.handle(Prepare(0, 2, 7)), Refused)
        assert isinstance(server.handle(Prepare(0, 2, 7)), Refused), (
            "asked again, it has still nothing on its disk"
        )
        storage.broken = False
        assert server.handle(Prepare(0, 2, 7)) == Promised(0, 0, None)
        storage.crash(random.Random(0))
        again = LayoutServer(storage, "a", DISK)
        assert again.handle(Prepare(0, 2, 5)) == Rejected(2, 7)

    def test_what_was_read_is_saved_before_it_is_promised(
        self, storage: MemoryStorage, server: LayoutServer
    ) -> None:
        """A process that died after a failed save leaves in the page cache what a power cut may take away."""
        server.handle(Prepare(0, 2, 7))
        again = LayoutServer(storage, "a", DISK)
        storage.broken = True
        assert isinstance(again.handle(Prepare(0, 2, 7)), Refused)
        storage.broken = False
        assert again.handle(Prepare(0, 2, 7)) == Promised(0, 0, None)

    def test_a_damaged_record_is_not_taken_for_a_fresh_start(
        self, storage: MemoryStorage, server: LayoutServer
    ) -> None:
        storage.flip_bit(LAYOUT_FILE, 40, 2)
        with pytest.raises(StorageError, match="layout/state is damaged"):
            LayoutServer(storage, "a", DISK)

    def test_what_it_does_not_serve_is_refused(self, server: LayoutServer) -> None:
        for request in (TakeTokens(1), Accept(0, 2, 1, b"junk"), Prepare(0, 1, 1)):
            reply = server.handle(request)
            assert isinstance(reply, Refused)


class Chains:
    """Five layout servers that know one document, and proposers on a lossy network."""

    def __init__(self, seed: int, names: tuple[str, ...] = ("a", "b", "c", "d", "e")) -> None:
        self.cluster = SimulatedCluster(names, seed=seed, settings=SETTINGS)
        layout = replace(GENESIS.layout, layout_servers=names)
        hosts = {name: host.address for name, host in self.cluster.hosts.items()}
        disks = {name: self.cluster.node(name).identity.disk for name in names}
        self.first = EpochDocument(1, "id", layout, hosts, disks)
        for name in names:
            self.cluster.node(name).handle(Install(encode_document(self.first)))
        self.decided: dict[int, EpochDocument] = {}

    def chain(self, name: str) -> LayoutChain:
        chain = LayoutChain(self.cluster.runtime(name), SETTINGS)
        chain.learn(self.first)
        return chain

    async def propose(self, name: str, rounds: int) -> int:
        """Try to add `rounds` documents; how many were this proposer's own."""
        runtime = self.cluster.runtime(name)
        chain, won = self.chain(name), 0
        for number in range(rounds):
            try:
                current = (await chain.fetch()).document
                value = successor(current, f"{name} {number}")
                proposal = Proposal(chain, runtime, SETTINGS, current)
                await proposal.prepare()
                decided = await proposal.decide(value)
                known = self.decided.setdefault(decided.epoch, decided)
                assert known == decided, "one epoch was decided twice"
                won += decided == value
                await chain.publish(decided)
            except (SupersededError, LayoutUnavailableError):
                continue
        return won


@pytest.mark.parametrize("seed", range(12))
def test_dueling_proposers_decide_each_epoch_once(seed: int) -> None:
    """With lost messages, and servers that lose power over any request and come back."""
    chains = Chains(seed)
    cluster, rng = chains.cluster, random.Random(seed)
    cluster.loss = 0.1

    def strike(source: str, destination: str, request: Request) -> None:
        if rng.random() < 0.02 and len(cluster.addresses) > 3:
            cluster.crash(destination)
            cluster.loop.schedule(rng.uniform(0.0, 0.5), lambda: cluster.restart(destination))

    cluster.on_request = strike
    tasks = [cluster.loop.start(chains.propose(f"proposer{index}", 8)) for index in range(4)]
    cluster.loop.run_until(lambda: all(task.ended for task in tasks), 1000)
    for task in tasks:
        assert task.error is None, task.error
    assert len(chains.decided) >= 5
    assert sorted(chains.decided) == list(range(2, 2 + len(chains.decided)))


@pytest.mark.parametrize("seed", budgeted(range(200), 50))
def test_dueling_proposers_many_seeds(seed: int) -> None:
    test_dueling_proposers_decide_each_epoch_once(1000 + seed)


def fetch(chains: Chains, name: str = "observer") -> Latest:
    return chains.cluster.loop.run(chains.chain(name).fetch())


def test_the_end_is_what_a_majority_holds() -> None:
    chains = Chains(1)
    assert fetch(chains) == Latest(chains.first, False)
    for name in ("c", "d", "e"):
        chains.cluster.crash(name)
    with pytest.raises(LayoutUnavailableError, match="no majority of the layout servers a, b, c, d, e"):
        fetch(chains)


def test_what_a_proposer_has_decided_it_knows_although_nobody_was_told() -> None:
    chains = Chains(1)
    chain, runtime = chains.chain("proposer"), chains.cluster.runtime("proposer")

    async def decide() -> EpochDocument:
        proposal = Proposal(chain, runtime, SETTINGS, chains.first)
        await proposal.prepare()
        return await proposal.decide(successor(chains.first))

    assert chain.known == chains.first
    assert chains.cluster.loop.run(decide()) == chain.known == successor(chains.first)


def test_a_document_that_only_one_server_heard_of_is_spread_by_whoever_sees_it() -> None:
    chains = Chains(1)
    second = successor(chains.first)
    chains.cluster.node("c").handle(Install(encode_document(second)))
    chains.cluster.crash("a")
    assert fetch(chains).document in (chains.first, second)
    chains.cluster.crash("b")  # now every majority contains c
    assert fetch(chains) == Latest(second, False)
    assert chains.cluster.node("e").document == second


def test_a_value_that_may_be_decided_is_taken_over() -> None:
    """Its proposer died between the votes and the decision; the next one completes it."""
    chains = Chains(1)
    value = successor(chains.first, "of the dead")
    for name in ("a", "b", "c"):
        chains.cluster.node(name).handle(Prepare(1, 2, 9))
        chains.cluster.node(name).handle(Accept(1, 2, 9, encode_document(value)))
    assert fetch(chains).sealed
    assert chains.cluster.loop.run(chains.propose("successor", 1)) == 0
    assert chains.decided == {2: value}
    assert fetch(chains) == Latest(value, False)


def test_new_layout_servers_take_over_and_the_old_ones_may_vanish() -> None:
    chains = Chains(1)
    new = replace(successor(chains.first), layout=replace(GENESIS.layout, layout_servers=("d", "e")))
    observer = chains.chain("observer")

    async def change() -> None:
        runtime = chains.cluster.runtime("proposer")
        chain = chains.chain("proposer")
        proposal = Proposal(chain, runtime, SETTINGS, chains.first)
        await proposal.prepare()
        await chain.publish(await proposal.decide(new))

    chains.cluster.loop.run(change())
    for name in ("b", "c"):
        chains.cluster.crash(name)
    assert chains.cluster.loop.run(observer.fetch()) == Latest(new, False)
    chains.cluster.crash("d")
    with pytest.raises(LayoutUnavailableError):
        chains.cluster.loop.run(observer.fetch())


def test_nobody_knows_anything() -> None:
    cluster = SimulatedCluster(["a"], settings=SETTINGS)
    chain = LayoutChain(cluster.runtime("observer"), SETTINGS)
    chain.set_view(cluster.addresses)
    with pytest.raises(LayoutUnavailableError, match="knows a layout"):
        cluster.loop.run(chain.fetch())


@pytest.mark.parametrize("seconds", [0.1, 0.5, 1.5])
def test_disks_slower_than_the_time_for_a_call_only_make_it_last_longer(seconds: float) -> None:
    """An answer comes after twice that: the proposer waits longer each time, until the attempt's time is up."""
    chains = Chains(1)
    value = successor(chains.first)

    async def change() -> None:
        chain = chains.chain("proposer")
        proposal = Proposal(chain, chains.cluster.runtime("proposer"), SETTINGS, chains.first)
        await proposal.prepare()
        assert await proposal.decide(value) == value
        await chain.publish(value)

    chains.cluster.delay = (seconds, 1.1 * seconds)
    chains.cluster.loop.run(change())


class Memory:
    """The twin of an acceptor: what its disk has promised and voted for, which nothing makes it forget."""

    def __init__(self) -> None:
        self.promised = (0, 0)
        self.vote: tuple[tuple[int, int], bytes | None] = ((0, 0), None)


@pytest.mark.parametrize("seed", range(60))
def test_whoever_answers_for_a_disk_has_forgotten_nothing_that_the_disk_was_asked(seed: int) -> None:
    """Three acceptors whose disks are emptied, and put back from copies, at any time, beside twins that never forget.

    An answer counts if its disk is the one that the document names; each such answer must be the twin's.
    """
    rng = random.Random(seed)
    cluster = SimulatedCluster(("a", "b", "c"), seed=seed, settings=SETTINGS)
    hosts = {name: host.address for name, host in cluster.hosts.items()}
    disks = {name: cluster.node(name).identity.disk for name in hosts}
    layout = replace(GENESIS.layout, layout_servers=tuple(hosts))
    current = EpochDocument(1, "id", layout, hosts, disks)
    for name in hosts:
        cluster.node(name).handle(Install(encode_document(current)))
    twins = {disk: Memory() for disk in disks.values()}
    copies = {name: [cluster.hosts[name].copy_disk()] for name in hosts}
    for _ in range(60):
        name = rng.choice(tuple(hosts))
        host, twin = cluster.hosts[name], twins[disks[name]]
        match rng.choice(
            ("prepare", "prepare", "accept", "accept", "restart", "erase", "copy", "restore", "told")
        ):
            case "prepare":
                ballot = (rng.randint(2, 9), rng.randint(1, 3))
                reply = cluster.node(name).handle(Prepare(1, *ballot)).reply
                if isinstance(reply, Promised):
                    assert cluster.node(name).identity.disk == disks[name]
                    assert ballot >= twin.promised
                    assert ((reply.accepted_round, reply.accepted_member), reply.accepted) == twin.vote
                    twin.promised = ballot
            case "accept":
                ballot = (rng.randint(2, 9), rng.randint(1, 3))
                value = encode_document(successor(current, str(ballot)))
                if isinstance(cluster.node(name).handle(Accept(1, *ballot, value)).reply, Voted):
                    assert ballot >= twin.promised
                    twin.promised, twin.vote = ballot, (ballot, value)
            case "restart":
                cluster.crash(name)
                cluster.restart(name)
            case "erase":
                cluster.crash(name)
                host.erase()
                cluster.restart(name)
            case "copy":
                copies[name].append(host.copy_disk())
            case "restore":
                cluster.crash(name)
                host.restore_disk(rng.choice(copies[name]))
                cluster.restart(name)
            case "told":
                cluster.node(name).handle(Install(encode_document(current)))
