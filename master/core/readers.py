"""Which hosts asked where the data of a shuffle is: who reads it, as far as a leader sees. Pure.

Rules: bounded; what was asked longest ago is forgotten first. A process asks once for each shuffle and for what it
misses, so numbers are of questions, not of reads. Kept by leader.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from holdfast.common.ids import ShuffleKey

#: Hosts of one shuffle, and of all together.
EACH_MAX, ALL_MAX = 1_000, 50_000


class HostReader(NamedTuple):
    """A host, how often it asked, and when it did last, in milliseconds since 1970."""

    host: str
    asked: int
    last_ms: int


class Readers:
    """Hosts by shuffle."""

    def __init__(self) -> None:
        self._of: OrderedDict[ShuffleKey, OrderedDict[str, HostReader]] = OrderedDict()
        self._count = 0

    def asked(self, key: ShuffleKey, host: str, now_ms: int) -> None:
        """Note that a host asked for the manifest."""
        hosts = self._of.setdefault(key, OrderedDict())
        self._of.move_to_end(key)
        before = hosts.pop(host, None)
        self._count += before is None
        hosts[host] = HostReader(host, before.asked + 1 if before is not None else 1, now_ms)
        if len(hosts) > EACH_MAX:
            hosts.popitem(last=False)
            self._count -= 1
        while self._count > ALL_MAX:
            _, oldest = self._of.popitem(last=False)
            self._count -= len(oldest)

    def of(self, key: ShuffleKey) -> list[HostReader]:
        """Those of one shuffle, who asked last first."""
        return list(reversed(self._of.get(key, {}).values()))
