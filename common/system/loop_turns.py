"""How long one turn of the event loop took: a long one delays every connection of the process.

Rules: a timer that is due every LOOK_SECONDS measures how late it comes, which is what held the loop, or all of the
process. Read by metrics. Called by the mains of masters and workers.
"""

from __future__ import annotations

import asyncio

LOOK_SECONDS = 0.05
#: A turn that held the loop for longer is counted.
SLOW_SECONDS = 0.05


class LoopTurns:
    """Watches the running loop until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: the longest turn in seconds, and how many were slow, since this began
        self.longest, self.slow = 0.0, 0
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Watch no more."""
        self._timer.cancel()

    def _look(self) -> None:
        late = self._loop.time() - self._timer.when()
        self.longest = max(self.longest, late)
        self.slow += late > SLOW_SECONDS
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
