"""Whether this member may stand for election: pre-votes (Diego Ongaro, "Consensus: Bridging Theory and Practice", 9.6).

Rules: pure, but for the clock it is given. Who has not heard a leader for an election timeout first asks its peers
whether they would vote for it, in its own term, which does not change by that. A peer says yes if it does not lead, has
not heard a leader lately either, and its log is not ahead. Only with a majority may the member stand. So one that was
cut off, stopped or started again takes nothing away from a leader that works. A leader that hands over
(TimeoutNow) needs no pre-vote. Called by `gate` and `member`.
"""

from __future__ import annotations

from collections.abc import Callable


class PreVotes:
    """The rounds of one member."""

    def __init__(self, members: int, silence: float, clock: Callable[[], float]) -> None:
        """`silence`: seconds without a word of a leader after which another one may be elected; less than an election
        timeout, since the leader's last word reaches peers at different times."""
        self._needed = members // 2
        self._silence = silence
        self._clock = clock
        self._heard = clock()  # who has just started has not had the time to hear one
        self._round = 0
        self._granted: set[str] | None = None
        #: the highest term of who would vote for this member
        self.term = 0
        self._left_behind = False

    def heard(self) -> None:
        """A leader lives: what was asked before counts no more."""
        self._heard = self._clock()
        self.end()

    def heard_of_lower_term(self) -> None:
        """A leader lives, in a term below this member's, and cannot be followed: an election is the only way on. The
        member's term has grown with the consent of a majority, or of a leader that handed over."""
        self._left_behind = True

    @property
    def hears(self) -> bool:
        """Whether a leader gave a sign of life lately."""
        return self._clock() - self._heard < self._silence

    def begin(self) -> int:
        """Ask anew; returns the number of the round."""
        self._round += 1
        self._granted, self.term = set(), 0
        return self._round

    def granted(self, peer: str, number: int, term: int) -> bool:
        """A peer would vote for this member; returns whether it may stand now."""
        if self._granted is None or number != self._round:
            return False
        self._granted.add(peer)
        self.term = max(self.term, term)
        return self.may_stand

    @property
    def may_stand(self) -> bool:
        """Whether a majority, this member included, would vote for it, or has to be asked in earnest."""
        return self._left_behind or (self._granted is not None and len(self._granted) >= self._needed)

    def end(self) -> None:
        """The member stands: the next election has to be asked for again."""
        self._granted, self._left_behind = None, False
