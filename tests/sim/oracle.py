"""What must hold at every moment: looked at whenever a worker answers, and when a reader is done."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.client.write.status import MapStatus
from holdfast.common.errors import CorruptError, HoldfastError, RetryError
from holdfast.common.formats.messages import Ack, MapSealed
from holdfast.common.formats.reduce_layouts import ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import Push, PushAnswer, Restore, Seal, SealAnswer, SealedEpoch
from holdfast.common.ids import Epoch, MapFileKey, PartitionId, ShuffleKey, WorkerId
from holdfast.common.statuses import Status
from holdfast.master.core.state.records import Shuffle
from holdfast.master.core.state.state import State
from holdfast.worker.storage.index.records import TRAILER, decode_footer, footer_bytes
from holdfast.worker.storage.layout import EpochKey, mark_path, sealed_path
from tests.sim.batches import Name, name_of, names_in
from tests.sim.clock import Life, Violation, VirtualLoop, pause
from tests.sim.dfs_books import DfsBooks
from tests.sim.env.dfs import Bucket

if TYPE_CHECKING:
    from holdfast.worker.storage.read.sealed_locations import SealedLocation
    from tests.sim.worker import SimWorker

_KEPT = (Status.SOFT_SPLIT, Status.SLOW_DOWN)
#: What may lose data at every level.
DEADLY = {"wiped", "sick", "rotten", "unreadable", "meddled", "log"}
#: What may change what a worker has to say of its epochs.
_CHANGED = {"wiped", "rotten", "unreadable", "meddled"}
#: A copy is made at most so long after its place was chosen.
_CHOSEN_SECONDS = 15.0
#: Answers to seals that are asked for again.
_ASKED_MAX = 64


class Oracle:
    """The books of one world."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.workers: dict[int, SimWorker] = {}
        #: by every number that the masters gave
        self.numbers: dict[int, SimWorker] = {}
        #: payloads by (map, attempt), and within by partition
        self.pushed: dict[tuple[int, int], dict[int, Counter[bytes]]] = {}
        #: by (map, attempt), where it counts its batches as kept: (partition, epoch, number)
        self.kept: dict[tuple[int, int], set[tuple[int, int, int]]] = {}
        #: by worker, on the disks that it has now, and epoch
        self._seals: dict[tuple[str, EpochKey], SealedEpoch] = {}
        #: what workers were told to make a copy of, and have not answered, with whom they were to read it from
        self._to_make: dict[tuple[str, EpochKey], set[int]] = {}
        #: answered FAILED_COPY with a mark of that on the platter
        self._marked: set[tuple[str, EpochKey]] = set()
        #: by the same, the batches in it
        self._contents: dict[tuple[str, EpochKey], set[Name]] = {}
        #: (worker, shuffle) whose data is deleted
        self._deleted: set[tuple[str, ShuffleKey]] = set()
        #: the same by start
        self._told: set[tuple[Life, ShuffleKey]] = set()
        self.deletions = 0
        #: those that could not be looked at, since a directory was not well
        self._unseen: dict[tuple[str, EpochKey], SealedEpoch] = {}
        self._map_seals: dict[tuple[str, MapFileKey], MapSealed] = {}
        self.sealed_maps = 0
        #: payloads by (map, attempt), of MAP shuffles
        self.map_pushed: dict[tuple[int, int], list[bytes]] = {}
        #: acknowledged batches by the worker that has a copy and epoch
        self._held: dict[tuple[str, EpochKey], set[Name]] = {}
        #: what a worker ever acknowledged
        self._said: set[tuple[str, Name]] = set()
        #: epochs of which a batch was acknowledged to a client, and whether any was by all copies
        self._used: dict[EpochKey, bool] = {}
        #: who ever acknowledged a batch of an epoch; the copies that a map file has
        self._copies: dict[EpochKey | MapFileKey, dict[str, SimWorker]] = {}
        #: the lowest level at which a worker acknowledged something of an epoch
        self._levels: dict[tuple[str, EpochKey], Ack] = {}
        #: shuffles that a start has deleted
        self._gone: dict[tuple[Life, ShuffleKey], None] = {}
        #: seals that were answered, for those who ask again
        self.asked: deque[tuple[SimWorker, Seal]] = deque(maxlen=_ASKED_MAX)
        #: what the masters have decided by now
        self.truth: Callable[[], State]
        self.acked_batches = 0
        self.sealed_epochs = self.restored_epochs = 0
        #: acknowledged while a replica was behind; copies that manifests call incomplete
        self.early_pushes = 0
        self.incomplete: set[tuple[EpochKey, int]] = set()
        #: what is on the DFS, if there is one
        self.dfs: DfsBooks | None = None

    def see_dfs(self, bucket: Bucket) -> None:
        """There is a DFS."""
        self.dfs = DfsBooks(bucket, self.fail, lambda key: self.truth().shuffle(key) is not None)

    def looked(self, worker: SimWorker) -> None:
        """Once a second."""
        registered = self.truth().workers.get(worker.number)
        if registered is None or not registered.alive:
            worker.missed_at = self._loop.now
        if self.dfs is not None:
            self.dfs.look(worker)
        if worker.gone or worker.store.failing:
            return
        with worker.disks.undisturbed():
            places = [place for place in self._unseen if place[0] == worker.name]
            known = [place for place in places if not self._not_known_yet(worker, place[1])]
        for place in known:
            self._whole(worker, place[1], self._unseen.pop(place))

    def fail(self, text: str) -> None:
        """Remember the first thing that is wrong: tasks of the product must not swallow it."""
        if self._loop.broken is None:
            self._loop.broken = Violation(text)

    def acknowledged(self, worker: SimWorker, push: Push, body: bytes, meta: bytes, *, to_client: bool) -> None:
        """What a worker acknowledges is there, at the level that was asked for, on as many copies as were asked for,
        and on all of those that it does not call behind."""
        answer = PushAnswer.decode(meta)
        refused = {index for index, status in answer.statuses if status not in _KEPT}
        # What ends behind the commit is of no attempt that counts, and some may refuse it for that.
        counts = push.shuffle in worker.pushes.reduce.shuffles
        replicas = [self.numbers.get(one.worker) for one in push.replicas if counts]
        self.early_pushes += answer.behind > 0
        self._apart(push.shuffle, [worker, *(one for one in replicas if one is not None)])
        offset = 0
        for index, entry in enumerate(push.entries):
            batch = body[offset : offset + entry[3]]
            offset += entry[3]
            if index in refused:
                continue
            self.acked_batches += 1
            key = EpochKey(push.shuffle, PartitionId(entry[0]), Epoch(entry[1]))
            name = name_of(key, batch)
            if to_client:  # what only a replica has acknowledged was promised to nobody
                self._used[key] = self._used.get(key, False) or push.acknowledging > len(push.replicas)
            self._copies.setdefault(key, {})[worker.name] = worker
            self._said.add((worker.name, name))
            place = worker.name, key
            self._held.setdefault(place, set()).add(name)
            self._levels[place] = min(push.ack, self._levels.get(place, push.ack))
            # A bit of it may have changed before it was acknowledged, which is found by who reads it.
            asked = push.ack is not Ack.MEMORY and not worker.gone and "rotten" not in worker.sins
            promised = asked and (worker.name, push.shuffle) not in self._deleted
            # What came before may be sealed by now, and on the DFS.
            there = self.dfs is not None and self.dfs.contains(bytes(batch))
            if promised and not there and not worker.disks.contains(bytes(batch), stable=push.ack is Ack.SYNCED):
                self.fail(f"{worker.name} acknowledges {name[1:]} of {key}, {push.ack.name}; it is on no disk")
            have = [replica is None or (replica.name, name) in self._said for replica in replicas]
            if counts and sum(have) + 1 < push.acknowledging:
                self.fail(f"{worker.name} acknowledges {name[1:]} of {key}; of {replicas} {have} have it")
            for at, has in enumerate(have):
                if not (has or answer.behind >> at & 1):
                    self.fail(f"{worker.name} acknowledges {name[1:]} of {key}; {push.replicas[at]} has not")

    def _apart(self, what: object, workers: Sequence[SimWorker]) -> None:
        """No two copies share a host."""
        if len({each.host for each in workers}) < len(workers):
            self.fail(f"{what} has two copies on one host: {[(each.name, each.host) for each in workers]}")

    def sealed(self, worker: SimWorker, seal: Seal, meta: bytes) -> None:
        """A seal is answered the same for ever, and what is sealed is durable, until the masters have dropped it."""
        epochs = SealAnswer.decode(meta).epochs
        if (worker.name, seal.shuffle) in self._deleted:
            if any(each.status == Status.OK for each in epochs):
                self._over(worker, seal.shuffle)
            return
        self.asked.append((worker, seal))
        for each in epochs:
            key = EpochKey(seal.shuffle, each.partition, each.epoch)
            if each.status != Status.OK and self.dfs is not None and self.dfs.has(worker, key):
                self.fail(f"{worker.name} says {each.status} of {key}, which it has on the DFS")
            place = (worker.name, key)
            self._answered(worker, key, each.status)
            # A directory that has vanished, and may come back empty, is noticed a moment later.
            before = self._seals.get(place, each) if worker.gone else self._seals.setdefault(place, each)
            self.sealed_epochs += each.status == Status.OK
            # What somebody did to a disk may be found only later, and where a disk takes neither record nor mark of a
            # copy that is given up, a later start may find it whole.
            excuses = {"rotten", "meddled"} if place in self._marked else {"rotten", "meddled", "unreadable"}
            if before.status is Status.FAILED_COPY:
                excuses |= {"wiped"} if place in self._marked else {"sick", "wiped", "full"}
            excused = excuses & worker.sins.keys()
            if each.status == Status.FAILED_COPY and self._is_marked(worker, key):
                self._marked.add(place)
            if self._was_made(worker, key, before, each):
                before = self._seals[place] = each
                self._levels[place] = Ack.SYNCED
            # What was never here nobody records: behind a crash that hurt the log it may be called lost, or given up.
            doubted = before.status is Status.UNKNOWN_FILE and each.status in (Status.DATA_LOST, Status.FAILED_COPY)
            changed = before != each and not excused and not doubted
            if changed or (before.status == each.status == Status.OK and before != each):
                self.fail(f"{worker.name} sealed {key}: {before.status.name} before, {each.status.name} now")
            if each.status != Status.OK:
                continue
            self._whole(worker, key, each)

    def restoring(self, worker: SimWorker, restore: Restore) -> None:
        """A worker is told to make copies. It may be killed when they are there, and its answer is not."""
        for partition, epoch, _ in restore.epochs:
            key = EpochKey(restore.shuffle, PartitionId(partition), Epoch(epoch))
            self._to_make.setdefault((worker.name, key), set()).add(restore.source.worker)

    def _was_made(self, worker: SimWorker, key: EpochKey, before: SealedEpoch, now: SealedEpoch) -> bool:
        """Whether a worker that had no copy when somebody asked has made it since, which its source's seal shows, and
        was killed before it answered."""
        if before.status is not Status.UNKNOWN_FILE or now.status is not Status.OK or "killed" not in worker.sins:
            return False
        sources = [self.numbers[each].name for each in self._to_make.get((worker.name, key), ())]
        seals = [self._seals.get((name, key)) for name in sources]
        return any(seal is not None and (seal.status, seal.crc_sum) == (Status.OK, now.crc_sum) for seal in seals)

    @staticmethod
    def _is_marked(worker: SimWorker, key: EpochKey) -> bool:
        """Whether the platter says that a copy was given up."""
        for root in worker.paths:
            with suppress(FileNotFoundError):
                worker.disks.stable_file(f"{root}/{mark_path(key, Status.FAILED_COPY)}")
                return True
        return False

    def restored(self, worker: SimWorker, restore: Restore, meta: bytes) -> None:
        """A copy is what its source has sealed, or was sealed here before; it is durable, and is sealed for ever."""
        if (worker.name, restore.shuffle) in self._deleted:
            return
        source = self.numbers.get(restore.source.worker)
        lacking = self.truth().incomplete.get(restore.shuffle, {})
        for each in SealAnswer.decode(meta).epochs:
            key = EpochKey(restore.shuffle, each.partition, each.epoch)
            if each.status != Status.OK:
                continue
            self.restored_epochs += 1
            # One that was lost when the place was chosen did not count, and may have come back. Where nobody has the
            # copy any more, who was to make it is asked whether it has.
            if source is not None and source is not worker and self._has_settled(source):
                self._apart(key, [worker, source])
            if restore.source.worker in lacking.get((each.partition, each.epoch), ()):
                self.fail(f"{worker.name} made a copy of {key} of the incomplete one of worker {restore.source.worker}")
            of = self._seals.get((source.name, key)) if source is not None else None
            before = self._seals.get((worker.name, key))
            if before is not None and before.status != Status.UNKNOWN_FILE:  # else it was not here when somebody asked
                right = before == each
            else:
                right = of is None or of.status != Status.OK or of.crc_sum == each.crc_sum
            self._seals[worker.name, key] = each
            self._to_make.pop((worker.name, key), None)
            if not right:
                self.fail(f"{worker.name} says that {key}, restored, is {each}; it was {before}, its source has {of}")
            self._levels[worker.name, key] = Ack.SYNCED
            self._whole(worker, key, each)

    def _has_settled(self, worker: SimWorker) -> bool:
        """Whether it was there, and was to stay, when a place was chosen for a copy that is made now."""
        return not worker.leaving and self._loop.now - worker.missed_at > _CHOSEN_SECONDS

    def _answered(self, worker: SimWorker, key: EpochKey, status: int) -> None:
        """What a worker acknowledged it does not say never to have had, nor to have lost, without a reason; nor does it
        give a copy up."""
        if status == Status.FAILED_COPY and not {*_CHANGED, "sick", "full"} & worker.sins.keys():
            self.fail(f"{worker.name} gives its copy of {key} up, and no disk has failed")
        level = self._levels.get((worker.name, key), Ack.MEMORY)
        reasons = set(_CHANGED)
        if status == Status.DATA_LOST:
            reasons |= {"sick", "log"}
        if status not in (Status.UNKNOWN_FILE, Status.DATA_LOST) or level is Ack.MEMORY:
            return
        if level < Ack.SYNCED or "log" in worker.sins:  # the log of another boot may be gone
            reasons.add("power")
        if not reasons & worker.sins.keys():
            self.fail(f"{worker.name} says {Status(status).name} of {key}, of which it acknowledged, {level.name}")

    def gone(self, worker: SimWorker, shuffles: Iterable[ShuffleKey]) -> None:
        """A worker has deleted these: from now on nothing of them is here, as long as it is not started anew."""
        self._gone |= dict.fromkeys((worker.life, shuffle) for shuffle in shuffles)
        self.look_for_gone(worker)

    def look_for_gone(self, worker: SimWorker) -> None:
        """Nothing comes back."""
        if worker.gone or {"wiped", "meddled"} & worker.sins.keys():
            return
        for life, shuffle in self._gone:
            if life is worker.life and (left := worker.has_left(shuffle)):
                self.fail(f"{worker.name} has deleted {shuffle}, and has it again: {left}")

    def _over(self, worker: SimWorker, shuffle: ShuffleKey) -> None:
        """A worker calls sealed what was dropped: the start that was told of it knows better."""
        if (worker.life, shuffle) in self._told:
            self.fail(f"{worker.name} says that {shuffle} is sealed, which it was told to delete")

    def _whole(self, worker: SimWorker, key: EpochKey, answer: SealedEpoch) -> None:
        """An epoch that is called sealed is durable and has everything that was acknowledged in it. Where a directory
        is not well, or not there, this can be seen later."""
        if worker.gone:
            self._unseen[worker.name, key] = answer
            return
        with worker.disks.undisturbed():
            try:
                place = worker.store.reduce.chunks(key.shuffle, key.partition, key.epoch)
            except HoldfastError as error:
                if worker.store.failing and error.status != Status.UNKNOWN_FILE:
                    self._unseen[worker.name, key] = answer
                else:
                    self.fail(f"{worker.name} says that {key} is sealed; it cannot be found: {error}")
                return
        try:
            stored = self._stored(worker, place)
        except FileNotFoundError as error:
            self.fail(f"{worker.name} says that {key} is sealed; {error} is not synced")
            return
        rotten = "rotten" in worker.sins and not place.away  # which is found by who reads it
        try:
            footer = stored[-footer_bytes(stored[-TRAILER.size :], len(stored)) :]
            decode_footer(footer, place.record.place(key), len(stored))
        except CorruptError as error:
            if rotten:
                return
            self.fail(f"{worker.name} says that {key} is sealed; {place.path} does not end as it should: {error}")
        names: list[Name] = []
        for row in place.record.chunks:
            found = names_in(key, stored[row.offset : row.offset + row.length])
            if found is None:
                if not rotten:
                    self.fail(f"{worker.name} says that {key} is sealed; it is not synced, or torn")
                return
            names += found
        self._contents[worker.name, key] = {*names}
        if len(names) != answer.batches:
            self.fail(f"{worker.name} says that {key} has {answer.batches} batches; it has {len(names)}")
        missing = self._held.get((worker.name, key), set()) - {*names}
        # In another boot nobody can tell damage of the log from what was not synced, but for what it says was.
        if missing and not {"log", "power"} <= worker.sins.keys():
            self.fail(f"{worker.name} says that {key} is sealed; {min(missing)[1:]} was acknowledged and is not there")

    def _stored(self, worker: SimWorker, place: SealedLocation) -> bytes:
        """What is on the platter, or on the DFS, of the file of an epoch. Raises FileNotFoundError."""
        if not place.away:
            return worker.disks.stable_file(place.path).stable.data()
        found = self.dfs.file(place.path) if self.dfs is not None else None
        if found is None:
            raise FileNotFoundError(f"{place.path} on the DFS")
        return found

    async def away_again(self, worker: SimWorker) -> None:
        """A worker that is well has what it brought to the DFS, whatever became of its indexes."""
        assert self.dfs is not None
        for key, answer in self.dfs.kept(worker):
            tries = 0
            while why := self._not_known_yet(worker, key):
                tries += 1
                if tries > 60:
                    self.fail(f"{worker.name} cannot find {key}, which is on the DFS: {why}")
                    return
                await pause(1.0)
            self._whole(worker, key, answer)

    @staticmethod
    def _not_known_yet(worker: SimWorker, key: EpochKey) -> str:
        try:
            worker.store.reduce.chunks(key.shuffle, key.partition, key.epoch)
        except RetryError as error:
            return str(error)
        except HoldfastError:
            return ""  # which is looked at again
        return ""

    def map_sealed(self, worker: SimWorker, file: MapFileKey, answer: MapSealed) -> None:
        """A map file that is called sealed is durable under its sealed name, with all that was written, and its seal is
        answered the same for ever."""
        if (worker.name, file.shuffle) in self._deleted:
            self._over(worker, file.shuffle)
            return
        self.sealed_maps += 1
        before = self._map_seals.setdefault((worker.name, file), answer)
        if before != answer:
            self.fail(f"{worker.name} sealed {file}: {before} before, {answer} now")
        if worker.gone or worker.store.failing or "rotten" in worker.sins:
            return
        payloads = self.map_pushed[file.map, file.attempt]
        for root in worker.paths:
            with suppress(FileNotFoundError):
                data = worker.disks.stable_file(f"{root}/{sealed_path(file)}").stable.data()
                if len(data) > answer.totals.size_bytes and all(payload in data for payload in payloads):
                    return
        self.fail(f"{worker.name} says that {file} is sealed; it is not synced, or torn")

    def map_written(self, status: MapStatus) -> None:
        """An attempt that has ended well names copies that are sealed."""
        winner = status.winner
        file = MapFileKey(status.shuffle, status.map, winner.attempt, winner.epoch)
        self._apart(file, [self.numbers[number] for number in winner.workers])
        for number in winner.workers:
            worker = self.numbers[number]
            self._copies.setdefault(file, {})[worker.name] = worker
            if (worker.name, file) not in self._map_seals and not DEADLY & worker.sins.keys():
                self.fail(f"{file} is said to be on {worker.name}, which has not sealed it")

    def meddled(self, worker: SimWorker) -> None:
        """Somebody changed a disk of a worker behind its back: what it says may differ from now on."""
        self._marked = {place for place in self._marked if place[0] != worker.name}
        parts: tuple[dict[Any, Any], ...] = (
            *(self._seals, self._contents, self._unseen),
            *(self._held, self._levels, self._map_seals, self._to_make),
        )
        for part in parts:
            for place in [place for place in part if place[0] == worker.name]:
                del part[place]

    def replaced(self, worker: SimWorker) -> None:
        """A directory that a worker made where its own was missing is gone, and nothing in its own says so."""
        if self.dfs is not None:
            self.dfs.excuse(worker)

    def deleted(self, worker: SimWorker, shuffle: ShuffleKey) -> None:
        """Workers delete only what the masters have dropped."""
        if self.truth().shuffle(shuffle) is not None:
            self.fail(f"{worker.name} deletes {shuffle}, which the masters have")
        self.deletions += 1
        self._deleted.add((worker.name, shuffle))
        self._told.add((worker.life, shuffle))
        parts: tuple[dict[Any, Any], ...] = (
            *(self._seals, self._contents, self._unseen),
            *(self._held, self._levels, self._to_make),
        )
        for part in parts:
            for place in [place for place in part if place[0] == worker.name and place[1].shuffle == shuffle]:
                del part[place]

    def committed(self, shuffle: Shuffle, manifest: ReduceManifest, winners: ReduceWinners) -> None:
        """A commit names every epoch, calls none empty that is not, and counts those with fewer copies than asked
        for."""
        key, epochs = shuffle.key, shuffle.partitions + shuffle.moved
        if len(manifest.epochs) != epochs:
            self.fail(f"{key} has {epochs} epochs, its manifest names {len(manifest.epochs)}")
        fewer = 0
        for each in manifest.epochs:
            statuses = [copy.status for copy in each.copies]
            sealed = statuses.count(Status.OK)
            fewer += Status.UNKNOWN_FILE not in statuses and 0 < sealed < shuffle.copies_wanted
        if fewer != shuffle.under_replicated:
            self.fail(f"{key} has {fewer} epochs with too few copies, the masters say {shuffle.under_replicated}")
        self.named(key, manifest, winners)

    def named(self, key: ShuffleKey, manifest: ReduceManifest, winners: ReduceWinners) -> None:
        """A manifest calls no epoch empty in which something was acknowledged that may be of a winner, and names no
        copy that was not sealed, or that lacks what a winner counts on. What it names counts: an epoch is lost where
        all of these are."""
        wanted = self._wanted(key, winners)
        lacking = self.truth().incomplete.get(key, {})
        for each in manifest.epochs:
            epoch = EpochKey(key, each.partition, each.epoch)
            self.incomplete.update((epoch, copy.worker) for copy in each.copies if copy.status is Status.INCOMPLETE)
            if any(copy.worker in lacking.get((each.partition, each.epoch), ()) for copy in each.readable):
                self.fail(f"{epoch} is read of a copy that is incomplete: {each.copies}")
            named = [(copy.worker, self.numbers.get(copy.worker)) for copy in each.readable]
            # Whoever took the place of another one has nothing of it, and is not who is named.
            readable = [one for number, one in named if one is not None and one.number == number]
            for worker in readable:
                self._complete(worker, epoch, wanted.get(epoch, set()))
                self._copies.setdefault(epoch, {})[worker.name] = worker
                if (worker.name, epoch) not in self._seals and not DEADLY & worker.sins.keys():
                    self.fail(f"{epoch} is said to be on {worker.name}, which has not sealed it")
            empty = not each.readable and not each.lost
            sins = [worker.sins.keys() for worker in self._copies.get(epoch, {}).values()]
            # That a log was taken away is not known any more in another boot; who reads misses what was in it.
            hurt = any({"meddled", "rotten"} & each or {"log", "power"} <= each for each in sins)
            if empty and not hurt and self._used.get(epoch) and self._wrote(winners, each.partition):
                self.fail(f"{epoch} is called empty; batches of it were acknowledged")

    def _wanted(self, key: ShuffleKey, winners: ReduceWinners) -> dict[EpochKey, set[Name]]:
        """Where the winners count on their batches."""
        found: dict[EpochKey, set[Name]] = {}
        for map_id, attempt in enumerate(winners.attempts):
            for partition, epoch, number in self.kept.get((map_id, attempt), ()):
                place = EpochKey(key, PartitionId(partition), Epoch(epoch))
                found.setdefault(place, set()).add(Name(place, map_id, attempt, number))
        return found

    def _complete(self, worker: SimWorker, epoch: EpochKey, wanted: set[Name]) -> None:
        """A copy that is named has what winners count on, unless something happened to one of its epoch."""
        contents = self._contents.get((worker.name, epoch))
        if contents is None or wanted <= contents:
            return
        level = self._levels.get((worker.name, epoch), Ack.MEMORY)
        deadly = self._deadly(level) | {"power"}
        if not any(deadly & one.sins.keys() for one in self._copies.get(epoch, {}).values()):
            self.fail(f"{worker.name} has no {min(wanted - contents)[1:]} of {epoch}, and its copy is named")

    def _wrote(self, winners: ReduceWinners, partition: int) -> bool:
        """Whether a winner pushed anything for this partition."""
        return any(self.pushed.get(each, {}).get(partition) for each in enumerate(winners.attempts))

    def read(self, winners: dict[int, int], partition: int, got: Counter[bytes], shuffle: ShuffleKey) -> None:
        """A reader that ends without an error has exactly what the winners pushed."""
        wanted: Counter[bytes] = Counter()
        for map_id, attempt in winners.items():
            wanted.update(self.pushed[map_id, attempt].get(partition, Counter()))
        if got != wanted:
            missing, extra = wanted - got, got - wanted
            self.fail(
                f"{shuffle} partition {partition}: {missing.total()} records missing unseen, {extra.total()} too many: "
                f"{sorted([*missing, *extra])[:3]}"
            )

    def called_lost(self, number: WorkerId, keys: Sequence[EpochKey], error: HoldfastError) -> None:
        """No worker says to a reader that epochs are lost which it has sealed, nothing happened to it that may lose
        them, and nobody dropped them."""
        worker = self.numbers.get(number)
        if worker is None or DEADLY & worker.sins.keys() or self.truth().shuffle(keys[0].shuffle) is None:
            return
        answers = [self._seals.get((worker.name, key)) for key in keys]
        if all(answer is not None and answer.status == Status.OK for answer in answers):
            self.fail(f"{worker.name} says to a reader what is not so: {error}")

    def may_lose(self, ack: Ack, shuffle: ShuffleKey) -> bool:
        """Whether something happened that may lose what was acknowledged at this level: to every worker that has a copy
        of some epoch or map file of this shuffle that is not incomplete."""
        deadly = self._deadly(ack)
        lacking = self.truth().incomplete.get(shuffle, {})
        for key, workers in self._copies.items():
            if key.shuffle != shuffle or not (key in self._used or isinstance(key, MapFileKey)):
                continue
            numbers = lacking.get((key.partition, key.epoch), ()) if isinstance(key, EpochKey) else ()
            incomplete = [self.numbers.get(number) for number in numbers]
            if all(deadly & worker.sins.keys() for worker in workers.values() if worker not in incomplete):
                return True
        return False

    @staticmethod
    def _deadly(ack: Ack) -> set[str]:
        """What may lose data at this level."""
        return (
            DEADLY | ({"power"} if ack < Ack.SYNCED else set()) | ({"killed", "full"} if ack is Ack.MEMORY else set())
        )

    @property
    def meddling(self) -> bool:
        """Whether somebody took or changed what lay on a disk."""
        return self._sinned(*DEADLY - {"sick", "log"})

    def left_on_dfs(self, *, at_all: bool) -> str:
        """What should have gone from the DFS; `at_all`: whoever put it there."""
        if self.dfs is None:
            return ""
        left = (self.dfs.left_by(worker, self._told) for worker in self.workers.values())
        return self.dfs.left() if at_all else next(filter(None, left), "")

    def _sinned(self, *sins: str) -> bool:
        return any(sin in worker.sins for worker in self.workers.values() for sin in sins)
