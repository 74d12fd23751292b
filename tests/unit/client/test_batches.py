"""What a push writer makes of payloads: batches with numbers, LAST once per partition, and the bitmap."""

import random
from typing import Any

import numpy as np
import pytest

from holdfast.client.compress import Compression, decompress
from holdfast.client.write.batches import RECORD_BYTES_MAX, PushBatch, PushBatches
from holdfast.client.write.status import PushStatus, push_winners_of
from holdfast.common.errors import ConfigError, ConflictError, ProtocolError
from holdfast.common.formats.batch import Batch, Codec, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.ids import AttemptId, MapId, PartitionId
from holdfast.common.limits import KIB, MIB
from tests.unit.common.samples import SHUFFLE

PARTITIONS = 11


def maker(codec: Codec = Codec.NONE) -> PushBatches:
    return PushBatches(SHUFFLE, MapId(3), AttemptId(9), PARTITIONS, Compression(codec))


def parsed(made: list[PushBatch], partition: int) -> list[Batch]:
    """The batches of a partition, verified; sizes and numbers are those that were said."""
    found = []
    for batch in made:
        if batch.partition == partition:
            data = b"".join(batch.pieces)
            (one,) = parse_batches(memoryview(data), partition_seed(SHUFFLE, PartitionId(partition)))
            assert (len(data), one.number) == (batch.size, batch.number)
            found.append(one)
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_every_payload_comes_back_in_order(codec: Codec) -> None:
    """Numbers ascend from 0, LAST is the last one and only that, its totals are right, the bitmap names who has any."""
    rng = random.Random(1)
    batches = maker(codec)
    written: dict[int, list[bytes]] = {}
    made: list[PushBatch] = []
    for _ in range(500):
        partition = rng.choice([0, 3, 8, 10])
        payload = rng.randbytes(rng.choice([1, 300])) * rng.choice([1, 1, 1, 300])
        written.setdefault(partition, []).append(payload)
        made += batches.add(partition, payload)
    assert batches.bitmap() == bytes([0b0000_1001, 0b0000_0101])
    made += batches.end()
    for partition, payloads in written.items():
        found = parsed(made, partition)
        assert [bytes(decompress(one.codec, one.payload)) for one in found if len(one.payload)] == payloads
        assert [one.number for one in found] == list(range(len(found)))
        assert [one.totals is not None for one in found] == [False] * (len(found) - 1) + [True]
        assert found[-1].totals == (len(found), sum(one.crc for one in found[:-1]))


def test_a_small_payload_is_its_own_last() -> None:
    """A partition with one small payload costs one batch; one that was not held back costs an empty LAST."""
    batches = maker()
    assert batches.add(0, b"small") == []
    assert len(batches.add(1, bytes(MIB))) == 1
    small, empty = batches.end()
    assert (small.partition, small.number, empty.partition, empty.number) == (0, 0, 1, 1)
    assert not len(parsed([empty], 1)[0].payload)


def test_what_is_held_back_is_bounded() -> None:
    """However many partitions there are, only so much waits for the end."""
    batches = PushBatches(SHUFFLE, MapId(3), AttemptId(9), 1_000, Compression(Codec.NONE))
    ready = [batch for partition in range(1_000) for batch in batches.add(partition, bytes(60 * KIB))]
    assert 800 < len(ready) < 1_000


def test_what_cannot_be_written_is_refused() -> None:
    """A partition out of range and a record longer than a batch raise; an empty payload is no record."""
    batches = maker()
    wrong: list[tuple[Any, Any, str]] = [
        (PARTITIONS, b"x", "0 to 10, not 11"),
        (-1, b"x", "0 to 10, not -1"),
        (1.5, b"x", "whole number"),
        ("1", b"x", "whole number"),
        (0, bytes(RECORD_BYTES_MAX + 1), "at most 16777176 bytes"),
        (0, "text", "encode it"),
        (0, 7, "bytes or a contiguous buffer"),
        (0, memoryview(bytes(8))[::2], "contiguous"),
    ]
    for partition, payload, reported in wrong:
        with pytest.raises(ConfigError, match=reported):
            batches.add(partition, payload)
    assert batches.add(0, b"") == []
    assert batches.end() == []
    assert batches.bitmap() == bytes(2)


def test_partitions_may_be_numbers_of_numpy() -> None:
    """Whatever is a whole number counts as one, and comes out as a plain int."""
    batches = maker()
    (made,) = batches.add(np.int64(3), bytes(MIB))  # type: ignore[arg-type]
    assert type(made.partition) is int


def test_statuses_travel_as_bytes() -> None:
    """A status survives the trip; a cut one or one with another bitmap is refused."""
    status = PushStatus(SHUFFLE, MapId(3), AttemptId(1 << 63), PARTITIONS, b"\x01\x04")
    data = status.to_bytes()
    assert PushStatus.from_bytes(data) == status
    for wrong in (data[:5], data[:-1], data + b"\0"):
        with pytest.raises(ProtocolError):
            PushStatus.from_bytes(wrong)


def test_winners_are_one_per_map() -> None:
    """Statuses in any order make the winners by map; a gap, or two attempts of one map, is a conflict."""
    statuses = [PushStatus(SHUFFLE, MapId(map_id), AttemptId(10 + map_id), PARTITIONS, bytes(2)) for map_id in (1, 0)]
    assert push_winners_of(statuses, SHUFFLE, PARTITIONS).attempts == (10, 11)
    with pytest.raises(ConflictError, match="map 0"):
        push_winners_of(statuses[:1], SHUFFLE, PARTITIONS)
    with pytest.raises(ConflictError, match="1 status for 2 maps; missing: map 0"):
        push_winners_of(statuses[:1], SHUFFLE, PARTITIONS, 2)
    with pytest.raises(ConflictError, match=r"0 statuses for 12 maps; missing: map 0, .*map 9 and 2 more"):
        push_winners_of([], SHUFFLE, PARTITIONS, 12)
    with pytest.raises(ConflictError, match="2 statuses for 1 map; there is no map 1"):
        push_winners_of(statuses, SHUFFLE, PARTITIONS, 1)
    with pytest.raises(ConfigError, match="maps=0"):
        push_winners_of([], SHUFFLE, PARTITIONS)
    assert push_winners_of([], SHUFFLE, PARTITIONS, 0).attempts == ()
    with pytest.raises(ConflictError, match="two attempts"):
        push_winners_of(
            [*statuses, PushStatus(SHUFFLE, MapId(0), AttemptId(5), PARTITIONS, bytes(2))], SHUFFLE, PARTITIONS
        )
