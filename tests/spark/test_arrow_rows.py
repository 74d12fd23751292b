"""Rows that PySpark wrote without a jar are read without Spark, and the other way round."""

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.client import Session
from holdfast.client.arrow.tables import shuffle_table, write_table
from holdfast.client.spark import attach, shuffle, shuffle_id


def test_what_spark_wrote_is_a_table(spark: SparkSession, session: Session):
    """Names, types and rows of a DataFrame's shuffle are those of the table, each row in the partition of its key."""
    frame = spark.range(3000).selectExpr("id", "cast(id % 5 AS int) AS `a key`", "array(id, null) AS pair")
    out = shuffle(frame, 8, "a key", session=session)
    table = shuffle_table(session, shuffle_id(out))
    assert table.schema.names == ["id", "a key", "pair"]
    assert sorted(table.column("id").to_pylist()) == list(range(3000))
    placed = {row["a key"]: row["p"] for row in out.selectExpr("`a key`", "spark_partition_id() AS p").collect()}
    for partition in range(8):
        some = shuffle_table(session, shuffle_id(out), [partition]).column("a key")
        assert set(some.to_pylist()) == {key for key, place in placed.items() if place == partition}
    assert shuffle_table(session, shuffle_id(shuffle(frame.where("id < 0"), 2, session=session))).schema.names == [
        "id",
        "a key",
        "pair",
    ]


def test_what_was_written_without_spark_is_a_dataframe(spark: SparkSession, session: Session):
    """A table that Python wrote is attached by Spark, with Spark's types for its columns."""
    table = pa.table({"id": range(1000), "name": [f"n{index}" for index in range(1000)], "x": [0.5] * 1000})
    number = write_table(session, table, 4)
    found = attach(spark, session, number)
    assert found.dtypes == [("id", "bigint"), ("name", "string"), ("x", "double")]
    assert sorted(tuple(row) for row in found.collect()) == [(index, f"n{index}", 0.5) for index in range(1000)]


def test_a43_dictionaries_of_a_table_are_values_of_a_dataframe(spark: SparkSession, session: Session):
    """Dictionaries in lists, as Polars has them, and large lists and strings are arrays and strings for Spark."""
    kinds = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", "b"], pa.large_string()))
    lists = pa.LargeListArray.from_arrays(pa.array([0, 2, 3], pa.int64()), kinds)
    found = attach(spark, session, write_table(session, pa.table({"kinds": lists}), 1))
    assert found.dtypes == [("kinds", "array<string>")]
    assert [row.kinds for row in found.collect()] == [["a", "b"], ["a"]]
