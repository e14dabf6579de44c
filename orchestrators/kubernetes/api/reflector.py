"""List, then watch, and never stop: what happens to the objects of one kind, as one stream of news.

A watch ends by itself now and then and goes on from the last resource version, which bookmarks keep recent.  Where the
server has forgotten that version (410), or answers with an error, everything is listed again; the cache finds out what
has changed meanwhile.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import trio

from orchestrators.kubernetes.api.client import ApiClient
from orchestrators.kubernetes.api.kinds import Kind
from orchestrators.kubernetes.errors import ExpiredError, RequestError, UnreachableError

log = logging.getLogger("rota.kubernetes")

PAGE: Final = 500
"""Objects per answer of a list."""
WATCH_SECONDS: Final = 300
"""After which the server ends a watch.  A bookmark comes about once a minute."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
NOT_SERVED: Final = 404
FORBIDDEN: Final = 403
EXPIRED: Final = 410


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects there are."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Changed:
    """One object is new or other than it was; or ``deleted``."""

    item: dict[str, Any]
    deleted: bool = False


async def news(
    client: ApiClient, kind: Kind, namespace: str = "", **selectors: str
) -> AsyncGenerator[Listed | Changed]:
    """What a reflector hears, for ever.  A kind that nobody may see or that is not served is listed as empty,
    unless it was listed before: then what is known stays.
    """
    pause = FIRST_PAUSE
    version: str | None = None
    is_known = False
    while True:
        try:
            if version is None:
                items, version = await listed(client, kind, namespace, **selectors)
                is_known = True
                yield Listed(items)
            async with aclosing(watched(client, kind, version, namespace, **selectors)) as events:
                async for event in events:
                    pause = FIRST_PAUSE
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield Changed(event["object"], event["type"] == "DELETED")
            continue
        except ExpiredError:
            version = None
            continue
        except UnreachableError as error:
            log.warning("%s: %s", kind.plural, error)
        except RequestError as error:
            version = None
            if error.status in (NOT_SERVED, FORBIDDEN) and not kind.required:
                log.warning("%s are not read: %s", kind.plural, error)
                if not is_known:
                    yield Listed([])
                pause = LONGEST_PAUSE
            else:
                log.warning("%s: %s", kind.plural, error)
        await trio.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, LONGEST_PAUSE)


async def listed(
    client: ApiClient, kind: Kind, namespace: str = "", **selectors: str
) -> tuple[list[dict[str, Any]], str]:
    """All objects and the resource version to watch from, page by page."""
    items: list[dict[str, Any]] = []
    more: dict[str, str] = {}
    while True:
        try:
            page = await client.get(kind.path(namespace), limit=str(PAGE), **selectors, **more)
        except RequestError as error:
            if error.status == EXPIRED and more:  # the pages were asked for too slowly
                raise ExpiredError(str(error)) from error
            raise
        items += page.get("items") or ()
        token = page["metadata"].get("continue")
        if not token:
            return items, str(page["metadata"]["resourceVersion"])
        more = {"continue": token}


async def watched(
    client: ApiClient, kind: Kind, version: str, namespace: str = "", **selectors: str
) -> AsyncGenerator[dict[str, Any]]:
    """Events until the server ends the watch.  Raises ExpiredError when it cannot go on from this version."""
    parameters = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(int(WATCH_SECONDS * random.uniform(1, 2))),
    }
    try:
        async with client.lines(
            kind.path(namespace), silence=2.0 * WATCH_SECONDS + 30, **parameters, **selectors
        ) as lines:
            async for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise _error_of(event["object"])
                yield event
    except RequestError as error:
        raise (ExpiredError(str(error)) if error.status == EXPIRED else error) from error


def _error_of(status: dict[str, Any]) -> Exception:
    code, message = int(status.get("code", 500)), str(status.get("message", ""))
    if code == EXPIRED:
        return ExpiredError(message)
    return RequestError(code, str(status.get("reason", "")), message)
