"""What each command answers, told as transcripts: a list of commands, and beside each what it comes to."""

import dataclasses

import pytest

from holdfast.common.ids import StateId
from holdfast.common.statuses import Status
from holdfast.master.core.state import bounds
from holdfast.master.core.state import commands as cmd
from tests.unit.master.build import C1, H1, H2, I1, I2, Log, application, commit, key, shuffle, sixteen, worker

S = Status


def play(*transcript):
    """Apply commands one after another and compare the answers: a status, or a status and a value."""
    log = Log()
    for body, wanted in transcript:
        answer = log.do(body)
        got = (answer.status, answer.value) if isinstance(wanted, tuple) else answer.status
        assert got == wanted, f"{body} came to {answer}"
        assert answer.ok or answer.detail, "every refusal has a sentence"
    return log


def test_workers_get_numbers_that_stay_theirs():
    """A worker keeps its number over restarts; an earlier incarnation is refused and told the lowest accepted."""
    play(
        (worker(1), (S.OK, 1)),
        (worker(2), (S.OK, 2)),
        (worker(1), (S.OK, 1)),  # the same start again
        (worker(1, incarnation=5, address="127.0.0.1:9"), (S.OK, 1)),
        (worker(1, incarnation=5, address="127.0.0.1:8"), (S.INCARNATION_TOO_LOW, 6)),  # another process, same count
        (worker(1, incarnation=4), (S.INCARNATION_TOO_LOW, 6)),
        (worker(1, incarnation=6), (S.OK, 1)),
    )


def test_whoever_looks_at_workers_again_sees_whether_any_changed():
    """The place of the latest change of a worker's record grows with each change, and with nothing else."""
    log, ref = Log(), cmd.WorkerRef(1, 1)
    changes = {
        worker(1): True,
        application(): False,
        cmd.SetWorkersAlive(False, (ref,)): True,
        shuffle(): False,
        cmd.SetWorkersAlive(True, (ref,)): True,
        worker(1, incarnation=2): True,
    }
    for body, changing in changes.items():
        before = log.state.workers_index
        assert log.do(body).ok
        assert (log.state.workers_index > before) is changing, body
        assert not log.state.check()


def test_names_and_directories_belong_to_one_worker():
    """A second worker with a taken name or directory is WORKER_CONFLICT; what a worker gave up is free."""
    play(
        (worker(1, directories=("a", "b")), S.OK),
        (worker(2, name="w1"), S.WORKER_CONFLICT),
        (worker(2, directories=("c", "b")), S.WORKER_CONFLICT),
        (worker(1, incarnation=2, directories=("a",)), S.OK),
        (worker(2, directories=("c", "b")), S.OK),
        (worker(1, incarnation=3, name="other"), S.OK),
        (worker(3, name="w1"), S.OK),
    )


def test_a_host_is_one_machine_and_a_machine_one_host():
    """A worker is refused that brings its host a second machine, or its machine a second host; one that does not know
    its machine is compared with nobody."""
    play(
        (worker(1, host="a", machine="m1"), S.OK),
        (worker(2, host="a", machine="m1"), S.OK),
        (worker(3, host="a", machine="m2"), S.WORKER_CONFLICT),
        (worker(3, host="b", machine="m1"), S.WORKER_CONFLICT),
        (worker(3, host="b", machine="m2"), S.OK),
        (worker(4, host="a"), S.OK),
        (worker(5, host="c"), S.OK),
        (worker(6, host="c", machine="m3"), S.OK),
    )


def test_a_worker_does_not_stand_in_its_own_way():
    """It starts again on another machine or with another host, while no other worker holds it to what was; those that
    are lost hold nobody, so a machine that is set up anew gets its workers back one by one."""
    log = play(
        (worker(1, host="a", machine="m1"), S.OK),
        (worker(1, incarnation=2, host="a", machine="m2"), S.OK),
        (worker(1, incarnation=3, host="b", machine="m2"), S.OK),
        (worker(2, host="b", machine="m2"), S.OK),
        (worker(1, incarnation=4, host="b", machine="m3"), S.WORKER_CONFLICT),
        (cmd.SetWorkersAlive(False, (cmd.WorkerRef(2, 1),)), (S.OK, 1)),
        (worker(1, incarnation=4, host="b", machine="m3"), S.OK),
        (worker(2, incarnation=2, host="b", machine="m3"), S.OK),
    )
    assert {each.machine_id for each in log.state.workers.values()} == {"m3"}


