"""Workers killed while maps push, while the masters commit and while readers read: every record once, nothing again.

Each round registers a shuffle, lets some maps push at once (some of them with a losing attempt beside) and kills a
random worker with -9 at a random moment, and mostly a second time during commit or reading. With one copy a killed
worker is started again soon; with two it stays away for the round, half the time. No attempt may fail, and what is
read must be exactly what was pushed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

from holdfast.client.cli.drills.report import DrillError, Report
from holdfast.client.cluster import LocalCluster, Server
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.client.session import Session
from holdfast.client.status import PushStatus
from holdfast.common.errors import HoldfastError
from holdfast.common.limits import MIB

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


def records_of(seed: int, map_id: int) -> Records:
    """What a map pushes: (partition, payload), each payload unlike any other."""
    rng = random.Random(f"{seed}/{map_id}")
    return [
        (rng.randrange(PARTITIONS), map_id.to_bytes(4, "big") + index.to_bytes(4, "big") + bytes(rng.choice(_SIZES)))
        for index in range(RECORDS)
    ]


class _Round:
    """One shuffle and the kills meanwhile."""

    def __init__(
        self, cluster: LocalCluster, session: Session, report: Report, rng: random.Random, copies: int
    ) -> None:
        self._workers = cluster.workers
        self._report = report
        self._rng = rng
        self._copies = copies
        self._seed = rng.getrandbits(32)
        self._away: list[Server] = []
        self._killed: list[Server] = []
        self._shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, copies=copies)

    async def run(self) -> None:
        """Push, commit, read; raises what a client was told."""
        pushes = [asyncio.to_thread(self._push, map_id, self._rng.random() < 0.3) for map_id in range(MAPS)]
        *statuses, _ = await asyncio.gather(*pushes, self._kill(self._rng.uniform(0, _PUSH_SECONDS)))
        again = self._kill(self._rng.uniform(0, 0.1)) if self._rng.random() < 0.7 else asyncio.sleep(0)
        found, _ = await asyncio.gather(asyncio.to_thread(self._commit_and_read, statuses), again)
        self._judge(found)
        await asyncio.to_thread(self._shuffle.unregister)

    async def end(self) -> None:
        """Start what is still away."""
        for worker in self._away:
            await asyncio.to_thread(worker.start)

    def _push(self, map_id: int, with_loser: bool) -> PushStatus | None:
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

    def _commit_and_read(self, statuses: list[PushStatus | None]) -> Counter[tuple[int, int, bytes]]:
        began = time.monotonic()
        self._shuffle.commit(each for each in statuses if each is not None)
        committed = time.monotonic()
        found: Counter[tuple[int, int, bytes]] = Counter(
            (each.map, each.partition, bytes(each.payload)) for each in self._shuffle.reader(range(PARTITIONS))
        )
        self._report.time("commit", committed - began)
        self._report.time("read", time.monotonic() - committed)
        return found

    async def _kill(self, after_seconds: float) -> None:
        """Kill one that lives; start it again soon, or at the end of the round if no other was killed in it.

        A commit does not wait for a killed worker where another copy is sealed, so that one may be the only one.
        """
        await asyncio.sleep(after_seconds)
        if self._away:
            return
        worker = self._rng.choice(self._workers)
        await asyncio.to_thread(worker.kill)
        self._report.kills += 1
        alone = all(each is worker for each in self._killed)
        self._killed.append(worker)
        if self._copies > 1 and alone and self._rng.random() < 0.5:
            self._away.append(worker)
            return
        await asyncio.sleep(self._rng.uniform(0, _AWAY_SECONDS))
        await asyncio.to_thread(worker.start)

    def _judge(self, found: Counter[tuple[int, int, bytes]]) -> None:
        wanted = Counter(
            (map_id, partition, payload)
            for map_id in range(MAPS)
            for partition, payload in records_of(self._seed, map_id)
        )
        missing, extra = (wanted - found).total(), (found - wanted).total()
        wrong = f"shuffle {self._shuffle.key}: {missing} records are missing, {extra} too many"
        self._report.check("every record read once", found == wanted, wrong)
        self._report.counts["records"] += wanted.total()
        self._report.counts["moves"] += _moves(self._shuffle)


def _moves(shuffle: ReduceShuffle) -> int:
    return sum(epoch.epoch > 0 for epoch in shuffle.manifest().epochs.epochs)


async def drill(
    cluster: LocalCluster, report: Report, rng: random.Random, step: Callable[[str], None], *, copies: int
) -> None:
    """Run the rounds."""
    with Session(cluster.endpoints, app="drill push") as session:
        for number in range(report.rounds):
            one = _Round(cluster, session, report, rng, copies)
            try:
                async with asyncio.timeout(_ROUND_SECONDS_MAX):
                    await one.run()
            except TimeoutError:
                raise DrillError(f"round {number + 1} did not end within {_ROUND_SECONDS_MAX:.0f} s") from None
            except HoldfastError as error:
                report.check("no client is told of an error", False, f"{type(error).__name__}: {error}")
            else:
                report.check("no client is told of an error", True, "")
            await one.end()
            report.done += 1
            step(f"round {number + 1}")
