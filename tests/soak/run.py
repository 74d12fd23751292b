"""Pushes and reads very many records while answers are lost or late and workers are killed: count and sums are exact.

    python -m tests.soak.run --records 100000000 [--seed 1] [--kill-every 30] [--fault-rate 0.001] [--dir DIR]

Three masters and three workers as processes, two copies of everything, acknowledged when written. Map tasks run in
processes of their own; some die in the middle, some give up, some push everything and are not the attempt that is
committed. Every so often a worker is killed with -9 and started again. Every answer of a worker passes proxy.py. At the
end each partition must hold exactly the records that were made for it: their count, the sum of their numbers and the
sum of their values. Exit status 1 if not.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.client import PushStatus, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, Sections, local_cluster
from tests.soak.proxy import SHOWN, Proxy
from tests.soak.records import Shape, Totals, expected
from tests.soak.tasks import DiedError, Outcome, push, read, run_in_child

WORKERS = 3
PARTITIONS = 64
#: Partitions that one reduce task reads.
_PER_READER = 16
_MAPS_PER_SHUFFLE = 10
_RECORDS_PER_MAP_MAX = 1_000_000
#: Tasks that run at once.
_TASKS = 3
#: How often an attempt is no winner, and what it is then.
_OUTCOMES = [(0.08, Outcome.DIES), (0.16, Outcome.ABORTS), (0.24, Outcome.LOSES)]
_ATTEMPTS_PER_MAP = 16
#: The longest that a killed worker stays away.
_AWAY_SECONDS = 2.0
#: The first kill comes early, so that short runs have one.
_FIRST_KILL_SECONDS = 1.0


@dataclass
class Report:
    """What came of a run."""

    records: int
    seed: int
    expected: Totals = field(default_factory=Totals)
    found: Totals = field(default_factory=Totals)
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    #: seconds, by what was timed
    times: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Exactly what was made was read, and all of it was made."""
        return self.verdict == "good"

    @property
    def verdict(self) -> str:
        """In a word, at the end or on the way."""
        if self.failures or self.expected != self.found:
            return "BAD"
        return "good" if self.expected.records == self.records else "good so far"

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long something took."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.times.setdefault(what, []).append(time.monotonic() - began)

    def __str__(self) -> str:
        lost = {what: count for what, count in sorted(self.faults.items()) if what != "passed"}
        answers, faults = sum(self.faults.values()), sum(lost.values())
        times = ", ".join(
            f"{what} {sum(spans):.0f} s (longest {max(spans):.1f} s)" for what, spans in self.times.items()
        )
        return "\n".join(
            [
                f"soak of {self.records} records, seed {self.seed}: {self.verdict}",
                f"  made: {self.expected}",
                f"  read: {self.found}",
                f"  happened: {dict(sorted(self.counts.items()))}",
                f"  answers: {answers}, of which lost or late {faults} ({faults / max(answers, 1):.3%}): {lost}",
                f"  times: {times}",
                *(f"  FAILURE: {failure}" for failure in self.failures),
            ]
        )


class _Killer:
    """Kills a worker every so often, and starts it again soon; a thread."""

    def __init__(self, cluster: LocalCluster, report: Report, every_seconds: float) -> None:
        self._cluster = cluster
        self._report = report
        self._every_seconds = every_seconds
        self._chance = random.Random(f"{report.seed}/kills")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-killer")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = min(_FIRST_KILL_SECONDS, self._every_seconds)
        while not self._stop.wait(pause):
            pause = self._every_seconds
            worker = self._chance.choice(self._cluster.workers)
            worker.kill()
            self._report.counts["kills"] += 1
            self._stop.wait(self._chance.uniform(0.0, _AWAY_SECONDS))
            worker.start()


