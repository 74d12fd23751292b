"""The service Registry: what workers call.

Rules: a heartbeat stays in this master's memory; registering is a command. Whether a shuffle is unknown is only said
after a proof of leadership, because a worker deletes upon it. Called through handlers.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.common.limits import APPLICATIONS_REPORTED_MAX, NEIGHBOURS_MAX, SHUFFLES_REPORTED_MAX
from holdfast.common.net.keys import key_in
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.api.statuses import bad_request
from holdfast.master.control.draining import Draining
from holdfast.master.control.quotas import Quotas
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.bounds import DIRECTORIES_MAX
from holdfast.master.core.state.records import Worker
from holdfast.master.core.state.state import State
from holdfast.master.core.state.workers import machine_conflict
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.leader import Leader
from holdfast.master.state_machine.codec import from_message

#: Counters that a heartbeat may carry; they are shown to people as they are.
_COUNTERS_MAX = 256
#: Keys in one question for what may be deleted.
_KEYS_MAX = 100_000


class Registry:
    """Handlers of the service Registry."""

    def __init__(self, leader: Leader, fleet: Fleet) -> None:
        self._leader = leader
        self._fleet = fleet
        self.quotas = Quotas(leader)
        self.draining = Draining(leader, fleet)

    async def register_worker(self, request: pb.RegisterWorkerRequest) -> pb.RegisterWorkerReply:
        """Take note of a worker's start; return its number."""
        _check_applications(request.applications)
        state = await self._leader.state_id()
        place = await self._fleet.resolve(request.host)
        self._fleet.check_rack(request.host, request.rack)
        body = from_message(cmd.RegisterWorker, request, place=place)
        answer = await self._leader.command("Registry/RegisterWorker", request, body)
        self._leader.liveness.heard_worker(self._leader.now_ns(), answer.value, request.incarnation)
        first = pb.HeartbeatRequest(
            worker=answer.value,
            incarnation=request.incarnation,
            directories=request.directories,
            applications=request.applications,
            dfs=request.dfs if request.HasField("dfs") else None,
        )
        self._heed(request.name, first)
        self._fleet.started(answer.value, request.incarnation)
        self._leader.lives_changed += 1
        self._leader.workers_changed.set()
        return pb.RegisterWorkerReply(
            worker=answer.value,
            incarnation=request.incarnation,
            cluster_id=self._leader.config.cluster.id,
            raft_index=self._leader.index(),
            heartbeat_ms=self._leader.config.lease.heartbeat.ms,
            state=state,
        )

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        """Record the heartbeat of a worker, and those of its neighbours that it brings along. A worker that is unknown
        to the masters is asked to register, and so is one whose number is of another state, or belongs to another
        worker, and one that was lost while its host or its machine went to another."""
        beats = _checked(request)

        def read(state: State) -> list[Worker | None]:
            return [_beating(state, each) for each in beats]

        await self._leader.state_id()
        workers = self._leader.peek(read)
        if None in workers:
            workers = await self._leader.confirmed(read)
        index = self._leader.index()
        replies = []
        for worker, beat in zip(workers, beats, strict=True):
            if worker is None:
                replies.append(pb.HeartbeatReply(reregister=True, raft_index=index))
                continue
            self._leader.liveness.heard_worker(self._leader.now_ns(), worker.id, worker.incarnation)
            self._heed(worker.name, beat)
            now = await self.draining.decommission(worker) if beat.leaving else worker
            draining, clear = self.draining.heartbeat_answer(now)
            replies.append(pb.HeartbeatReply(raft_index=index, draining=draining, clear=clear))
        reply, *others = replies
        reply.neighbours.extend(others)
        return reply

    def _heed(self, name: str, beat: pb.HeartbeatRequest) -> None:
        self.quotas.heard(beat.worker, beat.applications)
        beat.ClearField("applications")
        self._leader.heard(name, beat)

    async def check_shuffles(self, request: pb.CheckShufflesRequest) -> pb.CheckShufflesReply:
        """Return which keys the masters dropped, and which are unknown to them; the worker may delete the former."""
        if len(request.keys) > _KEYS_MAX:
            raise bad_request(f"ask for at most {_KEYS_MAX} keys at once")
        keys = [key_in(key) for key in request.keys]

        def read(state: State) -> tuple[list[bool], list[bool], bool, int]:
            dropped = [state.dropped(key) for key in keys]
            unheard = [not gone and state.shuffle(key) is None for key, gone in zip(keys, dropped, strict=True)]
            return dropped, unheard, _who(state, request) is not None, state.index

        named = await self._leader.state_id()
        dropped, unheard, registered, index = await self._leader.confirmed(read)
        reply = pb.CheckShufflesReply(
            cluster_id=self._leader.config.cluster.id,
            raft_index=max(index, self._leader.node.status().applied_index),
            state=named,
        )
        # Masters without this worker, or with an older state than it has seen, were restored or are not its masters: it
        # may delete nothing on their word. It compares the index itself; this is the second lock on that door.
        if registered and request.raft_index <= reply.raft_index:
            reply.dropped.extend(key for key, gone in zip(request.keys, dropped, strict=True) if gone)
            reply.unheard.extend(key for key, strange in zip(request.keys, unheard, strict=True) if strange)
        return reply

    async def look_up(self, request: pb.LookUpRequest) -> pb.LookUpReply:
        """Return which of these shuffles are registered, and where these workers are. Only what is missing needs a
        proof of leadership: a worker refuses its clients upon it."""
        if len(request.keys) + len(request.workers) > _KEYS_MAX:
            raise bad_request(f"ask for at most {_KEYS_MAX} keys and workers at once")
        keys = [key_in(key) for key in request.keys]

        def read(state: State) -> tuple[list[bool], list[Worker | None]]:
            registered = [state.shuffle(key) is not None for key in keys]
            return registered, [state.workers.get(number) for number in request.workers]

        registered, workers = self._leader.peek(read)
        if not all(registered) or None in workers:
            registered, workers = await self._leader.confirmed(read)
        found = [
            pb.WorkerAddress(worker=each.id, incarnation=each.incarnation, host=each.host, address=each.data_address)
            for each in workers
            if each is not None
        ]
        shuffles = [key for key, there in zip(request.keys, registered, strict=True) if there]
        return pb.LookUpReply(registered=shuffles, workers=found)


