"""Each alert fires in a chaos scenario on real agents, and stops after it.

What the agents' metrics say meanwhile is recorded, and `promtool` puts the alerts to it.  A scenario lasts a minute,
alerts wait for minutes: a sample, taken twice a second, stands for as much time as is said here.

Not here: `RotaDefect`, for which there must be a defect; the certificate's (`test_three_hosts`); crowds
(`tests.rota.test_http_server`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.recording import record, rules_test
from tests.deploy.test_monitoring import ALERTS, run

pytestmark = [pytest.mark.sweep, pytest.mark.system, pytest.mark.timeout(600)]

LOG = ("--store", "log")
SCENARIOS = (
    (("quorum-loss", *LOG), 5, "15s", "RotaAgentDown RotaQuorumLost"),
    (("rack-loss", *LOG), 6, "60s", "RotaRackViolations RotaInfeasible RotaNotReady"),
    (("rolling-restart", *LOG), 4, "10s", "RotaUnderReplicated RotaMembershipChanges"),
    (("flip-flop", *LOG), 5, "300s", "RotaViewsDiffer"),
    (("kill-controller", *LOG), 5, "60s", "RotaNoController"),
    (("disk-full", *LOG), 5, "15s", "RotaDiskFull"),
)


@pytest.mark.parametrize(("arguments", "nodes", "scrape", "alerts"), SCENARIOS, ids=lambda each: str(each))
def test_it_fires_and_stops(
    arguments: tuple[str, ...], nodes: int, scrape: str, alerts: str, tmp_path: Path
) -> None:
    wanted = set(re.findall(r"\brota_\w+", ALERTS.read_text()))
    status, series = record(arguments, nodes, wanted, tmp_path / "log")
    assert status == 0, (tmp_path / "log").read_text()
    file = tmp_path / "test.yml"
    file.write_text(rules_test(series, ALERTS, scrape, alerts.split()))
    run("promtool", "test", "rules", str(file))
