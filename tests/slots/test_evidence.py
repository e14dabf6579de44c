"""Who may be promoted, in any order of events: replication as the servers do it, in miniature, and the assess of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from datastore_adapter.slots.state.evidence import Candidate, Evidence, Sample, Verdict
from datastore_adapter.slots.state.server_info import ServerInfo
from datastore_adapter.slots.state.shards import Record
from datastore_adapter.slots.steps.promotion import in_order

LAG = 3
BLIND = 5.0
PRIMARY = "p"
INFO = ServerInfo(
    is_cluster=True,
    software="redis",
    version=(7, 0),
    run_id="",
    is_primary=False,
    replication_id="",
    offset=0,
    link_up=False,
    is_syncing=False,
    sync_left=0,
    is_loading=False,
    memory=0,
    operations=0.0,
    keys=0,
)


@dataclass
class Process:
    """One server: what it tells of itself, and what it really has."""

    name: str
    is_primary: bool = False
    follows: str = ""
    history: str = ""
    """Replication id that it tells; that of the data only once a synchronization has ended."""
    offset: int = 1
    data: tuple[str, int] = ("", 0)
    """Of whose writes it has how many."""
    link_up: bool = False
    syncing: bool = False
    run: int = 0

    @property
    def sample(self) -> Sample:
        return Sample(
            self.name,
            replace(
                INFO,
                run_id=f"{self.name}/{self.run}",
                is_primary=self.is_primary,
                replication_id=self.history,
                offset=self.offset,
                link_up=self.link_up,
                is_syncing=self.syncing,
            ),
        )


@dataclass
class World:
    """A shard of primary ``p`` with three replicas, another one of ``q`` beside it, and one assess."""

    chance: random.Random
    now: float = 0.0
    servers: dict[str, Process] = field(default_factory=dict)
    dead: bool = False
    seen: int = 0
    """How many writes the primary had when it was sampled last."""
    seen_at: float = 0.0
    silent_at: float | None = None
    untouched: set[str] = field(default_factory=set)
    """Replicas to which nothing has happened since they were sampled last together with the primary, in step."""

    def __post_init__(self) -> None:
        self.evidence = Evidence(LAG, BLIND)
        for name in "pq":
            # What it holds may come from its disk: the offset counts only what was written since.
            offset = self.chance.choice([1, 15])
            self.servers[name] = Process(name, True, "", f"history of {name}", offset, (name, 100))
        for name, primary in (("a", "p"), ("b", "p"), ("c", "q"), ("d", "q")):
            leader = self.servers[primary]
            self.servers[name] = Process(
                name, False, primary, leader.history, leader.offset, leader.data, link_up=True
            )

    @property
    def blind(self) -> bool:
        """Nobody has looked for long when it was lost."""
        return (self.now if self.silent_at is None else self.silent_at) - self.seen_at > BLIND

    @property
    def replicas(self) -> list[Process]:
        return [server for server in self.servers.values() if not server.is_primary]

    def happen(self) -> None:
        """One event, of those that may be."""
        self.now += self.chance.uniform(0.0, 0.6)
        replica = self.chance.choice(self.replicas)
        often = [self.write, self.sample]
        rarely = [self.drop, self.resume, self.begin, self.finish, self.fail, self.reparent, self.restart]
        event = self.chance.choice([*often, *often, *rarely])
        if event not in (self.write, self.sample):
            self.untouched.discard(replica.name)
        event(replica)

    def _reachable(self, replica: Process) -> bool:
        return not (self.dead and replica.follows == PRIMARY)

    def write(self, _: Process) -> None:
        primary = self.servers[self.chance.choice("pq")]
        if primary.name == PRIMARY and self.dead:
            return
        primary.offset += 1
        primary.data = (primary.name, primary.data[1] + 1)
        for replica in self.replicas:
            if replica.follows == primary.name and replica.link_up and self.chance.random() < 0.8:
                replica.offset, replica.data = primary.offset, primary.data

    def sample(self, _: Process) -> None:
        answering = [s for s in self.servers.values() if not (self.dead and s.name == PRIMARY)]
        self.evidence.learn([server.sample for server in answering], self.now)
        if self.dead:
            self.silent_at = self.now if self.silent_at is None else self.silent_at
        else:
            self.seen_at = self.now
            self.seen = self.servers[PRIMARY].data[1]
            self.untouched = {r.name for r in self.replicas if r.follows == PRIMARY and r.link_up}

    def drop(self, replica: Process) -> None:
        """The link ends; what it had it keeps."""
        replica.link_up = False

    def resume(self, replica: Process) -> None:
        """By partial synchronization, which only the same history allows."""
        primary = self.servers[replica.follows]
        if self._reachable(replica) and replica.history == primary.history and replica.offset > 1:
            replica.link_up, replica.offset, replica.data = True, primary.offset, primary.data

    def begin(self, replica: Process) -> None:
        """It fetches everything: what it had is gone, what it tells of its history is not yet another."""
        if self._reachable(replica):
            replica.link_up, replica.syncing, replica.offset, replica.data = False, True, 1, ("", 0)

    def finish(self, replica: Process) -> None:
        if replica.syncing and self._reachable(replica):
            primary = self.servers[replica.follows]
            replica.syncing, replica.link_up = False, True
            replica.history, replica.offset, replica.data = primary.history, primary.offset, primary.data

    def fail(self, replica: Process) -> None:
        replica.syncing = False

    def reparent(self, replica: Process) -> None:
        """CLUSTER REPLICATE; nothing is fetched yet."""
        replica.follows = self.chance.choice("pq")
        replica.link_up = replica.syncing = False

    def restart(self, replica: Process) -> None:
        replica.run += 1
        replica.link_up = replica.syncing = False
        if self.chance.random() < 0.7:  # without what it had
            replica.offset, replica.data = 1, ("", 0)
            replica.history = self.chance.choice([replica.history, f"own {replica.name} {replica.run}"])

    def assess(self) -> Verdict:
        candidates = [
            Candidate(replica.sample, replica.name, replica.follows)
            for replica in self.replicas
            if replica.follows == PRIMARY
        ]
        return self.evidence.assess(PRIMARY, candidates, self.now)


def lost_in(seed: int) -> tuple[World, Verdict]:
    """So many events, the primary dies, and so many more."""
    world = World(random.Random(seed))
    world.sample(world.servers["a"])
    for _ in range(world.chance.randrange(40)):
        world.happen()
    world.dead = True
    for replica in world.replicas:
        if replica.follows == PRIMARY:
            replica.link_up = replica.syncing = False
    for _ in range(world.chance.randrange(12)):
        world.happen()
    return world, world.assess()


@pytest.mark.parametrize("first", range(0, 3000, 1000))
def test_nobody_is_promoted_who_lacks_what_the_primary_was_seen_to_have(first: int) -> None:
    promoted = refused = 0
    for seed in range(first, first + 1000):
        world, verdict = lost_in(seed)
        for candidate in verdict.fit:
            name, writes = world.servers[candidate.host].data
            assert name == PRIMARY, f"seed {seed}: {candidate.host} has the data of {name or 'nobody'}"
            assert writes >= world.seen - LAG, (
                f"seed {seed}: {candidate.host} has {writes} of {world.seen} writes"
            )
        promoted += bool(verdict.fit)
        refused += bool(verdict.refused)
    assert promoted > 250, "it is no assess that refuses everybody"
    assert refused > 500


def test_a_replica_in_step_at_the_last_sample_may_always_be_promoted() -> None:
    found = 0
    for seed in range(2000):
        world, verdict = lost_in(seed)
        offsets = [server.offset for server in world.servers.values() if server.history == "history of p"]
        for name in world.untouched:
            if not world.blind and 1 < world.servers[name].offset >= max(offsets) - LAG:
                found += 1
                assert name in {c.host for c in verdict.fit}, f"seed {seed}: {verdict.refused}"
    assert found > 300


def test_what_is_known_is_not_enough_when_nobody_has_looked_for_long() -> None:
    world = World(random.Random(0))
    replica = Candidate(world.servers["a"].sample, "a", PRIMARY)
    assert not world.evidence.assess(PRIMARY, [replica], 0.0).fit, "it was never sampled"
    world.sample(world.servers["a"])
    assert world.evidence.assess(PRIMARY, [replica], BLIND - 0.1).fit
    assert not world.evidence.assess(PRIMARY, [replica], BLIND + 0.1).fit
    world.dead, world.now = True, BLIND - 0.1
    world.sample(world.servers["a"])  # asked in vain: from then on it is known to be lost
    assert world.evidence.assess(PRIMARY, [replica], 100.0).fit


def test_of_those_that_may_be_promoted_the_one_with_most_writes_comes_first() -> None:
    """`WAIT 1` may have answered for what only that one has; the policies decide between equals."""

    def candidate(host: str, offset: int) -> Candidate:
        return Candidate(Sample(host, replace(INFO, offset=offset)), host, PRIMARY)

    record = Record(chains={"s00": ("n0", "n1", "n2", "n3")}, drains=frozenset({"n1"}))
    fit = [candidate("n1", 7), candidate("n2", 7), candidate("n3", 8)]
    assert [each.host for each in in_order(record, "s00", fit)] == ["n3", "n2", "n1"]
    assert [each.host for each in in_order(record, "s00", fit, prefer="n1")] == ["n3", "n1", "n2"]
