"""Reads the footers of sealed files: the record that a file carries of itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.index.records import TRAILER, FileRecord, decode_footer, footer_bytes
from holdfast.worker.storage.layout import FileKey

if TYPE_CHECKING:
    from holdfast.common.dfs.store import DfsStore


def read_footer(files: Files, path: Path, key: FileKey, file_bytes: int | None = None) -> FileRecord[Any, Any]:
    """Return the record at the end of the file, or at `file_bytes` where the file should end.

    Raises CorruptError if there is none, if a byte of it is wrong, or if it is the footer of another file; OSError.
    """
    handle = files.open(path)
    size = files.size(handle) if file_bytes is None else file_bytes
    return _read(lambda offset, length: files.read(handle, length, offset), key, size)


def read_stored_footer(store: DfsStore, name: str, key: FileKey, size: int) -> FileRecord[Any, Any]:
    """The same of one on the DFS that has `size` bytes. Raises CorruptError, FileNotFoundError, DfsError."""
    return _read(lambda offset, length: store.read(name, offset, length), key, size)


def _read(read: Callable[[int, int], bytes], key: FileKey, size: int) -> FileRecord[Any, Any]:
    trailer = read(size - TRAILER.size, TRAILER.size) if size >= TRAILER.size else b""
    length = footer_bytes(trailer, size)
    return decode_footer(read(size - length, length), key, size)
