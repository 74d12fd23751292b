"""Rejects symbolic links, FIFOs, sockets and devices among the data of servers.

Rules: a directory with one in it is not used: a server that starts looks through all of it. Only a link among a
worker's data files is left alone, as is whatever else lies there. In work files are opened without following and
without waiting for another end, and what is made is made anew; a folder of a DFS is looked at from its base on for each
call. A directory may be reached by a link, as it is configured. Called by the worker's store, the masters and the DFS's
folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from holdfast.common.system.modes import FILE_MODE

#: Of whatever is opened where servers keep data: a link is an error, and a FIFO does not wait for its other end.
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def first_foreign(root: str, spared: Callable[[str], bool] | None = None, but: str = "") -> str | None:
    """Return what is neither file nor folder below a folder, None if there is nothing; links may be `spared`, and the
    folder `but` is not entered. Raises OSError."""
    waiting = [root.rstrip("/") or "/"]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):  # nearly all are
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if entry.path != but:
                            waiting.append(entry.path)
                    elif not (entry.is_symlink() and spared is not None and spared(entry.path)):
                        return entry.path
        except FileNotFoundError:  # a folder that is removed meanwhile
            continue
    return None


def sentence(path: str) -> str:
    """The message about a link or special file in a server's directory."""
    kind = _kind(path)
    remedy = "Remove it, or move it away"
    if kind != "a symbolic link":
        return f"{path} is {kind or 'removed meanwhile'}: this server makes none and opens none. {remedy}"
    return f"{path} is {kind}, to {os.readlink(path)}: this server makes none and follows none. {remedy}"


def _kind(path: str) -> str:
    """What a path is if it is neither file nor folder; else "", also if nothing is there."""
    try:
        return _KINDS.get(stat.S_IFMT(os.lstat(path).st_mode), "")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def refuse_foreign(path: str, base: str) -> None:
    """Raise OSError (ELOOP) if a part of `path` below `base` is a link or a special file. A missing file is neither."""
    at = base.rstrip("/")
    for part in os.path.relpath(path, base).split("/"):
        at = f"{at}/{part}"
        kind = _kind(at)
        if kind:
            raise OSError(errno.ELOOP, f"is {kind}, which is not followed", at)


def make_anew(path: Path) -> int:
    """Return the descriptor of a new file of that name, for writing; it replaces any other. Raises OSError."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, FILE_MODE)
