"""One fixed value of everything that has bytes; the golden files are made from these."""

import zlib
from typing import Any

from holdfast.common.formats import layouts, messages, reduce_layouts, reduce_messages
from holdfast.common.formats.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from holdfast.common.formats.batch import BatchWriter, Codec
from holdfast.common.formats.checksum import crc32c, partition_seed
from holdfast.common.formats.frame import FrameType, encode_frame
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Generation,
    Incarnation,
    Instance,
    MapFileKey,
    MapId,
    PartitionId,
    RaftIndex,
    ShuffleId,
    ShuffleKey,
    StateId,
    WorkerId,
)
from holdfast.common.statuses import Status
from tests.support.row_planes import planes, row

SHUFFLE = ShuffleKey(Instance(bytes(range(16))), ShuffleId(7), Generation(2), StateId(0xFEDC_BA98_7654_3210))
FILE = MapFileKey(SHUFFLE, MapId(3), AttemptId(0x0102030405060708), Epoch(1))
PARTITION = PartitionId(5)
PAYLOADS = (b"alpha", b"beta", b"")
#: Rows of two fields: a number, and a text that some do not have.
ROWS = [row(3, b"8 bytes." * (each % 3)) for each in range(75)]
TOTALS = messages.FileTotals(regions=2, batches=40, size_bytes=1 << 33, crc_sum=(1 << 64) - 1)


def batches() -> bytes:
    """Three batches of one partition: plain, compressed and flagged MORE, LAST."""
    writer = BatchWriter(FILE.map, FILE.attempt, partition_seed(SHUFFLE, PARTITION))
    first, second, third = PAYLOADS
    parts = [writer.header(first), first, writer.header(second, more=True, codec=Codec.LZ4), second]
    return b"".join([*parts, writer.header(third, last=True), third])


MESSAGES: dict[str, Any] = {
    "hello": messages.Hello(raft_index=RaftIndex(99), cluster_id="blue", token=b"t0k"),
    "hello_ok": messages.HelloOk(worker=WorkerId(4), incarnation=Incarnation(9), uid=bytes(range(16, 32))),
    "map_open": messages.MapOpen(
        file=FILE,
        incarnation=Incarnation(9),
        partitions=64,
        copies=3,
        ack=messages.Ack.SYNCED,
        raft_index=RaftIndex(100),
    ),
    "map_opened": messages.MapOpened(12),
    "map_push": messages.MapPush(handle=12, region=1, flags=messages.PushFlag.END, runs=[(0, 100), (5, 200)]),
    "map_seal": messages.MapSeal(file=FILE, totals=TOTALS),
    "map_sealed": messages.MapSealed(totals=TOTALS, incarnation=Incarnation(9)),
    "map_abort": messages.MapAbort(FILE),
    "stream_open": messages.StreamOpen(
        shuffle=SHUFFLE,
        begin=PartitionId(5),
        end=PartitionId(9),
        credit_bytes=1 << 20,
        files=[(3, 0x0102030405060708, 1), (4, 6, 0)],
    ),
    "stream_opened": messages.StreamOpened(stream=(9 << 32) | 17, total_bytes=1 << 34),
    "stream_credit": messages.StreamCredit(stream=(9 << 32) | 17, credit_bytes=1 << 20),
    "stream_data": messages.StreamData(
        stream=(9 << 32) | 17, sequence=3, file=1, region=0, flags=messages.DataFlag.END, runs=[(5, 1000)]
    ),
}

REDUCE_MESSAGES: dict[str, Any] = {
    "push": reduce_messages.Push(
        shuffle=SHUFFLE,
        incarnation=Incarnation(9),
        ack=messages.Ack.WRITTEN,
        map=FILE.map,
        attempt=FILE.attempt,
        body_crc=0x89ABCDEF,
        raft_index=RaftIndex(100),
        replicas=(
            reduce_messages.ReplicaPlace(WorkerId(5), Incarnation(2), "127.0.0.1:7001"),
            reduce_messages.ReplicaPlace(WorkerId(6), Incarnation(1), "127.0.0.2:7001"),
        ),
        ack_copies=2,
        entries=[
            reduce_messages.PushEntry(PARTITION, Epoch(1), 0, 33),
            reduce_messages.PushEntry(PartitionId(9), Epoch(0), 4, 200, 3),
        ],
    ),
    "push_answer": reduce_messages.PushAnswer(1 << 22, 2, 1, [(0, Status.SOFT_SPLIT), (7, Status.REPLICA_FAILED)]),
    "push_settle": reduce_messages.PushSettle(
        shuffle=SHUFFLE, incarnation=Incarnation(9), map=FILE.map, attempt=FILE.attempt, epochs=[(5, 0), (9, 2)]
    ),
    "push_settled": reduce_messages.PushSettled(
        [reduce_messages.IncompleteCopy(PartitionId(9), Epoch(2), WorkerId(6))]
    ),
    "push_credit": reduce_messages.PushCredit(1 << 22),
    "seal": reduce_messages.Seal(
        shuffle=SHUFFLE, flags=reduce_messages.SealFlag.FINAL, raft_index=RaftIndex(100), epochs=[(5, 0), (5, 1)]
    ),
    "seal_answer": reduce_messages.SealAnswer(
        [
            reduce_messages.SealedEpoch(PARTITION, Epoch(0), Status.OK, 1 << 33, 40, 1025, (1 << 64) - 1),
            reduce_messages.SealedEpoch(PARTITION, Epoch(1), Status.UNKNOWN_FILE),
        ]
    ),
    "registered": reduce_messages.Registered(SHUFFLE, [(WorkerId(5), "127.0.0.1:7001"), (WorkerId(9), "h9:7001")]),
    "restore": reduce_messages.Restore(
        shuffle=SHUFFLE,
        ack=messages.Ack.WRITTEN,
        raft_index=RaftIndex(100),
        bytes_per_second=64 << 20,
        source=reduce_messages.ReplicaPlace(WorkerId(5), Incarnation(3), "127.0.0.1:7001"),
        epochs=[(5, 0, 1 << 33), (5, 1, 40)],
    ),
    "chunks_open": reduce_messages.ChunksOpen(
        shuffle=SHUFFLE, map_begin=2, map_end=8, credit_bytes=1 << 20, files=[(5, 0, 3), (5, 1, 0)]
    ),
    "chunks_opened": reduce_messages.ChunksOpened(stream=(9 << 32) | 17, total_bytes=1 << 34, chunks=[1025, 1]),
    "chunks_data": reduce_messages.ChunksData(
        stream=(9 << 32) | 17, sequence=3, file=1, chunk=2, flags=reduce_messages.ChunkFlag.END_OF_CHUNK, left_bytes=70
    ),
}
MESSAGES.update(REDUCE_MESSAGES)
#: A push as a replica gets it: it says of which user the application is.
REPLICATE = reduce_messages.Push(
    shuffle=SHUFFLE,
    incarnation=Incarnation(9),
    ack=messages.Ack.WRITTEN,
    map=FILE.map,
    attempt=FILE.attempt,
    body_crc=0x89ABCDEF,
    of_user=bytes.fromhex("1e53b3964f6292f7"),
    entries=[reduce_messages.PushEntry(PARTITION, Epoch(1), 0, 33)],
)

