"""A real worker process and a real master: what is written is read back, whatever dies in between."""

import asyncio
import contextlib
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.errors import HoldfastError, RetryError, UnknownStreamError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Ack, MapAbort, StreamCredit
from holdfast.common.limits import MIB
from holdfast.common.statuses import Status
from holdfast.worker.server.services.stream_service import PLAN_FILES
from tests.cluster.shapes import Shape
from tests.support.map_data import (
    Collector,
    MapContent,
    Pieces,
    file_key,
    make_content,
    open_file,
    push_all,
    read_files,
    seal,
    stream_request,
    write_file,
)
from tests.support.waiting import wait_until_async
from tests.support.worker_world import World, refused, run

#: What `shared` is here.
SHARED = Shape(masters=1, workers=1)


@pytest.fixture
def world(shared: LocalCluster) -> World:
    """An application of its own on the shared cluster."""
    return World(shared)


@pytest.mark.parametrize("ack", [Ack.MEMORY, Ack.WRITTEN, Ack.SYNCED])
def test_what_was_sealed_survives_kill_9(world: World, ack: Ack) -> None:
    """Sealed files read back equal after kill -9 and a restart, and their seals are answered the same."""

    async def story() -> None:
        shuffle = await world.new_shuffle()
        contents = [make_content(file_key(shuffle, n), broadcast=n == 1, batch_bytes=50_000) for n in range(3)]
        async with world.client() as client:
            answers = [await write_file(client, content, ack) for content in contents]
            before = client.hello.incarnation
        assert [answer.totals for answer in answers] == [content.totals for content in contents]
        world.restart()
        async with world.client() as client:
            assert client.hello.incarnation > before
            assert [await seal(client, content) for content in contents] == answers
            for begin, end in [(0, 8), (3, 4), (6, 8)]:
                expected: Pieces = {}
                for number, content in enumerate(contents):
                    expected |= content.pieces(begin, end, number)
                assert await read_files(client, [content.key for content in contents], begin, end) == expected

    run(story)


def test_what_was_not_sealed_is_refused_after_kill_9(world: World) -> None:
    """An unsealed file is neither read nor sealed after a restart; the writer begins anew and succeeds."""

    async def story() -> None:
        shuffle = await world.new_shuffle()
        content = make_content(file_key(shuffle))
        async with world.client() as client:
            await push_all(client, content, await open_file(client, content))
        world.restart()
        async with world.client() as client:
            again = {Status.NOT_SEALED, Status.UNKNOWN_FILE}
            assert await refused(seal(client, content)) in again
            assert await refused(read_files(client, [content.key], 0, 8)) in again
            await write_file(client, content)
            assert await read_files(client, [content.key], 0, 8) == content.pieces(0, 8)

    run(story)


def test_a_seal_may_come_on_another_connection(world: World) -> None:
    """A writer whose connection died after its last acknowledgement seals by key; both asks get the same answer."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        async with world.client() as client:
            await push_all(client, content, await open_file(client, content))
        async with world.client() as client:
            answers = await asyncio.gather(seal(client, content), seal(client, content))
            assert answers[0] == answers[1]
            assert await read_files(client, [content.key], 0, 8) == content.pieces(0, 8)

    run(story)


def test_opening_again_drops_what_was_there(world: World) -> None:
    """A second connection takes the file over; the first one's pushes are refused."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        async with world.client() as first, world.client() as second:
            old = await open_file(first, content)
            await push_all(first, content, old)
            new = await open_file(second, content)
            assert await refused(push_all(first, content, old)) == Status.UNKNOWN_FILE
            await push_all(second, content, new)
            assert (await seal(second, content)).totals == content.totals

    run(story)


