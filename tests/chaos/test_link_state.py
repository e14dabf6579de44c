"""Faults of links on real backends: what is lost, and the rules that lose it, against a dumb twin."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos import faults
from chaos.faults import Fault
from chaos.processes import control_messages as control
from chaos.processes.link_state import LinkState
from chaos.processes.loopback import LoopbackLinks
from chaos.processes.packet_filter import rules
from membership.address import Address

NFT = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin")
HOSTS = [f"n{number}" for number in range(5)]

names = st.sampled_from(HOSTS)
some = st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)
shares = st.sampled_from([0.0, 0.1, 0.8, 1.0])


@st.composite
def partitions(draw: st.DrawFn) -> Fault:
    order = draw(st.permutations(HOSTS))
    first, second = sorted(draw(st.tuples(st.integers(1, 4), st.integers(1, 4))))
    groups = [tuple(order[:first]), tuple(order[first:second])]
    return faults.Partition(tuple(group for group in groups if group))


link_faults = st.one_of(
    partitions(),
    st.just(faults.Heal()),
    st.builds(faults.DropIngress, shares, some),
    st.builds(faults.DropEgress, shares, some),
    st.tuples(names, names).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: faults.Block(*pair)),
    st.tuples(names, names).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: faults.Unblock(*pair)),
    st.builds(faults.Loss, shares),
)
schedules = st.lists(link_faults, max_size=12)


def passes(schedule: list[Fault], source: str, destination: str) -> float:
    """The dumb twin: the share of packets that get from one host to another, from the whole history."""
    sides: tuple[faults.Hosts, ...] = ()
    blocked, loss, egress, ingress = False, 0.0, 0.0, 0.0
    for fault in schedule:
        match fault:
            case faults.Partition(groups):
                sides = groups
            case faults.Heal():
                sides = ()
            case faults.Block(one, other) if (one, other) == (source, destination):
                blocked = True
            case faults.Unblock(one, other) if (one, other) == (source, destination):
                blocked = False
            case faults.DropEgress(share, hosts) if source in hosts:
                egress = share
            case faults.DropIngress(share, hosts) if destination in hosts:
                ingress = share
            case faults.Loss(share):
                loss = share
    apart = any((source in side) != (destination in side) for side in sides)
    return 0.0 if blocked or apart else (1 - loss) * (1 - egress) * (1 - ingress)


def state_after(schedule: list[Fault]) -> LinkState:
    state = LinkState()
    for fault in schedule:
        assert state.apply(fault)
    return state


@given(schedules, names, names)
def test_transports_lose_what_the_twin_loses(schedule: list[Fault], source: str, destination: str) -> None:
    state = state_after(schedule)
    with closing(LoopbackLinks()) as links:
        for number in range(len(HOSTS)):
            links.add(number)
        address = {name: str(links.address(number)) for number, name in enumerate(HOSTS)}
        sender, receiver = links.injected(state, source), links.injected(state, destination)
    arrives = (1 - sender.egress_loss) * (1 - receiver.ingress_loss)
    if address[destination] in sender.blocked_egress or address[source] in receiver.blocked_ingress:
        arrives = 0.0
    if source != destination:
        assert arrives == pytest.approx(passes(schedule, source, destination))


def filtered(text: str, source: str, destination: str) -> float:
    """What the packet filter lets through, read from its rules line by line."""
    share = 1.0
    for line in re.findall(r"^ +(.* drop|drop)$", text, re.MULTILINE):
        match = True
        if found := re.search(r"iifname \. oifname \{ (.*?) \}", line):
            match = f'"{source}" . "{destination}"' in found[1].split(", ")
        else:
            for direction, name in (("iifname", source), ("oifname", destination)):
                if found := re.search(rf'{direction} (!= )?(?:\{{ (.*?) \}}|("\w+"))', line):
                    listed = (found[2] or found[3]).split(", ")
                    match = match and (f'"{name}"' in listed) != bool(found[1])
        if match:
            found = re.search(r"mod 1000000 < (\d+)", line)
            share *= 1 - int(found[1]) / 1_000_000 if found else 0.0
    return share


@given(schedules, names, names)
def test_the_packet_filter_loses_what_the_twin_loses(
    schedule: list[Fault], source: str, destination: str
) -> None:
    text = rules(state_after(schedule), HOSTS)
    if source != destination:
        assert filtered(text, source, destination) == pytest.approx(passes(schedule, source, destination))


def test_faults_of_processes_are_none_of_links() -> None:
    state = LinkState(loss=0.25)
    for fault in (faults.Crash(("n0",)), faults.Pause(("n0",)), faults.Delay(1.0, ("n0",))):
        assert not state.apply(fault)
    assert state.loss == 0.25


def test_every_host_has_an_address_of_its_own() -> None:
    with closing(LoopbackLinks()) as links:
        addresses = {links.address(number) for number in range(links.most_hosts)}
        assert len(addresses) == links.most_hosts
    assert all(Address.parse(str(address)) == address for address in addresses)


def test_lines_arrive_in_pieces() -> None:
    lines = control.Lines()
    line = control.encode(control.Quorum(1.5, True))
    assert lines.feed(line[:7]) == []
    assert [control.decode_report(done) for done in lines.feed(line[7:] + line + line[:3])] == [
        control.Quorum(1.5, True),
        control.Quorum(1.5, True),
    ]


@pytest.mark.system
@pytest.mark.skipif(NFT is None or os.geteuid() != 0, reason="needs nft, and root to ask the kernel")
def test_the_kernel_accepts_the_rules() -> None:
    schedule: list[Fault] = [
        faults.Partition((("n0", "n1"), ("n2",))),
        faults.Block("n3", "n4"),
        faults.DropIngress(0.8, ("n1",)),
        faults.DropEgress(1.0, ("n2",)),
        faults.Loss(0.01),
    ]
    done = subprocess.run(
        [str(NFT), "--check", "-f", "-"],
        input=rules(state_after(schedule), HOSTS),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
