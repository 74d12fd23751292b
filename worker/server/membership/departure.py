"""Acts on core/drain_rules.py: signals come in, pushes and files are refused while it drains, the process is told to
end.

Rules: loop thread only. SIGTERM asks for an end as soon as that is safe, a second one and SIGINT for one at once. While
this worker drains for its end, it sends a heartbeat every DECOMMISSION_BEAT_SECONDS, and each answer brings the
masters' view; between them it looks at what is still written here. Made by process.py; registration.py passes on what
the masters answer.
"""

from __future__ import annotations

import asyncio
import time

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import background
from holdfast.worker.core.drain_rules import DrainRules, Stay
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.services.data_server import DataServer

#: Heartbeats while this worker leaves: they cost little, and somebody waits.
DECOMMISSION_BEAT_SECONDS = 0.1
#: Masters elect a leader within a second or so; longer than this they are not waited for.
SILENCE_NS = 3 * 10**9
_LOOK_SECONDS = 0.05


class Departure:
    """How one worker drains, and comes to its end."""

    def __init__(self, server: DataServer, standing: WorkerIdentity, patience_ns: int, stop: asyncio.Event) -> None:
        """`stop` is set when this worker ends."""
        self._server = server
        self._standing = standing
        self._stop = stop
        self._core = DrainRules(patience_ns, SILENCE_NS)
        self._looking: asyncio.Task[None] | None = None
        #: why this worker ends though nobody asked it to
        self.refusal = ""
        #: set when masters should hear from this worker before its next heartbeat is due
        self.hurry = asyncio.Event()

    @property
    def decommissioning(self) -> bool:
        return self._core.stay is Stay.DECOMMISSIONING

    @property
    def draining(self) -> bool:
        return self._core.drains

    def asked(self) -> None:
        self._core.asked(time.monotonic_ns(), self._standing.registered)
        if self.decommissioning:
            log_event(LogEvent.WORKER_LEAVING, worker=self._standing.name)
            self.hurry.set()
            self._look_on()
        self._act()

    def hurried(self) -> None:
        """SIGINT, or a reason to end at once."""
        self._core.hurried()
        self._act()

    def refused(self, reason: str) -> None:
        """Nobody wants this worker, and nobody needs it: it ends."""
        self.refusal = reason
        self._stop.set()

    def heartbeat_answered(self, *, draining: bool, clear: bool, as_decommissioning: bool) -> None:
        """The masters answered a heartbeat; `as_decommissioning` is what that heartbeat said."""
        before = self._core.drains
        self._core.heartbeat_answered(
            time.monotonic_ns(), draining=draining, clear=clear, as_decommissioning=as_decommissioning
        )
        if self._core.drains != before:
            changed = LogEvent.WORKER_DRAINING if self._core.drains else LogEvent.WORKER_DRAIN_CANCELLED
            log_event(changed, worker=self._standing.name)
            self._server.drain(self._core.drains)
            self.hurry.set()  # the masters hear the result at once
            self._look_on()
        self._act()

    def _act(self) -> None:
        if self._core.stay is Stay.ENDING:
            if not self._stop.is_set():
                log_event(LogEvent.WORKER_STOPPING, worker=self._standing.name, reason=self._core.because)
            self._stop.set()

    def _look_on(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = background(self._look())

    async def _look(self) -> None:
        writing = self._server.writing
        while (self.decommissioning or self.draining) and not self._stop.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
            before, writing = writing, self._server.writing
            if before and not writing:
                self.hurry.set()  # somebody may wait for just that
            self._core.looked(time.monotonic_ns(), writing)
            self._act()
