"""What Prometheus would scrape while a chaos scenario runs on real agents, as series for ``promtool test rules``.

A sample is taken twice a second and stands for one scrape, of which there may be one in some minutes: so the alerts see
the scenario as slow as their ``for`` asks.  An agent that does not answer is ``up 0``, and its metrics are stale.
promtool's clock begins at 0, so moments in Unix seconds are told from when the recording began.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

PERIOD = 0.5
AFTERWARDS = 2000
"""Scrapes after the last sample, all like it: for what an alert remembers to be forgotten."""
ENDING = 4
"""Samples in which agents end."""
RUN = (sys.executable, "-m", "rota", "chaos", "run")
HTTP_AT = re.compile(r"listens at \S+, HTTP at (http://\S+/)")
METRIC = re.compile(r"^(rota_\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)

Series = dict[tuple[str, str], list[str]]
"""By metric and instance: its samples, ``_`` where there was none."""


def agents_of(run: subprocess.Popen[bytes], logs: Path, nodes: int) -> Mapping[str, str]:
    """Where the agents of this chaos run serve HTTP, by their logs; as far as they say it before the run ends."""
    found: dict[str, str] = {}
    while len(found) < nodes and run.poll() is None:
        time.sleep(PERIOD)
        for path in logs.glob("n*.log"):
            if said := HTTP_AT.search(path.read_text()):
                found[path.stem] = f"{said[1]}metrics"
    return found


class Recorder:
    """Samples of some metrics of some agents, taken together, from the moment on when all are ready."""

    def __init__(self, agents: Mapping[str, str], wanted: set[str], **options: Any) -> None:
        """``options`` of the HTTP client."""
        self.series: Series = {}
        self._client = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), **options)
        self._agents = agents
        self._wanted = wanted
        self._taken = 0
        self._began = time.time()
        self._pool = ThreadPoolExecutor(len(agents))

    def take(self) -> None:
        """A sample of each, and what is left of the period."""
        began = time.monotonic()
        texts = dict(zip(self._agents, self._pool.map(self._scrape, self._agents.values()), strict=True))
        if self._taken or all("rota_ready 1" in text for text in texts.values()):
            self._add(texts)
            self._taken += 1
        time.sleep(max(0.0, began + PERIOD - time.monotonic()))

    def _add(self, texts: Mapping[str, str]) -> None:
        for instance, text in texts.items():
            values = {
                name: value
                for name, labels, value in METRIC.findall(text)
                if name in self._wanted and not labels
            }
            for name, value in {**values, "up": str(int(text != ""))}.items():
                samples = self.series.setdefault((name, instance), [])
                if gap := self._taken - len(samples):  # as Prometheus marks what it does not find any more
                    samples += ["stale" if samples else "_", *["_"] * (gap - 1)]
                since = self._began if name.endswith("_timestamp_seconds") else 0.0
                samples.append(f"{float(value) - since:.15g}")

    def _scrape(self, url: str) -> str:
        try:
            return self._client.get(url, timeout=0.4).text
        except httpx.HTTPError:
            return ""


def record(arguments: Iterable[str], nodes: int, wanted: set[str], log: Path) -> tuple[int, Series]:
    """Run ``rota chaos run ...``; its exit status, and the series of these metrics."""
    logs = log.with_name("agents")
    logs.mkdir()
    command = [*RUN, *arguments, "--backend", "process", "--nodes", str(nodes), "--logs", str(logs)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        recorder = Recorder(agents_of(process, logs, nodes), wanted)
        while process.poll() is None:
            recorder.take()
    return process.returncode, without_the_end(recorder.series)


def without_the_end(series: Series) -> Series:
    """Until the scenario was over: then its agents end one after the other, within a second or two."""
    ups = [samples for (name, _), samples in series.items() if name == "up"]
    answering = [sample.count("1") for sample in zip(*ups, strict=True)]
    last = max(index for index, count in enumerate(answering) if count) - ENDING
    return {key: samples[: last + 1] for key, samples in series.items()}


def rules_test(series: Series, rules: Path, scrape: str, alerts: Iterable[str]) -> str:
    """A file for ``promtool test rules``: each of the alerts fires at some time, and none of them in the end."""
    length = max(map(len, series.values()))
    lines = [f"rule_files: [{rules}]", f"evaluation_interval: {scrape}", "tests:", f"  - interval: {scrape}"]
    lines.append("    input_series:")
    for (name, instance), samples in series.items():
        job = ', job="rota"' if name == "up" else ""
        rest = f"{samples[-1]}x{AFTERWARDS}" if len(samples) == length else "stale"
        lines.append(f"      - series: '{name}{{instance=\"{instance}\"{job}}}'")
        lines.append(f"        values: '{' '.join(samples)} {rest}'")
    lines.append("    promql_expr_test:")
    count, unit = int(scrape[:-1]), scrape[-1]
    for alert in alerts:
        firing = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
        whole = f"{count * length}{unit}"
        lines += [
            f"      - expr: 'group(max_over_time({firing}[{whole}]))'",
            f"        eval_time: {whole}",
            "        exp_samples: [{labels: '{}', value: 1}]",
            f"      - expr: '{firing}'",
            f"        eval_time: {count * (length + AFTERWARDS)}{unit}",
        ]
    return "\n".join(lines) + "\n"
