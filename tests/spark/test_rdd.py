"""The example of docs/use/python.md that pushes from an RDD, run as it stands there."""

import re
from collections import defaultdict
from typing import Any

from pyspark.sql import SparkSession

from holdfast.client import Session
from tests.support.tree import ROOT


def test_the_example_of_the_documentation_runs(spark: SparkSession, session: Session) -> None:
    """Values are grouped by key through a shuffle of REDUCE partitions, with the attempts that Spark numbers."""
    page = (ROOT / "docs" / "use" / "python.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(from pyspark import TaskContext\n.*?)```", page, re.DOTALL)
    rdd = spark.sparkContext.parallelize([(number % 10, number) for number in range(1_000)], 4)
    names: dict[str, Any] = {"rdd": rdd, "session": session, "sc": spark.sparkContext}
    exec(code, names)
    expected = defaultdict(list)
    for key, value in rdd.collect():
        expected[key].append(value)
    assert {key: sorted(values) for key, values in names["grouped"].collect()} == expected
