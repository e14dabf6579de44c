"""The agent's HTTP interface: the same data as the commands, as JSON under ``/v1``.

It knows the node only through :class:`Backend`, holds no state, and turns every error into one sentence
with a code.  Who may ask for what is ``rota.access``; that no other page of a browser asks is ``rota.http.guard``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from rota.access.access import Access, Caller, demand
from rota.access.roles import OPERATE, PUBLIC, READ
from rota.errors import ApiError
from rota.http import answers, control_answers
from rota.http.browsers import log_in, log_out
from rota.http.console import PAGE, page_wanted, static_files
from rota.http.guard import HttpGuard
from rota.http.limits import LARGEST_RECORD
from rota.http.openapi import Endpoint, Operation, document
from rota.http.requests import (
    ASKED_BY,
    bounded_body,
    json_object,
    key_arguments,
    requested_fields,
    whole_number,
)

log = logging.getLogger("rota")

LARGEST_CHANGE = 1 << 20
"""Bytes of a request about one key of a map: two values in base64."""
LARGEST_WISHES = 16 << 20
"""Bytes of what operators wish, with whole policies in it."""
LARGEST_PART = 32 << 20
"""Bytes of a part of a backup: one record of the largest, or many."""
LARGEST_LISTING = 10_000
"""Entries of a map in one answer."""

ENDPOINTS = """rota agent

GET  /                     this list; in a browser: the console
GET  /v1/status            health: quorum, controller, layout epoch, open moves
GET  /v1/members           the view
GET  /v1/events?after=N    what happened at the controller; with Accept: text/event-stream it goes on
                           (?local=1: what happened at this agent)
GET  /v1/suspicions        who suspects whom now, votes, why no new view yet
GET  /v1/views             when each member installed each view
GET  /v1/layout            segments, replicas by rack, roles
GET  /v1/layout/history    the versions of the layout that are kept: what changed, when, by whom, why
GET  /v1/layout/diff/A/B   what differs between two of them, by layout epoch
GET  /v1/plan              a dry run of the next plan
GET  /v1/control           what the controller is at
GET  /v1/policies          the rules and objectives in force
GET  /v1/keys              which host holds which keys, by id
POST /v1/keys              {"action": "install", "key": BASE64}, or "use", "remove" with "id" (and "force": true)
GET  /v1/plans/ID          what has become of a plan: open, done, failed or replaced
POST /v1/apply             {}; what the dry run shows is carried out, also while paused
POST /v1/pause             {}: no data is moved; /v1/resume ends it
POST /v1/abort             {}: undo the plan that is carried out, then stay paused
POST /v1/drain             {"host": NAME}; also /v1/undrain
POST /v1/pin               {"segment": KEY, "host": NAME}; also /v1/unpin
POST /v1/segments          {"count": N}: how many the log is striped over
POST /v1/forget            {"hosts": [NAME], "confirmed": false}: what only they hold is lost
POST /v1/layout/recover    {"confirmed": false}: go on without a majority of the layout servers
POST /v1/layout/rebalance  {"confirmed": false}: move slots from busy shards to others
POST /v1/why               {"name": SEGMENT or HOST}: why it is placed as it is
POST /v1/why-not           {"segment": KEY, "host": NAME}
POST /v1/what-if           {"sql": STATEMENTS}: what would change; nothing does
POST /v1/evict             {"host": NAME}
POST /v1/leave             {}; the agent then ends
POST /v1/tags              {"set": {KEY: VALUE}, "remove": [KEY]}: the tags of this agent
POST /v1/recover           {"survivors": [NAME], "force": false}
POST /v1/log/STREAM        append the body, answers its address
GET  /v1/log/STREAM        the stream's records; ?address=A reads one; with Accept: text/event-stream
                           those from ?start=A on and whatever follows
