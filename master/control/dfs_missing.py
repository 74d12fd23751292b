"""Warns if workers have a DFS tier and the leader has none: files of dead workers are not removed then.

Rules: heartbeats say so (leader.reports). Told once when it is seen, and again only after it was well in between or
another master led. Runs in the event loop. Made by main.py if there is no `[dfs] url`.
"""

from __future__ import annotations

import asyncio

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.master.leader.leader import WhileLeading


class DfsMissing(WhileLeading):
    """Checks while this master is the leader."""

    _logged = False

    def _reset(self) -> None:
        self._logged = False

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._leader.config.lease.heartbeat.seconds)
            self.look()

    def look(self) -> None:
        """Look at the last heartbeats once."""
        beats = [report.heartbeat for report in self._leader.reports.values()]
        urls = sorted({beat.dfs.url for beat in beats if beat.HasField("dfs")})
        if urls and not self._logged:
            log_event(LogEvent.DFS_NOT_CONFIGURED, dfs=urls)
        self._logged = bool(urls)
