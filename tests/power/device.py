"""Disks that lose their power: images in memory, behind FUSE, that keep what was written until they are told to flush.

    python -m tests.power.device MOUNT_POINT IMAGES MIB

A loop device on MOUNT_POINT/<image>.<boot> is a disk with a volatile cache: every write is kept apart until the file is
synced, which is what the loop device makes of a flush (FUSE_FSYNC). The line `cut IMAGE SEED BLOCK` on standard input
ends a boot: of the writes that were not flushed some are on the disk, some are not, some by parts of BLOCK bytes, in no
order; what still comes from that boot is thrown away. Then MOUNT_POINT/<image>.<boot + 1> is the disk as it was found.
Answers `cut KEPT OF` in writes. Speaks the little of the FUSE protocol that a loop device needs; needs root.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import select
import stat
import struct
import sys
from dataclasses import dataclass, field
from enum import IntEnum

MAX_WRITE = 1 << 20
_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_INIT_OUT = struct.Struct("<IIIIHHIIHHII24x")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_AT = struct.Struct("<QQI")
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_ROOT = 1


class Op(IntEnum):
    """What the kernel asks for; anything else is not here."""

    LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS = 1, 2, 3, 4, 14, 15, 16, 17
    RELEASE, FSYNC, FLUSH, INIT, ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = 18, 20, 25, 26, 34, 36, 38, 42


_NO_ANSWER = frozenset({Op.FORGET, Op.INTERRUPT, Op.DESTROY, Op.BATCH_FORGET})


@dataclass
class Image:
    """One disk."""

    now: mmap.mmap
    durable: mmap.mmap
    boot: int = 0
    #: what was written since the last flush, in order
    cache: list[tuple[int, bytes]] = field(default_factory=list)

    def flush(self) -> None:
        """All of it is on the disk."""
        for offset, data in self.cache:
            self.durable[offset : offset + len(data)] = data
        self.cache.clear()

    def cut(self, rng: random.Random, block: int) -> tuple[int, int]:
        """The power goes: return how many writes reached the disk, in part at least, and of how many."""
        keep, kept = rng.choice([0.0, 0.3, 0.7, 0.95, rng.random()]), 0
        for offset, data in self.cache:
            if rng.random() >= keep:
                continue
            kept += 1
            torn = rng.random() < 0.3
            for at in range(0, len(data), block):
                if not torn or rng.random() < 0.5:
                    self.durable[offset + at : offset + min(at + block, len(data))] = data[at : at + block]
        for offset, data in self.cache:
            self.now[offset : offset + len(data)] = self.durable[offset : offset + len(data)]
        found = kept, len(self.cache)
        self.cache.clear()
        self.boot += 1
        return found


class Disks:
    """Answers the kernel."""

    def __init__(self, images: int, size: int) -> None:
        self.size = size
        self.images = [Image(mmap.mmap(-1, size), mmap.mmap(-1, size)) for _ in range(images)]

    def _of(self, node: int) -> tuple[Image, bool]:
        """The disk of a file, and whether its boot goes on."""
        image = self.images[(node - 2) & 0xFF]
        return image, image.boot == (node - 2) >> 8

    def _attributes(self, node: int) -> bytes:
        if node == _ROOT:
            mode, size = stat.S_IFDIR | 0o700, 0
        else:
            mode, size = stat.S_IFREG | 0o600, self.size
        return _ATTR.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, opcode: int, node: int, body: memoryview) -> bytes:
        """What the kernel is told; raises OSError."""
        match opcode:
            case Op.INIT:
                return _INIT_OUT.pack(7, 31, 1 << 17, _BIG_WRITES | _MAX_PAGES, 16, 12, MAX_WRITE, 1, 256, 0, 0, 0)
            case Op.LOOKUP:
                number, _, boot = bytes(body).rstrip(b"\0").partition(b".")
                if not (number.isdigit() and boot.isdigit()) or int(number) >= len(self.images):
                    raise OSError(errno.ENOENT, "no such disk")
                found = 2 + (int(boot) << 8 | int(number))
                return _ENTRY.pack(found, 0, 3600, 3600, 0, 0) + self._attributes(found)
            case Op.GETATTR | Op.SETATTR:
                return struct.pack("<QII", 3600, 0, 0) + self._attributes(node)
            case Op.OPEN:
                return bytes(16)
            case Op.READ:
                _, offset, size = _AT.unpack_from(body)
                return self._of(node)[0].now[offset : offset + size]
            case Op.WRITE:
                _, offset, size = _AT.unpack_from(body)
                image, here = self._of(node)
                if here:
                    data = bytes(body[40 : 40 + size])
                    image.now[offset : offset + size] = data
                    image.cache.append((offset, data))
                return struct.pack("<II", size, 0)
            case Op.FSYNC:
                image, here = self._of(node)
                if here:
                    image.flush()
                return b""
            case Op.STATFS:
                return struct.pack("<QQQQQIIII24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
            case Op.RELEASE | Op.FLUSH | Op.ACCESS:
                return b""
        raise OSError(errno.ENOSYS, "not here")


def serve(place: str, images: int, size: int) -> None:
    """Mount and answer until standard input ends."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"power", place.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), f"cannot mount {place}")
    disks = Disks(images, size)
    print("ready", flush=True)
    buffer = bytearray(MAX_WRITE + 65_536)
    while True:
        for found in select.select([fd, 0], [], [])[0]:
            if found == fd:
                if not _answer(fd, disks, buffer):
                    return
            else:
                line = os.read(0, 4096).split()
                if not line:
                    return
                image = disks.images[int(line[1])]
                kept, of = image.cut(random.Random(int(line[2])), int(line[3]))
                print("cut", kept, of, flush=True)


def _answer(fd: int, disks: Disks, buffer: bytearray) -> bool:
    """Answer one request; False if the mount is gone."""
    try:
        size = os.readv(fd, [buffer])
    except OSError as error:
        if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):  # it was interrupted before we read it
            return True
        if error.errno == errno.ENODEV:
            return False
        raise
    _, opcode, unique, node, *_ = _IN.unpack_from(buffer)
    if opcode in _NO_ANSWER:
        return True
    try:
        body, status = disks.answer(opcode, node, memoryview(buffer)[_IN.size : size]), 0
    except OSError as error:
        body, status = b"", -(error.errno or errno.EIO)
    os.writev(fd, [_OUT.pack(_OUT.size + len(body), status, unique), body])
    return True


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 20)