GET  /v1/map/NAME          the entries of a map
POST /v1/map/NAME          {"action": "get", "key": KEY}, or "delete", "set" with "value": BASE64, "replace"
                           with "expected" and "value" (null: no value)
GET  /v1/backup            where the log ends, and what operators wish
GET  /v1/backup/part       all records from ?start=A to ?end=B, as many as fit (MessagePack, see `rota backup`)
POST /v1/restore           {"intent": what operators are to wish, or null, "resume": false}: pauses; for an empty log
POST /v1/restore/part      a part of a backup, at its addresses
GET  /v1/openapi.json      all this for programs (OpenAPI)
GET  /metrics, /healthz, /readyz

POST /v1/login             {"token": TOKEN}: a session for a browser; /v1/logout ends it
GET  /v1/session           who you are, and your role

What is POSTed needs Content-Type: application/json; a record: application/octet-stream.  Where tokens are needed,
say Authorization: Bearer TOKEN.
"""


class Backend(Protocol):
    """What the interface needs of the node."""

    def status(self) -> answers.Status: ...
    async def look(self) -> None:
        """Bring up to date what `status` tells of the store, if that is soon done."""
        ...

    def members(self) -> answers.Members: ...
    def suspicions(self) -> dict[str, Any]: ...
    async def views(self) -> answers.Views: ...
    def local_events(self, after: int) -> list[answers.Event]:
        """What happened at this agent."""
        ...

    async def events(self, after: int) -> dict[str, Any]:
        """What happened at the controller, or here if it cannot be reached: ``{"agent", "events"}``."""
        ...

    def follow(self, after: int) -> AsyncIterator[answers.Event]:
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

    def store(self) -> Store:
        """Raises :class:`ApiError` where there is none."""
        ...

    def record(self, kind: str, text: str, data: Mapping[str, Any]) -> None:
        """Something for this agent's events and its log."""
        ...


class Store(Protocol):
    """What the interface needs of the embedded store.  Everything raises :class:`ApiError`."""

    async def append(self, stream: str, payload: bytes) -> answers.Appended: ...
    async def read(
        self, stream: str, address: int | None, limit: int, start: int | None = None
    ) -> answers.Records: ...
    def follow(self, stream: str, start: int | None) -> AsyncIterator[answers.RecordEntry]: ...
    async def entries(self, name: str, limit: int) -> answers.MapEntries: ...
    async def cut(self) -> answers.Cut: ...
    async def part(self, start: int, end: int) -> bytes: ...
    async def check_empty(self) -> None: ...
    async def write_part(self, data: bytes) -> None: ...
    async def change(self, name: str, request: dict[str, Any]) -> answers.MapChange: ...


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


def _event_stream(items: AsyncIterator[Any]) -> Response:
    """Server-sent events; a refusal on the way is the last of them."""

    async def stream() -> AsyncIterator[str]:
        try:
            async for item in items:
                yield f"data: {json.dumps(item)}\n\n"
        except ApiError as error:
            yield f"data: {json.dumps({'error': str(error), 'code': error.code})}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


def _file_response(request: Request, name: str) -> Response:
    file = static_files().get(name)
    if file is None:
        raise ApiError(f"the console has no file {name[:80]!r}; GET / opens it", code="not_found", status=404)
    headers = {"etag": file.tag, "cache-control": "no-cache", "vary": "accept"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.content_type, headers=headers)


def build_application(backend: Backend, access: Access | None = None) -> Starlette:
    """The ASGI application over ``backend``; without ``access`` it is for everybody on loopback."""
    access = access or Access()
    operations = _operations(backend, access)

    async def describe(request: Request) -> Response:
        return JSONResponse(document(operations))

    operations.append(Operation("/v1/openapi.json", describe, "This document", dict[str, Any]))

    async def no_such_thing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = f"{request.method} {request.url.path}: no such thing here (status {status}); GET / lists what there is"
        return JSONResponse({"error": text, "code": "not_found"}, status_code=status)

    application = Starlette(
        middleware=[Middleware(HttpGuard, access=access)],
        exception_handlers={404: no_such_thing, 405: no_such_thing},
        routes=[
            Route(operation.path, _guarded(operation, access, backend), methods=[operation.method])
            for operation in operations
        ],
    )
    application.state.operations = operations
    return application


