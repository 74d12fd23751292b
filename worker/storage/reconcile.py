"""Compares a directory's listing with its index and carries out what the file table of recovery.py decides.

Only shuffles whose sums differ are looked at file by file; an index that was rebuilt is empty, so all are. Nothing that
acknowledged data could hang on is deleted.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from pathlib import Path

from holdfast.common.errors import CorruptError
from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.check import DataReport, IndexReport, ShuffleSum
from holdfast.worker.storage.directory import Tables
from holdfast.worker.storage.disk import Disk
from holdfast.worker.storage.footers import read_footer
from holdfast.worker.storage.index import Index
from holdfast.worker.storage.records import FileRecord, Head, decode_shuffle
from holdfast.worker.storage.recovery import Decision, Facts, Footer, Length, Name, decide

#: Records that one transaction takes when an index is rebuilt.
_REBUILD_FILES = 2_000
NOTES_MAX = 20


def put_aside(disk: Disk, root: Path, path: Path) -> Path:
    """Move something into quarantine/ under a new name."""
    folder = root / names.QUARANTINE
    disk.make_folder(folder)
    number = len(os.listdir(folder))
    while (target := folder / f"{number:04}-{path.name}").exists():
        number += 1
    disk.rename(path, target)
    disk.sync_folder(folder)
    disk.sync_folder(path.parent)
    return target


def list_files(shuffle: ShuffleKey, folder: Path) -> dict[MapFileKey, tuple[layout.Kind, Path, int]]:
    """Every file of ours in a shuffle's folder: kind, path and length; for when sums differ."""
    found = {}
    # Sorted, so that of two names for one file the sealed one (.map) counts: the others go on with a digit or an "f".
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = layout.parse_file(shuffle, path.name)
        status = path.lstat()
        if name is not None and stat.S_ISREG(status.st_mode):  # a folder or a link is not ours, whatever its name
            found[name.key] = name.kind, path, status.st_size
    return found


class Reconciler:
    """Compares one directory's data with its index; only shuffles whose sums differ are looked at file by file."""

    def __init__(self, root: Path, disk: Disk, index: Index, data: DataReport, report: IndexReport) -> None:
        self._root = root
        self._disk = disk
        self._index = index
        self._data = data
        self._report = report
        self._tables = Tables()
        self._adopted: list[FileRecord] = []
        self._cases: Counter[str] = Counter()
        #: sentences about what was not as it should be: NOTES_MAX files by name, the others counted
        self.notes: list[str] = []

    def run(self) -> Tables:
        """Carry out what the table decides for every file; return what the directory holds."""
        listed, indexed = self._data.shuffles, self._report.shuffles
        nothing = ShuffleSum()
        for key in sorted(listed.keys() | indexed.keys()):
            here = listed.get(key, nothing)
            if here.values() != indexed.get(key, nothing).values():
                self._shuffle(decode_shuffle(key))
            elif here.files:
                self._tables.sealed[decode_shuffle(key)] = here
        for below in self._data.others:
            self._other(below)
        self._flush()
        self.notes += [f"{self._root}: {count} files of {case}" for case, count in sorted(self._cases.items())]
        return self._tables

    def _other(self, below: str) -> None:
        path = self._root / below
        try:
            name = layout.parse_path(below)
        except CorruptError as error:
            self._cases["no name of ours, left alone"] += 1
            if len(self.notes) < NOTES_MAX:
                self.notes.append(f"{path}: {error}; it is left alone")
            return
        if name.kind is layout.Kind.FAILED:
            self._tables.failed.add(name.key)
        elif path.exists():
            self._tables.leftovers[name.key] = path

    def _shuffle(self, shuffle: ShuffleKey) -> None:
        on_disk = list_files(shuffle, self._root / layout.shuffle_folder(shuffle))
        records = self._index.files(shuffle)
        total = ShuffleSum()
        for key in sorted(on_disk.keys() | records.keys()):
            size = self._file(key, on_disk.get(key), records.get(key))
            if size is not None:
                total.files += 1
                total.size_bytes += size
        if total.files:
            self._tables.sealed[shuffle] = total

    def _file(self, key: MapFileKey, found: tuple[layout.Kind, Path, int] | None, head: Head | None) -> int | None:
        """Decide on one file and act; return its length if it counts as sealed."""
        kind, path, size = found or (None, self._root / layout.sealed_path(key), 0)
        facts, record = gather(key, kind, path, size, head)
        case, decision = decide(facts)
        if decision not in (Decision.KEEP, Decision.DELETE_LATER, Decision.KEEP_FAILED):
            self._cases[f"case {case}, {decision.name}"] += 1
            if len(self.notes) < NOTES_MAX:
                self.notes.append(f"{path}: case {case}, {decision.name}")
        match decision:
            case Decision.ADOPT:
                assert record is not None, "only a right footer is adopted"
                self._adopt(record)
                return size
            case Decision.CUT_TAIL:
                assert head is not None, "only what is recorded can be too long"
                self._disk.truncate(path, head.file_bytes)
                return head.file_bytes
            case Decision.FINISH:
                self._disk.rename(path, self._root / layout.sealed_path(key))
                self._disk.sync_folder(path.parent)
            case Decision.QUARANTINE:
                put_aside(self._disk, self._root, path)
                return None
            case Decision.UNRECORD:
                self._index.remove_file(key)
                return None
            case Decision.DELETE_LATER | Decision.KEEP_FAILED:
                return None
            case Decision.KEEP | Decision.KEEP_DAMAGED | Decision.LOST:
                pass
        return None if head is None else head.file_bytes

    def _adopt(self, record: FileRecord) -> None:
        self._adopted.append(record)
        if len(self._adopted) >= _REBUILD_FILES:
            self._flush()

    def _flush(self) -> None:
        if self._adopted:
            self._index.put_files(self._adopted)
            self._adopted = []


_NAMES = {
    None: Name.MISSING,
    layout.Kind.OPEN: Name.OPEN,
    layout.Kind.SEALED: Name.SEALED,
    layout.Kind.FAILED: Name.FAILED,
}


def gather(
    key: MapFileKey, kind: layout.Kind | None, path: Path, size: int, head: Head | None
) -> tuple[Facts, FileRecord | None]:
    """Collect the facts about one file, reading its footer only where the table asks for it. Raises OSError."""
    name, indexed = _NAMES[kind], head is not None
    length = Length.UNKNOWN
    if head is not None and name in (Name.OPEN, Name.SEALED):
        difference = size - head.file_bytes
        length = Length.LONGER if difference > 0 else Length.SHORTER if difference else Length.EQUAL
    wanted = {
        (Name.SEALED, True, Length.LONGER),
        (Name.SEALED, False, Length.UNKNOWN),
        (Name.OPEN, True, Length.EQUAL),
        (Name.OPEN, True, Length.LONGER),
    }
    if (name, indexed, length) not in wanted:
        return Facts(name, indexed, length, Footer.UNREAD), None
    try:
        record = read_footer(path, key, None if head is None else head.file_bytes)
    except CorruptError:
        return Facts(name, indexed, length, Footer.WRONG), None
    return Facts(name, indexed, length, Footer.RIGHT), record
