"""Functions of texts that SQLite has from here, with PostgreSQL's meaning.

What it is not: what SQLite has by itself with the same meaning (``lower``, ``instr`` ...) stays its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import apsw

from mgmt.errors import DataError
from mgmt.state.own_functions import strict
from mgmt.state.text_limits import LONGEST, too_many


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    if count >= 0:
        return text[len(text) - min(count, len(text)) :]
    return text[-count:]


def _padding(text: str, length: int, fill: str) -> str:
    if length > LONGEST:
        raise too_many(length)
    missing = max(0, length - len(text))
    return (fill * (missing // max(1, len(fill)) + 1))[:missing]


def _padded_left(text: str, length: int, fill: str = " ") -> str:
    return _padding(text, length, fill) + text[: max(0, length)]


def _padded_right(text: str, length: int, fill: str = " ") -> str:
    return text[: max(0, length)] + _padding(text, length, fill)


def _repeated(text: str, times: int) -> str:
    if len(text) * times > LONGEST:
        raise too_many(len(text) * times)
    return text * times


def _within(text: str, start: int, length: int | None = None) -> str:
    """From the first place on, as many as there are: what is before the text counts too."""
    if length is not None and length < 0:
        raise DataError(f"a part of {length} characters of a text", hint="ask for 0 or more")
    end = len(text) if length is None else max(0, start - 1 + length)
    return text[max(0, start - 1) : end]


def _character(code: int) -> str:
    if not 0 < code < 0x110000 or 0xD800 <= code < 0xE000:
        raise DataError(f"no character has the code {code}", hint="codes are those of Unicode, from 1 on")
    return chr(code)


def _replaced(text: Any, before: Any, after: Any) -> str:
    return str(text).replace(str(before), str(after)) if before != "" else str(text)


def _part(text: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise DataError("part 0 of a text", hint="split_part counts from 1, and from -1 at its end")
    parts = text.split(delimiter) if delimiter else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def _translated(text: str, before: str, after: str) -> str:
    table: dict[int, str] = {}
    for place, letter in enumerate(before):
        table.setdefault(ord(letter), after[place : place + 1])
    return text.translate(table)


_FUNCTIONS: Mapping[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "left": ((2,), _left),
    "right": ((2,), _right),
    "lpad": ((2, 3), _padded_left),
    "rpad": ((2, 3), _padded_right),
    "repeat": ((2,), _repeated),
    "substring": ((2, 3), _within),
    "char": ((1,), _character),
    "replace": ((3,), _replaced),  # NULL where any operand is, an empty one beside it or not
    "reverse": ((1,), lambda text: text[::-1]),
    "split_part": ((3,), _part),
    "translate": ((3,), _translated),
    "starts_with": ((2,), lambda text, beginning: int(text.startswith(beginning))),
    "ascii": ((1,), lambda text: ord(text[0]) if text else 0),
    "md5": ((1,), lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()),
}
"""By name: with how many operands, and what of them."""


def install(connection: apsw.Connection) -> None:
    """Let the connection call them."""
    for name, (numbers, compute) in _FUNCTIONS.items():
        for operands in numbers:
            connection.create_scalar_function(
                name, strict(_told(name, compute)), operands, deterministic=True
            )


def _told(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        try:
            return compute(*operands)
        except (TypeError, AttributeError) as error:
            shown = ", ".join(map(repr, operands))
            raise DataError(
                f"{name}({shown}) has an operand of another type",
                hint="give texts and whole numbers: CAST(...)",
            ) from error

    return call
