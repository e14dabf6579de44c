"""Suspicions, for people: who suspects whom now, and why that is no view change yet.

The alert table, the cut detector's assessment and the tally of votes of one member, as plain values with names in place
of indices, and one sentence on what the next view waits for. It shows what gossip has brought to this member so far,
and no decision depends on it.
Source: Rapid, sections 4.2 and 4.3, whose tallies and votes it shows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from consensus import classic_quorum, fast_quorum
from membership.protocol.context.context import NEVER, Context
from membership.protocol.core.view_instance import ViewInstance
from membership.protocol.cut_detection.alert_table import RemovalReport, ring_numbers
from membership.protocol.cut_detection.cut_detector import Assessment
from membership.protocol.monitoring.monitor import Monitor
from membership.protocol.view.cut import Cut

JOINERS_LISTED = 50
"""Joiners named in one reading; thousands may wait at once."""


@dataclass(frozen=True, slots=True)
class Accuser:
    """An observer that reported a subject, and the rings on which it did."""

    name: str
    rings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A member that was reported."""

    name: str
    reports: int
    """Rings that reported it."""
    tally: int
    """The same, and the rings of observers that are suspected themselves."""
    standing: str
    """``stable`` (in the next cut), ``unstable`` (holds the next cut up), or ``noise`` (does not count)."""
    request: str
    """``leave`` or ``evict`` when it was asked for, else empty: it is found faulty."""
    accusers: tuple[Accuser, ...]
    age: float
    """Seconds since the oldest report."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """A process on its way in, or a member with new metadata."""

    name: str
    reports: int
    standing: str
    """``stable``, ``unstable`` or ``noise``, as of a suspect."""


@dataclass(frozen=True, slots=True)
class CutVotes:
    """Fast votes for one cut. Its content is unknown until it was proposed or pulled here."""

    votes: int
    known: bool
    removes: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    own: bool = False
    """Whether this member proposed it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A subject of this member that does not answer its probes as it should."""

    name: str
    failed: bool
    """Whether this member finds it faulty; if not, there is only some evidence yet."""


@dataclass(frozen=True, slots=True)
class Suspicions:
    """What one member knows of the running view change."""

    epoch: int
    size: int
    rings: int
    high: int
    """Rings that make a suspect stable."""
    low: int
    """Rings below which a suspect is noise."""
    suspects: tuple[Suspect, ...]
    joiners: tuple[Joiner, ...]
    joiners_in_all: int
    votes: tuple[CutVotes, ...]
    fast_quorum: int
    classic_quorum: int
    classic_round: bool
    """Whether a classic round is under way, as far as this member knows."""
    own: tuple[Trouble, ...]
    """What this member's own probes say."""
    reason: str
    """Why there is no new view yet, in a sentence; empty when nothing calls for one."""
    silent: tuple[str, ...] = ()
    """Without a majority: who of those that this member asked does not answer, some of all in a large view."""


def suspicions_of(
    context: Context,
    instance: ViewInstance,
    monitor: Monitor,
    *,
    quorum: bool,
    silent: Iterable[int],
    now: float,
) -> Suspicions:
    """The reading of a member with a view change of its own. `silent`: indices of those that do not answer it."""
    view, settings = context.view, context.settings
    assessment = instance.detector.assess()
    suspects = tuple(
        _suspect(context, instance, report, assessment, now)
        for _, report in sorted(instance.table.removals.items())
    )
    unstable = set(instance.table.unstable_joins) | set(instance.table.contested_joins)
    joins = list(instance.table.joins.items())
    joiners = tuple(
        Joiner(
            report.member.name,
            report.rings.bit_count(),
            "stable"
            if incarnation in instance.table.stable_joins or incarnation in assessment.stable_joins
            else "unstable"
            if incarnation in unstable
            else "noise",
        )
        for incarnation, report in joins[:JOINERS_LISTED]
    )
    votes = tuple(
        _votes(context, instance, value, bitmap)
        for value, bitmap in sorted(instance.change.fast_votes.items(), key=lambda each: -each[1].bit_count())
    )
    reading = Suspicions(
        epoch=view.epoch,
        size=len(view),
        rings=settings.rings,
        high=settings.high_watermark,
        low=settings.low_watermark,
        suspects=suspects,
        joiners=joiners,
        joiners_in_all=len(joins),
        votes=votes,
        fast_quorum=fast_quorum(len(view)),
        classic_quorum=classic_quorum(len(view)),
        classic_round=instance.change.classic_under_way,
        own=_own(monitor),
        reason="",
        silent=() if quorum else tuple(sorted(view.members[index].name for index in silent)),
    )
    return replace(reading, reason=_reason(reading, instance, assessment, quorum, now))


def own_suspicions(context: Context, monitor: Monitor, *, quorum: bool) -> Suspicions:
    """The reading of a member that reports to an ensemble, and knows of its own probes only."""
    view, settings = context.view, context.settings
    own = _own(monitor)
    reason = ""
    if not quorum:
        reason = "no majority of the ensemble is within reach: nothing can be decided"
    elif own:
        reason = "the ensemble decides; what others have reported to it is not known here"
    return Suspicions(
        epoch=view.epoch,
        size=len(view),
        rings=settings.rings,
        high=settings.high_watermark,
        low=settings.low_watermark,
        suspects=(),
        joiners=(),
        joiners_in_all=0,
        votes=(),
        fast_quorum=0,
        classic_quorum=0,
        classic_round=False,
        own=own,
        reason=reason,
    )


