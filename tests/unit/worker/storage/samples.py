"""One fixed value of everything the storage puts on a disk; the golden files are made from these."""

from holdfast.common.ids import Incarnation
from holdfast.common.messages import Ack, FileTotals
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index import file_items, protect
from holdfast.worker.storage.records import FileRecord, RegionEntries, RegionFlag, encode_footer, make_record
from tests.support.map_data import file_key, shuffle_key

KEY = file_key(shuffle_key(bytes(range(16)), 3), map_id=5, attempt=0x0102030405060708, epoch=2)
IDENTITY = Identity(cluster_id="c1", worker_name="w1", worker_uid=bytes(range(16)), directory_id=bytes(range(16, 32)))
STARTS = Starts(Incarnation(7), bytes(range(32, 48)))


def record(partitions: int) -> FileRecord:
    """A file with a broadcast region of 70 bytes and a region with `partitions` entries of ten bytes each."""
    broadcast = RegionEntries.begin(0, 0, RegionFlag.BROADCAST)
    broadcast.add(0xFFFF_FFFF, 70, 2)
    region = RegionEntries.begin(1, 70, 0)
    for partition in range(partitions):
        region.add(3 * partition, 10, 1)
    totals = FileTotals(regions=2, batches=2 + partitions, size_bytes=70 + 10 * partitions, crc_sum=0xABCDEF)
    chunks = broadcast.chunks() + region.chunks()
    return make_record(KEY, totals, chunks, partitions=1_000, ack=Ack.WRITTEN, incarnation=Incarnation(7))


def golden() -> dict[str, bytes]:
    """Name and bytes of every golden file."""
    inline = b"".join(key + protect(key, value) for key, value in file_items(record(2)))
    long = b"".join(key + protect(key, value) for key, value in file_items(record(200)))
    return {
        "storage_identity": IDENTITY.encode(),
        "storage_starts": STARTS.encode(),
        "storage_footer": encode_footer(record(2)),
        "storage_index_inline": inline,
        "storage_index_long": long,
    }
