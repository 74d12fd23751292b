"""Which workers the leader calls needless while their hosts are about to go away: the real restorer on one master whose
log is applied at once, and workers that nobody asks for anything."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, NoRoomError, RetryError
from holdfast.common.formats.reduce_layouts import CopyResult, EpochResult, Location, ReduceLocations, ReduceManifest
from holdfast.common.formats.reduce_messages import Restore, SealAnswer, SealedEpoch
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey, WorkerId
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.control import restoring
from holdfast.master.control.auditing import CopyAudit
from holdfast.master.control.locations import Locations
from holdfast.master.control.manifests import replace_manifest
from holdfast.master.control.restoring import CopyRestorer
from holdfast.master.core.drains import Kept
from holdfast.master.core.restoring import with_places
from holdfast.master.core.seals import tally
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Worker
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader
from tests.support.waiting import wait_until_async
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, commit_reduce, key, reduce, worker

PARTITIONS = 4


class World:
    """A leader of five workers, each on its own host, and its restorer, which looks when it is told to."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.restorer = CopyRestorer(leader, Fleet(leader), Locations(), Asker(leader))
        self.copies_begun = 0
        self.restorer._copy = self._copy  # type: ignore[method-assign]

    def _copy(self, workers: Mapping[int, Worker]) -> None:
        self.copies_begun += 1

    async def commit(self, copies: Mapping[int, Status], of: ShuffleKey | None = None, wanted: int = 2) -> None:
        """A shuffle that was placed on workers 1 and 2, or 1 alone, with these copies of each epoch by now."""
        places = (Location(Epoch(0), (WorkerId(1), WorkerId(2))[:wanted]),) * PARTITIONS
        those = tuple(
            [CopyResult(WorkerId(one), status, 100 * (status is Status.OK)) for one, status in copies.items()]
        )
        results = tuple([EpochResult(PartitionId(each), Epoch(0), those) for each in range(PARTITIONS)])
        numbers = {name: number for name, number in tally(results, wanted)._asdict().items() if name != "epochs"}
        manifest = ReduceManifest(PARTITIONS, results).encode()
        await do(
            self.leader,
            reduce(of, copies_wanted=wanted, copies=wanted, assignment=ReduceLocations(places).encode()),
            commit_reduce(PARTITIONS, of, manifest=manifest, **numbers),
        )
        now = self.leader.now_ms()
        await wait_until_async(lambda: self.leader.now_ms() > now + 1, "it to have lived for as long as a copy takes")

    async def lose(self, *numbers: int) -> None:
        await do(self.leader, cmd.SetWorkersAlive(False, tuple([cmd.WorkerRef(one, 1) for one in numbers])))
        self.leader.lives_changed += 1

    async def return_(self, number: int) -> None:
        await do(self.leader, cmd.SetWorkersAlive(True, (cmd.WorkerRef(number, 1),)))
        self.leader.lives_changed += 1

    async def depart(self, number: int) -> None:
        await do(self.leader, cmd.SetWorkersDraining(True, (cmd.WorkerRef(number, 1),), 1 << 50))

    def is_needed(self, number: int) -> bool:
        """Whether a worker that keeps something may not be removed."""
        there = self.leader.peek(lambda state: state.workers[number])
        return self.leader.drains.needed(there, Kept(0, 7), self.leader.lives_changed).shuffles > 0


def world(story: Callable[[World], Awaitable[None]], **section: Any) -> None:
    async def run() -> None:
        leader = leader_of(Node(), worker={"restore_after": "1ms", **section})
        leader.leadership(True, 1)
        await do(leader, *map(worker, range(1, 6)), application())
        now = leader.now_ms()
        await wait_until_async(lambda: leader.now_ms() > now + 1, "lost workers to be gone")
        await story(World(leader))
        leader.leadership(False, 1)

    asyncio.run(run())


