"""The map task of `shuffle`: Arrow batches in, one sealed map file out.

Rules: rows are gathered to about a region, sorted by partition in one pass (a stable radix sort of the partition
numbers and one take per column), cut into records and serialised as Arrow IPC messages without schema while the writer
sends the ones before. The partition number is the first column, computed by Spark, or dealt out in turn here.
Runs in Spark's Python workers; made by api.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from holdfast.client.compress import Buffer
from holdfast.client.shuffle import MapShuffle
from holdfast.client.spark.tasks import lean_worker
from holdfast.common.batch import Codec
from holdfast.common.limits import KIB, MIB

#: Rows are sorted and sent when so many bytes are gathered: half a region, so what Arrow adds always fits. The task
#: holds about three times this.
GATHER_BYTES = 32 * MIB
#: A record is cut when it is larger, so that a reader works on one while the next is on its way.
RECORD_BYTES = 1 * MIB
#: What a map task returns to the driver: a MapStatus, the Arrow schema of its rows (empty if there were none), totals.
REPORT_SCHEMA = "status binary, schema binary, row_count bigint, size_bytes bigint"

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What every map task needs."""

    shuffle: MapShuffle
    #: the first column is the partition number; otherwise rows are dealt out in turn
    numbered: bool
    codec: Codec


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
    with plan.shuffle.writer(map_id, attempt, codec=plan.codec) as writer:
        for batch in batches:
            sorter.add(batch)
            if sorter.gathered_bytes >= GATHER_BYTES:
                writer.write_region(sorter.region())
        status = writer.close(sorter.region())
    schema = b"" if sorter.schema is None else sorter.schema.serialize().to_pybytes()
    columns: list[Any] = [[status.to_bytes()], [schema], [sorter.rows], [sorter.total_bytes]]
    types = [pa.binary(), pa.binary(), pa.int64(), pa.int64()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.record_batch(arrays, names=["status", "schema", "row_count", "size_bytes"])


class Sorter:
    """Gathers the rows of a map and yields them region by region, sorted by partition."""

    def __init__(self, partitions: int, numbered: bool, first: int = 0) -> None:
        """`first`: where dealing out begins, so that small maps do not all fill the first partitions."""
        self._partitions = partitions
        self._numbered = numbered
        self._next = first % partitions
        self._number_type = _smallest_type(partitions)
        self._gathered: list[pa.RecordBatch] = []
        self.gathered_bytes = 0
        self.rows = 0
        self.total_bytes = 0
        #: of the rows, without the partition number; None before the first batch
        self.schema: pa.Schema | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        if self.schema is None:
            self.schema = pa.schema(list(batch.schema)[int(self._numbered) :], batch.schema.metadata)
        if batch.num_rows:
            self._gathered.append(batch)
            size = batch.nbytes
            self.gathered_bytes += size
            self.total_bytes += size
            self.rows += batch.num_rows

    def region(self) -> Iterator[tuple[int, Buffer]]:
        """Yield (partition, IPC message) of everything gathered, ascending, and begin anew."""
        gathered, self._gathered = self._gathered, []
        size, self.gathered_bytes = self.gathered_bytes, 0
        if not gathered:
            return
        batch = pa.concat_batches(gathered)
        gathered.clear()
        numbers = self._partition_numbers(batch)
        columns = batch.columns[1:] if self._numbered else batch.columns
        order = pa.array(np.argsort(numbers, kind="stable"))
        counts = np.bincount(numbers, minlength=self._partitions)
        rows = pa.RecordBatch.from_arrays([column.take(order) for column in columns], schema=self.schema)
        rows_max = max(1, RECORD_BYTES * batch.num_rows // max(size, 1))
        del batch, columns, order
        yield from _slices(rows, counts, rows_max)

    def _partition_numbers(self, batch: pa.RecordBatch) -> Any:
        """The partition of each row, as the smallest type that holds it: narrow ones are sorted by radix."""
        if self._numbered:
            return batch.column(0).to_numpy(zero_copy_only=False).astype(self._number_type)
        numbers = (np.arange(batch.num_rows, dtype=np.int64) + self._next) % self._partitions
        self._next = (self._next + batch.num_rows) % self._partitions
        return numbers.astype(self._number_type)


def _slices(rows: pa.RecordBatch, counts: Any, rows_max: int) -> Iterator[tuple[int, Buffer]]:
    """Yield each partition's rows as IPC messages of at most `rows_max` rows."""
    start = 0
    present = np.flatnonzero(counts)
    for partition, count in zip(present.tolist(), counts[present].tolist(), strict=True):
        end = start + count
        while start < end:
            size = min(rows_max, end - start)
            yield partition, memoryview(rows.slice(start, size).serialize())
            start += size


def _smallest_type(partitions: int) -> Any:
    if partitions <= 1 << 8:
        return np.uint8
    return np.uint16 if partitions <= 1 << 16 else np.uint32


assert GATHER_BYTES >= 256 * KIB, "tiny regions make tiny records"
