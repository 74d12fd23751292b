"""Puts the simulation below the product's edges while a seed is played, and makes its sizes small."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from holdfast.client.connection import addresses as addresses_module
from holdfast.client.read import shared_read_state, stream_reader
from holdfast.client.write import push_writer
from holdfast.master.leader import links
from holdfast.worker.core.write import credits as credits_module
from holdfast.worker.server.membership import registration
from holdfast.worker.server.services import forwarding, read_ahead, restore_service, stream_service, stream_sources
from tests.sim.client import runtime_here
from tests.sim.control import Control
from tests.sim.env.files import path_of, read_range, size_of
from tests.sim.network import Dialer, Network
from tests.sim.swap import Swap, swapped
from tests.sim.worker import BODY_BYTES

#: Bounds of the product in bytes or numbers, as small as what is pushed here, wherever a module has them.
SMALL = {
    "DIRECT_BYTES": 400,
    "PACKED_BYTES_MAX": 600,
    "CHUNK_BYTES": 700,
    "WRITE_BACK_BYTES": 800,
    "SEGMENT_BATCHES_MAX": 40,
    "FLUSH_BYTES": 900,
    "ROWS_MAX": 2,
    "SMALL_BYTES": 200,
    "SCAN_BYTES": 400,
    "COPY_BYTES": 500,
    "ROOM_BYTES_MIN": 1_000,
    "LOOK_BYTES_MIN": 500,
    "SEGMENT_BYTES_LEAST": 2_500,
}
_PARTS = ("holdfast.worker.storage", "holdfast.worker.core.write", "holdfast.worker.server.services")
#: Has another bound of the same name.
_OTHERS = "sealed_locations"
_FILES: Any = SimpleNamespace(
    pread=read_range,
    fstat=lambda fd: SimpleNamespace(st_size=size_of(fd), st_dev=0),
    major=os.major,
    minor=os.minor,
    posix_fadvise=lambda *_: None,
    POSIX_FADV_WILLNEED=0,
    readlink=lambda path: path_of(int(path.rpartition("/")[2])),
)


def _small() -> list[Swap]:
    found: list[Swap] = []
    for name, module in list(sys.modules.items()):
        if name.startswith(_PARTS) and not name.endswith(_OTHERS):
            found += [(module, each, size) for each, size in SMALL.items() if each in vars(module)]
    return found


@contextmanager
def wired(network: Network, check_seconds: float) -> Iterator[None]:
    """The product's edges connect through the simulated network; workers ask so often what they may delete."""
    Dialer.network = network
    swaps: list[Swap] = [(module, "FrameClient", Dialer) for module in (forwarding, restore_service, links)]
    swaps += [
        (module, "runtime", runtime_here)
        for module in (push_writer, addresses_module, stream_reader, shared_read_state)
    ]
    swaps += [(credits_module, "FRAME_BODY_BYTES_MAX", BODY_BYTES)]
    swaps += [
        (module, "os", _FILES) for module in (stream_service, stream_sources, read_ahead) if hasattr(module, "os")
    ]

    async def control_client(masters: str, standing: object) -> Control:
        return Control(network)

    swaps += [(registration, "_control_client", control_client), (registration, "CHECK_SECONDS", check_seconds)]
    swaps += _small()
    with swapped(swaps):
        yield
