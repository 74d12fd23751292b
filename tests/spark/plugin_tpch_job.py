"""TPC-H queries over the tables of benchmarks/tpch.py, one step each; run by tests/spark/test_plugin_tpch.py.

The directory with the tables is HOLDFAST_TPCH. Decimals and dates are told as text, whole.
"""

import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.plugin_job import Steps, main


def reported(cell: Any) -> Any:
    """A cell as JSON has it."""
    if isinstance(cell, Decimal | date):
        return str(cell)
    return cell


def tpch(spark: SparkSession) -> Steps:
    """The rows of every query, in the order in which Spark gives them."""
    data = Path(os.environ["HOLDFAST_TPCH"])
    for table in (data / "tables").glob("*.parquet"):
        spark.read.parquet(str(table)).createOrReplaceTempView(table.stem)
    for query in sorted((data / "queries").glob("*.sql")):
        rows = spark.sql(query.read_text(encoding="utf-8")).collect()
        yield [query.stem, [[reported(cell) for cell in row] for row in rows]]


if __name__ == "__main__":
    main({"tpch": tpch})
