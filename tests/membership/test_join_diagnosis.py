"""What a process says about a join that takes long."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from membership import Address, Transport
from membership.protocol.lifecycle.founder_election import JOINING_TOO
from membership.runtime.join_diagnosis import JOINING_PATIENCE, JoinDiagnosis
from membership.runtime.member_log import MemberLog


def test_that_seeds_are_joining_themselves_is_said_when_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="membership")
    diagnosis = JoinDiagnosis(MemberLog("n1"))
    for _ in range(JOINING_PATIENCE - 1):
        diagnosis.waiting(JOINING_TOO)
    assert not caplog.records, "all that start together hear it from each other for a moment"
    assert "found the cluster anew" in str(diagnosis.error(5.0))
    for _ in range(3):
        diagnosis.waiting(JOINING_TOO)
    assert [record.getMessage() for record in caplog.records] == [
        "n1: not joined yet: waiting to be admitted: who answers is joining itself; if all seeds are and no member is "
        "left, found the cluster anew"
    ]
    diagnosis.reset()
    diagnosis.waiting(JOINING_TOO)
    assert len(caplog.records) == 1


def test_of_seeds_that_nothing_was_heard_of_it_is_not_said_that_they_answer() -> None:
    diagnosis = JoinDiagnosis(MemberLog("n1"))
    assert "nothing was heard of the seeds" in str(diagnosis.error(1.0))
    diagnosis.heard([Address("127.0.0.1", 1)])
    assert "the cluster answers" in str(diagnosis.error(1.0))


async def test_without_other_seeds_it_says_what_to_do() -> None:
    diagnosis = JoinDiagnosis(MemberLog("n1"))
    await diagnosis.ask_seeds(cast(Transport, None), (), ())  # nobody is left to be asked over it
    assert "but this process itself; name another member" in str(diagnosis.error(5.0))


def test_a_line_of_the_log_has_the_name_of_its_member_whatever_is_in_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemberLog("50%s")
    log.warning("100% %s")
    log.warning("%s of %d", "one", 3)
    assert [record.getMessage() for record in caplog.records] == ["50%s: 100% %s", "50%s: one of 3"]
    assert {record.filename for record in caplog.records} == {"test_join_diagnosis.py"}, (
        "and says where it was written"
    )
