"""Masters whose journal is damaged on the disk, as an operator meets them: real processes."""

import resource
import secrets
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server
from holdfast.client.connection.direct import ask
from holdfast.common.errors import HoldfastError
from holdfast.common.log_events import LogEvent
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.raft.node import EXIT_DISK
from tests.cli.test_commands import document
from tests.cli.test_commands import run as command
from tests.support.waiting import wait_until

_PAGE_BYTES = 4096
#: Offsets in a meta page of LMDB: the roots of its two trees, and its transaction.
_FREE_ROOT, _RECORDS_ROOT, _TRANSACTION = 80, 128, 144
_U64 = struct.Struct("<Q")
_U16 = struct.Struct("<H")
#: Returns which byte, and which bit of it.
Where = Callable[[bytes], tuple[int, int]]


def newest_meta(data: bytes) -> int:
    """Where the meta page that counts begins."""
    return max((0, _PAGE_BYTES), key=lambda base: _U64.unpack_from(data, base + _TRANSACTION)[0])


def leaf(data: bytes, root: int) -> int:
    """Where the first leaf of a tree begins."""
    (page,) = _U64.unpack_from(data, newest_meta(data) + root)
    while _U16.unpack_from(data, page * _PAGE_BYTES + 10)[0] & 1:  # a branch
        low, high = struct.unpack_from("<IH", data, page * _PAGE_BYTES + node(data, page * _PAGE_BYTES, 0))
        page = low | high << 32
    return int(page) * _PAGE_BYTES


def node(data: bytes, page: int, number: int) -> int:
    """Where a node begins, in its page."""
    return int(_U16.unpack_from(data, page + 16 + 2 * number)[0])


def first_free(data: bytes) -> int:
    """Where the number of a free page is written."""
    page = leaf(data, _FREE_ROOT)
    return page + node(data, page, 0) + 8 + 8 + 8  # behind the node's head, its key, and how many there are


#: What one bit does: LMDB looks for a page where there is none, or leaves a page, or writes into a page that is in use,
#: or takes the state before the last vote for the newest.
FLIPS: dict[str, Where] = {
    "root": lambda data: (newest_meta(data) + _RECORDS_ROOT + 2, 0),
    "border": lambda data: (leaf(data, _RECORDS_ROOT) + 13, 3),
    "pointer": lambda data: (leaf(data, _RECORDS_ROOT) + 17, 6),
    "size": lambda data: (leaf(data, _RECORDS_ROOT) + node(data, leaf(data, _RECORDS_ROOT), 0) + 2, 4),
    "free page": lambda data: (first_free(data) + 1, 5),
    "meta page": lambda data: (_PAGE_BYTES - newest_meta(data) + _TRANSACTION + 3, 0),
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters of one test, with something in their journals."""
    with local_cluster(masters=3, workers=1, dir=tmp_path / "cluster") as started:
        with Session(started.endpoints, app="journal") as session:
            for _ in range(30):
                session.register_reduce_shuffle(8)
        yield started


def ended(master: Server) -> str:
    """Start it, and tell how that ended: its exit status, and the last line of its log."""
    master.start(wait=False)
    wait_until(lambda: not master.running or bool(master._readiness()), "it to be ready or gone")
    return f"{master._status()}: {master.log_tail().splitlines()[-1]}" if not master.running else "serves"


def hashes(cluster: LocalCluster) -> set[tuple[int, str]]:
    """How far the masters that answer are, and what they hold."""
    found = document(command("status", "--json", masters=cluster.endpoints))["masters"]
    return {(each.get("applied_index"), each.get("state_hash")) for each in found}


def test_a36_a_master_names_the_damage_in_its_journal(cluster: LocalCluster) -> None:
    """One bit of a journal is flipped while its master is down: it refuses to start, naming file and page and what to
    do, and does not end by a signal, then or later. What it says to do helps: with its directory moved aside it
    catches up from the others."""
    leader = cluster.leader()
    master = next(each for each in cluster.masters if each is not leader)
    master.kill()
    directory = cluster.directory / master.name
    file = directory / "journal" / "data.mdb"
    whole = file.read_bytes()
    reported = {}
    for name, where in FLIPS.items():
        offset, bit = where(whole)
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << bit
        file.write_bytes(damaged)
        reported[name] = ended(master)
        master.kill()
    file.write_bytes(whole)
    ways = (f"{file} is damaged", "page", "move", str(directory))
    wrong = [
        f"{name}: {how}"
        for name, how in reported.items()
        if how[:13] != "exit status 1" or any(each not in how for each in ways)
    ]
    assert not wrong, "\n".join(wrong)
    directory.rename(directory.with_name(f"{master.name}-damaged"))
    master.start()
    wait_until(lambda: len(hashes(cluster)) == 1, "the master to catch up")
    assert ended_well(master)


def filled(master: Server) -> set[int]:
    """Register shuffles at a master until that fails; return those that were acknowledged."""
    instance = secrets.token_bytes(16)
    application = pb.RegisterApplicationRequest(instance=instance, name="full", user="tester", holder=instance)
    ask(master.address, "Shuffles/RegisterApplication", application, pb.RegisterApplicationReply)
    acknowledged: set[int] = set()
    for number in range(10_000):
        shuffle = pb.RegisterShuffleRequest(
            key=pb.ShuffleKey(instance=instance, shuffle=number),
            kind=pb.PARTITION_KIND_REDUCE,
            partitions=500,
            maps=2,
            ack=1,
            holder=instance,
        )
        try:
            ask(master.address, "Shuffles/RegisterShuffle", shuffle, pb.RegisterShuffleReply)
        except HoldfastError:
            return acknowledged
        acknowledged.add(number)
    raise AssertionError("the disk did not fill")


def listed(cluster: LocalCluster) -> set[int]:
    """The shuffles that the masters know."""
    found = document(command("shuffles", "--json", "--limit", 10_000, masters=cluster.endpoints))
    return {each["shuffle"] for each in found["shuffles"]}


def check_reported(master: Server, begun: int) -> None:
    """It ended with the stated status, and its log since `begun` says in one line what is full and what to do."""
    assert master._status() == f"exit status {EXIT_DISK}"
    log = master.log.read_text()[begun:]
    (line_of_failure,) = (line for line in log.splitlines() if LogEvent.RAFT_DISK_FAILED.dotted in line)
    assert "journal cannot be written" in line_of_failure
    assert "free there" in line_of_failure
    assert LogEvent.RAFT_DISK_FAILED.sentence in line_of_failure
    assert "Traceback" not in log


def test_a_master_whose_disk_takes_no_more_says_so_and_loses_nothing(tmp_path: Path) -> None:
    """The journal of the only master cannot grow any more: it ends with status 74 and one line that says what is full,
    and so does each start until there is room. Then it has every shuffle that it acknowledged. It ended with a
    traceback that asked to report a mistake."""
    with local_cluster(1, 1, dir=tmp_path / "cluster") as cluster:
        master = cluster.masters[0]
        (journal,) = (file for file in cluster.directory.rglob("data.mdb") if file.parent.name == "journal")
        begun = len(master.log.read_text())
        most = journal.stat().st_size + 200_000
        resource.prlimit(master.pid, resource.RLIMIT_FSIZE, (most, most))
        acknowledged = filled(master)
        assert acknowledged
        wait_until(lambda: not master.running, "the master to end")
        check_reported(master, begun)
        master.start()
        assert acknowledged <= listed(cluster)
        with Session(cluster.endpoints, app="after") as session:
            session.register_reduce_shuffle(500)


def ended_well(master: Server) -> bool:
    """Whether it ends as it is told to."""
    return master.stop() == 0
