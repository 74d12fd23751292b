"""One generation of one shuffle, whatever kind its partitions are of: what is asked of the masters for it.

Rules: picklable and light. Readers and writers know their shuffle as this; shuffle.py and reduce_shuffle.py are the
two kinds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from holdfast.client.connection.runtime import runtime
from holdfast.client.connection.ticket import Ticket, explain
from holdfast.common.errors import ApplicationGoneError, GiveUpError, HoldfastError, RetryError
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import LONG_POLL_MS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.waiting import said

#: How long reader() waits for the commit.
COMMIT_WAIT_SECONDS = 60.0
_ANSWER_SECONDS = 10.0


@dataclass
class ClientShuffle:
    """One generation of one shuffle, whatever kind its partitions are of."""

    ticket: Ticket
    key: ShuffleKey
    partitions: int
    #: copies that were asked for, and those that could be placed; 0 where it was opened to be read: not known
    copies_wanted: int = field(default=0, kw_only=True)
    copies: int = field(default=0, kw_only=True)
    #: epochs that had fewer copies than asked for when this object committed; of MAP partitions each map has one
    under_replicated: int = field(default=0, init=False)

    def dropped_error(self) -> HoldfastError | None:
        """Return the masters' word that the shuffle was dropped, None if it was not or they do not answer."""
        request = pb.GetManifestRequest(key=self.key_message(), holder=self.ticket.holder)
        try:
            self._call("Shuffles/GetManifest", request)
        except (ApplicationGoneError, GiveUpError) as error:
            return error
        except HoldfastError:
            return None
        return None

    def forget_manifest(self) -> None:
        """Ask for the manifest anew when it is needed next: more copies may have been sealed since it was read."""

    def unregister(self) -> None:
        """Forget the shuffle: workers delete its files."""
        request = pb.UnregisterShuffleRequest(key=self.key_message(), holder=self.ticket.holder)
        self._call("Shuffles/UnregisterShuffle", request)

    def key_message(self) -> pb.ShuffleKey:
        """The key as the control plane writes it."""
        return key_message(self.key)

    async def _poll_manifest(self, *, offers_winners: bool = False) -> pb.GetManifestReply:
        """Ask until the shuffle is committed, for up to COMMIT_WAIT_SECONDS; raises what the masters refuse."""
        wait_ms = min(LONG_POLL_MS_MAX, 5_000)
        request = pb.GetManifestRequest(
            key=self.key_message(), wait_ms=wait_ms, holder=self.ticket.holder, offers_winners=offers_winners
        )
        end = asyncio.get_running_loop().time() + COMMIT_WAIT_SECONDS
        deadline_s = wait_ms / 1e3 + _ANSWER_SECONDS
        reply: pb.GetManifestReply | None = None
        with said(f"the commit of shuffle {self.key}"):
            while reply is None:
                try:
                    reply = await runtime().call(self.ticket, "Shuffles/GetManifest", request, deadline_s)
                except RetryError as error:
                    if error.status is not Status.NOT_COMMITTED or asyncio.get_running_loop().time() > end:
                        raise
        if reply.partitions != self.partitions:
            raise GiveUpError(f"shuffle {self.key} has {reply.partitions} partitions, not {self.partitions}")
        return reply

    def _say_winners(self, winners: bytes, deadline_s: float = 30.0, waiting: str = "") -> None:
        """Commit these winners, and tell of copies that are missing."""
        request = pb.CommitRequest(key=self.key_message(), winners_array=winners, holder=self.ticket.holder)
        reply: pb.CommitReply = self._call("Shuffles/Commit", request, deadline_s, waiting)
        self.under_replicated = reply.under_replicated
        if reply.under_replicated:
            log_event(
                LogEvent.SHUFFLE_UNDER_REPLICATED,
                shuffle=self.key,
                epochs=reply.under_replicated,
                awaited=reply.awaited,
                waits_for=list(reply.waits_for),
            )

    def _call(self, method: str, request: Any, deadline_s: float = 30.0, waiting: str = "") -> Any:
        """`waiting` is what the log says that a long call waits for."""
        try:
            return runtime().run(runtime().call(self.ticket, method, request, deadline_s, waiting))
        except HoldfastError as error:
            raise error.reworded(explain(error, self.ticket.endpoints)) from error
