"""Decides what waits for the masters' word: which shuffles are registered, and where workers are.

Rules: clients name shuffles and the addresses of replicas, and nothing durable is made for a shuffle, nor a connection
opened to an address, that the masters do not have. What they said is remembered, so a shuffle is asked about once, and
one of which something is on the disks was let in before: work under way needs no masters. What nobody has said waits,
in order and within bounds of its connection, of its owner (shares.py) and of all; without an answer in time it is
refused as BUSY, and may come again. That something is not registered is not remembered: it may be in a moment. Pure:
times are given. Called by membership/asking.py; see docs/internals/adr/0032-only-what-is-registered.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.common.errors import HoldfastError, RetryError, error_for
from holdfast.common.ids import ShuffleKey, WorkerId
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.bounded import remember

#: Shuffles remembered as registered; one takes some 250 bytes. What is forgotten is asked about again.
SHUFFLES_MAX = 65_536
#: Workers whose address is remembered.
WORKERS_MAX = 4_096
#: Requests that wait for an answer at a time: of one connection, and of all.
WAITING_PER_CONNECTION_MAX = 256
WAITING_MAX = 4_096
#: What waits for longer is refused, before its client gives up the connection.
ANSWER_NS = 5 * 10**9
#: What is asked about in one call.
QUESTIONS_MAX = 256

#: A connection by number; or an owner, for what its pushes wait for together.
ConnectionId = Hashable
#: What is asked about: a shuffle, or where the worker of this number is.
Question = ShuffleKey | WorkerId
#: Called once, with why not, or None: the masters have it.
Then = Callable[[HoldfastError | None], None]


@dataclass(slots=True)
class _Waiting:
    """A request that waits."""

    connection: ConnectionId
    owner: Hashable
    since_ns: int
    then: Then


@dataclass(slots=True)
class RegisteredShuffles:
    """What the masters have said, and who waits for what they will say."""

    _shuffles: dict[ShuffleKey, None] = field(default_factory=dict)
    _addresses: dict[WorkerId, str] = field(default_factory=dict)
    #: by question, as they came
    _asked: dict[Question, list[_Waiting]] = field(default_factory=dict)
    _of: dict[ConnectionId, int] = field(default_factory=dict)
    #: who waits, by owner
    _shares: Shares = field(default_factory=lambda: Shares(WAITING_MAX))

    # What is known.

    def knows(self, shuffle: ShuffleKey) -> bool:
        return shuffle in self._shuffles

    def address_of(self, worker: WorkerId) -> str:
        """Where a worker is; "" where nobody has said."""
        return self._addresses.get(worker, "")

    def learn(self, shuffles: Iterable[ShuffleKey]) -> list[Then]:
        """These are registered; returns who waited for that, to be called with None."""
        go_on: list[Then] = []
        for shuffle in shuffles:
            remember(self._shuffles, shuffle, None, SHUFFLES_MAX)
            go_on += self._take(shuffle)
        return go_on

    def learn_address(self, worker: WorkerId, address: str) -> None:
        remember(self._addresses, worker, address, WORKERS_MAX)

    def forget(self, shuffle: ShuffleKey) -> None:
        self._shuffles.pop(shuffle, None)

    @property
    def shuffles(self) -> int:
        return len(self._shuffles)

    # What is asked.

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._shares.total

    def ask(self, question: Question, connection: ConnectionId, owner: Hashable, now_ns: int, then: Then) -> None:
        """Have `then` called when the masters have answered. Raises RetryError BUSY past a bound."""
        if self._of.get(connection, 0) >= WAITING_PER_CONNECTION_MAX or not self._shares.take(owner, 1):
            raise RetryError("too many requests wait for the masters to confirm shuffles", status=Status.BUSY)
        self._asked.setdefault(question, []).append(_Waiting(connection, owner, now_ns, then))
        self._of[connection] = self._of.get(connection, 0) + 1

    def questions(self) -> tuple[list[ShuffleKey], list[WorkerId]]:
        """What to ask the masters next, first come first served."""
        some = [question for question, _ in zip(self._asked, range(QUESTIONS_MAX), strict=False)]
        shuffles = [question for question in some if isinstance(question, ShuffleKey)]
        return shuffles, [question for question in some if not isinstance(question, ShuffleKey)]

    def answered(
        self,
        shuffles: Collection[ShuffleKey],
        registered: Collection[ShuffleKey],
        workers: Collection[WorkerId],
        addresses: Mapping[WorkerId, str],
    ) -> list[tuple[Then, HoldfastError | None]]:
        """A confirmed leader has answered: of `shuffles` just those are registered, and of `workers` these are there.
        Returns whom to call, and with what."""
        # A key without the id of the state that registered it stands for whichever has its numbers: it names no data.
        known = [key for key in registered if key.state]
        calls: list[tuple[Then, HoldfastError | None]] = [(then, None) for then in self.learn(known)]
        for key in shuffles:
            text = f"{key} is not registered with the masters"
            calls += [(then, error_for(Status.UNKNOWN_SHUFFLE, text)) for then in self._take(key)]
        for worker in workers:
            self._addresses.pop(worker, None)
            if worker in addresses:
                self.learn_address(worker, addresses[worker])
            calls += [(then, None) for then in self._take(worker)]
        return calls

    def tick(self, now_ns: int) -> list[tuple[Then, HoldfastError | None]]:
        """Time has passed: who has waited for too long, and what to tell them."""
        late: list[tuple[Then, HoldfastError | None]] = []
        text = "the masters have not confirmed in time that this is registered"
        for question, waiting in list(self._asked.items()):
            while waiting and now_ns - waiting[0].since_ns >= ANSWER_NS:
                late.append((self._leave(waiting.pop(0)), RetryError(text, status=Status.BUSY)))
            if not waiting:
                del self._asked[question]
        return late

    def check(self) -> None:
        everyone = [one for waiting in self._asked.values() for one in waiting]
        self._shares.check()
        assert len(everyone) == self.waiting == sum(self._of.values())
        assert all(self._asked.values())
        assert len(self._shuffles) <= SHUFFLES_MAX
        assert len(self._addresses) <= WORKERS_MAX

    def _take(self, question: Question) -> list[Then]:
        return [self._leave(one) for one in self._asked.pop(question, ())]

    def _leave(self, one: _Waiting) -> Then:
        self._shares.give(one.owner, 1)
        self._of[one.connection] -= 1
        if not self._of[one.connection]:
            del self._of[one.connection]
        return one.then
