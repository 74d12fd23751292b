"""A byte flipped in a committed file, and then read by Spark: with another copy nobody notices, without one the maps
run again and the answer is right. A wrong row is never seen."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, Server, local_cluster
from holdfast.tools.drills.spark.driver import SparkProcess, spark
from holdfast.tools.drills.spark.events import Ran

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROWS = 4_000
FLIPS = 8


def committed(worker: Server, cluster: LocalCluster) -> list[Path]:
    """The sealed files of partitions that the worker has."""
    data = cluster.directory / worker.name / "data"
    return sorted([*data.rglob("*.part"), *data.rglob("*.pack")])


def flip(path: Path, offset: int, mask: int) -> None:
    """Change a byte in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ mask]))


async def digest(process: SparkProcess, label: str, **asked: int) -> str:
    """What an RDD and a DataFrame sum up to; `asked` makes new ones."""
    answer = await process.ask(label=label, **asked)
    assert "error" not in answer, answer
    found: str = answer["digest"]
    return found


async def trials(cluster: LocalCluster, copies: int) -> dict[str, Ran]:
    """Make shuffles, damage one file of the first worker that was made for them, read; what ran for each read."""
    chance = random.Random(copies)
    reads: dict[str, Ran] = {}
    async with spark(cluster.directory / "spark", cluster.endpoints, "local[2,4]", copies, {}, ()) as process:
        first = await digest(process, "warm up", reuse=ROWS)
        for trial in places(chance):
            before = set(committed(cluster.workers[0], cluster))
            assert await digest(process, "made", reuse=ROWS) == first
            path = chance.choice(sorted(set(committed(cluster.workers[0], cluster)) - before))
            offset = int(path.stat().st_size * trial)
            flip(path, offset, chance.randrange(1, 256))
            label = f"byte {offset} of {path.stat().st_size} of {path.name}"
            assert await digest(process, label) == first, f"a wrong row after a flip of {label}"
            reads[label] = Ran()
    events = process.events()
    return {label: events[label] for label in reads}


def places(chance: random.Random) -> Iterator[float]:
    """Where in its file a byte is flipped, as shares of its length: all over it."""
    for number in range(FLIPS):
        yield (number + chance.random()) / FLIPS


def test_with_another_copy_nobody_notices(tmp_path: Path) -> None:
    """Bytes all over the committed files of one worker are flipped: the other copy is read, and nothing runs again."""
    with local_cluster(masters=1, workers=2, dir=tmp_path) as cluster:
        reads = asyncio.run(trials(cluster, 2))
    assert len(reads) == FLIPS
    for label, ran in reads.items():
        assert (ran.fetch_failures, ran.maps, ran.stages_again) == (0, 0, 0), label
        assert ran.ends, label


def test_without_another_copy_the_stage_runs_again(tmp_path: Path) -> None:
    """The same where there is one copy: what is damaged is computed again, and the answer is right each time."""
    with local_cluster(masters=1, workers=1, dir=tmp_path) as cluster:
        reads = asyncio.run(trials(cluster, 1))
    noticed = [label for label, ran in reads.items() if ran.fetch_failures]
    assert len(noticed) >= FLIPS // 2, "most bytes of a file are data"
    for label, ran in reads.items():
        assert bool(ran.maps) == bool(ran.fetch_failures), label
