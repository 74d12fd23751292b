"""The state machine that master/raft drives.

Rules: an entry that this version does not understand raises, which ends the process: going on without it would be
another state than the others have. Whoever waits for changes registers one listener, called after each entry, in Raft's
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.common.ids import ShuffleKey
from holdfast.master.core import event_derivation as happened
from holdfast.master.core.events import Happened
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.apply import apply
from holdfast.master.core.state.records import Answer
from holdfast.master.core.state.state import State, StateTables
from holdfast.master.state_machine import codec, snapshot

#: What may have changed, for waiters: the key of a shuffle, an instance or b"" for all, the number of a worker.
Subject = ShuffleKey | bytes | int


class StateMachine:
    """The replicated state behind bytes; `state` is read only under Raft's state lock."""

    def __init__(
        self,
        on_change: Callable[[tuple[Subject, ...]], None] | None = None,
        on_events: Callable[[int, int, list[Happened]], None] | None = None,
    ) -> None:
        """`on_change` gets the shuffles, instances and workers whose waiters may have news;
        `on_events` the time, the place in the log, and what happened there, for people."""
        self.state = State()
        self._on_change = on_change
        self._on_events = on_events

    def apply(self, index: int, term: int, command: bytes) -> tuple[Answer, ...]:
        """Apply one entry; return an answer for each of its commands. Raises codec.VersionError."""
        entry = codec.decode_entry(command)
        answers = tuple([self._apply(index, entry.time_ms, each) for each in entry.commands])
        if self._on_change is not None:
            changed = tuple(
                [
                    subject
                    for each, answer in zip(entry.commands, answers, strict=True)
                    if answer.ok
                    for subject in _subjects(each.body, answer)
                ]
            )
            if changed:
                self._on_change(changed)
        return answers

    def _apply(self, index: int, time_ms: int, command: cmd.Command) -> Answer:
        if self._on_events is None:
            return apply(self.state, index, time_ms, command)
        known = happened.before(self.state, command.body)
        answer = apply(self.state, index, time_ms, command)
        derived = happened.after(self.state, command.body, answer, known)
        if derived:
            self._on_events(time_ms, index, derived)
        return answer

    def capture(self) -> StateTables:
        """Return a picture of the state; quick."""
        return self.state.capture()

    def encode(self, captured: object) -> Iterator[bytes]:
        """Yield the bytes of a picture; may run in any thread."""
        assert isinstance(captured, StateTables)
        return snapshot.encode(captured)

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the state; raises snapshot.SnapshotError and leaves it as it was."""
        self.state = State(snapshot.decode(chunks))

    def state_hash(self) -> bytes:
        """Return 16 bytes that are equal on all masters that applied the same entries."""
        return snapshot.state_hash(self.state.capture())


def _subjects(body: cmd.Body, answer: Answer) -> tuple[Subject, ...]:
    """The keys by which waiters are woken."""
    if isinstance(body, cmd.Commit | cmd.Unregister):
        return (body.key,)
    if isinstance(body, cmd.Detach | cmd.Forget):
        return (body.instance,)
    if isinstance(body, cmd.EndLeases):
        return (b"",)
    if isinstance(body, cmd.SetWorkersAlive):
        return tuple([ref.worker for ref in body.workers])
    if isinstance(body, cmd.RegisterWorker):
        return (answer.value,)
    return ()
