"""One small shuffle through the client, register to last byte: what every job pays however little it shuffles.

Four maps of four partitions, one after the other in one process: each registers, pushes, commits and reads a shuffle of
its own on three synced masters. The medians of the steps need not add up to the median of the whole. Of a shuffle of
1,000 partitions, each with a batch of every map, the two steps are measured that a job waits for masters: the second
has the workers seal as many files.
"""

from __future__ import annotations

import itertools
import time

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.session import Session
from holdfast.tools.benches.figures import Figure
from holdfast.tools.cli.output import percentile

MAPS = 4
PARTITIONS = 4
PARTITIONS_OF_A_JOB = 1_000
PAYLOAD_BYTES = 1_000
_ROUNDS = 60
#: Connections, code and indexes are warm after these.
_WARM_UP = 5
LIMIT_SECONDS = 0.025
MASTERS_LIMIT_SECONDS = 0.020
STEPS = ("register", "push", "commit", "read")


def small(cluster: LocalCluster) -> list[Figure]:
    """Median and 90th percentile of the whole, with one copy and, where there are two hosts, two; medians of steps."""
    figures = []
    with Session(cluster.endpoints, app="bench small") as session:
        for copies in range(1, min(2, len(cluster.workers)) + 1):
            figures += _figures(_spans(session, PARTITIONS, copies), copies)
        figures.append(register_and_commit(_spans(session, PARTITIONS_OF_A_JOB, copies=1)))
    return figures


def _spans(session: Session, partitions: int, copies: int) -> list[list[float]]:
    """The seconds of each step, shuffle by shuffle."""
    return [_shuffle(session, partitions, copies) for _ in range(_ROUNDS + _WARM_UP)][_WARM_UP:]


def register_and_commit(spans: list[list[float]]) -> Figure:
    """What a job waits for masters: the median of the sum of both steps, which is not the sum of their medians."""
    steps = [STEPS.index(step) for step in ("register", "commit")]
    times = [sum(each[step] for step in steps) for each in spans]
    name = f"register + commit, {PARTITIONS_OF_A_JOB:,} partitions"
    note = f"1 copy, {_note(spans)}"
    return Figure("small", name, percentile(times, 0.5), "s", MASTERS_LIMIT_SECONDS, note=note)


def _figures(spans: list[list[float]], copies: int) -> list[Figure]:
    totals = [sum(each) for each in spans]
    name = f"{MAPS} maps × {PARTITIONS} partitions, {copies} {'copy' if copies == 1 else 'copies'}"
    limit = LIMIT_SECONDS if copies == 1 else None
    return [
        Figure("small", f"{name}, median", percentile(totals, 0.5), "s", limit, note=_note(spans)),
        Figure("small", f"{name}, p90", percentile(totals, 0.9), "s"),
    ]


def _note(spans: list[list[float]]) -> str:
    return f"{len(spans)} shuffles; median of " + ", ".join(
        f"{step} {percentile([each[index] for each in spans], 0.5) * 1e3:.1f} ms" for index, step in enumerate(STEPS)
    )


def _shuffle(session: Session, partitions: int, copies: int) -> list[float]:
    """Run one shuffle; returns the seconds of each step. Raises AssertionError if something else was read."""
    times = [time.perf_counter()]
    shuffle = session.register_reduce_shuffle(partitions, MAPS, replication=copies)
    times.append(time.perf_counter())
    statuses = []
    for map_id in range(MAPS):
        with shuffle.writer(map_id, attempt=map_id) as writer:
            for partition in range(partitions):
                writer.write(partition, _payload(map_id, partition))
            statuses.append(writer.close())
    times.append(time.perf_counter())
    shuffle.commit(statuses)
    times.append(time.perf_counter())
    found = sorted((each.map, each.partition, bytes(each.payload)) for each in shuffle.reader(range(partitions)))
    times.append(time.perf_counter())
    pairs = [(map_id, partition) for map_id in range(MAPS) for partition in range(partitions)]
    assert found == [(*pair, _payload(*pair)) for pair in pairs], "not what was pushed"
    shuffle.unregister()
    return [end - begin for begin, end in itertools.pairwise(times)]


def _payload(map_id: int, partition: int) -> bytes:
    return bytes([map_id, partition % 256]) * (PAYLOAD_BYTES // 2)
