"""Events: a bounded ring, what commands of the log did, and what heartbeats say has changed."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.master.core import event_derivation as happened
from holdfast.master.core.conditions import Conditions, ConnectedPeers, Spot
from holdfast.master.core.events import REPEAT_MS, EventKind, Happened, LatestEvents, Level, level_of
from holdfast.master.core.state import commands as cmd
from holdfast.master.state_machine.state_machine import StateMachine
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


class Told:
    """A machine, and what it told."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int, Happened]] = []
        self.machine = StateMachine(
            on_events=lambda at, index, told: self.all.extend((at, index, each) for each in told)
        )
        self.index = 0

    def do(self, *bodies: cmd.Body) -> list[tuple[EventKind, str]]:
        """Apply an entry; return kind and subject of what it did."""
        self.index += 1
        entry = cmd.LogEntry(1_000 + self.index, tuple(cmd.Command(body) for body in bodies))
        before = len(self.all)
        self.machine.apply(self.index, 1, encode_entry(entry))
        return [(each.kind, each.subject) for _, _, each in self.all[before:]]


def test_life_of_a_worker_is_told() -> None:
    """First start, loss, return, drain, a new start after it, and one without: each once, repetitions not at all."""
    told = Told()
    ref = cmd.WorkerRef(1, 1)
    assert told.do(worker(1)) == [(EventKind.WORKER_REGISTERED, "w1")]
    assert told.do(worker(1)) == []
    assert told.do(cmd.SetWorkersAlive(False, (ref,))) == [(EventKind.WORKER_LOST, "w1")]
    assert told.do(cmd.SetWorkersAlive(False, (ref,))) == []
    assert told.do(cmd.SetWorkersAlive(True, (ref,))) == [(EventKind.WORKER_BACK, "w1")]
    assert told.do(worker(1, 2)) == [(EventKind.WORKER_RESTARTED, "w1")]
    second = cmd.WorkerRef(1, 2)
    assert told.do(cmd.SetWorkersDraining(True, (second,))) == [(EventKind.WORKER_DRAINS, "w1")]
    assert told.do(cmd.SetWorkersDraining(False, (second,))) == [(EventKind.DRAIN_CANCELLED, "w1")]
    told.do(cmd.SetWorkersDraining(True, (second,)))
    assert told.do(cmd.SetWorkersAlive(False, (second,))) == [(EventKind.WORKER_DRAINS, "w1")], "drained, so not lost"
    assert told.do(worker(1, 3)) == [(EventKind.WORKER_BACK, "w1")]
    assert told.all[0][:2] == (1_001, 1)


def test_life_of_a_shuffle_is_told() -> None:
    """Application, commit, a commit that lost data, drop and end: once each, with names; what is refused is not."""
    told = Told()
    told.do(worker(1), worker(2))
    assert told.do(application(name="nightly")) == [(EventKind.APPLICATION_REGISTERED, "nightly")]
    assert told.do(application(name="nightly")) == []
    assert told.do(shuffle(), reduce(key(2)), shuffle(key(3))) == []
    assert told.do(commit()) == [(EventKind.SHUFFLE_COMMITTED, "nightly/1")]
    assert told.do(commit()) == [], "said again"
    assert told.do(commit(digest=b"other")) == [], "refused"
    assert told.do(commit_reduce(4, key(2), lost=2, under_replicated=1, unsealed=3)) == [
        (EventKind.SHUFFLE_LOST_DATA, "nightly/2"),
        (EventKind.SHUFFLE_UNDER_REPLICATED, "nightly/2"),
    ]
    assert told.do(add_copies(0, key(2), lost=1)) == [(EventKind.SHUFFLE_COPIES_ADDED, "nightly/2")]
    assert told.do(add_copies(0, key(2))) == [], "of a manifest that was replaced"
    parts = ("without 2 epochs", "1 epoch has fewer copies than asked for: that stays so", "left: 1 epoch lost")
    for each, part in zip(told.all[-3:], parts, strict=True):
        assert part in each[2].text
    assert told.do(cmd.Unregister(key(1))) == [(EventKind.SHUFFLE_DROPPED, "nightly/1")]
    assert told.do(cmd.Forget(I1, True, 2)) == [(EventKind.SHUFFLE_DROPPED, "nightly/2")]
    lease = (cmd.LeaseRef(I1, H1),)
    assert told.do(cmd.MarkLeases(True, lease)) == [(EventKind.APPLICATION_SILENT, "nightly")]
    assert told.do(cmd.MarkLeases(False, lease)) == [(EventKind.APPLICATION_HEARD, "nightly")]
    assert told.do(cmd.EndLeases(lease)) == [], "the mark was taken back"
    told.do(cmd.MarkLeases(True, lease))
    assert told.do(cmd.EndLeases(lease)) == [(EventKind.APPLICATION_ENDED, "nightly")]
    assert "1 shuffle" in told.all[-1][2].text
    told.do(application(I2, name="other"))
    assert told.do(cmd.Detach(I2, H1)) == [(EventKind.APPLICATION_ENDED, "other")]
    assert told.do(cmd.Forget(I2, True, 2)) == []


