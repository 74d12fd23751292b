"""The driver killed with -9: a new one attaches, reads and continues; without one, leases expire and data is deleted.

Each round starts a driver, a process of its own, that pushes and commits shuffles one after the other, and kills it at
a random moment. In every other round a new driver attaches before the lease is over: it must read everything that was
committed, end the shuffle that was not (its maps run again, as another driver's would), and push one of its own. In the
others none does. At the end no application may be left: none before its lease was over, and all of them, with their
files, after lease and grace.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.session import Session
from holdfast.common.errors import ConflictError
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system import process
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.support import jobs
from holdfast.tools.drills.support.driver_process import PUSH_SECONDS
from holdfast.tools.drills.support.report import DrillError, Report, Step

#: The lease of the drivers: some renewals fit into it, and a round does not wait long for its end.
LEASE_SECONDS = 3.0
#: A driver may have renewed its lease for the last time a third of it before it was killed.
_LEAST_SECONDS = LEASE_SECONDS * 2 / 3
#: A staging cluster has a grace of its own, by default a minute.
GROUND = Ground(workers=2, settings={"lease": {"deletion_grace": "1s"}})
_COMMITTED_SECONDS_MAX = 60.0
#: From the kill until the masters have dropped an application: lease, grace, and a leader that has to be found.
_GONE_SECONDS_MAX = 180.0
#: Workers ask every ten seconds what they may delete.
_DELETED_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.05


@dataclass(slots=True)
class _Driver:
    """What is known of a driver that was started."""

    app: str
    instance: bytes = b""
    #: shuffle -> seed
    begun: dict[int, int] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    #: when
    killed: float = 0.0


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step, *, files: bool = True) -> None:
    """Run the rounds; with `files` also wait until the files are deleted. Raises DrillError when something does not
    happen in time."""
    drivers: list[_Driver] = []
    with ThreadPoolExecutor(1, thread_name_prefix="drill-driver") as launcher:
        for number in range(report.rounds):
            app = f"drill driver {report.seed} {number}"
            driver = await _run_and_kill(cluster, app, report, rng, launcher)
            drivers.append(driver)
            if number % 2 == 0:
                async with jobs.no_client_error(report):
                    await _go_on(cluster, driver, report, rng)
                    report.counts["drivers that another one followed"] += 1
            else:
                report.counts["drivers without a successor"] += 1
            report.done += 1
            step(f"{report.counts['shuffles read']} shuffles read, {report.failed} broken promises")
    await _all_gone(cluster, drivers, report)
    if files:
        await _all_deleted(cluster, drivers, report)


async def _run_and_kill(
    cluster: LocalCluster, app: str, report: Report, rng: random.Random, launcher: ThreadPoolExecutor
) -> _Driver:
    """Start a driver, let it commit something, and kill it."""
    words = [cluster.endpoints, app, str(LEASE_SECONDS), str(rng.getrandbits(32))]
    command = [sys.executable, "-P", "-m", "holdfast.tools.drills.support.driver_process", *words]
    wanted = rng.randint(1, 2)
    with tempfile.TemporaryDirectory(prefix="holdfast-driver-") as folder:
        log = Path(folder) / "driver.log"
        running = launcher.submit(process.spawn, command, log=log).result()
        driver = _Driver(app)
        try:

            def far_enough() -> bool:
                _hear(driver, log)
                return len(driver.committed) >= wanted or running.poll() is not None

            if not await asyncio.to_thread(wait_until, far_enough, _COMMITTED_SECONDS_MAX):
                raise DrillError(f"the driver has committed nothing after {_COMMITTED_SECONDS_MAX:.0f} s")
            if running.poll() is not None:
                raise DrillError(f"the driver ended by itself: {log.read_text('utf-8')[-1000:]}")
            await asyncio.sleep(rng.uniform(0.0, PUSH_SECONDS))
        finally:
            running.kill()
            running.wait()
        driver.killed = time.monotonic()
        report.killed("a driver")
        _hear(driver, log)
    return driver


def _hear(driver: _Driver, log: Path) -> None:
    """Learn what the driver said; a last line may be cut."""
    driver.committed.clear()
    for line in log.read_text("utf-8", errors="replace").splitlines(keepends=True):
        if line.startswith("{") and line.endswith("}\n"):
            said = json.loads(line)
            driver.instance = bytes.fromhex(said["instance"]) if "instance" in said else driver.instance
            if "begun" in said:
                driver.begun[said["begun"]] = said["seed"]
            if "committed" in said:
                driver.committed.append(said["committed"])


# A new driver.


async def _go_on(cluster: LocalCluster, driver: _Driver, report: Report, rng: random.Random) -> None:
    late = driver.killed + rng.uniform(0.0, 0.6) * LEASE_SECONDS
    await asyncio.sleep(max(0.0, late - time.monotonic()))
    report.event(f"attached {time.monotonic() - driver.killed:.1f} s after the kill")
    await asyncio.to_thread(_attach, cluster, driver, report, rng.getrandbits(32))


def _attach(cluster: LocalCluster, driver: _Driver, report: Report, seed: int) -> None:
    """What a new driver does. Raises the errors of its calls. Blocks."""
    with Session(
        cluster.endpoints, app=driver.app, attach=True, lease_seconds=LEASE_SECONDS, credentials=cluster.credentials
    ) as session:
        report.check("a new driver attaches", session.instance == driver.instance, "it attached to something else")
        for number in driver.committed:
            shuffle = session.open_reduce_shuffle(number)
            found = jobs.contents(jobs.reader_of(shuffle, range(jobs.PARTITIONS)))
            jobs.check_contents(report, shuffle, jobs.wanted_of(driver.begun[number], range(jobs.PARTITIONS)), found)
            report.counts["shuffles read"] += 1
        for number in driver.begun.keys() - set(driver.committed):
            job = jobs.Job(session, report, driver.begun[number], shuffle_id=number)
            asyncio.run(job.push(0.0, attempts_from=jobs.MAPS))
            try:
                job.commit()
            except ConflictError:  # the driver's commit had arrived when it was killed, and is valid
                report.counts["commits that had arrived"] += 1
            job.check_read()
            report.counts["shuffles ended for the killed driver"] += 1
        own = jobs.Job(session, report, seed)
        asyncio.run(own.push(0.0))
        own.commit()
        own.check_read()


# The end of leases.


async def _all_gone(cluster: LocalCluster, drivers: list[_Driver], report: Report) -> None:
    """Wait until the masters have dropped every application."""
    async with ControlClient(cluster.endpoints, cluster.credentials) as control:
        left = list(drivers)
        deadline = time.monotonic() + _GONE_SECONDS_MAX
        while left and time.monotonic() < deadline:
            for driver in list(left):
                listed = await control.call("Admin/ListShuffles", pb.ListShufflesRequest(instance=driver.instance))
                if not any(each.state != "dropped" for each in listed.shuffles):
                    left.remove(driver)
                    lasted = time.monotonic() - driver.killed
                    wrong = f"{driver.app} was dropped {lasted:.1f} s after its driver was killed"
                    report.check("no lease ends early", lasted >= _LEAST_SECONDS, wrong)
                    report.time("from the kill to the end of the application", lasted)
            await asyncio.sleep(_LOOK_SECONDS)
        names = ", ".join(driver.app for driver in left)
        report.check("leases end", not left, f"after {_GONE_SECONDS_MAX:.0f} s there still is {names}")


async def _all_deleted(cluster: LocalCluster, drivers: list[_Driver], report: Report) -> None:
    """Wait until the workers have deleted what was dropped."""
    began = time.monotonic()
    wanted = [driver.instance.hex() for driver in drivers]
    gone = await asyncio.to_thread(wait_until, lambda: not _files(cluster, wanted), _DELETED_SECONDS_MAX)
    report.check("files are deleted", gone, f"still there: {', '.join(map(str, _files(cluster, wanted)[:3]))}")
    report.time("until all files are deleted", time.monotonic() - began)


def _files(cluster: LocalCluster, instances: list[str]) -> list[Path]:
    """Folders of these applications below the workers' directories; none where these are on other machines."""
    roots = [cluster.directory / worker.name / "data" for worker in cluster.workers]
    return [root / each for root in roots for each in instances if (root / each).exists()]
