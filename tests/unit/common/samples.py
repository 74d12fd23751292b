"""One fixed value of everything that has bytes; the golden files are made from these."""

from typing import Any

from holdfast.common import layouts, messages
from holdfast.common.batch import BatchWriter, Codec
from holdfast.common.checksum import partition_seed
from holdfast.common.frame import FrameType, encode_frame
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
    WorkerId,
)

SHUFFLE = ShuffleKey(Instance(bytes(range(16))), ShuffleId(7), Generation(2))
FILE = MapFileKey(SHUFFLE, MapId(3), AttemptId(0x0102030405060708), Epoch(1))
PARTITION = PartitionId(5)
PAYLOADS = (b"alpha", b"beta", b"")
TOTALS = messages.FileTotals(regions=2, batches=40, size_bytes=1 << 33, crc_sum=(1 << 64) - 1)


def batches() -> bytes:
    """Three batches of one partition: plain, compressed and flagged MORE, LAST."""
    writer = BatchWriter(FILE.map, FILE.attempt, partition_seed(SHUFFLE, PARTITION))
    first, second, third = PAYLOADS
    parts = [writer.header(first), first, writer.header(second, more=True, codec=Codec.LZ4), second]
    return b"".join([*parts, writer.header(third, last=True), third])


MESSAGES: dict[str, Any] = {
    "hello": messages.Hello(raft_index=RaftIndex(99), cluster_id="blue", token=b"t0k"),
    "hello_ok": messages.HelloOk(worker=WorkerId(4), incarnation=Incarnation(9)),
    "map_open": messages.MapOpen(
        file=FILE, incarnation=Incarnation(9), partitions=64, ack=messages.Ack.SYNCED, raft_index=RaftIndex(100)
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


def golden() -> dict[str, bytes]:
    """Name and bytes of every golden file made here. Of deflated arrays only the head: zlib versions may differ."""
    files = {f"message_{name}": message.encode() for name, message in MESSAGES.items()}
    files["batches"] = batches()
    body = batches()
    push = messages.MapPush(handle=12, region=0, flags=0, runs=[(PARTITION, len(body))])
    files["frame_map_push"] = encode_frame(FrameType.MAP_PUSH, 77, push.encode(), len(body)) + body
    files["frame_refusal"] = encode_frame(FrameType.MAP_OPEN, 78, b"sealed", response=True, status=12)
    files["array_map_assignment"] = ASSIGNMENT.encode()
    files["array_map_winners_head"] = WINNERS.encode()[:20]
    return files