def test_frames_out_of_order_are_refused_and_the_file_may_be_begun_anew(world: World) -> None:
    """Regions out of turn and partitions that descend are BAD_ORDER, and poison only the file they came for."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        first, second, third, _ = content.frames
        async with world.client() as client:
            for bad in ([third], [second, first]):
                handle = await open_file(client, content)
                statuses = []
                for frame in bad:
                    try:
                        await client.request(FrameType.MAP_PUSH, frame.meta(handle), frame.body)
                    except HoldfastError as error:
                        statuses.append(error.status)
                assert statuses == [Status.BAD_ORDER]
                assert await refused(seal(client, content)) in {Status.NOT_SEALED, Status.UNKNOWN_FILE}
            await write_file(client, content)

    run(story)


def test_a_damaged_batch_and_wrong_totals_are_refused(world: World) -> None:
    """A flipped byte in a batch, and a seal with other totals, are CORRUPT; nothing of the file is kept."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        async with world.client() as client:
            handle = await open_file(client, content)
            frame = content.frames[0]
            body = bytearray(frame.body)
            body[500] ^= 1
            assert await refused(client.request(FrameType.MAP_PUSH, frame.meta(handle), body)) == Status.CORRUPT
            await push_all(client, content, await open_file(client, content))
            other = make_content(content.key, regions=1)
            assert await refused(seal(client, MapContent(content.key, 8, [], other.totals))) == Status.CORRUPT
            assert await refused(seal(client, content)) in {Status.NOT_SEALED, Status.UNKNOWN_FILE}

    run(story)


def test_an_aborted_file_is_gone(world: World) -> None:
    """MAP_ABORT drops an open file and is answered OK for an unknown one."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        async with world.client() as client:
            await push_all(client, content, await open_file(client, content))
            for _ in range(2):
                await client.request(FrameType.MAP_ABORT, MapAbort(content.key).encode())
            assert await refused(seal(client, content)) == Status.UNKNOWN_FILE

    run(story)


def test_a_sealed_file_is_not_opened_again(world: World) -> None:
    """MAP_OPEN of a sealed file is SEALED, of an earlier incarnation STALE_INCARNATION."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        async with world.client() as client:
            await write_file(client, content)
            assert await refused(open_file(client, content)) == Status.SEALED
            stale = client.hello.incarnation + 1
            assert await refused(open_file(client, content, incarnation=stale)) == Status.STALE_INCARNATION

    run(story)


def test_streams_of_an_earlier_incarnation_are_unknown_at_once(world: World) -> None:
    """Credit for a stream that the worker opened before its restart is refused, not ignored."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()))
        async with world.client() as client:
            await write_file(client, content)
            sink = Collector()
            stream = await client.open_stream(stream_request([content.key], 0, 8, 0), sink)
            old = stream.opened.stream
        with pytest.raises(RetryError):
            await sink.done
        world.restart()
        async with world.client() as client:
            client.sinks[77] = sink = Collector()
            client.post(FrameType.STREAM_CREDIT, 77, StreamCredit(stream=old, credit_bytes=1).encode())
            with pytest.raises(UnknownStreamError):
                await sink.done

    run(story)


def test_a_stream_sends_no_more_than_its_credit(world: World) -> None:
    """Whatever the credit, exactly that many bytes come, until more is given; at the end all is there."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()), batch_bytes=30_000)
        async with world.client() as client:
            await write_file(client, content)
            sink = Collector(credit_step=1 << 60)
            stream = await client.open_stream(stream_request([content.key], 0, 8, 1_000), sink)
            given = 1_000
            while not sink.done.done():
                arrived = partial(lambda wanted: sink.bytes == wanted or sink.done.done(), given)
                await wait_until_async(arrived, "the bytes of the credit")
                await client.request(FrameType.PING)
                assert sink.bytes <= given
                given += 70_001
                stream.credit(70_001)
            assert {at: bytes(data) for at, data in sink.pieces.items()} == content.pieces(0, 8)

    run(story)


def test_an_empty_range_ends_at_once(world: World) -> None:
    """A stream with nothing to send has no bytes and an END, without any credit."""

    async def story() -> None:
        shuffle = await world.new_shuffle()
        content = make_content(file_key(shuffle), partitions=2)
        content.partitions = 8
        async with world.client() as client:
            await write_file(client, content)
            assert await read_files(client, [content.key], 5, 8, credit=0) == {}

    run(story)


