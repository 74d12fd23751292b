"""A store of REDUCE partitions over real directories and the core above it, for tests: no server, no clock."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.batch import Batch, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import PUSH_ENTRY, Push, SealedEpoch
from holdfast.common.ids import PartitionId, ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.common.statuses import Status
from holdfast.worker.core.write.reduce import Reduce
from holdfast.worker.core.write.seen_batches import PushDecision
from holdfast.worker.storage.engine.answers import failed_copy
from holdfast.worker.storage.env.interfaces import Handle, Name, Stat
from holdfast.worker.storage.log.log_records import RECORDS_AT
from holdfast.worker.storage.read.sealed_locations import SealedLocation
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import Store, open_store, prepare
from tests.support.reduce_data import Made, Writer, shuffle_of
from tests.support.storage_env import Disk, env_of

SHUFFLE = shuffle_of()


class FaultyDisk(Disk):
    """A disk that fails when told so."""

    def __init__(self) -> None:
        self.write_error = 0
        #: half of what fails is written
        self.torn = False
        self.sync_error = 0
        self.commit_error = 0
        self.remove_error = 0
        #: of marks of copies that are given up
        self.mark_error = 0
        #: of the next folder that is made
        self.folder_error = 0
        #: of the next look at something with this name
        self.look_error, self.look_name = 0, ""
        #: no index can be read
        self.unreadable = False

    def write_parts(self, handle: Handle, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        if self.write_error:
            if self.torn:
                super().write(handle, b"".join(parts)[: size // 2], offset)
            raise OSError(self.write_error, os.strerror(self.write_error))
        super().write_parts(handle, parts, size, offset)

    def write(self, handle: Handle, data: bytes | memoryview, offset: int) -> None:
        if self.write_error:
            raise OSError(self.write_error, os.strerror(self.write_error))
        super().write(handle, data, offset)

    def commit(self, transaction: Callable[[], None]) -> None:
        if self.commit_error:
            raise OSError(self.commit_error, os.strerror(self.commit_error))
        super().commit(transaction)

    def remove(self, path: Name) -> None:
        if self.remove_error and Path(path).suffix == ".push":
            raise OSError(self.remove_error, os.strerror(self.remove_error))
        super().remove(path)

    def create(self, path: Name) -> Handle:
        if self.mark_error and Path(path).suffix == ".failed":
            raise OSError(self.mark_error, os.strerror(self.mark_error))
        return super().create(path)

    def make_folder(self, path: Name) -> bool:
        if self.folder_error:
            error, self.folder_error = self.folder_error, 0
            raise OSError(error, os.strerror(error), str(path))
        return super().make_folder(path)

    def _look(self, path: Name) -> None:
        error = self.look_error
        if error and Path(path).name == self.look_name:
            self.look_error = 0
            raise OSError(error, os.strerror(error), str(path))

    def stat(self, path: Name, *, follow: bool = True) -> Stat:
        self._look(path)
        return super().stat(path, follow=follow)

    def names(self, folder: Name) -> list[str]:
        self._look(folder)
        return super().names(folder)

    def look_into_index(self) -> None:
        if self.unreadable:
            raise LmdbDamagedError("the index cannot be read: it had a fatal error")

    def sync(self, handle: Handle) -> None:
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(handle)


class World:
    """A store and a core, driven the way the push service does."""

    def __init__(
        self,
        root: Path,
        directories: int = 1,
        segment_bytes: int = 64 * MIB,
        tiers: Sequence[str] = (),
        capacity_bytes: int = 0,
        disk: Disk | None = None,
    ) -> None:
        self.root = root
        self.disk = FaultyDisk()
        self._other_disk = disk
        tiers = tiers or ["SSD"] * directories
        self.settings = StoreSettings(
            cluster_id="c",
            worker_name="w",
            directories=tuple(
                DirectorySettings(path=str(root / str(number)), tier=tier, capacity_bytes=capacity_bytes)
                for number, tier in enumerate(tiers)
            ),
            segment_bytes=segment_bytes,
        )
        self.store: Store
        self.start()

    def start(self) -> None:
        """Open the directories."""
        self.store = open_store(prepare(self.settings, env_of(self._other_disk or self.disk)))
        count = len(self.settings.directories)
        self.core = Reduce(self.store.incarnation, lambda hint, _: hint - 1, has_room=[True] * count)
        self.core.closed_because = ""
        self.store.reduce.on_given_up = self.core.broke

    def _advised(self, partition: int) -> int:
        """Partition p goes to directory p if that has room, else to the next, and so on from the first again."""
        has_room = self.core.has_room
        order = [at % len(has_room) for at in range(partition, partition + len(has_room))]
        return next((at for at in order if has_room[at]), order[0]) + 1

    def restart(self) -> None:
        """What kill -9 leaves: everything written is in the kernel."""
        self.store.close()
        self.start()

    def push(self, writer: Writer, batches: Sequence[Made], ack: Ack = Ack.WRITTEN) -> dict[int, int]:
        """Push; return the statuses by index."""
        meta, body = writer.push(batches, self.store.incarnation, ack)
        request = Push.decode(meta)
        advised = [(*entry[:4], self._advised(entry[0])) for entry in request.entries]
        request.entries[:] = advised  # type: ignore[assignment]  # decoded, they are plain tuples
        if not self.core.knows(request.shuffle):
            self.core.introduce(request, *self.store.reduce.past(request.shuffle))
        assert self.core.refuse(request) is None
        decision = self.core.decide(request)
        for state in decision.opened:
            self.store.reduce.begin(state)
        failures = self.store.reduce.append(decision, meta[-PUSH_ENTRY.size * len(batches) :], memoryview(body))
        self._after(decision, failures, ack)
        self.core.check()
        return dict(decision.statuses) | dict(failures)

    def _after(self, decision: PushDecision, failures: list[tuple[int, Status]], ack: Ack) -> None:
        for index, status in failures:
            state = decision.states[index]
            assert state is not None
            (self.core.broke if status == Status.FAILED_COPY else self.core.split)(state)
        self.core.landed(decision, [index for index, _ in failures])
        self.store.reduce.flush(decision.marked)
        if ack is Ack.SYNCED:
            for future in self.store.reduce.sync(decision):
                if future.result(60):
                    raise failed_copy(SHUFFLE, "a sync failed")

    def seal(
        self, epochs: Sequence[tuple[int, int]], *, final: bool = True, shuffle: ShuffleKey = SHUFFLE
    ) -> list[SealedEpoch]:
        """Seal and wait."""
        states = self.core.seal(shuffle, final, epochs)
        answers = []
        try:
            for key, one in self.store.reduce.seal(shuffle, final, epochs):
                answers.append(one if isinstance(one, SealedEpoch) else one.result(60)[key])
        except HoldfastError:
            for state in states:
                if state is not None:
                    self.core.not_sealed(state)
            raise
        for state in states:
            if state is not None:
                self.core.sealed(state)
        return answers

    def read(self, partition: int, epoch: int = 0, shuffle: ShuffleKey = SHUFFLE) -> list[Batch]:
        """Every batch of a sealed epoch, checked."""
        place = self.store.reduce.chunks(shuffle, partition, epoch)
        data = self.file_of(place).read_bytes()
        found: list[Batch] = []
        for row in place.record.chunks:
            chunk = memoryview(data[row.offset : row.offset + row.length])
            found += parse_batches(chunk, partition_seed(shuffle, PartitionId(partition)))
        return found

    def file_of(self, place: SealedLocation) -> Path:
        """Where the file of a sealed epoch is."""
        return Path(place.path)

    def files(self, pattern: str) -> list[Path]:
        """Files of the first directory."""
        return sorted((self.root / "0").rglob(pattern))

    def log_is_empty(self) -> bool:
        """Nothing is in the log but the head of one segment."""
        return [len(path.read_bytes().rstrip(b"\0")) <= RECORDS_AT for path in self.files("*.push")] == [True]


def fill(world: World, writer: Writer, partitions: int = 6, size: int = 2_000, rounds: int = 5) -> None:
    """Push some batches to every partition, many small and one large run."""
    for turn in range(rounds):
        frame = [writer.batch(partition, os.urandom(size + turn)) for partition in range(partitions)]
        assert world.push(writer, frame) == {}
    assert world.push(writer, [writer.batch(0, os.urandom(50_000)) for _ in range(3)]) == {}
