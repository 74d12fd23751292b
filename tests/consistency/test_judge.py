"""The verdict of the harness on histories written by hand, and its oracle on bytes: what is wrong is found, and what
something explains is not."""

from typing import Any

import pytest

from tests.consistency.contents import Place, difference, records_of, shape_of
from tests.consistency.faults import schedule
from tests.consistency.history import Line
from tests.consistency.judge import Verdict

GRACE = 20.0


class Story:
    """Lines of a history, a second apart."""

    def __init__(self) -> None:
        self.lines: list[Line] = [{"t": 0.0, "who": "main", "say": "workers", "ids": {"1": "w1", "2": "w2"}}]
        self._now = 100.0
        self._number = 0

    def op(self, what: str, outcome: str | None = "ok", *, who: str = "c0", more: Any = None, **names: Any) -> None:
        """An operation of shuffle 0 generation 0 of "app", with its end if it has one."""
        self._number += 1
        line = {"app": "app", "shuffle": 0, "generation": 0, **names}
        self._line(who=who, n=self._number, op=what, **line)
        if outcome is not None:
            self._line(who=who, n=self._number, outcome=outcome, **(more or {}))

    def fault(self, what: str, *servers: str, over: bool = True) -> None:
        """Something done to servers."""
        self._line(who="main", fault=what, servers=servers)
        if over:
            self._line(who="main", over=what, servers=servers)

    def say(self, what: str, **more: Any) -> None:
        """A line that is no operation."""
        self._line(who="main", say=what, **more)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self._now += seconds

    def _line(self, **line: Any) -> None:
        self._now += 1.0
        self.lines.append({"t": self._now, **line})

    def verdict(self) -> list[str]:
        """What is wrong."""
        return Verdict(self.lines, grace=GRACE, lease=30.0, operation_max=240.0).violations


def committed(ack: str = "WRITTEN", lost: bool = False) -> Story:
    """A generation of two maps, written and committed; its only epoch is on worker 1."""
    story = Story()
    story.op("register", ack=ack, kind="reduce")
    story.op("write", map=0, attempt=1)
    story.op("commit", winners=[1, 2])
    story.op("manifest", more={"winners": [1, 2], "epochs": [[0, 0, lost, [[1, "DATA_LOST" if lost else "OK"]]]]})
    return story


def refused(error: str, status: str, text: str = "shuffle x, partition 0") -> dict[str, str]:
    """How a refusal ends."""
    return {"error": error, "status": status, "text": text}


def read(story: Story, outcome: str, more: Any, when: str = "after", who: str = "c0") -> None:
    """A read of partition 0."""
    story.op("read", outcome, who=who, more=more, when=when, partitions=[0], maps=None)


EXACT = {"winners": [1, 2]}
LOST = refused("DataLostError", "DATA_LOST")
RETRY = refused("RetryError", "UNAVAILABLE")


def test_exact_reads_are_right() -> None:
    """Nothing is wrong with a generation that is written, committed and read."""
    story = committed()
    read(story, "exact", EXACT)
    assert story.verdict() == []


def test_wrong_bytes_and_other_exceptions_are_wrong() -> None:
    """Whatever was done to the cluster."""
    for outcome in ("wrong", "bug"):
        story = committed()
        story.fault("kill worker", "w1")
        read(story, outcome, {"text": "1 record is missing", "winners": [1, 2]})
        assert outcome.upper() in story.verdict()[0]


def test_loss_is_explained_only_by_what_may_lose() -> None:
    """Memory and a kill before the commit lose by name; written data, a kill afterwards or another worker do not."""
    assert "LOST" in verdict_of_loss("WRITTEN", "kill worker", "w1")[0]
    assert verdict_of_loss("MEMORY", "kill worker", "w1") == []
    assert "LOST" in verdict_of_loss("MEMORY", "kill worker", "w2")[0]
    assert "LOST" in verdict_of_loss("MEMORY", "stop worker", "w1")[0]
    assert "LOST" in verdict_of_loss("MEMORY", "restart worker", "w1")[0]


def verdict_of_loss(ack: str, fault: str, worker: str) -> list[str]:
    """What is wrong where an epoch of worker 1 is called lost after this was done to a worker."""
    story = Story()
    story.op("register", ack=ack, kind="reduce")
    story.fault(fault, worker)
    story.op("commit", winners=[1, 2])
    story.op("manifest", more={"winners": [1, 2], "epochs": [[0, 0, True, [[1, "DATA_LOST"]]]]})
    read(story, "refused", LOST)
    return story.verdict()


def test_an_epoch_called_lost_that_nobody_misses() -> None:
    """A worker that ended in order keeps what it held in memory, so nothing of it is called lost, at any level."""
    for ack in ("MEMORY", "WRITTEN"):
        story = Story()
        story.op("register", ack=ack, kind="reduce")
        story.fault("rolling", "w1")
        story.op("commit", winners=[1, 2])
        story.op("manifest", more={"winners": [1, 2], "epochs": [[0, 0, True, [[1, "DATA_LOST"]]]]})
        read(story, "exact", EXACT)
        assert story.verdict()


def test_loss_that_the_manifest_does_not_tell_is_wrong() -> None:
    """Sealed data is lost by no kill."""
    story = committed("MEMORY")
    story.fault("kill worker", "w1")
    read(story, "refused", LOST)
    assert "LOST" in story.verdict()[0]


