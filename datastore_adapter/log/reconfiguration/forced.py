"""A new chain of epoch documents when a majority of the layout servers is lost for good, by an operator's word.

The hosts that are left tell the latest document they know and the latest value they have voted for; from that a
document is made that names layout servers among them, at an epoch that the old chain cannot reach, and all of them
keep it.  Everything else goes on from there by itself: the next change seals the log units, which refuse the old
chain's writers, and hosts of the old chain that come back take the higher epoch.
This is not agreement.  The lost majority may have decided documents that nobody here knows of, and if it is only
cut off it can go on by itself until it meets this one.  No program can know which is the case; so it is done only
when an operator says so, and only by a host in whose view that majority is missing.
Source: L. Lamport, *Paxos Made Simple* (a value that may have been chosen is adopted: the highest vote); the epochs as
in `membership`'s recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from consensus import Ballot, classic_quorum
from datastore_adapter.interface import Recovery, layout_servers_wanted
from datastore_adapter.log.errors import LayoutError, LayoutUnavailableError, ReplicaUnavailableError
from datastore_adapter.log.layout.chain import LayoutChain
from datastore_adapter.log.layout.document import EpochDocument, decode_document, encode_document
from datastore_adapter.log.layout.host_status import sound
from datastore_adapter.log.messages import (
    DocumentReply,
    Done,
    FetchDocument,
    HostIdentity,
    Install,
    Installed,
    Prepare,
    Promised,
    Rejected,
    Reply,
    Trust,
)
from datastore_adapter.log.reconfiguration.activation import status_of
from datastore_adapter.log.reconfiguration.reconfiguration import Authority
from datastore_adapter.log.runtime.runtime import Peer, Runtime, call_all, hosts_at
from datastore_adapter.log.settings import LogSettings

EPOCHS: Final = 1_000_000_000
"""A forced chain begins at the next multiple of this."""
ATTEMPTS: Final = 5
"""Ballots that are tried, each above those that somebody else has begun meanwhile."""


class ForcedLayout:
    """One attempt, with the hosts of the view: name -> ``host:port``; each of them has to answer."""

    def __init__(
        self, runtime: Runtime, settings: LogSettings, chain: LayoutChain, view: Mapping[str, str]
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._chain = chain
        self._view = dict(view)

    async def look(self) -> Recovery:
        """What the new chain would go on from; raises as `run` does, and changes nothing."""
        latest = await self._latest()
        return Recovery(latest.epoch, await self._risks(latest))

    async def _risks(self, latest: EpochDocument) -> tuple[str, ...]:
        """What may be lost, in words."""
        replies = await self._all(FetchDocument())
        servers = latest.layout.layout_servers
        lost = [host for host in servers if not _votes(latest, host, replies.get(host))]
        risks = [
            f"{', '.join(lost)}: away, or back without the disk that voted on layouts; what only they decided or hold "
            f"since epoch {latest.epoch} is lost"
        ]
        doubtful = await self._doubtful(latest)
        for host in sorted(set(doubtful.values())):
            keys = ", ".join(key for key, holder in doubtful.items() if holder == host)
            risks.append(
                f"segments {keys}: all that is left is on {host}, whose disk was damaged or put back from a copy; what "
                "that lacks is lost"
            )
        return tuple(risks)

    async def _doubtful(self, latest: EpochDocument) -> dict[str, str]:
        """The segments of whose open chain nobody is left with a sound copy, and who has most of what is in doubt."""
        statuses = await status_of(self._runtime, self._settings, self._view)
        held = {
            (one.key, host) for host, status in sound(latest, statuses).items() for one in status.segments
        }
        found: dict[str, str] = {}
        for segment in latest.layout.segments:
            chain = segment.open_extent.chain
            if any((segment.key, host) in held for host in chain):
                continue
            left = [
                (one.tail, one.records, host)
                for host in chain
                if host in statuses
                for one in statuses[host].doubtful
                if one.key == segment.key
            ]
            if left:
                found[segment.key] = max(left)[2]
        return found

    async def _trust(self, doubtful: Mapping[str, str], disks: Mapping[str, bytes]) -> None:
        for host in sorted(set(doubtful.values())):
            keys = tuple(key for key, holder in doubtful.items() if holder == host)
            peer = Peer(self._view[host], HostIdentity(host, disks.get(host, b"")))
            reply = await self._runtime.call(peer, Trust(keys), self._settings.call_timeout)
            if not isinstance(reply, Done):
                raise ReplicaUnavailableError(
                    f"{host} did not take back its segments ({reply}); run it again"
                )

    async def run(self, authority: Authority) -> Recovery:
        """Begin the new chain; its first document's epoch.

        Running it again after a failure in the middle is right.  Raises LayoutError when the old chain can go on by
        itself, ReplicaUnavailableError when a host of the view does not answer.
        """
        known = await self._latest()
        risks = await self._risks(known)
        latest = await self._voted(known)
        doubtful = await self._doubtful(latest)
        replies = await self._all(FetchDocument())
        disks = {host: reply.disk for host, reply in replies.items() if isinstance(reply, DocumentReply)}
        document = self._document(latest, authority, disks)
        await self._trust(doubtful, disks)
        await self._keep(document)
        self._chain.learn(document)
        return Recovery(document.epoch, risks)

    async def _latest(self) -> EpochDocument:
        """The document that the new chain would go on from."""
        try:
            current = (await self._chain.fetch()).document
        except LayoutUnavailableError:
            pass
        else:
            names = ", ".join(current.layout.layout_servers)
            raise LayoutError(f"a majority of the layout servers {names} answers: nothing is to be recovered")
        replies = await self._all(FetchDocument())
        known = [
            decode_document(reply.document)
            for reply in replies.values()
            if isinstance(reply, DocumentReply) and reply.document is not None
        ]
        if not known:
            raise LayoutError("no host of the view knows a layout: there is nothing to go on from")
        latest = max(known, key=lambda document: document.epoch)
        servers = latest.layout.layout_servers
        there = [host for host in servers if _votes(latest, host, replies.get(host))]
        if len(there) >= classic_quorum(len(servers)):
            raise LayoutError(
                f"{', '.join(there)} are a majority of the layout servers {', '.join(servers)}, and in the view: "
                "wait until they answer, or evict those that never will"
            )
        return latest

    async def _voted(self, latest: EpochDocument) -> EpochDocument:
        """The document that those left have voted for last, which may have been decided; else `latest`."""
        install = Install(encode_document(latest))
        await self._all(install)  # a server that is behind would not take part
        answers = await self._all(FetchDocument())
        servers = {
            host: latest.peer(host, self._view[host])
            for host in latest.layout.layout_servers
            if _votes(latest, host, answers.get(host))
        }
        ballot = Ballot.FAST.successor(self._runtime.random.getrandbits(32))
        for _ in range(ATTEMPTS):
            request = Prepare(latest.epoch, ballot.round, ballot.member)
            replies = await call_all(self._runtime, servers, request, self._settings.call_timeout)
            promises = [reply for reply in replies.values() if isinstance(reply, Promised)]
            if len(promises) == len(servers):
                votes = [
                    (Ballot(reply.accepted_round, reply.accepted_member), reply.accepted)
                    for reply in promises
                    if reply.accepted is not None
                ]
                return decode_document(max(votes)[1]) if votes else latest
            begun = [Ballot(r.round, r.member) for r in replies.values() if isinstance(r, Rejected)]
            ballot = max([ballot, *begun]).successor(ballot.member)
        raise ReplicaUnavailableError(
            f"the layout servers {', '.join(sorted(servers))} do not all answer; retry, or evict them"
        )

    def _document(
        self, latest: EpochDocument, authority: Authority, disks: Mapping[str, bytes]
    ) -> EpochDocument:
        before = latest.layout.layout_servers
        there = [host for host in before if host in self._view]
        spare = sorted(set(self._view).difference(there))
        wanted = layout_servers_wanted(len(self._view))
        layout = replace(latest.layout, layout_servers=tuple([*there, *spare][:wanted]))
        known = {**latest.hosts, **self._view}
        # Whoever is there with another disk has put in doubt what stands on it when it was told `latest`.
        known_disks = {**latest.disks, **disks}
        document = EpochDocument(
            epoch=(latest.epoch // EPOCHS + 1) * EPOCHS,
            cluster_id=latest.cluster_id,
            layout=layout,
            hosts={host: known[host] for host in layout.hosts()},
            disks={host: known_disks[host] for host in layout.holders()},
            intent=latest.intent,
            view_epoch=max(latest.view_epoch, authority.view_epoch),
            plan_id=authority.plan_id,
            cause=authority.cause,
        )
        return decode_document(encode_document(document))

    async def _keep(self, document: EpochDocument) -> None:
        replies = await self._all(Install(encode_document(document)))
        refused = sorted(
            host
            for host, reply in replies.items()
            if not isinstance(reply, Installed) or reply.disk != document.disks.get(host, reply.disk)
        )
        if refused:
            raise ReplicaUnavailableError(f"{', '.join(refused)} did not take the new layout; run it again")

    async def _all(self, request: FetchDocument | Install) -> dict[str, Reply]:
        replies = await call_all(self._runtime, hosts_at(self._view), request, self._settings.call_timeout)
        silent = sorted(set(self._view) - replies.keys())
        if silent:
            raise ReplicaUnavailableError(f"{', '.join(silent)} did not answer; retry, or evict them")
        return replies


def _votes(document: EpochDocument, host: str, reply: Reply | None) -> bool:
    """Whether this layout server is there, with the disk it has voted by."""
    return isinstance(reply, DocumentReply) and reply.disk == document.disks[host]
