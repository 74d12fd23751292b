"""The main job: TPC-H through Holdfast in both ways, while servers are killed.

Usage: python -m benchmarks.demo [--scale 1] [--partitions 16] [--data DIR]
A cluster of three masters and two workers is started on this machine. First `orders` and `lineitem` are shuffled by
order key through it, without a jar; the leading master is killed in the middle of that, a worker between write and
read. The input of the shuffles is removed before the read, so that no map could run again. The answers are compared
with Spark's own shuffle and with DuckDB's. Then whole queries run through the plug-in (demo_plugin.py).
Exit 0 if all agree, 1 if not, 2 with a sentence if it cannot run here.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks import demo_plugin, tpch
from benchmarks.demo_plugin import plain, yes
from benchmarks.story import Story, java_problem
from holdfast.client.cluster.local import LocalCluster, Server, local_cluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import worker_status
from holdfast.common.sizes import in_bytes
from holdfast.tools.cli.output import in_seconds, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.client import Session

#: What the queries need of the two tables that are shuffled; each is shuffled by its first column.
COLUMNS = {
    "orders": ("o_orderkey", "o_custkey", "o_orderdate", "o_orderpriority", "o_shippriority"),
    "lineitem": (
        "l_orderkey", "l_extendedprice", "l_discount", "l_shipdate", "l_commitdate", "l_receiptdate", "l_shipmode",
    ),
}  # fmt: skip
QUERIES = {
    "q03": "the ten orders with the most unshipped revenue",
    "q12": "late deliveries by ship mode and urgency",
}
#: The leader dies when this many times the bytes of `orders` are there of `lineitem`, which is five times as large.
_KILL_AT = 2.0
#: Spark sees a console appender and leaves the configuration alone; what goes wrong comes as an exception anyway.
_LOGGING = """
rootLogger.level = fatal
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n
"""


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="TPC-H scale: 1 is 6 million line items, about 1 GB.")
@click.option("--partitions", default=16, show_default=True, help="Reduce partitions of both shuffles.")
@click.option("--data", default="build/tpch", show_default=True, type=click.Path(path_type=Path), help="Kept tables.")
def main(scale: float, partitions: int, data: Path) -> None:
    """Run the main job."""
    if problem := java_problem():
        click.echo(f"demo: {problem}", err=True)
        sys.exit(2)
    story = Story()
    directory = _tables(story, scale, data)
    sys.exit(0 if _run(story, directory, partitions) else 1)


def _tables(story: Story, scale: float, data: Path) -> Path:
    directory = data.absolute() / f"sf{scale:g}"
    if directory.exists():
        story.say(f"TPC-H at scale {scale:g} is in {directory}")
    else:
        story.say(f"making TPC-H at scale {scale:g} with DuckDB; it is kept in {directory}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with story.part("make the tables (first run only)"):
        tpch.make(scale, directory)
    return directory


def _run(story: Story, data: Path, partitions: int) -> bool:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
        with story.part("start three masters and two workers"):
            cluster = stack.enter_context(local_cluster(masters=3, workers=2))
        names = ", ".join(f"{server.name} (pid {server.pid})" for server in cluster.servers)
        story.say(f"cluster: {names}; [bold]{cluster.leader().name} leads[/]")
        good = _without_a_jar(story, cluster, data, scratch, partitions)
        good &= _with_the_plugin(story, cluster, data, scratch)
        story.times()
        story.say(
            "not a comparison: the queries with Spark's own shuffle include writing and reading it, "
            "the read back from Holdfast excludes the writing, which has lines of its own above"
        )
        story.say("[bold green]all is as it should be[/]" if good else "[bold red]something is wrong[/]")
        return good


def _without_a_jar(story: Story, cluster: LocalCluster, data: Path, scratch: Path, partitions: int) -> bool:
    """The first half: two tables through `shuffle`."""
    from holdfast.client import Session

    story.say("[bold]first half: shuffle(df, …), which needs no jar[/]")
    with ExitStack() as stack:
        with story.part("start Spark"):
            spark = _spark(scratch, {})
            stack.callback(_end, spark)
        jvm: Any = spark.sparkContext._jvm
        story.say(f"Spark {spark.version} on Java {jvm.System.getProperty('java.version')}, two cores")
        session = stack.enter_context(Session(cluster.endpoints, app="tpch"))
        return _job(story, cluster, spark, session, data, scratch, partitions)


def _with_the_plugin(story: Story, cluster: LocalCluster, data: Path, scratch: Path) -> bool:
    """The second half: every shuffle of unchanged SQL."""
    from holdfast.client.spark import conf

    story.say("[bold]second half: conf() and nothing else, every shuffle through the plug-in[/]")
    with story.part("the plug-in's jar (compiled on the first run only)"):
        settings = conf(cluster.endpoints, fallback="never")
    events = scratch / "events"
    with ExitStack() as stack:
        with story.part("start Spark again, with the plug-in"):
            spark = _spark(scratch, settings | demo_plugin.settings(events))
            stack.callback(_end, spark)
        good = demo_plugin.ask(story, cluster, spark, data)
        _counters(story, cluster)
    again = demo_plugin.ran_again(events)
    story.say(f"stages that ran again: [bold]{again}[/]")
    return good and not again


def _job(
    story: Story,
    cluster: LocalCluster,
    spark: "SparkSession",
    session: "Session",
    data: Path,
    scratch: Path,
    partitions: int,
) -> bool:
    """Write, kill, read, compare; True if every answer is right and no map ran twice."""
    input_files = _link_input(data, scratch)
    shuffled = _write(story, cluster, spark, session, input_files, partitions)
    files = _map_files(cluster)
    shutil.rmtree(input_files)
    story.say("the input files of both shuffles are removed: from here on no map could run again")
    _bounce_worker(story, cluster)
    spark.read.parquet(str(data / "tables" / "customer.parquet")).createOrReplaceTempView("customer")
    answers = _ask(story, spark, shuffled, data, "read back, join, aggregate", "over the tables in Holdfast")
    again = _map_files(cluster) - files
    _counters(story, cluster)
    own = {name: _input(spark, data / "tables", name) for name in COLUMNS}
    how = "over the same tables without Holdfast"
    reference = _ask(story, spark, own, data, "the same queries with Spark's own shuffle", how)
    good = _compare(story, answers, reference, data)
    story.say(
        f"maps recomputed: [bold]{again}[/] (the workers held {files} sealed map files before the read, and after)"
    )
    return good and not again


def _spark(scratch: Path, more: dict[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # tasks need what this process has, not what the PATH has
    builder = SparkSession.builder.master("local[2]").appName("holdfast demo")
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.files.maxPartitionBytes": "32m",  # nine maps at scale 1
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_quiet(scratch)}",
        **more,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _end(spark: "SparkSession") -> None:
    """Stop Spark and its JVM: the next session has settings that a JVM takes only as it starts."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    spark.stop()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


