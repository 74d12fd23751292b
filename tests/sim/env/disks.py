"""Disks of one machine, as they are after a kill, a power loss, a failed sync, or a hand that meddled with them.

A file has bytes in the page cache and bytes on the platter, and between them what was written since its last sync. A
folder has names, and between those of now and those on the platter the changes in the order in which they were made.
A kill leaves the cache as it is. A power loss leaves of what was not synced any part: writes whole, cut at any byte,
or missing, in any order (short ones within a sector are not cut); of changes of names a first part, of each folder or
of all of them together. A sync that fails loses what it should have brought down, for good.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

BLOCK_BYTES = 4_096
#: What lies in one sector is written whole or not at all (disk_format.md). Of longer writes more is left to chance
#: than disks do, so that what is small here is cut as often as what is large elsewhere.
SECTOR_BYTES, SHORT_BYTES = 512, 64
#: What stands for a page, as small as what is written here.
PAGE_BYTES = 64
#: Of a device on which nothing is wrong.
CAPACITY_BYTES = 1 << 40


class Write(NamedTuple):
    """Bytes that are in the cache and not on the platter."""

    offset: int
    data: bytes


class Resize(NamedTuple):
    """The same of a length."""

    size: int


@dataclass(eq=False)
class Device:
    """A file system, and what is wrong with it now. Rates are of single calls."""

    number: int
    capacity: int = CAPACITY_BYTES
    used: int = 0
    read_only: bool = False
    write_errors: float = 0.0
    sync_errors: float = 0.0
    #: of transactions of indexes
    index_errors: float = 0.0
    read_errors: float = 0.0
    #: a read gives a wrong bit
    flips: float = 0.0
    #: calls from threads end no sooner
    hangs_until: float = 0.0
    #: changes of names that are not on the platter, oldest first
    changes: list[Renaming] = field(default_factory=list)

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.used)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.capacity, self.read_only, self.hangs_until = CAPACITY_BYTES, False, 0.0
        self.write_errors = self.sync_errors = self.index_errors = self.read_errors = self.flips = 0.0


class Node:
    """A file or folder."""

    def __init__(self, number: int, device: Device) -> None:
        self.number, self.device = number, device


class Folder(Node):
    """Names, now and on the platter."""

    def __init__(self, number: int, device: Device) -> None:
        super().__init__(number, device)
        self.entries: dict[str, Node] = {}
        self.stable: dict[str, Node] = {}


class Renaming(NamedTuple):
    """One change of names, atomic: in each folder a name, and what it stands for from then on."""

    names: tuple[tuple[Folder, str, Node | None], ...]

    def carry_out(self) -> None:
        for folder, name, node in self.names:
            if node is None:
                folder.stable.pop(name, None)
            else:
                folder.stable[name] = node


class Contents:
    """Bytes with holes, and which blocks they take."""

    def __init__(self) -> None:
        self.buffer: Any = bytearray()
        self.size = 0
        self.blocks: set[int] = set()

    def copy(self) -> Contents:
        found = Contents()
        found.buffer, found.size, found.blocks = bytearray(self.data()), self.size, set(self.blocks)
        return found

    @property
    def end(self) -> int:
        """Where the last hole begins."""
        return min(self.size, (max(self.blocks, default=-1) + 1) * BLOCK_BYTES)

    def data(self) -> bytes:
        """All bytes up to the last hole."""
        return bytes(self.buffer[: self.end])

    def read(self, offset: int, size: int) -> bytes:
        end = min(self.size, offset + size)
        if end <= offset:
            return b""
        found = bytes(self.buffer[offset:end])
        return found + bytes(end - offset - len(found))

    def write(self, offset: int, data: bytes) -> None:
        if not data:
            return
        end = offset + len(data)
        if len(self.buffer) < end:
            if isinstance(self.buffer, mmap.mmap):
                self.buffer = bytearray(self.buffer[: self.size])
            self.buffer.extend(bytes(end - len(self.buffer)))
        self.buffer[offset:end] = data
        self.blocks.update(range(offset // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1))
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        if size < self.size:
            top = min(self.size, len(self.buffer))
            if isinstance(self.buffer, mmap.mmap):
                if size < top:
                    self.buffer[size:top] = bytes(top - size)
            else:
                del self.buffer[size:]
            self.blocks = {block for block in self.blocks if block * BLOCK_BYTES < size}
        self.size = size

    def map(self, size: int) -> memoryview:
        """A view in which later writes are seen."""
        if not isinstance(self.buffer, mmap.mmap) or len(self.buffer) < size:
            mapped = mmap.mmap(-1, max(size, self.size))
            mapped[: len(self.buffer)] = bytes(self.buffer)
            self.buffer = mapped
        return memoryview(self.buffer)[:size].toreadonly()


class File(Node):
    """Bytes, now and on the platter; or what an index holds."""

    def __init__(self, number: int, device: Device) -> None:
        super().__init__(number, device)
        self.now = Contents()
        self.stable = Contents()
        self.pending: list[Write | Resize] = []
        #: of an LMDB file: see indexes.py
        self.index: Any = None
        #: the handle that holds its lock, if it is still open
        self.locked_by: Callable[[], Any] | None = None

    def write(self, offset: int, data: bytes) -> None:
        held = len(self.now.blocks)
        self.now.write(offset, data)
        self.device.used += (len(self.now.blocks) - held) * BLOCK_BYTES
        self.pending.append(Write(offset, data))

    def resize(self, size: int) -> None:
        held = len(self.now.blocks)
        self.now.resize(size)
        self.device.used += (len(self.now.blocks) - held) * BLOCK_BYTES
        self.pending.append(Resize(size))

    def bring_down(self) -> None:
        """All is on the platter, but for what a failed sync has lost."""
        for one in self.pending:
            _apply(self.stable, one)
        self.pending.clear()

    def lose(self, rng: random.Random) -> None:
        """A sync fails: what it should have brought down never will be, and may be gone from the cache, too."""
        if rng.random() < 0.5:
            for one in self.pending:
                if isinstance(one, Write):
                    self._forget(one)
        self.pending.clear()

    def _forget(self, one: Write) -> None:
        end = min(self.now.size, one.offset + len(one.data))
        if end > one.offset:
            old = self.stable.read(one.offset, end - one.offset)
            self.now.write(one.offset, old + bytes(end - one.offset - len(old)))

    def power_loss(self, rng: random.Random) -> None:
        """Of what was not synced any part may be there."""
        pending, how = self.pending, rng.choice(("none", "all", "first", "any", "any"))
        if how == "all":
            kept: list[Write | Resize] = list(pending)
        elif how == "first" and pending:
            at = rng.randrange(len(pending))
            kept = [*pending[:at], *_some(pending[at], rng)]
        elif how == "any":
            kept = [part for one in pending for part in _some(one, rng)]
        else:
            kept = []
        for part in kept:
            _apply(self.stable, part)
        self.pending = []
        self.now = self.stable.copy()
        self.locked_by = None
        if self.index is not None:
            self.index.power_loss(rng)

    def flip(self, rng: random.Random) -> bool:
        """A bit changes on the platter; False if there is none."""
        if self.index is not None:
            return bool(self.index.flip(rng))
        end = len(self.now.data())
        if not end:
            return False
        at = rng.randrange(end)
        bit = 1 << rng.randrange(8)
        for contents in (self.now, self.stable):
            if at < contents.size and at < len(contents.buffer):
                contents.buffer[at] ^= bit
        self.pending = [one for one in self.pending if isinstance(one, Resize) or not _covers(one, at)]
        return True


def _covers(one: Write, at: int) -> bool:
    return one.offset <= at < one.offset + len(one.data)


def _apply(contents: Contents, one: Write | Resize) -> None:
    if isinstance(one, Write):
        contents.write(one.offset, one.data)
    else:
        contents.resize(one.size)


def cut_at(offset: int, size: int, at: int) -> int:
    """How much there is of a write that is cut at some byte."""
    if not _is_atomic(offset, size):
        return at
    return size if 2 * at >= size else 0


def cut_by_kill(offset: int, size: int, at: int) -> int:
    """How much a killed process made of a write: all, or up to a page, since between pages the kernel looks for a
    kill. A sector lies in one page."""
    if at == size or _is_atomic(offset, size):
        return cut_at(offset, size, at)
    return max(0, (offset + at) // PAGE_BYTES * PAGE_BYTES - offset)


def _is_atomic(offset: int, size: int) -> bool:
    return size <= SHORT_BYTES and offset // SECTOR_BYTES == (offset + size - 1) // SECTOR_BYTES


def _some(one: Write | Resize, rng: random.Random) -> list[Write | Resize]:
    """What is left of one change: all, nothing, or of a write its beginning, its end, or a part of its blocks."""
    how = rng.random()
    if how < 0.3:
        return [one]
    if how < 0.6 or isinstance(one, Resize) or not one.data:
        return []
    at = rng.randrange(len(one.data))
    if how < 0.8:
        return [Write(one.offset, one.data[: cut_at(one.offset, len(one.data), at)])]
    end = rng.randrange(at, len(one.data)) + 1
    if _is_atomic(one.offset, len(one.data)):
        return [one]
    return [Write(one.offset + at, one.data[at:end])]


class Disks:
    """All file systems of one machine, over all its boots and processes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.boots = 1
        self._nodes = 1
        self.devices = [Device(1)]
        self.root = Folder(1, self.devices[0])

    def number(self) -> int:
        self._nodes += 1
        return self._nodes

    # the tree

    def find(self, path: str) -> Node:
        """Raises FileNotFoundError, NotADirectoryError."""
        node: Node = self.root
        for part in path.split("/"):
            if part:
                if not isinstance(node, Folder):
                    raise error(errno.ENOTDIR, path)
                found = node.entries.get(part)
                if found is None:
                    raise error(errno.ENOENT, path)
                node = found
        return node

    def folder(self, path: str) -> Folder:
        node = self.find(path)
        if not isinstance(node, Folder):
            raise error(errno.ENOTDIR, path)
        return node

    def mount(self, path: str) -> Device:
        """A file system of its own at a path, whose folders are made."""
        device = Device(len(self.devices) + 1)
        self.devices.append(device)
        parent = self.root
        *above, name = [part for part in path.split("/") if part]
        for part in above:
            node = parent.entries.setdefault(part, Folder(self.number(), self.root.device))
            assert isinstance(node, Folder)
            parent.stable[part] = node
            parent = node
        parent.entries[name] = parent.stable[name] = Folder(self.number(), device)
        return device

    def change(self, *names: tuple[Folder, str, Node | None]) -> None:
        """Change names in the cache."""
        for folder, name, node in names:
            before = folder.entries.get(name)
            if isinstance(before, File) and all(before is not one for _, _, one in names):
                before.device.used -= len(before.now.blocks) * BLOCK_BYTES
            if node is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = node
        names[0][0].device.changes.append(Renaming(names))

    @staticmethod
    def bring_down(folder: Folder) -> None:
        """The names of a folder are on the platter, and what has to come before them."""
        device, wanted = folder.device, {folder}
        left: list[Renaming] = []
        down: list[Renaming] = []
        for one in reversed(device.changes):
            touched = {each for each, _, _ in one.names}
            if touched & wanted:
                wanted |= touched
                down.append(one)
            else:
                left.append(one)
        for one in reversed(down):
            one.carry_out()
        device.changes = left[::-1]

    # what happens to it

    def power_loss(self) -> None:
        """The machine goes down, and comes up again."""
        self.boots += 1
        for device in self.devices:
            self._lose_names(device)
            device.hangs_until = 0.0
        for folder in _folders(self.root, stable=True):
            folder.entries = dict(folder.stable)
        used = dict.fromkeys(self.devices, 0)
        for file in self.files():
            file.power_loss(self.rng)
            used[file.device] += len(file.now.blocks) * BLOCK_BYTES
        for device, size in used.items():
            device.used = size

    def _lose_names(self, device: Device) -> None:
        rng, changes = self.rng, device.changes
        if rng.random() < 0.5:
            for one in changes[: rng.randint(0, len(changes))]:
                one.carry_out()
        else:
            over: set[Folder] = set()
            for one in changes:
                touched = {folder for folder, _, _ in one.names}
                if touched & over or rng.random() < 0.3:
                    over |= touched
                else:
                    one.carry_out()
        device.changes = []

    def files(self, path: str = "/") -> list[File]:
        """Every file below a path, in the order of their names."""
        found = []
        for folder in _folders(self.folder(path)):
            for _, node in sorted(folder.entries.items()):
                if isinstance(node, File):
                    found.append(node)
        return found

    # what is seen from outside

    def contains(self, data: bytes, *, stable: bool) -> bool:
        """Whether these bytes are in some file; `stable`: on the platter, with all names that lead there."""
        for folder in _folders(self.root, stable=stable):
            for node in (folder.stable if stable else folder.entries).values():
                if isinstance(node, File):
                    contents = node.stable if stable else node.now
                    if contents.buffer.find(data, 0, contents.end) >= 0:
                        return True
        return False

    def read(self, path: str) -> bytes:
        """What a file holds. Raises FileNotFoundError, NotADirectoryError, IsADirectoryError."""
        node = self.find(path)
        if not isinstance(node, File):
            raise error(errno.EISDIR, path)
        return node.now.read(0, node.now.size)

    def stable_file(self, path: str) -> File:
        """The file that a path leads to on the platter. Raises FileNotFoundError."""
        node: Node = self.root
        for part in path.split("/"):
            if part:
                found = node.stable.get(part) if isinstance(node, Folder) else None
                if found is None:
                    raise FileNotFoundError(f"the name {part} in {path}")
                node = found
        assert isinstance(node, File)
        return node

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Nothing fails while somebody looks from outside."""
        saved = [(device, device.read_errors, device.flips) for device in self.devices]
        for device in self.devices:
            device.read_errors = device.flips = 0.0
        try:
            yield
        finally:
            for device, errors, flips in saved:
                device.read_errors, device.flips = errors, flips

    # what happens to names

    def take_away(self, path: str) -> Folder:
        """A folder vanishes with all that is below it, at once and for good, as if it were unmounted; return it."""
        above, _, name = path.rpartition("/")
        parent, gone = self.folder(above), self.folder(path)
        device = gone.device
        device.changes = [one for one in device.changes if not any(each is parent for each, _, _ in one.names)]
        self._bring_all_down(gone)
        parent.entries.pop(name)
        parent.stable.pop(name, None)
        return gone

    def put(self, path: str, folder: Folder) -> None:
        """A folder is there, with all that is below it."""
        above, _, name = path.rpartition("/")
        parent = self.folder(above)
        self._bring_all_down(folder)
        parent.entries[name] = parent.stable[name] = folder

    @staticmethod
    def _bring_all_down(root: Folder) -> None:
        folders = list(_folders(root))
        changes = root.device.changes
        root.device.changes = [one for one in changes if not any(each in folders for each, _, _ in one.names)]
        for folder in folders:
            folder.stable = dict(folder.entries)
            for node in folder.entries.values():
                if isinstance(node, File):
                    node.bring_down()

    def empty(self, folder: Folder) -> Folder:
        """Another folder in the place of one, with nothing in it."""
        return Folder(self.number(), folder.device)

    def copy(self, folder: Folder) -> Folder:
        """The same folder as it is now, with files of its own."""
        return self.adopt(folder, folder.device)

    def adopt(self, folder: Folder, device: Device) -> Folder:
        """A copy of a folder, perhaps of another machine, for a device of this one."""
        made = Folder(self.number(), device)
        for name, node in sorted(folder.entries.items()):
            made.entries[name] = made.stable[name] = self._copy_node(node, device)
        return made

    def _copy_node(self, node: Node, device: Device) -> Node:
        if isinstance(node, Folder):
            return self.adopt(node, device)
        assert isinstance(node, File)
        made = File(self.number(), device)
        made.now, made.stable = node.now.copy(), node.now.copy()
        made.index = None if node.index is None else node.index.copy()
        return made


def _folders(root: Folder, *, stable: bool = False) -> Iterator[Folder]:
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        yield folder
        entries = folder.stable if stable else folder.entries
        waiting += [node for _, node in sorted(entries.items(), reverse=True) if isinstance(node, Folder)]


def error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
