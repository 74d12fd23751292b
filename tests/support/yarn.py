"""A YARN cluster of real daemons on this machine: a ResourceManager and NodeManagers with host names of their own."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil

from holdfast.common.system import process
from holdfast.common.system.ports import free_ports
from tests.support.waiting import wait_until

#: Names the folder with Hadoop's jars; `tox -e yarn` fills one.
HADOOP = "HOLDFAST_TEST_HADOOP"
_START_SECONDS = 180.0
#: A NodeManager that is silent for so long is lost.
_LOST_MS = 20_000
_LOGGING = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""
_OPENS = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.util", "java.net")]


class Yarn:
    """The cluster; `settings` is the directory for HADOOP_CONF_DIR, `names` are its hosts."""

    def __init__(self, directory: Path, jars: Path, names: tuple[str, ...]) -> None:
        self.directory = directory
        self.settings = directory / "conf"
        self.names = names
        self._jars = jars
        self._excluded = directory / "excluded"
        self._ports = dict(
            zip(("", "scheduler.", "resource-tracker.", "admin.", "webapp."), free_ports(5), strict=True)
        )
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all daemons, and wait until every NodeManager is registered."""
        self._write(self.settings, {})
        self._excluded.touch()
        self._daemon("resourcemanager", "resourcemanager.ResourceManager", self.settings)
        for name in self.names:
            self.start_node(name)
        self.wait_until_running(set(self.names))

    def wait_until_running(self, names: set[str]) -> None:
        """Wait until the ResourceManager counts the nodes of these hosts, and no others."""
        wait_until(lambda: self._nodes() == names, f"nodes on {names}", _START_SECONDS)

    def start_node(self, host: str) -> None:
        """Start the NodeManager of a host."""
        settings = self.directory / host / "conf"
        ports = dict(zip(("", "localizer.", "webapp."), free_ports(3), strict=True))
        self._write(
            settings,
            {f"yarn.nodemanager.{name}address": f"{host}:{port}" for name, port in ports.items()}
            | {
                "yarn.nodemanager.hostname": host,
                "yarn.nodemanager.local-dirs": str(self.directory / host / "local"),
                "yarn.nodemanager.log-dirs": str(self.directory / host / "containers"),
            },
        )
        if host in self._running:
            process.stop(self._running[host])
        self._daemon(host, "nodemanager.NodeManager", settings)

    def logs(self) -> list[Path]:
        """What containers wrote."""
        return [path for path in self.directory.glob("*/containers/**/*") if path.is_file()]

    def containers(self, name: str = "") -> list[psutil.Process]:
        """The JVMs in containers, of one host or all: executors, and drivers of cluster mode."""
        found = []
        for each in psutil.process_iter():
            try:
                if each.exe().endswith("/java") and Path(each.cwd()).is_relative_to(self.directory / name):
                    found.append(each)
            except psutil.Error:  # it has just ended
                continue
        return [each for each in found if each.pid not in {daemon.pid for daemon in self._running.values()}]

    def kill_host(self, name: str) -> None:
        """Kill -9 what runs on a host: its NodeManager first, so that it sees nothing end, then every container."""
        daemon = self._running.pop(name)
        daemon.kill()
        daemon.wait()
        for each in self.containers(name):
            each.kill()

    def exclude(self, *names: str) -> None:
        """Decommission these hosts and no others, as an operator does; a NodeManager that is told so ends."""
        self._excluded.write_text("".join(f"{name}\n" for name in names))
        admin = [*self._java(self.settings, "org.apache.hadoop.yarn.client.cli.RMAdminCLI"), "-refreshNodes"]
        subprocess.run(admin, check=True, capture_output=True, timeout=_START_SECONDS)
        wait_until(lambda: not self._nodes() & set(names), f"{names} to be decommissioned", _START_SECONDS)

    def kill_applications(self) -> None:
        """End what runs in containers."""
        for each in self._rest("apps?states=RUNNING,ACCEPTED")["apps"]:
            # Hadoop's distribution calls it id, the shaded daemons appId.
            self._rest(f"apps/{each.get('id') or each['appId']}/state", {"state": "KILLED"})
        wait_until(lambda: not self.containers(), "containers to end", _START_SECONDS)

    def stop(self) -> None:
        """Kill all daemons and containers."""
        left = self.containers()
        for each in self._running.values():
            each.kill()
            each.wait()
        for container in left:
            container.kill()

    def _nodes(self) -> set[str]:
        """The hosts whose NodeManager the ResourceManager counts."""
        try:
            found = self._rest("nodes?states=RUNNING")["nodes"]
        except OSError:  # it has just been started
            return set()
        return {each["nodeHTTPAddress"].partition(":")[0] for each in found}

    def _rest(self, path: str, put: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._ports['webapp.']}/ws/v1/cluster/{path}",
            data=json.dumps(put).encode() if put else None,
            headers={"Content-Type": "application/json"},
            method="PUT" if put else "GET",
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _daemon(self, name: str, kind: str, settings: Path) -> None:
        log = self.directory / f"{name}.log"
        command = self._java(settings, f"org.apache.hadoop.yarn.server.{kind}")
        self._running[name] = process.spawn(command, log=log, environ={})

    def _java(self, settings: Path, kind: str) -> list[str]:
        return [
            java(),
            "-Xmx256m",
            *_OPENS,
            f"-Dyarn.log.dir={self.directory}",
            "-cp",
            f"{settings}:{self._jars}/*",
            kind,
        ]

    def _write(self, settings: Path, more: dict[str, str]) -> None:
        """The settings of one daemon, and of clients."""
        settings.mkdir(parents=True, exist_ok=True)
        queues = "yarn.scheduler.capacity"
        every = {f"yarn.resourcemanager.{name}address": f"127.0.0.1:{port}" for name, port in self._ports.items()} | {
            "yarn.resourcemanager.nodes.exclude-path": str(self._excluded),
            "yarn.nm.liveness-monitor.expiry-interval-ms": str(_LOST_MS),
            "yarn.resourcemanager.am.max-attempts": "3",
            # Drivers in containers end with the ResourceManager, and so with the tests.
            "yarn.resourcemanager.connect.max-wait.ms": str(_LOST_MS),
            "yarn.resourcemanager.connect.retry-interval.ms": "1000",
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.nodemanager.resource.memory-mb": "6144",
            "yarn.nodemanager.resource.cpu-vcores": "8",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.delete.debug-delay-sec": "0",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH",
        }
        (settings / "log4j.properties").write_text(_LOGGING)
        _properties(settings / "core-site.xml", {"hadoop.tmp.dir": str(self.directory / "tmp")})
        _properties(settings / "yarn-site.xml", every | more)
        _properties(
            settings / "capacity-scheduler.xml",
            {
                f"{queues}.root.queues": "default",
                f"{queues}.root.default.capacity": "100",
                f"{queues}.root.default.maximum-am-resource-percent": "1",
                f"{queues}.maximum-am-resource-percent": "1",
            },
        )


def java() -> str:
    """The JVM that Spark would take."""
    return f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java"


def _properties(path: Path, values: dict[str, str]) -> None:
    rows = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in values.items()
    )
    path.write_text(f"<configuration>{rows}</configuration>")


@contextmanager
def yarn(directory: Path, jars: Path, names: tuple[str, ...] = ("127.0.0.2", "127.0.0.3")) -> Iterator[Yarn]:
    """Run a cluster with one node a host; logs go to `directory`."""
    cluster = Yarn(directory, jars, names)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
