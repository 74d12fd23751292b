"""Flips bytes and cuts files of a storage directory, and checks that nothing is forgotten and nothing is wrong.

`python -m tests.flips.run --flips 1000 --truncations 200 [--seed N]`. For every damage, in a child process:

* verify names the damaged file, and region, partition and offset if it is in data; if it finds no damage, then the byte
  is one of the index to which nothing refers (all records are the same), and it says that there are such bytes;
* the store opens; every sealed file gives its rows, or a typed error if verify named it; none is unknown or unsealed;
* the same after a file was written, forgotten and written again, and the store opened once more: a damage that was not
  seen may not do harm later.

Prints the first breach with the damage that shows it, and exits 1.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from holdfast.common.ids import MapFileKey
from holdfast.worker.storage import names
from holdfast.worker.storage.index.records import EpochRecord
from tests.flips.trial import Damage, Outcome, choose, make_directory, run_trial
from tests.support.forks import DiedError, finish, start

AT_ONCE = 2


def trial(damage: Damage, base: Path, root: Path, records: dict[MapFileKey, EpochRecord]) -> tuple[int, int]:
    """Start a trial in a child."""
    return start(lambda: run_trial(damage, base, root, records))


def outcome_of(damage: Damage, child: tuple[int, int]) -> Outcome:
    """Wait for a trial; a child that dies is a breach."""
    try:
        outcome = finish(*child)
    except DiedError as died:
        return Outcome(damage, str(died), "")
    assert isinstance(outcome, Outcome)
    return outcome


def run(flips: int, truncations: int, seed: int, progress: bool = False) -> tuple[Counter[str], list[Outcome]]:
    """Run all trials; return what was seen, and the breaches."""
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    breaches = []
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory) / "base"
        records = make_directory(base)
        damages = [choose(chance, base, cut=number >= flips) for number in range(flips + truncations)]
        for first in range(0, len(damages), AT_ONCE):
            group = damages[first : first + AT_ONCE]
            children = [trial(one, base, Path(directory) / str(first + n), records) for n, one in enumerate(group)]
            for damage, child in zip(group, children, strict=True):
                outcome = outcome_of(damage, child)
                what = "cut" if not damage.mask else "flip"
                where = {names.INDEX_DATA: "index"}.get(damage.path, "data" if damage.path.endswith("map") else "small")
                seen[f"{what} {where} {outcome.seen or 'breach'}"] += 1
                if outcome.breach:
                    breaches.append(outcome)
            if progress and first % 100 == 0:
                print(f"{first + len(group)} of {len(damages)}, {len(breaches)} breaches", flush=True)
    return seen, breaches


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1_000)
    parser.add_argument("--truncations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seen, breaches = run(arguments.flips, arguments.truncations, arguments.seed, progress=True)
    for what, count in sorted(seen.items()):
        print(f"{count:6} {what}")
    for outcome in breaches[:10]:
        print(f"BREACH {outcome.damage}: {outcome.breach}")
    print(f"{len(breaches)} breaches in {sum(seen.values())} trials, seed {arguments.seed}")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
