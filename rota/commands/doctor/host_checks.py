"""What is wrong with this host: settings, versions, addresses, clock, disk, limits, and the agent that runs here.

Each check looks at one thing, changes nothing, and says what to do about what it finds.  A host with warnings works;
one that fails a check does not, or not for long.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from membership import Address, KeyRingError
from membership.wire.key_ring import read_key_file
from rota.access.access import Access
from rota.access.tls import TlsFiles
from rota.agent.settings import AgentSettings, default_data_dir
from rota.client.api_client import ApiClient
from rota.client.target import UNIX, Target
from rota.errors import AgentError, ApiError, SettingsError

CONNECT_SECONDS = 2.0
SYNCS = 8
SLOW_SYNC = 0.05
"""Seconds: an append waits for one on each replica, one after the other."""
LITTLE_SPACE = 1 << 30
ENOUGH_DESCRIPTORS = 4096
SOON = 14 * 86400
"""Seconds: a certificate that expires within these should be renewed by now."""
_UNSYNCHRONISED = 5
"""What adjtimex(2) answers when nothing disciplines the clock (TIME_ERROR)."""
_NETWORK_OR_MEMORY = {"tmpfs", "ramfs", "nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "overlay"}


class Outcome(StrEnum):
    """How one check ended."""

    GOOD = "good"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; ``remedy`` is empty where all is well."""

    check: str
    outcome: Outcome
    text: str
    remedy: str = ""


def examine(load: Callable[[], AgentSettings], named: Callable[[str], Target]) -> Iterator[Finding]:
    """All checks, one after the other.  ``named`` gets the address of the agent that the settings are of, and returns
    the one to ask."""
    try:
        settings = load()
    except SettingsError as error:
        yield Finding("settings", Outcome.FAILED, str(error), "an agent does not start with these settings")
        settings = AgentSettings()
    else:
        yield Finding("settings", Outcome.GOOD, "they can be used")
    yield versions(places=settings.has_store)
    running, finding = agent(named(own_address(settings)))
    yield finding
    yield from () if running else map(free_to_listen, (settings.listen, settings.api))
    yield from map(reachable, settings.seeds)
    if settings.key_file is not None:
        yield keys(settings.key_file)
    if settings.api_certificate is not None:
        yield access(settings)
    yield clock()
    yield from disk(settings.data_dir or default_data_dir(settings.name or str(settings.listen)))
    yield descriptors()


def own_address(settings: AgentSettings) -> str:
    """Where a program on this host reaches the agent of these settings: at its Unix socket, if it has one."""
    if settings.api_socket is not None:
        return f"{UNIX}{settings.api_socket}"
    host, port = settings.api
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'http' if settings.api_certificate is None else 'https'}://{Address(here, port)}"


def versions(*, places: bool) -> Finding:
    """Of Python and of what rota is built on.  An agent that ``places`` anything needs the solvers, too."""
    told = [f"rota {importlib.metadata.version('rota')}", f"Python {sys.version.split()[0]}"]
    for package in ("trio", "msgspec", *(("ortools", "sqlglot") if places else ())):
        try:
            told.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            text = f"{package} is not installed, and an agent that places anything needs it"
            remedy = "pip install 'rota[agent,plane]'; without data: `rota agent --no-store`"
            return Finding("versions", Outcome.FAILED, text, remedy)
    return Finding("versions", Outcome.GOOD, ", ".join(told))


def agent(target: Target) -> tuple[bool, Finding]:
    """Whether one runs here, and how it is."""
    try:
        status = ApiClient(target, timeout=CONNECT_SECONDS).get("/v1/status")
    except ApiError as error:
        if error.code == "unreachable":
            text = f"none answers at {target.api}"
            return False, Finding("agent", Outcome.WARNING, text, "start it, or name it with --api")
        if error.code == "tls" or error.status:
            remedy = "let this command in with --ca-file and --token-file, or give the agent an api_socket"
            return True, Finding("agent", Outcome.WARNING, f"one is at {target.api}: {error}", remedy)
        return False, Finding("agent", Outcome.WARNING, str(error), "name it with --api")
    name = status["name"]
    if status["epoch"] is None:
        return True, Finding(
            "agent",
            Outcome.WARNING,
            f"{name} is {status['state']}, in no view",
            "see its log, and the seeds below",
        )
    if not status["quorum"]:
        return True, Finding(
            "agent", Outcome.FAILED, f"{name} has no majority within reach",
            "start the others, or look at the network; for good: `rota recover --help`",
        )  # fmt: skip
    if lost := (status.get("control") or {}).get("layout_servers_lost"):
        return True, Finding(
            "agent", Outcome.FAILED, f"{name}: a majority of the layout servers is lost, with {', '.join(lost)}",
            "start them with the disks they had; for good: `rota layout recover --help`",
        )  # fmt: skip
    trouble = (status.get("control") or {}).get("last_error")
    if trouble:
        return True, Finding("agent", Outcome.WARNING, f"{name}: {trouble}", "`rota status` shows more")
    dropped = sum(status["dropped"].values())
    told = f"{name} is a {status['state']} of view {status['epoch']}, with {status['size']} members"
    if dropped:
        return True, Finding(
            "agent",
            Outcome.WARNING,
            f"{told}; it has refused or lost {dropped} messages",
            "`rota status` says which and why",
        )
    return True, Finding("agent", Outcome.GOOD, told)


