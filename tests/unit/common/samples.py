"""One fixed value of everything that has bytes; the golden files are made from these."""

from holdfast.common import layouts, messages
from holdfast.common.batch import BatchWriter, Codec
from holdfast.common.checksum import partition_seed
from holdfast.common.frame import FrameType, encode_frame
from holdfast.common.ids import Instance, MapFileKey, ShuffleKey

SHUFFLE = ShuffleKey(Instance(bytes(range(16))), 7, 2)  # type: ignore[arg-type]
FILE = MapFileKey(SHUFFLE, 3, 0x0102030405060708, 1)  # type: ignore[arg-type]
PARTITION = 5
PAYLOADS = (b"alpha", b"beta", b"")
TOTALS = messages.FileTotals(regions=2, batches=40, size_bytes=1 << 33, crc_sum=(1 << 64) - 1)


def batches() -> bytes:
    """Three batches of one partition: plain, compressed and flagged MORE, LAST."""
    writer = BatchWriter(FILE.map, FILE.attempt, partition_seed(SHUFFLE, PARTITION))  # type: ignore[arg-type]
    first, second, third = PAYLOADS
    parts = [writer.header(first), first, writer.header(second, more=True, codec=Codec.LZ4), second]
    return b"".join([*parts, writer.header(third, last=True), third])


MESSAGES = {
    "hello": messages.Hello(raft_index=99, cluster_id="blue", token=b"t0k"),
    "hello_ok": messages.HelloOk(worker=4, incarnation=9),
    "map_open": messages.MapOpen(file=FILE, incarnation=9, partitions=64, ack=messages.Ack.SYNCED, raft_index=100),
    "map_opened": messages.MapOpened(12),
    "map_push": messages.MapPush(handle=12, region=1, flags=messages.PushFlag.END, runs=[(0, 100), (5, 200)]),
    "map_seal": messages.MapSeal(file=FILE, totals=TOTALS),
    "map_sealed": messages.MapSealed(totals=TOTALS, incarnation=9),
    "map_abort": messages.MapAbort(FILE),
    "stream_open": messages.StreamOpen(
        shuffle=SHUFFLE, begin=5, end=9, credit_bytes=1 << 20, files=[(3, 0x0102030405060708, 1), (4, 6, 0)]
    ),
    "stream_opened": messages.StreamOpened(stream=(9 << 32) | 17, total_bytes=1 << 34),
    "stream_credit": messages.StreamCredit(stream=(9 << 32) | 17, credit_bytes=1 << 20),
    "stream_data": messages.StreamData(
        stream=(9 << 32) | 17, sequence=3, file=1, region=0, flags=messages.DataFlag.END, runs=[(5, 1000)]
    ),
}

ASSIGNMENT = layouts.MapAssignment((4, 1, 9), copies=2)  # type: ignore[arg-type]
WINNERS = layouts.MapWinners(
    partitions=11,
    maps=(
        layouts.MapWinner(
            attempt=0x0102030405060708, epoch=1, workers=(4, 1), batches=40, size_bytes=1 << 33, partitions=b"\x21\x04"
        ),
        layouts.MapWinner(attempt=6, epoch=0, workers=(9,), batches=0, size_bytes=0, partitions=b"\x00\x00"),
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
