"""What PostgreSQL computes where SQLite calls a function of ``mgmt.state.json_texts``, with the same texts.

What it is not: it walks no tree (see ``own_functions``).
"""

from __future__ import annotations

from collections.abc import Mapping

from mgmt.state import json_texts

TEMPLATES: Mapping[str, str] = {
    json_texts.MEMBER: "CAST(CAST(o0 AS jsonb) -> CAST(o1 AS text) AS text)",
    json_texts.MEMBER_TEXT: "(CAST(o0 AS jsonb) ->> CAST(o1 AS text))",
    json_texts.ELEMENT: "CAST(CAST(o0 AS jsonb) -> CAST(o1 AS int) AS text)",
    json_texts.ELEMENT_TEXT: "(CAST(o0 AS jsonb) ->> CAST(o1 AS int))",
}
"""The operands are o0 and o1."""
_DOCUMENT = "CAST(o0 AS jsonb)"
_NAMED = (
    'SELECT e.key COLLATE "C" AS key, e.value COLLATE "C" AS value FROM jsonb_each_text({}) AS e (key, value)'
)
_PLACED = (
    'SELECT CAST(e.place - 1 AS text) COLLATE "C" AS key, e.value COLLATE "C" AS value'
    " FROM jsonb_array_elements_text({}) WITH ORDINALITY AS e (value, place)"
)
_IS_ARRAY = f"jsonb_typeof({_DOCUMENT}) = 'array'"
ROWS: Mapping[str, str] = {
    json_texts.PAIRS: _NAMED.format(_DOCUMENT),
    json_texts.ELEMENTS: _PLACED.format(_DOCUMENT),
    json_texts.MEMBERS: " UNION ALL ".join(
        (
            _NAMED.format(f"CASE WHEN NOT {_IS_ARRAY} THEN {_DOCUMENT} END"),
            _PLACED.format(f"CASE WHEN {_IS_ARRAY} THEN {_DOCUMENT} END"),
        )
    ),
}
"""Of what stands in json_each(...) there, with the columns key and value; no scalar has any."""
NUMBERS: Mapping[str, set[int]] = {json_texts.ELEMENT: {1}, json_texts.ELEMENT_TEXT: {1}}
"""Which of them are no texts."""