def free_to_listen(address: Address) -> Finding:
    """Whether an agent could listen there."""
    check = f"port {address.port}"
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
            try:
                probe.bind((address.host, address.port))
            except OSError as error:
                remedy = "another program has it, or the address is not of this host: see `ss -lntup`"
                return Finding(check, Outcome.FAILED, f"{address}: {error.strerror}", remedy)
    return Finding(check, Outcome.GOOD, f"{address} is free")


def reachable(seed: str) -> Finding:
    """Whether a seed's name is known and something listens there."""
    address = Address.parse(seed)
    try:
        with socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS):
            return Finding("seed", Outcome.GOOD, f"{seed} accepts connections")
    except socket.gaierror as error:
        return Finding("seed", Outcome.FAILED, f"{seed}: {error.strerror}", "correct the name, or DNS")
    except OSError as error:
        reason = error.strerror or "no answer"
        return Finding(
            "seed", Outcome.WARNING, f"{seed}: {reason}", "is it running, and are TCP and UDP let through?"
        )


def keys(path: Path) -> Finding:
    """Whether the key file can be used."""
    try:
        count = len(read_key_file(path))
    except KeyRingError as error:
        return Finding("keys", Outcome.FAILED, str(error), "`rota keys generate --help` makes one")
    return Finding("keys", Outcome.GOOD, f"{count} in {path}")


def access(settings: AgentSettings) -> Finding:
    """Whether the HTTP interface can be served with the certificate and the tokens that are there."""
    check = "https"
    try:
        found = Access(
            settings.api_tokens,
            TlsFiles.of(settings.api_certificate, settings.api_key, settings.api_client_ca),
        )
    except AgentError as error:
        return Finding(check, Outcome.FAILED, str(error), "docs/remote.md makes certificates and tokens")
    assert found.expiry is not None, "there is a certificate"
    told = f"for {found.names}, {len(list(found.tokens))} tokens; the certificate expires on "
    told += time.strftime("%Y-%m-%d", time.gmtime(found.expiry))
    remedy = "renew it, and send the agent SIGHUP"
    if found.expiry <= time.time():
        return Finding(check, Outcome.FAILED, told.replace("expires", "expired"), remedy)
    soon = found.expiry < time.time() + SOON
    return Finding(check, Outcome.WARNING if soon else Outcome.GOOD, told, remedy if soon else "")


def clock() -> Finding:
    """Whether anything keeps it right.  No decision of the membership or the log depends on it; what is logged does."""
    # A struct timex is some 200 bytes; with mode 0 it is only read, and the answer is the clock's state.
    answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))
    if answer == _UNSYNCHRONISED:
        return Finding(
            "clock", Outcome.WARNING, "nothing synchronises it",
            "run chrony or systemd-timesyncd: times of events, cooldown and freeze windows go by it",
        )  # fmt: skip
    return Finding("clock", Outcome.GOOD, "it is synchronised")


def disk(directory: Path) -> Iterator[Finding]:
    """Whether data can be kept there, how much, and how fast it is durable."""
    place = next(
        folder for folder in (directory.absolute(), *directory.absolute().parents) if folder.exists()
    )
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding("disk", Outcome.FAILED, f"{place} cannot be written", "give it to the agent's user")
        return
    free = shutil.disk_usage(place).free
    told = f"{free / 1e9:.1f} GB free at {place}"
    kind = _file_system(place)
    if free < LITTLE_SPACE:
        yield Finding(
            "disk",
            Outcome.WARNING,
            told,
            "free some: a full disk takes no records, and its copies go elsewhere",
        )
    elif kind in _NETWORK_OR_MEMORY:
        yield Finding(
            "disk", Outcome.WARNING, f"{told}, on {kind}", "keep the data directory on a local disk"
        )
    else:
        yield Finding("disk", Outcome.GOOD, f"{told}, on {kind}")
    seconds = _sync_seconds(place)
    told = f"{seconds * 1000:.1f} ms in the median of {SYNCS}"
    if seconds > SLOW_SYNC:
        yield Finding(
            "fsync", Outcome.WARNING, told, "every append waits for that: use a faster disk, or a quieter one"
        )
    else:
        yield Finding("fsync", Outcome.GOOD, told)


def _file_system(place: Path) -> str:
    """The type of the mount that is nearest above."""
    best, kind = Path("/"), "?"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, each, *_ = line.split()
        where = Path(mounted.replace("\\040", " "))
        if place.resolve().is_relative_to(where) and len(where.parts) >= len(best.parts):
            best, kind = where, each
    return kind


def _sync_seconds(place: Path) -> float:
    seconds = []
    with tempfile.NamedTemporaryFile(dir=place, prefix=".rota-doctor-") as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def descriptors() -> Finding:
    """Whether a process of this user may hold enough connections and files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < ENOUGH_DESCRIPTORS:
        return Finding(
            "descriptors",
            Outcome.WARNING,
            f"at most {hard}",
            f"raise LimitNOFILE or `ulimit -n` to {ENOUGH_DESCRIPTORS}",
        )
    return Finding("descriptors", Outcome.GOOD, f"{soft}, which agents may raise")
