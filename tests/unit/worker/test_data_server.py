"""The data port of a worker, with a real store and a real socket: what one connection may do to all others."""

import asyncio
import gc
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Ack, MapOpen, Role
from holdfast.common.formats.reduce_messages import Push, PushCredit, Seal
from holdfast.common.ids import AttemptId, Epoch, Incarnation, MapFileKey, MapId, RaftIndex
from holdfast.common.limits import MIB
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.security.credentials import Credentials
from holdfast.common.security.tokens import TokenKind
from holdfast.common.statuses import Status
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.waiting import wait_until_async
from tests.unit.worker.data_world import INDEX, DataWorld, data_world, secured

#: Possible, and far beyond what any masters have.
LIE = RaftIndex(1 << 47)
#: Any start of a worker.
ANY = Incarnation(0)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


async def lie(world: DataWorld, role: Role) -> None:
    """Say the lie in every frame that has a place for it."""
    writer = Writer(shuffle_of())
    async with world.client(role, index=LIE) as client:
        if role is Role.MASTER:
            seal = Seal(shuffle=shuffle_of(3), flags=0, raft_index=LIE, epochs=[(0, 0)])
            await client.request(FrameType.SEAL, seal.encode())
            return
        await client.request(FrameType.PUSH_CREDIT, PushCredit(MIB).encode())
        meta, body = writer.push([writer.batch(0, b"bytes")], world.standing.incarnation)
        push = replace(Push.decode(meta), raft_index=LIE)
        await client.request(FrameType.PUSH if role is Role.CLIENT else FrameType.REPLICATE, push.encode(), body)
        if role is Role.CLIENT:
            file = MapFileKey(shuffle_of(2), MapId(0), AttemptId(1), Epoch(0))
            opening = MapOpen(file=file, incarnation=ANY, partitions=2, ack=Ack.WRITTEN, raft_index=LIE)
            await client.request(FrameType.MAP_OPEN, opening.encode())


@pytest.mark.parametrize("role", list(Role))
def test_nobody_who_connects_ends_deletion(tmp_path: Path, role: Role) -> None:
    """An index that no masters have is named in every frame that carries one, in every role: the worker goes by what
    masters answered it, or nothing here would be deleted any more."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            await lie(world, role)
            assert world.standing.raft_index == INDEX

    run(story())


def test_nothing_is_kept_of_a_connection_that_is_gone(tmp_path: Path) -> None:
    """An application's good token, with the name of another cluster, which is refused, or of this one: gone with all
    that it held, however often it comes again, and without help of the collector, which a worker seldom calls."""

    async def story() -> None:
        security = secured(tmp_path)
        token = security.keeper.mint(TokenKind.APPLICATION, bytes(16), int(time.time()), 600)
        credentials = Credentials(security.ca_pem, token)
        async with data_world(tmp_path, security) as world:

            def kept() -> list[ServerConnection]:
                there = [one for one in gc.get_objects() if isinstance(one, ServerConnection)]
                return [one for one in there if one._server is world.frames]

            gc.disable()
            try:
                for _ in range(5):
                    with pytest.raises(ProtocolError, match="belongs to cluster"):
                        async with world.client(cluster="other", credentials=credentials):
                            pass
                    async with world.client(credentials=credentials) as client:
                        await client.request(FrameType.PING)
                        assert kept()
                await wait_until_async(lambda: not kept(), "the worker to forget them")
            finally:
                gc.enable()

    run(story())


def test_a_start_that_the_masters_have_not_accepted_takes_no_pushes_and_answers_no_seals(tmp_path: Path) -> None:
    """With a directory gone, a start may have the incarnation of an earlier one. Until the masters have accepted it, a
    push that is for that one is not added to nothing, and a seal is not answered as if nothing had been pushed."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            world.server.begin_unregistered(known=True)
            world.standing.registered = False
            writer, own = Writer(shuffle_of()), world.standing.incarnation
            seal = Seal(shuffle=shuffle_of(), flags=0, raft_index=RaftIndex(0), epochs=[(0, 0)])
            async with world.client() as client, world.client(Role.MASTER) as master:
                await client.request(FrameType.PUSH_CREDIT, PushCredit(MIB).encode())
                refused = {}
                for more in (0, 1):
                    meta, body = writer.push([writer.batch(0, b"bytes")], Incarnation(own + more))
                    with pytest.raises(HoldfastError) as push:
                        await client.request(FrameType.PUSH, meta, body)
                    refused[more] = push.value.status
                assert refused == {0: Status.UNAVAILABLE, 1: Status.STALE_INCARNATION}
                file = MapFileKey(shuffle_of(2), MapId(0), AttemptId(1), Epoch(0))
                await client.request(FrameType.MAP_OPEN, MapOpen(file=file, incarnation=ANY, partitions=2).encode())
                with pytest.raises(RetryError) as error:
                    await master.request(FrameType.SEAL, seal.encode())
                assert error.value.status is Status.BUSY
                world.server.accept(True)
                world.standing.registered = True
                await master.request(FrameType.SEAL, seal.encode())

    run(story())


def test_a07_a_worker_that_ends_takes_nothing_new_whoever_it_registers_with(tmp_path: Path) -> None:
    """The masters answer again while a worker that ends waits for its last seals: what it registers changes nothing.
    A push from memory would be acknowledged and gone."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            writer = Writer(shuffle_of())
            async with world.client() as client:
                await client.request(FrameType.PUSH_CREDIT, PushCredit(MIB).encode())
                world.server.end("this worker is ending")
                world.server.accept(True)
                meta, body = writer.push([writer.batch(0, b"bytes")], world.standing.incarnation, ack=Ack.MEMORY)
                with pytest.raises(RetryError, match="this worker is ending"):
                    await client.request(FrameType.PUSH, meta, body)
                assert not world.server.pushes.reduce.shares.total

    run(story())
