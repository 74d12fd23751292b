"""What all calls of a master may hold at once: calls under way, bytes of bodies that came, bytes of answers not taken.

Rules: room is taken before the first byte is kept, and given back when nothing is kept any more. One user, or one host
where there is no security, gets a share of each, so that nobody takes the rest from others; a part is reserved for
workers, masters and operators. Who finds no room is told BUSY and comes again. A body counts from before it is read
until its call has ended, an answer from before it is written until the client has taken it. Called by handlers.py,
http.py and grpc.py. docs/failure_model.md has all bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from holdfast.common.errors import RetryError
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, KIB, MIB
from holdfast.common.net.methods import Method
from holdfast.common.security.tokens import Bearer, TokenKind
from holdfast.common.statuses import Status
from holdfast.master.api.access import user_of
from holdfast.master.core.slots import BODY_BYTES_EACH_MAX, BODY_BYTES_MAX, Slots

#: A body in proto3 JSON: bytes are base64 there, a third more.
JSON_BYTES_MAX = CONTROL_MESSAGE_BYTES_MAX * 4 // 3 + 4 * KIB
#: Of bodies of calls, kept free for workers, masters and operators.
BODY_BYTES_RESERVED = 32 * MIB
#: Answers that clients have not taken yet.
ANSWER_BYTES_MAX = 256 * MIB
ANSWER_BYTES_EACH_MAX = 96 * MIB
ANSWER_BYTES_RESERVED = 32 * MIB
#: Shorter bodies and answers need no room: what a connection holds anyway.
SMALL_BYTES = 4 * KIB
#: Calls under way at once, long polls not counted.
CALLS_MAX = 2_048
CALLS_EACH_MAX = 1_024
CALLS_RESERVED = 256

assert JSON_BYTES_MAX <= BODY_BYTES_EACH_MAX, "the longest body fits into a share"
assert BODY_BYTES_EACH_MAX + BODY_BYTES_RESERVED <= BODY_BYTES_MAX, "and into what is not reserved"
assert JSON_BYTES_MAX <= ANSWER_BYTES_EACH_MAX <= ANSWER_BYTES_MAX - ANSWER_BYTES_RESERVED, "and so does an answer"

_VITAL = (TokenKind.SERVER, TokenKind.ADMIN)
#: Without security nobody says what he is: what workers call is theirs.
_OF_WORKERS = "Registry/"


@dataclass(frozen=True, slots=True)
class BudgetOwner:
    """Whose share a call takes of."""

    who: Hashable
    #: keeps the cluster alive, or operates it
    vital: bool


class BudgetRoom(AbstractContextManager["BudgetRoom"]):
    """What one call holds of a budget; given back at the end of a `with`, or by `close`."""

    def __init__(self, slots: Slots, asker: BudgetOwner, what: str) -> None:
        self._slots, self._asker, self._what = slots, asker, what
        self.held = 0

    def take(self, amount: int) -> None:
        """Take so much more. Raises RetryError (BUSY) if there is no room for it."""
        slots, who, vital = self._slots, self._asker.who, self._asker.vital
        if slots.full(amount, vital=vital) or (not vital and slots.full_for(who, amount)):
            slots.refused += 1
            taken = f"{slots.count} of {slots.most} taken, {slots.taken.get(who, 0)} of {slots.most_each} by you"
            raise RetryError(f"this master has no room for {self._what} now ({taken}); try again", status=Status.BUSY)
        slots.take(who, amount)
        self.held += amount

    def keep(self, amount: int) -> None:
        """Hold no more than so much from now on."""
        if self.held > amount:
            self._slots.give_back(self._asker.who, self.held - amount)
            self.held = amount

    def close(self) -> None:
        """Give all back; again is nothing."""
        self.keep(0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Budgets:
    """The budgets of one master."""

    def __init__(self, owner: Callable[[bytes], str | None]) -> None:
        """`owner` tells the user of an application, None if it is not known."""
        self._owner = owner
        self.calls = Slots(CALLS_MAX, CALLS_EACH_MAX, CALLS_RESERVED)
        self.bodies = Slots(BODY_BYTES_MAX, BODY_BYTES_EACH_MAX, BODY_BYTES_RESERVED)
        self.answers = Slots(ANSWER_BYTES_MAX, ANSWER_BYTES_EACH_MAX, ANSWER_BYTES_RESERVED)

    def asker(self, caller: Bearer | None, host: str, method: Method) -> BudgetOwner:
        """Return whose share a call takes of: a user's, with all its applications, or a host's without security."""
        if caller is None:
            return BudgetOwner(host, method.name.startswith(_OF_WORKERS))
        user = user_of(caller, self._owner)
        return BudgetOwner((TokenKind.USER, user) if user else (caller.kind, caller.subject), caller.kind in _VITAL)

    def body(self, asker: BudgetOwner) -> BudgetRoom:
        """Room for a body; nothing is taken yet."""
        return BudgetRoom(self.bodies, asker, "more bytes of bodies")

    def answer(self, asker: BudgetOwner) -> BudgetRoom:
        """Room for an answer; nothing is taken yet."""
        return BudgetRoom(self.answers, asker, "more bytes of answers")

    def call(self, asker: BudgetOwner) -> BudgetRoom:
        """Room for a call; nothing is taken yet."""
        return BudgetRoom(self.calls, asker, "more calls")
