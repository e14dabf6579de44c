"""Prefixes of ids: frequent messages name sender and configuration by their first bytes; here they get the whole ids.

An unknown prefix is left as it is: it is a stranger's.
"""

from collections.abc import Iterable

import msgspec

from membership.protocol.messages import ShortMessage
from membership.protocol.view.configuration import Configuration


def with_whole_ids(
    message: ShortMessage, view: Configuration | None, voters: Iterable[bytes]
) -> ShortMessage:
    """The same message with whole ids, as far as they belong to this view or to these voters (incarnations)."""
    sender, identifier = message.sender, message.configuration_id
    index = None if view is None else view.index_of_sender(sender)
    if view is not None and index is not None:
        sender = view.members[index].incarnation
    else:
        sender = next((voter for voter in voters if voter.startswith(sender)), sender)
    if view is not None and view.is_named(identifier):
        identifier = view.id
    return msgspec.structs.replace(message, sender=sender, configuration_id=identifier)
