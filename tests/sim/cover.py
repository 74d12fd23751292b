"""Says which branches of the storage engine a run of the simulation reaches.

    python -m tests.sim.cover --seeds 0-199

For each file: its branches, those that were taken, and the lines that were not reached. docs/simulator.md says why.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import coverage


def main() -> int:
    """Play seeds under a tracer, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cover", description=__doc__)
    parser.add_argument("--seeds", default="0-199", help="A-B, both included")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    logging.disable(logging.CRITICAL)
    root = Path(__file__).parents[2]
    parts = [str(root / one / "worker/storage/*") for one in ("", "holdfast")]
    tracer = coverage.Coverage(branch=True, include=parts, data_file=None)
    tracer.start()
    from tests.sim.scenario import run_seed  # what is imported before is not seen

    for seed in range(int(first), int(last or first) + 1):
        violation = run_seed(seed)[0]
        if violation:
            print(f"seed {seed}: {violation}", flush=True)
    tracer.stop()
    tracer.report(show_missing=True, file=sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
