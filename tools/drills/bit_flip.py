"""Bytes flipped in data and index files: every read is right, or an error that names the chunk; with two copies right.

Each round commits a shuffle of REDUCE partitions with one copy, one with two, and one of MAP files; then bytes of one
worker's files are flipped: while it runs (data), or while it is away after a kill -9 (data and index). Every partition
is read by itself. What was pushed with two copies must be right, since only one worker was touched; with one copy it
must be right, or a CorruptError or DataLostError with the names of shuffle and partition. The worker must start, and
take the next round's data.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.session import Session
from holdfast.client.shuffle import MapShuffle
from holdfast.common.errors import DataError, HoldfastError
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.support import jobs, servers
from holdfast.tools.drills.support.report import Report, Step

GROUND = Ground(masters=1, workers=2)
#: Bytes flipped in a round, of data and of the index.
DATA_FLIPS, INDEX_FLIPS = 6, 6
_RECORDS = 120
_PUSH_SECONDS = 0.0
_PAGE_BYTES = 4096
_SEALED = (".part", ".pack", ".map")


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Run the rounds. Raises DrillError when something does not happen in time."""
    with Session(cluster.endpoints, app="drill bit-flip") as session:
        for _ in range(report.rounds):
            async with jobs.no_client_error(report):
                await _round(cluster, session, report, rng)
            report.done += 1
            step(f"{report.counts['partitions refused by name']} refused, {report.failed} broken promises")


async def _round(cluster: LocalCluster, session: Session, report: Report, rng: random.Random) -> None:
    pushed = [
        await asyncio.to_thread(jobs.Job, session, report, rng.getrandbits(32), copies=copies, records=_RECORDS)
        for copies in (1, 2)
    ]
    for job in pushed:
        await job.push(_PUSH_SECONDS)
        await asyncio.to_thread(job.commit)
    seed = rng.getrandbits(32)
    maps = await asyncio.to_thread(_write_maps, session, seed)
    worker = rng.choice(cluster.workers)
    root = cluster.directory / worker.name
    shuffles = [*(job.shuffle for job in pushed), maps]
    below = root / "data" / session.instance.hex()
    folders = [found for each in shuffles for found in below.glob(f"{each.key.shuffle}-0-*")]
    if rng.random() < 0.5:
        await asyncio.to_thread(_flip_data, folders, report, rng)
        report.counts["flipped in a running worker"] += 1
    else:
        await servers.kill([worker], report)
        await asyncio.to_thread(_flip_data, folders, report, rng)
        await asyncio.to_thread(_flip_index, root, report, rng)
        await servers.start([worker])
        with report.until("the masters do not accept the worker whose files were damaged"):
            await servers.registered([worker])
        report.check("a worker with damaged files starts", True, "")
    for job in pushed:
        await asyncio.to_thread(_judge, report, job.copies, str(job.shuffle.key), job.read, job.wanted)
    await asyncio.to_thread(_judge_maps, report, maps, seed)
    for shuffle in shuffles:
        await asyncio.to_thread(shuffle.unregister)


# Damage.


def _flip_data(folders: list[Path], report: Report, rng: random.Random) -> None:
    """In sealed files of this round."""
    files = sorted(path for folder in folders for path in folder.glob("*") if path.suffix in _SEALED)
    for _ in range(DATA_FLIPS):
        path = rng.choice(files)
        flip(path, rng.randrange(path.stat().st_size), rng, report)


def _flip_index(root: Path, report: Report, rng: random.Random) -> None:
    """Pages differ in how much of them is used, and what is used lies at their ends."""
    path = root / "index" / "data.mdb"
    for _ in range(INDEX_FLIPS):
        page = rng.randrange(path.stat().st_size // _PAGE_BYTES)
        within = rng.choice((rng.randrange(_PAGE_BYTES), rng.randrange(64), _PAGE_BYTES - 1 - rng.randrange(1024)))
        flip(path, page * _PAGE_BYTES + within, rng, report)


def flip(path: Path, offset: int, rng: random.Random, report: Report) -> None:
    """Change the byte of a file at an offset to any other."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ rng.randrange(1, 256)]))
    report.counts["bytes flipped"] += 1
    report.event(f"flipped byte {offset} of {path}")


# Judging.


def _judge(
    report: Report,
    copies: int,
    named: str,
    read: Callable[[range], jobs.Contents],
    wanted: Callable[[range], jobs.Contents],
) -> None:
    """Read each partition by itself: right, or with one copy an error that says where."""
    for partition in range(jobs.PARTITIONS):
        one = range(partition, partition + 1)
        try:
            found = read(one)
        except DataError as error:
            named_there = f"shuffle {named}" in str(error) and f"partition {partition}" in str(error)
            report.check("an error names what is damaged", named_there, f"an error that does not say where: {error}")
            wrong = f"{named} partition {partition} has two copies, of which one was not touched: {error}"
            if copies == 2:
                report.check("with two copies every read is right", False, wrong)
            report.counts["partitions refused by name"] += 1
        except HoldfastError as error:
            wrong = f"{named} partition {partition}: {type(error).__name__}: {error}"
            report.check("a read is right, or refused as damaged", False, wrong)
        else:
            wrong = f"{named} partition {partition}: wrong data was delivered"
            report.check("a read is right, or refused as damaged", found == wanted(one), wrong)
            if copies == 2:
                report.check("with two copies every read is right", True, "")


def _write_maps(session: Session, seed: int) -> MapShuffle:
    shuffle = session.register_map_shuffle(jobs.PARTITIONS, jobs.MAPS)
    statuses = []
    for map_id in range(jobs.MAPS):
        with shuffle.writer(map_id, map_id) as writer:
            writer.write_region(sorted(jobs.records_of(seed, map_id, _RECORDS)))
            statuses.append(writer.close())
    shuffle.commit(statuses)
    return shuffle


def _judge_maps(report: Report, shuffle: MapShuffle, seed: int) -> None:
    def read(partitions: range) -> jobs.Contents:
        return jobs.contents(shuffle.reader(partitions))

    _judge(report, 1, str(shuffle.key), read, lambda partitions: jobs.wanted_of(seed, partitions, _RECORDS))
