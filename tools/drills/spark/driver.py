"""The Spark drill's side of a session: starts the process, asks it, and reads what Spark logged when it has ended."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from holdfast.client.spark import conf
from holdfast.common.errors import ConfigError
from holdfast.tools.drills.spark import events as spark_events
from holdfast.tools.drills.spark.events import Ran
from holdfast.tools.drills.support.report import DrillError

#: A query takes seconds; killed servers come back within some more.
_ANSWER_SECONDS_MAX = 300.0
_START_SECONDS_MAX = 180.0
_EXECUTOR = "CoarseGrainedExecutorBackend"
_LOG_TAIL_CHARACTERS = 3000


class SparkProcess:
    """A session that shuffles through a cluster; ask one thing at a time."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process = process
        self._directory = directory
        #: Spark's id of the application
        self.application = ""

    async def ask(self, seconds: float = _ANSWER_SECONDS_MAX, **what: Any) -> dict[str, Any]:
        """Return the answer of session.py. Raises DrillError if none comes in time or the session ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        try:
            async with asyncio.timeout(seconds):
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise DrillError(f"Spark does not answer within {seconds:g} s: {what}\n{self._log()}") from None
        except ConnectionError:
            line = b""
        if not line:
            raise DrillError(f"the Spark session ended\n{self._log()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def executors(self) -> list[psutil.Process]:
        """The processes of its executors on this machine; none in local mode, where they are in the session's JVM."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:  # it has just ended
                continue
            # A cluster manager's shells that start one have the same words.
            if self.application in words and any(word.endswith(_EXECUTOR) for word in words):
                found.append(process)
        return found

    def events(self) -> dict[str, Ran]:
        """What Spark's listener logged, by label; whole once the session has ended."""
        (log,) = (self._directory / "events").iterdir()
        with log.open(encoding="utf-8") as lines:
            return spark_events.read(lines)

    async def close(self) -> None:
        """End the session."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                await self._process.wait()
        except TimeoutError:
            raise DrillError(f"the Spark session does not end\n{self._log()}") from None

    def _log(self) -> str:
        return (self._directory / "log").read_text("utf-8", errors="replace")[-_LOG_TAIL_CHARACTERS:]


@asynccontextmanager
async def spark(
    directory: Path, endpoints: str, master: str, copies: int, settings: Mapping[str, str], prepare: tuple[str, ...]
) -> AsyncIterator[SparkProcess]:
    """Start a session that shuffles through the masters at `endpoints` and never falls back; it ends with the block.

    Its log, its event log and its files are in `directory`. Raises ConfigError without PySpark or a JDK.
    """
    (directory / "events").mkdir(parents=True)
    holdfast = await asyncio.to_thread(conf, endpoints, replication=copies, fallback="never")
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "holdfast.tools.drills.spark.session"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    started = SparkProcess(process, directory)
    try:
        asked = {**_basis(directory), **holdfast, **settings}
        answer = await started.ask(_START_SECONDS_MAX, master=master, conf=asked, prepare=prepare)
        started.application = answer["application"]
        yield started
        await started.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def check_installed() -> None:
    """Raise ConfigError if there is no PySpark to drill with."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise ConfigError("this drill needs PySpark: pip install '.[spark]' in a clone of Holdfast") from None


def _basis(directory: Path) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "16",
        # Executors are killed over and over: no reason to fail the application, or a task that was on several.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "20",
    }
