"""What the Spark drill asks: tables that are computed, and queries that shuffle them in every common way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: So that small tables are joined by shuffles of many tasks, and the skewed one in slices.
_SETTINGS = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1m",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1m",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
}


@dataclass(frozen=True, slots=True)
class Query:
    """One query; `ordered` if it says in which order its rows come."""

    sql: str
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Statements that make the tables, queries by name, and further settings of Spark."""

    prepare: tuple[str, ...]
    queries: dict[str, Query]
    settings: Mapping[str, str]


def own(rows: int) -> Workload:
    """Joins, aggregations, sorts and skew over tables of `rows` and 5,000 rows that are computed as they are read."""
    facts = (
        f"CREATE TEMPORARY VIEW facts AS SELECT id, id % 5000 AS key, IF(id % 3 = 0, 7, id % 2000) AS skewed, "
        f"sha2(CAST(id AS STRING), 256) AS text FROM range(0, {rows}, 1, 8)"
    )
    names = (
        "CREATE TEMPORARY VIEW names AS SELECT id AS key, id % 97 AS kind, md5(CAST(id AS STRING)) AS name "
        "FROM range(0, 5000, 1, 4)"
    )
    return Workload(
        (facts, names),
        {
            "aggregate": Query("SELECT key, count(*), sum(id), max(text) FROM facts GROUP BY key"),
            "join": Query(
                "SELECT kind, count(*), sum(crc32(text || name)) FROM facts JOIN names USING (key) GROUP BY kind"
            ),
            "skew": Query(
                "SELECT name, count(*), sum(crc32(text)) FROM facts JOIN names ON skewed = names.key GROUP BY name"
            ),
            "sort": Query("SELECT text, id FROM facts WHERE id % 10 = 0 ORDER BY text", ordered=True),
            "window": Query(
                "SELECT place, sum(crc32(text)) FROM (SELECT text, row_number() OVER (PARTITION BY key ORDER BY text) "
                "% 50 AS place FROM facts) GROUP BY place"
            ),
            "distinct": Query("SELECT kind, count(DISTINCT text) FROM facts JOIN names USING (key) GROUP BY kind"),
        },
        _SETTINGS,
    )
