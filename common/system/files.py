"""Small files, whole or not at all: written so that a kill or a full disk leaves what was there, read with a bound.

Called wherever a certificate, a key, a secret, a token or a configuration is read, and where one is made.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from holdfast.common.errors import ConfigError
from holdfast.common.limits import MIB
from holdfast.common.sizes import in_bytes
from holdfast.common.system.modes import FOLDER_MODE

#: No configuration, certificate or token is longer; what is, is not one, and may have no end (/dev/zero).
SMALL_BYTES_MAX = 4 * MIB


def read_small(path: str | Path, what: str) -> bytes:
    """Return what a small file holds. Raises ConfigError, saying what it should have been."""
    try:
        with open(path, "rb") as file:
            data = file.read(SMALL_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {what} from {path}: {error.strerror or error}") from error
    except ValueError as error:  # a name with a zero byte
        raise ConfigError(f"cannot read {what} from {str(path)!r}: {error}") from None
    if len(data) > SMALL_BYTES_MAX:
        raise ConfigError(f"{path} holds more than {in_bytes(SMALL_BYTES_MAX)}, so it is not {what}: name another file")
    return data


def read_small_text(path: str | Path, what: str) -> str:
    """The same as text in UTF-8. Raises ConfigError."""
    try:
        return read_small(path, what).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {what} from {path}, it is no text in UTF-8: {error}") from None


def write_whole(path: Path, data: bytes, mode: int, *, new: bool = False) -> None:
    """Have a file hold `data` when this returns, and what it held before until then.

    `new`: only if it is missing or empty. Anything but a regular file is left alone. Raises FileExistsError,
    OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise FileExistsError(0, "exists, and is not a regular file", str(path))
        if new and found.st_size:
            raise FileExistsError(0, "is there already", str(path))
        if new:
            path.unlink()
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # of one that was killed
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if new:
            _link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def _link(temporary: Path, path: Path) -> None:
    """Give the name only if it is still free, where the file system can check that."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.replace(path)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    guard = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(guard)
    finally:
        os.close(guard)


def make_folders(folder: Path, root: Path | None = None) -> None:
    """Make `folder` and what is missing above it, up to `root` if there is one; each new name is durable.

    Raises FileNotFoundError if `root` is not there.
    """
    if folder == root or folder.is_dir():
        return
    make_folders(folder.parent, root)
    try:
        folder.mkdir(FOLDER_MODE)
    except FileExistsError:
        return  # another thread or process made it, and syncs it
    sync_directory(folder.parent)
