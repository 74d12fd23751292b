"""Batches, frames, messages and arrays: what goes in comes out, and anything else is a typed error."""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common.errors import CorruptError, HoldfastError, ProtocolError, error_for
from holdfast.common.formats import layouts, messages, reduce_layouts, reduce_messages
from holdfast.common.formats.batch import (
    HEADER_BYTES,
    BatchWriter,
    Codec,
    parse_batch,
    parse_batches,
    whole_batch_bytes,
)
from holdfast.common.formats.checksum import SEED, crc32c, partition_seed
from holdfast.common.formats.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from holdfast.common.formats.frame import FrameType, check_meta, decode_header, encode_frame
from holdfast.common.formats.layouts import ArrayKind
from holdfast.common.ids import BROADCAST_PARTITION, NO_WORKER, Epoch, PartitionId, WorkerId
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, PUSH_BATCHES_MAX
from holdfast.common.statuses import Status
from tests.unit.common import samples

GOLDEN = Path(__file__).parents[2] / "golden"
SEED_5 = partition_seed(samples.SHUFFLE, samples.PARTITION)


@pytest.mark.parametrize("name", sorted(samples.golden()))
def test_golden_bytes(name):
    """No format changes by accident: what we encode today is what other programs and files hold."""
    path = GOLDEN / f"{name}.hex"
    got = samples.golden()[name].hex()
    if os.environ.get("HOLDFAST_REWRITE_GOLDEN"):
        path.write_text(got + "\n")
    assert got == path.read_text().strip(), f"{path.name} differs; if meant, write it anew and add an ADR"


def test_batches_come_back():
    """Payloads, flags, numbers and totals of a partition's batches survive the trip."""
    batches = list(parse_batches(memoryview(samples.batches()), SEED_5))
    assert [bytes(batch.payload) for batch in batches] == list(samples.PAYLOADS)
    assert [batch.number for batch in batches] == [0, 1, 2]
    assert [batch.codec for batch in batches] == [Codec.NONE, Codec.LZ4, Codec.NONE]
    assert batches[2].totals == (3, batches[0].crc + batches[1].crc)
    assert {(batch.map, batch.attempt) for batch in batches} == {(samples.FILE.map, samples.FILE.attempt)}


def test_the_seed_is_a_prefix():
    """A CRC started from the seed equals the CRC of seed bytes and data, so languages without a start value agree."""
    shuffle = samples.SHUFFLE
    seed = SEED.pack(shuffle.instance, shuffle.shuffle, shuffle.generation, shuffle.state, 5)
    assert crc32c(b"data", SEED_5) == crc32c(seed + b"data")


@pytest.mark.parametrize("partition", [4, 6, BROADCAST_PARTITION])
def test_misdirected_batches_are_refused(partition):
    """Bytes that were written for one partition never pass as another's."""
    with pytest.raises(CorruptError, match="checksum mismatch"):
        list(parse_batches(memoryview(samples.batches()), partition_seed(samples.SHUFFLE, partition)))


def test_every_flipped_bit_of_a_batch_is_found():
    """No single bit of header or payload can change without an error."""
    whole = samples.batches()
    for bit in range(len(whole) * 8):
        data = bytearray(whole)
        data[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptError):
            list(parse_batches(memoryview(data), SEED_5))


def test_every_cut_of_a_batch_is_found():
    """A prefix that ends inside a batch is an error, one that ends between batches holds just those before."""
    whole = memoryview(samples.batches())
    borders = [0]
    while borders[-1] < len(whole):
        borders.append(parse_batch(whole, borders[-1], SEED_5)[1])
    for end in range(len(whole)):
        if end in borders:
            assert len(list(parse_batches(whole[:end], SEED_5))) == borders.index(end)
        else:
            with pytest.raises(CorruptError, match="cut"):
                list(parse_batches(whole[:end], SEED_5))


def test_length_of_a_batch_is_known_from_its_header():
    """A stream reader learns how much to wait for, and refuses what cannot be a header before it waits."""
    whole = memoryview(samples.batches())
    assert whole_batch_bytes(whole[: HEADER_BYTES - 1], 0) is None
    assert whole_batch_bytes(whole[:HEADER_BYTES], 0) == HEADER_BYTES + len(samples.PAYLOADS[0])
    with pytest.raises(CorruptError):
        whole_batch_bytes(memoryview(b"x" * HEADER_BYTES), 0)


@pytest.mark.parametrize("codec", [4, 7])
def test_a_codec_that_is_none_is_refused(codec):
    """Bits of a codec that mean nothing are no batch header, though the checksum is right."""
    head = BatchWriter(samples.FILE.map, samples.FILE.attempt, SEED_5).header(b"x", codec=codec)
    with pytest.raises(CorruptError, match="not a batch header"):
        parse_batch(memoryview(head + b"x"), 0, SEED_5)


