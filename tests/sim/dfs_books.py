"""What must hold of the DFS: the oracle's books of what workers have brought there.

What a worker has recorded as being there is there, whole and unchanged, for as long as the masters have its shuffle,
whatever becomes of the worker; and while the worker has its identity, in any of its directories, it has it, too. What
was dropped goes: from a worker that lives at once, and all else by the leading master.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.common.dfs import names
from holdfast.common.dfs.urls import parse_url
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import ShuffleKey
from holdfast.worker.storage.index.footers import read_stored_footer
from holdfast.worker.storage.layout import DataKey, EpochKey
from tests.sim.clock import Life
from tests.sim.env.dfs import Bucket

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker


@dataclass(frozen=True)
class _Recorded:
    """A file that an index has."""

    worker: str
    uid: bytes
    key: DataKey
    data: bytes
    epochs: tuple[tuple[EpochKey, SealedEpoch], ...]


class _Bytes:
    """A file of the store, read past all faults."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class DfsBooks:
    """The books of one world."""

    def __init__(self, bucket: Bucket, fail: Callable[[str], None], is_known: Callable[[ShuffleKey], bool]) -> None:
        """`is_known`: whether the masters have a shuffle."""
        self.bucket = bucket
        self._base = parse_url(bucket.url).base
        self._fail = fail
        self._is_known = is_known
        self._recorded: dict[str, _Recorded] = {}
        #: files that were recorded, and those of them that had lost their local index and were found again
        self.moved = 0

    def file(self, name: str) -> bytes | None:
        """What the store has under a name; None if nothing."""
        return self.bucket.real_files.get(f"{self._base}/{name}")

    def contains(self, data: bytes) -> bool:
        """Whether these bytes are in some file."""
        return any(data in file for file in self.bucket.real_files.values())

    def look(self, worker: SimWorker) -> None:
        """Take in what a worker has recorded, and look at what it had."""
        away: Any = worker.store.away
        for directory in worker.store._directories:
            for files in directory.away.values():
                for key, token in files.items():
                    self._take_in(worker, key, away.name_of(key, token))
        for name, one in self._recorded.items():
            if one.worker == worker.name and self._is_known(one.key.shuffle) and self.file(name) != one.data:
                self._fail(f"{worker.name} had {one.key} on the DFS, where it is not, or changed: {name}")

    def _take_in(self, worker: SimWorker, key: DataKey, name: str) -> None:
        before = self._recorded.get(name)
        if before is not None and before.worker != worker.name:  # each removes its own when it lets go of a shuffle
            self._fail(f"{worker.name} has {key} recorded on the DFS, in a file of {before.worker}: {name}")
        if before is not None or not self._is_known(key.shuffle):
            return
        data = self.file(name)
        if data is None:
            self._fail(f"{worker.name} has {key} recorded on the DFS; it is not there: {name}")
            return
        try:
            record: Any = read_stored_footer(_Bytes(data), name, key, len(data))  # type: ignore[arg-type]
        except HoldfastError as error:
            self._fail(f"{worker.name} has {key} recorded on the DFS; it is not whole: {error}")
            return
        epochs = tuple((each, epoch.answer(each)) for each, epoch in record.epochs)
        self._recorded[name] = _Recorded(worker.name, worker.store.worker_uid, key, data, epochs)
        self.moved += 1

    def kept(self, worker: SimWorker) -> list[tuple[EpochKey, SealedEpoch]]:
        """Every epoch that this worker must have because its file is on the DFS: not if its identity is another one."""
        return [epoch for one in self._mine(worker) for epoch in one.epochs]

    def excuse(self, worker: SimWorker) -> None:
        """A worker need not know any more what it had there."""
        mine = {name: one for name, one in self._recorded.items() if one.worker == worker.name}
        self._recorded.update({name: replace(one, uid=b"") for name, one in mine.items()})

    def has(self, worker: SimWorker, key: EpochKey) -> bool:
        """Whether an epoch is in a file that this worker must have."""
        return any(key == each for one in self._mine(worker) for each, _ in one.epochs)

    def _mine(self, worker: SimWorker) -> list[_Recorded]:
        mine = [
            one for one in self._recorded.values() if (one.worker, one.uid) == (worker.name, worker.store.worker_uid)
        ]
        return [one for one in mine if self._is_known(one.key.shuffle)]

    def left_by(self, worker: SimWorker, told: set[tuple[Life, ShuffleKey]]) -> str:
        """What a worker recorded there and should have removed, since it was told to and still lives; "" if nothing.
        One that has no shuffle at all is not asked to try again."""
        if not worker.life.alive or not worker.store.shuffles():
            return ""
        for name, one in self._recorded.items():
            if one.uid == worker.store.worker_uid and (worker.life, one.key.shuffle) in told and self.file(name):
                return f"{worker.name} was told to delete {one.key.shuffle}, and has left {name} on the DFS"
        return ""

    def left(self) -> str:
        """What of a dropped shuffle is there; "" if nothing is."""
        for path in self.bucket.real_files:
            parts = path.removeprefix(f"{self._base}/").split("/")
            instance = names.parse_instance(parts[1])
            key = names.parse_shuffle(instance, parts[2]) if instance is not None else None
            if key is not None and not self._is_known(key):
                return f"{path} is on the DFS; its shuffle was dropped"
        return ""
