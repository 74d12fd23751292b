"""The benchmarks run, in their smallest size, and say what they promise to say."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.tree import ROOT

pytestmark = pytest.mark.timeout(900)


def printed(module: str, *words: str) -> list[dict[str, Any]]:
    """What `python -m benchmarks.MODULE` prints, line by line."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize(
    ("workload", "sides"),
    [
        ("small", ("spark", "holdfast")),
        pytest.param("big", ("spark", "holdfast", "secure", "jar-free"), marks=pytest.mark.long),
    ],
)
def test_sides_are_compared(workload: str, sides: tuple[str, ...]) -> None:
    """Every side runs the same workload in each round, Holdfast's through their workers, and has a line at the end."""
    rounds = ("--pairs", "1", "--warm", "0", "--scale", "0.004")
    first, *ends = printed("compare", workload, "--sides", *sides, *rounds)
    assert (first["workload"], first["round"]) == (workload, 0)
    assert list(first["pushed_fetched_kib"]) == [side for side in sides if side != "spark"]
    assert [each["side"] for each in ends] == list(sides)
    assert ends[0]["ratio"] == [1.0, 1.0, 1.0]
    assert all(each["seconds"][0] > 0 for each in ends)