def test_a_lost_worker_whose_machine_became_another_host_is_not_back():
    """A heartbeat does not bring it back beside the worker that has the machine under another name by now."""
    log = play(
        (worker(1, host="a", machine="m1"), S.OK),
        (cmd.SetWorkersAlive(False, (cmd.WorkerRef(1, 1),)), (S.OK, 1)),
        (worker(2, host="b", machine="m1"), S.OK),
        (cmd.SetWorkersAlive(True, (cmd.WorkerRef(1, 1),)), (S.OK, 0)),
        (worker(1, host="a", machine="m1"), S.WORKER_CONFLICT),
        (cmd.SetWorkersAlive(False, (cmd.WorkerRef(2, 1),)), (S.OK, 1)),
        (cmd.SetWorkersAlive(True, (cmd.WorkerRef(1, 1),)), (S.OK, 1)),
    )
    assert log.state.workers[1].alive


@pytest.mark.parametrize(
    "changed",
    [
        {"uid": b"short"},
        {"name": ""},
        {"name": "n" * 300},
        {"incarnation": 0},
        {"directories": ()},
        {"directories": worker(directories=("a",)).directories * 2},
        {"data_address": ""},
        {"tags": ("a,b",)},
    ],
    ids=str,
)
def test_malformed_workers_are_refused(changed):
    """A worker without what every worker has is BAD_REQUEST and leaves nothing behind."""
    fields = {name: getattr(worker(), name) for name in worker().__slots__}
    log = play((cmd.RegisterWorker(**{**fields, **changed}), S.BAD_REQUEST))
    assert not log.state.workers


def test_lost_and_back_concern_one_incarnation():
    """Being lost is told of one start; a later one is alive and stays so."""
    ref = cmd.WorkerRef(1, 1)
    log = play(
        (worker(1), S.OK),
        (cmd.SetWorkersAlive(False, (ref, cmd.WorkerRef(9, 1))), (S.OK, 1)),
        (cmd.SetWorkersAlive(False, (ref,)), (S.OK, 0)),
        (cmd.SetWorkersAlive(True, (ref,)), (S.OK, 1)),
        (worker(1, incarnation=2), S.OK),
        (cmd.SetWorkersAlive(False, (ref,)), (S.OK, 0)),
    )
    assert log.state.workers[1].alive


def test_a_gone_worker_leaves_its_name_to_the_one_that_replaces_it():
    """A machine that comes back with empty disks keeps its name once its worker was removed; before that, and for the
    old worker after it, the name is somebody else's."""
    ref, new = cmd.WorkerRef(1, 1), worker(7, name="w1")
    log = play((worker(1, name="w1"), S.OK), (new, S.WORKER_CONFLICT))
    log.do(cmd.SetWorkersAlive(False, (ref,)))
    refused = log.do(new)
    assert (refused.status, "`holdfast remove 1`" in refused.detail) == (S.WORKER_CONFLICT, True)
    log.do(cmd.SetWorkersAlive(False, (ref,), (ref,)))
    assert log.do(new).value == 2
    assert [(each.name, each.state) for each in log.state.workers.values()] == [("w1#1", "gone"), ("w1", "alive")]
    back = worker(1, name="w1", incarnation=2)
    assert log.do(back).status is S.WORKER_CONFLICT
    log.do(cmd.SetWorkersAlive(False, (cmd.WorkerRef(2, 1),), (cmd.WorkerRef(2, 1),)))
    assert log.do(back).value == 1
    assert [(each.name, each.state) for each in log.state.workers.values()] == [("w1", "alive"), ("w1#2", "gone")]


def test_nobody_is_gone_in_a_state_that_was_restored():
    """A worker that was gone when a backup was made may have had data by the time that the masters were lost."""
    ref = cmd.WorkerRef(1, 1)
    lost = cmd.SetWorkersAlive(False, (ref,), (ref,))
    log = play((cmd.BeginState(StateId(7), 0), S.OK), (worker(1), S.OK), (lost, S.OK))
    log.do(cmd.BeginState(StateId(8), 99))
    assert log.state.workers[1].state == "gone", "it is not the state that was meant"
    log.do(cmd.BeginState(StateId(8), log.state.state_index))
    assert log.state.workers[1].state == "lost"


