"""`share`: Spark's Python workers may use the shuffles of this driver, on a secured cluster.

Rules: what tasks carry has the token sealed; the key travels separately, as a file that Spark distributes
(client/connection/carried.py). Without security it is never asked for. Called by api.py, and by users of Connect.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.client.connection.carried import key_file, share_with_context


def share(spark: SparkSession) -> None:
    """Let tasks of this session use pickled shuffles on a secured cluster.

    Needed once per Spark Connect session, before your own functions use a shuffle.
    """
    try:
        context = spark.sparkContext
    except (PySparkException, AttributeError):
        spark.addArtifacts(str(key_file()), file=True)  # Spark Connect
        return
    share_with_context(context)
