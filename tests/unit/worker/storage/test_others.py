"""What happens to one shuffle is nobody else's concern: deleted ones, failing ones, directories that hang."""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, RerouteError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.storage.engine.folders import remove_folders
from holdfast.worker.storage.env.interfaces import Handle, Name
from holdfast.worker.storage.env.system import system
from holdfast.worker.storage.index.index import Index
from holdfast.worker.storage.names import INDEX
from tests.support.changing import files_below
from tests.support.map_data import file_key, make_content, shuffle_key
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.storage_data import append_all
from tests.support.waiting import wait_until
from tests.unit.worker.storage.reduce_world import SHUFFLE, FaultyDisk, World, fill

OTHER = shuffle_of(2)


class Gate:
    """Holds up whoever comes until it is opened."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        self.entered.set()
        assert self.open.wait(60), "nobody opened the gate"


class GatedDisk(FaultyDisk):
    """A disk that stops before some step, by the path that it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.folder: tuple[Callable[[Path], bool], Gate] | None = None
        self.removal: tuple[Callable[[Path], bool], Gate] | None = None
        #: what comes before the next syncs of data, one after another
        self.data: deque[Callable[[], object]] = deque()
        #: and before the next commits of the index
        self.commits: deque[Callable[[], object]] = deque()

    def commit(self, transaction: Callable[[], None]) -> None:
        if self.commits:
            self.commits.popleft()()
        super().commit(transaction)

    def sync(self, handle: Handle) -> None:
        if self.data:
            self.data.popleft()()
        super().sync(handle)

    def sync_folder(self, path: Name) -> None:
        if self.folder is not None and self.folder[0](Path(path)):
            self.folder[1].pass_through()
        super().sync_folder(path)

    def remove(self, path: Name) -> None:
        if self.removal is not None and self.removal[0](Path(path)):
            self.removal[1].pass_through()
        super().remove(path)


class Gated(World):
    """A store on such a disk."""

    disk: GatedDisk

    def __init__(self, root: Path, directories: int = 1, **more: Any) -> None:
        super().__init__(root, directories, **more)
        self.disk = GatedDisk()
        self.restart()

    def folder_of(self, shuffle: ShuffleKey, directory: int = 0) -> Path:
        """Where the files of a shuffle are."""
        (found,) = (self.root / str(directory) / "data" / shuffle.instance.hex()).glob(f"{shuffle.shuffle}-*")
        return found


def test_whoever_waits_for_the_next_sync_hears_of_the_one_that_failed(tmp_path: Path) -> None:
    """A sync fails under a copy that waits for its seal. A push that waits for the sync after it, which the kernel
    calls good, is refused like the first, and the seal says FAILED_COPY."""
    world, gate, index, writer = Gated(tmp_path), Gate(), Gate(), Writer(SHUFFLE)
    big = b"x" * 60_000

    def fails() -> None:
        gate.pass_through()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    world.disk.data.append(fails)
    told: list[object] = []

    def push() -> None:
        try:
            told.append(world.push(writer, [writer.batch(0, big)], Ack.SYNCED))
        except HoldfastError as error:
            told.append(error.status)

    unsealed = world.store._directories[0].unsealed
    pushes = [threading.Thread(target=push, daemon=True) for _ in range(2)]
    pushes[0].start()
    assert gate.entered.wait(30)
    pushes[1].start()
    wait_until(lambda: unsealed.syncing._next, "the other one to wait")
    seal = threading.Thread(target=lambda: told.append(world.seal([(0, 0)])[0].status), daemon=True)
    seal.start()
    wait_until(lambda: unsealed.sealing, "the seal to wait")
    world.disk.commits.append(index.pass_through)  # the seal comes to its end after the second sync
    gate.open.set()
    for thread in pushes:
        thread.join(30)
    index.open.set()
    seal.join(30)
    assert told == [Status.FAILED_COPY] * 3


