"""The picture of a run: who saw how many members, and when, in the manner of the paper's figures.

The time series of a report as an image: one dot per member and second, at the size of the view the member had then. A
steady cluster is one line; flapping is a cloud. Needs matplotlib (`pip install rota[plots]`), which is imported by
`plot` only.
Source: *Stable and Consistent Membership at Scale with Rapid*, section 7, Figures 8 to 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chaos.errors import PlotError
from chaos.faults import Span
from chaos.runs.report import Report

SUFFIXES = (".png", ".svg")
_WIDTH, _HEIGHT, _DOTS_PER_INCH = 8.0, 4.0, 120
_HEALTHY, _FAULTY, _FAULT, _MOMENT = "#1f5fa8", "#c1121f", "#f2b134", "#555555"
_MOMENTS = 12
"""So many moments (crashes, starts) get a line each; more would hide the dots."""


def check_plot(path: Path) -> None:
    """Raise PlotError now if `plot` could not write there: the kind of file, the folder, the library."""
    if path.suffix not in SUFFIXES:
        raise PlotError(f"{path} is no kind of picture that can be drawn; name it {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise PlotError(f"{path}: there is no folder {path.parent}; make it first")
    if find_spec("matplotlib") is None:
        raise PlotError("pictures need matplotlib, which is not installed: pip install 'rota[plots]'")


def plot(report: Report, path: Path) -> None:
    """Draw the report's time series to a `.png` or `.svg` file. Raises PlotError."""
    check_plot(path)
    drawn = figure(report)
    try:
        drawn.savefig(path, dpi=_DOTS_PER_INCH)
    except OSError as error:
        raise PlotError(f"{path} can not be written: {error.strerror}") from error


def figure(report: Report) -> Any:
    """The figure: a `matplotlib.figure.Figure`, tied to no window and no global state."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    drawn = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = drawn.add_subplot()
    hurt = {int(name.removeprefix("n")) for name in report.hurt}
    largest = max((size for _, _, size in report.samples), default=report.nodes)
    for faulty in (False, True):
        dots = [(seconds, size) for seconds, host, size in report.samples if (host in hurt) is faulty]
        if dots:
            axes.plot(
                [seconds for seconds, _ in dots],
                [size for _, size in dots],
                linestyle="none",
                marker="o",
                # Smaller and on top: where healthy and faulty members agree, both are seen.
                markersize=2.5 if faulty else 5.0,
                markeredgewidth=0,
                color=_FAULTY if faulty else _HEALTHY,
                alpha=_alpha(len(hurt) if faulty else report.nodes - len(hurt)),
                label="faulty member" if faulty else "healthy member",
                rasterized=True,
                zorder=3 if faulty else 2,
            )
    handles = _draw_faults(axes, report.spans)
    axes.set_title(
        f"{report.scenario} on {report.backend}: {report.nodes} members, {report.faulty} faulty, seed {report.seed}",
        fontsize=11,
    )
    axes.set_xlabel("seconds from the first start" if not report.spans else "seconds from the first fault")
    axes.set_ylabel("members in the member's own view")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    margin = max(1.0, largest * 0.05)
    lowest = min((size for _, _, size in report.samples), default=0)
    axes.set_ylim(max(0.0, lowest - margin) if lowest > largest / 2 else 0.0, largest + margin)
    axes.grid(alpha=0.25, linewidth=0.5)
    dots_drawn, _ = axes.get_legend_handles_labels()
    if dots_drawn or handles:
        shown = axes.legend(handles=[*dots_drawn, *handles], loc="best", fontsize=8, framealpha=0.9)
        for handle in shown.legend_handles:
            if handle is not None:
                handle.set_alpha(0.9)
    return drawn


def _alpha(members: int) -> float:
    """Few members are drawn solid, a thousand so faint that only what many see is dark; never invisible."""
    return max(0.15, min(0.9, 30 / max(members, 1)))


def _draw_faults(axes: Any, spans: Iterable[Span]) -> list[Any]:
    """Shade the time in which a fault was in force; a line for what happens at once. Gives what the legend shows."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    if lasting := [span for span in spans if span.end > span.begin]:
        for begin, end in _union(lasting):
            axes.axvspan(begin, end, color=_FAULT, alpha=0.25, linewidth=0, zorder=0)
        handles.append(Patch(color=_FAULT, label=_names(lasting)))
    if moments := [span for span in spans if span.end == span.begin]:
        for at in sorted({span.begin for span in moments})[:_MOMENTS]:
            axes.axvline(at, color=_MOMENT, linestyle=":", linewidth=1, zorder=1)
        handles.append(Line2D([], [], color=_MOMENT, linestyle=":", linewidth=1, label=_names(moments)))
    return handles


def _names(spans: Iterable[Span]) -> str:
    return ", ".join(dict.fromkeys(span.what for span in spans))


def _union(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The time covered by any of the spans, so that faults at once are not shaded twice."""
    covered: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if covered and span.begin <= covered[-1][1]:
            covered[-1] = covered[-1][0], max(covered[-1][1], span.end)
        else:
            covered.append((span.begin, span.end))
    return covered
