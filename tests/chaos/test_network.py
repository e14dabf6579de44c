"""The network model, fault by fault."""

from __future__ import annotations

import random

import pytest

from chaos import BadArgumentError, Network, NetworkSettings


def network(hosts: int = 3, **settings: float) -> Network:
    made = Network(random.Random(7), NetworkSettings(**settings))
    for _ in range(hosts):
        made.add_host()
    return made


def arrivals(made: Network, source: int, destination: int, count: int = 2000) -> int:
    return sum(len(made.datagram(source, destination)) for _ in range(count))


def test_the_default_is_one_to_five_milliseconds_and_nothing_lost() -> None:
    made = network()
    delays = [made.datagram(0, 1) for _ in range(2000)]
    assert {delay for (delay,) in delays} == {1, 2, 3, 4, 5}


def test_loss_and_duplication_are_shares() -> None:
    assert 1700 < arrivals(network(loss=0.1), 0, 1) < 1900
    assert 2100 < arrivals(network(duplication=0.1), 0, 1) < 2300


def test_a_heavy_tail() -> None:
    made = network(tail_probability=0.1, tail_delay=1.0)
    delays = [delay for _ in range(5000) for delay in made.datagram(0, 1)]
    assert max(delays) <= 1000
    assert 400 < sum(delay > 5 for delay in delays) < 600


def test_drops_are_of_one_host_and_one_direction() -> None:
    made = network()
    made.drop_ingress(1, 0.8)
    assert 300 < arrivals(made, 0, 1) < 500
    assert arrivals(made, 1, 0) == arrivals(made, 0, 2) == 2000
    made.drop_ingress(1, 0.0)
    made.drop_egress(1, 1.0)
    assert arrivals(made, 1, 0) == 0
    assert arrivals(made, 0, 1) == 2000


def test_a_partition_separates_groups_and_the_unnamed_are_one_more() -> None:
    made = network(5)
    made.partition([[0, 1], [2]])
    reach = {(a, b) for a in range(5) for b in range(5) if a != b and made.datagram(a, b)}
    assert reach == {(0, 1), (1, 0), (3, 4), (4, 3)}
    made.heal()
    assert all(made.datagram(a, b) for a in range(5) for b in range(5))


def test_a_one_way_link() -> None:
    made = network()
    made.block(0, 1)
    assert not made.datagram(0, 1)
    assert made.datagram(1, 0)
    assert made.stream(1, 0) is None, "a stream needs both directions"
    made.unblock(0, 1)
    assert made.datagram(0, 1)
    made.block(0, 2)
    made.unblock_all()
    assert made.datagram(0, 2)


def test_a_slow_host_is_slow_both_ways() -> None:
    made = network()
    made.slow_down(1, 0.5)
    assert min(min(made.datagram(0, 1)), min(made.datagram(1, 0))) > 500
    assert max(made.datagram(0, 2)) <= 5


def test_moderate_loss_only_delays_a_stream() -> None:
    made = network(loss=0.2)
    delays = [made.stream(0, 1) for _ in range(2000)]
    assert None not in delays
    assert any(delay is not None and delay >= 200 for delay in delays)


@pytest.mark.parametrize("direction", ["drop_ingress", "drop_egress"])
def test_heavy_loss_lets_a_stream_through_as_often_as_a_packet(direction: str) -> None:
    made = network()
    getattr(made, direction)(1, 0.8)
    for source, destination in ((0, 1), (1, 0)):
        through = sum(made.stream(source, destination) is not None for _ in range(2000))
        assert 300 < through < 500


def test_the_same_seed_gives_the_same_network() -> None:
    assert [network(loss=0.3).datagram(0, 1) for _ in range(50)] == [
        network(loss=0.3).datagram(0, 1) for _ in range(50)
    ]


def test_nonsense_is_refused() -> None:
    with pytest.raises(BadArgumentError, match="probability between 0 and 1"):
        NetworkSettings(loss=1.5)
    with pytest.raises(BadArgumentError, match="must be ordered"):
        NetworkSettings(minimum_delay=0.1)
    with pytest.raises(BadArgumentError):
        network().drop_egress(0, -0.1)
    with pytest.raises(BadArgumentError):
        network().slow_down(0, -1)


def test_which_links_are_cut_is_told_unless_chance_has_a_say() -> None:
    made = network()
    assert made.cuts() == frozenset()
    made.block(0, 1)
    made.drop_ingress(2, 1.0)
    assert made.cuts() == {(0, 1), (0, 2), (1, 2)}
    made.drop_egress(1, 0.5)
    assert made.cuts() is None
    made.drop_egress(1, 0.0)
    made.slow_down(0, 1.0)
    assert made.cuts() is None
    assert network(loss=0.1).cuts() is network(tail_probability=0.1).cuts() is None
