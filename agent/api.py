"""The agent's HTTP interface: the same data as the commands, as JSON under ``/v1``.

It knows the node only through :class:`Backend`, holds no state, and turns every error into one sentence
with a code.  Loopback only: whoever reaches it may operate the cluster, and ``agent.http_guard`` sees to it that no
other page of a browser reaches it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from agent.api_client import LARGEST_RECORD
from agent.console import PAGE, page_wanted, static_files
from agent.errors import ApiError
from agent.http_guard import HttpGuard

LARGEST_REQUEST = 1 << 16

ENDPOINTS = """rota agent

GET  /                     this list; in a browser: the console
GET  /v1/status            health: quorum, controller, layout epoch, open moves
GET  /v1/members           the view
GET  /v1/events?after=N    what happened at the controller; with Accept: text/event-stream it goes on
                           (?local=1: what happened at this agent)
GET  /v1/suspicions        who suspects whom now, votes, why no new view yet
GET  /v1/views             when each member installed each view
GET  /v1/layout            segments, replicas by rack, roles
GET  /v1/plan              a dry run of the next plan
GET  /v1/control           what the controller is at
GET  /v1/policies          the rules and objectives in force
GET  /v1/keys              which host holds which keys, by id
POST /v1/keys              {"action": "install", "key": BASE64}, or "use", "remove" with "id" (and "force": true)
POST /v1/drain             {"host": NAME}; also /v1/undrain
POST /v1/evict             {"host": NAME}
POST /v1/leave             {}; the agent then ends
POST /v1/tags              {"set": {KEY: VALUE}, "remove": [KEY]}: the tags of this agent
POST /v1/recover           {"survivors": [NAME], "force": false}
POST /v1/log/STREAM        append the body, answers its address
GET  /v1/log/STREAM        the stream's records; ?address=A reads one
GET  /metrics, /healthz, /readyz

