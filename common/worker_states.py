"""What the masters call a worker: the words of Admin/ListWorkers, of pages and of the command line."""

from __future__ import annotations

ALIVE = "alive"
DRAINING = "draining"
#: no heartbeats, and not drained
LOST = "lost"
#: no heartbeats since it was drained: it was stopped, or removed
GONE = "gone"
#: Of these nothing can be asked.
AWAY = frozenset({LOST, GONE})