def test_a_loss_says_what_of() -> None:
    """An error that names nothing is wrong even where the loss has a reason."""
    story = committed("MEMORY", lost=True)
    story.lines.insert(1, {"t": 101.5, "who": "main", "fault": "kill worker", "servers": ["w1"]})
    story.lines.insert(2, {"t": 101.6, "who": "main", "over": "kill worker", "servers": ["w1"]})
    read(story, "refused", LOST)
    assert story.verdict() == []
    read(story, "refused", refused("DataLostError", "DATA_LOST", "gone"))
    assert "does not say what of" in story.verdict()[0]


def test_trying_again_is_for_times_when_something_is_done() -> None:
    """A refusal that passes is explained by a fault, shortly after it too, and by nothing when all is quiet."""
    story = committed()
    story.fault("cut master", "m1")
    read(story, "refused", RETRY)
    assert story.verdict() == []
    story.wait(60.0)
    read(story, "refused", RETRY)
    assert "nothing was done" in story.verdict()[0]
    story = committed()
    story.fault("cut master", "m1")
    read(story, "refused", RETRY, when="final")
    assert "quiet" in story.verdict()[0]


def test_who_is_dropped_may_be_refused_and_others_not() -> None:
    """An application that is dropped explains refusals of its own alone."""
    gone = refused("ApplicationGoneError", "APPLICATION_GONE")
    story = committed()
    story.say("dropping", app="app")
    read(story, "refused", gone)
    assert story.verdict() == []
    story = committed()
    story.say("dropping", app="another")
    read(story, "refused", gone)
    assert "APPLICATION_GONE" in story.verdict()[0]


def test_one_commit_and_one_set_of_winners() -> None:
    """Two commits with different winners, readers that are told of others, and conflicts without a rival are wrong."""
    story = committed()
    story.op("commit", winners=[3, 2])
    assert "two commits" in story.verdict()[0]
    story = committed()
    read(story, "exact", {"winners": [3, 2]})
    assert "different winners" in story.verdict()[0]
    story = committed()
    story.op("commit", "refused", winners=[1, 2], more=refused("ConflictError", "CONFLICT"))
    assert "without a rival" in story.verdict()[0]
    story = committed()
    story.op("commit", "refused", winners=[3, 2], more=refused("ConflictError", "CONFLICT"))
    assert story.verdict() == []


def test_what_is_committed_is_never_called_uncommitted() -> None:
    """A commit that was acknowledged before the question is known to every leader."""
    story = committed()
    read(story, "refused", refused("RetryError", "NOT_COMMITTED"))
    assert "uncommitted" in story.verdict()[0]


def test_everything_ends() -> None:
    """An operation without an end is explained by the end of its client alone; one that is too long by nothing."""
    story = committed()
    story.op("read", None, when="after", partitions=[0], maps=None)
    assert "never ended" in story.verdict()[0]
    story.fault("kill client", "c0")
    assert story.verdict() == []
    story = committed()
    story.lines.append({"t": 900.0, "who": "c0", "n": 99, "op": "open", "app": "app", "attach": False})
    story.lines.append({"t": 1200.0, "who": "c0", "n": 99, "outcome": "ok"})
    assert "took 300 s" in story.verdict()[0]


def test_everything_that_lives_is_read_at_the_end() -> None:
    """By its own application and by another process."""
    story = committed()
    read(story, "exact", EXACT, when="final")
    story.say("all read")
    assert "read exactly by {'c0'}" in story.verdict()[0]
    story = committed()
    for who in ("c0", "main"):
        read(story, "exact", EXACT, when="final", who=who)
    story.say("all read")
    assert story.verdict() == []


PLACE = next(each for number in range(99) if shape_of(each := Place(7, "app", number, 0))[1:3] == (3, 3))


def given(winners: list[int]) -> list[tuple[int, int, bytes]]:
    """What a reader of everything must get."""
    return [
        (map_id, partition, payload)
        for map_id, attempt in enumerate(winners)
        for partition, payload in records_of(PLACE, map_id, attempt)
    ]


def test_the_oracle_knows_every_byte() -> None:
    """What is missing, too much, changed, of another attempt or of another generation shows and is named."""
    winners = [11, 12, 13]
    found = given(winners)
    assert difference(PLACE, winners, range(3), None, found) == ""
    assert "1 of" in difference(PLACE, winners, range(3), None, found[1:])
    assert "1 too many" in difference(PLACE, winners, range(3), None, [*found, found[0]])
    assert "map 0 attempt 21" in difference(PLACE, winners, range(3), None, given([21, 12, 13]))
    other = [(0, partition, payload) for partition, payload in records_of(PLACE._replace(generation=1), 0, 11)]
    assert "another generation's" in difference(PLACE, winners, range(3), None, [*found, *other])
    map_id, partition, payload = max(found, key=lambda one: len(one[2]))
    for place in (0, len(payload) // 2, len(payload) - 1):
        changed = bytearray(payload)
        changed[place] ^= 1
        there = [one for one in found if one[2] != payload]
        assert difference(PLACE, winners, range(3), None, [*there, (map_id, partition, bytes(changed))])


def test_parts_are_judged_as_parts() -> None:
    """Ranges of partitions and of maps are compared with just their records."""
    winners = [11, 12, 13]
    some = [one for one in given(winners) if one[0] in (1, 2) and one[1] == 1]
    assert difference(PLACE, winners, [1], range(1, 3), some) == ""
    assert difference(PLACE, winners, [1], None, some)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_says_what_is_done(seed: int) -> None:
    """The schedule of faults is the same for the same seed, and another for another."""
    first = [fault for fault, _ in zip(schedule(seed), range(50), strict=False)]
    assert first == [fault for fault, _ in zip(schedule(seed), range(50), strict=False)]
    assert first != [fault for fault, _ in zip(schedule(seed + 1), range(50), strict=False)]
