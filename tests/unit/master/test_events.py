"""Events: a bounded ring, what commands of the log did, and what heartbeats say has changed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.ids import AttemptId, Epoch, MapFileKey, MapId
from holdfast.common.log_events import Level, LogEvent, facts_text, plain
from holdfast.master.core import event_derivation as happened
from holdfast.master.core.conditions import Conditions, ConnectedPeers, Spot
from holdfast.master.core.events import LEVELS, REPEAT_MS, Happened, LatestEvents
from holdfast.master.core.state import commands as cmd
from holdfast.master.state_machine.state_machine import StateMachine
from tests.docs.log_events import calls
from tests.unit.master.build import (
    H1,
    I1,
    I2,
    add_copies,
    application,
    commit,
    commit_reduce,
    encode_entry,
    key,
    reduce,
    shuffle,
    worker,
)

#: What masters keep, as the sources say.
KEPT = sorted({LogEvent[call.event] for call in calls() if call.kept}, key=str)


class Reported:
    """A machine, and what it told."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int, Happened]] = []
        self.machine = StateMachine(
            on_events=lambda at, index, reported: self.all.extend((at, index, each) for each in reported)
        )
        self.index = 0

    def do(self, *bodies: cmd.Body) -> list[tuple[LogEvent, str]]:
        """Apply an entry; return events and subjects of what it did."""
        self.index += 1
        entry = cmd.LogEntry(1_000 + self.index, tuple(cmd.Command(body) for body in bodies))
        before = len(self.all)
        self.machine.apply(self.index, 1, encode_entry(entry))
        return [(each.event, each.subject) for _, _, each in self.all[before:]]


def test_life_of_a_worker_is_reported() -> None:
    """First start, loss, return, drain, a new start after it, and one without: each once, repetitions not at all."""
    reported = Reported()
    ref = cmd.WorkerRef(1, 1)
    assert reported.do(worker(1)) == [(LogEvent.WORKER_REGISTERED, "w1")]
    assert reported.do(worker(1)) == []
    assert reported.do(cmd.SetWorkersAlive(False, (ref,))) == [(LogEvent.WORKER_LOST, "w1")]
    assert reported.do(cmd.SetWorkersAlive(False, (ref,))) == []
    assert reported.do(cmd.SetWorkersAlive(True, (ref,))) == [(LogEvent.WORKER_RETURNED, "w1")]
    assert reported.do(worker(1, 2)) == [(LogEvent.WORKER_RESTARTED, "w1")]
    second = cmd.WorkerRef(1, 2)
    assert reported.do(cmd.SetWorkersDraining(True, (second,))) == [(LogEvent.WORKER_DRAINING, "w1")]
    assert reported.do(cmd.SetWorkersDraining(False, (second,))) == [(LogEvent.WORKER_DRAIN_CANCELLED, "w1")]
    reported.do(cmd.SetWorkersDraining(True, (second,)))
    assert reported.do(cmd.SetWorkersAlive(False, (second,), (second,))) == [(LogEvent.WORKER_LEFT, "w1")]
    reported.do(cmd.SetWorkersAlive(True, (second,)))
    assert reported.do(cmd.SetWorkersAlive(False, (second,))) == [(LogEvent.WORKER_LOST, "w1")], "it kept something"
    assert reported.do(cmd.SetWorkersAlive(False, (), (second,))) == [(LogEvent.WORKER_REMOVED, "w1")]
    assert reported.do(worker(1, 3)) == [(LogEvent.WORKER_RETURNED, "w1")]
    assert reported.all[0][:2] == (1_001, 1)


