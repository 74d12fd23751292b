"""The sides of a comparison: Spark sessions in processes of their own, each with one way to shuffle.

Rules: a side is alive until its block ends, on the same cores as the others, and runs what it is asked for, one thing
at a time. One of Holdfast's has an embedded cluster of its own, fallback is never, and a run through which the workers
took or gave nothing ends the program. CPU is that of all processes of a side: Spark's JVM with its Python workers, and
its servers. Used by compare.py, bytes.py and disk_operations.py.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks.workloads import ROWS, WORKLOADS, checksum, query, repartitioned
from holdfast.client import Session
from holdfast.client.cluster.local import ADMIN_TOKEN, CA_CERTIFICATE, SECURITY, LocalCluster, Sections, local_cluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import worker_status

#: For the servers of another service to take shuffles, and how much of what they say is looked at.
_START_SECONDS, _SAID_BYTES_MAX = 120.0, 1 << 20
_FLOOR = "org.apache.spark.shuffle.holdfast.FloorShuffleManager"
_TEST_SOURCES = Path(__file__).resolve().parent.parent / "client" / "jvm" / "src" / "test" / "java"
_BASE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "16",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}


class Run(NamedTuple):
    """What one side did."""

    seconds: float
    #: of all its processes
    cpu_s: float
    result: str
    #: bytes that Spark counts as written by map tasks, and the CPU of those tasks
    written: int
    write_cpu_s: float
    #: bytes that its workers took from clients and gave to them; 0 where there are none
    pushed: int
    fetched: int


class Side:
    """A Spark session in a process of its own."""

    def __init__(
        self,
        name: str,
        conf: dict[str, str],
        servers: Iterable[int] = (),
        cluster: LocalCluster | None = None,
        *,
        jar_free: bool = False,
    ) -> None:
        """`servers` are processes whose CPU is this side's, with that of their children. `cluster` is what it shuffles
        through, if that is one of Holdfast's: with the plug-in, or `jar_free`."""
        self.name = name
        self.cluster = cluster
        self._conf = conf
        self.servers = tuple(servers)
        self._jar_free = cluster.endpoints if cluster and jar_free else ""
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.sides", self._jar_free]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._say({**_BASE, **self._conf})

    def run(self, workload: str, scale: float, sql: str | None = None, step: str = "whole") -> Run:
        """Run a workload, or a query; of one of ROWS also the step `map` alone, and then `reduce`."""
        cpu, moved = self._cpu_seconds(), self._moved()
        answer = self._say({"workload": workload, "scale": scale, "sql": sql, "step": step})
        pushed, fetched = (now - before for now, before in zip(self._moved(), moved, strict=True))
        expected = {"map": pushed, "reduce": fetched, "whole": min(pushed, fetched)}[step]
        if self.cluster and sql is None and not expected:  # a query may have no shuffle
            sys.exit(f"{workload}: the workers of {self.name} took {pushed} bytes and gave {fetched}")
        return Run(cpu_s=self._cpu_seconds() - cpu, pushed=pushed, fetched=fetched, **answer)

    def renew(self) -> None:
        """Go on in a fresh JVM."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the session and its process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _say(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the session of {self.name} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _moved(self) -> tuple[int, int]:
        """Bytes that its workers have taken and given so far."""
        if self.cluster is None:
            return 0, 0
        workers, credentials = self.cluster.workers, self.cluster.credentials
        counters = [worker_status(worker.http, 5.0, credentials)["counters"] for worker in workers]
        return sum(each["push_bytes"] for each in counters), sum(each["stream_bytes"] for each in counters)

    def _cpu_seconds(self) -> float:
        """Of the session, what it started, and its servers; ended ones included."""
        total = 0.0
        roots = [psutil.Process(pid) for pid in (self._process.pid, *self.servers)]
        for process in [each for root in roots for each in (root, *root.children(recursive=True))]:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total


@contextmanager
def spark(conf: dict[str, str] | None = None) -> Iterator[Side]:
    """Spark's own shuffle."""
    with closing(Side("spark", conf or {})) as side:
        yield side


@contextmanager
def holdfast(
    name: str = "holdfast",
    *,
    workers: int = 1,
    copies: int = 1,
    conf: Iterable[str] = (),
    secure: bool = False,
    jar_free: bool = False,
    settings: Sections | None = None,
) -> Iterator[Side]:
    """The plug-in, or `shuffle`, on a cluster of three masters; `conf` has further settings of Spark, KEY=VALUE."""
    from holdfast.client.spark import conf as plugin

    with local_cluster(masters=3, workers=workers, secure=secure, settings=settings) as cluster:
        chosen = dict(pair.split("=", 1) for pair in conf)
        if not jar_free:
            files = cluster.directory / SECURITY
            ca, token_file = (files / CA_CERTIFICATE, files / ADMIN_TOKEN) if secure else (None, None)
            own = plugin(cluster.endpoints, replication=copies, fallback="never", ca=ca, token_file=token_file)
            chosen = own | chosen
        pids = [server.pid for server in cluster.servers if server.pid]
        with closing(Side(name, chosen, pids, cluster, jar_free=jar_free)) as side:
            yield side


