"""The answer table: a command that is tried again gets the answer of its first try and is not applied a second time.

Rules
* Keyed by (client id, call number); the digest of the request separates a retry from another call with the same number.
* A client says below which number all its calls are over: their answers are forgotten at once. Bounded per client and
  in all besides; a client that made no command for CLIENT_LIFE_MS is forgotten. Only command time and
  command order decide, so all masters hold the same table.
* A number that is not remembered any more is CALL_TOO_OLD, never applied. For a client that is not in the table the
  index at which it drew its id decides: a client drawn after the last one forgotten was in use cannot have been
  forgotten.
* Answers that ask for another try (BUSY and the like) are not remembered.
* Kept as bytes, a client at a time: there are very many, and few are ever asked for.

Called by master/core/state/apply.py only.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import NamedTuple, Self

from holdfast.common.statuses import Status
from holdfast.master.core.state import bounds
from holdfast.master.core.state.commands import Command
from holdfast.master.core.state.records import Answer

#: Clients forgotten per command at most, so that no command takes long after a pause.
_FORGOTTEN_AT_ONCE = 8
_NOT_REMEMBERED = frozenset({Status.BUSY, Status.UNAVAILABLE, Status.OUTCOME_UNKNOWN})
#: last_index u64, last_ms u64, floor u64; the calls follow.
_CLIENT = struct.Struct("<QQQ")
#: number u64, value u64, status u16, lengths of digest, subject and detail u16; these follow.
_CALL = struct.Struct("<QQHHHH")


class Client(NamedTuple):
    """The latest answered calls of one client id, packed, by number. Calls up to `floor` are forgotten."""

    last_index: int
    last_ms: int
    floor: int
    calls: tuple[bytes, ...]

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read what `pack` made. Raises struct.error or ValueError if it is cut."""
        calls, at = [], _CLIENT.size
        while at < len(data):
            begin, at = at, at + _CALL.size + sum(_CALL.unpack_from(data, at)[3:])
            calls.append(data[begin:at])
        if at != len(data):
            raise ValueError("the answers of a client are cut")
        last_index, last_ms, floor = _CLIENT.unpack_from(data)
        return cls(last_index, last_ms, floor, tuple(calls))

    def pack(self) -> bytes:
        """As it is kept."""
        return _CLIENT.pack(*self[:3]) + b"".join(self.calls)


def _pack_call(command: Command, answer: Answer) -> bytes:
    tail = (command.digest, answer.subject, answer.detail.encode())
    return _CALL.pack(command.number, answer.value, answer.status, *map(len, tail)) + b"".join(tail)


def _unpack_call(call: bytes) -> tuple[bytes, Answer]:
    """Return digest and answer."""
    _, value, status, digest, subject, _ = _CALL.unpack_from(call)
    at = _CALL.size + digest
    return call[_CALL.size : at], Answer(status, call[at + subject :].decode(), value, call[at : at + subject])


def _number(call: bytes) -> int:
    return int(_CALL.unpack_from(call)[0])


class AnswerTable:
    """Packed clients by id, the one longest without a command first."""

    def __init__(self) -> None:
        self.clients: OrderedDict[bytes, bytes] = OrderedDict()
        #: Highest `last_index` of a client that was forgotten.
        self.forgotten_index = 0
        self.size = 0

    def restore(self, clients: OrderedDict[bytes, bytes], forgotten_index: int) -> None:
        """Replace everything; `clients` in the order of their last command."""
        self.clients = clients
        self.forgotten_index = forgotten_index
        self.size = sum(len(Client.unpack(client).calls) for client in clients.values())

    def expire(self, now_ms: int) -> None:
        """Forget clients that are out of time."""
        for _ in range(_FORGOTTEN_AT_ONCE):
            if not self.clients:
                return
            oldest = next(iter(self.clients))
            client = Client.unpack(self.clients[oldest])
            if now_ms - client.last_ms <= bounds.CLIENT_LIFE_MS:
                return
            del self.clients[oldest]
            self.size -= len(client.calls)
            assert self.size >= len(self.clients), "every remembered caller has an answer"
            self.forgotten_index = max(self.forgotten_index, client.last_index)

    def recall(self, command: Command) -> Answer | None:
        """Return what to answer without applying, or None if the command is new and may be applied."""
        kept = self.clients.get(command.client)
        if kept is None:
            return self._unseen(command)
        client = Client.unpack(kept)
        if command.number <= client.floor:
            return Answer(
                Status.CALL_TOO_OLD,
                f"call {command.number} of this client is forgotten ({client.floor} is the last forgotten); it was not "
                "applied now; ask what became of it, then call with a new number",
            )
        for call in client.calls:
            if _number(call) == command.number:
                digest, answer = _unpack_call(call)
                if digest == command.digest:
                    return answer
                text = f"call {command.number} of this client was another request; use a new number"
                return Answer(Status.CALL_REUSED, text)
        return None

    def remember(self, command: Command, answer: Answer, index: int, now_ms: int) -> None:
        """Keep an answer; forgets this client's calls that are over, and its oldest to make room."""
        if answer.status in _NOT_REMEMBERED:
            return
        kept = self.clients.pop(command.client, None)
        client = Client.unpack(kept) if kept is not None else Client(0, 0, 0, ())
        calls = sorted((*client.calls, _pack_call(command, answer)), key=_number)
        self.size += 1
        floor = max(client.floor, min(command.open_from, command.number) - 1)
        while _number(calls[0]) <= floor or (
            len(calls) > 1 and (len(calls) > bounds.CALLS_PER_CLIENT_MAX or self.size > bounds.CALLS_MAX)
        ):
            floor = max(floor, _number(calls.pop(0)))
            self.size -= 1
        assert 0 < len(calls) <= self.size, "each answer is counted"
        self.clients[command.client] = Client(index, now_ms, floor, tuple(calls)).pack()

    def _unseen(self, command: Command) -> Answer | None:
        if command.drawn_index < self.forgotten_index:
            return Answer(
                Status.CALL_TOO_OLD,
                "this client id was drawn before the last one that was forgotten, so the call may have been applied "
                "long ago; it was not applied now; draw a new client id with the raft_index of Discover",
            )
        if len(self.clients) >= bounds.CLIENTS_MAX or self.size >= bounds.CALLS_MAX:
            return Answer(Status.BUSY, f"{len(self.clients)} clients are remembered, no more fit; try again later")
        return None

    def check(self) -> list[str]:
        """Return every breach of what must hold."""
        found = []
        clients = list(map(Client.unpack, self.clients.values()))
        if self.size != sum(len(client.calls) for client in clients):
            found.append(f"the answer table counts {self.size} answers and holds others")
        for client in clients:
            numbers = list(map(_number, client.calls))
            if sorted(set(numbers)) != numbers or (numbers and numbers[0] <= client.floor):
                found.append(f"calls {numbers} above {client.floor} are not in order")
            if len(numbers) > bounds.CALLS_PER_CLIENT_MAX:
                found.append(f"a client has {len(numbers)} answers")
        return found
