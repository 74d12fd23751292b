"""Keeps this worker known to the masters, and deletes what they do not know any more.

Rules: data needs no masters, so nothing here ever stops the data port of a worker that has any; it tries for ever, with
the back-off of the control client. One that the masters never knew, with nothing in its directories, has nobody to
serve: it ends when they refuse it for good. What may be deleted is decided by core/forgetting.py. Called by process.py
as one task.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from holdfast.common.errors import HoldfastError, IncarnationTooLowError, ends
from holdfast.common.ids import NO_STATE, NO_WORKER, Incarnation, RaftIndex, ShuffleKey, StateId, WorkerId
from holdfast.common.log_events import LogEvent
from holdfast.common.net.keys import key_in, key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Loop, Status
from holdfast.common.system.log import log_event
from holdfast.worker.core.forgetting import batches, judge
from holdfast.worker.core.usage import by_application
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.membership.departure import DECOMMISSION_BEAT_SECONDS, Departure
from holdfast.worker.server.membership.neighbours import Neighbours
from holdfast.worker.server.membership.worker_identity import IdentityKeeper, WorkerIdentity
from holdfast.worker.server.services.data_server import DataServer

if TYPE_CHECKING:
    from holdfast.common.net.control import ControlClient

#: One try at registering; the control client retries within it, and we after it.
REGISTER_SECONDS = 10.0
#: Between tries that failed for another reason than silent masters.
PAUSE_SECONDS = 1.0
#: How often the masters are asked what may be deleted.
CHECK_SECONDS = 10.0
#: A disk that has not answered by then is not waited for.
DISK_SECONDS = 5.0
#: The same refusal is logged again after so long.
REMIND_SECONDS = 60.0


class Registration:
    """Registers, beats and forgets."""

    def __init__(
        self,
        context: WorkerContext,
        keeper: IdentityKeeper,
        server: DataServer,
        departure: Departure,
        memory: Callable[[], int],
    ) -> None:
        """`memory` tells that of this process, in bytes."""
        self._store = context.store
        self._standing = context.standing
        self._counters = context.counters
        self._departure = departure
        self._keeper = keeper
        self._server = server
        self._heartbeat_seconds = 2.0
        self._memory = memory
        self._neighbours = Neighbours(
            self._standing.cluster_id, self._standing.addresses.host, self._departure.hurry.set
        )

    async def run(self, masters: str) -> None:
        """Stay registered until cancelled. `masters`: the HTTP endpoints."""
        client = await _control_client(masters, self._standing)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._again_and_again("register", lambda: self._be_registered(client)))
                # Of its own: heartbeats wait for no answer about shuffles.
                tasks.create_task(self._again_and_again("forget", lambda: self._forget_dropped(client)))
                tasks.create_task(self._again_and_again("ask", lambda: self._server.asking.step(client)))
        finally:
            await client.close()

    async def _again_and_again(self, what: str, step: Callable[[], Awaitable[float]]) -> None:
        """Take a step, wait as many seconds as it says, and so on; whatever it raises, the data port goes on."""
        logged, logged_at = "", 0.0
        while True:
            pause = PAUSE_SECONDS
            try:
                pause = await step()
                logged = ""
            except HoldfastError as error:
                if str(error) != logged or time.monotonic() - logged_at >= REMIND_SECONDS:
                    logged, logged_at = str(error), time.monotonic()
                    log_event(LogEvent.MASTERS_CALL_FAILED, to=what, status=error.status.name, reason=logged)
            except Exception as error:  # noqa: BLE001 - whatever it is, logged, and no reason to stop serving data
                log_event(LogEvent.REGISTRATION_INTERNAL_ERROR, to=what, trace=error)
            await asyncio.sleep(pause)

    # Registering.

    async def _register(self, client: ControlClient) -> None:
        try:
            reply = await client.call("Registry/RegisterWorker", self._registration(), deadline_s=REGISTER_SECONDS)
        except HoldfastError as error:
            if isinstance(error, IncarnationTooLowError):
                await self._raise_incarnation(error.lowest)
            self._take_refusal(error)
            raise
        standing, number = self._standing, WorkerId(reply.worker)
        if standing.state not in (NO_STATE, reply.state):
            log_event(LogEvent.MASTERS_RESTORED, state=reply.state, worker=standing.name, number=reply.worker)
        renumbered = number != standing.worker
        standing.given(number, StateId(reply.state), RaftIndex(reply.raft_index))
        if renumbered:
            self._server.renumber()
        # Whoever takes files remembers over a restart that it may; masters need not be asked first then. One directory
        # is enough for that, and none is waited for that does not answer.
        if writes := self._keeper.keep():
            ends = [asyncio.wrap_future(one) for one in writes]
            await asyncio.wait(ends, timeout=DISK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        self._heartbeat_seconds = max(reply.heartbeat_ms, 100) / 1_000
        standing.registered, standing.refusal = True, ""
        self._server.accept(True)
        log_event(
            LogEvent.WORKER_REGISTERED, worker=standing.name, number=standing.worker, incarnation=standing.incarnation
        )

    def _take_refusal(self, error: HoldfastError) -> None:
        """Tell people of a refusal that waiting does not end; end, if there is nobody that this worker can serve."""
        if not ends(error, Loop.REGISTRATION):
            return
        wrong = error.status is Status.WRONG_CLUSTER
        what_to_do = ": check [worker] masters and [cluster] id" if wrong else ""
        self._standing.refusal = f"the masters refuse this worker: {error}{what_to_do}"
        if self._standing.worker == NO_WORKER and not self._store.shuffles():
            self._departure.refused(self._standing.refusal)

    def _registration(self) -> pb.RegisterWorkerRequest:
        standing, addresses = self._standing, self._standing.addresses
        return pb.RegisterWorkerRequest(
            uid=standing.uid,
            name=standing.name,
            incarnation=standing.incarnation,
            host=addresses.host,
            rack=addresses.rack,
            machine_id=addresses.machine_id,
            tags=addresses.tags,
            data_address=addresses.data_address,
            http_address=addresses.http_address,
            directories=self._directories(),
            boot_id=self._store.boot_id,
            version=addresses.version,
            raft_index=standing.raft_index,
            applications=self._applications(),
            dfs=self._dfs(),
        )

    def _applications(self) -> list[pb.ApplicationHeld]:
        return [
            pb.ApplicationHeld(
                instance=each.instance,
                bytes=each.held.size_bytes,
                files=each.held.files,
                largest=[
                    pb.ShuffleHeld(shuffle=shuffle, bytes=held.size_bytes, files=held.files)
                    for shuffle, held in each.largest
                ],
            )
            for each in by_application(chain(self._store.held(), self._server.pushes.held()))
        ]

    def _directories(self) -> list[pb.Directory]:
        return [pb.Directory(**found) for found in self._server.pushes.directories()]

    def _dfs(self) -> pb.Dfs | None:
        found = self._store.dfs()
        return None if found is None else pb.Dfs(**found._asdict())

    async def _raise_incarnation(self, lowest: int) -> None:
        """The masters have seen a later start of ours than our disks have: these were restored, or there is a copy of
        us. Start above it."""
        standing = self._standing
        if standing.registered:
            standing.twin = (
                f"incarnation {standing.incarnation} was registered and a later one is: another process has these "
                "directories or a copy of them; stop one of the two"
            )
            log_event(LogEvent.WORKER_DUPLICATED, worker=standing.name, reason=standing.twin)
        self._server.accept(False, "this worker is registering anew")
        incarnation = Incarnation(max(lowest, standing.incarnation + 1))
        writes = [asyncio.wrap_future(one) for one in self._store.record_start(incarnation)]
        for one in writes:  # maybe nobody waits for what it says in the end: the directory itself is not well then
            one.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        done, _ = await asyncio.wait(writes, timeout=DISK_SECONDS) if writes else (set(), set())
        errors = [one.exception() for one in done]
        if all(error is not None for error in errors):
            raise HoldfastError("no directory takes the number of this start", status=Status.DISK_FAILED)
        self._store.begin_incarnation(incarnation)
        standing.incarnation, standing.registered = incarnation, False
        self._server.begin(standing.incarnation)
        log_event(LogEvent.WORKER_INCARNATION_RAISED, worker=standing.name, incarnation=standing.incarnation)

    # Staying.

    async def _be_registered(self, client: ControlClient) -> float:
        """Register, then beat until the masters want us to register again."""
        await self._register(client)
        try:
            while True:
                if self._departure.decommissioning:
                    self._neighbours.close()
                else:
                    await self._neighbours.meet()
                if not await self._beat(client, await self._until_next_beat()):
                    return 0.0
        finally:
            self._neighbours.close()

    async def _until_next_beat(self) -> bool:
        """Wait for as long as the masters want, less where this worker leaves, not at all if something has changed;
        return whether the heartbeats of this host go together now."""
        seconds = self._neighbours.pause(self._heartbeat_seconds)
        if self._departure.decommissioning:
            seconds = min(seconds, DECOMMISSION_BEAT_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._departure.hurry.wait()
        urgent = self._departure.hurry.is_set() and not self._neighbours.called
        self._departure.hurry.clear()
        return not urgent

    async def _beat(self, client: ControlClient, together: bool) -> bool:
        """Send one heartbeat; False if the masters do not know this incarnation."""
        request = self._heartbeat()
        send = partial(client.call, "Registry/Heartbeat", deadline_s=REGISTER_SECONDS)
        try:
            if together:
                reply = await self._neighbours.beat(request, send, self._heartbeat_seconds)
            else:
                reply = await send(request)
        except HoldfastError as error:
            if ends(error, Loop.HEARTBEATS):
                return False
            raise
        if not reply.reregister:
            self._standing.saw(RaftIndex(reply.raft_index))
            self._departure.heartbeat_answered(
                draining=reply.draining, clear=reply.clear, as_decommissioning=request.leaving
            )
        return not reply.reregister

    def _heartbeat(self) -> pb.HeartbeatRequest:
        return pb.HeartbeatRequest(
            worker=self._standing.worker,
            uid=self._standing.uid,
            state=self._standing.state,
            incarnation=self._standing.incarnation,
            directories=self._directories(),
            memory_bytes=self._memory(),
            files=self._store.files,
            counters=self._counters.as_dict(),
            leaving=self._departure.decommissioning,
            emptying=self._emptying(),
            applications=self._applications(),
            dfs=self._dfs(),
        )

    def _emptying(self) -> pb.Emptying | None:
        if not self._departure.draining:
            return None
        return pb.Emptying(writing=self._server.writing, shuffles=len(self._store.shuffles()))

    # Forgetting.

    async def _forget_dropped(self, client: ControlClient) -> float:
        """Ask about everything that is here and delete what may go; returns when to ask again."""
        if not self._standing.registered:
            return PAUSE_SECONDS
        problems: list[str] = []
        here = {*self._store.shuffles(), *self._store.folders(), *self._server.pushes.reduce.sealed_only()}
        for asked in batches(sorted(here)):
            highest = self._standing.raft_index
            request = pb.CheckShufflesRequest(
                worker=self._standing.worker,
                uid=self._standing.uid,
                state=self._standing.state,
                keys=[key_message(key) for key in asked],
                raft_index=highest,
            )
            state = self._standing.state
            reply = await client.call("Registry/CheckShuffles", request, deadline_s=REGISTER_SECONDS)
            verdict = judge(
                asked=asked,
                highest_when_asked=highest,
                state=state,
                cluster_id=self._standing.cluster_id,
                answer_dropped=[key_in(key) for key in reply.dropped],
                answer_unheard=[key_in(key) for key in reply.unheard],
                answer_cluster_id=reply.cluster_id,
                answer_index=RaftIndex(reply.raft_index),
                answer_state=StateId(reply.state),
            )
            if verdict.problem:
                problems.append(verdict.problem)
                self._counters.forgetting_refused += 1
                log_event(LogEvent.DATA_KEPT, reason=verdict.problem)
            if verdict.stop:
                break
            self._standing.saw(RaftIndex(reply.raft_index))
            self._delete(verdict.delete, asked)
        self._standing.problems = tuple(problems)
        return CHECK_SECONDS

    def _delete(self, dropped: Sequence[ShuffleKey], asked: Sequence[ShuffleKey]) -> None:
        """Have dropped shuffles deleted, and what earlier incarnations left unsealed of all that was asked about; waits
        for no disk."""
        for key in dropped:
            self._server.forget(key)
        if dropped:
            # Killed from here on, we must not believe masters that know less than those who said this.
            self._keeper.keep()
        self._store.forget(dropped).add_done_callback(partial(self._deleted, "shuffles"))
        self._store.remove_leftovers(asked).add_done_callback(partial(self._deleted, "leftovers"))

    def _deleted(self, what: str, done: Future[int]) -> None:
        error = done.exception()
        if error is not None:
            log_event(LogEvent.DATA_DELETION_FAILED, what=what, reason=error)
            return
        count = done.result()
        if what == "shuffles":
            self._counters.shuffles_forgotten += count
        else:
            self._counters.leftovers_removed += count
        if count:
            log_event(LogEvent.DATA_DELETED, what=what, count=count)


async def _control_client(masters: str, standing: WorkerIdentity) -> ControlClient:
    """Import gRPC, which takes a while, beside the loop: the data port serves already."""

    def load() -> type[ControlClient]:
        from holdfast.common.net.control import ControlClient

        return ControlClient

    return (await asyncio.to_thread(load))(masters, standing.credentials, cluster_id=standing.cluster_id)
