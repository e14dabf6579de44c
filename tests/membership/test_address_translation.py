"""Members whose packets come from other addresses than they advertise: every interface, several, or translated.

What a packet's sender is, its envelope says, under the seal; from where the system says it came is never looked at.
Real sockets on loopback, where the system picks the source address as it does on a host with several.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import AsyncIterator

import pytest
import trio

import membership
from membership import Cluster, Key, KeyRing, Settings
from tests.own_addresses import own_address

pytestmark = pytest.mark.socket

PATIENCE = 30
SETTINGS = Settings.local()


class Translator:
    """Forwards all that arrives at its own address, UDP and TCP, to another one: one way of a NAT.

    What goes back does not pass here: the member's own packets leave from an address nobody was told.
    """

    def __init__(self, host: str) -> None:
        self.target = ("", 0)
        self.datagrams = 0
        while True:
            self._datagrams = trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                self._bind(host)
            except OSError:  # the port is free for one of the two only
                self.close()
            else:
                return

    def _bind(self, host: str) -> None:
        self._listener.bind((host, 0))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._listener.listen(64)
        self._listener.setblocking(False)
        raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        raw.setblocking(False)
        try:
            raw.bind(self._listener.getsockname())
        except OSError:
            raw.close()
            raise
        self._datagrams.close()
        self._datagrams = trio.socket.from_stdlib_socket(raw)

    async def run(self) -> None:
        """Forward until cancelled."""
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, self._serve, [listener])
                while True:
                    datagram = await self._datagrams.recv(65536)
                    self.datagrams += 1
                    self._out.sendto(datagram, self.target)
        finally:
            self.close()

    async def _serve(self, near: trio.SocketStream) -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            far = await trio.open_tcp_stream(*self.target)
            async with near, far, trio.open_nursery() as nursery:
                nursery.start_soon(_pump, near, far)
                await _pump(far, near)
                nursery.cancel_scope.cancel()

    def close(self) -> None:
        for each in (self._datagrams, self._listener, self._out):
            each.close()


async def _pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    async for chunk in source:
        await sink.send_all(chunk)
    await sink.send_eof()


@contextlib.asynccontextmanager
async def joined(
    listen: str, seeds: tuple[str, ...], name: str, keys: KeyRing, advertise: str | None = None
) -> AsyncIterator[Cluster]:
    with trio.fail_after(PATIENCE):
        async with membership.join(
            listen, seeds, advertise=advertise, name=name, settings=SETTINGS, keys=keys
        ) as cluster:
            yield cluster


def refused(*clusters: Cluster) -> dict[str, int]:
    """Everything that was dropped, by reason, but for what a start leaves behind."""
    return {
        name: count
        for cluster in clusters
        for name, count in cluster.statistics().items()
        if "elsewhere" in name or name.startswith("datagrams_dropped")
    }


async def test_every_interface_is_listened_at_and_one_is_advertised() -> None:
    """Replies leave from whatever address the system picks, which is not the advertised one."""
    keys = KeyRing([Key.generate()])
    async with (
        joined("0.0.0.0:0", (), "everywhere", keys, "127.0.0.5:0") as everywhere,
        joined("127.0.0.1:0", (str(everywhere.me.address),), "one", keys) as one,
        joined("0.0.0.0:0", (str(one.me.address),), "both", keys, "127.0.0.6:0") as both,
    ):
        clusters = (everywhere, one, both)
        assert everywhere.me.address.host == "127.0.0.5"
        assert everywhere.transport.bound.host == "0.0.0.0"
        for cluster in clusters:
            await cluster.wait_for(lambda view: len(view) == 3, PATIENCE)
        await both.set_metadata({"answered": "yes"})
        epoch = both.view.epoch
        # A whole window of probes later nobody has lost sight of anybody.
        await trio.sleep(SETTINGS.probe_window * SETTINGS.probe_interval)
        assert {cluster.view.epoch for cluster in clusters} == {epoch}
        assert not refused(*clusters)


async def test_a_member_behind_a_translated_address_is_heard_and_reached() -> None:
    keys = KeyRing([Key.generate()])
    translator = Translator("127.0.0.7")
    async with trio.open_nursery() as nursery:
        async with (
            joined("127.0.0.1:0", (), "one", keys) as one,
            joined("127.0.0.1:0", (str(one.me.address),), "two", keys) as two,
        ):
            # Its port must be known before it joins, since the others begin to talk to it at once.
            target = own_address()
            translator.target = tuple(target)
            nursery.start_soon(translator.run)
            inside = str(target)
            async with joined(inside, (str(one.me.address),), "inside", keys, translator.address) as hidden:
                assert str(hidden.me.address) == translator.address
                assert str(hidden.transport.bound) == inside
                for cluster in (one, two, hidden):
                    await cluster.wait_for(lambda view: len(view) == 3, PATIENCE)
                await two.set_metadata({"seen": "by all"})
                await hidden.wait_for(lambda view: view.member("two").metadata != (), PATIENCE)
                await hidden.set_metadata({"seen": "too"})
                assert translator.datagrams > 0
                assert not refused(one, two, hidden)
        nursery.cancel_scope.cancel()


async def test_who_advertises_an_address_that_does_not_lead_to_it_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The likeliest mistake: the seed hears it and answers, and the answers go astray."""
    keys = KeyRing([Key.generate()])
    caplog.set_level(logging.WARNING, logger="membership")
    nowhere = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    nowhere.bind(("127.0.0.9", 0))
    astray = "{}:{}".format(*nowhere.getsockname())
    with contextlib.closing(nowhere):
        async with joined("127.0.0.1:0", (), "one", keys) as one:
            with pytest.raises(
                membership.SeedsUnreachableError, match=f"it answers to {astray}, the address"
            ):
                async with membership.join(
                    "127.0.0.1:0", (str(one.me.address),), advertise=astray, settings=SETTINGS, keys=keys,
                    join_timeout=5.0,
                ):  # fmt: skip
                    raise AssertionError("it cannot join")
    lines = [record.getMessage() for record in caplog.records if "not joined yet" in record.getMessage()]
    assert len(lines) == 1
    assert "does that lead here from there" in lines[0]
