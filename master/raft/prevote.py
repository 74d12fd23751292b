"""Whether this member may start an election: pre-votes (Diego Ongaro, "Consensus: Bridging Theory and Practice", 9.6).

Rules: pure, but for the clock it is given. A member without a message of a leader for an election timeout first asks
its peers whether they would vote for it, in its own term, which does not change by that. A peer says yes if it does not
lead, has had no message of a leader lately either, and its log is not ahead. Only with a majority may the member start
it. So one that was cut off, stopped or started again takes nothing away from a leader that works. A leader that hands
over (TimeoutNow) needs no pre-vote. A member that grants, or votes, delays its own candidacy for a moment: two
candidates split the votes or depose each other, which costs another election timeout.
Called by `message_filter` and `member`.
"""

from __future__ import annotations

from collections.abc import Callable

#: Pre-votes that were not granted are asked for again after this share of an election timeout: a member that had a
#: message of the leader a moment later than this member grants soon. A member defers to another election for as long.
ASK_AGAIN_SHARE = 0.3
#: A member whose connection to the leader ends asks after this share of an election timeout: most likely the leader's
#: process ended, and the peers see that in the same moment. If it lives, it has so long to connect again.
CUT_OFF_SHARE = 0.1


class PreVotes:
    """The rounds of one member."""

    def __init__(self, name: str, members: int, silence: float, clock: Callable[[], float]) -> None:
        """`silence`: seconds without a word of a leader after which another one may be elected; less than an election
        timeout, since the leader's last word reaches peers at different times."""
        self._name = name
        self._needed = members // 2
        self._silence = silence
        self._clock = clock
        self._heard = clock()  # a member that has just started had no time to get one
        self._round = 0
        self._granted: set[str] | None = None
        #: the highest term of the peers that would vote for this member
        self.term = 0
        self._left_behind = False
        self._gave_way = False

    def heard(self) -> None:
        """A leader lives: what was asked before counts no more."""
        self._heard, self._gave_way = self._clock(), False
        self.end()

    def cut_off(self) -> None:
        """The connection to the leader ended: until its next word there is none as far as this member knows."""
        self._heard = min(self._heard, self._clock() - self._silence)

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
        self._granted, self.term, self._gave_way = set(), 0, False
        return self._round

    def gives_way(self, peer: str, longer: bool) -> bool:
        """The peer was granted a pre-vote; returns whether this member's own election has to wait a moment for it.

        Of two that ask at once exactly one gives way: the one with the shorter log (`longer`: the peer's is longer), or
        with the later name. A member gives way once between two rounds of its own: a peer that asks again and again,
        and is never elected, delays no election.
        """
        asking = self._granted is not None
        if self._gave_way or (asking and not longer and self._name < peer):
            return False
        self._granted, self._gave_way = None, True
        return True

    def granted(self, peer: str, number: int, term: int) -> bool:
        """A peer would vote for this member; returns whether it may start an election now."""
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
        """The member starts an election: the next one needs new pre-votes."""
        self._granted, self._left_behind = None, False
