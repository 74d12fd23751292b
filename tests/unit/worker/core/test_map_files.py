"""The life of MAP files: who may do what to a file, and what is dropped."""

import random
from collections.abc import Callable, Iterator

import pytest

from holdfast.client.core.write import route
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.messages import Ack, MapOpen
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Generation,
    Incarnation,
    Instance,
    MapFileKey,
    MapId,
    ShuffleId,
    ShuffleKey,
    WorkerId,
)
from holdfast.common.statuses import MEANINGS, Status
from holdfast.worker.core.write import map_files
from holdfast.worker.core.write.epochs import Life
from holdfast.worker.core.write.map_files import ORPHAN_GRACE_NS, MapFiles, OpenMapFile

SHUFFLE = ShuffleKey(Instance(bytes(16)), ShuffleId(1), Generation(0))
#: of another application
STRANGER = ShuffleKey(Instance(bytes(15) + b"s"), ShuffleId(1), Generation(0))
OTHER = ShuffleKey(Instance(bytes(16)), ShuffleId(2), Generation(0))
MINE = Incarnation(7)


def key(map_id: int = 0, attempt: int = 0, epoch: int = 0, shuffle: ShuffleKey = SHUFFLE) -> MapFileKey:
    """A file's key."""
    return MapFileKey(shuffle, MapId(map_id), AttemptId(attempt), Epoch(epoch))


class Files(MapFiles):
    """A registered worker's files, whose invariants hold after each request."""

    def __init__(self, most: int = map_files.OPEN_FILES_MAX) -> None:
        super().__init__(MINE, "", most=most)

    def asked(
        self, file: MapFileKey, connection: int = 1, incarnation: int = MINE, partitions: int = 10, copies: int = 1
    ) -> OpenMapFile:
        """MAP_OPEN."""
        try:
            request = MapOpen(file=file, incarnation=Incarnation(incarnation), partitions=partitions, copies=copies)
            return self.open(connection, request, (file.shuffle.instance,))
        finally:
            self.check()

    def refused(self, *given: object, **named: object) -> Status | None:
        """The status with which a MAP_OPEN is refused."""
        return refusal(self.asked, *given, **named)


def refusal(request: Callable[..., object], *given: object, **named: object) -> Status | None:
    """The status with which a request is refused; None if it is not."""
    try:
        request(*given, **named)
    except HoldfastError as error:
        return error.status
    return None


@pytest.fixture
def files() -> Iterator[Files]:
    """Checked when the test is over."""
    made = Files()
    yield made
    made.check()


def test_a_file_is_opened_filled_sealed_and_then_left_to_storage(files: Files) -> None:
    """The usual life; no record is left once the seal ended."""
    file = files.asked(key())
    assert (file.key, file.handle, file.ack) == (key(), 1, Ack.WRITTEN)
    assert files.pushed(1, 1) is file
    files.seal(key())
    assert files.life(key()) is Life.SEALING
    files.seal_ended(key(), sealed=True)
    assert (files.life(key()), files.count, files.seals) == (None, 0, 0)


def test_nothing_is_opened_before_the_masters_accepted_the_worker() -> None:
    """A worker that is not registered answers UNAVAILABLE, and opens once it is."""
    files = Files()
    files.closed_because = MapFiles(MINE).closed_because
    assert files.refused(key()) is Status.UNAVAILABLE
    files.closed_because = ""
    files.asked(key())


def test_refusals_come_in_the_documented_order(files: Files) -> None:
    """Of several reasons the first in the fixed order is told: accepting, shuffle, incarnation, request, life."""
    assert files.refused(key(), incarnation=3, partitions=0) is Status.STALE_INCARNATION
    files.forget(SHUFFLE)
    assert files.refused(key(), incarnation=3, partitions=0) is Status.UNKNOWN_SHUFFLE
    files.closed_because = "ending"
    assert files.refused(key(), incarnation=3, partitions=0) is Status.UNAVAILABLE
    files.closed_because = ""
    assert files.refused(key(shuffle=OTHER), partitions=0) is Status.BAD_REQUEST


def test_incarnation_zero_means_any(files: Files) -> None:
    """A client that has not learnt the incarnation may open."""
    files.asked(key(), incarnation=0)


def test_a_handle_belongs_to_its_connection(files: Files) -> None:
    """Another connection cannot push with somebody's handle."""
    files.asked(key())
    assert refusal(files.pushed, 2, 1) is Status.UNKNOWN_FILE


def test_opening_again_takes_the_file_over(files: Files) -> None:
    """A writer that reconnected begins anew under a new handle; the old handle is worth nothing."""
    files.asked(key(), connection=1)
    assert files.asked(key(), connection=2).handle == 2
    assert refusal(files.pushed, 1, 1) is Status.UNKNOWN_FILE
    assert files.pushed(2, 2).key == key()


def test_a_file_that_is_being_sealed_takes_nothing_more(files: Files) -> None:
    """While a seal runs, pushes get SEALED and an open gets BUSY; asking for the seal again is fine."""
    files.asked(key())
    files.seal(key())
    assert refusal(files.pushed, 1, 1) is Status.SEALED
    assert files.refused(key(), connection=2) is Status.BUSY
    files.seal(key())
    files.seal_ended(key(), sealed=True)
    files.seal_ended(key(), sealed=True)
    assert files.seals == 0


