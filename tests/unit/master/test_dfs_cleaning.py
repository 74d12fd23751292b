"""The leader's cleaning of the DFS store: a real state and a real local store, the time told by the test."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.config.config import from_tables
from holdfast.common.dfs import names
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import DfsError
from holdfast.common.ids import Instance, ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.control import dfs_cleaning
from holdfast.master.control.dfs_cleaning import DfsCleaner
from holdfast.master.core.state import commands as cmd
from holdfast.master.leader.leader import WorkerReport
from holdfast.master.observe.counts import MasterCounts
from tests.support.logged import logged
from tests.unit.master.build import I1, I2, Log, application, key, shuffle, sixteen, worker

CLUSTER = "c1"
GRACE_NS = 60 * 10**9


class FakeLeader:
    """A leader of one state: what the cleaner asks of leader/leader.py."""

    def __init__(self, log: Log, table: dict[str, Any]) -> None:
        self.log = log
        self.config = from_tables({"cluster": {"id": CLUSTER}, "dfs": table})
        self.listeners: list[Any] = []
        self.now = 10**12
        self.reports: dict[int, WorkerReport] = {}
        self.confirmations = 0
        self.counts = MasterCounts()

    async def confirmed(self, read):
        self.confirmations += 1
        return read(self.log.state)

    def now_ns(self) -> int:
        return self.now


class World:
    """A state with two applications and shuffles, a store with files of them, and a cleaner."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "dfs"
        self.folder.mkdir()
        self.file = directory / "file"
        self.file.write_bytes(b"bytes of a sealed file")
        self.log = Log()
        for each in (worker(1), worker(2), application(), application(I2, holder=sixteen("h3"), name="other")):
            assert self.log.do(each).ok
        for number, instance in ((1, I1), (2, I1), (1, I2)):
            assert self.log.do(shuffle(key(number, instance=instance))).ok
        table = {"url": str(self.folder), "clean_grace": "60s", "retry_window": "0s"}
        self.leader = FakeLeader(self.log, table)
        self.store = DfsStore(self.leader.config.dfs, CLUSTER)
        self.store.claim()
        self.cleaner = DfsCleaner(self.leader, self.store)  # type: ignore[arg-type]

    def put(self, of: ShuffleKey, uid: str = "w1", file: str = "p-0-0.part") -> str:
        return self.store.put(names.file_name(CLUSTER, of, sixteen(uid), file), self.file).name

    def files(self) -> set[str]:
        return {name for name, _ in self.store.list(CLUSTER) if not name.startswith(names.marker(CLUSTER))}

    def round(self, later_ns: int = 0) -> set[str]:
        """One round of the cleaner; the files that are left."""
        self.leader.now += later_ns
        asyncio.run(self.cleaner.round())
        return self.files()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.cleaner._thread.shutdown()
    made.store.close()


def test_what_was_dropped_goes_after_the_grace(world):
    """Files of a forgotten application and of a dropped generation go, whoever wrote them, when their grace is over."""
    gone = {world.put(key(1, instance=I2)), world.put(key(1, instance=I2), uid="w2"), world.put(key(1))}
    stays = {world.put(key(2))}
    assert world.round(GRACE_NS) == gone | stays, "nothing was dropped yet"
    assert world.log.do(cmd.Forget(I2, False, 0)).ok
    assert world.log.do(cmd.Forget(I1, True, 1)).ok
    assert world.round(GRACE_NS) == gone | stays, "the grace begins when a leader first sees it dropped"
    assert world.round(GRACE_NS - 1) == gone | stays
    assert world.round(1) == stays
    assert world.store.folders(CLUSTER) == [I1.hex()]
    assert world.leader.counts.dfs_removed == 6, "of three workers, two shuffles and an instance"
    assert world.leader.confirmations >= 4, "each round asked a proved leader"


def test_what_was_never_heard_of_stays(world, caplog):
    """Instances and generations that the state knows nothing of are kept, counted, and named once in the log."""
    strange = Instance(sixteen("stranger"))
    kept = {world.put(key(1, instance=strange)), world.put(key(7)), world.put(key(1, generation=3)), world.put(key(2))}
    for _ in range(3):
        assert world.round(10 * GRACE_NS) == kept
    assert world.leader.counts.dfs_unheard == 1
    assert logged(caplog, LogEvent.DFS_UNKNOWN_APPLICATIONS) == [{"count": 1, "instances": [strange.hex()]}]
    assert world.log.do(cmd.Forget(strange, False, 0)).ok
    world.round()
    assert world.round(GRACE_NS) == {each for each in kept if strange.hex() not in each}
    assert world.leader.counts.dfs_unheard == 0


def test_masters_restored_from_an_old_copy_delete_nothing_new(world):
    """What was registered after the copy is unheard of, not dropped: it stays, however long."""
    kept = {world.put(key(1, instance=Instance(sixteen("later")))), world.put(key(9)), world.put(key(1, generation=1))}
    assert world.round(GRACE_NS) == world.round(GRACE_NS) == kept


def test_leftovers_of_uploads_go_with_their_shuffle(world):
    """Files that were being written when a worker was killed have no name that anybody knows; they go as well."""
    name = world.put(key(1))
    (world.folder / (name + names.TEMPORARY_SUFFIX)).write_bytes(b"half")
    assert world.log.do(cmd.Forget(I1, True, 1)).ok
    world.round()
    assert world.round(GRACE_NS) == set()


