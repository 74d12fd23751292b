"""What the leader waits for has an end, and its reason is told: the real parts, with one that never answers."""

import asyncio
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from holdfast.common.errors import OutcomeUnknownError, RetryError
from holdfast.common.formats.reduce_layouts import Location, ReduceLocations, ReduceWinners
from holdfast.common.ids import AttemptId, Epoch, WorkerId
from holdfast.common.limits import FRAME_BODY_BYTES_MAX
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.server import serve
from holdfast.common.statuses import Status
from holdfast.master.api.winners import WinnersCheck
from holdfast.master.control.locations import Locations
from holdfast.master.control.sealing import Sealing
from holdfast.master.leader import asking, proposer, turns
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.turns import turn
from holdfast.master.raft.member import Applied
from tests.cluster.masters import worker as registration
from tests.cluster.reduce_peers import Peer
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, key, reduce, worker

#: What would never end is given up by the test after this.
PATIENCE_SECONDS = 30


class Silent(Node):
    """A master of whose others none writes anything down, though they are there."""

    def propose(self, entry: bytes) -> Future[Applied]:
        return Future()

    def read(self, read: Any) -> Future[Any]:
        return Future()


def test_commands_and_reads_end_though_no_majority_writes_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other masters answer and have not the log yet, so this one goes on leading: a command ends as one of which
    nobody knows the outcome, a read as one to be tried again."""
    monkeypatch.setattr(proposer, "ANSWER_SECONDS", 0.01)

    async def story() -> None:
        leader = leader_of(Silent())
        with pytest.raises(OutcomeUnknownError, match="same call number"):
            await asyncio.wait_for(do(leader, application()), PATIENCE_SECONDS)
        with pytest.raises(RetryError, match="no majority"):
            await asyncio.wait_for(leader.confirmed(lambda state: state), PATIENCE_SECONDS)

    asyncio.run(story())


def test_a_commit_ends_though_a_living_worker_never_answers_its_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker with the only copy lives, takes the seal, and never answers: the commit fails with a sentence that
    names it, and calls nothing lost."""
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.01)

    async def story() -> None:
        peer = Peer("w1")
        peer.number = peer.incarnation = 1
        peer.hold = True
        server = await serve("127.0.0.1", 0, peer, BufferPool(FRAME_BODY_BYTES_MAX))
        host, port = server.address
        leader = leader_of(Node(), worker={"return_grace": "10ms"})
        leader.leadership(True, 1)
        place = ReduceLocations((Location(Epoch(0), (WorkerId(1),)),) * 4).encode()
        one = replace(worker(1, address=f"{host}:{port}"), uid=registration(peer.name).uid)
        await do(leader, one, application(), reduce(assignment=place))
        shuffle = leader.peek(lambda state: state.shuffle(key()))
        assert shuffle is not None
        winners = ReduceWinners(4, (AttemptId(5),)).encode()
        seen = await WinnersCheck().see(shuffle, winners, "user")
        sealing = Sealing(leader, Locations(), Asker(leader))
        with pytest.raises(RetryError, match='"w1" could not seal its data') as ended:
            await asyncio.wait_for(sealing.commit(shuffle, winners, seen), PATIENCE_SECONDS)
        assert ended.value.status is Status.BUSY
        assert peer.seals
        assert leader.counts.commits_without_worker == 0
        leader.leadership(False, 1)
        await server.close()

    asyncio.run(story())


def test_who_does_not_get_a_turn_in_time_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds the turn and does not give it back: the next caller is told to try again, and with what the others
    are busy. When it is free the next one has it."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.01)

    async def story() -> None:
        lock = asyncio.Lock()
        async with turn(lock, "a long job"):
            with pytest.raises(RetryError, match="at a long job") as refused:
                async with turn(lock, "a long job"):
                    raise AssertionError("two have one turn")
            assert refused.value.status is Status.BUSY
        async with turn(lock, "a long job"):
            assert lock.locked()

    asyncio.run(story())
