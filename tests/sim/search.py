"""Finds for every planted mistake the first seed that shows it, and writes docs/internals/planted_mistakes.md.

    python -m tests.sim.search [--seeds N] [--begin SEED] [--bug NAME ...] [--keep]

The seed that was found last time is tried first; with --keep nothing more is tried where it still shows the mistake.
What is found is kept in found.json beside this file, which the default run reads. Exit status 1: some were not found.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from functools import cache
from pathlib import Path

from tests.sim.bugs import BUGS, planted
from tests.sim.copy_bugs import COPY_BUGS
from tests.sim.dfs_bugs import DFS_BUGS
from tests.sim.families import DFS_SEEDS, HOST_SEEDS, MAP_SEEDS, RESTORE_SEEDS, family_of
from tests.sim.host_bugs import HOST_BUGS
from tests.sim.map_bugs import MAP_BUGS
from tests.sim.scenario import run_seed

FOUND = Path(__file__).with_name("found.json")
TABLE = Path(__file__).parents[2] / "docs" / "internals" / "planted_mistakes.md"
#: A mistake that is not found within so many seeds is a hole in the simulation.
SEEDS_MAX = 2_000
_BEGIN, _END = "<!-- mistakes -->", "<!-- end of mistakes -->"


def found_seeds() -> dict[str, int]:
    """By mistake the seed that shows it, as far as one was found."""
    return dict(json.loads(FOUND.read_text())) if FOUND.exists() else {}


def seeds_for(name: str, count: int, begin: int | None = None) -> range:
    """The seeds in which a mistake may show: from `begin` on, else of the family of the one that is known."""
    if begin is None:
        own = (
            *((MAP_BUGS, MAP_SEEDS), (DFS_BUGS, DFS_SEEDS), (COPY_BUGS, RESTORE_SEEDS)),
            (HOST_BUGS, HOST_SEEDS),
        )
        first = next((seeds for bugs, seeds in own if name in bugs), 0)
        begin = family_of(found_seeds().get(name, first))
    return range(begin, begin + count)


def search(name: str, seeds: range, first: int | None) -> int | None:
    """The first seed that shows a mistake, and is safe without it; `first` before all others."""
    for seed in [*([] if first is None else [first]), *seeds]:
        with planted(name):
            shown = run_seed(seed)[0] is not None
        if shown and _is_safe(seed):
            return seed
    return None


@cache
def _is_safe(seed: int) -> bool:
    return run_seed(seed)[0] is None


def table(found: dict[str, int]) -> str:
    """The list of the page; the docstring of each mistake describes it."""
    return "\n".join(f"* `{name}` {found.get(name, 'not found')}" for name in sorted(BUGS))


def write(found: dict[str, int]) -> None:
    """Keep what was found, and bring the page up to date."""
    FOUND.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n")
    page = TABLE.read_text()
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    TABLE.write_text(f"{before}{_BEGIN}\n\n{table(found)}\n\n{_END}{after}")


def main() -> int:
    """Search, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.search", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--begin", type=int, help="the first seed; else that of the family of the known one")
    parser.add_argument("--bug", nargs="*", choices=sorted(BUGS))
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    found = {name: seed for name, seed in found_seeds().items() if name in BUGS}
    missing = []
    for name in args.bug or sorted(BUGS):
        known = found.pop(name, None)
        seed = search(name, seeds_for(name, args.seeds, args.begin), known if args.keep else None)
        if seed is None:
            missing.append(name)
        else:
            found[name] = seed
        print(f"{name}: {'not found' if seed is None else f'seed {seed}'}", flush=True)
        write(found)
    print(f"{len(found)} of {len(BUGS)} mistakes are found" + (f"; not {', '.join(missing)}" if missing else ""))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
