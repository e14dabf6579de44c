"""The table ``[control]`` of the configuration file: how much may move at once, how fast, and when it has to wait.

Each key is a field of ``mgmt``'s settings, whose docstring has its trade-off; ``docs/operations/limits.md`` has the
table for people.  Every manager reads its own file, and the controller's is in force: give all managers the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mgmt.control.settings import ControlSettings

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """Where a key goes, and what it has to be."""

    part: str
    """Of `ControlSettings`."""
    field: str
    convert: Convert


def known_keys(whole: Convert, seconds: Convert, rate: Convert) -> Mapping[str, Key]:
    """The keys by name; the converters raise ValueError."""
    return {
        "moves_per_host": Key("waves", "moves_per_host", whole),
        "moves_per_rack": Key("waves", "moves_per_rack", whole),
        "moves_per_cluster": Key("waves", "moves_per_cluster", whole),
        "transfers": Key("limits", "transfers", whole),
        "transfers_per_host": Key("limits", "transfers_per_host", whole),
        "bytes_per_second": Key("limits", "bytes_per_second", rate),
        "freeze_first": Key("freezes", "first", seconds),
        "freeze_longest": Key("freezes", "longest", seconds),
        "freeze_window": Key("freezes", "window", seconds),
        "repairs_wait": Key("freezes", "repairs_wait", seconds),
        "min_gain": Key("hysteresis", "min_gain", whole),
        "cooldown": Key("hysteresis", "cooldown", seconds),
    }


def read_table(value: Any, keys: Mapping[str, Key]) -> ControlSettings:
    """The control loop's settings with these.  Raises ValueError naming the key at fault."""
    if not isinstance(value, Mapping):
        raise ValueError("control is a table, for example  [control]  moves_per_host = 8")  # noqa: TRY004
    table = ControlSettings()
    for name, given in value.items():
        key = keys.get(name)
        if key is None:
            near = difflib.get_close_matches(name, keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(keys))}"
            raise ValueError(f"{name}: unknown key; {hint}")
        try:
            part = replace(getattr(table, key.part), **{key.field: key.convert(given)})
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        table = replace(table, **{key.part: part})
    _check(table)
    return table


def _check(table: ControlSettings) -> None:
    """What one key alone cannot tell."""
    waves, limits, freezes = table.waves, table.limits, table.freezes
    pairs: Final = (
        ("moves_per_rack", waves.moves_per_rack, "moves_per_host", waves.moves_per_host),
        ("moves_per_cluster", waves.moves_per_cluster, "moves_per_rack", waves.moves_per_rack),
        ("transfers", limits.transfers, "transfers_per_host", limits.transfers_per_host),
        ("freeze_longest", freezes.longest, "freeze_first", freezes.first),
    )
    for larger, most, smaller, least in pairs:
        if most < least:
            raise ValueError(f"{larger}: {most:g} is less than {smaller}, {least:g}; make it at least that")
