"""A PySpark job whose every shuffle goes through Holdfast: enable() is all that says so.

With `holdfast local` running and HOLDFAST_MASTERS exported as it prints it:

    python examples/every_shuffle.py
"""

import os
import sys

from pyspark.sql import SparkSession, functions

from holdfast.client.spark import enable

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = SparkSession.builder.master("local[2]").appName("example")
spark = enable(builder, fallback="never").getOrCreate()

customers = spark.range(1_000).selectExpr("id AS customer", "id % 7 AS country")
orders = spark.range(1_000_000).selectExpr("id AS number", "id % 1000 AS customer", "id % 97 AS price")

# A join and two aggregations: Spark SQL plans the shuffles.
joined = orders.join(customers.hint("merge"), "customer")
sums = joined.groupBy("country").agg(functions.count("*").alias("orders"), functions.sum("price").alias("revenue"))
for row in sums.orderBy("country").collect():
    print(f"country {row.country}: {row.orders} orders, {row.revenue} in all")

# An RDD, whose records PySpark pickles.
words = spark.sparkContext.parallelize(["what", "is", "acknowledged", "is", "kept"] * 1_000, 4)
for word, times in sorted(words.map(lambda word: (word, 1)).reduceByKey(lambda one, other: one + other).collect()):
    print(f"{word}: {times}")

spark.stop()
