"""Fault scripts: a run written down as text, to read, to keep and to run again.

The parser and the printer of the format below; `parse(format_script(script)) == script`. It has no variables and no
conditions.

    # anything after a number sign is a remark, and a line of four dashes ends the script
    nodes 5
    seed 42
    duration 60s
    settings local
    quorum keep
    store yes
    disks keep
    remember yes
    at 10s crash n3
    at 12s partition n0 n1 | n2
    at 20s drop-egress 80% n1
    at 21s drop-message Decided 100% n4
    at 22s crash-on Prepare n0 n1
    at 25s block n0 -> n4
    at 30s heal
    at 30s wipe-disk n3
    at 30s fail-call EIO fdatasync n1
    at 31s slow-disk 2s n2
    at 31s cut-power-after 12 n4
    at 31s start n3 n5
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chaos import faults
from chaos.errors import ScriptError
from chaos.faults import MESSAGE_KINDS, OPERATIONS, At, Fault, Hosts

_HOST = re.compile(r"n(0|[1-9]\d{0,4})")
END = "----"
"""A line that ends the script; what came of it may stand below, as in the scripts that are kept as tests."""

_CHOICES = {
    "settings": ("lan", "wan", "local"),
    "quorum": ("keep", "any"),
    "store": ("yes", "no"),
    "disks": ("keep", "any"),
    "remember": ("yes", "no"),
    "copies": ("1", "2", "3"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A whole run: how many nodes start, from which seed, what goes wrong when, how long it lasts."""

    nodes: int
    seed: int
    duration: float
    """Seconds of virtual time in which faults happen; the run goes on until it is quiet."""
    schedule: tuple[At, ...] = ()
    settings: str = "local"
    """Preset of the membership settings: lan, wan or local."""
    keep_quorum: bool = False
    """Skip crashes that would leave less than a majority of the latest view alive (`quorum keep`)."""
    store: bool = False
    """Every host carries the replicated log, too, and clients use it (`store yes`). Only then is there anything on the
    disks but what members remember."""
    remember: bool = False
    """What members keep on their disks outlives their processes (`remember yes`), as with a store; otherwise each
    starts as if for the first time."""
    expect: int = 1
    """A cold start: nobody is told to found the cluster, and it begins when so many have met (`expect N`)."""
    keep_disks: bool = False
    """Skip losses of disks beyond what the store makes good by itself (`disks keep`)."""
    copies: int = 3
    """Of each segment of the store (`copies 2`)."""

    def __str__(self) -> str:
        return format_script(self)


_OF_HOSTS: dict[str, Callable[[Hosts], Fault]] = {
    "start": faults.Start,
    "crash": faults.Crash,
    "leave": faults.Leave,
    "restart": faults.Restart,
    "pause": faults.Pause,
    "resume": faults.Resume,
    "disarm": faults.Disarm,
    "accuse": faults.Accuse,
    "fill-disk": faults.FillDisk,
    "clear-disk": faults.ClearDisk,
    "copy-disk": faults.CopyDisk,
    "restore-disk": faults.RestoreDisk,
    "wipe-disk": faults.WipeDisk,
    "lose-file": faults.LoseFile,
    "exceed-quota": faults.ExceedQuota,
    "mend-disk": faults.MendDisk,
}
_OF_SHARE: dict[str, Callable[[float], Fault]] = {"loss": faults.Loss, "duplication": faults.Duplication}
_OF_SHARE_AND_HOSTS: dict[str, Callable[[float, Hosts], Fault]] = {
    "drop-ingress": faults.DropIngress,
    "drop-egress": faults.DropEgress,
    "short-writes": faults.ShortWrites,
}
_OF_LINK: dict[str, Callable[[str, str], Fault]] = {
    "block": faults.Block,
    "unblock": faults.Unblock,
    "evict": faults.Evict,
    "swap-addresses": faults.SwapAddresses,
}
_WORDS: dict[type[Fault], str] = {
    **{cls: word for word, cls in (*_OF_HOSTS.items(), *_OF_SHARE.items())},  # type: ignore[misc]
    **{cls: word for word, cls in (*_OF_SHARE_AND_HOSTS.items(), *_OF_LINK.items())},  # type: ignore[misc]
    faults.Partition: "partition",
    faults.Heal: "heal",
    faults.Delay: "delay",
    faults.JumpClock: "jump-clock",
    faults.Reordering: "reorder",
    faults.DropMessages: "drop-message",
    faults.CrashOn: "crash-on",
    faults.Tag: "tag",
    faults.Recover: "recover",
    faults.FailCall: "fail-call",
    faults.SlowDisk: "slow-disk",
    faults.CutPowerAfter: "cut-power-after",
}


