"""A standalone Spark cluster with executors on two host names, since Spark never speculates on the host it doubts; and
Spark's own shuffle service."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from holdfast.common.system import process
from holdfast.common.system.ports import free_ports
from tests.support.waiting import wait_until

#: Starts a class of Spark's.
LAUNCHER = Path(pyspark.__file__).parent / "bin" / "spark-class"
HOSTS = ("127.0.0.1", "127.0.0.2")
_START_SECONDS = 120.0


class Standalone:
    """The cluster; `address` is what spark-submit takes as --master."""

    def __init__(self, directory: Path, cores: int) -> None:
        (self._port,) = free_ports(1)
        self.address = f"spark://127.0.0.1:{self._port}"
        self._directory, self._cores = directory, cores
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start_master(self) -> None:
        """Start the master, or start it again: it knows the applications of before."""
        kept = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self._directory / 'kept'}"
        arguments = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._start(
            "master", "master.Master", arguments, {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": kept}
        )

    def start_worker(self, host: str) -> None:
        """Start the worker of a host."""
        arguments = ["--host", host, "--webui-port", "0", "--cores", str(self._cores), "--memory", "1g"]
        arguments += ["--work-dir", str(self._directory / host), self.address]
        self._start(host, "worker.Worker", arguments, {"SPARK_LOCAL_IP": host})

    def kill_master(self) -> None:
        """Kill -9 the master."""
        self._kill("master")

    def kill_worker(self, host: str) -> None:
        """Kill -9 what runs on a host: its worker, and with it its executors."""
        left = psutil.Process(self._running[host].pid).children(recursive=True)
        self._kill(host)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def stop(self) -> None:
        """End all of it."""
        for each in self._running.values():
            process.stop(each)

    def _start(self, name: str, kind: str, arguments: list[str], environ: dict[str, str]) -> None:
        command = [str(LAUNCHER), f"org.apache.spark.deploy.{kind}", *arguments]
        environ = {"PYSPARK_PYTHON": sys.executable, **environ}
        self._running[name] = process.spawn(command, log=self._directory / f"{name}.log", environ=environ)

    def _kill(self, name: str) -> None:
        killed = self._running.pop(name)
        killed.kill()
        killed.wait()


@contextmanager
def standalone_spark(directory: Path, cores: int) -> Iterator[Standalone]:
    """Run one, with so many cores on each of two hosts; logs go to `directory`."""
    cluster = Standalone(directory, cores)
    try:
        cluster.start_master()
        for host in HOSTS:
            cluster.start_worker(host)
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def shuffle_service(directory: Path) -> Iterator[int]:
    """Run Spark's external shuffle service for this host, and give its port; its log goes to `directory`."""
    (port,) = free_ports(1)
    log = directory / "shuffle-service.log"
    command = [str(LAUNCHER), "org.apache.spark.deploy.ExternalShuffleService"]
    settings = f"-Dspark.shuffle.service.enabled=true -Dspark.shuffle.service.port={port}"
    started = process.spawn(command, log=log, environ={"SPARK_SHUFFLE_OPTS": settings})
    try:
        wait_until(lambda: "Starting shuffle service on port" in log.read_text(), "the shuffle service", _START_SECONDS)
        yield port
    finally:
        process.stop(started)
