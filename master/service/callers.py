"""Which user the clients are of whose answers the masters remember, so that no user takes that memory for itself.

A client is remembered for bounds.CLIENT_LIFE_MS after its last command, and when there are bounds.CLIENTS_MAX of them
new ones are told BUSY. Here the leader keeps whose they are, as it has heard since it leads, and tells a user BUSY
earlier. Without security nobody says who calls, and only the bound for all holds. Called by leader.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from holdfast.common.errors import RetryError, Status
from holdfast.master.core import bounds

_LIFE_NS = bounds.CLIENT_LIFE_MS * 1_000_000


class Callers:
    """Clients by user, the one longest without a command first."""

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, tuple[str, int]] = OrderedDict()
        self._of: Counter[str] = Counter()

    def heard(self, client: bytes, user: str, now_ns: int) -> None:
        """Note a command. Raises RetryError (BUSY) for one more client of a user who has as many as one may have."""
        self._expire(now_ns)
        if self._clients.pop(client, None) is None:
            if self._of[user] >= bounds.CLIENTS_PER_USER_MAX:
                raise RetryError(
                    f'user "{user}" has {self._of[user]} clients that called in the last '
                    f"{bounds.CLIENT_LIFE_MS // 60_000} minutes, and may have no more; try again later",
                    status=Status.BUSY,
                )
            self._of[user] += 1
        self._clients[client] = user, now_ns

    def _expire(self, now_ns: int) -> None:
        while self._clients:
            user, last_ns = next(iter(self._clients.values()))
            if now_ns - last_ns <= _LIFE_NS and len(self._clients) < bounds.CLIENTS_MAX:
                return
            self._clients.popitem(last=False)
            self._of[user] -= 1
            if not self._of[user]:
                del self._of[user]