@pytest.mark.parametrize("name", sorted(samples.MESSAGES))
def test_messages_come_back(name):
    """Each message decodes to what was encoded."""
    message = samples.MESSAGES[name]
    assert type(message).decode(message.encode()) == message


@pytest.mark.parametrize("name", sorted(samples.MESSAGES))
def test_cut_or_longer_messages_are_refused(name):
    """Every prefix of a message, and a message with a byte behind it, is a ProtocolError."""
    message = samples.MESSAGES[name]
    data = message.encode()
    for wrong in [*(data[:end] for end in range(len(data))), data + b"\0"]:
        with pytest.raises(ProtocolError):
            type(message).decode(wrong)


@pytest.mark.parametrize("name", sorted(samples.MESSAGES))
def test_garbage_messages_give_typed_errors(name):
    """Random changes decode to a message or raise ProtocolError, never anything else."""
    rng = random.Random(name)
    data = samples.MESSAGES[name].encode()
    for _ in range(300):
        wrong = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            wrong[rng.randrange(len(wrong))] = rng.randrange(256)
        try:
            type(samples.MESSAGES[name]).decode(bytes(wrong))
        except ProtocolError:
            continue


def test_a_replica_learns_whose_a_push_is():
    """Where a client says an index, a worker says of which user the application is; who reads a PUSH knows it, and
    takes no word for it. Without a user a worker says nothing, and an application stands alone."""
    data, instance = samples.REPLICATE.encode(), samples.SHUFFLE.instance
    assert reduce_messages.Push.decode(data, None) == samples.REPLICATE
    assert samples.REPLICATE.owner == (samples.REPLICATE.of_user, instance)
    push = reduce_messages.Push.decode(data, b"somebody")
    assert (push.of_user, push.raft_index) == (b"somebody", int.from_bytes(samples.REPLICATE.of_user, "little"))
    nobodys = replace(samples.REPLICATE, of_user=b"")
    assert reduce_messages.Push.decode(nobodys.encode(), None) == nobodys
    assert nobodys.owner == (instance,)


def test_an_array_is_refused_before_it_is_allocated():
    """A count beyond the bound or beyond the bytes is refused whatever it claims."""
    good = samples.MESSAGES["map_push"].encode()
    head = good[:9]
    for count in (65_536, 0xFFFF_FFFF, 3):
        with pytest.raises(ProtocolError):
            messages.MapPush.decode(head + count.to_bytes(4, "little") + good[13:])


def test_a_push_names_its_body():
    """The lengths of a push's entries make its body, and its checksum is the body's: a turned byte is found."""
    frame = samples.golden()["frame_push"]
    header = decode_header(frame)
    start = FRAME_HEADER_BYTES + header.meta_bytes
    push = reduce_messages.Push.decode(frame[FRAME_HEADER_BYTES:start])
    assert sum(size for _, _, _, size, _ in push.entries) == header.body_bytes == len(frame) - start
    assert crc32c(frame[start:]) == push.body_crc
    assert push.replicas == ()


def test_only_sensible_pushes_are_made_and_read():
    """A push without batches, beyond the bound, or of an unknown level is refused by both sides."""
    good = samples.REDUCE_MESSAGES["push"]
    for count in (0, PUSH_BATCHES_MAX + 1):
        with pytest.raises(ProtocolError):
            replace(good, entries=good.entries[:1] * count).encode()
    data = bytearray(good.encode())
    data[36] = 3  # behind shuffle (32 bytes) and incarnation
    with pytest.raises(ProtocolError, match="level 3"):
        reduce_messages.Push.decode(bytes(data))


def test_a_manifest_says_what_can_be_read():
    """Sealed copies are offered; an epoch nobody ever wrote to is not lost, one whose only copy failed is."""
    sealed, untouched = samples.MANIFEST.epochs
    assert [copy.worker for copy in sealed.readable] == [1]
    assert not sealed.lost
    assert not untouched.readable
    assert not untouched.lost
    assert sealed._replace(copies=sealed.copies[:1]).lost
    assert samples.REDUCE_WINNERS.has(0, 10)
    assert not samples.REDUCE_WINNERS.has(1, 10)
    assert replace(samples.REDUCE_WINNERS, bitmaps=()).has(0, 10) is None


def test_frames_come_back():
    """Header fields, meta and body of a frame survive the trip."""
    frame = samples.golden()["frame_map_push"]
    header = decode_header(frame)
    meta = frame[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + header.meta_bytes]
    check_meta(frame[:FRAME_HEADER_BYTES], header, meta)
    assert (header.type, header.request_id, header.is_response) == (FrameType.MAP_PUSH, 77, False)
    assert frame[FRAME_HEADER_BYTES + header.meta_bytes :] == samples.batches()
    assert decode_header(samples.golden()["frame_refusal"]).status == Status.SEALED


