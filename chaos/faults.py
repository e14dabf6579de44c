"""The fault vocabulary: what can be done to hosts and links, as data.

One frozen record per fault, and schedules of them (`At`). Every backend reads the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from membership.files.simulated import OPERATIONS as OPERATIONS
from membership.protocol.messages import MESSAGE_TYPES

Hosts = tuple[str, ...]
"""Names of hosts; the cluster's are n0, n1, …"""
MESSAGE_KINDS = tuple(kind.__name__ for kind in MESSAGE_TYPES)
"""The names of all message types of the membership."""
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS")
"""What a call on a file may fail with."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start processes on hosts that have none: new hosts, or crashed ones (a new incarnation)."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Crash:
    """Kill the processes at once (SIGKILL)."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Leave:
    """Ask the processes to leave gracefully."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Evict:
    """An operator at `source` has the member at `destination` removed, healthy or not."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Recover:
    """An operator has the first of the hosts recover the cluster from all of them (`rota recover`)."""

    hosts: Hosts
    forced: bool = False
    """Although a majority is within reach."""


@dataclass(frozen=True, slots=True)
class Tag:
    """The processes give themselves new metadata: `tag` becomes this word."""

    word: str
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop the processes without their noticing (SIGSTOP)."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Resume:
    """Let paused processes go on (SIGCONT)."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Partition:
    """Only hosts of one group reach each other; hosts in no group form one more. Replaces any earlier one."""

    groups: tuple[Hosts, ...]


@dataclass(frozen=True, slots=True)
class Heal:
    """End the partition."""


@dataclass(frozen=True, slots=True)
class DropIngress:
    """Lose this share of all packets that arrive at the hosts; 0 ends it."""

    probability: float
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class DropEgress:
    """Lose this share of all packets that the hosts send; 0 ends it."""

    probability: float
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Block:
    """Nothing passes from `source` to `destination`; the way back stays open."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Unblock:
    """End a blocked link."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Loss:
    """Lose this share of all datagrams on every link."""

    probability: float


@dataclass(frozen=True, slots=True)
class Duplication:
    """Deliver this share of all datagrams twice."""

    probability: float


@dataclass(frozen=True, slots=True)
class Reordering:
    """This share of all datagrams takes up to that many seconds, so that others overtake it."""

    probability: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Restart:
    """Kill the processes, and start new ones at the same names and addresses at once."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class DropMessages:
    """Lose this share of the messages of one type on their way to the hosts; 0 ends it."""

    kind: str
    """Name of a message type, such as Decided."""
    probability: float
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class CrashOn:
    """The first of the hosts that sends a message of this type is killed right after, once."""

    kind: str
    """Name of a message type, such as Prepare."""
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Disarm:
    """Take back every `CrashOn` that has not happened yet to these hosts."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Delay:
    """Everything to and from the hosts takes this many seconds longer, each way; 0 ends it."""

    seconds: float
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class Accuse:
    """From now on these hosts report every member they observe, with certainty and in every view, for nothing."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class JumpClock:
    """The hosts' clocks jump ahead by so many seconds."""

    seconds: float
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class FillDisk:
    """Nothing more fits on the disks that the hosts' stores write to."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class ClearDisk:
    """There is room on the disks again."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class CopyDisk:
    """Keep copies of the hosts' data directories as they are now, whether a process runs or not: a backup.

    Each replaces an earlier copy of the same host.
    """

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class RestoreDisk:
    """Put the copy that was kept in place of the data directory; no effect on a host that runs, or has no copy."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class WipeDisk:
    """The data directories are lost, the next processes find empty ones; no effect on a host that runs."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class LoseFile:
    """One file of each data directory is gone, drawn by the seed; no effect on a host that runs."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class FailCall:
    """The next such call on a file fails with this error on each of the hosts, once."""

    error: str
    """One of `ERRORS`, such as EIO."""
    operation: str
    """One of `OPERATIONS`, such as fdatasync."""
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class ExceedQuota:
    """Nothing more fits on the disks, and they say that there is room: a quota is used up."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Making something durable takes so many seconds on these hosts; 0 ends it."""

    seconds: float
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class ShortWrites:
    """This share of the writes to files takes only a part of what is written; 0 ends it."""

    probability: float
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class CutPowerAfter:
    """The power goes after so many more calls that change a file: in the middle of what the host does."""

    changes: int
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class MendDisk:
    """Nothing fails, is slow or short any more on these disks, and no quota is used up."""

    hosts: Hosts


@dataclass(frozen=True, slots=True)
class SwapAddresses:
    """Two hosts have each other's addresses from now on; no effect if one of them runs."""

    source: str
    destination: str


Fault = (
    Start
    | Crash
    | Leave
    | Evict
    | Recover
    | Tag
    | Pause
    | Resume
    | Partition
    | Heal
    | DropIngress
    | DropEgress
    | Block
    | Unblock
    | Loss
    | Duplication
    | Reordering
    | Restart
    | DropMessages
    | CrashOn
    | Disarm
    | Delay
    | Accuse
    | JumpClock
    | FillDisk
    | ClearDisk
    | CopyDisk
    | RestoreDisk
    | WipeDisk
    | LoseFile
    | FailCall
    | ExceedQuota
    | SlowDisk
    | ShortWrites
    | CutPowerAfter
    | MendDisk
    | SwapAddresses
)
DiskFault = FillDisk | ClearDisk | FailCall | ExceedQuota | SlowDisk | ShortWrites | CutPowerAfter | MendDisk
"""What happens to the disks of hosts that run, too."""
DiskLoss = RestoreDisk | WipeDisk | LoseFile
"""What makes a host come back with less than it had."""


