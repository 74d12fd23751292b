"""The part of `holdfast verify` that checks REDUCE partitions: partition and pack files, and the push log.

Read-only. Every batch of every sealed file is checked against its CRC and the totals of its epoch; unsealed files and
the log the way recovery reads them, so that what it would call damage is DAMAGE here, and what it would cut is
HARMLESS. Called by verify.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.common.errors import CorruptError
from holdfast.common.formats.batch import parse_batch
from holdfast.common.statuses import Status
from holdfast.worker.storage import names
from holdfast.worker.storage.engine.scan import Seeds
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.index.records import ChunkRow, EpochRecord
from holdfast.worker.storage.layout import DataKey, EpochKey, FileKind, sealed_path
from holdfast.worker.storage.log.log_recovery import map_file, scan_log
from holdfast.worker.storage.offline.findings import Severity, VerifyReport
from holdfast.worker.storage.offline.offline import Offline
from holdfast.worker.storage.recovery.reduce_recovery import (
    Left,
    find_left,
    recover,
)

_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF
#: Bytes of a file that end where the chunk ends, and at which offset of the file they begin.
ReadChunk = Callable[[ChunkRow], tuple[memoryview, int]]


def verify_reduce(offline: Offline, report: VerifyReport, step: Callable[[str], None]) -> None:
    """Check everything of REDUCE partitions in a directory; `step` hears of each file once, by its path below it.

    Raises OSError if it cannot be read at all.
    """
    present: set[DataKey] = set()
    unsealed: dict[EpochKey, Path] = {}
    for below, name, key in offline.reduce_files():
        if name.kind is FileKind.SEALED:
            present.add(key)
            _sealed(offline, report, below, key)
        elif name.kind is FileKind.FAILED:
            report.add(Severity.HARMLESS, below, "a copy that is given up")
        elif isinstance(key, EpochKey) and key not in offline.epochs:
            unsealed[key] = offline.root / below
        step(below)
    for key in offline.data_files.keys() - present:
        report.add(Severity.DAMAGE, sealed_path(key), f"{key} is in the index, but the file is gone")
    _unsealed(offline, report, unsealed)


def _sealed(offline: Offline, report: VerifyReport, below: str, key: DataKey) -> None:
    path = offline.root / below
    files = offline.env.files
    size = files.stat(path).size
    end = offline.data_files.get(key, size)
    known = tuple((epoch, record) for epoch, record in offline.epochs.items() if _is_in(epoch, record, key))
    try:
        footer = read_footer(files, path, key, end)
        if known and set(known) != set(footer.epochs):
            report.add(Severity.DAMAGE, below, "index and footer contradict each other")
        epochs = footer.epochs
    except (CorruptError, OSError) as error:
        report.add(Severity.DAMAGE, below, f"footer: {error}", offset=None)
        epochs = known
    if key not in offline.data_files and offline.report is not None:
        report.add(Severity.HARMLESS, below, "not in the index: taken in at the next start")
    if size > end:
        report.add(Severity.HARMLESS, below, f"{size - end} bytes behind the end: nothing refers to them", offset=end)
    report.sealed_files += 1
    data = map_file(files, path)
    for epoch, record in epochs:
        check_epoch(report, below, epoch, record, lambda row: (data[: row.offset + row.length], 0))


def _is_in(epoch: EpochKey, record: EpochRecord, key: DataKey) -> bool:
    return record.status == Status.OK and record.place(epoch) == key


def check_epoch(report: VerifyReport, below: str, key: EpochKey, record: EpochRecord, read: ReadChunk) -> None:
    """Check every batch of one sealed epoch. What `read` raises beside CorruptError, this raises."""
    seed = Seeds(key.shuffle).of(key.partition)
    batches = crc_sum = 0
    whole = True
    for row in record.chunks:
        at, end = row.offset, row.offset + row.length
        try:
            data, base = read(row)
            while at < end:
                batch, behind = parse_batch(data, at - base, seed)
                at = behind + base
                batches += 1
                crc_sum += batch.crc
                if not row.map_min <= batch.map <= row.map_max:
                    raise CorruptError(f"a batch of map {batch.map} in a chunk of maps {row.map_min} to {row.map_max}")
        except CorruptError as error:
            whole = False
            report.add(Severity.DAMAGE, below, f"epoch {key.epoch}: {error}", partition=key.partition, offset=at)
        report.size_bytes += row.length
    report.batches += batches
    if whole and (batches, crc_sum & _CRC_SUM_MASK) != (record.batches, record.crc_sum):
        report.add(
            Severity.DAMAGE,
            below,
            f"epoch {key.epoch}: the batches do not add up",
            partition=key.partition,
            offset=None,
        )


def _unsealed(offline: Offline, report: VerifyReport, unsealed: dict[EpochKey, Path]) -> None:
    segments = scan_log(offline.env.files, offline.root, offline.boot_id, offline.logs)
    report.log_segments = sum(1 for segment in segments if segment.number)
    for segment in segments:
        below = str(segment.path.relative_to(offline.root))
        for bad in segment.bad:
            report.add(Severity.DAMAGE, below, bad.why, offset=bad.offset)
        if segment.head is None:
            continue
        report.add(
            Severity.HARMLESS, below, f"{len(segment.records)} records of the push log: taken in by the next seals"
        )
    for key, left in sorted(find_left(offline.env.files, segments, unsealed).items()):
        if key not in offline.epochs:
            _left(offline, report, key, left)


def _left(offline: Offline, report: VerifyReport, key: EpochKey, left: Left) -> None:
    boot = next(iter(left.boots), b"")
    path = left.path or (left.pieces[0][0] if left.pieces else offline.root / names.LOG)
    below = str(path.relative_to(offline.root))
    try:
        if left.damage:
            raise CorruptError(left.damage)
        found = recover(offline.env.files, left, boot)
    except CorruptError as error:
        report.add(Severity.DAMAGE, below, f"unsealed epoch {key.epoch}: {error}", partition=key.partition)
        return
    report.batches += len(found.sizes) + len(found.extra)
    if left.path is not None and offline.env.files.stat(left.path).size > found.file_bytes:
        report.add(
            Severity.HARMLESS,
            below,
            "the end was cut short while it was written: never acknowledged",
            partition=key.partition,
            offset=found.file_bytes,
        )
