"""Committed shuffles as Arrow, without Spark: for pandas, Polars, DuckDB, and whatever else takes Arrow.

    from holdfast.client.arrow.tables import shuffle_stream, shuffle_table, write_table

    table = shuffle_table(session, 7)                   # all rows; .to_pandas(), polars.from_arrow(table)
    for batch in shuffle_stream(session, 7, [0, 1]):    # some partitions, a few batches in memory at a time
        ...

Rules: what `holdfast.client.spark.shuffle` wrote, and what `write_table` wrote, is read; checks and errors are those of
MapShuffle.reader. Needs the extra `arrow`. Exported as functions of this module; called by users and by
`holdfast export`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.client.checks import AckName, compression_of, partition_list, whole
from holdfast.client.session import Session, check_session
from holdfast.client.shuffle import MapShuffle
from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import PartitionId
from holdfast.common.limits import PARTITIONS_MAX
from holdfast.common.steady import Steady
from holdfast.common.version import installing

try:
    import pyarrow as pa

    from holdfast.client.arrow.plain import plain_schema, size_of, stored
    from holdfast.client.arrow.rows import GATHER_ROWS, PIECE_BYTES, Sorter, join_small, rows_of
    from holdfast.client.arrow.types import arrow_schema, column_names, spark_schema
except ImportError as missing:
    raise ConfigError(f"rows as Arrow need pyarrow and numpy: {installing('arrow')}") from missing

from holdfast.client.spark.header import Header, read_header, write_header

__all__ = ["open_rows", "shuffle_stream", "shuffle_table", "write_table"]

#: Attempts that no task of Spark has: those have their highest bits free.
_OWN_ATTEMPT = 1 << 63


class ArrowRows:
    """A committed shuffle whose rows are Arrow; made by `open_rows`."""

    def __init__(self, shuffle: MapShuffle) -> None:
        """Raises ConflictError if the rows are not Arrow, RetryError if the masters do not answer."""
        self._shuffle = shuffle
        header = read_header(shuffle)
        self._stored = pa.ipc.read_schema(pa.py_buffer(header.arrow_schema)) if header.arrow_schema else None
        names = list(header.names) or column_names(header.spark_schema)
        if self._stored is None:
            self._schema = arrow_schema(header.spark_schema)
        else:
            fields = [field.with_name(name) for field, name in zip(self._stored, names, strict=True)]
            self._schema = pa.schema(fields)
        self._rows = header.row_count

    @property
    def schema(self) -> pa.Schema:
        """Columns with their names and types."""
        return self._schema

    @property
    def partitions(self) -> int:
        """How many partitions the shuffle has."""
        return self._shuffle.partitions

    @property
    def num_rows(self) -> int:
        """Rows of all partitions."""
        return self._rows

    def stream(self, partitions: Iterable[int] | None = None) -> pa.RecordBatchReader:
        """The rows of these partitions, all by default, in order of the partitions; see shuffle_stream."""
        count = self._shuffle.partitions
        wanted = partition_list(range(count) if partitions is None else partitions, count)
        return pa.RecordBatchReader.from_batches(self._schema, Steady(self._batches(wanted)))

    def _batches(self, partitions: list[PartitionId]) -> Iterator[pa.RecordBatch]:
        if self._stored is None:
            return
        batches = join_small(rows_of(self._shuffle.reader(partitions), self._stored))
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise CorruptError(f"shuffle {self._shuffle.key}: a record is no Arrow batch: {error}") from error
            if batch is None:
                return
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)


def open_rows(session: Session, shuffle_id: int, *, generation: int = 0) -> ArrowRows:
    """Open a committed shuffle of the session's application for its rows. Raises as shuffle_table."""
    check_session(session)
    return ArrowRows(session.open_shuffle(shuffle_id, generation))


def shuffle_table(session: Session, shuffle_id: int, partitions: Iterable[int] | None = None) -> pa.Table:
    """Return the rows of a committed shuffle, or of some partitions, as one table.

    shuffle_id: from holdfast.client.spark.shuffle_id, write_table or `holdfast shuffles`.
    Raises RetryError before the commit, ConflictError if its rows are not Arrow, DataLostError or CorruptError with
    the place.
    """
    return open_rows(session, shuffle_id).stream(partitions).read_all()