@dataclass(frozen=True, slots=True)
class At:
    """A fault and its time, in seconds."""

    seconds: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class Span:
    """A fault in force from `begin` to `end` (seconds; equal for what happens at once)."""

    begin: float
    end: float
    what: str
    """In a word or two: `crash`, `pause`, `ingress loss`."""


def spans(schedule: Iterable[At], end: float) -> tuple[Span, ...]:
    """When which kind of fault was in force at some host; what is not ended lasts until `end`."""
    open_since: dict[str, dict[Hosts, float]] = {}
    found: list[Span] = []

    def begins(what: str, hosts: Hosts, now: float) -> None:
        open_since.setdefault(what, {}).setdefault(hosts, now)

    def ends(what: str, hosts: Hosts, now: float) -> None:
        since = open_since.get(what, {}).pop(hosts, None)
        if since is not None:
            found.append(Span(since, now, what))

    for at in in_order(schedule):
        now = at.seconds
        match at.fault:
            case Crash() | Leave() | Start() | Restart():
                found.append(Span(now, now, type(at.fault).__name__.lower()))
            case JumpClock():
                found.append(Span(now, now, "clock jump"))
            case RestoreDisk() | WipeDisk() | LoseFile():
                found.append(Span(now, now, "lost disk"))
            case Pause(hosts):
                begins("pause", hosts, now)
            case Resume(hosts):
                ends("pause", hosts, now)
            case FillDisk(hosts):
                begins("full disk", hosts, now)
            case ExceedQuota(hosts):
                begins("quota", hosts, now)
            case SlowDisk(seconds, hosts):
                (begins if seconds else ends)("slow disk", hosts, now)
            case MendDisk(hosts):
                ends("quota", hosts, now)
                ends("slow disk", hosts, now)
            case FailCall():
                found.append(Span(now, now, "failing disk"))
            case CutPowerAfter():
                found.append(Span(now, now, "crash"))
            case ClearDisk(hosts):
                ends("full disk", hosts, now)
            case Partition():
                begins("partition", (), now)
            case Heal():
                ends("partition", (), now)
            case Block(source, destination):
                begins("blocked link", (source, destination), now)
            case Unblock(source, destination):
                ends("blocked link", (source, destination), now)
            case DropIngress(share, hosts):
                (begins if share else ends)("ingress loss", hosts, now)
            case DropEgress(share, hosts):
                (begins if share else ends)("egress loss", hosts, now)
            case Loss(share) | Duplication(share):
                (begins if share else ends)("loss" if isinstance(at.fault, Loss) else "duplication", (), now)
            case Delay(seconds, hosts):
                (begins if seconds else ends)("delay", hosts, now)
    for what, since in open_since.items():
        found.extend(Span(begin, max(begin, end), what) for begin in since.values())
    return tuple(sorted(found, key=lambda span: (span.begin, span.end, span.what)))


def is_over(schedule: Iterable[At], host: str, seconds: float) -> bool:
    """Whether something was done to this host before that time, and all of it is undone or ended."""
    hurt = False
    in_force: set[type[Fault]] = set()
    for at in in_order(schedule):
        fault = at.fault
        if at.seconds > seconds or not (isinstance(fault, Heal) or host in hosts_of(fault)):
            continue
        hurt = True
        match fault:
            case Start() | Restart():
                in_force -= {Crash, Leave, CutPowerAfter}
            case Resume():
                in_force.discard(Pause)
            case Heal():
                in_force.discard(Partition)
            case Unblock():
                in_force.discard(Block)
            case DropIngress(0.0) | DropEgress(0.0) | Delay(0.0):
                in_force.discard(type(fault))
            case Crash() | Leave() | Pause() | Partition() | Block() | DropIngress() | DropEgress() | Delay():
                in_force.add(type(fault))
            case CutPowerAfter():
                in_force.add(CutPowerAfter)
            case _:
                pass
    return hurt and not in_force


def hosts_of(fault: Fault) -> Hosts:
    """The hosts a fault names."""
    match fault:
        case Partition(groups):
            return tuple(name for group in groups for name in group)
        case Block(source, destination) | Unblock(source, destination) | Evict(source, destination):
            return source, destination
        case SwapAddresses(source, destination):
            return source, destination
        case Heal() | Loss() | Duplication() | Reordering():
            return ()
        case _:
            return fault.hosts


def flip_flop(hosts: Hosts, *, period: float, until: float) -> tuple[At, ...]:
    """Dead ingress for `period` seconds, then healthy for as long, and so on from 0 to `until`.

    Source: *Stable and Consistent Membership at Scale with Rapid*, section 7, Figure 9 (20 s on, 20 s off).
    """
    schedule: list[At] = []
    now, dead = 0.0, True
    while now < until:
        schedule.append(At(now, DropIngress(1.0 if dead else 0.0, hosts)))
        now, dead = now + period, not dead
    schedule.append(At(until, DropIngress(0.0, hosts)))
    return tuple(schedule)


def starve(hosts: Hosts, *, share: float, period: float, until: float) -> tuple[At, ...]:
    """The processes get only that share of the processor's time: they run and are stopped in turn, every `period`
    seconds, from 0 to `until`."""
    schedule: list[At] = []
    for number in range(int(until / period)):
        begin = round(number * period, 3)
        schedule.append(At(begin, Pause(hosts)))
        schedule.append(At(round(begin + (1 - share) * period, 3), Resume(hosts)))
    return tuple(schedule)


def in_order(schedule: Iterable[At]) -> tuple[At, ...]:
    """By time; faults of one time keep their order."""
    return tuple(sorted(schedule, key=lambda at: at.seconds))