def test_gone_is_who_is_lost_and_needed_no_more():
    """It is said with the loss or later, stays when the loss is found again, and ends when the worker is back."""
    ref, second = cmd.WorkerRef(1, 1), cmd.WorkerRef(1, 2)
    log = play((worker(1), S.OK), (cmd.SetWorkersAlive(False, (ref,)), (S.OK, 1)))
    assert log.state.workers[1].state == "lost"
    for body, changed, state in (
        (cmd.SetWorkersAlive(False, (ref,), (ref,)), 1, "gone"),
        (cmd.SetWorkersAlive(False, (ref,)), 0, "gone"),
        (cmd.SetWorkersAlive(True, (ref,)), 1, "alive"),
        (cmd.SetWorkersAlive(False, (), (ref,)), 0, "alive"),
        (cmd.SetWorkersAlive(False, (ref,), (second,)), 1, "lost"),
        (cmd.SetWorkersAlive(False, (), (ref,)), 1, "gone"),
        (worker(1, incarnation=2), 1, "alive"),
        (cmd.SetWorkersAlive(False, (ref, second), (ref, second)), 1, "gone"),
        (worker(1, incarnation=3), 1, "alive"),
    ):
        assert log.do(body).value == changed
        assert log.state.workers[1].state == state


def test_draining_is_of_one_start_and_places_of_the_worker():
    """A start drains until it is told otherwise or ends; where a worker is stays known, whatever it started as."""
    ref = cmd.WorkerRef(1, 1)
    log = play(
        (worker(1), S.OK),
        (cmd.SetWorkersDraining(True, (ref, cmd.WorkerRef(9, 1))), (S.OK, 1)),
        (cmd.SetWorkersDraining(True, (ref,)), (S.OK, 0)),
        (cmd.SetWorkersDraining(True, (ref,), 9_000_000), (S.OK, 1)),
        (cmd.SetWorkersDraining(True, (ref,), 9_000_000), (S.OK, 0)),
        (cmd.SetWorkersDraining(True, (ref,)), (S.OK, 0)),
        (cmd.SetWorkersDraining(False, (ref,)), (S.OK, 1)),
        (cmd.SetWorkersDraining(True, (ref,)), (S.OK, 1)),
        (cmd.PlaceWorkers((cmd.WorkerPlace(1, "/a/b"), cmd.WorkerPlace(9, "/a/b"))), (S.OK, 1)),
        (cmd.PlaceWorkers((cmd.WorkerPlace(1, "/a/b"),)), (S.OK, 0)),
        (cmd.PlaceWorkers((cmd.WorkerPlace(1, "/" + "r" * 5_000),)), S.BAD_REQUEST),
    )
    assert log.state.workers[1].draining_ms
    assert log.state.workers[1].place == "/a/b"
    log.do(worker(1, incarnation=2))
    assert not log.state.workers[1].draining_ms
    assert log.state.workers[1].place == "/a/b", "a leader that cannot resolve it in time wipes nothing"
    log.do(dataclasses.replace(worker(1, incarnation=3), place="/a/c"))
    assert log.state.workers[1].place == "/a/c"
    log.do(dataclasses.replace(worker(1, incarnation=4), host="elsewhere"))
    assert log.state.workers[1].place == ""


