"""Why does joining take so long, or why is there no quorum? One clear log line, and the error when time is up.

It asks the seeds over TCP who they are, listens to what the core is told, and puts both into words. A line is logged
once, not at every try. Nothing here changes what the core does.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from membership.address import Address
from membership.errors import MembershipError
from membership.protocol.context.effects import QuorumLost
from membership.protocol.lifecycle.founder_election import JOINING_TOO
from membership.runtime.member_log import MemberLog
from membership.transport.errors import (
    ForeignClusterError,
    KeyMismatchError,
    NotRotaError,
    PeerUnreachableError,
    TransportError,
    UnknownServiceError,
    WrongVersionError,
)
from membership.transport.resolve import is_numeric, is_wildcard
from membership.transport.transport import MEMBERSHIP_SERVICE, Transport

DIAGNOSIS_TIMEOUT = 2.0
"""Seconds a seed gets to answer."""

SEEDS_ASKED = 8
"""Seeds asked at a time: enough to tell what is wrong."""

PATIENCE = 3
"""Tries with answers before it is said that joining takes long: in a large start everybody waits a little."""

JOINING_PATIENCE = 20
"""Answers of processes that are joining themselves before that is said: about ten seconds."""

LINES_LOGGED = 16
"""Different lines per join. Two reasons that take turns are logged once each."""


class JoinError(MembershipError):
    """Joining was not done within `join_timeout`; the text says what stood in the way at the end."""


class SeedsUnreachableError(JoinError):
    """No seed answers, or none can be resolved. Check the addresses, and that somebody runs there."""


class SeedNotRotaError(JoinError):
    """Something answers at the seed, but it is not rota, or another version of it. Check the port."""


class SeedForeignClusterError(JoinError):
    """The seed belongs to another cluster than the one asked for. Check the seeds or the cluster id."""


class SeedKeyError(JoinError):
    """The seed and this process have no key in common, or only one of them has keys. Compare the key files."""


class JoinRefusedError(JoinError):
    """The cluster refuses this process, for the reason in the text (a name that is taken, for example)."""


class JoinTimeoutError(JoinError):
    """The cluster answers, but has not admitted this process in time (it may wait for more processes)."""


NO_OTHER_SEEDS = (
    "there are no seeds to ask but this process itself; name another member, or none to found a cluster"
)

_ERRORS: tuple[tuple[type[TransportError], type[JoinError]], ...] = (
    (ForeignClusterError, SeedForeignClusterError),
    (KeyMismatchError, SeedKeyError),
    (NotRotaError, SeedNotRotaError),
    (WrongVersionError, SeedNotRotaError),
    (UnknownServiceError, SeedNotRotaError),
    (PeerUnreachableError, SeedsUnreachableError),
)
"""The worse to mend, the earlier: of several seeds the first kind found here is reported."""


class JoinDiagnosis:
    """What stands in the way of a join at present."""

    def __init__(self, log: MemberLog) -> None:
        self._log = log
        self._problem: tuple[type[JoinError], str] | None = None
        self._told_by_core = False
        self._answered = 0
        self._joining_too = 0
        self._logged: dict[str, None] = {}

    @property
    def known(self) -> bool:
        """Whether anything has been found yet."""
        return self._problem is not None

    def reset(self) -> None:
        """A new join begins."""
        self._problem = None
        self._told_by_core = False
        self._answered = 0
        self._joining_too = 0
        self._logged.clear()

    def refused(self, reason: str) -> None:
        """A member refused the join."""
        self._set(JoinRefusedError, f"the cluster refuses this process: {reason}", told_by_core=True)

    def waiting(self, reason: str) -> None:
        """A seed answered that this process must wait."""
        said = True
        if reason == JOINING_TOO:
            # All that start together hear this from each other, for a moment: not worth a line.
            self._joining_too += 1
            said = self._joining_too >= JOINING_PATIENCE
            reason = "who answers is joining itself; if all seeds are and no member is left, found the cluster anew"
        self._set(JoinTimeoutError, f"waiting to be admitted: {reason}", told_by_core=True, said=said)

    def error(self, timeout: float) -> JoinError:
        """The error for a join that was not done within `timeout` seconds."""
        kind, text = self._problem or (
            JoinTimeoutError,
            "the cluster answers but has not admitted this process"
            if self._answered
            else "nothing was heard of the seeds in so short a time; allow more",
        )
        return kind(f"not joined within {timeout:g} s: {text}")

    async def ask_seeds(
        self, transport: Transport, seeds: Sequence[Address], unresolved: Sequence[str]
    ) -> None:
        """Find out over TCP what the seeds are; what the core was told meanwhile counts more."""
        answers: dict[Address, tuple[int, str] | None] = {}

        async def ask(seed: Address) -> None:
            answers[seed] = await _ask(transport, seed)

        async with trio.open_nursery() as nursery:
            for seed in seeds[:SEEDS_ASKED]:
                nursery.start_soon(ask, seed)
        self._judge([(seed, answers[seed]) for seed in seeds[:SEEDS_ASKED]], unresolved, transport)

    def heard(self, seeds: Sequence[Address]) -> None:
        """Members answer, so nothing is wrong with the seeds; say something only if it takes long."""
        self._answered += 1
        if self._answered >= PATIENCE and not self._told_by_core:
            who = ", ".join(map(str, seeds[:SEEDS_ASKED]))
            self._set(JoinTimeoutError, f"{who} answer, but this process is not admitted yet")

    def _judge(
        self,
        answers: Sequence[tuple[Address, tuple[int, str] | None]],
        unresolved: Sequence[str],
        transport: Transport,
    ) -> None:
        peer = next((seed for seed, answer in answers if answer is None), None)
        bad = [answer for _, answer in answers if answer is not None]
        if peer is not None:
            if not self._told_by_core:  # else the core knows better what the matter is
                advice = _datagram_advice(transport.bound, transport.advertised, peer)
                self._set(
                    SeedsUnreachableError, f"{peer} is rota, but no datagram of it arrives here; {advice}"
                )
        elif bad:
            rank, text = min(bad, key=lambda answer: answer[0])
            more = f" (and {len(bad) - 1} more seeds without success)" if len(bad) > 1 else ""
            self._set(_ERRORS[rank][1], text + more)
        else:
            self._set(SeedsUnreachableError, "; ".join(unresolved) or NO_OTHER_SEEDS)

    def _set(
        self, kind: type[JoinError], text: str, *, told_by_core: bool = False, said: bool = True
    ) -> None:
        self._told_by_core = told_by_core
        self._problem = (kind, text)
        if said and text not in self._logged and len(self._logged) < LINES_LOGGED:
            self._logged[text] = None
            self._log.warning("not joined yet: %s", text)


def unheard(event: QuorumLost) -> str:
    """What to add when most of those watched have not been heard in this view at all; otherwise nothing."""
    if 2 * event.unheard <= event.watched:
        return ""
    return (
        f"; {event.unheard} of the {event.watched} members watched here have not been heard since it was installed, "
        "and may never have learned of it: if their processes are gone, recover from those that are left "
        "(`rota recover`), or found the cluster anew"
    )


def _datagram_advice(bound: Address, advertised: Address, peer: Address) -> str:
    if is_wildcard(bound.host) or not is_numeric(peer.host) or (":" in bound.host) == (":" in peer.host):
        return (
            f"it answers to {advertised}, the address this process advertises: does that lead here from there, "
            "and is UDP let through both ways?"
        )
    return (
        f"this process listens on {bound} only, from where the other IP version is out of reach: "
        "listen on [::]:PORT and advertise an address that every member can reach"
    )


async def _ask(transport: Transport, seed: Address) -> tuple[int, str] | None:
    """None when the seed is a rota process; otherwise how bad it is (an index into _ERRORS) and what it is."""
    try:
        async with await transport.open_service(seed, MEMBERSHIP_SERVICE, timeout=DIAGNOSIS_TIMEOUT):
            return None
    except TransportError as error:
        for rank, (kind, _) in enumerate(_ERRORS):
            if isinstance(error, kind):
                return rank, str(error)
        return None
