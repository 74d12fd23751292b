"""`python -m benchmarks.control_plane ENDPOINTS`: latency and throughput of durable commands, gRPC and HTTP."""

import asyncio
import sys
from typing import Literal

from holdfast.tools.benches.control import ControlFigures, measure_control

SECONDS = 5.0
MANY = 64


async def measure(endpoints: str) -> list[ControlFigures]:
    """Measure one client, then many, over both transports."""
    transports: tuple[Literal["grpc"], Literal["http"]] = ("grpc", "http")
    return [
        await measure_control(endpoints, clients=clients, seconds=SECONDS, transport=transport)
        for transport in transports
        for clients in (1, MANY)
    ]


if __name__ == "__main__":
    for figures in asyncio.run(measure(sys.argv[1])):
        print(
            f"{figures.transport:5} {figures.clients:4} clients: {figures.per_second:7.0f} commands/s, "
            f"p50 {figures.p50_ms:.2f} ms, p99 {figures.p99_ms:.2f} ms, max {figures.max_ms:.1f} ms"
        )
