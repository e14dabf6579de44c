"""SET statements: ``SET move_budget = 20``, ``SET min_gain = 5`` and ``SET cooldown = 60``, for a whole database.

``move_budget`` bounds how many values may change from what they are today.  ``min_gain`` is the least improvement, of
the first tier of objectives that differs, for which anything is changed at all while nothing is broken.  ``cooldown``
is for how many seconds after a plan has moved rows nothing is changed while nothing is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from math import inf

from sqlglot.tokenizer_core import Token

from mgmt.errors import DuplicateNameError, PolicySyntaxError
from mgmt.source_text import Position, SourceText
from mgmt.sql.tokens import split_statements
from mgmt.state.schema import Schema, quote

MOVE_BUDGET = "move_budget"
"""The setting, and the constraint it becomes."""
_NAMES = (MOVE_BUDGET, "min_gain", "cooldown")
_GREATEST = 10**15
_WORD = re.compile(r"\bset\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: int
    position: Position


@dataclass(frozen=True, slots=True)
class Settings:
    """None where nothing is set."""

    move_budget: Setting | None = None
    min_gain: Setting | None = None
    cooldown: Setting | None = None

    @property
    def may_keep_today(self) -> bool:
        """Whether things may be left as they are although something better is known."""
        return self.min_gain is not None or self.cooldown is not None

    def least_gain(self, moved_at: float | None, now: float) -> float | None:
        """What has to be gained for anything to be changed while nothing is broken; None where nothing is set.

        ``moved_at``: when a plan last moved rows, in Unix seconds.  A clock that was set back delays nothing.
        """
        if self.cooldown is not None and moved_at is not None and 0 <= now - moved_at < self.cooldown.value:
            return inf
        return None if self.min_gain is None else self.min_gain.value

    def why_held(self, moved_at: float | None, now: float) -> str:
        """What keeps things as they are although something better is known, and until when; for people."""
        if self.cooldown is not None and self.least_gain(moved_at, now) == inf and moved_at is not None:
            until = datetime.fromtimestamp(moved_at + self.cooldown.value, UTC).isoformat(" ", "seconds")
            return f"by SET cooldown = {self.cooldown.value} until {until}"
        least = "" if self.min_gain is None else f" = {self.min_gain.value}"
        return f"by SET min_gain{least}, until more is to be gained"

    def joined(self, others: Settings) -> Settings:
        """Both together; each may be set once."""
        found: dict[str, Setting] = {}
        for settings in (self, others):
            for field in fields(settings):
                setting: Setting | None = getattr(settings, field.name)
                if setting is not None:
                    _note(setting, found)
        return Settings(**found)


def is_setting(tokens: Sequence[Token]) -> bool:
    """Whether these tokens are a SET statement."""
    return bool(tokens) and tokens[0].text.upper() == "SET"


def parse_settings(sources: Iterable[SourceText]) -> Settings:
    """The SET statements of several texts; each may be set once."""
    found: dict[str, Setting] = {}
    for source in sources:
        if _WORD.search(source.text) is None:
            continue  # most texts have none, and tokens take time
        for tokens in split_statements(source):
            if is_setting(tokens):
                _note(_parse_setting(tokens, source), found)
    return Settings(**found)


def _note(setting: Setting, found: dict[str, Setting]) -> None:
    if setting.name in found:
        raise DuplicateNameError(
            f"{setting.name} is set twice", position=setting.position, hint="leave out one of the two"
        )
    found[setting.name] = setting


def _parse_setting(tokens: Sequence[Token], source: SourceText) -> Setting:
    position = source.position(tokens[0].start)
    words = [token.text for token in tokens]
    name = words[1].lower() if len(words) > 1 else ""
    if name not in _NAMES:
        raise PolicySyntaxError(
            f"there is no setting {name!r}",
            position=source.position(tokens[min(1, len(tokens) - 1)].start),
            hint=f"settings are {', '.join(_NAMES)}",
        )
    rest = words[3:] if len(words) > 3 and words[2].upper() in {"=", "TO"} else []
    if len(rest) != 1 or not rest[0].isdecimal() or len(rest[0]) > len(str(_GREATEST)):
        raise PolicySyntaxError(
            f"SET {name} takes a whole number: SET {name} = 20",
            position=position,
            hint=f"write digits, at most {len(str(_GREATEST))} of them, and nothing after",
        )
    return Setting(name, int(rest[0]), position)


def move_budget_sql(schema: Schema, budget: int) -> str | None:
    """The budget as a constraint in the policy language; None when no variable has a value of today."""
    counts = []
    for table in schema.tables:
        moved = [
            f"count(*) FILTER (WHERE {quote(column.current)} IS NOT NULL AND "
            f"{quote(column.name)} IS DISTINCT FROM {quote(column.current)})"
            for column in table.variables
            if column.current is not None
        ]
        if moved:
            counts.append((table.name, " + ".join(moved)))
    if not counts:
        return None
    if len(counts) == 1:
        ((table_name, text),) = counts
        return f"SELECT 1 AS moves FROM {quote(table_name)} CHECK {text} <= {budget}"
    total = " + ".join(f"(SELECT {text} FROM {quote(table_name)})" for table_name, text in counts)
    return f"SELECT 1 AS moves CHECK {total} <= {budget}"
