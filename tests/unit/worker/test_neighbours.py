"""One worker of a host sends the heartbeats of all, and none depends on it."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator

import pytest

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.worker.server.membership.neighbours import Neighbours
from tests.support.waiting import wait_until_async

SECONDS = 40.0


class Worker:
    """A worker of the host, the masters that it calls, and what these heard."""

    def __init__(self, number: int, cluster: str, masters: list[list[int]]) -> None:
        self.number, self.masters = number, masters
        self.woken = asyncio.Event()
        self.neighbours = Neighbours(cluster, "h1", self.woken.set)

    async def send(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        """The masters' answer: its index is the number of the worker."""
        beats = [request, *request.neighbours]
        self.masters.append([each.worker for each in beats])
        own, *others = [pb.HeartbeatReply(raft_index=each.worker) for each in beats]
        own.neighbours.extend(others)
        return own

    async def beat(self, seconds: float = SECONDS) -> int:
        """Send a heartbeat; return whom the answer is for."""
        request = pb.HeartbeatRequest(worker=self.number)
        return (await self.neighbours.beat(request, self.send, seconds)).raft_index

    async def beat_when_called(self) -> int:
        """Send a heartbeat as soon as the speaker calls."""
        await self.woken.wait()
        self.woken.clear()
        return await self.beat()


@contextlib.asynccontextmanager
async def host(count: int) -> AsyncIterator[tuple[list[Worker], list[list[int]]]]:
    """Workers of one host of which the first speaks, and what the masters hear."""
    heard: list[list[int]] = []
    cluster = secrets.token_hex(8)
    workers = [Worker(number, cluster, heard) for number in range(1, count + 1)]
    try:
        for each in workers:
            await each.neighbours.meet()
        await wait_until_async(lambda: len(workers[0].neighbours._lines) == count - 1, "all to meet")
        yield workers, heard
    finally:
        for each in workers:
            each.neighbours.close()


def test_one_call_has_the_heartbeats_of_all() -> None:
    """The masters are called once for three workers, and each gets its own answer; the next time as well."""

    async def story() -> None:
        async with host(3) as (workers, heard):
            speaker, *others = workers
            for _ in range(2):
                answers = await asyncio.gather(speaker.beat(), *(each.beat_when_called() for each in others))
                assert answers == [1, 2, 3]
            assert [sorted(each) for each in heard] == [[1, 2, 3]] * 2

    asyncio.run(story())


def test_who_is_not_called_beats_alone() -> None:
    """A speaker that hangs calls nobody: its neighbours are due a little later than it, and send their own."""

    async def story() -> None:
        async with host(2) as (workers, heard):
            assert workers[1].neighbours.pause(2.0) > workers[0].neighbours.pause(2.0) == 2.0
            assert await workers[1].beat() == 2
            assert heard == [[2]]

    asyncio.run(story())


