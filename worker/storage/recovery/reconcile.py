"""Compares a directory's listing with its index and carries out what the file table of recovery.py decides.

Only shuffles whose sums differ are looked at file by file; an index that was rebuilt is empty, so all are. Nothing that
acknowledged data could hang on is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.common.errors import CorruptError
from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.check import DataReport, IndexReport, ShuffleSum
from holdfast.worker.storage.env.interfaces import Files, Kind
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.index.index import Index, file_items
from holdfast.worker.storage.index.records import FileRecord, decode_shuffle, encode_shuffle
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.recovery.inventory import Inventory
from holdfast.worker.storage.recovery.recovery import Decision, Facts, Footer, Length, Name, decide

#: Records that one transaction takes when an index is rebuilt.
_REBUILD_FILES = 2_000
NOTES_MAX = 20


def put_aside(files: Files, root: Path, path: Path) -> Path:
    """Move something into quarantine/ under a new name."""
    folder = root / names.QUARANTINE
    files.make_folder(folder)
    number = len(files.names(folder))
    while files.exists(target := folder / f"{number:04}-{path.name}"):
        number += 1
    files.rename(path, target)
    files.sync_folder(folder)
    files.sync_folder(path.parent)
    return target


def list_sealed(files: Files, shuffle: ShuffleKey, folder: Path) -> dict[layout.FileKey, int]:
    """Every sealed file in a shuffle's folder, with its length; for when sums differ."""
    found: dict[layout.FileKey, int] = {}
    for listed in sorted(files.names_if_any(folder)):
        name = layout.parse_file(shuffle, listed)
        if name is not None and name.kind is layout.FileKind.SEALED:
            status = files.stat(folder / listed, follow=False)
            if status.kind is Kind.FILE:  # a folder or a link is not ours, whatever its name
                found[name.key] = status.size
    return found


