"""Reads LMDB's file by itself, page by page, and proves it sound before liblmdb touches it.

LMDB has no checksums and trusts its file: one wrong byte in a page can end the process, drop records without a word,
or, through a free list that names a page in use, overwrite good records later. Our records carry a CRC-32C over key and
value; this module checks what they cannot: that the two meta pages are sane and of successive transactions, that
every page of the file belongs to exactly one of tree, free-list tree and free list, that pages, separators and keys are
in order, and that the counts are right.

The format is that of liblmdb 0.9 on a 64-bit little-endian machine (data version 1; lmdb.h and mdb.c, "MDB_page",
"MDB_node", "MDB_db", "MDB_meta"). Pure: reads a buffer, raises LmdbDamagedError with a sentence. Called for a worker's
indexes (worker/storage/check.py) and the masters' journal (master/raft/journal_store.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from crc32c import crc32c

from holdfast.common.errors import CorruptError

#: pgno u64, pad u16, flags u16, lower u16, upper u16
_PAGE = struct.Struct("<QHHHH")
_PAGE_BYTES = _PAGE.size
_OVERFLOW = struct.Struct("<QHHI")
#: in a leaf: size of the value u32, flags u16, size of the key u16; in a branch the first six bytes are a page number
_NODE = struct.Struct("<IHH")
_NODE_BYTES = _NODE.size
#: magic u32, version u32, address u64, map size u64
_META = struct.Struct("<IIQQ")
#: pad u32, flags u16, depth u16, branch pages, leaf pages, overflow pages, entries, root u64
_DB = struct.Struct("<IHHQQQQQ")
_META_TAIL = struct.Struct("<QQ")
_U64 = struct.Struct("<Q")
_CRC_BYTES = 4
#: CRC-32C of anything followed by its own CRC-32C, little endian.
_CRC_RESIDUE = 0x48674BC7

_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_BRANCH, _LEAF, _IS_OVERFLOW, _IS_META = 0x01, 0x02, 0x04, 0x08
_BIG_DATA = 0x01
_INTEGER_KEY = 0x08
_NO_PAGE = 0xFFFF_FFFF_FFFF_FFFF
_DEPTH_MAX = 32
META_PAGES = 2

Visit = Callable[[bytes, int, int, int], None]
_Leaf = Callable[[int, bytes, tuple[int, ...]], int]


class LmdbDamagedError(CorruptError):
    """A file of LMDB cannot be trusted; the message says what is wrong, and on which page."""


class _Tree(NamedTuple):
    """One of the two trees of a meta page."""

    name: str
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class _Counts:
    """What a walk over one tree has met."""

    def __init__(self) -> None:
        self.branch_pages = self.leaf_pages = self.overflow_pages = self.entries = 0


class PageCounts(NamedTuple):
    """What a sound file consists of, in pages and bytes."""

    page_bytes: int
    used_pages: int
    free_pages: int
    records: int
    #: bytes inside used pages that nothing refers to
    slack_bytes: int


@lru_cache(maxsize=4096)
def _pointers(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}H")


class PageCheck:
    """One pass over a file.

    `visit(page, key start, value start, value end)` is called for every record in key order, its CRC already checked:
    every record then ends in one, and lies within its page. Without `visit` records are their owner's to check, and may
    be longer than a page.
    """

    def __init__(self, data: memoryview, visit: Visit | None = None, *, name: str) -> None:
        """`name` is what errors call the file."""
        self._data = data
        self._name = name
        self._visit = visit
        self._page_bytes = 0
        self._last_page = self._transaction = 0
        self._owner = bytearray()
        self._slack = 0
        self._counts = _Counts()
        self._freed: list[int] = []
        self._key_step = 1
        self._last_key = self._separator = b""

    def run(self) -> PageCounts:
        """Check everything; raises LmdbDamagedError."""
        try:
            return self._run()
        except struct.error as error:
            raise LmdbDamagedError(f"a page of the {self._name} is cut ({error})") from None

    def _run(self) -> PageCounts:
        free_tree, main_tree = self._newest_meta()
        self._owner = bytearray(self._last_page + 1)
        self._owner[0] = self._owner[1] = 1
        self._walk(main_tree, self._record_leaf)
        self._key_step = -1  # transaction numbers are little endian: backwards they sort as bytes
        self._walk(free_tree, self._free_leaf)
        freed = self._freed
        for page in freed:
            self._own(page, "the free list")
        missing = self._owner.count(0)
        if missing:
            raise LmdbDamagedError(
                f"{missing} pages of the {self._name} belong to nothing (page {self._owner.index(0)})"
            )
        used = self._last_page + 1 - len(freed)
        return PageCounts(self._page_bytes, used, len(freed), main_tree.entries, self._slack)

    # meta pages

    def _newest_meta(self) -> tuple[_Tree, _Tree]:
        size = len(self._data)
        if size < _PAGE_BYTES + _META.size + 2 * _DB.size:
            raise LmdbDamagedError(f"the {self._name} has only {size} bytes")
        page_bytes = _DB.unpack_from(self._data, _PAGE_BYTES + _META.size)[0]
        if page_bytes not in (4096, 8192, 16384, 32768, 65536) or size < META_PAGES * page_bytes:
            raise LmdbDamagedError(f"the {self._name} has pages of {page_bytes} bytes")
        self._page_bytes = page_bytes
        metas = [self._meta(number) for number in range(META_PAGES)]
        # Each commit writes the older one: taken for the newest by one wrong bit, it would undo the last commit.
        even, odd = (meta[0] for meta in metas)
        if (even, odd) != (0, 0) and (abs(even - odd) != 1 or even & 1):
            raise LmdbDamagedError(f"the two meta pages of the {self._name} are of transactions {even} and {odd}")
        self._transaction, last_page, free_tree, main_tree = max(metas, key=lambda meta: meta[0])
        # Pages that a commit took and gave back at once were never written: at the end they are only in the free list,
        # whose entries take eight bytes each.
        if last_page < 1 or last_page >= size // page_bytes + size // _U64.size:
            raise LmdbDamagedError(f"the {self._name} has {size} bytes, too few for {last_page + 1} pages: it is cut")
        self._last_page = last_page
        if free_tree.flags != _INTEGER_KEY or main_tree.flags:
            raise LmdbDamagedError(f"the meta page of the {self._name} names unknown flags")
        return free_tree, main_tree

    def _meta(self, number: int) -> tuple[int, int, _Tree, _Tree]:
        base = number * self._page_bytes
        page, _, flags, _, _ = _PAGE.unpack_from(self._data, base)
        at = base + _PAGE_BYTES
        magic, version, _, _ = _META.unpack_from(self._data, at)
        if page != number or flags != _IS_META or magic != _MAGIC or version != _DATA_VERSION:
            raise LmdbDamagedError(
                f"meta page {number} of the {self._name} is not one of LMDB data version {_DATA_VERSION}"
            )
        at += _META.size
        page_bytes, *free = _DB.unpack_from(self._data, at)
        _, *main = _DB.unpack_from(self._data, at + _DB.size)
        last_page, transaction = _META_TAIL.unpack_from(self._data, at + 2 * _DB.size)
        if page_bytes != self._page_bytes:
            raise LmdbDamagedError(f"the two meta pages of the {self._name} name different page sizes")
        return transaction, last_page, _Tree("free list", *free), _Tree("records", *main)

    # trees

    def _walk(self, tree: _Tree, leaf: _Leaf) -> None:
        self._counts = _Counts()
        self._last_key = self._separator = b""
        if tree.root != _NO_PAGE:
            if not 0 < tree.depth <= _DEPTH_MAX:
                raise LmdbDamagedError(f"the tree of {tree.name} has a depth of {tree.depth}")
            self._page(tree, tree.root, tree.depth, leaf)
        elif tree.depth:
            raise LmdbDamagedError(f"the tree of {tree.name} has a depth but no root")
        found = self._counts
        counted = (found.branch_pages, found.leaf_pages, found.overflow_pages, found.entries)
        named = (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries)
        if counted != named:
            raise LmdbDamagedError(f"the tree of {tree.name} should have {named} pages and entries, has {counted}")

    def _own(self, page: int, what: str) -> None:
        if not META_PAGES <= page <= self._last_page:
            raise LmdbDamagedError(f"{what} names page {page} of {self._last_page + 1}")
        if self._owner[page]:
            raise LmdbDamagedError(f"page {page} of the {self._name} is used twice, once by {what}")
        self._owner[page] = 1

    def _page(self, tree: _Tree, number: int, depth: int, leaf: _Leaf) -> None:
        self._own(number, tree.name)
        base = number * self._page_bytes
        page = bytes(self._data[base : base + self._page_bytes])
        if len(page) < self._page_bytes:
            raise LmdbDamagedError(f"page {number} of the {self._name} is beyond the end of the file: the file is cut")
        named, _, flags, lower, upper = _PAGE.unpack_from(page)
        if named != number or flags != (_LEAF if depth == 1 else _BRANCH):
            raise LmdbDamagedError(f"page {number} of the {self._name} calls itself {named}, with flags {flags:#x}")
        count = (lower - _PAGE_BYTES) >> 1
        if lower & 1 or count < 1 or not lower <= upper <= self._page_bytes:
            raise LmdbDamagedError(f"page {number} of the {self._name} has its borders at {lower} and {upper}")
        pointers = _pointers(count).unpack_from(page, _PAGE_BYTES)
        if min(pointers) != upper or max(pointers) + _NODE_BYTES > self._page_bytes:
            raise LmdbDamagedError(f"page {number} of the {self._name} points outside itself")
        self._slack += upper - lower
        if depth > 1:
            self._counts.branch_pages += 1
            used = self._branch(tree, number, page, depth, pointers, leaf)
        else:
            self._counts.leaf_pages += 1
            self._counts.entries += count
            used = leaf(number, page, pointers)
        if used != self._page_bytes - upper:
            raise LmdbDamagedError(f"the nodes of page {number} of the {self._name} do not fill it")

    def _branch(self, tree: _Tree, number: int, page: bytes, depth: int, pointers: tuple[int, ...], leaf: _Leaf) -> int:
        used = 0
        for place, pointer in enumerate(pointers):
            low, high, key_bytes = _NODE.unpack_from(page, pointer)
            end = pointer + _NODE_BYTES + key_bytes
            used += (end - pointer + 1) & ~1
            if end > self._page_bytes:
                raise LmdbDamagedError(f"a node of page {number} of the {self._name} leaves the page")
            if place:  # liblmdb never looks at the first separator
                separator = page[pointer + _NODE_BYTES : end][:: self._key_step]
                if separator <= self._last_key:
                    raise LmdbDamagedError(f"a separator on page {number} of the {self._name} is out of order")
                self._separator = separator
            self._page(tree, low | high << 32, depth - 1, leaf)
        return used

    def _record_leaf(self, number: int, page: bytes, pointers: tuple[int, ...]) -> int:
        """Check a leaf of records and visit each; return the bytes that its nodes take."""
        long = 0 if self._visit is not None else _BIG_DATA
        unpack, crc_of, visit, page_bytes = _NODE.unpack_from, crc32c, self._visit, self._page_bytes
        used, last, separator = 0, self._last_key, self._separator
        for pointer in pointers:
            size, flags, key_bytes = unpack(page, pointer)
            start = pointer + _NODE_BYTES
            middle = start + key_bytes
            end = middle + size
            if flags & long:
                end = middle + _U64.size
            if flags & ~long or end > page_bytes:
                raise LmdbDamagedError(
                    f"a record on page {number} of the {self._name} leaves the page or has flags {flags}"
                )
            key = page[start:middle]
            if key <= last or key < separator:
                raise LmdbDamagedError(f"a key on page {number} of the {self._name} is out of order")
            last = key
            used += (end - pointer + 1) & ~1
            if visit is None:
                if flags:
                    self._overflow(_U64.unpack_from(page, middle)[0], size)
                continue
            if size < _CRC_BYTES or crc_of(page[start:end]) != _CRC_RESIDUE:
                raise LmdbDamagedError(f"a record on page {number} of the {self._name} does not match its checksum")
            visit(page, start, middle, end - _CRC_BYTES)
        self._last_key = last
        return used

    # free pages

    def _free_leaf(self, number: int, page: bytes, pointers: tuple[int, ...]) -> int:
        """Check a leaf of the free-list tree and gather the free pages; return the bytes that its nodes take."""
        used = 0
        for pointer in pointers:
            size, flags, key_bytes = _NODE.unpack_from(page, pointer)
            start = pointer + _NODE_BYTES
            middle = start + key_bytes
            end = middle + (_U64.size if flags == _BIG_DATA else size)
            if end > self._page_bytes or flags & ~_BIG_DATA or key_bytes != _U64.size or size < _U64.size:
                raise LmdbDamagedError(
                    f"a free list on page {number} of the {self._name} has a wrong length or flags {flags}"
                )
            key = page[start:middle][:: self._key_step]
            if key <= self._last_key or key < self._separator or int.from_bytes(key) > self._transaction:
                raise LmdbDamagedError(f"a free list on page {number} of the {self._name} is out of order")
            self._last_key = key
            used += (end - pointer + 1) & ~1
            value = page[middle:end] if not flags else self._overflow(_U64.unpack_from(page, middle)[0], size)
            count = _U64.unpack_from(value)[0]
            if (count + 1) * _U64.size > size:
                raise LmdbDamagedError(f"a free list on page {number} of the {self._name} is longer than its record")
            self._freed.extend(struct.unpack_from(f"<{count}Q", value, _U64.size))
        return used

    def _overflow(self, number: int, size: int) -> bytes:
        """Return a value that has pages of its own: a free list, or a record's."""
        base = number * self._page_bytes
        count = (_PAGE_BYTES + size - 1) // self._page_bytes + 1
        for page in range(number, number + count):
            self._own(page, "a long value")
        if base + count * self._page_bytes > len(self._data):
            raise LmdbDamagedError(f"page {number} of the {self._name} is beyond the end of the file: the file is cut")
        named, _, flags, pages = _OVERFLOW.unpack_from(self._data, base)
        if named != number or flags != _IS_OVERFLOW or pages != count:
            raise LmdbDamagedError(f"the long value on page {number} of the {self._name} has a wrong head")
        self._counts.overflow_pages += count
        return bytes(self._data[base + _PAGE_BYTES : base + _PAGE_BYTES + size])
