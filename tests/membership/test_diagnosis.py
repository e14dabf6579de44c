"""What a process says about a join that takes long."""

from __future__ import annotations

import logging

import pytest

from membership.diagnosis import JOINING_PATIENCE, JoinDiagnosis
from membership.rendezvous import JOINING_TOO


def test_that_seeds_are_joining_themselves_is_said_when_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="membership")
    diagnosis = JoinDiagnosis()
    for _ in range(JOINING_PATIENCE - 1):
        diagnosis.waiting(JOINING_TOO)
    assert not caplog.records, "all that start together hear it from each other for a moment"
    assert "found the cluster anew" in str(diagnosis.error(5.0))
    for _ in range(3):
        diagnosis.waiting(JOINING_TOO)
    assert [record.getMessage() for record in caplog.records] == [
        "not joined yet: waiting to be admitted: who answers is joining itself; if all seeds are and no member is "
        "left, found the cluster anew"
    ]
    diagnosis.reset()
    diagnosis.waiting(JOINING_TOO)
    assert len(caplog.records) == 1
