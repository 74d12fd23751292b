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


def list_files(
    files: Files, shuffle: ShuffleKey, folder: Path
) -> dict[layout.FileKey, tuple[layout.FileKind, Path, int]]:
    """Every map file of ours in a shuffle's folder, and every sealed partition and pack file: kind, path and length;
    for when sums differ."""
    found: dict[layout.FileKey, tuple[layout.FileKind, Path, int]] = {}
    # Sorted, so that of two names for one file the sealed one (.map) counts: the others go on with a digit or an "f".
    for listed in sorted(files.names(folder)) if files.is_folder(folder) else ():
        name = layout.parse_file(shuffle, listed)
        if name is None or (isinstance(name.key, EpochKey) and name.kind is not layout.FileKind.SEALED):
            continue
        status = files.stat(folder / listed, follow=False)
        if status.kind is Kind.FILE:  # a folder or a link is not ours, whatever its name
            found[name.key] = name.kind, folder / listed, status.size
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
        self._folders: set[Path] = set()
        self._cases: Counter[str] = Counter()
        #: sentences about what was not as it should be: NOTES_MAX files by name, the others counted
        self.notes: list[str] = []

    def run(self) -> Inventory:
        """Carry out what the table decides for every file; return what the directory holds."""
        listed, indexed = self._data.shuffles, self._report.shuffles
        for key in sorted(listed.keys() | indexed.keys()):
            here = listed.get(key) or ShuffleSum()  # of each shuffle its own: it goes on counting
            if here.values() != (indexed.get(key) or ShuffleSum()).values():
                self._shuffle(decode_shuffle(key))
            else:
                self._found.sealed[decode_shuffle(key)] = here
        for below in self._data.others:
            self._other(below)
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
        elif name.kind is layout.FileKind.FAILED:
            self._found.failed.add(name.key)
        elif self._files.exists(path):
            self._found.unsealed[name.key] = path

    def _left_alone(self, path: Path, error: CorruptError) -> None:
        self._cases["no name of ours, left alone"] += 1
        if len(self.notes) < NOTES_MAX:
            self.notes.append(f"{path}: {error}; it is left alone")

    def _shuffle(self, shuffle: ShuffleKey) -> None:
        on_disk = list_files(self._files, shuffle, self._root / layout.shuffle_folder(shuffle))
        lengths = self._index.files(shuffle)
        total = ShuffleSum()
        for key in sorted(on_disk.keys() | lengths.keys(), key=str):
            self._add(total, self._file(key, on_disk.get(key), lengths.get(key)))
        if total.files or encode_shuffle(shuffle) in self._report.shuffles:
            self._found.sealed[shuffle] = total

    @staticmethod
    def _add(total: ShuffleSum, size: int | None) -> None:
        if size is not None:
            total.files += 1
            total.size_bytes += size

    def _file(
        self, key: layout.FileKey, found: tuple[layout.FileKind, Path, int] | None, recorded: int | None
    ) -> int | None:
        """Decide on one file and act; return its length if it counts as sealed. `recorded` is that in the index."""
        sealed = self._root / layout.sealed_path(key)
        kind, path, size = found or (None, sealed, 0)
        facts, record = gather(self._files, key, kind, path, size, recorded)
        case, decision = decide(facts)
        if decision not in (Decision.KEEP, Decision.DELETE_LATER, Decision.KEEP_FAILED):
            self._cases[f"case {case}, {decision.name}"] += 1
            if len(self.notes) < NOTES_MAX:
                self.notes.append(f"{path}: case {case}, {decision.name}")
        match decision:
            case Decision.ADOPT:
                assert record is not None, "only a right footer is adopted"
                self._adopt(record, path.parent)
                if isinstance(key, EpochKey):
                    self._found.unsealed.pop(key, None)
                return size
            case Decision.CUT_TAIL:
                assert recorded is not None, "only what is recorded can be too long"
                self._files.truncate(path, recorded)
                return recorded
            case Decision.FINISH:
                self._files.rename(path, sealed)
                self._files.sync_folder(path.parent)
            case Decision.QUARANTINE:
                put_aside(self._files, self._root, path)
                return None
            case Decision.UNRECORD:
                assert isinstance(key, MapFileKey), "only map files are given up by their name"
                self._index.remove_file(key)
                return None
            case Decision.DELETE_LATER | Decision.KEEP_FAILED:
                return None
            case Decision.KEEP | Decision.KEEP_DAMAGED | Decision.LOST:
                pass
        return recorded

    def _adopt(self, record: FileRecord[Any, Any], folder: Path) -> None:
        self._folders.update((folder, *folder.relative_to(self._root).parents))
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


_NAMES = {
    None: Name.MISSING,
    layout.FileKind.OPEN: Name.OPEN,
    layout.FileKind.SEALED: Name.SEALED,
    layout.FileKind.FAILED: Name.FAILED,
}


def gather(
    files: Files, key: layout.FileKey, kind: layout.FileKind | None, path: Path, size: int, recorded: int | None
) -> tuple[Facts, FileRecord[Any, Any] | None]:
    """Collect the facts about one file, reading its footer only where the table asks for it. Raises OSError."""
    name, indexed = _NAMES[kind], recorded is not None
    length = Length.UNKNOWN
    if recorded is not None and name in (Name.OPEN, Name.SEALED):
        difference = size - recorded
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
        return Facts(name, indexed, length, Footer.RIGHT), read_footer(files, path, key, recorded)
    except CorruptError:
        return Facts(name, indexed, length, Footer.WRONG), None
