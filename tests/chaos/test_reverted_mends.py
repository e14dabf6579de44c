"""What random faults find when the mend of a known defect is reverted, kept as scripts that show it.

Each defect is planted again, and the script of its name in `found_by_fuzz` breaks with what is said of it; without it,
nothing breaks. The scripts were found by `rota chaos fuzz` and shrunk, so that they outlast the generator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import chaos
from datastore_adapter.log.messages import HostIdentity
from membership.protocol.recovery.quorum_watch import QuorumWatch

FOUND = Path(__file__).parent / "found_by_fuzz"

Plant = Callable[[pytest.MonkeyPatch], None]


def _whoever_is_at_the_address_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a host look whom a request is for, nor who asks whom the answer is from."""
    monkeypatch.setattr(HostIdentity, "is_meant_by", lambda self, meant: True)


def _who_is_heard_counts_as_in_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = QuorumWatch.heard

    def counted(self: QuorumWatch, index: int, now: float) -> None:
        heard(self, index, now)
        self.answered(index, now)

    monkeypatch.setattr(QuorumWatch, "heard", counted)


DEFECTS: dict[str, tuple[Plant, str]] = {
    "reused_address": (_whoever_is_at_the_address_answers, r"n\d at .* accepts what n\d is asked"),
    "heard_one_way": (_who_is_heard_counts_as_in_touch, r"n\d has not said that it lost its majority"),
}
"""By the name of the script: what plants the defect, and what is said when it shows."""


@pytest.mark.slow("a script for each, run twice; some have a store")
@pytest.mark.parametrize("name", DEFECTS)
def test_a_reverted_mend_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, said = DEFECTS[name]
    script = (FOUND / f"{name}.txt").read_text()
    report = chaos.replay(script)
    assert report.ok, report.broken
    plant(monkeypatch)
    report = chaos.replay(script)
    assert not report.ok
    assert re.search(said, str(report.broken)), report.broken
