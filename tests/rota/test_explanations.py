"""What ``rota policy why``, ``why-not`` and ``what-if`` say of 321 rows: one sentence, and what must move with it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from mgmt.errors import InfeasibleError
from mgmt.explaining.solutions.nearest import Cell, Tell, fewest
from mgmt.optimization.deadline import Deadline
from rota.commands.policies.options import Effort
from tests.rota.many_copies import write
from tests.rota.test_command_line import run

Output = pytest.CaptureFixture[str]
FILES = ("schema.sql", "rules.sql", "--data", "rows.sql", "--budget", "300")
"""A budget that a busy machine does not exhaust: what is found in it depends on the seed alone."""
INTERNAL = re.compile(r"controllable__|variable__|\btier\b|\bslot\b|what was asked for|plan of")

WHY = """\
copy s003/1 has machine m06; it could have machine m14 just as well, at no cost
With it:
 row           column    is    would be
 copy s036/2   machine   m11   m06
"""
WHY_NOT = """\
copy s003/1 could have machine m09 just as well, at no cost; it has machine m06
With it:
 row           column    is    would be
 copy s003/0   machine   m09   m06
"""
WHAT_IF = """\
it costs 18 price in rent (1254 instead of 1236); 9 values change
 row                   column    is    would be
 copy s002/0, s046/1   machine   m09   m26
 copy s003/0, s099/0   machine   m09   m05
 copy s033/0           machine   m09   m08
 copy s034/0           machine   m09   m17
 copy s080/0           machine   m09   m11
 copy s087/0, s094/1   machine   m09   m23
 objective       is     would be   worse by   unit
 minimize rent   1236   1254       18         price
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)


def lines(text: str) -> str:
    """Without blank lines and those that are drawn."""
    kept = (line.rstrip() for line in text.splitlines() if line.strip(" ─"))
    return "".join(f"{line}\n" for line in kept)


@pytest.mark.slow("321 rows are solved twice or more for each question")
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("why", "copy:s003,1"), WHY),
        (("why-not", "copy:s003,1", "m09"), WHY_NOT),
        (("what-if", "UPDATE machine SET room = 0 WHERE name = 'm09'"), WHAT_IF),
    ],
    ids=["why", "why-not", "what-if"],
)
def test_an_answer_begins_with_what_it_costs_and_names_what_moves_with_it(
    capsys: Output, question: tuple[str, ...], answer: str
) -> None:
    status, out, err = run(capsys, "policy", *question, *FILES)
    assert (status, err) == (0, "")
    assert lines(out) == answer
    assert not INTERNAL.search(out)


def test_what_would_help_is_looked_for_in_the_time_that_is_left() -> None:
    given: list[float | None] = []

    def relax(seconds: float | None) -> tuple[()]:
        given.append(seconds)
        return ()

    def clash(tell: Tell) -> None:
        raise InfeasibleError((), relax=relax)

    for budget in (3600.0, 0.001):
        assert isinstance(Effort(budget, 0).answered(clash, "solving", quiet=True), InfeasibleError)
    long, short = given
    assert long is not None
    assert 0 < long <= 3600.0
    assert short == 1.0, "a second at least"


@pytest.mark.parametrize("needed", [{3}, {0, 7}, {1, 2, 5}, set(range(8))])
def test_of_changes_those_are_kept_that_none_can_do_without(needed: set[int]) -> None:
    """Whatever they are among, and although a circle of moves can only be taken back whole."""
    cells = [("copy", "machine", (number,)) for number in range(8)]

    def hold(kept: Sequence[Cell]) -> bool:
        numbers = {key[0] for _, _, key in kept}
        return needed <= numbers and (4 in numbers) == (6 in numbers)

    kept = {key[0] for _, _, key in fewest(cells, hold, Deadline(math.inf))}
    assert needed <= kept
    assert hold([("copy", "machine", (number,)) for number in kept])
    for number in kept:
        assert not hold([("copy", "machine", (other,)) for other in kept - {number}])
