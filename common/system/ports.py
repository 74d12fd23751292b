"""Picks free TCP ports that a server can have again after a restart.

A port below the range from which the system takes ports for outgoing connections is not lost to a stranger while its
server is down; a port from within that range is, now and then. Nor is one lost to another process that asks here: ports
are claimed in blocks, each by a name in the system's table of abstract Unix sockets, which ends with the process that
has it. Called by the local cluster, the drills and the tests.
"""

from __future__ import annotations

import errno
import random
import socket
import threading
from collections import deque
from pathlib import Path

from holdfast.common.errors import ConfigError

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Below are services with names; Linux uses 32768 to 60999 for outgoing connections by default.
_LOWEST = 10_000
_OUTGOING_FROM, _OUTGOING_TO = 32_768, 60_999
#: Ports that are claimed together.
_BLOCK = 16
#: From so many on, a process takes those that it gave out longest ago again rather than further ones.
_OWN_ENOUGH = 512


class _Own:
    """The ports that belong to this process until it ends: those never given out, then those given out longest ago."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._ports: deque[int] = deque()
        self._new = 0
        self._claims: list[socket.socket] = []

    def enough(self) -> bool:
        """Whether those given out before are to be given again, rather than further ones."""
        return len(self._ports) >= _OWN_ENOUGH

    def give(self, count: int, host: str, again: bool) -> list[int]:
        """Up to `count` that are free now; with `again` also those that were given out before."""
        found: list[int] = []
        for _ in range(len(self._ports) if again else self._new):
            if len(found) == count:
                break
            port = self._ports.popleft()
            self._ports.append(port)
            self._new = max(0, self._new - 1)
            if is_free(port, host):
                found.append(port)
        return found

    def claim(self, block: range, host: str) -> bool:
        """Whether a block is this process's from now on: no other process has it, and ports of it are free."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0holdfast-ports-{block.start}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                claim.close()
                return False
            # Not Linux: nothing can be claimed, and the loser of a race gets "address in use".
        found = [port for port in block if is_free(port, host)]
        if not found:
            claim.close()
            return False
        self._claims.append(claim)
        self._ports.extendleft(reversed(found))
        self._new += len(found)
        return True


_own = _Own()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different ports on which a server can listen now, and that no other process gets from here as long
    as this one lives. Raises ConfigError if there are not enough."""
    first, last = outgoing_range()
    starts = [each for each in range(_LOWEST, 65_536 - _BLOCK, _BLOCK) if each + _BLOCK <= first or each > last]
    random.shuffle(starts)
    with _own.lock:
        found = _own.give(count, host, again=_own.enough())
        for start in starts:
            if len(found) == count:
                break
            if _own.claim(range(start, start + _BLOCK), host):
                found += _own.give(count - len(found), host, again=False)
    if len(found) < count:
        raise ConfigError(f"only {len(found)} of {count} ports are free on {host} outside {first} to {last}")
    return found


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether a server could listen there now; ports that wait for the end of old connections count as free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def outgoing_range() -> tuple[int, int]:
    """The ports, both included, that the system takes for outgoing connections."""
    try:
        first, last = map(int, _RANGE_FILE.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # not Linux, or /proc is not mounted
        return _OUTGOING_FROM, _OUTGOING_TO
    return first, last
