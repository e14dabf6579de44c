"""What all messages are, and what those of members begin with.

All are one-way; an answer is another message. Every message of a member carries its incarnation, epoch and
configuration id, so that a receiver knows who is behind; the frequent ones carry the first bytes of both ids.
"""

import msgspec

from membership.protocol.messages.fields import Epoch, ShortIdentifier
from membership.protocol.view.configuration import Identifier
from membership.protocol.view.member import Incarnation


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=True):
    """Base of all messages."""


class MemberMessage(Message, frozen=True, gc=False):
    """A message of a member: who says it, and in which configuration."""

    sender: Incarnation
    epoch: Epoch
    configuration_id: Identifier


class ShortMessage(MemberMessage, frozen=True, gc=False):
    """A frequent message of a member: it names sender and configuration by the first eight bytes of their ids."""

    sender: ShortIdentifier
    configuration_id: ShortIdentifier
