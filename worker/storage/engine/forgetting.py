"""Deletes shuffles: each directory in a lane of its own, so that one that hangs holds up itself and nobody else.

The order, for one shuffle in one directory: on the loop nothing of it is written any more; seals and moves of it that
run are left to end; in the lane index and files go; on the loop it is taken off the books. Whoever still waits for a
sync of it hears that it is gone. What fails is still among the shuffles that are here, and is asked about again.
Loop thread only, but for what runs in the lanes. Called by store.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.common.ids import ShuffleKey
from holdfast.worker.storage import layout
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.owner import Owner
from holdfast.worker.storage.env.futures import Future


@dataclass(slots=True)
class _Call:
    """What one call asked for, and what came of it."""

    left: int
    answer: Future[int] = field(default_factory=Future)
    count: int = 0
    error: BaseException | None = None

    def one_less(self, count: int = 0, error: BaseException | None = None) -> None:
        self.left -= 1
        self.count += count
        self.error = self.error or error
        if self.left:
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.count)


class Forgetting:
    """What is being deleted in the directories of one worker."""

    def __init__(
        self,
        directories: Sequence[StorageDirectory],
        owner: Owner,
        removed: Callable[[ShuffleKey, str], object],
        over: Callable[[ShuffleKey, bool], object],
    ) -> None:
        """`removed` hears of each folder that is gone, `over` of each shuffle
        that has been tried everywhere, and whether nothing of it is left."""
        self._directories = directories
        self._owner = owner
        self._removed = removed
        self._over = over
        #: what is under way, and where: a second ask for it does nothing
        self._running: defaultdict[ShuffleKey, set[Path]] = defaultdict(set)

    def forget(self, keys: Iterable[ShuffleKey], moves: Callable[[ShuffleKey], list[Future[None]]]) -> Future[int]:
        """Delete shuffles; the future tells how many were here, or fails with the first error when all was tried.
        `moves` lets go of a shuffle that is on its way elsewhere, and gives what is to be waited for."""
        wanted = dict.fromkeys(keys)
        call = _Call(len(wanted) + 1)
        for key in wanted:
            # One that hangs is asked about again.
            usable = [directory for directory in self._directories if not directory.condition.hanging]
            mine = [one for one in usable if one.root not in self._running[key]]
            self._running[key].update(one.root for one in mine)
            known = [one for one in mine if one.holds(key)]
            for directory in known:
                directory.unsealed.drop(key)
            self._owner.after(moves(key), partial(self._forget, key, mine, known, call))
        call.one_less()
        return call.answer

    def _forget(
        self, key: ShuffleKey, mine: list[StorageDirectory], known: list[StorageDirectory], call: _Call
    ) -> None:
        """No move brings anything of it any more: remove it where it was, and where one brought it."""
        here = [one for one in mine if one in known or one.has(key)]
        errors: list[BaseException] = []
        done: list[Future[None]] = []
        for directory in here:
            removed: Future[None] = Future()
            done.append(removed)
            waits = directory.seals_of(key)
            more = directory in known or directory.holds(key)
            remove = directory.remove if more else directory.remove_folder
            self._owner.after(waits, partial(self._remove, directory, key, remove, removed, errors))

        def over() -> None:
            self._running[key].difference_update(one.root for one in mine)
            if not self._running[key]:
                del self._running[key]
                self._over(key, not errors)
            call.one_less(bool(here), errors[0] if errors else None)

        self._owner.after(done, over)

    def _remove(
        self,
        directory: StorageDirectory,
        key: ShuffleKey,
        remove: Callable[[ShuffleKey], list[Path]],
        removed: Future[None],
        errors: list[BaseException],
    ) -> None:
        directory.unsealed.drop(key)  # of what a move brought meanwhile, too
        directory.folders.leave(layout.folder_in(directory.root, key))
        work = directory.lane.submit(remove, key)
        work.add_done_callback(lambda done: self._owner(partial(self._after, directory, key, done, removed, errors)))

    def _after(
        self,
        directory: StorageDirectory,
        key: ShuffleKey,
        done: Future[list[Path]],
        removed: Future[None],
        errors: list[BaseException],
    ) -> None:
        error = None if done.cancelled() else done.exception()
        try:
            if error is not None:
                errors.append(error)
                if isinstance(error, Exception):
                    directory.condition.unremoved(error)
                directory.folders.came_back(layout.folder_in(directory.root, key))
            else:
                for folder in () if done.cancelled() else done.result():
                    directory.folders.removed(folder)
                directory.removed(key)
            self._removed(key, f"{directory.root}/{layout.shuffle_folder(key)}")
        finally:
            removed.set_result(None)

    def remove_leftovers(self, keys: Iterable[ShuffleKey]) -> Future[int]:
        """Delete unsealed files of earlier starts, of these shuffles; the future tells how many."""
        wanted = set(keys)
        usable = [directory for directory in self._directories if not directory.condition.hanging]
        call = _Call(len(usable) + 1)
        for directory in usable:
            taken = directory.unsealed.take_leftovers(wanted)
            if not taken:
                call.one_less()
                continue
            work: Future[Any] = directory.lane.submit(directory.remove_files, [one.path for one in taken.values()])

            def after(done: Future[Any], directory: Any = directory, taken: Any = taken) -> None:
                error = None if done.cancelled() else done.exception()
                if error is not None:
                    directory.unsealed.leftovers.update(taken)
                call.one_less(0 if error is not None else len(taken), error)

            work.add_done_callback(lambda done, after=after: self._owner(partial(after, done)))  # type: ignore[misc]
        call.one_less()
        return call.answer
