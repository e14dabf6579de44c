"""The settings of one node agent: defaults, then the configuration file, then the command line.

The file is TOML with the names of the fields below as keys (``[tags]`` is a table).  An unknown key is an
error, with the nearest known one as a hint: a misspelt setting that is silently ignored is the worst kind.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import re
import socket
import tomllib
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from membership import Address, AddressError
from mgmt.control.settings import ControlSettings
from mgmt.source_text import UnreadableTextError, read_text
from mgmt.state.memory_limits import LEAST_MEMORY, MEMORY
from rota.access.host_names import is_loopback
from rota.agent.control_table import known_keys, read_table
from rota.agent.logs import FORMATS, LEVELS
from rota.errors import SettingsError
from rota.services.store_tags import RESERVED

MODES = ("decentralised", "centralised")
PRESETS = ("lan", "wan", "local")
POLICIES = ("rejoin", "stop")
DETECTORS = ("windowed", "phi")
BROADCASTS = ("epidemic", "unicast")
SERVER_STORES = ("valkey", "redis")
"""Stores of which each agent runs the servers."""
STORES = ("log", *SERVER_STORES, "none")
MOST_SERVERS = 16
SHARDS, COPIES_OF_SHARDS = 3, 2
SEGMENTS, COPIES = 12, 3
SERVERS = 2
SIZE_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything a node agent can be told."""

    listen: Address = Address("127.0.0.1", 7946)
    """Where to receive, UDP and TCP on one port.  Port 0 takes a free one."""
    advertise: Address | None = None
    """What the others are told to send to; default: ``listen``.  Needed behind a translated address."""
    api: Address = Address("127.0.0.1", 7947)
    """The HTTP interface.  Port 0 takes a free one.  Any other address than loopback needs the next three."""
    api_certificate: Path | None = None
    """The certificate of the HTTP interface in PEM, and after it those that lead to its authority.  The names it is for
    are those the interface answers to."""
    api_key: Path | None = None
    """The key of that."""
    api_tokens: Path | None = None
    """Who may ask for what: a file that ``rota tokens`` writes."""
    api_client_ca: Path | None = None
    """Certificates in PEM of authorities: then who has no certificate of one of them is not even heard."""
    api_socket: Path | None = None
    """A Unix socket with the same interface, which needs no token: mode 0600, so for this agent's user."""
    api_socket_group: str = ""
    """A group that may use the Unix socket as well (mode 0660)."""
    seeds: tuple[str, ...] = ()
    """``host:port`` of any members, or DNS names resolved again at each try.  None: this agent founds a cluster."""
    mode: str = "decentralised"
    """Who agrees on views: all members (``decentralised``) or an ensemble (``centralised``; seeds are its members)."""
    ensemble: tuple[str, ...] = ()
    """Be a member of the ensemble at these addresses, of which ``listen`` (or ``advertise``) is one, and no member
    of the cluster."""
    expect: int = 1
    """Hold the first common view, and the first placement, until this many agents have met.  Agents that name each
    other as seeds, none of which is told to found, then choose the founder among themselves."""
    name: str = ""
    """Stable name of this host in the cluster; default: the advertised ``host:port``."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Labels agreed with the view.  ``rack`` and ``zone`` steer the placement."""
    data_dir: Path | None = None
    """Where layouts and log segments are kept; default: ``rota-data/NAME`` in the working directory."""
    key_file: Path | None = None
    """Keys in base64, one a line, the first in use; mode 0600.  Packets are encrypted, and no others accepted."""
    state_url: str = ""
    """State database of the management plane; default: SQLite in memory, rebuilt from the agreed state."""
    preset: str = "lan"
    """Timing: ``lan`` (a dead host is removed in about 5 s), ``wan`` (slower, calmer), ``local`` (about 2 s)."""
    detector: str = "windowed"
    """How this host judges those it observes: ``windowed`` (4 of 10 probes failed) or ``phi`` (phi-accrual)."""
    broadcast: str = "epidemic"
    """How this host's news reaches the others: ``epidemic`` (gossip) or ``unicast`` (to all; small clusters)."""
    loss: float = 0.0
    """Fault injection: the share of this agent's datagrams thrown away, 0 to 1."""
    capacity: int = 10**12
    """Bytes this host offers to the placement."""
    manager: bool = True
    """Whether this agent may become the controller."""
    segments: int | None = None
    """Founder: number of segments of the log (its stripes; default: 12), or of shards (default: 3)."""
    replication_factor: int | None = None
    """Founder: copies of each segment; default: 3, of a shard 2: its primary and one replica."""
    policies: str = "datastore"
    """Founder: the policy pack that decides the placement."""
    solver_idle: float = 60.0
    """Seconds without work after which the solver's process is ended; its memory is then free again."""
    keep_solver: bool = True
    """Whether this host, while it is the controller or the next in line, keeps the solver's process (115 MiB) although
    there is nothing to do, so that a repair begins as soon as a host is removed.  ``false``: it is started when a host
    is suspected."""
    solver_memory: int = MEMORY
    """Bytes that the solver's process may take for rows and statements, and as many for a model: what needs more is
    refused before it is built."""
    join_timeout: float | None = None
    """Seconds to try to join before giving up; default: for ever."""
    when_evicted: str = "rejoin"
    """``rejoin`` as a new incarnation, or ``stop``, when the others found this host faulty.  An operator's
    eviction is final either way."""
    insecure: bool = False
    """Without keys: allow listening on other addresses than loopback although nothing is encrypted."""
    store: str = "log"
    """What the cluster keeps its data in: the embedded ``log``, servers of ``valkey`` or ``redis`` that each agent
    runs, or ``none`` (``false``): then the agent only says who is in.  The same on all hosts that have any."""
    engine: tuple[str, ...] = ()
    """Servers of Valkey or Redis Cluster on this host that somebody else runs, ``redis://[user[:password]@]host:port``
    or ``rediss://`` (TLS): they are adopted, and nothing of them is changed until an operator says so."""
    engine_servers: int = SERVERS
    """With ``store`` valkey or redis: servers of this host.  Each holds one copy of one shard; what a lost host held
    needs free ones elsewhere."""
    engine_password_file: Path | None = None
    """Holds the password of the engine's servers; default: for servers that agents run, one that they agree on; else
    what ``engine`` says."""
    engine_config: Path | None = None
    """A file with further settings of the servers that this agent runs, in their own language."""
    engine_ca: Path | None = None
    """TLS with adopted servers: certificates of the authorities that are believed; default: those of the system."""
    engine_certificate: Path | None = None
    """TLS with adopted servers: this agent's certificate, where they ask for one."""
    engine_key: Path | None = None
    """The key of that."""
    control: ControlSettings = field(default_factory=ControlSettings)
    """A table, ``[control]``: how much the controller moves at once, how fast, and when it waits; keys: see
    ``rota.agent.control_table``."""
    log_format: str = "text"
    """How the log is written to standard error: ``text`` for people, ``json`` an object a line."""
    log_level: str = "info"
    """What the log has: ``debug``, ``info``, ``warning`` or ``error`` and above; SIGHUP has it read again."""
    chaos_control: Path | None = None
    """For ``rota chaos run`` only: report to the Unix socket there and take faults from it."""

    def validate(self) -> AgentSettings:
        """Check what one field alone cannot tell; returns self or raises :class:`SettingsError`."""
        if self.state_url:
            raise SettingsError(
                "state_url: only the embedded database is there in this version; leave state_url out"
            )
        self._check_api()
        if not self.insecure and self.key_file is None and not is_loopback(self.listen.host):
            raise SettingsError(
                f"listen: {self.listen} can be reached from outside and nothing is encrypted; give --key-file "
                "(`rota keys generate FILE` makes one), use a loopback address, or say --insecure"
            )
        if _is_wildcard((self.advertise or self.listen).host):
            key = "listen" if self.advertise is None else "advertise"
            raise SettingsError(
                f"{key}: {self.advertise or self.listen} means every interface of this host and cannot be sent to; "
                "give --advertise with the address at which others reach it"
            )
        if self.mode == "centralised" and not self.ensemble and (self.has_store or not self.seeds):
            raise SettingsError(
                "mode: in the centralised mode an agent has --seed with the ensemble's addresses, and --no-store: "
                "the store's layout is begun by a founder, which that mode does not have"
            )
        if self.ensemble and self.seeds:
            raise SettingsError("ensemble: its members ask nobody for admission; leave the seeds out")
        self._check_engine()
        return self

    def _check_api(self) -> None:
        together = {
            "api_certificate": self.api_certificate,
            "api_key": self.api_key,
            "api_tokens": self.api_tokens,
        }
        missing = [key for key, path in together.items() if path is None]
        if missing and not is_loopback(self.api.host):
            raise SettingsError(
                f"api: {self.api} can be reached from outside, which needs TLS and tokens; give "
                f"{' and '.join(missing)}, or use 127.0.0.1"
            )
        if missing and len(missing) < len(together):
            raise SettingsError(
                f"{missing[0]}: TLS and tokens go together, or tokens could be read on the way; give "
                f"{' and '.join(missing)} as well"
            )
        if missing and self.api_client_ca is not None:
            raise SettingsError("api_client_ca: means nothing without TLS; give api_certificate and api_key")
        if self.api_socket_group and self.api_socket is None:
            raise SettingsError("api_socket_group: means nothing without api_socket")

    def _check_engine(self) -> None:
        for key in sorted(RESERVED.intersection(self.tags)):
            raise SettingsError(f"tags: {key} is told by the agent itself; say store or engine instead")
        if self.engine and self.store != "log":
            raise SettingsError(
                f"engine: servers that somebody else runs are adopted, and with store {self.store!r} there are none or "
                "others; leave --store out"
            )
        if self.engine and not is_loopback((self.advertise or self.listen).host):
            for url in map(EngineUrl.parse, self.engine):
                if is_loopback(url.address.host):
                    raise SettingsError(
                        f"engine: other hosts cannot reach {url.address}; give the address at which this host's "
                        "servers are known in their cluster"
                    )
        if len({EngineUrl.parse(text).access for text in self.engine}) > 1:
            raise SettingsError(
                "engine: all servers are reached alike: give the same scheme, user and password"
            )
        needs = {
            "engine_config": self.store in SERVER_STORES,
            "engine_password_file": self.store in SERVER_STORES or bool(self.engine),
            **dict.fromkeys(("engine_ca", "engine_certificate", "engine_key"), bool(self.engine)),
        }
        for key, is_used in needs.items():
            if getattr(self, key) is not None and not is_used:
                raise SettingsError(
                    f"{key}: means nothing here; it goes with --engine or --store valkey or redis"
                )

    @property
    def has_store(self) -> bool:
        """Whether this host carries data, and the management plane with it."""
        return self.store != "none"

    @property
    def has_shards(self) -> bool:
        """Whether the data is in servers of Valkey or Redis."""
        return self.store in SERVER_STORES or bool(self.engine)

    @property
    def is_founder(self) -> bool:
        return not self.seeds


