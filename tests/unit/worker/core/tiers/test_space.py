"""Plans that make room: whole or none, only what may move, and never over the room of a directory on the way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.worker.core.tiers import draft
from holdfast.worker.core.tiers.allocators import Allocator
from holdfast.worker.core.tiers.space import moves_for, plan_space
from holdfast.worker.core.tiers.view import DirectorySet, FileView, StoreView
from tests.unit.worker.core.tiers.build import (
    ANYWHERE,
    dfs,
    directory,
    file,
    filled_stores,
    in_order,
    in_tier,
    replay,
    steps,
    store,
)

TOP = in_tier(0)


def planned(
    view: StoreView, location: DirectorySet, contiguous: int, total: int, *files: FileView[str]
) -> list[tuple[str, int, int]] | None:
    """The moves of a plan, replayed and checked; None if there is no plan."""
    plan = plan_space(view, location, contiguous, total, in_order(files))
    if plan is None:
        return None
    replay(view, files, plan)
    return steps(plan)


def test_what_fits_already_moves_nothing() -> None:
    """Both conditions hold: the plan is empty, as is one for zero bytes, wherever."""
    view = store(directory(0, 0, 100, 50), directory(1, 1, 100))
    assert planned(view, TOP, 50, 50, file("a", 0, 50)) == []
    assert planned(view, DirectorySet(media=frozenset()), 0, 0) == []


def test_the_coldest_leave_first_and_no_more_than_needed() -> None:
    """Files go one by one until it fits."""
    view = store(directory(0, 0, 100, 10), directory(1, 1, 100))
    files = (file("a", 0, 30), file("b", 0, 30), file("c", 0, 30))
    assert planned(view, TOP, 40, 40, *files) == [("a", 0, 1)]
    assert planned(view, TOP, 41, 41, *files) == [("a", 0, 1), ("b", 0, 1)]


@pytest.mark.parametrize("flag", ["locked", "marked"])
def test_what_is_locked_or_marked_stays(flag: str) -> None:
    """The next in order goes instead; if nothing is left, there is no plan rather than a removal."""
    view = store(directory(0, 0, 60, 0), directory(1, 1, 100))
    kept, other = (
        file("a", 0, 30, locked=flag == "locked", marked=flag == "marked"),
        file("b", 0, 30),
    )
    assert planned(view, TOP, 30, 30, kept, other) == [("b", 0, 1)]
    assert planned(view, TOP, 31, 31, kept, other) is None


def test_a_plan_that_cannot_succeed_moves_nothing() -> None:
    """A5: one file could move, but that is not enough, so there is no plan at all."""
    view = store(directory(0, 0, 60, 0), directory(1, 1, 30))
    assert planned(view, TOP, 60, 60, file("a", 0, 30), file("b", 0, 30)) is None


def test_room_is_made_in_one_directory_alone() -> None:
    """Merged by coldness, three files of two directories would go; 20 bytes of one directory do."""
    view = store(directory(0, 0, 40, 0), directory(1, 0, 40, 0), directory(2, 1, 100))
    files = (file("a", 0, 10), file("b", 1, 10), file("c", 0, 30), file("d", 1, 10), file("e", 1, 20))
    assert planned(view, TOP, 20, 20, *files) == [("b", 1, 2), ("d", 1, 2)]


def test_of_equal_costs_the_faster_tier_is_chosen() -> None:
    """Then the lower number."""
    view = store(directory(0, 1, 40, 0), directory(1, 0, 40, 0), directory(2, 0, 40, 0), dfs(3))
    files = (file("a", 0, 10), file("b", 2, 10), file("c", 1, 10))
    assert planned(view, ANYWHERE, 10, 10, *files) == []
    local = DirectorySet(media=frozenset(("MEMORY", "SSD")))
    assert planned(view, local, 10, 10, *files) == [("c", 1, 3)]


def test_a_file_goes_to_the_nearest_tier_with_room() -> None:
    """One tier down, or more if that is full, to the emptiest directory there; the last resort has no bound."""
    view = store(
        directory(0, 0, 90, 0), directory(1, 1, 40, 35), directory(2, 2, 50, 40), directory(3, 2, 60, 50), dfs(4)
    )
    files = (file("a", 0, 30), file("b", 0, 30), file("c", 0, 30))
    assert planned(view, TOP, 90, 90, *files) == [("a", 0, 1), ("b", 0, 3), ("c", 0, 2)]
    assert planned(view, in_tier(2), 60, 60, file("x", 3, 10)) == [("x", 3, 4)]


def test_room_is_made_below_first_if_no_tier_has_any() -> None:
    """Cascade: what is in the way goes down before what comes from above, in the order in which it can be done."""
    view = store(directory(0, 0, 30, 0), directory(1, 1, 40, 0), directory(2, 2, 20, 0), directory(3, 2, 40, 40))
    files = (file("x", 1, 30, locked=True), file("a", 0, 30), file("y", 1, 10), file("z", 2, 20))
    full = store(directory(0, 0, 30, 0), directory(1, 1, 40, 0), directory(2, 2, 20, 20))
    assert planned(view, TOP, 30, 30, *files) == [("a", 0, 3)]
    assert planned(full, TOP, 30, 30, *files[:3]) is None
    movable = (file("a", 0, 30), file("x", 1, 30, locked=True), file("y", 1, 10))
    roomy = store(directory(0, 0, 30, 0), directory(1, 1, 40, 20), directory(2, 2, 20, 20))
    assert planned(roomy, TOP, 30, 30, *movable) == [("y", 1, 2), ("a", 0, 1)]


def test_a_cascade_goes_through_every_tier() -> None:
    """Three tiers, all but full: the bottom of the stack moves first."""
    view = store(directory(0, 0, 10, 0), directory(1, 1, 12, 2), directory(2, 2, 13, 3), directory(3, 3, 9, 9))
    files = (file("a", 0, 10), file("b", 1, 10), file("c", 2, 9))
    assert planned(view, TOP, 10, 10, *files) == [("c", 2, 3), ("b", 1, 2), ("a", 0, 1)]


def test_what_was_tried_in_vain_below_is_taken_back() -> None:
    """The first directory below cannot make room, and must not take the room that the second one needs to do so."""
    view = store(directory(0, 0, 30, 0), directory(1, 1, 40, 0), directory(2, 1, 40, 0), directory(3, 2, 35))
    near = file("a", 0, 30, media=frozenset(("MEMORY", "SSD")))
    files = (near, file("x", 1, 10), file("y", 1, 30, locked=True), file("z", 2, 30))
    assert planned(view, TOP, 30, 30, *files) == [("z", 2, 3), ("a", 0, 2)]


def test_nothing_moves_out_of_the_last_tier() -> None:
    """Nothing is deleted: without a tier below there is no plan."""
    view = store(directory(0, 0, 10), directory(1, 1, 10, 0))
    assert planned(view, in_tier(1), 10, 10, file("a", 1, 10)) is None


def test_a_reserve_is_neither_room_for_the_request_nor_for_what_moves() -> None:
    """A4 in plans: with 5 of a reserve of 10 used, 5 more bytes have to go than if it were counted in full again."""
    view = store(directory(0, 0, 40, 5, reserved=10), directory(1, 1, 30, reserved=20))
    files = tuple(file(name, 0, 5) for name in "abcde")
    assert planned(view, TOP, 5, 5, *files) == [("a", 0, 1), ("b", 0, 1)]
    assert planned(view, TOP, 6, 6, *files) is None


def test_a_file_stays_off_media_where_it_may_not_lie() -> None:
    """What was promised to survive power loss does not go where it would not."""
    view = store(directory(0, 0, 10, 0), directory(1, 1, 10), directory(2, 2, 10))
    kept = file("a", 0, 10, media=frozenset(("HDD",)))
    assert planned(view, TOP, 10, 10, kept) == [("a", 0, 2)]


def test_the_total_is_reached_from_the_slow_end_and_counts_what_leaves() -> None:
    """Free in all of the location: a move inside it frees nothing, so files leave it, slow tiers first."""
    local = DirectorySet(media=frozenset(("MEMORY", "SSD")))
    view = store(directory(0, 0, 20, 10), directory(1, 1, 20, 10), dfs(2))
    files = (file("a", 0, 10), file("b", 1, 10))
    assert planned(view, local, 10, 30, *files) == [("b", 1, 2)]
    assert planned(view, local, 10, 40, *files) == [("b", 1, 2), ("a", 0, 2)]
    assert planned(view, local, 10, 41, *files) is None


def test_looking_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past LOOKS_MAX files there is no plan, so no plan holds the loop thread for long."""
    view = store(directory(0, 0, 30, 0), dfs(1))
    pinned = [file(f"p{number}", 0, 0, locked=True) for number in range(9)]
    assert planned(view, TOP, 30, 30, *pinned, file("a", 0, 30)) == [("a", 0, 1)]
    monkeypatch.setattr(draft, "LOOKS_MAX", 9)
    assert planned(view, TOP, 30, 30, *pinned, file("a", 0, 30)) is None


