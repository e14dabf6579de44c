"""Settings of the membership protocol, with presets for a data centre, for far sites and for one machine.

Every time is in seconds. `local` is for demonstrations and tests on one machine: it finds a dead process in
about two seconds and pays with about three times the packets of `lan`.
"""

from dataclasses import dataclass, fields
from math import isfinite

from membership.errors import MembershipError

_LARGEST_PAYLOAD = 1280


class SettingsError(MembershipError, ValueError):
    """Raised when settings contradict each other. The message says which ones and the rule they break."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One frozen value for a whole cluster. All members must use the same rings and watermarks."""

    rings: int = 10
    """K: rings, so also observers per member. More rings cost more probes and tell failures apart better."""
    high_watermark: int = 9
    """H: rings that must report a subject before it may go into a cut. Higher is more certain, and slower."""
    low_watermark: int = 3
    """L: rings below which reports about a subject are noise. Higher forgives more bad links; K >= H > L."""

    probe_interval: float = 1.0
    """An observer probes each subject once per interval. Half of it halves detection and doubles traffic."""
    idle_probes: int = 3
    """Subjects that a member probes per `probe_interval`, in turn, while nothing has spoken against any for
    `probe_window` intervals. It then sends 2 x `idle_probes` packets per interval, answers included, and each
    member is still probed `idle_probes` times per interval, by one or other of its observers; the first to miss
    an answer tells the others, and all of them probe all their subjects again. 6 finds a crash a sixth of an
    interval sooner; `rings` or more: nobody ever rests."""
    probe_window: int = 10
    """Probes remembered per edge."""
    probe_failures: int = 4
    """Failed probes of the window that make the edge faulty; a crash takes about this many intervals."""
    probe_attempts: int = 5
    """Datagrams per probe before it counts as failed. With loss p in both directions a probe fails with
    (1-(1-p)^2)^attempts: at 20 % that is 0.6 %, at 80 % one way 33 %, which four of ten tell apart."""
    probe_retransmit: float = 0.18
    """Between the attempts of a probe; attempts x this must fit the interval. Should exceed a round trip. A
    subject that loses attempts gets them twice as often, so that its observers make up their minds together."""

    loss_tolerated: float = 0.36
    """Share of single attempts that the worst weather loses: 20 % in both directions is 1 - 0.8 x 0.8. Higher
    forgives worse networks and convicts lossy members later."""
    loss_faulty: float = 0.8
    """Share of single attempts that a faulty member loses: 80 % in one direction. The two balance at a share of
    ln((1-t)/(1-f)) / (ln(f/t) + ln((1-t)/(1-f))) = 0.59: a link that loses less is never convicted for long."""
    loss_threshold: float = 16.0
    """Evidence, as a natural logarithm, that convicts a link of loss (see loss_test). False alarms of one edge
    are at least e^threshold = 9 million rounds apart at `loss_tolerated`, and e^(2.87 x threshold) = 9 x 10^19 at 5 %
    loss in both directions. At `loss_faulty` an edge is convicted after about eight rounds."""

    remove_batch: float = 0.1
    """Removal alerts wait this long for each other, so that a common failure becomes one cut."""
    join_batch_quiet: float = 0.1
    """Join alerts are flushed after this long without another join ..."""
    join_batch_cap: float = 0.5
    """... and at the latest after this long, four times as long while more join than are members: longer makes fewer,
    larger view changes while many start."""
    first_joiners: int = 15
    """A lone founder admits at most this many of those that ask, so that they share the work of admitting the
    rest. Every member of a view merges every join into the next one: the work of a mass start grows with the
    product of both, so a small first view is cheap. `expect` is not limited by it."""
    reinforcement_timeout: float = 1.0
    """A subject unstable for this long is reported too by observers with evidence of their own."""
    blind_reinforcement_timeout: float = 5.0
    """A subject unstable for this long is reported by all its observers, evidence or not, so that it cannot
    block view changes for ever (Rapid section 4.2)."""
    noise_lifetime: float = 100.0
    """Reports that stay below L are forgotten after this long: ten detection windows."""
    report_lifetime: float = 30.0
    """Reports at L or more that led to no cut, and that their observers do not confirm any more, are forgotten
    after this long: three detection windows. It ends the stalemate of a healed partition in which everybody
    accused everybody. An observer whose subject stays silent confirms its report every third of this."""

    gossip_fanout: int = 4
    """Random members told per gossip tick. 2 saves messages, 6 saves latency under loss."""
    gossip_interval: float = 0.05
    """Length of a gossip tick while there is news; idle ticks back off to twenty times this."""
    anti_entropy_interval: float = 5.0
    """Every member compares its state with one random member this often, so that no laggard stays lost."""

    rpc_retransmit: float = 0.2
    """A joiner or leaver repeats an unanswered request after this long, growing by half to `rpc_cap`."""
    rpc_cap: float = 1.0
    """Longest time between two repetitions of a request."""
    join_attempt_timeout: float = 5.0
    """A joiner that got observers but no view for this long starts again at its seeds."""
    join_refusals: int = 10
    """A joiner that was refused this often (because a member that answers has its name, for example) gives up.
    It asks about once per `rpc_cap`."""
    leave_timeout: float = 5.0
    """A leaver whose departure is not decided by then stops waiting; it is then removed as failed."""

    fallback_delay: float = 1.0
    """After its vote a member waits this long for the fast round before it thinks of a classic round. Should
    exceed twice the time gossip takes to reach everybody (about half a second at 2000 members)."""
    fallback_slot: float = 0.3
    """Coordinators take turns in hash order, one slot apart, so that they do not all start at once."""
    classic_retransmit: float = 0.2
    """A coordinator repeats a request to silent acceptors this often."""

    catch_up_interval: float = 0.1
    """A peer that is behind is helped at most once in this long."""
    quorum_timeout: float = 5.0
    """A member that is answered by fewer than a majority, itself included, or has voted without a decision, for this
    long raises QuorumLost. Every member of a side (members that all reach each other, if only through others) that is
    no majority says so within this plus (probe_failures + 3) x probe_interval of the cut or of its last view,
    whatever its neighbours, and whatever the links do: deaf, mute, or blocked one way. Above 2000 members, where about
    half are gone, within 2.5 x probe_interval more per further 2000. A process whose own event loop lags may take
    2 x probe_interval longer."""

    greeting_interval: float = 0.25
    """Centralised mode: the members of the ensemble greet each other this often; who misses three greetings
    counts as silent, and is not waited for."""

    datagram_payload: int = 1280
    """Bytes of an encoded message in one datagram; leaves 120 for the envelope under the 1400 byte bound."""
    decisions_kept: int = 64
    """Decided cuts remembered for stale peers; one further behind gets the whole configuration."""
    early_messages_kept: int = 256
    """Messages of a configuration not installed here yet that are kept until it is."""
    joins_kept: int = 20000
    """Joiners an observer remembers at a time, waiting or parked. Further ones must ask again."""

    connections: int = 1024
    """Connections accepted at a time, about 10 kB each; at most half of the process's file descriptors. An eighth is
    for those that have not shaken hands yet, and one address has at most three quarters of the rest. When there are
    more, whoever has been silent longest gives way. More let more peers keep a connection while it is idle."""
    idle_timeout: float = 60.0
    """An accepted connection on which no request is under way and none arrives is closed after this long. Shorter frees
    memory sooner; clients that keep a connection should close it first, as the log's do after half of the default."""
    frame_timeout: float = 30.0
    """One frame of a connection may take this long from its first byte to its last, either way: 64 MiB need 18 Mbit/s.
    Longer suits slower networks, and lets a peer that stalls keep its place longer."""

    def __post_init__(self) -> None:
        self._check_numbers()
        if not self.rings >= self.high_watermark > self.low_watermark >= 1:
            raise SettingsError(
                f"rings >= high_watermark > low_watermark >= 1 must hold, not "
                f"{self.rings} >= {self.high_watermark} > {self.low_watermark} >= 1"
            )
        if self.rings > 60:
            raise SettingsError(f"at most 60 rings fit the bitmasks of alerts, not {self.rings}")
        if not 1 <= self.probe_failures <= self.probe_window:
            raise SettingsError(
                f"1 <= probe_failures <= probe_window must hold, not "
                f"{self.probe_failures} of {self.probe_window}"
            )
        if self.probe_attempts < 1 or self.probe_attempts * self.probe_retransmit > self.probe_interval:
            raise SettingsError(
                f"probe_attempts x probe_retransmit ({self.probe_attempts} x {self.probe_retransmit}) "
                f"must fit probe_interval ({self.probe_interval})"
            )
        if self.probe_attempts > 32:
            raise SettingsError(f"at most 32 attempts fit one probe's numbers, not {self.probe_attempts}")
        if not 0 < self.loss_tolerated < self.loss_faulty < 1:
            raise SettingsError(
                f"0 < loss_tolerated < loss_faulty < 1 must hold, not "
                f"{self.loss_tolerated} < {self.loss_faulty}"
            )
        if self.datagram_payload > _LARGEST_PAYLOAD:
            raise SettingsError(
                f"datagram_payload is at most {_LARGEST_PAYLOAD}, so that a datagram fits one Ethernet frame, "
                f"not {self.datagram_payload}"
            )

    def _check_numbers(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SettingsError(f"{field.name} is a number, not {value!r}")
            if field.type is int and not isinstance(value, int):
                raise SettingsError(f"{field.name} is a whole number, not {value}")
            if not (value > 0 and isfinite(value)):
                raise SettingsError(f"{field.name} must be positive and finite, not {value}")

    @classmethod
    def lan(cls) -> "Settings":
        """Members within a few milliseconds of each other; a crash is removed in about six seconds."""
        return cls()

    @classmethod
    def wan(cls) -> "Settings":
        """Members up to 300 ms apart; a crash is removed in about thirty seconds."""
        return cls(
            probe_interval=5.0,
            probe_retransmit=0.9,
            reinforcement_timeout=5.0,
            blind_reinforcement_timeout=20.0,
            noise_lifetime=500.0,
            report_lifetime=150.0,
            gossip_interval=0.2,
            remove_batch=0.5,
            join_batch_quiet=0.5,
            join_batch_cap=2.0,
            rpc_retransmit=0.8,
            rpc_cap=4.0,
            join_attempt_timeout=15.0,
            leave_timeout=20.0,
            fallback_delay=5.0,
            fallback_slot=2.0,
            classic_retransmit=0.8,
            catch_up_interval=0.4,
            quorum_timeout=20.0,
            greeting_interval=1.0,
        )

    @classmethod
    def local(cls) -> "Settings":
        """Members on one machine; a crash is removed in about two seconds."""
        return cls(
            probe_interval=0.3,
            probe_retransmit=0.055,
            reinforcement_timeout=0.4,
            blind_reinforcement_timeout=2.0,
            noise_lifetime=30.0,
            report_lifetime=9.0,
            gossip_interval=0.03,
            anti_entropy_interval=2.0,
            remove_batch=0.05,
            join_batch_quiet=0.05,
            join_batch_cap=0.3,
            fallback_delay=0.5,
            fallback_slot=0.15,
            classic_retransmit=0.1,
            rpc_retransmit=0.1,
            rpc_cap=0.5,
            join_attempt_timeout=2.0,
            catch_up_interval=0.05,
            quorum_timeout=2.0,
            greeting_interval=0.1,
        )
