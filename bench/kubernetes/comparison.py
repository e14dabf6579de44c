"""One run of each scheduler per workload, on the same API server: pods are created at once, and bound pods are watched.

Both schedulers run before there is a pod.  Times count from the first pod that is created; what a pod waits, from its
own creation.  Bindings are seen by a watch of the benchmark's own.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import trio

from bench.kubernetes.checks import fullest_above_mean, violations
from bench.kubernetes.workloads import WORKLOADS, Workload
from bench.percentile import percentile
from bench.result import Result
from orchestrators.kubernetes.api.client import ApiClient
from orchestrators.kubernetes.api.credentials import Credentials
from orchestrators.kubernetes.api.kinds import NODE, POD, PRIORITY
from orchestrators.kubernetes.api.reflector import Listed, listed, news
from orchestrators.kubernetes.scheduling.object_cache import is_ending
from tests.orchestrators.kubernetes.control_plane import ControlPlane, control_plane
from tests.orchestrators.kubernetes.servers.programs import missing

SCHEDULERS: Final = {"kube-scheduler": "default-scheduler", "rota": "rota"}
CREATING: Final = 32
"""Connections that create and remove objects."""
QUIET: Final = 15.0
"""Seconds without a binding after which the rest counts as left out."""


@dataclass(frozen=True, slots=True)
class Run:
    """Of one scheduler: seconds, and what became of the pods."""

    bound: int
    left_out: int
    seconds: float
    p99: float
    fullest_above_mean: float
    violations: int
    cpu_seconds: float


def kubernetes(names: Sequence[str], seed: int) -> Result:
    """Both schedulers on each of the workloads."""
    if (reason := missing()) is not None:
        return Result({"skipped": reason}, [("skipped", reason, "")], "", ok=False)
    runs: dict[str, dict[str, Run]] = {name: {} for name in names}
    for scheduler in SCHEDULERS:
        for name in names:
            load = WORKLOADS[name](seed)
            with control_plane() as plane, _running(plane, scheduler, load) as cpu_seconds:
                runs[name][scheduler] = trio.run(_measured, plane, load, scheduler, cpu_seconds)
    rows = [
        (
            f"{name}: {field.replace('_', ' ')}",
            _shown(getattr(each["rota"], field)),
            _shown(getattr(each["kube-scheduler"], field)),
        )
        for name, each in runs.items()
        for field in Run.__slots__
    ]
    ok = all(
        not each["rota"].violations and each["rota"].left_out <= each["kube-scheduler"].left_out
        for each in runs.values()
    )
    figures = {
        name: {scheduler: asdict(run) for scheduler, run in each.items()} for name, each in runs.items()
    }
    return Result(figures, rows, "kube-scheduler of Kubernetes 1.34.2, measured here in the same way", ok=ok)


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"


@contextmanager
def _running(plane: ControlPlane, scheduler: str, load: Workload) -> Iterator[Callable[[], float]]:
    """A scheduler at work; what it has taken of the processor so far."""
    if scheduler == "kube-scheduler":
        plane.start_scheduler()
        time.sleep(1)
        try:
            yield lambda: plane.cpu_seconds("kube-scheduler")
        finally:
            plane.stop_scheduler()
        return
    port = plane.scheduler_port
    command = [sys.executable, "-m", "rota", "kube", "schedule", "--kubeconfig", str(plane.kubeconfig())]
    command += ["--alone", "--http", f"127.0.0.1:{port}", "--log-level", "warning"]
    if load.rules is not None:
        command += ["--policies", str(load.rules)]
    process = subprocess.Popen(command)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/readyz", process)
        yield lambda: _cpu_seconds(process.pid)
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("rota kube schedule ended by itself")


def _cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


async def _measured(
    plane: ControlPlane, load: Workload, scheduler: str, cpu_seconds: Callable[[], float]
) -> Run:
    async with ApiClient(Credentials(plane.kubeconfig()).access) as client:
        for name, value in load.priorities.items():
            await client.create(PRIORITY.path(), {"metadata": {"name": name}, "value": value})
        await _in_parallel([_creation(client, NODE.path(), each) for each in load.nodes])
        await _in_parallel([_creation(client, POD.path("default"), each) for each in load.first])
        await trio.sleep(1)  # both have seen the nodes
        before = cpu_seconds()
        created: dict[str, float] = {}
        bound: dict[str, float] = {}

        async def create(item: Mapping[str, Any]) -> None:
            pod = {**item, "spec": {**item["spec"], "schedulerName": SCHEDULERS[scheduler]}}
            created[item["metadata"]["name"]] = trio.current_time()
            await client.create(POD.path("default"), pod)

        async with trio.open_nursery() as nursery:
            done = trio.Event()
            nursery.start_soon(_note_bindings, client, bound, len(load.first) + len(load.pods), done)
            begin = trio.current_time()
            await _in_parallel([lambda item=item: create(item) for item in load.pods])  # type: ignore[misc]
            await _until_quiet(bound, done)
            nursery.cancel_scope.cancel()
        after = cpu_seconds()
        nodes, _ = await listed(client, NODE)
        pods, _ = await listed(client, POD)
        bound = {name: at for name, at in bound.items() if name in created}
        waits = [at - created[name] for name, at in bound.items()]
        return Run(
            bound=len(bound),
            left_out=len(load.pods) - len(bound),
            seconds=max(bound.values(), default=begin) - begin,
            p99=percentile(sorted(waits), 99) if waits else 0.0,
            fullest_above_mean=fullest_above_mean(nodes, pods),
            violations=len(violations(nodes, pods)),
            cpu_seconds=after - before,
        )


async def _note_bindings(client: ApiClient, bound: dict[str, float], expected: int, done: trio.Event) -> None:
    """By a watch that begins again where the server ends it, as it does to those that are slow."""
    async with aclosing(news(client, POD)) as told:
        async for each in told:
            for item in each.items if isinstance(each, Listed) else [each.item]:
                if item["spec"].get("nodeName") and not is_ending(item):
                    bound.setdefault(item["metadata"]["name"], trio.current_time())
            if len(bound) == expected:
                done.set()


async def _until_quiet(bound: Mapping[str, float], done: trio.Event) -> None:
    seen = -1
    while not done.is_set() and len(bound) != seen:
        seen = len(bound)
        with trio.move_on_after(QUIET):
            await done.wait()


def _creation(client: ApiClient, path: str, item: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: client.create(path, item)


async def _in_parallel(calls: Sequence[Callable[[], Any]]) -> None:
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call()

    async with trio.open_nursery() as nursery:
        for _ in range(CREATING):
            nursery.start_soon(work)