def test_who_is_not_listened_to_changes_nothing() -> None:
    """A machine that tells nobody comes to the same state."""
    told, silent = Told(), StateMachine()
    entry = cmd.LogEntry(5, (cmd.Command(worker(1)), cmd.Command(application()), cmd.Command(shuffle())))
    told.machine.apply(1, 1, encode_entry(entry))
    silent.apply(1, 1, encode_entry(entry))
    assert told.machine.state_hash() == silent.state_hash()


def test_routine_never_drives_out_what_matters() -> None:
    """A lost worker is still told after any number of commits, and reading begins with the newest."""
    ring = LatestEvents(kept=10)
    ring.add(1, Happened(EventKind.WORKER_LOST, "w1", "lost"))
    for number in range(100):
        ring.add(2 + number, Happened(EventKind.SHUFFLE_COMMITTED, str(number), "committed"), index=number)
        ring.check()
    found = ring.latest(100)
    assert len(found) == 11
    assert [found[0].number, found[-1].kind, ring.last] == [101, EventKind.WORKER_LOST, 101]
    assert [each.number for each in ring.latest(3)] == [101, 100, 99]
    assert [each.number for each in ring.latest(100, after=99)] == [101, 100]
    assert [each.kind for each in ring.latest(100, least=Level.ERROR)] == [EventKind.WORKER_LOST]
    assert ring.counts[EventKind.SHUFFLE_COMMITTED] == 100


def test_what_repeats_itself_is_one_event_that_counts() -> None:
    """Within a minute and about the same; another subject, and a minute later, is another event."""
    ring = LatestEvents()
    refused = Happened(EventKind.QUOTA_REFUSED, "a", "first")
    ring.add(0, refused)
    ring.add(10, Happened(EventKind.QUOTA_REFUSED, "b", "other"))
    ring.add(20, Happened(EventKind.QUOTA_REFUSED, "a", "second"))
    assert [(each.subject, each.text, each.times) for each in ring.latest(9)] == [("a", "second", 2), ("b", "other", 1)]
    ring.add(20 + REPEAT_MS + 1, refused)
    assert [each.times for each in ring.latest(9)] == [1, 2, 1]
    ring.check()


@given(
    st.lists(st.tuples(st.sampled_from(list(EventKind)), st.sampled_from("abc"), st.integers(0, 200_000)), max_size=60)
)
def test_a_ring_holds_together(told: list[tuple[EventKind, str, int]]) -> None:
    """Whatever happens in whatever order, bounds hold and numbers descend."""
    ring = LatestEvents(kept=5)
    for kind, subject, moment in told:
        ring.add(moment, Happened(kind, subject, "x"))
        ring.check()
    numbers = [each.number for each in ring.latest(100)]
    assert numbers == sorted(numbers, reverse=True)
    assert ring.last == len(told)


def test_every_kind_has_a_level_and_the_grave_ones_are_errors() -> None:
    """Lost data and lost workers are errors; a commit is routine."""
    assert {level_of(kind) for kind in EventKind} == set(Level)
    assert {level_of(each) for each in (EventKind.SHUFFLE_LOST_DATA, EventKind.WORKER_LOST)} == {Level.ERROR}
    assert level_of(EventKind.SHUFFLE_COMMITTED) is Level.INFO


def test_directories_that_fail_fill_up_and_return_are_told_once() -> None:
    """Each change of a directory or the DFS is told when it is heard first, and its end."""
    seen = Conditions()
    ill, full = Spot("/d1", "EIO"), Spot("/d2", "", "no room")
    dfs = Spot("s3://b", "no answer", is_dfs=True)
    assert seen.heard(1, "w1", ()) == []
    assert [each.kind for each in seen.heard(1, "w1", (ill, full, dfs))] == [
        EventKind.DIRECTORY_FAILING,
        EventKind.DIRECTORY_FULL,
        EventKind.DFS_FAILING,
    ]
    assert seen.heard(1, "w1", (ill, full, dfs)) == []
    assert [each.subject for each in seen.heard(1, "w1", (ill,))] == ["w1 /d2", "w1 s3://b"]
    assert [each.kind for each in seen.heard(1, "w1", ())] == [EventKind.DIRECTORY_WELL]


def test_masters_that_come_and_go_are_told() -> None:
    """A master that was never there is news only once things have settled; one that goes is news at once."""
    peers = ConnectedPeers()
    assert peers.look({"m2": True, "m3": False}, settled=False) == []
    assert [each.kind for each in peers.look({"m2": False, "m3": False}, settled=False)] == [EventKind.MASTER_AWAY]
    assert [each.subject for each in peers.look({"m2": False, "m3": False}, settled=True)] == ["m3"]
    assert [each.kind for each in peers.look({"m2": True, "m3": False}, settled=True)] == [EventKind.MASTER_BACK]


def test_every_command_that_changes_what_people_see_is_watched() -> None:
    """What has no events is what happens all the time, or what only this list names."""
    quiet = {cmd.Attach, cmd.PlaceWorkers, cmd.RegisterShuffle, cmd.Revive, cmd.Part}
    assert set(cmd.Body.__args__) - set(happened._AFTER) == quiet
