"""Runs drills: the cluster that each wants, from its first server to the verdict. Called by drill.py and the tests."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.client.cluster.local import LocalCluster, Sections, local_cluster
from holdfast.common.errors import HoldfastError
from holdfast.common.security.credentials import CA_VARIABLE, TOKEN_VARIABLE
from holdfast.tools.cli.output import progress
from holdfast.tools.drills.support.report import DrillError, Report, Step

Drill = Callable[[LocalCluster, Report, random.Random, Step], Coroutine[Any, Any, None]]

#: What is killed again and again is to go on taking data: that is what is rehearsed.
_STEADY: Sections = {"placement": {"flap_starts": 1_000_000}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The embedded cluster that a drill wants."""

    #: one is enough where none is touched
    masters: int = 3
    #: how many hosts with workers, and how many on each
    workers: int = 1
    workers_per_host: int = 1
    settings: Sections = field(default_factory=dict)
    #: settings of single servers, by name
    own: Mapping[str, Sections] = field(default_factory=dict)
    #: entered before the first server starts
    around: Callable[[LocalCluster], AbstractContextManager[object]] = nullcontext

    def with_settings(self, more: Sections) -> Ground:
        """The same with more settings, which win key by key."""
        sections = {*self.settings, *more}
        merged = {each: {**self.settings.get(each, {}), **more.get(each, {})} for each in sections}
        return replace(self, settings=merged)


def run_drill(
    name: str, drill: Drill, count: int, seed: int, directory: Path | None = None, ground: Ground | None = None
) -> Report:
    """Start the cluster that the drill wants, run it in there and return what it found."""
    ground = ground or Ground()
    for variable in (CA_VARIABLE, TOKEN_VARIABLE):  # are of another cluster: this one is without security
        os.environ.pop(variable, None)
    settings = Ground(settings=_STEADY).with_settings(ground.settings).settings
    with local_cluster(
        ground.masters,
        None,
        directory,
        settings,
        hosts=ground.workers,
        workers_per_host=ground.workers_per_host,
        own=ground.own,
        around=ground.around,
    ) as cluster:
        return run_on(cluster, name, drill, count, seed)


def run_on(cluster: LocalCluster, name: str, drill: Drill, count: int, seed: int) -> Report:
    """Run the drill in a cluster that is there, and return what it found."""
    report = Report(name, seed, count)
    with progress(f"drill {name}", count) as step:
        try:
            asyncio.run(drill(cluster, report, random.Random(seed), step))
        except DrillError as error:
            report.check("nothing hangs", False, str(error))
        except HoldfastError as error:  # a server that does not start again, masters that never answer
            report.check("servers come back", False, f"{type(error).__name__}: {error}")
    report.seconds = time.monotonic() - report.began
    report.close()
    return report
