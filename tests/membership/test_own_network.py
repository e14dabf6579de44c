"""Addresses that are known before anybody listens there: nobody else is given them, nor what others listen on."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack, closing

import pytest

from membership.runtime.own_network import OwnNetwork

pytestmark = pytest.mark.socket

CLAIM_AGAIN = """
import sys
from membership.runtime.own_network import OwnNetwork
print(OwnNetwork.claim_again(sys.argv[1]) is not None)
"""


def test_it_is_one_process_s_until_it_is_closed() -> None:
    def claims(host: str) -> str:
        command = [sys.executable, "-c", CLAIM_AGAIN, host]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with closing(OwnNetwork.claim()) as network:
        assert claims(network.host(7)) == "False"
        assert OwnNetwork.claim_again(network.host(1)) is None
    assert claims(network.host(7)) == "True"


def test_networks_and_their_hosts_differ() -> None:
    with ExitStack() as held:
        networks = [held.enter_context(closing(OwnNetwork.claim())) for _ in range(20)]
        assert len({network.host(number) for network in networks for number in (1, 2, 254)}) == 60
        with pytest.raises(ValueError, match="no host 255"):
            networks[0].host(255)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_what_somebody_listens_on_at_every_interface_is_left_out(
    kind: socket.SocketKind, offset: int
) -> None:
    with closing(OwnNetwork.claim()) as network:
        address = network.address(1)
        # As if he had been there before; on all of this network, not of the machine, which others use.
        with socket.socket(socket.AF_INET, kind) as taken, closing(OwnNetwork.claim()) as other:
            taken.bind((other.host(254), address.port + offset))
            assert other.port > address.port
