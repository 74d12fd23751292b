"""Runs seeds of the simulation.

    python -m tests.sim [--seeds 0-9999] [--jobs 2] [--out FILE] [--bug NAME] [--level SYNCED]

Without --seeds it runs 10,000, shared among all families. With --out there is one JSON line per seed, and seeds that
are in the file already are not run again, so a run can be stopped and continued. The verdict is the exit status: 0 when
no seed found a violation.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from holdfast.common.formats.messages import Ack
from tests.sim.bugs import BUGS, planted
from tests.sim.families import add_seeds
from tests.sim.scenario import run_seed


def play(seed: int, bug: str | None, level: Ack | None) -> tuple[int, str | None, str, Counter[str]]:
    """One seed: what went wrong, its trace, and what happened in it."""
    logging.disable(logging.CRITICAL)
    with planted(bug) if bug else nullcontext():
        violation, scenario = run_seed(seed, level)
    sums = Counter(
        acknowledged=scenario.oracle.acked_batches,
        attempts=scenario.job.attempts,
        reads=scenario.job.reads,
        lost=scenario.job.lost_reads,
        faults=scenario.mischief.counts.total(),
        messages=scenario.network.messages,
    )
    return seed, violation, scenario.network.digest(), sums


def main() -> int:
    """Run seeds and print a verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    add_seeds(parser, 10_000)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="one JSON line per seed; seeds already in it are not run again")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with this mistake planted")
    parser.add_argument("--level", choices=[one.name for one in Ack], help="with this level of acknowledgements")
    args = parser.parse_args()
    done: dict[int, str | None] = {}
    if args.out and args.out.exists():
        done = {line["seed"]: line["violation"] for line in map(json.loads, args.out.read_text().splitlines())}
    seeds = [seed for span in args.seeds for seed in span if seed not in done]
    started, sums = time.monotonic(), Counter[str]()
    act = partial(play, bug=args.bug, level=Ack[args.level] if args.level else None)
    with multiprocessing.Pool(args.jobs) if args.jobs > 1 else nullcontext() as pool:
        for ran, (seed, violation, digest, counts) in enumerate((pool.imap if pool else map)(act, seeds), 1):
            done[seed] = violation
            sums += counts
            if violation:
                print(f"seed {seed}: {violation}", flush=True)
            if args.out:
                line = {"seed": seed, "violation": violation, "digest": digest}
                with args.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            if ran % 100 == 0:
                bad, rate = sum(one is not None for one in done.values()), ran / (time.monotonic() - started)
                print(f"{len(done)} seeds, {bad} unsafe, {rate:.1f} seeds/s", flush=True)
    unsafe = sum(one is not None for one in done.values())
    print(f"this run: {len(seeds)} seeds; " + ", ".join(f"{count} {name}" for name, count in sorted(sums.items())))
    print(f"VERDICT: {len(done)} seeds, {unsafe} unsafe")
    return 1 if unsafe else 0


if __name__ == "__main__":
    sys.exit(main())
