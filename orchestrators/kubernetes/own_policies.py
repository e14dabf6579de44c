"""SQL of the user's own beside the pack: the files of a folder, or the entries of a ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgmt import SourceText
from orchestrators.kubernetes.errors import KubernetesError


def of_folder(folder: Path) -> tuple[SourceText, ...]:
    """The ``.sql`` files of a folder, in the order of their names."""
    if not folder.is_dir():
        raise KubernetesError(f"there is no folder {folder}")
    paths = sorted(path for path in folder.iterdir() if path.suffix == ".sql" and path.is_file())
    if not paths:
        raise KubernetesError(f"there is no .sql file in {folder}")
    try:
        return tuple(SourceText(path.name, path.read_text(encoding="utf-8")) for path in paths)
    except (OSError, UnicodeDecodeError) as error:
        raise KubernetesError(f"{folder}: {error}") from error


def of_config_map(config_map: Mapping[str, Any] | None) -> tuple[SourceText, ...]:
    """The ``.sql`` entries of a ConfigMap; of none, nothing."""
    data = {} if config_map is None else config_map.get("data") or {}
    return tuple(SourceText(name, data[name]) for name in sorted(data) if name.endswith(".sql"))
