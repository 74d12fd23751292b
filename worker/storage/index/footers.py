"""Reads the footers of data files: the record that a file carries of itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.errors import CorruptError
from holdfast.common.ids import MapFileKey
from holdfast.worker.storage.env.interfaces import Files, Handle
from holdfast.worker.storage.index.records import TRAILER, FileRecord, check_record, decode_footer, footer_bytes
from holdfast.worker.storage.index.reduce_records import DataRecord, data_footer_bytes, decode_data_footer
from holdfast.worker.storage.layout import DataKey

if TYPE_CHECKING:
    from holdfast.common.dfs.store import DfsStore


def read_footer(files: Files, path: Path, key: MapFileKey, file_bytes: int | None = None) -> FileRecord:
    """Return the record at the end of the file, or at `file_bytes` where the file should end.

    Raises CorruptError if there is none, if a byte of it is wrong, or if it is the footer of another file; OSError.
    """
    handle, size, trailer = _open(files, path, file_bytes)
    length = footer_bytes(trailer, size)
    record = decode_footer(files.read(handle, length, size - length), size)
    if record.key != key:
        raise CorruptError(f"{path} ends in the footer of {record.key}")
    check_record(record)
    return record


def read_data_footer(files: Files, path: Path, key: DataKey, file_bytes: int | None = None) -> DataRecord:
    """The same of a partition or pack file."""
    handle, size, trailer = _open(files, path, file_bytes)
    length = data_footer_bytes(trailer, size)
    return decode_data_footer(files.read(handle, length, size - length), key, size)


def read_stored_footer(store: DfsStore, name: str, key: DataKey, size: int) -> DataRecord:
    """The same of one on the DFS that has `size` bytes. Raises CorruptError, FileNotFoundError, DfsError."""
    if size < TRAILER.size:
        raise CorruptError(f"{size} bytes are less than a footer")
    length = data_footer_bytes(store.read(name, size - TRAILER.size, TRAILER.size), size)
    return decode_data_footer(store.read(name, size - length, length), key, size)


def _open(files: Files, path: Path, file_bytes: int | None) -> tuple[Handle, int, bytes]:
    handle = files.open(path)
    size = files.size(handle) if file_bytes is None else file_bytes
    return handle, size, files.read(handle, TRAILER.size, max(0, size - TRAILER.size))