def test_life_of_a_shuffle_is_reported() -> None:
    """Application, commit, a commit that lost data, drop and end: once each, with names; what is refused is not."""
    reported = Reported()
    reported.do(worker(1), worker(2))
    assert reported.do(application(name="nightly")) == [(LogEvent.APPLICATION_REGISTERED, "nightly")]
    assert reported.do(application(name="nightly")) == []
    assert reported.do(shuffle(), reduce(key(2)), shuffle(key(3))) == []
    assert reported.do(commit()) == [(LogEvent.SHUFFLE_COMMITTED, "nightly/1")]
    assert reported.do(commit()) == [], "said again"
    assert reported.do(commit(digest=b"other")) == [], "refused"
    assert reported.do(commit_reduce(4, key(2), lost=2, under_replicated=1, unsealed=3)) == [
        (LogEvent.SHUFFLE_DATA_LOST, "nightly/2"),
        (LogEvent.SHUFFLE_UNDER_REPLICATED, "nightly/2"),
    ]
    assert reported.do(add_copies(0, key(2), lost=1)) == [(LogEvent.SHUFFLE_COPIES_ADDED, "nightly/2")]
    assert reported.do(add_copies(0, key(2))) == [], "of a manifest that was replaced"
    parts = ("epochs=2 ", "epochs=1 awaited=0 — ", "copies=3 lost=1 under_replicated=0 ")
    for each, part in zip(reported.all[-3:], parts, strict=True):
        assert part in each[2].text
        assert each[2].text.endswith(each[2].event.sentence)
    assert reported.do(cmd.Unregister(key(1))) == [(LogEvent.SHUFFLE_DROPPED, "nightly/1")]
    assert reported.do(cmd.Forget(I1, True, 2)) == [(LogEvent.SHUFFLE_DROPPED, "nightly/2")]
    lease = (cmd.LeaseRef(I1, H1),)
    assert reported.do(cmd.MarkLeases(True, lease)) == [(LogEvent.APPLICATION_SILENT, "nightly")]
    assert reported.do(cmd.MarkLeases(False, lease)) == [(LogEvent.APPLICATION_HEARD, "nightly")]
    assert reported.do(cmd.EndLeases(lease)) == [], "the mark was taken back"
    reported.do(cmd.MarkLeases(True, lease))
    assert reported.do(cmd.EndLeases(lease)) == [(LogEvent.APPLICATION_ENDED, "nightly")]
    assert "shuffles=1 " in reported.all[-1][2].text
    reported.do(replace(application(I2, name="other"), spark_id="app-7"))
    assert reported.do(cmd.Detach(I2, H1)) == [(LogEvent.APPLICATION_ENDED, "other")]
    assert all("spark_id=app-7 " in each[2].text for each in reported.all[-2:]), "how Spark names that run of it"
    assert reported.do(cmd.Forget(I2, True, 2)) == []


def test_a_shuffle_that_is_placed_with_fewer_copies_is_reported_once() -> None:
    """That it stays so is in the masters' events, not only in the log of the application that asked."""
    reported = Reported()
    reported.do(worker(1), worker(2), application(name="nightly"))
    assert reported.do(reduce(copies_wanted=3)) == [(LogEvent.SHUFFLE_FEWER_COPIES, "nightly/1")]
    assert reported.all[-1][2].facts == {"shuffle": "nightly/1", "copies": 2, "wanted": 3}, "as clients say it"
    assert reported.do(reduce(copies_wanted=3)) == [], "registered again"
    assert reported.do(reduce(key(2))) == []


def test_copies_that_are_made_again_are_reported_when_they_are_placed_and_when_they_are_there() -> None:
    """A manifest that names more copies to come is a warning; one that has fewer of these says that they are there."""
    reported = Reported()
    reported.do(worker(1), worker(2), application(name="nightly"), reduce(key(2)), commit_reduce(4, key(2)))
    assert reported.do(add_copies(0, key(2), unsealed=2)) == [(LogEvent.SHUFFLE_COPIES_PLACED, "nightly/2")]
    assert "copies=2 " in reported.all[-1][2].text
    assert reported.do(add_copies(1, key(2), unsealed=1)) == [(LogEvent.SHUFFLE_COPIES_ADDED, "nightly/2")]
    assert reported.do(add_copies(2, key(2))) == [(LogEvent.SHUFFLE_COPIES_ADDED, "nightly/2")]


def test_a_key_is_a_fact_by_its_name() -> None:
    """What names a shuffle or a file is told as people see it elsewhere, alone and in a list; a list stays one."""
    at = MapFileKey(key(7), MapId(1), AttemptId(2), Epoch(3))
    assert plain([key(7), at]) == [str(key(7)), f"{key(7)} map 1 attempt 2 epoch 3"]
    assert facts_text({"shuffle": key(7), "workers": ("w1", "w2")}) == f"shuffle={key(7)} workers=w1,w2"


def test_who_is_not_listened_to_changes_nothing() -> None:
    """A machine that tells nobody comes to the same state."""
    reported, silent = Reported(), StateMachine()
    entry = cmd.LogEntry(5, (cmd.Command(worker(1)), cmd.Command(application()), cmd.Command(shuffle())))
    reported.machine.apply(1, 1, encode_entry(entry))
    silent.apply(1, 1, encode_entry(entry))
    assert reported.machine.state_hash() == silent.state_hash()


