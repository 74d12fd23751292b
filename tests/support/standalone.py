"""A standalone Spark cluster with executors on two host names, since Spark never speculates on the host it doubts; and
Spark's own shuffle service."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from holdfast.common.system import process
from holdfast.common.system.ports import free_ports
from tests.support.waiting import wait_until

#: Starts a class of Spark's.
LAUNCHER = Path(pyspark.__file__).parent / "bin" / "spark-class"
_START_SECONDS = 120.0


@contextmanager
def standalone_spark(directory: Path, cores: int) -> Iterator[str]:
    """Run one, with so many cores on each host, and give its address; logs go to `directory`."""
    (port,) = free_ports(1)
    roles = {
        "master": ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        **{
            host: ["worker.Worker", "--host", host, "--webui-port", "0", "--cores", str(cores), "--memory", "1g",
                   "--work-dir", str(directory / host), f"spark://127.0.0.1:{port}"]
            for host in ("127.0.0.1", "127.0.0.2")
        },
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, (kind, *arguments) in roles.items():
            environ = {"SPARK_LOCAL_IP": arguments[1], "PYSPARK_PYTHON": sys.executable}
            command = [str(LAUNCHER), f"org.apache.spark.deploy.{kind}", *arguments]
            started.append(process.spawn(command, log=directory / f"{name}.log", environ=environ))
        yield f"spark://127.0.0.1:{port}"
    finally:
        for each in started:
            process.stop(each)


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
