"""What a map file takes and refuses."""

import errno
from itertools import pairwise

import pytest

from holdfast.common.errors import CorruptError, GiveUpError, HoldfastError, ProtocolError, RerouteError
from holdfast.common.formats.messages import Ack, FileTotals, PushFlag
from holdfast.common.statuses import Status
from tests.support.map_data import file_key, make_content, shuffle_key
from tests.support.storage_data import append_all, open_store, read, write
from tests.support.storage_env import Disk

KEY = file_key(shuffle_key())


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    store = open_store(tmp_path / "d")
    yield store
    store.close()


def frame(content, at=0):
    """One frame's arguments of `append`."""
    one = content.frames[at]
    return one.region, one.flags, one.runs, memoryview(one.body)


@pytest.mark.parametrize("ack", list(Ack))
def test_written_is_read_back(store, ack):
    """Regions, a broadcast region included, come back byte for byte, by any range of partitions."""
    content = make_content(KEY, partitions=200, regions=3, broadcast=True)
    writer = append_all(store, content, ack)
    if ack is Ack.SYNCED:
        store.sync(writer).result(30)
    answer = store.seal(KEY, content.totals).result(30)
    assert answer.totals == content.totals
    for begin, end in ((0, 200), (0, 1), (63, 66), (199, 200), (64, 128)):
        assert read(store, [KEY], begin, end) == content.pieces(begin, end)


