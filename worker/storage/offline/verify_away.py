"""The part of `holdfast verify` that checks the files on the DFS: every one that the index of the directory refers to.

Read-only, chunk by chunk, so that memory is one chunk's. A store that does not answer ends the check with its error: it
says nothing of the files. Without a store the files are counted as not looked at. Called by verify.py.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.common.config.config import Config
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import ConfigError, CorruptError, DfsError
from holdfast.common.statuses import Status
from holdfast.worker.storage import names
from holdfast.worker.storage.index.footers import read_stored_footer
from holdfast.worker.storage.index.records import EpochRecord
from holdfast.worker.storage.layout import DataKey, EpochKey
from holdfast.worker.storage.offline.findings import Severity, VerifyReport
from holdfast.worker.storage.offline.offline import Offline
from holdfast.worker.storage.offline.verify_reduce import check_epoch

Known = list[tuple[EpochKey, EpochRecord]]


def open_away(offline: Offline, config: Config) -> DfsStore | None:
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


def verify_away(
    offline: Offline, report: VerifyReport, store: DfsStore | None, step: Callable[[DataKey], None]
) -> None:
    """Count the files on the DFS, and check them if there is a store; `step` hears of each. Raises DfsError."""
    epochs: dict[DataKey, Known] = {key: [] for key in offline.away}
    for epoch, record in offline.epochs.items():
        if record.status == Status.OK and record.place(epoch) in epochs:
            epochs[record.place(epoch)].append((epoch, record))
    report.dfs_url = offline.dfs_url
    if offline.dfs is not None and offline.dfs.search:
        report.add(
            Severity.HARMLESS, names.DFS, "files on the DFS that a lost index knew of are looked for by the worker"
        )
    for key in sorted(offline.away, key=str):
        report.dfs_files += 1
        report.dfs_epochs += len(epochs[key])
        report.dfs_bytes += offline.away[key][0]
        if store is None:
            report.dfs_unchecked += 1
        else:
            _check(store, offline, report, key, epochs[key])
        step(key)


def _check(store: DfsStore, offline: Offline, report: VerifyReport, key: DataKey, known: Known) -> None:
    """Check one file: its footer against the index, and every batch of it."""
    name, size = offline.away_name(key), offline.away[key][0]
    shown = f"{store.shown}/{name}"
    try:
        footer = read_stored_footer(store, name, key, size)
    except FileNotFoundError:
        report.add(Severity.DAMAGE, shown, f"{key} is in the index, but the file is gone from the DFS")
        return
    except CorruptError as error:
        report.add(Severity.DAMAGE, shown, f"footer: {error}")
        epochs = known
    else:
        epochs = list(footer.epochs)
        if not set(known) <= set(epochs):
            report.add(Severity.DAMAGE, shown, "index and footer contradict each other")
    for epoch, record in epochs:
        check_epoch(
            report,
            shown,
            epoch,
            record,
            lambda row: (memoryview(store.read(name, row.offset, row.length)), row.offset),
        )
