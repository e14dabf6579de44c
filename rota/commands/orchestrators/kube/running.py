"""``rota kube schedule`` as a process: signals, the HTTP interface, and the scheduler between them."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass
from pathlib import Path

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from membership import Address, AddressError
from orchestrators.kubernetes.api.client import ApiClient
from orchestrators.kubernetes.api.credentials import Credentials
from orchestrators.kubernetes.metrics import CONTENT_TYPE
from orchestrators.kubernetes.placement import Key
from orchestrators.kubernetes.scheduling.scheduler import SchedulingSettings
from orchestrators.kubernetes.service import Service, ServiceSettings
from rota.commands.orchestrators.kube.kube import placer_of
from rota.errors import UsageProblem
from rota.http.server import serve

log = logging.getLogger("rota.kubernetes")


@dataclass(frozen=True, slots=True)
class Options:
    """Of the command line."""

    kubeconfig: Path | None
    context: str | None
    scheduler_name: str
    folder: Path | None
    config_map: Key | None
    budget: float
    lease: Key | None
    http: str | None


async def run(options: Options) -> None:
    """Schedule until SIGTERM or SIGINT."""
    placer = await trio.to_thread.run_sync(placer_of, options.scheduler_name, options.folder)
    settings = ServiceSettings(
        SchedulingSettings(options.scheduler_name),
        budget=options.budget,
        lease=options.lease,
        config_map=options.config_map,
    )
    access = Credentials(options.kubeconfig, options.context).access
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with ApiClient(access) as client, trio.open_nursery() as nursery:
            service = Service(client, placer, settings)
            if options.http is not None:
                at = await nursery.start(serve, application(service), _address(options.http))
                log.info("metrics at http://%s/metrics", at)
            nursery.start_soon(service.run)
            log.info("scheduling pods with schedulerName %s", options.scheduler_name)
            async for _ in signals:
                nursery.cancel_scope.cancel()
                return


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except AddressError as error:
        raise UsageProblem(f"--http {text!r}: {error}") from error


def application(service: Service) -> Starlette:
    """Metrics, and whether it lives and knows its cluster."""

    async def metrics(_: Request) -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        ready = service.scheduler.is_ready
        return PlainTextResponse("ok\n" if ready else "listing\n", 200 if ready else 503)

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ]
    )