What is POSTed needs Content-Type: application/json; a record: application/octet-stream.
"""


class Backend(Protocol):
    """What the interface needs of the node."""

    def status(self) -> dict[str, Any]: ...
    def members(self) -> dict[str, Any]: ...
    def suspicions(self) -> dict[str, Any]: ...
    async def views(self) -> dict[str, Any]: ...
    def local_events(self, after: int) -> list[dict[str, Any]]:
        """What happened at this agent."""
        ...

    async def events(self, after: int) -> dict[str, Any]:
        """What happened at the controller, or here if it cannot be reached: ``{"agent", "events"}``."""
        ...

    def follow(self, after: int) -> AsyncIterator[dict[str, Any]]:
        """The controller's events and what follows, whoever it is by then."""
        ...

    def is_ready(self) -> bool: ...
    async def control(self, request: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """A request only the controller can answer; passed on to it.  Raises :class:`ApiError`."""
        ...

    async def keys(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One step with the keys of all hosts.  Raises :class:`ApiError`."""
        ...

    async def operate(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Evict, leave, tags or recover.  Raises :class:`ApiError`."""
        ...

    async def answered(self) -> None:
        """The answer to a leave is on its way."""
        ...

    async def log_append(self, stream: str, payload: bytes) -> dict[str, Any]: ...
    async def log_read(self, stream: str, address: int | None, limit: int) -> dict[str, Any]: ...


Endpoint = Callable[[Request], Awaitable[Response]]


def _whole_number(request: Request, name: str, default: int | None) -> int | None:
    raw = request.query_params.get(name)
    if raw is None:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 18:
        raise ApiError(f"{name}: {raw!r} is not a whole number", code="bad_request", status=400)
    return int(raw)


async def _bounded_body(request: Request, bound: int) -> bytes:
    too_large = ApiError(f"the body is larger than {bound} bytes", code="too_large", status=413)
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > bound:
        raise too_large
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > bound:
                raise too_large
    return bytes(body)


async def _json_object(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await _bounded_body(request, LARGEST_REQUEST) or b"{}")
    except ValueError as error:
        raise ApiError("the body is not JSON; GET / shows how", code="bad_request", status=400) from error
    if not isinstance(body, dict):
        raise ApiError("the body is not a JSON object; GET / shows how", code="bad_request", status=400)
    return body


async def _host_argument(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await _bounded_body(request, LARGEST_REQUEST))
    except ValueError as error:
        raise ApiError('the body is not JSON; send {"host": NAME}', code="bad_request", status=400) from error
    if not isinstance(body, dict) or not isinstance(body.get("host"), str):
        raise ApiError('"host" is missing; send {"host": NAME}', code="bad_request", status=400)
    return {"host": body["host"]}


async def _key_arguments(request: Request) -> tuple[str, dict[str, Any]]:
    try:
        body = json.loads(await _bounded_body(request, LARGEST_REQUEST))
    except ValueError as error:
        raise ApiError(
            'the body is not JSON; send {"action": ...}', code="bad_request", status=400
        ) from error
    if not isinstance(body, dict) or not isinstance(body.get("action"), str):
        raise ApiError('"action" is missing; GET / shows how', code="bad_request", status=400)
    return body["action"], {name: body[name] for name in ("key", "id", "force") if name in body}


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as error:
            answer = {"error": str(error), "code": error.code}
            return JSONResponse(answer, status_code=error.status or 503)
        except ClientDisconnect:
            return Response(status_code=400)

    return guarded


def _file_response(request: Request, name: str) -> Response:
    file = static_files().get(name)
    if file is None:
        raise ApiError(f"the console has no file {name[:80]!r}; GET / opens it", code="not_found", status=404)
    headers = {"etag": file.tag, "cache-control": "no-cache", "vary": "accept"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.content_type, headers=headers)


def build_application(backend: Backend) -> Starlette:
    """The ASGI application over ``backend``."""

    async def index(request: Request) -> Response:
        if page_wanted(request.headers.get("accept", "")):
            return _file_response(request, PAGE)
        return PlainTextResponse(ENDPOINTS, headers={"vary": "accept"})

    async def console_file(request: Request) -> Response:
        return _file_response(request, request.path_params["name"])

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        is_ready = backend.is_ready()
        return PlainTextResponse(
            "ready\n" if is_ready else "not ready\n", status_code=200 if is_ready else 503
        )

    async def metrics(request: Request) -> Response:
        from agent.metrics import CONTENT_TYPE, exposition  # its library is for those who ask

        text = exposition(backend.status(), ready=backend.is_ready())
        return PlainTextResponse(text, headers={"content-type": CONTENT_TYPE})

    async def status(request: Request) -> Response:
        return JSONResponse(backend.status())

    async def members(request: Request) -> Response:
        return JSONResponse(backend.members())

    async def suspicions(request: Request) -> Response:
        return JSONResponse(backend.suspicions())

    async def views(request: Request) -> Response:
        return JSONResponse(await backend.views())

    async def events(request: Request) -> Response:
        after = _whole_number(request, "after", 0) or 0
        if "text/event-stream" not in request.headers.get("accept", ""):
            if request.query_params.get("local") == "1":
                return JSONResponse({"events": backend.local_events(after)})
            return JSONResponse(await backend.events(after))

        async def stream() -> AsyncIterator[str]:
            async for event in backend.follow(after):
                yield f"data: {json.dumps(event)}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    def controlled(name: str) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            arguments = await _host_argument(request) if request.method == "POST" else {}
            return JSONResponse(await backend.control(name, arguments))

        return endpoint

    async def keys(request: Request) -> Response:
        action, arguments = ("list", {}) if request.method == "GET" else await _key_arguments(request)
        return JSONResponse(await backend.keys(action, arguments))

    async def append(request: Request) -> Response:
        payload = await _bounded_body(request, LARGEST_RECORD)
        return JSONResponse(await backend.log_append(request.path_params["stream"], payload))

    async def read(request: Request) -> Response:
        address = _whole_number(request, "address", None)
        limit = _whole_number(request, "limit", 100) or 100
        return JSONResponse(await backend.log_read(request.path_params["stream"], address, limit))

    def operation(action: str, defaults: dict[str, Any]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return JSONResponse(await backend.operate(action, {**defaults, **await _json_object(request)}))

        return endpoint

    async def leave(request: Request) -> Response:
        try:
            answer = await backend.operate("leave", {})
        except ApiError:
            await backend.answered()
            raise
        return JSONResponse(answer, background=BackgroundTask(backend.answered))

    def route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
        return Route(path, _guarded(endpoint), methods=[method])

    async def no_such_thing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = f"{request.method} {request.url.path}: no such thing here (status {status}); GET / lists what there is"
        return JSONResponse({"error": text, "code": "not_found"}, status_code=status)

    return Starlette(
        middleware=[Middleware(HttpGuard)],
        exception_handlers={404: no_such_thing, 405: no_such_thing},
        routes=[
            route("/", index),
            route("/console/{name}", console_file),
            route("/healthz", health),
            route("/readyz", ready),
            route("/metrics", metrics),
            route("/v1/status", status),
            route("/v1/members", members),
            route("/v1/suspicions", suspicions),
            route("/v1/views", views),
            route("/v1/events", events),
            route("/v1/layout", controlled("layout")),
            route("/v1/plan", controlled("plan")),
            route("/v1/control", controlled("control")),
            route("/v1/policies", controlled("policies")),
            route("/v1/keys", keys),
            route("/v1/keys", keys, "POST"),
            route("/v1/drain", controlled("drain"), "POST"),
            route("/v1/undrain", controlled("undrain"), "POST"),
            route("/v1/evict", operation("evict", {}), "POST"),
            route("/v1/leave", leave, "POST"),
            route("/v1/tags", operation("tags", {"set": {}, "remove": []}), "POST"),
            route("/v1/recover", operation("recover", {"force": False}), "POST"),
            route("/v1/log/{stream}", append, "POST"),
            route("/v1/log/{stream}", read),
        ],
    )
