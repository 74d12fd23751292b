"""The map task of `shuffle`: Arrow batches in, one sealed map file out.

Rules: how rows become records is arrow/rows.py's; the writer sends while the next are made. The partition number is the
first column, computed by Spark, or dealt out in turn. Runs in Spark's Python workers; made by api.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from holdfast.client.arrow.plain import stored
from holdfast.client.arrow.rows import Sorter
from holdfast.client.shuffle import MapShuffle
from holdfast.client.spark.tasks import lean_worker

#: What a map task returns to the driver: a MapStatus, the Arrow schema of its rows (empty if there were none), totals.
REPORT_SCHEMA = "status binary, schema binary, row_count bigint, size_bytes bigint"

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What every map task needs."""

    shuffle: MapShuffle
    #: the first column is the partition number; otherwise rows are dealt out in turn
    numbered: bool
    compression: str


def write_task(plan: WritePlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function for mapInArrow that writes a map's output and yields its report."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None, "runs inside a Spark task"
        with lean_worker():
            yield write_map(plan, task.partitionId(), task.taskAttemptId(), batches)

    return run


def write_map(plan: WritePlan, map_id: int, attempt: int, batches: Batches) -> pa.RecordBatch:
    """Write one attempt's rows and return its report, one row of REPORT_SCHEMA."""
    sorter = Sorter(plan.shuffle.partitions, plan.numbered, first=map_id)
    with plan.shuffle.writer(map_id, attempt, codec=plan.compression) as writer:
        # The JVM leaves out the offsets of empty arrays.
        status = sorter.write((stored(batch, batch.schema) for batch in batches), writer)
    schema = b"" if sorter.schema is None else sorter.schema.serialize().to_pybytes()
    columns: list[Any] = [[status.to_bytes()], [schema], [sorter.rows], [sorter.total_bytes]]
    types = [pa.binary(), pa.binary(), pa.int64(), pa.int64()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.record_batch(arrays, names=["status", "schema", "row_count", "size_bytes"])