def _operations(backend: Backend, access: Access) -> list[Operation]:
    """What can be asked: the one table that the routes and the OpenAPI document are made from."""

    binary = "application/octet-stream"

    def own_status() -> dict[str, Any]:
        told: dict[str, Any] = {**backend.status()}
        return {**told, "statistics": {**told["statistics"], **access.statistics()}}

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
        from rota.http.metrics import CONTENT_TYPE, exposition  # its library is for those who ask

        text = exposition(own_status(), ready=backend.is_ready(), interface=access.gauges())
        return PlainTextResponse(text, headers={"content-type": CONTENT_TYPE})

    async def status(request: Request) -> Response:
        await backend.look()
        return JSONResponse(own_status())

    async def members(request: Request) -> Response:
        return JSONResponse(backend.members())

    async def suspicions(request: Request) -> Response:
        return JSONResponse(backend.suspicions())

    async def views(request: Request) -> Response:
        return JSONResponse(await backend.views())

    async def events(request: Request) -> Response:
        after = whole_number(request, "after", 0) or 0
        if "text/event-stream" not in request.headers.get("accept", ""):
            if request.query_params.get("local") == "1":
                return JSONResponse({"events": backend.local_events(after)})
            return JSONResponse(await backend.events(after))

        return _event_stream(backend.follow(after))

    async def control(request: Request, name: str, asked: dict[str, Any]) -> Response:
        caller: Caller = request.state.caller
        if caller.name:
            asked = {**asked, ASKED_BY: str(caller)}
        return JSONResponse(await backend.control(name, asked))

    def controlled(name: str, /, **fields: type) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return await control(request, name, await requested_fields(request, fields))

        return endpoint

    async def keys(request: Request) -> Response:
        action, arguments = ("list", {}) if request.method == "GET" else await key_arguments(request)
        return JSONResponse(await backend.keys(action, arguments))

    async def append(request: Request) -> Response:
        payload = await bounded_body(request, LARGEST_RECORD)
        return JSONResponse(await backend.store().append(request.path_params["stream"], payload))

    async def read(request: Request) -> Response:
        address = whole_number(request, "address", None)
        limit = whole_number(request, "limit", 100) or 100
        if "text/event-stream" in request.headers.get("accept", ""):
            return _event_stream(
                backend.store().follow(request.path_params["stream"], whole_number(request, "start", None))
            )
        stream, start = request.path_params["stream"], whole_number(request, "start", None)
        return JSONResponse(await backend.store().read(stream, address, limit, start))

    async def entries(request: Request) -> Response:
        limit = whole_number(request, "limit", LARGEST_LISTING)
        return JSONResponse(
            await backend.store().entries(request.path_params["name"], limit or LARGEST_LISTING)
        )

    async def change(request: Request) -> Response:
        wanted = await json_object(request, LARGEST_CHANGE)
        if wanted.get("action") != "get":
            demand(request.state.caller, OPERATE)
        return JSONResponse(await backend.store().change(request.path_params["name"], wanted))

    async def cut(request: Request) -> Response:
        return JSONResponse(await backend.store().cut())

    async def part(request: Request) -> Response:
        start, end = whole_number(request, "start", 0) or 0, whole_number(request, "end", 0) or 0
        return Response(await backend.store().part(start, end), media_type=binary)

    async def restore(request: Request) -> Response:
        asked = await json_object(request, LARGEST_WISHES)
        store = backend.store()
        if asked.get("resume") is not True:
            await store.check_empty()
        return await control(request, "restore", {"intent": asked.get("intent")})

    async def restore_part(request: Request) -> Response:
        await backend.store().write_part(await bounded_body(request, LARGEST_PART))
        return JSONResponse({})

    def operation(action: str, defaults: dict[str, Any]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return JSONResponse(await backend.operate(action, {**defaults, **await json_object(request)}))

        return endpoint

    async def leave(request: Request) -> Response:
        try:
            answer = await backend.operate("leave", {})
        except ApiError:
            await backend.answered()
            raise
        return JSONResponse(answer, background=BackgroundTask(backend.answered))

    async def login(request: Request) -> Response:
        return await log_in(request, access)

    async def logout(request: Request) -> Response:
        return log_out(request, access)

    async def session(request: Request) -> Response:
        caller: Caller = request.state.caller
        return JSONResponse({"name": caller.name or None, "role": caller.role})

    text, html = "text/plain", "text/html"
    after, address = "only what came after this number", "only the record at this address"
    return [
        Operation("/", index, "What there is; in a browser the console", text, also=html, role=PUBLIC),
        Operation("/console/{name}", console_file, "A file of the console", text, role=PUBLIC),
        Operation("/healthz", health, "Whether the process runs", text, role=PUBLIC),
        Operation("/readyz", ready, "Whether this agent can be relied on", text, role=PUBLIC),
        Operation(
            "/v1/login", login, "A session for a browser, as a cookie", answers.Who, "POST", answers.LoginRequest,
            role=PUBLIC, is_recorded=True,
        ),
        Operation("/v1/logout", logout, "End the session", answers.Nothing, "POST", answers.Nothing, role=PUBLIC),
        Operation("/v1/session", session, "Who you are, and your role", answers.Who),
        Operation("/metrics", metrics, "The status and all counters, for Prometheus", text),
        Operation("/v1/status", status, "How this agent is", answers.Status),
        Operation("/v1/members", members, "The view", answers.Members),
        Operation("/v1/suspicions", suspicions, "Who suspects whom now", answers.Reading),
        Operation("/v1/views", views, "When each member installed each view", answers.Views),
        Operation(
            "/v1/events", events, "What happened at the controller, or here", answers.Events,
            query={"after": after, "local": "1: what happened at this agent"}, also="text/event-stream",
        ),
        Operation("/v1/layout", controlled("layout"), "Segments, replicas by rack, roles", control_answers.Layout),
        Operation(
            "/v1/layout/history", controlled("history"), "How the layout came about", control_answers.History
        ),
        Operation(
            "/v1/layout/diff/{before}/{after}", controlled("difference", before=str, after=str),
            "What differs between two versions", control_answers.Comparison,
        ),
        Operation("/v1/plan", controlled("plan"), "A dry run of the next plan", control_answers.DryRun),
        Operation("/v1/control", controlled("control"), "What the controller is at", control_answers.Control),
        Operation("/v1/policies", controlled("policies"), "The rules in force", control_answers.Policies),
        Operation("/v1/keys", keys, "Which host holds which keys", answers.Keys),
        Operation("/v1/keys", keys, "One step with all keys", answers.Keys, "POST", answers.KeyRequest),
        Operation(
            "/v1/plans/{plan_id}", controlled("outcome", plan_id=str), "What has become of a plan",
            control_answers.Outcome,
        ),
        Operation(
            "/v1/apply", controlled("apply"), "Carry out what the dry run shows", control_answers.Applied, "POST",
            answers.Nothing,
        ),
        Operation("/v1/pause", controlled("pause"), "Move no data", control_answers.Paused, "POST", answers.Nothing),
        Operation("/v1/resume", controlled("resume"), "Go on", control_answers.Paused, "POST", answers.Nothing),
        Operation(
            "/v1/abort", controlled("abort"), "Undo the plan that is carried out", control_answers.Aborted, "POST",
            answers.Nothing,
        ),
        Operation(
            "/v1/drain", controlled("drain", host=str), "Empty a host", control_answers.Drained, "POST",
            answers.HostRequest,
        ),
        Operation(
            "/v1/undrain", controlled("undrain", host=str), "Use it again", control_answers.Drained, "POST",
            answers.HostRequest,
        ),
        Operation(
            "/v1/why", controlled("why", name=str), "Why a segment or host is placed as it is",
            control_answers.Explanation, "POST", answers.WhyRequest, role=READ,
        ),
        Operation(
            "/v1/why-not", controlled("why-not", segment=str, host=str), "Why a segment is not on a host",
            control_answers.Explanation, "POST", answers.WhyNotRequest, role=READ,
        ),
        Operation(
            "/v1/what-if", controlled("what-if", sql=str), "What would change after SQL",
            control_answers.Explanation, "POST", answers.WhatIfRequest, role=READ,
        ),
        *(
            Operation(
                f"/v1/{name}", controlled(name, segment=str, host=str), what, control_answers.Pinned, "POST",
                answers.PinRequest,
            )
            for name, what in (("pin", "Keep a copy on a host"), ("unpin", "Let it move again"))
        ),
        Operation(
            "/v1/segments", controlled("segments", count=int), "Stripe the log over another number of segments",
            control_answers.Resized, "POST", answers.SegmentsRequest,
        ),
        Operation(
            "/v1/forget", controlled("forget", hosts=list, confirmed=bool), "Declare lost what only these hosts hold",
            control_answers.Forgotten, "POST", answers.ForgetRequest,
        ),
        Operation(
            "/v1/layout/recover", controlled("recover-layout", confirmed=bool),
            "Go on without a majority of the layout servers", control_answers.RecoveredLayout, "POST",
            answers.ConfirmedRequest,
        ),
        Operation(
            "/v1/layout/rebalance", controlled("rebalance", confirmed=bool),
            "Move slots from busy shards to others", control_answers.Rebalanced, "POST", answers.ConfirmedRequest,
        ),
        Operation(
            "/v1/evict", operation("evict", {}), "Remove a member", answers.Evicted, "POST", answers.HostRequest
        ),
        Operation(
            "/v1/leave", leave, "Leave; the agent then ends", answers.Gone, "POST", answers.Nothing
        ),
        Operation(
            "/v1/tags", operation("tags", {"set": {}, "remove": []}), "Change this agent's tags",
            answers.Tags, "POST", answers.TagsRequest,
        ),
        Operation(
            "/v1/recover", operation("recover", {"force": False}), "Begin again with the survivors",
            answers.Recovered, "POST", answers.RecoverRequest,
        ),
        Operation(
            "/v1/log/{stream}", append, "Append a record", answers.Appended, "POST", binary, is_recorded=False
        ),
        Operation(
            "/v1/log/{stream}", read, "The latest records, or those from an address on", answers.Records,
            query={"address": address, "limit": "at most so many", "start": "from this address on"},
            also="text/event-stream",
        ),
        Operation("/v1/backup", cut, "Where the log ends, and what operators wish", answers.Cut),
        Operation(
            "/v1/backup/part", part, "All records of a range, as many as fit", binary,
            query={"start": "the first address", "end": "one above the last, at most where the log ends"},
        ),
        Operation(
            "/v1/restore", restore, "Begin to restore a backup: wishes, and a pause", control_answers.RestoreBegun,
            "POST", answers.RestoreRequest,
        ),
        Operation(
            "/v1/restore/part", restore_part, "Put a part of a backup into an empty log", answers.Nothing, "POST",
            binary, is_recorded=False,
        ),
        Operation(
            "/v1/map/{name}", entries, "The entries of a map", answers.MapEntries,
            query={"limit": "at most so many"},
        ),
        Operation(
            "/v1/map/{name}", change, "Get, set, delete or replace one key", answers.MapChange, "POST",
            answers.MapRequest, role=READ, is_recorded=False,
        ),
    ]  # fmt: skip
