"""The key ring: the secrets that members share, which of them is in use, and the file they are kept in.

The first key, the primary, seals what this process sends; every key of the ring opens what arrives. So a key can be
changed without a gap: install the new one everywhere, use it everywhere, then remove the old one everywhere. Members
do not agree on keys: an operator runs each step on all members and sees who has done it.
Source: the three steps are those of serf's key ring.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from membership.errors import MembershipError

KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
LARGEST_RING: Final = 16
"""Keys a ring may hold; a rotation needs two."""

_LARGEST_FILE: Final = 1 << 16
_REMOVED_KEPT: Final = 64


class KeyRingError(MembershipError, ValueError):
    """A key, a key file or a change of the ring is not acceptable. The text says what to do; it shows no key."""


class KeyNotInRingError(KeyRingError):
    """The ring holds no key with this id. Install it first, or look at the list."""


class Key(NamedTuple):
    """One shared secret. Its id, 8 hexadecimal digits, names it without telling anything about it."""

    secret: bytes
    id_bytes: bytes

    @property
    def id(self) -> str:
        """The id as shown to people."""
        return self.id_bytes.hex()

    @property
    def text(self) -> str:
        """The key as a line of a key file."""
        return base64.b64encode(self.secret).decode("ascii")

    def __repr__(self) -> str:
        return f"<key {self.id}>"

    @classmethod
    def of(cls, secret: bytes) -> Key:
        """The key with these 32 bytes. Raises KeyRingError."""
        if len(secret) != KEY_BYTES:
            raise KeyRingError(
                f"a key has {KEY_BYTES} bytes, not {len(secret)}; make one with `rota keys generate`"
            )
        if not any(secret):
            raise KeyRingError("a key of zeros is no secret; make one with `rota keys generate`")
        return cls(secret, hashlib.blake2b(secret, digest_size=KEY_ID_BYTES, person=b"rota key id").digest())

    @classmethod
    def generate(cls) -> Key:
        """A new random key."""
        return cls.of(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> Key:
        """The key in one line of base64. Raises KeyRingError, which does not repeat the text."""
        try:
            secret = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise KeyRingError(f"not a key: a key is {KEY_BYTES} bytes in base64") from None
        return cls.of(secret)


class KeyRing:
    """The keys of one process. Changes take effect with the next packet, in both directions.

    `version` grows with every change. Not for several threads at a time.
    """

    def __init__(self, keys: Iterable[Key | bytes]) -> None:
        """The first key is the primary. Raises KeyRingError when there is none, or too many."""
        self.version = 0
        self._keys: dict[bytes, Key] = {}
        self._removed: dict[bytes, None] = {}
        self.replace(keys)

    @classmethod
    def generate(cls) -> KeyRing:
        """A ring with one new random key."""
        return cls([Key.generate()])

    @classmethod
    def from_file(cls, path: Path | str) -> KeyRing:
        """The ring in a key file. Raises KeyRingError naming file and line."""
        return cls(read_key_file(Path(path)))

    @property
    def primary(self) -> Key:
        """The key that seals."""
        return next(iter(self._keys.values()))

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys, the primary first."""
        return tuple(self._keys.values())

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys, the primary's first."""
        return tuple(key.id for key in self._keys.values())

    def by_id(self, id_bytes: bytes) -> Key | None:
        """The key with this id, None when the ring does not hold it."""
        return self._keys.get(id_bytes)

    def was_removed(self, id_bytes: bytes) -> bool:
        """Whether the ring held this key before and gave it up."""
        return id_bytes in self._removed

    def install(self, key: Key) -> bool:
        """Hold this key too; it opens from now on. False when the ring held it already.

        Raises KeyRingError when the ring is full.
        """
        known = self._keys.get(key.id_bytes)
        if known is not None:
            if known != key:
                raise KeyRingError(f"another key has the same id {key.id}: generate a new one")
            return False
        if len(self._keys) >= LARGEST_RING:
            raise KeyRingError(f"a ring holds at most {LARGEST_RING} keys; remove those no longer in use")
        self._keys[key.id_bytes] = key
        self._removed.pop(key.id_bytes, None)
        self.version += 1
        return True

    def use(self, key_id: str) -> bool:
        """Seal with this key from now on. False when it is the primary already. Raises KeyNotInRingError."""
        key = self._find(key_id)
        if key == self.primary:
            return False
        others = [other for other in self._keys.values() if other != key]
        self._keys = {each.id_bytes: each for each in (key, *others)}
        self.version += 1
        return True

    def remove(self, key_id: str) -> bool:
        """Neither open nor seal with this key any more. False when the ring does not hold it.

        Raises KeyRingError for the primary, which must be replaced first.
        """
        try:
            key = self._find(key_id)
        except KeyNotInRingError:
            return False
        if key == self.primary:
            raise KeyRingError(f"{key.id} is the key in use; use another one first, then remove it")
        self._forget(key)
        self.version += 1
        return True

    def replace(self, keys: Iterable[Key | bytes]) -> bool:
        """Hold exactly these keys, the first as the primary. False when nothing changes. Raises KeyRingError."""
        wanted = [key if isinstance(key, Key) else Key.of(key) for key in keys]
        ring = {key.id_bytes: key for key in wanted}
        if not ring:
            raise KeyRingError("a key ring needs at least one key; make one with `rota keys generate`")
        if len(ring) > LARGEST_RING:
            raise KeyRingError(f"a ring holds at most {LARGEST_RING} keys, not {len(ring)}")
        if len(ring) < len(set(wanted)):
            raise KeyRingError("two different keys have the same id: generate new ones")
        if list(ring.values()) == list(self._keys.values()):
            return False
        for key in list(self._keys.values()):
            if key.id_bytes not in ring:
                self._forget(key)
        for id_bytes in ring:
            self._removed.pop(id_bytes, None)
        self._keys = ring
        self.version += 1
        return True

    def _find(self, key_id: str) -> Key:
        for key in self._keys.values():
            if key.id == key_id.strip().lower():
                return key
        raise KeyNotInRingError(f"no key {key_id} in the ring, which holds {', '.join(self.ids)}")

    def _forget(self, key: Key) -> None:
        del self._keys[key.id_bytes]
        self._removed[key.id_bytes] = None
        if len(self._removed) > _REMOVED_KEPT:
            del self._removed[next(iter(self._removed))]


