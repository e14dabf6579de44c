"""Keys that go together from one server to another: none is left out, and a server is never kept busy for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from datastore_adapter.slots.steps.slot_moves import _together


@given(st.lists(st.lists(st.binary(max_size=2), min_size=1, max_size=10), max_size=20))
def test_a_group_has_no_more_keys_than_allowed_unless_it_is_one_command(chunks: list[list[bytes]]) -> None:
    groups = list(_together(chunks, 10))
    assert [chunk for group in groups for chunk in group] == chunks
    assert all(sum(map(len, group)) <= 10 for group in groups)
    sizes = [sum(map(len, group)) for group in groups]
    first = [len(group[0]) for group in groups]
    assert all(size + following > 10 for size, following in zip(sizes, first[1:], strict=False)), (
        "as many as fit"
    )
