"""Helping members that are behind. See `membership.protocol.dissemination.catch_up`."""

from __future__ import annotations

from membership.protocol.dissemination.catch_up import CatchUp
from membership.protocol.messages import EMPTY_DIGEST, Decided, Gossip
from membership.protocol.view.cut import Cut, Removal


def test_what_crossed_the_news_of_a_decision_is_not_answered(lab) -> None:
    """Half of a view change's small messages would be answers to members that are about to know anyway."""
    view = lab.configuration(8)
    context = lab.context(view)
    catch_up = CatchUp(context)
    catch_up.on_first_view(0)
    cut = Cut.of([], [Removal(view.members[7].incarnation)])
    catch_up.remember(view.id, view.epoch, cut, 10.0)
    context.install(view.apply(cut))
    peer = view.members[3]
    behind = Gossip(peer.incarnation[:8], view.epoch, view.short_id, EMPTY_DIGEST)
    catch_up.help(behind, peer.address, 10.02)
    assert not context.take_effects(0.0).sends
    catch_up.help(behind, peer.address, 10.2)
    (send,) = context.take_effects(0.0).sends
    assert isinstance(send.message, Decided)
    assert send.destinations == (peer.address,)
    catch_up.help(behind, peer.address, 10.25)
    assert not context.take_effects(0.0).sends, "at most once in a while"
