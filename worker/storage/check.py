"""Checks an index in a process of its own and says what it found: `python -P -m holdfast.worker.storage.check DIR`.

A process of its own, because reading a mapped file that the disk cannot deliver ends the process that reads, and because
the listing of the directory runs beside it on another core. It does not load liblmdb. The answer is one line of JSON:
{"damage": sentence}, or {"identity", "starts": hex, "pages": {...}, "shuffles": {key hex: [files, bytes, digest]}}.

Called by opening.py; the functions also by `verify`.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast.common.checksum import crc32c
from holdfast.worker.storage.layout import INDEX_DATA
from holdfast.worker.storage.pages import IndexDamagedError, PageCheck, PageCounts

_FILE_BYTES = struct.Struct("<Q")
_SHUFFLE_BYTES = 24
_KEY_BYTES = 40
_READ_BYTES = 8 << 20
_FILE, _REGION, _META, _STARTS = b"FRMS"


@dataclass(slots=True)
class ShuffleSum:
    """What stands for all sealed files of a shuffle when index and disk are compared."""

    files: int = 0
    size_bytes: int = 0
    #: sum of the CRC-32C of (file key, length) over all files
    digest: int = 0


def file_digest(key_and_length: bytes | memoryview) -> int:
    """The part that a file has in the digest: the CRC of its encoded key and its length as u64, little endian."""
    return crc32c(key_and_length)


@dataclass(slots=True)
class IndexReport:
    """What a sound index holds."""

    pages: PageCounts
    identity: bytes = b""
    starts: bytes = b""
    #: by encoded shuffle key
    shuffles: dict[bytes, ShuffleSum] = field(default_factory=dict)


def check_index(data: memoryview) -> IndexReport:
    """Check a whole data.mdb; raises IndexDamagedError."""
    shuffles: dict[bytes, ShuffleSum] = {}
    small = {_META: b"", _STARTS: b""}

    def visit(buffer: memoryview, start: int, middle: int, end: int) -> None:
        space = buffer[start]
        if space == _FILE:
            if middle - start != 1 + _KEY_BYTES or end - middle < _FILE_BYTES.size:
                raise IndexDamagedError("a file record of the index has a wrong length")
            key = bytes(buffer[start + 1 : start + 1 + _SHUFFLE_BYTES])
            total = shuffles.get(key)
            if total is None:
                total = shuffles[key] = ShuffleSum()
            total.files += 1
            total.size_bytes += _FILE_BYTES.unpack_from(buffer, middle)[0]
            total.digest += file_digest(buffer[start + 1 : middle + _FILE_BYTES.size])
        elif space in small:
            small[space] = bytes(buffer[middle:end])
        elif space != _REGION:
            raise IndexDamagedError(f"the index has a record of unknown space {space}")

    pages = PageCheck(data, visit).run()
    return IndexReport(pages, small[_META], small[_STARTS], shuffles)


def check_file(path: Path) -> IndexReport:
    """Check the data.mdb at `path`; raises IndexDamagedError, or OSError if it cannot be read."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise IndexDamagedError("the index is empty")
        for offset in range(0, size, _READ_BYTES):  # brings it into the page cache in order, not page by page
            os.posix_fadvise(file.fileno(), offset, _READ_BYTES, os.POSIX_FADV_WILLNEED)
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            return check_index(data)


def encode_report(report: IndexReport) -> str:
    """The report as one line."""
    shuffles = {key.hex(): [one.files, one.size_bytes, one.digest] for key, one in report.shuffles.items()}
    small = {"identity": report.identity.hex(), "starts": report.starts.hex()}
    return json.dumps({**small, "pages": asdict(report.pages), "shuffles": shuffles})


def decode_report(text: str) -> IndexReport:
    """The opposite of encode_report; raises IndexDamagedError for the report of a damaged index, or for none at all."""
    try:
        values = json.loads(text)
    except ValueError:
        raise IndexDamagedError("checking the index ended without an answer") from None
    if "damage" in values:
        raise IndexDamagedError(values["damage"])
    shuffles = {bytes.fromhex(key): ShuffleSum(*one) for key, one in values["shuffles"].items()}
    pages = PageCounts(**values["pages"])
    return IndexReport(pages, bytes.fromhex(values["identity"]), bytes.fromhex(values["starts"]), shuffles)


def main(directory: str) -> None:
    """Check the index of a storage directory and print the report."""
    try:
        text = encode_report(check_file(Path(directory) / INDEX_DATA))
    except (IndexDamagedError, OSError) as error:
        text = json.dumps({"damage": str(error)})
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
