"""A member: one process of the cluster, as the view lists it.

An immutable record: name, address, metadata, and an incarnation, which makes two runs of the same program two
different members.
Source: Rapid, section 3, where it is the pair (host:port, unique id).
"""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from membership.address import Address
from membership.errors import MembershipError

INCARNATION_BYTES = 16
SHORT_BYTES = 8
"""Of an incarnation or a configuration id: by so many first bytes the frequent messages name it."""
RECORD_LIMIT = 1000
"""Bytes a member's record may take on the wire, so that a join alert always fits one datagram."""

Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
Host = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class MemberError(MembershipError, ValueError):
    """Raised when a member's record cannot be used. The message says which part to change."""


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One process: user-chosen name, address, 16 random bytes per process start, sorted metadata pairs."""

    name: Name
    host: Host
    port: Port
    incarnation: Incarnation
    metadata: tuple[tuple[str, str], ...] = ()

    @classmethod
    def create(
        cls,
        name: str,
        address: Address,
        incarnation: bytes,
        metadata: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> "Member":
        """Build a checked member; metadata is put into its canonical order."""
        member = cls(name, address.host, address.port, incarnation, metadata_pairs(metadata))
        check_member(member)
        return member

    @property
    def address(self) -> Address:
        """Where this member receives datagrams and streams."""
        return Address(self.host, self.port)

    @property
    def attributes(self) -> dict[str, str]:
        """The metadata as a dict."""
        return dict(self.metadata)

    @property
    def claims(self) -> set[str | Address | bytes]:
        """What no two members of a view may have in common: name, address, what frequent messages name it by."""
        return {self.name, self.address, self.incarnation[:SHORT_BYTES]}

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def is_valid(member: Member) -> bool:
    """Whether `check_member` accepts this record."""
    try:
        check_member(member)
    except MemberError:
        return False
    return True


def metadata_pairs(metadata: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Metadata in its canonical order. Raises MemberError for what is no text, which others could not read."""
    pairs = dict(metadata).items()
    for pair in pairs:
        if not all(isinstance(part, str) and _is_unicode(part) for part in pair):
            raise MemberError(
                f"metadata is text by text, not {pair[0]!r}: {pair[1]!r}; write numbers as text"
            )
    return tuple(sorted(pairs))


def _is_unicode(text: str) -> bool:
    """Without lone surrogates, which have no encoding."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_member(member: Member) -> None:
    """Refuse a record that others would refuse, before it is sent. Raises MemberError."""
    if not member.name or len(member.name) > 255 or not member.name.isprintable():
        raise MemberError(f"a member's name is 1 to 255 printable characters, not {member.name[:40]!r}")
    if len(member.incarnation) != INCARNATION_BYTES:
        raise MemberError(
            f"an incarnation is {INCARNATION_BYTES} random bytes, not {len(member.incarnation)}"
        )
    if list(member.metadata) != sorted(dict(member.metadata).items()):
        raise MemberError("metadata must be sorted pairs with unique keys: use Member.create")
    size = len(msgspec.msgpack.encode(member))
    if size > RECORD_LIMIT:
        raise MemberError(
            f"the record of {member.name[:40]!r} takes {size} bytes, at most {RECORD_LIMIT} fit a datagram: "
            "shorten its metadata"
        )
