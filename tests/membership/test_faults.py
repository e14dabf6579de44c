"""Fault injection: shares, blocks, and that a seed decides everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.address import Address
from membership.transport.faults import NO_FAULTS, FaultInjector, Faults

PEER = Address("10.0.0.2", 7946)
OTHER = Address("10.0.0.3", 7946)


def test_no_faults_change_nothing() -> None:
    injector = FaultInjector()
    assert not injector.active
    assert not injector.loses_incoming(PEER)
    assert not injector.loses_outgoing(PEER)
    assert injector.delay() == 0.0
    assert not injector.refuses_stream(PEER)
    assert not injector.refuses_stream(None)


@pytest.mark.parametrize("loss", [0.0, 0.2, 0.8, 1.0])
def test_losses_come_with_the_wanted_share(loss: float) -> None:
    injector = FaultInjector(Faults(ingress_loss=loss, egress_loss=loss), seed=1)
    for lost in (injector.loses_incoming, injector.loses_outgoing):
        share = sum(lost(PEER) for _ in range(10_000)) / 10_000
        assert share == pytest.approx(loss, abs=0.02)


def test_the_same_seed_gives_the_same_losses() -> None:
    faults = Faults(ingress_loss=0.3, egress_loss=0.3, delay_min=0.01, delay_max=0.02)

    def history(seed: int) -> list[object]:
        injector = FaultInjector(faults, seed=seed)
        return [
            (injector.loses_incoming(PEER), injector.loses_outgoing(PEER), injector.delay())
            for _ in range(50)
        ]

    assert history(1) == history(1)
    assert history(1) != history(2)


def test_a_blocked_peer_is_cut_off_both_ways_until_it_is_unblocked() -> None:
    injector = FaultInjector()
    injector.block([PEER])
    assert injector.active
    assert injector.loses_incoming(PEER)
    assert injector.loses_outgoing(PEER)
    assert injector.refuses_stream(PEER)
    assert injector.sending_blocked(PEER)
    assert injector.receiving_blocked(PEER)
    assert not injector.loses_incoming(OTHER)
    assert not injector.refuses_stream(OTHER)
    injector.unblock([PEER])
    assert injector.faults == NO_FAULTS
    assert not injector.active


def test_one_way_blocks_are_one_way_for_datagrams() -> None:
    injector = FaultInjector(Faults(blocked_ingress=frozenset([PEER])))
    assert injector.loses_incoming(PEER)
    assert not injector.loses_outgoing(PEER)
    assert injector.refuses_stream(PEER)  # a connection needs both ways


def test_moderate_loss_leaves_streams_alone_and_heavy_loss_does_not() -> None:
    assert not any(
        FaultInjector(Faults(egress_loss=0.4), seed=seed).refuses_stream(PEER) for seed in range(1000)
    )
    injector = FaultInjector(Faults(egress_loss=0.8), seed=1)
    refused = sum(injector.refuses_stream(PEER) for _ in range(10_000)) / 10_000
    assert refused == pytest.approx(0.8, abs=0.02)
    assert all(FaultInjector(Faults(ingress_loss=1.0), seed=seed).refuses_stream(PEER) for seed in range(100))


@given(st.floats(0, 1), st.floats(0, 1))
def test_delays_lie_between_their_bounds(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert low <= FaultInjector(Faults(delay_min=low, delay_max=high), seed=1).delay() <= high


def test_faults_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="share from 0 to 1"):
        Faults(ingress_loss=1.5)
    with pytest.raises(ValueError, match="share from 0 to 1"):
        Faults(egress_loss=-0.1)
    with pytest.raises(ValueError, match="delay_min"):
        Faults(delay_min=2, delay_max=1)
