"""Batches pushed through the client with one, two and three copies: what each more costs the workers, and its pusher;
and how soon a push is acknowledged where fewer copies have to have it.

The CPU is that of all workers for each GiB that the client pushed: the primary sends as many times as there are other
copies, and each of those takes it once, whether the primary sends to all or each to the next one.
"""

from __future__ import annotations

import secrets
import time

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.client.session import Session
from holdfast.common.limits import GIB, KIB, MIB
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.process_stats import cpu_seconds
from holdfast.tools.cli.output import percentile

_COPIES = (1, 2, 3)
#: Of three copies, so many acknowledge.
_ACK_COPIES = (1, 2, 3)
_PARTITIONS = 16
_BATCH_BYTES = 64 * KIB
_BYTES = 512 * MIB
#: Attempts with one small batch, in turn with each number of copies; the first are not counted.
_SMALL, _WARM_UP = 220, 20


def copies(cluster: LocalCluster) -> list[Figure]:
    """Push, WRITTEN, and look what the workers' processes have taken."""
    with Session(cluster.endpoints, app="bench copies") as session:
        small = _small(session)
        figures = [figure for number in _COPIES for figure in _figures(cluster, session, number, small[number])]
        return [*figures, *_acknowledged(session)]


def _figures(cluster: LocalCluster, session: Session, number: int, small: list[float]) -> list[Figure]:
    shuffle = session.register_reduce_shuffle(_PARTITIONS, 1, replication=number)
    payload = secrets.token_bytes(_BATCH_BYTES)
    before, began = _cpu(cluster), time.perf_counter()
    with shuffle.writer(0, attempt=0) as writer:
        for at in range(_BYTES // _BATCH_BYTES):
            writer.write(at % _PARTITIONS, payload)
        writer.close()
    passed, used = time.perf_counter() - began, _cpu(cluster) - before
    shuffle.unregister()
    name = "1 copy" if number == 1 else f"{number} copies"
    note = f"batches of {_BATCH_BYTES // KIB} KiB, one client"
    return [
        Figure("copies", f"{name}, CPU of all workers", used / _BYTES * GIB, "s/GiB", note=note),
        Figure("copies", f"{name}, by the clock", _BYTES / passed / 1e9, "GB/s", note="client and workers share cores"),
        Figure("copies", f"{name}, a small push to its answer, median", percentile(small, 0.5), "s"),
    ]


def _small(session: Session) -> dict[int, list[float]]:
    """Seconds from the last word of an attempt with one small batch to its answer, by copies."""
    shuffles = {number: session.register_reduce_shuffle(1, _SMALL, replication=number) for number in _COPIES}
    found: dict[int, list[float]] = {number: [] for number in _COPIES}
    for attempt in range(_SMALL):
        for number, shuffle in shuffles.items():
            found[number].append(_answered(shuffle, attempt))
    for shuffle in shuffles.values():
        shuffle.unregister()
    return {number: spans[_WARM_UP:] for number, spans in found.items()}


def _answered(shuffle: ReduceShuffle, attempt: int) -> float:
    with shuffle.writer(attempt, attempt=attempt) as writer:
        writer.write(0, bytes(1_000))
        began = time.perf_counter()
        writer.close()
        return time.perf_counter() - began


def _acknowledged(session: Session) -> list[Figure]:
    """Seconds from one batch of 256 KiB to its acknowledgement, and until its attempt has ended, with three copies."""
    shuffles = {
        number: session.register_reduce_shuffle(1, _SMALL, replication=3, ack_copies=number) for number in _ACK_COPIES
    }
    found: dict[int, list[tuple[float, float]]] = {number: [] for number in _ACK_COPIES}
    for attempt in range(_SMALL):
        for number, shuffle in shuffles.items():
            with shuffle.writer(attempt, attempt=attempt) as writer:
                began = time.perf_counter()
                writer.write(0, bytes(256 * KIB))
                writer.flush()
                while not writer.acknowledged_bytes:
                    time.sleep(0.000_05)
                acknowledged = time.perf_counter() - began
                writer.close()
                found[number].append((acknowledged, time.perf_counter() - began))
    for shuffle in shuffles.values():
        shuffle.unregister()
    figures = []
    for number, spans in found.items():
        first, last = [[span[at] for span in spans[_WARM_UP:]] for at in (0, 1)]
        what = f"3 copies, {number} acknowledge, a push of 256 KiB"
        figures += [
            Figure("copies", f"{what}, until acknowledged, {name}", percentile(first, share), "s")
            for name, share in (("median", 0.5), ("99 %", 0.99))
        ]
        figures.append(Figure("copies", f"{what}, until its attempt ends, median", percentile(last, 0.5), "s"))
    return figures


def _cpu(cluster: LocalCluster) -> float:
    return sum(cpu_seconds(worker.pid) for worker in cluster.workers)
