"""The order in which a request is tried (reference/placement.md, 1.4 and 1.8), and what a refusal says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.worker.core.tiers.allocate import Chosen, Limit, NoRoom, RoomRequest, decide
from holdfast.worker.core.tiers.allocators import Allocator, MaxFree, make_allocator
from holdfast.worker.core.tiers.reviewers import ProbabilisticBuffer
from holdfast.worker.core.tiers.view import DirectorySet, DirectoryView, FileView, StoreView, TierMove
from tests.unit.worker.core.tiers.build import dfs, directory, file, filled_stores, in_order, replay, steps, store
from tests.unit.worker.core.tiers.test_allocators import Refusing

LOCAL = frozenset(("MEMORY", "SSD", "HDD"))


def decided(
    request: RoomRequest, view: StoreView, *files: FileView[str], allocator: Allocator | None = None, ahead: int = 0
) -> tuple[int, list[tuple[str, int, int]]] | Limit:
    """The number chosen and the moves before it, or the limit that was met."""
    answer: Chosen[str] | NoRoom = decide(request, view, allocator or MaxFree(), in_order(files), ahead)
    if isinstance(answer, NoRoom):
        assert str(request.size_bytes) in answer.why
        return answer.limit
    replay(view, files, answer.moves)
    return answer.directory.number, steps(answer.moves)


def test_kinds_of_requests() -> None:
    """The table of the reference: forced, may free, may use the reserve; growth frees only if it is told to."""
    here = directory(3, 1, 10)
    kinds = {
        "create": RoomRequest.create(1),
        "grow": RoomRequest.grow(1, here, may_free=True),
        "move": RoomRequest.move(1, 0, DirectorySet(tier=1)),
        "task": RoomRequest.task_move(1, 0, DirectorySet(tier=1)),
        "swap": RoomRequest.task_move(1, 0, DirectorySet(tier=1), swap=True),
    }
    assert {name: (one.forced, one.may_free, one.with_reserve) for name, one in kinds.items()} == {
        "create": (False, True, False),
        "grow": (True, True, False),
        "move": (True, True, False),
        "task": (True, False, False),
        "swap": (True, False, True),
    }
    assert not RoomRequest.grow(1, here).may_free


def test_soft_1_the_wished_location_is_tried_first() -> None:
    """Though a faster tier has room."""
    view = store(directory(0, 0, 100), directory(1, 1, 100))
    assert decided(RoomRequest.create(10, DirectorySet(tier=1)), view) == (1, [])
    assert decided(RoomRequest.create(10, DirectorySet(directory=1)), view) == (1, [])


def test_soft_2_any_tier_before_anything_moves() -> None:
    """A wish is given up before room is made for it: it is full, or it is refused by the reviewer."""
    view = store(directory(0, 0, 100, 0), directory(1, 1, 100, 50), directory(2, 2, 100))
    cold = file("a", 0, 100)
    assert decided(RoomRequest.create(10, DirectorySet(tier=0)), view, cold) == (1, [])
    refusing = MaxFree(Refusing(1))
    assert decided(RoomRequest.create(10, DirectorySet(tier=1)), view, cold, allocator=refusing) == (2, [])


def test_soft_3_room_is_made_anywhere_whatever_the_wish() -> None:
    """All full: fewest bytes move, in another tier than the one wished for."""
    view = store(directory(0, 0, 100, 0), directory(1, 1, 100, 0), dfs(2))
    files = (file("a", 0, 50), file("b", 1, 20))
    assert decided(RoomRequest.create(20, DirectorySet(tier=0, media=LOCAL)), view, *files) == (1, [("b", 1, 2)])


def test_soft_4_the_last_pass_is_not_reviewed() -> None:
    """Who was refused everywhere is taken where it fits, without any move, also if nothing may move."""
    refusing = MaxFree(Refusing(0, 1))
    view = store(directory(0, 0, 100), directory(1, 1, 100))
    assert decided(RoomRequest.create(10), view, allocator=refusing) == (0, [])
    assert decided(RoomRequest.create(10, may_free=False), view, allocator=refusing) == (0, [])


def test_the_reviewers_hard_limit_is_a_floor_where_it_is_reserved() -> None:
    """Unreviewed passes go down to the hard limit: a directory at its reserve is not chosen in any pass."""
    allocator = MaxFree(ProbabilisticBuffer(lambda: 0.999, 100, 400))
    reserved = [directory(0, 1, 1000, 100, reserved=100), directory(1, 1, 1000, 150, reserved=100)]
    assert decided(RoomRequest.create(50), store(*reserved), allocator=allocator) == (1, [])
    assert decided(RoomRequest.create(51), store(*reserved), allocator=allocator) is Limit.ROOM


@pytest.mark.parametrize("name", ["greedy", "maxfree", "roundrobin"])
def test_the_media_survive_every_fallback(name: str) -> None:
    """A6: data that must not lie in memory goes to another tier, makes room there, or is refused."""
    allocator = make_allocator(name)
    disks = frozenset(("SSD", "HDD"))
    request = RoomRequest.create(10, DirectorySet(tier=1, media=disks))
    memory = directory(0, 0, 100)
    assert decided(request, store(memory, directory(1, 1, 9), directory(2, 2, 10)), allocator=allocator) == (2, [])
    full = store(memory, directory(1, 1, 10, 0), dfs(2))
    assert decided(request, full, file("a", 1, 10), allocator=allocator) == (1, [("a", 1, 2)])
    assert decided(request, store(memory, directory(1, 1, 9)), allocator=allocator) is Limit.CAPACITY
    assert decided(request, store(memory), allocator=allocator) is Limit.NO_DIRECTORY


def test_a_request_that_fits_does_not_fail_for_what_is_to_be_freed_ahead() -> None:
    """A5: free ahead where it can be done, else without."""
    view = store(directory(0, 0, 100, 10), dfs(1))
    refusing = MaxFree(Refusing(0))
    request = RoomRequest.create(10, DirectorySet(media=LOCAL))
    files = (file("a", 0, 40), file("b", 0, 50, pinned=True))
    assert decided(request, view, *files, allocator=refusing, ahead=40) == (0, [("a", 0, 1)])
    assert decided(request, view, *files, allocator=refusing, ahead=41) == (0, [])
    assert decided(RoomRequest.create(20, DirectorySet(media=LOCAL)), view, *files, ahead=1000) == (0, [("a", 0, 1)])


def test_forced_is_not_reviewed_and_never_spills() -> None:
    """The named place, then room made in it, else nothing, however empty the rest is."""
    allocator = MaxFree(Refusing(0, 1, 2))
    view = store(directory(0, 0, 100, 50), directory(1, 1, 100, 30), directory(2, 2, 100))
    assert decided(RoomRequest.grow(50, view.by_number[0]), view, allocator=allocator) == (0, [])
    grow = RoomRequest.grow(51, view.by_number[0], may_free=True)
    assert decided(grow, view, file("a", 0, 20), allocator=allocator) == (0, [("a", 0, 1)])
    assert decided(grow, view, file("a", 0, 20, locked=True), allocator=allocator) is Limit.ROOM
    assert decided(RoomRequest.grow(51, view.by_number[0]), view, file("a", 0, 20)) is Limit.ROOM


def test_forced_writes_at_twice_a_directorys_capacity_never_leave_it() -> None:
    """Each finds room where it asked, because older files move down."""
    place, files = directory(0, 0, 100, 0), [file(f"f{number}", 0, 10) for number in range(10)]
    view = store(place, directory(1, 1, 1000))
    for number in range(20):
        answer: Chosen[str] | NoRoom = decide(
            RoomRequest.grow(10, place, may_free=True), view, MaxFree(), in_order(files)
        )
        assert isinstance(answer, Chosen)
        assert answer.directory.number == 0
        view, files = carried_out(view, files, answer, file(f"n{number}", 0, 10))
    assert sum(one.directory == 0 for one in files) == 10


def test_soft_writes_at_many_times_the_local_capacity_never_fail() -> None:
    """Old files go to the store without a bound; none is lost."""
    view, files = store(directory(0, 0, 100), directory(1, 1, 100), dfs(2)), list[FileView[str]]()
    for number in range(60):
        answer = decide(RoomRequest.create(10, DirectorySet(media=LOCAL)), view, MaxFree(), in_order(files))
        assert isinstance(answer, Chosen)
        view, files = carried_out(view, files, answer, file(f"n{number}", answer.directory.number, 10))
    assert sorted(one.file for one in files) == sorted(f"n{number}" for number in range(60))
    assert sum(one.directory == 2 for one in files) == 40


def carried_out(
    view: StoreView, files: list[FileView[str]], answer: Chosen[str], new: FileView[str]
) -> tuple[StoreView, list[FileView[str]]]:
    """The store after the moves and with the new file."""
    places = replay(view, files, answer.moves)
    unused = {one.number: one.unused_bytes for one in view.directories}
    for move in answer.moves:
        unused[move.target] -= move.size_bytes
        unused[move.source] += move.size_bytes
    unused[new.directory] -= new.size_bytes
    moved = [file(one.file, places[one.file], one.size_bytes) for one in files]
    return view.with_unused(unused), [*moved, new]


def test_a_locked_file_sends_a_new_one_elsewhere_and_makes_a_move_wait() -> None:
    """Soft: another directory. Forced: nothing until it is unlocked."""
    view = store(directory(0, 0, 10, 0), directory(1, 1, 20))
    locked, free = file("a", 0, 10, locked=True), file("a", 0, 10)
    assert decided(RoomRequest.create(10, DirectorySet(tier=0)), view, locked) == (1, [])
    assert decided(RoomRequest.move(10, 1, DirectorySet(tier=0)), view, locked) is Limit.ROOM
    assert decided(RoomRequest.move(10, 1, DirectorySet(tier=0)), view, free) == (0, [("a", 0, 1)])


def test_a_move_to_where_a_file_lies_is_done() -> None:
    """Also if its directory is full and nothing may move."""
    view = store(directory(0, 0, 10, 0), directory(1, 1, 20))
    assert decided(RoomRequest.move(10, 0, DirectorySet(tier=0)), view) == (0, [])
    assert decided(RoomRequest.task_move(10, 0, DirectorySet(media=frozenset(("MEMORY",)))), view) == (0, [])


def test_tasks_move_nothing_else_and_only_swaps_use_the_reserve() -> None:
    """Room for a move of upkeep is there or is not."""
    view = store(directory(0, 0, 100, 20, reserved=15), directory(1, 1, 100))
    cold = file("a", 0, 80)
    assert decided(RoomRequest.task_move(5, 1, DirectorySet(tier=0)), view, cold) == (0, [])
    assert decided(RoomRequest.task_move(6, 1, DirectorySet(tier=0)), view, cold) is Limit.ROOM
    assert decided(RoomRequest.task_move(20, 1, DirectorySet(tier=0), swap=True), view, cold) == (0, [])
    assert decided(RoomRequest.task_move(21, 1, DirectorySet(tier=0), swap=True), view, cold) is Limit.ROOM


def test_the_reserve_is_not_counted_twice_by_two_swaps() -> None:
    """A4: after half of the reserve is used, a swap finds the other half and not the whole."""
    view = store(directory(0, 0, 100, 10, reserved=20), directory(1, 1, 100))
    assert decided(RoomRequest.task_move(10, 1, DirectorySet(tier=0), swap=True), view) == (0, [])
    assert decided(RoomRequest.task_move(11, 1, DirectorySet(tier=0), swap=True), view) is Limit.ROOM


def test_a_refusal_says_which_limit_was_met() -> None:
    """With the figures of the directory that came nearest, in a sentence."""
    view = store(directory(0, 0, 10, 0), directory(1, 1, 100, 30, reserved=10))
    answers: list[Chosen[str] | NoRoom] = [
        decide(request, view, MaxFree(), in_order(()))
        for request in (
            RoomRequest.create(91),
            RoomRequest.create(40),
            RoomRequest.create(40, may_free=False),
            RoomRequest.create(1, DirectorySet(media=frozenset(("HDD",)))),
        )
    ]
    nearest = "the emptiest, 1, has room for 20 (30 of 100 unused, 10 of them kept in reserve)"
    assert [(one.limit, one.why) for one in answers if isinstance(one, NoRoom)] == [
        (Limit.CAPACITY, "91 bytes in any directory: the largest, 1, holds 90 bytes when it is empty"),
        (Limit.ROOM, f"40 bytes in any directory: {nearest}, and not enough could be moved away"),
        (Limit.ROOM, f"40 bytes in any directory: {nearest}, and nothing is moved away for it"),
        (Limit.NO_DIRECTORY, "1 bytes in any directory on HDD: there is no such directory in use"),
    ]


@settings(max_examples=500)
@given(
    filled_stores(),
    st.sampled_from(["greedy", "maxfree", "roundrobin"]),
    st.integers(0, 60),
    st.integers(0, 60),
    st.booleans(),
    st.integers(0, 3),
    st.floats(0, 1, exclude_max=True),
)
def test_every_decision_keeps_every_bound(
    filled: tuple[StoreView, tuple[FileView[str], ...]],
    name: str,
    size: int,
    ahead: int,
    forced: bool,
    tier: int,
    drawn: float,
) -> None:
    """For any store and request: after the moves, which replay, the directory has the room and is a right one."""
    view, files = filled
    location = DirectorySet(tier=tier, media=LOCAL)
    request = RoomRequest(size_bytes=size, location=location, forced=forced, may_free=True)
    allocator = make_allocator(name, ProbabilisticBuffer(lambda: drawn, 10, 30))
    answer = decide(request, view, allocator, in_order(files), ahead)
    if isinstance(answer, NoRoom):
        assert all(one.free_bytes < size for one in view.within(location if forced else location.anywhere))
        return
    replay(view, files, answer.moves)
    assert (location if forced else location.anywhere).holds(answer.directory)
    assert free_after(answer.directory, answer.moves) >= size


def free_after(place: DirectoryView, moves: tuple[TierMove[str], ...]) -> int:
    """Free bytes of a directory when the moves are done."""
    come = sum(move.size_bytes for move in moves if move.target == place.number)
    gone = sum(move.size_bytes for move in moves if move.source == place.number)
    return max(0, place.unused_bytes + gone - come - place.reserved_bytes)
