"""What Spark's environment (SparkEnv) has, for jobs of tests."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

#: What is asked for, and its class.
_PARTS = {
    "blockManager": "org.apache.spark.storage.BlockManager",
    "closureSerializer": "org.apache.spark.serializer.Serializer",
    "mapOutputTracker": "org.apache.spark.MapOutputTracker",
    "shuffleManager": "org.apache.spark.shuffle.ShuffleManager",
}


def spark_env(spark: SparkSession, part: str) -> Any:
    """One part of the environment of a session's driver. By method handles: py4j looks at all methods of a class, and
    in Spark 4.3 one of SparkEnv's has a type whose protobuf classes the distribution lacks."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    env, found = [
        jvm.java.lang.Class.forName(name, True, loader) for name in ("org.apache.spark.SparkEnv", _PARTS[part])
    ]
    lookup, method_type = jvm.java.lang.invoke.MethodHandles.publicLookup(), jvm.java.lang.invoke.MethodType.methodType
    current = lookup.findStatic(env, "get", method_type(env)).invokeWithArguments(jvm.java.util.ArrayList())
    values = jvm.java.util.ArrayList()
    values.add(current)
    return lookup.findVirtual(env, part, method_type(found)).invokeWithArguments(values)
