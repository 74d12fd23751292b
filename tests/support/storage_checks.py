"""What has to be true of a worker's storage after every step of a story: no directory over its capacity, books that are
right, every file in one place, nothing left of what was deleted."""

from __future__ import annotations

import threading
from collections import Counter

from holdfast.common.formats.messages import Ack
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import KIB
from holdfast.worker.storage import layout
from holdfast.worker.storage.layout import DataKey, sealed_path
from holdfast.worker.storage.tiers.moving import FileMove
from tests.support.storage_faults import PAGE_BYTES
from tests.support.storage_model import ModelShuffle
from tests.support.storage_world import TIERS, StoryWorld

#: Footers of files whose seal met a full disk are in no sum until it is done.
FOOTERS_BYTES = 2 * KIB


class StoryChecks:
    """The part of a story that looks at the store."""

    world: StoryWorld
    shuffles: list[ModelShuffle]
    forgotten: list[ShuffleKey]
    #: directories of which something went wrong in this start: their books need not fit until the next one
    hurt: set[int]
    #: a deletion that waits for a move, in a thread of its own
    beside: tuple[FileMove, threading.Thread, list[BaseException]] | None = None
    at = "the start"

    def delete(self, key: ShuffleKey) -> None:
        """The masters say that a shuffle is to be deleted."""
        raise NotImplementedError

    def join(self) -> list[BaseException]:
        """Wait for the deletion that waits for a move."""
        if self.beside is None:
            return []
        _, thread, errors = self.beside
        thread.join(30)
        assert not thread.is_alive(), f"{self.at}: it waits for ever"
        self.beside = None
        return errors

    def check(self) -> None:
        """Nothing is on its way; look at all books."""
        for error in self.join():
            assert self.world.disk.broken or self.world.disk.full, f"{self.at}: not deleted: {error!r}"
        store = self.world.store
        assert not store.mover.busy, self.at
        self.world.core.check()
        found: dict[DataKey, list[int]] = {}
        for number, directory in enumerate(store._directories):
            held, used = self.world.held(number), directory.used_bytes
            assert held <= self.world.capacities[number], f"{self.at}: directory {number} is over its capacity: {held}"
            assert directory.coming_bytes == 0, self.at
            self._check_sums(number, held, used)
            for key in self.world.files(number):
                found.setdefault(key, []).append(number)
        for key, numbers in found.items():
            assert len(numbers) == 1 or self.hurt, f"{self.at}: {key} is in {numbers}"
        self._check_forgotten()
        self._check_books({key: numbers for key, numbers in found.items() if key.shuffle not in self.forgotten})

    def _check_sums(self, number: int, held: int, used: int) -> None:
        """The sums of a directory are right, to the last pages of its files."""
        if number in self.hurt:
            return
        root = self.world.roots[number]
        reported = f"{self.at}: directory {number} holds {held}, its books say {used}"
        segments = len(list((root / "log").iterdir()))
        assert held - used <= FOOTERS_BYTES + segments * PAGE_BYTES, reported
        known = self.world.store._directories[number].shuffles()
        if not known & set(self.forgotten):  # else the files may be gone, and their records not
            files = sum(path.is_file() for path in root.rglob("*"))
            assert used - held <= files * PAGE_BYTES, reported

    def _check_books(self, found: dict[DataKey, list[int]]) -> None:
        """What the tiers plan with is what the indexes have, and those have what is there."""
        if self.hurt:
            return
        books = {key: one for files in self.world.store.tiering._files.values() for key, one in files.items()}
        where = {key: [one.directory] for key, one in books.items()}
        assert where == found, f"{self.at}: books and indexes differ in {set(where) ^ set(found)}"
        on_disk: Counter[str] = Counter()
        synced = {shuffle.key for shuffle in self.shuffles if shuffle.ack is Ack.SYNCED}
        for number in range(len(TIERS)):
            root = self.world.roots[number]
            here = {key.shuffle for key in self.world.files(number)}
            assert TIERS[number] != "MEMORY" or not here & synced, f"{self.at}: what must be on a disk is in memory"
            files = {key: size for key, size in self.world.files(number).items() if key in books}
            for key, size in files.items():
                assert (root / sealed_path(key)).stat().st_size == size == books[key].size_bytes, f"{self.at}: {key}"
            unfinished = {sealed_path(one) for one in self.world.store._directories[number].unsealed._finished}
            there = {str(path.relative_to(root)) for path in (root / "data").rglob("*.pa[rc][tk]")}
            known = {*self.world.files(number), *self.world.remains(number)}
            more = there - {sealed_path(key) for key in known} - unfinished
            more = {one for one in more if not self._is_forgotten(one)}
            assert not more, f"{self.at}: not in the index of {number}: {more}"
            assert not list(root.rglob("*.moving")), self.at
            on_disk.update(there - unfinished - {sealed_path(key) for key in self.world.remains(number)})
        assert not on_disk or max(on_disk.values()) == 1, f"{self.at}: {on_disk.most_common(1)} is in two places"

    def _is_forgotten(self, below: str) -> bool:
        return any(below.startswith(f"{layout.shuffle_folder(key)}/") for key in self.forgotten)

    def _check_forgotten(self) -> None:
        if self.hurt or self.world.disk.full:
            return
        for key in set(self.forgotten) & set(self.world.store.shuffles()):
            self.delete(key)  # what could not be deleted before; the masters say it again
        here = set(self.world.store.shuffles())
        for key in self.forgotten:
            assert key not in here, f"{self.at}: {key} was forgotten"
            folder = layout.shuffle_folder(key)
            left = [root for root in self.world.roots if (root / folder).exists()]
            assert not left, f"{self.at}: of {key}, which was forgotten, something is in {left}"
            assert key not in self.world.store.tiering._files, self.at