def _quiet(scratch: Path) -> Path:
    """A logging configuration that leaves the screen to the story."""
    file = scratch / "log4j2.properties"
    file.write_text(_LOGGING, encoding="ascii")
    return file


def _link_input(data: Path, scratch: Path) -> Path:
    """A directory with the input of the shuffles that can be removed without losing the kept tables."""
    directory = scratch / "input"
    directory.mkdir()
    for name in COLUMNS:
        source = data / "tables" / f"{name}.parquet"
        try:
            os.link(source, directory / source.name)
        except OSError:  # the temporary directory is on another file system
            shutil.copyfile(source, directory / source.name)
    return directory


def _input(spark: "SparkSession", directory: Path, name: str) -> "DataFrame":
    return spark.read.parquet(str(directory / f"{name}.parquet")).select(*COLUMNS[name])


def _write(
    story: Story, cluster: LocalCluster, spark: "SparkSession", session: "Session", files: Path, partitions: int
) -> dict[str, "DataFrame"]:
    """Shuffle both tables; the leader is killed while the second one is written."""
    from holdfast.client.spark import shuffle

    shuffled = {}
    for name, columns in COLUMNS.items():
        story.say(f"shuffling [bold]{name}[/] into {partitions} partitions by {columns[0]}")
        before = _stored_bytes(cluster)
        part = f"write {name} through Holdfast"
        with story.part(part), ExitStack() as meanwhile:
            if name == "lineitem":
                meanwhile.enter_context(_killing_the_leader(story, cluster, before + int(before * _KILL_AT)))
            shuffled[name] = shuffle(_input(spark, files, name), partitions, columns[0], session=session)
        wrote, seconds = _stored_bytes(cluster) - before, story.took(part)
        story.say(f"{name}: {in_bytes(wrote)} sealed on the workers and committed, in {in_seconds(seconds)}")
    return shuffled