@contextmanager
def floor() -> Iterator[Side]:
    """A shuffle that keeps rows in the memory of the one JVM and does nothing else: what none can be quicker than."""
    from holdfast.client.spark.jar import build, installed_spark, jar

    installed = installed_spark()
    plugin = str(jar(installed))
    with tempfile.TemporaryDirectory(prefix="holdfast-floor-") as directory:
        built = Path(directory) / "floor.jar"
        build(installed, [_TEST_SOURCES / f"{_FLOOR.replace('.', '/')}.java"], built, plugin)
        conf = {"spark.shuffle.manager": _FLOOR, "spark.driver.extraClassPath": os.pathsep.join((str(built), plugin))}
        # Room for two shuffles: the one before is there until Spark finds that nobody refers to it.
        conf |= {"spark.driver.memory": "8g"}
        with closing(Side("floor", conf)) as side:
            yield side


def named_service(text: str) -> tuple[str, str]:
    """A name and a directory with a service, before and behind the first `=`, from a command line."""
    name, given, value = text.partition("=")
    if not given:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=DIRECTORY")
    missing = [part for part in ("start", "spark.conf") if not (Path(value) / part).is_file()]
    if missing:
        raise argparse.ArgumentTypeError(f"{value} has no {missing[0]}: see the beginning of benchmarks/compare.py")
    return name, value


@contextmanager
def service(name: str, directory: Path, data: Path | None = None, conf: dict[str, str] | None = None) -> Iterator[Side]:
    """Another shuffle service, as its directory says (compare.py). `data` is where it has what it is given, if that
    matters; `conf` has further settings of Spark."""
    directory = directory.absolute()
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as scratch, tempfile.TemporaryFile("w+b") as said:
        places = {"directory": str(directory), "data": str(data or scratch)}
        text = (directory / "spark.conf").read_text("utf-8")
        for word, place in places.items():
            text = text.replace(f"{{{word}}}", place)
        chosen = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
        # A group of its own, so that all of it can be ended.
        started = subprocess.Popen(
            [directory / "start", places["data"]],
            cwd=directory,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def ready() -> bool:
            text = os.pread(said.fileno(), _SAID_BYTES_MAX, 0)
            if started.poll() is not None:
                sys.exit(f"the servers of {name} ended: {text.decode(errors='replace')}")
            return b"ready" in text.splitlines()

        try:
            if not wait_until(ready, _START_SECONDS):
                sys.exit(f"{directory / 'start'} has not printed `ready` within {_START_SECONDS:g} s")
            with closing(Side(name, chosen | (conf or {}), [started.pid])) as side:
                yield side
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
            started.wait()


class _Session:
    """What a side does: in its process."""

    def __init__(self, session: SparkSession, jar_free: str) -> None:
        """`jar_free` are the endpoints of the cluster that `shuffle` uses, if workloads go through that."""
        self._spark = session
        self._jvm: Any = session.sparkContext._jvm
        self._jar_free = Session(jar_free, app="benchmarks") if jar_free else None
        self._newest = -1
        self._written()
        self._mapped: Any = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked for, and say how it was."""
        started = time.perf_counter()
        result = self._do(asked)
        seconds = time.perf_counter() - started
        written, write_cpu_s = self._written()
        self._jvm.System.gc()  # so that neither side pays for the other
        return {"seconds": seconds, "result": result, "written": written, "write_cpu_s": write_cpu_s}

    def _do(self, asked: dict[str, Any]) -> str:
        workload, scale = asked["workload"], asked["scale"]
        if asked["step"] == "map":
            # Adaptive execution runs the map stage before there is a plan for the rest.
            mapped: Any = repartitioned(self._spark, workload, scale)
            self._mapped = mapped._jdf.queryExecution().toRdd()
            return ""
        if asked["step"] == "reduce":
            return str(self._mapped.count())
        if asked["sql"]:
            return query(self._spark, asked["sql"])
        if self._jar_free:
            return self._through(self._jar_free, workload, scale)
        return WORKLOADS[workload](self._spark, scale)

    def _through(self, session: Session, workload: str, scale: float) -> str:
        """A workload of ROWS through `shuffle`; what was written is dropped, as Spark does with its own files."""
        from holdfast.client.spark import shuffle, shuffle_id

        rows = ROWS[workload]
        out: DataFrame = shuffle(rows.make(self._spark, scale), rows.partitions, "id", session=session)
        result = checksum(out)
        session.open_shuffle(shuffle_id(out)).unregister()
        return result

    def _written(self) -> tuple[int, float]:
        """Bytes that the stages since the last call wrote for shuffles, and CPU seconds of those that wrote."""
        context = self._jvm.org.apache.spark.SparkContext.getOrCreate()
        context.listenerBus().waitUntilEmpty()
        store = context.statusStore()
        found = store.stageList(None, False, False, getattr(store, "stageList$default$4")(), None)
        stages = [found.apply(each) for each in range(found.size())]
        wrote = [each for each in stages if each.stageId() > self._newest and each.shuffleWriteBytes()]
        self._newest = max([self._newest, *(each.stageId() for each in stages)])
        return sum(each.shuffleWriteBytes() for each in wrote), sum(each.executorCpuTime() for each in wrote) / 1e9

    def close(self) -> None:
        """Drop what is left, and end."""
        if self._jar_free:
            self._jar_free.close()
        self._spark.stop()


def serve(jar_free: str) -> None:
    """Be a side: settings first, then what to do, one line each."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what Spark prints is no answer

    def say(what: dict[str, Any]) -> None:
        os.write(answers, (json.dumps(what) + "\n").encode())

    lines = iter(sys.stdin)
    builder = SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]"))
    for key, value in json.loads(next(lines)).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    with closing(_Session(made, jar_free)) as session:
        say({})
        for line in lines:
            say(session.answer(json.loads(line)))


if __name__ == "__main__":
    serve(sys.argv[1])
