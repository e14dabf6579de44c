"""The picture of a run: every sample is a dot, every fault is shaded, and what can not be drawn is refused."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest

import chaos
from chaos import faults
from chaos.faults import At, Span, spans
from chaos.runs.timeline import _union, figure


@pytest.fixture(scope="module")
def report() -> chaos.Report:
    return chaos.run("minority", nodes=10, faulty=2, duration=70.0)


def test_every_member_reports_its_size_once_a_second(report: chaos.Report) -> None:
    """Also before the first fault; those who are cut off go on reporting the view they are left with."""
    by_host: dict[int, list[float]] = {}
    for seconds, host, _ in report.samples:
        by_host.setdefault(host, []).append(seconds)
    assert by_host.keys() == set(range(10))
    for times in by_host.values():
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(gaps) > 0.99
        assert times[0] < 0 < times[-1] <= 70.0
    hurt = {int(name.removeprefix("n")) for name in report.hurt}
    assert {size for seconds, host, size in report.samples if host in hurt and 20 < seconds < 40} == {10}
    assert {size for seconds, host, size in report.samples if host not in hurt and 20 < seconds < 40} == {8}


def test_the_figure_holds_a_dot_for_every_sample_and_the_fault(report: chaos.Report) -> None:
    drawn = figure(report)
    (axes,) = drawn.axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in dots) == len(report.samples)
    points = {point for line in dots for point in zip(line.get_xdata(), line.get_ydata(), strict=True)}
    assert points == {(seconds, size) for seconds, _, size in report.samples}
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["healthy member", "faulty member", "partition"]
    assert axes.get_title() == "minority on sim: 10 members, 2 faulty, seed 0"
    (shaded,) = axes.patches
    assert (shaded.get_x(), shaded.get_x() + shaded.get_width()) == (0.0, 40.0)


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG\r\n"), (".svg", b"<?xml")])
def test_it_is_a_picture(report: chaos.Report, tmp_path: Path, suffix: str, begins: bytes) -> None:
    path = tmp_path / f"run{suffix}"
    chaos.plot(report, path)
    data = path.read_bytes()
    assert data.startswith(begins)
    assert len(data) > 5000
    if suffix == ".png":
        width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
        assert (width, height) == (960, 480)


def test_what_can_not_be_drawn_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(chaos.PlotError, match=r"\.png or \.svg"):
        chaos.check_plot(tmp_path / "run.gif")
    with pytest.raises(chaos.PlotError, match="there is no folder"):
        chaos.check_plot(tmp_path / "nowhere" / "run.png")
    monkeypatch.setattr("chaos.runs.timeline.find_spec", lambda name: None)
    with pytest.raises(chaos.PlotError, match="extra `plots`"):
        chaos.check_plot(tmp_path / "run.png")


def test_matplotlib_is_only_imported_to_draw() -> None:
    import subprocess
    import sys

    program = "import sys, chaos, rota.commands.chaos; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert importlib.util.find_spec("matplotlib") is not None


def test_spans_are_what_was_in_force() -> None:
    schedule = (
        At(0.0, faults.Crash(("n1",))),
        At(1.0, faults.Pause(("n2",))),
        At(2.0, faults.Partition((("n0",),))),
        At(4.0, faults.Resume(("n2",))),
        At(5.0, faults.DropIngress(0.8, ("n3",))),
        At(6.0, faults.DropIngress(0.0, ("n4",))),
        At(7.0, faults.Heal()),
        At(8.0, faults.Start(("n1",))),
    )
    assert spans(schedule, 10.0) == (
        Span(0.0, 0.0, "crash"),
        Span(1.0, 4.0, "pause"),
        Span(2.0, 7.0, "partition"),
        Span(5.0, 10.0, "ingress loss"),
        Span(8.0, 8.0, "start"),
    )
    assert _union([Span(0, 2, "a"), Span(1, 3, "b"), Span(5, 6, "a")]) == [(0, 3), (5, 6)]
