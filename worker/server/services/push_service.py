"""Acts on PUSH, REPLICATE, PUSH_CREDIT and PUSH_SETTLE: storage writes, the replicas repeat, this answers.

Rules: write/reduce.py decides what is taken of a frame, write/pending_pushes.py when it is answered and with what.
Writes run on the loop thread (they end in the page cache), syncs in storage's threads, forwards in tasks. A body beyond
its sender's window is never received; one that is answered stays in the window's budget while a replica is sent it.
Called by data_server.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from holdfast.common.errors import HoldfastError, ProtocolError, error_for
from holdfast.common.formats.batch import HEADER_BYTES
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Role
from holdfast.common.formats.reduce_messages import (
    PUSH_ENTRY,
    IncompleteCopy,
    Push,
    PushAnswer,
    PushCredit,
    PushSettle,
    PushSettled,
)
from holdfast.common.ids import Epoch, PartitionId, ShuffleKey, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.shares import Shares
from holdfast.common.sizes import UsageTotals
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import awaited
from holdfast.common.system.waiting import SAY_AGAIN_SECONDS, SAY_SECONDS
from holdfast.worker.core.write.credits import Credits, split_memory
from holdfast.worker.core.write.pending_pushes import SYNC_SECONDS, PendingPush, PendingPushes, When
from holdfast.worker.core.write.replicas import Settling
from holdfast.worker.core.write.space import look_after_bytes
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.services.forwarding import FORWARD_SECONDS, Forwarder
from holdfast.worker.server.services.request import Request, in_parts
from holdfast.worker.server.services.seal_service import SealService
from holdfast.worker.storage.engine.rounds import Missing
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.layout import EpochKey

#: A directory that has less is told to the masters as full: new epochs there would be split at once.
ROOM_BYTES_MIN = 1 * MIB
#: Epochs that those name together who wait for their replicas.
SETTLING_EPOCHS_MAX = 262_144
#: Where a disk counts as full: this much is left, or this share of its capacity if that is less.
DISK_RESERVE_SHARE = 0.1


class Came(NamedTuple):
    """A frame on its way to its answer, and the window that its body is in."""

    request: Request
    push: Push
    body: Body
    account: Credits


class PushService:
    """All pushes of REDUCE partitions. Loop thread only."""

    def __init__(self, context: WorkerContext, seals: SealService) -> None:
        self._store = context.store
        self._counters = context.counters
        self._faults = context.faults
        self._asking = context.asking
        self._seals = seals
        self._loop = asyncio.get_running_loop()
        self._disk_reserve = context.bounds.disk_reserve
        #: what is known of pushes that are not answered, and of those whose bodies are kept
        self._came: dict[PendingPush, Came] = {}
        self._kept: dict[PendingPush, Came] = {}
        #: replicas that a push is being sent to
        self._sending: Counter[PendingPush] = Counter()
        #: who waits for replicas; and how many epochs they name
        self._settling: dict[Settling, Request] = {}
        self._settling_epochs = Shares(SETTLING_EPOCHS_MAX)
        #: when people were last told that a push waits for long, and why a replica failed
        self._said_ns = self._replica_said_ns = -int(SAY_AGAIN_SECONDS * 1e9)
        self.credits, self.replica_credits = split_memory(context.bounds.memory)
        #: requests for credit, by connection: each is answered when it is granted
        self._asked: dict[int, Request] = {}
        #: pushes whose body is being received, by connection: the window it is in, and its size
        self._receiving: dict[int, tuple[Credits, int]] = {}
        #: bytes that may come before the room on disks is looked at again
        self._until_look = 0
        #: the body of what was acknowledged from memory and found no room
        self._owed: Body | None = None
        self.forwarder = Forwarder(context)
        self.reduce = seals.reduce
        self._store.reduce.on_given_up = self.reduce.broke
        self._pending = PendingPushes(self.reduce)

    # Credit.

    def credit(self, request: Request) -> None:
        """Take a PUSH_CREDIT; it is answered when there is room."""
        wanted, connection = PushCredit.decode(request.meta).size_bytes, request.connection
        if connection.number in self._asked:
            raise ProtocolError("PUSH_CREDIT: one at a time")
        self._asked[connection.number] = request
        account = self._credits_of(request.role)
        self._grant(account.ask(connection.number, wanted, time.monotonic_ns(), connection.owner))

    @property
    def waiting(self) -> bool:
        return self.credits.waiting > 0 or self.replica_credits.waiting > 0

    def _credits_of(self, role: Role) -> Credits:
        return self.replica_credits if role is Role.WORKER else self.credits

    def _grant(self, granted: Sequence[tuple[int, int]]) -> None:
        for number, size in granted:
            found = self._asked.pop(number, None)
            if found is not None:
                self._counters.push_grants += 1
                found.reply(PushCredit(size).encode())

    # Replicas that are behind.

    def settle(self, request: Request) -> None:
        """Take a PUSH_SETTLE; it is answered when the replicas have what was acknowledged, or have failed."""
        asked = PushSettle.decode(request.meta)
        key = asked.shuffle
        if asked.incarnation != self.reduce.incarnation:
            raise error_for(Status.STALE_INCARNATION, f"this is incarnation {self.reduce.incarnation}")
        if key not in self.reduce.shuffles:
            raise error_for(Status.UNKNOWN_GENERATION, f"nothing is written here of {key}")
        owner = request.owner_of(key.instance)
        self._settling_epochs.claim(owner, "more epochs whose replicas are waited for", len(asked.epochs))
        settling = Settling(key, asked.epochs)
        self._settling[settling] = request
        if self._pending.replicas.settle(settling, (key, asked.map, asked.attempt)):
            self._settled([settling])

    def _settled(self, settled: Sequence[Settling]) -> None:
        for one in settled:
            request = self._settling.pop(one)
            self._settling_epochs.give(request.owner_of(one.shuffle.instance), len(one.epochs))
            rows = self.reduce.incomplete(one.shuffle, one.epochs)
            copies = [IncompleteCopy(PartitionId(row[0]), Epoch(row[1]), WorkerId(row[2])) for row in rows]
            request.reply(PushSettled(copies).encode())

    # Pushes.

    def admit(self, connection: ServerConnection, header: FrameHeader, role: Role) -> bool:
        """Whether to receive the body of a PUSH or REPLICATE: `push` or `lost` follows. Else it is answered BUSY."""
        account, size = self._credits_of(role), header.body_bytes
        if self._store.reduce.full:
            reason = "the push log is full for the moment"
        elif not account.take(connection.number, size, time.monotonic_ns()):
            reason = f"{size} bytes are beyond the window: ask PUSH_CREDIT"
        else:
            self._receiving[connection.number] = account, size
            return True
        self._counters.pushes_busy += 1
        connection.refuse(header, error_for(Status.BUSY, reason))
        return False

    def push(self, request: Request) -> None:
        """Take what was admitted; releases the body when it is answered. Raises ProtocolError for malformed ones."""
        connection, body = request.connection, request.body
        assert body is not None, "what has none is not admitted"
        account, size = self._receiving.pop(connection.number)
        try:
            self._until_look -= size
            if self._until_look < 0:
                self._look_at_space()
            replicated = request.header.type is FrameType.REPLICATE
            push = Push.decode(request.meta, None if replicated else b"".join(connection.owner[:1]))
            check_sizes(push, size)
            if replicated and push.replicas:
                raise ProtocolError("REPLICATE: a replica has no replicas")
            came = Came(request, push, body, account)
            if self.reduce.may_introduce(push) and not self._asking.knows(push.shuffle):
                self._asking.ask(push.shuffle, connection.number, push.owner, partial(self._push, came))
                return
        except BaseException:  # the data server answers it, or closes the connection
            self._let_go(connection, body, account, size)
            raise
        self._push(came, None)

    def _let_go(self, connection: ServerConnection, body: Body, account: Credits, size: int) -> None:
        body.release()
        self._grant(account.answered(connection.number, size, time.monotonic_ns()))

    def _push(self, came: Came, refused: BaseException | None) -> None:
        """Take what is of a shuffle that may be written to. Releases the body when it is answered; nobody is answered
        whose connection is gone."""
        request, decision = came.request, None
        if refused is None and not request.connection.closed:
            try:
                refused = self._refuse(came.push, came.body.view)
                decision = self.reduce.decide(came.push) if refused is None else None
            except Exception as error:  # noqa: BLE001 - whatever it is, who pushed hears of it
                refused = error
        if decision is None:
            self._let_go(request.connection, came.body, came.account, request.header.body_bytes)
            if refused is not None:
                request.refuse(refused)
            return
        push = PendingPush(decision, request.header.type is FrameType.REPLICATE)
        self._came[push] = came
        self._guarded(push, self._take, came)

    def _guarded(self, push: PendingPush, act: Callable[..., object], *given: object) -> None:
        """Do something for a push. Whatever comes of it, the push is answered once, and what it holds is given back: a
        mistake of ours costs the copies that it touched, and nobody else."""
        try:
            act(push, *given)
        except Exception as error:  # noqa: BLE001 - whatever it is, who pushed hears of it
            log_event(LogEvent.PUSH_INTERNAL_ERROR, shuffle=push.decision.push.shuffle, trace=error)
            lost, answered = self._pending.abandon(push)
            for state in lost:
                try:
                    self._store.reduce.give_up(state, error)
                except Exception as failure:  # noqa: BLE001 - whatever it is, the push is answered
                    log_event(LogEvent.PUSH_INTERNAL_ERROR, shuffle=state.shuffle, reason=error, trace=failure)
            self._answer_all(answered)

    def _refuse(self, request: Push, body: memoryview) -> HoldfastError | None:
        """The questions about the frame as a whole."""
        if crc32c(body) != request.body_crc:
            return error_for(Status.CORRUPT, "the body does not match its checksum")
        if not self.reduce.knows(request.shuffle):
            final, closed = self._store.reduce.past(request.shuffle)
            self.reduce.introduce(request, final, closed)
        return self.reduce.refuse(request)

    def _take(self, push: PendingPush, came: Came) -> None:
        """Write what was taken, then answer, at once or when everything it waits for is there."""
        decision, size, body = push.decision, came.request.header.body_bytes, came.body.view
        rows = memoryview(came.request.meta)[-PUSH_ENTRY.size * len(came.push.entries) :]
        if decision.opened:
            self._open(push)
        slow = self._faults.wait_for(size)
        self._counters.push_frames += 1
        self._counters.push_bytes += size
        when = self._pending.when(push, slow=slow > 0)
        if when is When.PROMISED:
            self._answer(push, release=False)
            self._write_promised(push, rows, came.body)
            if self.owed_bytes:
                log_event(LogEvent.PUSH_MEMORY_WAITING, shuffle=came.push.shuffle, bytes=size)
            return
        if push.taken:
            self._write(push, rows, body)
        steps = None
        if when is When.LATER:
            all_copies = not came.account.may_keep(came.request.connection.number)
            steps = self._pending.begin(push, time.monotonic_ns(), slow=slow > 0, all_copies=all_copies)
        if steps is None:
            self._answer(push)
            return
        if steps.directories:
            for directory, future in zip(steps.directories, self._store.reduce.sync(decision), strict=True):
                future.add_done_callback(partial(self._guarded, push, self._synced, directory))
        for replica, place in enumerate(came.push.replicas if steps.chosen else ()):
            self._counters.forwards += 1
            task = awaited(self.forwarder.forward(came.push, place, steps.chosen, body))
            self._sending[push] += 1
            task.add_done_callback(partial(self._sent, push, replica, steps.chosen))
        if slow:
            self._loop.call_later(slow, self._guarded, push, self._waited)
        self._answer_all(self._pending.ready(push))

    def _open(self, push: PendingPush) -> None:
        """Begin the copies of new epochs. On a disk that fails a copy is given up before it held anything."""
        for state in push.decision.opened:
            try:
                self._store.reduce.begin(state)
                self._counters.epochs_opened += 1
            except OSError as error:
                self._pending.not_opened(push, state, Status.NO_ROOM if is_shortage(error) else Status.FAILED_COPY)

    def _write(self, push: PendingPush, rows: memoryview, body: memoryview) -> None:
        failures = self._store.reduce.append(push.decision, rows, body)
        flushed = self._store.reduce.flush(push.decision.marked) if push.decision.marked else ()
        if failures or flushed:
            self._pending.written(push, failures, flushed)

    def _write_promised(self, push: PendingPush, rows: memoryview, body: Body) -> None:
        """Write what was acknowledged from memory. What finds no room is kept here until it does."""
        unforeseen = False
        try:
            self._write(push, rows, body.view)
        except Exception as error:  # noqa: BLE001 - what was promised may not be there, whatever it is
            log_event(LogEvent.PUSH_INTERNAL_ERROR, shuffle=push.decision.push.shuffle, trace=error)
            unforeseen = True
        for state in self._pending.promised(push, unforeseen=unforeseen):
            self._store.reduce.give_up(state, OSError("data that was acknowledged from memory could not be written"))
        if self._pending.owed is not None:
            self._owed = body
        else:
            body.release()

    def _write_owed(self) -> None:
        """Try again to write what found no room, but for what was dropped or given up meanwhile."""
        push, body = self._pending.retried(), self._owed
        if push is None or body is None:
            return
        self._owed = None
        self._write_promised(push, memoryview(b""), body)
        if self._owed is None:
            log_event(LogEvent.PUSH_MEMORY_WRITTEN, shuffle=push.decision.push.shuffle)

    # What an answer waits for.

    def _waited(self, push: PendingPush) -> None:
        self._answer_all(self._pending.waited(push))

    def _synced(self, push: PendingPush, directory: int, done: Future[Missing]) -> None:
        missing, states = done.result(), filter(None, push.decision.states)
        lost = [one for one in states if EpochKey(one.shuffle, one.partition, one.epoch) in missing] if missing else []
        self._answer_all(self._pending.synced(push, directory, lost))

    def _look_at_late(self, now_ns: int) -> None:
        """No push waits for a disk without an end, or in silence: a disk that hangs must not keep the memory and the
        windows that pushes to other disks need."""
        stuck = self._pending.stuck(now_ns, SAY_SECONDS)
        if stuck is not None and now_ns - self._said_ns >= SAY_AGAIN_SECONDS * 1e9:
            self._said_ns = now_ns
            found = self._store.directories()
            seconds, directories = stuck[0] // 10**9, ", ".join(found[number].path for number in sorted(stuck[1]))
            log_event(LogEvent.PUSH_SYNC_SLOW, pushes=len(self._pending), seconds=seconds, directories=directories)
        self._answer_all(self._pending.leave_disks(now_ns))

    def _sent(self, push: PendingPush, replica: int, chosen: list[int], done: asyncio.Task[list[int]]) -> None:
        """A replica has answered, or will not. The body is not needed any more when all have."""
        self._sending[push] -= 1
        self._guarded(push, self._forwarded, replica, chosen, done)
        if self._sending[push]:
            return
        del self._sending[push]
        kept = self._kept.pop(push, None)
        if kept is not None:
            number, size = kept.request.connection.number, kept.request.header.body_bytes
            kept.body.release()
            self._grant(kept.account.released(number, size, time.monotonic_ns()))

    def _forwarded(self, push: PendingPush, replica: int, chosen: list[int], done: asyncio.Task[list[int]]) -> None:
        error = None if done.cancelled() else done.exception()
        refused = chosen if done.cancelled() or error is not None else done.result()
        self._counters.forwards_failed += bool(refused)
        now_ns = time.monotonic_ns()
        if error is not None and now_ns - self._replica_said_ns >= SAY_SECONDS * 1e9:
            self._replica_said_ns = now_ns
            log_event(LogEvent.PUSH_REPLICATION_FAILED, failed=self._counters.forwards_failed, reason=error)
        answered, settled = self._pending.forwarded(push, replica, refused)
        self._answer_all(answered)
        self._settled(settled)

    def _answer_all(self, answered: Sequence[PendingPush]) -> None:
        for push in answered:
            self._guarded(push, self._answer)

    def _answer(self, push: PendingPush, *, release: bool = True) -> None:
        request, asked, body, account = came = self._came.pop(push)
        number, size, keeps = request.connection.number, request.header.body_bytes, self._sending[push] > 0
        # What it holds first: nothing that goes wrong with the answer may keep it.
        if keeps:
            self._kept[push] = came
        elif release:
            body.release()
        granted = account.answered(number, size, time.monotonic_ns(), keeps=keeps)
        try:
            statuses = self._pending.answer(push)
            answer = PushAnswer(account.window(number), push.failed, push.behind, statuses).encode()
        except Exception as error:  # noqa: BLE001 - whatever it is, who pushed hears of it
            request.refuse(error)
        else:
            request.reply(answer)
            self._counters.push_batches += len(asked.entries)
            if statuses:
                self._counters.batches_refused(status for _, status in statuses)
        if granted:
            self._grant(granted)

    # What happens around them.

    def lost(self, connection: ServerConnection) -> None:
        self._asked.pop(connection.number, None)
        account, size = self._receiving.pop(connection.number, (None, 0))
        if account is not None:
            self._grant(account.answered(connection.number, size, time.monotonic_ns()))
        for account in (self.credits, self.replica_credits):
            self._grant(account.lost(connection.number, time.monotonic_ns()))

    def tick(self, now_ns: int) -> None:
        looks = self._look_at_space, self._write_owed, self._seal_drained, self._tick_store
        in_parts(partial(self._look_at_late, now_ns), partial(self._tick_credits, now_ns), *looks)

    def _tick_store(self) -> None:
        self._store.reduce.tick([number for number, yes in enumerate(self.reduce.has_room) if not yes])

    def _tick_credits(self, now_ns: int) -> None:
        self._grant(self.credits.tick(now_ns))
        late = self.replica_credits.tick(now_ns)
        self._counters.replica_grants_late += len(late)
        self._grant(late)

    def _seal_drained(self) -> None:
        if self.reduce.draining:  # those that could not be sealed before, too
            self._seals.seal_split(self.reduce.split_states())

    def _look_at_space(self) -> None:
        """Move what should move, and split what is on disks that are full or not well."""
        spaces = self._store.look(DISK_RESERVE_SHARE, self._disk_reserve)
        for directory, size in self._store.tiering.step(time.monotonic()):
            self._counters.epochs_split_for_room += self.reduce.split_largest(directory, size)
            self._seals.seal_split(self.reduce.split_states(directory))
        free_bytes = [space.room_bytes if space is not None else 0 for space in spaces]
        self._until_look = look_after_bytes(free_bytes)
        self.reduce.set_has_room([free > 0 for free in free_bytes])

    def directories(self) -> list[dict[str, Any]]:
        """The state of every directory, and for people, as `full`, which limit keeps epochs from growing there; ""
        while they may."""
        limits = self._store.limits_met(DISK_RESERVE_SHARE, self._disk_reserve, ROOM_BYTES_MIN)
        if self.reduce.full:
            limits = [reason or f"{self.reduce.shares.total} epochs are open on this worker" for reason in limits]
        return [{**asdict(one), "full": full} for one, full in zip(self._store.directories(), limits, strict=True)]

    def held(self) -> Iterator[tuple[ShuffleKey, UsageTotals]]:
        """Yield what each shuffle has in epochs that are not sealed; one that is in the log only has no file."""
        for key, shuffle in self.reduce.shuffles.items():
            states = shuffle.epochs.values()
            files = sum(map(self._store.reduce.has_file, states))
            yield key, UsageTotals(sum(state.size_bytes for state in states), files)

    @property
    def owed_bytes(self) -> int:
        """What was acknowledged from memory and waits for room on a disk."""
        return len(self._owed.view) if self._owed is not None else 0

    def end(self) -> None:
        """This worker ends in order: seal what it acknowledged from memory, since a later start finds only what is
        sealed of that."""
        self._write_owed()
        self._seals.seal_split(self.reduce.split_memory())

    def drain(self, yes: bool) -> None:
        """Split everything open, seal it and take no new epochs, or go back to normal."""
        self.reduce.drain(yes)
        if yes:
            self._seals.seal_split(self.reduce.split_states())


def check_sizes(request: Push, size: int) -> None:
    """The batches make up the body, and none is shorter than a header."""
    sizes = [entry[3] for entry in request.entries]
    if sum(sizes) != size or min(sizes) < HEADER_BYTES:
        raise ProtocolError(f"{request.shuffle}: the batches of a push do not make up its {size} bytes")


assert SYNC_SECONDS > FORWARD_SECONDS, "the replicas have answered by then"
