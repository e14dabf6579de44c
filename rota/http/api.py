"""The agent's HTTP interface: the same data as the commands, as JSON under ``/v1``.

It knows the node only through :class:`Backend`, holds no state, and turns every error into one sentence
with a code.  Who may ask for what is ``rota.access``; that no other page of a browser asks is ``rota.http.guard``.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rota.access.access import Access, Caller, demand
from rota.access.roles import PUBLIC
from rota.errors import ApiError
from rota.http.backend import Backend
from rota.http.endpoints import Endpoints
from rota.http.guard import HttpGuard
from rota.http.openapi import Endpoint, Operation, document
from rota.http.operations import operations

log = logging.getLogger("rota")


def build_application(backend: Backend, access: Access | None = None) -> Starlette:
    """The ASGI application over ``backend``; without ``access`` it is for everybody on loopback."""
    access = access or Access()
    table = operations(Endpoints(backend, access))

    async def describe(request: Request) -> Response:
        return JSONResponse(document(table))

    table.append(Operation("/v1/openapi.json", describe, "This document", dict[str, Any]))

    async def no_such_thing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = f"{request.method} {request.url.path}: no such thing here (status {status}); GET / lists what there is"
        return JSONResponse({"error": text, "code": "not_found"}, status_code=status)

    application = Starlette(
        middleware=[Middleware(HttpGuard, access=access)],
        exception_handlers={404: no_such_thing, 405: no_such_thing},
        routes=[
            Route(_routed(operation.path), _guarded(operation, access, backend), methods=[operation.method])
            for operation in table
        ],
    )
    application.state.operations = table
    return application


def _routed(path: str) -> str:
    """A host's name may have slashes in it, and so what is called after one."""
    return path.replace("/hosts/{name}", "/hosts/{name:path}").replace(
        "/plans/{plan_id}", "/plans/{plan_id:path}"
    )


def _guarded(operation: Operation, access: Access, backend: Backend) -> Endpoint:
    """The operation for those who may ask for it, with every error as one sentence."""

    async def answered(request: Request) -> Response:
        if operation.role != PUBLIC:
            request.state.caller = access.caller(request)
            demand(request.state.caller, operation.role)
        return await operation.endpoint(request)

    async def guarded(request: Request) -> Response:
        outcome = "done"
        try:
            return await answered(request)
        except ApiError as error:
            outcome = f"refused: {error}"
            headers = {"www-authenticate": "Bearer"} if error.status == 401 else None
            answer = {"error": str(error), "code": error.code}
            return JSONResponse(answer, status_code=error.status or 503, headers=headers)
        except ClientDisconnect:
            outcome = "cut off"
            return Response(status_code=400)
        except Exception:
            # A defect, or the agent is ending: a program must be able to tell that this is no refusal.
            outcome = "failed"
            log.exception("%s %s failed unexpectedly", request.method, request.url.path)
            text = "the request failed unexpectedly: what it asked for may have happened or not; see the agent's log"
            return JSONResponse({"error": text, "code": "outcome_unknown"}, status_code=500)
        finally:
            if operation.is_recorded and hasattr(request.state, "caller"):
                _record(backend, request, request.state.caller, outcome)

    return guarded


TOLD = frozenset({
    "action", "confirmed", "count", "force", "host", "hosts", "id", "remove", "segment", "set", "survivors",
})  # fmt: skip
"""What is told of a request's fields; not its keys, tokens and data."""


def _record(backend: Backend, request: Request, caller: Caller, outcome: str) -> None:
    """Who asked for what."""
    asked = getattr(request.state, "asked", {})
    told = {name: value for name, value in asked.items() if name in TOLD}
    words = [
        request.url.path.removeprefix("/v1/"),
        *(f"{name}={value!s:.80}" for name, value in told.items()),
    ]
    who = {"name": caller.name, "role": caller.role, "address": caller.address}
    data = {"path": request.url.path, "asked": told, "outcome": outcome, **who}
    backend.record("request", f"{' '.join(words)} {'by ' if caller.name else ''}{caller}: {outcome}", data)
