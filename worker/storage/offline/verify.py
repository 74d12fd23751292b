"""What `holdfast verify DIR` does: read every byte of a storage directory that something refers to, and check it.

Read-only, for a directory that no worker uses. Two severities: DAMAGE is in bytes that something refers to, and names
file, region, partition and offset; HARMLESS is in bytes that nothing refers to. Every batch of every sealed file is
checked against its CRC and the record of its epoch; unsealed epochs and the push log the way recovery reads them, so
that what it would call damage is DAMAGE here, and what it would cut is HARMLESS. Free and slack bytes of LMDB have no
checksum, so a change there cannot be seen; they are named as what they are, and no answer depends on them. Files on the
DFS are checked if the store is known, and else counted as not looked at; a store that does not answer ends the check
with its error: it says nothing of the files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast.common.config.config import Config
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import ConfigError, CorruptError, DfsError
from holdfast.common.ids import MapFileKey
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.env.interfaces import Handle
from holdfast.worker.storage.index.footers import read_footer, read_stored_footer
from holdfast.worker.storage.layout import MARKS, EpochKey, FileKey, FileKind, FileName, sealed_path
from holdfast.worker.storage.log.log_recovery import scan_log
from holdfast.worker.storage.offline.findings import Finding, Severity, VerifyReport
from holdfast.worker.storage.offline.offline import Epochs, Offline, open_offline
from holdfast.worker.storage.offline.verify_epochs import check_epoch
from holdfast.worker.storage.recovery.reduce_recovery import Left, find_left, recover

__all__ = ["Finding", "Severity", "VerifyReport", "verify_directory"]

Progress = Callable[[int, int], None]


def verify_directory(path: str, progress: Progress | None = None, config: Config | None = None) -> VerifyReport:
    """Check a directory; `progress(done bytes, all bytes)` is called after every file. With the configuration of its
    worker its files on the DFS are checked as well; else they are only counted.

    Raises ConfigError if it is in use, is not a storage directory, or if the configuration is that of another cluster
    or DFS; OSError if it cannot be read at all, DfsError if the DFS cannot.
    """
    offline = open_offline(path)
    store = _open_away(offline, config) if config is not None else None
    try:
        verifier = _Verifier(offline, VerifyReport(path), store)
        verifier.run(progress)
    finally:
        if store is not None:
            store.close()
    return verifier.report


def _open_away(offline: Offline, config: Config) -> DfsStore | None:
    """The store with the files of a directory, by the configuration of its worker; None if the index knows of none.

    Raises ConfigError if that is another one, DfsError if it cannot be used.
    """
    if not offline.away:
        return None
    assert offline.identity is not None, "an index that was read carries the identity"
    cluster = offline.identity.cluster_id
    if config.cluster.id != cluster:
        raise ConfigError(f"{offline.root} is of the cluster {cluster}, --config is of {config.cluster.id}")
    if not config.dfs.url:
        raise ConfigError(f"{len(offline.away)} files are on {offline.dfs_url}, and --config has no [dfs] url")
    store = DfsStore(config.dfs, cluster)
    try:
        if offline.dfs_url and offline.dfs_url != store.shown:
            raise ConfigError(f"{offline.root} has files on {offline.dfs_url}, [dfs] url of --config is {store.shown}")
        if why := store.look():
            raise DfsError(why)
    except (ConfigError, DfsError):
        store.close()
        raise
    return store


class _Verifier:
    def __init__(self, offline: Offline, report: VerifyReport, store: DfsStore | None) -> None:
        self._offline = offline
        self._files = offline.env.files
        self._store = store
        self._unsealed: dict[EpochKey, Path] = {}
        self.report = report

    def run(self, progress: Progress | None) -> None:
        for path, message in self._offline.problems:
            self.report.add(Severity.DAMAGE, path, message)
        self._index()
        present = [(below, name, self._size(below)) for below, name in self._offline.files()]
        self.report.files = len(present)
        away = {key: size if self._store is not None else 0 for key, (size, _) in self._offline.away.items()}
        total, done = sum([size for _, _, size in present]) + sum(away.values()), 0

        def step(size: int) -> None:
            nonlocal done
            done += size
            if progress is not None:
                progress(done, total)

        for below, name, size in present:
            self._file(below, name, size)
            step(size)
        here = {name.key for _, name, _ in present if name is not None and name.kind is FileKind.SEALED}
        for key in sorted(self._offline.sealed.keys() - here, key=str):
            self.report.add(Severity.DAMAGE, sealed_path(key), f"{key} is in the index, but the file is missing")
        self._log()
        self._away(lambda key: step(away[key]))

    def _size(self, below: str) -> int:
        return self._files.stat(self._offline.root / below, follow=False).size

    def _index(self) -> None:
        report = self._offline.report
        if report is None:
            return
        starts = self._offline.starts
        if starts is not None and report.starts and report.starts != starts.encode():
            said = "the index names another start: the last one was cut short"
            self.report.add(Severity.HARMLESS, names.STARTS, said)
        if report.pages.free_pages or report.pages.slack_bytes:
            said = f"{report.pages.free_pages} free pages and {report.pages.slack_bytes} slack bytes: unused"
            self.report.add(Severity.HARMLESS, names.INDEX_DATA, said)

    # files

    def _file(self, below: str, name: FileName | None, size: int) -> None:
        if name is None:
            self.report.add(Severity.HARMLESS, below, "not a name of ours; nothing refers to it")
        elif name.kind in MARKS:
            self.report.add(Severity.HARMLESS, below, f"a copy that is given up, {MARKS[name.kind].name}")
        elif name.kind is FileKind.SEALED:
            self._sealed(name.key, below, size)
        elif isinstance(name.key, MapFileKey):
            self.report.add(Severity.HARMLESS, below, f"unsealed, {size} bytes: never read, deleted later")
        elif isinstance(name.key, EpochKey) and name.key not in self._offline.epochs:
            self._unsealed[name.key] = self._offline.root / below

    def _sealed(self, key: FileKey, below: str, size: int) -> None:
        self.report.sealed_files += 1
        path, known = self._offline.root / below, self._offline.contents.get(key, [])
        end = self._offline.sealed.get(key, size)
        epochs = known
        try:
            epochs = list(read_footer(self._files, path, key, end).epochs)
            if known and set(known) != set(epochs):
                self.report.add(Severity.DAMAGE, below, "index and footer contradict each other")
                epochs = known
        except (CorruptError, OSError) as error:
            where = max([one.offset + one.size_bytes for _, one in known], default=None)
            self.report.add(Severity.DAMAGE, below, f"footer: {error}", offset=where)
        if key not in self._offline.sealed and self._offline.report is not None:
            self.report.add(Severity.HARMLESS, below, "not in the index: taken in at the next start")
        if size > end:
            said = f"{size - end} bytes after the end: nothing refers to them"
            self.report.add(Severity.HARMLESS, below, said, offset=end)
        handle = self._files.open(path)
        for name, epoch in epochs:
            check_epoch(self.report, below, name, epoch, partial(self._read, handle))

    def _read(self, handle: Handle, offset: int, length: int) -> bytes:
        return self._files.read(handle, length, offset)

    # what is unsealed

    def _log(self) -> None:
        offline, report = self._offline, self.report
        segments = scan_log(self._files, offline.root, offline.boot_id, offline.logs)
        report.log_segments = sum(1 for segment in segments if segment.number)
        for segment in segments:
            below = str(segment.path.relative_to(offline.root))
            for bad in segment.bad:
                report.add(Severity.DAMAGE, below, bad.why, offset=bad.offset)
            if segment.head is not None:
                said = f"{len(segment.records)} records of the push log: taken in by the next seals"
                report.add(Severity.HARMLESS, below, said)
        for key, left in sorted(find_left(self._files, segments, self._unsealed).items()):
            if key not in offline.epochs:
                self._left(key, left)

    def _left(self, key: EpochKey, left: Left) -> None:
        report, root = self.report, self._offline.root
        path = left.path or (left.pieces[0][0] if left.pieces else root / names.LOG)
        below = str(path.relative_to(root))
        try:
            if left.damage:
                raise CorruptError(left.damage)
            found = recover(self._files, left, next(iter(left.boots), b""))
        except CorruptError as error:
            report.add(Severity.DAMAGE, below, f"unsealed epoch {key.epoch}: {error}", partition=key.partition)
            return
        report.batches += len(found.sizes) + len(found.extra)
        if left.path is not None and self._files.stat(left.path).size > found.file_bytes:
            said = "the end was cut short while it was written: never acknowledged"
            report.add(Severity.HARMLESS, below, said, partition=key.partition, offset=found.file_bytes)

    # the DFS

    def _away(self, step: Callable[[layout.DataKey], None]) -> None:
        """Count the files on the DFS, and check them if there is a store; `step` hears of each. Raises DfsError."""
        offline, report = self._offline, self.report
        report.dfs_url = offline.dfs_url
        if offline.dfs is not None and offline.dfs.search:
            said = "the worker searches the DFS for files of a lost index"
            report.add(Severity.HARMLESS, names.DFS, said)
        for key in sorted(offline.away, key=str):
            known = offline.contents.get(key, [])
            report.dfs_files += 1
            report.dfs_epochs += len(known)
            report.dfs_bytes += offline.away[key][0]
            if self._store is None:
                report.dfs_unchecked += 1
            else:
                self._stored(self._store, key, known)
            step(key)

    def _stored(self, store: DfsStore, key: layout.DataKey, known: Epochs) -> None:
        """Check one file on the DFS: its footer against the index, which may have some of its epochs only, and every
        batch of it."""
        name, size = self._offline.away_name(key), self._offline.away[key][0]
        shown, epochs = f"{store.shown}/{name}", known
        try:
            epochs = list(read_stored_footer(store, name, key, size).epochs)
            if not set(known) <= set(epochs):
                self.report.add(Severity.DAMAGE, shown, "index and footer contradict each other")
        except FileNotFoundError:
            said = f"{key} is in the index, but the file is missing from the DFS"
            self.report.add(Severity.DAMAGE, shown, said)
            return
        except CorruptError as error:
            self.report.add(Severity.DAMAGE, shown, f"footer: {error}")
        for epoch, record in epochs:
            check_epoch(self.report, shown, epoch, record, partial(store.read, name))