def test_life_of_an_application():
    """Registered once, attached to by others, gone with its last lease, and never there again."""
    log = play(
        (cmd.Attach(I1, "", 1000, H1), S.APPLICATION_GONE),
        (cmd.Attach(b"", "app", 1000, H1), S.APPLICATION_GONE),
        (application(), S.OK),
        (application(), S.OK),
        (application(name="another"), S.CONFLICT),
        (cmd.Attach(b"", "app", 1000, H2), S.OK),
        (shuffle(), S.OK),
        (cmd.Detach(I1, H1), (S.OK, 0)),
        (cmd.Detach(I1, H1), (S.OK, 0)),
        (cmd.Detach(I1, H2), (S.OK, 1)),
        (application(), S.APPLICATION_GONE),
        (shuffle(), S.APPLICATION_GONE),
        (commit(), S.APPLICATION_GONE),
        (cmd.Unregister(key()), S.APPLICATION_GONE),
    )
    assert log.state.shuffle_count == 0


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "ftp://a/", "//a/", "http://", 'http://a/"onclick=', "http://a/ b", "https://a/\u202e"],
)
def test_pages_of_applications_are_web_addresses(url):
    """What is no address of http or https, or longer than a name, is refused: people will click on it."""
    play(
        (dataclasses.replace(application(), ui_url=url), S.BAD_REQUEST),
        (dataclasses.replace(application(), ui_url="http://" + "a" * 249), S.BAD_REQUEST),
        (dataclasses.replace(application(), ui_url="https://driver-7.example:4040/jobs/?id=1"), S.OK),
    )


def test_attach_by_name_takes_the_newest():
    """Of several applications of a name the one created last is attached to."""
    log = Log()
    log.do(application(I1))
    log.do(application(I2))
    assert log.do(cmd.Attach(b"", "app", 1000, H2)).subject == I2


@pytest.mark.parametrize(
    ("holder", "lease_ms"), [(b"short", 1000), (H1, 0), (H1, bounds.LEASE_MS_MAX + 1)], ids=["holder", "zero", "long"]
)
def test_leases_have_a_holder_and_a_sane_length(holder, lease_ms):
    """A lease without a holder of 16 bytes or of no or endless length is BAD_REQUEST."""
    play((application(holder=holder, lease_ms=lease_ms), S.BAD_REQUEST))


def test_leases_end_only_when_marked():
    """A lease is ended by a mark and a second command; a mark that was taken back protects it."""
    ref = (cmd.LeaseRef(I1, H1),)
    log = play(
        (application(), S.OK),
        (cmd.EndLeases(ref), (S.OK, 0)),
        (cmd.MarkLeases(True, (*ref, cmd.LeaseRef(I2, H1), cmd.LeaseRef(I1, H2))), S.OK),
        (cmd.MarkLeases(False, ref), S.OK),
        (cmd.EndLeases(ref), (S.OK, 0)),
        (cmd.MarkLeases(True, ref), S.OK),
    )
    assert log.state.applications[I1].leases[0].marked_ms == log.time_ms
    assert log.do(cmd.EndLeases(ref)).value == 1
    assert I1 not in log.state.applications


def test_shuffle_is_registered_once():
    """Again with the same shape, or without a number of maps, is OK and keeps the first assignment; another shape is
    CONFLICT."""
    log = play(
        (application(), S.OK),
        (shuffle(maps=3), S.OK),
        (shuffle(maps=0), S.OK),
        (shuffle(maps=4), S.CONFLICT),
        (shuffle(maps=3, assignment=b"another"), S.OK),
        (shuffle(maps=3, partitions=5), S.CONFLICT),
        (shuffle(maps=3, copies_wanted=2), S.CONFLICT),
        (shuffle(maps=3, ack=2), S.CONFLICT),
    )
    assert log.state.shuffle(key()).assignment == shuffle().assignment


def test_generations_open_one_after_another():
    """The next generation opens when the one before is committed or dropped; none is skipped or used twice."""
    play(
        (application(), S.OK),
        (shuffle(key(1, 0)), S.OK),
        (shuffle(key(1, 1)), S.GENERATION_CLOSED),
        (commit(key(1, 0)), S.OK),
        (shuffle(key(1, 2)), S.GENERATION_CLOSED),
        (shuffle(key(1, 1)), S.OK),
        (cmd.Unregister(key(1, 1)), (S.OK, 2)),
        (cmd.Unregister(key(1, 1)), (S.OK, 0)),
        (shuffle(key(1, 1)), S.GENERATION_CLOSED),
        (shuffle(key(1, 0)), S.GENERATION_CLOSED),
        (shuffle(key(1, 2)), S.OK),
    )