class Reconciler:
    """Compares one directory's data with its index; only shuffles whose sums differ are looked at file by file."""

    def __init__(self, root: Path, files: Files, index: Index, data: DataReport, report: IndexReport) -> None:
        self._root = root
        self._files = files
        self._index = index
        self._data = data
        self._report = report
        self._found = Inventory()
        self._adopted: list[Iterable[tuple[bytes, bytes]]] = []
        #: folders with their names, and those above
        self._folders: dict[Path, None] = {}  # in order, so that a start is the same each time
        self._cases: Counter[str] = Counter()
        #: sentences about what was not as it should be: NOTES_MAX files by name, the others counted
        self.notes: list[str] = []

    def run(self) -> Inventory:
        """Carry out what the table decides for every file; return what the directory holds."""
        for below in self._data.others:
            self._other(below)
        listed, indexed = self._data.shuffles, self._report.shuffles
        for key in sorted(listed.keys() | indexed.keys()):
            here = listed.get(key) or ShuffleSum()  # of each shuffle its own: it goes on counting
            if here.values() != (indexed.get(key) or ShuffleSum()).values():
                self._shuffle(decode_shuffle(key))
            else:
                self._found.sealed[decode_shuffle(key)] = here
        self._flush()
        with self._index.reading() as reader:
            for file, size, token in reader.away_files():
                self._found.away.setdefault(file.shuffle, {})[file] = token
                self._found.away_bytes[file.shuffle] += size
        self.notes += [f"{self._root}: {count} files of {case}" for case, count in sorted(self._cases.items())]
        return self._found

    def _other(self, below: str) -> None:
        path = self._root / below
        try:
            name = layout.parse_path(below.removesuffix(names.MOVING_SUFFIX))
        except CorruptError as error:
            self._left_alone(path, error)
            return
        if below.endswith(names.MOVING_SUFFIX):
            if name.kind is layout.FileKind.SEALED and not isinstance(name.key, MapFileKey):
                self._files.remove(path)  # the file is where it came from
            else:
                self._left_alone(path, CorruptError("nothing of this name moves"))
        elif isinstance(name.key, layout.PackKey):
            self._left_alone(path, CorruptError("pack files are there whole, or not at all"))
        elif name.kind in layout.MARKS:
            self._found.failed[name.key] = layout.MARKS[name.kind]
            if self._files.stat(path).size:  # its file became the mark, and a kill came between
                self._files.truncate(path, 0)
        else:
            self._found.unsealed[name.key] = path

    def _left_alone(self, path: Path, error: CorruptError) -> None:
        self._cases["no name of ours, left alone"] += 1
        if len(self.notes) < NOTES_MAX:
            self.notes.append(f"{path}: {error}; it is left alone")

    def _shuffle(self, shuffle: ShuffleKey) -> None:
        on_disk = list_sealed(self._files, shuffle, layout.folder_in(self._root, shuffle))
        lengths = self._index.files(shuffle)
        total = ShuffleSum()
        for key in sorted(on_disk.keys() | lengths.keys(), key=str):
            size = self._file(key, on_disk.get(key), lengths.get(key))
            if size is not None:
                total.files += 1
                total.size_bytes += size
        if total.files or encode_shuffle(shuffle) in self._report.shuffles:
            self._found.sealed[shuffle] = total

    def _file(self, key: layout.FileKey, size: int | None, recorded: int | None) -> int | None:
        """Decide on one file that has a sealed name, of this length, or a record, and act; return its length if it
        counts as sealed. `recorded` is that in the index."""
        path = self._root / layout.sealed_path(key)
        if size is None:
            facts, record = self._facts(key, recorded), None
        else:
            facts, record = self._sealed_facts(key, path, size, recorded)
        case, decision = decide(facts)
        if decision is not Decision.KEEP:
            self._cases[f"case {case}, {decision.name}"] += 1
            if len(self.notes) < NOTES_MAX:
                self.notes.append(f"{path}: case {case}, {decision.name}")
        match decision:
            case Decision.ADOPT:
                assert record is not None, "only a right footer is adopted"
                self._adopt(record, path.parent)
                return size
            case Decision.CUT_TAIL:
                assert recorded is not None, "only what is recorded can be too long"
                self._files.truncate(path, recorded)
            case Decision.FINISH:
                assert not isinstance(key, layout.PackKey), "pack files have no other name"
                self._files.rename(self._found.unsealed.pop(key), path)
                self._files.sync_folder(path.parent)
            case Decision.QUARANTINE:
                put_aside(self._files, self._root, path)
            case Decision.UNRECORD:
                self._index.remove_file(key, [key] if isinstance(key, EpochKey) else [])
                return None
            case Decision.REMOVE:
                self._files.remove(path)
                return None
            case Decision.KEEP | Decision.KEEP_DAMAGED | Decision.LOST:
                pass
        return recorded

    def _sealed_facts(
        self, key: layout.FileKey, path: Path, size: int, recorded: int | None
    ) -> tuple[Facts, FileRecord[Any, Any] | None]:
        """Collect the facts about a file with a sealed name, reading its footer only where the table asks for it.
        Raises OSError."""
        length = Length.UNKNOWN
        if recorded is not None:
            length = Length.LONGER if size > recorded else Length.SHORTER if size < recorded else Length.EQUAL
        if length in (Length.EQUAL, Length.SHORTER):
            return Facts(Name.SEALED, length), None
        record = self._footer(path, key, recorded)
        if record is None:
            return Facts(Name.SEALED, length, Footer.WRONG), None
        # A copy from another worker may have come since one was given up; an index that was rebuilt does not know.
        given_up = any(one in self._found.failed for one, _ in record.epochs)
        if given_up and recorded is None and self._report.identity:
            return Facts(Name.GIVEN_UP), None
        return Facts(Name.SEALED, length, Footer.RIGHT), record

    def _facts(self, key: layout.FileKey, recorded: int | None) -> Facts:
        """The same of one that is recorded, and not there under its sealed name."""
        if key in self._found.failed:
            return Facts(Name.FAILED)
        path = None if isinstance(key, layout.PackKey) else self._found.unsealed.get(key)
        if path is None or self._files.stat(path).size != recorded or self._footer(path, key, recorded) is None:
            return Facts(Name.MISSING)
        return Facts(Name.OPEN)

    def _footer(self, path: Path, key: layout.FileKey, end: int | None) -> FileRecord[Any, Any] | None:
        """The record in a file's footer; None if that is wrong. Raises OSError."""
        try:
            return read_footer(self._files, path, key, end)
        except CorruptError:
            return None

    def _adopt(self, record: FileRecord[Any, Any], folder: Path) -> None:
        self._folders |= dict.fromkeys((folder, *folder.relative_to(self._root).parents))
        self._adopted.append(file_items(record))
        if len(self._adopted) >= _REBUILD_FILES:
            self._flush()

    def _flush(self) -> None:
        if self._adopted:
            for folder in self._folders:  # who gave the files their names may have been killed before these were synced
                self._files.sync_folder(self._root / folder)
            self._folders.clear()
            self._index.put_items([item for items in self._adopted for item in items])
            self._adopted = []
