"""Reads MAP partitions of a committed shuffle, and believes nothing unchecked.

Rules: a record is handed on only after its checksum was right and its number was due; the iteration ends only when
every file was seen to its end. How streams are opened, and opened again, is stream_reader.py's. Called through
MapShuffle.reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.client.compress import Buffer, PayloadError, decompress, kind_of
from holdfast.client.core.read.check import FileCheck, IncompleteError, writes_to
from holdfast.client.core.read.fetch import RETURN_GRACE_NS, Effect, Fetch, Source
from holdfast.client.read.shared_read_state import OneReadState, read_state_of
from holdfast.client.read.stream_reader import Reading, Record, Sink, StreamReader
from holdfast.common.errors import CorruptError
from holdfast.common.formats.batch import MORE, Batch, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.layouts import MapWinner
from holdfast.common.formats.messages import StreamData, StreamOpen
from holdfast.common.ids import MapId, PartitionId
from holdfast.common.limits import RECORD_BYTES_MAX
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.client import ClientStream, FrameClient

if TYPE_CHECKING:
    from holdfast.client.generation import ClientShuffle
    from holdfast.client.read.manifests import Manifest


class _Data(NamedTuple):
    stream: int
    file: int
    region: int
    batches: list[tuple[int, bytes | memoryview]]
    size: int


class _Stream(Sink):
    def data(self, data: StreamData, body: Body | None) -> None:
        """Take the next frame."""
        self.take(data.file, data.flags, body, lambda view: self._cut(data, view))

    def _cut(self, data: StreamData, view: memoryview) -> _Data:
        batches: list[tuple[int, bytes | memoryview]] = []
        at = 0
        for partition, size in data.runs:
            if at + size > len(view):
                raise CorruptError("a frame's runs are longer than its body")
            whole = self.assembler.feed((data.file, data.region, partition), view[at : at + size])
            batches += [(partition, buffer) for buffer in whole]
            at += size
        return _Data(self.number, data.file, data.region, batches, len(view))


@dataclass(slots=True)
class _File:
    check: FileCheck
    #: what is there of a record whose last batch is still to come, by partition
    begun: dict[int, bytearray] = field(default_factory=dict)


class RangeReader(StreamReader[MapId, _Data]):
    """Reads partitions [begin, end) of the winners; iterate once. One thread at a time."""

    _SINK = _Stream

    def __init__(
        self,
        shuffle: ClientShuffle[Manifest],
        manifest: Manifest,
        begin: PartitionId,
        end: PartitionId,
        maps: Iterable[MapId] | None = None,
        return_grace: float = RETURN_GRACE_NS / 1e9,
    ) -> None:
        """`maps`: only these, whether they wrote to the range or not; by default all that did."""
        self._begin = begin
        self._end = end
        winners = manifest.winners.maps
        if maps is None:
            maps = [MapId(index) for index, winner in enumerate(winners) if writes_to(winner, begin, end)]
        self._winners: dict[MapId, MapWinner] = {map_id: winners[map_id] for map_id in maps}
        self._files: dict[MapId, _File] = {}
        read_state = read_state_of(shuffle.ticket)
        core = Fetch(
            {map_id: _source(map_id, winner) for map_id, winner in self._winners.items()},
            where=_range_name(shuffle, begin, end),
            order=OneReadState(read_state),
            grace_ns=int(return_grace * 1e9),
        )
        super().__init__(shuffle, core, manifest, read_state)

    async def _request(self, client: FrameClient, reading: Reading[MapId]) -> ClientStream:
        files: list[tuple[int, int, int]] = [
            (map_id, self._winners[map_id].attempt, self._winners[map_id].epoch) for map_id in reading.files
        ]
        request = StreamOpen(
            shuffle=self._shuffle.key,
            begin=self._begin,
            end=self._end,
            credit_bytes=self._credit_bytes,
            files=files,
        )
        assert isinstance(reading.sink, _Stream)
        return await client.open_stream(request, reading.sink)

    def _records(self, reading: Reading[MapId], piece: _Data) -> Iterator[Record]:
        partition, more = -1, False
        try:
            file = self._file(reading.files[piece.file])
            for partition, data in piece.batches:
                seed = partition_seed(self._shuffle.key, PartitionId(partition))
                for batch in parse_batches(memoryview(data), seed):
                    if file.check.admit(partition, batch):
                        more = True
                        yield from _records(file, partition, batch)
        except (CorruptError, IncompleteError) as error:
            where = f"partition {partition} region {piece.region} from worker {reading.worker}"
            raise kind_of(error)(f"{where}: {error}") from error
        if more:
            self._do(self._core.progressed(piece.stream))

    def _finish(self, stream: int, reading: Reading[MapId], key: MapId) -> list[Effect[MapId]]:
        self._file(key).check.finish()
        self._files.pop(key)
        return self._core.file_complete(stream, key)

    def _file(self, map_id: MapId) -> _File:
        file = self._files.get(map_id)
        if file is None:
            check = FileCheck(map_id, self._winners[map_id], self._begin, self._end)
            file = self._files[map_id] = _File(check)
        return file


def _source(map_id: MapId, winner: MapWinner) -> Source:
    return Source(winner.workers, f"map {map_id} attempt {winner.attempt} epoch {winner.epoch}")


def _records(file: _File, partition: int, batch: Batch) -> Iterator[Record]:
    """Yield the record that the batch completes, if it does."""
    if batch.flags & MORE:
        _join(file.begun.setdefault(partition, bytearray()), batch.payload)
        return
    payload: Buffer = batch.payload
    if partition in file.begun:
        payload = _join(file.begun.pop(partition), payload)
    if len(payload):
        yield Record(PartitionId(partition), file.check.map, decompress(batch.codec, payload))


def _join(begun: bytearray, piece: Buffer) -> bytearray:
    """Add a piece of a record to what is there of it."""
    if len(begun) + len(piece) > RECORD_BYTES_MAX:
        raise PayloadError(f"a record of more than {RECORD_BYTES_MAX} bytes")
    begun += piece
    return begun


def _range_name(shuffle: ClientShuffle[Manifest], begin: int, end: int) -> str:
    partitions = f"partition {begin}" if end - begin == 1 else f"partitions {begin} to {end - 1}"
    return f"shuffle {shuffle.key}, {partitions}"


def read_partitions(
    shuffle: ClientShuffle[Manifest], manifest: Manifest, partitions: Iterable[int], return_grace: float
) -> Iterator[Record]:
    """Yield the records of these partitions, contiguous ones together, in the order given."""
    for begin, end in ranges(partitions):
        if not 0 <= begin < end <= shuffle.partitions:
            raise ValueError(f"partitions {begin} to {end - 1} of a shuffle with {shuffle.partitions}")
        yield from RangeReader(shuffle, manifest, PartitionId(begin), PartitionId(end), return_grace=return_grace)


def ranges(partitions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield [begin, end) for each run of consecutive numbers."""
    begin = end = None
    for partition in partitions:
        if end is None or partition != end:
            if begin is not None and end is not None:
                yield begin, end
            begin = partition
        end = partition + 1
    if begin is not None and end is not None:
        yield begin, end
