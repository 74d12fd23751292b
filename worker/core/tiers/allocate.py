"""Decides where a file goes: the order in which a request is tried, and what has to move first if it does not fit.

Soft requests (a new file with a wish): the wished location, reviewed; any tier, reviewed; then what would make room is
planned, and any tier is taken unreviewed. Forced ones (growth, or a move to a named place): the location, unreviewed;
a plan for it; the location again. A fallback leaves the tier and the directory that were wished for, never the media
that are allowed (ADR 0017, A6). Source: allocateSpace of Alluxio.

Pure but for the allocator's cursor. Called by the edges of the worker's storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic

from holdfast.worker.core.tiers.allocators import Allocator
from holdfast.worker.core.tiers.space import MovePlan, plan_space
from holdfast.worker.core.tiers.view import (
    ANYWHERE,
    DirectorySet,
    DirectoryView,
    FileId,
    Order,
    StoreView,
    TierMove,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomRequest:
    """Room for one file; made by `create`, `grow`, `move` and `task_move`."""

    size_bytes: int
    location: DirectorySet = ANYWHERE
    #: nothing but the location will do
    forced: bool = False
    #: others may be moved away for it
    may_free: bool = False
    with_reserve: bool = False
    #: where the file lies already, if it does
    origin: int | None = None

    @classmethod
    def create(cls, size_bytes: int, wish: DirectorySet = ANYWHERE, *, may_free: bool = True) -> RoomRequest:
        """A new file that would like to be somewhere."""
        return cls(size_bytes=size_bytes, location=wish, may_free=may_free)

    @classmethod
    def grow(cls, more_bytes: int, directory: DirectoryView, *, may_free: bool = False) -> RoomRequest:
        """More room for a file where it is. By default nothing moves for it: a partition that is full splits."""
        return cls(size_bytes=more_bytes, location=DirectorySet.of(directory), forced=True, may_free=may_free)

    @classmethod
    def move(cls, size_bytes: int, origin: int, target: DirectorySet) -> RoomRequest:
        """A move that somebody asked for."""
        return cls(size_bytes=size_bytes, location=target, forced=True, may_free=True, origin=origin)

    @classmethod
    def task_move(cls, size_bytes: int, origin: int, target: DirectorySet, *, swap: bool = False) -> RoomRequest:
        """A move by upkeep: nothing else moves for it; half a swap may use the reserve."""
        return cls(size_bytes=size_bytes, location=target, forced=True, with_reserve=swap, origin=origin)


class Limit(Enum):
    """Which limit a request met."""

    #: nothing is where it wants to be: no such directory, or none on the media that are allowed
    NO_DIRECTORY = "no directory"
    #: even empty directories would be too small
    CAPACITY = "capacity"
    #: it would fit if files could be moved away, but they cannot: in use, or there is no room below
    ROOM = "room"


@dataclass(frozen=True, slots=True)
class Chosen(Generic[FileId]):
    """The directory. `moves` come first, in their order; then ask again, since others may have been faster."""

    directory: DirectoryView
    moves: tuple[TierMove[FileId], ...] = ()


@dataclass(frozen=True, slots=True)
class NoRoom:
    """It fits nowhere; `why` is a sentence with the figures."""

    limit: Limit
    why: str


def decide(
    request: RoomRequest, view: StoreView, allocator: Allocator, coldest: Order[FileId], free_ahead_bytes: int = 0
) -> Chosen[FileId] | NoRoom:
    """Decide one request. A soft one that has to free something frees `free_ahead_bytes` more, if that can be done."""
    there = view.by_number.get(request.origin) if request.origin is not None else None
    if there is not None and request.location.holds(there):
        return Chosen(there)
    size, fallback = request.size_bytes, request.location if request.forced else request.location.anywhere
    attempts = [(fallback, False)] if request.forced else [(request.location, True), (fallback, True)]
    for location, reviewed in attempts:
        found = allocator.allocate(view, size, location, reviewed=reviewed, with_reserve=request.with_reserve)
        if found is not None:
            return Chosen(found)
    plan: MovePlan[FileId] | None = MovePlan((), view)
    if request.may_free:
        plan = None
        if free_ahead_bytes and not request.forced:
            plan = plan_space(view, fallback, size, size + free_ahead_bytes, coldest)
        # What cannot be freed ahead is no reason to refuse what fits without it (A5).
        plan = plan or plan_space(view, fallback, size, size, coldest)
    found = None
    if plan is not None:
        found = allocator.allocate(plan.after, size, fallback, reviewed=False, with_reserve=request.with_reserve)
    if plan is None or found is None:
        return _no_room(request, view, fallback)
    return Chosen(view.by_number[found.number], plan.moves)


def _no_room(request: RoomRequest, view: StoreView, location: DirectorySet) -> NoRoom:
    """Say which limit was met, with the figures of the directory that came nearest."""
    wanted = f"{request.size_bytes} bytes in {location}"
    candidates = list(view.within(location))
    if not candidates:
        return NoRoom(Limit.NO_DIRECTORY, f"{wanted}: there is no such directory in use")
    largest = max(candidates, key=_possible_bytes)
    if _possible_bytes(largest) < request.size_bytes:
        why = f"{wanted}: the largest, {largest.number}, holds {_possible_bytes(largest)} bytes when it is empty"
        return NoRoom(Limit.CAPACITY, why)
    best = max(candidates, key=lambda one: one.room_bytes(request.with_reserve))
    room = best.room_bytes(request.with_reserve)
    kept = "" if request.with_reserve or not best.reserved_bytes else f", {best.reserved_bytes} of them kept in reserve"
    end = "and not enough could be moved away" if request.may_free else "and nothing is moved away for it"
    unused = f"({best.unused_bytes} of {best.capacity_bytes} unused{kept})"
    return NoRoom(Limit.ROOM, f"{wanted}: the emptiest, {best.number}, has room for {room} {unused}, {end}")


def _possible_bytes(directory: DirectoryView) -> int:
    return directory.capacity_bytes - directory.reserved_bytes
