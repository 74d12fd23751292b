"""The door: calls and their errors, restarts, fail-stop, and three nodes in one process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.system.ports import free_ports
from holdfast.master.raft.codec import MAX_COMMAND_BYTES
from holdfast.master.raft.errors import (
    CommandTooLarge,
    NodeStopped,
    NotLeader,
    OutcomeUnknown,
    Overloaded,
    SettingsRefused,
    StorageDamaged,
    StorageFailed,
)
from holdfast.master.raft.journal import Journal
from holdfast.master.raft.journal_store import LmdbStore
from holdfast.master.raft.node import RaftNode, RaftSettings
from holdfast.master.raft.transport import TlsContexts
from tests.raft.process import ListMachine
from tests.support.certificates import authority
from tests.support.waiting import wait_until

Node = RaftNode[ListMachine]
#: Nobody stands for election because the machine is busy.
CALM: dict[str, Any] = {"election_min": 4.0, "election_max": 5.0, "leader_fallback": 8.0}


class Nodes:
    """Nodes of one test, stopped at its end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: list[Node] = []
        self.fatal: list[BaseException] = []
        self.peers: dict[str, str] = {}

    def settings(self, name: str = "m1", **more: Any) -> RaftSettings:
        """Settings with short timeouts."""
        address = self.peers.get(name) or f"127.0.0.1:{free_ports(1)[0]}"
        values: dict[str, Any] = {
            "node_id": name,
            "address": address,
            "peers": self.peers,
            "cluster_id": "c1",
            "secret": b"secret",
            "directory": self.directory / name,
            "election_min": 0.2,
            "election_max": 0.4,
            "heartbeat": 0.05,
        }
        return RaftSettings(**{**values, **more})

    def start(self, name: str = "m1", machine: ListMachine | None = None, **more: Any) -> Node:
        """Make and start a node."""
        node = RaftNode(self.settings(name, **more), machine or ListMachine(), on_fatal=self.fatal.append)
        self.running.append(node)
        node.start()
        return node

    def stop(self) -> None:
        """Stop all."""
        while self.running:
            self.running.pop().stop()

    def three(self, **more: Any) -> list[Node]:
        """Three connected nodes."""
        self.peers = {f"m{number}": f"127.0.0.1:{port}" for number, port in enumerate(free_ports(3), 1)}
        return [self.start(name, **more) for name in self.peers]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Nodes that are stopped at the end."""
    made = Nodes(tmp_path)
    yield made
    made.stop()


def leader_of(running: list[Node]) -> Node:
    """The serving leader, waited for."""
    found = wait_until(lambda: next((node for node in running if node.status().serving), None), "a leader")
    assert found is not None
    return found


def test_the_library_changes_nothing_for_others() -> None:
    """pysyncobj puts in a `socket.inet_ntop` that works on Windows only: a process with a master keeps its own."""
    program = "import socket, random; from holdfast.master.raft import library; library.load(float, random.Random()); "
    program += "print(socket.inet_ntop(socket.AF_INET, bytes((127, 0, 0, 1))))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "127.0.0.1", done.stderr


def test_a_single_node_serves_and_remembers(nodes: Nodes) -> None:
    """One node alone replicates to its disk, serves confirmed reads, and has everything after a restart."""
    node = leader_of([nodes.start(compact_entries=20)])
    results = [node.propose(b"command %d" % number).result(60).result for number in range(50)]
    assert results == list(range(1, 51))
    assert node.read(lambda machine: len(machine.applied)).result(60) == 50
    wait_until(lambda: node.status().snapshot_index > 0, "a snapshot")
    kept = node.local(lambda machine: machine.state_hash())
    nodes.stop()
    again = leader_of([nodes.start(compact_entries=20)])
    assert again.local(lambda machine: machine.state_hash()) == kept
    assert again.propose(b"more").result(60).result == 51


def test_a_disk_that_is_gone_ends_a_node_by_name(nodes: Nodes) -> None:
    """A snapshot that cannot be written is told as what it is, not as a mistake."""
    node = leader_of([nodes.start(compact_entries=8)])
    snapshots = nodes.directory / "m1" / "snapshots"
    snapshots.rename(snapshots.with_name("elsewhere"))
    for number in range(50):
        node.propose(b"command %d" % number)
    wait_until(lambda: nodes.fatal, "the node to end")
    assert isinstance(nodes.fatal[0], StorageFailed)
    assert f"{snapshots} cannot be written" in str(nodes.fatal.pop(0))


def test_a_span_of_weeks_is_waited_for(nodes: Nodes) -> None:
    """A node with nothing to do for longer than the system waits at a time goes on; it ended with an overflow."""
    node = nodes.start(election_min=1e7, election_max=2e7, leader_fallback=3e7)
    for _ in range(2):
        node.turn().result(60)
    assert not nodes.fatal


@pytest.mark.parametrize("secured", [False, True])
def test_three_nodes_and_a_command_of_the_largest_size(nodes: Nodes, tmp_path: Path, secured: bool) -> None:
    """8 MiB go through whole, also under TLS; one byte more is refused before it is sent; all states end equal."""
    tls = TlsContexts(authority().issue("127.0.0.1").context(tmp_path), authority().credentials().context)
    running = nodes.three(election_min=8.0, election_max=10.0, leader_fallback=15.0, tls=tls if secured else None)
    leader = leader_of(running)
    with pytest.raises(CommandTooLarge):
        leader.propose(bytes(MAX_COMMAND_BYTES + 1))
    futures = [leader.propose(bytes([number]) * MAX_COMMAND_BYTES) for number in range(3)]
    futures += [leader.propose(b"%d" % number) for number in range(500)]
    assert [future.result(60).result for future in futures] == list(range(1, 504))
    wait_until(lambda: len({node.local(lambda m: m.state_hash()) for node in running}) == 1, "equal states")


def test_followers_refuse_and_name_the_leader(nodes: Nodes) -> None:
    """A follower neither forwards nor reads: NotLeader, with the leader's id."""
    running = nodes.three()
    leader = leader_of(running)
    name = leader.status().node_id
    follower = next(node for node in running if node is not leader)
    wait_until(lambda: follower.status().leader == name, "the follower to know the leader")
    for future in (follower.propose(b"x"), follower.read(lambda machine: 1)):
        with pytest.raises(NotLeader, match=f"ask {name}") as caught:
            future.result(60)
        assert caught.value.leader == name
    assert follower.local(lambda machine: 2) == 2


