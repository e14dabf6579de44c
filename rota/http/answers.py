"""What the HTTP interface answers and takes, as types: one for each JSON document.

``rota.http.operations`` names them in its table, and the OpenAPI document is made from them, so their docstrings
are for its readers.  What is told of the placement: ``rota.http.control_answers``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from membership.protocol.core.suspicions import Suspicions
from rota.http.control_answers import Control, Losses


class Problem(TypedDict):
    """Why something was refused: a sentence for people, a code for programs."""

    error: str
    code: str


# -- who is in --------------------------------------------------------------------------------------


class OwnKeys(TypedDict):
    """The ids of one host's keys, the primary's first."""

    primary: str
    installed: list[str]


class Voter(TypedDict):
    """A member of an ensemble."""

    name: str
    address: str


class Solver(TypedDict):
    """The solver's process, if there is one, and what became of others."""

    pid: int | None
    started: int
    failed: int
    interrupted: int
    idle_ended: int


class Engine(TypedDict):
    """The servers of Valkey or Redis on this host.  ``name``: valkey, redis, or ``adopted`` for those that somebody
    else runs, of which ``running`` is not known; ``restarts`` of those that ended, since the agent was started."""

    name: str
    servers: list[str]
    running: int | None
    restarts: int


class Disk(TypedDict):
    """The disk of one agent's log: ``state`` is ``ok``, ``full`` or ``failed``; ``sync_seconds``: what it takes to make
    something durable, of late."""

    state: str
    reason: str
    sync_seconds: float


class Space(TypedDict):
    """Bytes of a file system."""

    free: int
    total: int


class SegmentHeld(TypedDict):
    """What a host holds of a segment; bytes as they lie on its disk."""

    key: str
    bytes: int
    records: int


class Held(TypedDict):
    """What a host holds of the log."""

    bytes: int
    records: int
    segments: list[SegmentHeld]


class Measured(TypedDict):
    """What an agent measured in the last hour, every ``interval`` seconds; each series has a value for each time, the
    last one at ``end`` (Unix seconds of that host), null where it is not known.  Rates in a second: ``records`` taken,
    ``reads`` answered, ``synced_bytes``, ``network_bytes``; ``sync_seconds``, ``append_seconds`` (through this agent);
    bytes: ``disk_free``, ``disk_total``.  With a store in Valkey or Redis, instead of what concerns
    the log: ``operations`` per second of the servers there, ``engine_bytes`` of data, ``engine_seconds`` until the
    slowest of them answers."""

    interval: float
    end: float | None
    series: dict[str, list[float | None]]


class HostReport(TypedDict):
    """What one agent tells of its host.  ``started``, ``time``: in Unix seconds; ``disk`` and ``held``: of its log."""

    name: str
    version: str
    address: str
    started: float
    time: float
    disk: Disk | None
    space: Space | None
    held: Held | None
    engine: Engine | None
    measured: Measured


class AllMeasured(TypedDict):
    """What the agents measured; of a large cluster some, evenly chosen; ``silent``: who did not answer."""

    size: int
    asked: int
    silent: list[str]
    members: dict[str, Measured]


class Status(TypedDict):
    """How one agent is.  What it does not know at present is null; ``version``: of rota, which it runs.  ``silent``:
    who does not answer it while no majority is in reach; ``former``: as in `/v1/members`; ``at_risk``: whose loss
    would take the majority of the members."""

    version: str
    name: str
    address: str | None
    state: str
    ensemble: NotRequired[list[Voter]]
    cluster_id: str | None
    epoch: int | None
    id: str | None
    size: int
    recoveries: list[str]
    quorum: bool
    silent: NotRequired[list[str]]
    former: NotRequired[list[FormerMember]]
    short_racks: NotRequired[list[ShortRack]]
    at_risk: NotRequired[list[Losses]]
    controller: str | None
    layout_epoch: int | None
    open_moves: int
    control: Control | None
    solver: Solver | None
    engine: Engine | None
    disk: NotRequired[Disk | None]
    keys: OwnKeys | None
    dropped: dict[str, int]
    statistics: dict[str, int]


class MemberEntry(TypedDict):
    """A member; ``place``: on the first ring.  ``http``, ``version``: where its agent answers and which rota it runs,
    null where it does not say (before 0.2)."""

    name: str
    address: str
    state: str
    incarnation: str
    joined_epoch: int
    place: int
    http: str | None
    version: str | None
    tags: dict[str, str]


class FormerMember(TypedDict):
    """A host that is in the view no more.  ``how``: failed (found faulty, or gone while this agent was cut off itself),
    left or evicted; ``time``: in Unix seconds of the agent that answers; ``epoch``: of the first view without it."""

    name: str
    address: str
    how: str
    time: float
    epoch: int
    tags: dict[str, str]


class ShortRack(TypedDict):
    """A rack that hosts have gone from, of those in ``former``; ``hosts``: how many are left."""

    rack: str
    hosts: int
    gone: list[str]


class Members(TypedDict):
    """A view; and who went in the last 72 hours, the last one first, a hundred at most, as far as this agent saw it."""

    epoch: int
    id: str
    cluster_id: str
    members: list[MemberEntry]
    former: NotRequired[list[FormerMember]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Suspicions):
    """What the agent of this name knows of the running view change."""

    agent: str


class ScrapeTargets(TypedDict):
    """A member's agent, as the service discovery of Prometheus reads it; its labels say whose, and in which rack."""

    targets: list[str]
    labels: dict[str, str]


class Event(TypedDict):
    """Something that happened.  Numbers are each agent's own; ``time`` is in Unix seconds."""

    number: int
    time: float
    kind: str
    text: str
    data: dict[str, Any]


