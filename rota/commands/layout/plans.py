"""Whether and when data moves: ``rota plan``, ``rota apply``, ``rota pause``, ``rota resume``, ``rota abort``."""

from __future__ import annotations

import time
from typing import Any

import click

from rota.client.api_client import ApiClient
from rota.client.target import Target
from rota.commands.options import AGREED_TIMEOUT, agreed, api_option, json_option, watch_option
from rota.errors import AgentError, ReportedFailure
from rota.terminal.output import emit
from rota.terminal.plan_progress import share_of
from rota.terminal.progress import Progress, waiting
from rota.terminal.watching import watch

POLL_INTERVAL = 0.3
"""Seconds between two looks at the plan."""

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up waiting after this; what was agreed goes on.",
)


@click.command(short_help="A dry run: what the controller would do now, and why.")
@watch_option
@api_option
@json_option
def plan(watched: bool, api: Target, json_wanted: bool) -> None:
    """A dry run: what the controller would do now, and why.  Nothing is changed.

    \b
    Examples:
      rota plan
      rota plan --watch
      rota plan --json | jq '.violations'
    """
    client = ApiClient(api, timeout=AGREED_TIMEOUT)
    if watched:
        watch(lambda: client.get("/v1/plan"), _show_plan, json_wanted=json_wanted)
    with waiting("waiting for the controller"):
        answer = client.get("/v1/plan")
    emit(answer, json_wanted, _show_plan)


def _show_plan(answer: dict[str, Any]) -> None:
    click.echo(answer["text"])
    has_changes = any(answer.get(what) for what in ("moves", "primaries", "roles", "slots", "retirements"))
    if has_changes and "digest" in answer:
        click.echo(f"`rota apply --digest {answer['digest']}` carries out this plan and no other")


@click.command(name="apply", short_help="Show the plan, carry it out now, and wait for it.")
@click.option(
    "--digest", metavar="DIGEST", help="The plan that `rota plan` showed under this digest, or none."
)
@timeout_option
@api_option
@json_option
def apply_plan(digest: str | None, timeout: float, api: Target, json_wanted: bool) -> None:
    """Show what `rota plan` shows, carry it out now, and wait for it: also while the loop is paused, which it stays.

    What is carried out is what was shown: if there is something else to do by then, nothing is done, and the exit
    status is 1. So it is when the plan failed, or another took its place, because a host was lost or something else
    was asked for.

    \b
    Examples:
      rota pause; rota drain n3; rota apply
      rota plan; rota apply --digest 5f0c1d2e3a4b5c6d
      rota apply --json | jq '.state'
    """
    client = ApiClient(api, timeout=AGREED_TIMEOUT)
    if digest is None:
        with waiting("waiting for the controller"):
            shown = client.get("/v1/plan")
        digest = shown.get("digest")  # a controller of 0.1 tells none, and binds nobody to what it showed
        if not json_wanted:
            click.echo(shown["text"])
    # A path of its own: an agent of 0.1 in between would not pass the digest on, but have anything done.
    path, body = ("/v1/apply", {}) if digest is None else ("/v1/apply/shown", {"digest": digest})
    answer = client.post(path, body)
    if answer["plan_id"] is None:
        emit({**answer, "state": "done"}, json_wanted, lambda _: click.echo("nothing to do"))
        return
    outcome = _follow(client, answer["plan_id"], "apply", timeout, json_wanted)
    emit({**answer, **outcome}, json_wanted, lambda value: click.echo(_told(value)))
    _fail_unless_done(outcome)


@click.command(short_help="Move no data until `rota resume`.")
@api_option
@json_option
def pause(api: Target, json_wanted: bool) -> None:
    """Move no data until `rota resume`: nothing starts, and copies under way are cancelled (what has arrived stays).

    Only keeping the store available goes on: lost hosts are taken out of their chains. Drains and other requests
    are agreed as ever, and wait. `rota apply` carries one plan out all the same.

    \b
    Example:
      rota pause
    """
    answer = agreed(api, "/v1/pause", {})
    emit(answer, json_wanted, lambda _: click.echo("paused: no data is moved until `rota resume`"))


@click.command(short_help="Let the control loop go on by itself.")
@api_option
@json_option
def resume(api: Target, json_wanted: bool) -> None:
    """Let the control loop go on by itself, after `rota pause` or `rota abort`.

    \b
    Example:
      rota resume
    """
    answer = agreed(api, "/v1/resume", {})
    emit(answer, json_wanted, lambda _: click.echo("the control loop goes on"))


@click.command(short_help="Undo the plan that is carried out, then stay paused.")
@timeout_option
@api_option
@json_option
def abort(timeout: float, api: Target, json_wanted: bool) -> None:
    """Undo the plan that is carried out, wait for it, then stay paused.

    Every copy goes back to where it was before the plan, as far as those hosts still live; elsewhere the complete
    copies of now stay. What the plan was for (a drain, a rule) is still asked for: take that back before
    `rota resume`, or the loop makes the plan again.

    \b
    Example:
      rota abort; rota undrain n3; rota resume
    """
    client = ApiClient(api, timeout=AGREED_TIMEOUT)
    answer = client.post("/v1/abort", {})
    outcome = _follow(client, answer["plan_id"], "abort", timeout, json_wanted)
    text = "undone; paused until `rota resume`"
    emit(
        {**answer, **outcome},
        json_wanted,
        lambda value: click.echo(text if value["state"] == "done" else _told(value)),
    )
    _fail_unless_done(outcome)


def _follow(client: ApiClient, plan_id: str, what: str, timeout: float, json_wanted: bool) -> dict[str, Any]:
    """Wait until the plan is no longer open, with progress; what became of it."""
    began = time.monotonic()
    with Progress(what, quiet=json_wanted) as progress:
        while True:
            outcome: dict[str, Any] = client.get(f"/v1/plans/{plan_id}")
            seconds = time.monotonic() - began
            if outcome["state"] != "open":
                return {**outcome, "seconds": seconds}
            if seconds >= timeout:
                raise AgentError(
                    f"plan {plan_id} is still open after {timeout:g} s; it goes on: look at `rota status`"
                )
            progress.share(*share_of(outcome["progress"]))
            time.sleep(POLL_INTERVAL)


def _told(answer: dict[str, Any]) -> str:
    words = f"plan {answer['plan_id']}: {answer['state']} after {answer['seconds']:.1f} s"
    moved = f", {answer['moves']} moves" if "moves" in answer and answer["state"] == "done" else ""
    return words + moved


def _fail_unless_done(outcome: dict[str, Any]) -> None:
    if outcome["state"] != "done":
        raise ReportedFailure(f"plan {outcome['plan_id']} {outcome['state']}: {outcome['error']}")


COMMANDS = (plan, apply_plan, pause, resume, abort)
