"""The life of MAP files: events in, effects out."""

import random
from collections.abc import Sequence

import pytest

from holdfast.client.core.write import route
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.messages import Ack, FileTotals, MapOpen
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
from holdfast.worker.core.write import map_files, refused_maps
from holdfast.worker.core.write.map_files import (
    LEGAL,
    ORPHAN_GRACE_NS,
    AbortAsked,
    Accepting,
    Began,
    Broke,
    ConnectionLost,
    Create,
    Done,
    Drop,
    Effect,
    Event,
    FileLife,
    MapFiles,
    NotCreated,
    OpenAsked,
    PushAsked,
    Refuse,
    SealAsked,
    SealEnded,
    SealFile,
    SetDraining,
    ShuffleForgotten,
    Tick,
    WriteBody,
)

SHUFFLE = ShuffleKey(Instance(bytes(16)), ShuffleId(1), Generation(0))
#: of another application
STRANGER = ShuffleKey(Instance(bytes(15) + b"s"), ShuffleId(1), Generation(0))
OTHER = ShuffleKey(Instance(bytes(16)), ShuffleId(2), Generation(0))
MINE = Incarnation(7)
TOTALS = FileTotals(regions=1, batches=2, size_bytes=100, crc_sum=5)


def key(map_id: int = 0, attempt: int = 0, epoch: int = 0, shuffle: ShuffleKey = SHUFFLE) -> MapFileKey:
    """A file's key."""
    return MapFileKey(shuffle, MapId(map_id), AttemptId(attempt), Epoch(epoch))


def opening(file: MapFileKey, connection: int = 1, incarnation: int = MINE, partitions: int = 10) -> OpenAsked:
    """MAP_OPEN; the ticket tells which request it was."""
    request = MapOpen(file=file, incarnation=Incarnation(incarnation), partitions=partitions)
    share = (file.shuffle.instance,)
    return OpenAsked(connection, f"open {file.map}.{file.epoch} on {connection}", request, share)


@pytest.fixture
def files():
    """A registered worker's files; checked when the test is over."""
    made = MapFiles(MINE, Accepting(True))
    yield made
    made.check()


def steps(files: MapFiles, *events: Event) -> list[Effect]:
    """All effects of the events; invariants hold after each."""
    effects = []
    for event in events:
        effects += files.step(event)
        files.check()
    return effects


def refusals(effects: Sequence[Effect]) -> list[Status]:
    """The statuses of effects that are all refusals."""
    assert all(isinstance(effect, Refuse) for effect in effects), effects
    return [effect.status for effect in effects if isinstance(effect, Refuse)]


def test_a_file_is_opened_filled_sealed_and_then_left_to_storage(files: MapFiles) -> None:
    """The usual life: Create, WriteBody, SealFile, and no record is left once the seal ended."""
    assert steps(files, opening(key())) == [Create("open 0.0 on 1", key(), 1, 10, Ack.WRITTEN)]
    assert steps(files, PushAsked(1, "p", 1)) == [WriteBody("p", key(), Ack.WRITTEN)]
    assert steps(files, SealAsked("s", key(), TOTALS)) == [SealFile("s", key(), TOTALS)]
    assert files.life(key()) == FileLife.SEALING
    assert steps(files, SealEnded(key(), sealed=True)) == []
    assert (files.life(key()), files.count, files.seals) == (FileLife.NONE, 0, 0)


def test_nothing_is_opened_before_the_masters_accepted_the_worker() -> None:
    """A worker that is not registered answers UNAVAILABLE, and opens once it is."""
    files = MapFiles(MINE)
    assert refusals(steps(files, opening(key()))) == [Status.UNAVAILABLE]
    assert isinstance(steps(files, Accepting(True), opening(key()))[0], Create)


def test_refusals_come_in_the_documented_order(files: MapFiles) -> None:
    """Of several reasons the first in the fixed order is told: accepting, shuffle, incarnation, request, life."""
    bad = opening(key(), incarnation=3, partitions=0)
    assert refusals(steps(files, bad)) == [Status.STALE_INCARNATION]
    assert refusals(steps(files, ShuffleForgotten(SHUFFLE), bad)) == [Status.UNKNOWN_SHUFFLE]
    assert refusals(steps(files, Accepting(False, "ending"), bad)) == [Status.UNAVAILABLE]
    assert refusals(steps(files, Accepting(True), opening(key(shuffle=OTHER), partitions=0))) == [Status.BAD_REQUEST]


