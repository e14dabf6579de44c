"""``rota backup`` and ``rota restore``: the store and the settings of a whole cluster, in one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.options import AGREED_TIMEOUT, api_option, json_option
from rota.errors import UsageProblem
from rota.terminal.output import emit, size
from rota.terminal.progress import Progress


@click.command(short_help="Write all data and settings to a file, while all goes on.")
@click.argument("target", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--verify", "verifying", is_flag=True, help="Read and check FILE; no cluster is asked.")
@api_option
@json_option
def backup(target: Path, verifying: bool, api: Target, json_wanted: bool) -> None:
    """Write all streams and maps, the policies and what operators have asked for to FILE, or to a new file in DIR.

    It is consistent: exactly the log below one address, and the settings of that moment. The cluster goes on meanwhile,
    and the file is as large as what is in the log. Each part of it and the whole have checksums; whatever was changed
    in it later, or is missing, is refused with the place. Data in Valkey or Redis is in none: those servers have
    backups of their own.

    \b
    Examples:
      rota backup /var/backups/rota
      rota backup monday.backup --api https://n1.example:7947 --token-file token
      rota backup --verify monday.backup
    """
    from rota.client.backup import back_up
    from rota.client.backup_file import verify

    began = time.monotonic()
    with Progress("checking" if verifying else "backing up", quiet=json_wanted) as progress:
        if verifying:
            summary = verify(target, progress.share)
            cluster_id, end, written, file = summary.head.cluster_id, summary.end, summary.size, target
        else:
            taken = back_up(ApiClient(api, timeout=AGREED_TIMEOUT), target, progress.share)
            cluster_id, end, written, file = taken.cluster_id, taken.end, taken.size, taken.file
    answer = {
        "file": str(file),
        "cluster_id": cluster_id,
        "address": end.address,
        "trimmed_below": end.trimmed_below,
        "layout_epoch": end.layout_epoch,
        "records": end.records,
        "bytes": end.payload_bytes,
        "lost": end.lost,
        "size": written,
        "seconds": time.monotonic() - began,
    }
    emit(answer, json_wanted, _show)


def _show(answer: dict[str, Any]) -> None:
    begin = (
        f"addresses {answer['trimmed_below']} to {answer['address'] - 1}" if answer["address"] else "nothing"
    )
    click.echo(
        f"{answer['file']}: {begin} of cluster {answer['cluster_id'][:8]}, {answer['records']} records"
    )
    click.echo(
        f"{size(answer['bytes'])} in them, {size(answer['size'])} in the file, {answer['seconds']:.1f} s"
    )
    if answer["lost"]:
        click.echo(f"{answer['lost']} addresses had lost their records in the log itself", err=True)


@click.command(short_help="Put a backup back, into a new cluster.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--resume", is_flag=True, help="Go on with a restore of this file that was cut short.")
@click.option(
    "--without-intent",
    is_flag=True,
    help="The log alone; policies, drains, pins and segments stay as they are.",
)
@api_option
@json_option
def restore(file: Path, resume: bool, without_intent: bool, api: Target, json_wanted: bool) -> None:
    """Put a backup back, into a new cluster: every record at its address, then all goes on as after the backup.

    The file is read and checked first. A cluster that has anything in its log is refused: start the agents with empty
    data directories, and let nobody write until this is done. Meanwhile no data is moved. Drains, pins and the
    number of segments come with it, and are carried out afterwards.

    \b
    Examples:
      rota restore monday.backup
      rota restore monday.backup --resume
      rota restore monday.backup --without-intent --json
    """
    from rota.client.backup import restore as put_back

    if file.is_dir():
        raise UsageProblem(f"{file} is a directory; name one of the files in it")
    began = time.monotonic()
    client = ApiClient(api, timeout=AGREED_TIMEOUT)
    with Progress("restoring", quiet=json_wanted) as progress:
        restored = put_back(client, file, with_intent=not without_intent, resume=resume, told=progress.share)
    end = restored.summary.end
    answer = {
        "file": str(file),
        "backup_of": restored.summary.head.cluster_id,
        "address": end.address,
        "trimmed_below": end.trimmed_below,
        "records": end.records,
        "bytes": end.payload_bytes,
        "intent": not without_intent and bool(end.intent),
        "paused": restored.is_paused,
        "seconds": time.monotonic() - began,
    }
    emit(answer, json_wanted, _show_restored)


def _show_restored(answer: dict[str, Any]) -> None:
    settings = ", and the policies and requests" if answer["intent"] else ""
    click.echo(
        f"restored {answer['records']} records ({size(answer['bytes'])}), up to address {answer['address']}{settings}; "
        f"{answer['seconds']:.1f} s"
    )
    if answer["paused"]:
        click.echo("data movement is paused, as it was; `rota resume` lets it go on")


COMMANDS = (backup, restore)
