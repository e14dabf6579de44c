"""The same calls through grpcio, the gRPC library that clients in Python are made with.

One channel; one call at a time blocks, several are futures whose results are taken as they come. The cost of Protocol
Buffers is not in it: the load makes the messages, as for `bench.log.grpc_calls`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue

import grpc


class GrpcioChannel:
    """One connection to ``host:port`` `address`."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self._channel).result(timeout=10.0)

    def close(self) -> None:
        self._channel.close()

    def load(
        self, method: str, message: Callable[[], bytes], in_flight: int, seconds: float
    ) -> tuple[list[float], float]:
        """Calls for some seconds, `in_flight` at a time; how long each took, and all."""
        call = self._channel.unary_unary(method)
        latencies: list[float] = []
        start = now = time.perf_counter()
        if in_flight == 1:
            while now < start + seconds:
                began, answer = now, call(message())
                assert answer
                now = time.perf_counter()
                latencies.append(now - began)
            return latencies, now - start
        ended: SimpleQueue[tuple[float, grpc.Future]] = SimpleQueue()

        def begin() -> None:
            began = time.perf_counter()
            call.future(message()).add_done_callback(lambda future: ended.put((began, future)))

        for _ in range(in_flight):
            begin()
        under_way = in_flight
        while under_way:
            began, future = ended.get()
            future.result()  # raises what went wrong
            now = time.perf_counter()
            latencies.append(now - began)
            if now < start + seconds:
                begin()
            else:
                under_way -= 1
        return latencies, now - start
