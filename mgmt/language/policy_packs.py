"""Policy packs: schema and rules in SQL files, found by name; and policies given as texts.

A pack is a folder of the top-level ``policies`` package: ``schema.sql``, one or more other ``.sql`` files with
the rules, a README that says what each rule means, and in ``tests`` what the rules are tested with.  Packs are data;
this module only finds and reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import TypeAlias

from mgmt.errors import PolicyError
from mgmt.source_text import SourceText


@dataclass(frozen=True, slots=True)
class PolicyPack:
    """A schema and the texts of the rules, in the order of their file names."""

    name: str
    schema: str
    policies: tuple[SourceText, ...]
    readme: str = ""
    tests: tuple[SourceText, ...] = ()


# A text, a named text (also as a pair of name and text), a pack, or several of them.
Policy: TypeAlias = str | tuple[str, str] | SourceText | PolicyPack


def texts_of(policies: Policy | Iterable[Policy]) -> tuple[SourceText, ...]:
    """The texts of all of them, each with a name."""
    items: list[Policy]
    if isinstance(policies, (str, SourceText, PolicyPack)):
        items = [policies]
    else:
        items = [item for item in policies if isinstance(item, (str, tuple, SourceText, PolicyPack))]
    texts: list[SourceText] = []
    for item in items:
        if isinstance(item, PolicyPack):
            texts.extend(item.policies)
        elif isinstance(item, SourceText):
            texts.append(item)
        elif isinstance(item, tuple):
            texts.append(SourceText(*item))
        else:
            texts.append(SourceText("policy" if len(items) == 1 else f"policy {len(texts) + 1}", item))
    return tuple(texts)


def pack_names() -> tuple[str, ...]:
    """The packs that are installed."""
    folder = files("policies")
    return tuple(
        sorted(
            entry.name for entry in folder.iterdir() if entry.is_dir() and (entry / "schema.sql").is_file()
        )
    )


def load_pack(name: str) -> PolicyPack:
    """Read a pack.  PolicyError when there is none of that name."""
    names = pack_names()
    if name not in names:
        raise PolicyError(f"no policy pack {name!r}", hint=f"installed: {', '.join(names) or 'none'}")
    folder = files("policies") / name
    texts = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql") and entry.name != "schema.sql"),
        key=lambda entry: entry.name,
    )
    readme = folder / "README.md"
    cases = folder / "tests"
    tests = sorted(
        (entry for entry in cases.iterdir() if entry.name.endswith(".sql")) if cases.is_dir() else (),
        key=lambda entry: entry.name,
    )
    return PolicyPack(
        name,
        (folder / "schema.sql").read_text(encoding="utf-8"),
        tuple(SourceText(f"{name}/{entry.name}", entry.read_text(encoding="utf-8")) for entry in texts),
        readme.read_text(encoding="utf-8") if readme.is_file() else "",
        tuple(SourceText(f"{name}/tests/{entry.name}", entry.read_text(encoding="utf-8")) for entry in tests),
    )
