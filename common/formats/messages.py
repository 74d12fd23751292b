"""Meta sections of data-plane frames: one slotted dataclass per message, with its bytes. Tables in protocol.md.

Little endian throughout; a string is u16 length and UTF-8; an array is u32 count and its items. Decoders check every
length against what is there before they allocate, and refuse trailing bytes; all raise ProtocolError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.meta import MAP_FILE, U32, MetaReader, MetaSection, pack_blob, pack_map_file, pack_text
from holdfast.common.ids import UID_BYTES, Incarnation, MapFileKey, PartitionId, RaftIndex, ShuffleKey, WorkerId
from holdfast.common.limits import COPIES_MAX, FRAME_RUNS_MAX, NAME_BYTES_MAX, STREAM_FILES_MAX, TOKEN_BYTES_MAX

#: Where no index was seen yet.
NO_INDEX = RaftIndex(0)
#: The data-plane protocol that this code speaks; HELLO carries it.
PROTOCOL_VERSION = 5


class Ack(IntEnum):
    """How safe a batch is before it is acknowledged. See docs/operate/failure_model.md."""

    MEMORY = 0  #: in the worker's memory: lost with the process
    WRITTEN = 1  #: in the kernel: survives kill -9 of the worker
    SYNCED = 2  #: on the disk: survives power loss


class Role(IntEnum):
    """Who opens a connection."""

    CLIENT = 1
    WORKER = 2
    MASTER = 3


#: partition u32, length u32: a run of one partition's bytes in a frame's body.
RUN = struct.Struct("<II")
_HELLO = struct.Struct("<HBQ")
_MAP_OPEN = struct.Struct("<IIBBQ")
_SEALED = struct.Struct("<IQQQI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Client or worker -> worker, first frame. The worker refuses another version or cluster and closes."""

    version: int = PROTOCOL_VERSION
    role: Role = Role.CLIENT
    #: highest Raft index the sender has seen; it is not trusted by itself
    raft_index: RaftIndex = NO_INDEX
    cluster_id: str = ""
    #: empty until security is on
    token: bytes = b""

    def encode(self) -> bytes:
        head = _HELLO.pack(self.version, self.role, self.raft_index)
        return head + pack_text(self.cluster_id) + pack_blob(self.token, TOKEN_BYTES_MAX)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "HELLO")
        version, role, raft_index = reader.unpack(_HELLO)
        if role not in (Role.CLIENT, Role.WORKER, Role.MASTER):
            raise ProtocolError(f"HELLO: unknown role {role}")
        cluster_id, token = reader.text(), reader.blob(TOKEN_BYTES_MAX)
        reader.end()
        return cls(
            version=version, role=Role(role), raft_index=RaftIndex(raft_index), cluster_id=cluster_id, token=token
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloOk(MetaSection):
    """Worker -> client: identity of the worker. A later incarnation than expected means that the worker restarted.

    Masters compare the uid too: after a restore two workers may hold one number for a moment.
    """

    WHAT = "HELLO answer"
    HEAD = struct.Struct(f"<HII{UID_BYTES}s")

    version: int = PROTOCOL_VERSION
    worker: WorkerId
    incarnation: Incarnation
    uid: bytes = bytes(UID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOpen:
    """Client -> worker: begin the file of one map attempt and epoch.

    The answer is a MapOpened. Opening a file that exists unsealed (an earlier connection died) drops the old bytes and
    begins anew; a sealed one is refused with SEALED.
    """

    file: MapFileKey
    #: incarnation the client learnt; 0 = any
    incarnation: Incarnation
    partitions: int
    #: of the file: so many epochs of an attempt, one after the other, come to the same worker
    copies: int = 1
    ack: Ack = Ack.WRITTEN
    raft_index: RaftIndex = NO_INDEX

    def encode(self) -> bytes:
        head = _MAP_OPEN.pack(self.incarnation, self.partitions, self.copies, self.ack, self.raft_index)
        return pack_map_file(self.file) + head

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "MAP_OPEN")
        file = reader.map_file()
        incarnation, partitions, copies, ack, raft_index = reader.unpack(_MAP_OPEN)
        reader.end()
        if ack not in (Ack.MEMORY, Ack.WRITTEN, Ack.SYNCED):
            raise ProtocolError(f"MAP_OPEN: unknown acknowledgement level {ack}")
        if not 1 <= copies <= COPIES_MAX:
            raise ProtocolError(f"MAP_OPEN: {copies} copies; 1 to {COPIES_MAX} are allowed")
        return cls(
            file=file,
            incarnation=Incarnation(incarnation),
            partitions=partitions,
            copies=copies,
            ack=Ack(ack),
            raft_index=RaftIndex(raft_index),
        )


@dataclass(frozen=True, slots=True)
class MapOpened(MetaSection):
    """Worker -> client: the handle that names the file on this connection."""

    WHAT = "MAP_OPEN answer"
    HEAD = U32

    handle: int


class PushFlag(IntEnum):
    """Flags of a MAP_PUSH, a bit each."""

    END = 1  #: last frame of its region
    BROADCAST = 2  #: the region belongs to every partition; its runs name BROADCAST_PARTITION


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPush(MetaSection):
    """Client -> worker: bytes of one region; the body is `runs` back to back, each of whole batches of one partition.

    Regions come as 0, 1, 2 …, partitions ascend within a region over all its frames (equal ones may
    follow one another); anything else is BAD_ORDER. The answer (no meta)
    says that the body is kept at the file's acknowledgement level.
    """

    WHAT = "MAP_PUSH"
    HEAD = struct.Struct("<IIB")
    ROWS = (RUN, FRAME_RUNS_MAX)

    handle: int
    region: int
    flags: int
    #: (partition, length in bytes)
    runs: list[tuple[int, int]]

    def check(self) -> None:
        """Raise ProtocolError for unknown flags."""
        if self.flags & ~(PushFlag.END | PushFlag.BROADCAST):
            raise ProtocolError(f"MAP_PUSH: unknown flags {self.flags:#04x}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals(MetaSection):
    """What a map file holds: counted by the writer, compared by the worker at seal."""

    HEAD = struct.Struct("<IQQQ")

    regions: int
    batches: int
    size_bytes: int
    #: sum mod 2^64 of all batch CRCs
    crc_sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSeal:
    """Client -> worker: make the file final and durable. Named by key, so it may be asked again on any connection.

    Totals that differ from what the worker holds are CORRUPT and the file is dropped. The answer is a MapSealed and
    is kept with the file: asking again, also after a restart, gives the same one.
    """

    file: MapFileKey
    totals: FileTotals

    def encode(self) -> bytes:
        return pack_map_file(self.file) + self.totals.encode()

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "MAP_SEAL")
        file = reader.map_file()
        regions, batches, size, crc_sum = reader.unpack(FileTotals.HEAD)
        reader.end()
        return cls(file=file, totals=FileTotals(regions=regions, batches=batches, size_bytes=size, crc_sum=crc_sum))


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSealed:
    """Worker -> client: the file is durable here. `incarnation` is the one that sealed it."""

    totals: FileTotals
    incarnation: Incarnation

    def encode(self) -> bytes:
        return self.totals.encode() + U32.pack(self.incarnation)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "MAP_SEAL answer")
        regions, batches, size, crc_sum, incarnation = reader.unpack(_SEALED)
        reader.end()
        totals = FileTotals(regions=regions, batches=batches, size_bytes=size, crc_sum=crc_sum)
        return cls(totals=totals, incarnation=Incarnation(incarnation))


