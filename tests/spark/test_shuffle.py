"""`shuffle` on a real cluster and real Spark: every row comes back, where Spark would have put it, however often."""

import datetime
import decimal
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql import types as T  # noqa: N812

import holdfast
from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster
from holdfast.client.spark import attach, shuffle, shuffle_id
from holdfast.common.errors import ConfigError

UTC = datetime.UTC
MARCH = datetime.datetime(2024, 3, 10, tzinfo=UTC).replace(tzinfo=None)
EVERY_TYPE: list[tuple[str, list[Any]]] = [
    ("boolean", [True, False, None]),
    ("tinyint", [-128, 127, None]),
    ("smallint", [-32768, 32767, None]),
    ("int", [-(2**31), 2**31 - 1, None]),
    ("bigint", [-(2**63), 2**63 - 1, None]),
    ("float", [1.5, float("-inf"), None]),
    ("double", [-0.0, 1e300, None]),
    ("string", ["", "naïve ☂", None]),
    ("binary", [b"", b"\x00\xff", None]),
    ("decimal(38,18)", [decimal.Decimal("-12345678901234567890.123456789012345678"), decimal.Decimal(0), None]),
    ("decimal(5,2)", [decimal.Decimal("999.99"), decimal.Decimal("-0.01"), None]),
    ("date", [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    (
        "timestamp",
        [datetime.datetime(2024, 3, 10, 7, 30, 0, 123456, UTC), datetime.datetime(1970, 1, 2, tzinfo=UTC), None],
    ),
    ("timestamp_ntz", [MARCH.replace(hour=2, minute=30), MARCH.replace(year=1900), None]),
    ("interval day to second", [datetime.timedelta(days=-3, microseconds=1), datetime.timedelta(0), None]),
    ("array<int>", [[], [1, None, 3], None]),
    ("array<array<string>>", [[["a"], None, []], [], None]),
    ("map<string,bigint>", [{"a": 1, "b": None}, {}, None]),
    ("struct<x:int,y:struct<z:string,w:array<date>>>", [(1, ("s", [datetime.date(2020, 2, 29)])), (None, None), None]),
    ("array<struct<k:string,v:map<int,double>>>", [[("a", {1: 2.0}), None], [], None]),
    ("void", [None, None, None]),
]


def numbered(df: DataFrame) -> dict[int, Counter[tuple[Any, ...]]]:
    """The rows of each partition, as multisets."""
    found: dict[int, Counter[tuple[Any, ...]]] = {}
    for row in df.withColumn("_partition", F.spark_partition_id()).collect():
        *values, partition = row
        found.setdefault(partition, Counter())[tuple(map(repr, values))] += 1
    return found


def partition_id() -> int:
    task = TaskContext.get()
    assert task is not None, "outside a task"
    return task.partitionId()


def rows(df: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(repr, row)) for row in df.collect())


def test_every_type_comes_back(spark: SparkSession, session: Session) -> None:
    """Values at the edges and nulls of each type, with its schema, through the map side, the wire and back."""
    fields = ", ".join(f"v{index} {kind}" for index, (kind, _) in enumerate(EVERY_TYPE))
    schema: Any = T.StructType.fromDDL(f"id bigint not null, {fields}")
    data: list[Any] = [(number, *(values[number % len(values)] for _, values in EVERY_TYPE)) for number in range(7)]
    df = spark.createDataFrame(data, schema)
    out = shuffle(df, 2, "id", session=session)
    assert out.schema == df.schema
    assert out.rdd.getNumPartitions() == 2
    found, wanted = (sorted(each.collect(), key=lambda row: row.id) for each in (out, df))
    for index, (kind, _) in enumerate(EVERY_TYPE):
        assert [repr(row[index + 1]) for row in found] == [repr(row[index + 1]) for row in wanted], kind


def test_variant_comes_back(spark: SparkSession, session: Session) -> None:
    """A variant keeps its value and its type."""
    df = spark.sql("select id, parse_json(concat('{\"a\": [1, ', id, ', null]}')) as v from range(5)")
    out = shuffle(df, 2, session=session)
    assert out.schema == df.schema
    as_text = [F.col("id"), F.to_json("v")]
    assert rows(out.select(*as_text)) == rows(df.select(*as_text))


def test_odd_names_and_metadata_come_back(spark: SparkSession, session: Session) -> None:
    """Names with dots, blanks, in two cases and twice, nullability and column metadata are the original's."""
    df = spark.range(3).select(
        F.col("id").alias("a.b"),
        F.col("id").alias("A b"),
        F.lit("x").alias("same"),
        F.lit("y").alias("same"),
        F.col("id").alias("m", metadata={"unit": "s"}),
    )
    out = shuffle(df, 2, session=session)
    assert out.schema == df.schema
    assert out.schema["m"].metadata == {"unit": "s"}
    assert rows(out) == rows(df)


@pytest.mark.parametrize("partitions", [1, 7, 20])
def test_rows_land_where_repartition_puts_them(spark: SparkSession, session: Session, partitions: int) -> None:
    """The same rows in the same partitions as df.repartition(n, cols), for keys of many types with nulls."""
    df = spark.range(0, 400, 1, 4).select(
        "id",
        F.when(F.col("id") % 5 > 0, F.concat(F.lit("k"), F.col("id") % 37)).alias("s"),
        (F.col("id") % 11).cast("decimal(20,3)").alias("d"),
        F.struct((F.col("id") % 3).alias("x"), F.array(F.col("id") % 2, F.lit(None)).alias("y")).alias("n"),
        F.when(F.col("id") % 2 == 0, -0.0).otherwise(0.0).alias("zero"),
    )
    for keys in (["id"], ["s", "d"], ["n", "zero"]):
        assert numbered(shuffle(df, partitions, *keys, session=session)) == numbered(df.repartition(partitions, *keys))


def test_expressions_as_keys(spark: SparkSession, session: Session) -> None:
    """Columns and expressions are keys as in repartition."""
    df = spark.range(100)
    keys = (F.col("id") % 7, F.upper(F.col("id").cast("string")))
    assert numbered(shuffle(df, 5, *keys, session=session)) == numbered(df.repartition(5, *keys))


def test_without_columns_rows_are_dealt_evenly(spark: SparkSession, session: Session) -> None:
    """Round robin: sizes of partitions differ by at most the number of maps."""
    df = spark.range(0, 1000, 1, 4)
    counts = [sum(rows.values()) for rows in numbered(shuffle(df, 8, session=session)).values()]
    assert len(counts) == 8
    assert max(counts) - min(counts) <= 4


@pytest.mark.parametrize("partitions", [1, 5])
def test_empty_inputs(spark: SparkSession, session: Session, partitions: int) -> None:
    """No rows, no partitions, rows in one of many partitions: right schema, right rows."""
    schema = "a int, b array<string>"
    for df in (
        spark.createDataFrame([], schema),
        spark.createDataFrame(spark.sparkContext.emptyRDD(), schema),
        spark.range(0, 100, 1, 10).where("id = 55"),
        spark.range(0, 100, 1, 10).where("id < 0"),
    ):
        out = shuffle(df, partitions, df.columns[0], session=session)
        assert out.schema == df.schema
        assert rows(out) == rows(df)
        assert out.rdd.getNumPartitions() == partitions


def test_many_small_arrow_batches_and_large_rows(spark: SparkSession, session: Session) -> None:
    """Batches of three rows are gathered; rows of megabytes are cut and joined."""
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or "10000"
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        df = spark.range(0, 1000, 1, 2).select("id", F.repeat(F.lit("x"), 10).alias("s"))
        assert rows(shuffle(df, 4, "id", session=session)) == rows(df)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    large = spark.range(0, 5, 1, 2).select("id", F.repeat(F.sha2(F.col("id").cast("string"), 256), 300_000).alias("s"))
    sums = [F.col("id"), F.length("s"), F.crc32("s")]
    assert rows(shuffle(large, 2, "id", session=session).select(*sums)) == rows(large.select(*sums))


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_compression(spark: SparkSession, session: Session, compression: str) -> None:
    """Every codec gives the rows back (lz4 is the default of the other tests)."""
    df = spark.range(0, 3000, 1, 2).select("id", F.repeat(F.lit("text "), 30).alias("s"))
    assert rows(shuffle(df, 3, "id", session=session, compression=compression)) == rows(df)


def test_reading_again_runs_no_map(spark: SparkSession, session: Session, tmp_path: Path) -> None:
    """Three evaluations of the result, one of them after both workers were killed: every map ran once."""
    log = str(tmp_path / "maps")
    df = _logged(spark.range(0, 1000, 1, 4), log)
    out = shuffle(df, 6, "id", session=session)
    ran = len(Path(log).read_text().split())
    assert ran == 4
    assert out.count() == 1000
    assert out.agg(F.sum("id")).collect()[0][0] == 499500
    assert out.join(out.select(F.col("id").alias("other")), F.col("id") == F.col("other")).count() == 1000
    assert len(Path(log).read_text().split()) == ran


def _logged(df: DataFrame, log: str) -> DataFrame:
    """The same rows; each task that computes some appends a line to the file `log`."""

    def run(batches: Any) -> Any:
        with open(log, "a") as file:
            file.write(f"{partition_id()}\n")
        yield from batches

    return df.mapInArrow(run, df.schema)


def test_workers_killed_between_write_and_read(
    spark: SparkSession, session: Session, cluster: LocalCluster, tmp_path: Path
) -> None:
    """kill -9 of every worker after the map stage, restart, read: equal rows, no map run again."""
    df = _logged(
        spark.range(0, 2000, 1, 4).select("id", F.sha2(F.col("id").cast("string"), 256).alias("s")),
        str(tmp_path / "maps"),
    )
    out = df.transform(holdfast.shuffle, 4, "id", session=session)
    for worker in cluster.workers:
        worker.kill()
    for worker in cluster.workers:
        worker.start()
    found = rows(out)
    assert len((tmp_path / "maps").read_text().split()) == 4
    assert found == rows(df)


def test_a_task_that_fails_is_tried_again(spark: SparkSession, session: Session, tmp_path: Path) -> None:
    """Every map fails after some output at its first try; the second try's rows count, once."""
    failed = str(tmp_path)

    def fail_once(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            marker = Path(failed) / str(partition_id())
            if number == 1 and not marker.exists():
                marker.touch()
                raise RuntimeError("the first try fails")
            yield batch

    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or "10000"
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        df = spark.range(0, 1000, 1, 2)
        out = shuffle(df.mapInArrow(fail_once, df.schema), 3, "id", session=session)
        assert len(list(tmp_path.iterdir())) == 2
        assert numbered(out) == numbered(df.repartition(3, "id"))
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


def test_a_failed_map_stage_says_why_and_leaves_nothing(spark: SparkSession, session: Session) -> None:
    """The user's exception reaches the caller, and the shuffle is not left registered."""
    df = spark.range(10).select(F.raise_error(F.lit("user error")).cast("int").alias("x"))
    with pytest.raises(PySparkException, match="user error"):
        shuffle(df, 2, session=session)


def test_the_estimate_keeps_spark_from_broadcasting(spark: SparkSession, session: Session) -> None:
    """Spark must not take a large result for a small one: the plan's size estimate is at least the data's, bounded."""
    df = spark.range(0, 200_000, 1, 2).select("id", F.sha2(F.col("id").cast("string"), 256).alias("s"))
    out = shuffle(df, 16, "id", session=session)
    plan = out._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert int(str(plan)) >= 200_000 * 72
    assert out.count() == 200_000


def test_coalesced_results(spark: SparkSession, session: Session) -> None:
    """A task that reads several partitions reads each of them once."""
    df = spark.range(0, 1000, 1, 2)
    assert rows(shuffle(df, 9, "id", session=session).coalesce(2)) == rows(df)


def test_another_driver_attaches(spark: SparkSession, session: Session, cluster: LocalCluster) -> None:
    """A second driver process reads the rows by application name and shuffle number, without anything else."""
    df = spark.range(0, 500, 1, 3).select("id", F.col("id").cast("timestamp").alias("t"))
    out = shuffle(df, 5, "id", session=session)
    program = textwrap.dedent(
        """
        import os, sys
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark.sql import SparkSession, functions as F
        from holdfast.client import Session
        from holdfast.client.spark import attach
        endpoints, number = sys.argv[1:]
        spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
                 .config("spark.sql.session.timeZone", "Asia/Tokyo")
                 .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
                 .getOrCreate())
        with Session(endpoints, app="spark tests", attach=True) as session:
            df = attach(spark, session, int(number))
            print("RESULT", df.agg(F.count("*"), F.sum("id"), F.sum(F.unix_micros("t"))).collect()[0], df.columns)
        """
    )
    arguments = [sys.executable, "-c", program, cluster.endpoints, str(shuffle_id(out))]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    total = 499 * 500 // 2
    assert re.findall(r"=(\d+)", line) == ["500", str(total), str(total * 10**6)]
    assert "['id', 't']" in line


def test_attach_in_the_same_driver(spark: SparkSession, session: Session, cluster: LocalCluster) -> None:
    """attach gives the same schema and rows; a DataFrame made from the result has no shuffle number."""
    df = spark.range(100).select("id", F.array("id").alias("a"))
    out = shuffle(df, 4, "id", session=session)
    with Session(cluster.endpoints, app="spark tests", attach=True) as other:
        again = attach(spark, other, shuffle_id(out))
        assert again.schema == df.schema
        assert numbered(again) == numbered(out)
        assert shuffle_id(again) == shuffle_id(out)
    with pytest.raises(ConfigError, match="returned"):
        shuffle_id(out.where("id > 3"))


def test_wrong_arguments(spark: SparkSession, session: Session) -> None:
    """Mistakes are told before anything runs."""
    df = spark.range(3)
    with pytest.raises(ConfigError, match="num_partitions"):
        shuffle(df, 0, session=session)
    with pytest.raises(ConfigError, match="columns follow"):
        shuffle(df, "id", session=session)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="compression"):
        shuffle(df, 2, session=session, compression="gzip")
    with pytest.raises(PySparkException, match="no_such_column"):
        shuffle(df, 2, "no_such_column", session=session)


def test_keys_that_python_cannot_place_are_refused(spark: SparkSession, session: Session) -> None:
    """repartition hashes collated strings by their collation, and maps sorted; `hash` does not: better refused."""
    collated = spark.sql("select id, named_struct('s', cast(id as string) collate utf8_lcase) as k from range(5)")
    with pytest.raises(ConfigError, match="collation"):
        shuffle(collated, 2, "k", session=session)
    assert rows(shuffle(collated, 2, "id", session=session)) == rows(collated)
    with pytest.raises(PySparkException, match="MAP"):
        shuffle(spark.sql("select map('a', id) as m from range(5)"), 2, "m", session=session)


def test_ten_thousand_partitions(spark: SparkSession, session: Session) -> None:
    """Ten thousand partitions are written, and each holds what repartition would give it; Spark reads some of them.

    Read by the library: ten thousand Python tasks are a matter of Spark's time per task. The long test has them.
    """
    df = spark.range(0, 20_000, 1, 3)
    out = shuffle(df, 10_000, "id", session=session)
    assert out.rdd.getNumPartitions() == 10_000
    written = session.open_shuffle(shuffle_id(out))
    schema = pa.schema([pa.field("c0", pa.int64(), nullable=False)])
    found = {
        (record.partition, row)
        for record in written.reader(range(10_000))
        for row in pa.ipc.read_record_batch(pa.py_buffer(record.payload), schema).column(0).to_pylist()
    }
    wanted = df.select(F.expr("pmod(hash(id), 10000)"), "id").collect()
    assert found == {(partition, row) for partition, row in wanted}
    assert len(out.take(20)) == 20
