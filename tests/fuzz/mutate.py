"""Mutated frames: a conversation that a client could have had, with something wrong in it.

Every mutation is drawn from one seeded generator, so that a run is repeated by its seed. AttemptSender of them keep the
checksums right, so that what is wrong reaches the decoders and the services behind them.
"""

import random
import struct
from collections.abc import Callable

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.frame import HEADER_BYTES, FrameType, encode_frame
from holdfast.common.formats.messages import Hello, MapAbort, MapOpen, MapSeal, StreamCredit, StreamOpen
from holdfast.common.ids import Incarnation, MapFileKey, PartitionId, ShuffleKey
from tests.support.map_data import MapContent, file_key, make_content

_INTERESTING = [0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x10000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF]
#: Offset and layout of each field of a frame's header, the checksum left out.
_HEADER_FIELDS = [(0, "<I"), (4, "<B"), (5, "<B"), (6, "<H"), (16, "<I"), (20, "<I"), (24, "<I")]


class Mutator:
    """Draws conversations."""

    def __init__(self, seed: int, cluster_id: str, shuffle: ShuffleKey, sealed: MapContent) -> None:
        self.chance = random.Random(seed)
        self._hello = encode_frame(FrameType.HELLO, 1, Hello(cluster_id=cluster_id).encode())
        self._shuffle = shuffle
        self._sealed = sealed
        self._maps = 1_000
        self.mutations: list[Callable[[bytes], bytes]] = [
            self._flip_bits,
            self._flip_meta,
            self._set_meta_field,
            self._set_header_field,
            self._cut,
            self._insert,
            self._repeat,
            self._garbage,
        ]

    def conversation(self, frames: int) -> bytes:
        """HELLO (mutated now and then), then `frames` frames of which some are mutated."""
        parts = [self._hello if self.chance.random() < 0.95 else self._mutate(self._hello)]
        good = self._story()
        rate = self.chance.choice([0.05, 0.2, 0.8])  # where little is wrong, what follows gets deeper
        for number in range(frames):
            frame = good[number % len(good)] if self.chance.random() < 0.5 else self.chance.choice(good)
            parts.append(self._mutate(frame) if self.chance.random() < rate else frame)
        return b"".join(parts)

    def opened(self) -> tuple[bytes, Callable[[int], bytes]]:
        """HELLO and MAP_OPEN as they should be, and what follows once the handle is known, spoilt."""
        content = self._content()
        rate = self.chance.choice([0.0, 0.1, 0.5])

        def follow(handle: int) -> bytes:
            frames = [self._mutate(f) if self.chance.random() < rate else f for f in self._writing(content, handle)]
            if self.chance.random() < 0.2:
                self.chance.shuffle(frames)
            return b"".join(frames[1:])

        return self._hello + self._writing(content, 0)[0], follow

    def _content(self) -> MapContent:
        self._maps += 1
        return make_content(file_key(self._shuffle, self._maps), partitions=4, regions=2, batch_bytes=50)

    def _story(self) -> list[bytes]:
        """What a writer and a reader would send: open, push, seal, abort, read."""
        return [*self._writing(self._content(), self.chance.randrange(1, 200)), *self._reading(self._sealed.key)]

    def _writing(self, content: MapContent, handle: int) -> list[bytes]:
        opening = MapOpen(file=content.key, incarnation=Incarnation(0), partitions=content.partitions)
        pushes = [
            encode_frame(FrameType.MAP_PUSH, 10 + at, frame.meta(handle), len(frame.body)) + frame.body
            for at, frame in enumerate(content.frames)
        ]
        return [
            encode_frame(FrameType.MAP_OPEN, 2, opening.encode()),
            *pushes,
            encode_frame(FrameType.MAP_SEAL, 3, MapSeal(file=content.key, totals=content.totals).encode()),
            encode_frame(FrameType.MAP_ABORT, 4, MapAbort(content.key).encode()),
        ]

    def _reading(self, key: MapFileKey) -> list[bytes]:
        chance = self.chance
        request = StreamOpen(
            shuffle=key.shuffle,
            begin=PartitionId(0),
            end=PartitionId(8),
            credit_bytes=chance.choice([0, 100, 1 << 20]),
            files=[(key.map, key.attempt, key.epoch)],
        )
        credit = StreamCredit(stream=1 << 32 | chance.randrange(1, 100), credit_bytes=1_000).encode()
        return [
            encode_frame(FrameType.STREAM_OPEN, 20, request.encode()),
            encode_frame(FrameType.STREAM_CREDIT, 20, credit),
            encode_frame(FrameType.STREAM_CLOSE, 20, credit),
            encode_frame(FrameType.PING, 21, b"ping"),
        ]

    # Mutations: whole frame in, bytes out.

    def _mutate(self, frame: bytes) -> bytes:
        return self.chance.choice(self.mutations)(frame)

    def _flip_bits(self, frame: bytes) -> bytes:
        out = bytearray(frame)
        for _ in range(self.chance.choice([1, 1, 2, 8])):
            out[self.chance.randrange(len(out))] ^= 1 << self.chance.randrange(8)
        return bytes(out)

    def _flip_meta(self, frame: bytes) -> bytes:
        return _resealed(frame, lambda meta: self._flip_bits(meta) if meta else b"x")

    def _set_meta_field(self, frame: bytes) -> bytes:
        def change(meta: bytes) -> bytes:
            out = bytearray(meta.ljust(4, b"\0"))
            struct.pack_into("<I", out, self.chance.randrange(len(out) - 3), self.chance.choice(_INTERESTING))
            return bytes(out)[: self.chance.choice([len(out), len(out), self.chance.randrange(len(out))])]

        return _resealed(frame, change)

    def _set_header_field(self, frame: bytes) -> bytes:
        out = bytearray(frame)
        offset, layout = self.chance.choice(_HEADER_FIELDS)
        value = self.chance.choice(_INTERESTING) & (256 ** struct.calcsize(layout) - 1)
        struct.pack_into(layout, out, offset, value)
        if self.chance.random() < 0.7:
            meta_bytes = struct.unpack_from("<I", frame, 16)[0]
            meta = frame[HEADER_BYTES : HEADER_BYTES + meta_bytes]
            struct.pack_into("<I", out, 28, crc32c(meta, crc32c(bytes(out[:28]))))
        return bytes(out)

    def _cut(self, frame: bytes) -> bytes:
        return frame[: self.chance.randrange(len(frame))]

    def _insert(self, frame: bytes) -> bytes:
        at = self.chance.randrange(len(frame))
        return frame[:at] + self.chance.randbytes(self.chance.choice([1, 4, 100])) + frame[at:]

    def _repeat(self, frame: bytes) -> bytes:
        return frame * self.chance.choice([2, 3, 20])

    def _garbage(self, frame: bytes) -> bytes:
        return self.chance.randbytes(self.chance.choice([1, 32, 1_000, 100_000]))


def _resealed(frame: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The frame with another meta section and the right checksum for it."""
    frame_type, _, request_id, meta_bytes, body_bytes = struct.unpack_from("<BHQII", frame, 5)
    meta = change(frame[HEADER_BYTES : HEADER_BYTES + meta_bytes])
    try:
        head = encode_frame(FrameType(frame_type), request_id, meta, body_bytes)
    except (ProtocolError, ValueError):
        return frame
    return head + frame[HEADER_BYTES + meta_bytes :]
