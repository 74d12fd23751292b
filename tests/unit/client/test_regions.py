"""From payloads to frames and back: regions, assembling, completeness, without a socket."""

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.checks import compression_of
from holdfast.client.compress import EVERY, MISSES, Compression, Compressor, decompress
from holdfast.client.core.read.check import FileCheck, IncompleteError, writes_to
from holdfast.client.read.assemble import Assembler
from holdfast.client.write.region import FRAME_BYTES, MapPushFrame, MapRegions
from holdfast.client.write.spool import Spool
from holdfast.client.write.status import MapStatus, winners_of
from holdfast.common.errors import ConfigError, ConflictError, CorruptError, ProtocolError
from holdfast.common.formats.batch import HEADER_BYTES, MORE, PAYLOAD_BYTES_MAX, Batch, Codec, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.layouts import MapWinner
from holdfast.common.formats.messages import PushFlag
from holdfast.common.ids import (
    BROADCAST_PARTITION,
    AttemptId,
    BatchNo,
    Epoch,
    Generation,
    Instance,
    MapId,
    PartitionId,
    ShuffleId,
    ShuffleKey,
    WorkerId,
)
from holdfast.common.limits import MIB, REGION_BYTES_MAX

KEY = ShuffleKey(Instance(b"i" * 16), ShuffleId(1), Generation(0))
PARTITIONS = 12


def regions(codec: Codec = Codec.NONE) -> MapRegions:
    return MapRegions(KEY, MapId(3), AttemptId(5), PARTITIONS, Compression(codec))


def batches_of(frames: list[MapPushFrame]) -> list[tuple[int, Batch]]:
    """Parse frames the way a worker would store them."""
    found = []
    for frame in frames:
        body = memoryview(b"".join(bytes(piece) for piece in frame.pieces))
        at = 0
        for partition, size in frame.runs:
            seed = partition_seed(KEY, PartitionId(partition))
            found += [(partition, batch) for batch in parse_batches(body[at : at + size], seed)]
            at += size
        assert at == len(body) == frame.size
    return found


def winner_of(writer: MapRegions) -> MapWinner:
    totals = writer.totals()
    return MapWinner(
        attempt=AttemptId(5),
        epoch=Epoch(0),
        workers=(WorkerId(1),),
        batches=totals.batches,
        size_bytes=totals.size_bytes,
        partitions=writer.bitmap(),
    )


def full_check(winner: MapWinner, begin: int = 0, end: int = PARTITIONS) -> FileCheck:
    return FileCheck(MapId(3), winner, PartitionId(begin), PartitionId(end))


def test_a_map_of_one_region_has_no_empty_batches() -> None:
    """LAST rides on the last batch of each partition of the final region."""
    writer = regions()
    frames = list(writer.region([(1, b"a"), (1, b"b"), (4, b"c")], final=True))
    assert [(p, bytes(b.payload), b.totals is not None) for p, b in batches_of(frames)] == [
        (1, b"a", False),
        (1, b"b", True),
        (4, b"c", True),
    ]
    assert frames[-1].flags == PushFlag.END
    assert writer.totals().batches == 3


def test_partitions_absent_from_the_final_region_get_an_empty_last() -> None:
    """In order, between those that are there."""
    writer = regions()
    list(writer.region([(0, b"x"), (5, b"y"), (9, b"z")]))
    frames = list(writer.region([(3, b"q"), (5, b"r")], final=True))
    assert [(p, bytes(b.payload)) for p, b in batches_of(frames)] == [(0, b""), (3, b"q"), (5, b"r"), (9, b"")]
    assert all(b.totals for _, b in batches_of(frames))


def test_an_empty_map_has_no_region() -> None:
    """Nothing written: no frames, no batches, an empty bitmap."""
    writer = regions()
    assert list(writer.region([], final=True)) == []
    assert writer.totals().regions == 0
    assert not any(writer.bitmap())


def test_wrong_input_is_refused() -> None:
    """Descending partitions, unknown ones and too large broadcasts are the caller's mistakes, told as ValueError."""
    with pytest.raises(ValueError, match="ascend"):
        list(regions().region([(2, b"a"), (1, b"b")]))
    with pytest.raises(ValueError, match="partition 12"):
        list(regions().region([(PARTITIONS, b"a")], final=True))
    with pytest.raises(ValueError, match="ascend"):
        list(regions().region([(-1, b"a")]))
    with pytest.raises(ValueError, match="broadcast region holds"):
        list(regions().broadcast([bytes(8 * MIB)] * 9))