def read_key_file(path: Path) -> list[Key]:
    """The keys of a file: one in base64 a line, the first is the primary; empty lines and # remarks are skipped.

    The file must be readable by its owner alone. Raises KeyRingError naming file and line, and never the text.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise KeyRingError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not stat.S_ISREG(mode):
        raise KeyRingError(f"{path}: not a file")
    if mode & 0o077:
        raise KeyRingError(
            f"{path}: others than its owner can reach this file (mode {stat.S_IMODE(mode):04o}); chmod 600 it"
        )
    if len(raw) > _LARGEST_FILE:
        raise KeyRingError(f"{path}: too long for a key file")
    keys: list[Key] = []
    for number, line in enumerate(raw.decode("utf-8-sig", "replace").split("\n"), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            keys.append(Key.parse(text))
        except KeyRingError as error:
            raise KeyRingError(f"{path}:{number}: {error}") from None
    if not keys:
        raise KeyRingError(f"{path}: there is no key in it; make one with `rota keys generate`")
    return keys


def write_key_file(path: Path, keys: Iterable[Key], *, overwrite: bool = True) -> None:
    """Write a key file that only its owner can read; a reader sees the old or the new one, never half of it.

    Raises KeyRingError, also when the file is there and may not be overwritten.
    """
    text = "".join(f"{key.text}\n" for key in keys).encode("ascii")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                temporary.replace(path)
            else:
                os.link(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except FileExistsError:
        raise KeyRingError(f"{path}: is there already; choose another name") from None
    except OSError as error:
        raise KeyRingError(f"{path}: cannot be written: {error.strerror or error}") from None
