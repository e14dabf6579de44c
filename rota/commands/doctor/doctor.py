"""``rota doctor``: what is wrong with this host."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.agent import settings as settings_module
from rota.commands.options import chosen_target, json_option, target_options
from rota.errors import ReportedFailure
from rota.terminal.output import as_json

if TYPE_CHECKING:
    from rota.commands.doctor.host_checks import Finding

_MARKS = {"good": ("ok", "green"), "warning": ("warn", "yellow"), "failed": ("FAIL", "red")}


@click.command(short_help="What is wrong with this host, and what to do about it.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="The agent's settings, as TOML."
)
@target_options
@json_option
def doctor(config: Path | None, json_wanted: bool, **given: Any) -> None:
    """What is wrong with this host, and what to do: settings, versions, ports, seeds, keys, TLS, clock, disk, limits.

    The agent that is asked how it is, is the one of the settings, unless --api or ROTA_API names another.
    Nothing is changed.  Exit status 1 when a check failed; warnings are none.

    \b
    Examples:
      rota doctor
      rota doctor --config /etc/rota/agent.toml
      rota doctor --json | jq '.checks[] | select(.outcome != "good")'
    """
    from rota.commands.doctor.host_checks import Outcome, examine

    found = []
    for finding in examine(lambda: settings_module.load(config, {}), partial(chosen_target, given)):
        found.append(finding)
        if not json_wanted:
            _show(finding)  # at once: a seed that does not answer takes its time
    if json_wanted:
        click.echo(as_json({"checks": [asdict(finding) for finding in found]}))
    failed = [finding.check for finding in found if finding.outcome is Outcome.FAILED]
    if failed:
        raise ReportedFailure(f"failed: {', '.join(failed)}")


def _show(finding: Finding) -> None:
    mark, colour = _MARKS[finding.outcome]
    click.echo(f"{click.style(f'{mark:<5}', fg=colour)} {finding.check:<12} {finding.text}")
    if finding.remedy:
        click.echo(f"{'':<19}{finding.remedy}")


COMMANDS = (doctor,)
