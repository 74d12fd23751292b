"""Rows as Arrow in MAP partitions: sorted and cut into records on the way in, decoded and joined on the way out.

Rules: a record's payload is one Arrow IPC message without its schema, which is kept once, in the shuffle's header
(spark/header.py). Batches are cut to pieces first, however large they come. Rows of a map are gathered to about half a
region and sorted by partition in one pass: a stable radix sort of the partition numbers and one take per column. All
arrays are as plain.py makes them. Knows nothing of Spark. Called by the Spark API's tasks and tables.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from holdfast.client.arrow.plain import size_of, stored
from holdfast.client.compress import Buffer
from holdfast.client.read.stream_reader import Record
from holdfast.client.write.status import MapStatus
from holdfast.common.errors import ConfigError
from holdfast.common.limits import KIB, MIB, RECORD_BYTES_MAX

#: Rows are sorted and sent before more bytes than this are gathered, or more rows; a longer row goes alone. A map task
#: holds about three times this, beside the batch that it was given.
GATHER_BYTES = 32 * MIB
GATHER_ROWS = 4 * 1024 * 1024
#: What is gathered at a time of a batch, which may be of any size.
PIECE_BYTES = 8 * MIB
#: A record is cut when it is larger, so that a reader works on one while the next is on its way.
RECORD_BYTES = 1 * MIB
#: Records are joined until a batch has this much.
JOIN_BYTES = 512 * KIB
_ALIGNMENT = 8


class RegionWriter(Protocol):
    """What takes the regions of a map attempt: MapWriter."""

    def write_region(self, parts: Iterable[tuple[int, Buffer]]) -> None: ...
    def close(self, parts: Iterable[tuple[int, Buffer]] = ()) -> MapStatus: ...


class Sorter:
    """Gathers the rows of a map and yields them region by region, sorted by partition."""

    def __init__(self, partitions: int, numbered: bool, first: int = 0) -> None:
        """`first`: where dealing out begins, so that small maps do not all fill the first partitions."""
        self._partitions = partitions
        self._numbered = numbered
        self._next = first % partitions
        self._number_type = _smallest_type(partitions)
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = self._gathered_rows = 0
        self.rows = 0
        self.total_bytes = 0
        #: of the rows, without the partition number; None before the first batch
        self.schema: pa.Schema | None = None

    def write(self, batches: Iterable[pa.RecordBatch], writer: RegionWriter) -> MapStatus:
        """Write all rows as regions of a bounded size, and end the attempt. Raises ConfigError for a row that is too
        long."""
        for batch in batches:
            if self.schema is None:
                self.schema = pa.schema(list(batch.schema)[int(self._numbered) :], batch.schema.metadata)
            before = self.total_bytes
            for piece, size in _pieces(batch):
                if self._gathered_bytes + size > GATHER_BYTES or self._gathered_rows + piece.num_rows > GATHER_ROWS:
                    writer.write_region(self._region())
                self._add(piece, size)
            if self.total_bytes - before > GATHER_BYTES:
                # What is left of a large batch would keep all of it in memory.
                writer.write_region(self._region())
        return writer.close(self._region())

    def _add(self, batch: pa.RecordBatch, size: int) -> None:
        self._gathered.append(batch)
        self._gathered_bytes += size
        self._gathered_rows += batch.num_rows
        self.total_bytes += size
        self.rows += batch.num_rows

    def _region(self) -> Iterator[tuple[int, Buffer]]:
        """Yield (partition, IPC message) of everything gathered, ascending, and begin anew."""
        gathered, self._gathered = self._gathered, []
        size, self._gathered_bytes, self._gathered_rows = self._gathered_bytes, 0, 0
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
            message = rows.slice(start, size).serialize()
            if message.size > RECORD_BYTES_MAX:
                raise ConfigError(
                    f"a row of {message.size} bytes is too long: {RECORD_BYTES_MAX} are possible, all columns together"
                )
            yield partition, memoryview(message)
            start += size


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the rows of a batch in order, halved until a piece is small or has one row; with its size."""
    size, rows = size_of(batch), batch.num_rows
    if not rows:
        return
    if rows > 1 and (size > PIECE_BYTES or rows > GATHER_ROWS):
        yield from _pieces(batch.slice(0, rows // 2))
        yield from _pieces(batch.slice(rows // 2))
        return
    yield batch, size


def _smallest_type(partitions: int) -> Any:
    if partitions <= 1 << 8:
        return np.uint8
    return np.uint16 if partitions <= 1 << 16 else np.uint32


def rows_of(records: Iterator[Record], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each record. Raises pyarrow's errors where they are not of this schema."""
    nested = any(pa.types.is_nested(field.type) for field in schema)
    for record in records:
        message = pa.py_buffer(record.payload)
        if message.address % _ALIGNMENT:
            message = pa.py_buffer(bytes(record.payload))
        batch = pa.ipc.read_record_batch(message, schema)
        # Empty arrays in it may have no offsets, which must not be measured: see plain.py.
        yield stored(batch, schema) if nested else batch


def join_small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, small batches joined to JOIN_BYTES or a little more."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        size = size_of(batch)
        if held and size >= JOIN_BYTES:  # long already: not copied, and no array grows past what Arrow can hold
            yield _joined(held)
            held, held_bytes = [], 0
        held.append(batch)
        held_bytes += size
        if held_bytes >= JOIN_BYTES:
            yield _joined(held)
            held, held_bytes = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


assert GATHER_BYTES >= 256 * KIB, "tiny regions make tiny records"
assert PIECE_BYTES <= GATHER_BYTES, "a piece is gathered whole"
