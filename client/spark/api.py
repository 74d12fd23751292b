"""`shuffle` and `attach`: DataFrames whose rows pass through MAP partitions, on classic and Connect sessions alike.

Rules: only DataFrame operations (mapInArrow), no JVM access, so both kinds of session work. The map stage runs inside
the call and its collected reports name the winning attempts; what is returned reads committed data and nothing else, so
it can be evaluated any number of times, retried and speculated without a map being run again. Runs in the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from holdfast.client.checks import AckName, compression_of
from holdfast.client.session import Session, check_session
from holdfast.client.shuffle import MapShuffle
from holdfast.client.spark.header import Header, read_header, write_header
from holdfast.client.spark.map_side import REPORT_SCHEMA, WritePlan, write_task
from holdfast.client.spark.python_workers import check_python_workers, check_task_error
from holdfast.client.spark.reduce_side import ReadPlan, read_task
from holdfast.client.spark.sharing import share
from holdfast.client.write.status import MapStatus
from holdfast.common.errors import ConfigError, ConflictError, HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.limits import MIB, PARTITIONS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event

_NUMBER = "holdfast_partition"
#: Attribute of a returned DataFrame that names its shuffle.
_SHUFFLE_ATTRIBUTE = "_holdfast_shuffle"
#: Spark takes a result for small, and would send it whole to every executor of a join, below a threshold that is 10 MiB
#: by default; estimates are honest up to this size and at least this beyond it.
ESTIMATE_BYTES_MAX = 256 * MIB
#: What Spark takes for the size of one row of spark.range.
_RANGE_ROW_BYTES = 8


def shuffle(
    df: DataFrame,
    num_partitions: int,
    *cols: str | Column,
    session: Session,
    replication: int = 1,
    ack: Ack | AckName = Ack.WRITTEN,
    compression: str = "lz4",
) -> DataFrame:
    """Send the rows of `df` through Holdfast; return a DataFrame of `num_partitions` partitions that reads them.

    Rows go where `df.repartition(num_partitions, *cols)` puts them; without `cols` evenly. Rows of a map keep their
    order. The map stage runs now; read the result before the session closes.

    replication: copies, 1 to 5, on different hosts.
    compression: "lz4", "zstd", "zstd:9" with a level, or "none".
    Raises ConfigError, RetryError, NoRoomError; errors of tasks are at the end of Spark's exception.
    """
    _check(df, num_partitions, session, compression)
    check_python_workers(df.sparkSession)
    _share(df.sparkSession, session)
    target = session.register_map_shuffle(num_partitions, replication=replication, ack=ack)
    try:
        reports = _run_maps(df, cols, WritePlan(target, bool(cols), compression))
        statuses = [MapStatus.from_bytes(bytes(report.status)) for report in reports]
        header = Header(
            spark_schema=df.schema.json(),
            arrow_schema=next((bytes(report.schema) for report in reports if report.schema), b""),
            row_count=sum(report.row_count for report in reports),
            size_bytes=sum(report.size_bytes for report in reports),
        )
        statuses.append(write_header(target, len(statuses), header))
        target.commit(statuses)
    except BaseException as error:
        _forget(target)
        check_task_error(error)
        raise
    return _result(df.sparkSession, target, header)


def attach(spark: SparkSession, session: Session, shuffle_id: int) -> DataFrame:
    """Return a DataFrame that reads the shuffle `shuffle_id`, which another driver wrote.

    session: usually Session(endpoints, app=NAME, attach=True).
    Raises ConflictError if neither `shuffle` nor write_table wrote it.
    """
    check_session(session)
    check_python_workers(spark)
    _share(spark, session)
    found = session.open_shuffle(shuffle_id)
    return _result(spark, found, read_header(found))


def shuffle_id(df: DataFrame) -> int:
    """Return the shuffle number of a DataFrame from `shuffle` or `attach` itself. Raises ConfigError."""
    found = getattr(df, _SHUFFLE_ATTRIBUTE, None) if _SHUFFLE_ATTRIBUTE in vars(df) else None
    if found is None:
        raise ConfigError("shuffle_id takes the DataFrame that shuffle() or attach() returned")
    return int(found)


def _share(spark: SparkSession, session: Session) -> None:
    """Tasks carry a sealed token; without security they carry none."""
    if session.ticket.credentials is not None:
        share(spark)


def _run_maps(df: DataFrame, cols: Iterable[str | Column], plan: WritePlan) -> list[Any]:
    """Run the map stage; returns one report per map, of the attempt that Spark counts."""
    columns = _names(len(df.columns))
    if plan.numbered:
        _check_keys(df.select(*cols).schema)
        number = F.pmod(F.hash(*cols), F.lit(plan.shuffle.partitions)).cast("int")
        rows = df.select(number.alias(_NUMBER), "*").toDF(_NUMBER, *columns)
    else:
        rows = df.toDF(*columns)
    # Every column is needed, and their names are ours: nothing is left for a plan to prune or to confuse.
    return rows.mapInArrow(write_task(plan), REPORT_SCHEMA).collect()


def _result(spark: SparkSession, found: MapShuffle, header: Header) -> DataFrame:
    """The DataFrame that reads the shuffle, with the names and metadata of the original."""
    if not header.spark_schema:
        import pyarrow as pa

        from holdfast.client.arrow.types import not_in_spark

        inner = pa.ipc.read_schema(pa.py_buffer(header.arrow_schema))
        columns = not_in_spark(pa.schema(list(map(pa.Field.with_name, inner, header.names))))
        raise ConflictError(
            f"shuffle {found.key} has columns of types that Spark does not have, {', '.join(columns)}: read it with "
            "holdfast.client.arrow.tables.shuffle_table, or write it again with other types"
        )
    schema = StructType.fromJson(json.loads(header.spark_schema))
    per_partition = _rows_per_partition(found.partitions, header)
    plan = ReadPlan(found, header.arrow_schema, per_partition)
    names = _names(len(schema.fields))
    inner = StructType(
        [type(field)(name, field.dataType, field.nullable) for name, field in zip(names, schema.fields, strict=True)]
    )
    numbers = spark.range(0, found.partitions * per_partition, 1, found.partitions)
    numbers = numbers.where(numbers.id % per_partition == 0)
    read = numbers.mapInArrow(read_task(plan), inner)
    result = read.select(
        [
            F.col(name).alias(field.name, metadata=field.metadata or None)
            for name, field in zip(names, schema.fields, strict=True)
        ]
    )
    vars(result)[_SHUFFLE_ATTRIBUTE] = found.key.shuffle
    return result


def _rows_per_partition(partitions: int, header: Header) -> int:
    """How many rows of the range belong to a partition, of which all but the first are filtered out.

    Spark takes the size of the range for the size of the result, filtered or not. With one row per partition it would
    take gigabytes for a few hundred bytes and broadcast them in joins.
    """
    rows = min(header.size_bytes, ESTIMATE_BYTES_MAX) // _RANGE_ROW_BYTES
    return max(1, -(-rows // partitions))


def _names(count: int) -> list[str]:
    return [f"c{index}" for index in range(count)]


def _check(df: DataFrame, num_partitions: int, session: Session, compression: str) -> None:
    check_session(session)
    if isinstance(num_partitions, bool) or not isinstance(num_partitions, int):
        raise ConfigError(f"`num_partitions` is a number, not {num_partitions!r}; the columns follow it")
    if not 1 <= num_partitions <= PARTITIONS_MAX:
        raise ConfigError(f"`num_partitions` is 1 to {PARTITIONS_MAX}, not {num_partitions}")
    compression_of("compression", compression)
    if not df.columns:
        raise ConfigError("a DataFrame without columns has nothing to shuffle")
    for field in df.schema.fields:
        if _any_type(field.dataType, _is_unknown_to_arrow):
            raise ConfigError(
                f"column {field.name!r} is {field.dataType.simpleString()}, which Arrow does not carry; cast it, for "
                "example to int or string"
            )


def _check_keys(keys: StructType) -> None:
    for field in keys.fields:
        if _any_type(field.dataType, _is_collated):
            raise ConfigError(
                f"key {field.name!r} has a collation: repartition would hash it by the collation, which Python cannot; "
                "use an expression such as lower(column) as the key"
            )


def _forget(target: MapShuffle) -> None:
    """Best effort: the rest is deleted when the session's lease expires."""
    try:
        target.unregister()
    except HoldfastError as error:
        log_event(LogEvent.SHUFFLE_UNREGISTER_FAILED, shuffle=target.key, reason=error)


def _any_type(kind: DataType, test: Callable[[DataType], bool]) -> bool:
    """Whether the type or one inside it passes the test."""
    inside: list[DataType] = []
    if isinstance(kind, StructType):
        inside = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        inside = [kind.elementType]
    elif isinstance(kind, MapType):
        inside = [kind.keyType, kind.valueType]
    return test(kind) or any(_any_type(each, test) for each in inside)


def _is_unknown_to_arrow(kind: DataType) -> bool:
    # pyspark 3.4 has no class for one of them.
    return type(kind).__name__ in ("YearMonthIntervalType", "CalendarIntervalType")


def _is_collated(kind: DataType) -> bool:
    return isinstance(kind, StringType) and getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"
