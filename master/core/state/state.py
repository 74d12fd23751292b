"""The replicated state: tables of immutable records, indexes derived from them, and what must hold between them.

Rules: only apply.py changes it, through the methods here, which keep the indexes in step. The tables are
what a snapshot holds; indexes are rebuilt from them. No clock: `time_ms` is the largest command time seen. A picture
for a snapshot is taken between two commands and must be quick; so it shares the shuffles below each application, and
the next command that changes some of them makes a copy of its own first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast.common.ids import NO_STATE, Generation, Instance, ShuffleId, ShuffleKey, StateId
from holdfast.common.shares import Shares
from holdfast.master.core.state import bounds
from holdfast.master.core.state.answers import AnswerTable
from holdfast.master.core.state.highest_generations import HighestGenerations
from holdfast.master.core.state.incomplete import unpack_incomplete
from holdfast.master.core.state.moves import Moved, rows_of, unpack_moved
from holdfast.master.core.state.records import KIND_REDUCE, Application, Shuffle, Upload, Worker


@dataclass(slots=True)
class Below:
    """What is below one application: its shuffles by what they are called in it, and the highest generation ever opened
    of each, in every state of the masters there was: what a restore forgot is not among them."""

    shuffles: dict[tuple[ShuffleId, Generation], Shuffle] = field(default_factory=dict)
    highest: dict[StateId, HighestGenerations] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How many runs of ids its highest generations take."""
        return sum(map(len, self.highest.values()))

    def head(self, shuffle: int) -> int | None:
        """Return the highest generation ever opened of a shuffle, None if it never had one."""
        found = [head for highest in self.highest.values() if (head := highest.get(shuffle)) is not None]
        return max(found, default=None)

    def copy(self) -> Below:
        """Return a copy that later changes do not reach."""
        return Below(self.shuffles.copy(), {state: highest.copy() for state, highest in self.highest.items()})


@dataclass(slots=True)
class StateTables:
    """Everything that is replicated."""

    time_ms: int = 0
    #: Place in the log of the last command applied, and numbers given so far.
    index: int = 0
    #: Which state this is (NO_STATE before it has a name), and the place in the log where it got that name.
    state_id: StateId = NO_STATE
    state_index: int = 0
    workers_made: int = 0
    applications_made: int = 0
    workers: dict[int, Worker] = field(default_factory=dict)
    applications: dict[bytes, Application] = field(default_factory=dict)
    #: By instance, for exactly the applications.
    below: dict[bytes, Below] = field(default_factory=dict)
    #: Instances that were dropped, oldest first, with the time.
    gone: dict[bytes, int] = field(default_factory=dict)
    uploads: dict[bytes, Upload] = field(default_factory=dict)
    clients: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)
    forgotten_index: int = 0


