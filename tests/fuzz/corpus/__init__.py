"""Conversations that broke a promise once, as files; the default run tells them again.

A file NAME.frames holds the ids of the masters' state of its run (u64 each, little endian: those of its MAP and of its
REDUCE shuffle), then frames as a client sends them after HELLO.
"""

import struct
from hashlib import sha256
from pathlib import Path

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.frame import HEADER_BYTES, decode_header, encode_frame
from holdfast.common.ids import StateId

CORPUS = Path(__file__).parent
_STATE = struct.Struct("<Q")
_States = tuple[StateId, StateId]


def keep(directory: Path, frames: bytes, states: _States) -> Path:
    """Write a conversation, whose HELLO is left out, to a file named by its content."""
    try:
        start = HEADER_BYTES + decode_header(frames).meta_bytes
    except ProtocolError:
        start = 0  # it was spoilt
    path = directory / f"{sha256(frames).hexdigest()[:12]}.frames"
    path.write_bytes(b"".join(map(_STATE.pack, states)) + frames[start:])
    return path


def repeated(path: Path, states: _States) -> bytes:
    """The frames of a file, with the ids of the states of this run in place of those of its own."""
    data = path.read_bytes()
    old, rest = [data[:8], data[8:16]], data[16:]
    frames = []
    while len(rest) >= HEADER_BYTES:
        try:
            header = decode_header(rest)
        except ProtocolError:
            break  # it was meant to be none
        meta = rest[HEADER_BYTES : HEADER_BYTES + header.meta_bytes]
        for before, now in zip(old, states, strict=True):
            meta = meta.replace(before, _STATE.pack(now))
        head = encode_frame(header.type, header.request_id, meta, header.body_bytes, status=header.status)
        end = HEADER_BYTES + header.meta_bytes + header.body_bytes
        frames.append(head + rest[HEADER_BYTES + header.meta_bytes : end])
        rest = rest[end:]
    return b"".join(frames) + rest