def test_a_copy_that_was_made_later_counts_also_while_its_manifest_changes() -> None:
    """Both workers of a commit are gone, and the one that has the copy that was made since goes away as well. Its
    manifest is replaced while the leader looks, as when a copy elsewhere is answered: it is needed all the same."""

    async def story(world: World) -> None:
        await world.commit({1: Status.OK, 2: Status.OK, 3: Status.OK})
        await world.lose(1, 2)
        await world.depart(3)
        restorer: Any = world.restorer
        look = restorer._look_at_all

        async def and_replace(*seen: Any) -> None:
            await look(*seen)
            change = partial(with_places, places={0: [4]}, gone=frozenset())
            await replace_manifest(world.leader, key(), change)

        restorer._look_at_all = and_replace
        await world.restorer._look()
        assert world.is_needed(3)

    world(story)


def test_whoever_is_lost_makes_others_needed_whatever_the_leader_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two others have the copies of a worker that goes away, so it is needless. One of them is lost: it may not be
    removed before the leader has looked again, nor after that, though the manifests cannot be replaced."""

    async def refused(*_: object) -> None:
        raise NoRoomError("the masters hold too much")

    async def story(world: World) -> None:
        await world.commit({1: Status.OK, 2: Status.OK, 3: Status.OK})
        await world.depart(3)
        await world.restorer._look()
        assert not world.is_needed(3)
        monkeypatch.setattr(restoring, "replace_manifest", refused)
        await world.lose(1)
        assert world.is_needed(3), "nobody has looked since"
        await world.restorer._look()
        assert world.copies_begun == 2, "what has a place is copied all the same"
        assert world.is_needed(3)
        await world.return_(1)
        await world.restorer._look()
        assert not world.is_needed(3)

    world(story)


def test_who_may_have_an_only_copy_unheard_is_asked_when_its_host_is_gone() -> None:
    """Worker 4 was to copy what worker 1 alone had before its host went away; the leader of then ended before it heard
    that this was done, and the host is gone. The next leader asks worker 4."""

    async def story(world: World) -> None:
        await world.commit({1: Status.OK, 4: Status.NOT_SEALED}, wanted=1)
        await world.depart(1)
        await world.lose(1)
        await world.restorer._look()
        assert [*world.restorer._queue_of[key()].targets] == [4]

    world(story)


def test_who_never_has_room_for_a_copy_makes_room_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 3 was given a place when it had room, and has none now: after some tries another worker is to make the
    copy. A worker that is only busy is asked on."""

    async def story(world: World) -> None:
        restorer = world.restorer
        await world.commit({1: Status.OK, 2: Status.OK, 3: Status.NOT_SEALED})
        await world.lose(2)
        refusal: HoldfastError = RetryError("others are asked", status=Status.BUSY)

        async def ask(*_: object) -> None:
            raise refusal

        monkeypatch.setattr(restorer, "_ask", ask)

        async def tried() -> int:
            there = world.leader.peek(lambda state: dict(state.workers))
            await restorer._look()
            copying = restorer._looks[key()].found.copying
            await restorer._restore(key(), there[1], there[copying[0].target], copying)
            return copying[0].target

        assert [await tried() for _ in range(6)] == [3] * 6
        refusal = NoRoomError("full", status=Status.DISK_FULL)
        assert await tried() == 3
        await restorer._look()
        await restorer._look()
        assert {*restorer._queue_of[key()].targets} <= {4, 5}

    world(story)


def test_the_only_copy_that_is_there_keeps_its_name() -> None:
    """An epoch names five workers, of which four are gone and the first one, which alone can be read, goes away. Who is
    to copy it takes the names of others: it is the source, and needed, until that is done."""

    async def story(world: World) -> None:
        await do(world.leader, worker(6), worker(7))
        await world.commit(dict.fromkeys((1, 2, 3, 4, 5), Status.OK))
        await world.lose(2, 3, 4, 5)
        await world.depart(1)
        for _ in range(3):
            await world.restorer._look()
            assert world.is_needed(1)
        copying = world.restorer._looks[key()].found.copying
        assert {each.target for each in copying} == {6, 7}
        assert {each.sources for each in copying} == {(1,)}

    world(story)


