"""A worker that dies twice, longer apart than one may be gone, and comes back each time."""

import time

from holdfast.client.cluster.local import LocalCluster
from tests.support.waiting import wait_until

#: How long the readers of these tests wait for a worker that is gone: longer than one takes to start.
GRACE_SECONDS = 8.0


def restart(cluster: LocalCluster) -> None:
    """The worker is killed and comes back."""
    cluster.workers[0].kill()
    cluster.workers[0].start()
    cluster.wait_ready()


def die_again(cluster: LocalCluster) -> None:
    """The worker is killed after it had been there for longer than it may be gone; the masters have missed it."""
    back = time.monotonic()
    wait_until(lambda: time.monotonic() > back + GRACE_SECONDS, "the grace to pass", 2 * GRACE_SECONDS)
    cluster.workers[0].kill()
    wait_until(lambda: not cluster.alive_workers(), "the masters to miss the worker", 30)
