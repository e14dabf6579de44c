"""Logging in and out with a browser: a token is typed once, and a cookie that scripts cannot read stands for it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rota.access.access import COOKIE, Access, Caller, peer_of
from rota.access.sessions import LIFETIME
from rota.errors import ApiError
from rota.http.requests import requested_fields


async def log_in(request: Request, access: Access) -> Response:
    """Raises :class:`ApiError` for a token that is not known."""
    if access.token_file is None:
        raise ApiError("this agent needs no token", code="no_tokens", status=409)
    fields = await requested_fields(request, {"token": str})
    token = access.holder(fields["token"].strip())
    request.state.caller = Caller(token.name, token.role, peer_of(request).address)
    response = JSONResponse({"name": token.name, "role": token.role})
    number = access.sessions.open(token)
    response.set_cookie(
        COOKIE, number, max_age=int(LIFETIME), path="/", secure=True, httponly=True, samesite="strict"
    )
    return response


def log_out(request: Request, access: Access) -> Response:
    """Ends the session, if there is one."""
    access.sessions.close(request.cookies.get(COOKIE, ""))
    response = JSONResponse({})
    response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    return response
