"""The file `dfs` of a storage directory: which DFS this worker has seen, whether it has used it, and whether its files
there have to be found.

Rules: a worker that has seen the marker of a DFS notes the store's id, and from then on takes no other store for it and
makes no marker. That it has used it is in every directory from before the first move to the DFS on, so it outlives an
index, and a disk: a directory whose index is new takes it over from the others, with the word that something may be
missing, before its index is made. That word goes when the DFS has been searched, and not before. Bytes in
docs/internals/disk_format.md. Called by store.py and away.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.formats.checksum import with_crc, without_crc
from holdfast.worker.storage import names
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.names import FORMAT

_MAGIC = b"HFDF"
#: magic, version u16, flags u8, length of the store's id u8; id and URL follow
_HEAD = struct.Struct("<4sHBB")
_SEARCH, _USED, _SEEN = 1, 2, 4


class DfsNote(NamedTuple):
    """What the file says."""

    #: `[dfs] url`, which has no secrets
    url: str
    #: the index that had the files there was lost
    search: bool
    #: files went there, or were about to
    used: bool = True
    #: id of the store; "": its marker has none; None: not known
    ident: str | None = None

    def encode(self) -> bytes:
        ident = (self.ident or "").encode()
        flags = _SEARCH * self.search | _USED * self.used | _SEEN * (self.ident is not None)
        body = _HEAD.pack(_MAGIC, FORMAT, flags, len(ident)) + ident + self.url.encode()
        return with_crc(body)

    @classmethod
    def decode(cls, data: bytes) -> DfsNote:
        body = without_crc(data, "the dfs file")
        if len(body) < _HEAD.size:
            raise CorruptError("the dfs file is cut")
        magic, version, flags, length = _HEAD.unpack_from(body)
        rest = body[_HEAD.size :]
        if magic != _MAGIC or version != FORMAT or flags > _SEARCH | _USED | _SEEN or length > len(rest):
            raise CorruptError(f"a dfs file of version {version} is not known here")
        ident = rest[:length].decode() if flags & _SEEN else None
        return cls(rest[length:].decode(), bool(flags & _SEARCH), bool(flags & _USED), ident)


def read_note(files: Files, root: Path) -> DfsNote | None:
    """What a directory says; None if it says nothing. One that is damaged says that everything has to be searched.
    Raises OSError, and ConfigError if it is no file."""
    try:
        return DfsNote.decode(files.read_whole(root / names.DFS))
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

    def __init__(self, files: Files, roots: Iterable[Path]) -> None:
        """Raises OSError."""
        self._files = files
        self._notes = {root: read_note(files, root) for root in roots}

    @property
    def urls(self) -> set[str]:
        """What was seen."""
        return {note.url for note in self._notes.values() if note is not None and note.url}

    @property
    def used(self) -> bool:
        """A DFS was used."""
        return any(note is not None and note.used for note in self._notes.values())

    def ident(self, url: str) -> str | None:
        """The id of the store that was seen there; "": its marker has none; None: not known."""
        seen = {note.ident for note in self._notes.values() if note is not None and note.url == url}
        return max((ident for ident in seen if ident is not None), default=None)

    @property
    def to_search(self) -> list[Path]:
        """The directories whose index does not know of all files that it had there."""
        return [root for root, note in self._notes.items() if note is not None and note.search]

    def lost_index(self, root: Path) -> None:
        """The index of a directory is about to be made anew. Raises OSError."""
        if self.used:
            url = max(self.urls, default="")
            self._write(root, DfsNote(url, True, True, self.ident(url)))

    def saw(self, url: str, ident: str) -> None:
        """The marker of this DFS is there, with this id. Raises OSError if no directory can be told."""
        self._note(url, ident, uses=False)

    def use(self, url: str, ident: str) -> None:
        """Files are about to go to this DFS. Raises OSError if no directory can be told; one that cannot be written is
        not where they are recorded either."""
        self._note(url, ident, uses=True)

    def _note(self, url: str, ident: str, *, uses: bool) -> None:
        errors = []
        for root, note in self._notes.items():
            used, search = (note.used, note.search) if note is not None else (False, False)
            wanted = DfsNote(url, search, used or uses, ident)
            if note != wanted:
                try:
                    self._write(root, wanted)
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
        self._files.replace(root / names.DFS, note.encode())
        self._notes[root] = note