def test_a44_what_a_region_does_not_hold_goes_on_in_the_next() -> None:
    """More records than a region holds, and a record that is longer than one: regions stay below their bound, each
    ends, and the partitions are whole, with LAST on their last batch."""
    long = random.Random(1).randbytes(REGION_BYTES_MAX + MIB)
    parts: list[tuple[int, bytes]] = [(0, bytes(8 * MIB))] * 9 + [(3, long), (4, b"c")]
    writer = regions()
    frames = list(writer.region(parts, final=True))
    sizes = Counter[int]()
    for frame in frames:
        sizes[frame.region] += frame.size
    assert list(sizes) == list(range(writer.totals().regions))
    assert len(sizes) > 2
    assert max(sizes.values()) <= REGION_BYTES_MAX
    assert [frame.region for frame in frames if frame.flags & PushFlag.END] == list(sizes)
    check, found = full_check(winner_of(writer)), Counter[int]()
    for partition, batch in batches_of(frames):
        assert check.admit(partition, batch)
        found[partition] += len(batch.payload)
    check.finish()
    assert found == {0: 72 * MIB, 3: len(long), 4: 1}


def test_a_payload_longer_than_a_batch_goes_in_pieces() -> None:
    """Pieces are flagged MORE but the last; LAST comes on the last piece only."""
    payload = random.Random(1).randbytes(PAYLOAD_BYTES_MAX + 1000)
    frames = list(regions().region([(2, payload)], final=True))
    (_, first), (_, second) = batches_of(frames)
    assert first.flags & MORE
    assert first.totals is None
    assert not second.flags & MORE
    assert second.totals is not None
    assert bytes(first.payload) + bytes(second.payload) == payload


def test_frames_are_about_their_size_and_many_pieces_are_joined() -> None:
    """No frame is above the target unless one batch is; many small batches do not become many buffers."""
    parts = [(p, bytes(1000)) for p in range(PARTITIONS) for _ in range(500)]
    frames = list(regions().region(parts))
    assert all(frame.size <= FRAME_BYTES for frame in frames)
    assert all(len(frame.pieces) == 1 for frame in frames)
    assert [bool(frame.flags & PushFlag.END) for frame in frames] == [False] * (len(frames) - 1) + [True]


def test_a_broadcast_region_stands_alone() -> None:
    """It names no partition, ends itself, and there is one at most."""
    writer = regions()
    (frame,) = writer.broadcast([b"one", b"two"])
    assert frame.flags == PushFlag.BROADCAST | PushFlag.END
    assert [(p, bytes(b.payload), bool(b.totals)) for p, b in batches_of([frame])] == [
        (BROADCAST_PARTITION, b"one", False),
        (BROADCAST_PARTITION, b"two", True),
    ]
    assert not any(writer.bitmap())
    with pytest.raises(ValueError, match="one broadcast region"):
        list(writer.broadcast([b"three"]))


@settings(max_examples=60)
@given(st.data())
def test_what_is_written_is_read_whatever_the_cuts(data: st.DataObject) -> None:
    """Random regions, cut into random frames: the assembler and the check give back exactly the records."""
    sizes = st.sampled_from([0, 1, 11, 27, 28, 29, 40, 500])
    region = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), sizes), max_size=8).map(sorted)
    rng = random.Random(data.draw(st.integers(0, 1000)))
    writer, wanted, stored = regions(), [], []
    plans = data.draw(st.lists(region, min_size=1, max_size=4))
    for index, plan in enumerate(plans):
        parts = [(p, rng.randbytes(size)) for p, size in plan]
        wanted += [(p, payload) for p, payload in parts if payload]
        for frame in writer.region(parts, final=index == len(plans) - 1):
            body, at = b"".join(bytes(piece) for piece in frame.pieces), 0
            for partition, size in frame.runs:
                stored.append((frame.region, partition, body[at : at + size]))
                at += size
    check, assembler, got = full_check(winner_of(writer)), Assembler(), []
    for region_number, partition, run in stored:
        cuts = sorted(rng.randrange(len(run) + 1) for _ in range(3))
        for start, end in zip([0, *cuts], [*cuts, len(run)], strict=True):
            for buffer in assembler.feed((0, region_number, partition), memoryview(run)[start:end]):
                for batch in parse_batches(memoryview(buffer), partition_seed(KEY, PartitionId(partition))):
                    assert check.admit(partition, batch)
                    if len(batch.payload):
                        got.append((partition, bytes(batch.payload)))
    assembler.end()
    check.finish()
    assert got == wanted


def test_the_assembler_names_a_cut_batch() -> None:
    """Going on to another place in the middle of a batch is an error, and so is the end."""
    (frame,) = regions().region([(0, b"payload")], final=True)
    run = memoryview(b"".join(bytes(piece) for piece in frame.pieces))
    assembler = Assembler()
    assert assembler.feed((0, 0, 0), run[:30]) == []
    with pytest.raises(CorruptError, match="cut"):
        assembler.feed((0, 0, 1), run)
    with pytest.raises(CorruptError, match="not a batch"):
        Assembler().feed((0, 0, 0), memoryview(bytes(100)))


