"""Property tests over the real store: no sequence of reserve, grow, commit, evict, move, fail and return loses bytes,
doubles them, or breaks a budget. A failure prints the seed and the shortest story that was found.
"""

import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.storage_model import Step, draw_story, shorten
from tests.support.storage_story import tell
from tests.unit.worker.storage.planted import BUGS, planted

#: Steps of a story.
STEPS = 60
STORIES, STORIES_LONG = 60, 640
#: Every planted mistake is found within so many seeds, and with this one if it is not among the first.
SEEDS_MAX = 400
FOUND_BY = {
    "half_copied_files_stay": 8,
    "orphans_stay": 187,
    "part_of_an_epoch_is_sealed_again": 88,
    "reader_is_sent_where_the_file_was": 107,
}

MEMORY = Path("/dev/shm")


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder in memory where there is one: syncs cost nothing there, and nothing here depends on them."""
    path = Path(tempfile.mkdtemp(prefix="holdfast-story-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    # Every kill of a story collects garbage; what other tests left in this process need not be looked through for that.
    gc.collect()
    gc.freeze()
    yield path
    gc.unfreeze()
    shutil.rmtree(path, ignore_errors=True)


def explain(root: Path, seed: int, steps: list[Step], problem: Exception) -> str:
    """Say what went wrong, how to see it again, and the shortest story that still ends badly."""
    short = shorten(steps, lambda fewer: tell(root / "short", seed, fewer)[1] is not None)
    _, shown = tell(root / "short", seed, short)
    told = "\n".join(map(str, short))
    return (
        f"seed {seed}, {len(steps)} steps: {problem!r}\nthe shortest story found ends with {shown!r}:\n{told}\n"
        f"replay: {Path(sys.executable).name} -m pytest {__file__} --run-long -k 'stories and long' (seed {seed})"
    )


def tell_all(root: Path, seeds: list[int], steps: int) -> Counter[str]:
    """Tell the stories of these seeds; returns what happened in them."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        story = draw_story(seed, steps)
        found, problem = tell(root / "story", seed, story)
        if problem is not None:
            pytest.fail(explain(root, seed, story, problem))
        counts += found
    return counts


def test_no_story_loses_bytes_or_breaks_a_budget(root: Path) -> None:
    """Everything acknowledged is read back exactly once whatever happens, every sum fits what is on the disks, and
    nothing is left of what was deleted. And much does happen: files move between all places, kills fall into moves."""
    counts = tell_all(root, list(range(STORIES)), STEPS)
    moves = {(source, target) for source in range(3) for target in range(4) if source != target}
    assert all(counts[f"move {source} to {target}"] for source, target in moves), counts
    least = {"killed": 30, "killed at a start": 15, "forgotten beside a move": 3, "meanwhile": 30, "moves failed": 10}
    least |= {"sealed OK": 500, "read": 500, "read away": 100, "not sealed": 5}
    least |= {"pushed NO_ROOM": 100, "pushed HARD_SPLIT": 10, "pushed FAILED_COPY": 10}
    assert not {what: counts[what] for what, some in least.items() if counts[what] < some}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_long_story_loses_bytes_or_breaks_a_budget(root: Path) -> None:
    """The same in very many stories, and in some that are longer."""
    tell_all(root, list(range(STORIES, STORIES_LONG)), STEPS)
    tell_all(root, list(range(STORIES_LONG // 20)), 4 * STEPS)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(BUGS))
def test_planted_mistake_is_found(root: Path, name: str) -> None:
    """A story finds this mistake within SEEDS_MAX seeds."""
    with planted(name):
        for seed in (FOUND_BY.get(name, 0), *range(SEEDS_MAX)):
            if tell(root / "story", seed, draw_story(seed, STEPS))[1] is not None:
                return
    pytest.fail(f"{name} is not found within {SEEDS_MAX} seeds")
