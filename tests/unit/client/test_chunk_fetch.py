"""The reader's core for pushed partitions: which chunks are asked of whom, and what is whole."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.client.core.read.check import IncompleteError
from holdfast.client.core.read.chunk_fetch import ChunkFetch, EpochKey
from holdfast.client.core.read.exact import PartitionCheck
from holdfast.client.core.read.fetch import (
    TRIES_MAX,
    AskMasters,
    CloseStream,
    Complete,
    Effect,
    OpenStream,
    ReadFailed,
    WorkerState,
)
from holdfast.common.errors import CorruptError, DataLostError, HoldfastError, RerouteError, RetryError
from holdfast.common.formats.batch import Batch, BatchWriter, parse_batches
from holdfast.common.formats.reduce_layouts import NO_ATTEMPT, CopyResult, EpochResult, ReduceManifest, ReduceWinners
from holdfast.common.ids import AttemptId, Epoch, MapId, PartitionId, WorkerId
from holdfast.common.statuses import Status

SEED = 7
FIRST = (PartitionId(0), Epoch(0))


def batches(map_id: int, count: int, attempt: int = 9) -> list[Batch]:
    """What one attempt wrote to a partition; the last one is LAST."""
    writer = BatchWriter(MapId(map_id), AttemptId(attempt), SEED)
    data = b"".join(writer.header(b"x" * n, last=n == count - 1) + b"x" * n for n in range(count))
    return list(parse_batches(memoryview(data), SEED))


def winners(*attempts: int, bits: str = "") -> ReduceWinners:
    """Bits: for each map a 1 if it wrote to partition 0."""
    bitmaps = tuple(bytes([int(bit)]) for bit in bits)
    return ReduceWinners(2, tuple(AttemptId(attempt) for attempt in attempts), bitmaps)


def books(found: ReduceWinners, maps: range | None = None) -> PartitionCheck:
    return PartitionCheck(found, PartitionId(0), range(len(found.attempts)) if maps is None else maps)


def sealed(worker: int, size: int = 100) -> CopyResult:
    return CopyResult(WorkerId(worker), Status.OK, size)


UNWRITTEN = CopyResult(WorkerId(3), Status.UNKNOWN_FILE, 0)


def read(*epochs: EpochResult, found: ReduceWinners | None = None, **options: Any) -> ChunkFetch:
    return ChunkFetch(
        ReduceManifest(2, epochs),
        found or winners(9),
        [PartitionId(0)],
        where="shuffle s",
        grace_ns=1_000,
        **options,
    )


def epoch(number: int, *copies: CopyResult) -> EpochResult:
    return EpochResult(PartitionId(0), Epoch(number), copies)


def failure(effects: list[Effect[EpochKey]]) -> HoldfastError:
    """The error that these effects end the read with."""
    assert isinstance(effects[-1], ReadFailed)
    return effects[-1].error


@pytest.mark.parametrize("seed", range(30))
def test_any_order_and_any_number_of_times(seed: int) -> None:
    """Batches of several maps, shuffled and repeated, are each admitted once, and then nothing is missing."""
    rng = random.Random(seed)
    wanted = [batch for map_id in range(4) for batch in batches(map_id, rng.randrange(1, 60))]
    came = wanted + rng.choices(wanted, k=50)
    rng.shuffle(came)
    check = books(winners(9, 9, 9, 9, bits="1111"))
    admitted = [batch for batch in came if check.admit(batch)]
    assert check.duplicates == len(came) - len(admitted) > 0
    assert sorted((batch.map, batch.number) for batch in admitted) == [(batch.map, batch.number) for batch in wanted]
    assert check.missing(all_read=True) == ""


@pytest.mark.parametrize("gone", range(5))
def test_every_missing_batch_is_noticed(gone: int) -> None:
    """Whichever of a map's batches did not come, LAST included, the books say so."""
    check = books(winners(9, bits="1"))
    for batch in batches(0, 5):
        if batch.number != gone:
            check.admit(batch)
    assert "map 0 attempt 9" in check.missing(all_read=True)


