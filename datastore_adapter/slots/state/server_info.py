"""What one server says of itself: the answer to INFO, as far as it matters here.

Source: Redis documentation, INFO ("Notes" on each section).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datastore_adapter.slots.errors import MalformedReplyError

LARGEST_INFO = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One answer."""

    is_cluster: bool
    software: str
    """``valkey`` or ``redis``."""
    version: tuple[int, int]
    run_id: str
    """Another one after each start of the process."""
    is_primary: bool
    replication_id: str
    """Of the history of writes that it has; a replica has its primary's once it has synchronized."""
    offset: int
    """How many bytes of that history it has."""
    link_up: bool
    """A replica: it follows its primary now."""
    is_syncing: bool
    """A replica: it fetches everything."""
    sync_left: int
    """Bytes that are still to come, in that case."""
    is_loading: bool
    memory: int
    """Bytes that its data takes."""
    operations: float
    """Per second, lately."""
    keys: int


@dataclass(frozen=True, slots=True)
class Persistence:
    """What is on its disk."""

    has_log: bool
    """It loads the log of its commands (AOF) when it starts, and no snapshot."""
    is_writing: bool
    """It writes what it loads anew, or is about to."""
    is_written: bool
    """The last time that it did so it succeeded."""


def parse_persistence(answer: object) -> Persistence:
    """From INFO persistence.  Raises :class:`MalformedReplyError`."""
    fields = _fields(answer)
    has_log = fields.get("aof_enabled") == "1"
    if has_log:
        writing, status = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"], "aof_last_bgrewrite_status"
    else:
        writing, status = ["rdb_bgsave_in_progress"], "rdb_last_bgsave_status"
    return Persistence(
        has_log,
        is_writing=any(fields.get(name) == "1" for name in writing),
        is_written=fields.get(status) == "ok",
    )


def parse_info(answer: object) -> ServerInfo:
    """Raises :class:`MalformedReplyError`."""
    fields = _fields(answer)
    is_primary = fields.get("role") in {"master", "primary"}
    offset = "master_repl_offset" if is_primary else "slave_repl_offset"
    is_valkey = fields.get("server_name") == "valkey" or "valkey_version" in fields
    return ServerInfo(
        is_cluster=fields.get("redis_mode", fields.get("server_mode")) == "cluster"
        or fields.get("cluster_enabled") == "1",
        software="valkey" if is_valkey else "redis",
        version=_version(fields.get("valkey_version") or fields.get("redis_version", "")),
        run_id=fields.get("run_id", ""),
        is_primary=is_primary,
        replication_id=fields.get("master_replid", ""),
        offset=_number(fields, offset),
        link_up=not is_primary and fields.get("master_link_status") == "up",
        is_syncing=fields.get("master_sync_in_progress") == "1",
        sync_left=max(0, _number(fields, "master_sync_left_bytes")),
        is_loading=fields.get("loading") == "1",
        memory=_number(fields, "used_memory_dataset"),
        operations=float(_number(fields, "instantaneous_ops_per_sec")),
        keys=_keys(fields),
    )


def _fields(answer: object) -> Mapping[str, str]:
    if not isinstance(answer, bytes) or len(answer) > LARGEST_INFO:
        raise MalformedReplyError("the answer to INFO is no text, or too long")
    fields: dict[str, str] = {}
    for line in answer.decode("utf-8", "replace").split("\n"):
        name, separator, value = line.partition(":")
        if separator:
            fields[name] = value.strip()
    return fields


def _number(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "0")
    try:
        return int(text)
    except ValueError:
        raise MalformedReplyError(f"INFO: {name} is {text[:20]!r}, no number") from None


def _version(text: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() for part in parts[:2]):
        raise MalformedReplyError(f"INFO: {text[:20]!r} is no version")
    return int(parts[0]), int(parts[1])


def _keys(fields: Mapping[str, str]) -> int:
    """``db0:keys=3,expires=0,...``: a cluster has one database, or a few."""
    total = 0
    for name, value in fields.items():
        if name.startswith("db") and name[2:].isdigit():
            first = value.partition(",")[0].removeprefix("keys=")
            total += int(first) if first.isascii() and first.isdigit() else 0
    return total
