"""Symbolic links where servers keep data: they make none and follow none, whoever put them there.

Rules: a directory with one in it is not used: a server that starts looks through all of it. Only among a worker's data
files one is left alone, as is whatever else lies there. In work files are opened without following, and what is made is
made anew; a folder of a DFS is looked at from its base on for each call. A directory may be reached by a link, as it is
configured. Called by the worker's store, the masters and the DFS's folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from holdfast.common.system.modes import FILE_MODE

#: Of whatever is opened where servers keep data.
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


def first_link(root: str, spared: Callable[[str], bool] | None = None) -> str | None:
    """Return a symbolic link below a folder that is not `spared`, None if there is none. Raises OSError."""
    waiting = [root]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink() and (spared is None or not spared(entry.path)):
                        return entry.path
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except FileNotFoundError:  # a folder that goes meanwhile
            continue
    return None


def sentence(link: str) -> str:
    """What to tell of a link in a server's directory."""
    try:
        there = os.readlink(link)
    except OSError:
        there = "what is gone by now"
    return f"{link} is a symbolic link, to {there}: this server makes none and follows none. Remove it, or move it away"


def refuse_link(path: str, base: str) -> None:
    """Raise OSError (ELOOP) if a part of `path` below `base` is a symbolic link. What is not there is none."""
    at = base.rstrip("/")
    for part in os.path.relpath(path, base).split("/"):
        at = f"{at}/{part}"
        try:
            mode = os.lstat(at).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", at)


def make_anew(path: Path) -> int:
    """Return the descriptor of a new file of that name, for writing; what had the name is gone. Raises OSError."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, FILE_MODE)