class State:
    """The tables and their indexes."""

    def __init__(self, tables: StateTables | None = None) -> None:
        tables = tables or StateTables()
        self.time_ms = tables.time_ms
        self.index = tables.index
        self.state_id = tables.state_id
        self.state_index = tables.state_index
        self.workers_made = tables.workers_made
        self.applications_made = tables.applications_made
        self.workers = tables.workers
        self.applications = tables.applications
        self.below = tables.below
        self.gone = tables.gone
        self.uploads = tables.uploads
        self.answers = AnswerTable()
        self.answers.restore(tables.clients, tables.forgotten_index)
        #: Instances whose `below` is in no picture.
        self._owned: set[bytes] = set()
        self._index()

    def _index(self) -> None:
        self.worker_by_uid = {worker.uid: worker.id for worker in self.workers.values()}
        self.worker_by_name = {worker.name: worker.id for worker in self.workers.values()}
        self.worker_by_directory = {
            directory.id: worker.id for worker in self.workers.values() for directory in worker.directories
        }
        #: Numbers of the workers of a host, and of those on a machine that is known.
        self.workers_of_host: dict[str, set[int]] = {}
        self.workers_of_machine: dict[str, set[int]] = {}
        #: Numbers of the workers that are not alive, and of those that drain.
        self.not_alive: set[int] = set()
        self.draining: set[int] = set()
        #: Where in the log the latest start of a worker is, and the latest change of any, or this state where none is.
        self.newest_start = 0
        self.workers_index = self.index
        for worker in self.workers.values():
            self._put_on_machine(worker)
            self._note(worker)
        self.run_count = sum(below.runs for below in self.below.values())
        #: By user: applications, shuffle generations, and bytes of these. Here they are only counted; a user that has
        #: so much that others would lack room is refused in control/quotas.py.
        self.applications_of = Shares(bounds.APPLICATIONS_MAX)
        self.shuffles_of = Shares(bounds.SHUFFLES_MAX)
        self.bytes_of = Shares(bounds.ARRAY_BYTES_MAX)
        for instance, below in self.below.items():
            self._own_more(instance, len(below.shuffles), _bytes_of(below), 1)
        self.under_replicated = sum(shuffle.under_replicated for shuffle in self.every_shuffle())
        #: Committed generations with copies that no worker has said anything of.
        self.unsealed = {shuffle.key: None for shuffle in self.every_shuffle() if shuffle.unsealed}
        self.upload_bytes = sum(upload.array_bytes for upload in self.uploads.values())
        #: The newest epoch of each partition that was ever moved, by shuffle: packed, since they may be millions.
        self.newest = {
            shuffle.key: dict(rows_of(shuffle.moves, shuffle.copies_wanted))
            for shuffle in self.every_shuffle()
            if shuffle.moves
        }
        #: Workers of incomplete copies, by shuffle and (partition, epoch).
        self.incomplete = {
            shuffle.key: unpack_incomplete(shuffle.incomplete) for shuffle in self.every_shuffle() if shuffle.incomplete
        }

    def capture(self) -> StateTables:
        """Return a picture that later commands do not change."""
        self._owned.clear()
        return StateTables(
            time_ms=self.time_ms,
            index=self.index,
            state_id=self.state_id,
            state_index=self.state_index,
            workers_made=self.workers_made,
            applications_made=self.applications_made,
            workers=self.workers.copy(),
            applications=self.applications.copy(),
            below=self.below.copy(),
            gone=self.gone.copy(),
            uploads=self.uploads.copy(),
            clients=self.answers.clients.copy(),
            forgotten_index=self.answers.forgotten_index,
        )

    # Changes.

    def put_worker(self, worker: Worker) -> None:
        """Add or replace a worker; directories that it does not use any more are free again."""
        assert 1 <= worker.id <= self.workers_made, f'worker "{worker.name}" has no number of ours: {worker.id}'
        before = self.workers.get(worker.id)
        if before is not None:
            del self.worker_by_name[before.name]
            for directory in before.directories:
                self.worker_by_directory.pop(directory.id, None)
            self._take_off_machine(before)
        self.workers[worker.id] = worker
        self.worker_by_uid[worker.uid] = worker.id
        self.worker_by_name[worker.name] = worker.id
        for directory in worker.directories:
            self.worker_by_directory[directory.id] = worker.id
        self._put_on_machine(worker)
        self._note(worker)
        self.workers_index = self.index

    @property
    def workers_total(self) -> int:
        """How many workers there are, lost ones included, without those that are gone."""
        return len(self.workers) - sum(self.workers[number].gone for number in self.not_alive)

    def _note(self, worker: Worker) -> None:
        for numbers, is_one in ((self.not_alive, not worker.alive), (self.draining, worker.draining_ms > 0)):
            (numbers.add if is_one else numbers.discard)(worker.id)
        self.newest_start = max(self.newest_start, worker.started_index)

    def _put_on_machine(self, worker: Worker) -> None:
        self.workers_of_host.setdefault(worker.host, set()).add(worker.id)
        if worker.machine_id:
            self.workers_of_machine.setdefault(worker.machine_id, set()).add(worker.id)

    def _take_off_machine(self, worker: Worker) -> None:
        for index, name in ((self.workers_of_host, worker.host), (self.workers_of_machine, worker.machine_id)):
            there = index.get(name, set())
            there.discard(worker.id)
            if not there:
                index.pop(name, None)

    def put_application(self, application: Application) -> None:
        """Add or replace an application."""
        assert application.instance not in self.gone, f'"{application.name}" is over, and comes back'
        self.applications[application.instance] = application
        if application.instance not in self.below:
            self.below[application.instance] = Below()
            self._own_more(application.instance, applications=1)

    def put_shuffle(self, shuffle: Shuffle) -> None:
        """Add or replace a generation of a shuffle of a living application."""
        below = self._own(shuffle.key.instance)
        before = below.shuffles.get(shuffle.key.number)
        more = shuffle.array_bytes - (before.array_bytes if before else 0)
        self._own_more(shuffle.key.instance, int(before is None), more)
        self.under_replicated += shuffle.under_replicated - (before.under_replicated if before else 0)
        assert self.under_replicated >= 0, "a replaced entry was counted"
        if shuffle.unsealed:
            self.unsealed[shuffle.key] = None
        else:
            self.unsealed.pop(shuffle.key, None)
        below.shuffles[shuffle.key.number] = shuffle
        highest = below.highest.setdefault(shuffle.key.state, HighestGenerations())
        self.run_count -= len(highest)
        highest.raise_to(shuffle.key.shuffle, shuffle.key.generation)
        self.run_count += len(highest)

    def drop_shuffle(self, key: ShuffleKey) -> None:
        """Remove a generation; that it existed is remembered."""
        shuffle = self._own(key.instance).shuffles.pop(key.number)
        self._own_more(key.instance, -1, -shuffle.array_bytes)
        self._forget(shuffle)

    def drop_application(self, instance: bytes) -> int:
        """Remove an application with everything below it; return how many shuffle generations were dropped."""
        below = self.below.pop(instance)
        self._own_more(instance, -len(below.shuffles), -_bytes_of(below), -1)
        del self.applications[instance]
        self.run_count -= below.runs
        for shuffle in below.shuffles.values():
            self._forget(shuffle)
        self.gone[instance] = self.time_ms
        return len(below.shuffles)

    def _own_more(self, instance: bytes, shuffles: int = 0, array_bytes: int = 0, applications: int = 0) -> None:
        """Count what the user of an application has more, or less."""
        user = self.applications[instance].user
        for shares, more in (
            (self.applications_of, applications),
            (self.shuffles_of, shuffles),
            (self.bytes_of, array_bytes),
        ):
            if more > 0:
                shares.add(user, more)
            else:
                shares.give(user, -more)

    def _forget(self, shuffle: Shuffle) -> None:
        self.under_replicated -= shuffle.under_replicated
        assert self.under_replicated >= 0, "a removed entry was counted"
        self.unsealed.pop(shuffle.key, None)
        self.newest.pop(shuffle.key, None)
        self.incomplete.pop(shuffle.key, None)

    def put_upload(self, name: bytes, upload: Upload) -> None:
        """Add or replace the parts of an array."""
        self.drop_upload(name)
        self.uploads[name] = upload
        self.upload_bytes += upload.array_bytes

    def drop_upload(self, name: bytes) -> None:
        """Remove the parts of an array, if there are any."""
        before = self.uploads.pop(name, None)
        if before is not None:
            self.upload_bytes -= before.array_bytes
            assert self.upload_bytes >= 0, "a removed entry was counted"

    def uploaded(self, name: bytes) -> bytes | None:
        """Return the array whose parts were sent, None while some are missing."""
        upload = self.uploads.get(name)
        return b"".join(upload.parts) if upload is not None and all(upload.parts) else None

    def _own(self, instance: bytes) -> Below:
        """Return what is below an application, to be changed: a copy of it if the last picture shows it."""
        below = self.below[instance]
        if instance not in self._owned:
            below = self.below[instance] = below.copy()
            self._owned.add(instance)
        return below

    # Questions.

    @property
    def shuffle_count(self) -> int:
        """Shuffle generations alive."""
        return self.shuffles_of.total

    @property
    def array_bytes(self) -> int:
        """Bytes of assignments, moves, winners and manifests."""
        return self.bytes_of.total

    def shuffle(self, key: ShuffleKey) -> Shuffle | None:
        """Return the record of a generation; None if it is not there, or another state than the key's registered what
        is called so. A key without a state means whichever did."""
        below = self.below.get(key.instance)
        found = below.shuffles.get(key.number) if below is not None else None
        return found if found is not None and key.state in (NO_STATE, found.key.state) else None

    def moved(self, key: ShuffleKey, partitions: Iterable[int]) -> list[Moved | None]:
        """Return the newest epoch of each partition, None of those that are in their first."""
        newest, shuffle = self.newest.get(key, {}), self.shuffle(key)
        copies = shuffle.copies_wanted if shuffle is not None else 0
        rows = [newest.get(partition) for partition in partitions]
        return [next(unpack_moved([row], copies)) if row is not None else None for row in rows]

    def head(self, instance: bytes, shuffle: int) -> int | None:
        """Return the highest generation ever opened of a shuffle of a living application."""
        below = self.below.get(instance)
        return below.head(shuffle) if below is not None else None

    def dropped(self, key: ShuffleKey) -> bool:
        """Whether this state, or one that it continues, remembers that it dropped the generation; that it is not
        there proves nothing, and what a restore forgot was registered in no state that is known here."""
        below = self.below.get(key.instance)
        if below is None:
            return key.instance in self.gone
        highest = below.highest.get(key.state)
        head = highest.get(key.shuffle) if highest is not None else None
        return head is not None and key.generation <= head and self.shuffle(key) is None

    def every_shuffle(self) -> Iterator[Shuffle]:
        """Yield every record, application by application."""
        for below in self.below.values():
            yield from below.shuffles.values()

    def generations(self, instance: bytes, shuffle: int) -> list[ShuffleKey]:
        """Return the living generations of a shuffle, lowest first."""
        found = []
        number = self.head(instance, shuffle)
        # Generations open one after another and are dropped from the lowest, so the living ones end at the highest.
        while number is not None and number >= 0:
            record = self.shuffle(ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(number)))
            if record is None:
                break
            found.append(record.key)
            number -= 1
        return found[::-1]

    def newest_named(self, name: str, user: str | None = None) -> Application | None:
        """Return the living application of that name, and of that user if one is given, that was created last."""
        named = [each for each in self.applications.values() if each.name == name and user in (None, each.user)]
        return max(named, key=lambda application: application.serial, default=None)

    def check(self) -> list[str]:
        """Derive everything again and return every breach of what must hold, as sentences; [] is good."""
        return [*self._check_indexes(), *self._check_records(), *self._check_shuffles(), *self.answers.check()]

    def _check_indexes(self) -> Iterator[str]:
        tables = self.capture()
        again = State(tables)
        for name in (
            "worker_by_uid",
            "worker_by_name",
            "worker_by_directory",
            "workers_of_host",
            "workers_of_machine",
            "not_alive",
            "draining",
            "newest_start",
            "newest",
            "incomplete",
            "unsealed",
        ):
            if getattr(again, name) != getattr(self, name):
                yield f"the index {name} differs from the tables"
        for name in ("applications_of", "shuffles_of", "bytes_of", "upload_bytes", "run_count", "under_replicated"):
            if getattr(again, name) != getattr(self, name):
                yield f"{name} is {getattr(self, name)}, the tables say {getattr(again, name)}"

    def _check_records(self) -> Iterator[str]:
        for number, worker in self.workers.items():
            if number != worker.id or not 1 <= number <= self.workers_made:
                yield f"worker {worker.name} has the number {number} in the index"
        for instance, application in self.applications.items():
            holders = [lease.holder for lease in application.leases]
            if not holders or len(set(holders)) != len(holders) or instance != application.instance:
                yield f"application {application.name} has leases {holders}"
            if instance in self.gone:
                yield f"application {application.name} is both dropped and registered"

    def _check_shuffles(self) -> Iterator[str]:
        if self.below.keys() != self.applications.keys():
            yield "there are shuffles without an application, or the other way round"
        for instance, below in self.below.items():
            for highest in below.highest.values():
                yield from highest.check()
            numbers = {number for number, _ in below.shuffles}
            living = {key for number in numbers for key in self.generations(instance, number)}
            for called, shuffle in below.shuffles.items():
                key = shuffle.key
                if called != key.number or key.instance != instance or key not in living:
                    yield f"shuffle {key} is in the wrong place, or not among the latest generations"
                if bool(shuffle.committed_ms) != bool(shuffle.winners):
                    yield f"shuffle {key} is committed without winners, or has winners uncommitted"
                yield from _check_moves(shuffle)


def _bytes_of(below: Below) -> int:
    return sum(shuffle.array_bytes for shuffle in below.shuffles.values())


def _check_moves(shuffle: Shuffle) -> Iterator[str]:
    """Epochs of a partition follow one another; only REDUCE partitions have any, and a manifest."""
    newest: dict[int, Moved] = {}
    for moved in unpack_moved(shuffle.moves, shuffle.copies_wanted):
        before = newest.get(moved.partition)
        grows = moved.epoch == (before.epoch + 1 if before else 1)
        if not grows or moved.partition >= shuffle.partitions or (before and before.made_index > moved.made_index):
            yield f"shuffle {shuffle.key} has {moved} after {before}"
        newest[moved.partition] = moved
    reduces = shuffle.kind == KIND_REDUCE
    if (shuffle.moves and not reduces) or bool(shuffle.manifest) != (reduces and bool(shuffle.committed_ms)):
        yield f"shuffle {shuffle.key} has moves or a manifest that it should not have, or lacks one"
