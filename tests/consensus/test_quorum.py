"""Quorums: the published table, and a twin that enumerates sets."""

from itertools import combinations

import pytest

from consensus import InvalidGroupError, classic_quorum, fast_quorum

PUBLISHED = {5: 4, 6: 5, 48: 37, 49: 37, 50: 38, 51: 39, 99: 75, 100: 76, 101: 76, 102: 77}


@pytest.mark.parametrize(("n", "quorum"), PUBLISHED.items())
def test_the_fast_quorum_is_the_published_one(n: int, quorum: int) -> None:
    assert fast_quorum(n) == quorum


@pytest.mark.parametrize("n", range(1, 8))
def test_the_classic_quorum_is_the_smallest_of_which_any_two_meet(n: int) -> None:
    def any_two_meet(size: int) -> bool:
        sets = [set(chosen) for chosen in combinations(range(n), size)]
        return all(one & other for one in sets for other in sets)

    assert classic_quorum(n) == next(size for size in range(1, n + 1) if any_two_meet(size))


@pytest.mark.parametrize("n", range(1, 8))
def test_the_fast_quorum_is_the_smallest_of_which_any_two_and_a_classic_one_meet(n: int) -> None:
    classic = [set(chosen) for chosen in combinations(range(n), classic_quorum(n))]

    def meet(size: int) -> bool:
        fast = [set(chosen) for chosen in combinations(range(n), size)]
        return all(one & other & third for one in fast for other in fast for third in classic)

    smallest = next(size for size in range(1, n + 1) if meet(size))
    # Never too small, which would be unsafe. For some even groups the formula asks for one vote more than
    # the intersection needs: it tolerates a quarter, as the paper's table says.
    assert fast_quorum(n) >= smallest
    assert fast_quorum(n) - smallest <= 1


def test_three_quarters_and_a_majority() -> None:
    for n in range(1, 10_000):
        assert n >= fast_quorum(n) >= classic_quorum(n)
        assert 2 * classic_quorum(n) > n
        assert 4 * fast_quorum(n) > 3 * n
        assert 2 * fast_quorum(n) + classic_quorum(n) > 2 * n


@pytest.mark.parametrize("n", [0, -1])
def test_an_empty_group_is_refused(n: int) -> None:
    with pytest.raises(InvalidGroupError, match="at least one member"):
        fast_quorum(n)
    with pytest.raises(InvalidGroupError, match="at least one member"):
        classic_quorum(n)
