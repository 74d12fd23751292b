"""Tells stories about a worker's storage: the steps, and what every answer and every read has to be.

What is expected is kept apart from the product (storage_model.py): which batches were acknowledged, which may be there,
and whether anything happened that excuses an epoch. storage_checks.py looks at the books after each step.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path

import lmdb

from holdfast.common.dfs.names import shuffle_folder
from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.offline.verify import verify_directory
from holdfast.worker.storage.read.sealed_locations import SealedLocation
from tests.support.reduce_data import Made, Writer, shuffle_of
from tests.support.storage_checks import StoryChecks
from tests.support.storage_faults import KilledError
from tests.support.storage_model import PARTITIONS, ModelEpoch, ModelShuffle, Name, Step, must
from tests.support.storage_world import CLUSTER, NARROW, TIERS, WIDE, StoryWorld

SHUFFLES_MAX = 3
#: A kill falls within so many steps.
KILL_STEPS = 30
#: About the steps of one move.
MOVE_STEPS = 12


class Story(StoryChecks):
    """Tells a story in a folder; raises AssertionError where it goes wrong."""

    def __init__(self, root: Path, seed: int) -> None:
        self.world = StoryWorld(root, NARROW if seed % 2 else WIDE)
        self.shuffles: list[ModelShuffle] = []
        self.forgotten: list[ShuffleKey] = []
        self.held: list[tuple[ModelEpoch, SealedLocation]] = []
        self.counts: Counter[str] = Counter()
        self.made = 0
        #: something went wrong with a disk in this start: its books need not fit until the next one
        self.hurt: set[int] = set()
        #: folders of what was deleted while the DFS was gone: after another start that is for the leading master
        self.left_to_master: set[str] = set()
        #: answers that are not OK went with an index
        self.lost_index = False
        self.world.start()

    def tell(self, steps: list[Step]) -> None:
        """Take the steps, check after each, and end well."""
        for number, step in enumerate(steps):
            self.at = f"step {number} {step}"
            rng = random.Random(step.seed)
            self.counts[step.what] += 1
            self._guarded(lambda step=step, rng=rng: getattr(self, step.what)(rng), rng)  # type: ignore[misc]
            self.check()
        self.at = "the end"
        self.end()

    def _guarded(self, act: Callable[[], object], rng: random.Random) -> None:
        """Take a step, in which the worker may be killed."""
        random.seed(rng.getrandbits(32))  # what the allocator's reviewer draws from
        killed = _is_killed(act)
        self.world.disk.kill_after = self.world.disk.meanwhile = None
        if killed:
            self.counts["killed"] += 1
            self._started_again(rng)

    def _started_again(self, rng: random.Random, index_lost: int | None = None) -> None:
        """A new start, which may be killed too."""
        self.held.clear()
        if self.beside is not None:
            self.world.disk.killed = True
            self.join()
        self.world.end()
        self.hurt.clear()
        if index_lost is not None:
            shutil.rmtree(self.world.roots[index_lost] / "index")
            self.lost_index = True
        for shuffle in self.shuffles:
            for epoch in shuffle.epochs.values():
                if epoch.answer is None and epoch.ack is Ack.MEMORY:
                    epoch.excuse = epoch.excuse or "acknowledged from memory, and the worker started again"
            shuffle.newest = [
                1 + max([number for partition, number in shuffle.epochs if partition == one], default=-1)
                for one in range(PARTITIONS)
            ]
        if rng.random() < 0.2:
            self.world.disk.kill_after = rng.randrange(KILL_STEPS)
        while _is_killed(self._start):
            self.counts["killed at a start"] += 1
            self.world.end()

    def _start(self) -> None:
        self.world.start()
        self.world.disk.kill_after = None
        for key in self.forgotten:  # the masters say it again
            if key in self.world.store.shuffles():
                self.world.core.forget(key)
                self.world.store.forget([key]).result(30)
        self.world.carry_out()
        for number, directory in enumerate(self.world.store._directories):
            for shuffle in self.shuffles:
                for epoch in shuffle.epochs.values():
                    if directory.unsealed.has(epoch.key):
                        epoch.directory = number

    # steps

    def _shuffle(self, rng: random.Random) -> ModelShuffle | None:
        alive = [one for one in self.shuffles if not one.final]
        if len(self.shuffles) < SHUFFLES_MAX and (not alive or rng.random() < 0.3):
            self.made += 1
            ack = rng.choice([Ack.MEMORY, Ack.WRITTEN, Ack.WRITTEN, Ack.SYNCED])
            alive = [ModelShuffle(shuffle_of(self.made), ack)]
            self.shuffles += alive
        return rng.choice(alive) if alive else None

    def _maybe_kill(self, rng: random.Random, share: float = 0.15) -> None:
        if rng.random() < share:
            self.world.disk.kill_after = rng.randrange(rng.choice([MOVE_STEPS, KILL_STEPS]))

    def push(self, rng: random.Random) -> None:
        """Reserve and grow: one frame of one map."""
        shuffle = self._shuffle(rng)
        if shuffle is not None:
            self._maybe_kill(rng, 0.05)
            self._push(shuffle, rng)
            if self.world.store.mover.busy:  # there was little room, and the policies had files moved
                self._moves(rng)

    def _push(self, shuffle: ModelShuffle, rng: random.Random) -> None:
        writer = shuffle.writers.setdefault((one := rng.randrange(3), 0), Writer(shuffle.key, one))
        batches: list[Made] = []
        kind = rng.choice(["scattered", "scattered", "run", "mixed"])
        partitions = [rng.randrange(PARTITIONS) for _ in range(rng.randint(1, 7 if kind == "scattered" else 4))]
        for partition in sorted(partitions) if kind == "run" else partitions:
            size = rng.choice([60, 900, 20_000, 31_000] if kind == "scattered" else [900, 45_000, 130_000])
            batches.append(writer.batch(partition, rng.randbytes(size), epoch=shuffle.newest[partition]))
        epochs = []
        for made in batches:
            at = made.partition, made.epoch
            key = EpochKey(shuffle.key, PartitionId(made.partition), Epoch(made.epoch))
            epoch = shuffle.epochs.setdefault(at, ModelEpoch(key, shuffle.ack))
            epoch.maybe[writer.map, 0, made.number] = int.from_bytes(made.data[24:28], "little")
            epochs.append(epoch)

        def acked(statuses: dict[int, int]) -> None:
            for index, made in enumerate(batches):
                status = statuses.get(index, Status.OK)
                self.counts[f"pushed {Status(status).name}"] += 1
                name = writer.map, 0, made.number
                if status in (Status.OK, Status.SOFT_SPLIT):
                    epochs[index].acked[name] = epochs[index].maybe.pop(name)
                else:
                    shuffle.newest[made.partition] = max(shuffle.newest[made.partition], made.epoch + 1)

        self.world.push(writer, batches, shuffle.ack, acked)
        self._note_places(shuffle)

    def _note_places(self, shuffle: ModelShuffle) -> None:
        found = self.world.core.shuffles.get(shuffle.key)
        for state in found.epochs.values() if found is not None else ():
            epoch = shuffle.epochs.get((state.partition, state.epoch))
            if epoch is not None:
                epoch.directory = state.directory
        self._excuse_hurt()

    def _excuse_hurt(self) -> None:
        """What is not sealed in a directory that fails may be given up; in a full one what was promised from memory."""
        disk = self.world.disk
        for number, root in enumerate(self.world.roots):
            if disk.broken == root:
                self.hurt.add(number)
        for shuffle in self.shuffles:
            for epoch in shuffle.epochs.values():
                if epoch.answer is None and epoch.directory in self.hurt:
                    epoch.excuse = epoch.excuse or "its disk failed"
                if epoch.answer is None and epoch.ack is Ack.MEMORY:  # a full directory is as good as a full disk
                    epoch.excuse = epoch.excuse or "promised from memory before there was room"

    def look(self, rng: random.Random) -> None:
        """Evict: what the policies want moved is moved, or nearly."""
        self.world.look()
        self._moves(rng)

    def move(self, rng: random.Random) -> None:
        """Move some files, up, down, to a neighbour or to the DFS."""
        store = self.world.store
        here = [(key, number) for number in range(len(TIERS)) for key in sorted(self.world.files(number), key=str)]
        rng.shuffle(here)
        for key, number in here[: rng.randint(1, 3)]:
            target = rng.choice([one for one in range(len(TIERS) + 1) if one != number])
            if self.world.start_move(key, target):
                self.counts[f"move {number} to {target}"] += 1
        assert store.mover.busy <= 3 + store.tiering._settings.range
        self._moves(rng)

    def _moves(self, rng: random.Random) -> None:
        """What was planned is carried out, and the loop goes on before that and meanwhile."""
        self._maybe_kill(rng, 0.3)
        if self.world.store.mover.busy and rng.random() < 0.3:
            self.world.look()
            self._pushes(rng)
        if rng.random() < 0.6:
            self.world.disk.meanwhile = rng.randrange(MOVE_STEPS), lambda free: self._meanwhile(rng, free)
        problems = self.world.carry_out()
        if problems:
            self.counts["moves failed"] += 1
            disk = self.world.disk
            assert disk.full or disk.broken or not self.world.dfs_is_there or self.hurt, f"{self.at}: {problems}"

    def _pushes(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 5)):
            shuffle = self._shuffle(rng)
            if shuffle is not None:
                self._push(shuffle, rng)

    def _meanwhile(self, rng: random.Random, free: bool) -> None:
        """The loop goes on while the mover moves; `free`: nothing holds the index."""
        self.counts["meanwhile"] += 1
        self.read(rng)
        running = next(iter(self.world.store.mover._running), None)
        self._hold(rng, running.epochs if running is not None else ())
        acts: list[Callable[[random.Random], object]] = [self._fill_target, self.break_disk, self.lose_dfs]
        acts += [self._flood, self._pushes, self._seal, self._forget_beside] if free and running is not None else []
        rng.choice(acts)(rng)

    def _flood(self, rng: random.Random) -> None:
        """Push until there is no room."""
        self.world.look()
        for _ in range(4):
            self._pushes(rng)

    def _fill_target(self, rng: random.Random) -> None:
        """There is no room any more where the file goes that moves."""
        running = next(iter(self.world.store.mover._running), None)
        target = running.target if running is not None else None
        self.world.disk.full = target.root if target is not None else rng.choice(self.world.roots)

    def _forget_beside(self, rng: random.Random) -> None:
        """Forget the shuffle of the file on its way, in a thread as the worker does; it waits for the move, unless
        that goes to the DFS and is not recorded yet: then nothing of it is where the deletion looks."""
        running = next(iter(self.world.store.mover._running), None)
        assert running is not None
        (shuffle,) = [one for one in self.shuffles if one.key == running.key.shuffle]
        self._mark_forgotten(shuffle)
        self.world.core.forget(shuffle.key)
        errors: list[BaseException] = []

        def forget() -> None:
            try:
                done = self.world.store.forget([shuffle.key])
                while not done.done() and not self.world.disk.killed:  # what it waits for may die with all else
                    wait((done,), 0.1)
                if done.done():
                    done.result()
            except BaseException as error:  # noqa: BLE001 - told in the thread that waits
                errors.append(error)

        waits = running.target is not None or running.recording
        thread = threading.Thread(target=forget)
        thread.start()
        if not waits:
            thread.join()
        while not running.dropped and thread.is_alive():
            pass
        assert thread.is_alive() or errors or not waits, "it did not wait for the move"
        self.beside = running, thread, errors
        self.counts["forgotten beside a move"] += 1

    def seal(self, rng: random.Random) -> None:
        """Commit a few epochs of a shuffle before its end."""
        self._maybe_kill(rng)
        if rng.random() < 0.3:
            self.world.disk.meanwhile = rng.randrange(KILL_STEPS), lambda _: self.read(rng)
        self._seal(rng)

    def seal_final(self, rng: random.Random) -> None:
        """Commit a shuffle."""
        self._maybe_kill(rng)
        self._seal(rng, final=True)

    def _seal(self, rng: random.Random, final: bool = False) -> None:
        if not self.shuffles:
            return
        shuffle = rng.choice(self.shuffles)
        wanted = sorted(shuffle.epochs)
        if not final:
            wanted = rng.sample(wanted, rng.randint(0, len(wanted)))
        self._seal_these(shuffle, wanted, final)

    def _seal_these(self, shuffle: ModelShuffle, wanted: list[tuple[int, int]], final: bool) -> bool:
        for partition, epoch in wanted:  # nothing more comes for them, whatever becomes of the seal
            shuffle.newest[partition] = max(shuffle.newest[partition], epoch + 1)
        shuffle.final |= final
        self._excuse_hurt()
        try:
            answers = self.world.seal(shuffle.key, wanted, final=final)
        except (HoldfastError, OSError, lmdb.Error) as error:
            busy = isinstance(error, RetryError) and error.status is Status.BUSY and self.world.searching
            fair = busy or self.world.disk.full or self.world.disk.broken or self.hurt
            must(fair, f"{self.at}: not sealed: {error}")
            self.counts["not sealed"] += 1
            return False
        assert [(one.partition, one.epoch) for one in answers] == wanted
        for answer in answers:
            self._take_answer(shuffle.epochs[answer.partition, answer.epoch], answer)
        return True

    def _take_answer(self, epoch: ModelEpoch, answer: SealedEpoch) -> None:
        self.counts[f"sealed {answer.status.name}"] += 1
        if self.world.searching and answer.status is Status.DATA_LOST:
            return  # nobody knows of its shuffle until the DFS is back; then it is what it was
        if epoch.answer is not None:
            assert answer == epoch.answer, f"{self.at}: {epoch.key} was answered {epoch.answer}, now {answer}"
            return
        if answer.status is Status.OK:
            least, most = len(epoch.acked), len(epoch.acked) + len(epoch.maybe)
            assert least <= answer.batches <= most, f"{self.at}: {epoch.key} has {answer}, {least} were acknowledged"
            epoch.answer = answer
        elif answer.status is Status.UNKNOWN_FILE:
            fair = not epoch.acked or (epoch.excuse and self.lost_index)
            assert fair, f"{self.at}: {epoch.key} is unknown, and {len(epoch.acked)} were acknowledged"
        else:
            assert epoch.excuse, f"{self.at}: {epoch.key} is {answer.status.name}, and nothing excuses that"

    def read(self, rng: random.Random) -> None:
        """Read some sealed epochs, and what was held over moves."""
        for epoch, place in rng.sample(self.held, min(2, len(self.held))):
            self._compare(epoch, place)
        sealed = [one for shuffle in self.shuffles for one in shuffle.epochs.values() if one.answer is not None]
        for epoch in rng.sample(sealed, min(3, len(sealed))):
            self._read(epoch)

    def _read(self, epoch: ModelEpoch) -> SealedLocation | None:
        key = epoch.key
        try:
            place = self.world.store.reduce.chunks(key.shuffle, key.partition, key.epoch)
        except HoldfastError as error:
            must(self.world.searching, f"{self.at}: {key} cannot be found: {error}")
            must(error.status is Status.BUSY, f"{self.at}: {key} may be on the DFS, and is called {error.status.name}")
            return None
        self._compare(epoch, place)
        return place

    def _compare(self, epoch: ModelEpoch, place: SealedLocation) -> None:
        try:
            batches = self.world.read(place)
        except (HoldfastError, OSError) as error:
            gone = place.away and not self.world.dfs_is_there
            must(gone, f"{self.at}: {epoch.key} at {place.path}: {error!r}")
            self.counts["read without the DFS"] += 1
            return
        self.counts["read away" if place.away else "read"] += 1
        found: dict[Name, int] = {(one.map, one.attempt, int(one.number)): one.crc for one in batches}
        assert len(found) == len(batches), f"{self.at}: {epoch.key} has batches twice"
        lost, more = (
            epoch.acked.items() - found.items(),
            found.items() - epoch.acked.items() - epoch.maybe.items(),
        )
        assert not lost, f"{self.at}: {epoch.key} lost {len(lost)} of {len(epoch.acked)} batches at {place.path}"
        assert not more, f"{self.at}: {epoch.key} has {len(more)} batches that nobody sent"
        assert epoch.answer is not None
        assert len(found) == epoch.answer.batches
        assert epoch.contents in (None, found), f"{self.at}: {epoch.key} has changed"
        epoch.contents = found

    def hold(self, rng: random.Random) -> None:
        """Begin to read an epoch, and go on later."""
        self._hold(rng, ())

    def _hold(self, rng: random.Random, rather: Sequence[EpochKey]) -> None:
        sealed = [one for shuffle in self.shuffles for one in shuffle.epochs.values() if one.answer is not None]
        sealed = [one for one in sealed if one.key in rather] or sealed
        if sealed and len(self.held) < 6:
            epoch = rng.choice(sealed)
            place = self._read(epoch)
            if place is not None:
                self.held.append((epoch, place))

    def let_go(self, rng: random.Random) -> None:
        """End reading."""
        if self.held:
            del self.held[rng.randrange(len(self.held))]

    def forget(self, rng: random.Random) -> None:
        """Return: a shuffle is deleted."""
        if self.shuffles:
            shuffle = rng.choice(self.shuffles)
            self._mark_forgotten(shuffle)
            self._maybe_kill(rng)
            self.delete(shuffle.key)

    def delete(self, key: ShuffleKey) -> None:
        """The masters say that a shuffle is to be deleted."""
        self.world.core.forget(key)
        try:
            self.world.store.forget([key]).result(30)
        except (HoldfastError, OSError, lmdb.Error) as error:
            must(self.world.disk.broken or self.world.disk.full, f"{self.at}: not forgotten: {error!r}")
            store = self.world.store
            must(key in {*store.shuffles(), *store.folders()}, f"{self.at}: nobody will ask about {key} again")

    def _mark_forgotten(self, shuffle: ModelShuffle) -> None:
        if not self.world.dfs_is_there:
            self.left_to_master.add(shuffle_folder(CLUSTER, shuffle.key))
        self.shuffles.remove(shuffle)
        self.forgotten.append(shuffle.key)
        self.held = [(epoch, place) for epoch, place in self.held if epoch.key.shuffle != shuffle.key]

    def restart(self, rng: random.Random) -> None:
        """Kill and start."""
        self._started_again(rng)

    def lose_index(self, rng: random.Random) -> None:
        """Kill, and start without the index of one directory; the DFS may be gone meanwhile, over another start too."""
        if rng.random() < 0.4:
            self.lose_dfs(rng)
        self._started_again(rng, rng.randrange(len(TIERS)))
        self._seal(rng)
        if rng.random() < 0.3:
            self._started_again(rng)

    def tick(self, rng: random.Random) -> None:
        """A second goes by."""
        self._maybe_kill(rng, 0.1)
        self.world.store.reduce.tick()

    def fill(self, rng: random.Random) -> None:
        """Others fill the disk under one directory."""
        self.world.disk.full = rng.choice(self.world.roots)

    def drain(self, _: random.Random) -> None:
        """There is room again."""
        self.world.disk.full = None

    def break_disk(self, rng: random.Random) -> None:
        """Nothing can be written to one directory any more, until the next start."""
        if not self.hurt:
            self.world.disk.broken = rng.choice(self.world.roots)
            self._excuse_hurt()

    def lose_dfs(self, _: random.Random) -> None:
        """The DFS is gone."""
        if self.world.dfs_is_there:
            self.world.url.rename(self.world.gone)

    def find_dfs(self, _: random.Random) -> None:
        """The DFS is back."""
        if not self.world.dfs_is_there:
            self.world.gone.rename(self.world.url)
            self.world.now += 100.0

    def end(self) -> None:
        """Everything is well again: all that was acknowledged is sealed and read, and goes."""
        rng = random.Random(0)
        self.find_dfs(rng)
        self._started_again(rng)
        for shuffle in self.shuffles:
            assert self._seal_these(shuffle, sorted(shuffle.epochs), True)
            for epoch in shuffle.epochs.values():
                if epoch.answer is not None:
                    assert self._read(epoch) is not None
        self.world.look()
        self.world.carry_out()
        self.check()
        self.world.end()
        for root in self.world.roots:
            report = verify_directory(str(root))
            assert not report.damaged, [one for one in report.findings if one.severity == "DAMAGE"]
        self._start()
        for shuffle in self.shuffles[:]:
            self._mark_forgotten(shuffle)
            self.world.core.forget(shuffle.key)
            self.world.store.forget([shuffle.key]).result(30)
        self.check()
        left = [path.relative_to(self.world.url) for path in self.world.url.rglob("*.????????") if path.is_file()]
        left = [path for path in left if str(path.parent.parent) not in self.left_to_master]
        assert not left, f"on the DFS is left: {left}"
        self.world.end()


def _is_killed(act: Callable[[], object]) -> bool:
    """Whether the worker was killed in this. The error is let go of, and with it what a killed start had open."""
    try:
        act()
    except KilledError:
        return True
    return False


def tell(root: Path, seed: int, steps: list[Step]) -> tuple[Counter[str], Exception | None]:
    """Tell a story in a folder, which is removed afterwards; what was counted, and what went wrong or None."""
    story = Story(root, seed)
    try:
        story.tell(steps)
    except Exception as error:  # noqa: BLE001 - whatever the store raises that it should not
        return story.counts, error
    finally:
        story.world.end()
        shutil.rmtree(root)
    return story.counts, None
