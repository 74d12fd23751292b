"""`shuffle` of rows as the JVM makes them: long ones, and every shape of nested ones, with parts that are not there."""

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql import types as T  # noqa: N812

from holdfast.client import Session
from holdfast.client.spark import shuffle

FLAT: list[tuple[T.DataType, list[Any]]] = [
    (T.LongType(), [0, -1, None]),
    (T.StringType(), ["", "naïve ☂", None]),
    (T.BinaryType(), [b"", b"\x00", None]),
    (T.BooleanType(), [True, None]),
    (T.DoubleType(), [0.5, None]),
    (T.NullType(), [None]),
]


def drawn_type(draw: random.Random, depth: int) -> T.DataType:
    """A type of Spark, nested at most so deep."""
    form = draw.choice(["flat", "array", "map", "struct"]) if depth else "flat"
    if form == "array":
        return T.ArrayType(drawn_type(draw, depth - 1))
    if form == "map":
        return T.MapType(draw.choice([T.StringType(), T.LongType()]), drawn_type(draw, depth - 1))
    if form == "struct":
        return T.StructType([T.StructField(f"f{at}", drawn_type(draw, depth - 1)) for at in range(draw.choice([1, 2]))])
    return draw.choice(FLAT)[0]


def drawn_value(draw: random.Random, kind: T.DataType, nothing: float) -> Any:
    """A value of it; so often null, or empty."""
    if draw.random() < nothing:
        return None
    count = 0 if draw.random() < nothing else draw.choice([1, 2])
    if isinstance(kind, T.ArrayType):
        return [drawn_value(draw, kind.elementType, nothing) for _ in range(count)]
    if isinstance(kind, T.MapType):
        keys = ["a", "b"] if isinstance(kind.keyType, T.StringType) else [1, 2]
        return {key: drawn_value(draw, kind.valueType, nothing) for key in keys[:count]}
    if isinstance(kind, T.StructType):
        return tuple(drawn_value(draw, field.dataType, nothing) for field in kind)
    return draw.choice(next(values for flat, values in FLAT if flat == kind))


def test_a45_a_null_list_of_nested_structs(spark: SparkSession, session: Session) -> None:
    """One row whose only column but the key is null: the JVM gives its parts no offsets, and no worker crashes."""
    schema: Any = T.StructType.fromDDL("id bigint, v array<struct<a:bigint,b:map<string,array<bigint>>>>")
    df = spark.createDataFrame([(1, None)], schema)
    assert shuffle(df, 5, "id", session=session).collect() == df.collect()


@pytest.mark.parametrize("seed", range(8))
def test_a45_rows_that_the_jvm_made(spark: SparkSession, session: Session, seed: int) -> None:
    """Any nested types, of one row and of many, mostly null, mostly empty or full: all rows come back equal."""
    draw = random.Random(seed)
    kinds = [drawn_type(draw, 4) for _ in range(12)]
    schema = T.StructType([T.StructField("id", T.LongType())])
    for at, kind in enumerate(kinds):
        schema = schema.add(f"v{at}", kind)
    for count in (1, 40):
        nothing = draw.choice([0.1, 0.5, 0.95])
        rows = [(at, *(drawn_value(draw, kind, nothing) for kind in kinds)) for at in range(count)]
        df = spark.createDataFrame(rows, schema).coalesce(2)
        for found in (shuffle(df, 5, "id", session=session), shuffle(df, 3, session=session)):
            assert sorted(map(repr, found.collect())) == sorted(map(repr, df.collect())), df.schema.simpleString()


def test_a44_long_rows(spark: SparkSession, session: Session) -> None:
    """Rows of 20 KB, of which Spark hands 10,000 to Python at a time; long ones among short ones; and a row that is
    longer than a region of a map file: all come back, in the partition where repartition puts them."""
    for text in (
        "array_join(transform(sequence(1, 320), at -> sha2(concat(id, '/', at), 256)), '')",  # no codec shrinks it much
        "if(id % 1000 = 0, rpad(string(id), 4000000, 'abc'), string(id))",
        "if(id = 7, rpad(string(id), 70000000, 'abc'), string(id))",
    ):
        df = spark.range(0, 5_000, 1, 1).selectExpr("id", f"{text} AS text")
        out = shuffle(df, 4, "id", session=session)
        sums = [F.count("*"), F.sum("id"), F.sum(F.length("text")), F.sum(F.hash("text"))]
        found, wanted = (
            sorted(each.withColumn("part", F.spark_partition_id()).groupBy("part").agg(*sums).collect())
            for each in (out, df.repartition(4, "id"))
        )
        assert found == wanted, text
