"""What all calls of a master may hold at once: calls under way, bytes of bodies that came, bytes of answers not taken.

Rules: room is taken before the first byte is kept, and given back when nothing is kept any more. One user, with all
applications, those that have ended as well, or one host where there is no security, gets a share of each
(common/shares.py), so that no user can take all of it; a part is reserved for workers, masters and operators.
A call without room gets BUSY and is repeated. A body counts from before it is read until its call has ended, an answer
from before it is written until the client has taken it. Called by handlers.py, http.py and grpc.py.
docs/operate/failure_model.md has all bounds.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, KIB, MIB
from holdfast.common.net.methods import Method
from holdfast.common.security.tokens import Bearer
from holdfast.common.shares import Shares

#: A body in proto3 JSON: bytes are base64 there, a third more.
JSON_BYTES_MAX = CONTROL_MESSAGE_BYTES_MAX * 4 // 3 + 4 * KIB
#: Bytes of bodies of calls, in all and of one user; and so of the winners that came in them. The reserve is for
#: workers, masters and operators.
BODY_BYTES_MAX = 256 * MIB
BODY_BYTES_EACH_MAX = 96 * MIB
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
#: RPCs of gRPC, in all, as gRPC itself lets in; long polls are most of them.
RPCS_MAX = 4_096

assert JSON_BYTES_MAX <= BODY_BYTES_EACH_MAX, "the longest body fits into a share"
assert BODY_BYTES_EACH_MAX + BODY_BYTES_RESERVED <= BODY_BYTES_MAX, "and into what is not reserved"
assert JSON_BYTES_MAX <= ANSWER_BYTES_EACH_MAX <= ANSWER_BYTES_MAX - ANSWER_BYTES_RESERVED, "and so does an answer"

#: Without security the caller is unknown: methods of workers count as theirs.
_OF_WORKERS = "Registry/"


@dataclass(frozen=True, slots=True)
class BudgetOwner:
    """Whose share a call takes of."""

    who: Hashable
    #: keeps the cluster alive, or operates it
    vital: bool
    #: from which the call comes, as HTTP ("10.0.0.7") or gRPC ("ipv4:10.0.0.7", "ipv6:%5B::1%5D") say it
    host: str


class BudgetRoom(AbstractContextManager["BudgetRoom"]):
    """What one call holds of a budget; given back at the end of a `with`, or by `close`."""

    def __init__(self, shares: Shares, asker: BudgetOwner, what: str) -> None:
        self._shares, self._asker, self._what = shares, asker, what
        self.held = 0

    def take(self, amount: int) -> None:
        """Take so much more. Raises RetryError (BUSY) if there is no room for it."""
        self._shares.claim(self._asker.who, self._what, amount, vital=self._asker.vital)
        self.held += amount

    def keep(self, amount: int) -> None:
        """Hold no more than so much from now on."""
        if self.held > amount:
            self._shares.give(self._asker.who, self.held - amount)
            self.held = amount

    def close(self) -> None:
        """Give all back; again is nothing."""
        self.keep(0)

    def __exit__(self, *_: object) -> None:
        self.close()


class Budgets:
    """The budgets of one master."""

    def __init__(self) -> None:
        self.calls = Shares(CALLS_MAX, CALLS_EACH_MAX, CALLS_RESERVED)
        self.rpcs = Shares(RPCS_MAX, RPCS_MAX // 2, CALLS_RESERVED)
        self.bodies = Shares(BODY_BYTES_MAX, BODY_BYTES_EACH_MAX, BODY_BYTES_RESERVED)
        self.answers = Shares(ANSWER_BYTES_MAX, ANSWER_BYTES_EACH_MAX, ANSWER_BYTES_RESERVED)

    @staticmethod
    def asker(caller: Bearer | None, host: str, method: Method) -> BudgetOwner:
        """Return whose share a call takes of: a user's, with all its applications, or a host's without security."""
        if caller is None:
            return BudgetOwner(host, method.name.startswith(_OF_WORKERS), host)
        return BudgetOwner(caller.share_owner, caller.vital, host)

    def body(self, asker: BudgetOwner) -> BudgetRoom:
        """Room for a body; nothing is taken yet."""
        return BudgetRoom(self.bodies, asker, "more bytes of bodies")

    def answer(self, asker: BudgetOwner) -> BudgetRoom:
        """Room for an answer; nothing is taken yet."""
        return BudgetRoom(self.answers, asker, "more bytes of answers")

    def rpc(self, asker: BudgetOwner) -> BudgetRoom:
        """Room for an RPC of gRPC, long polls among them; nothing is taken yet."""
        return BudgetRoom(self.rpcs, asker, "more RPCs")

    def call(self, asker: BudgetOwner) -> BudgetRoom:
        """Room for a call; nothing is taken yet."""
        return BudgetRoom(self.calls, asker, "more calls")
