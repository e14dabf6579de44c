"""Members of texts that hold JSON: what PostgreSQL's ``->`` and ``->>`` give of a jsonb.

SQLite has operators of these names, which call numbers numbers where PostgreSQL has texts, and write what they find
otherwise; so it calls the functions that stand here.  What PostgreSQL does instead is
``mgmt.state.postgres.json_texts``.

What it is not: it reads no tree (see ``mgmt.language.json_operators``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import apsw

from mgmt.errors import DataError
from mgmt.state import own_functions
from mgmt.state.exact_integers import PREFIX
from mgmt.state.own_functions import OwnFunction
from mgmt.state.schema import SqlType

MEMBER, MEMBER_TEXT = f"{PREFIX}json_member", f"{PREFIX}json_member_text"
ELEMENT, ELEMENT_TEXT = f"{PREFIX}json_element", f"{PREFIX}json_element_text"
"""By name, and by place from 0 on (from the end below 0); as JSON, and as a text."""
MEMBERS, PAIRS, ELEMENTS = f"{PREFIX}json_members", f"{PREFIX}json_pairs", f"{PREFIX}json_elements"
"""What an object or an array has in it, what an object has, and an array: as an object of texts, by name or place."""
_MISSING = object()
_LARGEST_POWER, _SMALLEST_POWER = 131_071, -16_383
"""Of ten, that PostgreSQL's numbers reach."""
_SHORT = 10_000
"""Characters of what is worth to be remembered."""


def _number(written: str) -> Decimal:
    value = Decimal(written)
    if value.adjusted() > _LARGEST_POWER or int(value.as_tuple().exponent) < _SMALLEST_POWER:
        raise ValueError(f"{written[:20]} is out of range")
    return value


def _no_number(written: str) -> Any:
    raise ValueError(f"{written} is no JSON")


_DECODER = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_no_number)


def _read(value: Any) -> Any:
    document = value if isinstance(value, str) else str(value)
    return _remembered(document) if len(document) <= _SHORT else _decoded(document)


@lru_cache(maxsize=256)
def _remembered(document: str) -> Any:
    """Of one row several members are asked for."""
    return _decoded(document)


def _decoded(document: str) -> Any:
    try:
        found = _DECODER.decode(document)
        written(found).encode()  # not half of a character
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise DataError(
            f"{document[:80]!r} is no JSON: {error}", hint="mend the row, or leave such rows out"
        ) from error
    return found


def written(value: Any) -> str:
    """The one way to write a value, which is that of a jsonb."""
    if isinstance(value, Decimal):
        plain = f"{value:f}"
        return plain.removeprefix("-") if value.is_zero() else plain
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return "{" + ", ".join(f"{_quoted(name)}: {written(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("no text holds the character 0")
    return json.dumps(value, ensure_ascii=False)


def _as_json(value: Any) -> str | None:
    return None if value is _MISSING else written(value)


def _as_text(value: Any) -> str | None:
    if value is _MISSING or value is None:
        return None
    return value if isinstance(value, str) else written(value)


def _member(document: Any, name: str) -> Any:
    found = _read(document)
    return found.get(name, _MISSING) if isinstance(found, dict) else _MISSING


def _element(document: Any, place: int) -> Any:
    found = _read(document)
    if isinstance(found, dict):
        return _MISSING
    elements = found if isinstance(found, list) else [found]  # as in PostgreSQL
    return elements[place] if -len(elements) <= place < len(elements) else _MISSING


def _texts_of(*, objects: bool, arrays: bool) -> Callable[[Any], str]:
    """What makes an object of texts of an object, or of an array, or of either."""

    def texts(document: Any) -> str:
        found = _read(document)
        if isinstance(found, dict) and objects:
            named = dict(found)
        elif isinstance(found, list) and arrays:
            named = {str(place): value for place, value in enumerate(found)}
        else:
            wanted = " or ".join([*["object"] * objects, *["array"] * arrays])
            raise DataError(
                f"{str(document)[:80]!r} is no JSON {wanted}, of which rows are made",
                hint="mend the row, or leave such rows out in a view",
            )
        return json.dumps({name: _as_text(value) for name, value in named.items()}, ensure_ascii=False)

    return texts


def _function(find: Callable[[Any, Any], Any], show: Callable[[Any], str | None]) -> OwnFunction:
    return OwnFunction(SqlType.TEXT, 2, lambda document, which: show(find(document, which)))


FUNCTIONS: Mapping[str, OwnFunction] = {
    MEMBER: _function(_member, _as_json),
    MEMBER_TEXT: _function(_member, _as_text),
    ELEMENT: _function(_element, _as_json),
    ELEMENT_TEXT: _function(_element, _as_text),
    MEMBERS: OwnFunction(SqlType.TEXT, 1, _texts_of(objects=True, arrays=True)),
    PAIRS: OwnFunction(SqlType.TEXT, 1, _texts_of(objects=True, arrays=False)),
    ELEMENTS: OwnFunction(SqlType.TEXT, 1, _texts_of(objects=False, arrays=True)),
}


def install(connection: apsw.Connection, look: Callable[[], None] | None = None) -> None:
    """Let the connection call them; ``look`` raises when a statement has had its time, for a large text takes long."""
    own_functions.install(connection, FUNCTIONS, look)
