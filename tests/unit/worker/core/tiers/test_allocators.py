"""Which directory is chosen: rules of reference/placement.md, 1.2 and 1.8, and none of the defects A1, A3, A6."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.worker.core.tiers.allocators import Allocator
from holdfast.worker.core.tiers.view import DirectorySet, DirectoryView, StoreView
from tests.unit.worker.core.tiers.build import ANYWHERE, MEDIA, directory, filled_stores, store

Order = Literal["greedy", "maxfree", "roundrobin"]
NAMES: tuple[Order, ...] = ("greedy", "maxfree", "roundrobin")


class Refusing:
    """A reviewer that refuses these directories and counts what it was asked."""

    def __init__(self, *numbers: int) -> None:
        self.refused = numbers
        self.asked: list[int] = []

    def __call__(self, view: DirectoryView) -> bool:
        """Note the question."""
        self.asked.append(view.number)
        return view.number not in self.refused


def three_tiers() -> StoreView:
    """One, two and three directories; the larger the slower."""
    return store(
        directory(0, 0, 1000),
        directory(1, 1, 2000),
        directory(2, 1, 3000),
        directory(3, 2, 10_000),
        directory(4, 2, 20_000),
        directory(5, 2, 30_000),
    )


def number(
    allocator: Allocator, view: StoreView, size: int, location: DirectorySet = ANYWHERE, **how: bool
) -> int | None:
    """The number that is chosen."""
    chosen = allocator.allocate(view, size, location, **how)
    return None if chosen is None else chosen.number


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_needs_room_in_one_directory(name: Order) -> None:
    """The size of the largest directory fits, one byte more does not, however much the others have."""
    allocator, view = Allocator(name), three_tiers()
    assert number(allocator, view, 30_000) == 5
    assert number(allocator, view, 30_001) is None


@pytest.mark.parametrize("name", NAMES)
def test_any_tier_is_walked_from_the_top(name: Order) -> None:
    """The first tier with a fit takes it."""
    allocator, view = Allocator(name), three_tiers()
    assert number(allocator, view, 1000) == 0
    assert number(allocator, view, 1001) in (1, 2)
    assert number(allocator, view, 2001) == 2
    assert number(allocator, view, 3001) in (3, 4, 5)


@pytest.mark.parametrize("name", NAMES)
def test_a_named_directory_is_the_answer_or_nothing_is(name: Order) -> None:
    """It bypasses review; too full, missing, of another tier or another medium gives None."""
    reviewer = Refusing(0, 1, 2, 3, 4, 5)
    allocator, view = Allocator(name, reviewer), three_tiers()
    assert number(allocator, view, 2000, DirectorySet(directory=1)) == 1
    assert number(allocator, view, 2001, DirectorySet(directory=1)) is None
    assert number(allocator, view, 1, DirectorySet(directory=6)) is None
    assert number(allocator, view, 1, DirectorySet(directory=1, media=frozenset(("HDD",)))) is None
    assert reviewer.asked == []


@pytest.mark.parametrize("name", NAMES)
def test_who_is_refused_everywhere_gets_nothing(name: Order) -> None:
    """A1: the candidate that was refused in the last tier is not the answer; without review it is."""
    allocator = Allocator(name, Refusing(0, 1, 2, 3, 4, 5))
    assert number(allocator, three_tiers(), 10) is None
    assert number(allocator, three_tiers(), 10, DirectorySet(media=frozenset(("HDD",)))) is None
    assert number(allocator, three_tiers(), 10, reviewed=False) == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_medium_is_filtered(name: Order) -> None:
    """A6: a tier with directories on two media gives only the one that is allowed."""
    mixed = store(
        directory(0, 0, 1000),
        DirectoryView(number=1, tier=1, medium="HDD", capacity_bytes=9000, unused_bytes=9000),
        DirectoryView(number=2, tier=1, medium="SSD", capacity_bytes=500, unused_bytes=500),
    )
    ssd = frozenset(("SSD",))
    allocator = Allocator(name)
    assert number(allocator, mixed, 100, DirectorySet(media=ssd)) == 2
    assert number(allocator, mixed, 501, DirectorySet(media=ssd)) is None
    assert number(allocator, mixed, 100, DirectorySet(media=frozenset(("SSD", "HDD")))) in (1, 2)


@pytest.mark.parametrize("name", NAMES)
def test_no_new_file_uses_the_reserve(name: Order) -> None:
    """The last bytes are room for no new file."""
    allocator, view = Allocator(name), store(directory(0, 0, 100, 30, reserved=20))
    assert number(allocator, view, 10) == 0
    assert number(allocator, view, 11) is None


def test_greedy_takes_the_first_that_is_accepted() -> None:
    """In a tier the next by number is tried, then the next tier."""
    view = store(directory(0, 0, 10), directory(1, 0, 20), directory(2, 0, 90), directory(3, 1, 90))
    assert number(Allocator("greedy"), view, 15) == 1
    assert number(Allocator("greedy", Refusing(0, 1)), view, 5) == 2
    assert number(Allocator("greedy", Refusing(0, 1, 2)), view, 5) == 3


def test_maxfree_takes_the_emptiest_and_the_lowest_number_among_equals() -> None:
    """By what is free, not by capacity."""
    view = store(directory(0, 0, 100, 5), directory(1, 0, 50), directory(2, 0, 90, 50))
    assert number(Allocator("maxfree"), view, 1) == 1


def test_maxfree_does_not_try_the_second_best() -> None:
    """Who is refused in a tier goes to the next tier, if there is one on these media."""
    view = store(directory(0, 0, 100), directory(1, 0, 90), directory(2, 1, 50))
    reviewer = Refusing(0)
    assert number(Allocator("maxfree", reviewer), view, 1) == 2
    assert reviewer.asked == [0, 2]
    assert number(Allocator("maxfree", Refusing(0)), view, 1, DirectorySet(media=frozenset(("MEMORY",)))) is None


def test_roundrobin_takes_turns_in_each_tier() -> None:
    """One cursor for each tier."""
    view = store(*(directory(one, one // 3, 100) for one in range(6)))
    allocator = Allocator("roundrobin")
    media = [DirectorySet(media=frozenset((MEDIA[tier],))) for tier in (0, 0, 1, 0, 1, 0)]
    turns = [number(allocator, view, 1, location) for location in media]
    assert turns == [0, 1, 3, 2, 4, 0]


def test_roundrobin_goes_on_after_who_was_skipped_or_refused() -> None:
    """The next turn begins behind the chosen one, not behind the first one looked at."""
    view = store(directory(0, 0, 100), directory(1, 0, 5), directory(2, 0, 100), directory(3, 0, 100))
    allocator = Allocator("roundrobin", Refusing(2))
    assert [number(allocator, view, 10) for _ in range(4)] == [0, 3, 0, 3]


def test_a_lap_without_a_choice_does_not_move_the_turn() -> None:
    """A request that fits nowhere, and a named directory, leave the rotation as it was."""
    view = store(directory(0, 0, 100), directory(1, 0, 100), directory(2, 0, 100))
    allocator = Allocator("roundrobin")
    assert number(allocator, view, 1) == 0
    assert number(allocator, view, 101) is None
    assert number(allocator, view, 1, DirectorySet(directory=2)) == 2
    assert number(allocator, view, 1) == 1


def test_a_removed_directory_never_comes_out_and_a_new_one_does() -> None:
    """A3: the directories are those of each call."""
    first = store(directory(0, 0, 100), directory(1, 0, 100), directory(2, 0, 100))
    then = store(directory(0, 0, 100), directory(2, 0, 100), directory(7, 0, 100))
    allocator = Allocator("roundrobin")
    assert number(allocator, first, 1) == 0
    assert [number(allocator, then, 1) for _ in range(4)] == [2, 7, 0, 2]
    assert number(allocator, first, 1, DirectorySet(directory=7)) is None


@given(filled_stores(), st.sampled_from(NAMES), st.integers(0, 60), st.data())
def test_whatever_is_chosen_fits_and_is_where_it_was_asked(
    filled: tuple[StoreView, object], name: Order, size: int, data: st.DataObject
) -> None:
    """For any store and location; and None only if nothing fits, as long as nobody reviews."""
    view, _ = filled
    media = data.draw(st.sampled_from([None, frozenset(("SSD",)), frozenset(("MEMORY", "HDD"))]))
    location = data.draw(st.sampled_from([ANYWHERE, DirectorySet(media=media)]))
    chosen = Allocator(name).allocate(view, size, location)
    fits = [one for one in view.within(location) if one.free_bytes >= size]
    assert (chosen in fits) if fits else chosen is None
    if chosen is not None:
        assert chosen.tier == min(one.tier for one in fits)
