"""Watermarks, swaps, the reserve and its return, promotion, back-off, and who goes first (reference, 1.7)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.worker.core.tiers.upkeep import (
    Backoff,
    Wishes,
    align,
    is_aligned,
    is_below_quota,
    promote,
    restore,
    upkeep,
)
from holdfast.worker.core.tiers.view import FileView, Heat, Order, StoreView
from holdfast.worker.core.tiers.watermarks import Marks, Overfull, demotion, hurried, keep_unused, overfull
from tests.unit.worker.core.tiers.build import dfs, directory, file, filled_stores, in_order, replay, steps, store

SECOND_NS = 10**9
#: The example of the reference: 100, 200 and 1000 bytes with marks of their own.
MARKS = (Marks(0.9, 0.8), Marks(0.9, 0.7), Marks(0.8, 0.6))


def heat(name: str) -> float:
    """Heat by name: 3b is hotter than 1a."""
    return float(name.rstrip("abcdefghijklmnopqrstuvwxyz"))


def coldest(*files: FileView[str]) -> Order[str]:
    return in_order(sorted(files, key=lambda one: heat(one.file)))


def by_heat(*files: FileView[str]) -> Heat[str]:
    return Heat(coldest(*files), hottest(*files), heat)


def hottest(*files: FileView[str]) -> Order[str]:
    return in_order(sorted(files, key=lambda one: -heat(one.file)))


def example(*unused: int) -> StoreView:
    """Three tiers of 100, 200 and 1000 bytes with so much unused."""
    sizes = zip((100, 200, 1000), unused, strict=True)
    return store(*(directory(tier, tier, size, left) for tier, (size, left) in enumerate(sizes)))


# watermarks


def test_bytes_to_keep_free_add_up_from_the_top() -> None:
    """The reference's 20, 80 and 480; a tier without a bound adds nothing."""
    assert keep_unused(example(0, 0, 0), MARKS) == [20, 80, 480]
    with_dfs = store(*example(0, 0, 0).directories, dfs(3))
    assert keep_unused(with_dfs, (*MARKS, Marks())) == [20, 80, 480, 480]


def test_all_tiers_past_their_marks_make_room_from_the_lowest_up() -> None:
    """1000, 200 and 100 used of as many: 480, then 80, then 20."""
    assert overfull(example(0, 0, 0), MARKS) == [Overfull(2, 480), Overfull(1, 80), Overfull(0, 20)]


@pytest.mark.parametrize(
    ("unused", "positions"),
    [
        ((0, 100, 1000), [0]),
        ((11, 100, 1000), []),
        ((10, 21, 200), [2, 0]),
        ((50, 20, 201), [1]),
        ((100, 200, 1000), []),
    ],
)
def test_a_tier_begins_at_its_high_mark(unused: tuple[int, int, int], positions: list[int]) -> None:
    """Exactly at the mark it does, one byte below it does not; the first row is the second example of the reference."""
    assert [found.position for found in overfull(example(*unused), MARKS)] == positions


def test_a_tier_smaller_than_what_falls_into_it_keeps_its_own_share() -> None:
    """What it would have to keep free is not below its high mark: it drains by its own marks, and not to the bottom."""
    marks = [Marks()] * 3
    view = store(directory(0, 0, 1000), directory(1, 1, 100, 5), dfs(2))
    assert keep_unused(view, marks)[1] == 330
    assert overfull(view, marks) == [Overfull(1, 30)]
    assert overfull(store(directory(0, 0, 1000), directory(1, 1, 100, 6), dfs(2)), marks) == []
    barely = store(directory(0, 0, 216), directory(1, 1, 100, 5), dfs(2))
    assert overfull(barely, marks) == [Overfull(1, 30)], "65 of faster tiers and 30 are 95, its high mark"
    below = store(directory(0, 0, 213), directory(1, 1, 100, 5), dfs(2))
    assert overfull(below, marks) == [Overfull(1, 94)]


def test_a_tier_over_its_capacity_drains_to_its_low_mark() -> None:
    """Its capacity was made smaller than what is in it: it goes down like any other, however large faster tiers are."""
    view = store(directory(0, 0, 48), directory(1, 1, 20, -21), dfs(2))
    files = [file(f"{number}", 1, 4) for number in range(10)]
    moves = demotion(view, [Marks()] * 3, coldest(*files), 100)
    replay(view, files, moves)
    assert steps(moves) == [(f"{number}", 1, 2) for number in range(7)], "27 of 41 have to go until 6 are unused"