def test_incarnation_zero_means_any(files: MapFiles) -> None:
    """A client that has not learnt the incarnation may open."""
    assert isinstance(steps(files, opening(key(), incarnation=0))[0], Create)


def test_a_handle_belongs_to_its_connection(files: MapFiles) -> None:
    """Another connection cannot push with somebody's handle."""
    steps(files, opening(key()))
    assert refusals(steps(files, PushAsked(2, "p", 1))) == [Status.UNKNOWN_FILE]


def test_opening_again_takes_the_file_over(files: MapFiles) -> None:
    """A writer that reconnected begins anew under a new handle; the old handle is worth nothing."""
    steps(files, opening(key(), connection=1))
    assert steps(files, opening(key(), connection=2)) == [Create("open 0.0 on 2", key(), 2, 10, Ack.WRITTEN)]
    assert refusals(steps(files, PushAsked(1, "p", 1))) == [Status.UNKNOWN_FILE]
    assert isinstance(steps(files, PushAsked(2, "p", 2))[0], WriteBody)


def test_a_file_that_is_being_sealed_takes_nothing_more(files: MapFiles) -> None:
    """While a seal runs, pushes get SEALED and an open gets BUSY; asking for the seal again is fine."""
    steps(files, opening(key()), SealAsked("s", key(), TOTALS))
    assert refusals(steps(files, PushAsked(1, "p", 1))) == [Status.SEALED]
    assert refusals(steps(files, opening(key(), connection=2))) == [Status.BUSY]
    assert steps(files, SealAsked("again", key(), TOTALS)) == [SealFile("again", key(), TOTALS)]
    steps(files, SealEnded(key(), sealed=True), SealEnded(key(), sealed=True))
    assert files.seals == 0


def test_a_seal_without_a_record_is_for_storage_to_answer(files: MapFiles) -> None:
    """Answers are repeated after a restart, when no record exists any more."""
    assert steps(files, SealAsked("s", key(), TOTALS)) == [SealFile("s", key(), TOTALS)]
    steps(files, SealEnded(key(), sealed=False))


def test_what_storage_would_not_create_leaves_no_record(files: MapFiles) -> None:
    """After a refused Create the next open is for storage to judge again."""
    steps(files, opening(key()), NotCreated(key()))
    assert files.count == 0
    assert isinstance(steps(files, opening(key()))[0], Create)


def test_a_failed_write_poisons_the_copy(files: MapFiles) -> None:
    """After a disk failure pushes, seals and opens of that copy are refused; another epoch opens."""
    steps(files, opening(key()), Broke(key(), Status.DISK_FAILED))
    asked = steps(files, PushAsked(1, "p", 1), SealAsked("s", key(), TOTALS), opening(key()))
    assert refusals(asked) == [Status.FAILED_COPY] * 3
    assert isinstance(steps(files, opening(key(epoch=1)))[0], Create)


@pytest.mark.parametrize("status", [Status.BAD_ORDER, Status.CORRUPT])
def test_the_writers_own_fault_lets_it_begin_anew(files: MapFiles, status: Status) -> None:
    """A frame out of order or with a bad checksum drops the file; later frames of it find no file; opening works."""
    steps(files, opening(key()), Broke(key(), status))
    assert refusals(steps(files, PushAsked(1, "p", 1))) == [Status.UNKNOWN_FILE]
    assert isinstance(steps(files, opening(key()))[0], Create)


def test_a_seal_that_failed_leaves_no_half_life(files: MapFiles) -> None:
    """Wrong totals drop the file (CORRUPT); a failed sync keeps it FAILED as long as its owner is there."""
    steps(files, opening(key(1)), SealAsked("s", key(1), TOTALS))
    steps(files, Broke(key(1), Status.CORRUPT), SealEnded(key(1), sealed=False))
    assert files.life(key(1)) == FileLife.NONE
    steps(files, opening(key(2)), SealAsked("s", key(2), TOTALS))
    steps(files, Broke(key(2), Status.FAILED_COPY), SealEnded(key(2), sealed=False))
    assert files.life(key(2)) == FileLife.FAILED
    steps(files, ConnectionLost(1, 0))
    assert files.life(key(2)) == FileLife.NONE


def test_an_orphan_may_be_sealed_within_its_grace_and_is_dropped_after(files: MapFiles) -> None:
    """A connection's death alone drops nothing: its writer may come back and seal by key."""
    steps(files, opening(key(1)), opening(key(2)), ConnectionLost(1, now_ns=100))
    assert steps(files, Tick(100 + ORPHAN_GRACE_NS - 1)) == []
    assert steps(files, SealAsked("s", key(1), TOTALS)) == [SealFile("s", key(1), TOTALS)]
    assert steps(files, Tick(100 + ORPHAN_GRACE_NS)) == [Drop(key(2))]
    steps(files, SealEnded(key(1), sealed=True))
    assert files.count == 0


