"""The frame: the unit of the data-plane wire. Format in docs/internals/protocol.md, "Frame".

Header, 32 bytes, little endian:

    0  u32 magic "HFF1"      4  u8 version 1    5  u8 type    6  u16 flags (bit 0 RESPONSE)
    8  u64 request id       16  u32 meta length (<= 1 MiB)   20  u32 body length (<= 16 MiB)
   24  u32 status (0 in requests)               28  u32 CRC-32C of header[0:28] and the meta section

The meta section (messages.py) follows, then the body, which has no CRC here: it consists of batches that have one each.
A response repeats type and request id; a status other than OK has UTF-8 text as meta that is for people only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, FRAME_META_BYTES_MAX
from holdfast.common.statuses import Status

MAGIC_BYTES = b"HFF1"
MAGIC = int.from_bytes(MAGIC_BYTES, "little")
VERSION = 1
HEADER = struct.Struct("<IBBHQIIII")
HEADER_BYTES = HEADER.size
_CRC = struct.Struct("<I")
_CRC_OFFSET = 28
RESPONSE = 0x0001

assert HEADER_BYTES == 32, "the header is a wire format"


class FrameType(IntEnum):
    """What a frame is; numbers are fixed for ever."""

    HELLO = 1  #: first frame of every connection, both ways
    PING = 2
    CLOSING = 3  #: the sender says why it closes the connection; request id 0
    MAP_OPEN = 16
    MAP_PUSH = 17
    MAP_SEAL = 18
    MAP_ABORT = 19
    STREAM_OPEN = 32
    STREAM_CREDIT = 33
    STREAM_DATA = 34  #: worker to client; request id is the one of STREAM_OPEN
    STREAM_CLOSE = 35
    PUSH = 48  #: batches of REDUCE partitions
    REPLICATE = 49  #: the same, from a primary to its replica
    PUSH_CREDIT = 50  #: room for pushes, asked for and granted
    SEAL = 51  #: from the leading master
    CHUNKS_OPEN = 52  #: credit and closing are STREAM_CREDIT and STREAM_CLOSE
    CHUNKS_DATA = 53  #: worker to client; request id is the one of CHUNKS_OPEN
    REGISTERED = 54  #: from the leading master: a shuffle that is placed here
    RESTORE = 55  #: from the leading master: copies to make of what another worker has sealed
    PUSH_SETTLE = 56  #: which replicas lack what was acknowledged


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """A header whose magic, version and lengths were checked; `crc` is checked once the meta section is here."""

    type: FrameType
    flags: int
    request_id: int
    meta_bytes: int
    body_bytes: int
    status: int
    crc: int

    @property
    def is_response(self) -> bool:
        return bool(self.flags & RESPONSE)


def encode_frame(
    frame_type: FrameType,
    request_id: int,
    meta: bytes = b"",
    body_bytes: int = 0,
    *,
    response: bool = False,
    status: int = Status.OK,
) -> bytes:
    """Return header and meta section; the caller sends the body, of exactly `body_bytes`, right behind."""
    if len(meta) > FRAME_META_BYTES_MAX or body_bytes > FRAME_BODY_BYTES_MAX:
        raise ProtocolError(f"frame too large: meta {len(meta)}, body {body_bytes} bytes", status=Status.TOO_LARGE)
    flags = RESPONSE if response else 0
    head = HEADER.pack(MAGIC, VERSION, frame_type, flags, request_id, len(meta), body_bytes, status, 0)[:_CRC_OFFSET]
    return head + _CRC.pack(crc32c(meta, crc32c(head))) + meta


def decode_header(data: bytes | bytearray | memoryview, offset: int = 0) -> FrameHeader:
    """Check magic, version, type and lengths of the 32 bytes at `offset`; raises ProtocolError."""
    magic, version, frame_type, flags, request_id, meta_bytes, body_bytes, status, crc = HEADER.unpack_from(
        data, offset
    )
    if magic != MAGIC:
        raise ProtocolError("not a Holdfast frame: is the other side speaking to the right port?")
    if version != VERSION:
        raise ProtocolError(
            f"frame version {version}, this side has {VERSION}: run compatible releases (docs/operate/upgrade.md)",
            status=Status.BAD_VERSION,
        )
    if flags & ~RESPONSE:
        raise ProtocolError(f"unknown frame flags {flags:#06x}")
    if meta_bytes > FRAME_META_BYTES_MAX or body_bytes > FRAME_BODY_BYTES_MAX:
        raise ProtocolError(f"frame too large: meta {meta_bytes}, body {body_bytes} bytes", status=Status.TOO_LARGE)
    try:
        known = FrameType(frame_type)
    except ValueError:
        raise ProtocolError(f"unknown frame type {frame_type}") from None
    return FrameHeader(known, flags, request_id, meta_bytes, body_bytes, status, crc)


def check_meta(header: bytes | bytearray | memoryview, decoded: FrameHeader, meta: bytes | memoryview) -> None:
    """Check the CRC over the raw 32 header bytes and the meta section; raises ProtocolError."""
    if crc32c(meta, crc32c(header[:_CRC_OFFSET])) != decoded.crc:
        raise ProtocolError(f"frame checksum mismatch in {decoded.type.name} request {decoded.request_id}")
