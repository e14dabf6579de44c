"""The placement that ``rota export`` writes down: what stands or is planned in a cluster, or what a file says.

All of it is answers of agents, read from HTTP or from where somebody kept one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mgmt.source_text import UnreadableTextError, read_text
from rota.client.api_client import ApiClient
from rota.commands.layout.layout import layout_in_force
from rota.errors import AgentError, SettingsError

Document = TypeVar("Document")


@dataclass(frozen=True, slots=True)
class ExportedPlacement:
    """``segments``: by key the hosts of each, the primary first; ``tags``: by host; ``source``: one line for people."""

    segments: Mapping[str, tuple[str, ...]]
    tags: Mapping[str, Mapping[str, str]]
    source: str


class Names(msgspec.Struct, forbid_unknown_fields=True):
    """What segments are called elsewhere, and tags of hosts that they do not have here, or have otherwise."""

    segments: dict[str, str] = msgspec.field(default_factory=dict)
    hosts: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class _Replica(msgspec.Struct):
    host: str
    position: int
    rack: str = ""
    state: str = ""


class _Segment(msgspec.Struct):
    key: str
    replicas: list[_Replica]


class _Layout(msgspec.Struct):
    """As much as is read of what ``rota layout show --json`` prints."""

    segments: list[_Segment]
    layout_epoch: int = -1


def of_plan(client: ApiClient) -> ExportedPlacement:
    """What the cluster holds once the plan that ``rota plan`` shows is done; what stands if there is nothing to do."""
    plan = client.get("/v1/plan")
    if not plan["feasible"]:
        why = plan["solve"]["text"] if plan["solve"] else "nothing was solved yet"
        raise AgentError(f"there is no plan to export: {why}; `--from standing` exports what stands")
    target = {key: tuple(hosts) for key, hosts in plan["target"].items()}
    source = f"what the plan leads to, {len(plan['moves'])} moves from layout epoch {plan['layout_epoch']}"
    return ExportedPlacement(target, _tags_of_members(client), source)


def standing(client: ApiClient) -> ExportedPlacement:
    """What the cluster holds now."""
    layout = msgspec.convert(layout_in_force(client), _Layout)
    return _of_layout(layout, _tags_of_members(client), f"what stands at layout epoch {layout.layout_epoch}")


def of_file(path: Path) -> ExportedPlacement:
    """What ``rota layout show --json`` printed once.  Of the hosts' tags it has the racks.

    Raises :class:`SettingsError`.
    """
    layout = _read(path, _Layout, "`rota layout show --json` prints what is wanted here")
    return _of_layout(layout, {}, f"layout epoch {layout.layout_epoch} as {path} has it")


def read_names(path: Path | None) -> Names:
    """Raises :class:`SettingsError`."""
    if path is None:
        return Names()
    wanted = '{"segments": {"s00": "orders-0"}, "hosts": {"n1": {"broker": "1"}}} is what is wanted here'
    return _read(path, Names, wanted)


def _of_layout(layout: _Layout, tags: Mapping[str, Mapping[str, str]], source: str) -> ExportedPlacement:
    segments: dict[str, tuple[str, ...]] = {}
    racks: dict[str, str] = {}
    for segment in layout.segments:
        if segment.key in segments:
            raise AgentError(f"segment {segment.key!r} is there twice; keep one of them")
        replicas = sorted(segment.replicas, key=lambda replica: replica.position)
        gone = [replica.host for replica in replicas if replica.state == "gone"]
        if gone:
            raise AgentError(
                f"segment {segment.key!r} has a copy on {gone[0]!r}, which is gone; `--from plan` exports where the "
                "copy will be"
            )
        segments[segment.key] = tuple(replica.host for replica in replicas)
        racks |= {replica.host: replica.rack for replica in replicas if replica.rack}
    return ExportedPlacement(
        segments, _merged({host: {"rack": rack} for host, rack in racks.items()}, tags), source
    )


def _tags_of_members(client: ApiClient) -> dict[str, dict[str, str]]:
    members: Sequence[Mapping[str, Any]] = client.get("/v1/members")["members"]
    return {member["name"]: dict(member["tags"]) for member in members}


def with_tags(placement: ExportedPlacement, tags: Mapping[str, Mapping[str, str]]) -> ExportedPlacement:
    """The same; what ``tags`` says of a host counts."""
    return ExportedPlacement(placement.segments, _merged(placement.tags, tags), placement.source)


def _merged(
    first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    return {host: {**first.get(host, {}), **second.get(host, {})} for host in {**first, **second}}


def _read(path: Path, kind: type[Document], wanted: str) -> Document:
    try:
        return msgspec.json.decode(read_text(path), type=kind)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; name a file that can be read") from error
    except UnreadableTextError as error:
        raise SettingsError(f"{path}: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: {str(error).rstrip('.')}; {wanted}") from error