def test_every_flipped_bit_of_a_frame_head_is_found():
    """No single bit of a frame's header or meta section can change without an error."""
    frame = encode_frame(FrameType.MAP_SEAL, 5, samples.MESSAGES["map_seal"].encode())
    for bit in range(len(frame) * 8):
        data = bytearray(frame)
        data[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(ProtocolError):
            check_meta(data[:FRAME_HEADER_BYTES], decode_header(data), bytes(data[FRAME_HEADER_BYTES:]))


def test_frames_beyond_the_bounds_are_not_made():
    """A side never sends what the other has to refuse."""
    with pytest.raises(ProtocolError) as caught:
        encode_frame(FrameType.MAP_PUSH, 1, b"", FRAME_BODY_BYTES_MAX + 1)
    assert caught.value.status == Status.TOO_LARGE


def test_arrays_come_back():
    """Assignments and winners decode to what was encoded, empty ones too."""
    assert layouts.MapAssignment.decode(samples.ASSIGNMENT.encode()) == samples.ASSIGNMENT
    assert layouts.MapWinners.decode(samples.WINNERS.encode()) == samples.WINNERS
    empty = layouts.MapWinners(partitions=11, maps=())
    assert layouts.MapWinners.decode(empty.encode()) == empty
    assert [samples.WINNERS.maps[0].has(PartitionId(partition)) for partition in (0, 1, 5, 10)] == [
        True,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("name", sorted(samples.ARRAYS))
def test_deflated_arrays_come_back(name):
    """Each array decodes to what was encoded."""
    array = samples.ARRAYS[name]
    assert type(array).decode(array.encode()) == array


@pytest.mark.parametrize("array", [samples.ASSIGNMENT, *samples.ARRAYS.values()], ids=["assignment", *samples.ARRAYS])
def test_garbage_arrays_give_typed_errors(array):
    """Cut, longer and randomly changed arrays decode or raise ProtocolError, and never inflate beyond their word."""
    rng = random.Random(1)
    data = array.encode()
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            type(array).decode(data[:end])
    with pytest.raises(ProtocolError):
        type(array).decode(data + b"\0")
    for _ in range(500):
        wrong = bytearray(data)
        wrong[rng.randrange(len(wrong))] ^= 1 << rng.randrange(8)
        try:
            type(array).decode(bytes(wrong))
        except ProtocolError:
            continue


def test_copies_of_a_map_file_never_share_a_worker():
    """With two copies and at least two workers, one attempt's copies stand on different workers in every epoch."""
    for step in range(6):
        places = [samples.ASSIGNMENT.worker_for(3, step + copy) for copy in range(2)]
        assert len(set(places)) == 2


@pytest.mark.parametrize("status", list(Status))
def test_statuses_become_exceptions_and_back(status):
    """Every status but OK has an exception that carries it; numbers from the future are errors too."""
    error = error_for(status, "why")
    assert isinstance(error, HoldfastError)
    assert error.status == status
    assert error_for(60_000).status == Status.INTERNAL


def test_a_row_has_as_many_workers_as_the_widest_one_needs():
    """One copy more costs four bytes in a location, and nothing where no row has it; a row without a first worker, or
    with a gap, is refused, and so is one of more copies than there may be."""
    one, two, five = ((WorkerId(1),), (WorkerId(1), WorkerId(2)), tuple(map(WorkerId, range(5))))

    def encoded(*places: tuple[WorkerId, ...]) -> bytes:
        return reduce_layouts.ReduceLocations(
            tuple([reduce_layouts.Location(Epoch(0), each) for each in places])
        ).encode()

    for places, size in (((one, one), 10), ((one, two), 14), ((five,), 26)):
        data = encoded(*places)
        assert layouts.deflated_head(data, ArrayKind.REDUCE_LOCATIONS)[3] == len(places) * size
        assert [each.workers for each in reduce_layouts.ReduceLocations.decode(data).partitions] == list(places)
        assert reduce_layouts.ReduceLocations.encode_first(places) == data, "the same array, of workers alone"
        columns = reduce_layouts.ReduceLocations.columns(data)
        assert [tuple(each for each in row if each != NO_WORKER) for row in zip(*columns, strict=True)] == list(places)
    for bad in ((NO_WORKER,), (WorkerId(1), NO_WORKER, WorkerId(2))):
        with pytest.raises(ProtocolError, match="workers of a row"):
            reduce_layouts.ReduceLocations.decode(encoded(bad))
    with pytest.raises(ProtocolError, match="1 to 5"):
        encoded((*five, WorkerId(9)))
