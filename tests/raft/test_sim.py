"""Short form of the Raft simulation; the long form is `python -m tests.raft.sim --seeds 0-19999`."""

from __future__ import annotations

from tests.raft.sim import TIGHT, as_is_unplugged, hardened, remembered, run_seed
from tests.support.hash_seeds import outputs_under_hash_seeds


def test_the_product_is_safe() -> None:
    """No oracle objects in any of these seeds, those that once failed first; commands and reads are answered."""
    acked = reads = 0
    for seed in [*remembered(), *range(35), *range(TIGHT, TIGHT + 15)]:
        violation, scenario = run_seed(hardened, seed)
        assert violation is None, f"seed {seed}: {violation}"
        acked += len(scenario.world.oracle.acked)
        reads += scenario.world.oracle.reads
    assert acked > 1000
    assert reads > 100


def test_row_1_on_the_library_as_it_is() -> None:
    """Crashes that lose what was not synced break the library alone in most seeds: the simulation can see it."""
    assert sum(run_seed(as_is_unplugged, seed)[0] is not None for seed in range(8)) >= 3


def test_equal_seeds_give_equal_traces() -> None:
    """A seed's trace does not depend on the interpreter's hash seed."""
    program = "from tests.raft.sim import *; print([run_seed(hardened, s)[1].world.digest() for s in (3, 7)])"
    assert len(outputs_under_hash_seeds(program)) == 1
