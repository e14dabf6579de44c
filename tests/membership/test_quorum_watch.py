"""The quorum poll: whom a member asks when its neighbours are silent, and how often. See `quorum_watch`."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membership.address import Address
from membership.protocol.context.context import Context
from membership.protocol.context.effects import QuorumLost, QuorumRegained
from membership.protocol.messages import Probe, QuorumAlarm
from membership.protocol.monitoring.indirect_probe import HELPED_SEQUENCE
from membership.protocol.recovery.quorum_watch import SILENCE, QuorumWatch, ask, is_unsure, polled_at
from membership.settings import Settings
from tests.membership.test_quorum_bound import bound

BOUND = bound(Settings())


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
        """When the roll was called, and how many."""
        self.asked: list[float] = []
        """When nobody but neighbours was asked."""
        self.warned: dict[Address, None] = {}
        self.events: list[object] = []

    def alarm(self, count: int, now: float) -> None:
        """So many members in reach say that they count no majority."""
        others = range(len(self.context.view))
        heard = [index for index in others if index not in self.silent and index != self.context.index]
        for index in heard[:count]:
            self.watch.on_alarm(index, now)

    def run(
        self, begin: float, end: float, *, late: float = 0.0, idle: bool = False, heard: bool = True
    ) -> None:
        """Tick whenever it is due, `late` seconds after; everybody but the silent answers at once.

        With `heard` false nobody speaks unless asked.
        """
        view = self.context.view
        while (now := max(self.watch.deadline, begin) + late) <= end:
            for index in self.neighbours:
                if heard and index not in self.silent:
                    self.watch.answered(index, now)
            self.watch.tick(now, None, idle=idle)
            effects = self.context.take_effects(0.0)
            self.events.extend(effects.events)
            for send in effects.sends:
                assert isinstance(send.message, Probe)
                if {view.index_of_address(address) for address in send.destinations} <= {*self.neighbours}:
                    self.asked.append(now)
                else:
                    self.calls.append((now, len(send.destinations)))
                if isinstance(send.message, QuorumAlarm):
                    self.warned.update(dict.fromkeys(send.destinations))
                for address in send.destinations:
                    index = view.index_of_address(address)
                    assert index is not None
                    if index not in self.silent:
                        asked_at = polled_at(send.message.sequence, now + 0.01)
                        assert asked_at is not None
                        self.watch.answered(index, asked_at)


def test_a_few_silent_neighbours_are_no_reason_to_ask_everybody(lab) -> None:
    watcher = Watcher(lab)
    watcher.silent = set(watcher.neighbours[:3])
    watcher.run(0.0, 60.0)
    assert not watcher.calls


def test_who_rests_counts_its_neighbours_in_and_asks_them_when_its_rest_ends(lab) -> None:
    """They may rest as well, and are then not heard for a while."""
    watcher = Watcher(lab)
    answering, watcher.silent = watcher.silent, {*watcher.neighbours}
    watcher.run(0.0, 60.0, idle=True)
    assert not watcher.asked
    watcher.silent = answering
    watcher.run(60.0, 62.0, heard=False)
    assert watcher.asked == [61.5]
    watcher.run(62.0, 90.0, heard=False)
    assert not watcher.calls


def test_alarms_end_the_rest(lab) -> None:
    """All subjects of a member may be well, and the others gone."""
    watcher = Watcher(lab)
    watcher.run(0.0, 20.0, idle=True, heard=False)
    assert not watcher.asked
    watcher.alarm(5, 20.0)
    watcher.silent = set(range(300))
    watcher.run(20.0, 20.0 + BOUND, idle=True)
    assert [type(event) for event in watcher.events] == [QuorumLost], "nobody vouches for them any more"


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


def test_more_silent_neighbours_end_the_pause_between_two_polls(lab) -> None:
    """Trouble that lasts is asked about ever more rarely; what comes on top of it is found within the bound."""
    watcher = Watcher(lab)
    watcher.silent = set(watcher.neighbours[::2])
    watcher.run(0.0, 60.0)
    began = watcher.calls[-1][0] + 0.5  # just after a poll, when the next is farthest away
    watcher.silent = set(range(300))
    watcher.run(60.0, began, heard=False)
    watcher.run(began, began + BOUND)
    assert [type(event) for event in watcher.events] == [QuorumLost]


def test_to_be_heard_is_not_enough(lab) -> None:
    """Of a deaf member every probe arrives, and no answer."""
    watcher = Watcher(lab)
    watcher.silent = set(range(300))
    while (now := watcher.watch.deadline) < BOUND:
        for index in watcher.neighbours:
            watcher.watch.heard(index, now)
        watcher.run(now, now)
    assert [type(event) for event in watcher.events] == [QuorumLost]


def test_an_answer_that_was_long_on_its_way_says_nothing(lab) -> None:
    watcher = Watcher(lab, 5)
    watcher.silent = set(range(5))
    for half in range(2 * int(BOUND)):
        for index in watcher.neighbours:
            watcher.watch.answered(index, half / 2 - 2 * SILENCE)
        watcher.run(half / 2, half / 2 + 0.49)
    assert [type(event) for event in watcher.events] == [QuorumLost]


def test_the_sequence_of_a_poll_says_when_it_was_sent(lab) -> None:
    watcher = Watcher(lab, 5)
    ask(watcher.context, [1], 1234.5)
    (send,) = watcher.context.take_effects(0.0).sends
    assert isinstance(send.message, Probe)
    assert polled_at(send.message.sequence, 1240.0) == 1234.5
    assert polled_at(send.message.sequence, 1234.0) == 1234.0, "nothing is answered before it is asked"
    assert polled_at(0, 1.0) is polled_at(HELPED_SEQUENCE, 1.0) is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("size", "alive"), [(91, 45), (200, 100), (200, 95), (1000, 500), (1000, 499), (1500, 700)]
)
def test_a_large_cluster_counts_until_it_knows(lab, size: int, alive: int, seed: int) -> None:
    """A sample is a toss of a coin where about half is gone: whoever loses it would never say so."""
    watcher = Watcher(lab, size)
    others = [index for index in range(size) if index != watcher.context.index]
    watcher.silent = set(random.Random(seed).sample(others, size - alive))
    watcher.run(0.0, BOUND)
    assert [type(event) for event in watcher.events] == [QuorumLost]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("size", "alive"), [(200, 110), (1000, 501), (1000, 550), (1500, 900)])
def test_a_majority_is_not_lost_to_a_small_sample(lab, size: int, alive: int, seed: int) -> None:
    watcher = Watcher(lab, size)
    others = [index for index in range(size) if index != watcher.context.index]
    watcher.silent = set(random.Random(seed).sample(others, size - alive))
    watcher.run(0.0, 60.0)
    assert not watcher.events
    assert sum(count for _, count in watcher.calls) < 20 * size


def test_where_the_sample_is_clear_no_more_are_called(lab) -> None:
    watcher = Watcher(lab, 1000)
    watcher.silent = {*range(0, 1000, 4), *watcher.neighbours[::3]} - {watcher.context.index}
    watcher.run(0.0, 30.0)
    assert {count for _, count in watcher.calls} == {80}


@given(st.integers(2, 3000), st.data())
def test_what_has_asked_everybody_is_sure(size: int, data: st.DataObject) -> None:
    reached = data.draw(st.integers(1, size))
    assert not is_unsure(reached, size, size)
    asked = data.draw(st.integers(1, size - 1))
    assert is_unsure(asked // 2, asked, size) or asked % 2


def test_one_that_is_late_itself_does_not_call(lab) -> None:
    """It may not have read the answers yet, and the machine has no time to spare for more packets."""
    watcher = Watcher(lab)
    watcher.silent = set(watcher.neighbours)
    watcher.run(0.0, 20.0, late=0.4)
    assert not watcher.calls
    watcher.run(20.0, 25.0)
    assert watcher.calls


@pytest.mark.parametrize(("size", "alive"), [(60, 29), (500, 249), (500, 60), (2000, 1000)])
def test_one_whose_neighbours_are_all_well_counts_when_others_find_no_majority(
    lab, size: int, alive: int
) -> None:
    watcher = Watcher(lab, size)
    neighbours = {watcher.context.index, *watcher.neighbours}
    others = [index for index in range(size) if index not in neighbours]
    watcher.silent = set(random.Random(size).sample(others, size - alive))
    watcher.run(0.0, 5.0)
    watcher.alarm(len(watcher.neighbours) // 4 + 1, 5.0)  # when the others have counted, at the latest
    watcher.run(5.0, BOUND)
    assert [type(event) for event in watcher.events] == [QuorumLost]


def test_nobody_takes_anothers_word_for_a_lost_majority(lab) -> None:
    watcher = Watcher(lab)
    watcher.silent = set(random.Random(1).sample(range(150, 300), 100)) - {watcher.context.index}
    watcher.silent -= set(watcher.neighbours)
    for second in range(60):
        watcher.alarm(100, float(second))
        watcher.run(float(second), second + 1.0)
        assert not watcher.watch.in_doubt(second + 1.0), "it goes on accusing whom it does not reach"
    assert watcher.calls
    assert not watcher.events
    assert not watcher.warned


def test_a_few_sick_members_make_nobody_call_the_roll(lab) -> None:
    watcher = Watcher(lab)
    watcher.alarm(len(watcher.neighbours) // 4 - 1, 0.0)
    watcher.run(0.0, 60.0)
    assert not watcher.calls


def test_who_counts_no_majority_tells_all_it_calls_and_its_neighbours(lab) -> None:
    watcher = Watcher(lab, 60)
    watcher.silent = set(range(60))
    watcher.run(0.0, 1.5 + 2.5)
    assert not watcher.warned, "those called need time to answer"
    watcher.run(4.0, 6.0)
    assert len(watcher.warned) == 59
