"""The intent of a backup takes the place of that of a new cluster, and nothing moves until an operator says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgmt.errors import InvalidRequestError, NotRestoringError
from mgmt.placement.intent import PolicyChoice
from tests.mgmt.control.harness import harness


async def test_the_intent_of_a_backup_is_agreed_and_pauses(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.settled()
        requests, environment = cluster.controller.requests, cluster.controller.requests._environment
        own = environment.intent
        assert own is not None
        policies = PolicyChoice("datastore", (("mine", "SELECT 1"),))
        backed_up = replace(
            own.with_segments(4), policies=policies, drains=("n9",), pins=(("s00", "n9"),), plan=None
        )
        assert await requests.begin_restoring("c0ffee", resume=False) is False
        await cluster.until(lambda: cluster.controller.status()["phase"] == "paused")
        assert cluster.controller.status()["restoring"]
        assert await requests.begin_restoring("c0ffee", resume=True) is True
        assert environment.intent.segments == own.segments, "not before all of it is in the log"

        for document, complaint in (
            ({**backed_up.to_mapping(), "version": 9}, "upgrade this agent"),
            ({}, "intent.version"),
        ):
            with pytest.raises(InvalidRequestError, match=complaint):
                await requests.finish_restoring("c0ffee", document)
        await requests.finish_restoring("c0ffee", backed_up.to_mapping())
        await environment.observe()
        assert environment.intent == replace(backed_up.with_paused(True), plan=own.plan, freezes=own.freezes)
        assert len(cluster.of_kind("restore")) == 2


async def test_a_backup_that_nobody_began_to_restore_changes_nothing(autojump_clock: object) -> None:
    """Its records would be written between others, and its intent would remove what another log holds."""
    async with harness() as cluster:
        await cluster.settled()
        requests, environment = cluster.controller.requests, cluster.controller.requests._environment
        own = environment.intent
        assert own is not None
        with pytest.raises(NotRestoringError, match=r"none is under way, .* without --resume"):
            await requests.begin_restoring("c0ffee", resume=True)
        with pytest.raises(NotRestoringError):
            await requests.finish_restoring("c0ffee", own.with_segments(1).to_mapping())
        await environment.observe()
        assert environment.intent == own
        await requests.begin_restoring("decaf", resume=False)
        with pytest.raises(NotRestoringError, match="another backup is being put back"):
            await requests.begin_restoring("c0ffee", resume=True)
        await requests.resume()
        await cluster.until(lambda: not cluster.controller.status()["restoring"])
        with pytest.raises(NotRestoringError, match="or it is over"):
            await requests.begin_restoring("decaf", resume=True)
