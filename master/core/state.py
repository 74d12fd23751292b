"""The replicated state: tables of immutable records, indexes derived from them, and what must hold between them.

Rules: only apply.py changes it, through the methods here, which keep the indexes in step. The tables (`Tables`) are
what a snapshot holds; indexes are rebuilt from them. No clock: `time_ms` is the largest command time seen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.common.ids import ShuffleKey
from holdfast.master.core.answers import AnswerTable
from holdfast.master.core.records import Application, Client, Shuffle, Upload, Worker


@dataclass(slots=True)
class Tables:
    """Everything that is replicated. A shallow copy of each table is a consistent picture."""

    time_ms: int = 0
    #: Place in the log of the last command applied, and numbers given so far.
    index: int = 0
    workers_made: int = 0
    applications_made: int = 0
    workers: dict[int, Worker] = field(default_factory=dict)
    applications: dict[bytes, Application] = field(default_factory=dict)
    shuffles: dict[ShuffleKey, Shuffle] = field(default_factory=dict)
    #: Highest generation ever opened of each shuffle of a living application.
    heads: dict[tuple[bytes, int], int] = field(default_factory=dict)
    #: Instances that were dropped, oldest first, with the time.
    gone: dict[bytes, int] = field(default_factory=dict)
    uploads: dict[bytes, Upload] = field(default_factory=dict)
    clients: OrderedDict[bytes, Client] = field(default_factory=OrderedDict)
    forgotten_index: int = 0


class State:
    """The tables and their indexes."""

    def __init__(self, tables: Tables | None = None) -> None:
        tables = tables or Tables()
        self.time_ms = tables.time_ms
        self.index = tables.index
        self.workers_made = tables.workers_made
        self.applications_made = tables.applications_made
        self.workers = tables.workers
        self.applications = tables.applications
        self.shuffles = tables.shuffles
        self.heads = tables.heads
        self.gone = tables.gone
        self.uploads = tables.uploads
        self.answers = AnswerTable()
        self.answers.restore(tables.clients, tables.forgotten_index)
        self._index()

    def _index(self) -> None:
        self.worker_by_uid = {worker.uid: worker.id for worker in self.workers.values()}
        self.worker_by_name = {worker.name: worker.id for worker in self.workers.values()}
        self.worker_by_directory = {
            directory.id: worker.id for worker in self.workers.values() for directory in worker.directories
        }
        self.shuffles_of: dict[bytes, dict[ShuffleKey, None]] = {instance: {} for instance in self.applications}
        for key in self.shuffles:
            self.shuffles_of[key.instance][key] = None
        self.heads_of: dict[bytes, dict[int, None]] = {instance: {} for instance in self.applications}
        for instance, shuffle in self.heads:
            self.heads_of[instance][shuffle] = None
        self.array_bytes = sum(shuffle.array_bytes for shuffle in self.shuffles.values())
        self.upload_bytes = sum(upload.array_bytes for upload in self.uploads.values())

    def capture(self) -> Tables:
        """Return a picture that later commands do not change."""
        return Tables(
            time_ms=self.time_ms,
            index=self.index,
            workers_made=self.workers_made,
            applications_made=self.applications_made,
            workers=self.workers.copy(),
            applications=self.applications.copy(),
            shuffles=self.shuffles.copy(),
            heads=self.heads.copy(),
            gone=self.gone.copy(),
            uploads=self.uploads.copy(),
            clients=self.answers.clients.copy(),
            forgotten_index=self.answers.forgotten_index,
        )

    # Changes, one per table.

    def put_worker(self, worker: Worker) -> None:
        """Add or replace a worker; directories that it gave up are free again."""
        before = self.workers.get(worker.id)
        if before is not None:
            del self.worker_by_name[before.name]
            for directory in before.directories:
                self.worker_by_directory.pop(directory.id, None)
        self.workers[worker.id] = worker
        self.worker_by_uid[worker.uid] = worker.id
        self.worker_by_name[worker.name] = worker.id
        for directory in worker.directories:
            self.worker_by_directory[directory.id] = worker.id

    def put_application(self, application: Application) -> None:
        """Add or replace an application."""
        self.applications[application.instance] = application
        self.shuffles_of.setdefault(application.instance, {})
        self.heads_of.setdefault(application.instance, {})

    def put_shuffle(self, shuffle: Shuffle) -> None:
        """Add or replace a generation of a shuffle of a living application."""
        before = self.shuffles.get(shuffle.key)
        self.array_bytes += shuffle.array_bytes - (before.array_bytes if before else 0)
        self.shuffles[shuffle.key] = shuffle
        self.shuffles_of[shuffle.key.instance][shuffle.key] = None
        head = (shuffle.key.instance, shuffle.key.shuffle)
        self.heads[head] = max(self.heads.get(head, 0), shuffle.key.generation)
        self.heads_of[shuffle.key.instance][shuffle.key.shuffle] = None

    def drop_shuffle(self, key: ShuffleKey) -> None:
        """Remove a generation; that it existed is remembered."""
        self.array_bytes -= self.shuffles.pop(key).array_bytes
        del self.shuffles_of[key.instance][key]

    def drop_application(self, instance: bytes) -> int:
        """Remove an application with everything below it; return how many shuffle generations went."""
        del self.applications[instance]
        keys = self.shuffles_of.pop(instance)
        for key in keys:
            self.array_bytes -= self.shuffles.pop(key).array_bytes
        for shuffle in self.heads_of.pop(instance):
            del self.heads[(instance, shuffle)]
        self.gone[instance] = self.time_ms
        return len(keys)

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

    # Questions.

    def generations(self, instance: bytes, shuffle: int) -> list[ShuffleKey]:
        """Return the living generations of a shuffle, lowest first."""
        return sorted(key for key in self.shuffles_of.get(instance, ()) if key.shuffle == shuffle)

    def newest_named(self, name: str) -> Application | None:
        """Return the living application of that name that was created last."""
        named = [application for application in self.applications.values() if application.name == name]
        return max(named, key=lambda application: application.serial, default=None)

    def check(self) -> list[str]:
        """Derive everything again and return every breach of what must hold, as sentences; [] is good."""
        return [*self._check_indexes(), *self._check_records(), *self.answers.check()]

    def _check_indexes(self) -> Iterator[str]:
        again = State(self.capture())
        for name in ("worker_by_uid", "worker_by_name", "worker_by_directory", "shuffles_of", "heads_of"):
            if getattr(again, name) != getattr(self, name):
                yield f"the index {name} is not what the tables say"
        for name in ("array_bytes", "upload_bytes"):
            if getattr(again, name) != getattr(self, name):
                yield f"{name} is {getattr(self, name)}, the tables say {getattr(again, name)}"

    def _check_records(self) -> Iterator[str]:
        for number, worker in self.workers.items():
            if number != worker.id or not 1 <= number <= self.workers_made:
                yield f"worker {worker.name} stands under number {number}"
        for instance, application in self.applications.items():
            holders = [lease.holder for lease in application.leases]
            if not holders or len(set(holders)) != len(holders) or instance != application.instance:
                yield f"application {application.name} has leases {holders}"
            if instance in self.gone:
                yield f"application {application.name} is gone and there"
        for key, shuffle in self.shuffles.items():
            if key != shuffle.key or key.instance not in self.applications:
                yield f"shuffle {key} has no application"
            if bool(shuffle.committed_ms) != bool(shuffle.winners):
                yield f"shuffle {key} is committed without winners, or has winners uncommitted"
        for instance, number in self.heads:
            living = self.generations(instance, number)
            if living and living[-1].generation > self.heads[(instance, number)]:
                yield f"shuffle {living[-1]} is above the highest generation"