def format_script(script: Script) -> str:
    """The script as text."""
    head = (
        f"nodes {script.nodes}",
        f"seed {script.seed}",
        f"duration {_seconds(script.duration)}",
        f"settings {script.settings}",
        *(("quorum keep",) if script.keep_quorum else ()),
        *(("store yes",) if script.store else ()),
        *(("disks keep",) if script.keep_disks else ()),
        *(("remember yes",) if script.remember else ()),
        *((f"expect {script.expect}",) if script.expect > 1 else ()),
        *((f"copies {script.copies}",) if script.copies != 3 else ()),
    )
    return "\n".join((*head, *map(format_at, script.schedule))) + "\n"


def format_at(at: At) -> str:
    """One line of a schedule."""
    return f"at {_seconds(at.seconds)} {format_fault(at.fault)}"


def format_fault(fault: Fault) -> str:
    """A fault as it stands in a script."""
    word = _WORDS[type(fault)]
    match fault:
        case faults.Partition(groups):
            rest = " | ".join(" ".join(group) for group in groups)
        case faults.Heal():
            rest = ""
        case (
            faults.DropIngress(share, hosts)
            | faults.DropEgress(share, hosts)
            | faults.ShortWrites(share, hosts)
        ):
            rest = f"{_share(share)} {' '.join(hosts)}"
        case (
            faults.Block(source, other)
            | faults.Unblock(source, other)
            | faults.Evict(source, other)
            | faults.SwapAddresses(source, other)
        ):
            rest = f"{source} -> {other}"
        case faults.Loss(share) | faults.Duplication(share):
            rest = _share(share)
        case (
            faults.Delay(seconds, hosts) | faults.JumpClock(seconds, hosts) | faults.SlowDisk(seconds, hosts)
        ):
            rest = f"{_seconds(seconds)} {' '.join(hosts)}"
        case faults.Reordering(share, seconds):
            rest = f"{_share(share)} {_seconds(seconds)}"
        case faults.DropMessages(kind, share, hosts):
            rest = f"{kind} {_share(share)} {' '.join(hosts)}"
        case faults.Recover(hosts, forced):
            rest = " ".join([*(["by-force"] if forced else []), *hosts])
        case faults.FailCall(error, operation, hosts):
            rest = f"{error} {operation} {' '.join(hosts)}"
        case faults.CutPowerAfter(changes, hosts):
            rest = f"{changes} {' '.join(hosts)}"
        case faults.CrashOn(kind, hosts) | faults.Tag(kind, hosts):
            rest = f"{kind} {' '.join(hosts)}"
        case _:
            rest = " ".join(fault.hosts)
    return f"{word} {rest}".rstrip()


def parse(text: str) -> Script:
    """Read a script. Raises ScriptError with the line and what was expected."""
    values: dict[str, str] = {}
    schedule: list[At] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.rstrip() == END:
            break
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] == "at":
                schedule.append(parse_at(words[1:]))
            else:
                values[words[0]] = _header(words)
        except ValueError as error:
            raise ScriptError(number, str(error)) from None
    if "nodes" not in values:
        raise ScriptError(1, "the script does not say `nodes N`")
    return Script(
        nodes=int(values["nodes"]),
        seed=int(values.get("seed", "0")),
        duration=_parse_seconds(values.get("duration", "60s")),
        schedule=faults.in_order(schedule),
        settings=values.get("settings", "local"),
        keep_quorum=values.get("quorum") == "keep",
        store=values.get("store") == "yes",
        keep_disks=values.get("disks") == "keep",
        remember=values.get("remember") == "yes",
        expect=int(values.get("expect", "1")),
        copies=int(values.get("copies", "3")),
    )


def parse_at(words: list[str]) -> At:
    """Read `10s crash n3`, already split. Raises ValueError with what was expected."""
    if len(words) < 2:
        raise ValueError("expected `at TIME FAULT …`, for example `at 10s crash n3`")
    return At(_parse_seconds(words[0]), parse_fault(words[1], words[2:]))