def shuffle_stream(session: Session, shuffle_id: int, partitions: Iterable[int] | None = None) -> pa.RecordBatchReader:
    """Return a reader of the same rows with a few batches in memory. Iterate it once.

    It has the Arrow C stream interface for DuckDB, pandas and Polars. Errors are raised when it reaches them.
    """
    return open_rows(session, shuffle_id).stream(partitions)


def write_table(
    session: Session,
    data: Any,
    partitions: int,
    *,
    by: str | None = None,
    replication: int = 1,
    ack: Ack | AckName = Ack.WRITTEN,
    compression: str = "lz4",
) -> int:
    """Write rows as a shuffle, commit it, and return its number.

    data: anything with the Arrow C stream interface: a table, a reader, a DataFrame of pandas or Polars.
    by: an integer column with each row's partition; without it rows are distributed in turn.
    Others as in holdfast.client.spark.shuffle. Raises ConfigError for wrong arguments, columns or rows; then nothing
    is committed.
    """
    check_session(session)
    whole("partitions", partitions, 1, PARTITIONS_MAX)
    compression_of("compression", compression)
    reader = _reader(data)
    schema = plain_schema(reader.schema)
    if by is not None and (schema.names.count(by) != 1 or not pa.types.is_integer(schema.field(by).type)):
        raise ConfigError(f"`by` is the name of one integer column, not {by!r}; there are {', '.join(schema.names)}")
    target = session.register_map_shuffle(partitions, maps=2, replication=replication, ack=ack)
    try:
        _write(target, reader, schema, by, compression)
    except BaseException:
        target.unregister()
        raise
    return int(target.key.shuffle)


def _write(
    target: MapShuffle, reader: pa.RecordBatchReader, schema: pa.Schema, by: str | None, compression: str
) -> None:
    """One map with all rows, a second one with the header."""
    sorter = Sorter(target.partitions, by is not None)
    inner = pa.schema([field.with_name(f"c{index}") for index, field in enumerate(schema)])
    batches = (
        pa.RecordBatch.from_arrays(rows.columns, schema=inner)
        if by is None
        else _numbered(rows, inner, schema.get_field_index(by), by, target.partitions)
        for rows in _stored(reader, schema)
    )
    with target.writer(0, _OWN_ATTEMPT | secrets.randbits(63), codec=compression) as writer:
        status = sorter.write(batches, writer)
    spark_text = spark_schema(schema)
    header = Header(
        spark_schema=spark_text,
        arrow_schema=inner.serialize().to_pybytes(),
        row_count=sorter.rows,
        size_bytes=sorter.total_bytes,
        names=() if spark_text else tuple(schema.names),
    )
    target.commit([status, write_header(target, 1, header)])


def _numbered(rows: pa.RecordBatch, schema: pa.Schema, index: int, by: str, partitions: int) -> pa.RecordBatch:
    """The rows, as `schema`, behind a first column with the number of each one's partition."""
    import pyarrow.compute as pc

    numbers = rows.column(index)
    least, most = pc.min_max(numbers).as_py().values()
    if numbers.null_count or (least is not None and not 0 <= least <= most < partitions):
        wrong = "null" if numbers.null_count else least if least < 0 else most
        raise ConfigError(f"column {by} is the partition: 0 to {partitions - 1} and never null, and has {wrong}")
    fields = [pa.field("partition", pa.int64()), *schema]
    return pa.RecordBatch.from_arrays([numbers.cast(pa.int64()), *rows.columns], schema=pa.schema(fields))


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise ConfigError(f"`data` is a table of Arrow, pandas or Polars, not {type(data).__name__}")


def _stored(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows as they are stored, in batches of about a piece's size: one first, then twice as many until it is
    reached, since what the dictionaries of a batch make of it shows only when its rows are put together."""
    count = 1
    for batch in reader:
        if batch.num_rows and not batch.num_columns:
            raise ConfigError(f"`data` has {batch.num_rows} rows and no columns: there is nothing to write")
        start = 0
        while start < batch.num_rows:
            try:
                rows = stored(batch.slice(start, count), schema)
            except pa.ArrowException as error:
                if min(count, batch.num_rows - start) == 1:
                    raise ConfigError(f"a row cannot be written: {error}") from error
                count = max(1, min(count, batch.num_rows - start) // 2)
                continue
            yield rows
            start += rows.num_rows
            count = max(1, min(2 * count, GATHER_ROWS, rows.num_rows * PIECE_BYTES // max(size_of(rows), 1)))
