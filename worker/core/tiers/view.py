"""What the policies of tiers may know: directories, files that lie in them, places, and moves between them.

Rules: everything is a value made for one decision; nothing here changes. Tiers are numbered from the fastest, in the
configured order; a number without a directory is no tier. Directories are numbered once for the whole worker. The
distributed file system is one directory whose capacity is UNLIMITED. A directory that must not be used is left out.

Called by everything in this package, and by whoever asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

#: Bytes that nothing fills: the capacity, and what is unused, of a directory without a bound.
UNLIMITED = 1 << 62

FileId = TypeVar("FileId", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryView:
    """One directory at one moment."""

    number: int
    #: 0 is the fastest
    tier: int
    #: MEMORY, SSD, HDD or DFS
    medium: str
    capacity_bytes: int
    #: the capacity without all that is taken: sealed, growing, promised or being moved here
    unused_bytes: int
    #: the last bytes of the capacity, which only swaps between tiers may use
    reserved_bytes: int = 0

    @property
    def free_bytes(self) -> int:
        """What an ordinary request may take. A reserve that is partly used is not counted again (ADR 0017, A4)."""
        return max(0, self.unused_bytes - self.reserved_bytes)

    @property
    def used_bytes(self) -> int:
        return self.capacity_bytes - self.unused_bytes

    @property
    def is_bounded(self) -> bool:
        return self.capacity_bytes < UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySet:
    """A set of directories; a part that is None stands for any."""

    directory: int | None = None
    #: kinds of storage
    media: frozenset[str] | None = None

    def holds(self, directory: DirectoryView) -> bool:
        named = self.directory in (None, directory.number)
        return named and (self.media is None or directory.medium in self.media)


#: Directories of one tier.
Tier = tuple[DirectoryView, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two adjacent tiers."""

    above: Tier
    below: Tier


@dataclass(frozen=True)
class StoreView:
    """All directories that may be used, in any order."""

    directories: tuple[DirectoryView, ...]

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """Directories by number within tiers, the fastest tier first."""
        tiers: dict[int, list[DirectoryView]] = {}
        for directory in sorted(self.directories, key=lambda one: (one.tier, one.number)):
            tiers.setdefault(directory.tier, []).append(directory)
        return tuple(map(tuple, tiers.values()))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(map(Pair, self.tiers, self.tiers[1:]))

    @cached_property
    def by_number(self) -> dict[int, DirectoryView]:
        return {directory.number: directory for directory in self.directories}

    def within(self, location: DirectorySet) -> Iterator[DirectoryView]:
        return (directory for tier in self.tiers for directory in tier if location.holds(directory))

    def below(self, tier: int) -> Iterator[Tier]:
        return (directories for directories in self.tiers if directories[0].tier > tier)

    def with_taken(self, number: int, size_bytes: int) -> StoreView:
        """The same, with so much more taken of one directory."""
        directories = [
            replace(one, unused_bytes=one.unused_bytes - size_bytes) if one.number == number else one
            for one in self.directories
        ]
        return StoreView(tuple(directories))

    def check(self) -> None:
        assert len(self.by_number) == len(self.directories), self
        for one in self.directories:
            assert one.unused_bytes <= one.capacity_bytes, one
            assert one.reserved_bytes >= 0, one


@dataclass(frozen=True, slots=True, kw_only=True)
class FileView(Generic[FileId]):
    """One sealed file at one moment."""

    file: FileId
    directory: int
    size_bytes: int
    #: somebody has it open and would notice
    locked: bool = False
    #: already on its way
    marked: bool = False
    #: where it may lie; None: anywhere
    media: frozenset[str] | None = None

    @property
    def is_evictable(self) -> bool:
        return not (self.locked or self.marked)

    def may_lie_in(self, directory: DirectoryView) -> bool:
        """Whether the directory is of a kind that it may be on."""
        return self.media is None or directory.medium in self.media


#: Files that lie in these directories, coldest first (or hottest first); may be lazy, is asked anew for each look.
Order = Callable[[Collection[int]], Iterable[FileView[FileId]]]


@dataclass(frozen=True, slots=True)
class Heat(Generic[FileId]):
    """One annotator's order of the files of all tiers, both ways round."""

    coldest: Order[FileId]
    hottest: Order[FileId]
    #: larger is hotter
    score: Callable[[FileId], float]


@dataclass(frozen=True, slots=True)
class TierMove(Generic[FileId]):
    """Copy a file from directory `source` to directory `target`, then remove it from `source`."""

    file: FileId
    size_bytes: int
    source: int
    target: int