def test_a_directory_over_its_capacity_drains_though_its_tier_has_room() -> None:
    """Its own files go until it is at the low mark; those of its neighbour, colder as they are, stay."""
    view = store(directory(0, 0, 100), directory(1, 1, 20, -10), directory(2, 1, 1000, 900), dfs(3))
    files = (*[file(f"1{letter}", 2, 10) for letter in "abc"], *[file(f"2{letter}", 1, 6) for letter in "abcde"])
    assert overfull(view, [Marks()] * 3) == [Overfull(1, 6, 1)]
    moves = demotion(view, [Marks()] * 3, coldest(*files), 100)
    replay(view, files, moves)
    assert steps(moves) == [("2a", 1, 3), ("2b", 1, 3), ("2c", 1, 3)]


def test_marks_are_in_order() -> None:
    """0 < low < high <= 1."""
    assert Marks() == Marks(0.95, 0.7)
    for high, low in ((0.7, 0.7), (0.5, 0.7), (1.1, 0.5), (0.5, 0.0)):
        with pytest.raises(ValueError, match="0 < low < high <= 1"):
            Marks(high, low)


@pytest.mark.parametrize(
    ("used", "wanted", "marks"),
    [
        (85, 20, Marks(0.85, 0.7)),
        (85, 40, Marks(0.85, 0.6)),
        (60, 50, Marks(0.6, 0.5)),
        (97, 10, Marks(0.95, 0.7)),
        (60, 10, Marks()),
        (0, 10, Marks()),
        (90, 100, Marks()),
    ],
)
def test_a_write_that_found_no_room_brings_the_marks_down_to_it(used: int, wanted: int, marks: Marks) -> None:
    """A tier of 100 bytes is past its high mark at once, and its low one leaves what was wanted, if that can be."""
    assert hurried(Marks(), 100, used, wanted) == marks


def test_demotion_ends_at_the_low_mark_coldest_first() -> None:
    """Past 95 of 100 used the coldest go down until 30 are unused."""
    view = store(directory(0, 0, 100, 4), directory(1, 1, 1000))
    files = [file(f"{number}", 0, 12) for number in range(8)]
    moves = demotion(view, [Marks()] * 2, coldest(*files), 100)
    replay(view, files, moves)
    assert steps(moves) == [("0", 0, 1), ("1", 0, 1), ("2", 0, 1)]
    assert demotion(view, [Marks()] * 2, coldest(*files), 2) == moves[:2]


def test_a_slower_tier_makes_room_for_a_faster_one() -> None:
    """All three full: what leaves the second tier goes first, and nothing leaves the last."""
    view = store(directory(0, 0, 10, 0), directory(1, 1, 40, 0), directory(2, 2, 100, 20))
    files = (file("1a", 0, 4), file("2a", 0, 6), file("1b", 1, 16), file("2b", 1, 24))
    moves = demotion(view, [Marks(0.9, 0.6)] * 3, coldest(*files), 100)
    replay(view, files, moves)
    assert steps(moves) == [("1b", 1, 2), ("1a", 0, 1)]
    last = store(directory(0, 0, 10), directory(1, 1, 10, 0))
    assert demotion(last, [Marks()] * 2, coldest(file("1", 1, 10)), 100) == ()


def test_a_demotion_goes_as_far_as_it_can() -> None:
    """Unlike a request's plan: what is locked stays, what has room moves."""
    view = store(directory(0, 0, 100, 0), directory(1, 1, 10))
    files = (file("1", 0, 10), file("2", 0, 40), file("3", 0, 50, locked=True))
    assert steps(demotion(view, [Marks()] * 2, coldest(*files), 100)) == [("1", 0, 1)]


@settings(max_examples=300)
@given(filled_stores(), st.floats(0.3, 1.0), st.floats(0.05, 0.9), st.integers(1, 20))
def test_no_demotion_breaks_a_bound(
    filled: tuple[StoreView, tuple[FileView[str], ...]], high: float, share: float, moves_max: int
) -> None:
    """Any store and marks: moves replay, and only go down."""
    view, files = filled
    moves = demotion(view, [Marks(high, high * share)] * len(view.tiers), in_order(files), moves_max)
    replay(view, files, moves)
    assert all(view.by_number[move.target].tier > view.by_number[move.source].tier for move in moves)


# swaps


