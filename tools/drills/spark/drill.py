"""A Spark job with the plug-in while servers or executors are killed: equal answers, and nothing computed twice.

REUSE: each round reads a shuffled RDD and a shuffled DataFrame, and reads them again; then the worker is killed with -9
and started again, and they are read once more; the same with all masters, and with masters and workers together. No map
may run again. The others run queries in turn while something is killed every so often, and comes back: the LEADER of
the masters, a WORKER, all workers of as many HOSTS or RACKS as there are copies but one, or one of the EXECUTORS;
ROLLING kills no process, the workers are stopped in order and started again, one after the other. Every answer must be
the undisturbed one, no stage may run a second time, no fetch may fail. Spark's own listener reports what ran, in the
event log.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, cycle
from statistics import median
from typing import Any

import psutil

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.connection.direct import worker_status
from holdfast.client.session import Session
from holdfast.common.errors import ConfigError
from holdfast.common.system.tasks import awaited
from holdfast.tools.drills import rolling
from holdfast.tools.drills.failure_domain import HOST, RACK, FailureDomain
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.spark import queries as spark_queries
from holdfast.tools.drills.spark.driver import SparkProcess, spark
from holdfast.tools.drills.spark.events import Ran
from holdfast.tools.drills.spark.queries import Query, Workload
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.report import DrillError, Report, Step

#: A leader that is killed may stop a job for so long at p99.
STALL_SECONDS = 2.0
STALL = "longest time without a task that ended, in queries with one kill"
#: Longest that a killed worker stays away.
_AWAY_SECONDS = 2.0
_ROWS = 200_000
_REUSE_ROWS = 50_000
#: How often each query is run before anything is killed, after a first time that does not count.
_UNDISTURBED = 2
#: What a read after a restart may take: so many times the undisturbed one, plus the restart. Told, not judged.
_REUSE_FACTOR = 1.2


class Killed(StrEnum):
    """What is killed."""

    REUSE = "reuse"
    LEADER = "leader"
    WORKER = "worker"
    HOST = "host"
    RACK = "rack"
    ROLLING = "rolling"
    EXECUTORS = "executors"


#: Seconds from one kill to the next.
EVERY = (
    dict.fromkeys(Killed, 5.0) | dict.fromkeys((Killed.WORKER, Killed.HOST, Killed.RACK), 10.0) | {Killed.REUSE: 0.0}
)
#: What is killed whole.
_DOMAINS = {Killed.HOST: HOST, Killed.RACK: RACK}
_MASTERS = {Killed.EXECUTORS: "local-cluster[2,1,1024]"}
_LOCAL = "local[2,4]"  # a task may fail, or one failure would be all that is seen of a fault


def ground(killed: Killed, copies: int) -> Ground:
    """The cluster that the drill wants: those that are left must be able to hold so many copies. Raises ConfigError."""
    if (domain := _DOMAINS.get(killed)) is not None:
        if copies == 1:
            raise ConfigError(f"with one copy the loss of a {killed} is a loss: give --copies 2 or more")
        # What a query writes while racks are away is on those that are left, and has to survive the next ones: of racks
        # the ground is for the drill that pushes, which waits for all to be back. That of hosts has enough.
        return domain.ground(copies if domain is HOST else 2 * copies - 1)
    return Ground(workers=1 if killed is Killed.REUSE and copies == 1 else copies + 1)


async def drill(
    cluster: LocalCluster,
    report: Report,
    rng: random.Random,
    step: Step,
    *,
    killed: Killed,
    copies: int = 1,
    every: float | None = None,
    workload: Workload | None = None,
    master: str | None = None,
) -> None:
    """Run `report.rounds` rounds, each with a kill. Raises DrillError when something does not happen in time.

    master: of Spark, such as yarn, in whose cluster executors run; without it they run here.
    """
    chosen = workload or spark_queries.own(_ROWS)
    folder, master = cluster.directory / "spark", master or _MASTERS.get(killed, _LOCAL)
    async with spark(folder, cluster.endpoints, master, copies, chosen.settings, chosen.prepare) as process:
        run = _Run(cluster, report, process)
        if (domain := _DOMAINS.get(killed)) is not None:
            run.domains = await asyncio.to_thread(_domains, cluster, domain)
            run.at_once = domain.killed(copies)
        if killed is Killed.REUSE:
            await _reuse(run, step)
        else:
            await _queries(run, rng, step, killed, EVERY[killed] if every is None else every, chosen.queries)
    ran = process.events()
    for asked in run.asked:
        _judge(report, asked, ran.get(asked.label) or Ran())
    if killed is not Killed.REUSE:
        _time(report, run, ran)
        if killed is Killed.LEADER:
            report.limits[STALL] = STALL_SECONDS


@dataclass(frozen=True, slots=True)
class _Asked:
    """One thing that the session did; times in seconds since 1970."""

    label: str
    what: str
    began: float
    ended: float
    #: whether all of its maps had run before
    again: bool = False

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(slots=True)
class _Run:
    """The session, what it was asked, and when something was killed."""

    cluster: LocalCluster
    report: Report
    process: SparkProcess
    #: the workers of each host or rack, where these are killed, and how many of them at once
    domains: Sequence[list[Server]] = ()
    at_once: int = 0
    asked: list[_Asked] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    #: set by every answer
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    _digests: dict[str, str] = field(default_factory=dict)

    async def ask(self, what: str, **asked: Any) -> _Asked:
        """Ask, and compare the answer with the first one to the same question. Nothing asked means: read again."""
        label = f"{len(self.asked)}: {what}"
        answer = await self.process.ask(label=label, **asked)
        error = answer.get("error")
        self.report.check("every job ends well", error is None, f"{label}: {error}")
        if error is None:
            first = self._digests.setdefault(what, answer["digest"])
            wrong = f"{label}: {answer['digest']} instead of {first}"
            self.report.check("answers are the undisturbed ones", answer["digest"] == first, wrong)
        done = _Asked(label, what, answer["began"], answer["ended"], again=not asked)
        self.asked.append(done)
        self.answered.set()
        return done

    async def moved(self) -> tuple[int, int]:
        """Bytes that the workers took from and gave to clients since they were started."""
        status = [await asyncio.to_thread(worker_status, worker.http, 5.0) for worker in self.cluster.workers]
        counters = [each["counters"] for each in status]
        return sum(each["push_bytes"] for each in counters), sum(each["stream_bytes"] for each in counters)

    async def kill(self, which: list[Server]) -> None:
        """Kill servers with -9."""
        self.kills.append(time.time())
        await servers.kill(which, self.report)

    def check_moved(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Nothing was shuffled by anybody else."""
        good = all(now > then for then, now in zip(before, after, strict=True))
        self.report.check("bytes go through the workers", good, f"the workers counted {before} and then {after}")


