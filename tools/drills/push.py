"""Workers killed while maps push, while the masters commit and while readers read: every record once, nothing again.

Each round registers a shuffle, lets some maps push at once (some of them with a losing attempt beside) and kills a
random worker with -9 at a random moment, and mostly a second time during commit or reading. With one copy a killed
worker is started again soon; with two it stays away for the round, half the time. No attempt may fail, each map's first
attempt must win, and what is read must be exactly what was pushed.

Only what was acknowledged in memory with one copy may be gone: then the masters must say LOST, the reader must name
the partition, and no partition may be lost that was never on a killed worker. With two copies in memory a round kills
one worker only, since two hold the only copies of some epoch until it is sealed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.read.push_reader import PartitionReader
from holdfast.client.session import Session
from holdfast.client.shuffle import RETURN_GRACE_SECONDS
from holdfast.client.write.status import PushStatus
from holdfast.common.errors import DataLostError, HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_layouts import EpochResult
from holdfast.common.ids import PartitionId, WorkerId
from holdfast.common.limits import MIB
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.report import DrillError, Report

WORKERS = 3
MAPS, PARTITIONS, RECORDS = 4, 8, 400
_SIZES = (10, 1_000, 20_000)
#: Pauses in an attempt, in all, so that kills fall between its pushes too.
_PUSH_SECONDS = 0.8
#: The longest that a killed worker stays away, where it comes back in the round.
_AWAY_SECONDS = 0.5
#: A round that takes longer hangs: leases, graces and budgets are all shorter.
_ROUND_SECONDS_MAX = 240.0

Records = list[tuple[int, bytes]]
#: How often each (map, partition, payload) is there.
Contents = Counter[tuple[int, int, bytes]]


def records_of(seed: int, map_id: int, count: int = RECORDS, sizes: tuple[int, ...] = _SIZES) -> Records:
    """What a map pushes: (partition, payload), each payload unlike any other."""
    rng = random.Random(f"{seed}/{map_id}")
    return [
        (rng.randrange(PARTITIONS), map_id.to_bytes(4, "big") + index.to_bytes(4, "big") + bytes(rng.choice(sizes)))
        for index in range(count)
    ]


class _Round:
    """One shuffle and the kills meanwhile."""

    def __init__(
        self, cluster: LocalCluster, session: Session, report: Report, rng: random.Random, copies: int, ack: Ack
    ) -> None:
        self._workers = cluster.workers
        self._ids = {each.name: WorkerId(each.worker) for each in session.workers()}
        self._report = report
        self._rng = rng
        self._copies = copies
        self._ack = ack
        #: two workers that are killed may have held both copies of something
        self._only_one = copies > 1 and ack is Ack.MEMORY
        self._seed = rng.getrandbits(32)
        self._away: list[Server] = []
        self._killed: list[Server] = []
        self._shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, copies=copies, ack=ack)

    async def run(self) -> None:
        """Push, commit, read; raises what a client was told."""
        pushes = [asyncio.to_thread(self._push, map_id, self._rng.random() < 0.3) for map_id in range(MAPS)]
        statuses, _ = await asyncio.gather(asyncio.gather(*pushes), self._kill(self._rng.uniform(0, _PUSH_SECONDS)))
        again = self._kill(self._rng.uniform(0, 0.1)) if self._rng.random() < 0.7 else asyncio.sleep(0)
        await asyncio.gather(asyncio.to_thread(self._commit_and_read, statuses), again)
        await asyncio.to_thread(self._shuffle.unregister)

    async def end(self) -> None:
        """Start what is still away. Raises TimeoutError if the masters do not take it back where that matters."""
        for worker in self._away:
            await asyncio.to_thread(worker.start)
        if self._only_one:  # or the next round places epochs on the start that was killed, and kills another worker
            for worker in self._killed:
                await servers.registered(worker, _ROUND_SECONDS_MAX)

    def _push(self, map_id: int, with_loser: bool) -> PushStatus:
        records = records_of(self._seed, map_id)
        if with_loser:
            with self._shuffle.writer(map_id, attempt=MAPS + map_id) as loser:
                for record in records[: RECORDS // 2]:
                    loser.write(*record)
                loser.flush()
            self._report.counts["losing attempts"] += 1
        with self._shuffle.writer(map_id, attempt=map_id, buffer_bytes=1 * MIB) as writer:
            for index, record in enumerate(records):
                writer.write(*record)
                if index % 50 == 49:
                    writer.flush()
                    time.sleep(_PUSH_SECONDS * 50 / RECORDS)
            return writer.close()

    async def _kill(self, after_seconds: float) -> None:
        """Kill one that lives; start it again soon, or at the end of the round if no other was killed in it.

        A commit does not wait for a killed worker where another copy is sealed, so that one may be the only one.
        """
        await asyncio.sleep(after_seconds)
        if self._away:
            return
        worker = self._killed[0] if self._killed and self._only_one else self._rng.choice(self._workers)
        await asyncio.to_thread(worker.kill)
        self._report.killed(worker.name)
        alone = all(each is worker for each in self._killed)
        self._killed.append(worker)
        if self._copies > 1 and alone and self._rng.random() < 0.5:
            self._away.append(worker)
            return
        await asyncio.sleep(self._rng.uniform(0, _AWAY_SECONDS))
        await asyncio.to_thread(worker.start)

    # Judging, in a thread.

    def _commit_and_read(self, statuses: list[PushStatus]) -> None:
        began = time.monotonic()
        self._shuffle.commit(statuses)
        committed = time.monotonic()
        manifest = self._shuffle.manifest()
        again = sum(attempt != map_id for map_id, attempt in enumerate(manifest.winners.attempts))
        self._report.check("no map runs again", again == 0, f"{again} maps were won by a later attempt")
        self._report.counts["moves"] += sum(epoch.epoch > 0 for epoch in manifest.epochs.epochs)
        if self._ack is Ack.MEMORY and self._copies == 1:
            self._read_each(manifest.epochs.epochs)
        else:
            self._judge(range(PARTITIONS), self._read(range(PARTITIONS)))
        self._report.time("commit", committed - began)
        self._report.time("read", time.monotonic() - committed)

    def _read(self, partitions: Iterable[int]) -> Contents:
        """What a reader gets. Raises DataLostError, or what no client may be told."""
        wanted = [PartitionId(each) for each in partitions]
        reader = PartitionReader(self._shuffle, self._shuffle.manifest(), wanted, None, RETURN_GRACE_SECONDS)
        found: Contents = Counter((each.map, each.partition, bytes(each.payload)) for each in reader)
        self._report.counts["duplicates removed"] += reader.duplicates
        return found

    def _judge(self, partitions: Iterable[int], found: Contents) -> None:
        wanted = Counter(
            (map_id, partition, payload)
            for map_id in range(MAPS)
            for partition, payload in records_of(self._seed, map_id)
            if partition in partitions
        )
        missing, extra = (wanted - found).total(), (found - wanted).total()
        wrong = f"shuffle {self._shuffle.key}: {missing} records are missing, {extra} too many"
        self._report.check("every record read once", found == wanted, wrong)
        self._report.counts["records"] += wanted.total()

    def _read_each(self, epochs: Iterable[EpochResult]) -> None:
        """Every partition by itself: each is whole, or lost by name with a reason."""
        killed = {self._ids[worker.name] for worker in self._killed}
        held = {each.partition for each in epochs if each.primary.worker in killed}
        lost = {each.partition for each in epochs if each.lost}
        for partition in range(PARTITIONS):
            try:
                found = self._read([partition])
            except DataLostError as error:
                named = f"shuffle {self._shuffle.key}" in str(error) and f"partition {partition} " in str(error)
                self._report.check("what is lost is named", named, f"a loss that does not say what of: {error}")
                known = partition in held & lost
                wrong = f"partition {partition} is lost, and no killed worker held it, or the masters do not say so"
                self._report.check("only what a killed worker held is lost", known, wrong)
                self._report.counts["partitions lost"] += 1
            else:
                self._judge([partition], found)
                self._report.counts["partitions whole"] += 1


async def drill(
    cluster: LocalCluster,
    report: Report,
    rng: random.Random,
    step: Callable[[str], None],
    *,
    copies: int,
    ack: Ack = Ack.WRITTEN,
) -> None:
    """Run the rounds."""
    with Session(cluster.endpoints, app="drill push") as session:
        for number in range(report.rounds):
            one = _Round(cluster, session, report, rng, copies, ack)
            try:
                async with asyncio.timeout(_ROUND_SECONDS_MAX):
                    await one.run()
            except TimeoutError:
                raise DrillError(f"round {number + 1} did not end within {_ROUND_SECONDS_MAX:.0f} s") from None
            except HoldfastError as error:
                report.check("no client is told of an error", False, f"{type(error).__name__}: {error}")
            else:
                report.check("no client is told of an error", True, "")
            with report.until("the masters do not accept the worker"):
                await one.end()
            report.done += 1
            step(f"{report.failed} broken promises")