def test_assembled_payloads_are_aligned_for_arrow() -> None:
    """A batch that was cut over frames is put where its payload begins at a multiple of eight."""
    import ctypes

    for final in (False, True):
        frames = list(regions().region([(0, bytes(1000))], final=final))
        run = memoryview(b"".join(bytes(piece) for piece in frames[0].pieces))
        assembler = Assembler()
        assembler.feed((0, 0, 0), run[:700])
        (buffer,) = assembler.feed((0, 0, 0), run[700:])
        (batch,) = parse_batches(memoryview(buffer), partition_seed(KEY, PartitionId(0)))
        address = ctypes.addressof(ctypes.c_char.from_buffer(batch.payload))
        assert address % Assembler.ALIGNMENT == 0


def whole_file() -> tuple[FileCheck, list[tuple[int, Batch]]]:
    writer = regions()
    frames = [*writer.region([(1, b"a"), (2, b"b")]), *writer.region([(1, b"c")], final=True)]
    return full_check(winner_of(writer)), batches_of(frames)


def test_duplicates_are_dropped() -> None:
    """The same file read a second time from its start adds nothing and breaks nothing."""
    check, batches = whole_file()
    assert all(check.admit(*each) for each in batches)
    assert not any(check.admit(*each) for each in batches)
    check.finish()


def test_losers_are_dropped_and_then_missed() -> None:
    """Batches of another attempt or map never count, so a file of only such is incomplete."""
    check, batches = whole_file()
    for partition, batch in batches:
        assert not check.admit(partition, batch._replace(attempt=AttemptId(6)))
        assert not check.admit(partition, batch._replace(map=MapId(4)))
    with pytest.raises(IncompleteError, match="nothing came"):
        check.finish()


@pytest.mark.parametrize("missing", range(4))
def test_any_missing_batch_is_noticed(missing: int) -> None:
    """Leave out one batch of a file: a gap, a missing LAST or missing totals, never silence."""
    check, batches = whole_file()
    assert len(batches) == 4
    del batches[missing]
    with pytest.raises(IncompleteError):  # noqa: PT012 - either place may notice
        for partition, batch in batches:
            check.admit(partition, batch)
        check.finish()


def test_what_should_not_be_there_is_noticed() -> None:
    """Batches of a partition without a bit, outside the range, after LAST, or with other totals are errors."""
    check, batches = whole_file()
    partition, first = batches[0]
    with pytest.raises(IncompleteError, match="status has none"):
        check.admit(7, first)
    narrow = full_check(check.winner, 2, 3)
    with pytest.raises(IncompleteError, match="not asked for"):
        narrow.admit(partition, first)
    for each in batches:
        check.admit(*each)
    with pytest.raises(IncompleteError, match="after the LAST"):
        check.admit(partition, first._replace(number=BatchNo(first.number + 9)))
    fresh, batches = whole_file()
    with pytest.raises(IncompleteError, match="totals"):  # noqa: PT012 - the first ones are fine
        for number, batch in batches:
            fresh.admit(number, batch._replace(totals=(batch.number + 1, 1)) if batch.totals else batch)


@given(st.integers(0, 2**PARTITIONS - 1), st.integers(0, PARTITIONS - 1), st.integers(1, PARTITIONS))
def test_writes_to_is_the_bitmap(bits: int, begin: int, length: int) -> None:
    """A file is asked for exactly if a bit of the range is set."""
    end = min(begin + length, PARTITIONS)
    winner = MapWinner(
        attempt=AttemptId(1),
        epoch=Epoch(0),
        workers=(WorkerId(1),),
        batches=0,
        size_bytes=0,
        partitions=bits.to_bytes(2, "little"),
    )
    wanted = any(bits >> partition & 1 for partition in range(begin, end))
    assert writes_to(winner, PartitionId(begin), PartitionId(end)) == wanted


def test_spool_gives_back_from_memory_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames beyond the memory bound move to a file without a name and read back equal."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = Spool(memory_bytes=1000)
    bodies = [random.Random(i).randbytes(400) for i in range(10)]
    for body in bodies:
        frame = MapPushFrame(0)
        frame.add(1, (body[:100], body[100:]))
        spool.add(frame)
        assert spool.in_memory <= 1000
    assert [b"".join(bytes(piece) for piece in spool.pieces(index)) for index in range(10)] == bodies
    assert spool.frame(0).runs == [(1, 400)]
    assert list(tmp_path.iterdir()) == []
    spool.close()


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_compression_goes_both_ways(codec: Codec) -> None:
    """What shrinks is compressed and comes back equal; what does not, or is small, is left alone."""
    compressor = Compressor(Compression(codec))
    text = b"a text that repeats itself, " * 100
    used, small = compressor.compress(0, text)
    assert used is codec
    assert len(small) < len(text) // 2
    assert bytes(decompress(used, small)) == text
    assert compressor.compress(0, b"short") == (Codec.NONE, b"short")
    noise = random.Random(1).randbytes(4000)
    assert compressor.compress(0, noise) == (Codec.NONE, noise)
    assert compressor.compress(0, text)[0] is Codec.NONE, "after noise the next few are not tried"