def test_a03_a_round_of_syncs_goes_on_without_what_was_deleted(tmp_path: Path) -> None:
    """Two shuffles are synced in one round; one is deleted before its folder is synced. The other is acknowledged,
    sealed and read, and the directory stays well."""
    world, gate = Gated(tmp_path), Gate()
    mine, others = Writer(SHUFFLE), Writer(OTHER)
    big = b"x" * 60_000  # straight into a file: a round syncs its folder
    for writer in (mine, others):
        assert world.push(writer, [writer.batch(0, big)], Ack.SYNCED) == {}
    folder = world.folder_of(OTHER)
    world.disk.folder = (lambda path: path == folder), gate
    done: list[object] = []

    def push(writer: Writer) -> None:
        try:
            done.append(world.push(writer, [writer.batch(0, big)], Ack.SYNCED))
        except Exception as error:  # noqa: BLE001 - looked at below
            done.append(error)

    threads = [threading.Thread(target=push, args=(writer,), daemon=True) for writer in (others, mine)]
    threads[0].start()
    assert gate.entered.wait(30)
    threads[1].start()
    wait_until(lambda: world.store._directories[0].unsealed.syncing._next, "the other one to wait")
    world.core.forget(OTHER)
    assert world.store.forget([OTHER]).result(30) == 1
    gate.open.set()
    for thread in threads:
        thread.join(30)
    assert done[-1] == {}, "the push that stays"
    assert world.store._directories[0].problem == ""
    assert [answer.status for answer in world.seal([(0, 0)])] == [Status.OK]
    assert len(world.read(0)) == 2
    world.store.close()


@pytest.mark.parametrize("good", [True, False])
def test_what_left_a_segment_before_its_sync_failed_is_synced_where_it_is(tmp_path: Path, good: bool) -> None:
    """A batch waits for the next sync of its segment of the log and is flushed into its file before that begins, which
    fails: the push is answered when the file is on the disk, and not acknowledged if that fails too."""
    world, gate = Gated(tmp_path), Gate()
    writer = Writer(SHUFFLE)
    seen: dict[int, object] = {}

    def fail() -> None:
        raise OSError(errno.EIO, "the sync fails")

    def again() -> None:
        seen[-1] = "the file is synced"
        if not good:
            fail()

    def push(partition: int) -> None:
        try:
            seen[partition] = world.push(writer, [writer.batch(partition, b"x" * 900)], Ack.SYNCED)
        except HoldfastError as error:
            seen[partition] = error.status

    world.disk.data.extend((gate.pass_through, fail, again))
    first, second = [threading.Thread(target=push, args=(partition,), daemon=True) for partition in (1, 0)]
    first.start()
    assert gate.entered.wait(30)
    unsealed = world.store.reduce._directories[0].unsealed
    second.start()
    wait_until(lambda: None in unsealed.syncing._next, "the second push to wait")
    (state,) = [one for one in world.core.shuffles[SHUFFLE].epochs.values() if one.partition == 0]
    assert world.store.reduce.flush([state]) == []
    gate.open.set()
    for thread in (first, second):
        thread.join(30)
    assert seen == {1: {}, -1: "the file is synced", 0: {} if good else Status.FAILED_COPY}
    world.store.close()


def test_what_left_a_segment_while_its_sync_failed_is_given_up(tmp_path: Path) -> None:
    """A batch is flushed into its file while the segment of the log that had it is synced, which fails: the page cache
    may have lost it before it was flushed, so the push is not acknowledged, whatever becomes of the file."""
    world, gate = Gated(tmp_path), Gate()
    writer = Writer(SHUFFLE)
    seen: list[object] = []

    def hold() -> None:
        gate.pass_through()
        raise OSError(errno.EIO, "the sync fails")

    def push() -> None:
        try:
            seen.append(world.push(writer, [writer.batch(0, b"x" * 900)], Ack.SYNCED))
        except HoldfastError as error:
            seen.append(error.status)

    world.disk.data.append(hold)
    thread = threading.Thread(target=push, daemon=True)
    thread.start()
    assert gate.entered.wait(30)
    (state,) = world.core.shuffles[SHUFFLE].epochs.values()
    assert world.store.reduce.flush([state]) == []
    gate.open.set()
    thread.join(30)
    assert seen == [Status.FAILED_COPY]
    world.store.close()


def test_a04_a_seal_syncs_no_folder_of_others(tmp_path: Path) -> None:
    """A shuffle is deleted while another one's names are brought to the disk: that one is sealed, and so is the next,
    of REDUCE partitions and of MAP files."""
    world, gate = Gated(tmp_path), Gate()
    others = Writer(OTHER)
    for writer in (others, Writer(SHUFFLE)):
        assert world.push(writer, [writer.batch(0, b"x")]) == {}
    data = world.root / "0" / "data"
    world.disk.folder = (lambda path: path == data), gate  # its own way up, where the other's folder is, too
    world.core.seal(SHUFFLE, True, [(0, 0)])
    ((key, job),) = world.store.reduce.seal(SHUFFLE, True, [(0, 0)])
    assert gate.entered.wait(30)
    world.core.forget(OTHER)
    assert world.store.forget([OTHER]).result(30) == 1
    gate.open.set()
    assert not isinstance(job, SealedEpoch)
    assert job.result(30)[key].status == Status.OK
    content = make_content(file_key(shuffle_key(bytes(16), 5)))
    append_all(world.store, content)
    assert world.store.seal(content.key, content.totals).result(30).totals == content.totals
    assert world.store._directories[0].problem == ""
    world.store.close()


