"""Removes from the DFS store what dropped applications and shuffles left there, wherever their workers are.

Rules
* Only a leader cleans, and only what its state remembers as dropped after a proof of leadership (core/leftovers.py).
  Unknown data stays, is counted and named in the log.
* One request to the store at a time, in a thread of its own: neither the loop nor Raft's thread ever waits for a store.
  A round removes FOLDERS_PER_ROUND_MAX folders at most; the next one continues.
* A store that is unreachable, or has no marker of this cluster, is skipped until the next round, with one log line.
  Nothing is logged for a new cluster, where no worker has written the marker yet.

Runs in the event loop. Made by main.py if there is a `[dfs] url`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.common.dfs import names
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import HoldfastError, NotLeaderError
from holdfast.common.ids import Instance
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.master.core.leftovers import Grace, sort_instances
from holdfast.master.leader.leader import Leader, WhileLeading

T = TypeVar("T")

#: A folder is what one worker stored of one generation of a shuffle.
FOLDERS_PER_ROUND_MAX = 1_000
#: Slashes in the name of a worker's folder: cluster/instance/shuffle/worker.
_WORKER_DEPTH = 3
#: Unknown instances that a log line names.
_NAMED_MAX = 5


class DfsCleaner(WhileLeading):
    """Cleans the store while this master is the leader."""

    def __init__(self, leader: Leader, store: DfsStore) -> None:
        super().__init__(leader)
        self._store = store
        self._section = leader.config.dfs
        self._cluster = leader.config.cluster.id
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-dfs-cleaner")
        self._reset()
        self._logged: tuple[str, tuple[Instance, ...]] = ("", ())
        self._folders_left = 0
        #: the marker was there before
        self._marked = False

    def close(self) -> None:
        """End the thread; what it waits for ends with an error."""
        super().close()
        self._store.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _reset(self) -> None:
        self._grace = Grace(self._section.clean_grace.ns)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._section.clean_every.seconds)
            problem = ""
            try:
                if await self._ask(self._store.is_marked):
                    await self.round()
                    self._marked = True
                elif self._marked or self._workers_use_it():
                    problem = str(self._store.not_ours())
            except NotLeaderError:
                continue  # this task is about to be cancelled
            except HoldfastError as error:
                problem = str(error)
            self._tell(problem, self._logged[1])
            self._leader.counts.dfs_failures += bool(problem)

    def _workers_use_it(self) -> bool:
        """Whether a worker says that its DFS is well: then there is a marker in it, and this is another store. Before
        that there is nothing to clean, and workers that cannot use it say so themselves."""
        beats = [report.heartbeat for report in self._leader.reports.values()]
        return any(beat.HasField("dfs") and beat.dfs.state == "well" for beat in beats)

    async def round(self) -> None:
        """Look at all that is in the store once. Raises NotLeaderError, DfsError."""
        self._folders_left = FOLDERS_PER_ROUND_MAX
        folders = await self._ask(lambda: self._store.folders(names.cluster_folder(self._cluster)))
        instances = [found for each in folders if (found := names.parse_instance(each)) is not None]
        sorted_out = await self._leader.confirmed(lambda state: sort_instances(state, instances))
        self._leader.counts.dfs_unheard = len(sorted_out.unheard)
        self._tell("", sorted_out.unheard)
        for instance in sorted_out.dropped:
            await self._remove(names.instance_folder(self._cluster, instance))
        for instance in sorted_out.living:
            await self._clean_living(instance)
        self._grace.end_round()
        self._leader.counts.dfs_rounds += 1

    async def _clean_living(self, instance: Instance) -> None:
        """Remove the dropped generations of a live application."""
        folders = await self._ask(lambda: self._store.folders(names.instance_folder(self._cluster, instance)))
        keys = [found for each in folders if (found := names.parse_shuffle(instance, each)) is not None]
        if not keys:
            return
        for key in await self._leader.confirmed(lambda state: list(filter(state.dropped, keys))):
            await self._remove(names.shuffle_folder(self._cluster, key))

    async def _remove(self, folder: str) -> None:
        """Remove a folder if its grace is over."""
        if self._grace.due(folder, self._leader.now_ns()):
            await self._remove_from_below(folder)

    async def _remove_from_below(self, folder: str) -> None:
        """Remove the folders of workers one by one, then those above them, as far as this round has room."""
        if folder.count("/") < _WORKER_DEPTH and self._folders_left:
            for each in await self._ask(lambda: self._store.folders(folder)):
                await self._remove_from_below(f"{folder}/{each}")
        if self._folders_left:
            self._folders_left -= 1
            await self._ask(lambda: self._store.remove_folder(folder))
            self._leader.counts.dfs_removed += 1
            log_event(LogEvent.DFS_FOLDER_REMOVED, folder=folder)

    async def _ask(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    def _tell(self, problem: str, unheard: tuple[Instance, ...]) -> None:
        """Log what is new; the same every few minutes would be noise."""
        if problem and problem != self._logged[0]:
            log_event(LogEvent.DFS_CLEANING_FAILED, reason=problem)
        if unheard and unheard != self._logged[1]:
            shown = [each.hex() for each in unheard[:_NAMED_MAX]]
            log_event(LogEvent.DFS_UNKNOWN_APPLICATIONS, count=len(unheard), instances=shown)
        self._logged = (problem, unheard)
