"""The life of an agent process: logging, readiness, signals, and an orderly leave."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import trio

from membership import Settings
from membership.transport.file_descriptors import raise_descriptor_limit
from mgmt.solving.libraries import what_is_missing
from rota.agent import logs
from rota.agent.node import Node
from rota.agent.parent_process import parent_ends, tell_parent
from rota.agent.settings import AgentSettings
from rota.errors import AgentError
from rota.http.server import CONNECTIONS, SOCKET_CONNECTIONS

if TYPE_CHECKING:
    from rota.agent.ensemble_node import EnsembleNode

log = logging.getLogger("rota")


def announce(node: Node | EnsembleNode) -> None:
    """Tell the log, and whoever started this process, where it listens."""
    report = {"name": node.name, "listen": str(node.address), "api": str(node.api_address)}
    what = "agent" if isinstance(node, Node) else "ensemble member"
    scheme = "https" if node.has_tls else "http"
    log.info("%s %s listens at %s, HTTP at %s://%s/", what, node.name, node.address, scheme, node.api_address)
    tell_parent(report)


def _ensemble_node(settings: AgentSettings) -> EnsembleNode:
    # Few processes are one; the others need not load it.
    from rota.agent.ensemble_node import EnsembleNode

    return EnsembleNode(settings)


def _reload_level(read_settings: Callable[[], AgentSettings] | None) -> None:
    if read_settings is not None:
        try:
            logs.set_level(read_settings().log_level)
        except AgentError as error:
            log.warning("log_level: it stays as it was: %s", error)


async def run_agent(
    settings: AgentSettings, read_settings: Callable[[], AgentSettings] | None = None
) -> None:
    """Run one agent until SIGTERM or SIGINT; then leave gracefully.  A second signal ends at once.

    SIGQUIT ends it at once without leaving, with status 131, for who starts it again within seconds: then it takes its
    own place in one view change, and nothing moves meanwhile.  SIGHUP has the key file and, with ``read_settings``, the
    tags and the level of the log read again.
    """
    logs.configure(settings.log_format, settings.log_level)
    raise_descriptor_limit(Settings.lan().connections + CONNECTIONS + SOCKET_CONNECTIONS)
    if settings.has_store and settings.manager and (missing := what_is_missing("the controller's part")):
        log.warning("%s; until then nothing is placed while this agent is the controller", missing)
    node = _ensemble_node(settings) if settings.ensemble else Node(settings, read_settings)
    is_restarting = False
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT) as signals:
        async with trio.open_nursery() as nursery:

            async def follow_signals() -> None:
                nonlocal is_restarting
                async for number in signals:
                    if number == signal.SIGQUIT:
                        log.info("SIGQUIT: ending without leaving; start this agent again soon")
                        is_restarting = True
                        nursery.cancel_scope.cancel()
                        return
                    if number == signal.SIGHUP:
                        _reload_level(read_settings)
                        await node.reload()
                        continue
                    if node.leaving:
                        click.echo("rota: second signal, ending at once", err=True)
                        nursery.cancel_scope.cancel()
                    log.info("%s: leaving the cluster", signal.Signals(number).name)
                    node.request_leave()

            async def follow_lifeline() -> None:
                await parent_ends()
                log.warning("whoever started this agent is gone: ending at once")
                nursery.cancel_scope.cancel()

            nursery.start_soon(follow_signals)
            nursery.start_soon(follow_lifeline)
            await node.run(on_listening=announce)
            nursery.cancel_scope.cancel()
    if is_restarting:
        raise SystemExit(128 + signal.SIGQUIT)
