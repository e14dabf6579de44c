"""The command line's side of an agent's HTTP interface: blocking, standard library only.

It is used by short-lived commands and, from worker threads, by the local cluster and the demo.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rota.client.target import DEFAULT_URL, Target, Where
from rota.errors import ApiError
from rota.version import VERSION

if TYPE_CHECKING:
    import http.client

LARGEST_ANSWER = 256 * 2**20
CONNECT_TIMEOUT = 5.0
"""Seconds, where there is another agent to ask."""


class ApiClient:
    """One agent's HTTP interface: an address (``host:port``, with ``http://`` or ``https://`` before it, or
    ``unix:/path``), or a :class:`Target`, which says how to be let in as well.

    Of several addresses the first that answers is asked, and from then on as long as it does.
    """

    def __init__(self, target: Target | str = DEFAULT_URL, *, timeout: float = 30.0) -> None:
        self._target = target if isinstance(target, Target) else Target(target)
        self._others = self._target.where()
        self._where = self._others[0]
        self._token = self._target.token()
        self._timeout = timeout

    @property
    def url(self) -> str:
        return self._where.text

    def get(self, path: str, **query: Any) -> Any:
        """The decoded JSON answer.  Raises :class:`ApiError` with the agent's own sentence."""
        return self._call("GET", path, query, None)

    def post(self, path: str, body: bytes | Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Like :meth:`get`; a mapping is sent as JSON, bytes as they are."""
        return self._call("POST", path, query, body)

    def fetch(self, path: str, **query: Any) -> bytes:
        """An answer that is no JSON, as it is.  Raises as :meth:`get`."""
        status, raw = self._exchange("GET", path, query, None, accept="application/octet-stream")
        if status >= 400:
            raise self._refused(self._decoded(raw), status, path)
        return raw

    def _call(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | Mapping[str, Any] | None
    ) -> Any:
        status, raw = self._exchange(method, path, query, body)
        answer = self._decoded(raw)
        if status >= 400:
            raise self._refused(answer, status, path)
        return answer

    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: bytes | Mapping[str, Any] | None,
        accept: str = "application/json",
    ) -> tuple[int, bytes]:
        # An agent knows this module too, and asks nobody: it need not load a client.
        import http.client

        connection = self._connected()
        try:
            response = self._request(connection, method, path, query, body, accept)
            raw = response.read(LARGEST_ANSWER)
            if (
                response.length
            ):  # a read of so many bytes takes the end of a connection for that of the answer
                raise http.client.IncompleteRead(raw, response.length)
            return response.status, raw
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable({self._where: error}) from error
        finally:
            connection.close()

    def _decoded(self, raw: bytes) -> Any:
        try:
            return json.loads(raw) if raw else None
        except ValueError as error:
            raise ApiError(f"{self.url} answers, but is not a rota agent") from error

    def follow(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Server-sent events of ``path``, decoded, until the agent ends or the caller stops."""
        import http.client

        connection = self._connected()
        try:
            response = self._request(connection, "GET", path, query, None, accept="text/event-stream")
            if response.status >= 400:
                answer = self._decoded(_whole(response))
                raise self._refused(answer, response.status, path)
            for line in response:
                if line.startswith(b"data:"):
                    event = json.loads(line[5:])
                    if "error" in event:
                        raise self._refused(event, response.status, path)
                    yield event
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable({self._where: error}) from error
        finally:
            connection.close()

    def _request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: bytes | Mapping[str, Any] | None,
        accept: str = "application/json",
    ) -> http.client.HTTPResponse:
        given = {key: value for key, value in query.items() if value is not None}
        target = quote(path) + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": accept}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if isinstance(body, Mapping):
            body = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        elif body is not None:
            headers["Content-Type"] = "application/octet-stream"
        elif method == "POST":
            headers["Content-Type"] = (
                "application/json"  # of nothing; the agent refuses what a form could send
            )
        connection.request(method, target, body=body, headers=headers)
        return connection.getresponse()

    def _connected(self) -> http.client.HTTPConnection:
        """A connection to the agent that was asked last, or to the next one that answers."""
        import http.client

        from rota.client.connections import connection_to

        refused: dict[Where, Exception] = {}
        for where in dict.fromkeys((self._where, *self._others)):
            connection = connection_to(where, self._target, self._timeout)
            if len(self._others) > 1:  # a machine that is off answers nothing at all
                connection.timeout = min(CONNECT_TIMEOUT, self._timeout)
            try:
                connection.connect()
            except (OSError, http.client.HTTPException) as error:
                refused[where] = error
                connection.close()
            else:
                connection.sock.settimeout(self._timeout)
                self._where = where
                return connection
        raise self._unreachable(refused)

    def _unreachable(self, errors: Mapping[Where, Exception]) -> ApiError:
        from rota.client.connections import tls_problem

        reasons = {}
        for where, error in errors.items():
            if problem := tls_problem(error, where):
                return ApiError(f"{where.text}: {problem}", code="tls")
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            reasons[where.text] = reason
        told = ", ".join(f"{url} ({reason})" for url, reason in reasons.items())
        return ApiError(
            f"no agent answers at {told}; start one with `rota up`, or name another with --api",
            code="unreachable",
        )

    def _refused(self, answer: Any, status: int, path: str) -> ApiError:
        if status in (404, 405) and isinstance(answer, dict) and answer.get("code") == "not_found":
            return ApiError(
                f"the agent at {self.url} does not know {path} (HTTP status {status}): it is of another version than "
                f"this rota {VERSION}, `rota status` says which; upgrade the older of the two",
                code="other_version",
                status=status,
            )
        if isinstance(answer, dict) and isinstance(answer.get("error"), str):
            return ApiError(answer["error"], code=str(answer.get("code", "refused")), status=status)
        return ApiError(f"the agent answered with HTTP status {status}", status=status)


def _whole(response: http.client.HTTPResponse) -> bytes:
    """The rest of an answer; a read of so many bytes takes the end of a connection for that of the answer."""
    import http.client

    raw = response.read(LARGEST_ANSWER)
    if response.length:
        raise http.client.IncompleteRead(raw, response.length)
    return raw
