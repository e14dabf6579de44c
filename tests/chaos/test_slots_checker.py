"""The checker of servers against clusters made by hand: a sound one, and one for each thing that may be wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chaos.slots.checker import (
    Answer,
    CopiesMissing,
    CopiesOnOneHost,
    CopiesUneven,
    NoPrimary,
    OpenSlots,
    SeveralPrimaries,
    SilentServer,
    Violation,
    find_violations,
)
from chaos.slots.outcome import SlotsOutcome
from datastore_adapter.slots.state.nodes_table import parse_nodes

RACKS = {"n0": "r1", "n1": "r2", "n2": "r3", "n3": "r1", "n4": "r2", "n5": "r3"}
PARTS = {"a": "0-5460", "b": "5461-10921", "c": "10922-16383"}


@dataclass(frozen=True)
class Server:
    """One server of a cluster, by what it says of itself."""

    letter: str
    host: str
    slots: str = ""
    primary: str = ""
    is_linked: bool = True

    @property
    def node_id(self) -> str:
        return self.letter * 40

    @property
    def address(self) -> str:
        return f"10.0.0.{ord(self.letter)}:7000"


SOUND = (
    Server("a", "n0", PARTS["a"]),
    Server("b", "n1", PARTS["b"]),
    Server("c", "n2", PARTS["c"]),
    Server("d", "n4", primary="a"),
    Server("e", "n5", primary="b"),
    Server("f", "n3", primary="c"),
)


def line(server: Server, seen: Server, more: str = "") -> str:
    flags = ("myself," if server is seen else "") + ("slave" if seen.primary else "master")
    primary = seen.primary * 40 if seen.primary else "-"
    return (
        f"{seen.node_id} {seen.address}@17000 {flags} {primary} 0 0 1 connected {seen.slots} {more}".strip()
    )


def answer(server: Server, cluster: tuple[Server, ...], more: str = "") -> Answer:
    """What it says of a cluster like this; `more`: at the end of its own line."""
    view = [
        server if each.letter == server.letter else each
        for each in (cluster if any(each.letter == server.letter for each in cluster) else (server, *cluster))
    ]
    lines = [line(server, each, more if each is server else "") for each in view]
    return Answer(
        server.address,
        server.host,
        parse_nodes("\n".join(lines).encode()),
        bool(server.primary) and server.is_linked,
    )


def answers(*cluster: Server) -> list[Answer]:
    return [answer(server, cluster) for server in cluster]


def changed(letter: str, **what: str | bool) -> tuple[Server, ...]:
    return tuple(
        replace(server, **what) if server.letter == letter else server  # type: ignore[arg-type]
        for server in SOUND
    )


def violations_of(
    found: list[Answer], racks: dict[str, str] = RACKS, copies: int = 2
) -> tuple[Violation, ...]:
    return find_violations(found, racks, copies)


def free(letter: str, host: str, slots: str = "") -> Answer:
    server = Server(letter, host, slots)
    return answer(server, (server,))


def test_a_sound_cluster_with_free_servers() -> None:
    assert violations_of([*answers(*SOUND), free("8", "n0"), free("9", "n1")]) == ()


def test_two_primaries_of_a_slot() -> None:
    """One that was away takes itself for the primary still; all the others know better."""
    found = answers(*SOUND)
    found[3] = answer(replace(SOUND[3], slots="0-99", primary=""), SOUND)
    both = tuple(sorted((SOUND[0].address, SOUND[3].address)))
    assert SeveralPrimaries(((0, 99),), both) in violations_of(found)


def test_one_that_is_no_member_and_takes_slots_for_its_own() -> None:
    found = [*answers(*SOUND), free("9", "n1", slots="7 20")]
    assert violations_of(found) == (
        SeveralPrimaries(((7, 7), (20, 20)), tuple(sorted((SOUND[0].address, "10.0.0.57:7000")))),
    )


def test_no_primary_in_the_eyes_of_most() -> None:
    assert violations_of(answers(*changed("a", slots="1-5460")))[0] == NoPrimary(((0, 0),), (), 6)
    half = changed("a", slots="1-5460")
    split = [answer(server, SOUND if number < 3 else half) for number, server in enumerate(SOUND)]
    assert violations_of(split)[0] == NoPrimary(((0, 0),), (SOUND[0].address,), 6)
    # All but itself take it for the primary.
    found = answers(*SOUND)
    found[0] = answer(half[0], half)
    assert violations_of(found)[0] == NoPrimary(((0, 0),), (SOUND[0].address,), 6)


def test_an_open_slot() -> None:
    found = answers(*SOUND)
    entry = f"[77->-{'b' * 40}]"
    found[0] = answer(SOUND[0], SOUND, more=entry)
    assert violations_of(found) == (OpenSlots(SOUND[0].address, ((77, 77),), (entry,)),)
    entry = f"[77-<-{'a' * 40}]"
    found = answers(*SOUND)
    found[1] = answer(SOUND[1], SOUND, more=entry)
    assert violations_of(found) == (OpenSlots(SOUND[1].address, ((77, 77),), (entry,)),)


def test_two_copies_in_one_rack_or_on_one_host() -> None:
    address = SOUND[0].address
    assert violations_of(answers(*changed("d", host="n3"))) == (
        CopiesUneven(address, {"n0": "r1", "n3": "r1"}),
    )
    found = violations_of(answers(*changed("d", host="n0")))
    assert CopiesOnOneHost(address, "n0", (address, SOUND[3].address)) in found
    # With one rack left it is as even as can be; two copies of a shard on its one host never are.
    one = {"n0": "r1", "n3": "r1"}
    pair = (Server("a", "n0", "0-16383"), Server("d", "n3", primary="a"))
    assert violations_of(answers(*pair), one) == ()
    assert violations_of(answers(*pair), RACKS) == (CopiesUneven(address, {"n0": "r1", "n3": "r1"}),)


def test_a_copy_that_is_missing_not_in_step_or_on_a_host_that_is_gone() -> None:
    address = SOUND[0].address
    lacking = (CopiesMissing(address, ("n0",), 2),)
    assert violations_of(answers(*(server for server in SOUND if server.letter != "d"))) == lacking
    assert violations_of(answers(*changed("d", is_linked=False))) == lacking
    gone = {host: rack for host, rack in RACKS.items() if host != "n4"}
    assert violations_of(answers(*SOUND), gone) == lacking
    # It follows a replica, not the primary.
    assert violations_of(answers(*changed("d", primary="e"))) == lacking


def test_a_server_that_does_not_answer() -> None:
    found = answers(*SOUND)
    found[5] = Answer(SOUND[5].address, "n3", None, why="TimeoutError: timed out")
    silent = SilentServer(SOUND[5].address, "n3", "TimeoutError: timed out")
    assert violations_of(found) == (silent, CopiesMissing(SOUND[2].address, ("n2",), 2))


def outcome(*violations: Violation, lost: int = 0) -> SlotsOutcome:
    return SlotsOutcome(
        acknowledged_writes=10,
        lost_writes=lost,
        unreadable_writes=0,
        reads=5,
        wrong_reads=0,
        client_errors=0,
        client_errors_seconds=0.0,
        violations=violations,
    )


def test_the_evidence_breaks_promises_and_stands_in_the_report() -> None:
    assert outcome().broken(everything=True) == []
    assert outcome(lost=1).broken(everything=False) == ["no write is lost that a replica had, too"]
    several = outcome(SeveralPrimaries(((0, 99),), ("x:1", "y:1")))
    assert several.broken(everything=False) == ["one primary for each slot in the eyes of most servers"]
    report = several.to_json()
    assert report["one_primary_per_slot"] is False
    assert report["findings"] == ["100 slots (0-99) have several primaries: x:1, y:1"]
    assert report["violations"] == [
        {
            "kind": "SeveralPrimaries",
            "text": "100 slots (0-99) have several primaries: x:1, y:1",
            "slots": ((0, 99),),
            "addresses": ("x:1", "y:1"),
        }
    ]
    every = outcome(
        SilentServer("x:1", "n0", "it hangs"),
        OpenSlots("x:1", ((1, 1),), ("[1->-y]",)),
        CopiesMissing("x:1", ("n0",), 2),
    )
    assert len(every.broken(everything=True)) == 3
