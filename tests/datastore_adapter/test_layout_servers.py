"""How many hosts carry the layout: it grows and shrinks through its own chain, and says so when a majority is lost."""

from __future__ import annotations

import pytest

from datastore_adapter import LogClientError
from datastore_adapter.interface import Unreachable, layout_servers_wanted
from tests.datastore_adapter.harness import Harness


def test_three_become_five_and_each_that_dies_is_replaced_before_the_next() -> None:
    """Of nine hosts six die, more than the majority of any layout on the way; then three are to be enough again."""
    harness = Harness(9, segments=6)

    def servers() -> tuple[str, ...]:
        return harness.document.layout.layout_servers

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        writers = harness.start_writers()
        assert servers() == ("n0", "n1", "n2")
        harness.layout_servers = layout_servers_wanted(9)
        await harness.settle(adapter)
        assert servers() == ("n0", "n1", "n2", "n3", "n4")
        for _ in range(4):
            harness.crash(servers()[0])
            await harness.settle(adapter)
            assert len(servers()) == 5
            assert set(servers()) <= set(harness.live)
        harness.layout_servers = 3
        for _ in range(2):
            harness.crash(servers()[0])
            await harness.settle(adapter)
            assert len(servers()) == 3
        await harness.stop_writers(writers)
        await harness.check_everything()
        harness.assert_tidy()

    harness.loop.run(story())


def test_two_of_five_may_be_lost_at_once_and_of_three_hosts_that_are_left_all_carry_the_layout() -> None:
    harness = Harness(5, segments=4)
    harness.layout_servers = 5

    async def story() -> None:
        adapter = harness.adapter()
        await harness.settle(adapter)
        await harness.write(10)
        harness.crash("n1", "n3")
        harness.layout_servers = layout_servers_wanted(3)
        await harness.settle(adapter)
        assert set(harness.document.layout.layout_servers) == {"n0", "n2", "n4"}
        await harness.write(10)
        await harness.check_everything()

    harness.loop.run(story())


def test_without_a_majority_it_is_said_who_is_lost_what_is_known_and_what_goes_on() -> None:
    harness = Harness(5, segments=5, copies=2)

    async def story() -> None:
        adapter = harness.adapter()
        seen = await harness.settle(adapter)
        await harness.write(5)
        harness.cluster.crash("n1")
        harness.cluster.crash("n2")
        early = await adapter.observe()
        assert isinstance(early, Unreachable)
        assert early.lost == (), "the view may still have them"
        assert "(silent: n1, n2); retry" in early.reason
        harness.crash()
        adapter.set_hosts(harness.view_epoch, harness.members)
        answer = await adapter.observe()
        assert isinstance(answer, Unreachable)
        assert answer.lost == ("n1", "n2")
        assert "(not in the view: n1, n2). Live hosts serve what they hold" in answer.reason
        assert "`rota layout recover`" in answer.reason
        assert answer.known is not None
        assert answer.known.layout_epoch == seen.layout_epoch
        assert answer.known.roles == seen.roles
        client = harness.client()

        async def append_to_every_segment() -> None:
            for number in range(5):
                await client.append("red", b"%d" % number, timeout=2.0)

        with pytest.raises(LogClientError, match=r"n1, n2 do not answer: .*`rota layout recover`"):
            await append_to_every_segment()
        harness.restart("n1", "n2")
        await harness.settle(adapter)
        await client.append("red", b"goes on")

    harness.loop.run(story())
