"""The file `dfs` of a storage directory: this worker has used that DFS, and whether its files there have to be found.

Rules: the file is in every directory from before the first move to the DFS on, so it outlives an index, and a disk: a
directory whose index is new takes it over from the others, with the word that something may be missing, before its
index is made. That word goes when the DFS has been searched, and not before. Bytes in docs/disk_format.md. Called by
store.py and away.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from holdfast.common.checksum import crc32c
from holdfast.common.errors import ConfigError, CorruptError
from holdfast.worker.storage import names
from holdfast.worker.storage.disk import Disk

VERSION = 1
_MAGIC = b"HFDF"
#: magic, version u16, to be searched u8, zero u8
_HEAD = struct.Struct("<4sHBB")
_CRC_BYTES = 4


class DfsNote(NamedTuple):
    """What the file says."""

    #: `[dfs] url`, which has no secrets
    url: str
    #: the index that had the files there was lost
    search: bool

    def encode(self) -> bytes:
        body = _HEAD.pack(_MAGIC, VERSION, self.search, 0) + self.url.encode()
        return body + crc32c(body).to_bytes(_CRC_BYTES, "little")

    @classmethod
    def decode(cls, data: bytes) -> DfsNote:
        body = data[:-_CRC_BYTES]
        if len(data) < _HEAD.size + _CRC_BYTES or crc32c(body) != int.from_bytes(data[-_CRC_BYTES:], "little"):
            raise CorruptError("the dfs file does not match its checksum")
        magic, version, search, zero = _HEAD.unpack_from(body)
        if magic != _MAGIC or version != VERSION or search > 1 or zero:
            raise CorruptError(f"a dfs file of version {version} is not known here")
        return cls(body[_HEAD.size :].decode(), bool(search))


def read_note(root: Path) -> DfsNote | None:
    """What a directory says; None if it says nothing. One that is damaged says that everything has to be searched.
    Raises OSError, and ConfigError if it is no file."""
    try:
        return DfsNote.decode((root / names.DFS).read_bytes())
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise ConfigError(
            f"{root / names.DFS} is a folder, and Holdfast keeps a file of that name in each of worker.directories:"
            " move it elsewhere; if it is the DFS, give [dfs] url a folder outside of them"
        ) from None
    except CorruptError:
        return DfsNote("", True)


class DfsNotes:
    """Those of all directories of a worker; any thread."""

    def __init__(self, disk: Disk, roots: Iterable[Path]) -> None:
        """Raises OSError."""
        self._disk = disk
        self._notes = {root: read_note(root) for root in roots}

    @property
    def urls(self) -> set[str]:
        """What was used."""
        return {note.url for note in self._notes.values() if note is not None and note.url}

    @property
    def used(self) -> bool:
        """A DFS was used."""
        return any(note is not None for note in self._notes.values())

    @property
    def to_search(self) -> list[Path]:
        """The directories whose index does not know of all files that it had there."""
        return [root for root, note in self._notes.items() if note is not None and note.search]

    def lost_index(self, root: Path) -> None:
        """The index of a directory is about to be made anew. Raises OSError."""
        if self.used:
            self._write(root, DfsNote(max(self.urls, default=""), True))

    def use(self, url: str) -> None:
        """Files are about to go to this DFS. Raises OSError if no directory can be told; one that cannot be written is
        not where they are recorded either."""
        errors = []
        for root, note in self._notes.items():
            if note is None or note.url != url:
                try:
                    self._write(root, DfsNote(url, note is not None and note.search))
                except OSError as error:
                    errors.append(error)
        if errors and len(errors) == len(self._notes):
            raise errors[0]

    def searched(self) -> None:
        """All files there are recorded. Raises OSError."""
        for root in self.to_search:
            note = self._notes[root]
            assert note is not None
            self._write(root, note._replace(search=False))

    def _write(self, root: Path, note: DfsNote) -> None:
        self._disk.replace(root / names.DFS, note.encode())
        self._notes[root] = note
