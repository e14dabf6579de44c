"""``rota``: the command line.

Exit status: 0 done, 1 the thing asked for failed, 2 usage.  Every error is one line on standard error; with
``--json`` it is a JSON document on standard output as well.  A traceback is shown to nobody who did not set
``ROTA_TRACEBACK=1``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from rota.commands import chaos, completion, operations, starting, status, view
from rota.commands.access import contexts, keys, tokens
from rota.commands.doctor import doctor
from rota.commands.layout import exports, layout, plans, questions
from rota.commands.options import ConnectionOption, target_options
from rota.commands.orchestrators.kube import kube
from rota.commands.orchestrators.vsphere import commands as vsphere
from rota.commands.policies import policy
from rota.commands.store import backups, log, maps
from rota.errors import AgentError, ReportedFailure, first_error
from rota.imports import what_to_install
from rota.terminal.output import as_json
from rota.version import VERSION

SECTIONS: Final = (
    ("Start here", ("demo", "up", "status", "members", "layout")),
    ("Cluster", ("agent", "events", "suspicions", "tag", "leave", "evict", "recover")),
    ("Data", ("log", "map", "backup", "restore")),
    (
        "Placement",
        (
            "plan", "apply", "pause", "resume", "abort", "drain", "undrain", "pin", "unpin", "why", "why-not",
            "what-if", "export",
        ),
    ),
    ("Policies", ("policy",)),
    ("Orchestrators", ("kube", "vsphere")),
    ("Operations", ("doctor", "keys", "tokens", "context", "chaos", "completion", "help")),
)  # fmt: skip
"""Of the first help, with their commands."""
CONNECTION: Final = "connection"
"""The topic of the help that is no command."""


class CommandsInSections(click.Group):
    """All commands by what they are about, with those that one needs first on top."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for _, names in SECTIONS for name in names]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        for title, names in SECTIONS:
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), self.commands[name].get_short_help_str(100)) for name in names]
                )


@click.group(
    cls=CommandsInSections,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(VERSION, prog_name="rota")
@target_options
def rota(**_: Any) -> None:
    """Who is in, and who does what: membership and placement for replicated datastores."""


@click.command("help", short_help="Help on a command, or on how an agent is reached.")
@click.argument("topic", nargs=-1, metavar="[connection | COMMAND...]")
@click.pass_context
def help_command(context: click.Context, topic: tuple[str, ...]) -> None:
    """Help on a command; `rota help connection`: which agent a command asks, and how it is let in.

    \b
    Examples:
      rota help layout history
      rota help connection
    """
    at = context.find_root()
    if topic == (CONNECTION,):
        click.echo(_connection_help(at))
        return
    for name in topic:
        if not isinstance(at.command, click.Group) or (found := at.command.get_command(at, name)) is None:
            raise click.UsageError(f"no such command: {at.command_path} {name}", at)
        at = click.Context(found, parent=at, info_name=name, **_settings_of(at))
    click.echo(at.get_help())


def _settings_of(context: click.Context) -> dict[str, Any]:
    return {"help_option_names": context.help_option_names, "max_content_width": context.max_content_width}


def _connection_help(context: click.Context) -> str:
    formatter = context.make_formatter()
    formatter.write_text(
        "Which agent a command asks, and how it is let in.  Any agent of the cluster will do."
    )
    formatter.write_paragraph()
    formatter.write_text(
        "These options may stand before or after the command.  Without --api the first of these counts that is there: "
        "ROTA_API, the context in use (`rota context use`), the agents of a `rota up` on this machine, "
        "http://127.0.0.1:7947.  Of several addresses the first that answers is asked; whatever is sent goes to one."
    )
    with formatter.section("Options"):
        formatter.write_dl(
            [
                (f"{option.opts[0]} {option.metavar}", option.help or "")
                for option in context.command.params
                if isinstance(option, ConnectionOption)
            ]
        )
    with formatter.section("Examples"):
        formatter.write_text(
            "\b\n"
            "rota members --api http://127.0.0.1:7957\n"
            "rota --api https://a.example:7947,https://b.example:7947 status\n"
            "rota context set production --api https://a.example:7947 --token-file alice.token"
        )
    return formatter.getvalue().rstrip("\n")


def _add(command: click.Command) -> None:
    """To the group; its help points to that on the connection where it asks an agent."""
    rota.add_command(command)
    _point_to_connection(command)


def _point_to_connection(command: click.Command) -> None:
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _point_to_connection(each)
    if any(isinstance(option, ConnectionOption) for option in command.params):
        command.epilog = f"Which agent is asked, and how: `rota help {CONNECTION}`."


for group in (
    starting,
    status,
    view,
    layout,
    plans,
    questions,
    policy,
    vsphere,
    exports,
    operations,
    log,
    maps,
    backups,
    keys,
    tokens,
    contexts,
    chaos,
    completion,
    doctor,
    kube,
):
    for command in group.COMMANDS:
        _add(command)
rota.add_command(help_command)
rota.epilog = (
    f"Help on one of them: `rota help COMMAND`.  Which agent they ask, and how: `rota help {CONNECTION}`."
)


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
