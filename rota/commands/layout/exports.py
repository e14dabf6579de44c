"""The placement for systems that rota does not steer: ``rota export kafka|cockroachdb|pd``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from datastore_adapter.exports import (
    ExportError,
    KeyType,
    PlacedSegment,
    placed_segments,
    reassignment,
    rule_bundles,
    zone_configurations,
)
from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.layout.exported_placement import of_file, of_plan, read_names, standing, with_tags
from rota.commands.options import AGREED_TIMEOUT, api_option, json_option
from rota.errors import AgentError, UsageProblem
from rota.terminal.output import as_json, emit

Exported = TypeVar("Exported")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the placement comes from."""

    api: Target
    which: str | None
    file: Path | None
    names: Path | None


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--api``, ``--from``, ``--file`` and ``--names``, given to the command as one ``source``."""

    @wraps(command)
    def called(
        *args: Any, api: Target, which: str | None, file: Path | None, names: Path | None, **more: Any
    ) -> Any:
        return command(*args, source=Source(api, which, file, names), **more)

    options = (
        click.option(
            "--from",
            "which",
            type=click.Choice(["plan", "standing"]),
            help="What the plan leads to that `rota plan` shows, or what stands now.  [default: plan]",
        ),
        click.option(
            "--file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="A placement kept from `rota layout show --json`, instead of a cluster's.",
        ),
        click.option(
            "--names",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="JSON: what segments are called there, and tags of hosts.",
        ),
        api_option,
    )
    for option in reversed(options):
        called = option(called)
    return called


@click.group(short_help="The placement for systems that rota does not steer.")
def export() -> None:
    """The placement for systems that rota does not steer, as their own tools read it.

    \b
    Examples:
      rota export kafka > reassignment.json
      rota export cockroachdb --from standing | cockroach sql
      rota layout show --json > placement.json; rota export pd --file placement.json --names names.json
    """


@export.command(short_help="A reassignment for kafka-reassign-partitions.")
@source_options
@json_option
def kafka(source: Source, json_wanted: bool) -> None:
    """The document that `kafka-reassign-partitions --reassignment-json-file` reads (it is JSON anyway).

    Segments are called TOPIC-PARTITION; hosts have the tag broker=ID, and log_dir=PATH where that matters.

    \b
    Examples:
      rota export kafka > reassignment.json
      rota export kafka --file placement.json --names names.json
    """
    document = _export(source, reassignment)
    emit(document, json_wanted, lambda document: click.echo(as_json(document)))


@export.command(short_help="CONFIGURE ZONE statements.")
@click.option(
    "--tier",
    "tiers",
    metavar="TAG",
    multiple=True,
    default=("rack",),
    show_default=True,
    help="A tag of the hosts that is a tier of their nodes' --locality, the widest first; may be repeated.",
)
@source_options
@json_option
def cockroachdb(source: Source, tiers: tuple[str, ...], json_wanted: bool) -> None:
    """ALTER ... CONFIGURE ZONE statements: how many copies, in which localities, and where the lease is preferred.

    Segments are called as tables are, or as SHOW ZONE CONFIGURATIONS prints its targets.

    \b
    Examples:
      rota export cockroachdb | cockroach sql
      rota export cockroachdb --tier zone --tier rack --file placement.json --names names.json
    """
    statements = _export(source, lambda segments: zone_configurations(segments, tiers))
    emit({"statements": list(statements)}, json_wanted, lambda _: click.echo("\n".join(statements)))


@export.command(short_help="Placement rules for TiKV's Placement Driver.")
@click.option(
    "--label",
    "labels",
    metavar="TAG",
    multiple=True,
    default=("rack",),
    show_default=True,
    help="A tag of the hosts that is a label of their stores, the widest first; may be repeated.",
)
@click.option("--group", metavar="ID", default="rota", show_default=True, help="The group of the rules.")
@click.option(
    "--key-type",
    type=click.Choice([str(kind) for kind in KeyType]),
    default=str(KeyType.TABLE),
    show_default=True,
    help="PD's key-type: how the keys are encoded.",
)
@source_options
@json_option
def pd(source: Source, labels: tuple[str, ...], group: str, key_type: str, json_wanted: bool) -> None:
    """Placement rules as `pd-ctl config placement-rules rule-bundle save --partial` reads them (it is JSON anyway).

    Segments are called START..END, a range of keys in hexadecimal digits. Save them with --partial: without it PD drops
    every other group, its default rule among them.

    \b
    Examples:
      rota export pd > rules.json
      rota export pd --label zone --label rack --file placement.json --names names.json
    """
    bundles = _export(
        source, lambda segments: rule_bundles(segments, labels, group=group, key_type=KeyType(key_type))
    )
    emit(bundles, json_wanted, lambda bundles: click.echo(as_json(bundles)))


def _export(source: Source, exporter: Callable[[tuple[PlacedSegment, ...]], Exported]) -> Exported:
    """What the exporter makes of it; which placement it was is told on standard error."""
    names = read_names(source.names)
    if source.file is not None:
        if source.which is not None:
            raise UsageProblem(
                "--from is about a running cluster, and --file about none; leave one of them out"
            )
        placement = of_file(source.file)
    else:
        client = ApiClient(source.api, timeout=AGREED_TIMEOUT)
        placement = standing(client) if source.which == "standing" else of_plan(client)
    placement = with_tags(placement, names.hosts)
    try:
        exported = exporter(placed_segments(placement.segments, placement.tags, names.segments))
    except ExportError as error:
        raise AgentError(str(error)) from error
    click.echo(f"exported: {placement.source}", err=True)
    return exported


COMMANDS = (export,)
