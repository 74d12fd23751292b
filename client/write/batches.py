"""Turns the payloads of a map attempt into the batches of its pushes.

Rules: one payload is one record and one batch; an empty payload is no record. Which batch of a partition is its last is
known only at the end, so the newest small payload of every partition is held back, as long as they are few, and gets
LAST then; a partition whose newest batch was sent already gets an empty LAST. No I/O here. Called by push_writer.py and
region.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.client.checks import payload_view, whole
from holdfast.client.compress import Buffer, Compression, Compressor
from holdfast.common.errors import ConfigError, GiveUpError
from holdfast.common.formats.batch import PAYLOAD_BYTES_MAX, TOTALS, BatchWriter, Codec
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.layouts import bitmap_bytes
from holdfast.common.ids import AttemptId, MapId, PartitionId, ShuffleKey
from holdfast.common.limits import KIB, MIB

#: The longest record: a batch is never cut, and has room for the totals of a LAST.
RECORD_BYTES_MAX = PAYLOAD_BYTES_MAX - TOTALS.size
#: Payloads up to this are held back for their LAST, and so much in all.
_HELD_BYTES_EACH_MAX = 64 * KIB
_HELD_BYTES_MAX = 8 * MIB
#: Batches up to this are one piece: a copy of it costs less than one more buffer to send.
_JOINED_BYTES_MAX = 64 * KIB
_FAILED = "shuffle {} map {} attempt {} failed before, in the middle of a row; run the attempt again"


class PushBatch(NamedTuple):
    """One batch; `pieces` back to back are its bytes."""

    partition: PartitionId
    number: int
    size: int
    pieces: tuple[Buffer, ...]


class AttemptBatches:
    """What numbers and compresses the batches of one attempt, whatever kind its partitions are of. Not thread-safe."""

    def __init__(
        self, shuffle: ShuffleKey, map_id: MapId, attempt: AttemptId, partitions: int, compression: Compression
    ) -> None:
        self._shuffle = shuffle
        self._map = map_id
        self._attempt = attempt
        self._partitions = partitions
        self._compressor = Compressor(compression)
        #: by partition
        self._writers: dict[int, BatchWriter] = {}

    def bitmap(self) -> bytes:
        """A bit for every partition that has batches."""
        bitmap = bytearray(bitmap_bytes(self._partitions))
        for partition in self._written():
            bitmap[partition >> 3] |= 1 << (partition & 7)
        return bytes(bitmap)

    def _written(self) -> Iterable[int]:
        return self._writers

    def _writer(self, partition: int) -> BatchWriter:
        writer = self._writers.get(partition)
        if writer is None:
            seed = partition_seed(self._shuffle, PartitionId(partition))
            writer = self._writers[partition] = BatchWriter(self._map, self._attempt, seed)
        return writer


class PushBatches(AttemptBatches):
    """The batches of one attempt. Not thread-safe."""

    def __init__(
        self, shuffle: ShuffleKey, map_id: MapId, attempt: AttemptId, partitions: int, compression: Compression
    ) -> None:
        super().__init__(shuffle, map_id, attempt, partitions, compression)
        self._compresses = compression.codec is not Codec.NONE
        self._held: dict[int, Buffer] = {}
        self._held_bytes = 0
        #: a call has taken what it may not have put into a batch yet; it stays so if the call fails
        self._taking = False
        #: of all batches that were made, before they were compressed
        self.payload_bytes = 0

    def add(self, partition: int, payload: Buffer) -> list[PushBatch]:
        """Take a payload; return the batches that are ready. Raises ConfigError for what cannot be written.

        After any other error nothing more is taken: a payload that was held back may be in no batch.
        """
        if type(partition) is not int or not 0 <= partition < self._partitions:
            partition = whole("partition", partition, 0, self._partitions - 1)
        if not isinstance(payload, bytes):
            payload = payload_view(payload)
        size = len(payload)
        if size > RECORD_BYTES_MAX:
            raise ConfigError(f"a payload has at most {RECORD_BYTES_MAX} bytes, not {size}; write it in parts")
        if not size:
            return []
        self._take_up()
        ready = []
        if partition in self._held:
            ready.append(self._batch(partition, self._take(partition)))
        if size <= _HELD_BYTES_EACH_MAX and self._held_bytes + size <= _HELD_BYTES_MAX:
            self._held[partition] = payload
            self._held_bytes += size
        else:
            ready.append(self._batch(partition, payload))
        self._taking = False
        return ready

    def end(self) -> list[PushBatch]:
        """The LAST of every partition that was written to; once. Raises as `add`."""
        self._take_up()
        held, self._held = self._held, {}
        ended = [self._batch(partition, payload, last=True) for partition, payload in held.items()]
        ended += [self._batch(each, b"", last=True) for each in list(self._writers) if each not in held]
        self._held_bytes = 0
        self._taking = False
        return ended

    def _written(self) -> Iterable[int]:
        return [*self._writers, *self._held]

    def _take_up(self) -> None:
        if self._taking:
            raise GiveUpError(_FAILED.format(self._shuffle, self._map, self._attempt))
        self._taking = True

    def _take(self, partition: int) -> Buffer:
        payload = self._held.pop(partition)
        self._held_bytes -= len(payload)
        return payload

    def _batch(self, partition: int, payload: Buffer, *, last: bool = False) -> PushBatch:
        writer = self._writers.get(partition) or self._writer(partition)
        number = writer.batches
        codec, sent = self._compressor.compress(partition, payload) if self._compresses else (Codec.NONE, payload)
        head = writer.header(sent, last=last, codec=codec)
        size = len(head) + len(sent)
        self.payload_bytes += len(payload)
        pieces: tuple[Buffer, ...] = (b"".join((head, sent)),) if size <= _JOINED_BYTES_MAX else (head, sent)
        return PushBatch(PartitionId(partition), number, size, pieces)
