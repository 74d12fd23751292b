"""The room in the directories of a worker, and their state as masters and people see it.

Rules: directories on one file system have one room between them: its reserve is taken once, and what is left is divided
among those that are well, so that nothing is promised twice. No disk is asked where a thread of the monitor looks: what
it saw last stands, less what was written here since. Without one, in tools and tests, a statvfs and a stat for each.
Loop thread only. Called by store.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.worker.core.health import DirectoryHealth
from holdfast.worker.core.write.space import Space, divide
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.env.interfaces import Env

#: What stays free of a file system is at most this part of it, so that small ones are of use.
TENTH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStatus:
    """A directory as the masters and people see it."""

    id: bytes
    path: str
    tier: str
    capacity_bytes: int
    used_bytes: int
    free_bytes: int = 0
    healthy: bool
    problem: str
    #: st_dev: directories with the same one share their room
    device: int = 0
    state: str = DirectoryHealth.WELL.value
    #: in the window that is looked at
    errors: int = 0
    #: mean time of a write and of a frame read in the last window; 0: there was none
    flush_us: int = 0
    fetch_us: int = 0


class DirectoryStates:
    """The directories of a worker by what they lie on."""

    def __init__(self, directories: Sequence[StorageDirectory], env: Env, reserve_bytes: int) -> None:
        self._directories = directories
        self._clock = env.clock
        #: kept free in each file system, so that seals and the index never lack it
        self._reserve_bytes = reserve_bytes

    def _groups(self) -> list[list[StorageDirectory]]:
        groups: dict[int, list[StorageDirectory]] = {}
        for directory in self._directories:
            groups.setdefault(directory.condition.device, []).append(directory)
        return list(groups.values())

    def _ask(self, group: Sequence[StorageDirectory]) -> list[tuple[int, int]]:
        """Size and free bytes of the file system as each tells them; (0, 0) if one cannot, which isolates it."""
        grown = 0
        for directory in group:
            condition = directory.condition
            condition.used_bytes = directory.used_bytes
            if not (condition.watched or condition.silent):
                condition.measure()
            grown += max(0, condition.used_bytes - condition.measured.used)
        seen = [directory.condition.measured for directory in group]
        return [(one.size, max(0, one.free - grown)) for one in seen]

    # for MAP files, and for people

    def free_bytes(self, directory: StorageDirectory) -> int:
        """What may be written into one directory beyond the reserve."""
        (group,) = [group for group in self._groups() if directory in group]
        return next(status.free_bytes for one, status in self._statuses(group) if one is directory)

    def statuses(self) -> list[DirectoryStatus]:
        """The state of every directory, in their order."""
        found = {id(one): status for group in self._groups() for one, status in self._statuses(group)}
        return [found[id(directory)] for directory in self._directories]

    def _statuses(self, group: list[StorageDirectory]) -> list[tuple[StorageDirectory, DirectoryStatus]]:
        spaces = self._ask(group)
        found = [self._status(one, size) for one, (size, _) in zip(group, spaces, strict=True)]
        reserve = min(self._reserve_bytes, max(size for size, _ in spaces) // TENTH)
        limits = [one.capacity_bytes - one.used_bytes if one.healthy else 0 for one in found]
        shares = divide(_free(group, spaces) - reserve, limits)
        return [(one, replace(had, free_bytes=free)) for one, had, free in zip(group, found, shares, strict=True)]

    def _status(self, directory: StorageDirectory, size: int) -> DirectoryStatus:
        """All but what is free, in a file system of that size."""
        condition, now_ns = directory.condition, self._clock.now_ns()
        problem = condition.look()
        return DirectoryStatus(
            id=directory.identity.directory_id,
            path=str(directory.root),
            tier=directory.tier,
            capacity_bytes=min(directory.capacity_bytes or size, size),
            used_bytes=directory.used_bytes,
            healthy=not problem,
            problem=problem,
            device=condition.device,
            state=condition.state.value,
            errors=condition.health.errors(now_ns),
            flush_us=directory.flushes.mean_ns(now_ns) // 1_000,
            fetch_us=directory.fetches.mean_ns(now_ns) // 1_000,
        )

    # for REDUCE partitions

    def spaces(self, share: float, reserve_bytes: int) -> list[Space | None]:
        """What there is of each directory for REDUCE partitions; None for one that is not well. Beyond what the log has
        yet to write elsewhere the smaller of `reserve_bytes` and that share of its capacity stays free."""
        found: dict[int, Space | None] = {}
        for group in self._groups():
            spaces = zip(group, self._ask(group), strict=True)
            asked = [self._space(directory, *space, share, reserve_bytes) for directory, space in spaces]
            well = [space for space in asked if space is not None]
            shared = iter(_shared(well) if len(well) > 1 else well)
            found |= {id(one): None if space is None else next(shared) for one, space in zip(group, asked, strict=True)}
        return [found[id(directory)] for directory in self._directories]

    @staticmethod
    def _space(directory: StorageDirectory, size: int, free: int, share: float, reserve: int) -> Space | None:
        directory.condition.look()
        limit, used, pending = directory.capacity_bytes, directory.used_bytes, directory.unsealed.pending_bytes
        space = Space(limit, size, free, used, pending, reserve, share)
        # Not to the last byte: heads and footers of files are not taken from it.
        left = max(0, limit - used - pending - space.kept_free) if limit else None
        directory.room.kept_bytes = space.kept_free
        directory.room.look(left, max(0, space.capacity - space.kept_free) * 3 // 4)
        return None if directory.problem else space


def _shared(spaces: Sequence[Space]) -> list[Space]:
    """The same directories with what is free on their file system divided, the reserve taken from it once."""
    size, free = max(space.size for space in spaces), min(space.free for space in spaces)
    kept = min(spaces[0].reserve, int(spaces[0].share * min(sum(space.capacity for space in spaces), size)))
    limits = [space.capacity - space.used - space.pending - space.kept_free for space in spaces]
    rooms = divide(free - sum(space.pending for space in spaces) - kept, limits)
    return [
        space._replace(free=min(free, room + space.pending + space.kept_free))
        for space, room in zip(spaces, rooms, strict=True)
    ]


def _free(group: Sequence[StorageDirectory], spaces: Sequence[tuple[int, int]]) -> int:
    """Free bytes of their file system, as those tell that are well: where one was unmounted there is another one."""
    return min([free for one, (_, free) in zip(group, spaces, strict=True) if not one.problem], default=0)
