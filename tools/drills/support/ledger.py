"""What the masters have acknowledged, command by command, and what they must therefore still say. Pure.

One entry per shuffle of the drill; each is changed by one client at a time, so the acknowledged state is exact. A
command whose outcome was never learnt leaves a set of states that are all allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ShuffleState(StrEnum):
    """States of a shuffle, as ListShuffles names them; GONE is also a shuffle that is not listed."""

    OPEN = "open"
    COMMITTED = "committed"
    GONE = "dropped"


@dataclass(slots=True)
class LedgerEntry:
    """What is known of one shuffle."""

    states: set[ShuffleState]
    #: winners that an acknowledged commit carried
    winners: bytes = b""


@dataclass(slots=True)
class Ledger:
    """All shuffles of a drill by number."""

    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    acknowledged: int = 0

    def acknowledge(self, shuffle: int, state: ShuffleState, winners: bytes = b"") -> None:
        """A command was answered: the shuffle is in that state and in no other."""
        self.acknowledged += 1
        entry = self.entries.setdefault(shuffle, LedgerEntry({state}))
        entry.states = {state}
        entry.winners = winners or entry.winners

    def attempt(self, shuffle: int, state: ShuffleState) -> None:
        """A command is about to be sent: from now on its resulting state is allowed too."""
        self.entries.setdefault(shuffle, LedgerEntry({ShuffleState.GONE})).states.add(state)

    def violations(self, listed: Mapping[int, str]) -> Iterator[str]:
        """A sentence for every entry that contradicts what the masters list, and for what they list unasked."""
        for shuffle, entry in self.entries.items():
            state = listed.get(shuffle, ShuffleState.GONE)
            if state not in entry.states:
                allowed = " or ".join(sorted(entry.states))
                yield f"shuffle {shuffle} is {state}, but was acknowledged as {allowed}"
        for shuffle in listed.keys() - self.entries.keys():
            if listed[shuffle] != ShuffleState.GONE:
                yield f"shuffle {shuffle} is {listed[shuffle]}, but it was never asked for, or dropped long ago"

    def committed(self) -> Iterator[tuple[int, bytes]]:
        """Shuffles whose acknowledged state is committed, with their winners."""
        for shuffle, entry in self.entries.items():
            if entry.states == {ShuffleState.COMMITTED}:
                yield shuffle, entry.winners

    def forget_gone(self) -> None:
        """Drop entries that are certainly gone, so that a long drill stays small."""
        self.entries = {number: entry for number, entry in self.entries.items() if entry.states != {ShuffleState.GONE}}
