"""REDUCE partitions in the replicated state, as transcripts: epochs grow, a commit names all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.formats.messages import Ack
from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status
from holdfast.master.core.state import bounds, epochs
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.epochs import has_kept, restarted, vouches
from holdfast.master.core.state.incomplete import Mark, pack_marks, unpack_incomplete
from holdfast.master.core.state.moves import (
    Moved,
    add_segment,
    epoch_of,
    moved_bytes,
    moved_count,
    pack_moved,
    unpack_moved,
)
from tests.unit.master.build import (
    I1,
    I2,
    Log,
    add_copies,
    application,
    commit,
    commit_reduce,
    key,
    reduce,
    revive,
    shuffle,
    worker,
)
from tests.unit.master.test_apply import play

S = Status


def opened(*more: cmd.Body) -> Log:
    """A log with one application and one shuffle of four REDUCE partitions."""
    log = Log()
    for body in (application(), reduce(), *more):
        assert log.do(body).ok
    return log


def newest(log: Log) -> dict[int, int]:
    """The newest epoch of each partition that was moved."""
    return {partition: epoch_of(row) for partition, row in log.state.newest.get(key(), {}).items()}


def test_revive_is_idempotent_by_partition_and_failed_epoch():
    """The next epoch is made once; a row that names an older one makes nothing; a row twice in a command counts
    once."""
    log = opened()
    assert log.do(revive((0, 0), (1, 0), (0, 0))).value == 2
    assert log.do(revive((0, 0), to=9)).value == 0
    (moved,) = log.state.moved(key(), [0])
    assert moved is not None
    assert moved.workers == (3,), "the first place stays"
    assert log.do(revive((0, 1), (1, 0), (2, 0))).value == 2
    assert newest(log) == {0: 2, 1: 1, 2: 1}


def test_epochs_are_never_skipped_and_partitions_never_invented():
    """A failed epoch above the newest, or a partition that is not there, makes nothing."""
    log = opened()
    assert log.do(revive((0, 1), (1, 7), (4, 0))).value == 0
    assert newest(log) == {}


def test_revive_is_refused_where_it_makes_no_sense():
    """Unknown shuffles, MAP partitions, committed generations, cut rows."""
    play(
        (revive((0, 0)), S.APPLICATION_GONE),
        (application(), S.OK),
        (revive((0, 0)), S.UNKNOWN_SHUFFLE),
        (shuffle(key(2)), S.OK),
        (revive((0, 0), of=key(2)), S.BAD_REQUEST),
        (reduce(), S.OK),
        (cmd.Revive(key(), b"cut"), S.BAD_REQUEST),
        (commit_reduce(4), S.OK),
        (revive((0, 0)), S.COMMITTED),
        (cmd.Unregister(key()), S.OK),
        (revive((0, 0)), S.UNKNOWN_GENERATION),
    )


def test_move_epochs_leaves_alone_what_refuses():
    """One command moves epochs of several shuffles; those committed or gone do not disturb it."""
    log = opened(reduce(key(2)), reduce(key(3)), commit_reduce(4, key(2)))
    body = cmd.MoveEpochs(
        (revive((0, 0), (1, 0)), revive((0, 0), of=key(2)), revive((0, 0), of=key(9)), revive((3, 0), of=key(3)))
    )
    assert log.do(body).value == 3
    assert log.do(body).value == 0
    assert newest(log) == {0: 1, 1: 1}


def test_commit_names_every_epoch():
    """A commit that was sealed before an epoch was made is refused with BUSY, and again with all of them is OK."""
    log = play(
        (application(), S.OK),
        (reduce(), S.OK),
        (commit_reduce(3), S.BUSY),
        (revive((0, 0)), (S.OK, 1)),
        (commit_reduce(4), S.BUSY),
        (commit_reduce(5, manifest=b""), S.BAD_REQUEST),
        (commit_reduce(5, lost=2), S.OK),
        (commit_reduce(4), S.OK),  # the same winners again
        (commit_reduce(5, digest=b"others"), S.CONFLICT),
    )
    record = log.state.shuffle(key())
    assert (record.winners, record.manifest, record.lost) == (b"array", b"manifest", 2)


def test_refused_commit_is_tried_again_under_its_number():
    """BUSY is not remembered as the answer of a call."""
    log = opened()
    c = b"c".ljust(16, b".")
    assert log.call(c, 1, commit_reduce(3)).status == S.BUSY
    assert log.call(c, 1, commit_reduce(4)).ok


def test_manifest_comes_behind_the_winners_in_parts():
    """An upload holds winners and manifest one after the other; MAP partitions have no manifest."""
    log = opened(cmd.Part(b"up", 0, 2, b"winnersmani"), cmd.Part(b"up", 1, 2, b"fest"))
    assert log.do(commit(winners=b"", upload=b"up", manifest_bytes=8, epochs=4)).ok
    record = log.state.shuffle(key())
    assert record is not None
    assert (record.winners, record.manifest) == (b"winners", b"manifest")
    log.do(shuffle(key(2)))
    assert log.do(commit(key(2), manifest=b"manifest")).status == S.BAD_REQUEST


def test_large_assignments_come_in_parts():
    """A register whose parts are missing is BUSY; whole it takes them away; asked again it is OK without."""
    whole = reduce().assignment
    body = reduce(assignment=b"", upload=b"up")
    log = play(
        (application(), S.OK),
        (body, S.BUSY),
        (cmd.Part(b"up", 0, 1, whole), S.OK),
        (body, S.OK),
        (body, S.OK),
        (reduce(key(2), upload=b"up"), S.BAD_REQUEST),
        (reduce(key(2), kind=3), S.BAD_REQUEST),
    )
    assert log.state.shuffle(key()).assignment == whole
    assert log.state.upload_bytes == 0


def test_bounds_of_epochs(monkeypatch):
    """Epochs of a generation, rows of a command and bytes of all arrays are bounded; what is refused changes
    nothing."""
    monkeypatch.setattr(epochs, "EPOCHS_MAX", 6)
    monkeypatch.setattr(bounds, "MOVES_PER_COMMAND_MAX", 3)
    log = opened()
    assert log.do(revive((0, 0), (1, 0), (2, 0), (3, 0))).status == S.TOO_LARGE
    assert log.do(revive((0, 0), (1, 0), (2, 0))).status == S.NO_ROOM
    assert log.do(revive((0, 0), (1, 0))).value == 2
    assert log.do(revive((2, 0))).status == S.NO_ROOM
    assert log.do(revive((0, 0))).ok, "what makes nothing needs no room"
    monkeypatch.setattr(epochs, "EPOCHS_MAX", 100)
    monkeypatch.setattr(bounds, "ARRAY_BYTES_MAX", log.state.array_bytes + moved_bytes(2))
    assert log.do(revive((2, 0), (3, 0))).status == S.NO_ROOM
    assert log.do(revive((2, 0))).value == 1


def test_moves_go_with_their_shuffle():
    """Dropping a generation or an application forgets its epochs."""
    log = opened(revive((0, 0)), reduce(key(2)), revive((0, 0), of=key(2)))
    log.do(cmd.Unregister(key()))
    assert log.state.newest.keys() == {key(2)}
    log.do(cmd.Forget(I1, False, 0))
    assert (log.state.newest, log.state.array_bytes) == ({}, 0)


def test_next_generation_after_a_loss():
    """An open generation is followed only if the leader found that it has lost data."""
    play(
        (application(), S.OK),
        (reduce(key(1, 0)), S.OK),
        (reduce(key(1, 1)), S.GENERATION_CLOSED),
        (reduce(key(1, 1), lost_before=True), S.OK),
        (reduce(key(1, 3), lost_before=True), S.GENERATION_CLOSED),
        (commit_reduce(4, key(1, 0)), S.OK),
    )


@pytest.mark.parametrize(
    ("again", "kept"),
    [
        ({}, set(Ack)),
        ({"boot_id": "other"}, {Ack.SYNCED}),
        ({"boot_id": ""}, {Ack.SYNCED}),
        ({"directories": ("d1", "new")}, set(Ack)),
        ({"directories": ("new",)}, set()),
    ],
    ids=["same", "rebooted", "unknown-boot", "more-directories", "other-directories"],
)
def test_what_a_restart_leaves(again, kept):
    """What a worker does not know after a restart was never acknowledged only if that must have survived."""
    log = Log()
    log.do(worker(1))
    log.do(application(I2))
    placed = log.index
    assert all(vouches(log.state.workers[1], placed, ack) for ack in Ack)
    log.do(worker(1, incarnation=2, **again))
    log.do(worker(1, incarnation=3, **again))
    restart = log.state.workers[1]
    assert restarted(restart, placed)
    assert {ack for ack in Ack if vouches(restart, placed, ack)} == kept
    assert {ack for ack in Ack if has_kept(restart, placed, ack)} == kept - {Ack.MEMORY}, "that is gone in any case"
    assert all(vouches(restart, log.index + 1, ack) for ack in Ack), "what was placed later is its own"


@pytest.mark.parametrize(("boot_id", "kept"), [("other", {Ack.SYNCED}), ("boot", {Ack.SYNCED})])
def test_a39_a_new_memory_directory_costs_nothing_synced(boot_id: str, kept: set[Ack]) -> None:
    """A directory in memory is another one after each boot, and never had anything SYNCED: an epoch that a worker does
    not know was never acknowledged there at that level, and is not called lost."""
    log = Log()
    log.do(worker(1, directories=("d1", "m1"), memory="m1"))
    log.do(application(I2))
    placed = log.index
    log.do(worker(1, incarnation=2, directories=("d1", "m2"), memory="m2", boot_id=boot_id))
    assert {ack for ack in Ack if vouches(log.state.workers[1], placed, ack)} == kept
    log.do(worker(1, incarnation=3, directories=("m2",), memory="m2", boot_id=boot_id))
    assert not any(vouches(log.state.workers[1], placed, ack) for ack in Ack), "a disk that went is another matter"


def test_worker_found_again_has_not_restarted():
    """Being lost and registering again with the same incarnation is no start."""
    log = Log()
    log.do(worker(1))
    placed = log.index + 1
    log.do(cmd.SetWorkersAlive(False, (cmd.WorkerRef(1, 1),)))
    log.do(worker(1))
    assert log.state.workers[1].alive
    assert vouches(log.state.workers[1], placed, Ack.MEMORY)


@given(st.lists(st.integers(1, 5), max_size=40))
def test_segments_stay_few_and_in_order(sizes: list[int]):
    """However epochs come, they are all there in order, in a number of segments that grows like a logarithm."""
    segments: tuple[bytes, ...] = ()
    made: list[Moved] = []
    for size in sizes:
        more = [Moved(len(made) + number, 1, (1,), 0, 7) for number in range(size)]
        made += more
        segments = add_segment(segments, [pack_moved(each, 3) for each in more])
    assert list(unpack_moved(segments, 3)) == made
    assert moved_count(segments, 3) == len(made)
    assert len(segments) <= len(made).bit_length()


def test_late_copies_replace_just_the_manifest_that_they_were_added_to():
    """One command for each version: made twice, late, or from an older manifest it changes nothing. What has copies
    that nobody sealed is known from the state, also after it was dropped."""
    log = opened(reduce(key(1)))
    assert log.do(add_copies()).status == S.CONFLICT, "it is not committed"
    assert log.do(commit_reduce(4, under_replicated=3, unsealed=4)).ok
    assert (log.state.under_replicated, list(log.state.unsealed)) == (3, [key(1)])
    assert log.do(add_copies(0, under_replicated=1, unsealed=2)).ok
    assert log.do(add_copies(0)).status == S.CONFLICT
    found = log.state.shuffle(key(1))
    assert found is not None
    assert (found.manifest, found.manifest_version, found.data_bytes) == (b"with late", 1, 20)
    assert (log.state.under_replicated, list(log.state.unsealed)) == (1, [key(1)])
    assert log.do(add_copies(1, manifest=b"")).status == S.BAD_REQUEST
    assert log.do(add_copies(1, manifest=b"", upload=b"u")).status == S.BUSY
    assert log.do(add_copies(1, under_replicated=1)).ok
    assert (log.state.under_replicated, list(log.state.unsealed)) == (1, [])
    assert log.do(cmd.Unregister(key(1))).ok
    assert log.state.under_replicated == 0
    assert log.do(add_copies(2)).status == S.UNKNOWN_GENERATION


def lacking(*marks: tuple[int, int, int], most: int = 1, of: ShuffleKey | None = None) -> cmd.MarkIncomplete:
    """These (partition, epoch, worker) are incomplete, where so many of an epoch may be."""
    return cmd.MarkIncomplete(of or key(), pack_marks([Mark(*mark, most) for mark in marks]))


def test_an_incomplete_copy_is_marked_once_and_for_ever():
    """Who marks it again changes nothing; the others of its epoch are not touched, nor are other epochs. It goes with
    its shuffle."""
    log = opened()
    assert log.do(lacking((0, 0, 2), (1, 0, 2))).value == 2
    assert log.do(lacking((0, 0, 2), (3, 0, 2))).value == 1
    record = log.state.shuffle(key())
    assert record is not None
    wanted = {(partition, 0): frozenset({2}) for partition in (0, 1, 3)}
    assert unpack_incomplete(record.incomplete) == log.state.incomplete[key()] == wanted
    assert log.do(commit_reduce(4, incomplete=2)).status == S.BUSY, "one was marked since it sealed"
    assert log.do(commit_reduce(4, incomplete=3)).ok
    assert log.do(cmd.Unregister(key())).ok
    assert log.state.incomplete == {}


def test_so_many_copies_are_never_called_incomplete():
    """What would leave fewer is refused as a whole, within one command and after another: then nothing is marked, and
    who counted on it does not."""
    log = opened()
    assert log.do(lacking((0, 0, 2), (0, 0, 1))).status == S.REPLICA_FAILED
    assert log.state.incomplete == {}
    assert log.do(lacking((0, 0, 2))).value == 1
    assert log.do(lacking((1, 0, 1), (0, 0, 1))).status == S.REPLICA_FAILED
    assert log.do(lacking((0, 0, 1), most=2)).value == 1
    assert log.do(lacking((0, 0, 3), most=0)).status == S.REPLICA_FAILED


def test_copies_are_marked_of_open_shuffles_of_reduce_partitions():
    """After the commit it is too late: who asks has not won. MAP partitions have no such copies."""
    play(
        (application(), S.OK),
        (lacking((0, 0, 2)), S.UNKNOWN_SHUFFLE),
        (shuffle(key(2)), S.OK),
        (lacking((0, 0, 2), of=key(2)), S.BAD_REQUEST),
        (reduce(), S.OK),
        (cmd.MarkIncomplete(key(), b"cut"), S.BAD_REQUEST),
        (commit_reduce(4), S.OK),
        (lacking((0, 0, 2)), S.COMMITTED),
    )


def test_how_many_copies_acknowledge_is_part_of_a_shuffle():
    """At least one, at most all, which is meant by none; the same shuffle cannot be registered with another number, and
    MAP partitions take all."""
    play(
        (application(), S.OK),
        (reduce(ack_copies=3), S.BAD_REQUEST),
        (reduce(ack_copies=1), S.OK),
        (reduce(ack_copies=1), S.OK),
        (reduce(ack_copies=2), S.CONFLICT),
        (reduce(key(2)), S.OK),
        (reduce(key(2), ack_copies=2), S.OK),
        (shuffle(key(3), copies_wanted=2, copies=2, ack_copies=1), S.BAD_REQUEST),
        (shuffle(key(3), copies_wanted=2, copies=2, ack_copies=2), S.OK),
    )