def test_totals_are_compared() -> None:
    """The right number of batches with other contents than LAST was told of is not whole."""
    check = books(winners(9, bits="1"))
    first, last = batches(0, 2)
    check.admit(first._replace(crc=first.crc ^ 1))
    check.admit(last)
    assert "do not match those of its LAST" in check.missing(all_read=True)


def test_losers_are_dropped() -> None:
    """Batches of other attempts, of maps without a winner, of unknown maps and of maps not asked for do not count."""
    check = books(winners(9, NO_ATTEMPT, 9), range(2))
    for batch in [*batches(0, 2, attempt=8), *batches(1, 2), *batches(2, 2), *batches(7, 2)]:
        assert not check.admit(batch)
    assert check.missing(all_read=True) == ""


def test_statuses_are_believed() -> None:
    """A map whose status says it wrote must be there, one whose status says it did not must not be."""
    assert "nothing of that" in books(winners(9, bits="1")).missing(all_read=True)
    with pytest.raises(IncompleteError, match="status has none"):
        books(winners(9, bits="0")).admit(batches(0, 1)[0])


def test_without_statuses_only_a_lost_epoch_is_a_doubt() -> None:
    """Where nobody said who wrote, a map of which nothing came is fine if everything was read, and not otherwise."""
    assert books(winners(9)).missing(all_read=True) == ""
    assert "may have" in books(winners(9)).missing(all_read=False)


def test_one_stream_for_all_epochs_of_a_worker() -> None:
    """All epochs of a worker are asked for together, from their first chunks; empty ones are not asked for."""
    core = read(epoch(0, sealed(1)), epoch(1, sealed(2)), epoch(2, sealed(1)), epoch(3, UNWRITTEN))
    assert core.fetch.started() == [
        OpenStream(0, WorkerId(1), ((PartitionId(0), Epoch(0)), (PartitionId(0), Epoch(2)))),
        OpenStream(1, WorkerId(2), ((PartitionId(0), Epoch(1)),)),
    ]
    assert core.first_chunk(FIRST, WorkerId(1)) == 0
    core.check()


def test_a_stream_goes_on_where_it_broke() -> None:
    """The same copy is asked from its first incomplete chunk, the other copy from its beginning."""
    core = read(epoch(0, sealed(1), sealed(2)))
    core.fetch.started()
    for chunk in range(3):
        core.chunk_came(FIRST, WorkerId(1), chunk, size=10)
    core.chunk_came(FIRST, WorkerId(1), 3)
    assert core.first_chunk(FIRST, WorkerId(1)) == 3
    assert core.first_chunk(FIRST, WorkerId(2)) == 0
    close, again = core.fetch.file_bad(0, FIRST, "checksum")
    assert (close, again) == (CloseStream(0), OpenStream(1, WorkerId(2), (FIRST,)))


def test_chunks_come_in_turn() -> None:
    """A chunk left out, repeated or missing at the end is noticed."""
    core = read(epoch(0, sealed(1)))
    core.chunk_came(FIRST, WorkerId(1), 0, size=100)
    for wrong in (0, 2):
        with pytest.raises(IncompleteError, match="1 was due"):
            core.chunk_came(FIRST, WorkerId(1), wrong, size=100)
    with pytest.raises(IncompleteError, match="chunk 1 of 2"):
        core.file_sent(FIRST, WorkerId(1), 2)
    core.file_sent(FIRST, WorkerId(1), 1)


