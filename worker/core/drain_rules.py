"""Decides what a worker takes while it drains, and when one that was asked to end may do so.

Rules: pure; events in, the state is read; time comes with the events. Masters say whether a worker drains. One that was
asked to end tells them, and ends as soon as

* they answer that no other worker takes data: then nobody is helped by waiting, and what it acknowledged survives;
* nothing is open: no open partition is placed here any more (they say so), nothing is being written (the edge says so);
* its patience is over, or the masters do not answer: a worker that cannot ask must not stay for ever;
* it is asked a second time.

What an answer says counts for leaving only if it answers a request that said so. Called by membership/departure.py.

    TAKING <--answered--> DRAINING --asked--> DECOMMISSIONING --safe, alone, late, unheard, hurried--> ENDING
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Stay(Enum):
    """What this worker is about."""

    TAKING = "takes new data"
    DRAINING = "serves, and takes nothing new"
    DECOMMISSIONING = "stops when that is safe"
    ENDING = "stops now"


#: From each state the states that may follow.
LEGAL: dict[Stay, tuple[Stay, ...]] = {
    Stay.TAKING: (Stay.DRAINING, Stay.DECOMMISSIONING, Stay.ENDING),
    Stay.DRAINING: (Stay.TAKING, Stay.DECOMMISSIONING, Stay.ENDING),
    Stay.DECOMMISSIONING: (Stay.ENDING,),
    Stay.ENDING: (),
}


@dataclass(slots=True)
class DrainRules:
    """The state of one worker, from its start to its end."""

    #: how long an end is put off at most; 0: not at all
    patience_ns: int
    #: how long masters may be silent meanwhile
    silence_ns: int
    stay: Stay = Stay.TAKING
    #: whether new data is refused
    drains: bool = False
    #: why it ends, for people
    because: str = ""
    _asked_ns: int = 0
    _heard_ns: int = 0
    #: masters said, since this worker is leaving, that no open partition is placed here
    _clear: bool = False

    def heartbeat_answered(self, now_ns: int, *, draining: bool, clear: bool, as_decommissioning: bool) -> None:
        """The masters answered; `as_decommissioning`: the request said that this worker ends."""
        if self.stay is Stay.ENDING:
            return
        self.drains = draining
        if self.stay is not Stay.DECOMMISSIONING:
            self._become(Stay.DRAINING if draining else Stay.TAKING)
        elif as_decommissioning:
            self._heard_ns = now_ns
            self._clear = draining and clear
            if not draining:
                self._end("no other worker takes data, so nothing can be handed on")

    def asked(self, now_ns: int, registered: bool) -> None:
        if self.stay is Stay.DECOMMISSIONING:
            self._end("it was asked twice")
        elif not self.patience_ns or not registered:
            self._end("it was asked to")
        elif self.stay is not Stay.ENDING:
            self._asked_ns = self._heard_ns = now_ns
            self._become(Stay.DECOMMISSIONING)

    def hurried(self) -> None:
        self._end("it was asked to, at once")

    def looked(self, now_ns: int, writing: int) -> None:
        """The edge has looked: so many epochs and map files are not sealed."""
        if self.stay is not Stay.DECOMMISSIONING:
            return
        if self._clear and not writing:
            self._end("nothing is open here any more")
        elif now_ns - self._asked_ns >= self.patience_ns:
            self._end(f"worker.drain_timeout is over, with {writing} epochs and map files that are not sealed")
        elif now_ns - self._heard_ns >= self.silence_ns:
            self._end("the masters do not answer")

    def _end(self, because: str) -> None:
        if self.stay is not Stay.ENDING:
            self.because = because
            self._become(Stay.ENDING)

    def _become(self, stay: Stay) -> None:
        if stay is not self.stay:
            assert stay in LEGAL[self.stay], f"{self.stay.name} -> {stay.name}"
            self.stay = stay
