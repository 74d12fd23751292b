"""Runs a program under two hash seeds of the interpreter: what depends on the order of sets or dicts shows."""

import os
import subprocess
import sys

from tests.support.tree import ROOT


def outputs_under_hash_seeds(program: str) -> set[str]:
    """What the program prints under PYTHONHASHSEED 1 and 2; one element if it is the same."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