def test_a_seal_without_a_record_is_for_storage_to_answer(files: Files) -> None:
    """Answers are repeated after a restart, when no record exists any more."""
    files.seal(key())
    files.seal_ended(key(), sealed=False)


def test_what_storage_would_not_create_leaves_no_record(files: Files) -> None:
    """After a refused file the next open is for storage to judge again."""
    files.not_created(files.asked(key()))
    assert files.count == 0
    files.asked(key())


def test_a_failed_write_poisons_the_copy(files: Files) -> None:
    """After a disk failure pushes, seals and opens of that copy are refused; another epoch opens."""
    files.asked(key())
    files.broke(key(), Status.DISK_FAILED)
    assert refusal(files.pushed, 1, 1) is Status.FAILED_COPY
    assert refusal(files.seal, key()) is Status.FAILED_COPY
    assert files.refused(key()) is Status.FAILED_COPY
    files.asked(key(epoch=1))


@pytest.mark.parametrize("status", [Status.BAD_ORDER, Status.CORRUPT])
def test_the_writers_own_fault_lets_it_begin_anew(files: Files, status: Status) -> None:
    """A frame out of order or with a bad checksum drops the file; later frames of it find no file; opening works."""
    files.asked(key())
    files.broke(key(), status)
    assert refusal(files.pushed, 1, 1) is Status.UNKNOWN_FILE
    files.asked(key())


def test_a_seal_that_failed_leaves_no_half_life(files: Files) -> None:
    """Wrong totals drop the file (CORRUPT); a failed sync keeps it FAILED as long as its owner is there."""
    files.asked(key(1))
    files.seal(key(1))
    files.broke(key(1), Status.CORRUPT)
    files.seal_ended(key(1), sealed=False)
    assert files.life(key(1)) is None
    files.asked(key(2))
    files.seal(key(2))
    files.broke(key(2), Status.FAILED_COPY)
    files.seal_ended(key(2), sealed=False)
    assert files.life(key(2)) is Life.FAILED
    files.lost(1, 0)
    assert files.life(key(2)) is None


def test_a_copy_that_fails_after_its_owner_has_gone_leaves_no_record(files: Files) -> None:
    """Storage remembers it; nobody has a handle to be told by."""
    files.asked(key())
    files.seal(key())
    files.lost(1, 0)
    files.broke(key(), Status.DISK_FAILED)
    files.seal_ended(key(), sealed=False)
    assert (files.count, files.seals) == (0, 0)


def test_an_orphan_may_be_sealed_within_its_grace_and_is_dropped_after(files: Files) -> None:
    """A connection's death alone drops nothing: its writer may come back and seal by key."""
    files.asked(key(1))
    files.asked(key(2))
    files.lost(1, now_ns=100)
    assert files.tick(100 + ORPHAN_GRACE_NS - 1) == []
    files.seal(key(1))
    assert files.tick(100 + ORPHAN_GRACE_NS) == [key(2)]
    files.seal_ended(key(1), sealed=True)
    assert files.count == 0


def test_abort_drops_an_open_file(files: Files) -> None:
    """MAP_ABORT drops an open file, and neither an unknown one nor one that is being sealed."""
    files.asked(key(1))
    files.asked(key(2))
    files.seal(key(2))
    assert files.abort(key(1)) == [key(1)]
    assert files.abort(key(1)) == files.abort(key(2)) == []


def test_a_forgotten_shuffle_loses_its_open_files_and_gets_no_new_ones(files: Files) -> None:
    """Only files of that shuffle go; a late writer hears UNKNOWN_SHUFFLE."""
    files.asked(key(1))
    files.asked(key(2, shuffle=OTHER))
    assert files.forget(SHUFFLE) == [key(1)]
    assert files.refused(key(1)) is Status.UNKNOWN_SHUFFLE
    assert files.life(key(2, shuffle=OTHER)) is Life.OPEN


def test_a_new_incarnation_appends_to_nothing_old(files: Files) -> None:
    """A new incarnation drops every open file, and opens must name it."""
    files.asked(key(1))
    files.asked(key(2))
    files.seal(key(2))
    assert files.begin(Incarnation(8)) == [key(1)]
    assert files.refused(key(3), incarnation=MINE) is Status.STALE_INCARNATION
    files.asked(key(3), incarnation=8)


