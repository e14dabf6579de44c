"""What is done for each operation of the HTTP interface: read the request, ask the backend, answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from rota.access.access import Access, Caller, demand
from rota.access.roles import OPERATE
from rota.errors import ApiError
from rota.http.backend import Backend
from rota.http.browsers import log_in, log_out
from rota.http.console import PAGE, page_wanted, static_files
from rota.http.limits import LARGEST_RECORD
from rota.http.openapi import Endpoint
from rota.http.requests import (
    ASKED_BY,
    bounded_body,
    json_object,
    key_arguments,
    requested_fields,
    whole_number,
)

LARGEST_CHANGE = 1 << 20
"""Bytes of a request about one key of a map: two values in base64."""
LARGEST_INTENT = 16 << 20
"""Bytes of what operators have asked for, with whole policies in it."""
LARGEST_PART = 32 << 20
"""Bytes of a part of a backup: one record of the largest, or many."""
LARGEST_LISTING = 10_000
"""Entries of a map in one answer."""

ENDPOINTS = """rota agent

GET  /                     this list; in a browser: the console
GET  /v1/status            health: quorum, controller, layout epoch, open moves
GET  /v1/members           the view
GET  /v1/sd/prometheus     the agents, for Prometheus to find them (http_sd_configs)
GET  /v1/events?after=N    what happened at the controller; with Accept: text/event-stream it goes on
                           (?local=1: what happened at this agent)
GET  /v1/suspicions        who suspects whom now, votes, why no new view yet
GET  /v1/views             when each member installed each view
GET  /v1/hosts/NAME        what the agent of this host tells of it: disk, what it holds, the last hour
GET  /v1/measured          rates, latencies and disks of the last hour, by host
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
POST /v1/apply/shown       {"digest": DIGEST}: the same, if it is the plan that was shown under it
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
GET  /v1/streams           the streams and maps that the log holds records of
POST /v1/log/STREAM        append the body, answers its address
GET  /v1/log/STREAM        the stream's records; ?address=A reads one; with Accept: text/event-stream
                           those from ?start=A on and whatever follows; ?most=N cuts the text and hex of each
GET  /v1/map/NAME          the entries of a map; ?most=N as above
POST /v1/map/NAME          {"action": "get", "key": KEY}, or "delete", "set" with "value": BASE64, "replace"
                           with "expected" and "value" (null: no value)
GET  /v1/backup            where the log ends, and what operators have asked for
GET  /v1/backup/part       all records from ?start=A to ?end=B, as many as fit (MessagePack, see `rota backup`)
POST /v1/restore           {"backup": DIGEST, "resume": false}: pauses; for an empty log, or one begun with the same
POST /v1/restore/part      a part of a backup, at its addresses
POST /v1/restore/finished  {"backup": DIGEST, "intent": the settings of the backup, or null}
GET  /v1/openapi.json      all this for programs (OpenAPI)
GET  /metrics, /healthz, /readyz

POST /v1/login             {"token": TOKEN}: a session for a browser; /v1/logout ends it
GET  /v1/session           who you are, and your role

