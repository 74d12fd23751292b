"""One generation of a shuffle from its registration to its reads, with everything that may go on at once.

Maps are written by one attempt or by several at the same time; who loses is aborted, or is a zombie that goes on after
the commit. One, two or three commit at once, with the same winners or with others. Readers begin before, at and after
the commit. What every call came to is in the history; nothing is judged here but bytes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from holdfast.client import MapShuffle, PushStatus, ReduceShuffle, Session
from holdfast.client.write.status import MapStatus
from holdfast.common.errors import ConflictError, HoldfastError, NoRoomError, RetryError
from holdfast.common.formats.reduce_layouts import NO_ATTEMPT, CopyResult, EpochResult
from holdfast.common.ids import NO_WORKER
from holdfast.common.limits import MIB
from tests.consistency.contents import Place, codec_of, difference, records_of, shape_of
from tests.consistency.history import History

Status = PushStatus | MapStatus
AnyShuffle = ReduceShuffle | MapShuffle

#: As worker.return_grace of the cluster.
GRACE_SECONDS = 30.0
#: Attempts of a map that are refused before its generation is given up, as an engine does.
ATTEMPTS_MAX = 8
#: Tries of a commit or a registration that is told to try again.
TRIES_MAX = 12
_STEPS = 4
_PAUSE_SECONDS = 0.5


class GaveUpError(Exception):
    """A generation came to nothing; the history says why."""


@dataclass
class Generation:
    """One generation, driven by its application's session. Runs in one thread, with a pool of its own."""

    history: History
    session: Session
    place: Place
    chance: random.Random
    #: set when its application is about to be dropped, or everything ends
    stop: threading.Event
    #: draws attempt numbers, unique in the application
    next_attempt: Callable[[], int]
    shuffle: AnyShuffle = field(init=False)
    _zombies_go: threading.Event = field(default_factory=threading.Event)

    def run(self) -> bool:
        """Register, write, commit, read; return whether it was committed. Raises GaveUpError or HoldfastError."""
        self.shuffle = self._register()
        with ThreadPoolExecutor(24, thread_name_prefix="generation") as pool:
            try:
                early = [pool.submit(self._read_quietly, "before")] if self.chance.random() < 0.3 else []
                complete = self._write(pool)
                if self.stop.is_set():
                    return False
                at = [pool.submit(self._read_quietly, "at")] if self.chance.random() < 0.4 else []
                self._commit(pool, complete)
                for _ in range(self.chance.choice((1, 2))):
                    self.read("after")
            finally:
                self._zombies_go.set()
            for one in (*early, *at):
                one.result()
        return True

    @property
    def _names(self) -> dict[str, Any]:
        return {"app": self.place.app, "shuffle": self.place.shuffle, "generation": self.place.generation}

    def _again(self, what: str, work: Callable[[], Any], **names: Any) -> Any:
        """Do it until it is not told to try again. Raises what else it is told, or GaveUpError."""
        for _ in range(TRIES_MAX):
            try:
                with self.history.operation(what, **self._names, **names):
                    return work()
            except HoldfastError as error:
                if not is_passing(error) or self.stop.wait(_PAUSE_SECONDS):
                    raise
        self.history.say(say="gave up", what=what, **self._names)
        raise GaveUpError(what)

    def _register(self) -> AnyShuffle:
        shape = shape_of(self.place)
        register = self.session.register_reduce_shuffle if shape.reduce else self.session.register_map_shuffle

        def work() -> AnyShuffle:
            return register(
                shape.partitions,
                shape.maps,
                shape.copies,
                shape.ack,
                shuffle_id=self.place.shuffle,
                generation=self.place.generation,
            )

        found: AnyShuffle = self._again("register", work, kind="reduce" if shape.reduce else "map", ack=shape.ack.name)
        return found

    # Writing.

    def _write(self, pool: ThreadPoolExecutor) -> list[list[Status]]:
        """Every map's complete attempts, the one that is to win first."""
        maps = range(shape_of(self.place).maps)
        return [one.result() for one in [pool.submit(self._write_map, pool, map_id) for map_id in maps]]

    def _write_map(self, pool: ThreadPoolExecutor, map_id: int) -> list[Status]:
        for _ in range(ATTEMPTS_MAX):
            won = threading.Event()
            zombie = self.chance.random() < 0.3
            patient = not zombie and self.chance.random() < 0.3  # all are to complete: rivals for the commit
            running: set[Future[Status | None]] = {
                pool.submit(self._attempt, map_id, self.next_attempt(), won, zombie and number == 1)
                for number in range(self.chance.choice((1, 1, 2, 2, 3)))
            }
            complete: list[Status] = []
            while running and (patient or not complete):
                done, running = wait(running, return_when=ALL_COMPLETED if patient else FIRST_COMPLETED)
                complete += [status for one in done if (status := one.result()) is not None]
            won.set()
            if complete or self.stop.is_set():
                return complete
            self.stop.wait(_PAUSE_SECONDS)
        self.history.say(say="gave up", what="map", map=map_id, **self._names)
        raise GaveUpError(f"map {map_id}")

    def _attempt(self, map_id: int, attempt: int, won: threading.Event, zombie: bool) -> Status | None:
        """Write everything; None if it was refused, or gave way to another attempt."""
        chance = random.Random(f"{self.place}/{map_id}/{attempt}/pace")
        records = list(records_of(self.place, map_id, attempt))
        step = max(1, -(-len(records) // _STEPS))
        try:
            with self.history.operation("write", **self._names, map=map_id, attempt=attempt, zombie=zombie) as one:
                writer = self._writer(map_id, attempt)
                with writer:
                    for begin in range(0, len(records), step):
                        self._put(writer, records[begin : begin + step])
                        won.wait(chance.choice((0.0, 0.05, 0.3)))
                        if self.stop.is_set() or (won.is_set() and not zombie):
                            one.ends("aborted")
                            return None
                        if zombie and begin:
                            self._zombies_go.wait(chance.uniform(0.0, 3.0))
                    status: Status = writer.close()
                return None if zombie else status
        except HoldfastError:
            return None

    def _writer(self, map_id: int, attempt: int) -> Any:
        if isinstance(self.shuffle, MapShuffle):
            return self.shuffle.writer(map_id, attempt, codec=codec_of(self.place, attempt))
        return self.shuffle.writer(map_id, attempt, codec=codec_of(self.place, attempt), buffer_bytes=1 * MIB)

    def _put(self, writer: Any, records: Sequence[tuple[int, bytes]]) -> None:
        if isinstance(self.shuffle, MapShuffle):
            writer.write_region(sorted(records, key=lambda record: record[0]))
            return
        for record in records:
            writer.write(*record)
        writer.flush()

    # Committing.

    def _commit(self, pool: ThreadPoolExecutor, complete: list[list[Status]]) -> None:
        """Several may commit at once. Raises what the one that must get through is told."""
        first = [each[0] for each in complete]
        others = [each[-1] for each in complete]
        said = [first]
        if self.chance.random() < 0.4:
            said += [self.chance.choice((first, others)) for _ in range(self.chance.choice((1, 2)))]
        self.chance.shuffle(said)
        offered = [status.to_bytes().hex() for status in first]
        self.history.say(say="offers", **self._names, statuses=offered)
        if self.chance.random() < 0.15:  # time for another process to be first
            self.stop.wait(self.chance.uniform(0.0, 3.0))
        committing = [pool.submit(self._commit_quietly, statuses) for statuses in said[1:]]
        if self.chance.random() < 0.1:
            self._zombies_go.set()
        failed = self._commit_quietly(said[0])
        outcomes = [failed, *(one.result() for one in committing)]
        if failed is not None and all(outcomes) and not isinstance(failed, ConflictError):
            raise failed
        self._note_manifest()  # also where another process was first

    def _commit_quietly(self, statuses: Sequence[Any]) -> Exception | None:
        attempts = [attempt_of(status) for status in statuses]
        try:
            self._again("commit", lambda: self.shuffle.commit(statuses), winners=attempts)
        except (HoldfastError, GaveUpError) as error:
            return error
        return None

    def _note_manifest(self) -> None:
        """Have the history say who won, and where every epoch is."""
        with self.history.operation("manifest", **self._names) as one:
            one.ends("ok", **manifest_of(self.shuffle))

    def meddle(self, offered: Sequence[str]) -> None:
        """Of a generation of another process: write a map of it once more, and commit with that as the winner."""
        self.shuffle = self._register()
        map_id = self.chance.randrange(len(offered))
        kind = MapStatus if isinstance(self.shuffle, MapShuffle) else PushStatus
        statuses: list[Status] = [kind.from_bytes(bytes.fromhex(each)) for each in offered]
        own = self._attempt(map_id, self.next_attempt(), threading.Event(), False)
        if own is not None and self.chance.random() < 0.7:
            statuses[map_id] = own
        self._commit_quietly(statuses)

    # Reading.

    def _read_quietly(self, when: str) -> None:
        try:
            self.read(when)
        except HoldfastError:
            pass  # the history has it

    def read(self, when: str) -> None:
        """Read some of it, and compare. Raises what the reader is told."""
        shape = shape_of(self.place)
        partitions = list(range(shape.partitions))
        if self.chance.random() < 0.5:
            begin = self.chance.randrange(shape.partitions)
            partitions = partitions[begin : self.chance.randrange(begin, shape.partitions) + 1]
        maps = None
        if shape.reduce and self.chance.random() < 0.3:
            begin = self.chance.randrange(shape.maps)
            maps = range(begin, self.chance.randrange(begin, shape.maps) + 1)
        read_and_judge(self.history, self.shuffle, self.place, when, partitions, maps)


def attempt_of(status: Status) -> int:
    """The attempt that a status is of."""
    return status.winner.attempt if isinstance(status, MapStatus) else status.attempt


def is_passing(error: HoldfastError) -> bool:
    """Whether an engine would try again."""
    return isinstance(error, RetryError | NoRoomError)


def winners_of(shuffle: AnyShuffle) -> list[int]:
    """The attempts that the manifest says have won, by map."""
    winners = shuffle.manifest().winners
    if isinstance(shuffle, MapShuffle):
        return [each.attempt for each in winners.maps]  # type: ignore[union-attr]
    return [each for each in winners.attempts if each != NO_ATTEMPT]  # type: ignore[union-attr]


def manifest_of(shuffle: AnyShuffle) -> dict[str, Any]:
    """What the manifest says, for the history: winners, and [partition, epoch, [[worker, status], …]] of epochs."""
    found: dict[str, Any] = {"winners": winners_of(shuffle)}
    if isinstance(shuffle, ReduceShuffle):
        found["epochs"] = [
            [each.partition, each.epoch, each.lost, [[copy.worker, copy.status.name] for copy in _copies(each)]]
            for each in shuffle.manifest().epochs.epochs
        ]
    return found


def _copies(epoch: EpochResult) -> list[CopyResult]:
    return [copy for copy in epoch.copies if copy.worker != NO_WORKER]


def read_and_judge(
    history: History, shuffle: AnyShuffle, place: Place, when: str, partitions: list[int], maps: range | None = None
) -> None:
    """Read, and compare with the bytes made again; the verdict is in the history. Raises what the reader is told."""
    names = {"app": place.app, "shuffle": place.shuffle, "generation": place.generation, "when": when}
    chosen = None if maps is None else [maps.start, maps.stop]
    with history.operation("read", **names, partitions=partitions, maps=chosen) as one:
        reader = (
            shuffle.reader(partitions, return_grace=GRACE_SECONDS)
            if isinstance(shuffle, MapShuffle)
            else shuffle.reader(partitions, maps=maps, return_grace=GRACE_SECONDS)
        )
        found = [(each.map, each.partition, bytes(each.payload)) for each in reader]
        winners = winners_of(shuffle)
        wrong = difference(place, winners, partitions, maps, found)
        more = {"text": wrong} if wrong else {}
        one.ends("wrong" if wrong else "exact", winners=winners, records=len(found), **more)
