"""``rota``: the command line.

Exit status: 0 done, 1 the thing asked for failed, 2 usage.  Every error is one line on standard error; with
``--json`` it is a JSON document on standard output as well.  A traceback is shown to nobody who did not set
``ROTA_TRACEBACK=1``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class

from rota.commands import chaos, doctor, operations, starting, status, view
from rota.commands.access import contexts, keys, tokens
from rota.commands.layout import exports, layout, plans, questions
from rota.commands.options import target_options
from rota.commands.policies import policy
from rota.commands.store import backups, log, maps
from rota.errors import AgentError, ReportedFailure, first_error
from rota.imports import what_to_install
from rota.terminal.output import as_json
from rota.version import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="rota")
@target_options
def rota(**_: Any) -> None:
    """Who is in, and who does what: membership and placement for replicated datastores.

    \b
    Start here:
      rota demo                 a cluster of real processes loses a host and repairs itself
      rota up                   a local cluster in the foreground; then, in another terminal:
      rota members              who is in
      rota layout show          who does what
      rota policy --help        write, check, test and explain placement policies
    """


for group in (
    starting,
    status,
    view,
    layout,
    plans,
    questions,
    policy,
    exports,
    operations,
    log,
    maps,
    backups,
    keys,
    tokens,
    contexts,
    chaos,
    doctor,
):
    for command in group.COMMANDS:
        rota.add_command(command)


@rota.command(short_help="Have the shell complete commands and options.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what has SHELL complete rota's commands and options.

    \b
    Examples:
      rota completion bash > ~/.local/share/bash-completion/completions/rota
      rota completion zsh > ~/.zfunc/_rota          # with fpath+=~/.zfunc before compinit
      rota completion fish > ~/.config/fish/completions/rota.fish
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows the three"
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "rota", "_ROTA_COMPLETE").source())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``rota`` command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        rota.main(args=given, prog_name="rota", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "rota"
        message = " ".join(error.format_message().split())  # click has lists of choices on lines of their own
        _fail(f"{message.rstrip('.')}; see `{path} --help`", "usage", given, status=2)
    except click.ClickException as error:
        _fail(error.format_message(), "failed", given)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BaseException as error:
        cause = first_error(error)
        if isinstance(cause, SystemExit):
            raise cause from None
        if isinstance(cause, KeyboardInterrupt):
            sys.exit(130)
        if os.environ.get("ROTA_TRACEBACK"):
            raise
        if isinstance(cause, AgentError):
            reported = isinstance(cause, ReportedFailure)
            excerpt = getattr(cause, "excerpt", "")
            _fail(str(cause), cause.code, given, status=cause.exit_status, reported=reported, excerpt=excerpt)
        if isinstance(cause, ImportError) and (advice := what_to_install(cause, "this command")) is not None:
            _fail(advice, "not_installed", given)
        _fail(
            f"internal error: {type(cause).__name__}: {cause} (set ROTA_TRACEBACK=1 and run again to see where)",
            "internal",
            given,
        )


def _fail(
    message: str,
    code: str,
    arguments: Sequence[str],
    status: int = 1,
    *,
    reported: bool = False,
    excerpt: str = "",
) -> None:
    if "--json" in arguments and not reported:
        click.echo(as_json({"error": message, "code": code}))
    click.echo(f"rota: {message}", err=True)
    if excerpt:
        click.echo(excerpt, err=True)
    sys.exit(status)
