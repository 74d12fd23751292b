"""The reader's core as stories: which files are asked of which worker, and when the read ends."""

from heapq import heappop, heappush
from typing import Any

from holdfast.client.core.read.fetch import (
    REACH_NS,
    TRIES_MAX,
    AskMasters,
    CloseStream,
    Complete,
    Fetch,
    OpenStream,
    ReadFailed,
    Source,
    WorkerState,
)
from holdfast.common.errors import (
    CorruptError,
    DataLostError,
    GiveUpError,
    HoldfastError,
    RerouteError,
    RetryError,
    error_for,
)
from holdfast.common.ids import MapId, WorkerId
from holdfast.common.statuses import Status

LOST = RetryError("connection refused")
GRACE = 1_000


def source(map_id: int, *workers: int) -> Source:
    return Source(tuple(WorkerId(worker) for worker in workers), f"map {map_id} attempt 9 epoch 1")


def fetch(*files: tuple[int, ...], **options: Any) -> Fetch[MapId]:
    """A read of maps 0, 1, …, each given by the workers of its copies."""
    sources = {MapId(index): source(index, *workers) for index, workers in enumerate(files)}
    return Fetch(sources, where="shuffle s, partition 3", grace_ns=GRACE, **options)


def maps(*numbers: int) -> tuple[MapId, ...]:
    return tuple(MapId(number) for number in numbers)


def test_one_stream_per_worker() -> None:
    """All files of a worker come on one stream; the read is complete when the last file is."""
    core = fetch((1,), (2,), (1,))
    assert core.started() == [OpenStream(0, WorkerId(1), maps(0, 2)), OpenStream(1, WorkerId(2), maps(1))]
    assert core.file_complete(0, MapId(0)) == []
    assert core.file_complete(1, MapId(1)) == []
    assert core.stream_ended(1) == []
    assert core.file_complete(0, MapId(2)) == [CloseStream(0), Complete()]


def test_nothing_to_read_is_complete_at_once() -> None:
    """A partition that no map wrote to needs no stream."""
    assert fetch().started() == [Complete()]


def test_streams_are_bounded() -> None:
    """No more streams are open than allowed; the next opens when one ends."""
    core = fetch((1,), (2,), (3,), streams_max=2)
    assert len(core.started()) == 2
    core.check()
    assert core.file_complete(0, MapId(0)) == []
    assert core.stream_ended(0) == [OpenStream(2, WorkerId(3), maps(2))]


def test_a_restarted_worker_is_opened_again() -> None:
    """A lost stream asks the masters, then asks again for what is not complete, and only for that."""
    core = fetch((1,), (1,))
    core.started()
    core.file_complete(0, MapId(0))
    (ask,) = core.stream_failed(0, error_for(Status.UNKNOWN_STREAM), 5)
    assert isinstance(ask, AskMasters)
    assert core.workers_known({WorkerId(1): WorkerState.ALIVE}, 6) == [OpenStream(1, WorkerId(1), maps(1))]


def test_refusals_do_not_count_while_the_worker_lives() -> None:
    """Any number of refused connections is fine within the grace, if the masters call the worker alive or just lost."""
    core = fetch((1,))
    core.started()
    for turn in range(TRIES_MAX * 3):
        state = WorkerState.ALIVE if turn % 2 else WorkerState.LOST
        core.stream_failed(turn, LOST, turn)
        assert core.workers_known({WorkerId(1): state}, turn) == [OpenStream(turn + 1, WorkerId(1), maps(0))]
        core.check()


def test_a_worker_gone_too_long_loses_its_only_copy() -> None:
    """After the grace the error names shuffle, partition, map, attempt, epoch and worker, and what to do."""
    core = fetch((1,))
    core.started()
    core.stream_failed(0, LOST, 0)
    (failed,) = core.workers_known({}, GRACE + 1)
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, DataLostError)
    for word in ("shuffle s", "partition 3", "map 0", "attempt 9", "epoch 1", "worker 1", "Start worker 1 again"):
        assert word in str(failed.error)