ASSIGNMENT = layouts.MapAssignment((WorkerId(4), WorkerId(1), WorkerId(9)), copies=2)
WINNERS = layouts.MapWinners(
    partitions=11,
    maps=(
        layouts.MapWinner(
            attempt=AttemptId(0x0102030405060708),
            epoch=Epoch(1),
            workers=(WorkerId(4), WorkerId(1)),
            batches=40,
            size_bytes=1 << 33,
            partitions=b"\x21\x04",
        ),
        layouts.MapWinner(
            attempt=AttemptId(6),
            epoch=Epoch(0),
            workers=(WorkerId(9),),
            batches=0,
            size_bytes=0,
            partitions=b"\x00\x00",
        ),
    ),
)
LOCATIONS = reduce_layouts.ReduceLocations(
    (
        reduce_layouts.Location(Epoch(0), (WorkerId(4),)),
        reduce_layouts.Location(Epoch(2), (WorkerId(1), WorkerId(4), WorkerId(9)), 7),
    )
)
REDUCE_WINNERS = reduce_layouts.ReduceWinners(
    partitions=11,
    attempts=(FILE.attempt, reduce_layouts.NO_ATTEMPT),
    bitmaps=(b"\x21\x04", b"\x00\x00"),
)
MANIFEST = reduce_layouts.ReduceManifest(
    partitions=11,
    epochs=(
        reduce_layouts.EpochResult(
            PARTITION,
            Epoch(0),
            (
                reduce_layouts.CopyResult(WorkerId(4), Status.FAILED_COPY, 0),
                reduce_layouts.CopyResult(WorkerId(1), Status.OK, 1 << 33),
                reduce_layouts.CopyResult(WorkerId(7), Status.UNAVAILABLE, 0),
            ),
        ),
        reduce_layouts.EpochResult(
            PARTITION,
            Epoch(1),
            (reduce_layouts.CopyResult(WorkerId(4), Status.UNKNOWN_FILE, 0),),
        ),
    ),
)
#: Every array that is deflated, by the name of its golden file.
ARRAYS: dict[str, Any] = {
    "map_winners": WINNERS,
    "reduce_locations": LOCATIONS,
    "reduce_winners": REDUCE_WINNERS,
    "reduce_manifest": MANIFEST,
}


def reduce_push_frame() -> bytes:
    """A whole PUSH of the three batches above, with the checksum of its body."""
    body = batches()
    sizes = [BATCH_HEADER_BYTES + len(PAYLOADS[0]), BATCH_HEADER_BYTES + len(PAYLOADS[1])]
    entries = [
        reduce_messages.PushEntry(PARTITION, Epoch(1), number, size)
        for number, size in enumerate([*sizes, len(body) - sum(sizes)])
    ]
    push = reduce_messages.Push(
        shuffle=SHUFFLE,
        incarnation=Incarnation(9),
        ack=messages.Ack.WRITTEN,
        map=FILE.map,
        attempt=FILE.attempt,
        body_crc=crc32c(body),
        entries=entries,
    )
    return encode_frame(FrameType.PUSH, 79, push.encode(), len(body)) + body


def golden() -> dict[str, bytes]:
    """Name and bytes of every golden file made here. Of deflated arrays the head, and the rows as they are
    before: versions of zlib may differ."""
    files = {f"message_{name}": message.encode() for name, message in MESSAGES.items()}
    files["message_replicate"] = REPLICATE.encode()
    files["batches"] = batches()
    files["rows"] = b"".join(ROWS)
    files["rows_planes"] = planes(ROWS, 3)
    body = batches()
    push = messages.MapPush(handle=12, region=0, flags=0, runs=[(PARTITION, len(body))])
    files["frame_map_push"] = encode_frame(FrameType.MAP_PUSH, 77, push.encode(), len(body)) + body
    files["frame_refusal"] = encode_frame(FrameType.MAP_OPEN, 78, b"sealed", response=True, status=12)
    files["array_map_assignment"] = ASSIGNMENT.encode()
    files["frame_push"] = reduce_push_frame()
    for name, array in ARRAYS.items():
        files[f"array_{name}_head"] = array.encode()[:20]
        if name != "map_winners":
            files[f"array_{name}_rows"] = zlib.decompress(array.encode()[20:])
    return files