def test_leadership_moves_when_asked(nodes: Nodes) -> None:
    """A transfer ends with another leader that has everything."""
    running = nodes.three()

    def accepted() -> Node | None:
        leader = leader_of(running)
        try:
            leader.propose(b"x").result(60)
        except (NotLeader, OutcomeUnknown):
            return None  # it was replaced meanwhile
        return leader

    leader = wait_until(accepted, "a leader to stay for a command")
    assert leader is not None
    wait_until(lambda: leader.transfer_leadership().result(60), "a follower fit to lead")
    wait_until(lambda: any(node.status().serving for node in running if node is not leader), "another leader")
    assert leader.transfer_leadership("nobody").result(60) is False


def test_a_reader_error_is_the_readers(nodes: Nodes) -> None:
    """What a reader's function raises comes back to it and harms nothing."""
    node = leader_of([nodes.start()])
    with pytest.raises(ZeroDivisionError):
        node.read(lambda machine: 1 // 0).result(60)
    with pytest.raises(ZeroDivisionError):
        node.local(lambda machine: 1 // 0)
    assert node.propose(b"x").result(60).result == 1


def test_a_full_queue_is_said(nodes: Nodes) -> None:
    """Beyond the bound a proposal fails with Overloaded and is not applied; the others are."""
    machine = ListMachine()
    node = leader_of([nodes.start(machine=machine, queue_commands=50)])
    gate = threading.Event()
    blocker = node.read(lambda m: gate.wait(60))
    futures = [node.propose(b"%d" % number) for number in range(200)]
    gate.set()
    blocker.result(60)
    failed = [future for future in futures if isinstance(future.exception(10), Overloaded)]
    assert failed
    assert all(future.exception(10) is None for future in futures if future not in failed)
    assert node.local(lambda m: len(m.applied)) == len(futures) - len(failed)


def test_stopping_fails_what_waits(nodes: Nodes) -> None:
    """Calls after the stop, and calls that wait for a leader, end with an error instead of never."""
    nodes.peers = {f"m{number}": f"127.0.0.1:{port}" for number, port in enumerate(free_ports(2), 1)}
    node = nodes.start("m1")
    waiting: Future[Any] = node.propose(b"x")
    nodes.stop()
    assert isinstance(waiting.exception(10), (NotLeader, NodeStopped))
    assert isinstance(node.propose(b"x").exception(10), NodeStopped)


class Failing(ListMachine):
    """A machine with a bug."""

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Raise at the second command."""
        if self.applied:
            raise ValueError("a bug")
        return super().apply(index, term, command)


def test_an_exception_in_apply_ends_the_node(nodes: Nodes) -> None:
    """Apply is not tried again and nothing behind the failed command is applied (the process ends, by default)."""
    machine = Failing()
    node = leader_of([nodes.start(machine=machine)])
    node.propose(b"good").result(60)
    node.propose(b"bad")
    node.propose(b"never")
    wait_until(lambda: nodes.fatal, "the fatal error")
    assert isinstance(nodes.fatal[0], ValueError)
    assert machine.applied == [b"good"]


@pytest.mark.parametrize(("entry", "text"), [(b"\x00\x02new", "kind 0 and version 02"), (b"\x02x", "kind 2")])
def test_unknown_entries_end_the_node(nodes: Nodes, entry: bytes, text: str) -> None:
    """A log entry that this build does not know is never skipped: the node ends and names it."""
    directory = nodes.directory / "m1" / "journal"
    journal = Journal(LmdbStore(directory, "c1", "m1"))
    journal.add(b"\x01", 1, 0)
    journal.add(entry, 2, 1)
    journal.setCurrentTerm(1, None)
    journal.sync()
    journal._destroy()
    nodes.start()
    wait_until(lambda: nodes.fatal, "the fatal error")
    assert text in str(nodes.fatal[0])


def damaged_snapshot(directory: Path) -> None:
    """Flip a bit of the body."""
    path = directory / "m1" / "snapshots" / "snapshot"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def lost_snapshot(directory: Path) -> None:
    """Remove the file that the compacted journal continues."""
    (directory / "m1" / "snapshots" / "snapshot").unlink()


@pytest.mark.parametrize("harm", [damaged_snapshot, lost_snapshot])
def test_a_node_refuses_to_start_without_its_snapshot(nodes: Nodes, harm: Callable[[Path], None]) -> None:
    """A damaged or missing snapshot never becomes an empty state."""
    node = leader_of([nodes.start(compact_entries=20)])
    for number in range(60):
        node.propose(b"%d" % number).result(60)
    wait_until(lambda: node.status().log_length < 60, "a snapshot and a shorter log")
    node.propose(b"carries the shorter log to disk").result(60)
    nodes.stop()
    harm(nodes.directory)
    with pytest.raises(StorageDamaged, match="snapshot"):
        nodes.start()


def test_a_directory_serves_one_node(nodes: Nodes) -> None:
    """A second node on the same directory is refused; so is another node's directory."""
    nodes.start("m1")
    with pytest.raises(SettingsRefused, match="in use"):
        nodes.start("m1")
    nodes.stop()
    with pytest.raises(SettingsRefused, match="'m2'"):
        nodes.start("m2", directory=nodes.directory / "m1")


@pytest.mark.parametrize(
    "wrong",
    [{"heartbeat": 0.2}, {"election_max": 0.1}, {"secret": b""}, {"compact_entries": 1}, {"address": "nowhere"}],
)
def test_contradicting_settings_are_refused(nodes: Nodes, wrong: dict[str, Any]) -> None:
    """Settings that cannot work are refused before anything starts."""
    with pytest.raises(SettingsRefused):
        nodes.start(**wrong)


def test_leadership_moves_under_load(nodes: Nodes) -> None:
    """With commands on their way all the time the one that is asked to take over gets the whole log, since new ones
    wait; each is applied once or told to be not proposed."""
    running = nodes.three(**CALM)
    leader = leader_of(running)
    name = leader.status().node_id
    to = next(node.status().node_id for node in running if node is not leader)
    asked: list[Future[Any]] = [leader.propose(b"%d" % number) for number in range(2_000)]
    asked[99].result(60)  # the others are on their way, or wait their turn
    over = leader.transfer_leadership(to)
    asked += [leader.propose(b"%d" % number) for number in range(2_000, 2_050)]
    assert over.result(60) is True
    successor = next(node for node in running if node.status().node_id == to)
    wait_until(lambda: successor.status().serving, "the one that was asked to serve")
    errors = [future.exception(10) for future in asked]
    assert all(error is None or isinstance(error, NotLeader) for error in errors)
    assert all(error is None for error in errors[:100])
    applied = successor.read(lambda machine: list(machine.applied)).result(60)
    done = {b"%d" % number for number, error in enumerate(errors) if error is None}
    assert sorted(applied) == sorted(done)
    assert name != to


def test_a_leader_nobody_can_follow_leads_on(nodes: Nodes) -> None:
    """Where the one that is asked cannot have the whole log in time, nothing changes and what waited is applied."""
    running = nodes.three(**CALM)
    leader = leader_of(running)
    gone = next(node for node in running if node is not leader)
    name = gone.status().node_id
    running.remove(gone)
    nodes.running.remove(gone)
    gone.stop()
    over = leader.transfer_leadership(name)
    waited = leader.propose(b"x")
    assert over.result(60) is False
    assert waited.result(60).result == 1
    assert leader.status().serving


def test_a_thread_that_hangs_does_not_turn(nodes: Nodes) -> None:
    """What feeds a watchdog comes back from a thread that turns, and not from one that is stuck in a command."""
    machine, stuck, free = ListMachine(), threading.Event(), threading.Event()
    apply = machine.apply

    def slow(index: int, term: int, command: bytes) -> object:
        stuck.set()
        assert free.wait(60)
        return apply(index, term, command)

    machine.apply = slow  # type: ignore[method-assign]
    node = leader_of([nodes.start(machine=machine)])
    node.turn().result(60)
    done = node.propose(b"x")
    assert stuck.wait(60)
    turned = node.turn()
    assert not turned.done()
    free.set()
    turned.result(60)
    assert done.result(60).result == 1
