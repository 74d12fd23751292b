"""Checks the batches of one sealed epoch against its record: the part of `holdfast verify` that all files share.

Stretch by stretch, so that memory is one stretch's: of a map file what a partition has in a region, else a chunk.
Called by verify.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.common.errors import CorruptError, HoldfastError
from holdfast.common.formats.batch import parse_batch
from holdfast.common.ids import MapFileKey
from holdfast.worker.storage.engine.scan import Seeds, scan_run
from holdfast.worker.storage.index.records import ChunkRow, EpochRecord
from holdfast.worker.storage.index.region_chunks import Entry
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.offline.findings import Severity, VerifyReport

_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF


class _Counted(NamedTuple):
    """What is right in a stretch, from its start on, and what is wrong behind that."""

    batches: int
    crc_sum: int
    size_bytes: int
    #: in words: an error would keep what it came through, and with that the lock of the directory
    problem: str = ""


class _Stretch(NamedTuple):
    """Bytes of a file that stand together, where they are, and how they are checked."""

    offset: int
    length: int
    where: dict[str, int | None]
    check: Callable[[memoryview], _Counted]


def check_epoch(
    report: VerifyReport,
    below: str,
    key: MapFileKey | EpochKey,
    record: EpochRecord,
    read: Callable[[int, int], bytes],
) -> None:
    """Check every batch of an epoch; `read(offset, length)` gives bytes of its file. What that raises beside
    CorruptError, this raises."""
    stretches = _map_stretches(key, record) if isinstance(key, MapFileKey) else _stretches(key, record)
    batches = crc_sum = 0
    whole = True
    for offset, length, where, check in stretches:
        report.size_bytes += length
        try:
            data = read(offset, length)
            found = check(memoryview(data))
            if len(data) < length:
                found = found._replace(problem=f"cut: {len(data)} of {length} bytes are there")
        except CorruptError as error:
            found = _Counted(0, 0, 0, str(error))
        batches += found.batches
        crc_sum += found.crc_sum
        if found.problem:
            whole = False
            at = offset + found.size_bytes
            said = f"epoch {key.epoch}, offsets from {offset}: {found.problem}"
            report.add(Severity.DAMAGE, below, said, offset=at, **where)
    report.batches += batches
    if whole and (batches, crc_sum & _CRC_SUM_MASK) != (record.batches, record.crc_sum):
        partition = None if isinstance(key, MapFileKey) else key.partition
        said = f"epoch {key.epoch}: the batches do not add up to its totals"
        report.add(Severity.DAMAGE, below, said, partition=partition)


def _map_stretches(key: MapFileKey, record: EpochRecord) -> Iterator[_Stretch]:
    seeds, due = Seeds(key.shuffle), dict[int, int]()
    for chunk in record.decoded():
        for entry in chunk.entries():
            number = due.get(entry.partition, 0)
            due[entry.partition] = number + entry.batches
            check = partial(_check_run, key, entry, seeds.of(entry.partition), number)
            where: dict[str, int | None] = {"region": chunk.region, "partition": entry.partition}
            yield _Stretch(chunk.region_offset + entry.offset, entry.length, where, check)


def _check_run(key: MapFileKey, entry: Entry, seed: int, number: int, data: memoryview) -> _Counted:
    """A run of one partition, the first of which has this number."""
    try:
        found = scan_run(data, 0, len(data), seed, key.map, key.attempt, number)
        if found.batches != entry.batches:
            raise CorruptError(f"{found.batches} batches where the record has {entry.batches}")
    except HoldfastError as error:
        return _Counted(0, 0, 0, str(error))
    return _Counted(*found, len(data))


def _stretches(key: EpochKey, record: EpochRecord) -> Iterator[_Stretch]:
    seed = Seeds(key.shuffle).of(key.partition)
    for row in record.chunks:
        yield _Stretch(row.offset, row.length, {"partition": key.partition}, partial(_check_row, row, seed))


def _check_row(row: ChunkRow, seed: int, data: memoryview) -> _Counted:
    """Batches of the maps that a chunk says."""
    at = batches = crc_sum = 0
    try:
        while at < len(data):
            batch, end = parse_batch(data, at, seed)
            if not row.map_min <= batch.map <= row.map_max:
                raise CorruptError(f"a batch of map {batch.map} in a chunk of maps {row.map_min} to {row.map_max}")
            at, batches, crc_sum = end, batches + 1, crc_sum + batch.crc
    except CorruptError as error:
        return _Counted(batches, crc_sum, at, str(error))
    return _Counted(batches, crc_sum, at)
