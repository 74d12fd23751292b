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
#: A seed that finds a mistake, for those that the first few do not find. Looked at first, so that this takes no time; a
#: change of the scenario makes some of them useless, and the search begins at 0.
FOUND_BY = {
    "body_not_checked": 50,
    "chunk_number_kept_for_the_other_copy": 9,
    "commit_waits_for_nobody": 164,
    "failed_write_forgotten": 130,
    "last_ignored": 9,
    "left_is_always_vouched_for": 4,
    "long_poll_left_behind": 131,
    "replica_traffic_without_reserve": 46,
    "resent_under_another_epoch_unseen": 22,
    "retried_call_applied_again": 81,
    "revive_during_commit": 18,
    "sealed_accepts_again": 39,
    "sealed_empty_after_reboot": 17,
    "sealing_epoch_accepts": 44,
    "seen_before_answered_ok_with_one_copy": 51,
    "small_window_kept_in_line": 22,
    "sync_retried_after_error": 65,
    "torn_batch_kept": 41,
    "torn_batch_taken_for_damage": 217,
    "unknown_from_a_stale_leader": 329,
    "wiped_directory_vouched_for": 160,
}


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
@pytest.mark.parametrize("name", sorted(BUGS))
def test_planted_mistake_is_found(name: str) -> None:
    """The simulation finds this mistake within SEEDS_MAX seeds."""
    first = FOUND_BY.get(name, 0)
    assert first < SEEDS_MAX
    with planted(name):
        for seed in (first, *range(SEEDS_MAX)):
            if run_seed(seed)[0] is not None:
                return
    pytest.fail(f"{name} is not found within {SEEDS_MAX} seeds")


def test_equal_seeds_give_equal_traces() -> None:
    """A seed's trace does not depend on the interpreter's hash seed."""
    program = "from tests.sim.scenario import *; print([run_seed(s)[1].network.digest() for s in (1, 3, 6, 72)])"
    assert len(outputs_under_hash_seeds(program)) == 1
