"""Acts on PUSH, REPLICATE and PUSH_CREDIT: write/reduce.py decides, storage writes, the replica repeats, this answers.

Rules: writes run on the loop thread (they end in the page cache), syncs in storage's threads, forwards in tasks. A
frame is answered once, when every batch of it is as safe as it asked for on every copy, or refused; at level MEMORY
before it is written. A body beyond its sender's window is never received. Called by data_server.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

from holdfast.common.errors import HoldfastError, ProtocolError, error_for
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Ack, Role
from holdfast.common.formats.reduce_messages import PUSH_ENTRY, Push, PushAnswer, PushCredit
from holdfast.common.ids import Incarnation, ShuffleKey
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, MIB
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited
from holdfast.common.system.waiting import SAY_AGAIN_SECONDS, SAY_SECONDS
from holdfast.worker.core.usage import UsageTotals
from holdfast.worker.core.write.credits import Credits
from holdfast.worker.core.write.epochs import LEGAL, EpochState, Life
from holdfast.worker.core.write.reduce import EPOCHS_MAX, Limits, Reduce
from holdfast.worker.core.write.seen_batches import Decision
from holdfast.worker.server.membership.asking import Asking
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.server.parts import in_parts
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.server.services.forwarding import FORWARD_SECONDS, PEERS_MAX, Forwarder
from holdfast.worker.server.services.pushes import Came, OnItsWay, check_sizes, may_grow
from holdfast.worker.server.services.refusal import refusal
from holdfast.worker.storage.push_log import is_full
from holdfast.worker.storage.reduce_directory import Missing
from holdfast.worker.storage.reduce_layout import EpochKey
from holdfast.worker.storage.store import Store

_log = logging.getLogger(__name__)

#: A body's buffer is up to a quarter larger than the body (buffers.py): windows are so much smaller than the memory for
#: bodies, so that whoever keeps to a window never waits for memory.
BUFFER_SHARE = 0.8
#: The part of all windows that replica traffic has for itself.
REPLICA_SHARE = 5
#: A connection's window is at most this part of what clients share, so that one alone cannot take all.
WINDOW_SHARE = 4
#: The part of replica traffic's windows that is always there for who has to send more than its share.
TURN_SHARE = 2
#: The room on disks is looked at again when this part of what the fullest had is used up; what goes into the log takes
#: room twice, since it has to be written elsewhere in the end.
ROOM_SHARE = 4
#: A look costs a walk over all that is open, so it is not worth less than so many bytes.
LOOK_BYTES_MIN = 1 * MIB
#: A directory that has less is told to the masters as full: new epochs there would be split at once.
ROOM_BYTES_MIN = 1 * MIB
#: A push that its disk has not synced by then is answered that it must go elsewhere: before its client gives up the
#: connection, and with it the pushes to all other disks here.
SYNC_SECONDS = 20.0
#: Where a disk counts as full: this much is left, or this share of its capacity if that is less.
DISK_RESERVE_SHARE = 0.1


class PushService:
    """All pushes of REDUCE partitions. Loop thread only."""

    def __init__(
        self,
        store: Store,
        standing: WorkerIdentity,
        counters: Counters,
        faults: Faults,
        asking: Asking,
        *,
        memory: int,
        limits: Limits = Limits(),  # noqa: B008 - a constant
        disk_reserve: int = 0,
        peers_max: int = PEERS_MAX,
    ) -> None:
        self._store = store
        self._counters = counters
        self._faults = faults
        self._asking = asking
        self._loop = asyncio.get_running_loop()
        self._disk_reserve = disk_reserve
        #: pushes that wait for their answers, as they came
        self._entries: dict[Decision, OnItsWay] = {}
        #: when people were last told that a push waits for long, and why a replica failed
        self._said_ns = self._replica_said_ns = -int(SAY_AGAIN_SECONDS * 1e9)
        windows = int(memory * BUFFER_SHARE)
        reserve = max(windows // REPLICA_SHARE, FRAME_BODY_BYTES_MAX)
        budget = max(windows - reserve, FRAME_BODY_BYTES_MAX)
        self.credits = Credits(budget, max(budget // WINDOW_SHARE, FRAME_BODY_BYTES_MAX))
        largest = max(reserve // TURN_SHARE, FRAME_BODY_BYTES_MAX)
        self.replica_credits = Credits(reserve, largest, reserve - largest)
        #: connections that asked for credit, and the request that is answered when it is granted
        self._asked: dict[int, tuple[ServerConnection, FrameHeader]] = {}
        #: pushes whose body is being received, by connection: the window it is in, and its size
        self._receiving: dict[int, tuple[Credits, int]] = {}
        #: bytes that may come before the room on disks is looked at again
        self._until_look = 0
        #: the push that was acknowledged from memory and found no room; at most one: until it is written others are
        #: written before they are acknowledged
        self._owed: OnItsWay | None = None
        self.forwarder = Forwarder(standing, asking, peers_max)
        self.reduce = Reduce(standing.incarnation, limits, choose=store.tiering.choose)
        #: seals epochs without being asked
        self.seal_split: Callable[[Sequence[EpochState]], None] = lambda _: None

    # Credit.

    def credit(self, connection: ServerConnection, header: FrameHeader, meta: bytes, role: Role) -> None:
        """Take a PUSH_CREDIT; it is answered when there is room."""
        request = PushCredit.decode(meta)
        if connection.number in self._asked:
            raise ProtocolError("PUSH_CREDIT: one at a time")
        self._asked[connection.number] = connection, header
        self._grant(self._credits_of(role).ask(connection.number, request.size_bytes, time.monotonic_ns()))

    @property
    def waiting(self) -> bool:
        """Somebody waits for a window."""
        return self.credits.waiting > 0 or self.replica_credits.waiting > 0

    def _credits_of(self, role: Role) -> Credits:
        return self.replica_credits if role is Role.WORKER else self.credits

    def _grant(self, granted: Sequence[tuple[int, int]]) -> None:
        for number, size in granted:
            found = self._asked.pop(number, None)
            if found is not None:
                self._counters.push_grants += 1
                found[0].reply(found[1], PushCredit(size).encode())

    # Pushes.

    def admit(self, connection: ServerConnection, header: FrameHeader, role: Role) -> bool:
        """Whether to receive the body of a PUSH or REPLICATE: `push` or `lost` follows. Else it is answered BUSY."""
        account, size = self._credits_of(role), header.body_bytes
        if self._store.reduce.full:
            why = "the push log is full for the moment"
        elif not account.take(connection.number, size, time.monotonic_ns()):
            why = f"{size} bytes are beyond the window: ask PUSH_CREDIT"
        else:
            self._receiving[connection.number] = account, size
            return True
        self._counters.pushes_busy += 1
        connection.refuse(header, error_for(Status.BUSY, why))
        return False

    def push(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body) -> None:
        """Take what was admitted; releases the body when it is answered. Raises ProtocolError for malformed ones."""
        account, size = self._receiving.pop(connection.number)
        try:
            self._until_look -= size
            if self._until_look < 0:
                self._look_at_rooms()
            request = Push.decode(meta)
            check_sizes(request, size)
            if header.type is FrameType.REPLICATE and request.replica is not None:
                raise ProtocolError("REPLICATE: a replica has no replica")
            came = Came(connection, header, meta, request, body, account)
            if self.reduce.may_introduce(request) and not self._asking.knows(request.shuffle):
                self._asking.ask(request.shuffle, connection.number, partial(self._push_or_refuse, came))
                return
        except BaseException:  # the data server answers it, or closes the connection
            self._let_go(connection, body, account, size)
            raise
        self._push(came)

    def _let_go(self, connection: ServerConnection, body: Body, account: Credits, size: int) -> None:
        body.release()
        self._grant(account.answered(connection.number, size, time.monotonic_ns()))

    def _push_or_refuse(self, came: Came, why_not: HoldfastError | None) -> None:
        """The masters have said whether they have the shuffle of this push, or did not in time."""
        connection, header = came.connection, came.header
        if why_not is None and not connection.closed:
            try:
                self._push(came)
            except Exception as error:  # noqa: BLE001 - whatever it is, who pushed hears of it
                connection.refuse(header, refusal(error))
            return
        self._let_go(connection, came.body, came.account, header.body_bytes)
        if why_not is not None:
            self._counters.refused(why_not.status)
            connection.refuse(header, why_not)

    def _push(self, came: Came) -> None:
        """Take what is of a shuffle that may be written to. Releases the body when it is answered."""
        connection, header, meta, request, body, account = came
        size, view = header.body_bytes, body.view
        try:
            refused = self._refuse(request, view)
            decision = None if refused is not None else self.reduce.decide(request)
        except BaseException:
            self._let_go(connection, body, account, size)
            raise
        if decision is None:
            assert refused is not None
            self._let_go(connection, body, account, size)
            self._counters.refused(refused.status)
            connection.refuse(header, refused)
            return
        push = OnItsWay(connection, header, account, size, body, decision)
        rows = memoryview(meta)[-PUSH_ENTRY.size * len(request.entries) :]
        self._guarded(push, lambda: self._take(push, rows, view))

    def _guarded(self, push: OnItsWay, act: Callable[[], object], _: object = None) -> None:
        """Do something for a push. Whatever comes of it, the push is answered once, and what it holds is given back: a
        mistake of ours costs the copies that it touched, and nobody else."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it is, who pushed hears of it
            _log.exception("a push failed in an unforeseen way", extra={"shuffle": str(push.decision.push.shuffle)})
            self._abandon(push, error)

    def _abandon(self, push: OnItsWay, error: Exception) -> None:
        if push.answered:
            return
        for index, state in enumerate(push.decision.states):
            if state is None:
                continue
            push.failures[index] = Status.FAILED_COPY
            try:
                self._give_up(state, error)
            except Exception:  # noqa: BLE001 - whatever it is, the push is answered
                _log.exception("a copy could not be given up", extra={"shuffle": str(state.shuffle)})
        self._entries.pop(push.decision, None)
        self._answer(push)
        if push.landed is not None:
            push.landed.set_result(None)

    def _give_up(self, state: EpochState, error: Exception) -> None:
        """Nobody knows what came of a push to this copy: it may not stand for all."""
        if Life.FAILED not in LEGAL[state.life]:
            return
        try:
            self._store.reduce.give_up(state, error)
        finally:
            self.reduce.broke(state)

    def _refuse(self, request: Push, body: memoryview) -> HoldfastError | None:
        """The questions about the frame as a whole."""
        if crc32c(body) != request.body_crc:
            return error_for(Status.CORRUPT, "the body does not match its checksum")
        if not self.reduce.knows(request.shuffle):
            final, closed = self._store.reduce.past(request.shuffle)
            self.reduce.introduce(request, final, closed)
        refusal = self.reduce.refuse(request)
        return None if refusal is None else error_for(refusal.status, refusal.why)

    def _take(self, push: OnItsWay, rows: memoryview, body: memoryview) -> None:
        """Write what was taken, then answer, at once or when everything it waits for is there."""
        decision = push.decision
        request = decision.push
        if decision.opened:
            self._open(push)
        taken = decision.whole or any(state is not None for state in decision.states)
        slow = self._faults.wait_for(push.size)
        replica = request.replica
        self._counters.push_frames += 1
        self._counters.push_bytes += push.size
        at_once = taken and replica is None and not slow and not decision.waits
        if request.ack is Ack.MEMORY and at_once and not decision.opened and self._owed is None:
            # But for first writes, which are the notes of their epochs.
            self._answer(push, release=False)
            self._write_promised(push, rows, body)
            if self.owed_bytes:
                told = {"shuffle": str(request.shuffle), "bytes": push.size}
                _log.warning(
                    "what was acknowledged from memory finds no room on the disk, and waits for it", extra=told
                )
            return
        if taken:
            self._write(push, rows, body)
        if not slow and not decision.waits and (not taken or (replica is None and request.ack is not Ack.SYNCED)):
            self._answer(push)
            return
        self.reduce.flying(decision)
        self._entries[decision] = push
        push.waits, push.since_ns = 1, time.monotonic_ns()
        if taken and request.ack is Ack.SYNCED:
            self._sync(push)
        if taken and replica is not None:
            self._forward(push, body)
        for index, first in decision.waits:
            self._wait_for(push, index, first)
        if slow:
            push.waits += 1
            self._loop.call_later(slow, self._guarded, push, partial(self._one_less, push))
        self._one_less(push)

    def _open(self, push: OnItsWay) -> None:
        """Begin the copies of new epochs; where that fails the copy is given up before it held anything."""
        for state in push.decision.opened:
            try:
                self._store.reduce.begin(state)
                self._counters.epochs_opened += 1
            except OSError as error:
                self._drop_unopened(push, state, Status.NO_ROOM if is_full(error) else Status.FAILED_COPY)

    def _drop_unopened(self, push: OnItsWay, state: EpochState, status: Status) -> None:
        self.reduce.broke(state)
        for index, taken in enumerate(push.decision.states):
            if taken is state:
                push.failures[index] = status
                push.decision.states[index] = None
        push.decision.whole = False

    def _write(self, push: OnItsWay, rows: memoryview, body: memoryview) -> None:
        decision = push.decision
        failures = self._store.reduce.append(decision, rows, body)
        for index, status in failures:
            self._fail(push, index, status)
        if decision.marked:
            for state, status in self._store.reduce.flush(decision.marked):
                self._end(state, status)
                if status is Status.FAILED_COPY:
                    for index, taken in enumerate(decision.states):
                        if taken is state:
                            self._fail(push, index, status)

    def _fail(self, push: OnItsWay, index: int, status: Status) -> None:
        state = push.decision.states[index]
        if state is not None:
            self._end(state, status)
        push.failures.setdefault(index, status)

    def _end(self, state: EpochState, status: Status) -> None:
        if status is Status.FAILED_COPY:
            self.reduce.broke(state)
        else:
            self.reduce.split(state)

    def _write_promised(self, push: OnItsWay, rows: memoryview, body: memoryview) -> None:
        """Write what was acknowledged from memory. What finds no room is kept here until it does, and its epochs take
        nothing more; after any other error nobody may take the rest of a copy for all."""
        taken = push.decision.states
        try:
            self._write(push, rows, body)
        except Exception:  # noqa: BLE001 - what was promised may not be there, whatever it is
            _log.exception("a push failed in an unforeseen way", extra={"shuffle": str(push.decision.push.shuffle)})
            push.failures = dict.fromkeys(range(len(taken)), int(Status.FAILED_COPY))
        self._give_up_promised(push)
        owed = {index for index, status in push.failures.items() if status == Status.NO_ROOM}
        left = [state if index in owed and may_grow(state) else None for index, state in enumerate(taken)]
        for state in filter(None, taken):
            state.owed = state in left
        if any(left):
            push.decision.states = left
            self._owed = push
        else:
            push.body.release()

    def _write_owed(self) -> None:
        """Try again to write what found no room, but for what was dropped or given up meanwhile."""
        if self._owed is None:
            return
        push, self._owed = self._owed, None
        decision = push.decision
        decision.states = [state if may_grow(state) else None for state in decision.states]
        decision.whole, decision.marked = False, []
        push.failures.clear()
        self._write_promised(push, memoryview(b""), push.body.view)
        if self._owed is None:
            _log.info("what waited for room waits no more", extra={"shuffle": str(decision.push.shuffle)})

    def _give_up_promised(self, push: OnItsWay) -> None:
        """What was acknowledged from memory could not be written: nobody may take the rest of its copy for all."""
        for index, status in push.failures.items():
            state = push.decision.states[index]
            if state is not None and status != Status.NO_ROOM and Life.FAILED in LEGAL[state.life]:
                self._store.reduce.give_up(state, OSError("what was acknowledged from memory could not be written"))
                self.reduce.broke(state)

    # What an answer waits for.

    def _sync(self, push: OnItsWay) -> None:
        directories = dict.fromkeys([state.directory for state in push.decision.states if state is not None])
        for directory, future in zip(directories, self._store.reduce.sync(push.decision), strict=True):
            push.waits += 1
            push.syncing.add(directory)
            future.add_done_callback(partial(self._guarded, push, partial(self._synced, push, directory, future)))

    def _synced(self, push: OnItsWay, directory: int, done: Future[Missing]) -> None:
        """A directory's part of a push is on its disk, but for the epochs that storage names: those are given up, and
        no others. What was dropped meanwhile is refused as any batch that comes after that."""
        missing = done.result()
        push.syncing.discard(directory)
        for index, state in enumerate(push.decision.states):
            if state is None or state.directory != directory:
                continue
            if EpochKey(state.shuffle, state.partition, state.epoch) in missing:
                self._fail(push, index, Status.FAILED_COPY)
            elif state.life is Life.GONE:
                push.failures.setdefault(index, Status.SEALED)
        self._one_less(push)

    def _look_at_late(self, now_ns: int) -> None:
        """No push waits for a disk without an end, or in silence: a disk that hangs must not keep the memory and the
        windows that pushes to other disks need."""
        for push in list(self._entries.values()):
            waited = (now_ns - push.since_ns) / 1e9
            if waited < SAY_SECONDS:
                break
            if push.syncing and now_ns - self._said_ns >= SAY_AGAIN_SECONDS * 1e9:
                self._said_ns = now_ns
                told = {"pushes": len(self._entries), "seconds": int(waited), "directories": self._named(push.syncing)}
                _log.warning("a push waits for the sync of a disk", extra=told)
            if waited >= SYNC_SECONDS and push.waits == len(push.syncing):
                self._leave_disk(push)

    def _leave_disk(self, push: OnItsWay) -> None:
        """Answer a push that waits for nothing but disks that do not sync it. What it wrote stays, and is sealed if
        they go on: readers drop what comes twice. Its epochs there take nothing more."""
        for index, state in enumerate(push.decision.states):
            if state is not None and state.directory in push.syncing:
                self.reduce.split(state)
                push.failures.setdefault(index, Status.DISK_FAILED)
        push.waits = 1
        self._one_less(push)

    def _named(self, directories: set[int]) -> str:
        found = self._store.directories()
        return ", ".join(str(found[number].path) for number in sorted(directories))

    def _forward(self, push: OnItsWay, body: memoryview) -> None:
        """Repeat what was taken to the replica, batches that failed here left out."""
        decision = push.decision
        chosen = [
            index for index, state in enumerate(decision.states) if state is not None and index not in push.failures
        ]
        if not chosen:
            return
        push.waits += 1
        task = awaited(self.forwarder.forward(decision.push, chosen, body))
        self._counters.forwards += 1
        task.add_done_callback(lambda done: self._guarded(push, lambda: self._forwarded(push, chosen, done)))

    def _forwarded(self, push: OnItsWay, chosen: list[int], done: asyncio.Task[list[int]]) -> None:
        error = None if done.cancelled() else done.exception()
        refused = chosen if done.cancelled() or error is not None else done.result()
        for index in refused:
            push.failures.setdefault(index, Status.REPLICA_FAILED)
        self._counters.forwards_failed += bool(refused)
        now_ns = time.monotonic_ns()
        if error is not None and now_ns - self._replica_said_ns >= SAY_SECONDS * 1e9:
            self._replica_said_ns = now_ns
            told = {"why": str(error) or repr(error), "failed": self._counters.forwards_failed}
            _log.warning("pushes could not be repeated to a replica", extra=told)
        self._one_less(push)

    def _wait_for(self, push: OnItsWay, index: int, first: Decision) -> None:
        """A batch that came before, whose first arrival is not answered yet: it gets the same outcome."""
        other = self._entries.get(first)
        if other is None:
            return
        if push.header.type is FrameType.REPLICATE and first.push.replica is not None:
            # This worker is the primary of that epoch, so nobody replicates it here, unless a client has named two
            # workers as each other's replica: they would wait for one another until both gave up.
            push.failures.setdefault(index, Status.BAD_ORDER)
            return
        entry = push.decision.push.entries[index][:3]
        push.waits += 1
        if other.landed is None:
            other.landed = self._loop.create_future()

        def landed(_: asyncio.Future[None]) -> None:
            at = next(number for number, one in enumerate(first.push.entries) if one[:3] == entry)
            status = other.failures.get(at)
            if status is not None:
                push.failures.setdefault(index, status)
            self._one_less(push)

        other.landed.add_done_callback(lambda done: self._guarded(push, partial(landed, done)))

    def _one_less(self, push: OnItsWay) -> None:
        push.waits -= 1
        if not push.waits and not push.answered:
            self._entries.pop(push.decision, None)
            self._answer(push)
            if push.landed is not None:
                push.landed.set_result(None)

    def _answer(self, push: OnItsWay, *, release: bool = True) -> None:
        decision = push.decision
        push.answered = True
        # What it holds first: nothing that goes wrong with the answer may keep it.
        if release:
            push.body.release()
        number = push.connection.number
        granted = push.credits.answered(number, push.size, time.monotonic_ns())
        try:
            self.reduce.landed(decision, list(push.failures))
            statuses = decision.statuses
            if push.failures:
                statuses = sorted({**dict(statuses), **push.failures}.items())
            answer = PushAnswer(push.credits.window(number), statuses).encode()
        except Exception as error:  # noqa: BLE001 - whatever it is, who pushed hears of it
            push.connection.refuse(push.header, refusal(error))
        else:
            push.connection.reply(push.header, answer)
            self._counters.push_batches += len(decision.push.entries)
            self._counters.batches_refused(status for _, status in statuses)
        if granted:
            self._grant(granted)

    # What happens around them.

    def lost(self, connection: ServerConnection) -> None:
        """A connection is gone."""
        self._asked.pop(connection.number, None)
        account, size = self._receiving.pop(connection.number, (None, 0))
        if account is not None:
            self._grant(account.answered(connection.number, size, time.monotonic_ns()))
        for account in (self.credits, self.replica_credits):
            self._grant(account.lost(connection.number, time.monotonic_ns()))

    def tick(self, now_ns: int) -> None:
        """Once a second."""
        looks = self._look_at_rooms, self._write_owed, self._seal_drained, self._store.reduce.tick
        in_parts(partial(self._look_at_late, now_ns), partial(self._tick_credits, now_ns), *looks)

    def _tick_credits(self, now_ns: int) -> None:
        self._grant(self.credits.tick(now_ns))
        late = self.replica_credits.tick(now_ns)
        self._counters.replica_grants_late += len(late)
        self._grant(late)

    def _seal_drained(self) -> None:
        if self.reduce.draining:  # those that could not be sealed before, too
            self.seal_split(self.reduce.split_anywhere())

    def _look_at_rooms(self) -> None:
        """Move what should move, and split what is on disks that are full or not well."""
        spaces = self._store.look(DISK_RESERVE_SHARE, self._disk_reserve)
        for directory, size in self._store.tiering.step(time.monotonic()):
            self._counters.epochs_split_for_room += self.reduce.split_largest(directory, size)
            self.seal_split(self.reduce.split_in(directory))
        rooms = [space.room if space is not None else 0 for space in spaces]
        self._until_look = max(min(filter(None, rooms), default=0) // ROOM_SHARE, LOOK_BYTES_MIN)
        self.reduce.set_rooms([room > 0 for room in rooms])

    def full(self) -> list[str]:
        """For each directory which limit keeps epochs from growing there, for people; "" while they may."""
        told = self._store.limits_met(DISK_RESERVE_SHARE, self._disk_reserve, ROOM_BYTES_MIN)
        if self.reduce.epochs >= EPOCHS_MAX:
            return [why or f"{EPOCHS_MAX} epochs are open on this worker" for why in told]
        return told

    def held(self) -> Iterator[tuple[ShuffleKey, UsageTotals]]:
        """Yield what each shuffle has in epochs that are not sealed; one that is in the log only has no file."""
        for key, shuffle in self.reduce.shuffles.items():
            states = shuffle.epochs.values()
            files = sum(map(self._store.reduce.has_file, states))
            yield key, UsageTotals(sum(state.size_bytes for state in states), files)

    def forget(self, shuffle: ShuffleKey) -> None:
        """The masters do not know a shuffle: take nothing more for it. Storage removes what is there."""
        self.reduce.forget(shuffle)

    def begin(self, incarnation: Incarnation) -> None:
        """This worker has a new incarnation."""
        self.reduce.begin(incarnation)

    def accept(self, yes: bool, why_not: str = "") -> None:
        """Take pushes, or refuse them."""
        self.reduce.closed_because = "" if yes else why_not or "this worker does not accept pushes"

    @property
    def owed_bytes(self) -> int:
        """What was acknowledged from memory and waits for room on a disk."""
        return self._owed.size if self._owed is not None else 0

    def end(self) -> None:
        """This worker ends in order: seal what it acknowledged from memory, since a later start finds only what is
        sealed of that."""
        self._write_owed()
        self.seal_split(self.reduce.split_memory())

    def drain(self, yes: bool) -> None:
        """Split everything open, seal it and take no new epochs, or go back to normal."""
        self.reduce.drain(yes)
        if yes:
            self.seal_split(self.reduce.split_anywhere())


assert SYNC_SECONDS > FORWARD_SECONDS, "the replica has answered by then"
