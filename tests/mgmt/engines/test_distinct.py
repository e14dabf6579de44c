"""Ranks of columns, against numpy's sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mgmt.optimization.dense_ranks import alike_rows, firsts, joint_ranks, ranks

keys = st.lists(st.one_of(st.integers(-3, 5), st.integers(-(2**60), 2**60)), max_size=12)


@given(keys)
def test_ranks_are_places_among_the_distinct_ones(column: list[int]) -> None:
    array = np.array(column, np.int64)
    rank, number = ranks(array)
    distinct, first, expected = np.unique(array, return_index=True, return_inverse=True)
    assert number == len(distinct)
    assert rank.tolist() == expected.tolist()
    assert firsts(rank, number).tolist() == first.tolist()


@given(
    st.integers(0, 12).flatmap(
        lambda n: st.lists(st.lists(st.integers(-2, 2), min_size=n, max_size=n), max_size=3)
    )
)
def test_rows_that_agree_on_all_columns_have_one_rank(columns: list[list[int]]) -> None:
    rows = len(columns[0]) if columns else 4
    rank, number = joint_ranks([np.array(column, np.int64) for column in columns], rows)
    tuples = [tuple(column[row] for column in columns) for row in range(rows)]
    assert rank.tolist() == [sorted(set(tuples)).index(one) for one in tuples]
    assert number == len(set(tuples))


@given(st.integers(0, 130), st.lists(st.sets(st.sampled_from([0, 1, 7, 8, 63, 64, 65, 129])), max_size=8))
def test_rows_of_truths_that_are_equal_have_one_rank(width: int, rows: list[set[int]]) -> None:
    table = np.array([[place in row for place in range(width)] for row in rows], np.bool_)
    table = table.reshape(len(rows), width)
    rank, number = alike_rows(table)
    rows = [{place for place in row if place < width} for row in rows]
    assert number == len(set(map(frozenset, rows)))
    for one, first in zip(rank.tolist(), rows, strict=True):
        assert [other == one for other in rank.tolist()] == [second == first for second in rows]
