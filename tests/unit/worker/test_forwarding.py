"""Pushes repeated to a real data port: what one application names wrongly is its own loss."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError, UnauthenticatedError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, HelloOk, Role
from holdfast.common.formats.reduce_messages import (
    IncompleteCopy,
    Push,
    PushAnswer,
    PushCredit,
    PushSettle,
    PushSettled,
)
from holdfast.common.ids import AttemptId, Epoch, Incarnation, MapId, PartitionId, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.server import ServerConnection, serve
from holdfast.common.security.credentials import Credentials
from holdfast.common.security.server import ServerSecurity
from holdfast.common.statuses import Status
from holdfast.common.system.descriptors import WorkerDescriptors
from holdfast.worker.server.context import ServerBounds, WorkerContext
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.services.forwarding import Forwarder, _Peer
from tests.support.frame_world import Echo
from tests.support.logged import logged
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.registered import EverythingRegistered
from tests.support.waiting import wait_until_async
from tests.unit.worker.data_world import CLUSTER, DataWorld, data_world, secured


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


class Primary:
    """The worker that took the pushes, as far as it forwards."""

    def __init__(self, world: DataWorld, security: ServerSecurity | None = None, peers_max: int = 256) -> None:
        self.world = world
        self.standing = WorkerIdentity(CLUSTER, "w2", Incarnation(1), WorkerId(2), credentials=security)
        bounds = ServerBounds(descriptors=replace(WorkerDescriptors.of(1 << 14), peers=peers_max))
        self.forwarder = Forwarder(WorkerContext(world.store, self.standing, bounds, asking=EverythingRegistered()))
        self._shuffles = 0

    async def forward(self, size: int = 100, of_user: bytes = b"", **named: Any) -> Sequence[int]:
        """Repeat a push of one batch, whose client named this of the replica; return what was not kept."""
        self._shuffles += 1
        writer = Writer(shuffle_of(self._shuffles))
        place = replace(self.world.place, **named)
        meta, body = writer.push([writer.batch(0, bytes(size))], 1, replicas=(place,))
        return await self.forwarder.forward(Push.decode(meta, of_user), place, [0], memoryview(body))

    @property
    def connections(self) -> list[int]:
        """The numbers of its connections."""
        return [one.number for one in self.world.frames.connections]


def test_a_wrong_worker_number_costs_only_who_named_it(tmp_path: Path) -> None:
    """Beside a push of one application another names the right address with a wrong number, before the connection is
    there and over it: that one fails, the others are kept, over the same connection."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            primary = Primary(world)
            for _ in range(2):
                wrong = asyncio.create_task(primary.forward(worker=WorkerId(77)))
                right = asyncio.create_task(primary.forward(4 * MIB))
                with pytest.raises(RetryError, match="is worker 1, not 77"):
                    await wrong
                assert await right == []
                assert primary.connections == [1]
            assert primary.forwarder.unreachable == 0
            primary.forwarder.close()

    run(story())


def test_copies_count_for_the_user_whose_application_pushed(tmp_path: Path) -> None:
    """A replica hears from the primary whose a push is, and counts the epochs that it opens for that user: all copies
    on a worker, whichever worker sent them. Without a user they count for the application alone."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            primary, shares = Primary(world), world.server.pushes.reduce.shares
            for _ in range(2):
                assert await primary.forward(of_user=b"of whom.") == []
            assert await primary.forward() == []
            instance = shuffle_of().instance
            assert (shares.held((b"of whom.",)), shares.held((b"of whom.", instance))) == (2, 2)
            assert (shares.held((instance,)), shares.total) == (1, 3)
            primary.forwarder.close()

    run(story())


def test_a_worker_that_got_another_number_is_found_again(tmp_path: Path) -> None:
    """New masters give the replica another number while the connection to it stands: pushes that name the new one are
    kept, since the replica closes what it has told its old number."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            primary = Primary(world)
            assert await primary.forward() == []
            peer = primary.forwarder._peers[world.address]
            world.standing.worker = WorkerId(9)
            world.server.renumber()
            await wait_until_async(lambda: peer.client.closed, "the replica to close the connection")
            assert await primary.forward(worker=WorkerId(9)) == []
            primary.forwarder.close()

    run(story())


