"""Reads pushed partitions of a committed shuffle: carries out what read/chunk_fetch.py decides, and believes nothing.

Rules: one stream per worker for all partitions wanted. A record is handed on after its checksum was right, once; the
iteration ends only when every partition was whole. How streams are opened, and opened again, is stream_reader.py's.
Called through ReduceShuffle.reader.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.client.compress import decompress, kind_of
from holdfast.client.core.read.check import IncompleteError
from holdfast.client.core.read.chunk_fetch import ChunkFetch, EpochKey, Holders
from holdfast.client.core.read.fetch import Effect
from holdfast.client.read.shared_read_state import OneReadState, read_state_of
from holdfast.client.read.stream_reader import Reading, Record, Sink, StreamReader
from holdfast.common.errors import CorruptError, ProtocolError
from holdfast.common.formats.batch import MORE, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.reduce_messages import ChunkFlag, ChunksData, ChunksOpen, ChunksOpened
from holdfast.common.ids import PartitionId
from holdfast.common.limits import U32_MAX
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.client import ClientStream, FrameClient
from holdfast.common.statuses import Status

if TYPE_CHECKING:
    from holdfast.client.generation import ClientShuffle
    from holdfast.client.read.manifests import PushManifest

#: Between the first two asks for a newer manifest.
_PAUSE_SECONDS = 1.0


class _Data(NamedTuple):
    stream: int
    file: int
    chunk: int
    #: of the whole chunk, with its last piece
    chunk_bytes: int | None
    batches: list[bytes | memoryview]
    size: int


class _Stream(Sink):
    #: of the chunk that is coming
    _chunk_bytes = 0

    def data(self, data: ChunksData, body: Body | None) -> None:
        """Take the next frame."""
        ends = bool(data.flags & ChunkFlag.END_OF_CHUNK)
        self.take(data.file, data.flags, body, lambda view: self._cut(data, view), empty=ends)

    def _cut(self, data: ChunksData, view: memoryview) -> _Data:
        whole = self.assembler.feed((data.file, data.chunk, 0), view)
        self._chunk_bytes += len(view)
        chunk_bytes = None
        if data.flags & ChunkFlag.END_OF_CHUNK:
            self.assembler.end()
            chunk_bytes, self._chunk_bytes = self._chunk_bytes, 0
        return _Data(self.number, data.file, data.chunk, chunk_bytes, whole, len(view))


class PartitionReader(StreamReader[EpochKey, _Data]):
    """Reads pushed partitions; iterate once. One thread at a time."""

    _SINK = _Stream

    def __init__(
        self,
        shuffle: ClientShuffle[PushManifest],
        manifest: PushManifest,
        partitions: Iterable[PartitionId],
        maps: range | None,
        return_grace: float,
    ) -> None:
        read_state = read_state_of(shuffle.ticket)
        self._chunks = ChunkFetch(
            manifest.epochs,
            manifest.winners,
            partitions,
            where=f"shuffle {shuffle.key}",
            grace_ns=int(return_grace * 1e9),
            maps=maps,
            order=OneReadState(read_state),
        )
        self._maps = maps
        #: a manifest may be large, and many may read: one that said nothing new is asked for again later and later
        self._ask_again_s, self._pause_s = 0.0, _PAUSE_SECONDS
        super().__init__(shuffle, self._chunks.fetch, manifest, read_state)

    @property
    def duplicates(self) -> int:
        """Batches that came more than once so far, resent or read from both copies, and were dropped."""
        return self._chunks.duplicates

    def _first(self) -> list[Effect[EpochKey]]:
        return self._chunks.started()

    def _holders(self) -> Holders:
        return self._chunks.holders() if time.monotonic() >= self._ask_again_s else Holders()

    def _learn(self, newer: PushManifest) -> None:
        self._ask_again_s, self._pause_s = time.monotonic() + self._pause_s, 2 * self._pause_s
        self._chunks.learn(newer.epochs)

    async def _request(self, client: FrameClient, reading: Reading[EpochKey]) -> ClientStream:
        files: list[tuple[int, int, int]] = [
            (*key, self._chunks.first_chunk(key, reading.worker)) for key in reading.files
        ]
        maps = range(U32_MAX) if self._maps is None else self._maps
        request = ChunksOpen(
            shuffle=self._shuffle.key,
            map_begin=maps.start,
            map_end=maps.stop,
            credit_bytes=self._credit_bytes,
            files=files,
        )
        assert isinstance(reading.sink, _Stream)
        opened = await client.open_chunks(request, reading.sink)
        if not isinstance(opened.opened, ChunksOpened) or len(opened.opened.chunks) != len(files):
            opened.close()
            raise ProtocolError(f"worker {reading.worker} answers about other files than were asked for")
        return opened

    def _records(self, reading: Reading[EpochKey], piece: _Data) -> Iterator[Record]:
        key = reading.files[piece.file]
        partition = key[0]
        seed = partition_seed(self._shuffle.key, partition)
        more = piece.chunk_bytes is not None
        try:
            self._chunks.chunk_came(key, reading.worker, piece.chunk)
            for data in piece.batches:
                for batch in parse_batches(memoryview(data), seed):
                    if not self._chunks.admit(partition, batch):
                        continue
                    more = True
                    if batch.flags & MORE:
                        raise ProtocolError(_MORE.format(self._shuffle.key, partition), status=Status.BAD_VERSION)
                    if len(batch.payload):
                        yield Record(partition, batch.map, decompress(batch.codec, batch.payload))
            self._chunks.chunk_came(key, reading.worker, piece.chunk, size=piece.chunk_bytes)
        except (CorruptError, IncompleteError) as error:
            raise kind_of(error)(f"chunk {piece.chunk} from worker {reading.worker}: {error}") from error
        if more:
            self._do(self._core.progressed(piece.stream))

    def _finish(self, stream: int, reading: Reading[EpochKey], key: EpochKey) -> list[Effect[EpochKey]]:
        assert isinstance(reading.opened, ChunksOpened), "pieces arrive after the answer"
        self._chunks.file_sent(key, reading.worker, reading.opened.chunks[reading.file])
        return self._chunks.epoch_complete(stream, key, reading.worker)


_MORE = "shuffle {} partition {}: a record of several batches, which this reader does not put together"
