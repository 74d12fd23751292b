"""Meta sections of the frames of REDUCE partitions: pushes, replication, seals and chunks. Tables in protocol.md.

Same conventions as messages.py. Per-batch entries are kept as the tuples of their struct: a worker decodes hundreds of
thousands a second.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self, cast

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.messages import NO_INDEX, Ack
from holdfast.common.formats.meta import U32, MetaReader, MetaSection, pack_rows, pack_shuffle, pack_text
from holdfast.common.ids import (
    NO_WORKER,
    AttemptId,
    Epoch,
    Incarnation,
    MapId,
    PartitionId,
    RaftIndex,
    ShuffleKey,
    WorkerId,
)
from holdfast.common.limits import (
    ANNOUNCED_MAX,
    COPIES_MAX,
    PUSH_BATCHES_MAX,
    RESTORE_EPOCHS_MAX,
    SEAL_EPOCHS_MAX,
    SETTLE_EPOCHS_MAX,
    STREAM_FILES_MAX,
    U32_MAX,
)
from holdfast.common.statuses import Status

#: partition u32, epoch u32, batch number u32, length u32, hint u16.
PUSH_ENTRY = struct.Struct("<IIIIH")
_PUSH = struct.Struct("<IBQIQI")
#: replicas, copies that acknowledge
_COPIES = struct.Struct("<BB")
_REPLICA = struct.Struct("<II")
_REFUSAL = struct.Struct("<HH")
_EPOCH = struct.Struct("<II")
#: partition, epoch, worker
_COPY = struct.Struct("<III")
_SEALED = struct.Struct("<IIHQIIQ")
#: acknowledgement level, Raft index, bytes a second
_RESTORE = struct.Struct("<BQQ")
#: partition, epoch, bytes
_RESTORED = struct.Struct("<IIQ")
_CHUNK_FILE = struct.Struct("<III")
_CHUNKS_OPENED = struct.Struct("<QQ")
#: Hint of an entry whose directory the worker chooses.
NO_HINT = 0


class PushEntry(NamedTuple):
    """One batch of a push: its destination and length, header included. `number` repeats its header's."""

    partition: PartitionId
    epoch: Epoch
    number: int
    size_bytes: int
    hint: int = NO_HINT


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """A worker that holds another copy of everything in a push."""

    worker: WorkerId
    incarnation: Incarnation
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Client -> worker (PUSH), or primary -> replica (REPLICATE, without `replicas`): a merged frame of whole batches.

    The body is the batches back to back, all of one (map, attempt). `body_crc` is the CRC-32C of the body: what
    the wire turned is refused before anything is decided. The answer is a PushAnswer; a frame status other than OK
    applies to every batch.
    """

    shuffle: ShuffleKey
    #: of the worker that is asked
    incarnation: Incarnation
    ack: Ack
    map: MapId
    attempt: AttemptId
    body_crc: int
    raft_index: RaftIndex = NO_INDEX
    #: the owner whose share it uses (security/tokens.py), b"" without security: sent to a replica instead of the index,
    #: which earlier builds ignore; a worker has it from the connection of a client
    of_user: bytes = b""
    #: those that the primary sends all of it to, in the order of their copies
    replicas: tuple[ReplicaPlace, ...] = ()
    #: so many copies, the primary's among them, hold a batch before it is acknowledged; 0: all
    ack_copies: int = 0
    #: PushEntry or plain tuples of its fields
    entries: list[PushEntry]

    @property
    def owner(self) -> tuple[bytes, ...]:
        """Whose share it takes of, as common/shares.py has it."""
        return (self.of_user, self.shuffle.instance) if self.of_user else (self.shuffle.instance,)

    @property
    def acknowledging(self) -> int:
        """How many copies hold a batch before it is acknowledged."""
        return self.ack_copies or 1 + len(self.replicas)

    def encode(self) -> bytes:
        if not 1 <= len(self.entries) <= PUSH_BATCHES_MAX:
            raise ProtocolError(f"a push has 1 to {PUSH_BATCHES_MAX} batches, not {len(self.entries)}")
        index = int.from_bytes(self.of_user, "little") or self.raft_index
        head = _PUSH.pack(self.incarnation, self.ack, index, self.map, self.attempt, self.body_crc)
        copies = _COPIES.pack(len(self.replicas), self.acknowledging)
        place = b"".join([copies, *map(_pack_replica, self.replicas)])
        return pack_shuffle(self.shuffle) + head + place + pack_rows(PUSH_ENTRY, self.entries)

    @classmethod
    def decode(cls, data: bytes | memoryview, of_user: bytes | None = b"") -> Self:
        """`of_user`: the user that pushes; None: it is a REPLICATE, which contains it."""
        reader = MetaReader(data, "PUSH")
        shuffle = reader.shuffle()
        incarnation, ack, raft_index, map_id, attempt, crc = reader.unpack(_PUSH)
        count, ack_copies = reader.unpack(_COPIES)
        if count >= COPIES_MAX or not 1 <= ack_copies <= 1 + count:
            text = f"PUSH: {ack_copies} copies acknowledge, beside {count} replicas of at most {COPIES_MAX - 1}"
            raise ProtocolError(text)
        replicas = tuple([_replica(reader) for _ in range(count)])
        if of_user is None:
            of_user, raft_index = raft_index.to_bytes(8, "little") if raft_index else b"", NO_INDEX
        entries = cast("list[PushEntry]", reader.array(PUSH_ENTRY, PUSH_BATCHES_MAX))
        reader.end()
        if ack not in (Ack.MEMORY, Ack.WRITTEN, Ack.SYNCED) or not entries:
            raise ProtocolError(f"PUSH: {len(entries)} batches at acknowledgement level {ack}")
        return cls(
            shuffle=shuffle,
            incarnation=Incarnation(incarnation),
            ack=Ack(ack),
            map=MapId(map_id),
            attempt=AttemptId(attempt),
            body_crc=crc,
            raft_index=RaftIndex(raft_index),
            of_user=of_user,
            replicas=replicas,
            ack_copies=ack_copies % (1 + count),
            entries=entries,
        )


def _pack_replica(place: ReplicaPlace) -> bytes:
    return _REPLICA.pack(place.worker, place.incarnation) + pack_text(place.address)


def _replica(reader: MetaReader) -> ReplicaPlace:
    worker, incarnation = reader.unpack(_REPLICA)
    address = reader.text()
    if worker == NO_WORKER or not address:
        raise ProtocolError("PUSH: a replica has a worker and an address")
    return ReplicaPlace(WorkerId(worker), Incarnation(incarnation), address)


@dataclass(frozen=True, slots=True)
class PushAnswer(MetaSection):
    """Worker -> client: all batches are kept at the level asked for, except those named here.

    `credit_bytes` is from now on how many body bytes this connection may have unanswered; 0 says ask (PUSH_CREDIT).
    `statuses` has (index of the entry, status) for every batch whose status is not OK, ascending; SOFT_SPLIT and
    SLOW_DOWN are kept all the same. `failed` has bit r set if replica r of the push did not keep a batch that is
    REPLICA_FAILED: who is to blame is named, and the other copies need not move. `behind` has bit r set if replica r
    lacks something that is acknowledged, of this push or of one before in the same shuffle: ask with PUSH_SETTLE.
    """

    WHAT = "PUSH answer"
    HEAD = struct.Struct("<IBB")
    ROWS = (_REFUSAL, PUSH_BATCHES_MAX)

    credit_bytes: int
    failed: int
    behind: int
    statuses: list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettle(MetaSection):
    """Client -> the primary of these epochs: which replicas lack what was acknowledged? The answer is a PushSettled; it
    comes when everything of this attempt that was acknowledged before is on all replicas, or has failed there."""

    WHAT = "PUSH_SETTLE"
    KEYED = True
    HEAD = struct.Struct("<IIQ")
    ROWS = (_EPOCH, SETTLE_EPOCHS_MAX)

    shuffle: ShuffleKey
    #: of the worker that is asked
    incarnation: Incarnation
    map: MapId
    attempt: AttemptId
    #: (partition, epoch)
    epochs: list[tuple[int, int]]


class IncompleteCopy(NamedTuple):
    """A copy that lacks something that was acknowledged: others have it."""

    partition: PartitionId
    epoch: Epoch
    worker: WorkerId


@dataclass(frozen=True, slots=True)
class PushSettled:
    """Worker -> client: of the epochs that were named these copies are incomplete, and all others have everything that
    was acknowledged to the attempt."""

    incomplete: list[IncompleteCopy]

    def encode(self) -> bytes:
        return pack_rows(_COPY, self.incomplete)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "PUSH_SETTLE answer")
        rows = reader.array(_COPY, SETTLE_EPOCHS_MAX * (COPIES_MAX - 1))
        reader.end()
        return cls([IncompleteCopy(PartitionId(row[0]), Epoch(row[1]), WorkerId(row[2])) for row in rows])


@dataclass(frozen=True, slots=True)
class PushCredit(MetaSection):
    """Client -> worker: room for that many unanswered body bytes, please (0 gives it back). The answer, of the same
    layout, comes once there is room, first come first served, and says how many were granted; a grant that is not used
    for `push.credit_life` lapses. A push beyond the grant is refused with BUSY, its body dropped."""

    WHAT = "PUSH_CREDIT"
    HEAD = U32

    size_bytes: int


class SealFlag(IntEnum):
    """Flags of a SEAL, a bit each."""

    FINAL = 1  #: the generation ends: any later push to it is COMMITTED, also for epochs that are not named
    NEW = 2  #: it was registered after this start of the worker, which so has all there ever was of it
    LOOK = 4  #: say what is sealed here, and change nothing: anything but OK is no copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal(MetaSection):
    """Leader -> worker (role MASTER): make these epochs final and durable. The answer is a SealAnswer.

    Without FINAL only the named epochs end (they were hard-split). Asking again, also after a restart, gets the same
    answer for every epoch for ever.
    """

    WHAT = "SEAL"
    KEYED = True
    HEAD = struct.Struct("<BQ")
    ROWS = (_EPOCH, SEAL_EPOCHS_MAX)

    shuffle: ShuffleKey
    flags: int
    raft_index: RaftIndex
    #: (partition, epoch)
    epochs: list[tuple[int, int]]

    def encode(self) -> bytes:
        if len(self.epochs) > SEAL_EPOCHS_MAX:
            raise ProtocolError(f"a seal names at most {SEAL_EPOCHS_MAX} epochs, not {len(self.epochs)}")
        return MetaSection.encode(self)

    def check(self) -> None:
        """Raise ProtocolError for unknown flags."""
        if self.flags & ~(SealFlag.FINAL | SealFlag.NEW | SealFlag.LOOK):
            raise ProtocolError(f"SEAL: unknown flags {self.flags:#04x}")


@dataclass(frozen=True, slots=True)
class Registered:
    """Leader -> worker (role MASTER): a shuffle that is placed there, and where the workers are that have the other
    copies. Its answer has no meta. A worker that gets it need not ask when the first batch comes; one that does not
    get it asks."""

    shuffle: ShuffleKey
    #: worker and data address
    workers: list[tuple[WorkerId, str]]

    def encode(self) -> bytes:
        rows = b"".join([U32.pack(worker) + pack_text(address) for worker, address in self.workers])
        return pack_shuffle(self.shuffle) + U32.pack(len(self.workers)) + rows

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "REGISTERED")
        shuffle = reader.shuffle()
        (count,) = reader.unpack(U32)
        if count > ANNOUNCED_MAX:
            raise ProtocolError(f"REGISTERED: {count} workers, at most {ANNOUNCED_MAX} are allowed")
        workers = [(WorkerId(reader.unpack(U32)[0]), reader.text()) for _ in range(count)]
        reader.end()
        return cls(shuffle, workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Leader -> worker (role MASTER): read these sealed epochs from the worker that has them, and keep a copy of each.

    The answer is a SealAnswer, as if this worker had sealed them; nothing is kept of a request that fails. Epochs that
    it has sealed already are answered as they are.
    """

    shuffle: ShuffleKey
    ack: Ack
    raft_index: RaftIndex
    #: it is read no faster
    bytes_per_second: int
    source: ReplicaPlace
    #: (partition, epoch, bytes)
    epochs: list[tuple[int, int, int]]

    def encode(self) -> bytes:
        if not 1 <= len(self.epochs) <= RESTORE_EPOCHS_MAX:
            raise ProtocolError(f"RESTORE: {len(self.epochs)} epochs, of at most {RESTORE_EPOCHS_MAX}")
        head = _RESTORE.pack(self.ack, self.raft_index, self.bytes_per_second)
        return pack_shuffle(self.shuffle) + head + _pack_replica(self.source) + pack_rows(_RESTORED, self.epochs)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "RESTORE")
        shuffle = reader.shuffle()
        ack, index, rate = reader.unpack(_RESTORE)
        source = _replica(reader)
        epochs = [(row[0], row[1], row[2]) for row in reader.array(_RESTORED, RESTORE_EPOCHS_MAX)]
        reader.end()
        if ack not in tuple(Ack) or not rate or not epochs or len({row[:2] for row in epochs}) < len(epochs):
            raise ProtocolError("RESTORE: an unknown level, no rate, no epochs, or one twice")
        return cls(
            shuffle=shuffle,
            ack=Ack(ack),
            raft_index=RaftIndex(index),
            bytes_per_second=rate,
            source=source,
            epochs=epochs,
        )