def test_abort_drops_an_open_file_and_is_always_answered(files: MapFiles) -> None:
    """MAP_ABORT of an open file drops it, of an unknown one or one being sealed only answers."""
    steps(files, opening(key(1)), opening(key(2)), SealAsked("s", key(2), TOTALS))
    assert steps(files, AbortAsked("a", key(1))) == [Drop(key(1)), Done("a")]
    assert steps(files, AbortAsked("a", key(1))) == [Done("a")]
    assert steps(files, AbortAsked("a", key(2))) == [Done("a")]


def test_a_forgotten_shuffle_loses_its_open_files_and_gets_no_new_ones(files: MapFiles) -> None:
    """Only files of that shuffle go; a late writer hears UNKNOWN_SHUFFLE."""
    steps(files, opening(key(1)), opening(key(2, shuffle=OTHER)))
    assert steps(files, ShuffleForgotten(SHUFFLE)) == [Drop(key(1))]
    assert refusals(steps(files, opening(key(1)))) == [Status.UNKNOWN_SHUFFLE]
    assert files.life(key(2, shuffle=OTHER)) == FileLife.OPEN


def test_a_new_incarnation_appends_to_nothing_old(files: MapFiles) -> None:
    """Began drops every open file, and opens must name the new incarnation."""
    steps(files, opening(key(1)), opening(key(2)), SealAsked("s", key(2), TOTALS))
    assert steps(files, Began(Incarnation(8))) == [Drop(key(1))]
    assert refusals(steps(files, opening(key(3), incarnation=MINE))) == [Status.STALE_INCARNATION]
    assert isinstance(steps(files, opening(key(3), incarnation=8))[0], Create)


def test_files_and_handles_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bounds an open is BUSY; an old file opened again needs no new place."""
    monkeypatch.setattr(map_files, "HANDLES_MAX", 2)
    files = MapFiles(MINE, Accepting(True), most=4)
    steps(files, opening(key(1)), opening(key(2)))
    assert refusals(steps(files, opening(key(3)))) == [Status.BUSY]
    another = opening(key(3, shuffle=STRANGER), connection=2)
    steps(files, another)
    assert refusals(steps(files, opening(key(4), connection=3))) == [Status.BUSY]
    assert isinstance(steps(files, another)[0], Create)


def test_one_application_leaves_files_to_others() -> None:
    """Whoever writes most of what this worker can is BUSY, and another application is not."""
    files = MapFiles(MINE, Accepting(True), most=10)
    steps(files, *(opening(key(number)) for number in range(8)))
    assert refusals(steps(files, opening(key(8)))) == [Status.BUSY]
    assert isinstance(steps(files, opening(key(8, shuffle=STRANGER)))[0], Create)


def test_seals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound a seal is BUSY, until one ended; a user who has many of them leaves some to others."""
    monkeypatch.setattr(map_files, "SEALS_MAX", 5)
    files, mine, theirs = MapFiles(MINE, Accepting(True)), (b"me",), (b"them",)
    steps(files, *(SealAsked("s", key(number), TOTALS, mine) for number in range(3)))
    steps(files, SealAsked("s", key(3), TOTALS, theirs))
    assert refusals(steps(files, SealAsked("t", key(4), TOTALS, mine))) == [Status.BUSY]
    assert isinstance(steps(files, SealAsked("u", key(5), TOTALS))[0], SealFile)
    assert refusals(steps(files, SealAsked("u", key(6), TOTALS))) == [Status.BUSY]
    ended = [SealEnded(key(number), False, mine) for number in range(2)]
    assert isinstance(steps(files, *ended, SealAsked("t", key(4), TOTALS, mine))[0], SealFile)
    files.check()


def test_what_is_forgotten_is_bounded(monkeypatch: pytest.MonkeyPatch, files: MapFiles) -> None:
    """The oldest forgotten shuffle is remembered no more."""
    monkeypatch.setattr(map_files, "FORGOTTEN_MAX", 1)
    steps(files, ShuffleForgotten(SHUFFLE), ShuffleForgotten(OTHER))
    assert isinstance(steps(files, opening(key(1)))[0], Create)
    assert refusals(steps(files, opening(key(1, shuffle=OTHER)))) == [Status.UNKNOWN_SHUFFLE]