def aligned_by(view: StoreView, *files: FileView[str], pairs: int = 100, busy: tuple[int, ...] = ()):
    """Align the first two tiers; the moves are replayed and checked."""
    found = align(view, view.pairs[0], by_heat(*files), pairs, busy)
    replay(view, files, found.moves, with_reserve=True)
    return steps(found.moves), found.lacks_room


def test_tiers_are_aligned_if_nothing_above_is_colder_than_something_below() -> None:
    """Equal heat is aligned, and so is an empty side; what cannot move does not count."""
    (pair,) = store(directory(0, 0, 100), directory(1, 1, 100)).pairs

    def aligned(*files: FileView[str]) -> bool:
        return is_aligned(pair, by_heat(*files))

    assert aligned(file("2a", 0, 1), file("2b", 1, 1))
    assert not aligned(file("2a", 0, 1), file("3b", 1, 1), file("9", 0, 1))
    assert aligned(file("2a", 0, 1))
    assert aligned(file("2a", 1, 1))
    assert aligned(file("2a", 0, 1), file("3b", 1, 1, locked=True))


def test_the_kth_coldest_above_and_the_kth_hottest_below_change_places() -> None:
    """As long as the one above is colder; the first pair in order ends it."""
    view = store(directory(0, 0, 40, 10), directory(1, 1, 40, 10))
    files = [file(name, 0, 10) for name in ("1a", "2a", "5a")] + [file(name, 1, 10) for name in ("9b", "4b", "3b")]
    pairs = [("1a", 0, 1), ("9b", 1, 0), ("2a", 0, 1), ("4b", 1, 0)]
    assert aligned_by(view, *files) == (pairs, False)
    assert aligned_by(view, *files, pairs=1) == (pairs[:2], False)


def test_swaps_use_the_reserve_and_the_order_that_has_room() -> None:
    """Full but for the reserve of one side: the first move goes there, whichever way that is."""
    files = (file("1a", 0, 10), file("9b", 1, 10))
    above = store(directory(0, 0, 20, 10, reserved=10), directory(1, 1, 10, 0))
    below = store(directory(0, 0, 10, 0), directory(1, 1, 20, 10, reserved=10))
    assert aligned_by(above, *files) == ([("9b", 1, 0), ("1a", 0, 1)], False)
    assert aligned_by(below, *files) == ([("1a", 0, 1), ("9b", 1, 0)], False)


def test_a_swap_without_room_asks_for_the_reserve() -> None:
    """A4: half of the reserve is used, so a file as large as all of it finds no room; nothing is over-committed."""
    view = store(directory(0, 0, 30, 10, reserved=20), directory(1, 1, 30, 0))
    files = (file("1a", 0, 20), file("9b", 1, 20), file("2a", 0, 5))
    assert aligned_by(view, *files) == ([], True)
    assert aligned_by(view, file("1a", 0, 10), file("9b", 1, 10)) == ([("9b", 1, 0), ("1a", 0, 1)], False)


def test_swaps_leave_busy_directories_and_wrong_media_alone() -> None:
    """Back-off by directory, and files that may not lie in memory."""
    view = store(directory(0, 0, 40, 20), directory(1, 1, 40, 30), directory(2, 1, 40, 30))
    disks = frozenset(("SSD",))
    files = (
        file("1a", 0, 10),
        file("2a", 0, 10),
        file("9b", 1, 10),
        file("8b", 2, 10, media=disks),
        file("7b", 2, 10),
    )
    assert aligned_by(view, *files, busy=(1,)) == ([("2a", 0, 2), ("7b", 2, 0)], False)
    assert aligned_by(view, *files, busy=(0,)) == ([], False)


@settings(max_examples=300)
@given(filled_stores(), st.integers(1, 10))
def test_no_swap_breaks_a_bound(filled: tuple[StoreView, tuple[FileView[str], ...]], pairs: int) -> None:
    """Any store: swaps replay with the reserve, and every one of them brings something hotter up."""
    view, files = filled
    if len(view.tiers) < 2:
        return
    scores = {one.file: float(hash_of(one.file)) for one in files}
    order = in_order(sorted(files, key=lambda one: scores[one.file]))
    back = in_order(sorted(files, key=lambda one: -scores[one.file]))
    found = align(view, view.pairs[0], Heat(order, back, scores.__getitem__), pairs)
    replay(view, files, found.moves, with_reserve=True)
    assert len(found.moves) % 2 == 0
    for one, other in zip(found.moves[::2], found.moves[1::2], strict=True):
        up, down = sorted((one, other), key=lambda move: view.by_number[move.target].tier)
        assert scores[up.file] > scores[down.file]