class _Soak:
    """A run: one shuffle after the other."""

    def __init__(self, session: Session, report: Report, say: Callable[[str], None]) -> None:
        self._session = session
        self._report = report
        self._say = say
        self._chance = random.Random(f"{report.seed}/attempts")
        self._pool = ThreadPoolExecutor(_TASKS)

    def run(self) -> None:
        """Everything; stops at the first shuffle that is not exact."""
        with self._pool:
            for shape in shapes(self._report.records, self._report.seed):
                self._shuffle(shape)
                self._say(str(self._report))
                if self._report.failures:
                    return

    def _shuffle(self, shape: Shape) -> None:
        report = self._report
        shuffle = self._session.register_reduce_shuffle(shape.partitions, shape.maps, replication=2)
        plans = [self._plan() for _ in range(shape.maps)]
        try:
            with report.timed("push"):
                works = [(shuffle, shape, map_id, plan) for map_id, plan in enumerate(plans)]
                statuses = list(self._pool.map(lambda work: self._map(*work), works))
            with report.timed("commit"):
                shuffle.commit(statuses)
            with report.timed("read"):
                starts = range(0, shape.partitions, _PER_READER)
                groups = [range(start, min(start + _PER_READER, shape.partitions)) for start in starts]
                found = list(self._pool.map(lambda group: run_in_child(read, shuffle, group), groups))
        except DiedError as error:
            report.failures.append(str(error))
            return
        report.counts["moves"] += sum(epoch.epoch > 0 for epoch in shuffle.manifest().epochs.epochs)
        report.counts["epochs lost"] += sum(epoch.lost for epoch in shuffle.manifest().epochs.epochs)
        report.counts["duplicates removed"] += sum(duplicates for _, duplicates in found)
        report.counts["shuffles"] += 1
        self._judge(shape, {partition: held for group, _ in found for partition, held in group.items()})
        shuffle.unregister()

    def _plan(self) -> list[Outcome]:
        """The attempts of a map, in order; the last one wins."""
        plan: list[Outcome] = []
        while len(plan) < _ATTEMPTS_PER_MAP - 1:
            drawn = self._chance.random()
            outcome = next((outcome for below, outcome in _OUTCOMES if drawn < below), None)
            if outcome is None:
                break
            plan.append(outcome)
        return [*plan, Outcome.WINS]

    def _map(self, shuffle: ReduceShuffle, shape: Shape, map_id: int, plan: list[Outcome]) -> PushStatus:
        """Run a map's attempts; returns the winner's status. Raises DiedError if it dies unasked."""
        for number, outcome in enumerate(plan):
            self._report.counts[f"attempts: {outcome.value}"] += 1
            try:
                status = run_in_child(push, shuffle, shape, map_id, map_id * _ATTEMPTS_PER_MAP + number, outcome)
            except DiedError:
                if outcome is not Outcome.DIES:
                    raise
            else:
                if status is not None:
                    return status
        raise AssertionError("the last attempt wins")

    def _judge(self, shape: Shape, found: dict[int, Totals]) -> None:
        for partition, wanted in expected(shape).items():
            self._report.expected = self._report.expected.plus(wanted)
            self._report.found = self._report.found.plus(found[partition])
            if found[partition] != wanted:
                self._report.failures.append(f"{shape}, partition {partition}: {found[partition]} instead of {wanted}")


def shapes(records: int, seed: int) -> Iterator[Shape]:
    """Shuffles of equal maps; the last map of the last one may not be cut, so the number of records is a multiple."""
    per_map = min(_RECORDS_PER_MAP_MAX, max(1, records // _MAPS_PER_SHUFFLE))
    maps, left = divmod(records, per_map)
    if left:
        raise SystemExit(f"{records} records cannot be dealt to maps of {per_map}: take a multiple")
    for first in range(0, maps, _MAPS_PER_SHUFFLE):
        count = min(_MAPS_PER_SHUFFLE, maps - first)
        yield Shape(seed, first * per_map, count, per_map, PARTITIONS)


def soak(
    records: int,
    seed: int,
    directory: Path,
    *,
    kill_every: float,
    fault_rate: float,
    late_seconds: float,
    swallow: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Start a cluster, soak it, and say what happened."""
    report = Report(records, seed)
    # Killed every half minute, a worker is to go on taking data.
    settings: Sections = {"worker": {"address": SHOWN}, "placement": {"flap_starts": 1_000_000}}
    with local_cluster(masters=3, workers=WORKERS, dir=directory, settings=settings) as cluster:
        addresses = [worker.address for worker in cluster.workers]
        proxy = Proxy(addresses, seed, rate=fault_rate, late_seconds=late_seconds, swallow=swallow)
        report.faults = proxy.counts
        with proxy, Session(cluster.endpoints, app="soak") as session, _Killer(cluster, report, kill_every):
            _Soak(session, report, say).run()
    return report


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-every", type=float, default=30.0, help="seconds")
    parser.add_argument("--fault-rate", type=float, default=0.001, help="share of answers that are lost or late")
    parser.add_argument("--late-seconds", type=float, default=5.0, help="the latest that a late answer comes")
    parser.add_argument("--dir", type=Path, help="where state and logs are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as temporary:
        report = soak(
            given.records,
            given.seed,
            given.dir or Path(temporary),
            kill_every=given.kill_every,
            fault_rate=given.fault_rate,
            late_seconds=given.late_seconds,
            say=lambda text: print(text, flush=True),
        )
    print(report, flush=True)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
