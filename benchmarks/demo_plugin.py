"""The second half of the main job: TPC-H queries, every shuffle of which goes through the plug-in while servers die.

The leading master is killed in the middle of one query and a worker in the middle of another, each started again at
once. The answers are compared with DuckDB's, and the event log is asked whether any stage ran twice. Called by demo.py,
which starts Spark with `holdfast.client.spark.conf` and ends it.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.story import Story
from holdfast.client.cluster.local import LocalCluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import worker_status
from holdfast.common.sizes import in_bytes
from holdfast.tools.cli.output import in_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]

#: Queries that shuffle much, in this order.
QUERIES = ("q03", "q05", "q09", "q12", "q18", "q21")
#: Who is killed as soon as this query has begun to push.
KILLED = {"q05": "leader", "q09": "worker", "q18": "leader", "q21": "worker"}
PART = "six queries, every shuffle through the plug-in"


def settings(events: Path) -> dict[str, str]:
    """What this half sets beside `conf()`: joins that shuffle, and a log of what ran."""
    events.mkdir()
    return {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def ask(story: Story, cluster: LocalCluster, spark: "SparkSession", data: Path) -> bool:
    """Run the queries while servers are killed; True if every answer is DuckDB's."""
    for table in sorted((data / "tables").glob("*.parquet")):
        spark.read.parquet(str(table)).createOrReplaceTempView(table.stem)
    good = True
    with story.part(PART):
        for query in QUERIES:
            began = time.monotonic()
            story.say(f"TPC-H {query} begins")
            text = (data / "queries" / f"{query}.sql").read_text(encoding="utf-8")
            with ExitStack() as meanwhile:
                if query in KILLED:
                    meanwhile.enter_context(_killing(story, cluster, KILLED[query]))
                rows = [tuple(row) for row in spark.sql(text).collect()]
            same = plain(rows) == plain(stored(data, query)[1]) and bool(rows)
            good &= same
            took = in_seconds(time.monotonic() - began)
            story.say(f"TPC-H {query}: {len(rows)} rows in {took}; equal to DuckDB's answer: {yes(same)}")
    return good


def ran_again(events: Path) -> int:
    """Attempts of stages after their first one, from the event log of a session that has ended."""
    (log,) = (path for path in events.iterdir() if not path.name.startswith("."))
    said = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    stages = (event["Stage Info"] for event in said if event["Event"] == "SparkListenerStageSubmitted")
    return sum(stage["Stage Attempt ID"] > 0 for stage in stages)


def stored(data: Path, query: str) -> tuple[list[str], Rows]:
    """Names of the columns and rows of DuckDB's answer."""
    import pyarrow.parquet

    answer = pyarrow.parquet.read_table(data / "answers" / f"{query}.parquet")
    return answer.column_names, [tuple(row.values()) for row in answer.to_pylist()]


def plain(rows: Rows) -> Rows:
    """Rows with numbers of one kind: DuckDB sums whole numbers into decimals of 38 digits, Spark into longs."""
    return [tuple(Decimal(cell) if isinstance(cell, int | Decimal) else cell for cell in row) for row in rows]


def yes(good: bool) -> str:
    """The word, in its colour."""
    return "[bold green]yes[/]" if good else "[bold red]no[/]"


@contextmanager
def _killing(story: Story, cluster: LocalCluster, who: str) -> Iterator[None]:
    """While the body runs and has begun to push, kill the leader or a worker, and start it again at once."""
    ended = threading.Event()
    before = _pushed(cluster)

    def work() -> None:
        wait_until(lambda: ended.is_set() or _pushed(cluster) > before, 300)
        victim = cluster.leader() if who == "leader" else cluster.workers[0]
        when = "right after it" if ended.is_set() else f"{in_bytes(_pushed(cluster) - before)} into it"
        victim.kill()
        killed = time.monotonic()
        victim.start()
        took = in_seconds(time.monotonic() - killed)
        story.say(
            f"[bold red]kill -9[/] of the {who}, {victim.name}, {when}; it is started again and ready after {took}"
        )

    thread = threading.Thread(target=work, name=f"kill-{who}")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pushed(cluster: LocalCluster) -> int:
    """Bytes that the workers took since they were started."""
    return sum(worker_status(worker.http)["counters"]["push_bytes"] for worker in cluster.workers)
