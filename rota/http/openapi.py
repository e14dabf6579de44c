"""The OpenAPI document of the HTTP interface (``/v1/openapi.json``), made from the table of its operations.

The same table makes the routes, and its types are those of the answers (``rota.http.answers``): nothing is written
twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rota.access.access import COOKIE
from rota.access.roles import OPERATE, PUBLIC, READ
from rota.http.answers import Problem
from rota.version import VERSION

Endpoint = Callable[[Request], Awaitable[Response]]

JSON = "application/json"
SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "From `rota tokens add NAME --role ROLE`."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "From `/v1/login`, for browsers.",
    },
}
_REFERENCE = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one path."""

    path: str
    endpoint: Endpoint
    summary: str
    answer: Any
    """The type of a JSON answer, or the media type of another."""
    method: str = "GET"
    body: Any = None
    """The same for what is sent."""
    query: Mapping[str, str] | None = None
    """The parameters that are whole numbers, and what they mean."""
    also: str = ""
    """Another media type of the answer, for those who accept it."""
    role: str = ""
    """Who may ask; default: ``read`` for what is got, ``operate`` for what is posted."""
    is_recorded: bool | None = None
    """Whether it is an event that somebody asked; default: for what needs ``operate``."""

    def __post_init__(self) -> None:
        if not self.role:
            object.__setattr__(self, "role", READ if self.method == "GET" else OPERATE)
        if self.is_recorded is None:
            object.__setattr__(self, "is_recorded", self.role == OPERATE)


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document, as JSON values."""
    operations = tuple(operations)
    types = [Problem, *(kind for operation in operations for kind in (operation.answer, operation.body))]
    used = list(dict.fromkeys(kind for kind in types if kind is not None and not isinstance(kind, str)))
    schemas, components = msgspec.json.schema_components(used, ref_template=_REFERENCE)
    schema_of = dict(zip(used, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _described(operation, schema_of)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rota agent",
            "version": VERSION,
            "description": "One agent's HTTP interface. With tokens (`--api-tokens`) each operation needs one of those "
            "named under `security`, whose role is `x-role` or `operate`; without, the interface is on loopback only.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SECURITY_SCHEMES},
    }


def _described(operation: Operation, schema_of: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    def content(kind: Any) -> dict[str, Any]:
        if not isinstance(kind, str):
            return {JSON: {"schema": schema_of[kind]}}
        return {kind: {}} if kind.startswith("application/") else {kind: {"schema": {"type": "string"}}}

    answer = content(operation.answer)
    if operation.also:
        answer |= content(operation.also)
    described: dict[str, Any] = {
        "operationId": _name(operation),
        "summary": operation.summary,
        "security": [] if operation.role == PUBLIC else [{"token": []}, {"session": []}],
        "responses": {
            "200": {"description": "Done, or as it is.", "content": answer},
            "default": {"description": "Refused, with the reason.", "content": content(Problem)},
        },
    }
    if operation.role != PUBLIC:
        described["x-role"] = operation.role
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in operation.path.split("/")
        if part.startswith("{")
    ]
    parameters += [
        {"name": name, "in": "query", "description": meaning, "schema": {"type": "integer", "minimum": 0}}
        for name, meaning in (operation.query or {}).items()
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": content(operation.body)}
    return described


def _name(operation: Operation) -> str:
    words = operation.path.replace("/v1/", "/").replace(".", "/").split("/")
    return "_".join((operation.method.lower(), *(word.strip("{}") for word in words if word)))
