"""Short form of the simulation of REDUCE partitions; the long form is `python -m tests.sim --seeds 0-9999`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenario import run_seed
from tests.sim.search import TABLE, found_seeds, search, table
from tests.support.hash_seeds import outputs_under_hash_seeds

REMEMBERED = Path(__file__).with_name("seeds.txt")
#: Where the seed that is known shows a mistake no more, so many others are tried (`python -m tests.sim.search`).
SEEDS_MAX = 300


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


@pytest.mark.timeout(1500)  # for a search, where a seed finds nothing any more
@pytest.mark.parametrize("name", sorted(found_seeds()))
def test_planted_mistake_is_found(name: str) -> None:
    """The simulation finds this mistake, by the seed that is known or soon."""
    assert search(name, range(SEEDS_MAX), found_seeds()[name]) is not None


def test_the_page_has_every_mistake() -> None:
    """The table of planted mistakes is that of the mistakes there are, and of the seeds that are known."""
    assert table(found_seeds()) in TABLE.read_text()


def test_equal_seeds_give_equal_traces() -> None:
    """A seed's trace does not depend on the interpreter's hash seed."""
    program = "from tests.sim.scenario import *; print([run_seed(s)[1].network.digest() for s in (1, 3, 6, 72)])"
    assert len(outputs_under_hash_seeds(program)) == 1
