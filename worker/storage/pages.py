"""Reads LMDB's file by itself, page by page, and proves it sound before liblmdb touches it.

LMDB has no checksums and trusts its file: one wrong byte in a page can end the process, drop records without a word, or,
through a free list that names a page in use, overwrite good records later. Our records carry a CRC-32C over key and value;
this module checks what they cannot: that the newest meta page is sane, that every page of the file belongs to exactly one
of tree, free-list tree and free list, that pages, separators and keys are in order, and that the counts are right.

The format is that of liblmdb 0.9 on a 64-bit little-endian machine (data version 1; lmdb.h and mdb.c, "struct MDB_page",
"MDB_node", "MDB_db", "MDB_meta"). Pure: reads a buffer, raises IndexDamagedError with a sentence. Run by check.py in a
child process (a buffer that maps a file may still fault if the disk cannot read), and by `verify`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from holdfast.common.checksum import crc32c
from holdfast.common.errors import CorruptError

#: pgno u64, pad u16, flags u16, lower u16, upper u16
_PAGE = struct.Struct("<QHHHH")
_PAGE_BYTES = _PAGE.size
_OVERFLOW = struct.Struct("<QHHI")
#: lo u16, hi u16, flags u16, key size u16
_NODE = struct.Struct("<HHHH")
_NODE_BYTES = _NODE.size
#: magic u32, version u32, address u64, map size u64
_META = struct.Struct("<IIQQ")
#: pad u32, flags u16, depth u16, branch pages, leaf pages, overflow pages, entries, root u64
_DB = struct.Struct("<IHHQQQQQ")
_META_TAIL = struct.Struct("<QQ")
_CRC = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_BRANCH, _LEAF, _IS_OVERFLOW, _IS_META = 0x01, 0x02, 0x04, 0x08
_BIG_DATA = 0x01
_INTEGER_KEY = 0x08
_NO_PAGE = 0xFFFF_FFFF_FFFF_FFFF
_DEPTH_MAX = 32
META_PAGES = 2

Visit = Callable[[memoryview, int, int, int], None]
_LeafNode = Callable[[int, int, int, int], None]


class IndexDamagedError(CorruptError):
    """The index cannot be trusted; the message says what is wrong, and on which page."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """One of the two trees of a meta page."""

    name: str
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


@dataclass(frozen=True, slots=True)
class PageCounts:
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
    """One pass over a file. `visit(data, key start, value start, value end)` is called for every record in key order,
    with the CRC of key and value already checked (value end is before the CRC)."""

    def __init__(self, data: memoryview, visit: Visit) -> None:
        self._data = data
        self._visit = visit
        self._page_bytes = 0
        self._last_page = 0
        self._owner = bytearray()
        self._slack = 0
        self._counts = [0, 0, 0, 0]

    def run(self) -> PageCounts:
        """Check everything; raises IndexDamagedError."""
        try:
            return self._run()
        except struct.error as error:
            raise IndexDamagedError(f"a page of the index is cut ({error})") from None

    def _run(self) -> PageCounts:
        free_tree, main_tree = self._newest_meta()
        self._owner = bytearray(self._last_page + 1)
        self._owner[0] = self._owner[1] = 1
        self._walk(main_tree, self._record)
        freed: list[int] = []
        self._walk(free_tree, lambda *node: self._free_list(freed, *node))
        for page in freed:
            self._own(page, "the free list")
        missing = self._owner.count(0)
        if missing:
            raise IndexDamagedError(f"{missing} pages of the index belong to nothing (page {self._owner.index(0)})")
        used = self._last_page + 1 - len(freed)
        return PageCounts(self._page_bytes, used, len(freed), main_tree.entries, self._slack)

    # meta pages

    def _newest_meta(self) -> tuple[_Tree, _Tree]:
        size = len(self._data)
        if size < _PAGE_BYTES + _META.size + 2 * _DB.size:
            raise IndexDamagedError(f"the index has only {size} bytes")
        page_bytes = _DB.unpack_from(self._data, _PAGE_BYTES + _META.size)[0]
        if page_bytes not in (4096, 8192, 16384, 32768, 65536) or size < META_PAGES * page_bytes:
            raise IndexDamagedError(f"the index says it has pages of {page_bytes} bytes")
        self._page_bytes = page_bytes
        metas = [self._meta(number) for number in range(META_PAGES)]
        _, last_page, free_tree, main_tree = max(metas, key=lambda meta: meta[0])
        if last_page < 1 or (last_page + 1) * page_bytes > size:
            raise IndexDamagedError(f"the index has {size} bytes, too few for {last_page + 1} pages: it is cut")
        self._last_page = last_page
        if free_tree.flags != _INTEGER_KEY or main_tree.flags:
            raise IndexDamagedError("the meta page of the index names unknown flags")
        return free_tree, main_tree

    def _meta(self, number: int) -> tuple[int, int, _Tree, _Tree]:
        base = number * self._page_bytes
        page, _, flags, _, _ = _PAGE.unpack_from(self._data, base)
        at = base + _PAGE_BYTES
        magic, version, _, _ = _META.unpack_from(self._data, at)
        if page != number or flags != _IS_META or magic != _MAGIC or version != _DATA_VERSION:
            raise IndexDamagedError(f"meta page {number} of the index is not one of LMDB data version {_DATA_VERSION}")
        at += _META.size
        page_bytes, *free = _DB.unpack_from(self._data, at)
        _, *main = _DB.unpack_from(self._data, at + _DB.size)
        last_page, transaction = _META_TAIL.unpack_from(self._data, at + 2 * _DB.size)
        if page_bytes != self._page_bytes:
            raise IndexDamagedError("the two meta pages of the index name different page sizes")
        return transaction, last_page, _Tree("free list", *free), _Tree("records", *main)

    # trees

    def _walk(self, tree: _Tree, leaf_node: _LeafNode) -> None:
        self._counts = [0, 0, 0, 0]
        if tree.root != _NO_PAGE:
            if not 0 < tree.depth <= _DEPTH_MAX:
                raise IndexDamagedError(f"the tree of {tree.name} has a depth of {tree.depth}")
            self._page(tree, tree.root, tree.depth, leaf_node, _Bounds(tree.name == "free list"))
        elif tree.depth:
            raise IndexDamagedError(f"the tree of {tree.name} has a depth but no root")
        counted = (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries)
        if counted != tuple(self._counts):
            raise IndexDamagedError(f"the tree of {tree.name} should have {counted}, has {tuple(self._counts)}")

    def _own(self, page: int, what: str) -> None:
        if not META_PAGES <= page <= self._last_page:
            raise IndexDamagedError(f"{what} names page {page} of {self._last_page + 1}")
        if self._owner[page]:
            raise IndexDamagedError(f"page {page} of the index is used twice, once by {what}")
        self._owner[page] = 1

    def _page(self, tree: _Tree, page: int, depth: int, leaf_node: _LeafNode,
              bounds: _Bounds) -> None:
        self._own(page, f"the tree of {tree.name}")
        base = page * self._page_bytes
        number, _, flags, lower, upper = _PAGE.unpack_from(self._data, base)
        if number != page or flags != (_LEAF if depth == 1 else _BRANCH):
            raise IndexDamagedError(f"page {page} of the index has number {number}, flags {flags:#x}")
        count = (lower - _PAGE_BYTES) >> 1
        if lower & 1 or count < 1 or not lower <= upper <= self._page_bytes:
            raise IndexDamagedError(f"page {page} of the index has its borders at {lower} and {upper}")
        pointers = _pointers(count).unpack_from(self._data, base + _PAGE_BYTES)
        if min(pointers) != upper or max(pointers) + _NODE_BYTES > self._page_bytes:
            raise IndexDamagedError(f"page {page} of the index points outside itself")
        self._slack += upper - lower
        if depth == 1:
            self._counts[1] += 1
            self._counts[3] += count
            used = self._leaf(page, base, pointers, leaf_node, bounds)
        else:
            self._counts[0] += 1
            used = self._branch(tree, page, depth, pointers, leaf_node, bounds)
        if used != self._page_bytes - upper:
            raise IndexDamagedError(f"the nodes of page {page} of the index do not fill it")

    def _branch(self, tree: _Tree, page: int, depth: int, pointers: tuple[int, ...],
                leaf_node: _LeafNode, bounds: _Bounds) -> int:
        base = page * self._page_bytes
        used = 0
        for number, pointer in enumerate(pointers):
            at = base + pointer
            low, high, top, key_size = _NODE.unpack_from(self._data, at)
            size = _NODE_BYTES + key_size
            used += size + (size & 1)
            if pointer + size > self._page_bytes:
                raise IndexDamagedError(f"a node of page {page} of the index leaves the page")
            if number:  # liblmdb never looks at the first separator
                bounds.separator(bytes(self._data[at + _NODE_BYTES : at + size]), page)
            self._page(tree, low | high << 16 | top << 32, depth - 1, leaf_node, bounds)
        return used

    def _leaf(self, page: int, base: int, pointers: tuple[int, ...],
              leaf_node: _LeafNode, bounds: _Bounds) -> int:
        used = 0
        data = self._data
        end_of_page = base + self._page_bytes
        unpack = _NODE.unpack_from
        for pointer in pointers:
            at = base + pointer
            low, high, flags, key_size = unpack(data, at)
            start = at + _NODE_BYTES
            middle = start + key_size
            size = low | high << 16
            in_page = _U64.size if flags == _BIG_DATA else size
            end = middle + in_page
            if end > end_of_page or flags & ~_BIG_DATA:
                raise IndexDamagedError(f"a node of page {page} of the index leaves the page or has flags {flags:#x}")
            used += (end - at + 1) & ~1
            bounds.key(bytes(data[start:middle]), page)
            if flags:
                middle, size = self._overflow(_U64.unpack_from(data, middle)[0], size)
            leaf_node(page, start, middle, size)
        return used

    def _overflow(self, page: int, size: int) -> tuple[int, int]:
        """Own the pages of a value that has its own; return where it starts and its size."""
        base = page * self._page_bytes
        count = (_PAGE_BYTES + size - 1) // self._page_bytes + 1
        for number in range(page, page + count):
            self._own(number, "a long value")
        head = _OVERFLOW.unpack_from(self._data, base)
        if head[0] != page or head[2] != _IS_OVERFLOW or head[3] != count:
            raise IndexDamagedError(f"the long value on page {page} of the index has a wrong head")
        self._counts[2] += count
        return base + _PAGE_BYTES, size

    # nodes

    def _record(self, page: int, start: int, middle: int, size: int) -> None:
        end = middle + size - _CRC.size
        if size < _CRC.size or middle < start or middle - start > self._page_bytes:
            raise IndexDamagedError(f"a record on page {page} of the index is too short, or not in one page")
        if crc32c(self._data[start:end]) != _CRC.unpack_from(self._data, end)[0]:
            raise IndexDamagedError(f"a record on page {page} of the index does not match its checksum")
        self._visit(self._data, start, middle, end)

    def _free_list(self, freed: list[int], page: int, start: int, middle: int, size: int) -> None:
        if size < _U64.size:
            raise IndexDamagedError(f"a free list on page {page} of the index is cut")
        count = _U64.unpack_from(self._data, middle)[0]
        if (count + 1) * _U64.size > size:
            raise IndexDamagedError(f"a free list on page {page} of the index is longer than its record")
        freed.extend(struct.unpack_from(f"<{count}Q", self._data, middle + _U64.size))


class _Bounds:
    """Checks that keys ascend over the whole tree and that separators lie between their neighbours."""

    __slots__ = ("_integer", "_last", "_separator")

    def __init__(self, integer: bool) -> None:
        self._integer = integer
        self._last = b""
        self._separator = b""

    def _value(self, key: bytes) -> bytes:
        """Integer keys (transaction numbers of the free list) as bytes that sort like them."""
        return key[::-1] if self._integer else key

    def separator(self, key: bytes, page: int) -> None:
        key = self._value(key)
        if key <= self._last:
            raise IndexDamagedError(f"a separator on page {page} of the index is out of order")
        self._separator = key

    def key(self, key: bytes, page: int) -> None:
        key = self._value(key)
        if key <= self._last or key < self._separator:
            raise IndexDamagedError(f"a key on page {page} of the index is out of order")
        self._last = key
