"""Tells the service manager how this server is: ready, its state in words, that it still turns, that it ends.

The protocol is systemd's sd_notify(3): datagrams of `KEY=value` lines to the socket that NOTIFY_SOCKET names. Rules:
without that variable nothing happens; nothing here can fail a server, since a manager that cannot be reached is no
reason to end. The watchdog is fed by the loop itself, and only after `turns` has come back, so a loop or a thread
that hangs is noticed: the manager then ends this process with SIGABRT, and the log gets the stack of every thread.
Called by the mains.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event

#: How often the state is checked; a change is reported.
LOOK_SECONDS = 1.0
#: Of the manager's patience, a feeding is due after this share: two may be late.
_FEED_SHARE = 1 / 3
#: Longer numbers of microseconds than these are no patience.
_PATIENCE_DIGITS_MAX = 18


async def _at_once() -> None:
    """The loop is all that has to turn."""


class Notifier:
    """The service manager of this process, or none."""

    def __init__(self, environ: Mapping[str, str] | None = None, pid: int | None = None) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from `environ` (default: this process's)."""
        environment = os.environ if environ is None else environ
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        #: how long the manager waits for a sign of life, in seconds; 0: it does not
        self.patience = _patience(environment, os.getpid() if pid is None else pid) if self._address else 0.0
        self._state = ""
        self._warned = False
        if self._address:
            faulthandler.enable()  # the watchdog's signal then leaves the stacks in the log

    def ready(self, state: str) -> None:
        """This server serves; `state` says in a few words how it is."""
        self._state = state
        self._tell(f"READY=1\nSTATUS={_line(state)}\nWATCHDOG=1")

    def state(self, state: str) -> None:
        """Tell how this server is, if that has changed."""
        if state != self._state:
            self._state = state
            self._tell(f"STATUS={_line(state)}")

    def stopping(self, state: str = "ends") -> None:
        """This server is on its way out."""
        self._state = state
        self._tell(f"STOPPING=1\nSTATUS={_line(state)}")

    async def watch(self, state: Callable[[], str], turns: Callable[[], Awaitable[None]] = _at_once) -> None:
        """Tell the state as it changes, and feed the watchdog whenever `turns` has come back; until cancelled.

        `turns` comes back when everything of this server that must turn has done so. What it raises ends this.
        """
        if not self._address:
            return
        pause = min(LOOK_SECONDS, self.patience * _FEED_SHARE) if self.patience else LOOK_SECONDS
        while True:
            await turns()
            if self.patience:
                self._tell("WATCHDOG=1")
            self.state(state())
            await asyncio.sleep(pause)

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)  # a manager that does not read must not hold up the loop
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._warned:
                self._warned = True
                log_event(LogEvent.SYSTEMD_UNREACHABLE, what=text, reason=error)


def _address(path: str) -> str:
    """The socket's address; "" without a usable one."""
    if sys.platform != "linux" or path[:1] not in ("/", "@"):
        return ""
    return "\0" + path[1:] if path[0] == "@" else path


def _patience(environ: Mapping[str, str], pid: int) -> float:
    """Seconds between signs of life that the manager wants of this very process; 0 if none."""
    wanted, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not wanted.isdecimal() or len(wanted) > _PATIENCE_DIGITS_MAX or (whose and whose != str(pid)):
        return 0.0
    return int(wanted) / 1e6


def _line(text: str) -> str:
    return " ".join(text.split())
