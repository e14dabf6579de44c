"""Everything the log's processes say to each other.

Requests, replies and refusals as plain structs, checked on decoding, in modules by who answers.  Every request gets
exactly one reply.  The tags are the wire format: a number once used stays with its message.  They carry documents as
opaque bytes (`log.layout.document`).
"""

from typing import TypeAlias

from datastore_adapter.log.messages import layout_servers, log_units, refusals, sequencers, status, transfer
from datastore_adapter.log.messages.base import JUNK, Entry, HostIdentity, UnknownRequest
from datastore_adapter.log.messages.fields import (
    RECORD_ID_LENGTH,
    STREAM_NAME_LIMIT,
    TOKENS_LIMIT,
    Address,
    Count,
    Epoch,
    HostName,
    Pointers,
    RecordId,
    SegmentKey,
    StreamName,
)
from datastore_adapter.log.messages.layout_servers import (
    Accept,
    DocumentReply,
    FetchDocument,
    FetchHistory,
    History,
    Install,
    Installed,
    Prepare,
    Promised,
    Rejected,
    Voted,
    ballot_of,
)
from datastore_adapter.log.messages.log_units import (
    BatchWritten,
    Corrupt,
    CountStreams,
    Done,
    Found,
    Join,
    Overwritten,
    Read,
    ReadStreamTails,
    Seal,
    Sealed,
    StreamCount,
    StreamCounts,
    StreamTails,
    Trim,
    Trimmed,
    Trust,
    Unwritten,
    Write,
    WriteBatch,
)
from datastore_adapter.log.messages.refusals import (
    UNKNOWN,
    Misdirected,
    NotAReplica,
    NotReady,
    Refused,
    WrongEpoch,
)
from datastore_adapter.log.messages.sequencers import (
    Addresses,
    AddStreamTails,
    BeginBootstrap,
    FinishBootstrap,
    LastAddresses,
    SealTokens,
    TakeTokens,
    Tokens,
    TokensSealed,
)
from datastore_adapter.log.messages.status import GetStatus, SegmentStatus, StatusReply
from datastore_adapter.log.messages.transfer import (
    Chunk,
    Confirm,
    Ids,
    PullChunk,
    Pulled,
    ReadChunk,
    ReadIds,
    Reclaim,
    Survey,
    SurveyReply,
    WriteChunk,
)

Request: TypeAlias = (
    layout_servers.Requests | log_units.Requests | transfer.Requests | sequencers.Requests | status.Requests
)
Refusal: TypeAlias = refusals.Replies
Reply: TypeAlias = (
    layout_servers.Replies
    | log_units.Replies
    | transfer.Replies
    | sequencers.Replies
    | status.Replies
    | refusals.Replies
)

__all__ = [
    "JUNK",
    "RECORD_ID_LENGTH",
    "STREAM_NAME_LIMIT",
    "TOKENS_LIMIT",
    "UNKNOWN",
    "Accept",
    "AddStreamTails",
    "Address",
    "Addresses",
    "BatchWritten",
    "BeginBootstrap",
    "Chunk",
    "Confirm",
    "Corrupt",
    "Count",
    "CountStreams",
    "DocumentReply",
    "Done",
    "Entry",
    "Epoch",
    "FetchDocument",
    "FetchHistory",
    "FinishBootstrap",
    "Found",
    "GetStatus",
    "History",
    "HostIdentity",
    "HostName",
    "Ids",
    "Install",
    "Installed",
    "Join",
    "LastAddresses",
    "Misdirected",
    "NotAReplica",
    "NotReady",
    "Overwritten",
    "Pointers",
    "Prepare",
    "Promised",
    "PullChunk",
    "Pulled",
    "Read",
    "ReadChunk",
    "ReadIds",
    "ReadStreamTails",
    "Reclaim",
    "RecordId",
    "Refusal",
    "Refused",
    "Rejected",
    "Reply",
    "Request",
    "Seal",
    "SealTokens",
    "Sealed",
    "SegmentKey",
    "SegmentStatus",
    "StatusReply",
    "StreamCount",
    "StreamCounts",
    "StreamName",
    "StreamTails",
    "Survey",
    "SurveyReply",
    "TakeTokens",
    "Tokens",
    "TokensSealed",
    "Trim",
    "Trimmed",
    "Trust",
    "UnknownRequest",
    "Unwritten",
    "Voted",
    "Write",
    "WriteBatch",
    "WriteChunk",
    "WrongEpoch",
    "ballot_of",
]