class Events(TypedDict):
    """Events, oldest first, and the agent that told them."""

    agent: NotRequired[str]
    events: list[Event]


class InstalledView(TypedDict):
    """A view, and when a member installed it, in Unix seconds of its own clock."""

    time: float
    epoch: int
    id: str
    size: int


class Views(TypedDict):
    """The views that each member of those asked installed; ``silent``: who did not answer."""

    size: int
    asked: int
    silent: list[str]
    members: dict[str, list[InstalledView]]


class HostRequest(TypedDict):
    """The name of a host."""

    host: str


# -- operations -------------------------------------------------------------------------------------


class WhyRequest(TypedDict):
    """A segment or a host."""

    name: str


class WhyNotRequest(TypedDict):
    """A segment, and a host that holds no copy of it."""

    segment: str
    host: str


class WhatIfRequest(TypedDict):
    """INSERT, UPDATE and DELETE statements, tried on a private copy of the state."""

    sql: str


class PinRequest(TypedDict):
    """A segment, and the host that a copy of it is to stay on."""

    segment: str
    host: str


class SegmentsRequest(TypedDict):
    """How many segments the log is to be striped over."""

    count: int


class ShownPlan(TypedDict):
    """The plan that was shown under this digest: another one is refused (``plan_changed``)."""

    digest: str


class ForgetRequest(TypedDict):
    """Hosts that never come back; without ``confirmed`` it is only told what would be lost."""

    hosts: list[str]
    confirmed: bool


class ConfirmedRequest(TypedDict):
    """Without ``confirmed`` it is only told what would be done."""

    confirmed: bool


class LoginRequest(TypedDict):
    """A token, as `rota tokens add` printed it."""

    token: str


class Who(TypedDict):
    """Who asks.  ``name``: of the token, null where none is needed."""

    name: str | None
    role: str


class Nothing(TypedDict):
    """An empty object."""


class KeyRequest(TypedDict):
    """``install`` with ``key`` (base64), ``use`` or ``remove`` with ``id``, or ``list``."""

    action: str
    key: NotRequired[str]
    id: NotRequired[str]
    force: NotRequired[bool]


class HostKeys(TypedDict):
    """One host's keys after the step, or why it did not take it."""

    primary: NotRequired[str]
    installed: NotRequired[list[str]]
    changed: NotRequired[bool]
    error: NotRequired[str]


class Keys(TypedDict):
    """One step with the keys of all hosts; ``agreed``: all hold the same now."""

    action: str
    agreed: bool
    hosts: dict[str, HostKeys]


class Evicted(TypedDict):
    """The host is out since this epoch."""

    host: str
    evicted: bool
    epoch: int


class Gone(TypedDict):
    """This host has left; ``agreed``: the others know."""

    host: str
    left: bool
    agreed: bool


class TagsRequest(TypedDict, total=False):
    """Tags to set, and keys of tags to remove."""

    set: dict[str, str]
    remove: list[str]


class Tags(TypedDict):
    """The tags of this host, agreed in this epoch."""

    host: str
    tags: dict[str, str]
    epoch: int


class RecoverRequest(TypedDict):
    """The survivors, by name or address."""

    survivors: list[str]
    force: NotRequired[bool]


class Recovered(TypedDict):
    """The first view of the new chain, and the identifier of the recovery."""

    epoch: int
    id: str
    recovery: str
    members: list[str]


# -- the log ----------------------------------------------------------------------------------------


class Appended(TypedDict):
    """Where a record is now."""

    stream: str
    address: int
    bytes: int


class RecordEntry(TypedDict):
    """A record; ``text`` is its bytes read as UTF-8, as far as they are."""

    address: int
    text: str
    hex: str
    bytes: int


class Records(TypedDict):
    """The latest records of a stream, or the first from an address on, oldest first.  ``more``: there may be others
    that were asked for, before or behind these; an answer has about 16 MiB of records at most."""

    stream: str
    records: list[RecordEntry]
    more: bool


class StreamEntry(TypedDict):
    """A stream of the log, or a map in it: its records there, and about how many bytes a copy of them takes; null
    where that is not known.  What is being appended may be counted or not."""

    name: str
    records: int | None
    bytes: int | None


class Streams(TypedDict):
    """What the log holds records of: streams, and the maps that are kept in it, by name, as far as an answer holds."""

    streams: list[StreamEntry]
    maps: list[StreamEntry]
    left_off: int


class MapEntry(TypedDict):
    """A key of a map; ``text`` is the value read as UTF-8, as far as it is."""

    key: str
    text: str
    hex: str
    bytes: int


class Cut(TypedDict):
    """Where the log ends (one above the last record's address), and what operators have asked for by then."""

    cluster_id: str
    layout_epoch: int
    address: int
    intent: dict[str, Any]
    version: str


class RestoreRequest(TypedDict):
    """``backup``: the digest of the file, in hexadecimal.  ``resume``: the log holds a beginning of it."""

    backup: str
    resume: bool


class RestoredRequest(TypedDict):
    """``intent``: the policies and requests of the backup; null: those of now stay."""

    backup: str
    intent: dict[str, Any] | None


class MapEntries(TypedDict):
    """The first entries of a map, in order of key, about 16 MiB of values at most; ``keys``: how many there are."""

    map: str
    keys: int
    entries: list[MapEntry]


class MapRequest(TypedDict):
    """``get``, ``set`` (to ``value``), ``delete`` or ``replace`` (``expected`` by ``value``) a key.

    Values are base64; null stands for no value.
    """

    action: str
    key: str
    value: NotRequired[str | None]
    expected: NotRequired[str | None]


class MapChange(TypedDict):
    """Whether it was done: there was such a key, it held what was expected; and what ``get`` has found."""

    map: str
    key: str
    action: str
    done: bool
    entry: MapEntry | None
