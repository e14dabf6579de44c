"""The calendar queue against a heap."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from chaos.event_queue import CalendarQueue

pushes = st.lists(st.tuples(st.integers(0, 10), st.lists(st.integers(0, 5), max_size=3)), max_size=30)


@given(pushes)
def test_twin_heap(script: list[tuple[int, list[int]]]) -> None:
    """Entries come in order of time, then of insertion; each may push more, also at its own time."""
    queue: CalendarQueue[tuple[int, list[int]]] = CalendarQueue()
    heap: list[tuple[int, int, list[int]]] = []
    counter = 0
    for number, (tick, children) in enumerate(script):
        queue.push(tick, (number, children))
        heapq.heappush(heap, (tick, counter, children))
        counter += 1
    names = {index: index for index in range(len(script))}
    ours: list[tuple[int, int]] = []
    next_name = len(script)
    while (tick := queue.next_tick()) is not None:
        done = 0
        for name, children in queue.bucket(tick):
            done += 1
            ours.append((tick, name))
            for delay in children:
                queue.push(tick + delay, (next_name, []))
                next_name += 1
        queue.drop(tick, done)
    twins: list[tuple[int, int]] = []
    while heap:
        tick, name, children = heapq.heappop(heap)
        twins.append((tick, names.get(name, name)))
        for delay in children:
            heapq.heappush(heap, (tick + delay, counter, []))
            counter += 1
    assert ours == twins
    assert len(queue) == 0


def test_the_rest_of_a_bucket_stays() -> None:
    queue: CalendarQueue[str] = CalendarQueue()
    for entry in "abc":
        queue.push(5, entry)
    queue.drop(5, 2)
    assert queue.next_tick() == 5
    assert queue.bucket(5) == ["c"]
    assert len(queue) == 1
