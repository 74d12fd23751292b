"""A worker's storage with real directories and a real DFS store in a folder, driven the way its services drive it, in
one thread: seals and moves happen when they are asked for, so that a story can be told again from its seed."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.common.config.config import DfsSection, TiersSection
from holdfast.common.config.settings import Duration
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.batch import Batch, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import PUSH_ENTRY, Push, SealedEpoch
from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from holdfast.worker.core.tiers.view import TierMove as PlannedMove
from holdfast.worker.core.write.pending_pushes import PendingPush, PendingPushes, When
from holdfast.worker.core.write.reduce import Reduce, SplitLimits
from holdfast.worker.core.write.space import look_after_bytes
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.dfs.away_search import AwaySearch
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.index.records import DataRecord
from holdfast.worker.storage.layout import DataKey, EpochKey
from holdfast.worker.storage.read.sealed_locations import SealedLocation
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import Store, open_store, prepare
from tests.sim.swap import swapped
from tests.support.reduce_data import Made, Writer
from tests.support.storage_env import ChecksHere, env_of
from tests.support.storage_faults import Inline, InlineThreads, StoryDisk
from tests.support.tiers import bytes_held

CLUSTER = "stories"
TIERS = ("MEMORY", "SSD", "SSD")
#: Of the directories: some room, and hardly any.
WIDE = (3 * MIB, 5 * MIB, 5 * MIB)
NARROW = (1_200 * KIB, 1_600 * KIB, 2_000 * KIB)
SEGMENT_BYTES = 128 * KIB
RESERVE_SHARE = 0.1
#: As in push_service.py.
LIMITS = SplitLimits(soft_bytes=700 * KIB, hard_bytes=1_200 * KIB)


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Stores opened meanwhile search in the thread that asks."""
    with swapped([(AwaySearch, "start", _try_once)]):
        yield


def _try_once(search: AwaySearch, _: float = 0.0) -> str:
    """Search without a thread; again with the next look."""
    if failed(search.search) is None:
        search._over.set()
    return ""


class StoryAway(Away):
    """The DFS; a kill can fall before or after a file is stored there, and before a shuffle is removed."""

    disk: StoryDisk

    def put(self, record: DataRecord, path: Path) -> bytes:
        self.disk.step(None)
        token = super().put(record, path)
        self.disk.step(None)
        return token

    def _remove_dropped(self) -> None:
        self.disk.step(None)
        super()._remove_dropped()


