"""A shuffle whose content follows from a seed: pushed, committed and read again, and every record counted.

What the drills that push have in common. Blocking work runs in threads.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from holdfast.client.read.push_reader import PartitionReader
from holdfast.client.read.stream_reader import Record
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.client.session import Session
from holdfast.client.shuffle import RETURN_GRACE_SECONDS, MapShuffle
from holdfast.client.write.status import PushStatus
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import PartitionId
from holdfast.common.limits import MIB
from holdfast.tools.drills.support.report import DrillError, Report

MAPS, PARTITIONS, RECORDS = 4, 8, 200
_SIZES = (10, 1_000, 20_000)
#: What a round may take where nothing else is said: leases, graces and budgets are all shorter.
ROUND_SECONDS_MAX = 240.0
_FLUSHES = 8

Records = list[tuple[int, bytes]]
#: How often each (map, partition, payload) is there.
Contents = Counter[tuple[int, int, bytes]]


class Job:
    """One shuffle of REDUCE partitions, of MAPS maps whose records are those of `records_of`."""

    def __init__(
        self,
        session: Session,
        report: Report,
        seed: int,
        *,
        copies: int = 1,
        ack: Ack = Ack.WRITTEN,
        records: int = RECORDS,
        sizes: tuple[int, ...] = _SIZES,
        shuffle_id: int | None = None,
    ) -> None:
        self.seed = seed
        self.copies = copies
        self.statuses: list[PushStatus] = []
        self._records = records
        self._sizes = sizes
        self._report = report
        self.shuffle: ReduceShuffle = session.register_reduce_shuffle(
            PARTITIONS, MAPS, replication=copies, ack=ack, shuffle_id=shuffle_id
        )

    async def push(self, seconds: float, attempts_from: int = 0) -> None:
        """Let all maps push at once, for about so long. Raises the error of one of them."""
        pushes = [asyncio.to_thread(self.push_map, each, seconds, attempts_from + each) for each in range(MAPS)]
        self.statuses = await asyncio.gather(*pushes)

    def push_map(self, map_id: int, seconds: float, attempt: int) -> PushStatus:
        """One attempt of one map. Blocks."""
        records = records_of(self.seed, map_id, self._records, self._sizes)
        every = max(1, len(records) // _FLUSHES)
        with self.shuffle.writer(map_id, attempt=attempt, buffer_bytes=1 * MIB) as writer:
            for index, record in enumerate(records):
                writer.write(*record)
                if index % every == every - 1:
                    writer.flush()
                    time.sleep(seconds / _FLUSHES)
            return writer.close()

    def commit(self) -> None:
        """Commit, and check that nothing is lost. Blocks."""
        began = time.monotonic()
        self.shuffle.commit(self.statuses)
        self._report.time("commit", time.monotonic() - began)
        check_epochs(self._report, self.shuffle)

    def check_attempts(self) -> None:
        """Check that no map ran again."""
        check_attempts(self._report, self.shuffle.manifest().winners.attempts)

    def check_read(self) -> None:
        """Read everything, and count. Blocks."""
        began = time.monotonic()
        check_contents(self._report, self.shuffle, self.wanted(range(PARTITIONS)), self.read(range(PARTITIONS)))
        self._report.time("read", time.monotonic() - began)

    def read(self, partitions: Iterable[int]) -> Contents:
        """What a reader gets. Raises its error."""
        return contents(reader_of(self.shuffle, partitions))

    def wanted(self, partitions: Iterable[int]) -> Contents:
        """What was pushed into these partitions."""
        return wanted_of(self.seed, partitions, self._records, self._sizes)


def records_of(seed: int, map_id: int, count: int, sizes: tuple[int, ...] = _SIZES) -> Records:
    """What a map pushes: (partition, payload), each payload unlike any other."""
    rng = random.Random(f"{seed}/{map_id}")
    return [
        (rng.randrange(PARTITIONS), map_id.to_bytes(4, "big") + index.to_bytes(4, "big") + bytes(rng.choice(sizes)))
        for index in range(count)
    ]


def wanted_of(
    seed: int, partitions: Iterable[int], records: int = RECORDS, sizes: tuple[int, ...] = _SIZES
) -> Contents:
    """What the maps of a seed push into these partitions."""
    chosen = set(partitions)
    return Counter(
        (map_id, partition, payload)
        for map_id in range(MAPS)
        for partition, payload in records_of(seed, map_id, records, sizes)
        if partition in chosen
    )


def reader_of(shuffle: ReduceShuffle, partitions: Iterable[int]) -> PartitionReader:
    """Reads these partitions, whatever the masters say of them."""
    wanted = [PartitionId(each) for each in partitions]
    return PartitionReader(shuffle, shuffle.manifest(), wanted, None, RETURN_GRACE_SECONDS)


def contents(reader: Iterable[Record]) -> Contents:
    """All that a reader yields. Raises its error."""
    return Counter((each.map, each.partition, bytes(each.payload)) for each in reader)


def check_contents(report: Report, shuffle: ReduceShuffle | MapShuffle, wanted: Contents, found: Contents) -> None:
    """Check that what was found is what was pushed, each record once."""
    missing, extra = (wanted - found).total(), (found - wanted).total()
    wrong = f"shuffle {shuffle.key}: {missing} records are missing, {extra} too many"
    report.check("every record read once", found == wanted, wrong)
    report.counts["records"] += wanted.total()


def check_epochs(report: Report, shuffle: ReduceShuffle) -> None:
    """Check that no epoch of a committed shuffle is lost, and count the moves."""
    epochs = shuffle.manifest().epochs.epochs
    lost = sum(each.lost for each in epochs)
    report.check("no partition is lost", not lost, f"shuffle {shuffle.key}: {lost} epochs are lost")
    report.counts["moves"] += sum(each.epoch > 0 for each in epochs)


def check_attempts(report: Report, winners: Iterable[int]) -> None:
    """Check that each map's first attempt, which has its number, has won."""
    again = sum(attempt != map_id for map_id, attempt in enumerate(winners))
    report.check("no map runs again", again == 0, f"{again} maps were won by a later attempt")


@asynccontextmanager
async def no_client_error(report: Report, seconds: float = ROUND_SECONDS_MAX) -> AsyncIterator[None]:
    """A round: an error of a client inside is a broken promise; a round that does not end in time raises DrillError."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise DrillError(f"round {report.done + 1} did not end within {seconds:.0f} s") from None
    except HoldfastError as error:
        report.check("no client gets an error", False, f"{type(error).__name__}: {error}")
    else:
        report.check("no client gets an error", True, "")