# Reads of shuffles that are there.


async def _reuse(run: _Run, step: Step) -> None:
    cluster = run.cluster
    kinds = {"workers": cluster.workers, "masters": cluster.masters, "masters and workers": cluster.servers}
    for _ in range(run.report.rounds):
        before = await run.moved()
        await run.ask("reuse", reuse=_REUSE_ROWS)
        run.check_moved(before, await run.moved())
        for kind, which in kinds.items():
            await _again(run, kind, which)
        run.report.done += 1
        step(f"{run.report.failed} broken promises")


async def _again(run: _Run, kind: str, which: list[Server]) -> None:
    """Read, kill, read while those that were killed start again."""
    report = run.report
    calm = await run.ask("reuse")
    await run.kill(which)
    killed = time.time()
    starting = awaited(_timed(servers.start(which)))
    read = await run.ask("reuse")
    restart = await starting
    with report.until("the masters do not accept the worker"):
        await servers.registered(set(which) & set(run.cluster.workers))
    taken = read.ended - killed
    report.time("read again, undisturbed", calm.seconds)
    report.time(f"restart of {kind}", restart)
    report.time(f"read again, from the kill of {kind}", taken)
    within = taken <= _REUSE_FACTOR * calm.seconds + restart
    report.counts[f"{kind}: reads {'within' if within else 'beyond'} {_REUSE_FACTOR} × undisturbed + restart"] += 1


async def _timed(action: Awaitable[None]) -> float:
    began = time.monotonic()
    await action
    return time.monotonic() - began


# Queries while something is killed.


async def _queries(
    run: _Run, rng: random.Random, step: Step, killed: Killed, every: float, queries: dict[str, Query]
) -> None:
    before = await run.moved()
    for name, query in [*queries.items()] * (1 + _UNDISTURBED):
        await run.ask(name, sql=query.sql, ordered=query.ordered)
    run.check_moved(before, await run.moved())
    kill = {
        Killed.LEADER: _kill_leader,
        Killed.WORKER: _kill_worker,
        Killed.HOST: _kill_domains,
        Killed.RACK: _kill_domains,
        Killed.ROLLING: _restart_worker,
        Killed.EXECUTORS: _kill_executor,
    }[killed]
    killing = awaited(_kill_again(run, rng, step, every, kill))
    try:
        for name, query in cycle(queries.items()):
            if killing.done():
                break
            await run.ask(name, sql=query.sql, ordered=query.ordered)
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    killing.result()


