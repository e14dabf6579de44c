"""What the HTTP interface answers about the placement, as types: what the controller tells, as it is.

The documents themselves are made in ``mgmt``, which knows nothing of HTTP; the tests hold real answers against these
types.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from mgmt.solving.policy_listing import PolicyEntry


class Clash(TypedDict):
    """A policy that cannot hold together with others, and on which rows."""

    policy: str
    rows: str


class Objective(TypedDict):
    """What a solve made of one objective; ``bound``: what is proven to be possible at best."""

    name: str
    tier: int
    before: int | None
    after: int
    bound: int | None


class Solve(TypedDict):
    """What a solve came to."""

    status: str
    seconds: float
    text: str
    clashing: NotRequired[list[Clash]]
    gap: NotRequired[float | None]
    objectives: NotRequired[list[Objective]]
    asked: NotRequired[str]
    seconds_ago: NotRequired[float]


class Progress(TypedDict):
    """How far a plan is: the steps are those of its present wave, the bytes those of all; ``rate`` in bytes/s, ``eta``
    in seconds (null before anything was copied)."""

    wave: int
    waves: int
    steps: int
    steps_done: int
    bytes: int
    bytes_done: int
    rate: float
    eta: float | None


class Away(TypedDict):
    """Records from address ``start`` up to ``end`` that are only on these hosts, none of which is there."""

    start: int
    end: int
    hosts: list[str]


class AwayOf(Away):
    """The same, and of which segment."""

    segment: str


class Held(TypedDict):
    """What keeps moves for balance back.  ``until`` in Unix seconds; null: as long as nothing changes."""

    why: str
    until: float | None
    text: str


class DiskOf(TypedDict):
    """A host whose disk is not in order: ``state`` is ``full``, ``failed`` or ``slow``."""

    host: str
    state: str
    reason: str
    relieved: bool


class Question(TypedDict):
    """A repair of a segment that operators have to see to: the segment is left as it is until it can be done."""

    segment: str
    text: str


class Shard(TypedDict):
    """A shard of Valkey or Redis in numbers: how many slots and bytes it holds, operations per second, copies in
    sync with its primary, which counts too."""

    key: str
    primary: str | None
    slots: int
    bytes: int
    load: float
    in_sync: int


class TroubledSegment(TypedDict):
    """A segment that breaks a rule: ``copies`` of those that are ``wanted`` are live and in sync, on these hosts;
    ``crowded``: racks with more of them than their even share."""

    segment: str
    copies: int
    wanted: int
    hosts: list[str]
    crowded: list[str]


class Losses(TypedDict):
    """What the loss of any one of these would break: ``what`` is ``host`` or ``rack``."""

    what: str
    names: list[str]
    breaks: str


class Control(TypedDict):
    """What the control loop of one host is at.  ``layout_epoch`` is -1 before the engine has answered;
    ``layout_servers_lost``: those without which no majority of them is left, so that nothing can be changed."""

    role: str
    controller: str | None
    view_epoch: int
    layout_epoch: int
    phase: str
    settled: bool
    open_moves: int
    plan: str | None
    plan_id: str | None
    progress: Progress | None
    paused: bool
    observing: bool
    restoring: NotRequired[bool]
    held: Held | None
    asks: list[Question]
    shards: list[Shard]
    frozen: dict[str, float]
    away: list[AwayOf]
    full: list[str]
    layout_servers_lost: list[str]
    disks: list[DiskOf]
    pins: list[Pin]
    solve_status: str | None
    solve_seconds: float | None
    last_solve: Solve | None
    last_error: str
    rack_violations: int
    under_replicated: int
    troubled: NotRequired[list[TroubledSegment]]
    at_risk: NotRequired[list[Losses]]
    drains: dict[str, int]
    statistics: dict[str, int]


class Replica(TypedDict):
    """A copy of a segment."""

    host: str
    rack: str
    position: int
    role: str
    state: str
    bytes: int
    lag: int


class Segment(TypedDict):
    """A segment of the log, or a shard.  ``slots``: ranges by their first and last, where the engine has any; ``load``:
    operations per second, where it counts them."""

    key: str
    bytes: int
    retired: bool
    away: list[Away]
    slots: list[list[int]]
    load: float
    replicas: list[Replica]


class Roles(TypedDict):
    """Which hosts carry which role."""

    layout_servers: list[str]
    sequencers: list[str]
    log_units: list[str]


class Layout(TypedDict):
    """The layout in force, and how many segments break a rule.  ``servers``: how many copies each live host can hold,
    empty where that is any number; ``notices``: what operators should know of the engine; ``known_only``: no majority
    answers, so this is the latest that live hosts know; ``layout_servers_lost``: those without which there is none."""

    layout_epoch: int
    cluster_id: str
    replication_factor: int | None
    segments: list[Segment]
    roles: Roles
    drained: list[str]
    unresponsive: list[str]
    servers: dict[str, int]
    notices: list[str]
    known_only: bool
    layout_servers_lost: list[str]
    rack_violations: int
    under_replicated: int
    open_moves: int


class Version(TypedDict):
    """A version of the layout.  ``at``: Unix seconds, null where it was not noted; ``by``: the host that changed it;
    ``asked_at``: where an operator asked for it, with ``by`` whom if that is known; empty for the loop itself."""

    epoch: int
    at: float | None
    by: str
    asked_at: str
    why: str
    plan_id: str
    view_epoch: int


class NamesChanged(TypedDict):
    """Of a role, or of requests of one sort."""

    what: str
    added: list[str]
    removed: list[str]


FromTo = TypedDict("FromTo", {"from": str | None, "to": str | None})
ViewsFromTo = TypedDict("ViewsFromTo", {"from": int, "to": int})


class SegmentChanged(TypedDict):
    """Hosts that hold copies, or parts of one; ``primary`` is null when it stays."""

    segment: str
    added: list[str]
    removed: list[str]
    primary: FromTo | None


SlotsMoved = TypedDict("SlotsMoved", {"from": str | None, "to": str, "slots": int})
"""So many slots went from a segment to another; null: they were in none."""


class Difference(TypedDict):
    """Between two versions of the layout; ``wishes``: the intent, for commands of 0.1."""

    segments: list[SegmentChanged]
    roles: list[NamesChanged]
    intent: list[NamesChanged]
    wishes: list[NamesChanged]
    slots: list[SlotsMoved]
    views: ViewsFromTo


class KeptVersion(Version):
    """``since``: the version before it that is kept, which it is compared with; ``what``: the difference in words."""

    since: int | None
    what: str
    difference: Difference | None


class History(TypedDict):
    """The versions that are kept, the latest first."""

    layout_epoch: int
    versions: list[KeptVersion]


Comparison = TypedDict("Comparison", {"from": Version, "to": Version, "what": str, "difference": Difference})
"""Two versions of the layout, and what differs."""


Move = TypedDict(
    "Move",
    {
        "segment": str,
        "from": str | None,
        "from_rack": str,
        "to": str | None,
        "to_rack": str,
        "required": bool,
        "why": str,
        "bytes": int,
    },
)
PrimaryChange = TypedDict("PrimaryChange", {"segment": str, "from": str | None, "to": str, "required": bool})
Step = TypedDict(
    "Step",
    {
        "number": int,
        "kind": str,
        "description": str,
        "after": list[int],
        "segment": str | None,
        "from": str | None,
        "to": str | None,
        "bytes": int,
        "reversible": bool,
    },
)


SlotMove = TypedDict("SlotMove", {"from": str | None, "to": str, "slots": int, "bytes": int})
"""So many slots go from a segment to another, with about so many bytes."""


class Exchange(TypedDict):
    """A wave in which these segments have a complete copy fewer: no host has a server to spare for the new ones."""

    wave: int
    segments: list[str]


class RoleChange(TypedDict):
    """A host that begins or ends to carry a role (``add``, ``remove``)."""

    role: str
    host: str
    change: str


class Violations(TypedDict):
    """Segments that break a rule."""

    rack_violations: int
    under_replicated: int


class RetirementChange(TypedDict):
    """A segment that takes no more records (``retired``), or takes them again."""

    segment: str
    retired: bool


class ViolationsOnTheWay(TypedDict):
    """Segments that break a rule: as it stands, at worst after any of the waves, and with the plan done."""

    now: Violations
    during: Violations
    after: Violations


class LeftOut(TypedDict):
    """Wanted moves of a segment that are safe in no order, and what they would break on the way."""

    segment: str
    moves: int
    why: str


class DryRun(TypedDict):
    """The plan that would be executed now; ``steps`` are those of its first wave, ``target`` the hosts of each segment
    once it is done, the primary first.  Where no placement satisfies the rules, ``clashing`` names those that clash,
    and each of ``relaxations`` is a smallest change that would help.  ``digest`` names the plan for
    ``/v1/apply/shown``; ``solve`` is null where the plan is agreed and under way."""

    plan_id: str
    digest: str
    kind: str
    view_epoch: int
    layout_epoch: int
    moves: list[Move]
    primaries: list[PrimaryChange]
    roles: list[RoleChange]
    slots: list[SlotMove]
    retirements: list[RetirementChange]
    required_moves: int
    optional_moves: int
    bytes: int
    waves: int
    required_waves: int
    seconds: float
    violations: ViolationsOnTheWay
    dangers: list[str]
    exchanges: list[Exchange]
    thawed: list[str]
    left_out: list[LeftOut]
    steps: list[Step]
    target: dict[str, list[str]]
    feasible: bool
    clashing: list[str]
    relaxations: list[str]
    hosts_missing: int
    paused: bool
    observing: bool
    held: Held | None
    solve: Solve | None
    text: str


class Rebalanced(DryRun):
    """The plan that makes shards equally busy; ``confirmed``: it is agreed, and carried out as any plan."""

    confirmed: bool


class Policies(TypedDict):
    """The rules and objectives in force."""

    pack: str
    policies: list[PolicyEntry]


class Explanation(TypedDict):
    """An answer in words; ``possible``: whether what was asked about can be."""

    lines: list[str]
    possible: bool
    error: str


class Pin(TypedDict):
    """A copy of this segment stays on this host."""

    segment: str
    host: str


class Pinned(TypedDict):
    """Whether the copy is to stay there now."""

    segment: str
    host: str
    pinned: bool


class Resized(TypedDict):
    """How many segments take records now, and did before."""

    segments: int
    before: int


class RestoreBegun(TypedDict):
    """Data movement is paused, and the log is ready for the parts of the backup."""

    was_paused: bool


class Loss(TypedDict):
    """Records of a segment that only these hosts have; ``start`` null: those at the end of the log."""

    segment: str
    start: int | None
    end: int | None
    hosts: list[str]


class Forgotten(TypedDict):
    """Hosts that never come back, what is lost with them, and whether that is declared now."""

    hosts: list[str]
    lost: list[Loss]
    forgotten: bool


class RecoveredLayout(TypedDict):
    """The epoch that the layout begins again with, or would go on from, with which hosts, and what that may lose."""

    layout_epoch: int
    hosts: list[str]
    risks: list[str]
    recovered: bool


class Paused(TypedDict):
    """Whether data may be moved."""

    paused: bool


class Aborted(TypedDict):
    """``plan_id``: of the way back."""

    paused: bool
    plan_id: str


class Applied(TypedDict):
    """The plan that was ordered; ``plan_id`` is null when there was nothing to do."""

    plan_id: str | None
    moves: int
    bytes: int
    waves: int


class Outcome(TypedDict):
    """What has become of a plan: ``open``, ``done``, ``failed`` or ``replaced``, and why."""

    plan_id: str
    state: str
    error: str
    progress: Progress | None


class Drained(TypedDict):
    """Whether a host is to be emptied now."""

    host: str
    drained: bool
