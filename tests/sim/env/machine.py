"""Clock and chance of a simulated machine, the checks of a start, and all of the door together."""

from __future__ import annotations

import json
import random
import uuid

from holdfast.common.lmdb_pages import LmdbDamagedError, PageCounts
from holdfast.worker.storage.env.interfaces import Env
from tests.sim.env.dfs import Bucket, SimDfsDoor
from tests.sim.env.files import SimFiles
from tests.sim.env.indexes import SimIndexes, records
from tests.sim.env.process import Process
from tests.sim.env.threads import Loop, SimThreads

NO_PAGES = PageCounts(0, 0, 0, 0, 0)


class SimClock:
    """The loop's."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def now_ns(self) -> int:
        return int(self.now() * 1e9)

    def now(self) -> float:
        return self._loop.now + 1_000.0


class SimMachine:
    """Boots are counted, chance is the seed's."""

    def __init__(self, process: Process, rng: random.Random) -> None:
        self._process, self._rng = process, rng

    def boot_id(self) -> str:
        return str(uuid.UUID(int=self._process.disks.boots))

    def token(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def chance(self) -> float:
        return self._rng.random()


def sim_env(
    process: Process,
    loop: Loop,
    rng: random.Random,
    *,
    speed: float = 0.01,
    pauses: float = 0.3,
    bucket: Bucket | None = None,
) -> Env:
    """The door of one process; `bucket` is the DFS, if there is one."""
    files = SimFiles(process)
    threads = SimThreads(process, loop, rng, speed, pauses)
    return Env(
        files=files,
        indexes=SimIndexes(process),
        threads=threads,
        clock=SimClock(loop),
        machine=SimMachine(process, rng),
        checks=SimChecks(files, process),
        dfs=SimDfsDoor(bucket, process, threads, rng),
    )


class SimCheck:
    """One that has ended."""

    def __init__(self, text: str) -> None:
        self._text = text

    def report(self) -> str:
        return self._text


class SimChecks:
    """The product's checks, in this process; its reader of LMDB's pages is passed over, since there are none."""

    def __init__(self, files: SimFiles, process: Process) -> None:
        self._files, self._process = files, process

    def start(self, what: str, root: str) -> SimCheck:
        from holdfast.worker.storage import check, names
        from holdfast.worker.storage.index.index import unprotect

        try:
            if what == "data":
                return SimCheck(check.encode_data(check.list_data(self._files, root)))
            sums = check.IndexSums()
            file = self._process.disks.find(f"{root}/{names.INDEX_DATA}")
            for key, value in records(file, self._process.rng):
                value = unprotect(key, value)
                sums.visit(key + value, 0, len(key), len(key) + len(value))
            return SimCheck(check.encode_index(sums.report(NO_PAGES)))
        except (LmdbDamagedError, OSError) as error:
            return SimCheck(json.dumps({"damage": str(error)}))
