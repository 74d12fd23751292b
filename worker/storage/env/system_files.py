"""The files of this machine; see interfaces.py. Loads little: the checks of a start use it."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from holdfast.common.system import links, locks
from holdfast.common.system.links import NO_LINK
from holdfast.common.system.modes import FILE_MODE, FOLDER_MODE
from holdfast.worker.storage.env.interfaces import (
    GATHER_MAX,
    Data,
    Files,
    FileSystem,
    FolderEntry,
    Handle,
    Kind,
    Name,
    Stat,
)

_SYNC_FILE_RANGE_WRITE = 2
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | NO_LINK
_BLOCK_BYTES = 512


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    """sync_file_range(2), which the os module does not have."""
    import ctypes

    call = ctypes.CDLL(None).sync_file_range
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call


def end_at_once() -> None:
    """End this process, and nothing else: nobody listens any more."""
    os._exit(1)


class SystemHandle(Handle):
    """A descriptor."""

    __slots__ = ()

    def __del__(self) -> None:
        os.close(self.fd)


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """A folder that is no link: what is done in it is done there, whatever its name stands for meanwhile."""
    fd = os.open(folder, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def _entry(found: os.DirEntry[str]) -> FolderEntry:
    if found.is_file(follow_symlinks=False):
        return FolderEntry(found.name, Kind.FILE)
    if found.is_dir(follow_symlinks=False):
        return FolderEntry(found.name, Kind.FOLDER)
    return FolderEntry(found.name, Kind.LINK if found.is_symlink() else Kind.OTHER)


class SystemFiles(Files):
    """The file systems of this machine."""

    def create(self, path: Name) -> Handle:
        folder, name = os.path.split(path)
        with _opened(folder) as fd:
            return SystemHandle(os.open(name, _CREATE, FILE_MODE, dir_fd=fd))

    def create_unnamed(self, folder: Name) -> Handle:
        return SystemHandle(os.open(folder, os.O_TMPFILE | os.O_RDWR | NO_LINK, FILE_MODE))

    def create_in_memory(self, name: str) -> Handle:
        return SystemHandle(os.memfd_create(name, os.MFD_CLOEXEC))

    def open(self, path: Name, *, write: bool = False) -> Handle:
        return SystemHandle(os.open(path, (os.O_RDWR if write else os.O_RDONLY) | NO_LINK))

    def _open_to_change(self, path: Name) -> Handle:
        folder, name = os.path.split(path)
        with _opened(folder) as fd:
            return SystemHandle(os.open(name, os.O_RDWR | NO_LINK, dir_fd=fd))

    def lock(self, path: Name, *, shared: bool = False) -> Handle:
        return SystemHandle(locks.acquire(Path(path), shared=shared))

    def size(self, handle: Handle) -> int:
        return os.fstat(handle.fd).st_size

    def data_end(self, handle: Handle) -> int:
        end = 0
        while True:
            try:
                end = os.lseek(handle.fd, os.lseek(handle.fd, end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole from here on
                    return end
                if error.errno == errno.EINVAL:  # the file system does not know of holes
                    return self.size(handle)
                raise

    def next_data(self, handle: Handle, offset: int) -> int:
        try:
            return os.lseek(handle.fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size(handle)
            if error.errno == errno.EINVAL:
                return offset
            raise

    def read(self, handle: Handle, size: int, offset: int) -> bytes:
        return os.pread(handle.fd, size, offset)

    def read_back(self, handle: Handle, size: int, offset: int) -> bytes:
        os.posix_fadvise(handle.fd, offset, size, os.POSIX_FADV_DONTNEED)
        return os.pread(handle.fd, size, offset)

    def read_ahead(self, handle: Handle, offset: int, length: int) -> None:
        os.posix_fadvise(handle.fd, offset, length, os.POSIX_FADV_WILLNEED)

    def read_whole(self, path: Name) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def map(self, handle: Handle, size: int) -> memoryview:
        return memoryview(mmap.mmap(handle.fd, size, access=mmap.ACCESS_READ))

    def write(self, handle: Handle, data: Data, offset: int) -> None:
        written = os.pwrite(handle.fd, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(rest):
            written += os.pwrite(handle.fd, rest[written:], offset + written)

    def write_parts(self, handle: Handle, parts: Sequence[Data], size: int, offset: int) -> None:
        if len(parts) <= GATHER_MAX and os.pwritev(handle.fd, parts, offset) == size:
            return
        for first in range(0, len(parts), GATHER_MAX):
            some = parts[first : first + GATHER_MAX]
            size = sum([len(part) for part in some])
            written = os.pwritev(handle.fd, some, offset)
            if written != size:
                self.write(handle, memoryview(b"".join(some))[written:], offset + written)
            offset += size

    def set_size(self, handle: Handle, size: int) -> None:
        os.ftruncate(handle.fd, size)

    def start_write_back(self, handle: Handle, offset: int, length: int) -> None:
        # Only with the flag WRITE: those that wait would take a write error away from the fdatasync that must see it.
        _sync_file_range()(handle.fd, offset, length, _SYNC_FILE_RANGE_WRITE)

    def sync(self, handle: Handle) -> None:
        self.syncs += 1
        os.fdatasync(handle.fd)

    def sync_folder(self, path: Name) -> None:
        self.syncs += 1
        with _opened(str(path)) as fd:
            os.fsync(fd)

    def make_folder(self, path: Name) -> bool:
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            with _opened(str(path)):  # no link, and no file
                return False
        return True

    def make_folders(self, path: Name) -> None:
        text = os.path.abspath(path)
        if os.path.isdir(text):
            return
        above = os.path.dirname(text)
        self.make_folders(above)
        self.make_folder(text)  # not what a dangling link leads to: its disk may not be mounted
        self.sync_folder(os.path.realpath(above))

    def remove_folder(self, path: Name) -> None:
        os.rmdir(path)

    def rename(self, source: Name, target: Name) -> None:
        here, old = os.path.split(source)
        there, new = os.path.split(target)
        with _opened(here) as one, _opened(there) as other:
            os.rename(old, new, src_dir_fd=one, dst_dir_fd=other)

    def remove(self, path: Name) -> None:
        folder, name = os.path.split(path)
        with suppress(FileNotFoundError), _opened(folder) as fd:
            os.unlink(name, dir_fd=fd)

    def stat(self, path: Name, *, follow: bool = True) -> Stat:
        found = os.stat(path, follow_symlinks=follow)
        held = found.st_blocks * _BLOCK_BYTES
        return Stat(_kind(found.st_mode), found.st_size, held, found.st_dev, found.st_ino)

    def exists(self, path: Name) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self, folder: Name) -> list[str]:
        return os.listdir(folder)

    def entries(self, folder: Name) -> list[FolderEntry]:
        with os.scandir(folder) as found:
            return [_entry(one) for one in found]

    def sizes(self, folder: Name, suffixes: tuple[str, ...]) -> tuple[list[tuple[str, int]], list[FolderEntry]]:
        found, others = [], []
        with _opened(str(folder)) as fd, os.scandir(fd) as listed:  # by descriptor: a path would be walked for each
            for one in listed:
                if one.name.endswith(suffixes):
                    found.append((one.name, one.stat(follow_symlinks=False).st_size))
                else:
                    others.append(_entry(one))
        return found, others

    def real_path(self, path: Name) -> str:
        return os.path.realpath(path)

    def file_system(self, path: Name) -> FileSystem:
        found = os.statvfs(path)
        return FileSystem(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def first_foreign(self, root: Name, spared: Callable[[str], bool], but: str = "") -> str | None:
        return links.first_foreign(str(root), spared, but)
