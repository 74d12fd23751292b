"""Rows as Arrow in MAP partitions: sorted and cut into records on the way in, decoded and joined on the way out.

Rules: a record's payload is one Arrow IPC message without its schema, which is kept once, in the shuffle's header
(spark/header.py). Rows of a map are gathered to about a region and sorted by partition in one pass: a stable radix sort
of the partition numbers and one take per column. Knows nothing of Spark. Called by the Spark API's tasks and arrow.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.client.compress import Buffer
from holdfast.client.stream_reader import Record
from holdfast.common.limits import KIB, MIB

#: Rows are sorted and sent when so many bytes are gathered: half a region, so what Arrow adds always fits. A map task
#: holds about three times this.
GATHER_BYTES = 32 * MIB
#: A record is cut when it is larger, so that a reader works on one while the next is on its way.
RECORD_BYTES = 1 * MIB
#: Records are joined until a batch has this much.
JOIN_BYTES = 512 * KIB
_ALIGNMENT = 8


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


def rows_of(records: Iterator[Record], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each record. Raises pyarrow's errors where they are not of this schema."""
    for record in records:
        message = pa.py_buffer(record.payload)
        if message.address % _ALIGNMENT:
            message = pa.py_buffer(bytes(record.payload))
        yield pa.ipc.read_record_batch(message, schema)


def join_small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, small batches joined to JOIN_BYTES or a little more."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= JOIN_BYTES:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, held_bytes = [], 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


assert GATHER_BYTES >= 256 * KIB, "tiny regions make tiny records"