def _who(state: State, asks: pb.HeartbeatRequest | pb.CheckShufflesRequest) -> Worker | None:
    """The worker that asks; None if this state has not given it its number, or has given that to another one."""
    worker = state.workers.get(asks.worker)
    mine = worker is not None and worker.uid == asks.uid and asks.state == state.state_id
    return worker if mine else None


def _beating(state: State, beat: pb.HeartbeatRequest) -> Worker | None:
    """The worker whose heartbeat it is; None if it has to register."""
    worker = _who(state, beat)
    if worker is None or worker.incarnation != beat.incarnation:
        return None
    return worker if worker.alive or machine_conflict(state, worker) is None else None


def _checked(request: pb.HeartbeatRequest) -> list[pb.HeartbeatRequest]:
    """All heartbeats of a request. Raises HoldfastError (BAD_REQUEST)."""
    beats = [request, *request.neighbours]
    if len(beats) > 1 + NEIGHBOURS_MAX or any(each.neighbours for each in request.neighbours):
        raise bad_request(f"a heartbeat brings at most {NEIGHBOURS_MAX} others along, and these none")
    for beat in beats:
        if len(beat.directories) > DIRECTORIES_MAX or len(beat.counters) > _COUNTERS_MAX:
            raise bad_request(f"a heartbeat has at most {DIRECTORIES_MAX} directories and {_COUNTERS_MAX} counters")
        _check_applications(beat.applications)
    return beats


def _check_applications(reports: Sequence[pb.ApplicationHeld]) -> None:
    if len(reports) > APPLICATIONS_REPORTED_MAX or any(len(each.largest) > SHUFFLES_REPORTED_MAX for each in reports):
        raise bad_request(
            f"more than {APPLICATIONS_REPORTED_MAX} applications, or {SHUFFLES_REPORTED_MAX} shuffles of one"
        )
