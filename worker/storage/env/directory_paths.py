"""Looks at the paths of `worker.directories`: each a place of its own, usable, and of the tier that is claimed for it.

Rules: whatever is wrong with the paths themselves is told before anything is made, with the setting it stands in.
Called by prepare.py, and for the doubts by the worker's process; it loads little, since a start waits for it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.errors import ConfigError
from holdfast.common.sizes import in_bytes

if TYPE_CHECKING:
    from holdfast.worker.storage.settings import DirectorySettings

MEMORY = "MEMORY"
_MOUNTS = Path("/proc/self/mounts")
#: File systems whose bytes are in memory, and devices that are memory.
_MEMORY_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_MEMORY_DEVICES = ("/dev/ram", "/dev/zram")
#: A blank in a name is written so in the list of mounts.
_ESCAPED = re.compile(r"\\([0-7]{3})")


def refuse_shared(paths: Sequence[str], dfs: str = "") -> None:
    """Raise ConfigError if two of the paths are one directory, or one lies within another, or in the folder of the DFS,
    where that is a local one (`dfs`), or the other way round. Nothing is made."""
    real = [os.path.realpath(path) for path in paths]
    for number, path in enumerate(real if dfs else ()):
        _refuse_dfs(f"worker.directories[{number}].path {paths[number]}", path, dfs)
    for second in range(len(paths)):
        for first in range(second):
            if real[first] == real[second] or _same(real[first], real[second]):
                raise ConfigError(
                    f"worker.directories names {real[first]} twice (as worker.directories[{first}].path "
                    f"{paths[first]} and worker.directories[{second}].path {paths[second]}): take one of them out"
                )
            for inner, outer in ((second, first), (first, second)):
                if _lies_in(real[inner], real[outer]):
                    raise ConfigError(
                        f"worker.directories[{inner}].path {paths[inner]} is inside worker.directories[{outer}].path "
                        f"{paths[outer]}: each directory needs a place of its own, so move one of them beside the other"
                    )


def _lies_in(inner: str, outer: str) -> bool:
    return inner.startswith(os.path.join(outer, ""))


def _refuse_dfs(told: str, path: str, dfs: str) -> None:
    """The DFS is what lies below the directories of all workers: in one of them it would fill what it is to make room
    in, and a directory in it would be taken for a part of the store."""
    store = os.path.realpath(dfs)
    where = ""
    if path == store or _same(path, store):
        where = "is"
    elif _lies_in(store, path):
        where = "holds"
    elif _lies_in(path, store):
        where = "lies in"
    if where:
        raise ConfigError(
            f"{told} {where} the folder of [dfs] url, {dfs}: the DFS needs a place of its own, which all workers and"
            " masters reach, so name another folder there"
        )


def _same(first: str, second: str) -> bool:
    """Whether both are there and one directory, such as one that is mounted in two places."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def unusable(number: int, path: str, error: OSError) -> ConfigError:
    """What to tell of a directory that could not be made or opened."""
    return ConfigError(f"worker.directories[{number}].path {path} {_why(path, error)}")


def _why(path: str, error: OSError) -> str:
    blocking = _no_directory(path)
    if blocking:
        where = "" if blocking == os.path.abspath(path) else f"cannot be made: {blocking} "
        return f"{where}{_kind(blocking)}: name a directory, or a place where one can be made"
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = f"give it to the user of this worker (uid {os.geteuid()}), or name another directory"
    elif error.errno == errno.EROFS:
        advice = "its file system is read-only; mount it for writing, or name another directory"
    else:
        advice = "name a directory on a disk of this machine that this worker may write to"
    return f"cannot be used: {error.strerror}: {advice}"


def _no_directory(path: str) -> str:
    """The part of the path that is there and is no directory; "" if all of it may be one."""
    path = os.path.abspath(path)
    for part in [*reversed(Path(path).parents), Path(path)]:
        if os.path.lexists(part) and not part.is_dir():
            return str(part)
    return ""


def _kind(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "is a link to a missing file"
    return "is a file" if stat.S_ISREG(mode) else "is no directory"


def doubts(directories: Sequence[DirectorySettings]) -> list[str]:
    """Sentences about directories that are there but are not what the configuration says of them."""
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        mounts = ""  # not Linux: nothing is known, so nothing is doubted
    told = []
    for number, one in enumerate(directories):
        path = os.path.realpath(one.path)
        try:
            space = os.statvfs(path)
        except OSError:
            continue
        system = file_system(mounts, path)
        told += doubts_of(f"worker.directories[{number}]", one, system, space.f_blocks * space.f_frsize)
    return told


def doubts_of(name: str, directory: DirectorySettings, system: tuple[str, str], size: int) -> list[str]:
    """The same of one directory, that lies on the file system `system` (device, type; "" if not known) of `size` bytes.
    Pure."""
    device, kind = system
    told = []
    if directory.tier == MEMORY and kind and kind not in _MEMORY_SYSTEMS and not device.startswith(_MEMORY_DEVICES):
        told.append(
            f"{name} {directory.path} is of tier MEMORY and is on {kind}, which is not in memory: it is as slow as "
            'its disk. Name a directory on a tmpfs, such as /dev/shm/holdfast, or write tier = "SSD" or "HDD"'
        )
    if directory.capacity_bytes > size > 0:
        told.append(
            f"{name} {directory.path} has a capacity of {in_bytes(directory.capacity_bytes)}, more than the "
            f"{in_bytes(size)} of its file system: {in_bytes(size)} is used instead. Lower capacity, or enlarge the "
            "file system"
        )
    return told


def file_system(mounts: str, path: str) -> tuple[str, str]:
    """Device and type of the file system that `path`, without links, lies on, by the text of /proc/self/mounts."""
    found, longest = ("", ""), 0
    for line in mounts.splitlines():
        device, _, rest = line.partition(" ")
        place, _, rest = rest.partition(" ")
        place = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), place)
        if len(place) >= longest and os.path.join(path, "").startswith(os.path.join(place, "")):
            found, longest = (device, rest.partition(" ")[0]), len(place)  # of two at one place the later is seen
    return found
