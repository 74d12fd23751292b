"""Many clients push at full speed at one worker whose disk is slow: it stays inside its memory, and no client starves.

Each client is a process of its own with one connection and one map attempt, and writes as fast as its writer lets it.
Meanwhile the worker's memory is looked at; then the masters commit, and everything is read back and counted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import struct
import time
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.client.cluster.local import LocalCluster, Sections
from holdfast.client.connection.direct import worker_status
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.client.session import Session
from holdfast.client.write.status import PushStatus
from holdfast.common.errors import HoldfastError
from holdfast.common.limits import KIB, MIB
from holdfast.common.system.process import die_with_parent
from holdfast.common.system.tasks import awaited
from holdfast.tools.benches.process_stats import pss_bytes
from holdfast.tools.drills.support.report import DrillError, Report, Step

PARTITIONS = 64
DISK_BYTES_PER_SECOND = 20_000_000
#: What a client may have unacknowledged; all of them together want more than the worker gives.
BUFFER_BYTES = 6 * MIB
#: map and index of a record, which make each unlike any other; the rest is the same for all.
_HEAD = struct.Struct(">II")
_RECORD_BYTES = 60 * KIB
#: A client that got less than this share of what all got on average was starved.
_FAIR_SHARE = 0.25
_LOOK_SECONDS = 0.1


def settings(memory: int) -> Sections:
    """The configuration of the cluster: `memory` bytes for what the worker buffers, and a disk of 20 MB/s."""
    return {
        "worker": {"memory": f"{memory}B"},
        "faults": {"enabled": True, "disk_rate": f"{DISK_BYTES_PER_SECOND}B"},
    }


class _Pushed(NamedTuple):
    """What a client did."""

    status: PushStatus
    records: int
    #: bytes that were acknowledged when the time was up
    acknowledged: int
    #: the longest that one write had to wait, in seconds
    stalled: float


def _push(shuffle: ReduceShuffle, number: int, seconds: float, start: Barrier, result: Connection) -> None:
    """One client, in a process of its own."""
    die_with_parent(os.getppid())
    filler = bytes(_RECORD_BYTES - _HEAD.size)
    index, stalled = 0, 0.0
    start.wait()
    try:
        with shuffle.writer(number, number, buffer_bytes=BUFFER_BYTES) as writer:
            now = time.monotonic()
            end = now + seconds
            while now < end:
                writer.write((number + index) % PARTITIONS, _HEAD.pack(number, index) + filler)
                index += 1
                before, now = now, time.monotonic()
                stalled = max(stalled, now - before)
            acknowledged = writer.acknowledged_bytes
            result.send(_Pushed(writer.close(), index, acknowledged, stalled))
    except HoldfastError as error:
        result.send(f"map {number}: {type(error).__name__}: {error}")


@dataclass(slots=True)
class _Memory:
    """What a worker's process takes, looked at again and again."""

    pid: int
    idle: int = 0
    peak: int = 0
    peak_pss: int = 0

    def __post_init__(self) -> None:
        self.idle = self.peak = self._anonymous()

    def _anonymous(self) -> int:
        """Resident memory without that of files: the push log's pages are the kernel's to drop."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return sum(int(found[name].removesuffix("kB")) for name in ("RssAnon", "RssShmem")) * KIB

    async def watch(self) -> None:
        """Look until cancelled."""
        for look in count():
            self.peak = max(self.peak, self._anonymous())
            if not look % 20:
                self.peak_pss = max(self.peak_pss, pss_bytes(self.pid))
            await asyncio.sleep(_LOOK_SECONDS)


def _run_clients(shuffle: ReduceShuffle, clients: int, seconds: float) -> list[_Pushed | str]:
    """Start all clients, let them go at once, and wait for what they did. Blocks."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once for all
    start = context.Barrier(clients)
    ends, processes = [], []
    for number in range(clients):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_push, args=(shuffle, number, seconds, start, theirs), daemon=True)
        process.start()
        theirs.close()
        ends.append(mine)
        processes.append(process)
    try:
        return [_result(end) for end in ends]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _result(end: Any) -> _Pushed | str:
    try:
        found: _Pushed | str = end.recv()
    except EOFError:
        return "a client ended without a word"
    return found


