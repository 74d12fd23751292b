"""Random stories about the storage of a worker with tiers: nothing is lost, doubled or over its budget.

Epochs are pushed at all levels, sealed, moved, read while they move, and forgotten; disks fill and fail, the DFS goes
and comes back, indexes are lost, and the worker is killed at any step of all that. After each step the model is
compared with what is there (tests/support/storage_story.py). A story that ends badly names its seed and its shortest
form.
"""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.support.storage_model import Step, draw_story, shorten
from tests.support.storage_story import tell

STEPS = 60
#: Seeds of the default run, and of the long one.
FEW, MANY = range(12), range(100, 600)
#: What all stories of a run together must have come to.
SEEN = ("killed", "moves failed", "read away", "pushed HARD_SPLIT", "sealed OK", "forget", "lose_index", "lose_dfs")


def told(root: Path, seeds: range) -> Counter[str]:
    """Tell these stories; return what was counted in all of them."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        steps = draw_story(seed, STEPS)
        problem = problem_of(root / "story", seed, steps, counts)
        if problem:
            short = shorten(steps, partial(fails, root / "story", seed))
            pytest.fail(f"seed {seed}: {problem}; in short: {short}")
    return counts


def problem_of(root: Path, seed: int, steps: list[Step], counts: Counter[str]) -> str:
    """What goes wrong in a story; "" if nothing does."""
    try:
        counts.update(tell(root, seed, steps))
    except Exception as error:  # noqa: BLE001 - whatever it is, the story is told again, shorter
        return f"{type(error).__name__}: {error}"
    return ""


def fails(root: Path, seed: int, steps: list[Step]) -> bool:
    """Whether a story ends badly."""
    return bool(problem_of(root, seed, steps, Counter()))


def test_no_story_loses_bytes_or_breaks_a_budget(tmp_path: Path) -> None:
    """Some stories, the same every time; together they come to everything that stories are about."""
    counts = told(tmp_path, FEW)
    assert [what for what in SEEN if not counts[what]] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_story_of_many_loses_bytes_or_breaks_a_budget(tmp_path: Path) -> None:
    """The same with very many."""
    counts = told(tmp_path, MANY)
    assert [what for what in SEEN if not counts[what]] == []