def test_the_grace_is_counted_anew_when_a_folder_comes_back(world):
    """A worker that stores late what was already cleaned has it cleaned again, after a grace of its own."""
    assert world.log.do(cmd.Forget(I2, False, 0)).ok
    world.put(key(1, instance=I2))
    world.round()
    assert world.round(GRACE_NS) == set()
    world.round(GRACE_NS)
    late = world.put(key(1, instance=I2))
    assert world.round(GRACE_NS) == {late}
    assert world.round(GRACE_NS) == set()


def test_a_round_is_bounded_and_the_next_goes_on(world, monkeypatch):
    """A round removes so many folders and no more; nothing above a folder that is still there goes before it."""
    monkeypatch.setattr(dfs_cleaning, "FOLDERS_PER_ROUND_MAX", 2)
    for uid in ("w1", "w2", "w3"):
        world.put(key(1, instance=I2), uid=uid)
    assert world.log.do(cmd.Forget(I2, False, 0)).ok
    world.round()
    assert len(world.round(GRACE_NS)) == 1
    assert world.round() == set()
    assert world.store.folders(CLUSTER) == [I2.hex()], "two were the last worker's and the shuffle's"
    world.round()
    assert world.store.folders(CLUSTER) == []


def test_names_of_others_are_left_alone(world):
    """Folders and files that Holdfast did not name stay where they are."""
    strange = world.folder / CLUSTER / "somebody" / "1-0-0123456789abcdef"
    strange.mkdir(parents=True)
    (strange / "file").write_bytes(b"x")
    below = world.folder / CLUSTER / I1.hex() / "notes"
    below.mkdir(parents=True)
    (below / "file").write_bytes(b"x")
    world.round()
    world.round(GRACE_NS)
    assert (strange / "file").exists()
    assert (below / "file").exists()


def test_a_store_that_is_gone_is_no_empty_store(world):
    """Without the marker nothing is listed or removed: the round is an error; the next goes on when it is back."""
    world.put(key(1, instance=I2))
    assert world.log.do(cmd.Forget(I2, False, 0)).ok
    world.round()
    world.folder.rename(world.folder.with_name("away"))
    with pytest.raises(DfsError, match=r"cannot look for the marker: the folder .* not mounted"):
        world.round(GRACE_NS)
    world.folder.with_name("away").rename(world.folder)
    assert world.round() == set()


def test_a_fresh_cluster_is_no_failure(world, caplog):
    """Before a worker has left the marker there is nothing to clean, and nothing to tell; once a worker says that its
    DFS is well, a store without marker is another one, and that is told and counted."""
    (world.folder / names.marker(CLUSTER)).unlink()
    table = {"url": str(world.folder), "clean_every": "100ms"}
    world.leader.config = from_tables({"cluster": {"id": CLUSTER}, "dfs": table})
    world.leader.fail = lambda error: None
    world.leader.reports[1] = WorkerReport(1, pb.HeartbeatRequest(dfs=pb.Dfs(state="failing", problem="no answer")))
    looks = 0

    class Counting(DfsStore):
        def is_marked(self) -> bool:
            nonlocal looks
            found = super().is_marked()
            looks += 1
            return found

    async def story():
        from tests.support.waiting import wait_until_async

        cleaner = DfsCleaner(world.leader, Counting(world.leader.config.dfs, CLUSTER))
        [lead] = world.leader.listeners[-1:]
        lead(True)
        await wait_until_async(lambda: looks >= 3, "three looks")
        assert (world.leader.counts.dfs_failures, world.leader.counts.dfs_rounds) == (0, 0)
        assert not logged(caplog, LogEvent.DFS_CLEANING_FAILED)
        world.leader.reports[1] = WorkerReport(1, pb.HeartbeatRequest(dfs=pb.Dfs(state="well")))
        await wait_until_async(lambda: world.leader.counts.dfs_failures, "a failure to be counted")
        assert logged(caplog, LogEvent.DFS_CLEANING_FAILED)
        lead(False)
        cleaner.close()

    asyncio.run(story())


def test_it_runs_while_this_master_leads_and_no_longer(world):
    """The rhythm begins and ends with leadership; a new leadership counts every grace anew; failures are counted."""
    world.leader.config = from_tables(
        {"cluster": {"id": CLUSTER}, "dfs": {"url": str(world.folder), "clean_every": "100ms", "clean_grace": "0s"}}
    )
    world.leader.fail = lambda error: None
    world.put(key(1, instance=I2))
    assert world.log.do(cmd.Forget(I2, False, 0)).ok

    async def story():
        from tests.support.waiting import wait_until_async

        cleaner = DfsCleaner(world.leader, world.store)
        [lead] = world.leader.listeners[-1:]
        lead(True)
        await wait_until_async(lambda: world.leader.counts.dfs_rounds >= 1, "a round")
        assert world.files() == set()
        world.folder.rename(world.folder.with_name("away"))
        await wait_until_async(lambda: world.leader.counts.dfs_failures >= 1, "a failure to be counted")
        world.folder.with_name("away").rename(world.folder)
        before = world.leader.counts.dfs_rounds
        await wait_until_async(lambda: world.leader.counts.dfs_rounds > before, "a round after that")
        lead(False)
        assert cleaner._task is None
        cleaner.close()

    asyncio.run(story())
