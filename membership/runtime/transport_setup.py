"""Binding a process's address: open the transport, choose its encryption, refuse an unprotected public address.

This is the first thing `join` and `serve_ensemble` do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from membership.address import Address, AddressError
from membership.settings import Settings
from membership.transport.endpoint import Network
from membership.transport.errors import BindError
from membership.transport.faults import FaultInjector, Faults
from membership.transport.resolve import is_wildcard
from membership.transport.transport import Transport
from membership.wire.key_ring import KeyRing
from membership.wire.protection import UNPROTECTED, Protection

if TYPE_CHECKING:
    from membership.runtime.signing import Ed25519Signer


class InsecureBindError(BindError):
    """Others than this machine could reach the address and there is no key: listen on loopback, or accept it
    with `insecure=True`."""


@asynccontextmanager
async def open_transport(
    listen: str | Address,
    *,
    advertise: str | Address | None,
    cluster_id: bytes | None,
    faults: Faults | FaultInjector | None,
    keys: KeyRing | Path | str | None,
    insecure: bool,
    network: Network | None,
    settings: Settings,
) -> AsyncIterator[Transport]:
    """A bound transport for the time of a block, which must run it; the arguments are those of `membership.join`.

    Raises AddressError, KeyRingError, BindError, and InsecureBindError.
    """
    ring = KeyRing.from_file(keys) if isinstance(keys, str | Path) else keys
    transport = await Transport.bind(
        _listen_address(listen),
        network=network,
        advertise=None if advertise is None else _listen_address(advertise),
        cluster_id=cluster_id,
        fault_injector=faults if isinstance(faults, FaultInjector) else FaultInjector(faults or Faults()),
        protection=_protection(ring),
        settings=settings,
    )
    try:
        _check_reachable(transport, insecure or ring is not None)
        yield transport
    finally:
        transport.close()


def new_signer(transport: Transport) -> Ed25519Signer | None:
    """What signs for one process and checks who signed: with keys only, without them nobody could tell who is who."""
    if not transport.protection.sealed:
        return None
    from membership.runtime.signing import Ed25519Signer  # cryptography takes 25 ms to load

    return Ed25519Signer()


def _listen_address(text: str | Address) -> Address:
    return text if isinstance(text, Address) else Address.parse(text, lowest_port=0)


def _protection(ring: KeyRing | None) -> Protection:
    if ring is None:
        return UNPROTECTED
    from membership.wire.sealing import SealedProtection  # cryptography takes 25 ms to load

    return SealedProtection(ring)


def _check_reachable(transport: Transport, secured: bool) -> None:
    if transport.exposed and not secured:
        raise InsecureBindError(
            f"{transport.bound} can be reached from other machines and there is no key: "
            "give keys=, listen on a loopback address, or accept it with insecure=True"
        )
    if is_wildcard(transport.advertised.host):
        raise AddressError(
            f"{transport.advertised.host} means every interface and cannot be sent to: "
            "say with advertise= at which address others reach this process"
        )
