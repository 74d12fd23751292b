"""Runs seeds of the simulation of REDUCE partitions.

    python -m tests.sim --seeds 0-9999 [--out FILE] [--bug NAME]

With --out there is one JSON line per seed, and seeds that are in the file already are not run again, so a run can be
stopped and continued. The verdict is the exit status: 0 when no seed found a violation.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from tests.sim.bugs import BUGS, planted
from tests.sim.scenario import run_seed


def main() -> int:
    """Run seeds and print a verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", default="0-199", help="A-B, both included")
    parser.add_argument("--out", type=Path, help="one JSON line per seed; seeds already in it are not run again")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with this mistake planted")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first, _, last = args.seeds.partition("-")
    done: dict[int, str | None] = {}
    if args.out and args.out.exists():
        done = {line["seed"]: line["violation"] for line in map(json.loads, args.out.read_text().splitlines())}
    started, ran = time.monotonic(), 0
    sums: Counter[str] = Counter()
    with planted(args.bug) if args.bug else nullcontext():
        for seed in range(int(first), int(last or first) + 1):
            if seed in done:
                continue
            done[seed], scenario = run_seed(seed)
            ran += 1
            sums += Counter(
                acknowledged=scenario.oracle.acked_batches,
                attempts=scenario.job.attempts,
                reads=scenario.job.reads,
                lost=scenario.job.lost_reads,
                faults=scenario.mischief.counts.total(),
                messages=scenario.network.messages,
            )
            if done[seed]:
                print(f"seed {seed}: {done[seed]}", flush=True)
            if args.out:
                line = {"seed": seed, "violation": done[seed], "digest": scenario.network.digest()}
                with args.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            if ran % 100 == 0:
                bad, rate = sum(one is not None for one in done.values()), ran / (time.monotonic() - started)
                print(f"{len(done)} seeds, {bad} unsafe, {rate:.1f} seeds/s", flush=True)
    unsafe = sum(one is not None for one in done.values())
    print(f"this run: {ran} seeds; " + ", ".join(f"{count} {name}" for name, count in sorted(sums.items())))
    print(f"VERDICT: {len(done)} seeds, {unsafe} unsafe")
    return 1 if unsafe else 0


if __name__ == "__main__":
    sys.exit(main())