def test_a08_the_grace_begins_anew_with_what_came() -> None:
    """A worker that dies again and again in one long file is waited for as long each time, if more of the file came in
    between; what died without that is lost when the grace since its first death is over."""
    core = fetch((1,))
    core.started()
    alive, now = {WorkerId(1): WorkerState.ALIVE}, 0
    for death in range(0, 10, 2):
        core.stream_failed(death, LOST, now)
        assert core.workers_known(alive, now) == [OpenStream(death + 1, WorkerId(1), maps(0))]
        assert core.progressed(death + 1) == []
        core.check()
        now += 2 * GRACE
        core.stream_failed(death + 1, LOST, now)
        assert core.workers_known({}, now + GRACE) == [OpenStream(death + 2, WorkerId(1), maps(0))]
        assert core.progressed(death + 2) == []
        now += 2 * GRACE
    core.stream_failed(10, LOST, now)
    core.workers_known({}, now + GRACE)
    core.stream_failed(11, LOST, now + GRACE)
    (failed,) = core.workers_known({}, now + GRACE + 1)
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, DataLostError)


def test_a_worker_that_is_heard_on_one_stream_is_not_waited_for() -> None:
    """The rival of one stream failed on a worker that brings another one: it may be asked before the masters answer."""
    core = fetch((1, 2), (2,))
    core.started()
    assert core.late(0) == [OpenStream(2, WorkerId(2), maps(0))]
    core.stream_failed(2, LOST, 0)
    assert core.progressed(1) == []
    core.check()
    assert core.late(0) == [OpenStream(3, WorkerId(2), maps(0))]


def test_a_second_copy_is_used_at_once() -> None:
    """A worker out of reach costs no waiting where another copy is."""
    core = fetch((1, 2), (2, 1))
    assert core.started() == [OpenStream(0, WorkerId(1), maps(0)), OpenStream(1, WorkerId(2), maps(1))]
    core.file_complete(1, MapId(1))
    core.stream_ended(1)
    ask, opened = core.stream_failed(0, LOST, 1)
    assert isinstance(ask, AskMasters)
    assert opened == OpenStream(2, WorkerId(2), maps(0))
    assert core.workers_known({WorkerId(2): WorkerState.ALIVE}, 2) == [], "the copy of the lost worker is given up"


def test_a_lost_worker_is_waited_for_when_the_other_copy_is_of_no_use() -> None:
    """A worker starts anew, and the other one has lost its disk meanwhile: the read waits for the first one for the
    grace, and no longer."""
    alive = {WorkerId(2): WorkerState.ALIVE}
    for returns in (True, False):
        core = fetch((1, 2))
        core.started()
        core.stream_failed(0, LOST, 1)
        core.workers_known(alive, 2)
        for turn in range(1, TRIES_MAX):
            assert core.file_bad(turn, MapId(0), "gone") == [
                CloseStream(turn),
                OpenStream(turn + 1, WorkerId(2), maps(0)),
            ]
        _, opened = core.file_bad(TRIES_MAX, MapId(0), "gone")
        assert opened == OpenStream(TRIES_MAX + 1, WorkerId(1), maps(0))
        core.check()
        ask, *_ = core.stream_failed(TRIES_MAX + 1, LOST, GRACE)
        assert isinstance(ask, AskMasters)
        assert core.workers_known(alive, GRACE) == [OpenStream(TRIES_MAX + 2, WorkerId(1), maps(0))]
        if returns:
            assert core.file_complete(TRIES_MAX + 2, MapId(0))[-1] == Complete()
        else:
            core.stream_failed(TRIES_MAX + 2, LOST, GRACE + 2)
            (failed,) = core.workers_known(alive, GRACE + 2)
            assert isinstance(failed, ReadFailed)
            assert "worker 1 has been lost for more than" in str(failed.error)


def test_a_silent_worker_is_left_where_every_file_has_a_copy_that_may_answer() -> None:
    """Whoever is alone with a file, or whose other copy did not answer either, is waited for."""
    core = fetch((1, 2), (3, 1), (4,))
    core.started()
    assert [core.may_switch(stream) for stream in (0, 1, 2)] == [True, True, False]
    core.stream_failed(0, LOST, 1)
    assert not core.may_switch(1), "its other copy is worker 1"
    assert not core.may_switch(99)


