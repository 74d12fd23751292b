"""Payloads that cannot be undone, or not be made: a reader and a writer say so, and no row is missing unseen."""

import pyarrow
import pytest

from holdfast.client import Codec, ReduceShuffle, Session, compress
from holdfast.client.compress import Buffer, Compressor
from holdfast.client.read.manifests import PushManifest
from holdfast.common.errors import ConfigError, CorruptError, GiveUpError
from holdfast.common.formats.reduce_layouts import ReduceManifest, ReduceWinners
from holdfast.common.ids import AttemptId
from tests.cluster.shapes import Shape
from tests.support.reduce_client import contents, push, read
from tests.support.row_planes import planes, row

SHARED = Shape(masters=1, workers=2)
#: It shrinks, so that it is sent compressed.
TEXT = b"a row of the table, " * 100


class _Damages:
    """A codec in the memory of a writer that has a bad bit: what it makes is not what it should be."""

    def compress(self, data: object) -> bytes:
        return b"\xff" * 16


def damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on what this process compresses is damaged before it gets its checksum."""
    monkeypatch.setattr(compress, "_codec", lambda *_: _Damages())


@pytest.mark.parametrize("copies", [1, 2])
def test_a36_a_pushed_row_that_cannot_be_undone_is_an_error(
    session: Session, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """A batch with the right checksum whose payload is not its codec's: the read fails by name, and does not end
    without that row because the batch was counted before it was undone."""
    shuffle = session.register_reduce_shuffle(1, replication=copies)
    with monkeypatch.context() as now:
        damage(now)
        status = push(shuffle, 0, 1, [(0, TEXT)], codec=Codec.LZ4)
    shuffle.commit([status, push(shuffle, 1, 2, [(0, TEXT)], codec=Codec.LZ4)])
    with pytest.raises(CorruptError, match=r"shuffle .*chunk 0 from worker \d+: a payload cannot be decompressed"):
        read(shuffle, [0])


@pytest.mark.parametrize("copies", [1, 2])
def test_a36_a_written_row_that_cannot_be_undone_is_an_error(
    session: Session, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """The same of a MAP shuffle."""
    shuffle = session.register_map_shuffle(1, replication=copies)
    with monkeypatch.context() as now:
        damage(now)
        with shuffle.writer(0, 1, codec=Codec.LZ4) as writer:
            status = writer.close([(0, TEXT)])
    shuffle.commit([status])
    with pytest.raises(
        CorruptError, match=r"shuffle .*partition 0 .*from worker \d+: a payload cannot be decompressed"
    ):
        list(shuffle.reader([0]))


def packed(compressor: Compressor, partition: int, payload: Buffer) -> tuple[Codec, Buffer]:
    """What a writer makes of planes, as a Java task has them."""
    small = bytes(pyarrow.Codec("lz4_raw").compress(payload))
    return Codec.LZ4_ROWS, len(payload).to_bytes(4, "little") + small


def test_planes_that_a_java_task_pushed_are_read_as_rows(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of Spark SQL come back as they were, and planes with something wrong in them, their checksum right, are an
    error that names shuffle, partition, chunk and worker."""
    rows = [row(3, bytes(8 * (each % 4))) for each in range(500)]
    good = planes(rows, 3)
    for payload in (good, good[:-8], bytes(4) + good[4:], good[:8] + b"x" + good[9:]):
        shuffle = session.register_reduce_shuffle(1)
        with monkeypatch.context() as now:
            now.setattr(Compressor, "compress", packed)
            shuffle.commit([push(shuffle, 0, 1, [(0, payload)], codec=Codec.LZ4)])
        if payload == good:
            assert read(shuffle, [0]) == contents({0: [(0, b"".join(rows))]})
            continue
        with pytest.raises(CorruptError, match=r"shuffle .*chunk 0 from worker \d+: a payload cannot be .*: planes of"):
            read(shuffle, [0])


class _Exhausted:
    """A codec that finds no memory."""

    def compress(self, data: object) -> bytes:
        raise MemoryError


def exhaust(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing can be compressed."""
    monkeypatch.setattr(compress, "_codec", lambda *_: _Exhausted())


def test_a01_a_push_writer_that_lost_a_row_takes_nothing_more(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was taken, held back for its LAST and could not be made into a batch later: whoever passes over that
    error gets no status, so that nobody commits an attempt without the row."""
    shuffle = session.register_reduce_shuffle(1)
    with shuffle.writer(0, 1, codec=Codec.LZ4) as writer:
        writer.write(0, TEXT)
        with monkeypatch.context() as now:
            exhaust(now)
            with pytest.raises(MemoryError):
                writer.write(0, b"the next row")
        with pytest.raises(GiveUpError, match="nothing more can be written"):
            writer.write(0, TEXT)
        with pytest.raises(GiveUpError, match="nothing more can be written"):
            writer.close()


def test_a01_a_close_that_failed_is_not_made_good_by_another(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the row is lost in `close`: a second `close` does not say that all is well."""
    shuffle = session.register_reduce_shuffle(1)
    with shuffle.writer(0, 1, codec=Codec.LZ4) as writer:
        writer.write(0, TEXT)
        with monkeypatch.context() as now:
            exhaust(now)
            with pytest.raises(MemoryError):
                writer.close()
        with pytest.raises(GiveUpError, match="nothing more can be written"):
            writer.close()


def test_a01_a_wrong_argument_ends_nothing(session: Session) -> None:
    """What is refused before anything was taken leaves the writer as it was."""
    shuffle = session.register_reduce_shuffle(1)
    with shuffle.writer(0, 1) as writer:
        writer.write(0, TEXT)
        with pytest.raises(ConfigError, match="0 to 0"):
            writer.write(9, TEXT)
        status = writer.close()
    shuffle.commit([status])
    assert read(shuffle, [0]) == contents({0: [(0, TEXT)]})


@pytest.mark.parametrize("copies", [1, 2])
def test_a46_a_map_of_which_nothing_comes_is_missed(session: Session, copies: int) -> None:
    """A shuffle so wide that the commit does not say which map wrote for which partition, and a worker whose copy is
    shorter than what it sealed: without the second map that read would look whole. The masters know the size."""
    shuffle = session.register_reduce_shuffle(1, replication=copies)
    wrote = [push(shuffle, map_id, map_id + 1, [(0, TEXT)]) for map_id in range(2)]
    shuffle._commit(ReduceWinners(1, (wrote[0].attempt, wrote[1].attempt)).encode())
    assert read(shuffle, [0]) == contents({0: [(0, TEXT)], 1: [(0, TEXT)]})

    short = session.register_reduce_shuffle(1, replication=copies)
    first = push(short, 0, 1, [(0, TEXT)])
    short._commit(ReduceWinners(1, (first.attempt, AttemptId(2))).encode())
    reported, whole = short.manifest(), shuffle.manifest().epochs.epochs[0]
    (epoch,) = reported.epochs.epochs
    sealed = tuple([copy._replace(size_bytes=whole.copies[0].size_bytes) for copy in epoch.copies])
    assert whole.copies[0].size_bytes > epoch.copies[0].size_bytes > 0
    array = ReduceManifest(1, (epoch._replace(copies=sealed),)).encode()
    short._manifest = PushManifest(reported.winners_array, array, reported.addresses, reported.sights)
    ReduceShuffle._manifests.pop(short.key)
    with pytest.raises(
        CorruptError, match=rf"partition 0 .* bytes .* came, but {whole.copies[0].size_bytes} were sealed"
    ):
        read(short, [0])
