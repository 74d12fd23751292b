"""Which user the clients are of whose answers the masters remember, so that no user takes that memory for itself.

A client is remembered for bounds.CLIENT_LIFE_MS after its last command, and when there are bounds.CLIENTS_MAX of them
new ones get BUSY. The leader counts them by user since its election, and answers BUSY to a user
earlier, by the user's share (common/shares.py). Without security the user is unknown, and only the bound for all
holds. Called by leader.py.
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast.common.errors import RetryError
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.master.core.state import bounds

_LIFE_NS = bounds.CLIENT_LIFE_MS * 1_000_000


class Callers:
    """Clients by user, the one longest without a command first."""

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, tuple[str, int]] = OrderedDict()
        self._shares = Shares(bounds.CLIENTS_MAX)

    def heard(self, client: bytes, user: str, now_ns: int) -> None:
        """Note a command. Raises RetryError (BUSY) for one more client of a user with so many that others would lack
        room."""
        self._expire(now_ns)
        if client in self._clients:
            self._forget(client)
            self._shares.add(user, 1)  # a known client continues
        elif not self._shares.take(user, 1):
            raise RetryError(
                f'user "{user}" has {self._shares.held(user)} of {self._shares.total} clients that called in the last '
                f"{bounds.CLIENT_LIFE_MS // 60_000} minutes, and gets no more, since others need room; try again later",
                status=Status.BUSY,
            )
        self._clients[client] = user, now_ns

    def _expire(self, now_ns: int) -> None:
        while self._clients:
            client, (_, last_ns) = next(iter(self._clients.items()))
            if now_ns - last_ns <= _LIFE_NS:
                return
            self._forget(client)

    def _forget(self, client: bytes) -> None:
        user, _ = self._clients.pop(client)
        self._shares.give(user, 1)
