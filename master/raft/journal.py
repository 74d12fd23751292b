"""The Raft log of one member: entries, term, vote and commit index, in memory and on disk.

Rules: the library changes the log in memory; `sync` puts every change since the last one to disk in one durable,
atomic step, and the gate calls it before any message leaves. Entries equal on disk are not written again. The
commit index and the removal of compacted entries are only hints for a faster start, so they never force a sync by
themselves. In memory an entry is its bytes and 8 more, for its term: there are many. `JournalStore` is the disk: LMDB
in `journal_store`, a simulated one in the tests. Called by the library (its `Journal` interface, hence the camel case),
`gate` and `member`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.master.raft.codec import MAX_BATCH_BYTES, Entry


@dataclass(frozen=True, slots=True)
class Meta:
    """What is kept beside the entries. Entries `first` to `last` are the log; `last` < `first` means none."""

    term: int = 0
    vote: str | None = None
    commit: int = 1
    first: int = 1
    last: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One atomic step of the disk: remove the ranges (both ends included), put the entries, replace the meta."""

    meta: Meta
    put: list[Entry] = field(default_factory=list)
    remove: list[tuple[int, int]] = field(default_factory=list)


class JournalStore(Protocol):
    """Durable home of a journal."""

    def load(self) -> tuple[Meta, list[Entry], int]:
        """Meta, the entries first..last, and the lowest index still on disk (below first after a compaction)."""

    def commit(self, change: Change) -> None:
        """Make the change durable, wholly or not at all."""

    def close(self) -> None:
        """Release the disk."""


REMOVE_LIMIT = 500  # compacted entries removed in one step, so that no step is long


class Journal:
    """The library's journal over a `JournalStore`."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        meta, entries, self._disk_first = store.load()
        #: commands and terms of the entries from index _first on
        self._commands = [command for command, _, _ in entries]
        self._terms = array("Q", [term for _, _, term in entries])
        self._first = meta.first
        self._term, self._vote, self._commit = meta.term, meta.vote, meta.commit
        self._disk_last = meta.last
        self._same_to = meta.last  # entries first.._same_to are equal in memory and on disk
        self._hard = False
        self._soft = False
        self.bytes = sum(map(len, self._commands))

    # what the library calls

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        if not self._commands:
            self._first = idx
            self._same_to = idx - 1
        if idx != self._first + len(self._commands):
            raise AssertionError(f"entry {idx} appended after entry {self.last_index}")
        self._commands.append(command)
        self._terms.append(term)
        self.bytes += len(command)
        self._hard = True

    def clear(self) -> None:
        """Forget all entries; the next one added may have any index above them."""
        self._commands, self._terms = [], array("Q")
        self.bytes = 0
        self._hard = True

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802 (the library's name)
        """Drop the entries at `position` (in the list) and behind."""
        self.bytes -= sum(map(len, self._commands[position:]))
        self._same_to = min(self._same_to, self._first + position - 1)
        del self._commands[position:], self._terms[position:]
        self._hard = True

    def deleteEntriesTo(self, position: int) -> None:  # noqa: N802
        """Drop the entries before `position`."""
        self.bytes -= sum(map(len, self._commands[:position]))
        del self._commands[:position], self._terms[:position]
        self._first += position
        self._soft = True

    def __getitem__(self, item: Any) -> Any:
        found = range(len(self))[item]
        return self._entry(found) if isinstance(found, int) else list(map(self._entry, found))

    def __len__(self) -> int:
        return len(self._commands)

    def _entry(self, at: int) -> Entry:
        return self._commands[at], self._first + at, self._terms[at]

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Note the commit index; written with the next step."""
        if index != self._commit:
            self._commit = index
            self._soft = True

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """The commit index noted last, never behind the log's end."""
        return min(self._commit, self.last_index) if self._commands else self._commit

    def setCurrentTerm(self, term: int, vote: str | None) -> None:  # noqa: N802
        """Enter a term, or vote in it."""
        if (term, vote) != (self._term, self._vote):
            self._term, self._vote = term, vote
            self._hard = True

    def getCurrentTerm(self) -> int:  # noqa: N802
        """The term entered last."""
        return self._term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """The node id voted for in that term."""
        return self._vote

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Write hints that nothing else carried to disk."""
        if self._soft:
            self._hard = True
            self.sync()

    def _destroy(self) -> None:
        self._store.close()

    # what this package calls

    @property
    def first_index(self) -> int:
        """Index of the oldest entry kept; it is never sent, only its term is used."""
        return self._first

    @property
    def last_index(self) -> int:
        """Index of the newest entry."""
        return self._first + len(self._commands) - 1

    @property
    def soft_dirty(self) -> bool:
        """Whether hints wait for the next step."""
        return self._soft

    def term_at(self, index: int) -> int | None:
        """Term of the entry at `index`, None if it is not in the log."""
        at = index - self._first
        return self._terms[at] if 0 <= at < len(self._terms) else None

    def slice(self, start: int, count: int, max_bytes: int = MAX_BATCH_BYTES) -> tuple[Entry, ...]:
        """At most `count` entries from index `start` on; stops behind the one that reaches `max_bytes`."""
        at, size = start - self._first, 0
        taken: list[Entry] = []
        for entry in map(self._entry, range(at, min(at + count, len(self)))):
            taken.append(entry)
            size += len(entry[0])
            if size >= max_bytes:
                break
        return tuple(taken)

    def drop_covered(self, index: int, keep_entries: int, keep_bytes: int) -> None:
        """Forget entries below `index`, which a durable snapshot covers, but for the latest of them, up to so many of
        so many bytes: for peers that are a moment behind."""
        position = min(index, self.last_index) - self._first
        least = max(0, position - keep_entries)
        while position > least and (keep_bytes := keep_bytes - len(self._commands[position - 1])) >= 0:
            position -= 1
        if position > 0:
            self.deleteEntriesTo(position)

    def restart_at(self, command: bytes, index: int, term: int) -> None:
        """Replace the whole log by the last entry of a snapshot, and make it so on disk."""
        self._commands, self._terms, self._first = [command], array("Q", [term]), index
        self.bytes = len(command)
        self._same_to = index - 1
        self._hard = True
        self.setRaftCommitIndex(max(self._commit, index))
        self.sync()

    def sync(self) -> None:
        """Make all changes durable; returns at once if nothing but hints changed."""
        if not self._hard:
            return
        change = self._change()
        self._store.commit(change)
        if change.remove and change.remove[0][0] == self._disk_first:
            self._disk_first = change.remove[0][1] + 1
        self._disk_last = self._same_to = change.meta.last
        if self._disk_first > change.meta.first or self._disk_first > self._disk_last:
            self._disk_first = change.meta.first
        self._hard = False
        self._soft = self._disk_first < change.meta.first

    def _change(self) -> Change:
        first, last = (self._first, self.last_index) if self._commands else (self._disk_last + 1, self._disk_last)
        put = self[max(0, self._same_to + 1 - first) :]
        remove: list[tuple[int, int]] = []
        head = min(self._disk_last, first - 1, self._disk_first + REMOVE_LIMIT - 1)
        if self._disk_first <= head:
            remove.append((self._disk_first, head))
        tail = max(self._disk_first, last + 1)
        if tail <= self._disk_last and last >= self._disk_first:
            remove.append((tail, self._disk_last))
        return Change(Meta(self._term, self._vote, min(self._commit, max(last, 1)), first, last), put, remove)