locations = st.one_of(
    st.just(ANYWHERE),
    st.builds(in_tier, st.integers(0, 2)),
    st.builds(DirectorySet, directory=st.integers(0, 4)),
    st.builds(DirectorySet, media=st.sets(st.sampled_from(["MEMORY", "SSD", "HDD"])).map(frozenset)),
)


@settings(max_examples=500)
@given(filled_stores(), locations, st.integers(0, 60), st.integers(0, 100))
def test_no_plan_breaks_a_bound(
    filled: tuple[StoreView, tuple[FileView[str], ...]], location: DirectorySet, contiguous: int, ahead: int
) -> None:
    """For any store: moved is only what may move, only down, once, within free room at every step, and nothing is lost;
    the plan keeps its promise."""
    view, files = filled
    plan = plan_space(view, location, contiguous, contiguous + ahead, in_order(files))
    if plan is None:
        return
    places = replay(view, files, plan)
    for move in plan:
        assert view.by_number[move.target].tier > view.by_number[move.source].tier
    after = view
    for one in view.directories:
        gone = sum(fact.size_bytes for fact in files if fact.directory == one.number != places[fact.file])
        come = sum(fact.size_bytes for fact in files if fact.directory != one.number == places[fact.file])
        after = after.with_taken(one.number, come - gone)
    free = [one.free_bytes for one in after.within(location)]
    assert sum(free) >= contiguous + ahead
    assert not contiguous or max(free) >= contiguous


