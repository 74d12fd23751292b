"""A way around: connections that this process opens go to another address, where a proxy of a drill listens.

    take("127.0.0.11")      # [faults] detour; also `ports`, where only some of this process's connections are meant
    through("127.0.0.1", 7070) == "127.0.0.11"

Rules: nothing is changed unless a drill asked for it; ports stay what they are; so a proxy that listens once for each
server knows both ends of each connection, and can cut any two apart. Called by everything that opens a connection
between servers, or from a client to one; set by the mains from [faults], and by drills for their own clients.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from holdfast.common.config.faults import FaultsSection


@dataclass(slots=True)
class _Detour:
    host: str = ""
    #: empty: all
    ports: frozenset[int] = frozenset()


_taken = _Detour()


def take(host: str, ports: Collection[int] = ()) -> AbstractContextManager[object]:
    """From now on reach others through `host`, "" for none; only those with one of these ports, if there are any.

    What is returned undoes it as a context manager.
    """
    undo = ExitStack()
    undo.callback(take_none)
    _taken.host, _taken.ports = host, frozenset(ports)
    return undo


def take_none() -> None:
    """Reach everybody at his own address."""
    _taken.host, _taken.ports = "", frozenset()


def take_configured(faults: FaultsSection) -> None:
    """What the configuration asks for."""
    if faults.enabled and faults.detour:
        take(faults.detour)


def through(host: str, port: int) -> str:
    """Where to connect to instead of `host`."""
    if not _taken.host or (_taken.ports and port not in _taken.ports):
        return host
    return _taken.host
