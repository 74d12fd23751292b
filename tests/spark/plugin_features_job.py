"""One application that does what the table of docs/use/spark.md lists; run by tests/spark/test_plugin_secure.py."""

from pyspark.sql import SparkSession

from tests.spark.plugin_io_job import skewed
from tests.spark.plugin_job import Steps, main, sums
from tests.spark.plugin_life_job import barrier, speculation, streaming


def features(spark: SparkSession) -> Steps:
    """The jobs, one after the other, and at last Spark's settings."""
    for each in (sums, barrier, speculation, streaming):
        yield from each(spark)
    yield skewed(spark)
    yield dict(spark.sparkContext.getConf().getAll())


if __name__ == "__main__":
    main({"features": features})
