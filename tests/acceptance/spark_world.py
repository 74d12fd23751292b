"""A Spark process and a cluster, as the Spark tests of this folder see them: commands, counters, files, shuffles."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.cluster.server import Server
from holdfast.client.connection.direct import ask, worker_status
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.net.keys import key_in
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system import process
from holdfast.worker.storage.layout import shuffle_folder
from tests.support.logged import lines_of
from tests.support.spark_conf import conf as conf_of
from tests.support.tree import ROOT
from tests.support.waiting import wait_until

JOB = "tests.acceptance.spark_job"
#: One thread more than any stage here has tasks that wait, four tries a task.
MASTER = "local[5,4]"
#: Generous: a busy machine is no failure.
SECONDS = 240.0
#: Frames so small that half of a map's rows are sent before it ends.
SMALL_FRAMES = {
    "spark.holdfast.codec": "none",
    "spark.holdfast.push.buffer": "4k",
    "spark.holdfast.push.frame": "256k",
    "spark.holdfast.push.open": "4m",
}


@functools.cache
def jar() -> str:
    """The plug-in, as it is when it is first asked for: one JVM gets to see one."""
    return next(
        path for key, path in conf_of("127.0.0.1:1").items() if key in ("spark.jars", "spark.driver.extraClassPath")
    )


def conf(endpoints: str, **options: Any) -> dict[str, str]:
    """What users get of `conf()`, always with the same jar."""
    return conf_of(endpoints, jar=jar(), **options)


class Spark:
    """spark_job.py in a process of its own; its log is `log`."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._settings: tuple[str, dict[str, str]] | None = None
        #: whether a command has begun whose answer nobody has taken
        self.busy = False
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        launcher = [sys.executable, "-I", "-S", process.__file__, str(os.getpid())]
        with self.log.open("a") as output:
            return subprocess.Popen(
                [*launcher, sys.executable, "-m", JOB],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def mend(self) -> None:
        """After a test that failed half-way: another process, for the next test."""
        if self.busy:
            self.end()
            self.busy = False
            self._settings = None
            self._process = self._start()

    def begin(self, settings: dict[str, str], master: str = MASTER) -> None:
        """Have a Spark with these settings, the running one if it has them."""
        self.mend()
        if self._settings != (master, settings):
            self._settings = None  # for if it fails
            self.ask("begin", master, settings)
            self._settings = (master, settings)

    def send(self, name: str, *arguments: Any) -> None:
        """Begin a command; `answer` has to be called before the next one."""
        assert self._process.stdin is not None
        self.busy = True
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What the command gave. Raises AssertionError with what it says if it failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"Spark ended:\n{self.log.read_text()[-6000:]}"
        self.busy = False
        found = json.loads(line)
        assert "error" not in found, f"{found['error']}\n{self.log.read_text()[-6000:]}"
        return found["answer"]

    def ask(self, name: str, *arguments: Any) -> Any:
        """Do a command to its end."""
        self.send(name, *arguments)
        return self.answer()

    def stop(self) -> None:
        """End the application in order; the process is there for the next one."""
        self.ask("stop")
        self._settings = None

    def end(self) -> None:
        """End it at once; the JVM goes with the end of its standard input."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class World:
    """One cluster, one Spark, and a directory for files by which tasks and test wait for one another."""

    def __init__(self, cluster: LocalCluster, spark: Spark, marks: Path) -> None:
        self.cluster = cluster
        self.spark = spark
        self.marks = marks
        self._shuffles = set(self._listed())
        self._log_bytes = spark.log.stat().st_size

    def begin(self, copies: int = 1, ack: str = "written", *, small_frames: bool = False, **settings: str) -> None:
        """Have a Spark that shuffles through the cluster; settings are the plug-in's own, with _ for the dots."""
        own = {f"spark.holdfast.{key.replace('_', '.')}": value for key, value in settings.items()}
        own |= SMALL_FRAMES if small_frames else {}
        self.spark.begin({**conf(self.cluster.endpoints, replication=copies, ack=ack, fallback="never"), **own})

    def log(self) -> str:
        """What Spark has logged in this test."""
        with self.spark.log.open("rb") as file:
            file.seek(self._log_bytes)
            return file.read().decode(errors="replace")

    def ran_again(self) -> bool:
        """Whether a reader gave data up in this test."""
        return "FetchFailed" in self.log() or bool(lines_of(self.log(), LogEvent.GENERATION_FAILED))

    def _listed(self) -> dict[tuple[bytes, int, int], Any]:
        request = pb.ListShufflesRequest(limit=100_000)
        reply = ask(self.cluster.leader().address, "Admin/ListShuffles", request, pb.ListShufflesReply, 10.0)
        return {(one.key.instance, one.key.shuffle, one.key.generation): one for one in reply.shuffles}

    def shuffles(self) -> list[Any]:
        """What the masters keep of shuffles of this test."""
        return [one for key, one in self._listed().items() if key not in self._shuffles]

    def generations(self) -> set[int]:
        """Generations of these."""
        return {one.key.generation for one in self.shuffles()}

    def folders(self) -> list[Path]:
        """Where workers may keep files of these shuffles."""
        return [
            self.cluster.directory / worker.name / shuffle_folder(key_of(one))
            for one in self.shuffles()
            for worker in self.cluster.workers
        ]

    def files(self) -> list[Path]:
        """All files of these shuffles, the largest first."""
        found = [path for folder in self.folders() if folder.is_dir() for path in folder.iterdir()]
        return sorted(found, key=lambda path: -path.stat().st_size)

    def holder(self) -> Server:
        """A worker that has files of these shuffles."""
        names = {part for path in self.files() for part in path.parts}
        return next(worker for worker in self.cluster.workers if worker.name in names)

    def pushed(self) -> int:
        """Bytes that the workers of now took since they started."""
        return sum(self._counters("push_bytes").values())

    def _counters(self, name: str) -> dict[int, int]:
        """By process id of the workers that answer."""
        return {
            worker.pid: int(worker_status(worker.http, 10.0)["counters"][name])
            for worker in self.cluster.workers
            if worker.running
        }

    @contextmanager
    def through(self) -> Iterator[None]:
        """What is done in this block is pushed to the workers and read from them."""
        before = {name: self._counters(name) for name in ("push_bytes", "stream_bytes")}
        yield
        for name, earlier in before.items():
            now = self._counters(name)
            assert sum(count - earlier.get(pid, 0) for pid, count in now.items()) > 0, f"no {name}"

    def wait_marks(self, pattern: str, count: int) -> None:
        """Wait until so many tasks have come to where they wait."""
        wait_until(lambda: len(list(self.marks.glob(pattern))) >= count, f"{count} tasks at {pattern}", SECONDS)

    def go(self) -> None:
        """Let them go on."""
        (self.marks / "go").touch()


def key_of(listed: Any) -> ShuffleKey:
    """The key of a shuffle that the masters listed."""
    return key_in(listed.key)
