"""Opens a storage directory for looking only: nothing is written, nothing is repaired, no server runs.

Called by inspect.py and verify.py, which the CLI uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.common.dfs.names import stored_name, worker_folder
from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.ids import MapFileKey
from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.common.statuses import Status
from holdfast.common.system.links import sentence
from holdfast.common.system.locks import HeldError
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.check import IndexReport, check_file
from holdfast.worker.storage.dfs.away_note import DfsNote, read_note
from holdfast.worker.storage.env.interfaces import Env, Handle, Kind
from holdfast.worker.storage.env.system import system
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.index.index import Index
from holdfast.worker.storage.index.records import EpochRecord
from holdfast.worker.storage.layout import DataKey, EpochKey, FileKey, FileName, sealed_name

#: Epochs that lie in a file, with their records.
Epochs = list[tuple[MapFileKey | EpochKey, EpochRecord]]


@dataclass(slots=True)
class Offline:
    """A directory that no process uses. Problems are kept, not raised: they are what the caller is after."""

    env: Env
    root: Path
    lock: Handle
    identity: Identity | None = None
    starts: Starts | None = None
    #: (path, sentence) of what is wrong with identity, starts or index
    problems: list[tuple[str, str]] = field(default_factory=list)
    report: IndexReport | None = None
    #: from the index if it is sound: the length of every sealed file, every epoch of maps and of REDUCE partitions, and
    #: those that lie in each file
    sealed: dict[FileKey, int] = field(default_factory=dict)
    maps: dict[MapFileKey, EpochRecord] = field(default_factory=dict)
    epochs: dict[EpochKey, EpochRecord] = field(default_factory=dict)
    contents: dict[FileKey, Epochs] = field(default_factory=dict)
    #: files on the DFS whose epochs are recorded here: length and token
    away: dict[DataKey, tuple[int, bytes]] = field(default_factory=dict)
    #: which DFS that is
    dfs: DfsNote | None = None
    #: push logs that must be there, by incarnation, with their boots
    logs: dict[int, bytes | None] = field(default_factory=dict)

    @property
    def boot_id(self) -> bytes:
        """The boot of the last start: files are judged as if the machine had not been started anew since."""
        return self.starts.boot_id if self.starts else b""

    def files(self) -> Iterator[tuple[str, FileName | None]]:
        """Yield (path below the directory, parsed name) of everything below data/; None for no name of ours."""
        for below in self._all():
            try:
                yield below, layout.parse_path(below)
            except CorruptError:
                yield below, None

    def _all(self) -> Iterator[str]:
        """Paths of everything below data/, in order."""
        yield from self._below(names.DATA)

    def _below(self, folder: str) -> Iterator[str]:
        files = self.env.files
        entries = sorted(files.entries(self.root / folder)) if files.is_folder(self.root / folder) else []
        folders = [entry.name for entry in entries if entry.kind is Kind.FOLDER]
        yield from (f"{folder}/{entry.name}" for entry in entries if entry.kind is not Kind.FOLDER)
        for name in folders:
            yield from self._below(f"{folder}/{name}")

    @property
    def dfs_url(self) -> str:
        """Which DFS has files of this directory; "" if none is known to."""
        return self.dfs.url if self.dfs is not None else ""

    def away_name(self, key: DataKey) -> str:
        """The name of a file in the store. The index that knows of it was read, and so is the identity."""
        assert self.identity is not None, "an index that was read carries the identity"
        folder = worker_folder(self.identity.cluster_id, key.shuffle, self.identity.worker_uid)
        return stored_name(folder, sealed_name(key), self.away[key][1])

    def map_epoch(self, key: MapFileKey, path: Path) -> EpochRecord:
        """What is known of a sealed map file: the index's word, else the footer's. Raises CorruptError or OSError."""
        return self.maps.get(key) or read_footer(self.env.files, path, key).epoch


def open_offline(path: str, env: Env | None = None) -> Offline:
    """Look at a directory; raises ConfigError if it is in use, or is not a storage directory at all."""
    env = env or system()
    files = env.files
    root = Path(files.real_path(path))
    if not files.exists(root / names.IDENTITY) and not files.exists(root / names.INDEX_DATA):
        raise ConfigError(f"{path} is not a storage directory: it has neither an identity nor an index")
    foreign = files.first_foreign(root, partial(names.is_data_file, str(root)))
    if foreign is not None:
        raise ConfigError(sentence(foreign))
    offline = Offline(env, root, _lock(env, root))
    _read_small(offline)
    _read_index(offline)
    return offline


def _lock(env: Env, root: Path) -> Handle:
    """Hold the lock while looking; a directory that no worker has opened yet is locked itself, so nothing changes."""
    path = root / names.LOCK
    try:
        return env.files.lock(path if env.files.exists(path) else root, shared=True)
    except HeldError as error:
        raise ConfigError(f"{root} is in use by {error}: stop the worker first, or look at a copy") from None


def _read_small(offline: Offline) -> None:
    files = offline.env.files
    try:
        offline.identity = Identity.decode(files.read_whole(offline.root / names.IDENTITY))
    except (CorruptError, OSError) as error:
        offline.problems.append((names.IDENTITY, str(error)))
    try:
        offline.starts = Starts.decode(files.read_whole(offline.root / names.STARTS))
    except (CorruptError, OSError) as error:
        offline.problems.append((names.STARTS, str(error)))
    try:
        offline.dfs = read_note(files, offline.root)
    except (ConfigError, OSError) as error:
        offline.problems.append((names.DFS, str(error)))


def _read_index(offline: Offline) -> None:
    path = offline.root / names.INDEX_DATA
    try:
        offline.report = check_file(offline.env.files, str(path))
        _read_records(offline)
    except (CorruptError, OSError) as error:
        offline.report = None
        offline.sealed, offline.maps, offline.epochs, offline.contents = {}, {}, {}, {}
        offline.away, offline.logs = {}, {}
        offline.problems.append((names.INDEX_DATA, str(error)))


def _read_records(offline: Offline) -> None:
    report = offline.report
    if report is None:
        return
    if report.identity and offline.identity is None:
        offline.identity = Identity.decode(report.identity)
    elif offline.identity is not None and report.identity != offline.identity.encode():
        raise LmdbDamagedError("the index is that of another directory")
    index = Index.read_only(offline.env, offline.root / names.INDEX)
    try:
        with index.reading() as reader:
            offline.sealed.update(reader.files())
            for key in offline.sealed:
                if isinstance(key, MapFileKey):
                    offline.maps[key] = reader.map_epoch(key)
                    offline.contents[key] = [(key, offline.maps[key])]
            offline.away.update((key, (size, token)) for key, size, token in reader.away_files())
            offline.logs.update(reader.logs())
            if offline.away and offline.identity is None:
                raise LmdbDamagedError("the index has no identity")
            for epoch in reader.epochs():
                record = reader.epoch(epoch)
                if record is not None:
                    offline.epochs[epoch] = record
                    if record.status == Status.OK:
                        offline.contents.setdefault(record.place(epoch), []).append((epoch, record))
    finally:
        index.close()
