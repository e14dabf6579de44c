"""Refusals: the reasons for which the core ignores a message, each with a stable name to count it under.

The value is the sentence for people (logs, `Dropped` events). The name in lower case is the counter's (`rota status`,
`Cluster.statistics()`). Neither depends on what the packet said. Reasons that concern bytes rather than messages are
the transport's (`membership.wire.frames.DropReason`).
"""

from enum import StrEnum

from membership.address import Address
from membership.protocol.view.member import Member

_PREFIX = "dropped: "


class Refusal(StrEnum):
    """Why a message was refused by the core."""

    # Who speaks.
    SENDER_NOT_IN_VIEW = "a message whose sender is not in the view"
    SENDER_ELSEWHERE = "a message of a member from another address than its own"
    OTHER_HISTORY = "a message from another history of this cluster"
    LEFT_BY_FOUNDING = "a configuration from before a founding that counts on this process"
    BEFORE_FOUNDING = "a message from before a founding that is not in force"

    # What it may say.
    RINGS_UNKNOWN = "alert about rings that do not exist"
    SUBJECT_UNKNOWN = "alert about a subject outside the view"
    JOIN_WITHOUT_RECORD = "join alert without a record"
    JOIN_OF_MEMBER = "join alert about a member"
    UPDATE_WITHOUT_RECORD = "update alert without the record of a member"
    REMOVAL_WITH_RECORD = "removal alert with a record"
    RINGS_OF_OTHERS = "reports on rings whose observers have not signed them"
    PROOF_FALSE = "a signature under a report that does not hold"
    LEAVE_NOT_OBSERVED = "a leave that asks somebody else's observer"
    EVICTION_NOT_OBSERVED = "an eviction that asks somebody else's observer"
    METADATA_OF_OTHERS = "new metadata for somebody else, or beyond their bound"
    METADATA_NOT_OBSERVED = "new metadata that ask somebody else's observer"
    VOTES_OF_STRANGERS = "votes of members outside the view"
    VOTE_NOT_CAST = "a vote of this member that it did not cast"
    BALLOT_OF_OTHERS = "a classic round under a ballot of somebody else"
    PROMISE_CONTRADICTORY = "a promise that contradicts itself"

    # In the centralised mode.
    REPORT_OF_REQUESTS = "a report of somebody else's join or leave"
    REPORT_NOT_OBSERVED = "a report on rings of another observer"
    GREETING_OF_STRANGER = "a greeting of a process that is not of this ensemble, or has lost its state"

    # Joining and leaving.
    JOIN_NOT_OBSERVED = "a join that asks somebody else's observer"
    JOIN_OF_EARLIER_VIEW = "a join that asks a founder about another view"
    JOINS_TOO_MANY = "a join beyond the bound of joins kept"
    ANSWER_NOT_OURS = "an answer to another joiner"
    ANSWER_FOREIGN = "an answer from another cluster"
    EVICTION_NOT_OURS = "an eviction notice for somebody else or an old one"
    EVICTION_BY_STRANGER = "an eviction notice from a stranger"
    EVICTION_FOREIGN = "an eviction notice from another recovery of this cluster"

    # Probes on behalf of others.
    PROBE_OF_NOBODY = "a request to probe nobody, or this member itself"
    UNANSWERED_NOT_OBSERVED = "a word about the probes of a member that is not observed from here"
    HELP_ABOUT_NOBODY = "an answer of a helper about nobody"

    # What was decided.
    CUT_NOT_ASKED = "a cut that nobody asked for"
    CUT_UNFIT = "a decided cut that does not fit"
    CONFIGURATION_WITHOUT_US = "a configuration without this process"
    CONFIGURATION_FOREIGN = "a configuration of another cluster"
    CONFIGURATION_OF_RECOVERY = "a configuration from another recovery of this cluster"
    CONFIGURATION_UNREADABLE = "a configuration that cannot be read"

    OTHER = "for a reason that is not in the list"


_BY_SENTENCE = {refusal.value: refusal for refusal in Refusal}


def refusal_of(sentence: str) -> Refusal:
    """The refusal with this sentence."""
    return _BY_SENTENCE.get(sentence, Refusal.OTHER)


def elsewhere(member: Member, claimed: Address) -> str:
    """What is odd about a message under a member's incarnation that names `claimed` as its sender's address."""
    return (
        f"{member.name} advertises {member.address}, the packet says {claimed}. Each process writes the address it "
        "advertises into its packets, whatever path they take, so another process speaks in its name: find it, and "
        "change the cluster's key, or begin to use one"
    )


def taken(joiner: Member, holder: Member) -> str:
    """Why a joiner that claims what this member has is denied, and what to do."""
    if joiner.name != holder.name and joiner.address != holder.address:
        return f"the incarnation of {joiner} begins as that of {holder}, a member: start again with another"
    what = "name" if joiner.name == holder.name else "address"
    return (
        f"the {what} of {joiner} is in use by {holder}, a member that answers: "
        f"stop that process or choose another {what}"
    )


def counter_of(refusal: Refusal) -> str:
    """The name under which the core counts it."""
    return _PREFIX + refusal.value


def public_name(counter: str) -> str:
    """The name of a counter of the core as shown outside: `messages_dropped_` and the refusal's name."""
    if counter.startswith(_PREFIX):
        return f"messages_dropped_{refusal_of(counter.removeprefix(_PREFIX)).name.lower()}"
    return counter.replace(" ", "_")
