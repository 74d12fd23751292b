"""What must hold at every moment: looked at whenever a worker answers, and when a reader is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_layouts import ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import Push, PushAnswer, Seal, SealAnswer, SealedEpoch
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.master.core.state.state import State
from holdfast.worker.storage.layout import EpochKey
from tests.sim.clock import Violation, VirtualLoop
from tests.sim.disk import Name, is_whole, name_of

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker

_KEPT = (Status.SOFT_SPLIT, Status.SLOW_DOWN)


class Oracle:
    """The books of one world."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.workers: dict[int, SimWorker] = {}
        #: payloads by (map, attempt), and within by partition
        self.pushed: dict[tuple[int, int], dict[int, Counter[bytes]]] = {}
        self._seals: dict[tuple[bytes, EpochKey], SealedEpoch] = {}
        #: (directory, shuffle) whose data is deleted
        self._deleted: set[tuple[bytes, ShuffleKey]] = set()
        #: acknowledged batches by the directory of a copy and epoch
        self._held: dict[tuple[bytes, EpochKey], set[Name]] = {}
        #: epochs of which a batch was acknowledged to a client
        self._used: set[EpochKey] = set()
        #: what the masters have decided by now
        self.truth: Callable[[], State]
        self.acked_batches = 0
        self.sealed_epochs = 0

    def fail(self, text: str) -> None:
        """Remember the first thing that is wrong: tasks of the product must not swallow it."""
        if self._loop.broken is None:
            self._loop.broken = Violation(text)

    def acknowledged(self, worker: SimWorker, push: Push, body: bytes, meta: bytes, *, to_client: bool) -> None:
        """What a worker acknowledges is there, on both copies, at the level that was asked for."""
        answer = PushAnswer.decode(meta)
        refused = {index for index, status in answer.statuses if status not in _KEPT}
        replica = self._replica(push)
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
                self._used.add(key)
            for copy in (worker, replica) if replica is not None else (worker,):
                self._held.setdefault((copy.disk.directory, key), set()).add(name)
                held = copy.disk.platter if push.ack is Ack.SYNCED else copy.disk.written
                if name not in held and push.ack is not Ack.MEMORY:
                    self.fail(f"{worker.name} acknowledges {name[1:]} of {key}, {push.ack.name}; {copy.name} lacks it")

    def _replica(self, push: Push) -> SimWorker | None:
        if push.replica is None:
            return None
        return next(each for each in self.workers.values() if each.number == push.replica.worker)

    def sealed(self, worker: SimWorker, seal: Seal, meta: bytes) -> None:
        """A seal is answered the same for ever, and what is sealed is durable, until the masters have dropped it."""
        if (worker.disk.directory, seal.shuffle) in self._deleted:
            return  # an answer that was on its way when its shuffle was dropped
        for each in SealAnswer.decode(meta).epochs:
            key = EpochKey(seal.shuffle, each.partition, each.epoch)
            place = (worker.disk.directory, key)
            before = self._seals.setdefault(place, each)
            self.sealed_epochs += each.status == Status.OK
            if before != each:
                self.fail(f"{worker.name} sealed {key}: {before.status.name} before, {each.status.name} now")
            if each.status != Status.OK:
                continue
            self._whole(worker, key, each)

    def _whole(self, worker: SimWorker, key: EpochKey, answer: SealedEpoch) -> None:
        """An epoch that is called sealed is durable and has everything that was acknowledged in it."""
        found = worker.disk.index.get(key)
        if found is None or found.answer != answer:
            self.fail(f"{worker.name} says that {key} is sealed; it is not in its index")
            return
        batches = [batch for chunk in found.chunks for batch in chunk]
        if not all(is_whole(batch) for batch in batches):
            self.fail(f"{worker.name} says that {key} is sealed; it has a torn batch")
            return
        names = {name_of(key, batch) for batch in batches}
        if key in worker.disk.poisoned:
            self.fail(f"{worker.name} says that {key} is sealed; a write of it failed")
        if names - worker.disk.platter:
            self.fail(f"{worker.name} says that {key} is sealed; {min(names - worker.disk.platter)[1:]} is not synced")
        missing = self._held.get((worker.disk.directory, key), set()) - names
        if missing:
            self.fail(f"{worker.name} says that {key} is sealed; {min(missing)[1:]} was acknowledged and is not there")

    def deleted(self, worker: SimWorker, shuffle: ShuffleKey) -> None:
        """Workers delete only what the masters have dropped."""
        if self.truth().shuffle(shuffle) is not None:
            self.fail(f"{worker.name} deletes {shuffle}, which the masters have")
        self._deleted.add((worker.disk.directory, shuffle))
        for part in (self._seals, self._held):
            for place in [place for place in part if place[0] == worker.disk.directory and place[1].shuffle == shuffle]:
                del part[place]

    def committed(
        self, key: ShuffleKey, partitions: int, moved: int, manifest: ReduceManifest, winners: ReduceWinners
    ) -> None:
        """A commit names every epoch, and calls none empty in which something was acknowledged, unless no winner pushed
        anything for its partition."""
        if len(manifest.epochs) != partitions + moved:
            self.fail(f"{key} has {partitions + moved} epochs, its manifest names {len(manifest.epochs)}")
        for each in manifest.epochs:
            epoch = EpochKey(key, each.partition, each.epoch)
            if not each.copies and not each.lost and epoch in self._used and self._wrote(winners, each.partition):
                self.fail(f"{epoch} is called empty; batches of it were acknowledged")

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

    def may_lose(self, ack: Ack) -> bool:
        """Whether something happened that may lose what was acknowledged at this level."""
        sins = {sin for worker in self.workers.values() for sin in worker.sins}
        deadly = (
            {"wiped", "sick"}
            | ({"power"} if ack < Ack.SYNCED else set())
            | ({"killed", "full"} if ack is Ack.MEMORY else set())
        )
        return bool(sins & deadly)
