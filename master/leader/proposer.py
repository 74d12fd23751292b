"""Gathers commands into entries of the log and proposes them.

Rules
* A command that comes while nothing is under way is proposed at once; while entries are under way commands gather, and
  go together when one is done. So a lone command is not delayed and many share the cost of replication.
* The queue is bounded; beyond it a command is refused with BUSY and was not proposed.
* Runs in the event loop; Raft's futures come back through call_soon_threadsafe.

Called by leader.py only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from holdfast.common.errors import HoldfastError, NotLeaderError, OutcomeUnknownError, RetryError
from holdfast.common.limits import COMMAND_PART_BYTES, KIB
from holdfast.common.statuses import Status
from holdfast.common.system.waiting import bounded
from holdfast.master.core.state.commands import Command
from holdfast.master.core.state.records import Answer
from holdfast.master.raft.errors import CommandTooLarge, NodeStopped, NotLeader, OutcomeUnknown, Overloaded
from holdfast.master.raft.member import Applied
from holdfast.master.raft.node import RaftNode
from holdfast.master.state_machine.codec import encode_command, join_entry
from holdfast.master.state_machine.state_machine import StateMachine

T = TypeVar("T")
#: The bytes of a command, and the future of its answer.
_Waiting = tuple[bytes, "asyncio.Future[Answer]"]

#: Commands that wait to be proposed.
QUEUE_MAX = 4_096
#: Entries under way at once: while one is being synced the next is on its way.
_ENTRIES_MAX = 2
_ENTRY_COMMANDS_MAX = 128
#: A gathered entry ends here, unless its first command alone is larger.
_ENTRY_BYTES = 256 * KIB


#: If a majority of the masters has not taken it by then: they are connected, or this one would not be the leader, but
#: none of the others has the log before it, or a disk is very slow.
ANSWER_SECONDS = 60.0
_LOG = "the masters' log: a majority has to write it down"


class Proposer:
    """The way of commands into the log."""

    def __init__(
        self, node: RaftNode[StateMachine], now_ms: Callable[[], int], http_of: Callable[[str | None], str]
    ) -> None:
        """`now_ms` is the wall clock that stamps entries; `http_of` gives a node's HTTP address, "" if not known."""
        self._node = node
        self._now_ms = now_ms
        self._http_of = http_of
        self._queue: deque[_Waiting] = deque()
        self._under_way = 0
        self._scheduled = False
        self.entries = 0
        self.commands = 0

    @property
    def waiting(self) -> int:
        """How many commands wait to be proposed."""
        return len(self._queue)

    async def submit(self, command: Command) -> Answer:
        """Return the command's answer once it is applied. Raises NotLeaderError, OutcomeUnknownError or RetryError."""
        if len(self._queue) >= QUEUE_MAX:
            raise RetryError(f"{QUEUE_MAX} commands are waiting; try again", status=Status.BUSY)
        data = encode_command(command)
        if len(data) > COMMAND_PART_BYTES + 64 * KIB:
            raise HoldfastError(f"a command of {len(data)} bytes has to be sent in parts")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        self._queue.append((data, answered))
        if not self._scheduled and self._under_way < _ENTRIES_MAX:
            self._scheduled = True
            loop.call_soon(self._propose)  # after what this turn of the loop still has to hand in
        try:
            return await of_the_log(answered)
        except TimeoutError:
            raise OutcomeUnknownError(
                f"no majority of the masters wrote this down within {ANSWER_SECONDS:g} s, and it may be applied yet; "
                "repeat it with the same call number"
            ) from None

    def _propose(self) -> None:
        self._scheduled = False
        while self._queue and self._under_way < _ENTRIES_MAX:
            batch = self._next_batch()
            entry = join_entry(self._now_ms(), [command for command, _ in batch])
            self._under_way += 1
            try:
                future = self._node.propose(entry)
            except (CommandTooLarge, NodeStopped) as error:
                self._under_way -= 1
                _fail(batch, translate(error, self._http_of))
                continue
            future.add_done_callback(partial(_hand_over, asyncio.get_running_loop(), self._finish, batch))

    def _next_batch(self) -> list[_Waiting]:
        batch = [self._queue.popleft()]
        size = len(batch[0][0])
        while self._queue and len(batch) < _ENTRY_COMMANDS_MAX and size + len(self._queue[0][0]) <= _ENTRY_BYTES:
            batch.append(self._queue.popleft())
            size += len(batch[-1][0])
        return batch

    def _finish(self, batch: list[_Waiting], done: Future[Applied]) -> None:
        self._under_way -= 1
        error = done.exception()
        if error is not None:
            _fail(batch, translate(error, self._http_of))
        else:
            self.entries += 1
            self.commands += len(batch)
            answers: tuple[Answer, ...] = done.result().result  # type: ignore[assignment]
            for (_, answered), answer in zip(batch, answers, strict=True):
                if not answered.done():
                    answered.set_result(answer)
        self._propose()


async def of_the_log(answer: asyncio.Future[T]) -> T:
    """Return what the log answers. Raises TimeoutError after ANSWER_SECONDS, and what the answer raises."""
    return await bounded(answer, ANSWER_SECONDS, _LOG)


def translate(error: BaseException, http_of: Callable[[str | None], str]) -> HoldfastError:
    """Return Holdfast's error for one of Raft's."""
    match error:
        case TimeoutError():
            return RetryError(f"no majority of the masters answered this one within {ANSWER_SECONDS:g} s; try again")
        case NotLeader():
            return NotLeaderError(leader=http_of(error.leader))
        case Overloaded():
            return RetryError("the masters have too much to do; try again", status=Status.BUSY)
        case OutcomeUnknown():
            return OutcomeUnknownError("it is not known whether this was applied; repeat it with the same call number")
        case NodeStopped():
            return RetryError("this master is stopping")
        case HoldfastError():
            return error
    return HoldfastError(f"{type(error).__name__}: {error}")


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    finish: Callable[[list[_Waiting], Future[Applied]], None],
    batch: list[_Waiting],
    done: Future[Applied],
) -> None:
    """Runs in Raft's thread."""
    try:
        loop.call_soon_threadsafe(finish, batch, done)
    except RuntimeError:
        return  # the loop is closed: the process ends, and no caller waits any more


def _fail(batch: list[_Waiting], error: HoldfastError) -> None:
    for _, answered in batch:
        if not answered.done():
            answered.set_exception(error)