def test_copies_take_turns_while_no_worker_answers() -> None:
    """A read does not stay with a worker that is gone when the other one was out of reach for a moment."""
    core = fetch((1, 2))
    both = {WorkerId(1): WorkerState.ALIVE, WorkerId(2): WorkerState.ALIVE}
    effects, tried = core.started(), []
    for turn in range(16):
        opened = [effect for effect in effects if isinstance(effect, OpenStream)]
        tried += [effect.worker for effect in opened]
        effects = [] if opened else core.workers_known(both, turn)
        for effect in opened:
            effects += core.stream_failed(effect.stream, LOST, turn)
    assert len(tried) >= 8
    assert abs(tried.count(WorkerId(1)) - tried.count(WorkerId(2))) <= 1, tried


def test_a_copy_long_out_of_reach_does_not_end_a_read_that_has_another() -> None:
    """Worker 1 never answered while worker 2 served; when that one blinks the read goes on."""
    core = fetch((1, 2))
    core.started()
    core.stream_failed(0, LOST, 0)
    late = 5 * REACH_NS
    core.stream_failed(1, LOST, late)
    both = {WorkerId(1): WorkerState.ALIVE, WorkerId(2): WorkerState.ALIVE}
    (opened,) = core.workers_known(both, late + 1)
    assert isinstance(opened, OpenStream)
    assert OpenStream(3, WorkerId(2), maps(0)) in core.stream_failed(opened.stream, LOST, late + 2)
    assert core.masters_silent(LOST, late + 3) == []


def test_three_bad_answers_end_a_copy() -> None:
    """Corrupt data is asked for three times, then the read fails as CorruptError."""
    core = fetch((1,))
    core.started()
    for turn in range(TRIES_MAX - 1):
        assert core.file_bad(turn, MapId(0), "crc") == [CloseStream(turn), OpenStream(turn + 1, WorkerId(1), maps(0))]
    close, failed = core.file_bad(TRIES_MAX - 1, MapId(0), "crc mismatch")
    assert close == CloseStream(TRIES_MAX - 1)
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, CorruptError)
    assert "crc mismatch" in str(failed.error)


def test_a_bad_copy_alternates_with_the_good_one() -> None:
    """After one bad answer the other copy is asked."""
    core = fetch((1, 2))
    core.started()
    assert core.file_bad(0, MapId(0), "crc") == [CloseStream(0), OpenStream(1, WorkerId(2), maps(0))]


def test_a_refused_stream_of_many_files_is_halved() -> None:
    """The worker names no file, so streams shrink until the bad file is alone; only that one is counted."""
    core = fetch((1,), (1,), (1,), (1,))
    core.started()
    unknown = error_for(Status.UNKNOWN_FILE, "no such file")
    assert core.stream_failed(0, unknown, 0) == [OpenStream(1, WorkerId(1), maps(0, 1))]
    assert core.stream_failed(1, unknown, 0) == [OpenStream(2, WorkerId(1), maps(0))]
    core.file_complete(2, MapId(0))
    assert core.stream_ended(2) == [OpenStream(3, WorkerId(1), maps(1))]
    for turn in range(3, 3 + TRIES_MAX - 1):
        assert core.stream_failed(turn, unknown, 0) == [OpenStream(turn + 1, WorkerId(1), maps(1))]
    (failed,) = core.stream_failed(3 + TRIES_MAX - 1, unknown, 0)
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, DataLostError)
    assert "map 1" in str(failed.error)


def test_a_stream_that_ends_early_counts() -> None:
    """END before a file was complete is a bad answer for that file."""
    core = fetch((1,))
    core.started()
    assert core.stream_ended(0) == [OpenStream(1, WorkerId(1), maps(0))]


def test_an_answer_that_no_copy_helps_against_ends_the_read() -> None:
    """A wrong cluster or an unknown application is told at once."""
    core = fetch((1, 2))
    core.started()
    (failed,) = core.stream_failed(0, error_for(Status.WRONG_CLUSTER), 0)
    assert isinstance(failed, ReadFailed)
    assert failed.error.status is Status.WRONG_CLUSTER


def test_a_living_worker_out_of_reach_is_not_waited_for_for_ever() -> None:
    """A broken network between reader and worker becomes an error that says so."""
    core = fetch((1,))
    core.started()
    core.stream_failed(0, LOST, 0)
    (failed,) = core.workers_known({WorkerId(1): WorkerState.ALIVE}, REACH_NS + 1)
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, GiveUpError)
    assert "reachable" in str(failed.error)