def test_the_level_of_zstd_is_what_the_caller_says() -> None:
    """Level 19 leaves less than level 1, which is that of "zstd", and readers undo all of them alike; what is no level
    is refused at the call."""
    words = random.Random(2)
    text = b" ".join(b"%d" % words.choice((12, 345, 6789, words.randrange(5_000))) for _ in range(20_000))
    sizes = []
    for said in ("zstd", "zstd:1", "ZSTD:19"):
        used, small = Compressor(compression_of("codec", said)).compress(0, text)
        assert bytes(decompress(used, small)) == text
        sizes.append(len(small))
    assert sizes[0] == sizes[1] > 1.05 * sizes[2]
    for wrong in ("zstd:23", "zstd:", "zstd:high", "lz4:9", "gzip", 2, None):
        with pytest.raises(ConfigError, match="`codec` is none, lz4, zstd, or zstd:LEVEL with a level of -131072 to"):
            compression_of("codec", wrong)


def test_a25_what_does_not_shrink_concerns_its_own_partition() -> None:
    """A payload that does not shrink switches compression off for no other partition, nor does it where many in a row
    do not shrink: partitions of which nothing is known are then tried less often, those that shrink always."""
    compressor = Compressor(Compression(Codec.LZ4))
    rng = random.Random(1)
    text = b"a text that repeats itself, " * 100
    assert compressor.compress(7, text)[0] is Codec.LZ4
    for partition in range(100, 200):
        assert compressor.compress(partition, rng.randbytes(4000))[0] is Codec.NONE
        assert compressor.compress(7, text)[0] is Codec.LZ4
    for partition in range(200, 200 + 2 * MISSES):
        assert compressor.compress(partition, rng.randbytes(4000))[0] is Codec.NONE
    unknown = [compressor.compress(1_000 + each, text)[0] for each in range(2 * EVERY)]
    first = unknown.index(Codec.LZ4)
    assert first < EVERY
    assert set(unknown[first:]) == {Codec.LZ4}, "what shrinks ends that"


def test_damaged_compressed_payloads_are_corrupt() -> None:
    """A length that cannot be and bytes that are none of the codec's end as CorruptError."""
    with pytest.raises(CorruptError, match="without its length"):
        decompress(Codec.LZ4, b"ab")
    with pytest.raises(CorruptError, match="claims"):
        decompress(Codec.LZ4, b"\xff\xff\xff\xff" + bytes(10))
    with pytest.raises(CorruptError):
        decompress(Codec.ZSTD, (1000).to_bytes(4, "little") + bytes(10))


def status(map_id: int, attempt: int = 1, partitions: int = PARTITIONS) -> MapStatus:
    winner = MapWinner(
        attempt=AttemptId(attempt),
        epoch=Epoch(2),
        workers=(WorkerId(1), WorkerId(2)),
        batches=3,
        size_bytes=99,
        partitions=bytes((partitions + 7) // 8),
    )
    return MapStatus(KEY, MapId(map_id), partitions, winner)


def test_a_status_survives_its_bytes() -> None:
    """to_bytes and from_bytes are inverse; other bytes are refused."""
    assert MapStatus.from_bytes(status(5).to_bytes()) == status(5)
    with pytest.raises(ProtocolError):
        MapStatus.from_bytes(b"x")
    with pytest.raises(ProtocolError):
        MapStatus.from_bytes(status(5).to_bytes()[:-3])


def test_winners_need_every_map_once() -> None:
    """A gap, two attempts of one map or another number of partitions is refused before the masters hear of it."""
    assert len(winners_of([status(1), status(0)], KEY, PARTITIONS).maps) == 2
    with pytest.raises(ConflictError, match="map 0"):
        winners_of([status(1)], KEY, PARTITIONS)
    with pytest.raises(ConflictError, match="two attempts"):
        winners_of([status(0), status(0, attempt=2)], KEY, PARTITIONS)
    with pytest.raises(ConflictError, match="partitions"):
        winners_of([status(0, partitions=8)], KEY, PARTITIONS)
    with pytest.raises(ConflictError, match="was written for"):
        winners_of([status(0)], KEY._replace(shuffle=ShuffleId(99)), PARTITIONS)


assert HEADER_BYTES == 28
