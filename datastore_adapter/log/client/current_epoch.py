"""Is this layout still the one in force?  Asked by who must not be told the past.

A question to a majority of the layout servers.  A sequencer that was deposed while it was cut off answers whoever
still knows its epoch; but the next epoch was chosen by a majority of the same layout servers, one of which is among
any majority that is asked afterwards, and has voted.  A promise says nothing against it: a change that was begun and
came to nothing stops no reader.  Appends do not need it, since log units refuse a sealed epoch, nor does reading a
known address, which never changes.
Source: L. Lamport, *Paxos Made Simple*, 2001 (quorums intersect); CORFU (NSDI 2012) section 2.3 (epochs).
"""

from __future__ import annotations

from collections.abc import Mapping

from consensus import classic_quorum
from datastore_adapter.log.client.replication import Replication
from datastore_adapter.log.errors import ReplicaUnavailableError
from datastore_adapter.log.layout.document import EpochDocument
from datastore_adapter.log.messages import DocumentReply, FetchDocument, Reply
from datastore_adapter.log.runtime.runtime import Runtime, call_all
from datastore_adapter.log.settings import LogSettings


async def ensure_current(runtime: Runtime, settings: LogSettings, replication: Replication) -> None:
    """Return if no later epoch was decided before the call; else, or if that is open, ReplicaUnavailableError."""
    document = replication.document
    servers = document.layout.layout_servers
    quorum = classic_quorum(len(servers))

    def confirmations(replies: Mapping[str, Reply]) -> int:
        return sum(confirms(document, host, reply) for host, reply in replies.items())

    replies = await call_all(
        runtime,
        {host: document.peer(host) for host in servers},
        FetchDocument(document.epoch),
        settings.call_timeout,
        lambda replies: confirmations(replies) >= quorum,
    )
    if confirmations(replies) < quorum:
        raise ReplicaUnavailableError(
            f"epoch {document.epoch} is not known to be in force any more: "
            f"fewer than {quorum} of the layout servers {', '.join(servers)} say so"
        )


def confirms(document: EpochDocument, host: str, reply: Reply) -> bool:
    """Whether a layout server says, from the disk it votes by, that it has voted for nothing after `document`."""
    if not isinstance(reply, DocumentReply) or (reply.sealed and not reply.unvoted):
        return False
    return 0 <= reply.epoch <= document.epoch and reply.disk == document.disks[host]