def test_what_a_worker_cannot_read_now_is_not_lost() -> None:
    """Its DFS is not there: it is asked again for as long as a worker may be gone, and then the read ends with what it
    said, but not as data lost. When the DFS is back in time the read goes on."""
    for back in (True, False):
        core = fetch((1,))
        core.started()
        alive, now, stream = {WorkerId(1): WorkerState.ALIVE}, 0, 0
        for stream in range(2 * TRIES_MAX):
            (ask,) = core.stream_failed(stream, error_for(Status.DISK_FAILED, "DFS not mounted"), now)
            assert isinstance(ask, AskMasters)
            now += GRACE // (2 * TRIES_MAX)
            assert core.workers_known(alive, now) == [OpenStream(stream + 1, WorkerId(1), maps(0))]
        if back:
            assert core.file_complete(stream + 1, MapId(0)) == [CloseStream(stream + 1), Complete()]
            continue
        core.stream_failed(stream + 1, error_for(Status.DISK_FAILED, "DFS not mounted"), now)
        (end,) = core.workers_known(alive, now + GRACE)
        assert isinstance(end, ReadFailed)
        assert (type(end.error), end.error.status) == (GiveUpError, Status.DISK_FAILED)
        assert "map 0 attempt 9 epoch 1 is not lost" in str(end.error)
        assert "(DISK_FAILED)" in str(end.error)
        assert "DFS not mounted" in str(end.error)


def test_a_worker_that_could_not_read_is_waited_for_as_long_as_any_other() -> None:
    """A DFS is away for nearly the grace, then the worker is killed: that time is no part of its grace. What it has
    is lost when it was away for all of that."""
    not_now = error_for(Status.DISK_FAILED, "the DFS is away")
    core = fetch((1,))
    core.started()
    core.stream_failed(0, not_now, 0)
    core.workers_known({WorkerId(1): WorkerState.ALIVE}, 1)
    core.stream_failed(1, LOST, GRACE)
    assert core.workers_known({}, 2 * GRACE) == [OpenStream(2, WorkerId(1), maps(0))]
    core.stream_failed(2, LOST, 2 * GRACE + 1)
    (failed,) = core.workers_known({}, 2 * GRACE + 1)
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, DataLostError)