@dataclass(frozen=True, slots=True)
class EngineUrl:
    """One server that somebody else runs, and how to be let in."""

    address: Address
    user: str
    password: str = field(repr=False)
    is_tls: bool

    @classmethod
    def parse(cls, text: str) -> EngineUrl:
        """Raises ValueError, which tells nothing of the password."""
        parts = urllib.parse.urlsplit(text)
        if (
            parts.scheme not in ("redis", "rediss", "valkey", "valkeys")
            or parts.path.strip("/")
            or parts.query
        ):
            raise ValueError("an engine is redis://[user:password@]host:port, or rediss:// for TLS")
        place = parts.netloc.rpartition("@")[2]
        try:
            address = Address.parse(place)
        except AddressError as error:
            raise ValueError(f"{error}") from None
        user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
        return cls(address, user, password, parts.scheme in ("rediss", "valkeys"))

    @property
    def access(self) -> tuple[str, str, bool]:
        return self.user, self.password, self.is_tls


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def parse_size(text: str) -> int:
    """``"10G"``, ``"512MiB"``, ``"1000"`` in bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", text.upper())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example 500M, 10G or 2TiB")
    return int(float(match[1]) * SIZE_UNITS[match[2] or ""])


def parse_tag(text: str) -> tuple[str, str]:
    """``rack=r1``."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ValueError(f"{text!r} is not a tag; write key=value, for example rack=r1")
    return key.strip(), value.strip()


