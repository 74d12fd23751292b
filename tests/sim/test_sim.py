"""Short form of the simulation of REDUCE partitions; the long form is `python -m tests.sim --seeds 0-9999`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.bugs import BUGS, planted
from tests.sim.scenario import run_seed
from tests.support.hash_seeds import outputs_under_hash_seeds

REMEMBERED = Path(__file__).with_name("seeds.txt")
#: Within so many seeds every planted mistake is found.
SEEDS_MAX = 500
#: Mistakes that take tens of seeds; the others take a few.
RARE = frozenset(
    {
        "long_poll_left_behind",
        "revived_twice",
        "sealed_empty_after_reboot",
        "seen_before_answered_ok_with_one_copy",
        "wiped_directory_vouched_for",
    }
)


def remembered() -> list[int]:
    """Seeds that failed once, for the product or for the simulation."""
    lines = REMEMBERED.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def test_the_product_is_safe() -> None:
    """No checker objects in any of these seeds, those that once failed first; shuffles are written, read and lost."""
    acknowledged = reads = lost = 0
    for seed in [*remembered(), *range(40)]:
        violation, scenario = run_seed(seed)
        assert violation is None, f"seed {seed}: {violation}"
        acknowledged += scenario.oracle.acked_batches
        reads += scenario.job.reads
        lost += scenario.job.lost_reads
    assert acknowledged > 1000
    assert reads - lost > 150
    assert lost > 0


def find(name: str) -> int:
    """The first seed that finds a planted mistake."""
    with planted(name):
        for seed in range(SEEDS_MAX):
            if run_seed(seed)[0] is not None:
                return seed
    pytest.fail(f"{name} is not found within {SEEDS_MAX} seeds")


@pytest.mark.parametrize("name", sorted(BUGS.keys() - RARE))
def test_planted_mistake_is_found(name: str) -> None:
    """The simulation finds this mistake."""
    find(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RARE))
def test_rare_planted_mistake_is_found(name: str) -> None:
    """The simulation finds this mistake, too, with more seeds."""
    find(name)


def test_equal_seeds_give_equal_traces() -> None:
    """A seed's trace does not depend on the interpreter's hash seed."""
    program = "from tests.sim.scenario import *; print([run_seed(s)[1].network.digest() for s in (3, 7, 72)])"
    assert len(outputs_under_hash_seeds(program)) == 1