class SealedEpoch(NamedTuple):
    """What became of one epoch on one worker.

    `status`: OK (sealed, `size_bytes` > 0), UNKNOWN_FILE (this worker never had a batch of it: nothing was acknowledged
    here), FAILED_COPY (a write or sync failed), DATA_LOST (an earlier start had it and it cannot be vouched for).
    `crc_sum` is the sum mod 2^64 of the CRCs of all batches kept.
    """

    partition: PartitionId
    epoch: Epoch
    status: Status
    size_bytes: int = 0
    batches: int = 0
    chunks: int = 0
    crc_sum: int = 0


@dataclass(frozen=True, slots=True)
class SealAnswer:
    """Worker -> leader: one SealedEpoch for each that was asked for, in that order."""

    epochs: list[SealedEpoch]

    def encode(self) -> bytes:
        return pack_rows(_SEALED, self.epochs)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "SEAL answer")
        rows = reader.array(_SEALED, SEAL_EPOCHS_MAX)
        reader.end()
        try:
            return cls([SealedEpoch(PartitionId(row[0]), Epoch(row[1]), Status(row[2]), *row[3:]) for row in rows])
        except ValueError as error:
            raise ProtocolError(f"SEAL answer: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksOpen(MetaSection):
    """Client -> worker: send the chunks of sealed epochs, under credit. The answer is a ChunksOpened.

    With a range of maps only the batches of maps [map_begin, map_end) are sent, cut out by the batch index.
    """

    WHAT = "CHUNKS_OPEN"
    KEYED = True
    HEAD = struct.Struct("<III")
    ROWS = (_CHUNK_FILE, STREAM_FILES_MAX)

    shuffle: ShuffleKey
    map_begin: int = 0
    map_end: int = U32_MAX
    credit_bytes: int
    #: (partition, epoch, first chunk to send); each epoch once
    files: list[tuple[int, int, int]]

    def check(self) -> None:
        """Raise ProtocolError for nothing to send, or an epoch twice."""
        if self.map_begin >= self.map_end or not self.files:
            raise ProtocolError(f"CHUNKS_OPEN: {len(self.files)} files, maps [{self.map_begin}, {self.map_end})")
        if len({(partition, epoch) for partition, epoch, _ in self.files}) < len(self.files):
            raise ProtocolError("CHUNKS_OPEN: an epoch is named twice; name each once, with the first chunk to send")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksOpened:
    """Worker -> client. `chunks` has how many chunks each file has in all, in the order asked for."""

    stream: int
    total_bytes: int
    chunks: list[int]

    def encode(self) -> bytes:
        return _CHUNKS_OPENED.pack(self.stream, self.total_bytes) + pack_rows(U32, ((count,) for count in self.chunks))

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "CHUNKS_OPEN answer")
        stream, total = reader.unpack(_CHUNKS_OPENED)
        chunks = [count for (count,) in reader.array(U32, STREAM_FILES_MAX)]
        reader.end()
        return cls(stream=stream, total_bytes=total, chunks=chunks)


class ChunkFlag(IntEnum):
    """Flags of a CHUNKS_DATA, a bit each."""

    END = 1  #: nothing more comes on this stream
    END_OF_CHUNK = 2  #: the chunk ends with this body


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksData(MetaSection):
    """Worker -> client: the next bytes of one chunk, a response to CHUNKS_OPEN's request id.

    `sequence` counts the stream's frames from 0. A chunk holds whole batches of one epoch; it is cut into frames of
    at most 1 MiB anywhere, and none holds bytes of two chunks. Credit and closing are those of STREAM_OPEN.
    """

    WHAT = "CHUNKS_DATA"
    HEAD = struct.Struct("<QIIIIB")

    stream: int
    sequence: int
    #: index into ChunksOpen.files
    file: int
    chunk: int
    #: bytes of this chunk that come after this body
    left_bytes: int = 0
    flags: int
