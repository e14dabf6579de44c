"""What the adapter for Valkey and Redis Cluster can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """How to be let in by the servers."""

    user: str = ""
    """Name of the ACL user; empty: the default user."""
    password: str = ""
    """Empty: none is sent."""
    is_tls: bool = False
    """Speak TLS with the servers; on when any of the following is set."""
    ca_file: Path | None = None
    """Certificates of the authorities that are believed; None: those of the system."""
    certificate_file: Path | None = None
    """Ours, where the servers ask for one."""
    key_file: Path | None = None
    """The key of that."""

    @property
    def uses_tls(self) -> bool:
        return self.is_tls or any((self.ca_file, self.certificate_file, self.key_file))


@dataclass(frozen=True, slots=True)
class SlotsSettings:
    """Times are seconds."""

    call_timeout: float = 1.0
    """How long one answer is waited for.  Lower: a server that hangs costs less; higher: a busy one is not given up.
    Commands that move keys have ``move_timeout``."""
    move_timeout: float = 30.0
    """The same for MIGRATE.  The server itself stops after this, so a key that takes longer does not move."""
    sample_interval: float = 0.5
    """How often the evidence for promotions is taken.  What a primary has written since the last sample is not known of
    it; lower: less of that, and more questions (one INFO of each server, by each agent)."""
    blind_limit: float = 10.0
    """How long nobody may have looked at a primary, up to when it was lost, for its last sample to count.  Lower:
    stricter; shorter than a few ``sample_interval`` plus ``call_timeout``, and a busy machine makes fail-overs a
    question."""
    fence_age: float = 0.05
    """For how long a fence that was found to hold is believed before the next command is sent.  Lower: a controller
    that was deposed ends sooner; every command then costs a question to the majority."""
    lag_limit: int = 1 << 20
    """Bytes of writes by which a replica may be behind the last sample of its primary and still be promoted."""
    sync_lag: int = 64 << 10
    """Bytes by which a replica may be behind its primary and still count as complete."""
    failover_timeout: float = 2.0
    """How long one election may take before it is asked for again.  It takes some hundredths of a second."""
    poll_interval: float = 0.005
    """Between two looks at an election."""
    gossip_timeout: float = 20.0
    """How long all servers may take to learn of a change: about node timeout / 2 in a cluster of tens."""
    look_interval: float = 0.05
    """Between two looks at what takes longer: synchronizing, gossip, slots that move."""
    slots_at_once: int = 32
    """Slots that are open at a time while they are moved key by key (Redis 7).  More: faster, for commands go together;
    more slots to be finished by the next controller after a crash, and clients are redirected for longer."""
    keys_at_once: int = 100
    """Keys that are sent together, those of one slot by one MIGRATE (Redis 7).  More: fewer round trips; the source
    answers nobody for longer, until all of them have gone."""
    largest_key: int = 64 << 20
    """Bytes of memory above which a key is not moved on servers that move slots key by key (Redis 7): the source
    answers nobody meanwhile, about 4 s for 100 MB, and above its node timeout the others take it for dead."""
