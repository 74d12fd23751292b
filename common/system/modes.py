"""Files of servers are private: files have mode 0600 and folders 0700, whatever the umask at the start.

Rules: the creator of a file sets its mode; the umask of the process covers what libraries make. What an earlier version
or others left open is closed at the start: the folder first, so that nothing below is reachable any more. Where
it was closed already nothing was, so only it and the names in it are checked. Links are left alone. Called by the
mains of masters and workers.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = 0o077


def keep_private() -> None:
    """From now on nothing that this process makes is open to anybody else."""
    os.umask(_OTHERS)


def close_to_others(root: Path) -> None:
    """Remove the rights of other users on `root` and its content. Files of another owner cannot be
    changed; both are logged."""
    from holdfast.common.log_events import LogEvent  # what a start waits for needs the modes alone
    from holdfast.common.system.log import log_event

    try:
        was_open = bool(root.stat().st_mode & _OTHERS)
        count = int(_close(root, root.stat().st_mode))
        count += _close_below(root, deep=was_open)
    except OSError as error:
        log_event(LogEvent.DIRECTORY_PERMISSIONS, directory=root, closed=False, reason=error)
    else:
        if count:
            log_event(LogEvent.DIRECTORY_PERMISSIONS, directory=root, closed=True, count=count)


def _close_below(folder: Path, *, deep: bool) -> int:
    """Look at what is in a folder, and in those below it if `deep`."""
    count, below = 0, [str(folder)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode) and deep:
                    below.append(entry.path)
                if stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode):
                    count += _close(entry.path, found.st_mode)
    return count


def _close(path: str | Path, mode: int) -> bool:
    if not mode & _OTHERS:
        return False
    os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS)
    return True
