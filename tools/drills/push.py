"""Workers killed while maps push, while the masters commit and while readers read: every record once, nothing again.

Each round registers a shuffle, lets some maps push at once (some of them with a losing attempt beside) and kills a
random worker with -9 at a random moment, and mostly a second time during commit or reading. With one copy a killed
worker is started again soon; with two it stays away for the round, half the time. No attempt may fail, each map's first
attempt must win, and what is read must be exactly what was pushed.

Only what was acknowledged in memory with one copy may be lost: then the masters must report LOST, the reader must name
the partition, and no partition may be lost that was never on a killed worker. With two copies in memory a round kills
one worker only, since two hold the only copies of some epoch until it is sealed. Where fewer copies acknowledge than
there are, what the others lack when a worker is killed is called incomplete, and never read; a map of which no so many
copies are known to have all runs again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.session import Session
from holdfast.client.write.status import PushStatus
from holdfast.common.errors import DataLostError, RetryError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_layouts import EpochResult
from holdfast.common.ids import WorkerId
from holdfast.tools.drills.support import jobs, servers
from holdfast.tools.drills.support.report import Report, Step

RECORDS = 400
#: Pauses in an attempt, in all, so that kills fall between its pushes too.
_PUSH_SECONDS = 0.8
#: The longest that a killed worker stays away, where it comes back in the round.
_AWAY_SECONDS = 0.5


def workers(copies: int) -> int:
    """How many workers the drill wants: those that are left when one is killed must hold the copies."""
    return max(3, copies + 1)


class _Round:
    """One shuffle and the kills meanwhile."""

    def __init__(
        self, cluster: LocalCluster, session: Session, report: Report, rng: random.Random, copies: int, ack: Ack
    ) -> None:
        self._workers = cluster.workers
        self._ids = {each.name: WorkerId(each.worker) for each in session.workers()}
        self._report = report
        self._rng = rng
        self._ack = ack
        #: two workers that are killed may have held both copies of something
        self._only_one = copies > 1 and ack is Ack.MEMORY
        self._job = jobs.Job(session, report, rng.getrandbits(32), copies=copies, ack=ack, records=RECORDS)
        #: a primary that dies may leave it open which copies have all of an attempt
        self._may_run_again = session.ack_copies < copies
        self._away: list[Server] = []
        self._killed: list[Server] = []

    async def run(self) -> None:
        """Push, commit, read; raises the errors of clients."""
        pushes = [asyncio.to_thread(self._push, map_id, self._rng.random() < 0.3) for map_id in range(jobs.MAPS)]
        kill = self._kill(self._rng.uniform(0, _PUSH_SECONDS))
        self._job.statuses, _ = await asyncio.gather(asyncio.gather(*pushes), kill)
        again = self._kill(self._rng.uniform(0, 0.1)) if self._rng.random() < 0.7 else asyncio.sleep(0)
        await asyncio.gather(asyncio.to_thread(self._commit_and_read), again)
        await asyncio.to_thread(self._job.shuffle.unregister)

    async def end(self) -> None:
        """Start what is still away. Raises TimeoutError if the masters do not take it back where that matters."""
        for worker in self._away:
            await asyncio.to_thread(worker.start)
        if self._only_one:  # or the next round places epochs on the start that was killed, and kills another worker
            await servers.registered(self._killed, jobs.ROUND_SECONDS_MAX)

    def _push(self, map_id: int, with_loser: bool) -> PushStatus:
        if with_loser:
            with self._job.shuffle.writer(map_id, attempt=jobs.MAPS + map_id) as loser:
                for record in jobs.records_of(self._job.seed, map_id, RECORDS)[: RECORDS // 2]:
                    loser.write(*record)
                loser.flush()
            self._report.counts["losing attempts"] += 1
        try:
            return self._job.push_map(map_id, _PUSH_SECONDS, map_id)
        except RetryError:
            if not self._may_run_again:
                raise
        self._report.counts["maps run again"] += 1
        return self._job.push_map(map_id, _PUSH_SECONDS, 2 * jobs.MAPS + map_id)

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
        if self._job.copies > 1 and alone and self._rng.random() < 0.5:
            self._away.append(worker)
            return
        await asyncio.sleep(self._rng.uniform(0, _AWAY_SECONDS))
        await asyncio.to_thread(worker.start)

    # Judging, in a thread.

    def _commit_and_read(self) -> None:
        began = time.monotonic()
        self._job.shuffle.commit(self._job.statuses)
        committed = time.monotonic()
        if not self._may_run_again:
            self._job.check_attempts()
        epochs = self._job.shuffle.manifest().epochs.epochs
        self._report.counts["moves"] += sum(epoch.epoch > 0 for epoch in epochs)
        if self._ack is Ack.MEMORY and self._job.copies == 1:
            self._read_each(epochs)
        else:
            self._judge(range(jobs.PARTITIONS), self._read(range(jobs.PARTITIONS)))
        self._report.time("commit", committed - began)
        self._report.time("read", time.monotonic() - committed)

    def _read(self, partitions: Iterable[int]) -> jobs.Contents:
        """What a reader gets. Raises DataLostError, or an error that no client may get."""
        reader = jobs.reader_of(self._job.shuffle, partitions)
        found = jobs.contents(reader)
        self._report.counts["duplicates removed"] += reader.duplicates
        return found

    def _judge(self, partitions: Iterable[int], found: jobs.Contents) -> None:
        jobs.check_contents(self._report, self._job.shuffle, self._job.wanted(partitions), found)

    def _read_each(self, epochs: Iterable[EpochResult]) -> None:
        """Every partition by itself: each is whole, or lost by name with a reason."""
        killed = {self._ids[worker.name] for worker in self._killed}
        held = {each.partition for each in epochs if each.copies[0].worker in killed}
        lost = {each.partition for each in epochs if each.lost}
        for partition in range(jobs.PARTITIONS):
            try:
                found = self._read([partition])
            except DataLostError as error:
                named = f"shuffle {self._job.shuffle.key}" in str(error) and f"partition {partition} " in str(error)
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
    step: Step,
    *,
    copies: int,
    ack: Ack = Ack.WRITTEN,
    ack_copies: int | None = None,
) -> None:
    """Run the rounds."""
    with Session(cluster.endpoints, app="drill push") as session:
        session.ack_copies = ack_copies or session.ack_copies
        for _ in range(report.rounds):
            one = _Round(cluster, session, report, rng, copies, ack)
            async with jobs.no_client_error(report):
                await one.run()
            with report.until("the masters do not accept the worker"):
                await one.end()
            report.done += 1
            step(f"{report.failed} broken promises")