def test_unregister_keeps_later_generations():
    """Generations up to the one named go; later ones, and other shuffles, stay."""
    log = play(
        (application(), S.OK),
        (shuffle(key(1, 0)), S.OK),
        (commit(key(1, 0)), S.OK),
        (shuffle(key(1, 1)), S.OK),
        (shuffle(key(2, 0)), S.OK),
        (cmd.Unregister(key(1, 0)), (S.OK, 1)),
    )
    assert {each.key for each in log.state.every_shuffle()} == {key(1, 1), key(2, 0)}


def test_commit_is_final():
    """The same winners again are OK, others CONFLICT; unknown shuffles and generations are told apart."""
    log = play(
        (application(), S.OK),
        (commit(), S.UNKNOWN_SHUFFLE),
        (shuffle(maps=0), S.OK),
        (commit(partitions=5), S.CONFLICT),
        (commit(winners=b""), S.BAD_REQUEST),
        (commit(), S.OK),
        (commit(), S.OK),
        (commit(digest=b"others"), S.CONFLICT),
        (commit(key(1, 1)), S.UNKNOWN_GENERATION),
        (cmd.Unregister(key()), S.OK),
        (commit(), S.UNKNOWN_GENERATION),
    )
    assert log.state.array_bytes == 0


def test_commit_fits_the_maps_that_were_registered():
    """A known number of maps must be met; an unknown one is filled in."""
    play((application(), S.OK), (shuffle(maps=3), S.OK), (commit(maps=2), S.CONFLICT))
    log = play((application(), S.OK), (shuffle(maps=0), S.OK), (commit(maps=2), S.OK))
    assert log.state.shuffle(key()).maps == 2


def test_large_commit_comes_in_parts():
    """Parts may come twice and in any order; the commit waits until all are there, and takes them away."""
    log = play(
        (application(), S.OK),
        (shuffle(), S.OK),
        (cmd.Part(b"up", 1, 2, b"ners"), S.OK),
        (commit(winners=b"", upload=b"up"), S.BUSY),
        (cmd.Part(b"up", 0, 2, b"win"), S.OK),
        (cmd.Part(b"up", 0, 2, b"win"), S.OK),
        (cmd.Part(b"up", 0, 3, b"win"), S.CONFLICT),
        (commit(winners=b"", upload=b"up"), S.OK),
    )
    assert log.state.shuffle(key()).winners == b"winners"
    assert (log.state.uploads, log.state.upload_bytes) == ({}, 0)


def test_parts_are_bounded_and_expire(monkeypatch):
    """Parts out of range are refused, more than the bound are BUSY, and forgotten ones make room."""
    monkeypatch.setattr(bounds, "UPLOAD_BYTES_MAX", 10)
    log = play(
        (cmd.Part(b"up", 2, 2, b"x"), S.BAD_REQUEST),
        (cmd.Part(b"up", 0, 2, b""), S.BAD_REQUEST),
        (cmd.Part(b"up", 0, 1_000, b"x"), S.BAD_REQUEST),
        (cmd.Part(b"up", 0, 2, b"12345678"), S.OK),
        (cmd.Part(b"two", 0, 2, b"12345678"), S.BUSY),
    )
    log.time_ms += bounds.UPLOAD_LIFE_MS + 1
    assert log.do(cmd.Part(b"two", 0, 2, b"12345678")).ok


def test_forget_drops_at_once():
    """One shuffle of an application, or all of it, whatever leases it has."""
    log = play(
        (cmd.Forget(b"", False, 0), S.BAD_REQUEST),
        (cmd.Forget(I1, True, 2), S.APPLICATION_GONE),
        (application(I1), S.OK),
        (application(I2), S.OK),
        (shuffle(key(1)), S.OK),
        (shuffle(key(2)), S.OK),
        (shuffle(key(1, instance=I2)), S.OK),
        (cmd.Forget(I1, True, 2), (S.OK, 1)),
        (cmd.Forget(I1, False, 0), (S.OK, 1)),
        (cmd.Forget(I2, False, 0), (S.OK, 1)),
    )
    assert not log.state.applications
    assert log.state.run_count == 0


def test_forgetting_what_was_never_heard_of_is_remembered():
    """Workers that have data from before a restored backup may delete it then; the instance never comes back."""
    log = play(
        (cmd.Forget(I1, False, 0), (S.OK, 0)),
        (cmd.Forget(I1, False, 0), S.APPLICATION_GONE),
        (application(I1), S.APPLICATION_GONE),
    )
    assert log.state.dropped(key(7, instance=I1))


