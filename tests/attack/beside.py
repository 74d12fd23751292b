"""An attack for a moment, beside an honest client: what tests do with the attacks of this package."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from holdfast.client import LocalCluster, Session
from holdfast.client.cluster.server import Server
from tests.attack.target import Attack, target_of, used
from tests.support.reduce_client import fill, read
from tests.support.waiting import wait_until

#: For an attack and an honest job: met only when something is wrong.
_SECONDS = 180.0


def beside(
    cluster: LocalCluster, attack: Attack, tries: int = 0, watched: Server | None = None
) -> tuple[Counter[str], int]:
    """Attack a cluster while an honest client shuffles, commits and reads, all of it exact. The attack ends when it
    asked so often whether to go on, or with the honest job. Return what it counted, and the most memory of its own that
    `watched` had meanwhile."""
    asked, peak = itertools.count(1), 0
    begun, done = threading.Event(), threading.Event()

    def until() -> bool:
        begun.set()
        return done.is_set() or bool(tries and next(asked) > tries)

    async def run() -> Counter[str]:
        return await attack(await target_of(cluster), until)

    def look() -> None:
        nonlocal peak
        if watched is not None:
            peak = max(peak, used(watched)[0])

    def over(work: Future[Any]) -> bool:
        look()
        return work.done()

    with ThreadPoolExecutor(2) as threads:
        attacking = threads.submit(lambda: asyncio.run(run()))
        try:
            wait_until(lambda: begun.is_set() or attacking.done(), "the attack to begin", _SECONDS)
            working = threads.submit(honest_job, cluster)
            wait_until(lambda: over(working), "the honest job", _SECONDS)
            working.result()
            if tries:
                wait_until(lambda: over(attacking), "the end of the attack", _SECONDS)
        finally:
            done.set()
        return attacking.result(), peak


def honest_job(cluster: LocalCluster) -> None:
    """Shuffle, commit and read, and find every record once."""
    with Session(cluster.endpoints, app="honest", credentials=cluster.credentials) as session:
        shuffle, wanted = fill(session)
        assert read(shuffle) == wanted
