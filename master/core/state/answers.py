"""The answer table: a command that is tried again gets the answer of its first try and is not applied a second time.

Rules
* Keyed by (client id, call number); the digest of the request tells a retry from another call under the same number.
* Bounded per client and in all; a client that made no command for CLIENT_LIFE_MS is forgotten. Only command time and
  command order decide, so all masters hold the same table.
* A number that is not remembered any more is CALL_TOO_OLD, never applied. For a client that is not in the table the
  index at which it drew its id decides: a client drawn after the last one forgotten was in use cannot have been
  forgotten.
* Answers that ask for another try (BUSY and the like) are not remembered.

Called by master/core/state/apply.py only.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from holdfast.common.statuses import Status
from holdfast.master.core.state import bounds
from holdfast.master.core.state.commands import Command
from holdfast.master.core.state.records import Answer, Client, Remembered

#: Clients forgotten per command at most, so that no command takes long after a pause.
_FORGOTTEN_AT_ONCE = 8
_NOT_REMEMBERED = frozenset({Status.BUSY, Status.UNAVAILABLE, Status.OUTCOME_UNKNOWN})


class AnswerTable:
    """Clients by id, the one longest without a command first."""

    def __init__(self) -> None:
        self.clients: OrderedDict[bytes, Client] = OrderedDict()
        #: Highest `last_index` of a client that was forgotten.
        self.forgotten_index = 0
        self.size = 0

    def restore(self, clients: OrderedDict[bytes, Client], forgotten_index: int) -> None:
        """Replace everything; `clients` in the order of their last command."""
        self.clients = clients
        self.forgotten_index = forgotten_index
        self.size = sum(len(client.calls) for client in clients.values())

    def expire(self, now_ms: int) -> None:
        """Forget clients that are out of time."""
        for _ in range(_FORGOTTEN_AT_ONCE):
            if not self.clients:
                return
            oldest = next(iter(self.clients))
            client = self.clients[oldest]
            if now_ms - client.last_ms <= bounds.CLIENT_LIFE_MS:
                return
            del self.clients[oldest]
            self.size -= len(client.calls)
            assert self.size >= len(self.clients), "who is remembered has an answer"
            self.forgotten_index = max(self.forgotten_index, client.last_index)

    def recall(self, command: Command) -> Answer | None:
        """Return what to answer without applying, or None if the command is new and may be applied."""
        client = self.clients.get(command.client)
        if client is None:
            return self._unseen(command)
        if command.number <= client.floor:
            return Answer(
                Status.CALL_TOO_OLD,
                f"call {command.number} of this client is forgotten ({client.floor} is the last forgotten); it was not "
                "applied now; ask what became of it, then call with a new number",
            )
        if client.calls and command.number <= client.calls[-1].number:
            for call in client.calls:
                if call.number == command.number:
                    return call.answer if call.digest == command.digest else _reused(command)
        return None

    def remember(self, command: Command, answer: Answer, index: int, now_ms: int) -> None:
        """Keep an answer; makes room by forgetting this client's oldest calls."""
        if answer.status in _NOT_REMEMBERED:
            return
        client = self.clients.pop(command.client, None) or Client(last_index=0, last_ms=0, floor=0, calls=())
        calls = (*client.calls, Remembered(command.number, command.digest, answer))
        if len(calls) > 1 and calls[-2].number > command.number:
            calls = tuple(sorted(calls, key=lambda call: call.number))
        self.size += 1
        floor = client.floor
        while len(calls) > bounds.CALLS_PER_CLIENT_MAX or (self.size > bounds.CALLS_MAX and len(calls) > 1):
            floor, calls = calls[0].number, calls[1:]
            self.size -= 1
        assert 0 < len(calls) <= self.size, "each answer is counted"
        self.clients[command.client] = replace(client, last_index=index, last_ms=now_ms, floor=floor, calls=calls)

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
        if self.size != sum(len(client.calls) for client in self.clients.values()):
            found.append(f"the answer table says {self.size} answers and holds others")
        for client in self.clients.values():
            numbers = [call.number for call in client.calls]
            if sorted(set(numbers)) != numbers or (numbers and numbers[0] <= client.floor):
                found.append(f"calls {numbers} above {client.floor} are not in order")
            if len(numbers) > bounds.CALLS_PER_CLIENT_MAX:
                found.append(f"a client has {len(numbers)} answers")
        return found


def _reused(command: Command) -> Answer:
    return Answer(Status.CALL_REUSED, f"call {command.number} of this client was another request; use a new number")
