"""Who may be promoted when a primary is lost: only a replica that is known to have the shard's data.

The engine itself does not know: it lets a replica that was just given to a primary, and has not one of its keys, win
the election, and the replicas that have them are emptied.  So samples are taken all the time of every server, and what
a replica says of itself after the loss is held against the last ones of before.

Pure; time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from datastore_adapter.slots.state.server_info import ServerInfo

NOTHING = 1
"""The offset that a replica tells which has thrown away what it had; before the first write it may be the true one."""

MOST_NODES = 4096
"""Of which samples are kept."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one server said of itself."""

    node_id: str
    info: ServerInfo


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica of the lost primary, as it is now."""

    sample: Sample
    host: str
    primary_id: str
    """Whom it follows by its own word; nobody, where it leads."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who may be promoted, in the order given, and why the others may not."""

    fit: tuple[Candidate, ...]
    refused: tuple[str, ...]
    """A sentence each."""


@dataclass(frozen=True, slots=True)
class _Seen:
    info: ServerInfo
    at: float


@dataclass(slots=True)
class Evidence:
    """The last samples of all servers; fed by :meth:`learn`, in order of time."""

    lag_limit: int
    blind_limit: float
    _primaries: dict[str, _Seen] = field(default_factory=dict)
    _linked: dict[str, _Seen] = field(default_factory=dict)
    """Replicas, when their link to a primary was up."""
    _silent_since: dict[str, float] = field(default_factory=dict)
    """When a primary was first asked in vain after its last sample."""

    def learn(self, samples: Iterable[Sample], now: float) -> None:
        """One round: ``samples`` of all that answered; who did not is silent."""
        answered = set()
        for sample in samples:
            answered.add(sample.node_id)
            kept = self._primaries if sample.info.is_primary else self._linked
            before = kept.get(sample.node_id)
            if before is not None and before.at > now:
                continue  # rounds may end in another order than they began
            if sample.info.is_primary or (sample.info.link_up and not sample.info.is_syncing):
                kept.pop(sample.node_id, None)  # the newest last
                kept[sample.node_id] = _Seen(sample.info, now)
        for node_id, seen in self._primaries.items():
            if node_id in answered:
                self._silent_since.pop(node_id, None)
            elif now > seen.at:
                self._silent_since.setdefault(node_id, now)
        for table in (self._primaries, self._linked):
            while len(table) > MOST_NODES:
                gone = next(iter(table))
                del table[gone]
                self._silent_since.pop(gone, None)

    def assess(self, primary_id: str, candidates: Sequence[Candidate], now: float) -> Verdict:
        """Who of the candidates has the data that the primary had."""
        primary = self._primaries.get(primary_id)
        if primary is None:
            return Verdict((), ("what its primary had written is not known here",))
        blind = self._silent_since.get(primary_id, now) - primary.at
        if blind > self.blind_limit:
            return Verdict((), (f"nobody looked at its primary for the last {blind:.0f} s",))
        history = primary.info.replication_id
        same = [c.sample.info.offset for c in candidates if c.sample.info.replication_id == history]
        newest = max([primary.info.offset, *same])
        fit, refused = [], []
        for candidate in candidates:
            reason = self._unfit(candidate, primary_id, primary, newest)
            if reason:
                refused.append(f"{candidate.host} {reason}")
            else:
                fit.append(candidate)
        return Verdict(tuple(fit), tuple(refused))

    def _unfit(self, candidate: Candidate, primary_id: str, primary: _Seen, newest: int) -> str:
        """What speaks against it; nothing: it has the data."""
        info = candidate.sample.info
        linked = self._linked.get(candidate.sample.node_id)
        if info.is_primary or candidate.primary_id != primary_id:
            return "does not follow it"
        if info.is_loading or info.is_syncing:
            return "was fetching the data"
        if info.replication_id != primary.info.replication_id:
            return "has another history than its primary had: it never synchronized with it"
        if linked is None or linked.info.replication_id != info.replication_id:
            return "was never seen in step with it"
        if linked.at < primary.at - self.blind_limit:
            return "had lost it before"
        if linked.info.run_id != info.run_id:
            return "was started again since it was in step"
        if info.offset < linked.info.offset or info.offset <= NOTHING:
            return "has less than it had when it was in step: it began to fetch the data anew"
        if newest - info.offset > self.lag_limit:
            return f"is {newest - info.offset} bytes behind, above the limit of {self.lag_limit}"
        return ""
