"""The files of a process on simulated disks: the second implementation of `Files`."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from weakref import WeakValueDictionary

from holdfast.common.system.locks import HeldError
from holdfast.worker.storage.env.interfaces import (
    Data,
    Files,
    FileSystem,
    FolderEntry,
    Handle,
    Kind,
    Name,
    Stat,
)
from holdfast.worker.storage.names import LOG_SUFFIX
from tests.sim.env.disks import BLOCK_BYTES, Device, File, Folder, Node, cut_at, cut_by_kill, error
from tests.sim.env.process import Process

#: Every open file of every process, by descriptor: for what is sent from one.
_opened: WeakValueDictionary[int, SimHandle] = WeakValueDictionary()
_descriptors = count(1_000)


class SimHandle(Handle):
    """An open file."""

    __slots__ = ("file", "path", "process", "write")

    def __init__(self, process: Process, file: Node, path: str, *, write: bool) -> None:
        super().__init__(next(_descriptors))
        _opened[self.fd] = self
        self.file, self.path, self.write, self.process = file, path, write, process

    @property
    def alive(self) -> bool:
        return self.process.alive


def read_range(fd: int, size: int, offset: int) -> bytes:
    """Read from an open file; what the kernel does when it sends one."""
    handle = _opened[fd]
    return handle.process.files.read(handle, size, offset)


def path_of(fd: int) -> str:
    """Where the file of a descriptor is."""
    return _opened[fd].path


def size_of(fd: int) -> int:
    """How long the file of a descriptor is."""
    handle = _opened[fd]
    return handle.process.files.size(handle)


def _split(path: Name) -> tuple[str, str]:
    folder, _, name = str(path).rpartition("/")
    return folder, name


class SimFiles(Files):
    """Of one process."""

    def __init__(self, process: Process) -> None:
        self._process, self._disks = process, process.disks
        process.files = self

    # faults

    def _changes(self, device: Device, path: str, size: int = 0) -> None:
        """A step that changes something; `size`: it takes so much room."""
        if self._process.step(device, path):
            if self._process.rng.random() < 0.5:
                self._process.die()
            self._process.armed = 0  # it dies behind this one
        if device.read_only:
            raise error(errno.EROFS, path)
        if device.write_errors and self._process.rng.random() < device.write_errors:
            raise error(errno.EIO, path)
        if size > device.free:
            raise error(errno.ENOSPC, path)

    def _looks(self, device: Device, path: str) -> None:
        """A step that only looks."""
        if self._process.step(device):
            self._process.die()
        if device.read_errors and self._process.rng.random() < device.read_errors:
            raise error(errno.EIO, path)

    def _opens(self, path: str) -> None:
        if self._process.no_descriptors:
            raise error(errno.EMFILE, path)

    def _file(self, handle: Handle) -> tuple[SimHandle, File]:
        assert isinstance(handle, SimHandle)
        if not isinstance(handle.file, File):
            raise error(errno.EISDIR, handle.path)
        return handle, handle.file

    # opening

    def _make(self, folder: str, name: str) -> tuple[Folder, File]:
        parent = self._disks.folder(folder)
        self._opens(f"{folder}/{name}")
        self._changes(parent.device, f"{folder}/{name}", BLOCK_BYTES)
        return self._disks.folder(folder), File(self._disks.number(), parent.device)

    def create(self, path: Name) -> Handle:
        above, name = _split(path)
        parent, file = self._make(above, name)
        if name in parent.entries:
            raise error(errno.EEXIST, str(path))
        self._disks.change((parent, name, file))
        return SimHandle(self._process, file, str(path), write=True)

    def create_unnamed(self, folder: Name) -> Handle:
        _, file = self._make(str(folder), "")
        return SimHandle(self._process, file, f"{folder}/#{file.number}", write=True)

    def create_in_memory(self, name: str) -> Handle:
        self._opens(name)
        if self._process.step():
            self._process.die()
        return SimHandle(self._process, File(self._disks.number(), Device(0)), name, write=True)

    def open(self, path: Name, *, write: bool = False) -> Handle:
        text = str(path)
        node = self._disks.find(text)
        self._opens(text)
        self._looks(node.device, text)
        node = self._disks.find(text)
        if isinstance(node, Folder) and write:
            raise error(errno.EISDIR, text)
        if write and node.device.read_only:
            raise error(errno.EROFS, text)
        return SimHandle(self._process, node, text, write=write)

    def lock(self, path: Name, *, shared: bool = False) -> Handle:
        above, name = _split(path)
        parent = self._disks.folder(above)
        self._looks(parent.device, str(path))
        node = parent.entries.get(name)
        if node is None:
            if shared:
                raise error(errno.ENOENT, str(path))
            self._changes(parent.device, str(path), BLOCK_BYTES)
            node = File(self._disks.number(), parent.device)
            self._disks.change((parent, name, node))
        handle = SimHandle(self._process, node, str(path), write=not shared)
        if isinstance(node, File):
            holder = None if node.locked_by is None else node.locked_by()
            if holder is not None and holder.alive:
                raise HeldError("another process")
            if not shared:
                node.locked_by = weakref.ref(handle)
        return handle

    # reading

    def size(self, handle: Handle) -> int:
        _, file = self._file(handle)
        return file.now.size

    def data_end(self, handle: Handle) -> int:
        _, file = self._file(handle)
        return min(file.now.size, (max(file.now.blocks, default=-1) + 1) * BLOCK_BYTES)

    def next_data(self, handle: Handle, offset: int) -> int:
        _, file = self._file(handle)
        behind = [block for block in file.now.blocks if block >= offset // BLOCK_BYTES]
        return max(offset, min(behind) * BLOCK_BYTES) if behind else file.now.size

    def read(self, handle: Handle, size: int, offset: int) -> bytes:
        found, file = self._file(handle)
        self._looks(file.device, found.path)
        return self._turned(file.device, file.now.read(offset, size))

    def _turned(self, device: Device, data: bytes) -> bytes:
        rng = self._process.rng
        if not data or not device.flips or rng.random() >= device.flips:
            return data
        at = rng.randrange(len(data))
        return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]

    def read_back(self, handle: Handle, size: int, offset: int) -> bytes:
        found, file = self._file(handle)
        if file.pending:  # what is not synced stays in the cache
            return self.read(handle, size, offset)
        self._looks(file.device, found.path)
        return self._turned(file.device, file.stable.read(offset, size))

    def read_ahead(self, handle: Handle, offset: int, length: int) -> None:
        """All is there already."""

    def read_whole(self, path: Name) -> bytes:
        handle = self.open(path)
        return self.read(handle, self.size(handle), 0)

    def map(self, handle: Handle, size: int) -> memoryview:
        found, file = self._file(handle)
        self._looks(file.device, found.path)
        return file.now.map(size)

    # writing

    def write(self, handle: Handle, data: Data, offset: int) -> None:
        self._write(handle, bytes(data), offset)

    def write_parts(self, handle: Handle, parts: Sequence[Data], size: int, offset: int) -> None:
        data = b"".join(parts)
        assert len(data) == size, "the parts are as long as their caller says"
        self._write(handle, data, offset)

    def _write(self, handle: Handle, data: bytes, offset: int) -> None:
        found, file = self._file(handle)
        process, device, rng = self._process, file.device, self._process.rng
        if not found.write:
            raise error(errno.EBADF, found.path)
        if process.step(device, found.path):
            file.write(offset, data[: cut_by_kill(offset, len(data), rng.randint(0, len(data)))])
            process.die()
        number = 0
        if device.read_only:
            number = errno.EROFS
        elif device.write_errors and rng.random() < device.write_errors:
            number = errno.EIO
        elif len(data) > device.free or (process.full_at is not None and process.full_at.hits(found.path)):
            number, process.full_at = errno.ENOSPC, None
        if number:
            part = 0 if number == errno.EROFS or rng.random() < 0.5 else rng.randrange(len(data) + 1)
            file.write(offset, data[: cut_at(offset, len(data), part)])
            raise error(number, found.path)
        file.write(offset, data)

    def set_size(self, handle: Handle, size: int) -> None:
        found, file = self._file(handle)
        if not found.write:
            raise error(errno.EINVAL, found.path)
        self._changes(file.device, found.path)
        file.resize(size)

    def start_write_back(self, handle: Handle, offset: int, length: int) -> None:
        if self._process.step(self._file(handle)[1].device):
            self._process.die()

    def sync(self, handle: Handle) -> None:
        found, file = self._file(handle)
        self.syncs += 1
        process, device = self._process, file.device
        if process.step(device, found.path):
            if process.rng.random() < 0.5:
                file.bring_down()
            process.die()
        fails = process.unsynced_at is not None and process.unsynced_at.hits(found.path)
        if fails or (device.sync_errors and process.rng.random() < device.sync_errors):
            process.unsynced_at = None
            if fails and process.unsynced is not None:
                process.armed, process.unsynced = process.unsynced, None
            file.lose(process.rng)
            raise error(errno.EIO, found.path)
        file.bring_down()

    # names

    def sync_folder(self, path: Name) -> None:
        self.syncs += 1
        folder = self._disks.folder(str(path))
        self._opens(str(path))
        process, device = self._process, folder.device
        if process.step(device, f"{path}/"):
            if process.rng.random() < 0.5:
                self._disks.bring_down(folder)
            process.die()
        folder = self._disks.folder(str(path))
        if device.sync_errors and process.rng.random() < device.sync_errors:
            raise error(errno.EIO, str(path))
        self._disks.bring_down(folder)

    def make_folder(self, path: Name) -> bool:
        above, name = _split(path)
        parent = self._disks.folder(above)
        found = parent.entries.get(name)
        if isinstance(found, Folder):
            return False
        if found is not None:
            raise error(errno.ENOTDIR, str(path))
        self._changes(parent.device, str(path), BLOCK_BYTES)
        parent = self._disks.folder(above)
        if name not in parent.entries:
            self._disks.change((parent, name, Folder(self._disks.number(), parent.device)))
            return True
        return False

    def make_folders(self, path: Name) -> None:
        text = str(path)
        if not self.exists(text):
            above = _split(text)[0] or "/"
            self.make_folders(above)
            self.make_folder(text)
            self.sync_folder(above)
        elif not self.is_folder(text):
            raise error(errno.ENOTDIR, text)

    def remove_folder(self, path: Name) -> None:
        above, name = _split(path)
        self._changes(self._disks.folder(above).device, str(path))
        parent, folder = self._disks.folder(above), self._disks.folder(str(path))
        if folder.entries:
            raise error(errno.ENOTEMPTY, str(path))
        self._disks.change((parent, name, None))

    def rename(self, source: Name, target: Name) -> None:
        (here, old), (there, new) = _split(source), _split(target)
        self._changes(self._disks.folder(there).device, str(target))
        one, other = self._disks.folder(here), self._disks.folder(there)
        node = one.entries.get(old)
        if node is None:
            raise error(errno.ENOENT, str(source))
        if one.device is not other.device:
            raise error(errno.EXDEV, str(target))
        before = other.entries.get(new)
        if before is node:
            return
        if isinstance(before, Folder):
            if not isinstance(node, Folder):
                raise error(errno.EISDIR, str(target))
            if before.entries:
                raise error(errno.ENOTEMPTY, str(target))
        elif before is not None and isinstance(node, Folder):
            raise error(errno.ENOTDIR, str(target))
        self._disks.change((one, old, None), (other, new, node))
        if self._process.reused is not None and new.endswith(LOG_SUFFIX):
            self._process.armed, self._process.reused = self._process.reused, None

    def remove(self, path: Name) -> None:
        above, name = _split(path)
        try:
            parent = self._disks.folder(above)
            if name not in parent.entries:
                return
            self._changes(parent.device, str(path))
            parent = self._disks.folder(above)
        except FileNotFoundError:
            return
        node = parent.entries.get(name)
        if isinstance(node, Folder):
            raise error(errno.EISDIR, str(path))
        if node is not None:
            self._disks.change((parent, name, None))

    # looking

    def stat(self, path: Name, *, follow: bool = True) -> Stat:
        node = self._disks.find(str(path))
        self._looks(node.device, str(path))
        node = self._disks.find(str(path))
        if isinstance(node, File):
            held = len(node.now.blocks) * BLOCK_BYTES
            return Stat(Kind.FILE, node.now.size, held, node.device.number, node.number)
        return Stat(Kind.FOLDER, BLOCK_BYTES, BLOCK_BYTES, node.device.number, node.number)

    def exists(self, path: Name) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self, folder: Name) -> list[str]:
        return [entry.name for entry in self.entries(folder)]

    def entries(self, folder: Name) -> list[FolderEntry]:
        found = self._disks.folder(str(folder))
        self._opens(str(folder))
        self._looks(found.device, str(folder))
        entries = self._disks.folder(str(folder)).entries
        return [FolderEntry(name, _kind(node)) for name, node in sorted(entries.items())]

    def sizes(self, folder: Name, suffixes: tuple[str, ...]) -> tuple[list[tuple[str, int]], list[FolderEntry]]:
        entries = self.entries(folder)
        nodes = self._disks.folder(str(folder)).entries
        found = [(entry.name, _size(nodes[entry.name])) for entry in entries if entry.name.endswith(suffixes)]
        return found, [entry for entry in entries if not entry.name.endswith(suffixes)]

    def real_path(self, path: Name) -> str:
        return str(Path(path))

    def file_system(self, path: Name) -> FileSystem:
        node = self._disks.find(str(path))
        self._looks(node.device, str(path))
        return FileSystem(node.device.capacity, node.device.free)

    def first_foreign(self, root: Name, spared: Callable[[str], bool], but: str = "") -> str | None:
        return None


def _kind(node: Node) -> Kind:
    return Kind.FOLDER if isinstance(node, Folder) else Kind.FILE


def _size(node: Node) -> int:
    return node.now.size if isinstance(node, File) else BLOCK_BYTES