What is POSTed needs Content-Type: application/json; a record: application/octet-stream.  Where tokens are needed,
say Authorization: Bearer TOKEN.
"""


class Endpoints:
    """What is done for each operation."""

    def __init__(self, backend: Backend, access: Access) -> None:
        self._backend = backend
        self._access = access

    def _own_status(self) -> dict[str, Any]:
        told: dict[str, Any] = {**self._backend.status()}
        return {**told, "statistics": {**told["statistics"], **self._access.statistics()}}

    async def index(self, request: Request) -> Response:
        if page_wanted(request.headers.get("accept", "")):
            return _file_response(request, PAGE)
        return PlainTextResponse(ENDPOINTS, headers={"vary": "accept"})

    async def console_file(self, request: Request) -> Response:
        names = request.path_params
        return _file_response(request, "/".join(filter(None, [names.get("folder"), names["name"]])))

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        is_ready = self._backend.is_ready()
        return PlainTextResponse(
            "ready\n" if is_ready else "not ready\n", status_code=200 if is_ready else 503
        )

    async def metrics(self, request: Request) -> Response:
        from rota.http.metrics import CONTENT_TYPE, exposition  # its library is for those who ask

        text = exposition(self._own_status(), ready=self._backend.is_ready(), interface=self._access.gauges())
        return PlainTextResponse(text, headers={"content-type": CONTENT_TYPE})

    async def status(self, request: Request) -> Response:
        await self._backend.look()
        return JSONResponse(self._own_status())

    async def members(self, request: Request) -> Response:
        return JSONResponse(self._backend.members())

    async def scrape_targets(self, request: Request) -> Response:
        from rota.http.metrics import scrape_targets

        return JSONResponse(scrape_targets(self._backend.members()))

    async def suspicions(self, request: Request) -> Response:
        return JSONResponse(self._backend.suspicions())

    async def views(self, request: Request) -> Response:
        return JSONResponse(await self._backend.views())

    async def host(self, request: Request) -> Response:
        return JSONResponse(await self._backend.host(request.path_params["name"]))

    async def measured(self, request: Request) -> Response:
        return JSONResponse(await self._backend.measured())

    async def events(self, request: Request) -> Response:
        after = whole_number(request, "after", 0) or 0
        if "text/event-stream" not in request.headers.get("accept", ""):
            if request.query_params.get("local") == "1":
                return JSONResponse({"events": self._backend.local_events(after)})
            return JSONResponse(await self._backend.events(after))

        return _event_stream(self._backend.follow(after))

    async def _control(self, request: Request, name: str, asked: dict[str, Any]) -> Response:
        caller: Caller = request.state.caller
        if caller.name:
            asked = {**asked, ASKED_BY: str(caller)}
        return JSONResponse(await self._backend.control(name, asked))

    def controlled(self, name: str, /, **fields: type) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return await self._control(request, name, await requested_fields(request, fields))

        return endpoint

    async def apply(self, request: Request) -> Response:
        if await json_object(request):
            raise ApiError(
                'send {}, or {"digest": DIGEST} of the plan that was shown to /v1/apply/shown',
                code="bad_request",
                status=400,
            )
        return await self._control(request, "apply", {})

    async def keys(self, request: Request) -> Response:
        action, arguments = ("list", {}) if request.method == "GET" else await key_arguments(request)
        return JSONResponse(await self._backend.keys(action, arguments))

    async def streams(self, request: Request) -> Response:
        only_names = whole_number(request, "names", 0) == 1
        return JSONResponse(await self._backend.store().streams(only_names=only_names))

    async def append(self, request: Request) -> Response:
        payload = await bounded_body(request, LARGEST_RECORD)
        return JSONResponse(await self._backend.store().append(request.path_params["stream"], payload))

    async def read(self, request: Request) -> Response:
        address = whole_number(request, "address", None)
        limit = whole_number(request, "limit", 100) or 100
        if "text/event-stream" in request.headers.get("accept", ""):
            return _event_stream(
                self._backend.store().follow(
                    request.path_params["stream"], whole_number(request, "start", None)
                )
            )
        stream, start = request.path_params["stream"], whole_number(request, "start", None)
        most = whole_number(request, "most", None)
        return JSONResponse(await self._backend.store().read(stream, address, limit, start, most))

    async def entries(self, request: Request) -> Response:
        limit = whole_number(request, "limit", LARGEST_LISTING) or LARGEST_LISTING
        name, most = request.path_params["name"], whole_number(request, "most", None)
        after = request.query_params.get("after")
        return JSONResponse(await self._backend.store().entries(name, limit, most, after))

    async def change(self, request: Request) -> Response:
        wanted = await json_object(request, LARGEST_CHANGE)
        if wanted.get("action") != "get":
            demand(request.state.caller, OPERATE)
        return JSONResponse(await self._backend.store().change(request.path_params["name"], wanted))

    async def cut(self, request: Request) -> Response:
        return JSONResponse(await self._backend.store().cut())

    async def part(self, request: Request) -> Response:
        start, end = whole_number(request, "start", 0) or 0, whole_number(request, "end", 0) or 0
        return Response(await self._backend.store().part(start, end), media_type="application/octet-stream")

    async def restore(self, request: Request) -> Response:
        asked = await requested_fields(request, {"backup": str, "resume": bool})
        if not asked["resume"]:
            await self._backend.store().check_empty()
        return await self._control(request, "restore", asked)

    async def restored(self, request: Request) -> Response:
        asked = await json_object(request, LARGEST_INTENT)
        return await self._control(
            request, "restored", {"backup": asked.get("backup"), "intent": asked.get("intent")}
        )

    async def restore_part(self, request: Request) -> Response:
        await self._backend.store().write_part(await bounded_body(request, LARGEST_PART))
        return JSONResponse({})

    def operation(self, action: str, defaults: dict[str, Any]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return JSONResponse(
                await self._backend.operate(action, {**defaults, **await json_object(request)})
            )

        return endpoint

    async def leave(self, request: Request) -> Response:
        try:
            answer = await self._backend.operate("leave", {})
        except ApiError:
            await self._backend.answered()
            raise
        return JSONResponse(answer, background=BackgroundTask(self._backend.answered))

    async def login(self, request: Request) -> Response:
        return await log_in(request, self._access)

    async def logout(self, request: Request) -> Response:
        return log_out(request, self._access)

    async def session(self, request: Request) -> Response:
        caller: Caller = request.state.caller
        return JSONResponse({"name": caller.name or None, "role": caller.role})


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
