"""One fixed value of everything the storage puts on a disk; the golden files are made from these."""

from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.messages import Ack, FileTotals
from holdfast.common.ids import Epoch, Incarnation, PartitionId
from holdfast.common.statuses import Status
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index.index import epoch_items, file_items, protect
from holdfast.worker.storage.index.records import (
    ChunkRow,
    DataRecord,
    EpochRecord,
    FileHead,
    MapRecord,
    make_file,
    make_map_file,
)
from holdfast.worker.storage.index.region_chunks import RegionEntries, RegionFlag
from holdfast.worker.storage.layout import EpochKey, PackKey
from holdfast.worker.storage.log.log_records import RecordHead, SegmentHead, SegmentNote
from tests.support.map_data import file_key, shuffle_key

KEY = file_key(shuffle_key(bytes(range(16)), 3, 0xFEDC_BA98_7654_3210), map_id=5, attempt=0x0102030405060708, epoch=2)
IDENTITY = Identity(cluster_id="c1", worker_name="w1", worker_uid=bytes(range(16)), directory_id=bytes(range(16, 32)))
STARTS = Starts(Incarnation(7), bytes(range(32, 48)))


def map_file(partitions: int) -> tuple[MapRecord, bytes]:
    """Record and footer of a file: a broadcast region of 70 bytes, a region with `partitions` entries of ten bytes."""
    broadcast = RegionEntries.begin(0, 0, RegionFlag.BROADCAST)
    broadcast.add(0xFFFF_FFFF, 70, 2)
    region = RegionEntries.begin(1, 70, 0)
    for partition in range(partitions):
        region.add(3 * partition, 10, 1)
    totals = FileTotals(regions=2, batches=2 + partitions, size_bytes=70 + 10 * partitions, crc_sum=0xABCDEF)
    chunks = broadcast.chunks() + region.chunks()
    return make_map_file(KEY, totals, chunks, partitions=1_000, ack=Ack.WRITTEN, incarnation=Incarnation(7))


EPOCH = EpochKey(KEY.shuffle, PartitionId(9), Epoch(4))


def epoch(chunks: int, pack: int = 0, offset: int = 64) -> EpochRecord:
    """A sealed epoch of so many chunks of 1,000 bytes."""
    rows = tuple(ChunkRow(offset + 1_000 * n, 1_000, 2, n, n + 5) for n in range(chunks))
    return EpochRecord(
        status=Status.OK,
        ack=Ack.WRITTEN,
        incarnation=Incarnation(7),
        size_bytes=1_000 * chunks,
        offset=offset,
        crc_sum=0xABCDEF,
        batches=2 * chunks,
        pack=pack,
        chunks=rows,
    )


def pack_file(chunks: int) -> tuple[DataRecord, bytes]:
    """Record and footer of a pack file with one epoch."""
    return make_file(PackKey(KEY.shuffle, Incarnation(7), 3), ((EPOCH, epoch(chunks, 3, 0)),))


def reduce_golden() -> dict[str, bytes]:
    """Name and bytes of every golden file of REDUCE partitions."""
    boot = bytes(range(32, 48))
    segment = SegmentHead(Incarnation(7), 11, boot).encode()
    packed, footer = pack_file(1)
    record = RecordHead(KEY.shuffle, 5, 0x0102030405060708, 2, 300, 0xDEADBEEF, 0xCAFE, 11, Ack.SYNCED)
    return {
        "storage_epoch_items": b"".join(key + protect(key, value) for key, value in epoch_items(EPOCH, epoch(80))),
        "storage_file_items": b"".join(key + protect(key, value) for key, value in file_items(packed)),
        "storage_data_footer": footer,
        "storage_file_head": FileHead(EPOCH, Ack.SYNCED, Incarnation(7), boot).encode(),
        "storage_segment_head": segment + SegmentNote(0x01020304, 9, True, 0x0102_0300).encode(crc32c(segment)),
        "storage_log_record": record.encode(),
    }


def golden() -> dict[str, bytes]:
    """Name and bytes of every golden file."""
    inline = b"".join(key + protect(key, value) for key, value in file_items(map_file(2)[0]))
    long = b"".join(key + protect(key, value) for key, value in file_items(map_file(200)[0]))
    return reduce_golden() | {
        "storage_identity": IDENTITY.encode(),
        "storage_starts": STARTS.encode(),
        "storage_footer": map_file(2)[1],
        "storage_index_inline": inline,
        "storage_index_long": long,
    }
