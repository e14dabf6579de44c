"""An address says where, never who: a host at the address of a dead one answers for nobody but itself."""

from __future__ import annotations

from itertools import count
from typing import get_args

import msgspec
import pytest

from datastore_adapter import LogClient, ReplicatedDict, SimulatedCluster, SimulatedRuntime
from datastore_adapter.interface import AdapterError, Fence, Observation
from datastore_adapter.log.client.current_epoch import confirms
from datastore_adapter.log.errors import ExtentAwayError, LogUnavailableError, MisdirectedError
from datastore_adapter.log.host import simulated
from datastore_adapter.log.host.node import LogNode
from datastore_adapter.log.layout.document import ExtentState, Segment, encode_document
from datastore_adapter.log.messages import (
    Accept,
    DocumentReply,
    Done,
    FetchDocument,
    FetchHistory,
    GetStatus,
    HostIdentity,
    Install,
    Misdirected,
    Prepare,
    Promised,
    Reply,
    Request,
    Seal,
    TakeTokens,
    Tokens,
    UnknownRequest,
)
from datastore_adapter.log.messages.codec import (
    ReplyFrame,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from datastore_adapter.log.reconfiguration.activation import status_of
from datastore_adapter.log.runtime.runtime import Peer, answer_of, whoever_at
from tests.datastore_adapter.harness import Harness
from tests.datastore_adapter.test_extents_away import (
    PAIR,
    addresses_away,
    pairs,
    written,
    written_and_without_pair,
)

ME = HostIdentity("n1", b"disk")
ASKED_WHICH_DISK = (FetchDocument, FetchHistory, GetStatus, Install, Seal)
"""Requests to a host with whatever disk it has: what comes of it is told with the disk, and counts for that only."""


# the rule


@pytest.mark.parametrize(
    ("meant", "answers"),
    [
        (None, True),
        (HostIdentity("n1"), True),
        (HostIdentity("n1", b"disk"), True),
        (HostIdentity("n1", b"another disk"), False),
        (HostIdentity("n2"), False),
        (HostIdentity("n2", b"disk"), False),
    ],
)
def test_a_host_answers_what_is_meant_for_it_and_its_disk(meant: HostIdentity | None, answers: bool) -> None:
    assert ME.is_meant_by(meant) is answers


def test_an_answer_counts_if_it_is_from_whom_was_asked() -> None:
    peer = Peer("n1:1", ME)
    assert answer_of(peer, ReplyFrame(0, Done(), ME)) == Done()
    assert answer_of(peer, ReplyFrame(0, Done())) == Done(), "version 0.1 does not say who answers"
    assert answer_of(whoever_at("n1:1"), ReplyFrame(0, Done(), ME)) == Done()
    assert answer_of(Peer("n1:1", HostIdentity("n1")), ReplyFrame(0, Done(), ME)) == Done()
    for by, text in (
        (HostIdentity("n2", b"disk"), "n2 is at n1:1 now, and not n1"),
        (HostIdentity("n1", b"new"), "n1 at n1:1 came back without the disk it had"),
    ):
        for reply in (Done(), Misdirected(by.host, by.disk)):
            refused = answer_of(peer, ReplyFrame(0, reply, by))
            assert isinstance(refused, MisdirectedError)
            assert str(refused) == text


class _OldRequest(msgspec.Struct, array_like=True):
    """As version 0.1 has it."""

    number: int
    request: Request


class _OldReply(msgspec.Struct, array_like=True):
    number: int
    reply: Reply


def test_version_0_1_reads_frames_that_say_who_is_meant_and_is_read() -> None:
    request, reply = Prepare(1, 2, 3), Promised(1, 2, None)
    assert msgspec.msgpack.decode(encode_request(7, request, ME), type=_OldRequest) == _OldRequest(7, request)
    assert msgspec.msgpack.decode(encode_reply(7, reply, ME), type=_OldReply) == _OldReply(7, reply)
    old = decode_request(msgspec.msgpack.encode(_OldRequest(7, request)))
    assert (old.number, old.request, old.to) == (7, request, None)
    answer = decode_reply(msgspec.msgpack.encode(_OldReply(7, reply)))
    assert (answer.number, answer.reply, answer.by) == (7, reply, None)
    later = decode_request(msgspec.msgpack.encode([7, [99, "whatever"], ["n1", b"disk"]]))
    assert (later.request, later.to) == (UnknownRequest(99), ME), "who is meant is known of any request"


@pytest.mark.parametrize("disk", [b"", b"another disk"])
def test_who_is_not_meant_refuses_before_anything_else_is_looked_at(disk: bytes) -> None:
    """Not even whether the request is known, or the epoch right; and it does nothing of it."""
    cluster = SimulatedCluster(["n0", "n1"])
    cluster.on_request = lambda source, destination, request: pytest.fail("it was looked at")
    runtime = cluster.runtime("observer")
    meant = HostIdentity("n0", disk) if disk else HostIdentity("n5")
    answers: list[object] = []
    for request in (Seal(5), Install(b"no document"), GetStatus(), Prepare(0, 2, 1), UnknownRequest(99)):
        runtime.exchange(Peer("n0:1", meant), request, answers.append)  # type: ignore[arg-type]  # any request
    assert [type(answer) for answer in answers] == [MisdirectedError] * 5
    assert cluster.node("n0").log_unit.sealed == -1


# every procedure names whom it asks


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[type[Request], set[str]]:
    """What requests of each kind were for: a disk, a host, or whoever is there."""
    found: dict[type[Request], set[str]] = {}
    call = SimulatedRuntime.call

    async def noted(runtime: SimulatedRuntime, peer: Peer | str, request: Request, timeout: float) -> Reply:
        who = peer.identity if isinstance(peer, Peer) else None
        kind = "whoever" if who is None else "disk" if who.disk else "host"
        found.setdefault(type(request), set()).add(kind)
        return await call(runtime, peer, request, timeout)

    monkeypatch.setattr(SimulatedRuntime, "call", noted)
    return found


def test_every_request_says_who_it_is_for(asked: dict[type[Request], set[str]]) -> None:
    """Growing, writing, reading, losing hosts, copying, comparing, trimming, observing, history, backup, recovery."""
    harness = Harness(6, segments=6, copies=3)

    async def story() -> None:
        adapter = await written(harness)
        client = harness.client()
        shared = ReplicatedDict(client, "m")
        await shared.set("x", b"1")
        await shared.snapshot()
        await client.read_part(0, 20)
        harness.crash("n4")
        await harness.settle(adapter)
        await harness.write(20)
        harness.restart("n4")
        harness.drained.add("n3")
        await harness.settle(adapter)
        harness.crash("n5")
        harness.cluster.hosts["n5"].lose_file()
        harness.restart("n5")
        await harness.settle(adapter)
        harness.crash(*PAIR)
        await harness.settle(adapter)
        harness.restart(*PAIR)
        await harness.settle(adapter)
        await adapter.history()
        await harness.client("late").names(0, 20)
        await harness.client("late").sizes()
        await client.trim(10)
        harness.crash("n0", "n1")
        await harness.adapter("survivor").recover(Fence(harness.view_epoch, harness.document.epoch, "", 0))
        await harness.settle(harness.adapter("last"))

    async def without_a_pair(harness: Harness) -> None:
        await written_and_without_pair(harness)
        document, client = harness.document, harness.client()
        taken = TakeTokens(document.layout.data_epoch, (("red", 1),))
        tokens = await harness.runtime.call(document.peer(document.layout.sequencers[0]), taken, 1.0)
        assert isinstance(tokens, Tokens)
        assert await client.read(tokens.first) is None, "a hole, which it fills"

    harness.loop.run(story(), timeout=900)
    of_pairs = pairs()
    of_pairs.loop.run(without_a_pair(of_pairs))
    for kind, whom in asked.items():
        allowed = {"disk"}
        if kind in ASKED_WHICH_DISK:
            allowed.add("host")
        if kind is FetchDocument:
            allowed.add("whoever")  # a client's seeds
        assert whom <= allowed, kind
    never = {kind.__name__ for kind in get_args(Request)} - {kind.__name__ for kind in asked}
    assert never == {"Confirm", "WriteChunk", "Trust"}, "of its own unit, and only where nothing else is left"


def test_hosts_of_version_0_1_are_asked_and_answered_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a rolling upgrade: they look at nobody's name and give none, neither as servers nor as clients."""
    old, asked = {"n0", "n2"}, count()
    misdirected = LogNode.misdirected

    def request_of_either(number: int, request: Request, to: HostIdentity | None) -> bytes:
        return encode_request(number, request, to if next(asked) % 2 else None)

    def reply_of_either(number: int, reply: Reply, by: HostIdentity) -> bytes:
        return encode_reply(number, reply, None if by.host in old else by)

    def looks_if_new(node: LogNode, meant: HostIdentity | None) -> Misdirected | None:
        return None if node.name in old else misdirected(node, meant)

    monkeypatch.setattr(simulated, "encode_request", request_of_either)
    monkeypatch.setattr(simulated, "encode_reply", reply_of_either)
    monkeypatch.setattr(LogNode, "misdirected", looks_if_new)
    harness = Harness(4, segments=4, copies=3)

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(20)
        for name in ("n0", "n1"):
            harness.crash(name)
            await harness.settle(adapter)
            await harness.write(20)
            harness.restart(name)
            await harness.settle(adapter)
        await harness.check_everything()

    harness.loop.run(story(), timeout=900)


# the stories


def test_a_replacement_at_a_dead_hosts_address_does_not_answer_for_its_records() -> None:
    """It even becomes a replica of the same segments; what only the dead one has stays away, and is told at once."""
    harness = pairs()

    async def story() -> None:
        adapter = await written(harness)
        shared = ReplicatedDict(harness.client("writer"), "m")
        for number in range(12):
            await shared.set(f"k{number}", b"v")
        harness.crash("n4")
        dying = harness.loop.start(harness.settle(adapter))
        while not any(e.chain == ("n5",) for s in harness.document.layout.segments for e in s.closed_extents):
            await harness.runtime.sleep(0.001)
        dying.cancel()
        harness.crash("n5")
        adapter = harness.adapter("next")
        await harness.settle(adapter)
        lost = addresses_away(harness)
        harness.cluster.add("n6", "n5:1")
        harness.view_epoch += 1
        harness.drained.update({"n0", "n1", "n2"})
        await harness.settle(adapter)
        assert harness.document.hosts["n5"] == harness.document.hosts["n6"] == "n5:1"
        client = harness.client("reader")
        began = harness.runtime.now()
        for address in lost:
            with pytest.raises(ExtentAwayError, match=r"on n5 only.* start one of them") as told:
                await client.read(address)
            assert told.value.hosts == ("n5",)
        assert harness.runtime.now() - began < 1.0
        with pytest.raises(LogUnavailableError):
            await ReplicatedDict(harness.client("copy"), "m").items()
        harness.restart("n4", "n5")
        assert harness.cluster.hosts["n5"].address != "n5:1"
        await harness.settle(adapter)
        assert len(await ReplicatedDict(harness.client("last"), "m").items()) == 12
        for address in lost:
            assert await client.read(address) is not None

    harness.loop.run(story(), timeout=900)


def test_a_replica_of_an_earlier_part_does_not_answer_for_a_later_one() -> None:
    """It is started where the host was that alone has the later part, which is read as holes then, or trimmed."""
    harness = Harness(7, segments=1, copies=2)

    def segment() -> Segment:
        return harness.document.layout.segments[0]

    async def until(name: str, chain_without: str, state: ExtentState = ExtentState.HELD) -> None:
        """A controller runs until this is so, and dies."""
        task = harness.loop.start(harness.settle(harness.adapter(name)))
        while not (
            chain_without not in segment().open_extent.chain
            and any(extent.state is state for extent in segment().extents)
            and harness.cluster.node(harness.document.layout.sequencer or "").sequencer.epoch
            == harness.document.layout.data_epoch
        ):
            await harness.runtime.sleep(0.0005)
        task.cancel()

    async def story() -> None:
        await harness.settle(harness.adapter("first"))
        early, both = segment().open_extent.chain
        await harness.write(5)
        harness.drained.add(early)
        await until("second", early)
        late = next(host for host in segment().open_extent.chain if host != both)
        await harness.write(5)
        harness.crash(both)
        await until("third", both)
        harness.crash(late)
        await until("fourth", late, ExtentState.AWAY)
        lost = addresses_away(harness)
        assert lost
        harness.crash(early)
        harness.cluster.move(early, harness.document.hosts[late])
        harness.restart(early)
        adapter = harness.adapter("fifth")
        observation = await adapter.observe()
        assert isinstance(observation, Observation)
        epoch = observation.layout_epoch
        await adapter.set_intent(epoch, {"any": "intent"}, Fence(harness.view_epoch, epoch, "", 0))
        assert harness.document.hosts[early] == harness.document.hosts[late]
        for address in lost:
            with pytest.raises(ExtentAwayError, match=late):
                await harness.client("reader").read(address)
        harness.restart(late, both)
        harness.drained.clear()
        await harness.settle(harness.adapter("last"))
        await harness.check_everything()

    harness.loop.run(story(), timeout=900)


async def _agreed(harness: Harness, controller: str, what: str, *, cut_off: str = "") -> int:
    """Have an operator's request agreed by a controller that loses touch with a host when it begins."""
    adapter = harness.adapter(controller)
    adapter.learn(harness.document)
    epoch = harness.document.epoch

    def cut(source: str, destination: str, request: Request) -> None:
        if cut_off and source == controller and isinstance(request, FetchDocument) and destination != cut_off:
            harness.cluster.isolate(cut_off, [*harness.cluster.hosts, controller])

    harness.on_request = cut
    try:
        return await adapter.set_intent(epoch, {"what": what}, Fence(harness.view_epoch, epoch, "", 0))
    finally:
        harness.on_request = lambda source, destination, request: None
        harness.cluster.heal()


async def _one_at_the_address_of_another(harness: Harness) -> None:
    """n0 is down and stays named as a layout server; n1, another one, runs at its address."""
    await harness.settle(harness.adapter())
    harness.crash("n0")
    harness.layout_servers = 2
    await harness.settle(harness.adapter("second"))
    assert set(harness.document.layout.layout_servers) == {"n0", "n1", "n2"}
    harness.crash("n1")
    harness.cluster.move("n1", "n0:1")
    harness.restart("n1")


def test_one_layout_server_is_not_two_of_three() -> None:
    harness = Harness(3, segments=3, copies=2)

    async def story() -> None:
        await _one_at_the_address_of_another(harness)
        with pytest.raises(AdapterError, match="no majority"):
            await _agreed(harness, "left", "of one", cut_off="n2")
        harness.crash("n1")
        harness.restart("n0")
        epoch = await _agreed(harness, "right", "of two")
        harness.restart("n1")
        await harness.settle(harness.adapter("last"))
        assert harness.invariants.documents[epoch].intent == {"what": "of two"}
        assert harness.document.intent == {"what": "of two"}

    harness.loop.run(story(), timeout=900)


def test_a_deposed_sequencer_is_not_confirmed_by_a_layout_server_counted_twice() -> None:
    """The reader reaches everybody; n1, sequencer and layout server at two addresses, is cut off from all others."""
    harness = Harness(3, segments=3, copies=2)

    async def story() -> None:
        await _one_at_the_address_of_another(harness)
        await harness.settle(harness.adapter("third"))
        assert harness.document.layout.sequencer == "n1"
        await ReplicatedDict(harness.client("writer"), "m").set("x", b"old")
        with pytest.raises(AdapterError, match="no majority"):
            await _agreed(harness, "alone", "in vain", cut_off="n2")
        reader = ReplicatedDict(LogClient(harness.cluster.runtime("reader"), ["n0:1"]), "m")
        assert await reader.get("x") == b"old", "a promise that came to nothing stops no reader"
        harness.cut_off_with("n1", "nobody", ["fourth", "another writer", "observer"])
        harness.restart("n0")
        await harness.settle(harness.adapter("fourth"))
        await ReplicatedDict(harness.client("another writer"), "m").set("x", b"new")
        assert await reader.get("x") == b"new"

    harness.loop.run(story(), timeout=900)


def test_a_promise_is_no_evidence_of_a_later_epoch_and_a_vote_is() -> None:
    harness = Harness(3, segments=3)
    harness.loop.run(harness.settle(harness.adapter()))
    document, node = harness.document, harness.cluster.node("n0")

    def says() -> bool:
        reply = node.handle(FetchDocument(document.epoch)).reply
        assert isinstance(reply, DocumentReply)
        assert not confirms(document, "n1", reply), "that is another disk"
        return confirms(document, "n0", reply)

    assert says()
    node.handle(Prepare(document.epoch, 2, 7))
    assert says()
    later = msgspec.structs.replace(document, epoch=document.epoch + 1)
    node.handle(Accept(document.epoch, 2, 7, msgspec.msgpack.encode(later)))
    assert not says()


def test_a_host_that_came_back_somewhere_else_is_named_there() -> None:
    """By the control loop, without a pause for writers: clients find it by the document only."""
    harness = Harness(3, segments=3, copies=2)

    async def story() -> None:
        await harness.settle(harness.adapter())
        await harness.write(10)
        before = harness.document
        harness.crash("n2")
        harness.cluster.move("n2", "elsewhere:1")
        harness.restart("n2")
        await harness.settle(harness.adapter("next"))
        assert harness.document.hosts["n2"] == "elsewhere:1"
        assert harness.document.layout.data_epoch == before.layout.data_epoch
        await harness.write(10)
        await harness.check_everything()

    harness.loop.run(story(), timeout=900)


def test_an_agent_of_another_cluster_at_a_seeds_address_is_not_listened_to() -> None:
    harness = Harness(3, segments=3, copies=2)

    async def story() -> None:
        await harness.settle(harness.adapter())
        client = harness.client()
        await harness.write(5, client)
        harness.crash("n2")
        harness.cluster.add("stranger", "n2:1")
        stranger = harness.cluster.node("stranger")
        founded = stranger.layout_server.found("another cluster", "stranger", "n2:1")
        stranger.handle(Install(encode_document(msgspec.structs.replace(founded, epoch=1000))))
        harness.cut_off.add("stranger")
        await harness.settle(harness.adapter("next"))
        await harness.write(5, client)
        await client._layouts.fetch()  # there is no news: everybody's answer is waited for
        assert client.statistics()["strangers"] > 0
        await harness.write(5, client)

    harness.loop.run(story(), timeout=900)


def test_a_status_is_of_the_host_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing else tells, as from version 0.1."""
    cluster = SimulatedCluster(["n0", "n1"])
    monkeypatch.setattr(HostIdentity, "is_meant_by", lambda self, meant: True)
    asked = status_of(cluster.runtime("observer"), cluster.settings, {"n0": "n0:1", "n2": "n1:1"})
    assert list(cluster.loop.run(asked)) == ["n0"]