@settings(max_examples=300)
@given(filled_stores(with_dfs=True), st.integers(1, 60), st.integers(0, 2))
def test_with_a_tier_without_bound_there_is_a_plan_if_any_could_be(
    filled: tuple[StoreView, tuple[FileView[str], ...]], contiguous: int, tier: int
) -> None:
    """A request for one local tier succeeds exactly if some directory would have room without its evictable files."""
    view, files = filled
    location = in_tier(tier)
    possible = any(
        one.unused_bytes
        - one.reserved_bytes
        + sum(fact.size_bytes for fact in files if fact.directory == one.number and fact.is_evictable)
        >= contiguous
        for one in view.within(location)
    )
    plan = plan_space(view, location, contiguous, contiguous, in_order(files))
    assert (plan is not None) == possible


LOCAL = DirectorySet(media=frozenset(("MEMORY", "SSD", "HDD")))


def made(view: StoreView, size: int, ahead: int, *files: FileView[str]) -> list[tuple[str, int, int]]:
    """What moves for a new file that may lie in a local directory, replayed and checked."""
    moves = moves_for(view, LOCAL, size, ahead, in_order(files))
    replay(view, files, moves)
    return steps(moves)


def test_a_file_that_fits_does_not_fail_for_what_is_to_be_freed_ahead() -> None:
    """A5: free ahead where it can be done, else without; and nothing where the file fits as it is."""
    view = store(directory(0, 0, 100, 10), dfs(1))
    files = (file("a", 0, 40), file("b", 0, 50, locked=True))
    assert made(view, 11, 39, *files) == [("a", 0, 1)]
    assert made(view, 20, 1_000, *files) == [("a", 0, 1)]
    assert made(view, 10, 40, *files) == []
    assert made(view, 51, 0, *files) == []


def test_room_is_made_where_the_fewest_bytes_move_and_only_on_the_media_that_are_allowed() -> None:
    """A6: room elsewhere is none, and where nothing can move nothing does."""
    files = (file("a", 0, 50), file("b", 1, 20))
    assert made(store(directory(0, 0, 100, 0), directory(1, 1, 100, 0), dfs(2)), 20, 0, *files) == [("b", 1, 2)]
    assert made(store(directory(0, 0, 100, 0), directory(1, 1, 100, 0)), 20, 0, *files) == []


def test_writes_at_many_times_the_local_capacity_never_fail() -> None:
    """Old files go to the store without a bound; none is lost."""
    view, files = store(directory(0, 0, 100), directory(1, 1, 100), dfs(2)), list[FileView[str]]()
    for number in range(60):
        moves = moves_for(view, LOCAL, 10, 0, in_order(files))
        places = replay(view, files, moves)
        files = [file(one.file, places[one.file], one.size_bytes) for one in files]
        for move in moves:
            view = view.with_taken(move.target, move.size_bytes).with_taken(move.source, -move.size_bytes)
        chosen = Allocator("maxfree").allocate(view, 10, LOCAL)
        assert chosen is not None, f"there is no room for file {number}"
        view, files = view.with_taken(chosen.number, 10), [*files, file(f"n{number}", chosen.number, 10)]
    assert sorted(one.file for one in files) == sorted(f"n{number}" for number in range(60))
    assert sum(one.directory == 2 for one in files) == 40
