"""Refusals: every reason in the code has a stable name, and no packet can invent another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from membership.address import Address
from membership.protocol.context.refusals import Refusal, public_name, refusal_of
from membership.protocol.messages import Digest, FullConfiguration, Probe
from membership.protocol.view.member import SHORT_BYTES

PACKAGE = Path(__file__).parents[2] / "membership"


def sentences() -> list[tuple[str, str]]:
    """Every reason given as text: to `drop`, or returned by `refusal`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            given: list[ast.expr | None] = []
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "drop"
            ):
                given = [node.args[0]]
            elif isinstance(node, ast.FunctionDef) and node.name == "refusal":
                given = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            for value in given:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.append((path.name, value.value))
                elif isinstance(value, ast.JoinedStr):
                    found.append((path.name, ast.unparse(value)))
    return found


@pytest.mark.parametrize(("module", "sentence"), sentences())
def test_every_reason_is_in_the_list(module: str, sentence: str) -> None:
    assert refusal_of(sentence) is not Refusal.OTHER, (
        f"{module}: add it to membership/protocol/context/refusals.py"
    )


def test_the_list_is_found_in_the_code() -> None:
    """What nobody gives as a reason any more has no place in the list."""
    code = "".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.stem != "refusals")
    unused = [
        refusal.name
        for refusal in Refusal
        if refusal is not Refusal.OTHER
        and refusal.value not in code
        and f"Refusal.{refusal.name}" not in code
    ]
    assert unused == []


def test_names_outside_are_stable() -> None:
    assert (
        public_name("dropped: a message whose sender is not in the view")
        == "messages_dropped_sender_not_in_view"
    )
    assert public_name("dropped: something new") == "messages_dropped_other"
    assert public_name("gossip repairs") == "gossip_repairs"


def test_a_packet_cannot_invent_counters(lab) -> None:  # type: ignore[no-untyped-def]
    core = lab.core_in(lab.configuration(4))
    view = core.configuration
    sender = view.members[1]
    before = len(core.statistics())
    for number in range(50):
        body = bytes([number]) * number
        core.receive(
            sender.address, FullConfiguration(sender.incarnation, view.epoch + 1, bytes(16), body), 1.0
        )
    assert len(core.statistics()) <= before + 2
    assert core.statistics()["dropped: a configuration that cannot be read"] == 50


def test_a_member_is_heard_from_its_own_address_only(lab) -> None:  # type: ignore[no-untyped-def]
    """The envelope's sender is where answers go: a member's message under another one changes nothing."""
    core = lab.core_in(lab.configuration(4))
    view = core.configuration
    sender = view.members[1].incarnation[:SHORT_BYTES]
    probe = Probe(sender, view.epoch, view.id[:SHORT_BYTES], 7, Digest())
    assert lab.sent(core.receive(view.members[1].address, probe, 1.0))
    refused = core.receive(Address("10.9.9.9", 1), probe, 1.0)
    assert not lab.sent(refused)
    (dropped,) = refused.events
    assert "n1 advertises 10.0.0.1:1001, the packet says 10.9.9.9:1" in dropped.reason
    assert "another process speaks in its name" in dropped.reason
    assert not lab.sent(core.receive(view.members[2].address, probe, 1.0))
    assert core.statistics()["dropped: a message of a member from another address than its own"] == 2