def test_a04_a_folder_is_made_while_the_one_above_it_goes(tmp_path: Path) -> None:
    """Shuffles of one application come on the loop, while a thread removes those that went: none finds its folder gone
    under its feet."""
    world = World(tmp_path)
    folders = world.store._directories[0].folders
    above = world.root / "0" / "data" / "app"
    going: SimpleQueue[Path | None] = SimpleQueue()

    def remove() -> None:
        while (folder := going.get()) is not None:
            remove_folders(world.disk, folder)

    thread = threading.Thread(target=remove)
    thread.start()
    for turn in range(2_000):
        folder = above / f"{turn}-0"
        folders.make(folder)
        (folder / "file").touch()
        (folder / "file").unlink()
        folders.leave(folder)
        going.put(folder)
    going.put(None)
    thread.join(60)
    assert not above.exists()
    assert folders.known() <= {above}
    world.store.close()


def test_a05_a_seal_of_a_dropped_shuffle_leaves_nothing_behind(tmp_path: Path) -> None:
    """A shuffle is dropped while its seal runs: the deletion is behind the seal, which puts nothing on the books."""
    world, gate = Gated(tmp_path), Gate()
    fill(world, Writer(SHUFFLE))
    folder = world.folder_of(SHUFFLE)
    world.disk.folder = (lambda path: path == folder), gate
    world.core.seal(SHUFFLE, True, [(0, 0)])
    world.store.reduce.seal(SHUFFLE, True, [(0, 0)])
    assert gate.entered.wait(30)
    world.core.forget(SHUFFLE)
    forgetting = world.store.forget([SHUFFLE])
    assert not forgetting.done()
    gate.open.set()
    assert forgetting.result(30) == 1
    assert world.store.shuffles() == []
    assert not list((world.root / "0" / "data").iterdir())
    assert sum(held.size_bytes for _, held in world.store.held()) == 0
    world.store.close()


def test_a31_deletion_goes_on_beside_a_directory_that_hangs(tmp_path: Path) -> None:
    """One directory hangs in the middle of a deletion, and no check has found that out: what is dropped is deleted from
    the other one, again and again."""
    world, gate = Gated(tmp_path, directories=2), Gate()
    keys = [shuffle_of(number) for number in range(1, 5)]
    for key in keys:
        writer = Writer(key)
        assert world.push(writer, [writer.batch(partition, b"x" * 60_000) for partition in range(2)]) == {}
    first, second = world.root / "0", world.root / "1"
    world.disk.removal = (lambda path: path.is_relative_to(first / "data")), gate
    for key in keys:
        world.core.forget(key)
        world.store.forget([key])
    assert gate.entered.wait(30)
    wait_until(lambda: not list((second / "data").iterdir()), "the deletion on the other directory")
    again = world.store.forget(keys)
    assert again.result(30) == 0, "what is under way is not begun a second time"
    gate.open.set()
    wait_until(lambda: not world.store.shuffles(), "the rest")
    world.store.close()


class Turns:
    """Stands for the loop: what is handed to it runs when the test says so."""

    def __init__(self) -> None:
        self.acts: deque[Callable[[], object]] = deque()

    def turn(self, until: Callable[[], bool]) -> bool:
        while self.acts:
            self.acts.popleft()()
        return until()


def test_a36_nobody_is_sent_to_a_file_that_has_moved(tmp_path: Path) -> None:
    """A reader finds an epoch in the index of a directory; before it is sent to the file there the mover removes it.
    The reader is sent where the file is."""
    world, turns, gate = World(tmp_path, tiers=("SSD", "HDD")), Turns(), Gate()
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"x" * 60_000)]) == {}
    assert [answer.status for answer in world.seal([(0, 0)])] == [Status.OK]
    source, target = world.store._directories
    if not source.index.data_files(SHUFFLE):
        source, target = target, source
    ((file, size),) = source.index.data_files(SHUFFLE).items()
    world.store.run_on(turns.acts.append)
    commit = world.disk.commit

    def gated(transaction: Callable[[], None]) -> None:
        if file in source.leaving:  # the commit that takes it out of the index there
            gate.pass_through()
        commit(transaction)

    world.disk.commit = gated  # type: ignore[method-assign]
    move = world.store.mover.move(file, size, source, target, target)
    assert world.store.mover.start(move)
    wait_until(lambda: turns.turn(gate.entered.is_set), "the mover to be about to remove it")

    def on_read(_: object) -> None:  # between the look into the index and the answer
        gate.open.set()
        wait_until(lambda: not [path for path in files_below(source.root) if path.suffix == ".part"], "the removal")
        wait_until(lambda: turns.acts or move.done.done(), "what comes after it")

    world.store.reduce.on_read = on_read
    place = world.store.reduce.chunks(SHUFFLE, 0, 0)
    assert Path(place.path).is_relative_to(target.root)
    assert Path(place.path).exists()
    wait_until(lambda: turns.turn(move.done.done), "the end of the move")
    world.store.close()


