"""The roll call: whom a member asks when neighbours are silent, and how often. See `membership.quorum_watch`."""

from __future__ import annotations

from itertools import pairwise

from membership.context import Context
from membership.effects import QuorumLost, QuorumRegained
from membership.messages import Probe
from membership.quorum_watch import QuorumWatch


class Watcher:
    """A member of a cluster of 300, whose neighbours and whose other members are heard or not."""

    def __init__(self, lab, size: int = 300) -> None:
        self.context: Context = lab.context(lab.configuration(size))
        self.watch = QuorumWatch(self.context)
        self.watch.on_view_change(0.0)
        view = self.context.view
        me = self.context.me
        self.neighbours = sorted({*view.subjects_of(me), *view.observers_of(me)} - {self.context.index})
        self.silent: set[int] = set()
        self.calls: list[tuple[float, int]] = []
        self.events: list[object] = []

    def run(self, begin: float, end: float, *, late: float = 0.0) -> None:
        """Tick whenever it is due, `late` seconds after; everybody but the silent answers at once."""
        view = self.context.view
        while (now := max(self.watch.deadline, begin) + late) <= end:
            for index in self.neighbours:
                if index not in self.silent:
                    self.watch.heard(index, now)
            self.watch.tick(now, None)
            effects = self.context.take_effects(0.0)
            self.events.extend(effects.events)
            for send in effects.sends:
                assert isinstance(send.message, Probe)
                self.calls.append((now, len(send.destinations)))
                for address in send.destinations:
                    index = view.index_of_address(address)
                    assert index is not None
                    if index not in self.silent:
                        self.watch.heard(index, now + 0.01)


def test_a_few_silent_neighbours_are_no_reason_to_ask_everybody(lab) -> None:
    watcher = Watcher(lab)
    watcher.silent = set(watcher.neighbours[:3])
    watcher.run(0.0, 60.0)
    assert not watcher.calls


def test_the_roll_is_called_ever_more_rarely(lab) -> None:
    watcher = Watcher(lab)
    watcher.silent = set(watcher.neighbours[: len(watcher.neighbours) // 2])
    watcher.run(0.0, 120.0)
    times = [at for at, _ in watcher.calls]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert set(pauses[3:]) == {8.0}
    assert not watcher.events, "most of the others answer"


def test_members_that_answered_the_last_call_count_until_the_next(lab) -> None:
    watcher = Watcher(lab)
    watcher.silent = set(watcher.neighbours)
    watcher.run(0.0, 60.0)
    assert watcher.calls
    assert not watcher.events
    watcher.silent = set(range(300))
    watcher.run(60.0, 90.0)
    assert [type(event) for event in watcher.events] == [QuorumLost]
    watcher.silent = set()
    watcher.run(90.0, 92.0)
    assert [type(event) for event in watcher.events] == [QuorumLost, QuorumRegained]


def test_one_that_is_late_itself_does_not_call(lab) -> None:
    """It may not have read the answers yet, and the machine has no time to spare for more packets."""
    watcher = Watcher(lab)
    watcher.silent = set(watcher.neighbours)
    watcher.run(0.0, 20.0, late=0.4)
    assert not watcher.calls
    watcher.run(20.0, 25.0)
    assert watcher.calls
