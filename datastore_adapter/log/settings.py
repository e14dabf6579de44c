"""The settings of the replicated log, one frozen dataclass; presets for kinds of networks.

The members of a cluster need not agree on them; every process may differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from datastore_adapter.log.errors import LogSettingsError


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the log's clients, servers and reconfigurations behave."""

    call_timeout: float = 1.0
    """Seconds to wait for one answer.  Formula: a few round trips plus the slowest fsync expected.  Lower
    finds dead peers sooner; too low turns a slow disk into needless retries."""
    hole_timeout: float = 0.3
    """Seconds a reader waits for the writer of an unwritten address before it fills the hole.  Lower
    unblocks readers sooner; below the time of a normal append it makes slow writers start again."""
    append_timeout: float = 60.0
    """Seconds after which an append gives up and says that its outcome is unknown.  Must outlast the
    detection of a dead host plus the reconfiguration, or callers see errors that waiting would avoid."""
    read_timeout: float = 30.0
    """Seconds after which a read gives up; same trade-off."""
    follow_pause: float = 0.1
    """Seconds between two looks at the tail by who follows a stream.  Lower shows a record sooner; each look is a
    question to the sequencer and to the layout servers."""
    backoff_first: float = 0.01
    """Seconds before the first retry; each further one doubles it (with jitter)."""
    backoff_limit: float = 0.25
    """Seconds, the longest pause between retries.  Lower notices a new layout sooner, at more load."""
    reconfiguration_timeout: float = 10.0
    """Seconds one attempt to change the layout may take before the step is reported as failed (retryable)."""
    max_payload: int = 1 << 20
    """Bytes, the longest payload of one record.  Longer ones block a chain for longer."""
    batch_records: int = 256
    """Appends of one client that go to the replicas together at most.  More share an fsync, each waits longer."""
    batch_bytes: int = 1 << 20
    """Bytes of payload of one such batch (at least one record)."""
    batches_in_flight: int = 1
    """Batches of one client under way at a time, besides those that a replica holds up.  More keep all replicas busy
    where round trips are long; but what waits makes the next batch larger, so that each record costs fewer messages
    and fsyncs."""
    chunk_bytes: int = 256 << 10
    """Bytes of records per state transfer request (at least one record).  Larger is faster and coarser."""
    transfer_bytes_per_second: float = 0.0
    """Bytes/s one state transfer may use; 0: unlimited.  Lower spares the clients, repair takes longer."""
    segment_file_bytes: int = 64 << 20
    """Bytes after which a segment's journal goes on in a new file.  Trim frees whole files."""
    reserved_bytes: int = 64 << 20
    """Bytes of the disk, at most a sixteenth of it, that records do not get: they are for sealing, deciding layouts,
    settling and trimming, without which a host with a full disk could not be relieved.  More is safer, and idle."""
    disk_probation: float = 60.0
    """Seconds for which a disk that failed, and works again, counts as failed still, so that its host is relieved;
    doubled for each further failure within an hour.  Longer: a disk that fails now and then is trusted later."""
    back_pointers: int = 4
    """Addresses of earlier records of the stream in each record.  More survive more holes in a row."""
    max_streams: int = 1 << 20
    """Streams a sequencer and a log unit know at most; appends to further ones are refused.  About 300
    bytes each."""
    in_flight: int = 256
    """Requests one connection may have open on the server; the peer is not read from beyond that."""
    in_flight_bytes: int = 32 << 20
    """Bytes of requests that wait for the disk, over all connections; beyond it the peers are not read from."""
    fsync: bool = True
    """Whether an answer waits for the disk.  Off is for experiments: a power loss then loses acknowledged
    records if it hits every replica."""

    def __post_init__(self) -> None:
        for name in ("call_timeout", "hole_timeout", "append_timeout", "read_timeout"):
            _positive(name, getattr(self, name))
        for name in ("follow_pause", "backoff_first", "backoff_limit", "reconfiguration_timeout"):
            _positive(name, getattr(self, name))
        for name in ("batch_records", "batch_bytes", "batches_in_flight"):
            _positive(name, getattr(self, name))
        for name in ("max_payload", "chunk_bytes", "segment_file_bytes", "max_streams"):
            _positive(name, getattr(self, name))
        for name in ("in_flight", "in_flight_bytes"):
            _positive(name, getattr(self, name))
        if not 1 <= self.back_pointers <= 64:
            raise LogSettingsError(f"back_pointers must be 1 to 64, not {self.back_pointers}")
        for name in ("transfer_bytes_per_second", "reserved_bytes", "disk_probation"):
            if getattr(self, name) < 0:
                raise LogSettingsError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.max_payload > 16 << 20:
            raise LogSettingsError(f"max_payload must be at most 16 MiB, not {self.max_payload} bytes")

    @classmethod
    def lan(cls) -> LogSettings:
        """One data centre: round trips below 10 ms."""
        return cls()

    @classmethod
    def wan(cls) -> LogSettings:
        """Several regions: round trips up to some 200 ms."""
        return cls(
            call_timeout=4.0, hole_timeout=2.0, append_timeout=180.0, read_timeout=90.0, backoff_limit=1.0,
            reconfiguration_timeout=40.0, batches_in_flight=4,
        )  # fmt: skip

    @classmethod
    def local(cls) -> LogSettings:
        """All processes on one machine: a dead one refuses connections at once."""
        return cls(call_timeout=0.75, hole_timeout=0.2, backoff_limit=0.1)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise LogSettingsError(f"{name} must be above 0, not {value}")
