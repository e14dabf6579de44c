"""A client's connection to an agent: TCP, TLS or a Unix socket; and what went wrong with TLS, in words."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import Final

from rota.client.target import Target, Where

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes (X509_V_ERR_...)."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection_to(where: Where, target: Target, timeout: float) -> http.client.HTTPConnection:
    """Raises :class:`UsageProblem` where a file of the target is no good."""
    if where.scheme == "unix":
        return _UnixConnection(where.host, timeout)
    if where.scheme == "https":
        return http.client.HTTPSConnection(where.host, where.port, timeout=timeout, context=target.tls())
    return http.client.HTTPConnection(where.host, where.port, timeout=timeout)


def tls_problem(error: Exception, where: Where) -> str:
    """What is wrong with TLS, and what to do; empty if it is something else."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification_problem(error, where)
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason or error)
        if "CERTIFICATE_REQUIRED" in reason or "UNKNOWN_CA" in reason:
            return (
                "the agent wants a certificate of yours; give --certificate FILE (certificate and key in PEM)"
            )
        if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason:
            return "no TLS is spoken there; is it http://?"
        return f"TLS failed ({reason.lower().replace('_', ' ')})"
    if isinstance(error, http.client.BadStatusLine | ConnectionResetError) and where.scheme != "unix":
        if where.scheme == "http":
            return "the answer is no HTTP; is it https://?"
        return "the agent hung up; if it wants a certificate of yours, give --certificate FILE"
    return ""


def _verification_problem(error: ssl.SSLCertVerificationError, where: Where) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "the agent's certificate has expired; renew it there and send the agent SIGHUP"
    if code == _NOT_YET_VALID:
        return "the agent's certificate is not valid yet; compare the clocks"
    if code in _UNKNOWN_AUTHORITY:
        return "the agent's certificate is not from an authority that is known here; give --ca-file FILE"
    if code in _WRONG_NAME:
        return f"the agent's certificate is for other names than {where.host}; use one of those"
    return f"the agent's certificate is no good ({error.verify_message})"
