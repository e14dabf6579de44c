"""Handing out addresses, and making a sequencer that does."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from datastore_adapter.log.messages.base import Message
from datastore_adapter.log.messages.fields import TOKENS_LIMIT, Address, DiskId, Epoch, Pointers, StreamName


class TakeTokens(Message, frozen=True, tag=20):
    """The next addresses for so many records of each stream; without streams only the tail is told."""

    epoch: Epoch
    streams: tuple[tuple[StreamName, Annotated[int, msgspec.Meta(ge=1, le=TOKENS_LIMIT)]], ...] = ()


class LastAddresses(Message, frozen=True, tag=21):
    """The latest addresses handed out for `stream`."""

    epoch: Epoch
    stream: StreamName


class BeginBootstrap(Message, frozen=True, tag=22):
    """Prepare to become the sequencer of `epoch`, with no stream known yet."""

    epoch: Epoch
    session: Address
    """Random; tells concurrent bootstraps apart, so that none is finished with half of another's streams."""
    tail: Address


class AddStreamTails(Message, frozen=True, tag=23):
    """Part of a bootstrap: what the log units know of some streams."""

    epoch: Epoch
    session: Address
    streams: tuple[tuple[StreamName, Pointers], ...]


class FinishBootstrap(Message, frozen=True, tag=24):
    """Start handing out tokens of `epoch`."""

    epoch: Epoch
    session: Address


class SealTokens(Message, frozen=True, tag=25):
    """Hand out no more tokens of `epoch` and below from now on, and tell the tail."""

    epoch: Epoch


class Tokens(Message, frozen=True, tag=20):
    """Consecutive addresses, in order of the streams asked for."""

    first: Address
    """The tail, if nothing was asked for."""
    previous: tuple[Pointers, ...] = ()
    """For each stream, the addresses handed out before, latest first."""


class Addresses(Message, frozen=True, tag=21):
    tail: Address
    addresses: Pointers


class TokensSealed(Message, frozen=True, tag=25):
    tail: Address
    """One above the highest address ever handed out in the epoch; 0: none was."""
    disk: DiskId = b""


Requests: TypeAlias = (
    TakeTokens | LastAddresses | BeginBootstrap | AddStreamTails | FinishBootstrap | SealTokens
)
Replies: TypeAlias = Tokens | Addresses | TokensSealed
