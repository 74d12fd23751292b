"""The two orders of a worker's sealed files: one for leaving memory, one for leaving disks.

Rules: both hear of every file, so that a move between tiers changes nobody's score, and upkeep can compare tiers by the
order of disks. Pure. Called by the edges of the worker's storage; plans read `coldest` and `heat`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic

from holdfast.worker.core.tiers.annotators import Annotator
from holdfast.worker.core.tiers.view import FileId, FileView, Heat


class Orders(Generic[FileId]):
    """Passes events on to both annotators, and joins their orders with the facts of the moment.

    `facts` gives what is true of a file now, or None if it is not to be planned with (it is being removed).
    """

    def __init__(
        self,
        memory: Annotator[FileId],
        disk: Annotator[FileId],
        memory_directories: Collection[int],
        facts: Callable[[FileId], FileView[FileId] | None],
    ) -> None:
        self.memory = memory
        self.disk = disk
        self._both = (memory, disk)
        self._memory_directories = frozenset(memory_directories)
        self._facts = facts

    def committed(self, file: FileId, directory: int, size_bytes: int) -> None:
        """See Annotator.committed."""
        for annotator in self._both:
            annotator.committed(file, directory, size_bytes)

    def accessed(self, file: FileId) -> None:
        """See Annotator.accessed."""
        for annotator in self._both:
            annotator.accessed(file)

    def cooled(self, file: FileId) -> None:
        """See Annotator.cooled."""
        for annotator in self._both:
            annotator.cooled(file)

    def moved(self, file: FileId, directory: int) -> None:
        """See Annotator.moved."""
        for annotator in self._both:
            annotator.moved(file, directory)

    def removed(self, file: FileId) -> None:
        """See Annotator.removed."""
        for annotator in self._both:
            annotator.removed(file)

    def lost(self, directory: int) -> None:
        """See Annotator.lost."""
        for annotator in self._both:
            annotator.lost(directory)

    def coldest(self, directories: Collection[int]) -> Iterator[FileView[FileId]]:
        """Files in the order in which they should leave; memory has its own order where it is asked for alone."""
        in_memory = self._memory_directories.issuperset(directories)
        return self._views((self.memory if in_memory else self.disk).coldest(directories))

    @property
    def heat(self) -> Heat[FileId]:
        """The order of disks for files of all tiers: what upkeep compares tiers by."""
        return Heat(
            lambda directories: self._views(self.disk.coldest(directories)),
            lambda directories: self._views(self.disk.hottest(directories)),
            self.disk.score,
        )

    def _views(self, files: Iterator[FileId]) -> Iterator[FileView[FileId]]:
        return (view for view in map(self._facts, files) if view is not None)
