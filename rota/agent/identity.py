"""Which cluster a data directory belongs to, on disk, so that no agent ever serves it to another one.

An agent that founded or joined a cluster remembers its id.  A founder that finds a remembered id does not
found a second cluster over the first one's data: it says so and asks for a seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from membership.files import replace_file
from rota.errors import SettingsError
from rota.version import VERSION

FILE = "agent.json"
FORMAT = 1
"""Of everything in the data directory.  Higher with each change that makes a file unreadable, or misread, before it."""


@dataclass(frozen=True, slots=True)
class Identity:
    cluster_id: bytes
    name: str


def check_format(data_dir: Path) -> None:
    """Refuse what a later version wrote, before anything of it is taken for damage.  Raises :class:`SettingsError`."""
    try:
        raw = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
        found, version = int(raw.get("format", 1)), str(raw.get("version", "later"))
    except (OSError, ValueError, TypeError, AttributeError):
        return  # none, or `load` says what is wrong with it
    if found > FORMAT:
        raise SettingsError(
            f"{data_dir} was written by rota {version:.20}, in format {found}, and this rota {VERSION} reads {FORMAT}; "
            "upgrade this one, or start empty with another --data-dir: the others have the data"
        )


def load(data_dir: Path) -> Identity | None:
    """What ``data_dir`` remembers; None for a fresh one.  Raises :class:`SettingsError` when it is unreadable."""
    path = data_dir / FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        identity = Identity(bytes.fromhex(raw["cluster_id"]), str(raw["name"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{path}: unreadable ({error}); restore it, or remove {data_dir} to start empty"
        ) from error
    if len(identity.cluster_id) != 16:
        raise SettingsError(
            f"{path}: cluster_id is not 16 bytes; restore it, or remove {data_dir} to start empty"
        )
    return identity


def is_sound(data_dir: Path) -> bool:
    """Whether what ``data_dir`` remembers can be read, if there is anything."""
    try:
        load(data_dir)
    except SettingsError:
        return False
    return True


def save(data_dir: Path, identity: Identity) -> None:
    """Durable before it returns: file and directory are synced."""
    record = {
        "cluster_id": identity.cluster_id.hex(),
        "name": identity.name,
        "format": FORMAT,
        "version": VERSION,
    }
    replace_file(data_dir / FILE, json.dumps(record).encode())


def check(remembered: Identity | None, *, name: str, founding: bool, data_dir: Path) -> None:
    """Refuse what would mix two clusters or two hosts.  Raises :class:`SettingsError` saying what to do."""
    if remembered is None:
        return
    if remembered.name != name:
        raise SettingsError(
            f"{data_dir} belongs to host {remembered.name!r}, not {name!r}; give --name {remembered.name} "
            "or another --data-dir"
        )
    if founding:
        raise SettingsError(
            f"{data_dir} already belongs to cluster {remembered.cluster_id.hex()[:8]}; founding another over it "
            "would lose its data: give --seed with a live member to rejoin, or another --data-dir"
        )
