"""A toy protocol for the simulator's own tests: everybody greets a random peer every tenth of a second."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from chaos import NetworkSettings, Simulator


@dataclass(frozen=True)
class Send:
    destinations: tuple[str, ...]
    message: object
    reliable: bool = False


@dataclass(frozen=True)
class Effects:
    sends: tuple[Send, ...] = ()
    events: tuple[object, ...] = ()
    wake_at: float = math.inf


@dataclass
class Greeter:
    """Greets `peers`; every greeting is answered; keeps what it received and when."""

    name: str
    peers: tuple[str, ...]
    rng: random.Random
    generation: int = 0
    reliable: bool = False
    period: float = 0.1
    next: float = math.inf
    received: list[tuple[float, str, str]] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)

    def start(self, now: float) -> Effects:
        self.next = now + self.period
        return Effects(events=("started",), wake_at=self.next)

    def receive(self, source: str, message: str, now: float) -> Effects:
        self.received.append((now, source, message))
        answer = (
            () if message.startswith("answer") else (Send((source,), f"answer {message}", self.reliable),)
        )
        return Effects(answer, wake_at=self.next)

    def tick(self, now: float) -> Effects:
        assert now >= self.next
        self.ticks.append(now)
        self.next = now + self.period
        if not self.peers:
            return Effects(wake_at=self.next)
        return Effects(
            (Send((self.rng.choice(self.peers),), f"hello {len(self.ticks)}", self.reliable),),
            wake_at=self.next,
        )


class TextCodec:
    """Strings as UTF-8."""

    def encode(self, message: str) -> bytes:
        return message.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


Build = Callable[..., tuple[Simulator, dict[str, Greeter]]]


@pytest.fixture
def greeters() -> Build:
    """Builds a simulator with greeters a, b, c …; the dict holds the latest process of each host."""

    def build(
        count: int = 3,
        *,
        network: NetworkSettings | None = None,
        reliable: bool = False,
        seed: int = 1,
        **options: object,
    ) -> tuple[Simulator, dict[str, Greeter]]:
        simulator = Simulator(seed=seed, network=network, **options)  # type: ignore[arg-type]
        processes: dict[str, Greeter] = {}
        names = tuple("abcdefghijklmnopqrstuvwxyz"[:count])
        for number, name in enumerate(names):

            def make(generation: int, rng: random.Random, name: str = name) -> Greeter:
                peers = tuple(peer for peer in names if peer != name)
                processes[name] = Greeter(name, peers, rng, generation, reliable)
                return processes[name]

            simulator.add_host(name, name, make, start_at=0.0, clock_offset=number * 100.25)
        return simulator, processes

    return build


@pytest.fixture
def text_codec() -> TextCodec:
    return TextCodec()
