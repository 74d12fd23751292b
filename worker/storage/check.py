"""Checks an index, or lists data, in a process of its own: `python -P -m holdfast.worker.storage.check index|data DIR`.

Processes of their own, because reading a mapped file that the disk cannot deliver ends the process that reads, and
because the two run beside each other and beside the start of the worker. Neither loads liblmdb, and what they import is
kept small: they are a part of every restart. The answer is one line of JSON (encode_index, encode_data), or
{"damage": sentence}.

Started by prepare.py, whose answers opening.py reads; the functions are also used by `verify` and `inspect`.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, NamedTuple

from crc32c import crc32c

from holdfast.common.lmdb_pages import LmdbDamagedError, PageCheck, PageCounts
from holdfast.worker.storage import names
from holdfast.worker.storage.env.interfaces import Files, Kind
from holdfast.worker.storage.env.system_files import SystemFiles, end_at_once

#: The start of a file record: file bytes u64, CRC of the name u32, epochs u32.
_FILE_HEAD = struct.Struct("<QI4x")
_SHUFFLE_BYTES = 32
#: Its key behind the shuffle: what kind of file it is, and as many bytes as files of that kind have.
_KEY_BYTES = {0: 41, 1: 41, 2: 49}
_READ_BYTES = 8 << 20
_FILE, _META, _STARTS = b"FMS"
#: Records that say that there is something of a shuffle besides its files: epochs, files on the DFS, the last seal.
_TRACES = frozenset(b"EDG")
#: Records that nothing here needs to look into.
_OTHERS = frozenset(b"CL")
_U64 = 0xFFFF_FFFF_FFFF_FFFF


class ShuffleSum:
    """What stands for all sealed files of a shuffle when index and disk are compared."""

    __slots__ = ("digest", "files", "size_bytes")

    def __init__(self, files: int = 0, size_bytes: int = 0, digest: int = 0) -> None:
        self.files = files
        self.size_bytes = size_bytes
        #: sum over all files of (CRC-32C of the name) × (length in bytes), mod 2^64
        self.digest = digest

    def values(self) -> tuple[int, int, int]:
        """What is compared."""
        return self.files, self.size_bytes, self.digest & _U64


class IndexReport(NamedTuple):
    """What a sound index holds."""

    pages: PageCounts
    identity: bytes
    starts: bytes
    #: by encoded shuffle key; without files where there is only something else of it
    shuffles: dict[bytes, ShuffleSum]


class DataReport(NamedTuple):
    """What lies below data/. Sealed files are only added up."""

    #: by encoded shuffle key
    shuffles: dict[bytes, ShuffleSum]
    #: paths below the directory, of files that are not sealed or have no name of ours
    others: list[str]


class IndexSums:
    """Adds up the records of an index, told in the order of their keys."""

    def __init__(self) -> None:
        self._shuffles: dict[bytes, ShuffleSum] = {}
        self._small = {_META: b"", _STARTS: b""}
        self._newest, self._total = b"", ShuffleSum()

    def visit(self, page: bytes, start: int, middle: int, end: int) -> None:
        """A record: its key and its value within a page. Raises LmdbDamagedError."""
        space = page[start]
        if space == _FILE:
            kind = page[start + 1 + _SHUFFLE_BYTES] if middle - start > 1 + _SHUFFLE_BYTES else -1
            if middle - start - 1 != _KEY_BYTES.get(kind) or end - middle < _FILE_HEAD.size:
                raise LmdbDamagedError("a file record of the index has a wrong length")
            total = self._of(page, start)
            size, name_crc = _FILE_HEAD.unpack_from(page, middle)
            total.files += 1
            total.size_bytes += size
            total.digest += name_crc * size
        elif space in _TRACES:
            self._of(page, start)
        elif space in self._small:
            self._small[space] = page[middle:end]
        elif space not in _OTHERS:
            raise LmdbDamagedError(f"the index has a record of unknown space {space}")

    def _of(self, page: bytes, start: int) -> ShuffleSum:
        key = page[start + 1 : start + 1 + _SHUFFLE_BYTES]
        if key != self._newest:
            self._newest, self._total = key, self._shuffles.setdefault(key, ShuffleSum())
        return self._total

    def report(self, pages: PageCounts) -> IndexReport:
        """What they came to."""
        return IndexReport(pages, self._small[_META], self._small[_STARTS], self._shuffles)


def check_index(data: memoryview) -> IndexReport:
    """Check a whole data.mdb; raises LmdbDamagedError."""
    sums = IndexSums()
    return sums.report(PageCheck(data, sums.visit, name="index").run())


def check_file(files: Files, path: str) -> IndexReport:
    """Check the data.mdb at `path`; raises LmdbDamagedError, or OSError if it cannot be read."""
    file = files.open(path)
    size = files.size(file)
    if not size:
        raise LmdbDamagedError("the index is empty")
    for offset in range(0, size, _READ_BYTES):  # brings it into the page cache in order, not page by page
        files.read_ahead(file, offset, _READ_BYTES)
    with files.map(file, size) as data:
        return check_index(data)


def list_data(files: Files, root: str) -> DataReport:
    """List what lies below data/ of a storage directory; raises OSError."""
    report = DataReport({}, [])
    data = f"{root}/{names.DATA}"
    for top in sorted(files.names_if_any(data)):
        instance = names.parse_instance(top)
        if instance is None or not files.is_folder(f"{data}/{top}"):
            report.others.append(f"{names.DATA}/{top}")
            continue
        for folder in sorted(files.names(f"{data}/{top}")):
            numbers = names.parse_shuffle(folder)
            below = f"{names.DATA}/{top}/{folder}"
            if numbers is None or not files.is_folder(f"{root}/{below}"):
                report.others.append(below)
                continue
            key = instance + struct.pack(">IIQ", *numbers)
            report.shuffles[key] = _list_shuffle(files, f"{root}/{below}", below, report.others)
    return report


def _list_shuffle(files: Files, folder: str, below: str, others: list[str]) -> ShuffleSum:
    """Add up the sealed files of a folder: one listing, one stat each. Names that only look right change the digest."""
    sealed, rest = files.sizes(folder, names.SEALED_SUFFIXES)
    others += [f"{below}/{entry.name}" for entry in rest if entry.kind is not Kind.LINK]
    digest = sum([crc32c(name.encode("utf-8", "surrogateescape")) * size for name, size in sealed])
    return ShuffleSum(len(sealed), sum([size for _, size in sealed]), digest)


def encode_index(report: IndexReport) -> str:
    """The report as one line."""
    small = {"identity": report.identity.hex(), "starts": report.starts.hex(), "pages": list(report.pages)}
    return json.dumps({**small, "shuffles": _encode_sums(report.shuffles)})


def decode_index(text: str) -> IndexReport:
    """The opposite of encode_index; raises LmdbDamagedError for the report of a damaged index, or for none at all."""
    values = _decode(text)
    identity, starts = bytes.fromhex(values["identity"]), bytes.fromhex(values["starts"])
    return IndexReport(PageCounts(*values["pages"]), identity, starts, _decode_sums(values["shuffles"]))


def encode_data(report: DataReport) -> str:
    """The report as one line."""
    return json.dumps({"others": report.others, "shuffles": _encode_sums(report.shuffles)})


def decode_data(text: str) -> DataReport:
    """The opposite of encode_data; raises LmdbDamagedError if the listing did not end."""
    values = _decode(text)
    return DataReport(_decode_sums(values["shuffles"]), values["others"])


def _encode_sums(sums: dict[bytes, ShuffleSum]) -> dict[str, tuple[int, int, int]]:
    return {key.hex(): one.values() for key, one in sums.items()}


def _decode_sums(values: dict[str, list[int]]) -> dict[bytes, ShuffleSum]:
    return {bytes.fromhex(key): ShuffleSum(*one) for key, one in values.items()}


def _decode(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        raise LmdbDamagedError("the check ended without an answer") from None
    if "damage" in values:
        raise LmdbDamagedError(values["damage"])
    return dict(values)


def report(files: Files, what: str, directory: str) -> str:
    """Check the index of a storage directory, or list its data; one line."""
    try:
        if what == "index":
            return encode_index(check_file(files, f"{directory}/{names.INDEX_DATA}"))
        return encode_data(list_data(files, directory))
    except (LmdbDamagedError, OSError) as error:
        return json.dumps({"damage": str(error)})


def main(what: str, directory: str) -> None:
    """Do it, and print the report."""
    try:
        sys.stdout.write(report(SystemFiles(), what, directory) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        end_at_once()  # who asked was killed; nobody is left to be told


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
