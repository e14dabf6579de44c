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
NUMBERS: Mapping[str, set[int]] = {json_texts.ELEMENT: {1}, json_texts.ELEMENT_TEXT: {1}}
"""Which of them are no texts."""