def _commit_and_read(shuffle: ReduceShuffle, pushed: list[_Pushed]) -> tuple[int, int]:
    """Commit, and read everything back; return how many records are missing, and how many too many."""
    shuffle.commit(each.status for each in pushed)
    seen = {each.status.map: bytearray(each.records) for each in pushed}
    extra = 0
    for record in shuffle.reader(range(PARTITIONS)):
        number, index = _HEAD.unpack_from(record.payload)
        flags = seen[number]
        if number != record.map or index >= len(flags) or flags[index] or len(record.payload) != _RECORD_BYTES:
            extra += 1
        else:
            flags[index] = 1
    return sum(flags.count(0) for flags in seen.values()), extra


async def drill(
    cluster: LocalCluster, report: Report, _rng: random.Random, step: Step, *, clients: int, seconds: float, memory: int
) -> None:
    """Run the rounds; nothing in them is drawn."""
    worker = cluster.workers[0]
    with Session(cluster.endpoints, app="drill disk-slow") as session:
        for _ in range(report.rounds):
            taken = _Memory(worker.pid)
            watching = awaited(taken.watch())
            shuffle = await asyncio.to_thread(session.register_reduce_shuffle, PARTITIONS, clients)
            found = await asyncio.to_thread(_run_clients, shuffle, clients, seconds)
            pushed = [each for each in found if isinstance(each, _Pushed)]
            errors = [each for each in found if isinstance(each, str)]
            report.check("no client gets an error", not errors, "; ".join(errors[:3]))
            if errors:
                raise DrillError("clients failed, so there is nothing to count")
            missing, extra = await asyncio.to_thread(_commit_and_read, shuffle, pushed)
            watching.cancel()
            report.check("every record read once", not missing and not extra, f"{missing} missing, {extra} too many")
            status = await asyncio.to_thread(worker_status, worker.http, 10.0)
            _judge(report, pushed, taken, status, memory)
            await asyncio.to_thread(shuffle.unregister)
            report.done += 1
            step(f"{report.failed} broken promises")


def _judge(report: Report, pushed: list[_Pushed], taken: _Memory, status: dict[str, Any], memory: int) -> None:
    """Memory, fairness, and that no client was held by silence instead of credit."""
    grown, bodies = taken.peak - taken.idle, status["body_bytes_peak"]
    report.check(
        "memory inside the budget", grown <= memory, f"the worker grew by {grown // MIB} MiB, past {memory // MIB}"
    )
    report.check("buffers inside the budget", bodies <= memory, f"bodies took {bodies // MIB} MiB")
    waits = status["counters"]["body_waits"]
    report.check("no connection left unread", not waits, f"{waits} times a connection was not read for want of memory")
    mean = sum(each.acknowledged for each in pushed) / len(pushed)
    least = min(each.acknowledged for each in pushed)
    report.check(
        "no client starves", least >= _FAIR_SHARE * mean, f"the least of all got {least:.0f} of {mean:.0f} bytes"
    )
    report.counts.update(
        {
            "records": sum(each.records for each in pushed),
            "MiB pushed": sum(each.records for each in pushed) * _RECORD_BYTES // MIB,
            "MiB acknowledged in time, all": int(mean * len(pushed)) // MIB,
            "KiB acknowledged in time, the least": least // KIB,
            "KiB acknowledged in time, mean": int(mean) // KIB,
            "KiB acknowledged in time, the most": max(each.acknowledged for each in pushed) // KIB,
            "MiB of memory, idle": taken.idle // MIB,
            "MiB of memory, at most": taken.peak // MIB,
            "MiB of PSS, at most": taken.peak_pss // MIB,
            "MiB of bodies, at most": bodies // MIB,
            "pushes refused as BUSY": status["counters"]["pushes_busy"],
        }
    )
    for each in pushed:
        report.time("longest wait of a client", each.stalled)