def test_who_gets_no_answer_beats_alone() -> None:
    """A speaker whose call of the masters hangs, or fails, costs its neighbour half the time between heartbeats, or
    nothing; then it sends its own."""

    async def story(ends: bool) -> None:
        async with host(2) as (workers, heard):
            speaker, other = workers
            reached = asyncio.Event()

            async def lost(request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
                reached.set()
                if ends:
                    raise ConnectionError
                return await asyncio.get_running_loop().create_future()

            request = pb.HeartbeatRequest(worker=1)
            beating = asyncio.ensure_future(speaker.neighbours.beat(request, lost, SECONDS))
            await other.woken.wait()
            assert await other.beat(SECONDS if ends else 0.2) == 2
            assert reached.is_set(), "it handed its heartbeat over before"
            assert heard == [[2]]
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await beating

    asyncio.run(story(ends=True))
    asyncio.run(story(ends=False))


def test_who_is_late_is_not_waited_for() -> None:
    """A neighbour that hands over nothing within a moment holds up nobody, and goes on by itself."""

    async def story() -> None:
        async with host(3) as (workers, heard):
            speaker, good, stuck = workers
            assert [*await asyncio.gather(speaker.beat(8.0), good.beat_when_called())] == [1, 2]
            assert heard == [[1, 2]]
            assert await stuck.beat() == 3

    asyncio.run(story())


def test_who_joins_while_others_hand_over_is_there_the_next_time() -> None:
    """A neighbour that connects while the speaker waits for another one is called with the next heartbeat."""

    async def story() -> None:
        async with host(2) as (workers, heard):
            speaker, other = workers
            beating = asyncio.ensure_future(speaker.beat())
            await other.woken.wait()
            third = Worker(3, "", heard)
            third.neighbours._address = speaker.neighbours._address
            await third.neighbours.meet()
            await wait_until_async(lambda: len(speaker.neighbours._lines) == 2, "the third to join")
            assert [await other.beat_when_called(), await beating] == [2, 1]
            again = (speaker.beat(), other.beat_when_called(), third.beat_when_called())
            assert [*await asyncio.gather(*again)] == [1, 2, 3]
            third.neighbours.close()
            assert [sorted(each) for each in heard] == [[1, 2], [1, 2, 3]]

    asyncio.run(story())


def test_another_one_speaks_when_the_speaker_ends() -> None:
    """Of the workers that are left one speaks next, and the others find it."""

    async def story() -> None:
        async with host(3) as (workers, heard):
            workers[0].neighbours.close()
            await wait_until_async(lambda: workers[1].neighbours._speaker is workers[2].neighbours._speaker is None, "")
            assert await workers[1].beat() == 2
            for each in workers[1:]:
                await each.neighbours.meet()
            await wait_until_async(lambda: bool(workers[1].neighbours._lines), "the third to find the second")
            assert [*await asyncio.gather(workers[1].beat(), workers[2].beat_when_called())] == [2, 3]
            assert heard == [[2], [2, 3]]

    asyncio.run(story())


def test_hosts_and_clusters_do_not_meet() -> None:
    """Workers of another host, or of another cluster on the same machine, speak for themselves."""

    async def story() -> None:
        made = [Neighbours(cluster, name, lambda: None) for cluster, name in (("c", "h1"), ("c", "h2"), ("d", "h1"))]
        suffix = secrets.token_hex(4)
        for each in made:
            each._address += suffix
            await each.meet()
        assert all(each._server is not None for each in made)
        for each in made:
            each.close()

    asyncio.run(story())


def test_strange_words_end_the_connection() -> None:
    """What is no frame, too long, or was not asked for is hung up on, and the speaker goes on."""

    async def story() -> None:
        async with host(1) as ((speaker,), heard):
            for words in (b"\xff\xff\xff\xff", b"\x01\x00\x00\x00x"):
                with socket.socket(socket.AF_UNIX) as stranger:
                    stranger.setblocking(False)
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(stranger, speaker.neighbours._address)
                    await loop.sock_sendall(stranger, words)
                    with contextlib.suppress(ConnectionResetError):
                        assert await loop.sock_recv(stranger, 1) == b""
            assert await speaker.beat() == 1
            assert heard == [[1]]

    asyncio.run(story())


def test_another_user_is_nobody(monkeypatch) -> None:
    """Processes of another user neither speak for this worker nor are spoken for."""

    async def story() -> None:
        async with host(1) as ((speaker,), heard):
            monkeypatch.setattr(os, "getuid", lambda: 4_711)
            reader, writer = await asyncio.open_unix_connection(speaker.neighbours._address)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            assert not speaker.neighbours._lines
            assert await speaker.beat() == 1
            assert heard == [[1]]

    asyncio.run(story())


def test_who_was_hung_up_on_looks_for_a_speaker_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another user has the socket: the worker is alone, with the pauses of one that is, and once the other
    one ends it speaks itself."""

    async def story() -> None:
        async with host(1) as ((speaker,), heard):
            alone = Worker(2, "", heard)
            alone.neighbours._address = speaker.neighbours._address
            with monkeypatch.context() as patch:
                patch.setattr(os, "getuid", lambda: 4_711)
                await alone.neighbours.meet()
            assert alone.neighbours.pause(2.0) == 2.0
            speaker.neighbours.close()
            await alone.neighbours.meet()
            assert alone.neighbours._server is not None
            alone.neighbours.close()

    asyncio.run(story())