@contextmanager
def _killing_the_leader(story: Story, cluster: LocalCluster, at_bytes: int) -> Iterator[None]:
    """While the body runs, kill the leader once the workers hold `at_bytes`, see a new one elected, bring it back."""
    ended = threading.Event()

    def work() -> None:
        wait_until(lambda: ended.is_set() or _stored_bytes(cluster) >= at_bytes, 300)
        when = "right after it" if ended.is_set() else "in the middle of it"
        leader = cluster.leader()
        leader.kill()
        killed = time.monotonic()
        story.say(f"[bold red]kill -9[/] of the leader, {leader.name}, {when}")
        follower, seconds = cluster.leader(), time.monotonic() - killed
        story.say(f"{follower.name} leads, {in_seconds(seconds)} later; {leader.name} is started again")
        leader.start()

    thread = threading.Thread(target=work, name="kill-leader")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _bounce_worker(story: Story, cluster: LocalCluster) -> None:
    worker = cluster.workers[0]
    held = in_bytes(_stored_bytes_of(cluster, worker))
    with story.part("kill a worker and start it again"):
        worker.kill()
        story.say(f"[bold red]kill -9[/] of worker {worker.name}, which holds {held}")
        began = time.monotonic()
        worker.start()
        story.say(
            f"{worker.name} is back on its directory and serves, {in_seconds(time.monotonic() - began)} after exec"
        )


def _ask(
    story: Story, spark: "SparkSession", tables: dict[str, "DataFrame"], data: Path, part: str, how: str
) -> dict[str, list[tuple[Any, ...]]]:
    """Run the unchanged text of the queries over the given tables; return their rows."""
    answers = {}
    for name, frame in tables.items():
        frame.createOrReplaceTempView(name)
    with story.part(part):
        for query, what in QUERIES.items():
            began = time.monotonic()
            text = (data / "queries" / f"{query}.sql").read_text(encoding="utf-8")
            answers[query] = [tuple(row) for row in spark.sql(text).collect()]
            story.say(f"TPC-H {query} ({what}) {how}: {in_seconds(time.monotonic() - began)}")
    return answers


def _compare(
    story: Story,
    answers: dict[str, list[tuple[Any, ...]]],
    reference: dict[str, list[tuple[Any, ...]]],
    data: Path,
) -> bool:
    good = True
    for query, rows in answers.items():
        columns, expected = demo_plugin.stored(data, query)
        story.screen.print(table(columns, rows))
        same_spark, same_duckdb = rows == reference[query], plain(rows) == plain(expected)
        good &= same_spark and same_duckdb and bool(rows)
        story.say(
            f"{query}: equal to Spark's own answer: {yes(same_spark)}; equal to DuckDB's answer: {yes(same_duckdb)}"
        )
    return good


def _map_files(cluster: LocalCluster) -> int:
    """Sealed map files that the workers hold, from their indexes."""
    return sum(int(worker_status(worker.http)["files"]) for worker in cluster.workers)


def _counters(story: Story, cluster: LocalCluster) -> None:
    """What the workers counted since their last start; a restarted one begins at zero."""
    rows = []
    for worker in cluster.workers:
        said = worker_status(worker.http)
        counted = said["counters"]
        took, gave = in_bytes(counted["push_bytes"]), in_bytes(counted["stream_bytes"])
        rows.append((worker.name, said["incarnation"], said["files"], took, gave, counted["streams_opened"]))
    columns = ("worker", "#starts", "#files held", "#written since start", "#read since start", "#streams")
    story.say("what went through Holdfast, as the workers counted it:")
    story.screen.print(table(columns, rows))


def _stored_bytes(cluster: LocalCluster) -> int:
    return sum(_stored_bytes_of(cluster, worker) for worker in cluster.workers)


def _stored_bytes_of(cluster: LocalCluster, worker: Server) -> int:
    """Bytes of data files in a worker's directory; files may come and go while we look."""
    total = 0
    for path in (cluster.directory / worker.name).rglob("*"):
        try:
            total += path.stat().st_size if path.suffix != ".mdb" else 0
        except FileNotFoundError:
            continue
    return total


if __name__ == "__main__":
    main()
