"""What the level of acknowledgement costs a job: `python -m benchmarks.levels DIR [--pairs 7] [--mib 256]`.

A job through the Python client on an embedded cluster of three masters and one worker: 8 maps write records to 100
partitions, commit, and everything is read back and counted. In interleaved pairs, MEMORY against WRITTEN; prints the
ratio of each pair and the geometric mean, and the same for SYNCED. On a disk the ratios are those of its write-back;
with DIR on a tmpfs they are those of the levels alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from holdfast.client.cluster.local import local_cluster
from holdfast.client.session import Session
from holdfast.common.formats.messages import Ack

MAPS, PARTITIONS, RECORD_BYTES = 8, 100, 8_000


def job(session: Session, ack: Ack, size: int) -> float:
    """Run the job; returns its seconds. Raises SystemExit if something else was read than written."""
    record = os.urandom(RECORD_BYTES)
    count = size // RECORD_BYTES // MAPS
    began = time.perf_counter()
    shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, ack=ack)
    statuses = []
    for map_id in range(MAPS):
        with shuffle.writer(map_id, attempt=map_id) as writer:
            for number in range(count):
                writer.write(number % PARTITIONS, record)
            statuses.append(writer.close())
    shuffle.commit(statuses)
    found = sum(1 for _ in shuffle.reader(range(PARTITIONS)))
    took = time.perf_counter() - began
    shuffle.unregister()
    if found != count * MAPS:
        raise SystemExit(f"{found} records came back of {count * MAPS}")
    return took


def main() -> None:
    """Measure the levels in pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--mib", type=int, default=256)
    arguments = parser.parse_args()
    size = arguments.mib << 20
    with (
        local_cluster(masters=3, workers=1, dir=arguments.directory) as cluster,
        Session(cluster.endpoints, app="levels") as session,
    ):
        for ack in Ack:
            job(session, ack, size)  # warm
        for ack in (Ack.WRITTEN, Ack.SYNCED):
            ratios = []
            for turn in range(arguments.pairs):
                order = [Ack.MEMORY, ack] if turn % 2 else [ack, Ack.MEMORY]
                took = {level: job(session, level, size) for level in order}
                ratios.append(took[ack] / took[Ack.MEMORY])
            text = " ".join([f"{ratio:.3f}" for ratio in ratios])
            sys.stdout.write(f"{ack.name} / MEMORY: {text}; in all {statistics.geometric_mean(ratios):.3f}\n")


if __name__ == "__main__":
    main()
