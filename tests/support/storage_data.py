"""Drives the storage of a worker without a server: write contents, read them back as the wire would bring them."""

import os
from collections import defaultdict
from pathlib import Path

from holdfast.common.formats.messages import Ack, MapSealed
from holdfast.common.ids import MapFileKey
from holdfast.worker.storage import store as stores
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import MapFileWriter, Store, prepare
from tests.support.map_data import MapContent, Pieces
from tests.support.storage_env import Disk, env_of

CLUSTER, WORKER = "c1", "w1"


def settings(*roots: Path, **changes: object) -> StoreSettings:
    """Settings for a store over these directories."""
    directories = tuple(DirectorySettings(path=str(root)) for root in roots)
    values = {"cluster_id": CLUSTER, "worker_name": WORKER, "directories": directories, "sync_threads": 2} | changes
    return StoreSettings(**values)  # type: ignore[arg-type]  # the names are those of the fields


def open_store(*roots: Path, disk: Disk | None = None, **changes: object) -> Store:
    """Open, or open again, a store."""
    return stores.open_store(prepare(settings(*roots, **changes), env_of(disk)))


def append_all(store: Store, content: MapContent, ack: Ack = Ack.WRITTEN) -> MapFileWriter:
    """Begin a file and append all its frames."""
    writer = store.begin(content.key, content.partitions, ack)
    for frame in content.frames:
        writer.append(frame.region, frame.flags, frame.runs, memoryview(frame.body))
    return writer


def write(store: Store, content: MapContent, ack: Ack = Ack.WRITTEN) -> MapSealed:
    """Write and seal a file."""
    append_all(store, content, ack)
    return store.seal(content.key, content.totals).result(30)


def read(store: Store, keys: list[MapFileKey], begin: int, end: int) -> Pieces:
    """Read a range of partitions of files of one shuffle; checks that what was announced is what came."""
    plan = store.plan(keys[0].shuffle, begin, end, [(key.map, key.attempt, key.epoch) for key in keys])
    found: dict[tuple[int, int, int], bytes] = defaultdict(bytes)
    total = 0
    for piece in plan.pieces():
        data = os.pread(piece.handle.fd, piece.length, piece.offset)
        assert len(data) == piece.length == sum(length for _, length in piece.runs)
        offset = 0
        for partition, length in piece.runs:
            found[piece.file, piece.region, partition] += data[offset : offset + length]
            offset += length
        total += offset
    assert total == plan.total_bytes
    return dict(found)


def free_of(store: Store, share: float, reserve_bytes: int) -> list[int]:
    """What REDUCE partitions may grow in each directory, in bytes."""
    return [space.room_bytes if space is not None else 0 for space in store.look(share, reserve_bytes)]
