"""``docs/remote.md`` word for word: three hosts and an operator's machine, each a network namespace of its own.

``ssh``, ``scp`` and ``systemctl`` are small scripts here: the first two enter the host's namespaces, where ``/etc``,
``/opt``, ``/run`` and ``/var/lib`` are its own; the last does what the unit says.  All else is what the page says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from chaos.processes.namespaces import NamespaceLinks
from tests.docs.test_tutorial import ROOT, Block, blocks, run
from tests.rota.certificates import DAY, Authority

pytestmark = [
    pytest.mark.system,
    pytest.mark.first,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
PAGE = ROOT / "docs/remote.md"
PATIENCE = 30.0

BEGIN = """
for each in /opt/*; do [ -d "$each" ] && mkdir "$1$each" && mount --bind "$each" "$1$each"; done
mkdir -p "$1/opt/rota/bin" && ln -s "$2" "$1/opt/rota/bin/rota"
for each in etc run var/lib; do mount --bind "$1/$each" "/$each"; done
mount --rbind "$1/opt" /opt
echo $$ > "$1/pid"
exec sleep infinity
"""
TOOLS = {
    "ssh": """
host=${1#*@}; shift
exec nsenter --net --mount --wd=/ --target "$(cat "$HOSTS/$host/pid")" -- bash -c "$*"
""",
    "scp": """
files=("${@:1:$#-1}"); to=${!#}; host=${to%%:*}
exec nsenter --mount --target "$(cat "$HOSTS/${host#*@}/pid")" -- cp "${files[@]/#/$PWD/}" "${to#*:}"
""",
    "systemctl": """
if [ "$1" = reload ]; then exec kill -HUP "$(cat /run/agent.pid)"; fi
mkdir -p /run/rota /var/lib/rota && chown rota: /run/rota /var/lib/rota
cd / && read -ra start < <(sed -n 's/^ExecStart=//p' /etc/systemd/system/rota-agent.service)
as=(setpriv --reuid rota --regid rota --clear-groups)
python=$(readlink -f "$(dirname "$(readlink -f "${start[0]}")")/python")
"${as[@]}" test -x "$python" || as=()  # it may be in a folder that only root enters
setsid "${as[@]}" "${start[@]}" < /dev/null > "/var/lib/agent.log" 2>&1 &
echo $! > /run/agent.pid
""",
}
"""Scripts of the commands that would need other machines."""


@contextmanager
def machines(directory: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment of a command on the operator's machine, and what runs it there."""
    hosts, tools, scripts = directory / "hosts", directory / "tools", Path(sys.executable).parent
    tools.mkdir()
    for name, script in TOOLS.items():
        (tools / name).write_text(f"#!/bin/bash\n{script}")
        (tools / name).chmod(0o755)
    environment = {
        **os.environ, "PATH": os.pathsep.join([str(tools), str(scripts), os.environ["PATH"]]), "NO_COLOR": "1",
        "XDG_CONFIG_HOME": str(directory / "settings"), "HOSTS": str(hosts), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    links, begun = NamespaceLinks(), []
    try:
        for number in range(4):
            links.add(number)
        begun = [begin_host(links, number, hosts, scripts / "rota") for number in range(3)]
        yield environment, links.prefix(3)
    finally:
        for file in hosts.glob("*/run/agent.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        for process in begun:
            process.kill()
            process.wait()
        links.close()


def begin_host(links: NamespaceLinks, number: int, hosts: Path, rota: Path) -> subprocess.Popen[bytes]:
    """A process in the host's namespaces, which stay as long as it."""
    here = hosts / links.address(number).host
    for name in ("opt", "run", "var/lib"):
        (here / name).mkdir(parents=True)
    subprocess.run(["cp", "-a", "/etc", str(here)], check=True)
    command = [*links.prefix(number), "unshare", "--mount", "--propagation", "private"]
    process = subprocess.Popen([*command, "bash", "-ec", BEGIN, "begin", str(here), str(rota)])
    until(lambda: (here / "pid").exists() and (here / "pid").read_text().strip(), f"{here} is not there")
    return process


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def beside(block: Block, environment: dict[str, str], directory: Path, *within: str) -> Iterator[Path]:
    """What the page says to run in another terminal, and the file with what it prints."""
    with (directory / "beside").open("w") as printed:
        command = [*within, "bash", "-ec", f"exec {block.commands}"]
        process = subprocess.Popen(command, env=environment, cwd=directory, stdout=printed, stderr=printed)
        try:
            yield Path(printed.name)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def test_three_hosts_are_set_up_and_operated_as_the_page_says(tmp_path: Path) -> None:
    todo = [each for each in blocks(PAGE.read_text()) if not any(r.startswith("skip") for r in each.remarks)]
    watched = next(index for index, block in enumerate(todo) if "beside" in block.remarks)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    with machines(tmp_path) as (environment, within):
        try:
            for block in todo[:watched]:
                run(block, environment, tmp_path, *within)
            with beside(todo[watched], environment, tmp_path, *within) as printed:
                run(todo[watched + 1], environment, tmp_path, *within)
                for text in todo[watched].expectations:
                    until(lambda text=text: text in printed.read_text(), f"{text} is not shown")
            for block in todo[watched + 2 :]:
                run(block, environment, tmp_path, *within)
            pictures = [sys.executable, str(Path(__file__).with_name("console_pictures.py"))]
            command = [*within, *pictures, "https://10.77.0.1:7947/", "alice.token", str(tmp_path)]
            done = subprocess.run(
                command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            refuse_an_expired_certificate(environment, tmp_path, within)
        except BaseException:
            for log in sorted(tmp_path.glob("hosts/*/var/lib/agent.log")):
                print(log, log.read_text(), sep="\n")
            raise


def refuse_an_expired_certificate(environment: dict[str, str], directory: Path, within: list[str]) -> None:
    authority = Authority(directory)
    authority.issue("late", "10.77.0.3", lasts=-DAY)
    commands = (
        "scp late.pem root@10.77.0.3:/etc/rota/host.pem; scp late.key root@10.77.0.3:/etc/rota/host.key; "
        "ssh root@10.77.0.3 'chown rota: /etc/rota/* && systemctl reload rota-agent'; "
        f"for try in $(seq 50); do rota --api https://10.77.0.3:7947 --ca-file {authority.path} "
        "--token-file alice.token members 2>&1 | grep expired && break; sleep 0.1; done; "
        "ssh root@10.77.0.3 curl --silent --unix-socket /run/rota/api.sock http://localhost/metrics "
        "| grep ^rota_certificate_expiry"
    )
    done = subprocess.run(
        [*within, "bash", "-c", commands],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    told = "the agent's certificate has expired; renew it there and send the agent SIGHUP"
    refused, metric = done.stdout.splitlines()
    assert (done.returncode, refused) == (0, f"rota: https://10.77.0.3:7947: {told}"), done.stderr
    assert -2 < (float(metric.split()[1]) - time.time()) / DAY.total_seconds() < 0, "as the alert sees it"