@dataclass(frozen=True, slots=True)
class MapAbort:
    """Client -> worker: drop an unsealed file (the attempt failed or moved on). Unknown files are answered OK."""

    file: MapFileKey

    def encode(self) -> bytes:
        return pack_map_file(self.file)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, "MAP_ABORT")
        file = reader.map_file()
        reader.end()
        return cls(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpen(MetaSection):
    """Client -> worker: read partitions [begin, end) of sealed map files. The answer is a StreamOpened, data follows
    under credit: for each file in order, each region in order, the range's bytes."""

    WHAT = "STREAM_OPEN"
    KEYED = True
    HEAD = struct.Struct("<III")
    ROWS = (MAP_FILE, STREAM_FILES_MAX)

    shuffle: ShuffleKey
    begin: PartitionId
    end: PartitionId
    credit_bytes: int
    #: (map, attempt, epoch), each once
    files: list[tuple[int, int, int]]

    def check(self) -> None:
        """Raise ProtocolError for no partition, or a file twice."""
        if self.begin >= self.end:
            raise ProtocolError(f"STREAM_OPEN: partition range [{self.begin}, {self.end}) is empty")
        if len(set(self.files)) < len(self.files):
            raise ProtocolError("STREAM_OPEN: a file is named twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpened(MetaSection):
    """Worker -> client. The stream id's upper half is the incarnation: a restarted worker detects earlier ids."""

    WHAT = "STREAM_OPEN answer"
    HEAD = struct.Struct("<QQ")

    stream: int
    #: all that will come, so that the reader can show progress
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCredit(MetaSection):
    """Client -> worker: room for that many more body bytes. Answered only if refused (UNKNOWN_STREAM).

    STREAM_CLOSE has the same layout with credit 0.
    """

    WHAT = "STREAM_CREDIT"
    HEAD = struct.Struct("<QI")

    stream: int
    credit_bytes: int


class DataFlag(IntEnum):
    """Flags of a STREAM_DATA, a bit each."""

    END = 1  #: nothing more comes on this stream
    BROADCAST = 2  #: the body belongs to every partition (its run names BROADCAST_PARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamData(MetaSection):
    """Worker -> client: the next bytes of a stream, a response to STREAM_OPEN's request id.

    `sequence` counts the stream's frames from 0. The body is `runs` back to back: bytes of one partition each,
    in order, cut anywhere (a batch may go on in the next frame of the same file, region and partition).
    """

    WHAT = "STREAM_DATA"
    HEAD = struct.Struct("<QIIIB")
    ROWS = (RUN, FRAME_RUNS_MAX)

    stream: int
    sequence: int
    #: index into StreamOpen.files
    file: int
    region: int
    flags: int
    runs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Closing:
    """Either side, request id 0, status set in the frame header: why the connection is about to be closed."""

    reason: str

    def encode(self) -> bytes:
        return self.reason.encode()[:NAME_BYTES_MAX]
