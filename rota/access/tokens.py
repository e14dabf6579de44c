"""Tokens: who has which role, and the file that says so.

The file holds no token but its SHA-256, one line each: ``NAME ROLE sha256:HEX``.  A token is 32 random bytes, so it
cannot be guessed from its hash, and a slow hash for passwords would protect nothing more.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from membership.files import replace_file
from mgmt.source_text import UnreadableTextError, decoded
from rota.access.names import checked_name
from rota.access.roles import ROLES
from rota.errors import AgentError

PREFIX: Final = "rota_"
"""Of every token, so that scanners for secrets find one that was published by mistake."""
LARGEST_FILE: Final = 1 << 20
LONGEST_TOKEN: Final = 256
_RANDOM_BYTES: Final = 32


class TokenError(AgentError):
    """A tokens file, or a change of one, is no good.  Says which file and line, and never a token."""


@dataclass(frozen=True, slots=True)
class Token:
    """One holder of a token."""

    name: str
    role: str
    digest: bytes


class Tokens:
    """All tokens that are accepted."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = tuple(tokens)

    def __iter__(self) -> Iterator[Token]:
        return iter(self._tokens)

    def find(self, text: str) -> Token | None:
        """Whose token this is.  The time it takes tells nothing of how much was right."""
        return self.with_digest(digest_of(text))

    def with_digest(self, digest: bytes) -> Token | None:
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The holders in a tokens file.  Raises :class:`TokenError`."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise TokenError(
            f"{path}: cannot be read: {error.strerror}; `rota tokens add NAME --role operate` makes it"
        ) from None
    if not stat.S_ISREG(mode):
        raise TokenError(f"{path}: not a file")
    if mode & 0o022:
        raise TokenError(
            f"{path}: others than its owner can change this file (mode {stat.S_IMODE(mode):04o}); chmod 600 it"
        )
    if len(raw) > LARGEST_FILE:
        raise TokenError(f"{path}: too long for a tokens file")
    try:
        return parse_tokens(decoded(raw), str(path))
    except UnreadableTextError as error:
        raise TokenError(f"{path}: {error}") from None


def parse_tokens(text: str, origin: str) -> tuple[Token, ...]:
    """Empty lines and lines that start with ``#`` are skipped.  Raises :class:`TokenError`."""
    tokens: dict[str, Token] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        try:
            token = _parse(fields)
            if token.name in tokens:
                raise ValueError(f"{token.name} is there already")
        except ValueError as error:
            raise TokenError(f"{origin}:{number}: {error}") from None
        tokens[token.name] = token
    return tuple(tokens.values())


def _parse(fields: list[str]) -> Token:
    if len(fields) != 3 or not fields[2].startswith("sha256:"):
        raise ValueError("a line is NAME ROLE sha256:HEX; `rota tokens add` writes it")
    name, role, digest = fields
    checked_name(name)
    if role not in ROLES:
        raise ValueError(f"{role[:40]!r} is not a role; choose {' or '.join(ROLES)}")
    try:
        raw = bytes.fromhex(digest.removeprefix("sha256:"))
    except ValueError:
        raw = b""
    if len(raw) != hashlib.sha256().digest_size:
        raise ValueError("what follows sha256: is no SHA-256 in hexadecimal")
    return Token(name, role, raw)


def write_tokens(path: Path, tokens: Iterable[Token]) -> None:
    """Replace the file as a whole; only its owner can read it.  Raises :class:`TokenError`."""
    lines = ["# NAME ROLE HASH, written by `rota tokens`; agents read it when they start and on SIGHUP"]
    lines += [f"{token.name} {token.role} sha256:{token.digest.hex()}" for token in tokens]
    try:
        replace_file(path, "".join(f"{line}\n" for line in lines).encode(), mode=0o600)
    except OSError as error:
        raise TokenError(f"{path}: cannot be written: {error.strerror}") from error