def _address(lowest_port: int) -> Callable[[Any], Address]:
    def convert(value: Any) -> Address:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not an address; write host:port in quotes")  # noqa: TRY004
        return Address.parse(value, lowest_port=lowest_port)

    return convert


def _seeds(value: Any) -> tuple[str, ...]:
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
        raise ValueError("seeds are a list of host:port")
    for entry in entries:
        Address.parse(entry)
    return tuple(entries)


def _engines(value: Any) -> tuple[str, ...]:
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
        raise ValueError("an engine is redis://[user:password@]host:port")
    for entry in entries:
        EngineUrl.parse(entry)
    return tuple(entries)


def _store(value: Any) -> str:
    if isinstance(value, bool):
        return "log" if value else "none"
    if value not in STORES:
        raise ValueError(f"{value!r} is not a store; choose one of {', '.join(STORES)}")
    return str(value)


def _tags(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError('tags are a table, for example  [tags]  rack = "r1"')  # noqa: TRY004
    return {str(key): str(entry) for key, entry in value.items()}


def _one_of(choices: tuple[str, ...], otherwise: str) -> Callable[[Any], str]:
    """A converter that takes these; ``otherwise`` is said of anything else."""

    def convert(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} {otherwise}; choose one of {', '.join(choices)}")
        return str(value)

    return convert


def _policy(value: Any) -> str:
    if value not in POLICIES:
        raise ValueError(f"{value!r} is not a policy; choose rejoin or stop")
    return str(value)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is not a share between 0 and 1")
    return float(value)


def _whole(minimum: int, maximum: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise ValueError(f"{value!r} is not a whole number from {minimum} to {maximum}")
        return value

    return convert


def _seconds(value: Any) -> float | None:
    return None if value is None else _some_seconds(value)


def _some_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{value!r} is not a number of seconds above 0")
    return float(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")  # noqa: TRY004
    return value


def _size(value: Any) -> int:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
        else parse_size(str(value))
    )


def memory_size(value: Any) -> int:
    """Bytes of memory to solve in."""
    found = _size(value)
    if found < LEAST_MEMORY:
        raise ValueError(f"{value!r} is less than {LEAST_MEMORY // 10**6}M")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")  # noqa: TRY004
    return value


def _path(value: Any) -> Path | None:
    return None if value is None else Path(value).expanduser()


CONTROL_KEYS = known_keys(
    _whole(1, 1 << 31), _some_seconds, lambda value: 0.0 if value == 0 else float(_size(value))
)
CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "listen": _address(0),
    "advertise": _address(1),
    "api": _address(0),
    "api_certificate": _path,
    "api_key": _path,
    "api_tokens": _path,
    "api_client_ca": _path,
    "api_socket": _path,
    "api_socket_group": _text,
    "seeds": _seeds,
    "mode": _one_of(MODES, "is not a mode"),
    "ensemble": _seeds,
    "expect": _whole(1, 10_000),
    "name": _text,
    "tags": _tags,
    "data_dir": _path,
    "key_file": _path,
    "state_url": _text,
    "preset": _one_of(PRESETS, "is not a preset"),
    "detector": _one_of(DETECTORS, "is not a failure detector"),
    "broadcast": _one_of(BROADCASTS, "is no way to broadcast"),
    "loss": _share,
    "capacity": _size,
    "manager": _switch,
    "segments": _whole(1, 4096),
    "replication_factor": _whole(1, 16),
    "policies": _text,
    "solver_idle": _some_seconds,
    "keep_solver": _switch,
    "solver_memory": memory_size,
    "join_timeout": _seconds,
    "when_evicted": _policy,
    "insecure": _switch,
    "store": _store,
    "engine": _engines,
    "engine_servers": _whole(1, MOST_SERVERS),
    "engine_password_file": _path,
    "engine_config": _path,
    "engine_ca": _path,
    "engine_certificate": _path,
    "engine_key": _path,
    "control": lambda value: read_table(value, CONTROL_KEYS),
    "log_format": _one_of(FORMATS, "is no format of the log"),
    "log_level": _one_of(LEVELS, "is no level"),
    "chaos_control": _path,
}
assert set(CONVERTERS) == {entry.name for entry in dataclasses.fields(AgentSettings)}


def build(values: Mapping[str, Any], *, origin: str, text: str = "") -> dict[str, Any]:
    """Convert raw values by field name; ``origin``, and the lines of ``text``, say in errors where they come from."""
    converted = {}
    for key, value in values.items():
        converter = CONVERTERS.get(key)
        if converter is None:
            near = difflib.get_close_matches(key, CONVERTERS, n=1)
            hint = (
                f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(CONVERTERS))}"
            )
            raise SettingsError(f"{_place(origin, text, key)}: unknown key {key!r}{hint}")
        try:
            converted[key] = converter(value)
        except ValueError as error:
            within = str(error).partition(":")[0] if isinstance(value, Mapping) else ""
            raise SettingsError(f"{_place(origin, text, key, within)}: {key}: {error}") from error
    return converted


