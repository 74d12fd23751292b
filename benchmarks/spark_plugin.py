"""Times the plug-in against Spark's own shuffle, workload by workload, in interleaved pairs, and prints their ratios.

    python -m benchmarks.spark_plugin big wide tiny [--pairs 7] [--workers 1] [--copies 1] [--conf KEY=VALUE …]
    python -m benchmarks.spark_plugin big --secure [--against plain]

With `--secure` the plug-in's cluster has security; `--against plain` compares that with the plug-in without it, on a
cluster of its own, instead of with Spark's own shuffle.

One embedded cluster of three masters serves the plug-in's side; both sides are Spark sessions of their own process,
alive all the time and warmed up by one round that does not count, on the same two cores. The order within pairs
alternates. Results that differ end the run. Fallback is never, and the bytes that workers took and gave are printed
with each pair. CPU is that of all processes of a side: Spark's JVM with its Python workers, and Holdfast's servers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import psutil
from pyspark.sql import SparkSession

from benchmarks.workloads import WORKLOADS, query
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status

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


class Side:
    """A Spark session in a process of its own."""

    def __init__(self, name: str, conf: dict[str, str], others: tuple[int, ...] = ()) -> None:
        """`others` are processes whose CPU counts as this side's."""
        command = [sys.executable, "-m", "benchmarks.spark_plugin", "--serve"]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._others = others
        self._say({**_BASE, **conf})

    def run(self, workload: str, scale: float, sql: str | None = None) -> Run:
        """Run a workload, or a query."""
        cpu = self._cpu_seconds()
        answer = self._say({"workload": workload, "scale": scale, "sql": sql})
        return Run(cpu_s=self._cpu_seconds() - cpu, **answer)

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

    def _cpu_seconds(self) -> float:
        """Of the session, what it started, and its servers; ended ones included."""
        total = 0.0
        mine = psutil.Process(self._process.pid)
        for process in [mine, *mine.children(recursive=True), *map(psutil.Process, self._others)]:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total


def serve() -> None:
    """Be a side: settings first, then workloads, one line each."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what Spark prints is no answer

    def answer(what: dict[str, Any]) -> None:
        os.write(answers, (json.dumps(what) + "\n").encode())

    lines = iter(sys.stdin)
    builder = SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]"))
    for key, value in json.loads(next(lines)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jvm: Any = spark.sparkContext._jvm
    answer({})
    counted = written(jvm, -1)[0]
    for line in lines:
        asked = json.loads(line)
        started = time.perf_counter()
        sql = asked["sql"]
        result = query(spark, sql) if sql else WORKLOADS[asked["workload"]](spark, asked["scale"])
        seconds = time.perf_counter() - started
        counted, written_bytes, write_cpu_s = written(jvm, counted)
        answer({"seconds": seconds, "result": result, "written": written_bytes, "write_cpu_s": write_cpu_s})
        jvm.System.gc()  # so that neither side pays for the other
    spark.stop()


def written(jvm: Any, behind: int) -> tuple[int, int, float]:
    """The newest stage; what those behind this one wrote for shuffles, in bytes; CPU seconds of those that wrote."""
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    found = store.stageList(None, False, False, getattr(store, "stageList$default$4")(), None)
    stages = [found.apply(each) for each in range(found.size())]
    wrote = [each for each in stages if each.stageId() > behind and each.shuffleWriteBytes()]
    newest = max([behind, *(each.stageId() for each in stages)])
    cpu_s = sum(each.executorCpuTime() for each in wrote) / 1e9
    return newest, sum(each.shuffleWriteBytes() for each in wrote), cpu_s


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def moved(cluster: LocalCluster) -> tuple[int, int]:
    """Bytes that the workers took from and gave to clients."""
    counters = [worker_status(worker.http, 5.0, cluster.credentials)["counters"] for worker in cluster.workers]
    return sum(each["push_bytes"] for each in counters), sum(each["stream_bytes"] for each in counters)


@contextmanager
def plugin(options: argparse.Namespace, name: str, secure: bool) -> Iterator[tuple[Side, LocalCluster]]:
    """The plug-in's side, on a cluster of its own."""
    from holdfast.client.spark import conf

    with local_cluster(masters=3, workers=options.workers, secure=secure) as cluster:
        files = cluster.directory / "security"
        ca, token_file = (files / "ca.pem", files / "admin.token") if secure else (None, None)
        settings = conf(cluster.endpoints, fallback="never", ca=ca, token_file=token_file)
        settings |= {"spark.holdfast.replication": str(options.copies)}
        settings |= dict(pair.split("=", 1) for pair in options.conf)
        side = Side(name, settings, tuple(server.pid for server in cluster.servers if server.pid))
        try:
            yield side, cluster
        finally:
            side.close()


@contextmanager
def sides(options: argparse.Namespace) -> Iterator[tuple[Side, Side, LocalCluster]]:
    """What is compared with, and the plug-in's."""
    with ExitStack() as stack:
        ours, cluster = stack.enter_context(plugin(options, "holdfast", options.secure))
        if options.against == "plain":
            other, _ = stack.enter_context(plugin(options, "plain", secure=False))
        else:
            other = Side("spark", {})
            stack.callback(other.close)
        yield other, ours, cluster


def compare(options: argparse.Namespace) -> None:
    """Run the pairs of every workload."""
    with sides(options) as (own, ours, cluster):
        for workload in options.workloads:
            walls, cpus = [], []
            for pair in range(-options.warm, options.pairs):
                before = moved(cluster)
                order = (own, ours) if pair % 2 == 0 else (ours, own)
                found = {side.name: side.run(workload, options.scale) for side in order}
                (own_s, own_cpu, result, *_), (our_s, our_cpu, our_result, *_) = found[own.name], found[ours.name]
                if result != our_result:
                    sys.exit(f"{workload}: the results differ: {result} and {our_result}")
                after = moved(cluster)
                kib = [(now - then) / 1024 for now, then in zip(after, before, strict=True)]
                if not all(kib):
                    sys.exit(f"{workload}: nothing went through the workers: {kib}")
                row: dict[str, Any] = {"workload": workload, "pair": pair, f"{own.name}_s": round(own_s, 2)}
                row |= {"holdfast_s": round(our_s, 2), "ratio": round(our_s / own_s, 3)}
                row |= {"cpu_s": [round(own_cpu, 1), round(our_cpu, 1)]}
                row |= {"cpu_ratio": round(our_cpu / own_cpu, 3), "pushed_read_kib": [round(each) for each in kib]}
                print(json.dumps(row), flush=True)
                if pair >= 0:
                    walls.append(our_s / own_s)
                    cpus.append(our_cpu / own_cpu)
            mean = {"ratio": round(geometric_mean(walls), 3), "least": round(min(walls), 3)}
            mean |= {"most": round(max(walls), 3), "cpu_ratio": round(geometric_mean(cpus), 3)}
            print(json.dumps({"workload": workload, "pairs": options.pairs, **mean}), flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["big", "wide", "tiny"], help=", ".join(WORKLOADS))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--warm", type=int, default=1, help="rounds before, which do not count")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--secure", action="store_true", help="the plug-in's cluster has TLS and tokens")
    parser.add_argument("--against", choices=["spark", "plain"], default="spark", help="what is compared with")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--conf", nargs="*", default=[], help="further settings of the plug-in's side, KEY=VALUE")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
    else:
        compare(options)


if __name__ == "__main__":
    main()
