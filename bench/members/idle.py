"""What members cost while nothing happens: packets, bytes, and the processor.

Members that joined as any application does (`membership.join`), all in this process, on loopback and without keys,
left alone; what they send within some seconds, and the CPU seconds of the process in that time. CPU seconds of one
run compare with those of another on the same machine, shortly before or after; packets and bytes are the same
anywhere.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from typing import Any, Final

import trio

import membership
from bench.result import Result
from membership.address import Address
from membership.cluster import Cluster
from membership.settings import Settings

HOST: Final = "127.0.0.1"
SETTLING: Final = 15.0
"""Seconds between the last join and the measurement: after a window of probes members rest."""
PATIENCE: Final = 60.0
SOURCE: Final = (
    "memberlist with its LAN defaults, 100 members in one process, two cores: the machine's share, not ours"
)
PACKETS: Final = "1.9"
KILOBYTES: Final = "0.2"
SHARE: Final = "5.7"
"""Per cent of a core for 100 members."""
ENVELOPE: Final = 28
"""Bytes of the IPv4 and UDP headers of a datagram."""


def membership_idle(nodes: int, seconds: float) -> Result:
    """Let ``nodes`` members stand for ``seconds``: first such that never rest, then with the product's defaults."""
    settings = Settings()
    restless = trio.run(_measure, nodes, seconds, Settings(idle_probes=settings.rings))
    figures = trio.run(_measure, nodes, seconds, settings)

    def show(key: str, form: str, factor: float = 1.0) -> str:
        return f"{format(figures[key] * factor, form)} (without rest {format(restless[key] * factor, form)})"

    rows = [
        ("packets sent per second and member", show("packets_per_second", ".2f"), PACKETS),
        ("KB sent per second and member, with headers", show("bytes_per_second", ".2f", 1e-3), KILOBYTES),
        ("per cent of a core, all members", show("core_share", ".1f", 100), SHARE if nodes == 100 else ""),
        ("CPU microseconds per packet", show("cpu_seconds_per_packet", ".0f", 1e6), ""),
        ("view changes meanwhile", show("view_changes", "g"), ""),
    ]
    ok = figures["ok"] and restless["ok"]
    return Result(figures | {"without_rest": restless}, rows, SOURCE, ok=ok)


async def _measure(nodes: int, seconds: float, settings: Settings) -> dict[str, Any]:
    clusters: list[Cluster] = []
    _allow_descriptors(nodes)
    async with trio.open_nursery() as nursery:
        first: Cluster = await nursery.start(_stand, clusters, (), settings)
        with trio.fail_after(PATIENCE):
            for _ in range(nodes - 1):
                nursery.start_soon(_stand, clusters, (first.me.address,), settings)
            while not _together(clusters, nodes):  # noqa: ASYNC110 - the condition spans many members
                await trio.sleep(0.1)
        await trio.sleep(SETTLING)
        epoch = first.view.epoch
        before, cpu, since = _sent(clusters), time.process_time(), trio.current_time()
        await trio.sleep(seconds)
        cpu, watched = time.process_time() - cpu, trio.current_time() - since
        sent = _sent(clusters) - before
        changes = first.view.epoch - epoch
        nursery.cancel_scope.cancel()
    packets = sent["datagrams_sent"]
    size = sent["datagram_bytes_sent"] + ENVELOPE * packets
    return {
        "ok": not changes,
        "nodes": nodes,
        "packets_per_second": round(packets / watched / nodes, 3),
        "bytes_per_second": round(size / watched / nodes, 1),
        "core_share": round(cpu / watched, 4),
        "cpu_seconds_per_packet": cpu / packets,
        "view_changes": changes,
    }


def _together(clusters: list[Cluster], nodes: int) -> bool:
    return len(clusters) == nodes and all(len(cluster.view) == nodes for cluster in clusters)


async def _stand(
    clusters: list[Cluster],
    seeds: tuple[Address, ...],
    settings: Settings,
    task_status: Any = trio.TASK_STATUS_IGNORED,
) -> None:
    async with membership.join(Address(HOST, 0), seeds, settings=settings) as cluster:
        clusters.append(cluster)
        task_status.started(cluster)
        await trio.sleep_forever()


def _sent(clusters: list[Cluster]) -> Counter[str]:
    total: Counter[str] = Counter()
    for cluster in clusters:
        total.update(cluster.transport.counters)
    return total


def _allow_descriptors(nodes: int) -> None:
    """A member has two sockets, and streams come and go beside them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