def test_a46_a_copy_without_all_that_was_sealed_is_noticed() -> None:
    """A worker says that it sent all of its copy, and nobody knows which maps wrote: the masters know how many bytes it
    sealed. It is asked again, for all of it, and given up in the end."""
    core = read(epoch(0, sealed(1, 100)), found=winners(9, 9))
    core.started()
    effects: list[Any] = []
    for stream in range(TRIES_MAX):
        assert core.first_chunk(FIRST, WorkerId(1)) == 0
        core.chunk_came(FIRST, WorkerId(1), 0, size=60)
        with pytest.raises(IncompleteError, match="60 bytes of partition 0 epoch 0 came, but 100 were sealed"):
            core.file_sent(FIRST, WorkerId(1), 1)
        effects = core.fetch.file_bad(stream, FIRST, "60 bytes came")
    error = failure(effects)
    assert "may have written something that is not there" in str(error)


def test_a46_a_copy_that_was_sealed_late_has_its_size_too() -> None:
    """The size of a copy that a newer manifest names is compared as well."""
    core = read(epoch(0, sealed(1), away(2)), found=winners(9))
    core.started()
    core.learn(ReduceManifest(2, (epoch(0, sealed(1), sealed(2, 70)),)))
    core.chunk_came(FIRST, WorkerId(2), 0, size=60)
    with pytest.raises(IncompleteError, match=r"60 bytes .* 70 were sealed"):
        core.file_sent(FIRST, WorkerId(2), 1)


def test_a46_a_range_that_ends_early_is_noticed() -> None:
    """With a range of maps chunks that have nothing do not come, but the last one always does: a stream that ended
    before it was cut short, also where nobody said which maps wrote."""
    partly = read(epoch(0, sealed(1)), found=winners(9, 9), maps=range(1))
    partly.chunk_came(FIRST, WorkerId(1), 4, size=100)
    with pytest.raises(IncompleteError, match="chunk 5 of 9"):
        partly.file_sent(FIRST, WorkerId(1), 9)
    partly.chunk_came(FIRST, WorkerId(1), 8, size=100)
    partly.file_sent(FIRST, WorkerId(1), 9)


def test_a_lost_epoch_that_held_nothing_needed_is_no_error() -> None:
    """Everything that won is there although an epoch is lost: it held duplicates, or losers' batches."""
    lost = CopyResult(WorkerId(2), Status.DATA_LOST, 0)
    core = read(epoch(0, sealed(1)), epoch(1, lost), found=winners(9, bits="1"))
    core.started()
    for batch in batches(0, 3):
        core.admit(PartitionId(0), batch)
    assert Complete() in core.epoch_complete(0, FIRST, WorkerId(1))


def test_a_lost_epoch_is_named() -> None:
    """What is missing because of a lost epoch raises DataLost with shuffle, partition, epoch and what is missing."""
    lost = CopyResult(WorkerId(2), Status.DATA_LOST, 0)
    core = read(epoch(0, sealed(1)), epoch(1, lost), found=winners(9, bits="1"))
    core.started()
    core.admit(PartitionId(0), batches(0, 3)[0])
    error = failure(core.epoch_complete(0, FIRST, WorkerId(1)))
    assert isinstance(error, DataLostError)
    assert re.search(
        r"shuffle s: partition 0 epoch 1 was recorded as lost.*\(worker 2 DATA_LOST\).*map 0 attempt 9", str(error)
    )


def test_a_partition_whose_only_epoch_is_lost() -> None:
    """There is nothing to read: it is judged before the first stream."""
    core = read(epoch(0, CopyResult(WorkerId(2), Status.FAILED_COPY, 0)), found=winners(9, bits="1"))
    error = failure(core.started())
    assert isinstance(error, DataLostError)
    assert "worker 2 FAILED_COPY" in str(error)


def test_an_epoch_that_no_copy_gives() -> None:
    """Three damaged answers of the only copy end the epoch; the partition's books decide, with the cause."""
    core = read(epoch(0, sealed(1)), found=winners(9, bits="1"))
    core.fetch.started()
    effects: list[Any] = []
    for stream in range(TRIES_MAX):
        effects = core.fetch.file_bad(stream, FIRST, "chunk 0: checksum")
    error = failure(effects)
    assert isinstance(error, CorruptError)
    assert re.search(r"partition 0 epoch 0 .*chunk 0: checksum.*map 0 attempt 9", str(error))


