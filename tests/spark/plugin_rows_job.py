"""Rows of every shape through a shuffle, one step each: how many, and whether they are those that went in; run by
tests/spark/test_plugin_rows.py."""

from pyspark.sql import DataFrame, SparkSession

from tests.spark.plugin_job import Steps, main

#: Longer than a batch, and than the pieces of a record.
LONG, LONGEST = 300_000, 9_000_000
#: Rows of `repeated`.
REPEATED = 200_000


def shapes(spark: SparkSession) -> dict[str, DataFrame]:
    """Frames by what is in their rows."""
    many, few = spark.range(0, 20_000, 1, 3), spark.range(0, 60, 1, 3)
    return {
        "nulls": many.selectExpr(
            "id",
            "IF(id % 3 = 0, NULL, id * 7) AS a",
            "IF(id % 2 = 0, NULL, string(id)) AS b",
            "CAST(NULL AS DOUBLE) AS c",
        ),
        "texts": many.selectExpr("id", "repeat('x', int(id % 50)) AS t", "sha2(string(id), 256) AS h", "'' AS e"),
        "decimals": many.selectExpr(
            "CAST(id AS DECIMAL(10, 2)) AS d",
            "CAST(id AS DECIMAL(30, 4)) * 1000003 AS wide",
            "IF(id % 5 = 0, NULL, CAST(-id AS DECIMAL(30, 0))) AS n",
        ),
        "nested": many.selectExpr(
            "struct(id, struct(string(id) AS b)) AS s", "array(id, NULL, -id) AS a", "map(id, string(id)) AS m"
        ),
        "small": many.selectExpr(
            "id % 2 = 0 AS t",
            "CAST(id % 100 AS BYTE) AS b",
            "float(id) / 3 AS f",
            "date_add(DATE'1992-01-01', int(id % 999)) AS d",
        ),
        "columns": spark.range(0, 2_000, 1, 3).selectExpr(*[f"id % {each + 2} AS c{each}" for each in range(300)]),
        "long": few.selectExpr("id", f"repeat(char(int(97 + id % 26)), int({LONG} + id)) AS text"),
        "longest": spark.range(0, 2, 1, 1).selectExpr("id", f"encode(repeat('ab', {LONGEST}), 'UTF-8') AS data"),
        "few": few.selectExpr("id", "string(id) AS text"),
        "none": many.where("id < 0"),
        "empty": many.where("id % 3 = 0").selectExpr("'' AS text"),
        "fieldless": many.select(),
    }


def shown(frame: DataFrame) -> list[str]:
    """What a frame holds, in an order of its own."""
    return sorted(map(str, frame.collect())) if frame.columns else [""] * frame.count()


def rows(spark: SparkSession) -> Steps:
    """Each shape as it is, and behind a shuffle."""
    for name, frame in shapes(spark).items():
        got = shown(frame.repartition(5))
        yield [name, len(got), got == shown(frame)]


def repeated(spark: SparkSession) -> Steps:
    """A few rows of 64 bytes that no planes make shorter, each again and again, in no order."""
    hashes = [f"xxhash64(xxhash64(id) % 10, {each}) AS h{each}" for each in range(8)]
    shuffled = spark.range(0, REPEATED, 1, 3).selectExpr(*hashes).repartition(5)
    yield shuffled.selectExpr("count(*)", *[f"bit_xor(h{each})" for each in range(8)]).collect()[0][0]


if __name__ == "__main__":
    main({"rows": rows, "repeated": repeated})