def _own(monitor: Monitor) -> tuple[Trouble, ...]:
    troubled = (edge for edge in monitor.subjects if edge.failed or edge.has_evidence())
    return tuple(Trouble(edge.subject.name, edge.failed) for edge in troubled)


def _suspect(
    context: Context, instance: ViewInstance, report: RemovalReport, assessment: Assessment, now: float
) -> Suspect:
    view = context.view
    member = view.members[report.subject]
    if report.subject in assessment.stable_removals or report.subject in assessment.replaced:
        standing = "stable"
    else:
        standing = "unstable" if report.subject in assessment.unstable_removals else "noise"
    return Suspect(
        member.name,
        report.rings.bit_count(),
        instance.detector.tally(report.subject, assessment.suspects),
        standing,
        "leave" if report.leaves else "evict" if report.evictions else "",
        tuple(
            Accuser(view.members[observer].name, tuple(ring_numbers(mask & report.rings)))
            for observer, mask in view.observer_masks(member)
            if mask & report.rings
        ),
        max(0.0, now - min(report.raised.values(), default=now)),
    )


def _votes(context: Context, instance: ViewInstance, value: bytes, bitmap: int) -> CutVotes:
    cut, count = instance.change.proposals.get(value), bitmap.bit_count()
    if cut is None:
        return CutVotes(count, known=False)
    own = instance.change.proposal is not None and instance.change.proposal.hash == value
    return CutVotes(count, True, *_names(context, cut), own=own)


def _names(context: Context, cut: Cut) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    view = context.view

    def known(incarnations: Iterable[bytes]) -> tuple[str, ...]:
        found = (view.index_of_incarnation(incarnation) for incarnation in incarnations)
        return tuple(view.members[index].name for index in found if index is not None)

    return (
        known(removal.incarnation for removal in cut.removals),
        tuple(member.name for member in cut.joins),
        known(update.incarnation for update in cut.updates),
    )


# The sentence.


def _reason(
    reading: Suspicions, instance: ViewInstance, assessment: Assessment, quorum: bool, now: float
) -> str:
    if not quorum:
        return "no majority is within reach: nothing can be decided until one is"
    if instance.decision is not None:
        return "it is decided; the next view is being installed"
    if reading.votes:
        return _waiting_for_votes(reading, instance, now)
    if not reading.suspects and not reading.joiners:
        return ""
    if assessment.held_up:
        return _held_up(reading)
    if assessment.ready:
        return "the cut is clean; this member has promised its vote to a classic round, which decides"
    return _only_noise(reading)


def _waiting_for_votes(reading: Suspicions, instance: ViewInstance, now: float) -> str:
    best = reading.votes[0].votes
    words = f"{best} of {reading.size} members have voted for one cut, and {reading.fast_quorum} equal votes decide it"
    others = len(reading.votes) - 1
    if others:
        words += f"; {others} other {'cut has' if others == 1 else 'cuts have'} votes too"
    if reading.classic_round:
        words += f"; a classic round is under way, which {reading.classic_quorum} members decide"
    elif instance.change.fallback_at != NEVER:
        seconds = max(0.0, instance.change.fallback_at - now)
        words += f"; if they do not come, this member starts a classic round in {seconds:.1f} s"
    return words


def _held_up(reading: Suspicions) -> str:
    suspects = [suspect for suspect in reading.suspects if suspect.standing == "unstable"]
    if suspects:
        tallies = _listed([f"{suspect.name} {suspect.tally}" for suspect in suspects])
        return (
            f"reports are still coming in: {tallies} of the {reading.high} that are needed "
            f"(below {reading.low} would be noise), and one cut shall hold all"
        )
    waiting = sum(joiner.standing == "unstable" for joiner in reading.joiners)
    return f"{waiting or 'some'} joiners are reported by too few observers yet, and one cut shall hold all"


def _only_noise(reading: Suspicions) -> str:
    parts = []
    suspects = [suspect for suspect in reading.suspects if suspect.standing == "noise"]
    alone = [
        suspect.name for suspect in suspects if suspect.reports >= reading.low and len(suspect.accusers) < 2
    ]
    few = [f"{suspect.name} on {suspect.reports}" for suspect in suspects if suspect.reports < reading.low]
    rest = [
        suspect.name for suspect in suspects if suspect.reports >= reading.low and len(suspect.accusers) >= 2
    ]
    if few:
        parts.append(f"{_listed(few)} of {reading.rings} rings reported: noise below {reading.low}")
    if alone:
        parts.append(f"{_listed(alone)} reported by one observer alone, while the others are silent")
    if rest:
        parts.append(f"{_listed(rest)} reported only by members that are suspected themselves")
    if any(joiner.standing == "noise" for joiner in reading.joiners):
        parts.append(f"joiners reported on fewer than {reading.low} rings")
    return "; ".join(parts)


def _listed(words: Sequence[str], most: int = 6) -> str:
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")
