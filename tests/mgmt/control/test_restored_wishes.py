"""Wishes from a backup take the place of those of a new cluster, and nothing moves until an operator says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgmt.errors import InvalidRequestError
from mgmt.placement.intent import Intent, PolicyChoice
from tests.mgmt.control.harness import harness


async def test_wishes_of_a_backup_are_agreed_and_pause(autojump_clock: object) -> None:
    async with harness() as cluster:
        await cluster.settled()
        requests, environment = cluster.controller.requests, cluster.controller.requests._environment
        own = environment.intent
        assert own is not None
        policies = PolicyChoice("datastore", (("mine", "SELECT 1"),))
        backed_up = replace(
            own.with_segments(4), policies=policies, drains=("n9",), pins=(("s00", "n9"),), plan=None
        )
        assert await requests.restore(backed_up.to_mapping()) is False
        await environment.observe()
        assert environment.intent == replace(backed_up.with_paused(True), plan=own.plan, freezes=own.freezes)
        await cluster.until(lambda: cluster.controller.status()["phase"] == "paused")
        assert await requests.restore(None) is True
        assert await requests.restore(backed_up.to_mapping()) is True, "again"
        assert len(cluster.of_kind("restore")) == 1

        for document, complaint in (
            ({**backed_up.to_mapping(), "version": 9}, "upgrade this agent"),
            ({}, "intent.version"),
        ):
            with pytest.raises(InvalidRequestError, match=complaint):
                await requests.restore(document)
        assert environment.intent == Intent.from_mapping(
            {**backed_up.to_mapping(), "paused": True, "plan": environment.intent.to_mapping()["plan"]}
        )
