"""The calendar queue against a heap."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from chaos.simulation.event_queue import CalendarQueue

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


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans())), st.integers(0, 20))
def test_what_stays_keeps_its_time_when_the_rest_is_put_off(
    script: list[tuple[int, bool]], ticks: int
) -> None:
    """Each kind keeps its order, and at one time what stays comes first."""
    queue: CalendarQueue[tuple[bool, int]] = CalendarQueue()
    for number, (tick, stays) in enumerate(script):
        queue.push(tick, (stays, number))
    queue.postpone(ticks, lambda entry: entry[0])
    found: list[tuple[int, bool, int]] = []
    while (tick := queue.next_tick()) is not None:
        found += [(tick, *entry) for entry in queue.bucket(tick)]
        queue.drop(tick, len(queue.bucket(tick)))
    due = [
        (tick if stays else tick + ticks, not stays, tick, number)
        for number, (tick, stays) in enumerate(script)
    ]
    assert found == [(at, not moved, number) for at, moved, _, number in sorted(due)]