def test_only_what_was_there_counts_as_dropped():
    """A shuffle that lives, one that never was, and an application never heard of: none of them was dropped."""
    log = play((application(), S.OK), (shuffle(key(1)), S.OK), (shuffle(key(3)), S.OK), (cmd.Unregister(key(1)), S.OK))
    assert [log.state.dropped(key(n)) for n in (1, 2, 3)] == [True, False, False]
    assert not log.state.dropped(key(1, instance=I2))
    log.do(cmd.Detach(I1, H1))
    assert log.state.dropped(key(2))


def test_bounds_are_refusals(monkeypatch):
    """Past each bound a command is NO_ROOM and changes nothing; what is there goes on."""
    for name in ("WORKERS_MAX", "APPLICATIONS_MAX", "SHUFFLES_MAX", "LEASES_PER_APPLICATION_MAX"):
        monkeypatch.setattr(bounds, name, 1)
    monkeypatch.setattr(bounds, "SHUFFLES_PER_APPLICATION_MAX", 5)
    play(
        (worker(1), S.OK),
        (worker(2), S.NO_ROOM),
        (worker(1, incarnation=2), S.OK),
        (application(I1), S.OK),
        (application(I2), S.NO_ROOM),
        (cmd.Attach(I1, "", 1000, H2), S.NO_ROOM),
        (cmd.Attach(I1, "", 2000, H1), S.OK),
        (shuffle(key(1)), S.OK),
        (shuffle(key(2)), S.NO_ROOM),
        (shuffle(key(1)), S.OK),
    )


def test_shuffles_of_one_application_are_bounded(monkeypatch):
    """Living shuffles and gaps in their ids have a bound each, so that dropping the application stays quick; ids that
    ascend without gaps never reach it."""
    monkeypatch.setattr(bounds, "SHUFFLES_PER_APPLICATION_MAX", 1)
    monkeypatch.setattr(bounds, "RUNS_PER_APPLICATION_MAX", 2)
    play(
        (application(), S.OK),
        (shuffle(key(1)), S.OK),
        (shuffle(key(2)), S.NO_ROOM),
        (cmd.Unregister(key(1)), S.OK),
        (shuffle(key(2)), S.OK),
        (cmd.Unregister(key(2)), S.OK),
        (shuffle(key(3)), S.OK),
        (cmd.Unregister(key(3)), S.OK),
        (shuffle(key(1)), S.GENERATION_CLOSED),
        (shuffle(key(5)), S.OK),
        (cmd.Unregister(key(5)), S.OK),
        (shuffle(key(7)), S.NO_ROOM),
    )


def test_arrays_are_bounded(monkeypatch):
    """Assignments and winners of all shuffles together have a bound; dropping a shuffle makes room."""
    monkeypatch.setattr(bounds, "ARRAY_BYTES_MAX", len(shuffle().assignment) + 5)
    play(
        (application(), S.OK),
        (shuffle(key(1)), S.OK),
        (shuffle(key(2)), S.NO_ROOM),
        (commit(key(1), winners=b"123456"), S.NO_ROOM),
        (commit(key(1), winners=b"12345"), S.OK),
        (cmd.Unregister(key(1)), S.OK),
        (shuffle(key(2)), S.OK),
    )


def test_instances_that_are_gone_are_forgotten_oldest_first(monkeypatch):
    """The list of dropped instances is bounded."""
    monkeypatch.setattr(bounds, "GONE_MAX", 2)
    log = Log()
    for number in range(4):
        log.do(application(sixteen(f"n{number}")))
        log.do(cmd.Detach(sixteen(f"n{number}"), H1))
    assert list(log.state.gone) == [sixteen("n2"), sixteen("n3")]


def test_time_never_runs_back():
    """State time is the largest command time seen, whatever clock the next leader has."""
    log = Log()
    log.call(C1, 1, application())
    log.time_ms -= 500_000
    log.do(shuffle())
    assert [each.created_ms for each in log.state.every_shuffle()] == [1_000_000]