def test_routine_never_drives_out_what_matters() -> None:
    """A lost worker is still told after any number of commits, and reading begins with the newest."""
    ring = LatestEvents(kept=10)
    ring.add(1, Happened(LogEvent.WORKER_LOST, worker="w1"))
    for number in range(100):
        ring.add(2 + number, Happened(LogEvent.SHUFFLE_COMMITTED, shuffle=str(number)), index=number)
        ring.check()
    found = ring.latest(100)
    assert len(found) == 11
    assert [found[0].number, found[-1].happened.event, ring.last] == [101, LogEvent.WORKER_LOST, 101]
    assert [each.number for each in ring.latest(3)] == [101, 100, 99]
    assert [each.number for each in ring.latest(100, after=99)] == [101, 100]
    assert [each.happened.event for each in ring.latest(100, least=Level.ERROR)] == [LogEvent.WORKER_LOST]
    assert ring.counts[LogEvent.SHUFFLE_COMMITTED] == 100


def test_what_repeats_itself_is_one_event_that_counts() -> None:
    """Within a minute and about the same; another subject, and a minute later, is another event."""
    ring = LatestEvents()
    refused = Happened(LogEvent.QUOTA_EXCEEDED, application="a", reason=1)
    ring.add(0, refused)
    ring.add(10, Happened(LogEvent.QUOTA_EXCEEDED, application="b", reason=1))
    ring.add(20, Happened(LogEvent.QUOTA_EXCEEDED, application="a", reason=2))
    found = [(each.happened.facts, each.times) for each in ring.latest(9)]
    assert found == [({"application": "a", "reason": 2}, 2), ({"application": "b", "reason": 1}, 1)]
    ring.add(20 + REPEAT_MS + 1, refused)
    assert [each.times for each in ring.latest(9)] == [1, 2, 1]
    ring.check()


@given(st.lists(st.tuples(st.sampled_from(KEPT), st.sampled_from("abc"), st.integers(0, 200_000)), max_size=60))
def test_a_ring_holds_together(reported: list[tuple[LogEvent, str, int]]) -> None:
    """Whatever happens in whatever order, bounds hold and numbers descend."""
    ring = LatestEvents(kept=5)
    for kind, subject, moment in reported:
        ring.add(moment, Happened(kind, worker=subject))
        ring.check()
    numbers = [each.number for each in ring.latest(100)]
    assert numbers == sorted(numbers, reverse=True)
    assert ring.last == len(reported)


def test_what_is_kept_has_a_ring_and_the_grave_are_errors() -> None:
    """Lost data and lost workers are errors; a commit is routine; what is for developers is none."""
    assert {event.level for event in KEPT} == set(LEVELS)
    assert {each.level for each in (LogEvent.SHUFFLE_DATA_LOST, LogEvent.WORKER_LOST)} == {Level.ERROR}
    assert LogEvent.SHUFFLE_COMMITTED.level is Level.INFO
    with pytest.raises(AssertionError):
        Happened(LogEvent.COMMIT_LATE, shuffle="a")


def test_directories_that_fail_fill_up_and_return_are_reported_once() -> None:
    """Each change of a directory or the DFS is told when it is heard first, and its end."""
    seen = Conditions()
    ill, full = Spot("/d1", "EIO"), Spot("/d2", "", "no room")
    dfs = Spot("s3://b", "no answer", is_dfs=True)
    assert seen.heard(1, "w1", ()) == []
    assert [each.event for each in seen.heard(1, "w1", (ill, full, dfs))] == [
        LogEvent.DIRECTORY_FAILING,
        LogEvent.DIRECTORY_FULL,
        LogEvent.DFS_FAILING,
    ]
    assert seen.heard(1, "w1", (ill, full, dfs)) == []
    assert [list(each.facts.values())[:2] for each in seen.heard(1, "w1", (ill,))] == [["w1", "/d2"], ["w1", "s3://b"]]
    assert [each.event for each in seen.heard(1, "w1", ())] == [LogEvent.DIRECTORY_RECOVERED]


def test_masters_that_come_and_go_are_reported() -> None:
    """A master that was never there is news only once things have settled; one that goes is news at once."""
    peers = ConnectedPeers()
    assert peers.look({"m2": True, "m3": False}, settled=False) == []
    assert [each.event for each in peers.look({"m2": False, "m3": False}, settled=False)] == [
        LogEvent.MASTER_DISCONNECTED
    ]
    assert [each.subject for each in peers.look({"m2": False, "m3": False}, settled=True)] == ["m3"]
    assert [each.event for each in peers.look({"m2": True, "m3": False}, settled=True)] == [LogEvent.MASTER_CONNECTED]


def test_every_command_that_changes_what_people_see_is_watched() -> None:
    """What has no events is what happens all the time, or what only this list names."""
    quiet = {cmd.Attach, cmd.PlaceWorkers, cmd.Revive, cmd.Part}
    assert set(cmd.Body.__args__) - set(happened._AFTER) == quiet
