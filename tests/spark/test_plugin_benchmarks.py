"""The benchmarks run, in their smallest size, and say what they promise to say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.disk_operations import refusal
from tests.support.tree import ROOT

HOLDFASTS = ("holdfast", "secure", "jar-free")
pytestmark = pytest.mark.timeout(900)


def printed(module: str, *words: str) -> list[dict[str, Any]]:
    """What `python -m benchmarks.MODULE` prints, line by line."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(map(json.loads, done.stdout.splitlines()))


#: A service that is Spark's own shuffle.
SERVICE = {
    "spark.conf": "# settings\nspark.local.dir={data}\n",
    "start": '#!/bin/sh\n[ -d "$1" ] && echo ready\nexec sleep 900\n',
}


def described(place: Path) -> str:
    """Put the service there, and name it for a command line."""
    for name, text in SERVICE.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return f"other={place}"


@pytest.mark.parametrize(
    ("workload", "sides"),
    [
        ("small", ("holdfast", "floor")),  # each side is a JVM; all of them are for the long form
        pytest.param("big", ("spark", "holdfast", "secure", "jar-free", "other", "floor"), marks=pytest.mark.long),
    ],
)
def test_sides_are_compared(workload: str, sides: tuple[str, ...], tmp_path: Path) -> None:
    """Every side runs the same workload in each round, Holdfast's through their workers, and has a line at the end, and
    a row in the table and a bar in the picture, which say how to measure it again."""
    files = ("--table", f"{tmp_path}/table.md", "--picture", f"{tmp_path}/picture.svg")
    words = (workload, "--sides", *sides, "--pairs", "1", "--warm", "0", "--scale", "0.004", *files)
    first, *ends = printed("compare", *words, "--service", described(tmp_path))
    assert (first["workload"], first["round"]) == (workload, 0)
    assert list(first["pushed_fetched_kib"]) == [side for side in sides if side in HOLDFASTS]
    assert [each["side"] for each in ends] == list(sides)
    assert ends[0]["ratio"] == [1.0, 1.0, 1.0]
    assert ends[-1]["floor_ratio"] == [1.0, 1.0, 1.0]
    assert all(each["seconds"][0] > 0 for each in ends)
    written, drawn = ((tmp_path / name).read_text() for name in ("table.md", "picture.svg"))
    for side in sides[1:]:
        assert f"| `{workload}` | {side} |" in written
        assert f"<title>{side}, {workload}: " in drawn
    assert f"python -m benchmarks.compare {workload} --sides" in written


@pytest.mark.long
@pytest.mark.skipif(bool(refusal()), reason=refusal())
def test_disk_operations_are_counted(tmp_path: Path) -> None:
    """All sides shuffle the same rows on disks of their own; maps write there, and reducers read from the device what
    the page cache had, and not from it."""
    *stages, end, other = printed("disk_operations", "big", "--scale", "0.004", "--service", described(tmp_path))
    assert [(each["side"], each["stage"]) for each in stages] == [
        (side, stage) for side in ("spark", "holdfast", "other") for stage in ("map", "reduce")
    ]
    assert [(each["side"], each["rows"]) for each in (end, other)] == [("holdfast", "32000"), ("other", "32000")]
    for mapped, reduced in (stages[:2], stages[2:4], stages[4:]):
        assert mapped["written_bytes"] > mapped["shuffled_bytes"] * 0.9
        assert reduced["read_bytes"] > reduced["shuffled_bytes"] * 0.9
        assert reduced["sequential_reads"] is None or 0 <= reduced["sequential_reads"] <= 1
        assert min(mapped["seconds"], reduced["seconds"]) > 0
    assert end["reads_ratio"] > 0
    assert end["seconds_ratio"] > 0