def parse_fault(word: str, rest: list[str]) -> Fault:
    """Read one fault from its word and what follows it. Raises ValueError with what was expected."""
    if word in _OF_HOSTS:
        return _OF_HOSTS[word](_hosts(rest))
    if word in _OF_SHARE_AND_HOSTS and rest:
        return _OF_SHARE_AND_HOSTS[word](_parse_share(rest[0]), _hosts(rest[1:]))
    if word in _OF_SHARE and len(rest) == 1:
        return _OF_SHARE[word](_parse_share(rest[0]))
    if word in _OF_LINK and len(rest) == 3 and rest[1] == "->":
        source, destination = _hosts([rest[0], rest[2]])
        return _OF_LINK[word](source, destination)
    if word == "delay" and rest:
        return faults.Delay(_parse_seconds(rest[0]), _hosts(rest[1:]))
    if word == "reorder" and len(rest) == 2:
        return faults.Reordering(_parse_share(rest[0]), _parse_seconds(rest[1]))
    if word == "drop-message" and len(rest) > 1:
        return faults.DropMessages(_parse_kind(rest[0]), _parse_share(rest[1]), _hosts(rest[2:]))
    if word == "tag" and rest:
        return faults.Tag(_parse_word(rest[0]), _hosts(rest[1:]))
    if word == "recover":
        forced = rest[:1] == ["by-force"]
        return faults.Recover(_hosts(rest[1:] if forced else rest), forced)
    if word == "crash-on" and rest:
        return faults.CrashOn(_parse_kind(rest[0]), _hosts(rest[1:]))
    if word == "jump-clock" and rest:
        return faults.JumpClock(_parse_seconds(rest[0]), _hosts(rest[1:]))
    if word == "slow-disk" and rest:
        return faults.SlowDisk(_parse_seconds(rest[0]), _hosts(rest[1:]))
    if word == "fail-call" and len(rest) > 1:
        error = _one_of(faults.ERRORS, "error of a call", rest[0])
        return faults.FailCall(error, _one_of(OPERATIONS, "call", rest[1]), _hosts(rest[2:]))
    if word == "cut-power-after" and rest:
        return faults.CutPowerAfter(_parse_number(rest[0]), _hosts(rest[1:]))
    if word == "heal" and not rest:
        return faults.Heal()
    if word == "partition":
        return faults.Partition(tuple(_hosts(group.split()) for group in " ".join(rest).split("|")))
    raise ValueError(
        f"`{' '.join([word, *rest])}` is no fault; known are {', '.join(sorted(_WORDS.values()))}"
    )


def _header(words: list[str]) -> str:
    if len(words) != 2 or words[0] not in ("nodes", "seed", "duration", "expect", *_CHOICES):
        raise ValueError("expected `nodes N`, `seed N`, `duration 60s`, `settings local` or `at 10s …`")
    key, text = words
    if key in _CHOICES and text not in _CHOICES[key]:
        raise ValueError(f"{key} is one of {', '.join(_CHOICES[key])}, not {text}")
    if key == "duration":
        _parse_seconds(text)
    if key in ("nodes", "seed", "expect") and not re.fullmatch(r"\d{1,18}", text):
        raise ValueError(f"{key} needs a whole number, not {text}")
    if key == "nodes" and not 1 <= int(text) <= 100_000:
        raise ValueError(f"a cluster has 1 to 100000 nodes, not {text}")
    return text


def _hosts(words: list[str]) -> Hosts:
    if not words:
        raise ValueError("expected the names of hosts, for example n0 n3")
    for word in words:
        if not _HOST.fullmatch(word):
            raise ValueError(f"{word} is no host; hosts are n0, n1, n2 …")
    return tuple(words)


def _parse_word(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]{1,40}", text):
        raise ValueError(f"{text} is no tag; write a word of small letters, digits and hyphens")
    return text


def _parse_kind(text: str) -> str:
    return _one_of(MESSAGE_KINDS, "message type", text)


def _one_of(names: Sequence[str], what: str, text: str) -> str:
    if text not in names:
        raise ValueError(f"{text} is no {what}; there are {', '.join(names)}")
    return text


def _parse_number(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"{text} is no whole number; write 12")
    return int(text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def _parse_seconds(text: str) -> float:
    for suffix, per_second in (("ms", 1000), ("s", 1)):
        number = text.removesuffix(suffix)
        if number != text and re.fullmatch(r"\d{1,9}(\.\d{1,6})?", number):
            return float(number) / per_second
    raise ValueError(f"{text} is no time; write 10s, 0.5s or 200ms")


def _share(share: float) -> str:
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def _parse_share(text: str) -> float:
    number = text.removesuffix("%")
    if number == text or not re.fullmatch(r"\d{1,3}(\.\d{1,6})?", number) or float(number) > 100:
        raise ValueError(f"{text} is no share; write 80% (0% to 100%)")
    return round(float(number) / 100, 8)
