"""Well-formed frames with hostile values: every field of every request, at its edges, out of order, repeated or absent.

What a decoder refuses is mutate.py's part. Here lengths, checksums and layouts are right, so that the services behind
the decoders meet numbers that no honest client sends. Drawn from one generator; a run is repeated by its seed.
"""

import dataclasses
import random
import struct
from enum import IntEnum
from typing import Any

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import crc32c, partition_seed
from holdfast.common.formats.frame import FrameType, encode_frame
from holdfast.common.formats.messages import (
    NO_INDEX,
    Ack,
    FileTotals,
    Hello,
    MapAbort,
    MapOpen,
    MapPush,
    MapSeal,
    PushFlag,
    Role,
    StreamCredit,
    StreamOpen,
)
from holdfast.common.formats.reduce_messages import ChunksOpen, Push, PushCredit, PushEntry, PushSettle, Seal
from holdfast.common.ids import AttemptId, Epoch, Incarnation, MapFileKey, MapId, PartitionId, ShuffleKey
from holdfast.common.limits import FRAME_META_BYTES_MAX

#: A request: its type, its message (or plain meta), and its body.
Request = tuple[FrameType, Any, bytes]

_NOT_FROM_CLIENTS = {FrameType.HELLO, FrameType.CLOSING, FrameType.STREAM_DATA, FrameType.CHUNKS_DATA}
_NOT_FROM_CLIENTS |= {FrameType.SEAL, FrameType.REPLICATE}
_EDGES = [0, 1, 2, 0x7F, 0xFF, 0x100, 0xFFFF, 0x10000, (1 << 24) - 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE]
_EDGES += [0xFFFF_FFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]
#: What each sends after HELLO.
_KINDS = {
    Role.MASTER: [FrameType.SEAL],
    Role.WORKER: [FrameType.REPLICATE],
    Role.CLIENT: [kind for kind in FrameType if kind not in _NOT_FROM_CLIENTS],
}
_TEXTS = ["", "127.0.0.1:1", "127.0.0.1:99999", "[::1]:7001", "nowhere.invalid:7001", "\0", "ü" * 60, "a" * 255]
_REPEATS = [2, 3, 100, 5_000]
#: A list grows to this many entries at most: about what fits a meta section.
_ENTRIES_MAX = 40_000


