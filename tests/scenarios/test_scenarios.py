"""Runs every `*.txt` beside this file: a fault script, a line of dashes, and what must come of it.

What comes of it is told fault by fault: the view that stands in the end, who went (-) and who came (+) on the
way, in one view change or several, and how soon, in steps of five seconds: coarse enough that a document does
not change with every tuned constant.

ROTA_REWRITE=1 writes what came instead of comparing; read the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from chaos import Replay, replay
from chaos.recording.views import View
from chaos.script import format_at, parse
from tests.budget import budgeted

HERE = Path(__file__).parent
RULE = "----\n"
SEEDS = 3
STEP = 5
"""Seconds to which times are rounded up."""


def tell(result: Replay) -> str:
    """The document's second half."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Replay) -> Iterator[str]:
    schedule = result.script.schedule
    times = sorted({at.seconds for at in schedule})
    first = times[0] if times else float("inf")
    before = [view for view in result.views if view.seconds < first]
    yield f"start {result.script.nodes}"
    if before:
        yield f"    view of {before[-1].size} within {_within(before[-1].seconds)} s"
    for begin, end in zip(times, [*times[1:], float("inf")], strict=True):
        yield from (format_at(at) for at in schedule if at.seconds == begin)
        if views := [view for view in result.views if begin <= view.seconds < end]:
            yield _views(views, begin)
    if not result.ok:
        yield f"BROKEN {result.broken}"
    else:
        yield "the quorum is lost for good" if result.quorum_lost_for_good else "one again"


def _views(views: list[View], begin: float) -> str:
    went = sorted({f"-{name}" for view in views for name in view.removed})
    came = sorted({f"+{name}" for view in views for name in view.joined})
    changes = "one change" if len(views) == 1 else "several changes"
    within = _within(views[-1].seconds - begin)
    return f"    view of {views[-1].size} within {within} s by {changes}: {' '.join([*went, *came])}"


def _within(seconds: float) -> int:
    return max(STEP, STEP * ceil(seconds / STEP))


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    script, rule, expected = path.read_text().partition(RULE)
    came = tell(replay(script))
    if os.environ.get("ROTA_REWRITE"):
        path.write_text(script + RULE + came)
        return
    assert rule, f"{path.name} has no line of four dashes: run once with ROTA_REWRITE=1"
    assert came == expected


@pytest.mark.parametrize("seed", budgeted(range(100, 100 + SEEDS), 1))
@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_other_seeds_come_to_the_same_end(path: Path, seed: int) -> None:
    """Times and the number of view changes may differ; who is in, in the end, may not."""
    script = parse(path.read_text().partition(RULE)[0])
    ends = set()
    for each in (script.seed, seed):
        result = replay(replace(script, seed=each))
        assert result.ok, result.broken
        ends.add((result.quorum_lost_for_good, result.views[-1].size))
    assert len(ends) == 1