def test_what_many_workers_say_at_once_replaces_a_manifest_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers answer for their copies of one shuffle while its manifest is being replaced: the answers of those
    that waited go into one command, and none is lost."""

    async def story(world: World) -> None:
        restorer = world.restorer
        await world.commit({1: Status.OK, 3: Status.NOT_SEALED, 4: Status.NOT_SEALED, 5: Status.NOT_SEALED}, wanted=2)
        there = world.leader.peek(lambda state: dict(state.workers))

        async def restore(_: Worker, asked: Restore) -> SealAnswer:
            made = [SealedEpoch(PartitionId(one), Epoch(epoch), Status.OK, size) for one, epoch, size in asked.epochs]
            return SealAnswer(epochs=made)

        monkeypatch.setattr(restorer._asker, "restore", restore)
        await restorer._look()
        copying = restorer._looks[key()].found.copying
        asked = {each: [one for one in copying if one.target == each] for each in (3, 4, 5)}
        async with restorer._turn:
            jobs = [asyncio.ensure_future(restorer._restore(key(), there[1], there[n], asked[n])) for n in asked]
            await wait_until_async(lambda: len(restorer._heard.get(key(), ())) == 3, "all to wait")
        await asyncio.gather(*jobs)
        shuffle = world.leader.peek(lambda state: state.shuffle(key()))
        assert shuffle is not None
        assert (shuffle.manifest_version, shuffle.unsealed, restorer._heard) == (1, 0, {})

    world(story)


def test_gone_is_only_who_had_drained_until_it_kept_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What says that a host may be removed passes over workers that are gone. Who kept something is lost, however it
    ended, and so is one of which this leader has not heard since it drains."""

    async def story(world: World) -> None:
        leader = world.leader
        await do(leader, cmd.SetWorkersDraining(True, (cmd.WorkerRef(1, 1),), 0))
        drained, *others = leader.peek(lambda state: list(state.workers.values()))

        def gone(**beat: Any) -> bool:
            if beat:
                leader.heard("w1", pb.HeartbeatRequest(worker=1, incarnation=1, **beat))
            return bool(leader._gone([drained, *others], [cmd.WorkerRef(1, 1)]))

        assert not gone()
        leader.drains.looked([drained], Counter(), Counter(), Counter())
        assert not gone()
        assert not gone(leaving=True)  # it has not received the drain
        assert not gone(emptying=pb.Emptying(shuffles=1))
        assert not gone(emptying=pb.Emptying(writing=1))
        assert not gone(emptying=pb.Emptying(shuffles=1), leaving=True)
        assert gone(emptying=pb.Emptying())
        leader.drains.looked([drained], Counter({1: 2}), Counter({1: 1}), Counter())
        assert not gone(emptying=pb.Emptying())

        leader.drains.looked([drained], Counter(), Counter(), Counter())
        assert gone(emptying=pb.Emptying())
        silent = leader.now_ns() + leader.config.lease.worker.ns
        monkeypatch.setattr(leader, "now_ns", lambda: silent)
        assert gone(), "it needs no copies that others have"
        drained = replace(drained, leaves_ms=1 << 50)
        assert not gone(), "others are silent, and may be lost with the copies for which it may go"
        for other in others:
            leader.liveness.heard_worker(silent, other.id, 1)
        assert gone()

    world(story)


def test_who_may_lack_copies_is_asked_after_a_boot_and_while_a_directory_fails() -> None:
    """With a boot go directories in memory, and a start without a directory counts as one; what is registered later it
    has. Nobody else is asked."""

    async def story(world: World) -> None:
        leader = world.leader
        await world.commit({1: Status.OK, 2: Status.OK})
        shuffle, known = leader.peek(lambda state: (state.shuffle(key()), state.workers[1]))
        assert shuffle is not None
        audit = CopyAudit(leader, Asker(leader), 0)
        looks: list[Worker] = []

        def concerned(worker: Worker) -> bool:
            looks.append(worker)
            audit.begin(len(looks), {1: worker})
            return audit.concerns(shuffle)

        assert not concerned(known)
        assert concerned(replace(known, boot_index=shuffle.created_index + 1))
        assert not concerned(replace(known, boot_index=shuffle.created_index + 1, alive=False))
        failing = [pb.Directory(path="/data", problem="it hangs")]
        leader.heard("w1", pb.HeartbeatRequest(worker=1, incarnation=1, directories=failing))
        assert concerned(known)

    world(story)
