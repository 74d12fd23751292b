"""A leader without a DFS tier whose workers have one: told, and not again and again."""

import asyncio
import logging
from typing import Any

import pytest

from holdfast.common.config.config import from_tables
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.control.dfs_missing import DfsMissing
from holdfast.master.leader.leader import WorkerReport
from tests.support.logged import logged


class FakeLeader:
    """What is asked of leader/leader.py."""

    def __init__(self) -> None:
        self.config = from_tables({"lease": {"heartbeat": "100ms"}})
        self.listeners: list[Any] = []
        self.reports: dict[int, WorkerReport] = {}

    def fail(self, error: BaseException) -> None:
        """It does not break here."""


def beat(url: str = "") -> WorkerReport:
    """A heartbeat of a worker with this DFS, or without one."""
    return WorkerReport(1, pb.HeartbeatRequest(dfs=pb.Dfs(url=url) if url else None))


def test_it_is_reported_once_and_again_after_it_was_well(caplog: pytest.LogCaptureFixture) -> None:
    """A warning that names the DFS when a heartbeat has one; a second only when it is seen anew, or anew led."""
    leader = FakeLeader()
    missing = DfsMissing(leader)  # type: ignore[arg-type]
    reported: list[int] = []
    states: list[dict[int, WorkerReport]] = [
        {},
        {1: beat()},
        {1: beat(), 2: beat("s3://b")},
        {2: beat("s3://b")},
        {},
        {3: beat("s3://b")},
    ]
    with caplog.at_level(logging.WARNING):
        for leader.reports in states:
            missing.look()
            reported.append(len(logged(caplog, LogEvent.DFS_NOT_CONFIGURED)))
    assert reported == [0, 0, 1, 1, 1, 2]
    assert logged(caplog, LogEvent.DFS_NOT_CONFIGURED) == [{"dfs": ["s3://b"]}] * 2


def test_it_looks_only_while_this_master_leads(caplog: pytest.LogCaptureFixture) -> None:
    """A new leadership begins anew; the end of it ends the looking."""
    leader = FakeLeader()
    leader.reports = {1: beat("s3://b")}

    async def lead_twice() -> list[bool]:
        missing = DfsMissing(leader)  # type: ignore[arg-type]
        (led,) = leader.listeners
        running = []
        for _ in range(2):
            led(True)
            missing.look()
            running.append(missing._task is not None)
            led(False)
            running.append(missing._task is not None)
        return running

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(lead_twice()) == [True, False, True, False]
    assert len(logged(caplog, LogEvent.DFS_NOT_CONFIGURED)) == 2