class Garbler(Echo):
    """A replica whose answers cannot be read while it is told so. It grants what is asked for."""

    garbles = True
    #: what it answers of pushes that it does not keep waiting
    refuses: tuple[tuple[int, int], ...] = ()

    def frame(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
        if body is None or self.keep:
            super().frame(connection, header, meta, body)
            return
        body.release()
        connection.reply(header, b"?" if self.garbles else PushAnswer(MIB, 0, 0, list(self.refuses)).encode())


def test_a47_a_replica_whose_answer_cannot_be_read_costs_that_push_alone(tmp_path: Path) -> None:
    """A replica answers a push with what nobody can read: that push has failed there, and the next one goes over the
    same connection, in the room that the first one had."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            primary, garbler = Primary(world), Garbler()
            replica = await serve("127.0.0.1", 0, garbler, BufferPool(64 * MIB))
            named: dict[str, Any] = {"address": f"127.0.0.1:{replica.address[1]}", "worker": WorkerId(3)}
            with pytest.raises(ProtocolError):
                await primary.forward(**named)
            garbler.garbles = False
            assert await primary.forward(**named) == []
            assert len(replica.connections) == 1
            assert primary.forwarder.unreachable == 0
            primary.forwarder.close()
            await replica.close()

    run(story())


def test_a47_a_replica_that_is_waited_for_keeps_its_connection(tmp_path: Path) -> None:
    """A worker has more replicas than connections to them: the one that goes is one of which nobody waits for an
    answer, and of those the one used least recently."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            primary, garblers = Primary(world, peers_max=3), [Garbler() for _ in range(5)]
            replicas = [await serve("127.0.0.1", 0, one, BufferPool(64 * MIB)) for one in garblers]
            named: list[dict[str, Any]] = [
                {"address": f"127.0.0.1:{one.address[1]}", "worker": WorkerId(3)} for one in replicas
            ]
            for one in garblers:
                one.garbles = False
            garblers[0].keep = True
            waited_for = asyncio.create_task(primary.forward(**named[0]))
            await wait_until_async(lambda: garblers[0].kept, "the push to come")
            for number in (1, 2, 1, 3, 4):
                assert await primary.forward(**named[number]) == []
            connection, header, body = garblers[0].kept.pop()
            body.release()
            connection.reply(header, PushAnswer(MIB, 0, 0, []).encode())
            assert await waited_for == []
            await wait_until_async(lambda: not replicas[2].connections, "the connection used least recently to go")
            assert primary.forwarder.unreachable == 0
            primary.forwarder.close()
            for replica in replicas:
                await replica.close()

    run(story())


def test_a47_room_that_was_given_to_who_has_gone_goes_to_the_next(tmp_path: Path) -> None:
    """Of three pushes that wait for the window of a replica one is given room and goes before it hears of that, and
    another goes from the line: the last one gets the room."""

    async def story() -> None:
        async with data_world(tmp_path) as world, world.client(Role.WORKER) as client:
            peer = _Peer(world.place, client)
            sending = asyncio.create_task(peer.wait_for_window(MIB))
            await sending
            reported, waiting, last = [asyncio.create_task(peer.wait_for_window(MIB)) for _ in range(3)]
            await wait_until_async(lambda: len(peer._line) == 3, "three pushes in line")
            peer.answered(MIB, MIB)
            for gone in (reported, waiting):
                gone.cancel()
            await last
            assert reported.cancelled()
            assert waiting.cancelled()
            assert peer.unanswered == MIB

    run(story())


def test_a47_why_a_replica_failed_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pushes name a replica that is not there: each is answered REPLICA_FAILED, and the log says why, once."""

    async def story() -> None:
        async with data_world(tmp_path) as world, world.client() as client:
            await client.request(FrameType.PUSH_CREDIT, PushCredit(MIB).encode())
            writer, nobody = Writer(shuffle_of()), replace(world.place, address="127.0.0.1:1", worker=WorkerId(9))
            for _ in range(3):
                frame = writer.push([writer.batch(0, b"a")], world.standing.incarnation, replicas=(nobody,))
                reply = await client.request(FrameType.PUSH, *frame)
                assert dict(PushAnswer.decode(reply.meta).statuses) == {0: Status.REPLICA_FAILED}
        (said,) = logged(caplog, LogEvent.PUSH_REPLICATION_FAILED)
        assert "cannot connect to 127.0.0.1:1" in str(said["reason"])

    run(story())


class Catcher(Echo):
    """A host of the attacker: it has a certificate of the CA, and keeps what is shown to it."""

    token = ""

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        self.token = hello.token.decode()
        return super().hello(connection, hello)


def test_what_is_shown_to_whomever_a_client_names_is_worth_nothing_elsewhere(tmp_path: Path) -> None:
    """An application names a host of its own as the replica and catches the token that the worker shows there: no
    worker takes it, in any role, and no master; the same worker's pushes to a real replica are kept."""

    async def story() -> None:
        security = secured(tmp_path)
        async with data_world(tmp_path, security) as world:
            primary = Primary(world, secured(tmp_path, "w2"))
            catcher = Catcher()
            trap = await serve("127.0.0.1", 0, catcher, BufferPool(64 * MIB), security.listening)
            with pytest.raises(RetryError, match="is worker"):
                await primary.forward(address=f"127.0.0.1:{trap.address[1]}", worker=WorkerId(77))
            for role in Role:
                with pytest.raises(UnauthenticatedError, match="another server"):
                    async with world.client(role, credentials=Credentials(security.ca_pem, catcher.token)):
                        pass
            with pytest.raises(UnauthenticatedError, match="another server"):
                security.identify(catcher.token)
            assert await primary.forward() == []
            primary.forwarder.close()
            await trap.close()

    run(story())


def test_two_workers_that_are_named_as_each_others_replica_do_not_wait_for_one_another(tmp_path: Path) -> None:
    """One application pushes the same batch to two workers, each the replica of the other: it hears that this cannot
    be, and neither worker gives the other up, to which others repeat their pushes as well."""

    async def story() -> None:
        async with data_world(tmp_path / "a") as one, data_world(tmp_path / "b") as two:
            two.standing.worker = WorkerId(2)
            async with one.client() as to_one, two.client() as to_two:
                asked = []
                for client, world, replica in ((to_one, one, two), (to_two, two, one)):
                    await client.request(FrameType.PUSH_CREDIT, PushCredit(MIB).encode())
                    writer = Writer(shuffle_of())
                    frame = writer.push(
                        [writer.batch(0, b"same")], world.standing.incarnation, replicas=(replica.place,)
                    )
                    asked.append((client, frame))
                answers = [await client.start(FrameType.PUSH, *frame) for client, frame in asked]
                for answer in answers:
                    statuses = PushAnswer.decode((await answer).meta).statuses
                    assert dict(statuses) == {0: Status.REPLICA_FAILED}
                for world in (one, two):
                    assert world.server.pushes.forwarder.unreachable == 0

    run(story())


def settle(incarnation: Incarnation, partitions: int) -> bytes:
    """Ask about the first epoch of so many partitions."""
    epochs = [(partition, 0) for partition in range(partitions)]
    asked = PushSettle(shuffle=shuffle_of(), incarnation=incarnation, map=MapId(0), attempt=AttemptId(0), epochs=epochs)
    return asked.encode()


@pytest.mark.parametrize("fails", [False, True])
def test_a_slow_replica_holds_up_no_answer_and_is_named(tmp_path: Path, fails: bool) -> None:
    """Two of three copies acknowledge. A replica keeps what it is sent and says nothing: pushes are answered, and name
    it as behind, while their bodies are kept in the window's budget. Who settles is answered when it has answered, too,
    with the name of its copy if that failed; then the bodies are given back, and the epoch takes nothing more. Another
    start of the primary knows nothing of it, and says so."""

    async def story() -> None:
        async with (
            data_world(tmp_path / "a") as primary,
            data_world(tmp_path / "b") as second,
            primary.client() as client,
        ):
            second.standing.worker = WorkerId(2)
            slow = Garbler()
            slow.keep, slow.garbles = True, False
            third = await serve("127.0.0.1", 0, slow, BufferPool(64 * MIB))
            place = replace(second.place, address=f"127.0.0.1:{third.address[1]}", worker=WorkerId(3))
            incarnation, pushes = primary.standing.incarnation, primary.server.pushes
            writer, size = Writer(shuffle_of()), MIB
            await client.request(FrameType.PUSH_CREDIT, PushCredit(4 * MIB).encode())

            async def push(partition: int) -> PushAnswer:
                batch = writer.batch(partition, bytes(size))
                frame = writer.push([batch], incarnation, replicas=(second.place, place), ack_copies=2)
                return PushAnswer.decode((await client.request(FrameType.PUSH, *frame)).meta)

            answers = [await push(partition) for partition in (0, 1)]
            assert [(each.statuses, each.failed, each.behind) for each in answers] == [([], 0, 2)] * 2
            assert answers[1].credit_bytes < 4 * MIB - size
            await wait_until_async(lambda: bool(slow.kept), "the slow replica to have one")
            assert primary.pool.used_bytes >= 2 * size
            settling = asyncio.ensure_future(client.request(FrameType.PUSH_SETTLE, settle(incarnation, 2)))
            await wait_until_async(lambda: bool(pushes._settling), "the question to wait")
            slow.keep, slow.refuses = False, ((0, int(Status.FAILED_COPY)),) if fails else ()
            for connection, header, body in slow.kept:
                slow.frame(connection, header, b"", body)
            settled = PushSettled.decode((await settling).meta)
            names = [IncompleteCopy(PartitionId(one), Epoch(0), WorkerId(3)) for one in (0, 1)]
            assert settled.incomplete == (names if fails else [])
            await wait_until_async(lambda: not (pushes._kept or primary.pool.used_bytes), "the bodies to go")
            pushes.credits.check()
            await client.request(FrameType.PUSH_CREDIT, PushCredit(4 * MIB).encode())
            answer = await push(0)
            assert (answer.statuses, answer.failed) == (([(0, Status.REPLICA_FAILED)], 2) if fails else ([], 0))
            with pytest.raises(HoldfastError, match="this is incarnation"):
                await client.request(FrameType.PUSH_SETTLE, settle(Incarnation(incarnation + 1), 1))
            await third.close()

    run(story())
