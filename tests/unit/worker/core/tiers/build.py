"""Stores, files and replays of plans for the tests of tiers."""

from collections.abc import Callable, Collection, Iterable, Iterator

from hypothesis import strategies as st

from holdfast.worker.core.tiers.view import UNLIMITED, DirectorySet, DirectoryView, FileView, StoreView, TierMove

ANYWHERE = DirectorySet()
MEDIA = ("MEMORY", "SSD", "HDD", "DFS")


def directory(number: int, tier: int, capacity: int, unused: int | None = None, reserved: int = 0) -> DirectoryView:
    """A directory on the medium of its tier; empty unless said otherwise."""
    return DirectoryView(
        number=number,
        tier=tier,
        medium=MEDIA[tier],
        capacity_bytes=capacity,
        unused_bytes=capacity if unused is None else unused,
        reserved_bytes=reserved,
    )


def in_tier(tier: int) -> DirectorySet:
    """The directories of one tier."""
    return DirectorySet(media=frozenset((MEDIA[tier],)))


def dfs(number: int) -> DirectoryView:
    """A distributed file system."""
    return directory(number, 3, UNLIMITED)


def store(*directories: DirectoryView) -> StoreView:
    """A checked view."""
    view = StoreView(directories)
    view.check()
    return view


def file(
    name: str,
    where: int,
    size: int,
    *,
    locked: bool = False,
    marked: bool = False,
    media: frozenset[str] | None = None,
) -> FileView[str]:
    """A file, by default evictable and at home anywhere."""
    return FileView(file=name, directory=where, size_bytes=size, locked=locked, marked=marked, media=media)


def in_order(files: Iterable[FileView[str]]) -> Callable[[Collection[int]], Iterator[FileView[str]]]:
    """An order in which these files come as they are given."""
    listed = tuple(files)
    return lambda numbers: (one for one in listed if one.directory in numbers)


def steps(moves: Iterable[TierMove[str]]) -> list[tuple[str, int, int]]:
    """Moves as (file, source, target)."""
    return [(move.file, move.source, move.target) for move in moves]


def replay(
    view: StoreView, files: Iterable[FileView[str]], moves: Iterable[TierMove[str]], *, with_reserve: bool = False
) -> dict[str, int]:
    """Carry a plan out move by move; assert that each is allowed and has room; return where every file lies then.

    The bytes of a move are taken at its target before those at its source are given back.
    """
    facts = {one.file: one for one in files}
    places = {one.file: one.directory for one in facts.values()}
    unused = {one.number: one.unused_bytes for one in view.directories}
    moved = set()
    for move in moves:
        fact, target = facts[move.file], view.by_number[move.target]
        assert fact.is_evictable, move
        assert move.file not in moved, move
        assert fact.media is None or target.medium in fact.media, move
        assert (places[move.file], fact.size_bytes) == (move.source, move.size_bytes)
        kept = 0 if with_reserve else target.reserved_bytes
        assert move.size_bytes <= unused[move.target] - kept, move
        unused[move.target] -= move.size_bytes
        unused[move.source] += move.size_bytes
        places[move.file] = move.target
        moved.add(move.file)
    assert places.keys() == facts.keys()
    return places


@st.composite
def filled_stores(draw: st.DrawFn, with_dfs: bool | None = None) -> tuple[StoreView, tuple[FileView[str], ...]]:
    """Up to three bounded tiers, perhaps a distributed file system, and files with flags that fit into them."""
    directories: list[DirectoryView] = []
    files: list[FileView[str]] = []
    for tier in draw(st.sets(st.integers(0, 2), min_size=1)):
        for _ in range(draw(st.integers(1, 3))):
            number = len(directories)
            capacity = draw(st.integers(0, 100))
            left = capacity - draw(st.integers(0, capacity // 4))
            for size in draw(st.lists(st.integers(0, 40), max_size=6)):
                if size <= left:
                    left -= size
                    flag = draw(st.sampled_from(["", "", "", "locked", "marked"]))
                    media = draw(st.sampled_from([None, None, frozenset(("SSD", "HDD", "DFS"))]))
                    name, state = f"f{len(files)}", {one: one == flag for one in ("locked", "marked")}
                    files.append(file(name, number, size, media=media, **state))
            reserved = draw(st.integers(0, capacity // 3))
            directories.append(directory(number, tier, capacity, left, reserved))
    if draw(st.booleans()) if with_dfs is None else with_dfs:
        directories.append(dfs(len(directories)))
    return store(*directories), tuple(draw(st.permutations(files)))
