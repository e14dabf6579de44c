"""A connection to one vCenter: the vendor's blocking client in worker threads, its errors in one line each.

The certificate is always checked: against the system's authorities, or those of a file.  User and password come from a
file that nobody else can read: two lines, or ``user:`` and ``password:`` before them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from xml.parsers.expat import ExpatError

import trio
from pyVim.connect import SmartStubAdapter
from pyVmomi import vim, vmodl

from orchestrators.vsphere.errors import (
    CertificateError,
    CredentialsError,
    NoPermissionError,
    RefusedError,
    SessionExpiredError,
    UnreachableError,
    VsphereError,
)

Answer = TypeVar("Answer")

_PORT = 443
_TIMEOUT = 60
"""Seconds for an answer; longer than any wait for updates."""
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who logs in."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, ...)"

    @classmethod
    def read(cls, path: Path) -> Credentials:
        """Raises CredentialsError for a file that others can read, or that has no user and password."""
        try:
            mode, text = path.stat().st_mode, path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialsError(f"cannot read the credentials in {path}: {error}") from error
        if mode & 0o077:
            raise CredentialsError(f"others can read the credentials in {path}: chmod 600 {path}")
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) != 2:
            raise CredentialsError(f"{path} is to have two lines, the user and the password")
        user, password = (
            line.removeprefix(label).strip()
            for line, label in zip(lines, ("user:", "password:"), strict=True)
        )
        return cls(user, password)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a vCenter is, and whom to believe."""

    host: str
    port: int = _PORT
    ca_file: Path | None = None

    def __str__(self) -> str:
        return self.host if self.port == _PORT else f"{self.host}:{self.port}"

    @classmethod
    def parsed(cls, text: str, ca_file: Path | None = None) -> Address:
        """``HOST``, ``HOST:PORT`` or ``https://HOST``.  Raises UnreachableError for anything else."""
        bare = text.removeprefix("https://").rstrip("/").removesuffix("/sdk")
        host, _, port = bare.rpartition(":") if bare.rpartition(":")[2].isdecimal() else (bare, "", "")
        if not host or "/" in host:
            raise UnreachableError(f"{text!r} is no address of a vCenter: give HOST, or HOST:PORT")
        return cls(host.strip("[]"), int(port or _PORT), ca_file)


class Connection:
    """One session.  All calls run in threads of its own limiter."""

    def __init__(self, address: Address, credentials: Credentials) -> None:
        self.address = address
        self._credentials = credentials
        self._limiter = trio.CapacityLimiter(_THREADS)
        self._stub: Any = None
        self._content: Any = None

    @property
    def content(self) -> Any:
        """vCenter's service content, once it is connected."""
        return self._content

    async def connect(self) -> None:
        """Log in, or in again.  Raises CertificateError, CredentialsError, UnreachableError."""
        self._drop()
        with trio.move_on_after(_TIMEOUT):
            self._stub, self._content = await self.call(self._connect)
            return
        raise UnreachableError(f"{self.address} does not answer within {_TIMEOUT} s")

    def _connect(self) -> tuple[Any, Any]:
        """A session, which nobody has yet: the caller may have given up."""
        try:
            context = ssl.create_default_context(cafile=self.address.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(f"{self.address.ca_file} holds no certificates: {error}") from error
        stub: Any = SmartStubAdapter(  # asks for the versions of the API, without any limit of time
            host=self.address.host,
            port=self.address.port,
            sslContext=context,
            httpConnectionTimeout=_TIMEOUT,
        )
        content: Any = vim.ServiceInstance("ServiceInstance", stub).RetrieveContent()
        try:
            content.sessionManager.Login(self._credentials.user, self._credentials.password)
        except BaseException:
            stub.DropConnections()
            raise
        return stub, content

    def _drop(self) -> None:
        if self._stub is not None:
            self._stub.DropConnections()

    async def close(self) -> None:
        """Log out, if the session is still there."""
        if self._content is not None:
            with trio.move_on_after(5, shield=True), suppress(VsphereError):
                await self.call(self._content.sessionManager.Logout)
        self._drop()

    async def call(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Run what blocks in a thread.  Raises the errors of this package only."""
        try:
            return await trio.to_thread.run_sync(
                partial(function, *arguments), limiter=self._limiter, abandon_on_cancel=True
            )
        except VsphereError:
            raise
        except Exception as error:
            found = self.translated(error)
            if found is None:
                raise
            raise found from error

    def translated(self, error: Exception) -> VsphereError | None:
        """In one line; None for what is no error of vCenter or the network."""
        at = self.address
        if isinstance(error, ssl.SSLCertVerificationError):
            return CertificateError(
                f"the certificate of {at} is not trusted ({error.verify_message}): give the authority's with --ca-file"
            )
        if isinstance(error, ssl.SSLError):
            return UnreachableError(f"{at} does not speak TLS as expected: {error.reason or error}")
        if isinstance(error, vim.fault.InvalidLogin):
            return CredentialsError(
                f"{at} refuses the password of {self._credentials.user}: see the file given by --credentials"
            )
        if isinstance(error, vim.fault.NotAuthenticated):
            return SessionExpiredError(f"{at} no longer knows the session")
        if isinstance(error, vim.fault.NoPermission):
            return NoPermissionError(
                f"{self._credentials.user} may not do this at {at}: it lacks {error.privilegeId or 'a privilege'}"
            )
        if isinstance(error, vmodl.MethodFault):
            return RefusedError(fault_text(error))
        if isinstance(error, (OSError, HTTPException, EOFError, ExpatError, UnicodeError)):
            return UnreachableError(f"{at} does not answer: {error}")
        if type(error) is Exception:  # what the client raises where it finds no API
            return UnreachableError(f"{at} is no vCenter: {error}")
        return None


def fault_text(fault: Any) -> str:
    """What a fault says, or is."""
    texts = [str(getattr(fault, "localizedMessage", None) or getattr(fault, "msg", None) or "")]
    texts += [
        str(message.message) for message in getattr(fault, "faultMessage", None) or () if message.message
    ]
    kind = type(getattr(fault, "fault", None) or fault).__name__.rpartition(".")[2]
    said = "; ".join(" ".join(text.split()) for text in texts if text)
    return said if kind in said or not kind else f"{said} ({kind})".strip()
