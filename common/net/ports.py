"""Picks free TCP ports that a server can have again after a restart.

A port below the range from which the system takes ports for outgoing connections is not lost to a stranger while its
server is down; a port from within that range is, now and then. Called by the local cluster, the drills and the tests.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from holdfast.common.errors import ConfigError

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Below are services with names; Linux hands out 32768 to 60999 for outgoing connections unless told otherwise.
_LOWEST = 10_000
_OUTGOING_FROM, _OUTGOING_TO = 32_768, 60_999


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different ports on which a server can listen now. Raises ConfigError if there are not enough.

    The search starts anywhere, so that several callers at once seldom meet; the port is not held, so who loses the
    race sees "address in use" and asks again.
    """
    first, last = outgoing_range()
    candidates = [port for port in range(_LOWEST, 65_536) if not first <= port <= last]
    start = random.randrange(len(candidates)) if candidates else 0
    found: list[int] = []
    for port in candidates[start:] + candidates[:start]:
        if len(found) == count:
            break
        if is_free(port, host):
            found.append(port)
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
