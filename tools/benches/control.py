"""Measures the control plane of a running cluster: the time of one durable command, and how many a second many clients
get.

The command is Attach of one application: it passes through the log of the masters like any other and leaves no more
state behind. Used by `holdfast bench` and by `python -m benchmarks.control_plane`. Nothing here judges the figures.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Literal

from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb

Transport = Literal["grpc", "http"]


@dataclass(frozen=True, slots=True)
class ControlFigures:
    """Times in milliseconds, from call to answer."""

    transport: str
    clients: int
    commands: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def per_second(self) -> float:
        """Commands answered a second."""
        return self.commands / self.seconds


async def measure_control(
    endpoints: str, *, clients: int, seconds: float, at_once: int = 1, transport: Transport = "http"
) -> ControlFigures:
    """Have `clients` clients, each with `at_once` commands under way, call for `seconds`; return what they saw.

    One client with one command under way gives the latency; many give the throughput. All run in this process and share
    its core with nobody but the masters.
    """
    instance, holder = secrets.token_bytes(16), secrets.token_bytes(16)
    made = [ControlClient(endpoints, transport=transport) for _ in range(clients)]
    try:
        register = pb.RegisterApplicationRequest(instance=instance, name="bench", holder=holder, lease_ms=60_000)
        await made[0].call("Shuffles/RegisterApplication", register)
        attach = pb.AttachRequest(instance=instance, holder=holder, lease_ms=60_000)
        await asyncio.gather(*(each.call("Shuffles/Attach", attach) for each in made))  # connections are open now
        times: list[float] = []
        started = time.perf_counter()
        end = started + seconds
        await asyncio.gather(*(_client(each, attach, end, times) for each in made for _ in range(at_once)))
        spent = time.perf_counter() - started
        await made[0].call("Shuffles/Detach", pb.DetachRequest(instance=instance, holder=holder))
    finally:
        await asyncio.gather(*(each.close() for each in made))
    times.sort()
    return ControlFigures(
        transport=transport,
        clients=clients * at_once,
        commands=len(times),
        seconds=spent,
        p50_ms=times[len(times) // 2] * 1000,
        p99_ms=times[len(times) * 99 // 100] * 1000,
        max_ms=times[-1] * 1000,
    )


async def _client(client: ControlClient, attach: pb.AttachRequest, end: float, times: list[float]) -> None:
    while (before := time.perf_counter()) < end:
        await client.call("Shuffles/Attach", attach)
        times.append(time.perf_counter() - before)
