"""The document that ``kafka-reassign-partitions --reassignment-json-file`` reads, version 1.

The format: the tool's own help, and "Basic Kafka Operations" in Kafka's documentation.  A segment is a partition
and is called ``TOPIC-PARTITION``, as Kafka calls it; a host is the broker whose id its tag ``broker`` gives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from datastore_adapter.exports.errors import HostTagError
from datastore_adapter.exports.placed import PlacedHost, PlacedSegment

BROKER = "broker"
"""The tag with a host's broker id (``node.id``)."""
LOG_DIR = "log_dir"
"""The tag, which need not be, with the directory of the broker (one of its ``log.dirs``) that copies go to."""
ANY = "any"
"""What the format says for a directory that the broker may choose."""
PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
"""Names of topics as Kafka restricts them."""
LARGEST = 2**31 - 1
"""Ids of brokers and numbers of partitions are 32 bits wide, with a sign."""


def reassignment(segments: Sequence[PlacedSegment]) -> dict[str, Any]:
    """One document for all segments, by topic and partition; the preferred leader is the first replica.

    ``log_dirs`` is there when a host has the tag ``log_dir``.  Raises
    :class:`~datastore_adapter.exports.errors.ExportError`.
    """
    brokers = _brokers(segments)
    with_directories = any(LOG_DIR in host.tags for segment in segments for host in segment.hosts)
    partitions: dict[tuple[str, int], dict[str, Any]] = {}
    for segment in segments:
        topic, partition = _partition(segment)
        if (topic, partition) in partitions:
            raise segment.refused(f"is partition {partition} of topic {topic!r}, and so is another")
        partitions[topic, partition] = {
            "topic": topic,
            "partition": partition,
            "replicas": [brokers[host.name] for host in segment.hosts],
        }
        if with_directories:
            partitions[topic, partition]["log_dirs"] = [_directory(host) for host in segment.hosts]
    return {"version": 1, "partitions": [partitions[key] for key in sorted(partitions)]}


def _partition(segment: PlacedSegment) -> tuple[str, int]:
    match = PARTITION.fullmatch(segment.name)
    if match is None or match["topic"] in (".", "..") or int(match["partition"]) > LARGEST:
        raise segment.refused(
            "names no partition of Kafka's, which are called TOPIC-PARTITION, as in orders-0"
        )
    return match["topic"], int(match["partition"])


def _brokers(segments: Sequence[PlacedSegment]) -> dict[str, int]:
    """By name of the host; no two have the same."""
    brokers: dict[str, int] = {}
    owners: dict[int, str] = {}
    for host in (host for segment in segments for host in segment.hosts):
        if host.name in brokers:
            continue
        text = host.tag(BROKER, "the id of its Kafka broker")
        if re.fullmatch(r"[0-9]{1,10}", text) is None or int(text) > LARGEST:
            raise HostTagError(
                f"host {host.name!r}: the tag {BROKER!r} is {text!r}; give the id of its broker, as in 3"
            )
        broker = int(text)
        if broker in owners:
            raise HostTagError(
                f"hosts {owners[broker]!r} and {host.name!r} both have broker id {broker}; tag one anew"
            )
        brokers[host.name], owners[broker] = broker, host.name
    return brokers


def _directory(host: PlacedHost) -> str:
    if LOG_DIR not in host.tags:
        return ANY
    directory = host.tag(LOG_DIR, "a directory of its broker's")
    if not directory.startswith("/"):
        raise HostTagError(
            f"host {host.name!r}: the tag {LOG_DIR!r} is {directory!r}; give the absolute path of one of its log.dirs"
        )
    return directory