def _fail() -> None:
    raise OSError(errno.EIO, "asked for by the test")


def test_a07_a_map_file_whose_sync_failed_is_never_sealed(tmp_path: Path) -> None:
    """The sync of a MAP file with SYNCED fails while its seal is asked for. The kernel tells that error once: the sync
    of the seal would be well. The file is given up, and stays so after a restart."""
    world, failing, waiting = Gated(tmp_path), Gate(), Gate()
    content = make_content(file_key(SHUFFLE))
    writer = append_all(world.store, content, Ack.SYNCED)

    def fail() -> None:
        failing.pass_through()
        _fail()

    world.disk.data.extend([fail, waiting.pass_through])
    pushed = world.store.sync(writer)
    assert failing.entered.wait(30)
    sealed = world.store.seal(content.key, content.totals)
    reduce = world.store._directories[0].unsealed
    wait_until(lambda: waiting.entered.is_set() or bool(reduce._held_up), "the seal")
    if waiting.entered.is_set():  # two threads have the file at once: let the rename come before the mark
        rename = world.disk.rename

        def renamed(source: Name, target: Name) -> None:
            rename(source, target)
            if Path(target).suffix == ".map":
                failing.open.set()
                wait_until(pushed.done, "the mark")

        world.disk.rename = renamed  # type: ignore[method-assign]
        waiting.open.set()
    failing.open.set()
    for future in (pushed, sealed):
        with pytest.raises(RerouteError) as refused:
            future.result(30)
        assert refused.value.status is Status.FAILED_COPY
    waiting.open.set()
    world.disk.data.clear()
    for _ in range(2):
        with pytest.raises(RerouteError) as refused:
            world.store.seal(content.key, content.totals)
        assert refused.value.status is Status.FAILED_COPY
        world.restart()
    world.store.close()


def test_a07_a_seal_that_fails_in_an_unforeseen_way_is_answered(tmp_path: Path) -> None:
    """Whatever a seal or a sync of a MAP file raises, who waits for it hears of it, and its shuffle can be deleted."""
    world = Gated(tmp_path)
    synced, sealed = (make_content(file_key(SHUFFLE, number)) for number in range(2))

    def mistake() -> None:
        raise ValueError("a mistake of ours")

    world.disk.data.append(mistake)
    waits: list[Future[Any]] = [world.store.sync(append_all(world.store, synced, Ack.SYNCED))]
    wait_until(lambda: not world.disk.data, "the mistake")
    append_all(world.store, sealed)
    world.disk.data.append(mistake)
    waits.append(world.store.seal(sealed.key, sealed.totals))
    for future in waits:
        with pytest.raises(RerouteError) as refused:
            future.result(30)
        assert refused.value.status is Status.FAILED_COPY
    assert world.store.forget([SHUFFLE]).result(30) == 1
    world.store.close()


def test_a07_a_file_that_cannot_be_dropped_tells_of_its_disk(tmp_path: Path) -> None:
    """The next try of a MAP file finds that what is left of the one before cannot be removed: it is answered as an
    error of the disk, and the directory takes nothing new."""
    world = Gated(tmp_path)
    content = make_content(file_key(SHUFFLE))
    append_all(world.store, content)
    gate = Gate()
    gate.pass_through = _fail  # type: ignore[method-assign]
    world.disk.removal = (lambda path: path.suffix == ".open"), gate
    with pytest.raises(RerouteError) as refused:
        world.store.begin(content.key, content.partitions, Ack.WRITTEN)
    assert refused.value.status is Status.DISK_FAILED
    assert world.store._directories[0].problem
    world.disk.removal = None
    world.store.close()


