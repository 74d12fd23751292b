"""The reduce task of `shuffle`: a partition's records in, Arrow batches out.

Rules: the input only has the wanted partitions, one row for each (see api.py). Small records are joined, because
every batch costs Spark a fixed time. Runs in Spark's Python workers; made by api.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from holdfast.client.arrow.rows import join_small, rows_of
from holdfast.client.shuffle import MapShuffle
from holdfast.client.spark.tasks import lean_worker


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every reduce task needs."""

    shuffle: MapShuffle
    #: the Arrow schema of the rows, as an IPC message
    schema: bytes
    #: the row of partition p has p times this
    rows_per_partition: int


def read_task(plan: ReadPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for mapInArrow that reads the partitions its input names."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partitions = wanted_partitions(batches, plan.rows_per_partition)
        with lean_worker():
            if plan.schema:
                schema = pa.ipc.read_schema(pa.py_buffer(plan.schema))
                yield from join_small(rows_of(plan.shuffle.reader(partitions), schema))

    return run


def wanted_partitions(batches: Iterable[pa.RecordBatch], rows_per_partition: int) -> list[int]:
    """Return the partitions of the input's rows, ascending; the input is read to its end."""
    found: list[int] = []
    for batch in batches:
        found += (batch.column(0).to_numpy(zero_copy_only=False) // rows_per_partition).tolist()
    return sorted(found)