def test_all_read_and_not_whole_is_corrupt() -> None:
    """Every epoch was read and a batch is missing: an error, never a short answer."""
    core = read(epoch(0, sealed(1)), found=winners(9, bits="1"))
    core.started()
    core.admit(PartitionId(0), batches(0, 3)[2])
    error = failure(core.epoch_complete(0, FIRST, WorkerId(1)))
    assert isinstance(error, CorruptError)
    assert "shuffle s: partition 0 was read to its end and is not whole" in str(error)


def test_the_longer_copy_is_read_first() -> None:
    """Sealed copies of different sizes: one was cut short, and the other is asked."""
    core = read(epoch(0, sealed(1, 90), sealed(2, 100)), epoch(1, sealed(1), sealed(2)))
    second = (PartitionId(0), Epoch(1))
    assert core.started() == [OpenStream(0, WorkerId(2), (FIRST,)), OpenStream(1, WorkerId(1), (second,))]


@pytest.mark.parametrize("short", ["nothing of a map", "no LAST", "a hole"])
def test_what_a_short_copy_lacks_is_read_from_the_other(short: str) -> None:
    """Everything was read and something is missing: the other copy is read from its first chunk, and what it has of
    the same is not delivered again."""
    core = read(epoch(0, sealed(1), sealed(2)), found=winners(9, 9, bits="11"))
    core.started()
    data = [*batches(0, 3), *batches(1, 3)]
    gone = {"nothing of a map": {3, 4, 5}, "no LAST": {5}, "a hole": {1}}[short]
    core.chunk_came(FIRST, WorkerId(1), 0, size=100)
    first = [batch for index, batch in enumerate(data) if index not in gone and core.admit(FIRST[0], batch)]
    assert core.epoch_complete(0, FIRST, WorkerId(1)) == [OpenStream(1, WorkerId(2), (FIRST,))]
    core.check()
    assert core.first_chunk(FIRST, WorkerId(2)) == 0
    second = [batch for batch in data if core.admit(FIRST[0], batch)]
    assert Complete() in core.epoch_complete(1, FIRST, WorkerId(2))
    assert sorted((batch.map, batch.number) for batch in first + second) == [(b.map, b.number) for b in data]


class NextDoor:
    """Asks the first worker first, however short its copy is."""

    def ordered(self, copies: Sequence[WorkerId]) -> Sequence[WorkerId]:
        return sorted(copies)

    def failed(self, worker: WorkerId) -> None: ...

    def slow(self, worker: WorkerId) -> None: ...


@pytest.mark.parametrize("there", [True, False])
def test_a_short_copy_is_not_all_where_nobody_said_who_wrote(there: bool) -> None:
    """A copy that was sealed shorter than the other may lack all of a map: without statuses only the longer one tells
    that this map wrote nothing. Where that cannot be read it is an error."""
    core = read(epoch(0, sealed(1, 60), sealed(2, 100)), found=winners(9, 9), order=NextDoor())
    assert core.started() == [OpenStream(0, WorkerId(1), (FIRST,))]
    core.chunk_came(FIRST, WorkerId(1), 0, size=60)
    assert all(core.admit(FIRST[0], batch) for batch in batches(0, 3))
    core.file_sent(FIRST, WorkerId(1), 1)
    effects = core.epoch_complete(0, FIRST, WorkerId(1))
    assert effects == [OpenStream(1, WorkerId(2), (FIRST,))]
    if there:
        core.chunk_came(FIRST, WorkerId(2), 0, size=100)
        assert all(core.admit(FIRST[0], batch) for batch in batches(1, 3))
        core.file_sent(FIRST, WorkerId(2), 1)
        assert Complete() in core.epoch_complete(1, FIRST, WorkerId(2))
        return
    for stream in range(1, TRIES_MAX + 1):
        effects = core.fetch.stream_failed(stream, RerouteError("it is not here", status=Status.UNKNOWN_FILE), 0)
    assert re.search(r"it is not here.*map 1 attempt 9 may have written", str(failure(effects)))


