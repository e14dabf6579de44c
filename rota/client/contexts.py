"""Named contexts: which agent, with which token and authority, in a file of the user's (``rota context``).

The file is TOML, ``rota/contexts.toml`` in the directory for configuration (``XDG_CONFIG_HOME``, ``~/.config``).  It
names the files of tokens; it holds none.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from membership.files import replace_file
from mgmt.source_text import read_text
from rota.access.names import checked_name
from rota.client.target import DEFAULT_URL, Target
from rota.errors import AgentError, UsageProblem

FILES: Final = ("token_file", "ca_file", "certificate")
"""What a target may name besides the address."""
TARGET_OPTIONS: Final = ("api", *FILES, "context")
"""By what a command is told which agent to ask."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """``current``: the name of the one in use, or "" for none."""

    targets: Mapping[str, Target] = field(default_factory=dict)
    current: str = ""

    def get(self, name: str) -> Target:
        """Raises :class:`UsageProblem` where there is none of this name."""
        try:
            return self.targets[name]
        except KeyError:
            known = ", ".join(sorted(self.targets)) or "none"
            raise UsageProblem(
                f"there is no context {name!r}; known: {known}; `rota context set {name} --api URL` makes it"
            ) from None


def contexts_file() -> Path:
    """Where they are kept."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification has relative paths ignored.
    directory = Path(base) if base.startswith("/") else Path.home() / ".config"
    return directory / "rota" / "contexts.toml"


def _local_file() -> Path:
    """Where `rota up` says which agents it has started, for commands that are told of none."""
    return contexts_file().with_name("up")


def remember_local(agents: Sequence[str]) -> bool:
    """These agents of this machine are asked where a command is told nothing; False if that cannot be written down."""
    try:
        _local_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(_local_file(), ",".join(agents).encode(), mode=0o600)
    except OSError:
        return False
    return True


def forget_local() -> None:
    """They are ended."""
    with suppress(OSError):
        _local_file().unlink()


def local_agents() -> list[str]:
    """The agents of the local cluster, and the default address, where one may be that `rota up` has not started."""
    try:
        agents = _local_file().read_text().split(",")
    except (OSError, ValueError):
        agents = []
    return list(dict.fromkeys((*filter(None, agents), DEFAULT_URL)))


def target_of(given: Mapping[str, Any], group: Mapping[str, Any], own: str | None = None) -> Target:
    """From a command's options, those of the group before it, the environment, the contexts.

    ``own``: the agent of this host, for a command that asks none but that; the context in use is not.
    Raises :class:`UsageProblem`.
    """
    asked = {name: given[name] if given[name] is not None else group.get(name) for name in TARGET_OPTIONS}
    files: dict[str, Any] = {name: asked[name] for name in FILES if asked[name] is not None}
    if asked["api"] is None and (asked["context"] or (own is None and "ROTA_API" not in os.environ)):
        contexts = load(contexts_file())
        name = asked["context"] or contexts.current
        if name:
            return replace(contexts.get(name), **files)
    for name in ("token_file", "ca_file"):
        if path := os.environ.get(f"ROTA_{name.upper()}"):
            files.setdefault(name, Path(path))
    return Target(asked["api"] or os.environ.get("ROTA_API") or own or ",".join(local_agents()), **files)


def load(path: Path) -> Contexts:
    """Raises :class:`UsageProblem` for a file that is no good; one that is not there holds none."""
    try:
        raw = tomllib.loads(read_text(path))
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageProblem(f"{path}: not valid TOML: {error}") from error
    try:
        targets = {checked_name(name): _target(entry) for name, entry in raw.get("contexts", {}).items()}
    except (ValueError, AttributeError) as error:
        raise UsageProblem(f"{path}: {error}") from error
    current = raw.get("current", "")
    if current and current not in targets:
        raise UsageProblem(f"{path}: current: there is no context {current!r}")
    return Contexts(targets, current)


def _target(entry: Any) -> Target:
    if not isinstance(entry, dict) or not isinstance(entry.get("api"), str):
        raise ValueError('a context is a table with at least  api = "https://HOST:PORT"')  # noqa: TRY004
    for key, value in entry.items():
        if key not in ("api", *FILES):
            raise ValueError(f"unknown key {key!r}; known: api, {', '.join(FILES)}")
        if not isinstance(value, str):
            raise ValueError(f"{key} is not text")  # noqa: TRY004
    return Target(entry["api"], **{key: Path(entry[key]) for key in FILES if key in entry})


def save(path: Path, contexts: Contexts) -> None:
    """Raises :class:`AgentError`."""
    lines = [f"current = {_quoted(contexts.current)}"] if contexts.current else []
    for name, target in sorted(contexts.targets.items()):
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [f"{key} = {_quoted(value)}" for key, value in described(target).items()]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, "".join(f"{line}\n" for line in lines).encode(), mode=0o600)
    except OSError as error:
        raise AgentError(f"{path}: cannot be written: {error.strerror}") from error


def described(target: Target) -> dict[str, str]:
    """What it says, without what it does not say."""
    files = {key: getattr(target, key) for key in FILES}
    return {"api": target.api, **{key: str(value) for key, value in files.items() if value is not None}}


def _quoted(text: str) -> str:
    """A basic string of TOML, which JSON's are."""
    return json.dumps(text, ensure_ascii=False)
