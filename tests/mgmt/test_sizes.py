"""Texts that nest too deep, and views that double and double, are refused where they do."""

from __future__ import annotations

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import PolicySyntaxError
from tests.mgmt.support import database
from tests.mgmt.test_meaning import SCHEMA


def test_views_that_double_are_refused_where_they_become_too_many() -> None:
    views = ["CREATE VIEW v0 AS SELECT name FROM host;"]
    views += [
        f"CREATE VIEW v{n + 1} AS SELECT a.name FROM v{n} AS a JOIN v{n} AS b ON a.name = b.name;"
        for n in range(30)
    ]
    text = "\n".join([*views, "CREATE CONSTRAINT c AS SELECT * FROM v30 CHECK name <> ''"])
    with pytest.raises(PolicySyntaxError, match="at most 1000") as caught:
        Model.build(database(SCHEMA), text)
    assert caught.value.line == 11


@pytest.mark.parametrize("opening", ["(", "CASE WHEN weight > 0 THEN TRUE ELSE "])
def test_what_is_nested_too_deep_is_pointed_at(opening: str) -> None:
    closing = ")" if opening == "(" else " END"
    text = f"CREATE CONSTRAINT c AS SELECT * FROM task CHECK {opening * 95}variable__host = 'a'{closing * 95}"
    with pytest.raises(PolicySyntaxError, match="nested deeper than 32 levels") as caught:
        Model.build(database(SCHEMA), text)
    assert caught.value.column == text.index("CHECK") + len("CHECK ") + 32 * len(opening) + 1


def test_what_is_too_deep_without_parentheses_is_pointed_at() -> None:
    text = f"CREATE CONSTRAINT c AS SELECT * FROM task CHECK {'NOT ' * 900}variable__host = 'a'"
    with pytest.raises(PolicySyntaxError, match="nested too deep") as caught:
        Model.build(database(SCHEMA), text)
    assert (caught.value.line, "view of its own" in caught.value.hint) == (1, True)
