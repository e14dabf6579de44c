"""The membership benchmarks: what is measured, beside what was published and what others need on such a machine.

Published figures: *Stable and Consistent Membership at Scale with Rapid* (USENIX ATC 2018), Figure 5, Table 1 and
Table 2, on 100 virtual machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from bench.members.alerts import DEFINITION
from bench.members.backends import Backend, Simulated
from bench.members.run import Run, summary
from bench.result import Result, Table

SIMULATED: Final = Simulated()
SOURCE: Final = "Rapid, USENIX ATC 2018, 100 virtual machines"

BOOTSTRAP_SECONDS: Final = {1000: "30", 1500: "40", 2000: "54"}
BOOTSTRAP_SIZES: Final = {1000: "4", 1500: "8", 2000: "4"}

PUBLISHED_BOOTSTRAP: Final = Table(
    ("published, 100 virtual machines", "ZooKeeper", "Memberlist", "Rapid-C", "Rapid"),
    (
        (
            "bootstrap N = 1000 / 1500 / 2000, mean s",
            "33 / 81 / 165",
            "46 / 69 / 98",
            "39 / 64 / 81",
            "30 / 40 / 54",
        ),
        ("unique sizes seen", "1000 / 1500 / 2000", "901 / 1383 / 1858", "9 / 10 / 7", "4 / 8 / 4"),
    ),
)
PUBLISHED_TRAFFIC: Final = Table(
    ("KB/s per process received / sent, crash run, N = 1000", "ZooKeeper", "Memberlist", "Rapid"),
    (
        ("mean", "0.43 / 0.01", "0.54 / 0.64", "0.71 / 0.71"),
        ("p99", "17.52 / 0.33", "5.61 / 6.40", "3.66 / 3.72"),
        ("max", "38.86 / 0.67", "7.36 / 8.04", "9.56 / 11.37"),
    ),
)
TWO_CORES: Final = Table(
    ("on two cores, one machine", "memberlist 0.2", "serf 0.9, a process each", "ZooKeeper 3.8"),
    (
        (
            "bootstrap, all at once",
            "N=200 5.5 to 7.2 s, 193+ sizes, 6.3 CPU s; N=500 never converges",
            "N=100 3.2 s, 45+ sizes",
            "N=200 1.3 s, 67 sizes; N=500 31 s, 367 sizes",
        ),
        ("2 killed, removed by all after", "N=200 11.4 to 12.5 s", "N=100 10 to 11 s", "9.7 to 10.8 s"),
    ),
)


def bootstrap(nodes: int, seeds: Iterable[int], backend: Backend = SIMULATED) -> Result:
    """All ``nodes`` start together: how long until all agree."""
    runs = [backend.bootstrap(nodes, seed) for seed in seeds]
    figures = summary(runs)
    show = _shower(figures)
    rows = [
        (f"{backend.clock} after the last start", show("seconds", ".2f"), BOOTSTRAP_SECONDS.get(nodes, "")),
        ("unique sizes seen", show("unique_sizes", "g"), BOOTSTRAP_SIZES.get(nodes, "")),
        *_cost(show),
    ]
    return Result(figures, rows, SOURCE, (PUBLISHED_BOOTSTRAP, TWO_CORES), _ok(runs))


def crash(nodes: int, faulty: int, seeds: Iterable[int], backend: Backend = SIMULATED) -> Result:
    """``faulty`` of ``nodes`` vanish together."""
    runs = [backend.crash(nodes, faulty, seed) for seed in seeds]
    figures = summary(runs)
    show = _shower(figures)
    rows = [
        (f"{backend.clock} until removed by all", show("seconds", ".2f"), ""),
        ("of these, after the alerts", show("seconds_after_alerts", ".2f"), ""),
        ("view changes", show("view_changes", "g"), "1"),
        *_cost(show, " from the crash"),
        *(
            (
                ("messages sent per member after the alerts", show("messages_after_alerts", ".0f"), ""),
                ("kB sent per member after the alerts", show("bytes_after_alerts", ".1f", 1e-3), ""),
            )
            if "messages_after_alerts" in figures
            else ()
        ),
        ("probes and answers sent per member, besides", show("probes_per_node", ".0f"), ""),
    ]
    if "received_kb_per_second" in figures:
        received, sent = figures["received_kb_per_second"], figures["sent_kb_per_second"]
        rows += [
            (f"KB/s received / sent per member, {key}", f"{received[key]:.2f} / {sent[key]:.2f}", published)
            for key, published in (("mean", "0.71 / 0.71"), ("p99", "3.66 / 3.72"), ("max", "9.56 / 11.37"))
        ]
    tables = (PUBLISHED_TRAFFIC, TWO_CORES)
    return Result(figures, rows, f"{SOURCE}, N = 1000", tables, _ok(runs), (DEFINITION,))


def _cost(show: Callable[..., str], when: str = "") -> list[tuple[str, str, str]]:
    return [
        (f"messages sent per member{when}", show("messages_per_node", ".0f"), ""),
        ("kB sent per member", show("bytes_per_node", ".1f", 1e-3), ""),
        ("CPU seconds, all members", show("cpu_seconds", ".2f"), ""),
        ("peak memory of a process, MB", show("max_rss", ".0f", 1e-6), ""),
    ]


def _shower(figures: dict[str, Any]) -> Callable[..., str]:
    """Shows a figure, or the median of several with the worst behind it."""

    def show(key: str, form: str, factor: float = 1.0) -> str:
        def text(value: float | None) -> str:
            return "never" if value is None else format(value * factor, form)

        worst = figures.get("worst")
        figure = text(figures.get(key))
        return figure if worst is None else f"{figure} (worst {text(worst.get(key))})"

    return show


def _ok(runs: Iterable[Run]) -> bool:
    return all(run.ok for run in runs)