async def _kill_again(
    run: _Run, rng: random.Random, step: Step, every: float, kill: Callable[[_Run, random.Random], Awaitable[None]]
) -> None:
    due = time.monotonic()
    for _ in range(run.report.rounds):
        # Where what was killed took long to come back, everybody gets a while before the next kill all the same.
        due = max(due + every * rng.uniform(0.8, 1.2), time.monotonic() + every / 4)
        await asyncio.sleep(due - time.monotonic())
        await kill(run, rng)
        run.report.done += 1
        step(f"{len(run.asked)} queries, {run.report.failed} broken promises")


async def _kill_leader(run: _Run, _: random.Random) -> None:
    leader = await servers.leader(run.cluster)
    await run.kill([leader])
    await servers.start([leader])


async def _kill_worker(run: _Run, rng: random.Random) -> None:
    await _kill_workers(run, rng, [rng.choice(run.cluster.workers)])


async def _kill_domains(run: _Run, rng: random.Random) -> None:
    await _kill_workers(run, rng, [*chain.from_iterable(rng.sample(run.domains, run.at_once))])


def _domains(cluster: LocalCluster, domain: FailureDomain) -> Sequence[list[Server]]:
    """The workers that fail together. Blocks."""
    with Session(cluster.endpoints, app="drill spark", credentials=cluster.credentials) as session:
        return [workers for _, workers in sorted(domain.of(cluster, session).items())]


async def _kill_workers(run: _Run, rng: random.Random, which: list[Server]) -> None:
    await run.kill(which)
    await asyncio.sleep(rng.uniform(0.0, _AWAY_SECONDS))
    await servers.start(which)
    with run.report.until("the masters do not accept the workers"):
        await servers.registered(which)


async def _restart_worker(run: _Run, _: random.Random) -> None:
    """Restart those of the next host in order."""
    hosts = list(servers.by_host(run.cluster.workers).values())
    together = hosts[len(run.kills) % len(hosts)]
    run.kills.append(time.time())
    await rolling.restart(together, run.report)


async def _kill_executor(run: _Run, rng: random.Random) -> None:
    """Kill the one that has lived longest, once a query has ended since the last kill: it has run tasks."""
    await run.answered.wait()
    await asyncio.sleep(rng.uniform(0.0, _AWAY_SECONDS))
    found = await asyncio.to_thread(run.process.executors)
    if not found:
        raise DrillError("Spark has no executors any more")
    executor = min(found, key=psutil.Process.create_time)
    run.kills.append(time.time())
    executor.kill()
    run.answered.clear()
    run.report.kills += 1


# Judging.


def _judge(report: Report, asked: _Asked, ran: Ran) -> None:
    """What must not happen, whatever was killed."""
    label = asked.label
    report.check("no stage runs again", not ran.stages_again, f"{label}: {ran.stages_again} further attempts at stages")
    report.check("no fetch fails", not ran.fetch_failures, f"{label}: {ran.fetch_failures} fetches failed")
    report.check("no finished map runs again", not ran.maps_again, f"{label}: {ran.maps_again} maps ran again")
    if asked.again:
        report.check("no map runs for another read", not ran.maps, f"{label}: {ran.maps} maps ran")
    else:
        report.check("Spark's listener saw the maps", ran.maps > 0, f"{label}: none in the event log")
    report.counts["maps"] += ran.maps
    report.counts["stages"] += ran.stages
    for reason, count in ran.failed.items():
        report.counts[f"tasks tried again: {reason}"] += count


def _time(report: Report, run: _Run, ran: dict[str, Ran]) -> None:
    """How long queries took and made no progress, with no kill before or in them, and with one."""
    first = min(run.kills, default=float("inf"))
    calm: dict[str, list[float]] = {}
    pauses: dict[str, float] = {}
    names = {asked.what for asked in run.asked}
    for asked in run.asked[len(names) :]:  # each was warmed up once
        if asked.ended < first:
            calm.setdefault(asked.what, []).append(asked.seconds)
            report.time("query, undisturbed", asked.seconds)
            pause = ran.get(asked.label, Ran()).longest_pause(asked.began, asked.ended)
            pauses[asked.what] = max(pause, pauses.get(asked.what, 0.0))
            report.time("longest time without a task that ended, undisturbed", pause)
    for asked in run.asked:
        if sum(asked.began <= moment < asked.ended for moment in run.kills) == 1:
            beyond = asked.seconds - median(calm[asked.what])
            report.time("query with one kill, beyond undisturbed", max(0.0, beyond))
            pause = ran.get(asked.label, Ran()).longest_pause(asked.began, asked.ended)
            report.time(STALL, pause)
            # Reported, not judged: long tasks make no progress without any kill, too.
            report.time(
                "the same, beyond the longest of the same query undisturbed", max(0.0, pause - pauses[asked.what])
            )