def test_row_36_a_draining_worker_ends_what_it_began_and_sends_new_maps_on(files: MapFiles) -> None:
    """A file that is being written goes on, also when its writer opens it again; a new one hears HARD_SPLIT, by which
    its writer goes to the next worker; afterwards all is as before."""
    steps(files, opening(key(1)), SetDraining(True))
    assert steps(files, PushAsked(1, "p", 1)) == [WriteBody("p", key(1), Ack.WRITTEN)]
    assert isinstance(steps(files, opening(key(1)))[0], Create)
    assert isinstance(steps(files, SealAsked("s", key(1), TOTALS))[0], SealFile)
    assert files.writing == 1
    assert refusals(steps(files, opening(key(2)))) == [Status.HARD_SPLIT]
    assert MEANINGS[Status.HARD_SPLIT].moves_map
    steps(files, SealEnded(key(1), sealed=True))
    assert files.writing == 0
    assert isinstance(steps(files, SetDraining(False), opening(key(2)))[0], Create)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("others", [True, False])
def test_row_36_a_map_finds_a_place_whoever_of_its_ring_drains(workers: int, copies: int, others: bool) -> None:
    """A writer that goes round the ring ends on those that do not drain, where they are enough for its copies; else the
    draining ones take it, and it has asked nobody more than twice in vain."""
    if copies > workers:
        return
    assignment = MapAssignment(tuple(WorkerId(number) for number in range(workers)), copies)
    ring = [MapFiles(MINE, Accepting(True)) for _ in range(workers)]
    for number in range(workers):
        steps(ring[number], SetDraining(not others or number == 0))
    for map_id in range(workers):
        for epoch in range(workers + copies + 1):
            places = route.locations(assignment, MapId(map_id), Epoch(epoch))
            answers = [steps(ring[place], opening(key(map_id, epoch=epoch)))[0] for place in places]
            if all(isinstance(answer, Create) for answer in answers):
                break
        else:
            raise AssertionError(f"map {map_id} found no place")
        enough = others and workers > copies
        assert not (enough and 0 in places), (map_id, places)


def test_attempts_that_were_turned_away_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten and turned away once more; nothing is remembered when the drain is over."""
    monkeypatch.setattr(refused_maps, "ATTEMPTS_MAX", 2)
    turned = refused_maps.RefusedMaps()
    assert not any(turned.is_back(key(map_id)) for map_id in range(3))
    assert len(turned) == 2
    assert turned.is_back(key(2, epoch=2))
    assert not turned.is_back(key(0, epoch=2))
    turned.forget()
    assert not turned.is_back(key(2, epoch=2))


def test_the_table_of_lives_is_closed() -> None:
    """Every state has a row, and the ends have no way out."""
    assert set(LEGAL) == set(FileLife)
    assert LEGAL[FileLife.SEALED] == LEGAL[FileLife.GONE] == ()


@pytest.mark.parametrize("seed", range(20))
def test_random_stories_keep_the_invariants(seed: int) -> None:
    """In whatever order: invariants hold, a WriteBody names an open file, a sealed file is never dropped."""
    chance = random.Random(seed)
    files = MapFiles(MINE, Accepting(True))
    running: list[MapFileKey] = []
    sealed: set[MapFileKey] = set()
    for now in range(400):
        file = key(chance.randrange(4), epoch=chance.randrange(2))
        connection = chance.randrange(3)
        choices: list[Event] = [
            opening(file, connection),
            PushAsked(connection, "p", chance.randrange(1, 40)),
            SealAsked("s", file, TOTALS),
            AbortAsked("a", file),
            ConnectionLost(connection, now * 10**9),
            Tick(now * 10**9),
        ]
        event = chance.choice(choices)
        if running and chance.random() < 0.3:
            ending = running.pop(0)
            good = chance.random() < 0.7
            if not good:
                files.step(Broke(ending, chance.choice([Status.CORRUPT, Status.FAILED_COPY])))
            elif files.life(ending) == FileLife.SEALING:
                sealed.add(ending)
            event = SealEnded(ending, good)
        if isinstance(event, OpenAsked) and file in sealed:
            continue  # storage would refuse it
        for effect in files.step(event):
            if isinstance(effect, WriteBody):
                assert files.life(effect.file) == FileLife.OPEN
            if isinstance(effect, SealFile):
                running.append(effect.file)
            if isinstance(effect, Drop):
                assert effect.file not in sealed
        files.check()