def test_both_copies_read_and_not_whole() -> None:
    """The error names shuffle, partition, what is missing, and every epoch and worker that was read."""
    core = read(epoch(0, sealed(1), sealed(2)), epoch(3, sealed(3)), found=winners(9, bits="1"))
    core.started()
    core.epoch_complete(0, FIRST, WorkerId(1))
    core.epoch_complete(1, (PartitionId(0), Epoch(3)), WorkerId(3))
    error = failure(core.epoch_complete(2, FIRST, WorkerId(2)))
    assert isinstance(error, CorruptError)
    assert str(error) == (
        "shuffle s: partition 0 was read to its end and is not whole: map 0 attempt 9 wrote for it, and nothing of "
        "that is there (read to the end: epoch 0 of worker 1 and 2, epoch 3 of worker 3)"
    )


@pytest.mark.parametrize("whole", [True, False])
def test_another_copy_that_cannot_be_read(whole: bool) -> None:
    """Why the other copy does not help is the error's cause; where another epoch's had what was missing, the read is
    whole, also where nobody said which maps wrote."""
    second = (PartitionId(0), Epoch(1))
    core = read(epoch(0, sealed(1), sealed(2)), epoch(1, sealed(1), sealed(3)), found=winners(9, 9))
    core.started()
    core.admit(FIRST[0], batches(0, 2)[0])
    core.epoch_complete(0, FIRST, WorkerId(1))
    assert len(core.epoch_complete(0, second, WorkerId(1))) == 2, "a stream for each of the others"
    if whole:
        core.admit(FIRST[0], batches(0, 2)[1])
    assert core.epoch_complete(2, second, WorkerId(3)) == []
    effects: list[Effect[EpochKey]] = []
    stream = 1
    for _ in range(TRIES_MAX):
        effects = core.fetch.stream_failed(stream, RerouteError("it is not here", status=Status.UNKNOWN_FILE), 0)
        stream = max([each.stream for each in effects if isinstance(each, OpenStream)], default=stream)
    if whole:
        assert Complete() in effects
    else:
        assert isinstance(failure(effects), DataLostError)
        assert re.search(r"partition 0 epoch 0 .*it is not here.*no LAST", str(failure(effects)))