def test_a_stream_over_many_files_comes_in_their_order(world: World) -> None:
    """More files than are looked up at a time: all come, in order; one that is not here refuses the whole stream."""

    async def story() -> None:
        shuffle = await world.new_shuffle()
        contents = [make_content(file_key(shuffle, number), batch_bytes=50) for number in range(PLAN_FILES + 10)]
        async with world.client() as client:
            await asyncio.gather(*(write_file(client, content) for content in contents))
            order = random.Random(5).sample(contents, len(contents))
            keys = [content.key for content in order]
            for begin, end in ((3, 4), (0, 8)):
                expected: dict[Any, bytes] = {}
                for number, content in enumerate(order):
                    expected |= content.pieces(begin, end, number)
                assert await read_files(client, keys, begin, end) == expected
            unknown = file_key(shuffle, len(contents))
            assert await refused(read_files(client, [*keys, unknown], 3, 4)) == Status.UNKNOWN_FILE
            await client.request(FrameType.PING)

    run(story)


def test_a_thousand_streams_at_once(world: World) -> None:
    """A thousand streams with little credit each, on four connections, all end with the right bytes."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()), partitions=100, batch_bytes=2_000)
        expected = [content.pieces(at, at + 1) for at in range(100)]
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(world.client()) for _ in range(4)]
            await write_file(clients[0], content)

            async def one(number: int) -> None:
                at = number % 100
                assert await read_files(clients[number % 4], [content.key], at, at + 1, credit=512) == expected[at]

            await asyncio.gather(*(one(number) for number in range(1_000)))
            assert world.status()["streams"] == 0

    run(story)


def test_readers_that_do_not_read_cost_no_memory_and_stop_nobody(world: World) -> None:
    """Streams with full credit whose readers are stuck leave the worker's memory flat and the others served."""

    async def story() -> None:
        content = make_content(file_key(await world.new_shuffle()), regions=8, batch_bytes=MIB)
        async with contextlib.AsyncExitStack() as stack:
            good = await stack.enter_async_context(world.client())
            await write_file(good, content)
            before = world.status()["memory_bytes"]
            for _ in range(16):
                stuck = await stack.enter_async_context(world.client())
                for _ in range(4):
                    await stuck.open_stream(stream_request([content.key], 0, 8, 64 * MIB), Collector())
                stuck.hold()
            assert await read_files(good, [content.key], 2, 3) == content.pieces(2, 3)
            assert world.status()["memory_bytes"] < before + 16 * MIB

    run(story)


def test_pushes_beyond_the_memory_budget_wait_and_arrive(tmp_path: Path) -> None:
    """Many writers at once against a small budget: all files are whole, and buffers never exceed the budget."""
    settings = {"worker": {"memory": "16MiB"}}
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=settings) as cluster:
        world = World(cluster)

        async def story() -> None:
            shuffle = await world.new_shuffle()
            contents = [make_content(file_key(shuffle, n), regions=1, batch_bytes=MIB) for n in range(12)]

            async def write(content: MapContent) -> None:
                async with world.client() as client:
                    await write_file(client, content)

            await asyncio.gather(*map(write, contents))
            async with world.client() as client:
                for content in contents:
                    assert await read_files(client, [content.key], 0, 8) == content.pieces(0, 8)

        run(story)
        assert world.status()["body_bytes_peak"] <= 16 * MIB


def test_random_writers_under_kill_9(world: World) -> None:
    """Writers that never wait for a good moment, a worker killed among them: what was answered as sealed reads back."""
    chance = random.Random(3)

    async def story() -> None:
        shuffle = await world.new_shuffle()
        sealed: list[MapContent] = []

        async def write(number: int) -> None:
            content = make_content(file_key(shuffle, number), batch_bytes=chance.choice([10, 5_000, 200_000]))
            with contextlib.suppress(RetryError):
                async with world.client() as client:
                    await write_file(client, content)
                    sealed.append(content)

        for turn in range(3):
            writers = [asyncio.create_task(write(turn * 20 + number)) for number in range(20)]
            count = len(sealed)
            await wait_until_async(lambda: len(sealed) > count + 3, "some seals")  # noqa: B023 - awaited at once
            world.worker.kill()
            await asyncio.gather(*writers)
            world.worker.start()
            async with world.client() as client:
                for content in sealed:
                    assert await read_files(client, [content.key], 0, 8) == content.pieces(0, 8)

    run(story)