def test_files_and_handles_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bounds an open is BUSY; an old file opened again needs no new place."""
    monkeypatch.setattr(map_files, "HANDLES_MAX", 2)
    files = Files(most=4)
    files.asked(key(1))
    files.asked(key(2))
    assert files.refused(key(3)) is Status.BUSY
    files.asked(key(3, shuffle=STRANGER), connection=2)
    assert files.refused(key(4), connection=3) is Status.BUSY
    files.asked(key(3, shuffle=STRANGER), connection=2)


def test_one_application_leaves_files_to_others() -> None:
    """Whoever writes most of what this worker can is BUSY, and another application is not."""
    files = Files(most=10)
    for number in range(8):
        files.asked(key(number))
    assert files.refused(key(8)) is Status.BUSY
    files.asked(key(8, shuffle=STRANGER))


def test_seals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound a seal is BUSY, until one ended; a user who has many of them leaves some to others."""
    monkeypatch.setattr(map_files, "SEALS_MAX", 5)
    files, mine, theirs = Files(), (b"me",), (b"them",)
    for number in range(3):
        files.seal(key(number), mine)
    files.seal(key(3), theirs)
    assert refusal(files.seal, key(4), mine) is Status.BUSY
    files.seal(key(5))
    assert refusal(files.seal, key(6)) is Status.BUSY
    for number in range(2):
        files.seal_ended(key(number), mine, sealed=False)
    files.seal(key(4), mine)
    files.check()


def test_what_is_forgotten_is_bounded(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    """The oldest forgotten shuffle is remembered no more."""
    monkeypatch.setattr(map_files, "FORGOTTEN_MAX", 1)
    files.forget(SHUFFLE)
    files.forget(OTHER)
    files.asked(key(1))
    assert files.refused(key(1, shuffle=OTHER)) is Status.UNKNOWN_SHUFFLE


def test_row_36_a_draining_worker_ends_what_it_began_and_sends_new_maps_on(files: Files) -> None:
    """A file that is being written goes on, also when its writer opens it again; a new one hears HARD_SPLIT, by which
    its writer goes to the next worker; afterwards all is as before."""
    files.asked(key(1))
    files.drain(True)
    assert files.pushed(1, 1).key == key(1)
    files.asked(key(1))
    files.seal(key(1))
    assert files.writing == 1
    assert files.refused(key(2)) is Status.HARD_SPLIT
    assert MEANINGS[Status.HARD_SPLIT].moves_map
    files.seal_ended(key(1), sealed=True)
    assert files.writing == 0
    files.drain(False)
    files.asked(key(2))


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("copies", [1, 2, 3, 5])
@pytest.mark.parametrize("others", [True, False])
def test_row_36_a_map_finds_a_place_whoever_of_its_ring_drains(workers: int, copies: int, others: bool) -> None:
    """A writer that goes round the ring ends on those that do not drain, where they are enough for its copies; else the
    draining ones take it, and it has asked nobody more than twice in vain."""
    if copies > workers:
        return
    assignment = MapAssignment(tuple(WorkerId(number) for number in range(workers)), copies)
    ring = [Files() for _ in range(workers)]
    for number in range(workers):
        ring[number].drain(not others or number == 0)
    for map_id in range(workers):
        for epoch in range(workers + copies + 1):
            places = route.locations(assignment, MapId(map_id), Epoch(epoch))
            answers = [ring[place].refused(key(map_id, epoch=epoch), copies=copies) for place in places]
            if not any(answers):
                break
        else:
            raise AssertionError(f"map {map_id} found no place")
        enough = others and workers > copies
        assert not (enough and 0 in places), (map_id, places)


def test_attempts_that_were_refused_maps_are_bounded(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    """The oldest is forgotten and turned away once more; nothing is remembered when the drain is over."""
    monkeypatch.setattr(map_files, "REFUSED_MAPS_MAX", 2)
    files.drain(True)
    assert [files.refused(key(map_id)) for map_id in range(3)] == [Status.HARD_SPLIT] * 3
    assert files.refused(key(2, epoch=2)) is None
    assert files.refused(key(0, epoch=2)) is Status.HARD_SPLIT
    files.drain(False)
    files.drain(True)
    assert files.refused(key(2, epoch=3)) is Status.HARD_SPLIT


@pytest.mark.parametrize("seed", range(20))
def test_random_stories_keep_the_invariants(seed: int) -> None:
    """In whatever order: invariants hold, a push finds an open file only, a sealed file is never dropped."""
    chance = random.Random(seed)
    files = Files()
    running: list[MapFileKey] = []
    sealed: set[MapFileKey] = set()
    for now in range(400):
        file = key(chance.randrange(4), epoch=chance.randrange(2))
        connection, what = chance.randrange(3), chance.randrange(6)
        dropped: list[MapFileKey] = []
        if running and chance.random() < 0.3:
            ending = running.pop(0)
            good = chance.random() < 0.7
            if not good:
                files.broke(ending, chance.choice([Status.CORRUPT, Status.FAILED_COPY]))
            elif files.life(ending) is Life.SEALING:
                sealed.add(ending)
            files.seal_ended(ending, sealed=good)
        elif what == 0 and file not in sealed:  # storage would refuse that
            files.refused(file, connection)
        elif what == 1:
            handle = chance.randrange(1, 40)
            if refusal(files.pushed, connection, handle) is None:
                assert files.pushed(connection, handle).life is Life.OPEN
        elif what == 2 and refusal(files.seal, file) is None:
            running.append(file)
        elif what == 3:
            dropped = files.abort(file)
        elif what == 4:
            files.lost(connection, now * 10**9)
        elif what == 5:
            dropped = files.tick(now * 10**9)
        assert not sealed.intersection(dropped)
        files.check()
