"""What `holdfast verify DIR` does: read every byte of a storage directory that something refers to, and check it.

Read-only, for a directory that no worker uses. Two severities: DAMAGE is in bytes that something refers to, and names
file, region, partition and offset; HARMLESS is in bytes that nothing refers to. Free and slack bytes of LMDB have no
checksum, so a change there cannot be seen; they are named as what they are, and no answer depends on them. Files on the
DFS are checked if the store is known, and else counted as not looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.common.config.config import Config
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import CorruptError, HoldfastError
from holdfast.common.ids import MapFileKey
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.engine.scan import Seeds, scan_run
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.index.records import MapRecord
from holdfast.worker.storage.layout import DataKey
from holdfast.worker.storage.offline.findings import Finding, Severity, VerifyReport
from holdfast.worker.storage.offline.offline import Offline, open_offline
from holdfast.worker.storage.offline.verify_away import open_away, verify_away
from holdfast.worker.storage.offline.verify_reduce import verify_reduce

__all__ = ["Finding", "Severity", "VerifyReport", "verify_directory"]

Progress = Callable[[int, int], None]
_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF


def verify_directory(path: str, progress: Progress | None = None, config: Config | None = None) -> VerifyReport:
    """Check a directory; `progress(done bytes, all bytes)` is called after every file. With the configuration of its
    worker its files on the DFS are checked as well; else they are only counted.

    Raises ConfigError if it is in use, is not a storage directory, or if the configuration is that of another cluster
    or DFS; OSError if it cannot be read at all, DfsError if the DFS cannot.
    """
    offline = open_offline(path)
    store = open_away(offline, config) if config is not None else None
    try:
        verifier = _Verifier(offline, VerifyReport(path), store)
        verifier.run(progress)
    finally:
        if store is not None:
            store.close()
    return verifier.report


class _Verifier:
    def __init__(self, offline: Offline, report: VerifyReport, store: DfsStore | None) -> None:
        self._offline = offline
        self._files = offline.env.files
        self._store = store
        self.report = report

    def _find(self, severity: Severity, path: str, message: str, **where: int | None) -> None:
        self.report.findings.append(Finding(severity, path, message, **where))

    def run(self, progress: Progress | None) -> None:
        for path, message in self._offline.problems:
            self._find(Severity.DAMAGE, path, message)
        self._index()
        present = list(self._offline.files())
        reduce_files = [below for below, _, _ in self._offline.reduce_files()]
        sizes = {below: self._size(below) for below in [*reduce_files, *[below for below, _, _ in present]]}
        self.report.files = len(sizes)
        away = {key: size if self._store is not None else 0 for key, (size, _) in self._offline.away.items()}
        total, done = sum(sizes.values()) + sum(away.values()), 0

        def step(which: str | DataKey) -> None:
            nonlocal done
            done += sizes.get(which, 0) if isinstance(which, str) else away[which]
            if progress is not None:
                progress(done, total)

        verify_reduce(self._offline, self.report, step)
        for below, name, key in present:
            self._file(below, name, key, sizes[below])
            step(below)
        on_disk = {below for below, _, _ in present}
        for indexed in self._offline.indexed:
            below = layout.sealed_path(indexed)
            if below not in on_disk:
                self._find(Severity.DAMAGE, below, f"{indexed} is in the index, but the file is gone")
        verify_away(self._offline, self.report, self._store, step)

    def _size(self, below: str) -> int:
        return self._files.stat(self._offline.root / below, follow=False).size

    def _index(self) -> None:
        report = self._offline.report
        if report is None:
            return
        starts = self._offline.starts
        if starts is not None and report.starts and report.starts != starts.encode():
            self._find(Severity.HARMLESS, names.STARTS, "the index names another start: the last one was cut short")
        if report.pages.free_pages or report.pages.slack_bytes:
            self._find(
                Severity.HARMLESS,
                names.INDEX_DATA,
                f"{report.pages.free_pages} free pages and {report.pages.slack_bytes} slack bytes: unused",
            )

    def _file(self, below: str, name: layout.FileName | None, key: MapFileKey | None, size: int) -> None:
        if name is None or key is None:
            self._find(Severity.HARMLESS, below, "not a name of ours; nothing refers to it")
        elif name.kind is layout.FileKind.OPEN:
            self._find(Severity.HARMLESS, below, f"unsealed, {size} bytes: never read, deleted later")
        elif name.kind is layout.FileKind.FAILED:
            self._find(Severity.HARMLESS, below, "a copy that is given up")
        else:
            self._sealed(key, below, size)

    def _sealed(self, key: MapFileKey, below: str, size: int) -> None:
        self.report.sealed_files += 1
        path = self._offline.root / below
        indexed = self._offline.indexed.get(key)
        end = indexed.file_bytes if indexed is not None else size
        record = indexed
        try:
            footer = read_footer(self._files, path, key, end)
            if indexed is not None and footer != indexed:
                self._find(Severity.DAMAGE, below, "index and footer contradict each other")
            record = indexed or footer
        except (CorruptError, OSError) as error:
            where = indexed.epoch.size_bytes if indexed is not None else None
            self._find(Severity.DAMAGE, below, f"footer: {error}", offset=where)
        if indexed is None and self._offline.report is not None:
            self._find(Severity.HARMLESS, below, "not in the index: taken in at the next start")
        if record is None:
            return
        if size > end:
            self._find(
                Severity.HARMLESS, below, f"{size - end} bytes behind the end: nothing refers to them", offset=end
            )
        self._data(below, record)

    def _data(self, below: str, record: MapRecord) -> None:
        """Check every batch of a file against the entries of its record."""
        handle = self._files.open(self._offline.root / below)
        seeds, due = Seeds(record.key.shuffle), dict[int, int]()
        batches = crc_sum = 0
        whole = True
        for chunk in record.epoch.decoded():
            for entry in chunk.entries():
                offset = chunk.region_offset + entry.offset
                data = memoryview(self._files.read(handle, entry.length, offset))
                where = {"region": chunk.region, "partition": entry.partition}
                number = due.get(entry.partition, 0)
                due[entry.partition] = number + entry.batches
                try:
                    seed = seeds.of(entry.partition)
                    if len(data) < entry.length:
                        raise CorruptError(f"cut: {len(data)} of {entry.length} bytes are there")
                    found = scan_run(data, 0, entry.length, seed, record.key.map, record.key.attempt, number)
                    if found.batches != entry.batches:
                        raise CorruptError(f"{found.batches} batches where the record has {entry.batches}")
                except HoldfastError as error:
                    whole = False
                    self._find(Severity.DAMAGE, below, f"offsets from {offset}: {error}", offset=offset, **where)
                    continue
                batches += found.batches
                crc_sum += found.crc_sum
        totals = record.epoch
        if whole and (batches, crc_sum & _CRC_SUM_MASK) != (totals.batches, totals.crc_sum):
            self._find(Severity.DAMAGE, below, "the batches do not add up to the totals of the file")
        self.report.batches += batches
        self.report.size_bytes += totals.size_bytes