def test_a04_a_map_file_that_is_deleted_while_it_is_synced_costs_no_directory(tmp_path: Path) -> None:
    """A shuffle is deleted while a MAP file of it is synced, so that its folder is gone when that is to be synced: who
    pushed is refused, the directory stays well, and the next file is taken and sealed."""
    world, gate = Gated(tmp_path), Gate()
    content, other = make_content(file_key(SHUFFLE)), make_content(file_key(OTHER))
    writer = append_all(world.store, content, Ack.SYNCED)
    world.disk.data.append(gate.pass_through)
    pushed = world.store.sync(writer)
    assert gate.entered.wait(30)
    assert world.store.forget([SHUFFLE]).result(30) == 1
    gate.open.set()
    with pytest.raises(RerouteError):
        pushed.result(30)
    assert world.store._directories[0].problem == ""
    append_all(world.store, other)
    assert world.store.seal(other.key, other.totals).result(30).totals == other.totals
    world.store.close()


def test_a04_what_goes_between_two_syncs_fails_no_seal(tmp_path: Path) -> None:
    """A seal brings names to the disk; between two of its folders another application's shuffle is deleted, with the
    folder that it made. That seal is well, and so is the next one."""
    world, gate = Gated(tmp_path), Gate()
    mine, other, next_one = (
        make_content(file_key(shuffle_key(bytes((number,)) * 16, number))) for number in range(1, 4)
    )
    for content in (mine, other):
        append_all(world.store, content)
    folder = world.root / "0" / "data" / other.key.shuffle.instance.hex()
    assert folder.is_dir()
    world.disk.folder = (lambda _: True), gate
    sealed = world.store.seal(mine.key, mine.totals)
    assert gate.entered.wait(30)
    world.store.forget([other.key.shuffle])
    wait_until(lambda: not folder.exists(), "the deletion")
    gate.open.set()
    assert sealed.result(30).totals == mine.totals
    append_all(world.store, next_one)
    assert world.store.seal(next_one.key, next_one.totals).result(30).totals == next_one.totals
    assert world.store._directories[0].problem == ""
    world.store.close()


def test_a_seal_of_a_dropped_shuffle_keeps_the_log_that_it_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A shuffle is dropped while its seal runs, and the log of it goes before the seal has read it: the seal has what
    it needs for itself, and ends without a mistake of ours."""
    world, syncing = Gated(tmp_path), Gate()
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"x" * 60_000)]) == {}
    assert world.push(writer, [writer.batch(1, b"in the log alone")]) == {}
    world.disk.data.append(syncing.pass_through)  # of the file of the first; what is small comes behind it
    world.core.seal(SHUFFLE, True, [(0, 0), (1, 0)])
    world.store.reduce.seal(SHUFFLE, True, [(0, 0), (1, 0)])
    assert syncing.entered.wait(30)
    world.core.forget(SHUFFLE)
    forgetting = world.store.forget([SHUFFLE])
    reduce = world.store._directories[0].unsealed
    reduce.tick()
    reduce.tick()
    assert list(reduce.log.segments) == [2], "the first segment is not needed any more"
    syncing.open.set()
    assert forgetting.result(30) == 1
    assert "SEAL_INTERNAL_ERROR" not in caplog.text
    assert "seal.internal_error" not in caplog.text
    assert not world.store.shuffles()
    world.store.close()


@pytest.mark.parametrize("kind", ["MAP", "REDUCE"])
def test_a_store_that_closes_lets_seals_end(tmp_path: Path, kind: str) -> None:
    """A store is closed while a seal syncs its file: the steps that are left are done, the answer comes, and a store
    that is opened on the same directory has it in its index."""
    world, gate = Gated(tmp_path), Gate()
    content = make_content(file_key(shuffle_key(bytes(16), 5)))
    job: Future[Any]
    if kind == "MAP":
        append_all(world.store, content)
        world.disk.data.append(gate.pass_through)
        job = world.store.seal(content.key, content.totals)
    else:
        writer = Writer(SHUFFLE)
        assert world.push(writer, [writer.batch(0, b"x" * 60_000)]) == {}
        world.core.seal(SHUFFLE, True, [(0, 0)])
        world.disk.data.append(gate.pass_through)
        ((_, sealing),) = world.store.reduce.seal(SHUFFLE, True, [(0, 0)])
        assert not isinstance(sealing, SealedEpoch)
        job = sealing
    assert gate.entered.wait(30)
    closing = threading.Thread(target=world.store.close, daemon=True)
    closing.start()
    wait_until(lambda: world.store._directories[0].pool._shutdown, "the pool to take nothing more")  # type: ignore[attr-defined]
    gate.open.set()
    closing.join(30)
    assert job.done(), "what came before the end is answered"
    job.result(0)
    index = Index.read_only(system(), world.root / "0" / INDEX)
    with index.reading() as reader:
        assert list(reader.files()), "it is recorded"
    index.close()
