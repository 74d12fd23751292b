"""The leader's connections to workers, against a socket peer."""

import asyncio
from dataclasses import replace

from holdfast.common.errors import RetryError
from holdfast.common.formats.reduce_messages import Seal
from holdfast.common.ids import RaftIndex
from holdfast.common.limits import FRAME_BODY_BYTES_MAX
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.server import serve
from holdfast.master.leader.links import Links
from tests.cluster.masters import worker as registration
from tests.cluster.reduce_peers import Peer
from tests.support.waiting import wait_until_async
from tests.unit.master.build import Log, key, worker


def test_a30_seals_that_nobody_waits_for_take_no_room() -> None:
    """A worker whose disk hangs takes hundreds of seals of commits that are cancelled, and answers none. A seal of
    somebody else reaches it all the same, and is answered."""

    async def story() -> None:
        peer = Peer("w1")
        peer.number = peer.incarnation = 1
        server = await serve("127.0.0.1", 0, peer, BufferPool(FRAME_BODY_BYTES_MAX))
        log = Log()
        host, port = server.address
        log.do(worker(1, address=f"{host}:{port}"))
        record = replace(log.state.workers[1], uid=registration(peer.name).uid)
        links = Links("c")
        seal = Seal(shuffle=key(), flags=0, raft_index=RaftIndex(1), epochs=[(0, 0)])
        peer.hold = True
        for number in range(1, 301):
            asked = asyncio.ensure_future(links.seal(record, seal))
            await wait_until_async(lambda: len(peer.seals) == number, "the seal to arrive")  # noqa: B023
            asked.cancel()
            await asyncio.wait((asked,))
        peer.hold = False
        answer = await asyncio.wait_for(links.seal(record, seal), 30)
        assert [(each.partition, each.epoch) for each in answer.epochs] == [(0, 0)]
        links.close()
        await server.close()

    asyncio.run(story())


def test_all_who_need_a_worker_that_hangs_up_wait_for_one_connection() -> None:
    """Twenty commits need a worker that takes connections and says nothing of itself: one connection is tried for all
    of them, and what comes of it is the answer to all. One by one the last would wait for twenty time-outs."""

    async def story() -> None:
        met: list[bytes] = []

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            met.append(await reader.read(1))
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        log = Log()
        log.do(worker(1, address=f"{host}:{port}"))
        links = Links("c")
        seal = Seal(shuffle=key(), flags=0, raft_index=RaftIndex(1), epochs=[(0, 0)])
        asked = [links.seal(log.state.workers[1], seal) for _ in range(20)]
        ended = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)
        assert [type(each) for each in ended] == [RetryError] * 20
        assert len(met) == 1
        links.close()
        server.close()

    asyncio.run(story())
