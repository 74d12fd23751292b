"""The driver that `holdfast drill driver` kills: a process that pushes and commits one shuffle after the other.

    python -m holdfast.tools.drills.support.driver_process ENDPOINTS APP LEASE_SECONDS SEED

It says in lines of JSON on standard output what it did: {"instance": …}, {"begun": shuffle, "seed": …} before anything
is pushed, and {"committed": shuffle} after the masters said so. It ends only by being killed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading

from holdfast.client.session import Session
from holdfast.tools.drills.support.jobs import Job
from holdfast.tools.drills.support.report import Report

#: How long a shuffle's maps push, so that kills fall between their pushes.
PUSH_SECONDS = 0.6
#: Shuffles that it makes at most, so that a driver that is not killed does not fill the workers.
_SHUFFLES_MAX = 40


def main(arguments: list[str]) -> None:
    """Drive until killed."""
    endpoints, app, lease, seed = arguments
    rng = random.Random(int(seed))
    report = Report("driver", int(seed), 0)
    with Session(endpoints, app=app, lease_seconds=float(lease)) as session:
        _say(instance=session.instance.hex())
        for _ in range(_SHUFFLES_MAX):
            job = Job(session, report, rng.getrandbits(32))
            _say(begun=job.shuffle.key.shuffle, seed=job.seed)
            asyncio.run(job.push(PUSH_SECONDS))
            job.commit()
            _say(committed=job.shuffle.key.shuffle)
        threading.Event().wait()


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