def test_every_flipped_bit_is_refused(store):
    """A batch with one wrong byte is CORRUPT, wherever it is, and the file takes nothing more."""
    content = make_content(KEY, partitions=2, regions=1, batch_bytes=20)
    region, flags, runs, body = frame(content)
    for at in range(len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 0x10
        writer = store.begin(KEY, 2, Ack.WRITTEN)
        with pytest.raises(CorruptError):
            writer.append(region, flags, runs, memoryview(damaged))
        with pytest.raises(RerouteError) as refused:
            writer.append(region, flags, runs, body)
        assert refused.value.status is Status.NOT_SEALED


def swapped(content):
    """The runs of the first frame in the wrong order."""
    one = content.frames[0]
    first, second = one.runs[:2]
    cut = first[1]
    return 0, 0, [second, first], memoryview(one.body[cut : cut + second[1]] + one.body[:cut])


def shifted(content):
    """Batches under the next partition's number."""
    region, flags, runs, body = frame(content)
    return region, flags, [(partition + 1, size) for partition, size in runs], body


def with_runs(runs_of):
    """The first frame with other runs."""

    def change(content):
        region, flags, runs, body = frame(content)
        return region, flags, runs_of(runs), body

    return change


@pytest.mark.parametrize(
    ("change", "status"),
    [
        pytest.param(swapped, Status.BAD_ORDER, id="unsorted"),
        pytest.param(lambda content: (1, *frame(content)[1:]), Status.BAD_ORDER, id="region out of turn"),
        pytest.param(lambda one: (0, int(PushFlag.BROADCAST), *frame(one)[2:]), Status.BAD_FRAME, id="broadcast flag"),
        pytest.param(shifted, Status.CORRUPT, id="misdirected"),
        pytest.param(with_runs(lambda runs: [(4_000, runs[0][1])]), Status.BAD_FRAME, id="no such partition"),
        pytest.param(with_runs(lambda runs: runs[:-1]), Status.BAD_FRAME, id="run missing"),
        pytest.param(lambda one: (*frame(one)[:3], frame(one)[3][:-1]), Status.BAD_FRAME, id="cut"),
        pytest.param(
            lambda one: frame(make_content(file_key(shuffle_key(), 1), batch_bytes=50)), Status.CORRUPT, id="other map"
        ),
    ],
)
def test_wrong_frames_are_refused(store, change, status):
    """Each wrong frame gets its status, and none of it is written."""
    content = make_content(KEY, partitions=8, regions=1, batch_bytes=50)
    writer = store.begin(KEY, 8, Ack.WRITTEN)
    with pytest.raises(HoldfastError) as refused:
        writer.append(*change(content))
    assert refused.value.status is status
    assert str(KEY) in str(refused.value)
    assert writer.path.stat().st_size == 0


def test_a_missing_or_repeated_batch_is_refused(store):
    """Numbers of a partition's batches go 0, 1, 2 …; the same frame twice is BAD_ORDER."""
    content = make_content(KEY, partitions=1, regions=2)
    writer = store.begin(KEY, 1, Ack.WRITTEN)
    with pytest.raises(GiveUpError) as refused:
        writer.append(0, PushFlag.END, content.frames[1].runs, memoryview(content.frames[1].body))
    assert refused.value.status is Status.BAD_ORDER


def test_equal_partitions_may_follow_one_another(store):
    """Runs of one partition, over frames too, become one entry."""
    content = make_content(KEY, partitions=1, regions=1)
    last = make_content(KEY, partitions=1, regions=1)
    writer = store.begin(KEY, 1, Ack.WRITTEN)
    writer.append(0, 0, [(0, 0)], memoryview(b""))
    writer.append(0, 0, content.frames[0].runs, memoryview(content.frames[0].body))
    writer.append(0, PushFlag.END, [], memoryview(b""))
    assert store.seal(KEY, last.totals).result(30).totals == last.totals
    assert read(store, [KEY], 0, 1) == content.pieces(0, 1)


@pytest.mark.parametrize("name", ["regions", "batches", "size_bytes", "crc_sum"])
def test_other_totals_are_corrupt(store, name):
    """Totals that differ in any number drop the file."""
    content = make_content(KEY)
    append_all(store, content)
    values = {field: getattr(content.totals, field) for field in ("regions", "batches", "size_bytes", "crc_sum")}
    with pytest.raises(CorruptError):
        store.seal(KEY, FileTotals(**(values | {name: values[name] + 1})))
    with pytest.raises(RerouteError) as gone:
        store.seal(KEY, content.totals)
    assert gone.value.status is Status.UNKNOWN_FILE


def test_an_unfinished_region_cannot_be_sealed(store):
    """A region without END is no region."""
    content = make_content(KEY, regions=1)
    writer = store.begin(KEY, 8, Ack.WRITTEN)
    writer.append(*frame(content))
    with pytest.raises(CorruptError):
        store.seal(KEY, writer.totals())


def test_bounds_are_checked(store):
    """No partitions at all, or too many, are refused before anything is allocated."""
    for partitions in (0, 1_000_001):
        with pytest.raises(ProtocolError):
            store.begin(KEY, partitions, Ack.WRITTEN)


def test_an_empty_file_is_a_file(store):
    """A map that wrote nothing has a file without regions."""
    store.begin(KEY, 5, Ack.WRITTEN)
    nothing = FileTotals(regions=0, batches=0, size_bytes=0, crc_sum=0)
    assert store.seal(KEY, nothing).result(30).totals == nothing
    assert read(store, [KEY], 0, 5) == {}


class Failing(Disk):
    """Fails at the steps named in `broken`, with `error`."""

    def __init__(self, error: int) -> None:
        self.error = error
        self.broken: set[str] = set()

    def _strike(self, step: str) -> None:
        if step in self.broken:
            raise OSError(self.error, "a failure made on purpose")

    def write(self, handle, data, offset):
        self._strike("write")
        super().write(handle, data, offset)

    def sync(self, handle):
        self._strike("sync")
        super().sync(handle)

    def commit(self, transaction):
        self._strike("commit")
        super().commit(transaction)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", ["write", "sync", "commit"])
def test_a_failure_ends_the_copy_for_good(tmp_path, step, error):
    """A write, sync or commit that fails makes the copy FAILED, after a restart too; what else is there is served."""
    disk = Failing(error)
    store = open_store(tmp_path / "d", disk=disk)
    other = make_content(file_key(shuffle_key(), 1))
    write(store, other)
    content = make_content(KEY)
    writer = store.begin(KEY, content.partitions, Ack.WRITTEN)
    disk.broken = {step}

    def finish():
        for one in content.frames:
            writer.append(one.region, one.flags, one.runs, memoryview(one.body))
        store.seal(KEY, content.totals).result(30)

    with pytest.raises(RerouteError) as failed:
        finish()
    disk.broken = set()
    full = (step, error) == ("write", errno.ENOSPC)
    assert failed.value.status is (Status.DISK_FULL if full else Status.FAILED_COPY)
    assert store.directories()[0].healthy == (error == errno.ENOSPC)
    refused_for_good(store, content, other)
    store.close()
    store = open_store(tmp_path / "d", disk=disk)
    refused_for_good(store, content, other)
    assert store.forget([KEY.shuffle]).result(30) == 1
    assert write(store, content).totals == content.totals
    store.close()


def refused_for_good(store, content, other):
    """Whatever is asked of the failed file is FAILED_COPY; the other one is served."""
    asks = (
        lambda: store.begin(KEY, 8, Ack.WRITTEN),
        lambda: store.seal(KEY, content.totals),
        lambda: read(store, [KEY], 0, 8),
    )
    for ask in asks:
        with pytest.raises(RerouteError) as refused:
            ask()
        assert refused.value.status is Status.FAILED_COPY
    assert read(store, [other.key], 0, 8) == other.pieces(0, 8)


def test_big_files_start_write_back_early(tmp_path, monkeypatch):
    """The kernel is asked for every part of a big file once, in order; nothing is asked for a small one."""
    monkeypatch.setattr("holdfast.worker.storage.engine.writer.WRITE_BACK_BYTES", 10_000)
    asked = []

    class Watched(Disk):
        """Notes what is asked of the kernel."""

        def start_write_back(self, handle, offset, length):
            asked.append((offset, length))
            super().start_write_back(handle, offset, length)

    store = open_store(tmp_path / "d", disk=Watched(), sync_threads=1)
    write(store, make_content(file_key(shuffle_key(), 1), partitions=1, regions=1, batch_bytes=100))
    assert not asked
    content = make_content(KEY, partitions=4, regions=20, batch_bytes=2_000)
    write(store, content)
    assert len(asked) > 5
    assert all(one[0] + one[1] == two[0] for one, two in pairwise(asked))
    assert asked[0][0] == 0
    assert read(store, [KEY], 0, 4) == content.pieces(0, 4)
    store.close()
