"""The door to the disk for all that must survive: one method for each step that a crash can fall between.

Production uses `Disk` as it is. Tests and the fault port give a subclass that fails, delays or ends the process at a
step; that is why the writer, the sealer and the store never call `os` for these. Errors are OSError, as they come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from holdfast.common.system.links import NO_LINK
from holdfast.common.system.modes import FILE_MODE, FOLDER_MODE

_SYNC_FILE_RANGE_WRITE = 2
#: Parts of one gathered write (the kernel takes 1,024).
GATHER_MAX = 1_024
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | NO_LINK


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    """sync_file_range(2), which the os module does not have."""
    import ctypes

    call = ctypes.CDLL(None).sync_file_range
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call


def bytes_on_disk(path: Path) -> int:
    """What a file takes, holes left out; 0 if it is not there."""
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A folder that is no link: what is done in it is done there, whatever its name stands for meanwhile."""
    fd = os.open(folder, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


class Disk:
    """Writes, syncs, renames and removes; usable from any thread."""

    #: syncs of files, folders and index transactions so far; a number for people, not exact to the last one
    syncs = 0

    def create(self, path: Path) -> int:
        """Make a new file and return its descriptor; the folder must be there."""
        with _opened(path.parent) as folder:
            return os.open(path.name, _CREATE, FILE_MODE, dir_fd=folder)

    def create_unnamed(self, folder: Path) -> int:
        """Make a file that has no name: its room is free when its descriptor is closed, however that comes about."""
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | NO_LINK, FILE_MODE)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`, into the kernel."""
        written = os.pwrite(fd, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(rest):
            written += os.pwrite(fd, rest[written:], offset + written)

    def write_parts(self, fd: int, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        """Write parts, `size` bytes together, back to back at `offset`, into the kernel."""
        if len(parts) <= GATHER_MAX and os.pwritev(fd, parts, offset) == size:
            return
        for first in range(0, len(parts), GATHER_MAX):
            some = parts[first : first + GATHER_MAX]
            size = sum([len(part) for part in some])
            written = os.pwritev(fd, some, offset)
            if written != size:
                self.write(fd, memoryview(b"".join(some))[written:], offset + written)
            offset += size

    def sync_data(self, fd: int) -> None:
        """Bring a file's bytes and length to the disk. Never called again on a file for which it failed."""
        self.syncs += 1
        os.fdatasync(fd)

    def read_back(self, fd: int, size: int, offset: int) -> bytes:
        """Read what was written and synced, past the cache where the file system lets go of it."""
        os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, size, offset)

    def start_write_back(self, fd: int, offset: int, length: int) -> None:
        """Ask the kernel to begin writing a range to the disk. Promises nothing; errors are left to sync_data."""
        # Only with the flag WRITE: those that wait would take a write error away from the fdatasync that must see it.
        _sync_file_range()(fd, offset, length, _SYNC_FILE_RANGE_WRITE)

    def sync_folder(self, path: Path) -> None:
        """Bring the names in a folder to the disk."""
        self.syncs += 1
        with _opened(path) as folder:
            os.fsync(folder)

    def make_folder(self, path: Path) -> bool:
        """Make a folder; False if it was there."""
        try:
            path.mkdir(FOLDER_MODE)
        except FileExistsError:
            with _opened(path):  # no link, and no file
                return False
        return True

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, which may be in another folder."""
        with _opened(source.parent) as here, _opened(target.parent) as there:
            os.rename(source.name, target.name, src_dir_fd=here, dst_dir_fd=there)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is not there is fine."""
        with suppress(FileNotFoundError), _opened(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file, or lengthen it by a hole."""
        with _opened(path.parent) as folder:
            fd = os.open(path.name, os.O_WRONLY | NO_LINK, dir_fd=folder)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def commit(self, transaction: Callable[[], None]) -> None:
        """Run the synced commit of an index transaction."""
        self.syncs += 1
        transaction()

    def replace(self, path: Path, data: bytes) -> None:
        """Give a small file new contents, all or nothing, synced with its folder."""
        new = path.with_name(f"{path.name}.new")
        self.remove(new)
        fd = self.create(new)
        try:
            self.write(fd, data, 0)
            self.sync_data(fd)
        finally:
            os.close(fd)
        self.rename(new, path)
        self.sync_folder(path.parent)

    def overwrite(self, path: Path, data: bytes) -> None:
        """Write over a small file of the same length in place, synced: needs no room, and is not all or nothing."""
        with _opened(path.parent) as folder:
            fd = os.open(path.name, os.O_WRONLY | NO_LINK, dir_fd=folder)
        try:
            self.write(fd, data, 0)
            self.sync_data(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> tuple[int, int]:
        """Return (size, free) of the file system, in bytes; free is what an ordinary user may take."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