class World:
    """Workers whose copies have chunks of their own, and streams on which anything may happen. Seeded."""

    def __init__(self, seed: int, copies: int, *, speculative: bool) -> None:
        self.speculative = speculative
        #: rivals that were opened
        self.rivals = 0
        self.rng = rng = random.Random(seed)
        self.found = winners(*(9 for _ in range(5)), bits="11111")
        self.wanted = [batch for map_id in range(5) for batch in batches(map_id, rng.randrange(1, 40))]
        losers = [batch for map_id in range(5) for batch in batches(map_id, 5, attempt=8)]
        pushed = [*self.wanted, *losers, *rng.choices(self.wanted, k=20)]
        rng.shuffle(pushed)
        self.chunks: dict[tuple[EpochKey, WorkerId], list[list[Batch]]] = {}
        epochs = []
        count = rng.randrange(1, 4)
        for number in range(count):
            mine = pushed[number::count]
            workers = rng.sample(range(1, 4), copies)
            for worker in workers:
                self.chunks[(PartitionId(0), Epoch(number)), WorkerId(worker)] = self._cut(mine)
            if copies > 1 and rng.random() < 0.3:  # recovery cut the end of one, and its size does not tell
                del self.chunks[(PartitionId(0), Epoch(number)), WorkerId(rng.choice(workers))][-1:]
            there = {worker: self.chunks[(PartitionId(0), Epoch(number)), WorkerId(worker)] for worker in workers}
            epochs.append(epoch(number, *(sealed(worker, 100 if there[worker] else 0) for worker in workers)))
        self.core = read(*epochs, found=self.found)
        self.streams: dict[int, OpenStream[EpochKey]] = {}
        self.delivered: list[Batch] = []
        self.over = False

    def _cut(self, mine: list[Batch]) -> list[list[Batch]]:
        """Chunks of a copy: the same batches in another order, cut elsewhere."""
        mine = self.rng.sample(mine, len(mine))
        size = self.rng.randrange(1, 15)
        return [mine[at : at + size] for at in range(0, len(mine), size)]

    def do(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case OpenStream():
                    self.streams[effect.stream] = effect
                case CloseStream():
                    self.streams.pop(effect.stream, None)
                case AskMasters():
                    alive = {WorkerId(worker): WorkerState.ALIVE for worker in range(1, 4)}
                    self.do(self.core.fetch.workers_known(alive, 0))
                case ReadFailed():
                    raise effect.error
                case Complete():
                    self.over = True

    def serve(self, number: int, damage: float) -> None:
        """Let a stream bring what it owes, until something goes wrong with it."""
        stream = self.streams[number]
        if self.speculative:
            self.do(self.core.fetch.data_came(number))
            self.core.check()
        for key in stream.files:
            chunks = self.chunks[key, stream.worker]
            for chunk in range(self.core.first_chunk(key, stream.worker), len(chunks)):
                if self.rng.random() < damage:
                    self.fail(number, key)
                    return
                self.core.chunk_came(key, stream.worker, chunk)
                self.delivered += [batch for batch in chunks[chunk] if self.core.admit(key[0], batch)]
                self.core.chunk_came(key, stream.worker, chunk, size=100 if chunk == len(chunks) - 1 else 0)
                self.do(self.core.fetch.progressed(number))
                self.core.check()
            self.core.file_sent(key, stream.worker, len(chunks))
            self.do(self.core.epoch_complete(number, key, stream.worker))
            self.core.check()
        self.streams.pop(number, None)
        self.do(self.core.fetch.stream_ended(number))

    def fail(self, number: int, key: EpochKey) -> None:
        """The connection breaks, or a chunk is damaged."""
        self.streams.pop(number)
        if self.rng.random() < 0.8:
            self.do(self.core.fetch.stream_failed(number, RetryError("lost"), 0))
        else:
            self.do(self.core.fetch.file_bad(number, key, "checksum"))

    def look(self) -> None:
        """Some of the streams, which may have brought something, are said to be late."""
        for number in self.rng.sample(sorted(self.streams), self.rng.randrange(len(self.streams) + 1)):
            effects = self.core.fetch.late(number)
            self.rivals += len(effects)
            self.do(effects)
            self.core.check()


def run(world: World) -> CorruptError | None:
    """Read to the end, or to the error that ends it."""
    try:
        world.do(world.core.started())
        for _ in range(10_000):
            if world.over:
                break
            if world.speculative:
                world.look()
            world.serve(world.rng.choice(list(world.streams)), damage=0.05)
    except CorruptError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize(("copies", "speculative"), [(1, False), (1, True), (2, False), (2, True)])
def test_whatever_happens_the_read_is_exact_or_an_error(seed: int, copies: int, speculative: bool) -> None:
    """Streams break, chunks are damaged, copies are switched, late streams get rivals: exactly what won comes once, or
    a typed error."""
    world = World(seed, copies, speculative=speculative)
    ended = run(world)
    assert world.rivals == 0 or (speculative and copies > 1)
    if ended is not None:
        assert "checksum" in str(ended), "only damage may end a read, and only where no copy is left"
        return
    assert world.over
    got = sorted((batch.map, batch.number) for batch in world.delivered)
    assert got == [(batch.map, batch.number) for batch in world.wanted]


def test_rivals_are_part_of_these_worlds() -> None:
    """Late streams that get one, and lose to it or not, are in every few of them."""
    worlds = [World(seed, 2, speculative=True) for seed in range(40)]
    for world in worlds:
        run(world)
    assert sum(world.rivals > 0 for world in worlds) > 20


def away(worker: int) -> CopyResult:
    return CopyResult(WorkerId(worker), Status.UNAVAILABLE, 0)


def test_a06_a_copy_that_was_sealed_since_is_read_when_the_known_one_is_gone() -> None:
    """Worker 2 was away at the commit. The only copy's worker is gone: a newer manifest names worker 2, which is asked
    at once, from its first chunk; nothing more is awaited. Before the other worker was missed nobody had asked."""
    core = read(epoch(0, sealed(1), away(2)))
    assert core.started() == [OpenStream(0, WorkerId(1), (FIRST,))]
    assert core.holders().may_be_more({WorkerId(1), WorkerId(2)})
    assert not core.holders().may_be_more({WorkerId(1)}), "it is not back"
    assert core.fetch.stream_failed(0, RetryError("gone"), 1) == [AskMasters(0)]
    core.learn(ReduceManifest(2, (epoch(0, sealed(1), sealed(2)),)))
    assert not core.holders().may_be_more({WorkerId(1), WorkerId(2)})
    states = {WorkerId(2): WorkerState.ALIVE}
    assert core.fetch.workers_known(states, 2) == [OpenStream(1, WorkerId(2), (FIRST,))]
    core.check()


@pytest.mark.parametrize("late", [True, False])
def test_a_copy_that_was_sealed_since_is_read_when_the_known_one_is_not_there(late: bool) -> None:
    """The known worker lives and does not have the file any more: before its last try the masters are asked for what
    was sealed since, again and again for the return grace. Where nothing was by then the epoch is lost as before."""
    not_here = RerouteError("it is not here", status=Status.UNKNOWN_FILE)
    core = read(epoch(0, sealed(1), away(2)))
    core.started()
    assert core.fetch.stream_failed(0, not_here, 1) == [OpenStream(1, WorkerId(1), (FIRST,))]
    assert core.fetch.stream_failed(1, not_here, 1) == [AskMasters(0)]
    core.check()
    core.learn(ReduceManifest(2, (epoch(0, sealed(1), sealed(2) if late else away(2)),)))
    states = {WorkerId(1): WorkerState.ALIVE, WorkerId(2): WorkerState.ALIVE}
    assert core.fetch.workers_known(states, 2) == [OpenStream(2, WorkerId(1), (FIRST,))]
    effects = core.fetch.stream_failed(2, not_here, 3)
    if late:
        assert effects == [OpenStream(3, WorkerId(2), (FIRST,))]
    else:
        for stream, now in ((3, 500), (4, 1_002)):
            (ask,) = effects
            assert isinstance(ask, AskMasters)
            assert core.fetch.workers_known(states, now) == [OpenStream(stream, WorkerId(1), (FIRST,))]
            effects = core.fetch.stream_failed(stream, not_here, now)
        assert core.fetch.workers_known(states, 1_003) == [OpenStream(5, WorkerId(1), (FIRST,))]
        assert "it is not here" in str(failure(core.fetch.stream_failed(5, not_here, 1_003)))


def test_a_copy_that_was_made_again_is_read_when_all_known_ones_are_gone() -> None:
    """Both workers of a manifest that was read long ago are lost, one of them after its copies were made again: the
    newer manifest is asked for, though nothing was awaited, and names a third worker, which is read."""
    core = read(epoch(0, sealed(1), sealed(2)))
    core.started()
    assert not core.holders().may_be_more({WorkerId(1), WorkerId(2)}), "nobody asks while all goes well"
    core.fetch.stream_failed(0, RetryError("gone"), 1)
    core.fetch.stream_failed(1, RetryError("gone"), 1)
    assert core.holders().may_be_more({WorkerId(2), WorkerId(3)})
    core.learn(ReduceManifest(2, (epoch(0, sealed(1), sealed(2), sealed(3)),)))
    states = {WorkerId(3): WorkerState.ALIVE}
    assert core.fetch.workers_known(states, 2) == [OpenStream(2, WorkerId(3), (FIRST,))]
    core.check()


def test_what_is_lost_names_the_damaged_copy_of_a_living_worker_too() -> None:
    """One copy is damaged, the worker of the other one is lost: whoever looks for the data is told of both."""
    core = read(epoch(0, sealed(1), sealed(2)))
    core.started()
    states = {WorkerId(2): WorkerState.ALIVE}
    effects, stream = core.fetch.stream_failed(0, RetryError("gone"), 1), 1
    core.fetch.workers_known(states, 2)
    while OpenStream(stream, WorkerId(2), (FIRST,)) in effects:
        effects, stream = core.fetch.file_bad(stream, FIRST, "chunk 3 is damaged"), stream + 1
    assert OpenStream(stream, WorkerId(1), (FIRST,)) in effects
    core.fetch.stream_failed(stream, RetryError("gone"), 3)
    error = str(failure(core.fetch.workers_known(states, 2_000)))
    assert "; the copy on worker 2 cannot be read: chunk 3 is damaged. Start worker 1 again" in error


def test_a06_a_copy_that_is_still_missing_changes_nothing() -> None:
    """The newer manifest says what the older one said, or that the copy can never be read: the read waits for the
    worker that it knows, and loses it by name."""
    for late in (away(2), CopyResult(WorkerId(2), Status.FAILED_COPY, 0)):
        core = read(epoch(0, sealed(1), away(2)))
        core.started()
        core.fetch.stream_failed(0, RetryError("gone"), 1)
        core.learn(ReduceManifest(2, (epoch(0, sealed(1), late),)))
        core.fetch.workers_known({}, 2)
        core.fetch.stream_failed(1, RetryError("gone"), 3)
        error = failure(core.fetch.workers_known({}, 2_000))
        assert "partition 0 epoch 0 is lost: worker 1 has been lost" in str(error)


def test_a06_a_late_copy_completes_what_the_other_one_lacks() -> None:
    """A late copy of an epoch that was read, and that was not whole: it is read, too."""
    core = read(epoch(0, sealed(1), away(2)), found=winners(9, bits="1"))
    core.started()
    core.learn(ReduceManifest(2, (epoch(0, sealed(1), sealed(2)),)))
    core.chunk_came(FIRST, WorkerId(1), 0, size=100)
    (again,) = core.epoch_complete(0, FIRST, WorkerId(1))
    assert again == OpenStream(1, WorkerId(2), (FIRST,))


def test_a06_manifests_that_come_out_of_order_add_a_copy_once() -> None:
    """Two asks for the manifest, answered the other way round: the older one brings back no copy that is known, nor one
    that was read."""
    older, newer = epoch(0, sealed(1), away(2)), epoch(0, sealed(1), sealed(2))
    core = read(older, found=winners(9, bits="1"))
    core.started()
    for manifest in (newer, older, newer):
        core.learn(ReduceManifest(2, (manifest,)))
        core.check()
    core.fetch.stream_failed(0, RetryError("gone"), 1)
    core.chunk_came(FIRST, WorkerId(2), 0, size=100)
    assert core.epoch_complete(1, FIRST, WorkerId(2)) == []
    states = {WorkerId(1): WorkerState.ALIVE, WorkerId(2): WorkerState.ALIVE}
    assert core.fetch.workers_known(states, 2) == [OpenStream(2, WorkerId(1), (FIRST,))]
    core.chunk_came(FIRST, WorkerId(1), 0, size=100)
    error = failure(core.epoch_complete(2, FIRST, WorkerId(1)))
    assert "read to the end: epoch 0 of worker 2 and 1)" in str(error)
