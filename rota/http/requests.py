"""What is read out of an HTTP request: numbers, bodies up to a bound, the fields of a JSON object.

Everything here raises :class:`ApiError` with what to send instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import trio
from starlette.requests import Request

from rota.errors import ApiError

LARGEST_REQUEST: Final = 1 << 16
BODY_PATIENCE: Final = 30.0
"""Seconds for a whole body."""
_DIGITS: Final = 18
ASKED_BY: Final = "asked_by"
"""The argument by which the HTTP interface says who asks; joined to the agent that was asked."""


def whole_number(request: Request, name: str, default: int | None) -> int | None:
    raw = request.query_params.get(name)
    if raw is None:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > _DIGITS:
        raise ApiError(
            f"{name}: {raw!r:.40} is no whole number from 0 to {10**_DIGITS - 1}",
            code="bad_request",
            status=400,
        )
    return int(raw)


async def bounded_body(request: Request, bound: int) -> bytes:
    too_large = ApiError(f"the body is larger than {bound} bytes", code="too_large", status=413)
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > bound:
        raise too_large
    body = bytearray()
    with trio.move_on_after(BODY_PATIENCE) as patience:
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > bound:
                    raise too_large
    if patience.cancelled_caught:
        raise ApiError(
            f"the body did not come within {BODY_PATIENCE:.0f} s; send it again", code="timeout", status=408
        )
    return bytes(body)


async def json_object(
    request: Request, bound: int = LARGEST_REQUEST, remedy: str = "GET / shows how"
) -> dict[str, Any]:
    body = _decoded(await bounded_body(request, bound) or b"{}", remedy)
    if not isinstance(body, dict):
        raise ApiError(f"the body is not a JSON object; {remedy}", code="bad_request", status=400)
    request.state.asked = body
    return body


def _decoded(body: bytes, remedy: str) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise ApiError(f"the body is not JSON ({error}); {remedy}", code="bad_request", status=400) from error
    except RecursionError:
        # Not chained: its traceback is as long as the body is deep.
        raise ApiError(f"the body is nested too deep; {remedy}", code="bad_request", status=400) from None


async def requested_fields(request: Request, fields: Mapping[str, type]) -> dict[str, Any]:
    """These fields of the JSON body, or of the path."""
    if request.method == "GET":
        return {name: request.path_params[name] for name in fields}
    remedy = "send {" + ", ".join(f'"{name}": NAME' for name in fields) + "}"
    body = await json_object(request, remedy=remedy)
    for name, kind in fields.items():
        if not isinstance(body.get(name), kind) or (kind is int and isinstance(body[name], bool)):
            raise ApiError(f'"{name}" is missing; {remedy}', code="bad_request", status=400)
    return {name: body[name] for name in fields}


async def key_arguments(request: Request) -> tuple[str, dict[str, Any]]:
    body = _decoded(await bounded_body(request, LARGEST_REQUEST), 'send {"action": ...}')
    if not isinstance(body, dict) or not isinstance(body.get("action"), str):
        raise ApiError('"action" is missing; GET / shows how', code="bad_request", status=400)
    request.state.asked = body
    return body["action"], {name: body[name] for name in ("key", "id", "force") if name in body}