def hash_of(name: str) -> int:
    """A number that is the same in every run, and unlike the order of names."""
    return int(name[1:]) * 7919 % 31


# the reserve


def test_restoring_pushes_the_overflow_down_and_stops_there() -> None:
    """15 of the upper reserve and 5 of the lower are used: 20 leave the middle, 15 the top; the bottom has room."""
    view = store(
        directory(0, 0, 100, 5, reserved=20),
        directory(1, 1, 100, 15, reserved=20),
        directory(2, 2, 100, 90, reserved=20),
    )
    files = (file("1a", 0, 10), file("2a", 0, 10), file("3a", 0, 10), file("1b", 1, 10), file("2b", 1, 20))
    found = restore(view, coldest(*files))
    replay(view, files, found.moves, with_reserve=True)
    assert steps(found.moves) == [("1b", 1, 2), ("2b", 1, 2), ("1a", 0, 1), ("2a", 0, 1)]
    assert not found.lacks_room


def test_restoring_balances_the_directories_of_a_tier() -> None:
    """The tier as a whole has its reserve, one directory does not."""
    view = store(directory(0, 0, 100, 0, reserved=10), directory(1, 0, 100, 80, reserved=10), directory(2, 1, 100))
    files = (file("1", 0, 10), file("2", 0, 10), file("3", 1, 10))
    found = restore(view, coldest(*files))
    replay(view, files, found.moves, with_reserve=True)
    assert steps(found.moves) == [("1", 0, 1)]
    assert not found.lacks_room


def test_restoring_deletes_nothing_in_the_last_tier() -> None:
    """It says that the reserve is not whole instead."""
    view = store(directory(0, 0, 100), directory(1, 1, 100, 5, reserved=10))
    found = restore(view, coldest(file("1", 1, 50)))
    assert found == ((), True)


@settings(max_examples=300)
@given(filled_stores())
def test_no_restoration_breaks_a_bound(filled: tuple[StoreView, tuple[FileView[str], ...]]) -> None:
    """Any store: the moves replay, none goes up, and it says truly whether all reserves are unused."""
    view, files = filled
    found = restore(view, in_order(files))
    places = replay(view, files, found.moves, with_reserve=True)
    for move in found.moves:
        assert view.by_number[move.target].tier >= view.by_number[move.source].tier
    unused = {one.number: one.unused_bytes for one in view.directories}
    for one in files:
        unused[one.directory] += one.size_bytes
        unused[places[one.file]] -= one.size_bytes
    assert found.lacks_room != all(unused[one.number] >= one.reserved_bytes for one in view.directories)


# promotion


def wishes(*, align: bool = False, promote: bool = True, quota: float = 0.9, files_max: int = 100) -> Wishes:
    return Wishes(align=align, promote=promote, quota=quota, files_max=files_max)


def test_the_hottest_go_up_until_the_quota() -> None:
    """Looked at before each move, so the last one passes it: 85, 95, and no more."""
    view = store(directory(0, 0, 100, 25), directory(1, 1, 100, 50))
    files = [file(f"{number}", 1, 10) for number in range(1, 6)]
    moves = promote(view, view.pairs[0], hottest(*files), wishes())
    replay(view, files, moves)
    assert steps(moves) == [("5", 1, 0), ("4", 1, 0)]
    assert steps(promote(view, view.pairs[0], hottest(*files), wishes(files_max=1))) == [("5", 1, 0)]
    assert promote(view, view.pairs[0], hottest(*files), wishes(quota=0.75)) == ()


def test_promotion_leaves_out_what_does_not_fit_and_who_is_busy() -> None:
    """It never passes the room of a directory, nor uses its reserve."""
    view = store(directory(0, 0, 100, 40, reserved=20), directory(1, 0, 100, 40), directory(2, 1, 100))
    files = (file("9", 2, 50), file("8", 2, 20), file("7", 2, 40, locked=True), file("6", 2, 5))
    assert steps(promote(view, view.pairs[0], hottest(*files), wishes())) == [("8", 2, 1), ("6", 2, 0)]
    assert steps(promote(view, view.pairs[0], hottest(*files), wishes(), busy=(1,))) == [("8", 2, 0)]
    assert promote(view, view.pairs[0], hottest(*files), wishes(), busy=(2,)) == ()


