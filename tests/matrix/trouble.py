"""Trouble for the tasks of a running Spark, and the watch that nothing waits for long.

Rules: one thread of the driver. Tasks are killed as Spark kills them (a rival won, a stage was cancelled), with and
without an interrupt, so they do not count as failures and run again. What counts as progress: a task that begins or
ends.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from typing import Any

from pyspark.sql import SparkSession

#: Longer than this no task may wait without progress.
WAIT_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.1
#: Kills of one stage: a stage of long tasks has to end some time.
_KILLS_OF_STAGE_MAX = 12


class Trouble:
    """Kills tasks at random until `end`; watches all the time."""

    def __init__(self, spark: SparkSession, seed: int, share: float) -> None:
        """`share`: of the looks, so many kill a task."""
        self._context: Any = spark.sparkContext._jsc.sc()
        assert spark._jvm is not None
        self._management: Any = spark._jvm.java.lang.management.ManagementFactory
        self._tracker = spark.sparkContext.statusTracker()
        self._random = random.Random(seed)
        self._share = share
        self._stop = threading.Event()
        self._by_stage: dict[int, int] = {}
        self.kills = 0
        #: the longest time without progress, in seconds
        self.waited = 0.0
        self._thread = threading.Thread(target=self._run, name="trouble", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Leave the tasks alone."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        seen: Any = None
        since = time.monotonic()
        while not self._stop.wait(_LOOK_SECONDS):
            running = self._running()
            if not running or running != seen:
                seen, since = running, time.monotonic()
            self.waited = max(self.waited, time.monotonic() - since)
            if self.waited > WAIT_SECONDS_MAX:
                self._give_up()
            if running and self._random.random() < self._share:
                self._kill(*self._random.choice(running))

    def _running(self) -> list[tuple[int, int]]:
        """(stage, task) of every task that runs."""
        found = []
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is None:
                continue
            tasks = self._context.statusStore().taskList(stage, info.currentAttemptId, 10_000)
            found += [
                (stage, int(task.taskId()))
                for task in (tasks.apply(at) for at in range(tasks.size()))
                if task.status() == "RUNNING"
            ]
        return sorted(found)

    def _kill(self, stage: int, task: int) -> None:
        if self._by_stage.get(stage, 0) >= _KILLS_OF_STAGE_MAX:
            return
        self._by_stage[stage] = self._by_stage.get(stage, 0) + 1
        self.kills += bool(self._context.killTaskAttempt(task, self._random.random() < 0.5, "trouble"))

    def _give_up(self) -> None:
        """Tell where everybody waits, and end."""
        sys.stderr.write(f"no task has made progress for {self.waited:.0f} s\n")
        for each in self._management.getThreadMXBean().dumpAllThreads(True, True):
            sys.stderr.write(each.toString())
        sys.stderr.flush()
        os._exit(3)