class Hostile:
    """Draws requests about `files` of MAP shuffles and about `pushed` REDUCE shuffles, which are there."""

    def __init__(self, seed: int, files: list[MapFileKey], pushed: list[ShuffleKey]) -> None:
        self.chance = random.Random(seed)
        self._files = files
        self._pushed = pushed
        self._next = 1

    def conversation(self, cluster_id: str, count: int) -> bytes:
        """HELLO of a client, a worker or a master, and so many frames as it sends them, each spoilt."""
        role = self.chance.choice([Role.CLIENT, Role.CLIENT, Role.CLIENT, Role.WORKER, Role.MASTER])
        hello = encode_frame(FrameType.HELLO, 1, Hello(cluster_id=cluster_id, role=role).encode())
        return hello + b"".join(self._frame(role) for _ in range(count))

    def _frame(self, role: Role) -> bytes:
        kind, message, body = self._request(self.chance.choice(_KINDS[role]))
        self._next += 1
        number = self.chance.choice([self._next, self._next, self._next, 1, 2**64 - 1])
        while True:
            spoilt = self._changed(message, self.chance.choice([0.0, 0.1, 0.3, 1.0]))
            if body and self.chance.random() < 0.2:
                at = self.chance.randrange(len(body))
                body = body[:at] + self.chance.randbytes(1) + body[at + 1 :]
            if isinstance(spoilt, Push) and self.chance.random() < 0.9:  # or the connection ends here
                spoilt = dataclasses.replace(spoilt, body_crc=crc32c(body), entries=message.entries)
            try:
                meta = spoilt if isinstance(spoilt, bytes) else spoilt.encode()
                if not isinstance(spoilt, bytes):
                    type(spoilt).decode(meta)
                if len(meta) <= FRAME_META_BYTES_MAX:
                    return encode_frame(kind, number, meta, len(body)) + body
            except (struct.error, HoldfastError, ValueError, OverflowError):
                pass  # no layout holds such a value, or the decoder refuses it: mutate.py's part

    def _request(self, kind: FrameType) -> Request:
        """One of this kind, as it should be."""
        chance = self.chance
        file, shuffle = chance.choice(self._files), chance.choice(self._pushed)
        own = MapFileKey(file.shuffle, MapId(chance.randrange(1 << 16)), AttemptId(chance.randrange(4)), Epoch(0))
        credit = StreamCredit(stream=chance.randrange(1, 300) | 1 << 32, credit_bytes=1 << 20)
        match kind:
            case FrameType.MAP_OPEN:
                return kind, MapOpen(file=own, incarnation=Incarnation(0), partitions=8), b""
            case FrameType.MAP_PUSH:
                body, _ = self._map_body(own)
                runs = [(0, len(body))]
                return kind, MapPush(handle=chance.randrange(1, 300), region=0, flags=PushFlag.END, runs=runs), body
            case FrameType.MAP_SEAL:
                return kind, MapSeal(file=own, totals=self._map_body(own)[1]), b""
            case FrameType.MAP_ABORT:
                return kind, MapAbort(own), b""
            case FrameType.STREAM_OPEN:
                return kind, self._stream(file, [(file.map, file.attempt, file.epoch)]), b""
            case FrameType.STREAM_CREDIT | FrameType.STREAM_CLOSE:
                return kind, credit, b""
            case FrameType.PUSH | FrameType.REPLICATE:
                return kind, *self._push(shuffle)
            case FrameType.PUSH_CREDIT:
                return kind, PushCredit(1 << 20), b""
            case FrameType.PUSH_SETTLE:
                settle = PushSettle(
                    shuffle=shuffle, incarnation=Incarnation(0), map=file.map, attempt=file.attempt, epochs=[(0, 0)]
                )
                return kind, settle, b""
            case FrameType.SEAL:
                return kind, Seal(shuffle=shuffle, flags=0, raft_index=NO_INDEX, epochs=[(0, 0)]), b""
            case FrameType.CHUNKS_OPEN:
                return kind, ChunksOpen(shuffle=shuffle, credit_bytes=1 << 20, files=[(0, 0, 0), (1, 0, 1)]), b""
        return kind, b"ping", b""

    def _stream(self, file: MapFileKey, rows: list[tuple[int, int, int]]) -> StreamOpen:
        end = PartitionId(self.chance.randrange(1, 9))
        return StreamOpen(shuffle=file.shuffle, begin=PartitionId(0), end=end, credit_bytes=1 << 20, files=rows)

    def _push(self, shuffle: ShuffleKey) -> tuple[Push, bytes]:
        """A push as it should be."""
        map_id, attempt = MapId(self.chance.randrange(4)), AttemptId(self.chance.randrange(8))
        parts, entries = [], []
        for partition in range(self.chance.randrange(1, 4)):
            writer = BatchWriter(map_id, attempt, partition_seed(shuffle, PartitionId(partition)))
            payload = self.chance.randbytes(self.chance.randrange(60))
            batch = writer.header(payload) + payload
            parts.append(batch)
            entries.append(PushEntry(PartitionId(partition), Epoch(0), 0, len(batch)))
        body = b"".join(parts)
        push = Push(
            shuffle=shuffle,
            incarnation=Incarnation(self.chance.choice([0, 1])),
            ack=Ack.WRITTEN,
            map=map_id,
            attempt=attempt,
            body_crc=crc32c(body),
            entries=entries,
        )
        return push, body

    def _map_body(self, file: MapFileKey) -> tuple[bytes, FileTotals]:
        writer = BatchWriter(file.map, file.attempt, partition_seed(file.shuffle, PartitionId(0)))
        payload = self.chance.randbytes(40)
        body = writer.header(payload, last=True) + payload
        return body, FileTotals(regions=1, batches=1, size_bytes=len(body), crc_sum=writer.crc_sum)

    # Changes.

    def _changed(self, value: Any, rate: float) -> Any:
        """The value with a share of what it is made of at an edge."""
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {each.name: self._changed(getattr(value, each.name), rate) for each in dataclasses.fields(value)}
            return dataclasses.replace(value, **fields)
        if isinstance(value, list):
            return self._changed_list(value, rate)
        if isinstance(value, tuple):
            made = [self._changed(each, rate) for each in value]
            return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
        if value is None or self.chance.random() >= rate:
            return value
        if isinstance(value, str):
            return self.chance.choice(_TEXTS)
        if isinstance(value, bytes):
            return self.chance.choice([bytes(len(value)), self.chance.randbytes(len(value))])
        if isinstance(value, IntEnum):
            return self.chance.choice(list(type(value)))
        return self.chance.choice([*_EDGES, self.chance.randrange(1 << self.chance.randrange(1, 64))])

    def _changed_list(self, value: list[Any], rate: float) -> list[Any]:
        made = [self._changed(each, rate) for each in value]
        if self.chance.random() < rate:
            match self.chance.randrange(4):
                case 0:
                    made = []
                case 1:
                    made = (made * self.chance.choice(_REPEATS))[:_ENTRIES_MAX]
                case 2:
                    made = made + [self._changed(each, 1.0) for each in value]
                case _:
                    made.reverse()
        return made
