"""What the masters call a worker: the words of Admin/ListWorkers, of pages and of the command line."""

from __future__ import annotations

ALIVE = "alive"
DRAINING = "draining"
#: no heartbeats, and it may keep what is needed
LOST = "lost"
#: no heartbeats, and nobody needs what it kept: it had drained until then, or a person removed it
GONE = "gone"
#: Of these nothing can be asked.
AWAY = frozenset({LOST, GONE})