@settings(max_examples=300)
@given(filled_stores(), st.floats(0, 1))
def test_no_promotion_breaks_a_bound(filled: tuple[StoreView, tuple[FileView[str], ...]], quota: float) -> None:
    """Any store: moves replay without the reserve, and go up by one tier."""
    view, files = filled
    for pair in view.pairs:
        moves = promote(view, pair, in_order(files), wishes(quota=quota))
        replay(view, files, moves)
        assert {move.target for move in moves} <= {one.number for one in pair.above}
        assert {move.source for move in moves} <= {one.number for one in pair.below}


# back-off


def test_any_pauses_everything_through_the_cooldown() -> None:
    """Until ten seconds after somebody used any directory."""
    backoff = Backoff(any_stops_all=True, cooldown_ns=10 * SECOND_NS)
    assert not backoff.pauses_all(0)
    backoff.used(3, 100 * SECOND_NS)
    assert backoff.pauses_all(110 * SECOND_NS - 1)
    assert not backoff.pauses_all(110 * SECOND_NS)


def test_directory_leaves_only_busy_directories_alone() -> None:
    """It pauses nothing, and names those with traffic."""
    backoff = Backoff(any_stops_all=False, cooldown_ns=5 * SECOND_NS)
    backoff.used(1, 0)
    backoff.used(2, 0)
    backoff.used(2, SECOND_NS)
    assert not backoff.pauses_all(SECOND_NS)
    assert backoff.busy(5 * SECOND_NS - 1) == {1, 2}
    assert backoff.busy(5 * SECOND_NS) == {2}


# who goes first


def planned(view: StoreView, wanted: Wishes, *files: FileView[str], restore_first: bool = False):
    """The next moves, and whether room is lacking then."""
    found = upkeep(view, wanted, coldest(*files), by_heat(*files), restore_first=restore_first)
    return steps(found.moves), found.lacks_room


def test_restoring_goes_before_aligning_before_promoting() -> None:
    """From the fastest pair of tiers down; what is off is never planned."""
    view, none, both = example(50, 100, 500), wishes(promote=False), wishes(align=True)
    files = (file("1a", 0, 5), file("2b", 1, 5), file("9c", 2, 5))
    swapped = [("1a", 0, 1), ("2b", 1, 0)]
    assert planned(view, none, *files) == ([], False)
    assert planned(view, none, *files, restore_first=True) == ([], False)
    assert planned(view, both, *files, restore_first=True) == ([], False), "there was nothing to restore"
    assert planned(view, both, *files) == (swapped, False)
    assert planned(view, both, *files[1:]) == ([("2b", 1, 0)], False)
    assert planned(view, wishes(align=True, promote=False), *files[1:]) == ([("2b", 1, 2), ("9c", 2, 1)], False)
    assert planned(view, both, *files[2:]) == ([("9c", 2, 1)], False)


def test_a_swap_that_found_no_room_has_the_reserve_restored_once() -> None:
    """What it says comes back in: the reserve is restored, as far as that can be, and then swaps go on."""
    view = store(directory(0, 0, 30, 10, reserved=20), directory(1, 1, 30, 5))
    files = (file("1a", 0, 20), file("9b", 1, 20), file("2a", 0, 5))
    assert planned(view, wishes(align=True), *files) == ([], True)
    assert planned(view, wishes(align=True), *files, restore_first=True) == ([("2a", 0, 1)], True)
    stuck = (file("1a", 0, 20), file("9b", 1, 20))
    assert planned(view, wishes(align=True), *stuck, restore_first=True) == ([], False), "it would go on for ever"


def test_promotion_needs_room_above_and_something_that_may_move_below() -> None:
    """At the quota, or with everything below locked, there is nothing to do."""
    movable, locked = file("1", 1, 5), file("1", 1, 5, locked=True)
    assert planned(example(11, 100, 1000), wishes(), movable) == ([("1", 1, 0)], False)
    assert planned(example(10, 100, 1000), wishes(), movable) == ([], False)
    assert planned(example(11, 100, 1000), wishes(), locked) == ([], False)
    assert planned(example(50, 100, 1000), wishes(quota=0.5), movable) == ([], False)
    assert is_below_quota(example(11, 0, 0).tiers[0], 0.9)


def test_one_tier_needs_no_upkeep() -> None:
    """There is no pair to look at."""
    assert planned(store(directory(0, 0, 10)), wishes(align=True), restore_first=True) == ([], True)
