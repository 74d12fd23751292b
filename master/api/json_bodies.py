"""Bodies of calls in proto3 JSON: bounded by what they hold and not by their length alone, and read beside the loop.

Rules: JSON takes microseconds for each value, and the whole body is one call of the parser, so many small values would
stop a master for longer than an election takes. What would be values is counted first, which costs nothing; a long body
is read in a thread, one at a time. One long text, as winners are, is a few values. Called by http.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from google.protobuf import json_format
from google.protobuf.message import Message

from holdfast.common.errors import ProtocolError
from holdfast.common.limits import KIB, REVIVE_EPOCHS_MAX
from holdfast.common.net.methods import Method
from holdfast.common.statuses import Status
from holdfast.common.strict_json import read_json
from holdfast.master.api.statuses import bad_request
from holdfast.master.leader.turns import UserTurns

#: What opens or parts values, or is escaped, in one body. The longest Revive has four for each partition.
MARKS_MAX = 6 * REVIVE_EPOCHS_MAX
_MARKS = (b"{", b"[", b",", b"\\")
#: Longer ones are read in a thread.
_AT_ONCE_BYTES_MAX = 32 * KIB
_DEPTH_MAX = 20


class JsonBodies:
    """Reads bodies; one for each loop."""

    def __init__(self) -> None:
        self._turns = UserTurns()

    async def read(self, method: Method, body: bytes | bytearray, user: Hashable) -> Message:
        """Return the request of a method that is in the body. Raises ProtocolError, and RetryError (BUSY) where many
        users have long ones."""
        if len(body) <= _AT_ONCE_BYTES_MAX:
            return _read(method, body)
        async with self._turns.turn(user, "other long bodies"):
            return await asyncio.to_thread(_read, method, body)


def _read(method: Method, body: bytes | bytearray) -> Message:
    request = method.request()
    if len(body) > MARKS_MAX and sum(map(body.count, _MARKS)) > MARKS_MAX:
        raise ProtocolError(
            f"a body in JSON has at most {MARKS_MAX} values: ask in parts, or send application/proto",
            status=Status.TOO_LARGE,
        )
    try:
        document = read_json(body or b"{}")
        if not isinstance(document, dict):
            raise ValueError("it is not an object")
        json_format.ParseDict(document, request, max_recursion_depth=_DEPTH_MAX)
    except (json_format.ParseError, ValueError) as error:
        raise bad_request(f"the body is no {request.DESCRIPTOR.name} in JSON: {error}") from error
    return request
