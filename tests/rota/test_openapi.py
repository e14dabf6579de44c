"""The OpenAPI document: every route is in it, and it is strict enough that an answer can be wrong.

Real answers are held against it in every test with real agents (see conftest).
"""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest
from starlette.routing import Route

from rota.http.api import build_application
from rota.http.backend import Backend
from rota.http.endpoints import ENDPOINTS
from tests.rota.description import Description

APPLICATION = build_application(cast(Backend, None))
ROUTES = [route for route in APPLICATION.routes if isinstance(route, Route)]


async def served() -> dict[str, Any]:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=APPLICATION), base_url="http://127.0.0.1"
    ) as client:
        answer = await client.get("/v1/openapi.json")
    assert answer.status_code == 200
    return cast("dict[str, Any]", answer.json())


async def test_every_route_is_in_it_and_nothing_else() -> None:
    document = await served()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert described == {
        (route.path.replace(":path", ""), method) for route in ROUTES for method in route.methods - {"HEAD"}
    }
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    assert len(set(names)) == len(names)
    assert document["openapi"].startswith("3.1")


async def test_the_index_for_people_names_every_path() -> None:
    for path in (await served())["paths"]:
        assert (
            path.replace("{stream}", "STREAM")
            .replace("{plan_id}", "ID")
            .replace("{before}/{after}", "A/B")
            .replace("{name}", "")
            in ENDPOINTS
            or "console" in path
        )


async def test_every_reference_leads_somewhere_and_every_answer_is_described() -> None:
    document = await served()

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if "$ref" in value else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    names = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert names == document["components"]["schemas"].keys()
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert operation["responses"]["200"]["content"]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"agent": "n1", "events": [], "more": 1}, r"\['more'\] not in the OpenAPI document"),
        ({"agent": "n1"}, r"\['events'\] missing"),
        (
            {"events": [{"number": True, "time": 1.0, "kind": "k", "text": "", "data": {}}]},
            "not of type integer",
        ),
        (
            {"events": [{"number": 1, "time": 1.0, "kind": None, "text": "", "data": {}}]},
            "not of type string",
        ),
        ([], "not of type object"),
    ],
)
def test_an_answer_that_is_not_as_described_is_found(
    description: Description, answer: Any, complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        description.check_answer("GET", "/v1/events", answer)
    description.check_answer("GET", "/v1/events", {"events": []})
    description.check_answer("POST", "/v1/log/words", {"stream": "words", "address": 1, "bytes": 2})
    with pytest.raises(AssertionError, match="not in the OpenAPI document"):
        description.check_answer("GET", "/v1/nothing", {})
