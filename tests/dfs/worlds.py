"""The stores that the tests run against: a folder, a real S3 server (moto) and a real HDFS, each started here.

A world knows how to break its store and bring it back. S3 and HDFS are there where their environment is:
`tox -e s3` brings moto, `tox -e hdfs` brings Hadoop's jars and names their folder in HOLDFAST_TEST_HADOOP.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from holdfast.common.config import config
from holdfast.common.config.config import DfsSection
from holdfast.common.system.ports import free_ports
from tests.conftest import Processes
from tests.support.waiting import wait_until

KINDS = ("local", "s3", "hdfs")
HADOOP = "HOLDFAST_TEST_HADOOP"
SECRET = "a-secret-that-is-shown-nowhere"
BUCKET = "bucket"
#: Short, so that tests of a store that is gone are over soon.
QUICK = {"call_timeout": "2s", "connect_timeout": "1s", "retry_window": "2s", "part_bytes": "1MiB"}


def skip_reason(kind: str) -> str:
    """Why there is no such store here; "" if there can be one."""
    if kind == "s3" and importlib.util.find_spec("moto") is None:
        return "needs moto: run `tox -e s3`"
    if kind == "hdfs" and not os.environ.get(HADOOP):
        return f"needs Hadoop's jars in the folder that {HADOOP} names: run `tox -e hdfs`"
    return ""


class World(ABC):
    """One store, running."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self.processes = processes
        self.directory = directory
        self.server: subprocess.Popen[bytes] | None = None
        self.set_up()

    @abstractmethod
    def set_up(self) -> None:
        """Bring the store up, empty."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """The `[dfs]` table that leads there."""

    def section(self, **changed: Any) -> DfsSection:
        """The section, with quick bounds and what a test changes."""
        return config.from_tables({"dfs": {**QUICK, **self.table(), **changed}}).dfs

    @abstractmethod
    def stop(self) -> None:
        """Make the store unreachable."""

    @abstractmethod
    def start(self) -> None:
        """Bring it back at the same address; what it held may be gone if it only holds things in memory."""

    def hang(self) -> None:
        """Have it take connections and answer nothing."""
        assert self.server is not None
        self.server.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Have it answer again."""
        assert self.server is not None
        self.server.send_signal(signal.SIGCONT)

    @abstractmethod
    def uploading(self, name: str, stored: list[str]) -> bool:
        """Whether the first parts of a file are there, but not all; `stored` is what the store lists."""


class Local(World):
    """A folder, which is moved away to be gone."""

    def set_up(self) -> None:
        self.folder = self.directory / "dfs"
        self.folder.mkdir()

    def table(self) -> dict[str, Any]:
        return {"url": f"file://{self.folder}"}

    def stop(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def start(self) -> None:
        self.folder.with_name("away").rename(self.folder)

    def uploading(self, name: str, stored: list[str]) -> bool:
        return any(each.startswith(name) for each in stored)


class S3(World):
    """moto's server; it forgets everything when it is killed."""

    def set_up(self) -> None:
        self.port = free_ports(1)[0]
        self.secret = self.directory / "secret"
        self.secret.write_text(SECRET + "\n")
        self.start()

    def table(self) -> dict[str, Any]:
        return {
            "url": f"s3://{BUCKET}/some/prefix",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "access_key": "key",
            "secret_key_file": str(self.secret),
        }

    def stop(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def start(self, **environ: str) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.server = self.processes.start("moto", command, environ)
        wait_until(lambda: answers(self.port), "moto to listen")
        from pyarrow import fs

        fs.S3FileSystem(
            access_key="key",
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)

    def uploading(self, name: str, stored: list[str]) -> bool:
        return f"{name}." in (log := self.processes.log("moto").read_text()) and "partNumber=2" in log


class Hdfs(World):
    """A name node and a data node in one process; what they hold survives kill -9."""

    def set_up(self) -> None:
        self.port = 0
        self._start("-format")

    def table(self) -> dict[str, Any]:
        return {"url": f"hdfs://127.0.0.1:{self.port}/some/folder"}

    def stop(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def start(self) -> None:
        self._start()

    def _start(self, *more: str) -> None:
        details = self.directory / "details.json"
        details.unlink(missing_ok=True)
        jars = Path(os.environ[HADOOP]).absolute()
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dtest.build.data={self.directory}"]
        manager = ["org.apache.hadoop.test.MiniDFSClusterManager", *more, "-datanodes", "1", "-nnport", str(self.port)]
        written = ["-writeConfig", str(self.directory / "conf.xml"), "-writeDetails", str(details)]
        self.server = self.processes.start("hdfs", ["java", *options, "-cp", f"{jars}/*", *manager, *written])
        text = wait_until(lambda: details.read_text() if details.is_file() else "", "HDFS to be ready", 60)
        self.port = json.loads(text)["namenode_port"]

    def uploading(self, name: str, stored: list[str]) -> bool:
        return any(each.startswith(name) for each in stored)


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_world(kind: str, processes: Processes, directory: Path) -> World:
    """Start a store."""
    kinds: dict[str, type[Local | S3 | Hdfs]] = {"local": Local, "s3": S3, "hdfs": Hdfs}
    return kinds[kind](processes, directory)