def test_a_lost_worker_that_answers_and_cannot_read_ends_the_read() -> None:
    """A worker is cut off from the masters and from its DFS, and not from the reader: after the grace the read ends,
    and nothing is called lost."""
    core = fetch((1,))
    core.started()
    told = []
    for turn in range(12):
        core.stream_failed(turn, error_for(Status.DISK_FAILED, "the DFS is away"), turn * GRACE // 10)
        told += core.workers_known({}, turn * GRACE // 10)
    assert len(told) == 12
    failed = told[-1]
    assert isinstance(failed, ReadFailed)
    assert failed.error.status is Status.DISK_FAILED


def test_a_worker_that_is_back_is_read_where_the_other_copy_cannot_be_now() -> None:
    """It was lost for a moment, and its copy left for one on a worker that is failing since: nobody waits for that."""
    core = fetch((1, 2))
    core.started()
    core.stream_failed(0, LOST, 1)
    core.workers_known({WorkerId(2): WorkerState.ALIVE}, 2)
    core.stream_failed(1, error_for(Status.DISK_FAILED, "the DFS is away"), 3)
    both = {WorkerId(1): WorkerState.ALIVE, WorkerId(2): WorkerState.ALIVE}
    opened = [core.workers_known(both, 4)]
    opened.append(core.stream_failed(2, error_for(Status.DISK_FAILED, "the DFS is away"), 5))
    workers = [each.worker for effects in opened for each in effects if isinstance(each, OpenStream)]
    assert WorkerId(1) in workers


def test_damage_waits_for_another_copy_as_long_as_a_refusal() -> None:
    """The only copy that is sealed comes damaged, and another one may be sealed yet: that is waited for from the
    masters' first answer on, whatever the clock says and whenever something else happened."""
    core = fetch((1,), may_have_more=lambda _: True)
    now = 86_400_000_000_000
    effects, end = core.started(), now + GRACE
    failed: list[float] = []
    while not failed:
        opened = [each for each in effects if isinstance(each, OpenStream)]
        effects = core.file_bad(opened[0].stream, MapId(0), "a CRC is wrong")
        if any(isinstance(each, ReadFailed) for each in effects):
            failed.append(now)
        elif any(isinstance(each, AskMasters) for each in effects):
            now += GRACE // 10
            effects = core.workers_known({WorkerId(1): WorkerState.ALIVE}, now)
    assert end < failed[0] <= end + GRACE


def test_a_worker_that_was_back_has_its_grace_again() -> None:
    """One was lost for a moment, and the other copy was read for long: meanwhile nobody tried it."""
    core = fetch((1, 2))
    core.started()
    (second,) = [each for each in core.stream_failed(0, LOST, 0) if isinstance(each, OpenStream)]
    core.workers_known({WorkerId(2): WorkerState.ALIVE}, 1)
    core.progressed(second.stream)
    later = REACH_NS + 200 * GRACE
    core.stream_failed(second.stream, LOST, later)
    effects = core.workers_known({WorkerId(1): WorkerState.ALIVE}, later + 1)
    (third,) = [each for each in effects if isinstance(each, OpenStream)]
    assert third.worker == 1
    core.stream_failed(third.stream, LOST, later + 2)
    effects = core.workers_known({WorkerId(1): WorkerState.ALIVE}, later + 3)
    assert [each.worker for each in effects if isinstance(each, OpenStream)] == [1]


def test_every_file_that_a_stream_still_owed_is_counted() -> None:
    """Also behind one for which the masters are asked: each is tried as often as any other."""
    core = fetch((1,), (1,), may_have_more=lambda key: key == 0)
    tries = 0
    effects = core.started()
    while not core.over:
        opened = [each for each in effects if isinstance(each, OpenStream)]
        if opened:
            tries += 1
            effects = core.stream_ended(opened[0].stream)
        else:
            effects = core.workers_known({WorkerId(1): WorkerState.ALIVE}, 0)
    assert tries == TRIES_MAX


def test_files_of_which_a_copy_is_awaited_hold_up_no_others() -> None:
    """A worker has lost one of its files, of which a copy may be sealed yet: the others are read meanwhile, and no more
    questions are on their way than one that waits."""
    core = fetch(*[(1,)] * 5, may_have_more=lambda _: True)
    gone, states = RerouteError("gone", status=Status.UNKNOWN_FILE), {WorkerId(1): WorkerState.ALIVE}
    read: set[MapId] = set()
    effects, now = core.started(), 0
    while now <= GRACE:
        opened = [each for each in effects if isinstance(each, OpenStream)]
        assert len([each for each in effects if isinstance(each, AskMasters)]) <= 1
        effects = []
        for each in opened:
            if MapId(0) in each.files:
                effects += core.stream_failed(each.stream, gone, now)
            else:
                read.update(each.files)
                for key in each.files:
                    core.file_complete(each.stream, key)
                effects += core.stream_ended(each.stream)
        if not opened:
            now += 100
            effects = core.workers_known(states, now)
    assert read == {MapId(each) for each in range(1, 5)}
    assert not core.over


def test_many_workers_that_cannot_read_are_not_asked_more_and_more() -> None:
    """Each question to the masters tries all of them again; together they ask little more than one of them alone."""
    seconds, workers = 10, 5
    sources = {MapId(number): source(number, number) for number in range(1, workers + 1)}
    core = Fetch(sources, where="shuffle s, partition 3", streams_max=workers)
    alive = {WorkerId(number): WorkerState.ALIVE for number in range(1, workers + 1)}
    waiting: list[tuple[int, int, Any]] = []
    opened, now, effects = 0, 0, core.started()
    while now < seconds * 10**9:
        for effect in effects:
            opened += isinstance(effect, OpenStream)
            after = effect.after_ns if isinstance(effect, AskMasters) else effect.worker * 10**6  # type: ignore[union-attr]
            heappush(waiting, (now + after + 10**6, len(waiting) + opened, effect))
        assert opened <= 3 * workers * seconds, f"{opened} streams within {now / 1e9:.3f} s"
        now, _, done = heappop(waiting)
        if isinstance(done, AskMasters):
            effects = core.workers_known(alive, now)
        else:
            effects = core.stream_failed(done.stream, error_for(Status.DISK_FAILED, "DFS not mounted"), now)


def test_a_second_copy_is_read_where_the_first_cannot_be_now() -> None:
    """At once, without a wait."""
    core = fetch((1, 2))
    core.started()
    effects = core.stream_failed(0, error_for(Status.DISK_FAILED, "DFS not mounted"), 0)
    assert OpenStream(1, WorkerId(2), maps(0)) in effects


def test_silent_masters_do_not_stop_a_read() -> None:
    """While no master answers the workers are tried on, for as long as one may be gone."""
    core = fetch((1,))
    core.started()
    core.stream_failed(0, LOST, 0)
    assert core.masters_silent(LOST, 5) == [OpenStream(1, WorkerId(1), maps(0))]
    core.stream_failed(1, LOST, 6)
    (failed,) = core.masters_silent(LOST, GRACE + 1)
    assert isinstance(failed, ReadFailed)


def test_a36_masters_that_are_silent_end_no_read_that_goes_on() -> None:
    """Two workers were lost, so the masters are asked twice; the first answer says that both are alive, the second does
    not come. Nobody waits for it: the streams that were opened again are read on."""
    core: Fetch[MapId] = Fetch(
        {MapId(0): Source((WorkerId(1),), "0"), MapId(1): Source((WorkerId(2),), "1")}, where="x"
    )
    core.started()
    core.stream_failed(0, LOST, 0)
    core.stream_failed(1, LOST, 0)
    alive = {WorkerId(1): WorkerState.ALIVE, WorkerId(2): WorkerState.ALIVE}
    assert core.workers_known(alive, 1) == [OpenStream(2, WorkerId(1), maps(0)), OpenStream(3, WorkerId(2), maps(1))]
    assert core.masters_silent(LOST, 2) == []
    core.file_complete(2, MapId(0))
    assert core.file_complete(3, MapId(1))[-1] == Complete()


def test_events_of_a_stream_that_is_over_change_nothing() -> None:
    """Late frames of a stream that failed neither complete nor fail a file."""
    core = fetch((1,))
    core.started()
    core.stream_failed(0, LOST, 0)
    assert core.file_complete(0, MapId(0)) == []
    assert core.file_bad(0, MapId(0), "late") == []
    assert core.stream_failed(0, LOST, 0) == []
    assert core.stream_ended(0) == []


def test_a_read_that_goes_on_reports_what_is_gone() -> None:
    """Where the reader can tell by itself whether enough is there, a file without copies does not end the read."""
    gone: list[tuple[MapId, HoldfastError]] = []

    def gave_up(key: MapId, error: HoldfastError) -> dict[MapId, Source]:
        gone.append((key, error))
        return {}

    core = fetch((1,), (2,), gave_up=gave_up)
    core.started()
    for stream in (0, 2, 3)[:TRIES_MAX]:
        core.file_bad(stream, MapId(0), "checksum")
    ((key, error),) = gone
    assert key == 0
    assert isinstance(error, CorruptError)
    assert core.file_complete(1, MapId(1)) == [CloseStream(1), Complete()]
    core.check()


def test_what_is_wanted_on_account_of_an_end_is_read_before_the_read_is_over() -> None:
    """A complete file, or one that is given up, may make others wanted, itself included; then the read goes on."""
    again = {MapId(0): source(0, 2)}
    core = fetch((1,), (3,), gave_up=lambda key, error: {key: source(1, 4)})
    core.started()
    assert core.file_complete(0, MapId(0), again) == [OpenStream(2, WorkerId(2), maps(0))]
    core.check()
    assert core.stream_ended(0) == []
    effects: list[Any] = []
    for stream in (1, 3, 4)[:TRIES_MAX]:
        effects = core.file_bad(stream, MapId(1), "checksum")
    assert effects == [CloseStream(4), OpenStream(5, WorkerId(4), maps(1))]
    core.file_complete(5, MapId(1))
    assert core.file_complete(2, MapId(0))[-1] == Complete()


def test_who_judges_what_is_given_up_may_end_the_read() -> None:
    """The error that comes back for a file without copies is the read's."""
    error = DataLostError("and that was needed")
    core = fetch((1,), (2,), gave_up=lambda key, cause: error)
    core.started()
    effects: list[Any] = []
    for stream in (0, 2, 3)[:TRIES_MAX]:
        effects = core.file_bad(stream, MapId(0), "checksum")
    assert effects[-1] == ReadFailed(error)
