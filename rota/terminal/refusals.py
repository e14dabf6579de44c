"""Why an agent refused packets, streams and messages, in words; programs read the counters' own names."""

from __future__ import annotations

from typing import Final

from membership.protocol.context.refusals import Refusal

_OF_BYTES: Final = {
    "not_rota": "not of rota",
    "wrong_version": "of another version of the protocol",
    "foreign_cluster": "of another cluster",
    "unknown_cluster": "of a cluster that is not known here",
    "too_large": "too large",
    "malformed": "malformed",
    "not_encrypted": "not encrypted",
    "encrypted": "encrypted, and this agent has no key",
    "unknown_key": "under a key that is not installed here",
    "removed_key": "under a key that was removed",
    "forged": "forged, or under another key",
    "replayed": "seen before",
    "reflected": "our own, sent back to us",
    "stalled": "that stood still",
    "silent": "that said nothing",
    "no_sender": "that named no sender",
    "flood": "too many at once",
    "overflow": "more than could be taken",
    "crowded": "more than may wait to be sent",
    "slow_peer": "to a member that takes them too slowly",
    "undelivered": "to a member that was not reached",
    "no_memory": "for want of memory",
}
"""What reads on after the number and the kind: ``3 datagrams of another cluster``."""
_OF_MESSAGES: Final = {refusal.name.lower(): refusal.value for refusal in Refusal}


def refusal_in_words(counter: str, count: int) -> str:
    """``counter``: ``KIND_REASON``, as in the status of an agent, which may be of another version."""
    kind, _, reason = counter.partition("_")
    kind = kind if count != 1 else kind.removesuffix("s")
    if kind.startswith("message") and reason in _OF_MESSAGES:
        return f"{count} {kind} ({_OF_MESSAGES[reason]})"
    return f"{count} {kind} {_OF_BYTES.get(reason, '(' + reason.replace('_', ' ') + ')')}"
