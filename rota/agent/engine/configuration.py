"""The configuration file of one server that an agent runs: each line is one that rota needs, or promises something by.

Three parts, later lines before earlier ones: defaults that operators may change, what they included, and what has to
be so.  Everything else is as the server's authors chose it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NODE_TIMEOUT: Final = 15.0
"""Seconds after which the servers fail over by themselves.  The agents act after a few hundredths of a second; this is
for the case that no agent is there to do it."""

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,254}")


@dataclass(frozen=True, slots=True)
class Ports:
    """Of one server: for clients, and for the other servers."""

    clients: int
    cluster: int


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What all servers of one agent have in common."""

    program: Path
    bind: str
    """The address that they listen on, without a port."""
    announced: str
    """The address at which others reach them, without a port: a number, no name."""
    host: str = ""
    """The host's name in the cluster, which the servers tell each other."""
    rack: str = ""
    password: str = ""
    """Of the default user.  Empty: none is asked for."""
    include: Path | None = None
    """A file of the operators' own settings."""


def configuration(options: ServerOptions, ports: Ports, place: Path) -> str:
    """The text of the file, for the server with these ports in this directory."""
    lines = [
        # A server that was started again must not come back empty: its replicas would follow it.
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        f"cluster-node-timeout {int(NODE_TIMEOUT * 1000)}",
        # A replica that was away for a moment, or follows a new primary, gets what it missed instead of everything.
        "repl-backlog-size 16mb",
        "repl-diskless-sync-delay 0",
        # A primary that is stopped waits so long for its replicas to have everything.
        "shutdown-timeout 3",
    ]
    if not _is_valkey(options):
        # Redis 7 looks at a request to take over ten times a second, or with every tick of its clock where a tick is
        # longer than 50 ms: this is the shortest such tick, and a fail-over waits half as long.
        lines.append("hz 19")
    if options.rack and _is_valkey(options):
        lines.append(f"availability-zone {quoted(options.rack)}")
    if options.include is not None:
        lines.append(f"include {quoted(str(options.include.absolute()))}")
    lines += [
        f"bind {options.bind}",
        f"port {ports.clients}",
        f"dir {quoted(str(place.absolute()))}",
        "daemonize no",
        'logfile ""',
        "cluster-enabled yes",
        "cluster-config-file nodes.conf",
        f"cluster-port {ports.cluster}",
        # The others would take it for the address that its connections come from.
        f"cluster-announce-ip {options.announced}",
        # A replica must not move to another shard by itself, whatever its rack.
        "cluster-allow-replica-migration no",
        # One shard that is away must not stop the others.
        "cluster-require-full-coverage no",
    ]
    if _HOST_NAME.fullmatch(options.host):
        lines.append(f"cluster-announce-hostname {options.host}")
    if options.password:
        lines += [f"requirepass {quoted(options.password)}", f"masterauth {quoted(options.password)}"]
    else:
        lines.append("protected-mode no")
    return "\n".join(lines) + "\n"


def _is_valkey(options: ServerOptions) -> bool:
    return "valkey" in options.program.name


def quoted(text: str) -> str:
    """As the servers read it back: in double quotes, with every byte that could mean something else escaped."""
    return '"' + "".join(_escaped(byte) for byte in text.encode()) + '"'


def _escaped(byte: int) -> str:
    sign = chr(byte)
    return sign if byte < 127 and sign.isprintable() and sign not in '"\\' else f"\\x{byte:02x}"
