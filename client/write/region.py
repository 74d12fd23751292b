"""Turns sorted payloads into batches, and batches into frames.

Rules: one payload is one record of the reader's; longer ones than a batch holds go as several batches flagged MORE.
Data beyond the size of a region continues in the next one, also in the middle of a record.
The writer finds only at its end which batch of a partition was the last, so LAST is set on the batches of the
final region, and partitions that are not in it get an empty LAST there: a map of one region pays nothing for it. An
empty payload is no record. No I/O here. Called by writer.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast.client.compress import Buffer, Compression
from holdfast.client.write.batches import AttemptBatches
from holdfast.common.formats.batch import HEADER_BYTES, PAYLOAD_BYTES_MAX, TOTALS, BatchWriter, Codec
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import FileTotals, PushFlag
from holdfast.common.ids import BROADCAST_PARTITION, AttemptId, MapId, ShuffleKey
from holdfast.common.limits import FRAME_RUNS_MAX, MIB, RECORD_BYTES_MAX, REGION_BYTES_MAX

#: A frame is sent when it holds this much; a lone batch may make it larger.
FRAME_BYTES = 1 * MIB
#: Frames of more pieces than this are joined: many small buffers cost more than one copy.
PIECES_MAX = 64
#: What a LAST batch's totals take away from its payload.
_PIECE_BYTES_MAX = PAYLOAD_BYTES_MAX - TOTALS.size


@dataclass(slots=True)
class MapPushFrame:
    """One MAP_PUSH in the making; `pieces` back to back are its body."""

    region: int
    flags: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)
    pieces: list[Buffer] = field(default_factory=list)
    size: int = 0

    def add(self, partition: int, pieces: tuple[Buffer, ...]) -> None:
        """Append a batch, lengthening the run of its partition."""
        size = sum(map(len, pieces))
        if self.runs and self.runs[-1][0] == partition:
            self.runs[-1] = (partition, self.runs[-1][1] + size)
        else:
            self.runs.append((partition, size))
        self.pieces += pieces
        self.size += size

    def done(self) -> MapPushFrame:
        """Return the frame, its pieces joined if they are many."""
        if len(self.pieces) > PIECES_MAX:
            self.pieces = [b"".join(self.pieces)]
        return self


class MapRegions(AttemptBatches):
    """The batches of one map attempt, over all its regions. Not thread-safe."""

    def __init__(
        self, shuffle: ShuffleKey, map_id: MapId, attempt: AttemptId, partitions: int, compression: Compression
    ) -> None:
        super().__init__(shuffle, map_id, attempt, partitions, compression)
        #: partitions that have batches and no LAST yet
        self._open: set[int] = set()
        self._broadcast: BatchWriter | None = None
        self._regions = 0
        self._bytes = 0

    def region(self, parts: Iterable[tuple[int, Buffer]], *, final: bool = False) -> Iterator[MapPushFrame]:
        """Yield the frames of the next region, or of several where one of REGION_BYTES_MAX does not hold it all.

        `parts` ascend by partition; equal ones may follow one another. With `final`, partitions end here and nothing
        may follow. Raises ValueError for wrong order, an unknown partition or a payload above RECORD_BYTES_MAX.
        """
        yield from self._cut(self._final_batches(parts) if final else self._batches(parts), 0)

    def broadcast(self, payloads: Iterable[Buffer]) -> Iterator[MapPushFrame]:
        """Yield the frames of a region that belongs to every partition; a map has one at most."""
        if self._broadcast is not None:
            raise ValueError("a map has one broadcast region at most")
        self._broadcast = BatchWriter(self._map, self._attempt, partition_seed(self._shuffle, BROADCAST_PARTITION))
        listed = list(payloads)
        yield from self._cut(self._broadcast_batches(self._broadcast, listed), PushFlag.BROADCAST)

    def totals(self) -> FileTotals:
        """What the file holds so far."""
        writers = [*self._writers.values()] + ([self._broadcast] if self._broadcast else [])
        crc_sum = sum(writer.crc_sum for writer in writers) & 0xFFFF_FFFF_FFFF_FFFF
        batches = sum(writer.batches for writer in writers)
        return FileTotals(regions=self._regions, batches=batches, size_bytes=self._bytes, crc_sum=crc_sum)

    def _cut(self, batches: Iterable[tuple[int, tuple[Buffer, ...]]], flags: int) -> Iterator[MapPushFrame]:
        """Cut batches into frames; the last one of a region has END. An empty region is no region."""
        frame = MapPushFrame(self._regions, flags)
        total = 0
        for partition, pieces in batches:
            size = sum(map(len, pieces))
            if total + size > REGION_BYTES_MAX:
                if flags & PushFlag.BROADCAST:
                    raise ValueError(f"a broadcast region holds at most {REGION_BYTES_MAX} bytes")
                yield self._end_region(frame, total)
                frame, total = MapPushFrame(self._regions, flags), 0
            elif frame.runs and (frame.size + size > FRAME_BYTES or len(frame.runs) == FRAME_RUNS_MAX):
                yield frame.done()
                frame = MapPushFrame(self._regions, flags)
            frame.add(partition, pieces)
            total += size
        if frame.runs:
            yield self._end_region(frame, total)

    def _end_region(self, frame: MapPushFrame, total: int) -> MapPushFrame:
        frame.flags |= PushFlag.END
        self._regions += 1
        self._bytes += total
        return frame.done()

    def _batches(self, parts: Iterable[tuple[int, Buffer]]) -> Iterator[tuple[int, tuple[Buffer, ...]]]:
        before = 0
        for partition, payload in parts:
            self._check_order(before, partition)
            before = partition
            self._open.add(partition)
            yield from self._record(partition, self._writer(partition), payload, last=False)

    def _final_batches(self, parts: Iterable[tuple[int, Buffer]]) -> Iterator[tuple[int, tuple[Buffer, ...]]]:
        """The same one payload later, so that the last of a partition is known when it is sent."""
        held: tuple[int, Buffer] | None = None
        for part in self._with_absent(parts):
            self._check_order(held[0] if held else 0, part[0])
            if held is not None:
                yield from self._record(held[0], self._writer(held[0]), held[1], last=part[0] != held[0])
            held = part
        if held is not None:
            yield from self._record(held[0], self._writer(held[0]), held[1], last=True)
        self._open.clear()

    def _with_absent(self, parts: Iterable[tuple[int, Buffer]]) -> Iterator[tuple[int, Buffer]]:
        """Put an empty payload where a partition of an earlier region is not in this one."""
        absent = deque(sorted(self._open))
        for part in parts:
            while absent and absent[0] < part[0]:
                yield absent.popleft(), b""
            if absent and absent[0] == part[0]:
                absent.popleft()
            yield part
        for partition in absent:
            yield partition, b""

    def _broadcast_batches(
        self, writer: BatchWriter, payloads: list[Buffer]
    ) -> Iterator[tuple[int, tuple[Buffer, ...]]]:
        for index, payload in enumerate(payloads):
            yield from self._record(BROADCAST_PARTITION, writer, payload, last=index == len(payloads) - 1)

    def _record(
        self, partition: int, writer: BatchWriter, payload: Buffer, *, last: bool
    ) -> Iterator[tuple[int, tuple[Buffer, ...]]]:
        """Yield the batches of one payload: one, unless it is too long for that."""
        if isinstance(payload, memoryview) and payload.itemsize != 1:
            payload = payload.cast("B")
        if len(payload) > RECORD_BYTES_MAX:
            raise ValueError(f"a payload has at most {RECORD_BYTES_MAX} bytes, not {len(payload)}")
        codec, sent = self._compressor.compress(partition, payload)
        if len(sent) <= _PIECE_BYTES_MAX:
            yield partition, _whole(writer, sent, last=last, more=False, codec=codec)
            return
        view = memoryview(sent)
        for start in range(0, len(view), _PIECE_BYTES_MAX):
            piece = view[start : start + _PIECE_BYTES_MAX]
            more = start + len(piece) < len(view)
            yield partition, _whole(writer, piece, last=last and not more, more=more, codec=codec)

    def _check_order(self, before: int, partition: int) -> None:
        if partition < before:
            raise ValueError(f"partitions ascend within a region: {partition} came after {before}")
        if partition >= self._partitions:
            raise ValueError(f"partition {partition} of a shuffle with {self._partitions}")


def _whole(writer: BatchWriter, payload: Buffer, *, last: bool, more: bool, codec: Codec) -> tuple[Buffer, ...]:
    head = writer.header(payload, last=last, more=more, codec=codec)
    assert len(head) >= HEADER_BYTES
    return (head, payload) if len(payload) else (head,)
