"""What a local cluster was, kept in its folder, so that ``rota up --dir`` starts the same one again.

The agents must come back at the addresses they had: the others find them by these.  What the agents themselves
remember is in their own folders; this is only how they were started.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from membership import Address, AddressError
from membership.files import replace_file
from rota.errors import LocalClusterError

FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one agent listens: for other agents, and for HTTP."""

    address: Address
    api: Address


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """``places``: by name of the agent, in the order in which they were started."""

    racks: int
    places: dict[str, Place]
    store: str = "log"

    def save(self, directory: Path) -> None:
        """Durable on return.  Raises :class:`LocalClusterError`."""
        agents = {
            name: {"address": str(place.address), "api": str(place.api)}
            for name, place in self.places.items()
        }
        document = json.dumps({"racks": self.racks, "store": self.store, "agents": agents}, indent=2)
        try:
            replace_file(directory / FILE, document.encode())
        except OSError as error:
            raise LocalClusterError(f"{directory / FILE}: {error.strerror}; name another folder") from error


def load(directory: Path) -> ClusterFile | None:
    """What ``directory`` holds; None if no cluster was started there.  Raises :class:`LocalClusterError`."""
    path = directory / FILE
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        places = {
            str(name): Place(Address.parse(entry["address"]), Address.parse(entry["api"]))
            for name, entry in raw["agents"].items()
        }
        return ClusterFile(int(raw["racks"]), places, str(raw.get("store", "log")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AddressError) as error:
        raise LocalClusterError(
            f"{path}: unreadable ({error}); restore it, or name another folder"
        ) from error
