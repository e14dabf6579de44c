"""Which agent a command talks to, and how it is let in.

The command line comes first (``--api``), then the environment (``ROTA_API``), then the context that is in use
(``rota.client.contexts``), then this machine.  A token and certificates go with the address they were given with:
those of a context are sent nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from rota.access.host_names import is_loopback
from rota.errors import UsageProblem

if TYPE_CHECKING:
    import ssl

DEFAULT_URL: Final = "http://127.0.0.1:7947"
LARGEST_TOKEN_FILE: Final = 4096
UNIX: Final = "unix:"


@dataclass(frozen=True, slots=True)
class Target:
    """``api``: ``http://host:port``, ``https://host:port``, ``host:port`` or ``unix:/path``.  Of several, with commas
    between, the first that answers is asked."""

    api: str = DEFAULT_URL
    token_file: Path | None = None
    ca_file: Path | None = None
    """Authorities in PEM that are believed instead of the system's."""
    certificate: Path | None = None
    """This client's own, with its key in the same file, where the agent asks for one."""

    def where(self) -> tuple[Where, ...]:
        """Raises :class:`UsageProblem` if one of them is no address."""
        return tuple(Where.parse(each.strip()) for each in self.api.split(","))

    def token(self) -> str | None:
        """Raises :class:`UsageProblem` if there is a file and no token in it, or it would be sent in the clear."""
        if self.token_file is None:
            return None
        for where in self.where():
            if where.scheme == "http" and not is_loopback(where.host):
                raise UsageProblem(f"{where.text}: a token is sent over TLS only; write https://")
        try:
            with self.token_file.open("rb") as file:
                raw = file.read(LARGEST_TOKEN_FILE)
        except OSError as error:
            raise UsageProblem(
                f"{self.token_file}: cannot be read: {error.strerror}; `rota tokens add NAME --output FILE` writes one"
            ) from error
        text = raw.decode("utf-8-sig", "replace").strip()
        if not text.isascii() or not text.isprintable() or not text or " " in text:
            raise UsageProblem(f"{self.token_file}: there is no token in it; `rota tokens add` makes one")
        return text

    def tls(self) -> ssl.SSLContext:
        """Raises :class:`UsageProblem` if a file is no good."""
        import ssl  # most commands speak to this machine, without TLS

        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise UsageProblem(
                f"{self.ca_file}: no certificates in PEM: {_reason(error)}; give the authority's with --ca-file"
            ) from error
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, password="")
            except (OSError, ssl.SSLError) as error:
                raise UsageProblem(
                    f"{self.certificate}: no certificate and key in PEM: {_reason(error)}; put both in one file"
                ) from error
        return context


@dataclass(frozen=True, slots=True)
class Where:
    """An address, taken apart.  ``host`` is the path of a Unix socket."""

    scheme: str
    host: str
    port: int
    text: str

    @classmethod
    def parse(cls, url: str) -> Where:
        """Raises :class:`UsageProblem`."""
        if url.startswith(UNIX):
            path = url.removeprefix(UNIX)
            if not path.startswith("/"):
                raise UsageProblem(f"{url!r} is not the address of an agent; write unix:/path/of/the/socket")
            return cls("unix", path, 0, url)
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
            if parts.scheme not in ("http", "https") or not host or parts.username is not None:
                raise ValueError(url)
            if parts.path not in ("", "/") or parts.query or parts.fragment:
                raise ValueError(url)  # it would be left out
        except ValueError:
            raise UsageProblem(
                f"{url!r} is not the address of an agent; write http://127.0.0.1:7947, https://HOST:PORT or unix:/PATH"
            ) from None
        chosen = {"http": 80, "https": 443}[parts.scheme] if port is None else port
        told = f"{parts.scheme}://{parts.netloc}"  # with the port, so that errors say which one was asked
        return cls(parts.scheme, host, chosen, told if port is not None else f"{told.rstrip(':')}:{chosen}")


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