class StoryWorld:
    """A store, its core, and the folder that is its DFS."""

    def __init__(self, root: Path, capacities: Sequence[int]) -> None:
        self.root = root
        self.capacities = capacities
        self.disk = StoryDisk()
        self.roots = [root / str(number) for number in range(len(TIERS))]
        self.url, self.gone = root / "dfs", root / "dfs-gone"
        self.url.mkdir(parents=True)
        self.settings = StoreSettings(
            cluster_id=CLUSTER,
            worker_name="w",
            directories=tuple(
                DirectorySettings(path=str(path), tier=tier, capacity_bytes=capacity)
                for path, tier, capacity in zip(self.roots, TIERS, capacities, strict=True)
            ),
            segment_bytes=SEGMENT_BYTES,
            tiers=TiersSection(),
            open_away=self._open_away,
        )
        self.now = time.monotonic()
        self.starts = 0
        self._store: Store | None = None
        self.core: Reduce
        self.pending: PendingPushes
        self._until_look = 0
        self.threads: InlineThreads

    @property
    def store(self) -> Store:
        """The store, which is open."""
        assert self._store is not None
        return self._store

    def _open_away(self, uid: bytes, env: Env) -> StoryAway:
        section = DfsSection(url=str(self.url), retry_window=Duration(0))
        away = StoryAway(env, lambda: DfsStore(section, CLUSTER), CLUSTER, uid)
        away.disk = self.disk
        away._lane = Inline()  # type: ignore[assignment]  # as much of an executor as is needed
        return away

    # starts

    def start(self) -> None:
        """Open the directories; may be killed."""
        assert self._store is None
        with in_one_thread():
            self.threads = InlineThreads()
            self._store = open_store(
                prepare(self.settings, env_of(self.disk, threads=self.threads, checks=ChecksHere(self.disk)))
            )
        self.starts += 1
        self.core = Reduce(self.store.incarnation, self.store.tiering.choose, LIMITS)
        self.core.closed_because = ""
        self.store.reduce.on_given_up = self.core.broke
        self.pending = PendingPushes(self.core)
        self.look()

    def end(self) -> None:
        """What a kill leaves: everything written is in the kernel, and nothing is written any more."""
        self.disk.kill_after, self.disk.meanwhile, self.disk.killed = None, None, True
        if self._store is not None:
            self._store.close()
            self._store = None
        gc.collect()  # a start that was killed has locks and indexes open
        self.disk.killed = False
        self.disk.full = self.disk.broken = None

    # pushing

    def push(
        self, writer: Writer, batches: Sequence[Made], ack: Ack, on_acks: Callable[[dict[int, int]], None]
    ) -> None:
        """Push; `on_acks` hears the statuses by index when they are answered: at level MEMORY before the writing."""
        meta, body = writer.push(batches, self.store.incarnation, ack)
        request = Push.decode(meta)
        self._until_look -= len(body)
        if self._until_look < 0:
            self.look()
        if not self.core.knows(request.shuffle):
            self.core.introduce(request, *self.store.reduce.past(request.shuffle))
        refusal = self.core.refuse(request)
        assert refusal is None, refusal
        push = PendingPush(self.core.decide(request))
        self._open(push)
        rows = meta[-PUSH_ENTRY.size * len(batches) :]
        when = self.pending.when(push, slow=False)
        at_once = when is When.PROMISED
        if at_once:
            on_acks(dict(self.pending.answer(push)))
        failures = self.store.reduce.append(push.decision, rows, memoryview(body))
        self.pending.written(push, failures, self.store.reduce.flush(push.decision.marked))
        if at_once:
            self._give_up_promised(push)
        elif when is When.LATER and (steps := self.pending.begin(push, 0, slow=False)) is not None:
            self._sync(push, steps.directories)
        self.core.check()
        if not at_once:
            on_acks(dict(self.pending.answer(push)))

    def _open(self, push: PendingPush) -> None:
        for state in push.decision.opened:
            try:
                self.store.reduce.begin(state)
            except OSError as error:
                self.pending.not_opened(push, state, Status.NO_ROOM if is_shortage(error) else Status.FAILED_COPY)

    def _sync(self, push: PendingPush, directories: Sequence[int]) -> None:
        for directory, future in zip(directories, self.store.reduce.sync(push.decision), strict=True):
            missing = future.result(60)
            states = [state for state in push.decision.states if state is not None]
            lost = [one for one in states if EpochKey(one.shuffle, one.partition, one.epoch) in missing]
            self.pending.synced(push, directory, lost)

    def _give_up_promised(self, push: PendingPush) -> None:
        """Nothing waits for room here: what was acknowledged and cannot be written is given up, as after an error."""
        lost = self.pending.promised(push, unforeseen=False)
        if self.pending.owed is not None:
            lost += {state: None for state in self.pending.owed.decision.states if state is not None}
            self.pending.owed = None
        for state in lost:
            self.store.reduce.give_up(state, OSError("it could not be written"))
            self.core.broke(state)

    # looking and moving

    def look(self) -> int:
        """Plan moves, split what should move, and close what has no room; returns how many moves wait."""
        if self.searching:
            assert self.store._search is not None
            _try_once(self.store._search)
        spaces = self.store.look(RESERVE_SHARE, 64 * MIB)
        for directory, size in self.store.tiering.step(self.now):
            self.core.split_largest(directory, size)
        free_bytes = [space.room_bytes if space is not None else 0 for space in spaces]
        self._until_look = look_after_bytes(free_bytes)
        self.core.set_has_room([free > 0 for free in free_bytes])
        return self.store.mover.busy

    def start_move(self, file: DataKey, target: int) -> bool:
        """Have one file moved, if its books and the room there allow it."""
        self.look()
        tiering = self.store.tiering
        found = tiering._file(file)
        view = {one.number: one for one in tiering._usable().directories}.get(target)
        if found is None or view is None or view.free_bytes < found.size_bytes or found.not_before > self.now:
            return False
        if target == found.directory or (view.medium == "MEMORY" and not found.anywhere):
            return False
        tiering._start(PlannedMove(file, found.size_bytes, found.directory, target))
        return True

    def carry_out(self) -> list[str]:
        """Carry out all moves that wait; returns why some did not come about, though there was room."""
        mover = self.store.mover
        mover.look()
        while self.threads.moves.run_one():
            pass
        # What is deleted meanwhile need not arrive.
        problems = [one.problem for one in mover._ended if one.problem and not one.full and not one.dropped]
        self.now += 10.0
        self.store.tiering._take_ended()
        return problems

    # sealing and reading

    def seal(self, shuffle: ShuffleKey, epochs: Sequence[tuple[int, int]], *, final: bool) -> list[SealedEpoch]:
        """Seal; raises as the worker answers."""
        states = self.core.seal(shuffle, final, epochs)
        promised = self.store.reduce.seal(shuffle, final, epochs)
        answers: list[SealedEpoch] = []
        errors: list[BaseException] = []
        for (key, one), state in zip(promised, states, strict=True):
            if isinstance(one, SealedEpoch):
                answers.append(one)
                continue
            error = one.exception(10)
            if error is not None:
                errors.append(error)
                if state is not None:
                    self.core.not_sealed(state)
                continue
            answers.append(one.result()[key])
            if state is not None:
                self.core.sealed(state)
        self.core.check()
        if errors:
            raise errors[0]
        return answers

    def read(self, place: SealedLocation) -> list[Batch]:
        """Every batch of a sealed epoch, checked. Raises HoldfastError if the DFS is gone."""
        found: list[Batch] = []
        seed = partition_seed(place.key.shuffle, place.key.partition)
        for row in place.record.chunks:
            if place.away:
                assert self.store.away is not None
                data = self.store.away.store.read(place.path, row.offset, row.length)
            else:
                with open(place.path, "rb") as file:
                    file.seek(row.offset)
                    data = file.read(row.length)
            found += parse_batches(memoryview(data), seed)
        return found

    # what is there

    def held(self, number: int) -> int:
        """What the files of a directory take."""
        return bytes_held(self.roots[number])

    def files(self, number: int) -> dict[DataKey, int]:
        """The sealed files that the index of a directory has; without those that have left it and cannot be removed."""
        with self.store._directories[number].index.reading() as reader:
            found = [(key, size) for key, size in reader.files() if not isinstance(key, MapFileKey)]
        return {key: size for key, size in found if key not in self.remains(number)}

    def remains(self, number: int) -> set[DataKey]:
        """The files that have left a directory and cannot be removed."""
        directory = self.store._directories[number]
        return {one.record.key for one in self.store.mover._remains if one.source is directory}

    def away_files(self, number: int) -> dict[DataKey, bytes]:
        """The files on the DFS that the index of a directory has, with their tokens."""
        with self.store._directories[number].index.reading() as reader:
            return {key: token for key, _, token in reader.away_files()}

    @property
    def searching(self) -> bool:
        """An index was lost, and what it had on the DFS is not known again yet."""
        return self.store._search is not None and not self.store._search.over

    @property
    def dfs_is_there(self) -> bool:
        """The DFS answers."""
        return self.url.is_dir()


def failed(call: Callable[[], Any]) -> HoldfastError | OSError | None:
    """Why a call failed; None if it did not."""
    try:
        call()
    except (HoldfastError, OSError) as error:
        return error
    return None
