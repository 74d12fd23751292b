"""What an earlier start left of an epoch is read with little memory, however many batches it has."""

import tracemalloc
from pathlib import Path

from holdfast.common.ids import Epoch, PartitionId
from holdfast.common.limits import KIB, MIB
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.log.log_recovery import scan_log
from holdfast.worker.storage.recovery.reduce_recovery import Recovered, find_left, recover
from tests.support.reduce_data import Writer
from tests.unit.worker.storage.reduce_world import SHUFFLE, World

FILES = SystemFiles()
BATCHES = 40_000
#: A row of the chunk index needs length and map of a batch; the rest is for what only the log has.
BYTES_PER_BATCH_MAX = 24


def test_many_small_batches_take_few_bytes_each(tmp_path: Path) -> None:
    """An epoch of 40,000 small batches, most of them in its file and some in the log, is recovered whole, each batch
    once, in less memory than its batches have bytes."""
    world = World(tmp_path, segment_bytes=256 * KIB)
    writer = Writer(SHUFFLE)
    for _ in range(BATCHES // 500):
        assert world.push(writer, [writer.batch(0, b"twenty bytes of data") for _ in range(500)]) == {}
    (path,) = world.files("*.open")
    world.store.close()
    key = EpochKey(SHUFFLE, PartitionId(0), Epoch(0))
    left = find_left(FILES, scan_log(FILES, tmp_path / "0", b"", {}), {key: path})[key]
    assert 0 < len(left.pieces) < BATCHES
    tracemalloc.start()
    try:
        found: Recovered = recover(FILES, left, next(iter(left.boots)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.sizes) == len(found.maps)
    assert len(found.sizes) + len(found.extra) == BATCHES
    assert peak < BATCHES * BYTES_PER_BATCH_MAX + len(left.pieces) * 400 + 1 * MIB