def _place(origin: str, text: str, key: str, within: str = "") -> str:
    """The file with the line of the key, or of one in its table; without a line where it cannot be told."""
    table, found = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = stripped.strip("[] ").strip("\"'")
            found = number if table == key and not found else found
        name = re.match(r"""["']?([A-Za-z0-9_-]+)["']?\s*[.=]""", stripped)
        if name and (table, name[1]) in (("", key), (key, within)):
            found = number
            break
    return f"{origin}:{found}" if found else origin


def read_file(path: Path) -> dict[str, Any]:
    """The fields a TOML file sets.  Raises :class:`SettingsError` naming file, line and key."""
    try:
        text = read_text(path)
        raw = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read: {error.strerror}; give the agent's settings with --config FILE"
        ) from error
    except (tomllib.TOMLDecodeError, UnreadableTextError, RecursionError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error
    return build(raw, origin=str(path), text=text)


def load(config: Path | None, overrides: Mapping[str, Any]) -> AgentSettings:
    """Defaults, then the file, then the command line's ``overrides`` (tags are merged key by key)."""
    from_file = read_file(config) if config is not None else {}
    from_line = build(overrides, origin="command line")
    if "tags" in from_file and "tags" in from_line:
        from_line["tags"] = {**from_file["tags"], **from_line["tags"]}
    return AgentSettings(**{**from_file, **from_line}).validate()


def default_data_dir(name: str) -> Path:
    return Path("rota-data") / re.sub(r"[^A-Za-z0-9._-]", "_", name or socket.gethostname())
